/* How sums become codes: one row, in a file of its own, for each way that a target has (quant/target/target.h).
 * Training, evaluation, the runtime and the exporters ask the row; nothing outside of this folder asks which one it is.
 * To add one: <name>.c with oct_rounding_<name>, a line in rounding_list.def, and for --format c its function,
 * io/export/c_kernel/requantize_<name>.c.in. */
#pragma once

#include "core/base/status.h"
#include "quant/rounding/qparams.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum oct_requantizer {
#define OCT_ROUNDING(id, file) OCT_REQUANT_##id,
#include "quant/rounding/rounding_list.def"
#undef OCT_ROUNDING
    OCT_REQUANTIZERS
} oct_requantizer;

/* A ratio of scales as whole numbers. What they mean is the row's own; the C form has the same two. */
typedef struct oct_fixed {
    int32_t multiplier, shift;
} oct_fixed;

/* A sum of two codes: t = ma*(a-za) + mb*(b-zb); r = (t + 2^(shift-1)) >> shift (arithmetic); code = clamp(r, lo, hi) +
 * zero_point; pass = lo <= r <= hi, and with relu also t > 0, and with clips also least <= t <= most. A difference has
 * mb below 0. */
typedef struct oct_qadd {
    int64_t ma, mb;
    int shift;
    int32_t za, zb;
    int32_t lo, hi, zero_point;
    bool relu;
    bool clips;          /* after oct_qadd_clip, */
    int64_t least, most; /* which says where t is cut; lo and hi are the same cut in codes */
} oct_qadd;

/* Constants of rows that add in their own way: r follows from a * (a-za), b * (b-zb) and the multipliers. */
typedef struct oct_sum_constants {
    int64_t a, b;
    oct_fixed ratio[3];
} oct_sum_constants;

/* A block of logical codes, code - zero_point. a becomes the result, cut to lo and hi; flags[i]: it was not cut. */
typedef struct oct_code_block {
    int64_t n;
    int32_t *a;
    const int32_t *b; /* of sums and products */
    uint8_t *flags;
    int32_t lo, hi, zero_point; /* of the output */
    bool wide;                  /* some input or the output has 16 bits */
    bool wide_output;
    int64_t least, most; /* of the exact sums or products, merged */
} oct_code_block;

/* What codes or products of codes are multiplied by. */
typedef struct oct_code_ratio {
    float factor;
    oct_fixed fixed;
    bool offset_first; /* products of bytes, of FLOAT: the zero_point is added before rounding */
} oct_code_ratio;

/* Rows of n channels: r = the whole numbers that acc + bias become. acc: s32, or s64 in rows_wide. */
typedef void oct_round_rows(int64_t rows, int64_t n, const void *acc, const int64_t *bias,
                            const oct_fixed *fixed, bool wide_output, double *r);

typedef struct oct_rounding_row {
    /* In the C form its function is requantize_<name>; NULL, of floats: requantize. code_name: that of codes and their
     * products, where it is another one than that of layers. */
    const char *name, *code_name;
    bool shifts;      /* every scale is a power of two */
    bool halves_even; /* with shifts: halves become the even number; otherwise the larger one */
    bool adds;        /* a layer's second addend can come before rounding */
    bool averages;    /* pools multiply by the ratio 1 / positions, too (step avg_pool, `fixed`) */
    bool is_tflm;     /* TFLite's reference kernels, TFLM and CMSIS-NN round so */
    int sum_bits;     /* sums of a layer are cut to this number of bits; 0: they are not */
    const char *bytes_only; /* why inputs of layers must be of 8 bits; NULL: they need not */

    /* The constants of a ratio of scales; NULL: multipliers are floats, halves go to the even number. */
    oct_fixed (*constants_of)(double ratio);
    oct_round_rows *rows, *rows_wide; /* NULL: those of kernel/epilogue.c in floats */
    /* x[i] = what sums become. NULL: multipliers are floats. */
    void (*each)(int64_t n, int64_t *x, oct_fixed ratio, bool wide_output);
    void (*product)(oct_code_block *k, const oct_code_ratio *by); /* of a and b */
    void (*rescale)(oct_code_block *k, const oct_code_ratio *by); /* a in another scale */

    /* Sums in its own way: how many of `ratio` they have, their constants, the check of scales (OCT_DATA where they cannot
     * be added; may be NULL), and the loop. NULL: as oct_qadd has it. */
    int num_sum_constants;
    oct_sum_constants (*sum_of)(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y);
    oct_status (*sum_check)(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y);
    void (*sum)(oct_code_block *k, const oct_qadd *add, const oct_sum_constants *s);

    /* The C form: what its functions take between a sum and the bounds (multiplier: both numbers of oct_fixed; otherwise
     * the shift; width: then a number for outputs of 8 and of 16 bits), and the kernels of sums and of averages. */
    bool c_multiplier;
    const char *c_width[2];
    const char *c_add, *c_mean;
} oct_rounding_row;

/* r: below OCT_REQUANTIZERS, as in programs that have passed their check. */
const oct_rounding_row *oct_rounding_of(oct_requantizer r);
static inline bool oct_requantizer_shifts(oct_requantizer r)
{
    return oct_rounding_of(r)->shifts;
}

/* The whole numbers of a ratio of scales; 0 where multipliers are floats. */
oct_fixed oct_fixed_of(oct_requantizer r, double ratio);
/* The same of a layer's channel or a product, from the scales of its inputs and its output, or where it shifts from its
 * multiplier, which is their ratio. */
oct_fixed oct_fixed_of_layer(oct_requantizer r, float a_scale, float b_scale, float y_scale,
                             float multiplier);

/* Shifts to the right, arithmetically: halves up, or with `even` to the even number. Nothing overflows for |sum| <
 * 2^62 and right <= 62. */
static inline int64_t oct_shift_right(int64_t sum, int64_t right, bool even)
{
    const int64_t half = INT64_C(1) << right >> 1;
    const int64_t less = even & (half > 0) & ~(sum >> right);
    return (sum + half - less) >> right;
}

/* Whether the gradient of a sum passes that is exactly t: what relu and clip leave. */
typedef struct oct_pass_bounds {
    int64_t least, most;
} oct_pass_bounds;
static inline oct_pass_bounds oct_qadd_pass(const oct_qadd *q)
{
    oct_pass_bounds p = {q->relu ? 1 : INT64_MIN, INT64_MAX};
    if (!q->clips) return p;
    if (q->least > p.least) p.least = q->least;
    p.most = q->most;
    return p;
}

#define OCT_ROUNDING(id, file) extern const oct_rounding_row oct_rounding_##file;
#include "quant/rounding/rounding_list.def"
#undef OCT_ROUNDING
