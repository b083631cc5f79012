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

enum { TOGETHER = 8 }; /* channels of a thread, which share the rows of the factor */

oct_conv_shape oct_moments_shape(const oct_qat_conv *layer)
{
    return oct_qat_conv_shape(layer, 1, 1);
}

/* The factor of one group, its rows and columns from the last weight to the first. */
static oct_status factor_of(const oct_moments *m, int64_t group, double *factor)
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

/* A channel on its way. */
typedef struct rounding {
    const float *weight;
    float scale;
    int64_t largest; /* keeps its value */
    int8_t *codes;
    double *
        moved; /* (K), from the last weight to the first: what the differences so far add, times R_kk */
} rounding;

static int64_t largest_of(const float *weight, int64_t k)
{
    int64_t largest = 0;
    for (int64_t i = 1; i < k; i++)
        if (fabsf(weight[i]) > fabsf(weight[largest])) largest = i;
    return largest;
}

/* Chooses the code of a weight and returns its difference. */
static double choose_code(const rounding *r, int64_t k, double shift)
{
    const float one_over = 1.0f / r->scale;
    double wanted = (double)r->weight[k];
    if (k == r->largest)
        oct_weight_codes(&r->weight[k], 1, r->scale, &r->codes[k]);
    else {
        wanted += shift;
        const double code = rint(wanted * (double)one_over);
        r->codes[k] = (int8_t)fmin(fmax(code, -127), 127);
    }
    return (double)r->weight[k] - (double)r->codes[k] * (double)r->scale;
}

OCT_CLONES
static void add_row(int64_t n, double d, const double *restrict row, double *restrict moved)
{
    for (int64_t i = 0; i < n; i++)
        moved[i] += d * row[i];
}

/* All that rounding a layer works with. */
typedef struct work {
    oct_layer layer;
    oct_conv_shape shape;
    oct_channels ch;
    int8_t *codes, *again; /* chosen; and what becomes of the weights at them */
    float *weight;         /* these */
    double *factor, *moved;
} work;

static void end_work(work *w)
{
    oct_channels_free(&w->ch);
    oct_free(&w->codes);
    oct_free(&w->again);
    oct_free(&w->weight);
    oct_free(&w->factor);
    oct_free(&w->moved);
}

static oct_status begin_work(const oct_qat_conv *m, work *w)
{
    *w = (work){.layer = oct_qat_conv_layer(m), .shape = oct_qat_conv_shape(m, 1, 1)};
    const int64_t k = oct_conv_depth(&w->shape), n = w->shape.out_c;
    const size_t all = (size_t)(n * k);
    OCT_TRY(oct_channels_alloc(&w->ch, n));
    OCT_TRY(oct_alloc(&w->codes, all, 1));
    const oct_qparams any = {.scale = 1, .qmax = 255};
    oct_quantize_weights(&w->layer, &w->shape, any, w->codes, &w->ch);
    return OCT_OK;
}

static void round_group(work *w, int64_t group)
{
    const int64_t k = oct_conv_depth(&w->shape), n = w->shape.out_c / w->shape.groups;
    const float *weight = oct_f32(&w->layer.weight->value);
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t first = group * n; first < (group + 1) * n; first += TOGETHER) {
        const int64_t end = oct_min_i64(first + TOGETHER, (group + 1) * n);
        rounding r[TOGETHER];
        for (int64_t o = first; o < end; o++) {
            r[o - first] = (rounding){.weight = weight + o * k,
                                      .scale = w->ch.scale[o],
                                      .largest = largest_of(weight + o * k, k),
                                      .codes = w->codes + o * k,
                                      .moved = w->moved + o * k};
            memset(w->moved + o * k, 0, (size_t)k * sizeof *w->moved);
        }
        for (int64_t i = k - 1; i >= 0; i--) { /* weight k-1-i */
            const double *row = w->factor + i * k;
            for (int64_t c = 0; c < end - first; c++) {
                const double d = choose_code(&r[c], k - 1 - i, r[c].moved[i] / row[i]);
                add_row(i, d, row, r[c].moved);
            }
        }
    }
}

/* Weights in the middle of their codes; the largest one of a channel as it was, and none beyond it. */
static void take_codes(const work *w)
{
    const int64_t k = oct_conv_depth(&w->shape);
    const float *weight = oct_f32(&w->layer.weight->value);
    for (int64_t o = 0; o < w->shape.out_c; o++) {
        const float *own = weight + o * k;
        const int64_t largest = largest_of(own, k);
        const float limit = fabsf(own[largest]);
        for (int64_t i = 0; i < k; i++) {
            const float centre = (float)w->codes[o * k + i] * w->ch.scale[o];
            w->weight[o * k + i] = i == largest ? own[i] : fminf(fmaxf(centre, -limit), limit);
        }
    }
}

/* Whether the weights now have the codes that were chosen, with the same scales. */
static bool keep_scales(work *w)
{
    const oct_qparams any = {.scale = 1, .qmax = 255};
    const int64_t n = w->shape.out_c;
    const size_t codes = (size_t)(n * oct_conv_depth(&w->shape));
    float *before = w->ch.effective; /* free until a batch norm is folded */
    memcpy(before, w->ch.scale, (size_t)n * sizeof *before);
    oct_quantize_weights(&w->layer, &w->shape, any, w->again, &w->ch);
    return memcmp(before, w->ch.scale, (size_t)n * sizeof *before) == 0 &&
           memcmp(w->codes, w->again, codes) == 0;
}

oct_status oct_qat_conv_round(oct_qat_conv *m, const oct_moments *input, bool *rounded)
{
    work w;
    float *exact = NULL;
    oct_status status = begin_work(m, &w);
    *rounded = false;
    if (status != OCT_OK) goto out;
    const size_t k = (size_t)oct_conv_depth(&w.shape), all = (size_t)w.shape.out_c * k;
    float *weight = oct_f32(&w.layer.weight->value);
    OCT_TRY_OUT(oct_alloc(&w.again, all, 1));
    OCT_TRY_OUT(oct_alloc(&w.weight, all, sizeof *w.weight));
    OCT_TRY_OUT(oct_alloc(&w.factor, k * k, sizeof *w.factor));
    OCT_TRY_OUT(oct_alloc(&w.moved, all, sizeof *w.moved));
    for (int64_t group = 0; group < input->groups; group++) {
        OCT_TRY_OUT(factor_of(input, group, w.factor));
        round_group(&w, group);
    }
    take_codes(&w);
    OCT_TRY_OUT(oct_alloc(&exact, all, sizeof *exact));
    memcpy(exact, weight, all * sizeof *exact);
    memcpy(weight, w.weight, all * sizeof *weight);
    *rounded = keep_scales(&w);
    if (!*rounded) memcpy(weight, exact, all * sizeof *weight);
out:
    oct_free(&exact);
    end_work(&w);
    return status;
}

oct_status oct_qat_conv_correct_bias(oct_qat_conv *m, const oct_moments *input, const float *exact,
                                     bool *corrected)
{
    const oct_layer l = oct_qat_conv_layer(m);
    const oct_conv_shape s = oct_qat_conv_shape(m, 1, 1);
    const int64_t k = oct_conv_depth(&s), each = s.out_c / s.groups;
    float *take = l.bn ? l.bn->running_mean : l.bias ? oct_f32(&l.bias->value) : NULL;
    work w;
    oct_status status = begin_work(m, &w);
    *corrected = take != NULL && input->windows > 0;
    for (int64_t o = 0; status == OCT_OK && *corrected && o < s.out_c; o++) {
        const int64_t *sum = input->sum + o / each * k;
        double shift = 0;
        for (int64_t i = 0; i < k; i++)
            shift +=
                ((double)w.codes[o * k + i] * (double)w.ch.scale[o] - (double)exact[o * k + i]) *
                (double)sum[i];
        shift *= (double)input->scale / (double)input->windows;
        take[o] = (float)((double)take[o] + (l.bn ? shift : -shift));
    }
    end_work(&w);
    return status;
}
