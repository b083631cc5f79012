/* The loops of batch norm. Sums keep some channels at a time in registers over all rows; the terms of
 * each channel come in the order of the rows, in double, so the bits do not depend on that. */
#include "core/kernel/batch_norm.h"

#include "core/base/cpu.h"

enum { LANES = 16 };

/* A tail of channels has lanes to spare. */
OCT_CLONES
void oct_bn_sum_values(int64_t rows, int64_t channels, const float *x, double *restrict sums)
{
    for (int64_t c0 = 0; c0 < channels; c0 += LANES) {
        double sum[LANES] = {0}, square[LANES] = {0};
        const float *row = x + c0;
        if (channels - c0 >= LANES) {
            for (int64_t r = 0; r < rows; r++, row += channels) {
                for (int i = 0; i < LANES; i++) {
                    double v = (double)row[i];
                    sum[i] += v;
                    square[i] += v * v;
                }
            }
        } else {
            for (int64_t r = 0; r < rows; r++, row += channels) {
                for (int64_t i = 0; i < channels - c0; i++) {
                    double v = (double)row[i];
                    sum[i] += v;
                    square[i] += v * v;
                }
            }
        }
        for (int64_t i = 0; i < LANES && c0 + i < channels; i++) {
            sums[c0 + i] = sum[i];
            sums[channels + c0 + i] = square[i];
        }
    }
}

OCT_CLONES
void oct_bn_sum_grads(int64_t rows, int64_t channels, const float *grad, const float *x,
                      const float *mean, double *restrict sums)
{
    for (int64_t c0 = 0; c0 < channels; c0 += LANES) {
        double sum[LANES] = {0}, product[LANES] = {0}, middle[LANES] = {0};
        const float *g = grad + c0, *v = x + c0;
        for (int64_t i = 0; i < LANES && c0 + i < channels; i++)
            middle[i] = (double)mean[c0 + i];
        if (channels - c0 >= LANES) {
            for (int64_t r = 0; r < rows; r++, g += channels, v += channels) {
                for (int i = 0; i < LANES; i++) {
                    sum[i] += (double)g[i];
                    product[i] += (double)g[i] * ((double)v[i] - middle[i]);
                }
            }
        } else {
            for (int64_t r = 0; r < rows; r++, g += channels, v += channels) {
                for (int64_t i = 0; i < channels - c0; i++) {
                    sum[i] += (double)g[i];
                    product[i] += (double)g[i] * ((double)v[i] - middle[i]);
                }
            }
        }
        for (int64_t i = 0; i < LANES && c0 + i < channels; i++) {
            sums[c0 + i] = sum[i];
            sums[channels + c0 + i] = product[i];
        }
    }
}

OCT_CLONES
void oct_bn_normalize(int64_t rows, int64_t channels, const float *x, const float *mean,
                      const float *scale, const float *beta, float *restrict y)
{
    for (int64_t r = 0; r < rows; r++, x += channels, y += channels) {
        for (int64_t c = 0; c < channels; c++)
            y[c] = (x[c] - mean[c]) * scale[c] + beta[c];
    }
}

OCT_CLONES
void oct_bn_input_grad(int64_t rows, int64_t channels, const float *x, const float *mean,
                       const float *scale, const float *shift, const float *slope,
                       float *restrict grad)
{
    for (int64_t r = 0; r < rows; r++, x += channels, grad += channels) {
        for (int64_t c = 0; c < channels; c++)
            grad[c] = scale[c] * (grad[c] - shift[c] - (x[c] - mean[c]) * slope[c]);
    }
}

OCT_CLONES
void oct_scale_rows(int64_t rows, int64_t channels, const float *scale, float *restrict grad)
{
    for (int64_t r = 0; r < rows; r++, grad += channels) {
        for (int64_t c = 0; c < channels; c++)
            grad[c] *= scale[c];
    }
}
