/* The integer layers without weights, on codes of 8 and 16 bits in any mixture: what training,
 * evaluation and the runtime all call, so their codes cannot differ. Each is in the file of its step,
 * quant/program/step_<kind>.c; what they share is in qcodes.c.
 *
 * Codes lie in memory as bytes or as 16-bit numbers, as oct_codes_dtype of their qparams says. "Wide"
 * below: some input or the output has 16 bits. No allocation, no threads: callers cut elements, rows
 * or samples into parts, each beginning at a multiple of 8 elements where a mask is asked for.
 *
 * mask: 1 bit an element, bit i%8 of byte i/8: the code was not clipped. range[2]: the least and
 * largest real value before rounding are merged into it.
 *
 * How sums and ratios of scales are rounded the requantizer of the target says (quant/rounding).
 */
#pragma once

#include "core/tensor/broadcast.h"
#include "core/tensor/conv_shape.h"
#include "core/tensor/resize.h"
#include "core/tensor/tensor.h"
#include "quant/rounding/rounding.h"

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

/* Computes logical[i] = code - zero_point of n elements from `first` on. */
void oct_qcodes_load(oct_qcodes x, int64_t first, int64_t n, int32_t *logical);
/* Computes code = logical[i] + zero_point and stores it as element first + i. */
void oct_qcodes_store(const int32_t *logical, int64_t n, oct_qparams q, void *codes, int64_t first);
/* Returns the n codes of input `input` for the elements of a result from `first` on: in place, or, of an input that is
 * broadcast, copied to `room`, which holds n codes. */
oct_qcodes oct_qcodes_broadcast(const oct_broadcast *b, int input, oct_qcodes x, int64_t first,
                                int64_t n, void *room);
/* Merges the least and largest real value of the codes into range. */
void oct_qcodes_range(oct_qcodes x, int64_t n, float *range);

/* Sums (oct_qadd). oct_qadd_of computes the multipliers: 20 bits, wide 36 bits, for the larger ratio scale_x / scale_y;
 * ratios of powers of two are exact while they are less than that far apart, so both kinds of targets add the same.
 * Roundings with constants of their own (oct_sum_constants) have mask and range by these. */
oct_qadd oct_qadd_of(oct_qparams a, oct_qparams b, oct_qparams y, bool relu);
/* The same with 21 bits, of ratios that are floats: bytes only, of targets that say so (oct_target.float_ratios). */
oct_qadd oct_qadd_of_floats(oct_qparams a, oct_qparams b, oct_qparams y, bool relu);
/* Cuts sums at two real numbers; both may be infinite. */
void oct_qadd_clip(oct_qadd *add, oct_qparams y, double lo, double hi);
/* Multipliers and shift are such that no sum can overflow. */
bool oct_qadd_fits(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y);
void oct_qadd_forward(int64_t n, oct_qcodes a, oct_qcodes b, const oct_qadd *add, oct_requantizer r,
                      const oct_qoutput *y);

/* Product: p = (a-za)*(b-zb), exact; code = clamp(r) + zero_point, where r is the rounding of p * factor: of FLOAT
 * round_half_even((float)p * factor), wide in double. offset_first: of FLOAT and of bytes only, r =
 * round_half_even(fl((float)p * factor) + zero_point) - zero_point, all in float, of targets that say so
 * (oct_target.offset_first).
 * factor = scale_a * scale_b / scale_y, kept within [2^-60, 2^60]: computed in double or, of those targets and of others
 * that say so (oct_target.float_ratios), in float from left to right. */
float oct_qmul_factor(oct_qparams a, oct_qparams b, oct_qparams y);
float oct_qmul_factor_float(oct_qparams a, oct_qparams b, oct_qparams y);
/* Whether products of codes may reach 2^31 before they are rounded, which ONNX Runtime turns into 0. */
bool oct_qmul_overflows(oct_qparams a, oct_qparams b, float factor);
#define OCT_QMUL_OVERFLOW                                                                          \
    "a product may be 2^31 or more before it is rounded, which ONNX Runtime turns into 0: its "    \
    "output was always near 0 where scales were found; show it data where both inputs are not 0, " \
    "or keep it float (quant.float_layers)"
bool oct_qmul_fits(float factor, oct_requantizer r);
typedef struct oct_qmul {
    float factor;
    oct_requantizer requantizer;
    bool offset_first;
} oct_qmul;
void oct_qmul_forward(int64_t n, oct_qcodes a, oct_qcodes b, const oct_qmul *mul,
                      const oct_qoutput *y);

/* Entries of a table with one entry a code: 256 or 65536. */
int64_t oct_qtable_size(oct_qparams x);

/* Softmax over rows of k codes: e = exponential[largest code of the row - x], code =
 * round_half_up(e / (sum of e * scale_y)) + zero_point, cut to qmax; in whole numbers, because
 * scale_y is 2^-b, b <= 16. exponential[d] = round(2^30 * exp(-d * scale_x)) for d from 0 to
 * oct_qtable_size(x) - 1. */
void oct_qsoftmax_exponential(oct_qparams x, int32_t *exponential);
bool oct_qsoftmax_fits(oct_qparams y);
enum { OCT_QSOFTMAX_ONE = 1 << 30, OCT_QSOFTMAX_MAX = 65536 /* codes in a row */ };
void oct_qsoftmax_forward(int64_t rows, int64_t k, oct_qcodes x, const int32_t *exponential,
                          const oct_qoutput *y);

/* Puts rows of the inputs (rows, c) side by side. Codes that have y's qparams are copied; others become the rounding r of
 * (x-zx) * scale_x / scale_y, of FLOAT round_half_even((float)(x-zx) * (float)(scale_x / scale_y)); code = clamp(r) +
 * zero_point. */
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
    /* In place of all this the rounding of the sum times 1/count; NULL: not so. */
    const oct_rounding_row *rounding;
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

/* Functions of codes in whole numbers alone, as gemmlowp's fixed point has them and with it TFLite's reference kernels of
 * 8-bit codes: for targets that fix such a function's output (oct_target.fixed_functions). */
typedef enum oct_fixed_function {
    OCT_FIXED_LOGISTIC, /* output: scale 1/256, zero_point 0 */
    OCT_FIXED_TANH,     /* output: scale 1/128, zero_point 128 */
    OCT_FIXED_FUNCTIONS
} oct_fixed_function;

enum { OCT_FIXED_CODES = 256 };

/* Returns the qparams of the output. */
oct_qparams oct_fixed_function_output(oct_fixed_function f);
/* Whether the kernels take codes of such an input: of 8 bits, and a scale of 2^-28 or more. */
bool oct_fixed_function_takes(oct_qparams x);
/* Writes table[code of x] = the code of f(x), for every code of x, computed with integers alone. */
void oct_fixed_function_table(oct_fixed_function f, oct_qparams x, uint16_t table[OCT_FIXED_CODES]);
