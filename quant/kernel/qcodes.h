/* The integer layers without weights, on codes of 8 and 16 bits in any mixture: what training,
 * evaluation and the runtime all call, so their codes cannot differ.
 *
 * Codes lie in memory as bytes or as 16-bit numbers, as oct_codes_dtype of their qparams says. "Wide"
 * below: some input or the output has 16 bits. No allocation, no threads: callers cut elements, rows
 * or samples into parts, each beginning at a multiple of 8 elements where a mask is asked for.
 *
 * mask: 1 bit an element, bit i%8 of byte i/8: the code was not clipped. range[2]: the least and
 * largest real value before rounding are merged into it.
 *
 * shift: the target requantizes by shifts (target.h): scales are powers of two, a ratio of scales
 * 2^-k rounds half up, (acc + 2^(k-1)) >> k, or to even. DOUBLE, Q15: multipliers are whole numbers (requantizer.h).
 * Otherwise they are floats, half to even.
 */
#pragma once

#include "core/tensor/broadcast.h"
#include "core/tensor/conv_shape.h"
#include "core/tensor/resize.h"
#include "core/tensor/tensor.h"
#include "quant/rounding/requantizer.h"

typedef struct oct_qcodes {
    oct_qparams q;
    const void *data;
} oct_qcodes;

/* Where an output goes. */
typedef struct oct_qoutput {
    oct_qparams q;
    void *data;
    uint8_t *mask; /* NULL: left out */
    float *range;  /* NULL: left out */
} oct_qoutput;

oct_qcodes oct_qcodes_of(const oct_tensor *x);
/* The codes from element `first` on. */
oct_qcodes oct_qcodes_from(oct_qcodes x, int64_t first);
void *oct_qcodes_place(void *codes, oct_qparams q, int64_t first);

/* Computes logical[i] = code - zero_point of n elements from `first` on; and back, for values within the
 * codes. */
void oct_qcodes_load(oct_qcodes x, int64_t first, int64_t n, int32_t *logical);
void oct_qcodes_store(const int32_t *logical, int64_t n, oct_qparams q, void *codes, int64_t first);
/* Gives n codes of input `input` as they meet the elements of a result from `first` on: where they lie, or, of an input
 * that repeats, copied to `room`, which holds n codes. */
oct_qcodes oct_qcodes_meet(const oct_broadcast *b, int input, oct_qcodes x, int64_t first,
                           int64_t n, void *room);
/* Merges the least and largest real value of the codes into range. */
void oct_qcodes_range(oct_qcodes x, int64_t n, float *range);

/* Sum: t = ma*(a-za) + mb*(b-zb); r = (t + 2^(shift-1)) >> shift (arithmetic);
 * code = clamp(r, lo, hi) + zero_point; pass = lo <= r <= hi, and with relu also t > 0, and with clips also
 * least <= t <= most.
 * oct_qadd_of computes the multipliers: 20 bits, wide 36 bits, for the larger ratio scale_x /
 * scale_y; ratios of powers of two are exact while they are less than that far apart, so both kinds
 * of targets add alike. A difference is a sum whose mb is below 0. */
typedef struct oct_qadd {
    int64_t ma, mb;
    int shift;
    int32_t za, zb;
    int32_t lo, hi, zero_point;
    bool relu;
    bool
        clips; /* behind oct_qadd_clip, which says where t is cut; lo and hi are the same cut in codes */
    int64_t least, most;
} oct_qadd;
oct_qadd oct_qadd_of(oct_qparams a, oct_qparams b, oct_qparams y, bool relu);
/* The same with 21 bits, of ratios that are floats: bytes only, of targets that say so (oct_target.float_ratios). */
oct_qadd oct_qadd_of_floats(oct_qparams a, oct_qparams b, oct_qparams y, bool relu);
/* Cuts sums at two real numbers, either of which may be infinite. */
void oct_qadd_clip(oct_qadd *add, oct_qparams y, double lo, double hi);
/* Multipliers and shift are such that no sum can overflow. */
bool oct_qadd_fits(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y);
/* Sums of DOUBLE have three multipliers of their own, as in TFLite's reference kernels, of bytes alone:
 *     a' = ((a-za) << 20) * s_a / two, b' so, r = (a' + b', or a' - b') * two / (2^20 * s_y)
 * with two = 2 * the larger of s_a and s_b, each product an oct_fixed_double. The ratios are doubles, those of a
 * difference floats. ma, mb and shift then tell mask and range. */
enum { OCT_QADD_LEFT = 20 };
typedef struct oct_qadd_steps {
    oct_fixed a, b, y;
} oct_qadd_steps;
oct_qadd_steps oct_qadd_steps_of(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y);
/* Whether the kernels take them: the last ratio is below 1, and not 0. */
bool oct_qadd_steps_fit(const oct_qadd_steps *steps);
/* Sums of Q15 have two whole multipliers of their own, of which that of the larger scale is 2^k and the other one
 * floor(ratio * 2^k + 1/2) with the ratio of both scales: k at most 23, of 16 bits 15, and such that it has 15 bits.
 * r = oct_fixed_q15 of a * (a-za) + b * (b-zb). Nothing is beyond 2^33. ma, mb and shift then tell mask and range. */
typedef struct oct_qadd_shifted {
    int64_t a, b;
    oct_fixed y;
} oct_qadd_shifted;
oct_qadd_shifted oct_qadd_shifted_of(const oct_qadd *add, oct_qparams a, oct_qparams b,
                                     oct_qparams y);
void oct_qadd_forward(int64_t n, oct_qcodes a, oct_qcodes b, const oct_qadd *add, oct_requantizer r,
                      const oct_qoutput *y);

/* Product: p = (a-za)*(b-zb), exact; code = clamp(r) + zero_point, where r is
 *     EVEN          round_half_even((float)p * factor), wide in double
 *     SHIFT         the same by shifts, factor being a power of two, halves up
 *     SHIFT_EVEN    the same, halves to even
 *     DOUBLE        oct_fixed_double of p and scale_a * scale_b / scale_y, in double: bytes only
 *     Q15           oct_fixed_q15 of them
 *     OFFSET_FIRST  round_half_even(fl((float)p * factor) + zero_point) - zero_point, all in float: bytes
 *                   only, of targets that say so (oct_target.offset_first).
 * factor = scale_a * scale_b / scale_y, kept within [2^-60, 2^60]: computed in double or, of OFFSET_FIRST and of
 * targets that say so (oct_target.float_ratios), in float from left to right. */
typedef enum oct_qmul_rounding {
    OCT_QMUL_EVEN,
    OCT_QMUL_SHIFT,
    OCT_QMUL_SHIFT_EVEN,
    OCT_QMUL_OFFSET_FIRST,
    OCT_QMUL_DOUBLE,
    OCT_QMUL_Q15,
} oct_qmul_rounding;
float oct_qmul_factor(oct_qparams a, oct_qparams b, oct_qparams y);
float oct_qmul_factor_float(oct_qparams a, oct_qparams b, oct_qparams y);
/* Whether products of codes may reach 2^31 before they are rounded, which ONNX Runtime turns into 0. */
bool oct_qmul_overflows(oct_qparams a, oct_qparams b, float factor);
#define OCT_QMUL_OVERFLOW                                                                          \
    "a product may be 2^31 or more before it is rounded, which ONNX Runtime turns into 0: its "    \
    "output was always near 0 where scales were found; show it data where both inputs are not 0, " \
    "or keep it float (quant.float_layers)"
bool oct_qmul_fits(float factor, oct_requantizer r);
void oct_qmul_forward(int64_t n, oct_qcodes a, oct_qcodes b, float factor,
                      oct_qmul_rounding rounding, const oct_qoutput *y);

/* Entries of a table with one entry a code: 256 or 65536. */
int64_t oct_qtable_size(oct_qparams x);
/* code = table[x] */
void oct_qlut_forward(int64_t n, oct_qcodes x, const uint16_t *table, oct_qparams y, void *codes);
/* The same of rows of channels, each of which has a table, one behind the other: code = table[channel][x]. */
void oct_qlut_channels(int64_t rows, int64_t channels, oct_qcodes x, const uint16_t *table,
                       oct_qparams y, void *codes);

/* Softmax over rows of k codes: e = exponential[largest code of the row - x], code =
 * round_half_up(e / (sum of e * scale_y)) + zero_point, cut to qmax; in whole numbers, because
 * scale_y is 2^-b, b <= 16. exponential[d] = round(2^30 * exp(-d * scale_x)) for d from 0 to
 * oct_qtable_size(x) - 1. */
void oct_qsoftmax_exponential(oct_qparams x, int32_t *exponential);
bool oct_qsoftmax_fits(oct_qparams y);
enum { OCT_QSOFTMAX_ONE = 1 << 30, OCT_QSOFTMAX_MAX = 65536 /* codes in a row */ };
void oct_qsoftmax_forward(int64_t rows, int64_t k, oct_qcodes x, const int32_t *exponential,
                          const oct_qoutput *y);

/* Puts rows of the inputs (rows, c) side by side. Codes that have y's qparams are copied; others
 * become r = round_half_even((float)(x-zx) * (float)(scale_x / scale_y)), or by shifts, or by an oct_fixed_double;
 * code = clamp(r) + zero_point. */
bool oct_qparams_equal(oct_qparams a, oct_qparams b);
typedef struct oct_qconcat_input {
    oct_qcodes x;
    int64_t c;
    uint8_t *mask; /* of this input's elements, where it is requantized; NULL: left out */
} oct_qconcat_input;
void oct_qconcat_forward(int64_t rows, int n, const oct_qconcat_input *input, oct_requantizer r,
                         oct_qparams y, void *codes);

/* code = clamp(x - z, lo, hi) + z: relu, relu6 and clip. The qparams stay. */
void oct_qclamp_forward(int64_t n, oct_qcodes x, int32_t lo, int32_t hi, void *codes);

/* Pools over one or more samples, which keep the input's qparams. Padding is never the largest. Average:
 * code = round_half_even((float)(sum of (x - z)) * (1/count)) + z, cut to [qmin, qmax]; 16 bits in
 * double; on every target, since 1/count is no ratio of scales. The sum is over the positions of the window
 * that lie in the plane, and count is theirs, or that of oct_pool_count with its padding, which has code z. */
typedef struct oct_qavg {
    bool include_pad;
    float
        factor; /* in place of 1/count, in float and of bytes alone, where all windows have as many positions; 0: none */
    /* Bytes alone: with codes c = x - 128, z included, code = 128 + (sum of c) / count, halves away from 0. */
    bool of_codes;
    /* Bytes alone: halves up, floor(fl(v + 0.5)) in place of round_half_even(v). */
    bool half_up;
    /* oct_fixed_q15 of the sum and 1/count in place of all this. */
    bool fixed;
} oct_qavg;
void oct_qmax_pool(int64_t samples, const oct_conv_shape *s, oct_qcodes x, void *codes);
void oct_qavg_pool(int64_t samples, const oct_conv_shape *s, const oct_qavg *how, oct_qcodes x,
                   void *codes);
/* The factor of an average that is a convolution: fl(fl(scale * fl(1/count)) / scale), that is the multiplier of
 * one whose weights are fl(1/count) and whose input and output have this scale. */
float oct_qavg_factor(float scale, int64_t count);

/* Other sizes of planes, keeping the qparams, at the places of core/tensor/resize.h. Bilinear: the place
 * between two pixels in steps of 1/2048, half up; code = (sum over the four pixels of wy * wx * x +
 * 2^21) >> 22. */
enum { OCT_QTAP_ONE = 2048 };
typedef struct oct_qtap {
    int64_t low, high;
    int32_t weight; /* of high; low's is OCT_QTAP_ONE - weight */
} oct_qtap;
oct_qtap oct_qtap_of(oct_interpolation mode, int64_t at, int64_t in, int64_t out);
void oct_qinterpolate_forward(int64_t samples, const oct_conv_shape *s, oct_interpolation mode,
                              oct_qcodes x, void *codes);
