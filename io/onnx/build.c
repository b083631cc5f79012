/* All nodes are built in their order; what cannot be is listed at once. */
#include "io/onnx/build_impl.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/fold.h"

#include <stdio.h>
#include <string.h>

typedef struct operator_line {
    const char *name;
    oct_onnx_builder_function build;
} operator_line;

static const operator_line operators[] = {
#define OCT_ONNX_BUILD(name, function) {name, oct_build_##function},
#include "io/onnx/build_list.def"
#undef OCT_ONNX_BUILD
};

/* Marks the nodes that the output needs, from the last to the first, and counts how often they read each value. */
static void mark_needed_nodes(oct_onnx_builder *b)
{
    const oct_onnx_graph *g = b->graph;
    memset(b->needed, 0, (size_t)g->num_nodes * sizeof *b->needed);
    memset(b->reads, 0, (size_t)g->num_values * sizeof *b->reads);
    for (int64_t v = 0; v < g->num_values; v++)
        b->last_reader[v] = -1;
    b->reads[b->output] = 1;
    for (int64_t k = g->num_nodes - 1; k >= 0; k--) {
        const oct_onnx_node *n = &g->nodes[k];
        for (int i = 0; i < n->outputs; i++)
            if (n->output[i] >= 0 && b->reads[n->output[i]] > 0) b->needed[k] = true;
        for (int i = 0; b->needed[k] && i < oct_build_inputs(b, k); i++) {
            const int32_t value = oct_build_input(b, k, i);
            if (value < 0) continue;
            b->reads[value]++;
            b->last_reader[value] = (int32_t)k;
        }
    }
}

/* What cannot be built, by kind: the sentence, and the nodes that it is about. */
typedef struct problem {
    char *sentence;
    oct_status code;
    oct_text nodes;
    int count;
} problem;

typedef struct problems {
    problem *list;
    size_t count, capacity;
} problems;

enum { NODES_NAMED = 6 };

/* Adds a node that cannot be built, and why. Nodes of one operator and reason share an entry, which names a few. */
static oct_status add_problem(problems *p, oct_status code, const oct_onnx_node *n, const char *why)
{
    OCT_OWNED(oct_free) char *sentence = NULL;
    OCT_TRY(oct_format(&sentence, "%s%s%s: %s", n->domain, n->domain[0] ? "." : "", n->type, why));
    size_t i = 0;
    while (i < p->count && strcmp(p->list[i].sentence, sentence) != 0)
        i++;
    if (i == p->count) {
        OCT_TRY(oct_grow(&p->list, &p->capacity, p->count + 1, sizeof *p->list));
        p->list[p->count++] = (problem){.sentence = sentence, .code = code};
        sentence = NULL;
    }
    problem *entry = &p->list[i];
    entry->count++;
    if (entry->count > NODES_NAMED) return OCT_OK;
    return oct_text_add(&entry->nodes, "%s%s", entry->count > 1 ? ", " : "",
                        oct_onnx_shown(n->name).text);
}

/* Adds one failure for each entry. Returns OCT_DATA when one of them is a defect of the file, else OCT_PREPARE. */
static oct_status report_problems(const oct_onnx_graph *g, const problems *p)
{
    oct_status code = OCT_PREPARE;
    oct_fail_clear();
    for (size_t i = 0; i < p->count; i++)
        if (p->list[i].code == OCT_DATA) code = OCT_DATA;
    for (size_t i = 0; i < p->count; i++) {
        const problem *entry = &p->list[i];
        char more[32] = "";
        if (entry->count > NODES_NAMED)
            snprintf(more, sizeof more, " and %d more", entry->count - NODES_NAMED);
        (void)oct_fail_add(code, "%s: node%s %s%s: %s", g->path, entry->count == 1 ? "" : "s",
                           entry->nodes.data, more, entry->sentence);
    }
    return code;
}

/* Calls the builder function of a node's operator. What makes the node impossible to build is added to `p`, so that the
 * next nodes are tried too; a failure of the machine, such as no memory, is returned. */
static oct_status build_node(oct_onnx_builder *b, int64_t node, problems *p)
{
    const oct_onnx_node *n = &b->graph->nodes[node];
    oct_onnx_builder_function build = NULL;
    for (size_t i = 0; i < OCT_COUNT(operators) && !n->domain[0]; i++)
        if (strcmp(operators[i].name, oct_build_type(b, node)) == 0) build = operators[i].build;
    if (!build)
        return add_problem(p, OCT_PREPARE, n,
                           "there is no such operator here; leave it out of the network, or give "
                           "the layer by a plug-in");
    for (int i = 0; i < oct_build_inputs(b, node); i++) {
        const int32_t value = oct_build_input(b, node, i);
        if (value >= 0 && !b->graph->values[value].data && !b->has_view[value])
            return OCT_OK; /* the node that computes it is in the list */
    }
    if (oct_build_inputs(b, node) < 1 || n->outputs < 1 || n->output[0] < 0)
        return add_problem(p, OCT_PREPARE, n,
                           "it has no input, or its first output is not used; export it otherwise");
    b->current = node;
    b->result = n->output[0];
    oct_build_set_path(b, n);
    const oct_status status = build(b, n);
    if (status != OCT_PREPARE && status != OCT_USAGE && status != OCT_DATA) return status;
    OCT_OWNED(oct_free) char *why = NULL;
    OCT_TRY(oct_strdup(&why, oct_error_message(0)));
    oct_fail_clear();
    return add_problem(p, status == OCT_DATA ? OCT_DATA : OCT_PREPARE, n, why);
}

/* The network's input as the file has it: (N, C, H, W), (N, H, W, C), or the numbers of a sample in a row. */
static oct_status set_input_view(oct_onnx_builder *b)
{
    const oct_onnx_graph *g = b->graph;
    const oct_onnx_build_options *o = b->options;
    const oct_onnx_value *in = &g->values[g->inputs[0]];
    const oct_shape shape = OCT_SHAPE(1, o->h, o->w, o->c);
    const int64_t nchw[] = {OCT_ONNX_BATCH, o->c, o->h, o->w};
    static const int order[] = {2, 3, 1};
    char text[OCT_ONNX_SHAPE_BYTES];
    OCT_CHECK(in->known && in->ndim >= 2 && in->dim[0] == OCT_ONNX_BATCH &&
                  oct_onnx_numel(in) == o->h * o->w * o->c,
              OCT_USAGE,
              "%s: its input %s is %s, but samples of the data are %lld x %lld x %lld (height, "
              "width, channels); write data.size, or export it for this size",
              g->path, in->name, oct_onnx_shape_text(in, text), (long long)o->h, (long long)o->w,
              (long long)o->c);
    const bool image = in->ndim == 4 && !g->channels_last && in->dim[1] == o->c &&
                       in->dim[2] == o->h && in->dim[3] == o->w;
    b->view[g->inputs[0]] = image ? oct_view_in_order(0, shape, 4, nchw, order, 3)
                                  : oct_view_of(0, shape, in->ndim, in->dim);
    b->has_view[g->inputs[0]] = true;
    return OCT_OK;
}

static const char *output_name(const oct_onnx_builder *b)
{
    const char *wanted = b->options->output;
    return wanted && wanted[0] ? wanted : b->graph->output_names[0];
}

/* Moves the output to before a softmax or sigmoid at the end that the loss has itself, and before an ArgMax of it. */
static oct_status skip_loss_layers(oct_onnx_builder *b)
{
    const oct_onnx_build_options *o = b->options;
    char note[256];
    for (int32_t node = b->producer[b->output]; node >= 0; node = b->producer[b->output]) {
        const char *type = b->graph->nodes[node].type;
        const bool argmax = strcmp(type, "ArgMax") == 0;
        const bool softmax = strcmp(type, "Softmax") == 0 || strcmp(type, "LogSoftmax") == 0;
        const bool sigmoid = strcmp(type, "Sigmoid") == 0;
        if (!((softmax || argmax) && o->without_softmax) && !(sigmoid && o->without_sigmoid)) break;
        b->output = b->graph->nodes[node].input[0];
        snprintf(note, sizeof note,
                 "its %s at the end is left out, since the loss has its own: the output %.80s is "
                 "what goes into it, such as logits",
                 type, output_name(b));
        OCT_TRY(oct_network_add_note(b->network, note));
        if (!argmax) break;
    }
    if (b->graph->num_outputs == 1) return OCT_OK;
    snprintf(note, sizeof note,
             "of its %d outputs only one counts, %.80s: the others are left out; model.output "
             "names another",
             b->graph->num_outputs, output_name(b));
    return oct_network_add_note(b->network, note);
}

/* Sets the output: the value that model.output names, which may be any node's, or else the file's first output. */
static oct_status find_output(oct_onnx_builder *b)
{
    const oct_onnx_graph *g = b->graph;
    const char *wanted = b->options->output;
    OCT_CHECK(g->num_outputs > 0, OCT_DATA, "%s: it has no output; export it again", g->path);
    b->output = g->outputs[0];
    if (!wanted || !wanted[0]) return OCT_OK;
    for (int i = 0; i < g->num_outputs; i++)
        if (strcmp(g->output_names[i], wanted) == 0) {
            b->output = g->outputs[i];
            return OCT_OK;
        }
    for (int64_t v = 0; v < g->num_values; v++) /* or what any node computes */
        if (b->producer[v] >= 0 && strcmp(g->values[v].name, wanted) == 0) {
            b->output = v;
            return OCT_OK;
        }
    const char *names[64];
    char hint[OCT_HINT_BYTES], first[OCT_HINT_BYTES];
    size_t count = 0;
    for (int i = 0; i < g->num_outputs && count < OCT_COUNT(names); i++)
        names[count++] = g->output_names[i];
    snprintf(first, sizeof first, "its first one is %.80s", names[0]);
    return oct_fail(OCT_USAGE, "model.output: %s has no output '%s'; %s", g->path,
                    oct_onnx_shown(wanted).text,
                    oct_did_you_mean(hint, wanted, names, count, first));
}

/* Lays the output out as losses read it: (N, classes), maps (N, H, W, classes), sequences (N, length, classes). */
static oct_status lay_out_output(oct_onnx_builder *b, oct_onnx_built *built)
{
    const oct_onnx_graph *g = b->graph;
    oct_onnx_view y = b->view[b->output];
    char text[OCT_ONNX_SHAPE_BYTES];
    int order[OCT_VIEW_ATOMS], n = 0;
    OCT_CHECK(oct_view_batch(&y) == 0 && y.num_atoms[0] == 1, OCT_PREPARE,
              "%s: its output is %s, and the first dimension must be the batch; export it so",
              g->path, oct_onnx_shape_text(&g->values[b->output], text));
    const bool map = y.dims == 4 && oct_view_size(&y, 2) * oct_view_size(&y, 3) > 1;
    if (map) {
        OCT_TRY(oct_build_lay_out_image(b, &y));
    } else {
        for (int d = 1; d < y.dims; d++)
            order[n++] = d;
        const int64_t last = y.dims > 2 ? oct_view_size(&y, y.dims - 1) : 1;
        const int64_t all = oct_view_numel(&y);
        oct_shape shape = OCT_SHAPE(1, all);
        if (y.dims == 3 && last > 1 && all > last) shape = OCT_SHAPE(1, all / last, last);
        OCT_TRY(oct_build_lay_out(b, &y, order, n, shape));
    }
    OCT_CHECK(y.value > 0, OCT_PREPARE, "%s: it computes nothing; export the network again",
              g->path);
    built->output = y.shape;
    built->last = y.value;
    oct_network_set_output(b->network, y.value);
    return OCT_OK;
}

/* Allocates what is noted of each value and node, and finds the node that computes each value (-1: none). */
static oct_status allocate_tables(oct_onnx_builder *b)
{
    const size_t values = (size_t)b->graph->num_values, nodes = (size_t)b->graph->num_nodes;
    OCT_TRY(oct_alloc(&b->view, values, sizeof *b->view));
    OCT_TRY(oct_alloc(&b->has_view, values, sizeof *b->has_view));
    OCT_TRY(oct_alloc(&b->producer, values, sizeof *b->producer));
    OCT_TRY(oct_alloc(&b->reads, values, sizeof *b->reads));
    OCT_TRY(oct_alloc(&b->last_reader, values, sizeof *b->last_reader));
    OCT_TRY(oct_alloc(&b->first_layer, values, sizeof *b->first_layer));
    OCT_TRY(oct_alloc(&b->usage, values, sizeof *b->usage));
    OCT_TRY(oct_alloc(&b->fused, nodes, sizeof *b->fused));
    OCT_TRY(oct_alloc(&b->needed, nodes, sizeof *b->needed));
    OCT_TRY(oct_alloc(&b->absorbed, nodes, sizeof *b->absorbed));
    for (size_t v = 0; v < values; v++)
        b->producer[v] = -1;
    for (size_t k = 0; k < nodes; k++)
        for (int i = 0; i < b->graph->nodes[k].outputs; i++)
            if (b->graph->nodes[k].output[i] >= 0)
                b->producer[b->graph->nodes[k].output[i]] = (int32_t)k;
    return OCT_OK;
}

oct_status oct_onnx_build(oct_module **network, const oct_onnx_graph *graph,
                          const oct_onnx_build_options *options, oct_onnx_built *built)
{
    oct_onnx_builder b = {.graph = graph, .options = options};
    problems found = {0};
    oct_status status = OCT_OK;
    *network = NULL;
    *built = (oct_onnx_built){0};
    oct_fail_clear();
    OCT_TRY_OUT(allocate_tables(&b));
    OCT_TRY_OUT(oct_network_create(&b.network, 1));
    OCT_TRY_OUT(find_output(&b));
    OCT_TRY_OUT(
        oct_network_name_ports(b.network, graph->values[graph->inputs[0]].name, output_name(&b)));
    OCT_TRY_OUT(skip_loss_layers(&b));
    OCT_TRY_OUT(set_input_view(&b));
    mark_needed_nodes(&b);
    oct_onnx_find_patterns(&b);
    mark_needed_nodes(&b); /* again, without the nodes that a pattern replaces */
    for (int64_t k = 0; k < graph->num_nodes; k++)
        if (b.needed[k] && !b.absorbed[k]) OCT_TRY_OUT(build_node(&b, k, &found));
    if (found.count > 0) status = report_problems(graph, &found);
    if (status != OCT_OK) goto out;
    OCT_TRY_OUT(lay_out_output(&b, built));
    *network = b.network;
    b.network = NULL;
out:
    for (size_t i = 0; i < found.count; i++) {
        oct_free(&found.list[i].sentence);
        oct_text_free(&found.list[i].nodes);
    }
    oct_free(&found.list);
    oct_module_destroy(&b.network);
    OCT_FREE_ALL(&b.view, &b.has_view, &b.producer, &b.reads, &b.last_reader, &b.first_layer,
                 &b.usage, &b.fused, &b.needed, &b.absorbed);
    return status;
}

void oct_onnx_set_size(const oct_onnx_graph *g, oct_onnx_build_options *options)
{
    const oct_onnx_value *x = &g->values[g->inputs[0]];
    const int h = g->channels_last ? 1 : 2;
    const bool image = x->ndim == 4;
    options->h = image ? x->dim[h] : 1;
    options->w = image ? x->dim[h + 1] : 1;
    options->c = image ? x->dim[g->channels_last ? 3 : 1] : oct_onnx_numel(x);
}

oct_status oct_onnx_network(oct_module **network, const oct_onnx_source *source,
                            oct_onnx_build_options *options, oct_onnx_built *built)
{
    OCT_OWNED(oct_onnx_free) oct_onnx_graph graph = {0};
    *network = NULL;
    OCT_TRY(oct_onnx_read_bytes(&graph, source));
    OCT_TRY(oct_onnx_fold(&graph, options->h, options->w, options->c));
    if (options->c == 0) oct_onnx_set_size(&graph, options);
    return oct_onnx_build(network, &graph, options, built);
}
