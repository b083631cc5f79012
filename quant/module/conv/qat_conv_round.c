/* Weights move once, before training or in place of it: to the codes that keep what the layer computes (GPTQ), and its
 * bias by what that shifts.
 *
 * With H = sum of x x^T over the windows x of the input and R R^T = H, R an upper triangle, the error of an output
 * channel w that becomes q is |R^T (w - q)|^2, whose component k holds the differences up to k. So weights are taken in
 * order, and each becomes the code that makes its component smallest: the nearest one to
 * w_k + (sum over j < k of R_jk (w_j - q_j)) / R_kk. That is GPTQ without the inverse of H. The factor is
 * Cholesky's (core/kernel/blas.h), from the last weight to the first.
 *
 * A hundredth of the mean diagonal is added to the diagonal, as GPTQ does, so that weights whose inputs never differ
 * from 0 have a factor too.
 */
#include "quant/module/conv/conv_impl.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/kernel/blas.h"

#include <math.h>
#include <string.h>

static const void *const roundings[] = {OCT_ROUNDING_LIST(OCT_WORD_ITEM)};
const oct_registry oct_rounding_table = OCT_REGISTRY("a rounding", roundings);

/* Windows that are gathered at a time: products of 8-bit codes are below 2^16 and the sum of this many of them below
 * 2^31; those of 16-bit codes below 2^32 and 2^63. */
enum { WINDOWS = 256 };

oct_status oct_moments_create(oct_moments *m, const oct_conv_shape *s, bool products)
{
    const int64_t k = oct_conv_depth(s);
    *m = (oct_moments){.depth = k, .groups = s->groups};
    OCT_TRY(oct_alloc(&m->sum, (size_t)(m->groups * k), sizeof *m->sum));
    return products ? oct_alloc(&m->product, (size_t)(m->groups * k * k), sizeof *m->product)
                    : OCT_OK;
}

void oct_moments_free(oct_moments *m)
{
    oct_free(&m->sum);
    oct_free(&m->product);
    *m = (oct_moments){0};
}

/* What some windows see of a group of channels: (K, WINDOWS), in the type that their products need. */
typedef struct window_block {
    const oct_conv_shape *s;
    const oct_tensor *x;
    int64_t first, count; /* windows, over all samples */
    int16_t *narrow;      /* of 8-bit codes, otherwise NULL: */
    int32_t *wide;
} window_block;

/* Writes the inputs (code - zero_point) of window t of the block, in the order of weights; in the padding 0. */
static void gather_window(const window_block *b, int64_t group, int64_t t)
{
    const oct_conv_shape *s = b->s;
    const int64_t window = b->first + t, plane = s->out_h * s->out_w,
                  channels = s->in_c / s->groups;
    const int64_t n = window / plane, oy = window % plane / s->out_w, ox = window % s->out_w;
    int64_t k = 0;
    for (int ky = 0; ky < s->kernel_h; ky++) {
        const int64_t y = oy * s->stride_h - s->pad_top + (int64_t)ky * s->dilation_h;
        for (int kx = 0; kx < s->kernel_w; kx++) {
            const int64_t x = ox * s->stride_w - s->pad_left + (int64_t)kx * s->dilation_w;
            const bool inside = y >= 0 && y < s->in_h && x >= 0 && x < s->in_w;
            const int64_t pixel = ((n * s->in_h + y) * s->in_w + x) * s->in_c + group * channels;
            for (int64_t c = 0; c < channels; c++, k++) {
                int32_t value = 0;
                if (inside)
                    value = (b->wide ? (int32_t)oct_u16(b->x)[pixel + c]
                                     : (int32_t)oct_u8(b->x)[pixel + c]) -
                            b->x->q.zero_point;
                if (b->wide)
                    b->wide[k * WINDOWS + t] = value;
                else
                    b->narrow[k * WINDOWS + t] = (int16_t)value;
            }
        }
    }
}

/* Sums the products of two inputs over the windows of a block: of 8-bit codes, in int32. */
OCT_CLONES
static int64_t narrow_dot(const int16_t *restrict a, const int16_t *restrict b)
{
    int32_t sum = 0;
    for (int64_t t = 0; t < WINDOWS; t++)
        sum += a[t] * b[t];
    return sum;
}

/* Sums the products of two inputs over the windows of a block: of 16-bit codes, in int64. */
OCT_CLONES
static int64_t wide_dot(const int32_t *restrict a, const int32_t *restrict b)
{
    int64_t sum = 0;
    for (int64_t t = 0; t < WINDOWS; t++)
        sum += (int64_t)a[t] * b[t];
    return sum;
}

/* Adds the windows of the block to the sum of weight i's inputs, and to their products with those of weights 0 to i
 * (the lower triangle). */
static void add_products(oct_moments *m, const window_block *b, int64_t group, int64_t i)
{
    const int64_t k = m->depth;
    for (int64_t t = 0; t < WINDOWS; t++)
        m->sum[group * k + i] += b->wide ? b->wide[i * WINDOWS + t] : b->narrow[i * WINDOWS + t];
    if (!m->product) return;
    int64_t *row = m->product + (group * k + i) * k;
    for (int64_t j = 0; j <= i; j++)
        row[j] += b->wide ? wide_dot(b->wide + i * WINDOWS, b->wide + j * WINDOWS)
                          : narrow_dot(b->narrow + i * WINDOWS, b->narrow + j * WINDOWS);
}

/* Adds a block of windows, group by group; columns of the last block without a window hold zeros. */
static void add_windows(oct_moments *m, const window_block *b)
{
    for (int64_t group = 0; group < m->groups; group++) {
#pragma omp parallel for schedule(static) if (m->depth > 64)
        for (int64_t t = 0; t < b->count; t++)
            gather_window(b, group, t);
        for (int64_t k = 0; k < m->depth && b->count < WINDOWS; k++)
            for (int64_t t = b->count; t < WINDOWS; t++) {
                if (b->wide)
                    b->wide[k * WINDOWS + t] = 0;
                else
                    b->narrow[k * WINDOWS + t] = 0;
            }
#pragma omp parallel for schedule(dynamic, 8) if (m->depth > 64)
        for (int64_t i = 0; i < m->depth; i++)
            add_products(m, b, group, i);
    }
}

oct_status oct_moments_add(oct_moments *m, const oct_conv_shape *s, const oct_tensor *x)
{
    const int64_t samples = oct_numel(x) / (s->in_h * s->in_w * s->in_c);
    const int64_t windows = samples * s->out_h * s->out_w;
    const size_t room = (size_t)(m->depth * WINDOWS);
    window_block b = {.s = s, .x = x};
    oct_status status = OCT_OK;
    if (m->windows > 0 && m->scale != x->q.scale) m->mixed = true;
    m->scale = x->q.scale;
    if (x->dtype == OCT_U16)
        OCT_TRY_OUT(oct_alloc(&b.wide, room, sizeof *b.wide));
    else
        OCT_TRY_OUT(oct_alloc(&b.narrow, room, sizeof *b.narrow));
    for (b.first = 0; b.first < windows; b.first += WINDOWS) {
        b.count = oct_min_i64(windows - b.first, WINDOWS);
        add_windows(m, &b);
    }
    m->windows += windows;
out:
    oct_free(&b.wide);
    oct_free(&b.narrow);
    return status;
}

/* Gives all ranks the input's scale; one without samples knows none. Positive floats are ordered as their
 * bits. */
static oct_status reduce_scale(oct_moments *m, const oct_collective *group)
{
    uint32_t bits;
    memcpy(&bits, &m->scale, sizeof bits);
    const bool seen = m->windows > 0;
    int64_t most[3] = {m->mixed, seen ? (int64_t)bits : INT64_MIN,
                       seen ? -(int64_t)bits : INT64_MIN};
    OCT_TRY(group->max_i64(group, most, 3));
    m->mixed = most[0] || (most[1] != INT64_MIN && most[1] != -most[2]);
    bits = most[1] == INT64_MIN ? 0 : (uint32_t)most[1];
    memcpy(&m->scale, &bits, sizeof bits);
    return OCT_OK;
}

oct_status oct_moments_allreduce(oct_moments *m, const oct_collective *group)
{
    const int64_t k = m->depth;
    OCT_TRY(reduce_scale(m, group)); /* the sums below are integers in units of it */
    OCT_TRY(oct_sum_i64(group, &m->windows, 1));
    OCT_TRY(oct_sum_i64(group, m->sum, m->groups * k));
    return m->product ? oct_sum_i64(group, m->product, m->groups * k * k) : OCT_OK;
}

/* Rounding. */

enum { CHANNELS = 8 }; /* that a thread rounds together, which share the rows of the factor */

/* Computes the Cholesky factor of a group's products, damped by 1% of their mean diagonal, last weight first. */
static oct_status factor_products(const oct_moments *m, int64_t group, double *factor)
{
    const int64_t k = m->depth;
    const int64_t *product = m->product + group * k * k;
    double trace = 0;
    for (int64_t i = 0; i < k; i++)
        trace += (double)product[i * k + i];
    const double damping = trace > 0 ? 0.01 * trace / (double)k : 1;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j <= i; j++) /* element (i, j) is of the weights k-1-i <= k-1-j */
            factor[i * k + j] =
                (double)product[(k - 1 - j) * k + (k - 1 - i)] + (i == j ? damping : 0);
    return oct_cholesky(factor, k);
}

/* A channel whose weights are being rounded, from the first to the last. */
typedef struct channel_rounding {
    const float *weight;
    float scale;
    int64_t largest; /* keeps its value */
    int8_t *codes;
    double *
        moved; /* (K), from the last weight to the first: what the differences so far add, times R_kk */
} channel_rounding;

static int64_t find_largest(const float *weight, int64_t k)
{
    int64_t largest = 0;
    for (int64_t i = 1; i < k; i++)
        if (fabsf(weight[i]) > fabsf(weight[largest])) largest = i;
    return largest;
}

/* Chooses the code of weight k plus `shift` (none for the largest, which gives the scale); returns the error. */
static double choose_code(const channel_rounding *r, int64_t k, double shift)
{
    const float one_over = 1.0f / r->scale;
    double wanted = (double)r->weight[k];
    if (k == r->largest)
        oct_weight_codes(&r->weight[k], 1, r->scale, &r->codes[k]);
    else {
        wanted += shift;
        const double code = rint(wanted * (double)one_over);
        r->codes[k] = (int8_t)fmin(fmax(code, -OCT_WEIGHT_CODES), OCT_WEIGHT_CODES);
    }
    return (double)r->weight[k] - (double)r->codes[k] * (double)r->scale;
}

OCT_CLONES
static void add_scaled_row(int64_t n, double d, const double *restrict row, double *restrict moved)
{
    for (int64_t i = 0; i < n; i++)
        moved[i] += d * row[i];
}

/* Of any input: codes of weights do not depend on it. */
static const oct_qparams any_input = {.scale = 1, .qmax = 255};

/* Rounds the channels of a group from the first weight to the last: each error moves what the weights after it
 * become. */
static void round_group(oct_coded_layer *w, int64_t group, const double *factor, double *moved)
{
    const int64_t k = oct_conv_depth(&w->shape), n = w->shape.out_c / w->shape.groups;
    const float *weight = oct_f32(&w->layer.weight->value);
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t first = group * n; first < (group + 1) * n; first += CHANNELS) {
        const int64_t end = oct_min_i64(first + CHANNELS, (group + 1) * n);
        channel_rounding r[CHANNELS];
        for (int64_t o = first; o < end; o++) {
            r[o - first] = (channel_rounding){.weight = weight + o * k,
                                              .scale = w->ch.scale[o],
                                              .largest = find_largest(weight + o * k, k),
                                              .codes = w->codes + o * k,
                                              .moved = moved + o * k};
            memset(moved + o * k, 0, (size_t)k * sizeof *moved);
        }
        for (int64_t i = k - 1; i >= 0; i--) { /* weight k-1-i */
            const double *row = factor + i * k;
            for (int64_t c = 0; c < end - first; c++) {
                const double error = choose_code(&r[c], k - 1 - i, r[c].moved[i] / row[i]);
                add_scaled_row(i, error, row, r[c].moved);
            }
        }
    }
}

/* Puts weights in the middle of their codes; the largest one of a channel as it was, and none beyond it. */
static void center_weights(const oct_coded_layer *w)
{
    const int64_t k = oct_conv_depth(&w->shape);
    for (int64_t o = 0; o < w->shape.out_c; o++) {
        float *weight = oct_f32(&w->layer.weight->value) + o * k;
        const int64_t largest = find_largest(weight, k);
        const float limit = fabsf(weight[largest]);
        for (int64_t i = 0; i < k; i++) {
            const float centre = (float)w->codes[o * k + i] * w->ch.scale[o];
            if (i != largest) weight[i] = fminf(fmaxf(centre, -limit), limit);
        }
    }
}

/* Whether the weights now have the codes that were chosen, with the same scales. */
static bool scales_stay(oct_coded_layer *w, int8_t *requantized)
{
    const int64_t n = w->shape.out_c;
    const size_t codes = (size_t)(n * oct_conv_depth(&w->shape));
    float *before = w->ch.effective; /* free until a batch norm is folded */
    memcpy(before, w->ch.scale, (size_t)n * sizeof *before);
    oct_quantize_weights(&w->layer, &w->shape, any_input, requantized, &w->ch);
    return memcmp(before, w->ch.scale, (size_t)n * sizeof *before) == 0 &&
           memcmp(w->codes, requantized, codes) == 0;
}

oct_status oct_qat_conv_round(oct_qat_conv *m, const oct_moments *input, bool *rounded)
{
    OCT_OWNED(oct_coded_layer_end) oct_coded_layer w = {0};
    OCT_OWNED(oct_free)
    int8_t *requantized = NULL; /* the codes of the weights in the middle of w's */
    OCT_OWNED(oct_free) double *factor = NULL, *moved = NULL;
    OCT_OWNED(oct_free) float *exact = NULL;
    *rounded = false;
    OCT_TRY(oct_coded_layer_begin(m, any_input, &w));
    const size_t k = (size_t)oct_conv_depth(&w.shape), all = (size_t)w.shape.out_c * k;
    float *weight = oct_f32(&w.layer.weight->value);
    OCT_TRY(oct_alloc(&requantized, all, 1));
    OCT_TRY(oct_alloc(&factor, k * k, sizeof *factor));
    OCT_TRY(oct_alloc(&moved, all, sizeof *moved));
    for (int64_t group = 0; group < input->groups; group++) {
        OCT_TRY(factor_products(input, group, factor));
        round_group(&w, group, factor, moved);
    }
    OCT_TRY(oct_alloc(&exact, all, sizeof *exact));
    memcpy(exact, weight, all * sizeof *exact);
    center_weights(&w);
    *rounded = scales_stay(&w, requantized);
    if (!*rounded) memcpy(weight, exact, all * sizeof *weight);
    return OCT_OK;
}

oct_status oct_qat_conv_correct_bias(oct_qat_conv *m, const oct_moments *input, const float *exact,
                                     bool *corrected)
{
    OCT_OWNED(oct_coded_layer_end) oct_coded_layer w = {0};
    OCT_TRY(oct_coded_layer_begin(m, any_input, &w));
    const oct_layer *l = &w.layer;
    const int64_t k = oct_conv_depth(&w.shape), each = w.shape.out_c / w.shape.groups;
    float *mean_or_bias = l->bn ? l->bn->running_mean : l->bias ? oct_f32(&l->bias->value) : NULL;
    *corrected = mean_or_bias != NULL && input->windows > 0;
    for (int64_t o = 0; *corrected && o < w.shape.out_c; o++) {
        const int64_t *sum = input->sum + o / each * k;
        double shift = 0;
        for (int64_t i = 0; i < k; i++)
            shift +=
                ((double)w.codes[o * k + i] * (double)w.ch.scale[o] - (double)exact[o * k + i]) *
                (double)sum[i];
        shift *= (double)input->scale / (double)input->windows;
        mean_or_bias[o] = (float)((double)mean_or_bias[o] + (l->bn ? shift : -shift));
    }
    return OCT_OK;
}
