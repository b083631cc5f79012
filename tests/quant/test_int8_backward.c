/* The backward of gradients that are codes: the quantizer by its definition and by its mean, both products by loops over
 * whole numbers, to the bit, on every kernel table. */
#include "core/base/int_math.h"
#include "core/kernel/conv_impl.h"
#include "tests/core/conv_rig.h"
#include "tests/quant/every_kernel.h"
#include "tests/quant/quant_random.h"

#include <math.h>

static oct_conv_plan bytes_plan(const oct_conv_shape *s, const oct_kernel *k, int64_t leaf,
                                int digits)
{
    const oct_conv_config config = {.shape = *s,
                                    .kernel = oct_float_kernel_here(),
                                    .numerics = OCT_NUMERICS_INT8,
                                    .input = OCT_U8,
                                    .bytes = &k->bytes,
                                    .data_digits = digits,
                                    .weight_digits = digits,
                                    .leaf = leaf,
                                    .max_leaves = OCT_CONV_MAX_LEAVES,
                                    .products = OCT_CONV_BACKWARD_DATA | OCT_CONV_BACKWARD_WEIGHT};
    oct_conv_plan plan;
    oct_conv_plan_init(&plan, &config);
    cr_assert_eq(plan.config.numerics, OCT_NUMERICS_INT8);
    return plan;
}

static oct_conv_shape pointwise(int64_t outs, int groups)
{
    oct_conv_shape s = oct_conv_shape_of(8, 9, 64 * groups, outs * groups,
                                         oct_conv_geometry_of(1, 1, 1, 0, groups));
    oct_conv_set_out(&s);
    return s;
}

/* The quantizer. */

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ x >> 16;
}

/* t of one value, by the mathematical library. */
static int32_t fixed_of(float grad, float factor, int32_t most)
{
    const float v = nearbyintf(grad * factor);
    return v > (float)most ? most : v < (float)-most ? -most : (int32_t)v;
}

typedef struct rounded {
    int64_t rows, outs, groups, row_bytes;
    float *grad, *factor;
    oct_conv_plan plan;
    uint8_t *codes, *low;
} rounded;

/* A gradient of 40 positions, values up to the largest of two digits and some beyond. */
static rounded rounded_of(dice *d, int64_t outs, int groups)
{
    const oct_conv_shape s = pointwise(outs, groups);
    rounded r = {.rows = 40, .outs = outs, .groups = groups};
    r.plan = bytes_plan(&s, all_kernels[0], 1, 1);
    r.row_bytes = (int64_t)r.plan.grad_row_bytes;
    cr_assert_eq(r.row_bytes, groups * ((outs + 3) / 4 * 4));
    r.grad = room(r.rows * s.out_c, sizeof *r.grad);
    r.factor = room(s.out_c, sizeof *r.factor);
    r.codes = take_dirty((size_t)(r.rows * r.row_bytes));
    r.low = take_dirty((size_t)(r.rows * r.row_bytes));
    for (int64_t c = 0; c < s.out_c; c++)
        r.factor[c] = ldexpf(1.0F + (float)roll_between(d, 0, 99) / 64, (int)roll_between(d, 3, 9));
    for (int64_t i = 0; i < r.rows * s.out_c; i++) {
        const float t = (float)roll_between(d, -33000 * 64, 33000 * 64) / 64;
        r.grad[i] = (roll(d) % 4 ? t : t / 4096) / r.factor[i % s.out_c];
    }
    return r;
}

static void free_rounded(rounded *r)
{
    oct_free(&r->grad);
    oct_free(&r->factor);
    oct_free(&r->codes);
    oct_free(&r->low);
}

/* Codes all rows, `step` at a time. */
static void round_all(rounded *r, uint32_t key, uint8_t flip, bool wide, int64_t step,
                      int64_t *errors)
{
    const int64_t channels = r->outs * r->groups;
    for (int64_t row = 0, rows; row < r->rows; row += rows) {
        rows = r->rows - row < step ? r->rows - row : step;
        oct_conv_grad_codes(&r->plan,
                            &(oct_grad_codes){.rows = rows,
                                              .position = 5 + row,
                                              .key = key,
                                              .grad = r->grad + row * channels,
                                              .factor = r->factor,
                                              .flip = flip,
                                              .codes = r->codes + row * r->row_bytes,
                                              .low = wide ? r->low + row * r->row_bytes : NULL,
                                              .errors = errors});
    }
}

static void check_rounded(const rounded *r, uint32_t key, uint8_t flip, bool wide, int64_t *errors)
{
    int64_t sums[2] = {0};
    for (int64_t row = 0; row < r->rows; row++) {
        for (int64_t g = 0; g < r->groups; g++) {
            const uint8_t *codes = r->codes + row * r->row_bytes + g * ((r->outs + 3) / 4 * 4);
            const uint8_t *low = codes - r->codes + r->low;
            for (int64_t o = r->outs; o % 4 != 0; o++)
                cr_assert(codes[o] == flip && (!wide || low[o] == flip));
            for (int64_t o = 0; o < r->outs; o++) {
                const int64_t c = g * r->outs + o;
                const float grad = r->grad[row * r->outs * r->groups + c];
                const uint32_t b = mix(key + (uint32_t)(5 + row) * 0x9e3779b9U);
                const int32_t u = (int32_t)((b + (uint32_t)c * 0x9e3779b9U) >> 24);
                const int32_t t = fixed_of(grad, r->factor[c], wide ? 32639 : 32512);
                const int q = (int8_t)(codes[o] ^ flip), lower = (int8_t)(low[o] ^ flip);
                if (wide)
                    cr_assert_eq(256 * q + lower, t);
                else
                    cr_assert_eq(q, (int)floor((t + u) / 256.0), "row %d, channel %d", (int)row,
                                 (int)c);
                cr_assert(q >= -127 && q <= 127);
                sums[0] += (256 * q - t) * (256 * q - t);
                sums[1] += (int64_t)t * t;
            }
        }
    }
    if (errors) cr_assert(errors[0] == sums[0] && errors[1] == sums[1]);
}

Test(int8_backward, gradients_become_the_codes_of_the_definition)
{
    dice d = {.seed = 1};
    for (int round = 0; round < 40; round++) {
        const int groups = round % 3 == 2 ? 3 : 1;
        const int64_t outs = round % 2 ? roll_between(&d, 1, 70) : 16 * roll_between(&d, 1, 4);
        rounded r = rounded_of(&d, outs, groups);
        const uint32_t key = roll(&d);
        for (int wide = 0; wide < 2; wide++) {
            for (int64_t step = 1; step <= r.rows; step += 13) {
                int64_t errors[2] = {0}, *wanted = wide ? NULL : errors;
                const uint8_t flip = (uint8_t)(step % 2 ? OCT_GRAD_FLIP : 0);
                memset(r.codes, 0x55, (size_t)(r.rows * r.row_bytes));
                round_all(&r, key, flip, wide, step, wanted);
                check_rounded(&r, key, flip, wide, wanted);
            }
        }
        free_rounded(&r);
    }
}

/* Over many keys the mean of a code is its value, also of values far below half a step. */
Test(int8_backward, codes_are_right_in_the_mean)
{
    enum { KEYS = 4096, CHANNELS = 64 };
    dice d = {.seed = 2};
    rounded r = rounded_of(&d, CHANNELS, 1);
    double sum[CHANNELS] = {0}, all = 0, expected = 0, variance = 0;
    r.rows = 1;
    for (int c = 0; c < CHANNELS; c++) {
        r.factor[c] = 256;
        r.grad[c] = c < 32 ? 0.01F * (float)(c - 16) : 3.9F * (float)(c - 48);
    }
    for (int k = 0; k < KEYS; k++) {
        round_all(&r, roll(&d), 0, false, 1, NULL);
        for (int c = 0; c < CHANNELS; c++)
            sum[c] += (int8_t)r.codes[c];
    }
    for (int c = 0; c < CHANNELS; c++) {
        const double value = nearbyint((double)r.grad[c] * 256) / 256, part = value - floor(value);
        const double error = sqrt(part * (1 - part) / KEYS);
        cr_assert(fabs(sum[c] / KEYS - value) <= 5 * error, "channel %d: %g, wanted %g", c,
                  sum[c] / KEYS, value);
        all += sum[c] / KEYS;
        expected += value;
        variance += error * error;
    }
    cr_assert(fabs(all - expected) <= 5 * sqrt(variance), "%g, wanted %g", all, expected);
    free_rounded(&r);
}

/* The products. */

typedef struct layer {
    oct_conv_shape s;
    int64_t samples, leaf;
    int digits;
    uint8_t *x;
    int32_t zero_point;
    int8_t *weight;
    int16_t *grad; /* whole numbers that codes stand for: (samples, OH, OW, O) */
    float *scale, *weight_scale;
} layer;

static int64_t count_outputs(const layer *l)
{
    return l->samples * oct_conv_out_numel(&l->s);
}

static int64_t count_inputs(const layer *l)
{
    return l->samples * oct_conv_in_numel(&l->s);
}

static int64_t count_weights(const layer *l)
{
    return l->s.out_c * oct_conv_depth(&l->s);
}

static float roll_scale(dice *d)
{
    return ldexpf(1.0F + (float)roll_between(d, 0, 1 << 20) / (1 << 21),
                  (int)roll_between(d, -9, 3));
}

static layer layer_of(dice *d, oct_conv_shape s, int64_t samples, int64_t leaf, int digits)
{
    layer l = {.s = s, .samples = samples, .leaf = leaf, .digits = digits};
    const int64_t segments = samples * s.out_c;
    oct_conv_set_out(&l.s);
    const int most = digits == 2 ? 32639 : 127;
    l.x = room(count_inputs(&l), 1);
    l.weight = room(count_weights(&l), 1);
    l.grad = room(count_outputs(&l), sizeof *l.grad);
    l.scale = room(samples, sizeof *l.scale);
    l.weight_scale = room(segments, sizeof *l.weight_scale);
    l.zero_point = roll_zero_point(d, 255);
    roll_bytes(d, l.x, count_inputs(&l));
    roll_weights(d, l.weight, count_weights(&l));
    for (int64_t i = 0; i < count_outputs(&l); i++)
        l.grad[i] = (int16_t)(roll(d) % 8   ? roll_between(d, -most, most)
                              : roll(d) % 2 ? most
                                            : -most);
    for (int64_t n = 0; n < samples; n++)
        l.scale[n] = roll_scale(d);
    for (int64_t i = 0; i < segments; i++)
        l.weight_scale[i] = roll_scale(d);
    return l;
}

static void free_layer(layer *l)
{
    oct_free(&l->x);
    oct_free(&l->weight);
    oct_free(&l->grad);
    oct_free(&l->scale);
    oct_free(&l->weight_scale);
}

/* The rows of one digit, as oct_conv_grad_codes leaves them. */
static uint8_t *digit_rows(const layer *l, const oct_conv_plan *p, bool low, uint8_t flip)
{
    const int64_t outs = l->s.out_c / l->s.groups, rows = l->samples * l->s.out_h * l->s.out_w;
    uint8_t *out = take_dirty((size_t)rows * p->grad_row_bytes), *to = out;
    const int16_t *grad = l->grad;
    for (int64_t i = 0; i < rows * l->s.groups; i++) {
        for (int64_t o = 0; o < (outs + 3) / 4 * 4; o++) {
            const int t = o < outs ? *grad++ : 0, high = (t + 128) >> 8;
            *to++ = (uint8_t)((l->digits == 1 ? t : low ? t - 256 * high : high) ^ flip);
        }
    }
    return out;
}

/* Calls visit for every product, as a loop over the layer: offsets into x, weights and the gradient. */
static void each_product(const layer *l, void (*visit)(void *, int64_t, int64_t, int64_t),
                         void *user)
{
    const oct_conv_shape *s = &l->s;
    const int64_t ins = s->in_c / s->groups, outs = s->out_c / s->groups;
    for (int64_t y = 0; y < count_outputs(l); y++) {
        const int64_t o = y % s->out_c, position = y / s->out_c;
        const int64_t ox = position % s->out_w, oy = position / s->out_w % s->out_h;
        const int64_t n = position / s->out_w / s->out_h;
        for (int64_t tap = 0; tap < s->kernel_h * s->kernel_w; tap++) {
            const int64_t iy = oy * s->stride_h - s->pad_top + tap / s->kernel_w * s->dilation_h;
            const int64_t ix = ox * s->stride_w - s->pad_left + tap % s->kernel_w * s->dilation_w;
            if (iy < 0 || iy >= s->in_h || ix < 0 || ix >= s->in_w) continue;
            const int64_t x = ((n * s->in_h + iy) * s->in_w + ix) * s->in_c + o / outs * ins;
            const int64_t w = (o * s->kernel_h * s->kernel_w + tap) * ins;
            for (int64_t i = 0; i < ins; i++)
                visit(user, x + i, w + i, y);
        }
    }
}

typedef struct data_sums {
    const layer *l;
    int64_t *sums;
} data_sums;

static void add_to_input(void *user, int64_t x, int64_t w, int64_t y)
{
    data_sums *r = user;
    r->sums[x] += r->l->grad[y] * r->l->weight[w];
}

static float *expected_data(const layer *l, bool add)
{
    data_sums r = {l, room(count_inputs(l), sizeof *r.sums)};
    float *grad_x = room(count_inputs(l), sizeof *grad_x);
    memset(r.sums, 0, (size_t)count_inputs(l) * sizeof *r.sums);
    each_product(l, add_to_input, &r);
    for (int64_t i = 0; i < count_inputs(l); i++) {
        const float value = l->scale[i / oct_conv_in_numel(&l->s)] * (float)r.sums[i];
        grad_x[i] = add ? 99 + value : value;
    }
    oct_free(&r.sums);
    return grad_x;
}

/* `together` samples at a time, from 99 on where it adds. */
static void check_data(const layer *l, const oct_kernel *k, const float *want, bool add,
                       int64_t together)
{
    oct_conv_plan p = bytes_plan(&l->s, k, l->leaf, l->digits);
    void *tables = take_dirty(p.table_bytes), *packed = take_dirty(p.data.packed_bytes);
    void *scratch = take_dirty(p.data.scratch_bytes);
    uint8_t *high = digit_rows(l, &p, false, OCT_GRAD_FLIP);
    uint8_t *low = digit_rows(l, &p, true, OCT_GRAD_FLIP);
    float *grad_x = take_dirty((size_t)count_inputs(l) * sizeof *grad_x);
    for (int64_t i = 0; i < count_inputs(l) && add; i++)
        grad_x[i] = 99;
    oct_conv_plan_tables(&p, tables);
    oct_conv_backward_data_pack(&p, NULL, l->weight, packed);
    for (int64_t n = 0, samples; n < l->samples; n += samples) {
        const int64_t row = n * l->s.out_h * l->s.out_w * (int64_t)p.grad_row_bytes;
        samples = l->samples - n < together ? l->samples - n : together;
        oct_conv_backward_data(&p,
                               &(oct_conv_pass){.samples = samples,
                                                .x = high + row,
                                                .low = l->digits == 2 ? low + row : NULL,
                                                .packed = packed,
                                                .y = grad_x + n * oct_conv_in_numel(&l->s),
                                                .scale = l->scale + n,
                                                .add = add},
                               scratch);
    }
    for (int64_t i = 0; i < count_inputs(l); i++)
        cr_assert_eq(grad_x[i], want[i], "%s: element %lld: %.9g, wanted %.9g", k->name,
                     (long long)i, (double)grad_x[i], (double)want[i]);
    oct_free(&tables);
    oct_free(&packed);
    oct_free(&scratch);
    oct_free(&high);
    oct_free(&low);
    oct_free(&grad_x);
}

/* Any geometry that has 32 operations for each code. */
static oct_conv_shape roll_shape(dice *d)
{
    oct_conv_shape s = {.in_h = roll_between(d, 1, 12),
                        .in_w = roll_between(d, 1, 12),
                        .kernel_h = (int)roll_between(d, 1, 4),
                        .kernel_w = (int)roll_between(d, 1, 4),
                        .stride_h = (int)roll_between(d, 1, 3),
                        .stride_w = (int)roll_between(d, 1, 3),
                        .dilation_h = (int)roll_between(d, 1, 2),
                        .dilation_w = (int)roll_between(d, 1, 2),
                        .groups = (int)roll_between(d, 1, 3)};
    const int64_t taps = s.kernel_h * s.kernel_w;
    s.pad_top = (int)roll_between(d, 0, 3);
    s.pad_left = (int)roll_between(d, 0, 3);
    s.pad_bottom = (int)oct_max_i64(roll_between(d, 0, 3),
                                    (s.kernel_h - 1) * s.dilation_h + 1 - s.in_h - s.pad_top);
    s.pad_right = (int)oct_max_i64(roll_between(d, 0, 3),
                                   (s.kernel_w - 1) * s.dilation_w + 1 - s.in_w - s.pad_left);
    s.in_c = s.groups * ((32 + taps - 1) / taps + roll_between(d, 0, 20));
    s.out_c = s.groups * roll_between(d, 1, 40);
    oct_conv_set_out(&s);
    return s;
}

static void check_data_everywhere(layer *l, dice *d)
{
    for (int add = 0; add < 2; add++) {
        float *want = expected_data(l, add);
        for (size_t k = 0; k < OCT_COUNT(all_kernels); k++)
            if (runs_here(all_kernels[k]))
                check_data(l, all_kernels[k], want, add, roll_between(d, 1, l->samples));
        oct_free(&want);
    }
}

Test(int8_backward, the_gradient_to_the_input_is_exact)
{
    dice d = {.seed = 3};
    for (int round = 0; round < 60; round++) {
        layer l = layer_of(&d, roll_shape(&d), roll_between(&d, 1, 5), 2, 1 + round % 2);
        check_data_everywhere(&l, &d);
        free_layer(&l);
    }
}

/* Layers whose gradient some tables make of tiles, outputs of one part or of two. */
Test(int8_backward, the_gradient_to_the_input_is_exact_by_tiles)
{
    dice d = {.seed = 4};
    int by_tiles[OCT_COUNT(all_kernels)] = {0};
    for (int round = 0; round < 12; round++) {
        oct_conv_shape s = oct_conv_shape_of(roll_between(&d, 15, 20), roll_between(&d, 15, 20),
                                             16 * roll_between(&d, 5, 6),
                                             16 * roll_between(&d, 5, 6) + (round % 4 ? 0 : 160),
                                             oct_conv_geometry_of(3, 3, 1, 1, 1));
        s.pad_left = (int)roll_between(&d, 1, 2);
        s.pad_top = (int)roll_between(&d, 1, 2);
        s.pad_right =
            (int)roll_between(&d, 0, 6); /* of more than 2 some gradients reach no input */
        s.pad_bottom = (int)roll_between(&d, 0, 6);
        oct_conv_set_out(&s);
        for (size_t k = 0; k < OCT_COUNT(all_kernels); k++)
            by_tiles[k] += bytes_plan(&s, all_kernels[k], 2, 1).data.winograd.bytes != NULL;
        layer l = layer_of(&d, s, roll_between(&d, 1, 5), 2, 1 + round % 2);
        check_data_everywhere(&l, &d);
        free_layer(&l);
    }
    for (size_t k = 0; k < OCT_COUNT(all_kernels); k++)
        cr_assert(all_kernels[k]->bytes.pairs ? by_tiles[k] >= 6 : by_tiles[k] == 0);
}

/* The least power of two of samples with 512 positions, at most a leaf. */
static int64_t segment_of(const layer *l)
{
    int64_t samples = 1;
    while (samples < l->leaf && samples * l->s.out_h * l->s.out_w < 512)
        samples *= 2;
    return samples < l->leaf ? samples : l->leaf;
}

static int64_t segments_of_leaf(const layer *l)
{
    return (l->leaf + segment_of(l) - 1) / segment_of(l);
}

/* Lines whose sums become floats together: whole blocks of about 1,024 words of four positions, with at most
 * OCT_CONV_MAX_CODES positions. */
static int64_t part_lines(const layer *l)
{
    const int64_t words = (l->s.out_w + 3) / 4, block = oct_max_i64(1024 / words, 1);
    return OCT_CONV_MAX_CODES / (block * words * 4) * block;
}

enum { PARTS = 2 }; /* of a segment, at most */

typedef struct weight_sums {
    const layer *l;
    int64_t *sums; /* (segments, PARTS, O, depth) */
} weight_sums;

/* The number of the segment of sample n, as scales count them. */
static int64_t segment_at(const layer *l, int64_t n)
{
    return n / l->leaf * segments_of_leaf(l) + n % l->leaf / segment_of(l);
}

static void add_to_weight(void *user, int64_t x, int64_t w, int64_t y)
{
    weight_sums *r = user;
    const layer *l = r->l;
    const int64_t segment = segment_at(l, y / oct_conv_out_numel(&l->s));
    const bool cut = l->s.out_h * l->s.out_w > OCT_CONV_MAX_CODES;
    const int64_t line = y / l->s.out_c / l->s.out_w % l->s.out_h;
    const int64_t part = cut ? line / part_lines(l) : 0;
    cr_assert_lt(part, PARTS);
    r->sums[(segment * PARTS + part) * count_weights(l) + w] +=
        l->grad[y] * (l->x[x] - l->zero_point);
}

/* By the definition: a row for each leaf, its segments in order, and the tree. In the layout of weights. */
static float *expected_weight(const layer *l, const float *factor)
{
    const int64_t numel = count_weights(l), depth = oct_conv_depth(&l->s);
    const oct_leaves leaves = oct_leaves_split(l->samples, l->leaf, 0, 1);
    const int64_t segments = leaves.count * segments_of_leaf(l);
    weight_sums r = {l, room(segments * PARTS * numel, sizeof *r.sums)};
    float *rows = room(leaves.count * numel, sizeof *rows);
    memset(r.sums, 0, (size_t)(segments * PARTS * numel) * sizeof *r.sums);
    memset(rows, 0, (size_t)(leaves.count * numel) * sizeof *rows);
    each_product(l, add_to_weight, &r);
    for (int64_t n = 0; n < l->samples; n++) {
        if (n % l->leaf % segment_of(l) != 0) continue;
        const int64_t segment = segment_at(l, n);
        for (int64_t i = 0; i < PARTS * numel; i++) {
            const int64_t w = i % numel;
            rows[n / l->leaf * numel + w] += l->weight_scale[segment * l->s.out_c + w / depth] *
                                             (float)r.sums[segment * PARTS * numel + i];
        }
    }
    for (int64_t i = 0; i < leaves.count * numel && factor; i++)
        rows[i] *= factor[i % numel / depth];
    cr_assert_eq(oct_tree_fold_f32(&leaves, rows, numel), 1);
    oct_free(&r.sums);
    return rows;
}

/* Over garbage, or from 99 on; `threads` threads share the channels of the input. */
static void check_weight(const layer *l, const oct_kernel *k, const float *factor,
                         const float *want, bool add, int threads)
{
    const int64_t numel = count_weights(l), depth = oct_conv_depth(&l->s);
    oct_conv_plan p = bytes_plan(&l->s, k, l->leaf, l->digits);
    cr_assert_eq(p.weight.segment_samples, segment_of(l));
    cr_assert_eq(p.weight.leaf_segments, segments_of_leaf(l));
    void *scratch = take_dirty(p.weight.scratch_bytes);
    uint8_t *high = digit_rows(l, &p, false, 0), *low = digit_rows(l, &p, true, 0);
    float *sums = take_dirty((size_t)numel * sizeof *sums), *got = room(numel, sizeof *got);
    const oct_cut cut = oct_conv_weight_cut(&p, 1, threads);
    for (int64_t i = 0; i < numel && add; i++)
        sums[i] = 99;
    for (int t = 0; t < threads; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);)
            oct_conv_backward_weight(
                &p,
                &(oct_conv_weight_pass){.samples = l->samples,
                                        .grad = high,
                                        .low = l->digits == 2 ? low : NULL,
                                        .x = {.codes = l->x, .zero_point = l->zero_point},
                                        .factor = factor,
                                        .scale = l->weight_scale,
                                        .sums = sums,
                                        .add = add,
                                        .channel = tile.first,
                                        .channels = tile.end - tile.first},
                scratch);
    }
    oct_conv_weight_transpose(l->s.groups, depth, l->s.out_c / l->s.groups, sums, got);
    for (int64_t i = 0; i < numel; i++)
        cr_assert_eq(got[i], add ? 99 + want[i] : 0.0F + want[i],
                     "%s: element %lld of %lld: %.9g, wanted %.9g", k->name, (long long)i,
                     (long long)numel, (double)got[i], (double)want[i]);
    oct_free(&scratch);
    oct_free(&high);
    oct_free(&low);
    oct_free(&sums);
    oct_free(&got);
}

/* On as many samples as a call takes, or some less. */
static void check_weight_everywhere(dice *d, oct_conv_shape s, int64_t leaf, int digits)
{
    oct_conv_set_out(&s);
    int64_t leaves = OCT_CONV_MAX_LEAVES;
    for (size_t k = 0; k < OCT_COUNT(all_kernels); k++)
        leaves = oct_min_i64(leaves, bytes_plan(&s, all_kernels[k], leaf, digits).weight.leaves);
    leaves = roll_between(d, 1, leaves);
    layer l = layer_of(d, s, leaves * leaf - roll_between(d, 0, leaf - 1), leaf, digits);
    float *factor = room(s.out_c, sizeof *factor);
    for (int64_t o = 0; o < s.out_c; o++)
        factor[o] = roll_scale(d);
    const bool scaled = roll(d) % 2;
    float *want = expected_weight(&l, scaled ? factor : NULL);
    for (size_t k = 0; k < OCT_COUNT(all_kernels); k++)
        if (runs_here(all_kernels[k]))
            check_weight(&l, all_kernels[k], scaled ? factor : NULL, want, roll(d) % 2,
                         (int)roll_between(d, 1, 3));
    oct_free(&want);
    oct_free(&factor);
    free_layer(&l);
}

Test(int8_backward, the_gradient_to_the_weights_is_exact)
{
    dice d = {.seed = 4};
    for (int round = 0; round < 80; round++)
        check_weight_everywhere(&d, roll_shape(&d), roll_between(&d, 1, 8), 1 + round % 2);
}

/* Segments of one sample and of some, blocks of a segment, and a plane whose sums leave before the end. */
Test(int8_backward, segments_and_blocks_of_the_gradient_to_the_weights_are_exact)
{
    dice d = {.seed = 5};
    const oct_conv_geometry three = oct_conv_geometry_of(3, 3, 1, 1, 1),
                            one = oct_conv_geometry_of(1, 1, 1, 0, 1);
    for (int digits = 1; digits <= 2; digits++) {
        check_weight_everywhere(&d, oct_conv_shape_of(16, 17, 4, 3, three), 7, digits);
        check_weight_everywhere(&d, oct_conv_shape_of(15, 15, 32, 5, one), 8, digits);
        check_weight_everywhere(&d, oct_conv_shape_of(33, 31, 4, 2, three), 2, digits);
        check_weight_everywhere(&d, oct_conv_shape_of(70, 67, 4, 1, three), 1, digits);
        check_weight_everywhere(&d, oct_conv_shape_of(190, 181, 32, 1, one), 1, digits);
    }
}

static bool goes_by_tiles(const oct_conv_shape *s, const oct_kernel *k)
{
    const oct_conv_plan p = bytes_plan(s, k, 8, 1);
    return p.weight.segment.tiles_bytes > 0;
}

/* Some tables make it of tiles: where bytes are multiplied as pairs. */
static bool may_go_by_tiles(const oct_kernel *k)
{
    return k->bytes.pairs && k->bytes.pairs_time == 1;
}

/* Layers whose gradient some tables make of tiles: odd planes, any padding, short segments, segments of several parts,
 * channels that threads share; 9 x 9 x 1024, whose full segments are too large for it, and a short one would not be; small
 * planes, whose tiles are of 2 x 2; leaves side by side. */
Test(int8_backward, the_gradient_to_the_weights_is_exact_by_tiles)
{
    dice d = {.seed = 6};
    for (int round = 0; round < 24; round++) {
        oct_conv_shape s = oct_conv_shape_of(
            roll_between(&d, 5, 21), roll_between(&d, 5, 21), 16 * roll_between(&d, 1, 4),
            16 * roll_between(&d, 1, 3), oct_conv_geometry_of(3, 3, 1, 1, 1));
        s.pad_left = (int)roll_between(&d, 1, 2);
        s.pad_top = (int)roll_between(&d, 1, 2);
        s.pad_right = (int)roll_between(&d, 0, 6);
        s.pad_bottom = (int)roll_between(&d, 0, 6);
        oct_conv_set_out(&s);
        for (size_t k = 0; k < OCT_COUNT(all_kernels); k++)
            cr_assert_eq(goes_by_tiles(&s, all_kernels[k]), may_go_by_tiles(all_kernels[k]),
                         "%s: %lld x %lld x %lld to %lld x %lld x %lld", all_kernels[k]->name,
                         (long long)s.in_h, (long long)s.in_w, (long long)s.in_c,
                         (long long)s.out_h, (long long)s.out_w, (long long)s.out_c);
        check_weight_everywhere(&d, s, roll_between(&d, 1, 8), 1 + round % 2);
    }
    const oct_conv_geometry three = oct_conv_geometry_of(3, 3, 1, 1, 1);
    check_weight_everywhere(&d, oct_conv_shape_of(9, 9, 1024, 16, three), 8, 1);
    check_weight_everywhere(&d, oct_conv_shape_of(41, 39, 16, 32, three), 2, 2);
    for (int round = 0; round < 6; round++)
        check_weight_everywhere(&d, oct_conv_shape_of(4 + round / 2, 4, 64, 48, three), 8,
                                1 + round % 2);
}

/* The largest sums of a segment by tiles of 4 x 4, of both signs, in sixteen parts. */
Test(int8_backward, the_largest_sums_by_tiles_do_not_overflow)
{
    dice d = {.seed = 7};
    const oct_conv_shape s =
        oct_conv_shape_of(128, 128, 16, 16, oct_conv_geometry_of(3, 3, 1, 1, 1));
    layer l = layer_of(&d, s, 1, 1, 1);
    for (int sign = -1; sign < 2; sign += 2) {
        l.zero_point = sign < 0 ? 255 : 0;
        memset(l.x, 255 - l.zero_point, (size_t)count_inputs(&l));
        for (int64_t i = 0; i < count_outputs(&l); i++)
            l.grad[i] = -127;
        float *want = expected_weight(&l, NULL);
        for (size_t k = 0; k < OCT_COUNT(all_kernels); k++)
            if (runs_here(all_kernels[k])) {
                cr_assert_eq(goes_by_tiles(&l.s, all_kernels[k]), may_go_by_tiles(all_kernels[k]));
                check_weight(&l, all_kernels[k], NULL, want, false, 1);
            }
        oct_free(&want);
    }
    free_layer(&l);
}
