/* The integer layers over kernels: what training, evaluation and the runtime all call, so their codes
 * cannot differ. NHWC codes, OHWI weight codes. No allocation: scratch (64-byte aligned) comes from
 * the caller. No threads: callers run samples in parallel, each with its own scratch. */
#pragma once

#include "quant/kernel/kernel.h"
#include "core/tensor/conv_shape.h"
#include "core/tensor/tensor.h"

int64_t oct_qconv_packed_bytes(const oct_kernel *kernel, const oct_conv_shape *s);
/* codes (O, kh, kw, I/groups) */
void oct_qconv_pack(const oct_kernel *kernel, const oct_conv_shape *s, const int8_t *codes,
                    int8_t *packed);
int64_t oct_qconv_scratch_bytes(const oct_kernel *kernel, const oct_conv_shape *s);

/* Accumulators of `samples` samples: acc (samples, OH, OW, O) = sum of x codes (padding counts as
 * x_zero_point) times weight codes; the zero point is NOT subtracted (it is in the bias). */
void oct_qconv_accumulate(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                          const uint8_t *x, uint8_t x_zero_point, const int8_t *packed,
                          int32_t *acc, void *scratch);
/* Single pass: accumulate and requantize block by block. mask starts at bit 0 and has
 * samples*OH*OW*O bits. Results are those of accumulate followed by requantize, bit for bit. */
void oct_qconv_forward(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                       const uint8_t *x, uint8_t x_zero_point, const int8_t *packed,
                       const oct_requant *q, uint8_t *codes, uint8_t *mask, float *range,
                       void *scratch);

/* y = (float)(acc + bias[c]) * multiplier[c]: an output that leaves the integer domain. A zero is +0,
 * so that negating a channel's codes, bias and multiplier changes no bit. */
void oct_requant_float(int64_t rows, int64_t channels, const int32_t *acc, const int32_t *bias,
                       const float *multiplier, float *y);

/* Residual add: t = ma*(a-za) + mb*(b-zb); r = (t + 2^(shift-1)) >> shift (arithmetic);
 * code = clamp(r, lo, hi) + zero_point; pass as in oct_requant with v = t * 2^-shift (relu: t > 0).
 * oct_qadd_of computes the multipliers: 20 bits for the larger ratio scale_x / scale_y. */
typedef struct oct_qadd {
    int32_t ma, mb;
    int shift;
    int32_t za, zb;
    int32_t lo, hi, zero_point;
    bool relu;
} oct_qadd;
oct_qadd oct_qadd_of(oct_qparams a, oct_qparams b, oct_qparams y, bool relu);
void oct_qadd_forward(int64_t n, const uint8_t *a, const uint8_t *b, const oct_qadd *q,
                      uint8_t *codes, uint8_t *mask, float *range);

/* Pools over one or more samples; average pools keep the input's qparams:
 * code = round_half_even((float)(sum - count*z) * (1/count)) + z, cut to [qmin, qmax]. */
void oct_qmax_pool(int64_t samples, int64_t h, int64_t w, int64_t c, int kernel, int stride,
                   int padding, const uint8_t *x, uint8_t *y);
void oct_qavg_pool(int64_t samples, int64_t h, int64_t w, int64_t c, int kernel_h, int kernel_w,
                   int stride, oct_qparams q, const uint8_t *x, uint8_t *y);

/* Largest |acc| or |acc + bias| that can occur, partial sums included; must be below 2^31. x_lo, x_hi:
 * stored codes of x. */
int64_t oct_qconv_bound(const oct_conv_shape *s, const int8_t *codes, int64_t channel, int32_t bias,
                        int32_t x_lo, int32_t x_hi);
