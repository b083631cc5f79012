/* The float modules. Structs are open so that passes can look inside; create with the functions. */
#pragma once

#include "core/nn/module.h"
#include "core/op/ops.h"

extern const oct_module_type oct_conv2d_type, oct_linear_type, oct_batch_norm_type, oct_relu_type,
    oct_relu6_type, oct_max_pool_type, oct_avg_pool_type, oct_global_avg_pool_type, oct_add_type,
    oct_concat_type, oct_flatten_type, oct_identity_type, oct_sequential_type;

typedef struct oct_conv2d_module {
    oct_module base;
    oct_param *weight; /* (O, kh, kw, I/groups) */
    oct_param *bias;   /* (O) or NULL */
    oct_conv_geometry geometry;
    int64_t in_channels, out_channels;
} oct_conv2d_module;

typedef struct oct_linear_module {
    oct_module base;
    oct_param *weight; /* (O, I) */
    oct_param *bias;   /* (O) or NULL */
    int64_t in_features, out_features;
} oct_linear_module;

typedef struct oct_batch_norm_module {
    oct_module base;
    oct_param *gamma, *beta;           /* (C); names "weight", "bias" */
    float *running_mean, *running_var; /* buffers (C) */
    int64_t channels;
    float eps, momentum;
    bool frozen; /* running statistics even while training */
} oct_batch_norm_module;

typedef struct oct_pool_module {
    oct_module base;
    int kernel, stride, padding;
} oct_pool_module;

enum { OCT_SEQUENTIAL_MAX = 64 };
typedef struct oct_sequential_module {
    oct_module base;
    oct_module *items[OCT_SEQUENTIAL_MAX];
} oct_sequential_module;

oct_status oct_conv2d_create(oct_module **m, int64_t in, int64_t out, oct_conv_geometry g,
                             bool bias) OCT_NODISCARD;
oct_status oct_linear_create(oct_module **m, int64_t in, int64_t out, bool bias) OCT_NODISCARD;
/* eps 1e-5, momentum 0.1 */
oct_status oct_batch_norm_create(oct_module **m, int64_t channels) OCT_NODISCARD;
oct_status oct_relu_create(oct_module **m) OCT_NODISCARD;
oct_status oct_relu6_create(oct_module **m) OCT_NODISCARD;
oct_status oct_max_pool_create(oct_module **m, int kernel, int stride, int padding) OCT_NODISCARD;
oct_status oct_avg_pool_create(oct_module **m, int kernel, int stride) OCT_NODISCARD;
oct_status oct_global_avg_pool_create(oct_module **m) OCT_NODISCARD;
oct_status oct_add_create(oct_module **m) OCT_NODISCARD;    /* two inputs */
oct_status oct_concat_create(oct_module **m) OCT_NODISCARD; /* two or more inputs */
oct_status oct_flatten_create(oct_module **m) OCT_NODISCARD;
oct_status oct_identity_create(oct_module **m) OCT_NODISCARD;
oct_status oct_sequential_create(oct_module **m) OCT_NODISCARD;
/* Takes *item over (set to NULL), also on failure; its name is its number. */
oct_status oct_sequential_append(oct_module *sequential, oct_module **item) OCT_NODISCARD;

/* Initial values as a pure function of (seed, parameter's place in the tree): convolutions and
 * linear layers Kaiming normal, fan-out for convolutions and fan-in for linear (He et al. 2015),
 * biases 0, gamma 1, beta 0, running mean 0, running variance 1. */
oct_status oct_init_parameters(oct_module *root, uint64_t seed) OCT_NODISCARD;
