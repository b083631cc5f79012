/* A qat_conv of any kind between stubs, with random parameters. */
#pragma once

#include "tests/quant/own_methods.h"
#include "tests/quant/stubbed.h"

#include <math.h>

typedef enum conv_kind {
    CONV_PLAIN,      /* 3x3, padding 1 */
    CONV_STRIDED,    /* stride 2, two groups */
    CONV_DEPTHWISE,  /* one filter a channel */
    CONV_TRANSPOSED, /* 3x3, stride 2, padding 1 */
    CONV_UNEVEN,     /* 2x3, every side its own, dilated, three groups */
    CONV_DILATED,    /* one filter a channel, dilated */
    CONV_RISING,     /* transposed: every side its own, dilated, two groups, output padding */
    CONV_LINEAR,
    CONV_DENSE, /* linear at each pixel */
    CONV_KINDS,
} conv_kind;

enum { CASE_N = 5, CASE_H = 5, CASE_W = 4, CASE_C = 6, CASE_O = 6 };

typedef struct conv_case {
    conv_kind kind;
    const char *target;
    int in_bits, add_bits, out_bits; /* add_bits 0: no addend; out_bits 0: float output */
    bool batch_norm, live, bias;
    oct_activation activation;
    const oct_fake_quant_kind *method; /* of weights and output; NULL: affine */
    bool offset;                       /* zero points anywhere in the codes */
} conv_case;

static inline oct_conv_geometry case_geometry(conv_kind kind)
{
    oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 1, 1);
    switch (kind) {
    case CONV_STRIDED:
        return oct_conv_geometry_of(3, 3, 2, 1, 2);
    case CONV_TRANSPOSED:
        return oct_conv_geometry_of(3, 3, 2, 1, 1);
    case CONV_DEPTHWISE:
        g.groups = CASE_C;
        return g;
    case CONV_UNEVEN:
    case CONV_RISING:
        return (oct_conv_geometry){.kernel_h = 2,
                                   .kernel_w = 3,
                                   .stride_h = kind == CONV_UNEVEN ? 2 : 1,
                                   .stride_w = kind == CONV_UNEVEN ? 1 : 2,
                                   .pad_left = 2,
                                   .pad_bottom = 1,
                                   .pad_right = 1,
                                   .dilation_h = 2,
                                   .dilation_w = kind == CONV_UNEVEN ? 2 : 1,
                                   .groups = kind == CONV_UNEVEN ? 3 : 2,
                                   .output_padding_w = kind == CONV_UNEVEN ? 0 : 1};
    case CONV_DILATED:
        g.groups = CASE_C;
        g.dilation_h = g.pad_top = g.pad_bottom = 2;
        g.dilation_w = g.pad_left = g.pad_right = 3;
        return g;
    case CONV_PLAIN:
    case CONV_LINEAR:
    case CONV_DENSE:
    case CONV_KINDS:
        break;
    }
    return g;
}

static inline bool case_transposes(conv_kind kind)
{
    return kind == CONV_TRANSPOSED || kind == CONV_RISING;
}

static inline bool case_is_linear(conv_kind kind)
{
    return kind == CONV_LINEAR || kind == CONV_DENSE;
}

static inline oct_shape case_input(conv_kind kind)
{
    return kind == CONV_LINEAR ? OCT_SHAPE(CASE_N, CASE_C)
                               : OCT_SHAPE(CASE_N, CASE_H, CASE_W, CASE_C);
}

static inline oct_shape case_output(conv_kind kind)
{
    switch (kind) {
    case CONV_STRIDED:
        return OCT_SHAPE(CASE_N, 3, 2, CASE_O);
    case CONV_TRANSPOSED:
        return OCT_SHAPE(CASE_N, 2 * CASE_H - 1, 2 * CASE_W - 1, CASE_O);
    case CONV_UNEVEN:
        return OCT_SHAPE(CASE_N, 2, 3, CASE_O);
    case CONV_RISING:
        return OCT_SHAPE(CASE_N, 6, 7, CASE_O);
    case CONV_LINEAR:
        return OCT_SHAPE(CASE_N, CASE_O);
    case CONV_PLAIN:
    case CONV_DEPTHWISE:
    case CONV_DILATED:
    case CONV_DENSE:
    case CONV_KINDS:
        break;
    }
    return OCT_SHAPE(CASE_N, CASE_H, CASE_W, CASE_O);
}

static inline oct_module *case_layer(const conv_case *v)
{
    oct_module *layer = NULL;
    if (case_is_linear(v->kind))
        OK(oct_linear_create(&layer, CASE_C, CASE_O, v->bias));
    else if (case_transposes(v->kind))
        OK(oct_conv_transpose2d_create(&layer, CASE_C, CASE_O, case_geometry(v->kind), v->bias));
    else
        OK(oct_conv2d_create(&layer, CASE_C, CASE_O, case_geometry(v->kind), v->bias));
    for (size_t i = 0; i < layer->num_params; i++)
        oct_fill_normal(oct_f32(&layer->params[i]->value), oct_numel(&layer->params[i]->value), 13,
                        OCT_STREAM_TEST, (uint32_t)i, 0.0f, i ? 0.3f : 0.25f);
    return layer;
}

/* A negative gamma, and one that is 0. */
static inline oct_module *case_batch_norm(int64_t channels)
{
    oct_module *bn = NULL;
    OK(oct_batch_norm_create(&bn, channels));
    oct_batch_norm_module *m = (oct_batch_norm_module *)bn;
    for (int64_t c = 0; c < channels; c++) {
        oct_f32(&m->gamma->value)[c] = (c % 3 == 1 ? -1.0f : 1.0f) * (0.6f + 0.15f * (float)c);
        oct_f32(&m->beta->value)[c] = 0.37f * (float)(c % 4) - 0.4f;
        m->running_mean[c] = 0.11f * (float)(c % 5) - 0.2f;
        m->running_var[c] = 0.7f + 0.3f * (float)(c % 3);
    }
    oct_f32(&m->gamma->value)[channels - 1] = 0.0f;
    return bn;
}

static inline oct_qat_conv *case_conv(const bench *b)
{
    return (oct_qat_conv *)((stubbed *)b->root)->middle;
}

/* Scales so small that some weights are beyond the codes. */
static inline void case_quantize_weights(oct_qat_conv *m, const oct_fake_quant_kind *kind,
                                         const oct_target *target)
{
    OK(oct_qat_conv_quantize_weights(m, kind, target));
    oct_param *scale = ((oct_weight_fake_quant *)m->weight_fake_quant)->scale;
    for (int64_t i = 0; scale && i < oct_numel(&scale->value); i++)
        oct_f32(&scale->value)[i] *= kind->per_tensor ? 0.12f : 0.09f + 0.01f * (float)i;
}

/* To 5/16, 13/16, 5/16 of the codes; inputs stay within them. */
static inline void case_move_zero_points(bench *b)
{
    oct_quantizers all;
    OK(oct_quantizers_collect(&all, b->root));
    for (int i = 0; i < (int)all.count; i++) {
        const oct_qparams q = oct_fake_quant_qparams(all.items[i]);
        const int64_t z = (int64_t)q.qmax * ((5 + 8 * i) % 16) / 16;
        all.items[i]->zero_point[0] = z;
        for (int64_t j = 0; i < b->n && j < oct_shape_numel(&b->shape[i]); j++)
            b->x[i][j] += q.scale * (float)(q.zero_point - z);
    }
    oct_quantizers_free(&all);
}

static inline void case_begin(bench *b, const conv_case *v)
{
    oct_module *layer = case_layer(v), *m = NULL;
    if (v->offset) stubbed_kind = &oct_fake_quant_asymmetric;
    oct_module *bn = v->batch_norm ? case_batch_norm(CASE_O) : NULL;
    const bool wide = v->out_bits == 16, pow2 = strcmp(v->target, "pow2") == 0;
    OK(oct_qat_conv_create(&m, &layer, &bn, v->add_bits > 0, v->activation));
    cr_assert(!layer && !bn);
    if (((oct_qat_conv *)m)->batch_norm)
        ((oct_batch_norm_module *)((oct_qat_conv *)m)->batch_norm)->frozen = !v->live;
    /* So that both ends of the codes are met. */
    const float scale = pow2 ? 0x1p-6f : 0.013f;
    const quantizer out = {v->out_bits, v->activation == OCT_ACT_NONE, wide ? scale / 256 : scale};
    if (v->out_bits && v->method && v->method->scale)
        stubbed_adopt_kind(m, out, oct_target_find(v->target), v->method);
    else if (v->out_bits)
        stubbed_adopt(m, out, oct_target_find(v->target));
    ((oct_quantized *)m)->target = oct_target_find(v->target);
    if (v->method) case_quantize_weights((oct_qat_conv *)m, v->method, oct_target_find(v->target));
    const quantizer q[2] = {
        {v->in_bits, true, ldexpf(pow2 ? 1.0f : 1.3f, v->in_bits == 16 ? -14 : -6)},
        {v->add_bits ? v->add_bits : 8, true,
         ldexpf(pow2 ? 1.0f : 1.1f, v->add_bits == 16 ? -14 : -6)}};
    const oct_shape shape[2] = {case_input(v->kind), case_output(v->kind)};
    bench_begin(b, v->target, m, v->add_bits ? 2 : 1, shape, q);
    if (v->method) bench_state(b, OCT_QUANT_QAT);
    if (v->offset) case_move_zero_points(b);
    stubbed_kind = &oct_fake_quant_affine;
}
