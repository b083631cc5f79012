/* Batch norm sums by blocks of rows that the cache holds, and inside of one keep some
 * channels at a time in registers; the terms of each channel come in the order of the rows, in double,
 * so the bits do not depend on that. Hardware does not prefetch some channels of
 * one row after the other, so each row asks for a line of the next block. */
#include "core/kernel/batch_norm.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"

#include <string.h>

enum {
    LANES = 4, /* doubles of a vector */
    MANY = 4,  /* vectors of channels at a time */
    BLOCK_BYTES =
        32 * 1024, /* of each array: first-level caches are smaller, second-level larger */
};

typedef double doubles __attribute__((vector_size(LANES * 8), aligned(8), may_alias));
typedef float floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static int64_t block_rows(int64_t channels)
{
    return oct_max_i64(1, BLOCK_BYTES / (channels * (int64_t)sizeof(float)));
}

#define WIDEN(x) __builtin_convertvector(*(const floats *)(x), doubles)

/* Rows of some channels are summed: each row's values, and their products. */
typedef struct bn_rows {
    int64_t rows, pitch, channels;
    const float *grad, *x; /* at the first of these channels */
    const float *mean;
    double *sum, *product;
    const float *next_grad, *next_x; /* part of the next block, a line for each row */
} bn_rows;

_Static_assert(LANES *MANY * sizeof(float) == 64, "a row's channels at a time are a cache line");

/* sum += x, product += x * x of `vectors` vectors of channels. */
static inline __attribute__((always_inline)) void add_values(int vectors, bn_rows v)
{
    doubles sum[MANY], product[MANY];
    for (int i = 0; i < vectors; i++) {
        sum[i] = *(const doubles *)(v.sum + i * LANES);
        product[i] = *(const doubles *)(v.product + i * LANES);
    }
    for (int64_t r = 0; r < v.rows; r++, v.x += v.pitch) {
        __builtin_prefetch(v.next_x + r * LANES * MANY);
        for (int i = 0; i < vectors; i++) {
            doubles x = WIDEN(v.x + i * LANES);
            sum[i] += x;
            product[i] += x * x;
        }
    }
    for (int i = 0; i < vectors; i++) {
        *(doubles *)(v.sum + i * LANES) = sum[i];
        *(doubles *)(v.product + i * LANES) = product[i];
    }
}

/* sum += grad, product += grad * (x - mean). */
static inline __attribute__((always_inline)) void add_grads(int vectors, bn_rows v)
{
    doubles sum[MANY], product[MANY], mean[MANY];
    for (int i = 0; i < vectors; i++) {
        sum[i] = *(const doubles *)(v.sum + i * LANES);
        product[i] = *(const doubles *)(v.product + i * LANES);
        mean[i] = WIDEN(v.mean + i * LANES);
    }
    for (int64_t r = 0; r < v.rows; r++, v.grad += v.pitch, v.x += v.pitch) {
        __builtin_prefetch(v.next_grad + r * LANES * MANY);
        __builtin_prefetch(v.next_x + r * LANES * MANY);
        for (int i = 0; i < vectors; i++) {
            doubles grad = WIDEN(v.grad + i * LANES);
            sum[i] += grad;
            product[i] += grad * (WIDEN(v.x + i * LANES) - mean[i]);
        }
    }
    for (int i = 0; i < vectors; i++) {
        *(doubles *)(v.sum + i * LANES) = sum[i];
        *(doubles *)(v.product + i * LANES) = product[i];
    }
}

/* Gives the same rows from channel c on. */
static bn_rows at_channel(bn_rows v, int64_t c)
{
    int64_t next = v.rows * (v.pitch + c);
    v.next_x = v.x + next;
    v.x += c;
    if (v.grad) {
        v.next_grad = v.grad + next;
        v.grad += c;
        v.mean += c;
    }
    v.sum += c;
    v.product += c;
    return v;
}

OCT_CLONES
static void add_block_values(bn_rows v)
{
    int64_t c = 0;
    for (; c + MANY * LANES <= v.channels; c += MANY * LANES)
        add_values(MANY, at_channel(v, c));
    for (; c + LANES <= v.channels; c += LANES)
        add_values(1, at_channel(v, c));
    for (; c < v.channels; c++) {
        for (int64_t r = 0; r < v.rows; r++) {
            double x = (double)v.x[r * v.pitch + c];
            v.sum[c] += x;
            v.product[c] += x * x;
        }
    }
}

OCT_CLONES
static void add_block_grads(bn_rows v)
{
    int64_t c = 0;
    for (; c + MANY * LANES <= v.channels; c += MANY * LANES)
        add_grads(MANY, at_channel(v, c));
    for (; c + LANES <= v.channels; c += LANES)
        add_grads(1, at_channel(v, c));
    for (; c < v.channels; c++) {
        for (int64_t r = 0; r < v.rows; r++) {
            double grad = (double)v.grad[r * v.pitch + c];
            v.sum[c] += grad;
            v.product[c] += grad * ((double)v.x[r * v.pitch + c] - (double)v.mean[c]);
        }
    }
}

/* Adds all rows of v by blocks; clears the sums first. */
static void add_by_blocks(bn_rows v, void (*add_block)(bn_rows v))
{
    int64_t left = v.rows, block = block_rows(v.channels);
    memset(v.sum, 0, (size_t)v.channels * sizeof(double));
    memset(v.product, 0, (size_t)v.channels * sizeof(double));
    for (; left > 0; left -= v.rows) {
        v.rows = oct_min_i64(block, left);
        add_block(v);
        v.x += v.rows * v.pitch;
        if (v.grad) v.grad += v.rows * v.pitch;
    }
}

void oct_bn_sum(const oct_bn_rows *of)
{
    const bn_rows v = {.rows = of->rows,
                       .pitch = of->pitch,
                       .channels = of->channels,
                       .grad = of->grad,
                       .x = of->x,
                       .mean = of->mean,
                       .sum = of->sums,
                       .product = of->sums + of->pitch};
    add_by_blocks(v, of->grad ? add_block_grads : add_block_values);
}

OCT_CLONES
void oct_bn_normalize(int64_t rows, int64_t channels, const float *x, const oct_bn_terms *terms,
                      float *restrict y)
{
    const float *mean = terms->mean, *scale = terms->scale, *shift = terms->shift;
    for (int64_t r = 0; r < rows; r++, x += channels, y += channels) {
        for (int64_t c = 0; c < channels; c++)
            y[c] = (x[c] - mean[c]) * scale[c] + shift[c];
    }
}

OCT_CLONES
void oct_bn_input_grad(int64_t rows, int64_t channels, const float *x, const oct_bn_terms *terms,
                       float *restrict grad)
{
    const float *mean = terms->mean, *scale = terms->scale;
    const float *shift = terms->shift, *slope = terms->slope;
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
