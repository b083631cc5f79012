/* From weights, batch norm and scales to the constants of the integer kernels: the same
 * for training, evaluation and convert. */
#include "quant/module/conv/conv_impl.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <math.h>
#include <string.h>

/* How a layer's scales, batch norm and bias become what the integer kernels want, channel by channel.
 * The one routine for training, evaluation and convert.
 *
 * y = gain * (s_x * s_w * acc) + shift, where gain = gamma / sigma and shift = beta - mean * gain
 * (1 and the bias without batch norm). Weight quantization is symmetric, so the gain moves into the
 * scale: the effective weight scale e is that of weights multiplied by the gain, whose largest would be
 * fl(127 * s_w * gain) (its sign is gamma's), and
 *     bias = round_half_even(fl(shift) / (s_x * e)),   multiplier = (s_x * e) / s_y    in fp32.
 * Both e and the bias are those of a layer that has the gain in its weights and fl(shift) as its bias;
 * so a batch norm can be folded into its layer for good without changing a bit (oct_qat_conv_fold).
 *
 * A channel whose weight codes are all 0, or whose bias does not fit in +-2^30 accumulators, of 16-bit
 * inputs +-2^46, of targets that cut sums to n bits +-(2^(n-1) - 1) (gamma is 0 or next to it), is carried by its bias alone: `dead`; its accumulator
 * counts as 0. With one_scale no channel can have a scale of its own, so the bias ends at that limit.
 */

/* What is the same for all channels of a call; scales finite and > 0. */
typedef struct fold_rules {
    float input_scale, output_scale; /* output_scale is 1 for a float output */
    bool wide;                       /* the input has 16 bits */
    bool pow2;                       /* all scales are powers of two */
    int sum_bits;                    /* of biases, as of sums; 0: they end elsewhere */
    bool one_scale;                  /* all channels have that of the weights */
} fold_rules;

/* A channel as floats; finite. With pow2 its gain is 1. */
typedef struct float_channel {
    float weight_scale;
    double gain, shift;
    bool silent; /* its weight codes are all 0 */
} float_channel;

typedef struct channel_fold {
    float weight_scale; /* effective; negative with gamma */
    int64_t bias;       /* in accumulators, zero point not included */
    float multiplier;
    bool dead;
} channel_fold;

oct_layer oct_qat_conv_layer(const oct_qat_conv *m)
{
    return (oct_layer){.weight = m->layer ? oct_layer_weight(m->layer) : NULL,
                       .bias = m->layer ? oct_layer_bias(m->layer) : NULL,
                       .bn = (oct_batch_norm_module *)oct_qat_conv_owner(m)->batch_norm,
                       .activation = m->q.activation,
                       .clip = m->q.clip,
                       .fq = (oct_fake_quant *)m->q.fake_quant,
                       .wq =
                           (const oct_weight_fake_quant *)oct_qat_conv_owner(m)->weight_fake_quant,
                       .hold = m->hold,
                       .training = m->q.base.training,
                       .requantizer = m->q.target ? m->q.target->requantizer : OCT_REQUANT_FLOAT,
                       .gate = m->gate};
}

oct_conv_shape oct_qat_conv_shape(const oct_qat_conv *m, int64_t in_h, int64_t in_w)
{
    const oct_linear_module *l = (const oct_linear_module *)m->layer;
    const oct_conv2d_module *c = (const oct_conv2d_module *)m->layer;
    if (!m->layer) { /* the depthwise 1x1 convolution whose weights are 1 */
        const int64_t n = ((const oct_batch_norm_module *)m->batch_norm)->args.channels;
        return oct_conv_shape_of(in_h, in_w, n, n, oct_conv_geometry_of(1, 1, 1, 0, (int)n));
    }
    if (oct_qat_is_linear(m))
        return oct_linear_shape(in_h, in_w, l->args.in_features, l->args.out_features);
    return (oct_qat_is_transposed(m) ? oct_conv_transpose_shape_of : oct_conv_shape_of)(
        in_h, in_w, c->args.in_channels, c->args.out_channels, c->args.geometry);
}

float oct_folded_absmax(float weight_scale, double gain)
{
    return (float)(OCT_WEIGHT_CODES * (double)weight_scale * gain);
}

float oct_folded_scale(float weight_scale, double gain)
{
    return oct_folded_absmax(weight_scale, gain) / (float)OCT_WEIGHT_CODES;
}

/* Folds a dead channel, whose output is its bias (shift) alone. The weight scale is free, so it is set such that the
 * bias is 2^20 steps of the accumulators, or, where scales are powers of two, about that. */
static channel_fold fold_dead(const fold_rules *rules, float weight_scale, float shift)
{
    const double steps = 1 << 20;
    channel_fold fold = {.dead = true};
    fold.weight_scale = (float)(fabs((double)shift) / steps / (double)rules->input_scale);
    if (fold.weight_scale > 0 && rules->pow2) {
        fold.weight_scale = oct_pow2_ceil(fold.weight_scale);
        const float acc_scale = rules->input_scale * fold.weight_scale;
        fold.bias = (int64_t)nearbyint((double)shift / (double)acc_scale);
    } else if (fold.weight_scale > 0) {
        fold.bias = shift > 0 ? (int64_t)steps : -(int64_t)steps;
    } else { /* nothing to carry, but a scale is positive */
        fold.weight_scale = weight_scale;
    }
    fold.multiplier = rules->input_scale * fold.weight_scale / rules->output_scale;
    return fold;
}

/* Folds gain and shift into weight scale, integer bias and multiplier; dead if sums cannot hold the bias. */
static channel_fold fold_channel(const fold_rules *rules, const float_channel *channel)
{
    const double limit = rules->wide       ? 0x1p46
                         : rules->sum_bits ? ldexp(1, rules->sum_bits - 1) - 1
                                           : 0x1p30;
    const float shift = (float)channel->shift;
    channel_fold fold = {.weight_scale = oct_folded_scale(channel->weight_scale, channel->gain)};
    const float acc_scale = rules->input_scale * fold.weight_scale;
    double bias = (double)shift / (double)acc_scale; /* inf or NaN when the scale is 0 */
    if (rules->one_scale)
        bias = bias > limit ? limit : bias >= -limit ? bias : shift < 0 ? -limit : 0;
    else if (channel->silent || !(fabs(bias) <= limit))
        return fold_dead(rules, channel->weight_scale, shift);
    fold.bias = (int64_t)nearbyint(bias);
    fold.multiplier = acc_scale / rules->output_scale;
    return fold;
}

/* The arrays of the channels: of the weights, and of each norm group. */
#define OCT_WEIGHT_CHANNEL_LIST(X)                                                                 \
    X(scale)                                                                                       \
    X(offset)                                                                                      \
    X(offset32)                                                                                    \
    X(silent)
#define OCT_GROUP_CHANNEL_LIST(X)                                                                  \
    X(mean)                                                                                        \
    X(inv_std)                                                                                     \
    X(bias)                                                                                        \
    X(bias32)                                                                                      \
    X(multiplier)                                                                                  \
    X(fixed)                                                                                       \
    X(effective)                                                                                   \
    X(dead)

/* Allocates n elements in the memory of a context or, where that is NULL, by oct_alloc. */
static oct_status alloc_array(void *array, oct_context *cx, int64_t n, size_t size)
{
    if (!cx) return oct_alloc(array, (size_t)n, size);
    void *memory = oct_save(cx, (size_t)n * size);
    memcpy(array, &memory, sizeof memory);
    return cx->status;
}

oct_status oct_channels_alloc(oct_channels *ch, oct_context *cx, int64_t n, int64_t groups)
{
#define X(name) OCT_TRY(alloc_array(&ch->name, cx, n, sizeof *ch->name));
    OCT_WEIGHT_CHANNEL_LIST(X)
#undef X
#define X(name) OCT_TRY(alloc_array(&ch->name, cx, groups *n, sizeof *ch->name));
    OCT_GROUP_CHANNEL_LIST(X)
#undef X
    memset(ch->dead, 0, (size_t)(groups * n));
    return OCT_OK;
}

oct_channels oct_channels_of_group(const oct_channels *ch, int64_t n, int64_t g)
{
    oct_channels group = *ch;
#define X(name) group.name += g * n;
    OCT_GROUP_CHANNEL_LIST(X)
#undef X
    return group;
}

void oct_channels_free(oct_channels *ch)
{
#define X(name) oct_free(&ch->name);
    OCT_WEIGHT_CHANNEL_LIST(X)
    OCT_GROUP_CHANNEL_LIST(X)
#undef X
}

/* Sums codes in parts whose sums fit into 32 bits, which vectorises; *silent: whether all are 0. */
OCT_CLONES
static int64_t sum_codes(const int8_t *codes, int64_t n, bool *silent)
{
    const int64_t part = 1 << 20;
    int64_t sum = 0;
    int8_t all_bits = 0;
    for (int64_t first = 0; first < n; first += part) {
        const int64_t end = oct_min_i64(first + part, n);
        int32_t part_sum = 0;
        for (int64_t i = first; i < end; i++) {
            part_sum += codes[i];
            all_bits |= codes[i];
        }
        sum += part_sum;
    }
    *silent = all_bits == 0;
    return sum;
}

/* Gives a batch norm without a layer the weight 1, in 2^15 steps, which leaves room for the bias. */
static void set_unit_weights(int64_t n, int8_t *codes, oct_channels *ch)
{
    for (int64_t o = 0; o < n; o++) {
        codes[o] = 1;
        ch->scale[o] = 1.0f / (float)(1 << OCT_QCONV_AFFINE_BITS);
        ch->offset[o] = 0;
        ch->offset32[o] = 0;
        ch->silent[o] = false;
    }
}

void oct_quantize_weights(const oct_layer *l, const oct_conv_shape *s, oct_qparams in,
                          int8_t *codes, oct_channels *ch)
{
    if (!l->weight) {
        set_unit_weights(s->out_c, codes, ch);
        return;
    }
    const float *weight = oct_f32(&l->weight->value);
    int64_t k = oct_conv_depth(s);
    if (l->wq) oct_weight_fake_quant_scales(l->wq, ch->scale);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < s->out_c; o++) {
        float scale = l->wq ? ch->scale[o] : oct_weight_scale(weight + o * k, k);
        if (oct_requantizer_shifts(l->requantizer)) scale = oct_pow2_ceil(scale);
        oct_weight_codes(weight + o * k, k, scale, codes + o * k);
        ch->scale[o] = scale;
        ch->offset[o] = in.zero_point * sum_codes(codes + o * k, k, &ch->silent[o]);
        ch->offset32[o] = in.qmax > UINT8_MAX ? 0 : (int32_t)ch->offset[o];
    }
}

oct_status oct_coded_layer_begin(const oct_qat_conv *m, oct_qparams in, oct_coded_layer *c)
{
    *c = (oct_coded_layer){.layer = oct_qat_conv_layer(m), .shape = oct_qat_conv_shape(m, 1, 1)};
    const oct_conv_shape *s = &c->shape;
    OCT_TRY(oct_channels_alloc(&c->ch, NULL, s->out_c, 1));
    OCT_TRY(oct_alloc(&c->codes, (size_t)(s->out_c * oct_conv_depth(s)), 1));
    oct_quantize_weights(&c->layer, s, in, c->codes, &c->ch);
    return OCT_OK;
}

void oct_coded_layer_end(oct_coded_layer *c)
{
    oct_free(&c->codes);
    oct_channels_free(&c->ch);
}

void oct_running_statistics(const oct_layer *l, oct_channels *ch)
{
    const oct_bn_args args = oct_batch_norm_call(l->bn, false);
    oct_bn_running(&args, l->bn->args.channels, ch->mean, ch->inv_std);
}

/* What follows the sums of channel o: with batch norm y = gamma * (sum + bias - mean) / sigma + beta. */
void oct_channel_affine(const oct_layer *l, const oct_channels *ch, int64_t o, double *gain,
                        double *shift)
{
    *gain = 1.0;
    *shift = l->bias ? (double)oct_f32(&l->bias->value)[o] : 0.0;
    if (!l->bn) return;
    *gain = (double)oct_f32(&l->bn->gamma->value)[o] * (double)ch->inv_std[o];
    *shift = (double)oct_f32(&l->bn->beta->value)[o] + (*shift - (double)ch->mean[o]) * *gain;
}

oct_status oct_fold_channels(const oct_layer *l, oct_qparams in, float output_scale,
                             oct_channels *ch, int64_t n)
{
    const fold_rules rules = {.input_scale = in.scale,
                              .output_scale = output_scale,
                              .wide = in.qmax > UINT8_MAX,
                              .pow2 = oct_requantizer_shifts(l->requantizer),
                              .sum_bits = oct_rounding_of(l->requantizer)->sum_bits,
                              .one_scale = l->wq && l->wq->by_target};
    for (int64_t o = 0; o < n; o++) {
        float_channel channel = {.weight_scale = ch->scale[o], .silent = ch->silent[o]};
        oct_channel_affine(l, ch, o, &channel.gain, &channel.shift);
        OCT_CHECK(
            isfinite(channel.gain) && isfinite((float)channel.shift) && isfinite(ch->scale[o]),
            OCT_NUMERIC, "a %sbatch-norm value is not finite", l->weight ? "weight, bias or " : "");
        channel_fold fold = fold_channel(&rules, &channel);
        ch->effective[o] = fold.weight_scale;
        ch->multiplier[o] = fold.multiplier;
        ch->fixed[o] = oct_fixed_of_layer(l->requantizer, in.scale, fold.weight_scale, output_scale,
                                          fold.multiplier);
        ch->dead[o] = fold.dead;
        ch->bias[o] = fold.dead ? fold.bias : fold.bias - ch->offset[o];
        ch->bias32[o] = rules.wide ? 0 : (int32_t)ch->bias[o];
    }
    return OCT_OK;
}

void oct_clear_dead_codes(const oct_channels *ch, const oct_conv_shape *s, int8_t *codes)
{
    for (int64_t o = 0; o < s->out_c; o++)
        if (ch->dead[o]) memset(codes + o * oct_conv_depth(s), 0, (size_t)oct_conv_depth(s));
}

/* Returns the code of a value in units of the scale, or the nearest that there is. */
static int32_t clamp_to_code(float v, int32_t lo, int32_t hi)
{
    return (int32_t)nearbyintf(fminf(fmaxf(v, (float)lo), (float)hi));
}

/* Returns the requantizer's constants. floor and six: the clips in units of the output scale, before rounding, which
 * decide where gradients pass; lo and hi: the same of codes. Where the zero_point is above qmin, relu cuts at
 * logical 0. */
static oct_requant make_requant(const oct_layer *l, oct_qparams out, const oct_channels *ch)
{
    oct_requant q = {.bias = ch->bias32,
                     .multiplier = ch->multiplier,
                     .lo = out.qmin - out.zero_point,
                     .hi = out.qmax - out.zero_point,
                     .zero_point = out.zero_point,
                     .relu = l->activation != OCT_ACT_NONE,
                     .six = INFINITY};
    if (l->activation == OCT_ACT_CLIP) {
        const int32_t lo = q.lo;
        q.floor = (float)l->clip.lo / out.scale;
        q.six = (float)l->clip.hi / out.scale;
        q.lo = clamp_to_code(q.floor, lo, q.hi);
        q.hi = clamp_to_code(q.six, lo, q.hi);
        return q;
    }
    if (q.relu && q.lo < 0) q.lo = 0;
    if (l->activation == OCT_ACT_RELU6) {
        q.six = 6.0f / out.scale;
        if (q.six < (float)q.hi) q.hi = (int32_t)nearbyintf(q.six);
    }
    return q;
}

oct_epilogue oct_epilogue_of(const oct_layer *l, oct_qparams in, const oct_qparams *out,
                             const oct_tensor *addend, const oct_channels *ch)
{
    const oct_dtype out_dtype = out ? oct_codes_dtype(*out) : OCT_F32;
    const oct_qparams real = {.scale = 1.0f};
    oct_epilogue f = {.requantizer = l->requantizer,
                      .wide = oct_epilogue_is_wide(oct_codes_dtype(in),
                                                   addend ? addend->dtype : OCT_U8, out_dtype),
                      .acc = oct_codes_dtype(in) == OCT_U16 ? OCT_S64 : OCT_S32,
                      .out = out_dtype,
                      .q = make_requant(l, out ? *out : real, ch),
                      .bias = ch->bias,
                      .fixed = ch->fixed};
    if (!out && l->activation == OCT_ACT_RELU6) f.q.six = 6.0f;
    if (addend) {
        f.addend = oct_qcodes_of(addend);
        f.addend_multiplier = addend->q.scale / (out ? out->scale : real.scale);
    }
    return f;
}
