/* Weights are corrected layer by layer. Equalization is the first part of this file; rounding and bias are the second. */
#include "quant/correct/correction.h"

#include "core/base/mem.h"
#include "quant/graph/graph.h"

#include <math.h>
#include <string.h>

static oct_tensor *weights_of(const oct_qat_conv *m)
{
    return &oct_layer_weight(m->layer)->value;
}

static const oct_batch_norm_module *norm_of(const oct_qat_conv *m)
{
    return (const oct_batch_norm_module *)m->batch_norm;
}

/* Equalization. */

enum { SWEEPS = 8 };

/* Two layers: what the first gives, the second alone reads. */
typedef struct pair {
    oct_qat_conv *first, *second;
} pair;

typedef struct pairs {
    pair *items;
    size_t count, capacity;
} pairs;

static const oct_conv2d_module *conv_of(const oct_qat_conv *m)
{
    return m->layer->type == &oct_conv2d_type ? (const oct_conv2d_module *)m->layer : NULL;
}

/* The layer that runs at a node by itself: once in the network, with weights of its own, of a kind whose channels
 * this file knows. */
static oct_qat_conv *layer_at(const oct_graph *g, int64_t number)
{
    if (number < 0) return NULL;
    const oct_graph_node *node = &g->nodes[number];
    if (node->action != OCT_NODE_RUN || node->block >= 0) return NULL;
    if (!node->module || node->module->type != &oct_qat_conv_type) return NULL;
    oct_qat_conv *m = (oct_qat_conv *)node->module;
    const oct_weight_fake_quant *wq = (const oct_weight_fake_quant *)m->weight_fake_quant;
    const bool known = conv_of(m) || m->layer->type == &oct_linear_type;
    const bool own_scales = wq && wq->kind != &oct_fake_quant_affine;
    if (!known || m->lender || m->borrows || own_scales || oct_qat_conv_is_tied(m)) return NULL;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_module *other = g->nodes[i].module;
        if ((int64_t)i == number || !other || other->type != &oct_qat_conv_type) continue;
        if (g->nodes[i].action == OCT_NODE_RUN &&
            (other == node->module || ((const oct_qat_conv *)other)->lender == m))
            return NULL;
    }
    return m;
}

/* The one node that reads a value, in both modes; -1: there are several, or the model returns it. */
static int64_t only_reader(const oct_graph *g, int64_t value)
{
    int64_t reader = -1;
    for (int mode = 0; mode < OCT_MODES; mode++)
        if (oct_graph_resolve(g, g->output[mode], (oct_mode)mode) == value) return -1;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        if (node->action == OCT_NODE_ALIAS) continue;
        for (int mode = 0; mode < OCT_MODES; mode++)
            for (int k = 0; k < node->num_inputs; k++) {
                if (oct_graph_input(g, node, k, (oct_mode)mode) != value) continue;
                if (reader >= 0 && reader != (int64_t)i) return -1;
                reader = (int64_t)i;
            }
    }
    return reader;
}

/* Whether f(a x) = a f(x) for a > 0 in each channel by itself: cross-layer equalization may move factors over it. */
static bool is_positively_homogeneous(const oct_module *m)
{
    static const char *const names[] = {"max_pool", "qat_max_pool",    "qat_avg_pool",
                                        "avg_pool", "global_avg_pool", "qat_global_avg_pool",
                                        "relu",     "identity"};
    for (size_t i = 0; i < OCT_COUNT(names); i++)
        if (strcmp(m->type->name, names[i]) == 0) return true;
    return false;
}

/* Whether a layer multiplies a value by its weights. With a fused add it reads the addend as input 1: no weight could
 * take in the factor that equalization gives that channel. */
static bool reads_by_weights(const oct_graph *g, const oct_qat_conv *layer, int64_t value)
{
    if (!layer->add) return true;
    for (size_t i = 0; i < g->num_nodes; i++)
        if (g->nodes[i].action == OCT_NODE_RUN && g->nodes[i].module == &layer->q.base)
            for (int mode = 0; mode < OCT_MODES; mode++)
                if (oct_graph_input(g, &g->nodes[i], 1, (oct_mode)mode) == value) return false;
    return true;
}

/* The only layer that reads the output of node `from`, directly or through pools, relu or identity, and multiplies it by
 * its weights; NULL: there is none. */
static oct_qat_conv *only_layer_after(const oct_graph *g, int64_t from)
{
    int64_t at = from;
    for (size_t steps = 0; steps < g->num_nodes; steps++) {
        const int64_t value = g->nodes[at].output;
        at = only_reader(g, value);
        if (at < 0 || g->nodes[at].block >= 0) return NULL;
        oct_qat_conv *layer = layer_at(g, at);
        if (layer) return reads_by_weights(g, layer, value) ? layer : NULL;
        const oct_graph_node *node = &g->nodes[at];
        if (node->action != OCT_NODE_RUN || node->num_inputs != 1 ||
            !is_positively_homogeneous(node->module))
            return NULL;
    }
    return NULL;
}

/* Finds the pairs of layers whose channels can be equalized: the second alone reads the first, perhaps after a relu. */
static oct_status find_pairs(const oct_graph *g, pairs *all)
{
    for (size_t i = 0; i < g->num_nodes; i++) {
        oct_qat_conv *first = layer_at(g, (int64_t)i), *second;
        if (!first || first->add) continue;
        if (first->q.activation != OCT_ACT_NONE && first->q.activation != OCT_ACT_RELU) continue;
        second = only_layer_after(g, (int64_t)i);
        if (!second) continue;
        const int64_t channels = oct_dim(weights_of(first), 0);
        const int64_t reads = conv_of(second)
                                  ? conv_of(second)->args.in_channels
                                  : ((oct_linear_module *)second->layer)->args.in_features;
        if (channels != reads) continue; /* a flattened plane */
        OCT_TRY(oct_grow(&all->items, &all->capacity, all->count + 1, sizeof *all->items));
        all->items[all->count++] = (pair){first, second};
    }
    return OCT_OK;
}

/* The weights that read channel i: in each row of its group every step-th from `begin` on. */
typedef struct column {
    float *weight;
    int64_t rows, row_numel, begin, step;
} column;

/* The weights that read an input channel: of (O, kh, kw, I/groups), in the rows of its group, at all positions. */
static column column_of(const oct_qat_conv *m, int64_t channel)
{
    const oct_tensor *weight = weights_of(m);
    const int64_t groups = conv_of(m) ? conv_of(m)->args.geometry.groups : 1;
    const int64_t out = oct_dim(weight, 0), row = oct_numel(weight) / out;
    const int64_t step = oct_dim(weight, weight->shape.ndim - 1), group = channel / step;
    return (column){oct_f32(weight) + group * (out / groups) * row, out / groups, row,
                    channel % step, step};
}

/* The largest |weight| of an output channel, times batch norm's gain |gamma| / sqrt(var + eps). */
static double largest_out(const oct_qat_conv *m, int64_t channel)
{
    const oct_tensor *weight = weights_of(m);
    const oct_batch_norm_module *bn = norm_of(m);
    const int64_t row = oct_numel(weight) / oct_dim(weight, 0);
    float largest = 0;
    for (int64_t k = 0; k < row; k++)
        largest = fmaxf(largest, fabsf(oct_f32(weight)[channel * row + k]));
    if (!bn) return (double)largest;
    return (double)largest * fabs((double)oct_f32(&bn->gamma->value)[channel]) /
           sqrt((double)bn->running_var[channel] + (double)bn->args.eps);
}

/* Multiplies an output channel. Batch norm's gain and shift carry the factor where there is one, so weights and their
 * codes stay. */
static void multiply_out(const oct_qat_conv *m, int64_t channel, float factor)
{
    const oct_tensor *weight = weights_of(m);
    const oct_batch_norm_module *bn = norm_of(m);
    const int64_t row = oct_numel(weight) / oct_dim(weight, 0);
    if (bn) {
        oct_f32(&bn->gamma->value)[channel] *= factor;
        oct_f32(&bn->beta->value)[channel] *= factor;
        return;
    }
    for (int64_t k = 0; k < row; k++)
        oct_f32(weight)[channel * row + k] *= factor;
    const oct_param *bias = oct_layer_bias(m->layer);
    if (bias) oct_f32(&bias->value)[channel] *= factor;
}

/* The exponent of the nearest power of two (of its logarithm), by comparisons, since a logarithm may differ in its last
 * bit between machines. */
static int exponent_of(double x)
{
    int exponent;
    const double mantissa = frexp(x, &exponent); /* in [0.5, 1) */
    return mantissa < sqrt(0.5) ? exponent - 1 : exponent;
}

/* Divides a channel of the first layer by r, the power of two nearest to sqrt(its largest weight / the largest weight
 * that reads it), and multiplies the weights that read it, the second layer's, by r. Returns whether r was not 1. */
static bool equalize_channel(const pair *p, int64_t channel)
{
    const column reads = column_of(p->second, channel);
    float read = 0; /* the largest weight that reads the channel */
    for (int64_t o = 0; o < reads.rows; o++)
        for (int64_t k = reads.begin; k < reads.row_numel; k += reads.step)
            read = fmaxf(read, fabsf(reads.weight[o * reads.row_numel + k]));
    const double written = largest_out(p->first, channel), read_most = (double)read;
    if (!(written > 0) || !(read_most > 0) || !isfinite(written) || !isfinite(read_most))
        return false;
    const int exponent = exponent_of(sqrt(written / read_most));
    if (exponent == 0) return false;
    multiply_out(p->first, channel, ldexpf(1, -exponent));
    const float factor = ldexpf(1, exponent);
    for (int64_t o = 0; o < reads.rows; o++)
        for (int64_t k = reads.begin; k < reads.row_numel; k += reads.step)
            reads.weight[o * reads.row_numel + k] *= factor;
    return true;
}

oct_status oct_equalize(oct_module *root, int64_t *num_pairs, int64_t *channels)
{
    const oct_graph *g = oct_graph_of(root);
    pairs all = {0};
    int64_t changed = 1;
    *num_pairs = *channels = 0;
    OCT_CHECK(
        g && g->method != OCT_METHOD_EAGER, OCT_USAGE,
        "layers are equalized in a prepared model whose graph is known; prepare it by another "
        "method than eager");
    const oct_status status = find_pairs(g, &all);
    for (int sweep = 0; status == OCT_OK && sweep < SWEEPS && changed > 0; sweep++) {
        changed = 0;
        for (size_t i = 0; i < all.count; i++)
            for (int64_t c = 0; c < oct_dim(weights_of(all.items[i].first), 0); c++)
                changed += equalize_channel(&all.items[i], c);
        *channels += changed;
    }
    *num_pairs = (int64_t)all.count;
    oct_free(&all.items);
    return status;
}

/* Rounding and bias. */

static const int64_t round_bytes_max = (int64_t)1 << 29; /* of the products of a round */

typedef struct corrected_layer {
    oct_qat_conv *layer; /* borrowed */
    oct_moments moments;
} corrected_layer;

typedef struct corrector {
    oct_correction_options options;
    corrected_layer *layers;
    size_t count, capacity;
    size_t begin, end; /* of the round at hand */
    oct_correction *done;
} corrector;

/* Lists a layer to be corrected, unless its weights are tied; lenders are removed below. For oct_module_walk. */
static oct_status add_layer(void *user, oct_module *module)
{
    corrector *c = user;
    oct_qat_conv *m = (oct_qat_conv *)module;
    if (module->type != &oct_qat_conv_type || m->borrows) return OCT_OK;
    if (oct_qat_conv_is_tied(m)) {
        c->done->left++;
        return OCT_OK;
    }
    OCT_TRY(oct_grow(&c->layers, &c->capacity, c->count + 1, sizeof *c->layers));
    c->layers[c->count++] = (corrected_layer){.layer = m};
    return OCT_OK;
}

/* Removes a layer whose weights a further call uses: the inputs of its calls have scales of their own. */
static oct_status remove_lender(void *user, oct_module *module)
{
    corrector *c = user;
    const oct_qat_conv *m = (const oct_qat_conv *)module;
    if (module->type != &oct_qat_conv_type || !m->lender) return OCT_OK;
    for (size_t i = 0; i < c->count; i++) {
        if (c->layers[i].layer != m->lender) continue;
        memmove(c->layers + i, c->layers + i + 1, (--c->count - i) * sizeof *c->layers);
        c->done->left++;
    }
    return OCT_OK;
}

/* Begins a round of the next layers, as many as round_bytes_max has room for: forwards now sum moments of their inputs,
 * for second-order rounding also all products of two (depth x depth a group). */
static oct_status begin_round(corrector *c)
{
    const bool products = c->options.rounding == OCT_ROUNDING_GPTQ;
    int64_t bytes = 0;
    while (c->end < c->count) {
        corrected_layer *l = &c->layers[c->end];
        const oct_conv_shape shape = oct_qat_conv_shape(l->layer, 1, 1);
        const int64_t depth = oct_conv_depth(&shape);
        bytes += products ? shape.groups * depth * depth * (int64_t)sizeof(int64_t) : 0;
        if (bytes > round_bytes_max && c->end > c->begin) break;
        c->end++;
        OCT_TRY(oct_moments_create(&l->moments, &shape, products));
        l->layer->moments = &l->moments;
    }
    return OCT_OK;
}

static void end_round(corrector *c)
{
    for (size_t i = c->begin; i < c->end; i++) {
        c->layers[i].layer->moments = NULL;
        oct_moments_free(&c->layers[i].moments);
    }
    c->begin = c->end;
}

/* What rank 0 has done to a layer. */
typedef struct outcome {
    bool rounded, corrected;
} outcome;

/* Corrects a layer on rank 0, unless its inputs had several scales or no window was seen. */
static oct_status correct_layer(const corrector *c, corrected_layer *l, outcome *done)
{
    const oct_tensor *weight = weights_of(l->layer);
    const size_t n = (size_t)oct_numel(weight);
    OCT_OWNED(oct_free) float *exact = NULL;
    *done = (outcome){0};
    if (l->moments.mixed || l->moments.windows == 0) return OCT_OK;
    OCT_TRY(oct_alloc(&exact, n, sizeof *exact));
    memcpy(exact, weight->data, n * sizeof *exact);
    if (c->options.rounding == OCT_ROUNDING_GPTQ)
        OCT_TRY(oct_qat_conv_round(l->layer, &l->moments, &done->rounded));
    return c->options.bias
               ? oct_qat_conv_correct_bias(l->layer, &l->moments, exact, &done->corrected)
               : OCT_OK;
}

/* Gives all ranks what rank 0 has made of the layer: its weights, and the biases or the means of its batch norm. */
static oct_status share_corrected(const oct_qat_conv *m, const oct_collective *group, outcome *done)
{
    const oct_tensor *weight = weights_of(m);
    const oct_batch_norm_module *bn = norm_of(m);
    const size_t channels = (size_t)oct_dim(weight, 0);
    OCT_TRY(group->broadcast(group, done, sizeof *done, 0));
    if (done->rounded)
        OCT_TRY(
            group->broadcast(group, weight->data, (size_t)oct_numel(weight) * sizeof(float), 0));
    if (!done->corrected) return OCT_OK;
    float *moved = bn ? bn->running_mean : oct_f32(&oct_layer_bias(m->layer)->value);
    return group->broadcast(group, moved, channels * sizeof *moved, 0);
}

/* Corrects the layers of a round by the moments that all ranks have summed. */
static oct_status correct_round(corrector *c, const oct_collective *group)
{
    for (size_t i = c->begin; i < c->end; i++)
        c->layers[i].layer->moments = NULL;
    for (size_t i = c->begin; i < c->end; i++)
        OCT_TRY(oct_moments_allreduce(&c->layers[i].moments, group));
    for (size_t i = c->begin; i < c->end; i++) {
        outcome done = {0};
        oct_status status = OCT_OK;
        if (group->rank == 0) status = correct_layer(c, &c->layers[i], &done);
        if (status != OCT_OK)
            status = oct_fail_prefix("%s", oct_module_path(&c->layers[i].layer->q.base).text);
        OCT_TRY(group->agree(group, status));
        OCT_TRY(share_corrected(c->layers[i].layer, group, &done));
        c->done->rounded += done.rounded;
        c->done->corrected += done.corrected;
        c->done->left += !done.rounded && !done.corrected;
    }
    end_round(c);
    return OCT_OK;
}

oct_status oct_correct_weights(oct_module *root, const oct_correction_options *options,
                               const oct_collective *group, oct_status (*run)(void *user),
                               void *user, oct_correction *done)
{
    corrector c = {.options = *options, .done = done};
    *done = (oct_correction){0};
    if (options->rounding == OCT_ROUNDING_NEAREST && !options->bias) return OCT_OK;
    oct_status status = oct_module_walk(root, add_layer, &c);
    if (status == OCT_OK) status = oct_module_walk(root, remove_lender, &c);
    status = group->agree(group, status);
    while (status == OCT_OK && c.end < c.count) {
        status = group->agree(group, begin_round(&c));
        if (status == OCT_OK) status = run(user);
        if (status == OCT_OK) status = correct_round(&c, group);
    }
    end_round(&c);
    oct_free(&c.layers);
    return status;
}
