/* The integer layers over kernels: what training, evaluation and the runtime all call, so their codes
 * cannot differ. NHWC codes, OHWI weight codes. No allocation: scratch (64-byte aligned) comes from
 * the caller. No threads: callers run samples in parallel, each with its own scratch. */
#pragma once

#include "quant/kernel/epilogue.h"
#include "quant/kernel/qcodes.h"
#include "core/tensor/conv_shape.h"
#include "core/tensor/tensor.h"

/* A layer made ready for codes of the qparams `in`: packed weights and the tables of its geometry, of
 * 64-byte alignment; read only, shared by threads. codes (O, kh, kw, I/groups). */
int64_t oct_qconv_ready_bytes(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in);
void oct_qconv_ready(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in,
                     const int8_t *codes, void *ready);
int64_t oct_qconv_scratch_bytes(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in);

/* Takes the accumulators (positions, O) of a block of output positions, of which `position` is the
 * first, counted over all samples. They are the visitor's to change. */
typedef void oct_acc_visit(void *args, int64_t position, int64_t positions, void *acc);
/* Calls `visit` (NULL: nothing) for one block of output positions after the other, in ascending order and
 * without gaps. Blocks depend on the shape alone. all: where the accumulators of all samples stay, as the
 * visitor leaves them; NULL: nowhere. */
void oct_qconv_visit(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                     oct_qcodes x, const void *ready, void *all, oct_acc_visit *visit, void *args,
                     void *scratch);
/* Accumulators of `samples` samples: acc (samples, OH, OW, O) = sum of x codes (padding counts as the
 * zero point) times weight codes, in int32, or in int64 of 16-bit codes; the zero point is NOT
 * subtracted (it is in the bias). Exact. */
void oct_qconv_accumulate(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                          oct_qcodes x, const void *ready, void *acc, void *scratch);
/* Single pass: accumulate and finish block by block. mask starts at bit 0 and has samples*OH*OW*O bits.
 * Results are those of accumulate followed by oct_epilogue_rows, bit for bit. */
void oct_qconv_forward(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                       oct_qcodes x, const void *ready, const oct_epilogue *f, void *y,
                       uint8_t *mask, float *range, void *scratch);

/* Sums over rows of accumulators (rows, n), for the statistics of a batch: with a = acc - offset[c] as a
 * double, sum[c] += a and sum[n + c] += a * a, in the order of the rows. */
void oct_acc_sums(int64_t rows, int64_t n, const int32_t *restrict acc,
                  const int32_t *restrict offset, double *restrict sum);
void oct_acc_sums16(int64_t rows, int64_t n, const int64_t *restrict acc,
                    const int64_t *restrict offset, double *restrict sum); /* of 16-bit codes */

/* Largest |acc| or |acc + bias| that can occur, partial sums included; must be below 2^31 for 8-bit
 * codes. x_lo, x_hi: stored codes of x. */
int64_t oct_qconv_bound(const oct_conv_shape *s, const int8_t *codes, int64_t channel, int64_t bias,
                        int32_t x_lo, int32_t x_hi);

/* One sample of codes (h, w, c) with spread - 1 rows and columns of the zero point between them:
 * y ((h-1) spread + 1, (w-1) spread + 1, c), of the same type. */
void oct_qdilate(int64_t h, int64_t w, int64_t c, int spread, oct_qcodes x, void *y);

/* A factor and a bias per channel: accumulators (code - z) * weight[c] * 2^15, weight -1, 0 or 1, in
 * int32, or in int64 of 16-bit codes; then as f says. Nothing overflows while biases are within
 * +-2^30, of 16-bit codes +-2^46. */
enum { OCT_QAFFINE_BITS = 15 };
int64_t oct_qaffine_scratch_bytes(int64_t channels);
void oct_qaffine_forward(const oct_kernel *kernel, int64_t rows, int64_t channels, oct_qcodes x,
                         const int8_t *weight, const oct_epilogue *f, void *y, uint8_t *mask,
                         float *range, void *scratch);
