/* A layer error says how far numbers are from a reference, as sums that are added sample by sample. */
#pragma once

#include <stdint.h>

typedef struct oct_error_sums {
    double signal; /* squares of the reference */
    double noise;  /* of the differences */
    double power;  /* of the values */
    double product;
} oct_error_sums;

/* Adds n numbers, in order. Returns the largest difference among them; NaN where one is none. */
double oct_error_add(oct_error_sums *sums, const float *reference, const float *values, int64_t n);
/* The ratio of signal to noise in dB; infinite where nothing differs. */
double oct_error_sqnr(const oct_error_sums *sums);
/* The cosine of the angle between both; 1 where both are 0 throughout. */
double oct_error_cosine(const oct_error_sums *sums);
