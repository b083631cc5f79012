/* Merges two forwards into one graph: what evaluation and what training call, side by side.
 *
 * The two lists of calls are aligned as texts are compared: by the longest common part, where a call
 * whose inputs come from the same places counts twice. Calls that are aligned are one node, so modules
 * and ranges are shared; its inputs may still differ, since a branch may be before it.
 */
#include "quant/graph/graph.h"

#include "core/base/mem.h"

#include <string.h>

enum { SAME_CALL = 1, SAME_INPUTS_TOO = 2 };

typedef struct merger {
    oct_graph *a, *b;      /* of evaluation, which becomes that of both; of training */
    int64_t *match;        /* node of b -> the one of a, or -1 */
    size_t *new_a, *new_b; /* node -> its number in the merged graph */
    int64_t *value;        /* of b -> of the merged graph; -1: nothing reads it */
    int *block;            /* likewise */
    uint32_t *best;        /* likeness of what is left of a (row) and of b (column) */
    oct_graph_node *nodes; /* the merged list */
    size_t num_nodes;
} merger;

static const oct_graph_block *block_of(const oct_graph *g, const oct_graph_node *node)
{
    return node->block < 0 ? NULL : &g->blocks[node->block];
}

/* Whether two nodes make the same call, whatever their inputs. */
static bool same_call(const oct_graph *a, const oct_graph_node *x, const oct_graph *b,
                      const oct_graph_node *y)
{
    const oct_graph_block *p = block_of(a, x), *q = block_of(b, y);
    const bool same_block =
        p && q ? p->module == q->module && strcmp(p->name, q->name) == 0 : p == q;
    return x->called == y->called && x->caller == y->caller && x->hook == y->hook &&
           strcmp(x->op, y->op) == 0 && x->num_inputs == y->num_inputs &&
           oct_op_args_equal(&x->args, &y->args) && same_block &&
           (x->called || oct_shape_equal(&a->values[x->output].shape, &b->values[y->output].shape));
}

static int64_t evaluation_input(const oct_graph_node *node, int i)
{
    return node->called_input[OCT_MODE_EVALUATION][i];
}

/* Whether two values come from the same call, or are the same input of the model. */
static bool same_source(const oct_graph *a, int64_t value, const oct_graph *b, int64_t other)
{
    int64_t p = a->values[value].producer, q = b->values[other].producer;
    if (p >= 0 && q >= 0) return same_call(a, &a->nodes[p], b, &b->nodes[q]);
    for (int i = 0; p < 0 && q < 0 && i < a->num_inputs[OCT_MODE_EVALUATION]; i++)
        if (a->inputs[i] == value && b->inputs[i] == other) return true;
    return false;
}

/* How much a node of a is like one of b: 0, SAME_CALL or SAME_INPUTS_TOO. */
static uint32_t likeness(const merger *m, size_t in_a, size_t in_b)
{
    const oct_graph_node *x = &m->a->nodes[in_a], *y = &m->b->nodes[in_b];
    if (!same_call(m->a, x, m->b, y)) return 0;
    for (int i = 0; i < x->num_inputs; i++)
        if (!same_source(m->a, evaluation_input(x, i), m->b, evaluation_input(y, i)))
            return SAME_CALL;
    return SAME_INPUTS_TOO;
}

/* Aligns the nodes of both: the pairs in order with the largest sum of likeness. */
static oct_status match_nodes(merger *m)
{
    size_t begin = 0, end_a = m->a->num_nodes, end_b = m->b->num_nodes;
    for (size_t k = 0; k < end_b; k++)
        m->match[k] = -1;
    /* The common beginning and the common end need no search. */
    for (; begin < end_a && begin < end_b && likeness(m, begin, begin) == SAME_INPUTS_TOO; begin++)
        m->match[begin] = (int64_t)begin;
    while (end_a > begin && end_b > begin && likeness(m, end_a - 1, end_b - 1) == SAME_INPUTS_TOO)
        m->match[--end_b] = (int64_t)(--end_a);
    size_t rows = end_a - begin, columns = end_b - begin, width = columns + 1;
    OCT_TRY(oct_alloc(&m->best, (rows + 1) * width, sizeof *m->best));
    for (size_t r = rows; r-- > 0;)
        for (size_t c = columns; c-- > 0;) {
            uint32_t *cell = &m->best[r * width + c], down = cell[width], right = cell[1];
            uint32_t like = likeness(m, begin + r, begin + c);
            *cell = down > right ? down : right;
            if (like && like + cell[width + 1] > *cell) *cell = like + cell[width + 1];
        }
    for (size_t r = 0, c = 0; r < rows && c < columns;) {
        const uint32_t *cell = &m->best[r * width + c];
        uint32_t like = likeness(m, begin + r, begin + c);
        if (like && *cell == like + cell[width + 1])
            m->match[begin + c++] = (int64_t)(begin + r++);
        else if (*cell == cell[width])
            r++;
        else
            c++;
    }
    return OCT_OK;
}

/* Numbers the merged nodes: between two common calls those of evaluation come first. */
static void number_nodes(merger *m)
{
    size_t in_a = 0;
    for (size_t k = 0; k <= m->b->num_nodes; k++) {
        size_t next = k;
        while (next < m->b->num_nodes && m->match[next] < 0)
            next++;
        size_t common = next < m->b->num_nodes ? (size_t)m->match[next] : m->a->num_nodes;
        while (in_a < common)
            m->new_a[in_a++] = m->num_nodes++;
        if (k == m->b->num_nodes) break;
        if (next == k) m->new_a[in_a++] = m->num_nodes;
        m->new_b[k] = m->num_nodes++;
    }
}

/* Adds a value that only b has. */
static void add_merged_value(merger *m, int64_t of_b, int64_t producer)
{
    oct_graph *a = m->a;
    int64_t number = (int64_t)a->num_values++;
    a->values[number] = m->b->values[of_b]; /* its shape and type */
    a->values[number].producer = producer;
    a->values[number].alias = number;
    m->value[of_b] = number;
}

/* Numbers the values of b as those of the merged graph: a's where nodes or inputs are common. */
static oct_status merge_values(merger *m)
{
    oct_graph *a = m->a, *b = m->b;
    size_t capacity = a->num_values;
    OCT_TRY(oct_grow(&a->values, &capacity, a->num_values + b->num_values, sizeof *a->values));
    for (size_t v = 0; v < a->num_values; v++)
        if (a->values[v].producer >= 0)
            a->values[v].producer = (int64_t)m->new_a[a->values[v].producer];
    for (size_t v = 0; v < b->num_values; v++)
        m->value[v] = -1;
    for (int i = 0; i < b->num_inputs[OCT_MODE_EVALUATION]; i++) {
        if (i < a->num_inputs[OCT_MODE_EVALUATION])
            m->value[b->inputs[i]] = a->inputs[i];
        else
            add_merged_value(m, b->inputs[i], -1);
        a->inputs[i] = m->value[b->inputs[i]];
    }
    for (size_t k = 0; k < b->num_nodes; k++) {
        if (m->match[k] >= 0)
            m->value[b->nodes[k].output] = a->nodes[m->match[k]].output;
        else
            add_merged_value(m, b->nodes[k].output, (int64_t)m->new_b[k]);
    }
    return OCT_OK;
}

/* Adds the blocks that only b has. */
static oct_status merge_blocks(merger *m)
{
    oct_graph *a = m->a, *b = m->b;
    size_t capacity = a->num_blocks;
    OCT_TRY(oct_grow(&a->blocks, &capacity, a->num_blocks + b->num_blocks + 1, sizeof *a->blocks));
    for (size_t i = 0; i < b->num_blocks; i++) {
        m->block[i] = oct_graph_find_block(a, b->blocks[i].module, b->blocks[i].name);
        if (m->block[i] >= 0) continue;
        m->block[i] = (int)a->num_blocks;
        a->blocks[a->num_blocks++] = b->blocks[i];
        b->blocks[i].name = NULL;
    }
    return OCT_OK;
}

/* Whether a node of one forward may run in the other one's mode: a dynamic block may run any
 * number of times, so that one forward did not run it does not say that it never does. */
static bool may_run(const oct_graph *other, const oct_graph *g, const oct_graph_node *node)
{
    const oct_graph_block *block = block_of(g, node);
    int there = block ? oct_graph_find_block(other, block->module, block->name) : -1;
    return block && (there < 0 || other->blocks[there].begin == other->blocks[there].end);
}

/* Notes the modes that each node is called in. */
static void set_modes(merger *m)
{
    oct_graph *a = m->a, *b = m->b;
    for (size_t i = 0; i < a->num_nodes; i++)
        a->nodes[i].in[OCT_MODE_TRAINING] = may_run(b, a, &a->nodes[i]);
    for (size_t k = 0; k < b->num_nodes; k++) {
        if (m->match[k] >= 0)
            a->nodes[m->match[k]].in[OCT_MODE_TRAINING] = true;
        else
            b->nodes[k].in[OCT_MODE_EVALUATION] = may_run(a, b, &b->nodes[k]);
    }
}

static int64_t value_or_none(const merger *m, int64_t of_b)
{
    return of_b < 0 ? -1 : m->value[of_b];
}

static void move_node(merger *m, oct_graph_node *from, size_t number)
{
    m->nodes[number] = *from;
    from->op = from->path = NULL;
}

/* Makes the merged list: nodes of both, those of b with what training passes to them. */
static oct_status merge_nodes(merger *m)
{
    OCT_TRY(oct_alloc(&m->nodes, m->num_nodes, sizeof *m->nodes));
    for (size_t i = 0; i < m->a->num_nodes; i++)
        move_node(m, &m->a->nodes[i], m->new_a[i]);
    for (size_t k = 0; k < m->b->num_nodes; k++) {
        oct_graph_node *from = &m->b->nodes[k], *node = &m->nodes[m->new_b[k]];
        const bool only_b = m->match[k] < 0;
        if (only_b) move_node(m, from, m->new_b[k]);
        int64_t inputs[OCT_MAX_INPUTS] = {0};
        for (int i = 0; i < from->num_inputs; i++)
            inputs[i] = m->value[evaluation_input(from, i)];
        memcpy(node->called_input[OCT_MODE_TRAINING], inputs, sizeof inputs);
        node->given[OCT_MODE_TRAINING] = value_or_none(m, from->given[OCT_MODE_EVALUATION]);
        if (!only_b) continue;
        memcpy(node->called_input[OCT_MODE_EVALUATION], node->called_input[OCT_MODE_TRAINING],
               sizeof node->called_input[0]);
        node->given[OCT_MODE_EVALUATION] = node->given[OCT_MODE_TRAINING];
        node->output = m->value[from->output];
        if (from->block >= 0) node->block = m->block[from->block];
    }
    return OCT_OK;
}

/* Puts the merged list in the place of a's, and finds the blocks' ranges in it. */
static void install_nodes(merger *m)
{
    oct_graph *a = m->a;
    oct_free(&a->nodes);
    a->nodes = m->nodes;
    a->num_nodes = m->num_nodes;
    m->nodes = NULL;
    for (size_t i = 0; i < a->num_blocks; i++)
        a->blocks[i].begin = a->blocks[i].end = 0;
    for (size_t i = 0; i < a->num_nodes; i++) {
        if (a->nodes[i].block < 0) continue;
        oct_graph_block *block = &a->blocks[a->nodes[i].block];
        if (block->end == 0) block->begin = i;
        block->end = i + 1;
    }
}

static oct_status merge_carried_uses(merger *m)
{
    oct_graph *a = m->a, *b = m->b;
    for (size_t r = 0; r < a->num_carried; r++)
        a->carried[r].node = (int64_t)m->new_a[a->carried[r].node];
    for (size_t r = 0; r < b->num_carried; r++) {
        const oct_graph_carried_use *of_b = &b->carried[r];
        OCT_TRY(oct_graph_add_carried_use(
            a, (oct_graph_carried_use){.node = (int64_t)m->new_b[of_b->node],
                                       .value = m->value[of_b->value],
                                       .input = of_b->input}));
    }
    return OCT_OK;
}

/* The scopes of one mode cover ranges of its nodes: makes them ranges of the merged nodes. */
static void renumber_scopes(const merger *m, oct_trace_scope *scopes, size_t count,
                            const size_t *merged_index, size_t num_nodes)
{
    for (size_t i = 0; i < count; i++) {
        oct_trace_scope *s = &scopes[i];
        bool empty = s->begin == s->end;
        size_t end = empty ? 0 : merged_index[s->end - 1] + 1;
        s->begin = s->begin < num_nodes ? merged_index[s->begin] : m->num_nodes;
        s->end = empty ? s->begin : end;
    }
}

/* Gives the merged graph the training forward's scopes beside its own. */
static void merge_scopes(merger *m)
{
    oct_graph *a = m->a, *b = m->b;
    oct_trace_scope *scopes = b->scopes[OCT_MODE_EVALUATION];
    size_t count = b->num_scopes[OCT_MODE_EVALUATION];
    renumber_scopes(m, a->scopes[OCT_MODE_EVALUATION], a->num_scopes[OCT_MODE_EVALUATION], m->new_a,
                    a->num_nodes);
    renumber_scopes(m, scopes, count, m->new_b, b->num_nodes);
    for (size_t i = 0; i < count; i++) {
        scopes[i].input = value_or_none(m, scopes[i].input);
        scopes[i].given = value_or_none(m, scopes[i].given);
        scopes[i].output = value_or_none(m, scopes[i].output);
    }
    oct_free(&a->scopes[OCT_MODE_TRAINING]);
    a->scopes[OCT_MODE_TRAINING] = scopes;
    a->num_scopes[OCT_MODE_TRAINING] = count;
    b->scopes[OCT_MODE_EVALUATION] = NULL;
}

oct_status oct_graph_merge_modes(oct_graph *graph, oct_graph **training)
{
    oct_graph *a = graph, *b = *training;
    merger m = {.a = a, .b = b};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_alloc(&m.match, b->num_nodes, sizeof *m.match));
    OCT_TRY_OUT(oct_alloc(&m.new_a, a->num_nodes, sizeof *m.new_a));
    OCT_TRY_OUT(oct_alloc(&m.new_b, b->num_nodes, sizeof *m.new_b));
    OCT_TRY_OUT(oct_alloc(&m.value, b->num_values, sizeof *m.value));
    OCT_TRY_OUT(oct_alloc(&m.block, b->num_blocks, sizeof *m.block));
    OCT_TRY_OUT(match_nodes(&m));
    number_nodes(&m);
    set_modes(&m);
    OCT_TRY_OUT(merge_values(&m));
    merge_scopes(&m);
    OCT_TRY_OUT(merge_blocks(&m));
    OCT_TRY_OUT(merge_nodes(&m));
    install_nodes(&m);
    OCT_TRY_OUT(merge_carried_uses(&m));
    a->output[OCT_MODE_TRAINING] = m.value[b->output[OCT_MODE_EVALUATION]];
    a->num_inputs[OCT_MODE_TRAINING] = b->num_inputs[OCT_MODE_EVALUATION];
out:
    oct_free(&m.match);
    oct_free(&m.new_a);
    oct_free(&m.new_b);
    oct_free(&m.value);
    oct_free(&m.block);
    oct_free(&m.best);
    oct_free(&m.nodes);
    oct_graph_destroy(training);
    return status;
}
