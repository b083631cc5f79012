#include "quant/correct/correction.h"

#include "core/base/mem.h"

#include <string.h>

/* Bytes of the products of a round. */
static const int64_t room = (int64_t)1 << 29;

/* Collects the layers; those that a further call site borrows are taken out by it below. */
static oct_status add_layer(void *user, oct_module *module)
{
    oct_correction *c = user;
    oct_qat_conv *m = (oct_qat_conv *)module;
    if (module->type != &oct_qat_conv_type || m->borrows) return OCT_OK;
    if (oct_qat_conv_is_tied(m)) {
        c->left++;
        return OCT_OK;
    }
    OCT_TRY(oct_grow(&c->layers, &c->capacity, c->count + 1, sizeof *c->layers));
    c->layers[c->count++] = (oct_corrected_layer){.layer = m};
    return OCT_OK;
}

/* The inputs of its calls have scales of their own. */
static oct_status drop_lender(void *user, oct_module *module)
{
    oct_correction *c = user;
    const oct_qat_conv *m = (const oct_qat_conv *)module;
    if (module->type != &oct_qat_conv_type || !m->lender) return OCT_OK;
    for (size_t i = 0; i < c->count; i++) {
        if (c->layers[i].layer != m->lender) continue;
        memmove(c->layers + i, c->layers + i + 1, (--c->count - i) * sizeof *c->layers);
        c->left++;
    }
    return OCT_OK;
}

oct_status oct_correction_begin(oct_correction *c, oct_module *root,
                                const oct_correction_options *options)
{
    *c = (oct_correction){.options = *options};
    if (options->rounding == OCT_ROUNDING_NEAREST && !options->bias) return OCT_OK;
    oct_status status = oct_module_walk(root, add_layer, c);
    if (status == OCT_OK) status = oct_module_walk(root, drop_lender, c);
    if (status != OCT_OK) oct_correction_end(c);
    return status;
}

static void end_round(oct_correction *c)
{
    for (size_t i = c->begin; i < c->end; i++) {
        c->layers[i].layer->moments = NULL;
        oct_moments_free(&c->layers[i].moments);
    }
    c->begin = c->end;
}

void oct_correction_end(oct_correction *c)
{
    end_round(c);
    oct_free(&c->layers);
    c->count = c->begin = c->end = 0;
}

oct_status oct_correction_collect(oct_correction *c)
{
    const bool products = c->options.rounding == OCT_ROUNDING_GPTQ;
    int64_t bytes = 0;
    while (c->end < c->count) {
        oct_corrected_layer *l = &c->layers[c->end];
        const oct_conv_shape shape = oct_qat_conv_shape(l->layer, 1, 1);
        const int64_t k = oct_conv_depth(&shape);
        bytes += products ? shape.groups * k * k * (int64_t)sizeof(int64_t) : 0;
        if (bytes > room && c->end > c->begin) break;
        c->end++;
        OCT_TRY(oct_moments_create(&l->moments, &shape, products));
        l->layer->moments = &l->moments;
    }
    return OCT_OK;
}

/* What rank 0 has done to a layer. */
typedef struct outcome {
    bool rounded, corrected;
} outcome;

static oct_status correct_layer(const oct_correction *c, oct_corrected_layer *l, outcome *done)
{
    const oct_tensor *weight = &oct_layer_weight(l->layer->layer)->value;
    const size_t n = (size_t)oct_numel(weight);
    float *exact = NULL;
    *done = (outcome){0};
    if (l->moments.mixed || l->moments.windows == 0) return OCT_OK;
    OCT_TRY(oct_alloc(&exact, n, sizeof *exact));
    memcpy(exact, weight->data, n * sizeof *exact);
    oct_status status = OCT_OK;
    if (c->options.rounding == OCT_ROUNDING_GPTQ)
        status = oct_qat_conv_round(l->layer, &l->moments, &done->rounded);
    if (status == OCT_OK && c->options.bias)
        status = oct_qat_conv_correct_bias(l->layer, &l->moments, exact, &done->corrected);
    oct_free(&exact);
    return status;
}

/* Gives all ranks what rank 0 has made of the layer. */
static oct_status share_corrected(const oct_qat_conv *m, const oct_collective *group, outcome *done)
{
    const oct_tensor *weight = &oct_layer_weight(m->layer)->value;
    const oct_param *bias = oct_layer_bias(m->layer);
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)m->batch_norm;
    const size_t channels = (size_t)oct_dim(weight, 0);
    OCT_TRY(group->broadcast(group, done, sizeof *done, 0));
    if (done->rounded)
        OCT_TRY(
            group->broadcast(group, weight->data, (size_t)oct_numel(weight) * sizeof(float), 0));
    if (!done->corrected) return OCT_OK;
    float *moved = bn ? bn->running_mean : oct_f32(&bias->value);
    return group->broadcast(group, moved, channels * sizeof *moved, 0);
}

oct_status oct_correction_apply(oct_correction *c, const oct_collective *group)
{
    char path[256];
    for (size_t i = c->begin; i < c->end; i++)
        c->layers[i].layer->moments = NULL;
    for (size_t i = c->begin; i < c->end; i++)
        OCT_TRY(oct_moments_allreduce(&c->layers[i].moments, group));
    for (size_t i = c->begin; i < c->end; i++) {
        outcome done = {0};
        oct_status status = OCT_OK;
        if (group->rank == 0) status = correct_layer(c, &c->layers[i], &done);
        if (status != OCT_OK)
            status = oct_fail_prefix("%s", oct_module_path(&c->layers[i].layer->q.base, path));
        OCT_TRY(group->agree(group, status));
        OCT_TRY(share_corrected(c->layers[i].layer, group, &done));
        c->rounded += done.rounded;
        c->corrected += done.corrected;
        c->left += !done.rounded && !done.corrected;
    }
    end_round(c);
    return OCT_OK;
}
