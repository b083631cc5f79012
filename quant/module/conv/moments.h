/* Moments are sums over all that the windows of a layer see of its input, as whole numbers: of each term, and of the
 * products of each two of them (the matrix X X^T of second-order rounding). They are exact, so they are the same in
 * whatever order samples, threads and ranks add to them. */
#pragma once

#include "core/base/collective.h"
#include "core/tensor/conv_shape.h"
#include "core/tensor/tensor.h"

typedef struct oct_moments {
    int64_t depth, groups; /* terms K of a window, of each group */
    int64_t windows;
    float scale;      /* of the input's codes */
    bool mixed;       /* inputs had several scales, so the sums mean nothing */
    int64_t *sum;     /* (groups, K): of code - zero_point */
    int64_t *product; /* (groups, K, K), the lower triangles; NULL: not wanted */
} oct_moments;

/* The shape of a layer's windows, in which its plane does not count. */
struct oct_qat_conv;
oct_conv_shape oct_moments_shape(const struct oct_qat_conv *layer);
oct_status oct_moments_create(oct_moments *moments, const oct_conv_shape *shape,
                              bool products) OCT_NODISCARD;
void oct_moments_free(oct_moments *moments);
/* Bytes that the products of such a layer take. */
int64_t oct_moments_bytes(const oct_conv_shape *shape);
/* Adds the windows of some samples of codes (N, H, W, C), or (N, C) of a linear layer. */
oct_status oct_moments_add(oct_moments *moments, const oct_conv_shape *shape,
                           const oct_tensor *x) OCT_NODISCARD;
/* Collective: sums them over the ranks. */
oct_status oct_moments_allreduce(oct_moments *moments, const oct_collective *group) OCT_NODISCARD;
