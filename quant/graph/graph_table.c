/* Writes the graph as a table, after the model of torch.fx's print_tabular. */
#include "quant/graph/graph.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

enum { OPCODE, NAME, TARGET, ARGS, COLUMNS };

typedef struct table_row {
    char *cell[COLUMNS];
} table_row;

typedef struct table {
    const oct_graph *graph;
    oct_mode mode;
    table_row *rows;
    size_t num_rows, cap_rows;
    size_t *row_of;      /* value -> 1 + the row that makes it; 0: none yet */
    size_t *row_of_stub; /* the same of the value in its other kind, codes or float */
} table;

/* Whether a row has this name already. */
static bool is_name(const table *t, const char *name)
{
    for (size_t i = 0; i < t->num_rows; i++) {
        if (strcmp(t->rows[i].cell[NAME], name) == 0) return true;
    }
    return false;
}

/* Makes "layer1_conv" of "layer1.conv", or "layer1_conv_1" when that is taken. */
static oct_status unique_name(const table *t, const char *base, char **name)
{
    char plain[256];
    snprintf(plain, sizeof plain, "%s", base);
    for (char *c = plain; *c; c++)
        *c = *c == '.' ? '_' : *c;
    OCT_TRY(oct_strdup(name, plain));
    for (int i = 1; is_name(t, *name); i++) {
        oct_free(name);
        OCT_TRY(oct_format(name, "%s_%d", plain, i));
    }
    return OCT_OK;
}

/* Adds a row, with a name that no other has; one that could not be filled is freed with the others. */
static oct_status add_row(table *t, const char *opcode, const char *name, const char *target,
                          const char *args)
{
    char *unique = NULL;
    OCT_TRY(oct_grow(&t->rows, &t->cap_rows, t->num_rows + 1, sizeof *t->rows));
    OCT_TRY(unique_name(t, name, &unique));
    table_row *row = &t->rows[t->num_rows++];
    *row = (table_row){{[NAME] = unique}};
    OCT_TRY(oct_strdup(&row->cell[OPCODE], opcode));
    OCT_TRY(oct_strdup(&row->cell[TARGET], target));
    return oct_strdup(&row->cell[ARGS], args);
}

/* The name of a row, counted from 1. */
static const char *row_name(const table *t, size_t row)
{
    return row ? t->rows[row - 1].cell[NAME] : "?";
}

static oct_status add_arg(oct_text *args, const char *arg)
{
    return oct_text_add(args, "%s%s", args->length ? ", " : "", arg);
}

/* Adds two rows for a generated module: get_attr of its path, and its call, whose number, from 1, is *row. */
static oct_status add_generated(table *t, const oct_module *module, const char *op,
                                const char *args, size_t *row)
{
    const oct_path_text path = oct_module_path(module);
    OCT_TRY(add_row(t, "get_attr", module->name, path.text, "()"));
    OCT_OWNED(oct_text_free) oct_text all = {0};
    OCT_TRY(oct_text_add(&all, "(%s, %s)", row_name(t, t->num_rows), args));
    OCT_TRY(add_row(t, "call_method", op, op, all.data));
    *row = t->num_rows;
    return OCT_OK;
}

/* Finds the row, counted from 1, that makes a value as codes or float, as its user wants it: that of its node, or that
 * of the stub after it, which is added at the first use. */
static oct_status find_row(table *t, int64_t recorded, oct_wants wants, size_t *row)
{
    int64_t number = oct_graph_resolve(t->graph, recorded, t->mode);
    const oct_graph_value *value = &t->graph->values[number];
    const oct_module *module = value->codes ? value->dequantize : value->quantize;
    *row = t->row_of[recorded];
    if (wants == OCT_WANTS_ANY || (wants == OCT_WANTS_CODES) == value->codes || !module)
        return OCT_OK;
    if (!t->row_of_stub[number]) {
        const char *made = row_name(t, t->row_of[number]);
        OCT_TRY(add_generated(t, module, module->type->name, made, &t->row_of_stub[number]));
    }
    *row = t->row_of_stub[number];
    return OCT_OK;
}

/* Adds the row of a node's call, with its inputs in the kind that it wants. A lone argument keeps its comma: "(a,)". */
static oct_status add_node(table *t, const oct_graph_node *node)
{
    const bool passes = node->action == OCT_NODE_ALIAS;
    const oct_wants wants = node->action == OCT_NODE_RUN ? node->wants : OCT_WANTS_ANY;
    OCT_OWNED(oct_text_free) oct_text args = {0}, text = {0};
    char number[32];
    for (int i = 0; i < node->num_inputs; i++) {
        size_t row;
        OCT_TRY(find_row(t, node->called_input[t->mode][i], wants, &row));
        OCT_TRY(add_arg(&args, row_name(t, row)));
    }
    if (!passes && node->module != node->called) {
        return add_generated(t, node->module, node->op, args.data, &t->row_of[node->output]);
    }
    for (int i = 0; !node->called && i < node->args.count; i++) {
        oct_snprintf(number, sizeof number, "%g", node->args.value[i]);
        OCT_TRY(add_arg(&args, number));
    }
    const char *inside = args.data ? args.data : "";
    OCT_TRY(oct_text_add(&text, "(%s%s)", inside, strchr(inside, ',') ? "" : ","));
    OCT_TRY(node->called
                ? add_row(t, "call_module", node->path, node->path, text.data)
                : add_row(t, "call_function", node->op, passes ? "identity" : node->op, text.data));
    t->row_of[node->output] = t->num_rows;
    return OCT_OK;
}

/* Adds the row of the end of a scope or block. */
static oct_status add_end(table *t, const char *prefix, const char *name)
{
    char args[512];
    snprintf(args, sizeof args, "('%s%s',)", prefix, name);
    return add_row(t, "call_function", "scope_end", "scope_end", args);
}

/* Adds a scope_end row for each dynamic block, from block *next on, that ends before this node inside of `scope` (NULL:
 * anywhere). */
static oct_status add_block_ends(table *t, size_t node, const oct_trace_scope *scope, size_t *next)
{
    for (; *next < t->graph->num_blocks; ++*next) {
        const oct_graph_block *block = &t->graph->blocks[*next];
        const oct_module *above = block->module;
        while (scope && above && above != scope->module)
            above = above->parent;
        bool inside =
            !scope || scope->begin < block->begin || (scope->begin == block->begin && above);
        if (block->end != node || !inside) break;
        OCT_TRY(add_end(t, "_dynamic_block_", block->name));
    }
    return OCT_OK;
}

/* Adds a scope_end row for each container whose forward ends before this node, from the inner ones, which began later,
 * to the outer ones; dynamic blocks inside of one end before it. */
static oct_status add_scope_ends(table *t, size_t node, size_t *next_block)
{
    for (size_t i = t->graph->num_scopes[t->mode]; i-- > 0;) {
        const oct_trace_scope *scope = &t->graph->scopes[t->mode][i];
        if (scope->end != node) continue;
        OCT_TRY(add_block_ends(t, node, scope, next_block));
        OCT_TRY(add_end(t, "", oct_module_path(scope->module).text));
    }
    return add_block_ends(t, node, NULL, next_block);
}

/* Adds the rows: inputs, nodes with the ends of scopes between them, output. */
static oct_status fill_table(table *t)
{
    const oct_graph *graph = t->graph;
    size_t next_block = 0;
    char name[32];
    OCT_TRY(oct_alloc(&t->row_of, graph->num_values, sizeof *t->row_of));
    OCT_TRY(oct_alloc(&t->row_of_stub, graph->num_values, sizeof *t->row_of_stub));
    for (int i = 0; i < graph->num_inputs[t->mode]; i++) {
        snprintf(name, sizeof name, "input_%d", i);
        OCT_TRY(add_row(t, "placeholder", name, name, "()"));
        t->row_of[graph->inputs[i]] = t->num_rows;
    }
    for (size_t i = 0; i <= graph->num_nodes; i++) {
        if (i > 0) OCT_TRY(add_scope_ends(t, i, &next_block));
        if (i < graph->num_nodes && graph->nodes[i].in[t->mode])
            OCT_TRY(add_node(t, &graph->nodes[i]));
    }
    size_t output;
    OCT_TRY(find_row(t, graph->output[t->mode], OCT_WANTS_FLOAT, &output));
    char args[512];
    snprintf(args, sizeof args, "(%s,)", row_name(t, output));
    return add_row(t, "output", "output", "output", args);
}

static oct_status write_line(oct_text *text, const int *widths, const char *const *cells)
{
    return oct_text_add(text, "%-*s  %-*s  %-*s  %s\n", widths[0], cells[0], widths[1], cells[1],
                        widths[2], cells[2], cells[3]);
}

/* Writes the rows under a title and a rule, in columns as wide as their longest cell. */
static oct_status write_table(const table *t, oct_text *text)
{
    static const char *const titles[COLUMNS] = {"opcode", "name", "target", "args"};
    int widths[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        widths[c] = (int)strlen(titles[c]);
        for (size_t i = 0; i < t->num_rows; i++)
            widths[c] = (int)oct_max_i64(widths[c], (int64_t)strlen(t->rows[i].cell[c]));
    }
    OCT_TRY(write_line(text, widths, titles));
    for (int c = 0; c < COLUMNS; c++) { /* a rule */
        for (int i = 0; i < widths[c]; i++)
            OCT_TRY(oct_text_add(text, "-"));
        OCT_TRY(oct_text_add(text, "%s", c + 1 < COLUMNS ? "  " : "\n"));
    }
    for (size_t i = 0; i < t->num_rows; i++)
        OCT_TRY(write_line(text, widths, (const char *const *)t->rows[i].cell));
    return OCT_OK;
}

/* Writes the table of one mode. */
static oct_status write_mode(const oct_graph *graph, oct_mode mode, oct_text *text)
{
    table t = {.graph = graph, .mode = mode};
    oct_status status = fill_table(&t);
    if (status == OCT_OK) status = write_table(&t, text);
    for (size_t i = 0; i < t.num_rows; i++)
        for (int c = 0; c < COLUMNS; c++)
            oct_free(&t.rows[i].cell[c]);
    OCT_FREE_ALL(&t.rows, &t.row_of, &t.row_of_stub);
    return status;
}

oct_status oct_graph_table(const oct_graph *graph, oct_text *text)
{
    if (!oct_graph_branches(graph)) return write_mode(graph, OCT_MODE_EVALUATION, text);
    OCT_TRY(oct_text_add(text, "In evaluation\n\n"));
    OCT_TRY(write_mode(graph, OCT_MODE_EVALUATION, text));
    OCT_TRY(oct_text_add(text, "\nIn training\n\n"));
    return write_mode(graph, OCT_MODE_TRAINING, text);
}
