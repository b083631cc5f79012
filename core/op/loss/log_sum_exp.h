/* Losses of softmax share its normalisation. */
#pragma once

#include <math.h>
#include <stdint.h>

/* The logarithm of the sum of exp(z[k] / temperature). */
static inline double oct_log_sum_exp(const float *z, int64_t n, double temperature)
{
    float top = z[0];
    for (int64_t k = 1; k < n; k++)
        top = z[k] <= top ? top : z[k];
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += exp(((double)z[k] - (double)top) / temperature);
    return (double)top / temperature + log(sum);
}
