/* From weights, batch norm and scales to the constants of the integer kernels: for training,
 * evaluation and convert alike. */
#include "quant/module/conv/qat_conv_impl.h"

#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "core/base/whole.h"
#include "quant/module/conv/fold.h"

#include <math.h>
#include <string.h>

/* Every array of the channels. */
#define OCT_CHANNEL_LIST(X)                                                                        \
    X(scale)                                                                                       \
    X(mean)                                                                                        \
    X(inv_std)                                                                                     \
    X(offset)                                                                                      \
    X(offset32)                                                                                    \
    X(bias)                                                                                        \
    X(bias32)                                                                                      \
    X(multiplier)                                                                                  \
    X(effective)                                                                                   \
    X(dead)                                                                                        \
    X(silent)

bool oct_channels_save(oct_context *cx, oct_channels *ch, int64_t n)
{
#define X(name) ch->name = oct_save(cx, (size_t)n * sizeof *ch->name);
    OCT_CHANNEL_LIST(X)
#undef X
    if (cx->status != OCT_OK) return false;
    memset(ch->dead, 0, (size_t)n);
    return true;
}

oct_status oct_channels_alloc(oct_channels *ch, int64_t n)
{
#define X(name) OCT_TRY(oct_alloc(&ch->name, (size_t)n, sizeof *ch->name));
    OCT_CHANNEL_LIST(X)
#undef X
    return OCT_OK;
}

void oct_channels_free(oct_channels *ch)
{
#define X(name) oct_free(&ch->name);
    OCT_CHANNEL_LIST(X)
#undef X
}

/* The sum of codes, and whether all are 0; in parts whose sums fit into 32 bits. */
OCT_CLONES
static int64_t sum_codes(const int8_t *codes, int64_t n, bool *silent)
{
    const int64_t part = 1 << 20;
    int64_t sum = 0;
    int8_t any = 0;
    for (int64_t first = 0; first < n; first += part) {
        const int64_t end = oct_min_i64(first + part, n);
        int32_t some = 0;
        for (int64_t i = first; i < end; i++) {
            some += codes[i];
            any |= codes[i];
        }
        sum += some;
    }
    *silent = any == 0;
    return sum;
}

void oct_quantize_weights(const oct_layer *l, const oct_conv_shape *s, oct_qparams in,
                          int8_t *codes, oct_channels *ch)
{
    const float *weight = oct_f32(&l->weight->value);
    int64_t k = oct_conv_depth(s);
    if (l->wq) oct_weight_fake_quant_scales(l->wq, ch->scale);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < s->out_c; o++) {
        float scale = l->wq ? ch->scale[o] : oct_weight_scale(weight + o * k, k);
        if (l->shift) scale = oct_pow2_ceil(scale);
        oct_weight_codes(weight + o * k, k, scale, codes + o * k);
        ch->scale[o] = scale;
        ch->offset[o] = in.zero_point * sum_codes(codes + o * k, k, &ch->silent[o]);
        ch->offset32[o] = in.qmax > UINT8_MAX ? 0 : (int32_t)ch->offset[o];
    }
}

void oct_running_statistics(const oct_batch_norm_module *bn, oct_channels *ch, int64_t n)
{
    for (int64_t o = 0; o < n; o++) {
        ch->mean[o] = bn->running_mean[o];
        ch->inv_std[o] = (float)(1.0 / sqrt((double)bn->running_var[o] + (double)bn->eps));
    }
}

void oct_channel_affine(const oct_layer *l, const oct_channels *ch, int64_t o, double *gain,
                        double *shift)
{
    *gain = 1.0;
    *shift = l->bias ? (double)oct_f32(&l->bias->value)[o] : 0.0;
    if (!l->bn) return;
    *gain = (double)oct_f32(&l->bn->gamma->value)[o] * (double)ch->inv_std[o];
    *shift = (double)oct_f32(&l->bn->beta->value)[o] + (*shift - (double)ch->mean[o]) * *gain;
}

bool oct_fold_channels(const oct_layer *l, oct_qparams in, float output_scale, oct_channels *ch,
                       int64_t n)
{
    const oct_fold_rules rules = {.input_scale = in.scale,
                                  .output_scale = output_scale,
                                  .wide = in.qmax > UINT8_MAX,
                                  .pow2 = l->shift};
    for (int64_t o = 0; o < n; o++) {
        oct_fold_channel channel = {.weight_scale = ch->scale[o], .silent = ch->silent[o]};
        oct_channel_affine(l, ch, o, &channel.gain, &channel.shift);
        if (!isfinite(channel.gain) || !isfinite((float)channel.shift) || !isfinite(ch->scale[o]))
            return false;
        oct_fold fold = oct_fold_of(&rules, &channel);
        ch->effective[o] = fold.weight_scale;
        ch->multiplier[o] = fold.multiplier;
        ch->dead[o] = fold.dead;
        ch->bias[o] = fold.dead ? fold.bias : fold.bias - ch->offset[o];
        ch->bias32[o] = rules.wide ? 0 : (int32_t)ch->bias[o];
    }
    return true;
}

void oct_silence_codes(const oct_channels *ch, const oct_conv_shape *s, int8_t *codes)
{
    for (int64_t o = 0; o < s->out_c; o++)
        if (ch->dead[o]) memset(codes + o * oct_conv_depth(s), 0, (size_t)oct_conv_depth(s));
}

/* Of codes; where the zero_point is in the middle, relu cuts at logical 0. */
static oct_requant requant_of(oct_activation activation, oct_qparams out, const oct_channels *ch)
{
    oct_requant q = {.bias = ch->bias32,
                     .multiplier = ch->multiplier,
                     .lo = out.qmin - out.zero_point,
                     .hi = out.qmax - out.zero_point,
                     .zero_point = out.zero_point,
                     .relu = activation != OCT_ACT_NONE,
                     .six = INFINITY};
    if (q.relu && q.lo < 0) q.lo = 0;
    if (activation == OCT_ACT_RELU6) {
        q.six = 6.0f / out.scale;
        if (q.six < (float)q.hi) q.hi = (int32_t)nearbyintf(q.six);
    }
    return q;
}

oct_epilogue oct_epilogue_of(const oct_layer *l, oct_activation activation, oct_qparams in,
                             const oct_qparams *out, const oct_tensor *r, const oct_channels *ch)
{
    const oct_dtype out_dtype = out ? oct_codes_dtype(*out) : OCT_F32;
    const oct_qparams real = {.scale = 1.0f};
    oct_epilogue f = {.arithmetic = oct_arithmetic_of(l->shift, oct_codes_dtype(in),
                                                      r ? r->dtype : OCT_U8, out_dtype),
                      .acc = oct_codes_dtype(in) == OCT_U16 ? OCT_S64 : OCT_S32,
                      .out = out_dtype,
                      .q = requant_of(activation, out ? *out : real, ch),
                      .bias = ch->bias};
    if (!out && activation == OCT_ACT_RELU6) f.q.six = 6.0f;
    if (r) {
        f.addend = oct_qcodes_of(r);
        f.addend_multiplier = r->q.scale / (out ? out->scale : real.scale);
    }
    return f;
}

void oct_count_values(void *args, int64_t first, int64_t n, const float *v)
{
    enum { SOME = 256 };
    oct_value_counter *counter = args;
    float real[SOME];
    (void)first;
    for (int64_t i = 0; i < n; i += SOME) {
        const int64_t some = oct_min_i64(n - i, SOME);
        for (int64_t k = 0; k < some; k++)
            real[k] = v[i + k] * counter->scale;
        oct_histogram_add(real, some, counter->count);
    }
}

void oct_observe_leaves(oct_context *cx, oct_fake_quant *fq, bool training, float scale,
                        const float *ranges)
{
    for (int64_t i = 0; i < cx->leaves.local; i++)
        oct_fake_quant_observe(fq, training, ranges[2 * i] * scale, ranges[2 * i + 1] * scale);
}

void oct_start_ranges(float *ranges, int64_t leaves)
{
    for (int64_t i = 0; i < leaves; i++) {
        ranges[2 * i] = INFINITY;
        ranges[2 * i + 1] = -INFINITY;
    }
}

bool oct_take_statistics(oct_context *cx, oct_batch_norm_module *bn, const double *total,
                         double count, const double *scale, const float *bias, oct_channels *ch)
{
    const int64_t n = bn->channels;
    const double unbiased = count > 1 ? count / (count - 1) : 1;
    bool finite = true;
    for (int64_t o = 0; o < n; o++) {
        double mean = total[o] / count, var = total[n + o] / count - mean * mean;
        var = var > 0 ? var * scale[o] * scale[o] : 0;
        ch->mean[o] = (float)(mean * scale[o] + (bias ? (double)bias[o] : 0));
        ch->inv_std[o] = (float)(1.0 / sqrt(var + (double)bn->eps));
        finite &= oct_bn_move(&bn->running_mean[o], &bn->running_var[o], bn->momentum, ch->mean[o],
                              (float)(var * unbiased));
    }
    if (!finite) oct_context_fail(cx, OCT_NUMERIC, "the batch's mean or variance is not finite");
    return finite;
}
