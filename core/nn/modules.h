/* The float modules. Structs are open so that passes can look inside; create with the functions. */
#pragma once

#include "core/nn/module_call.h"
#include "core/op/ops.h"

#define OCT_MODULE(name) extern const oct_module_type oct_##name##_type;
#include "core/nn/module_list.def"
#undef OCT_MODULE
extern const oct_module_type oct_sequential_type;

#define OCT_PLAIN_OP(name, inputs, form)                                                           \
    oct_status oct_##name##_create(oct_module **m) OCT_NODISCARD;
#include "core/op/plain_op_list.def"
#undef OCT_PLAIN_OP
#define OCT_ELEMENTWISE(name, args)                                                                \
    oct_status oct_##name##_create(oct_module **m OCT_ELEMENTWISE_ARGS_##args) OCT_NODISCARD;
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE

/* conv2d and conv_transpose2d */
typedef struct oct_conv2d_module {
    oct_module base;
    oct_param *weight; /* (O, kh, kw, I/groups) */
    oct_param *bias;   /* (O) or NULL */
    oct_conv2d_args args;
} oct_conv2d_module;

typedef struct oct_linear_module {
    oct_module base;
    oct_param *weight; /* (O, I) */
    oct_param *bias;   /* (O) or NULL */
    oct_linear_args args;
} oct_linear_module;

typedef struct oct_batch_norm_module {
    oct_module base;
    oct_param *gamma, *beta;           /* (C); names "weight", "bias" */
    float *running_mean, *running_var; /* buffers (C) */
    oct_batch_norm_args args;
    bool frozen; /* running statistics even while training */
} oct_batch_norm_module;

typedef struct oct_group_norm_module { /* layer_norm and group_norm */
    oct_module base;
    oct_param *gamma, *beta; /* (C); names "weight", "bias" */
    oct_group_norm_args args;
} oct_group_norm_module;

typedef struct oct_parameter_module { /* parameter, add_parameter, mul_parameter */
    oct_module base;
    oct_param *weight;
    oct_parameter_args args;
} oct_parameter_module;

typedef struct oct_pool_module {
    oct_module base;
    oct_pool_geometry args;
} oct_pool_module;

/* Modules that hold nothing but their arguments: oct_mean_module and so on. */
#define OCT_ARGS_MODULE(name)                                                                      \
    typedef struct oct_##name##_module {                                                           \
        oct_module base;                                                                           \
        oct_##name##_args args;                                                                    \
    } oct_##name##_module
OCT_ARGS_MODULE(mean);
OCT_ARGS_MODULE(clip);
OCT_ARGS_MODULE(dropout);
OCT_ARGS_MODULE(scalar); /* add_scalar, mul_scalar */
OCT_ARGS_MODULE(interpolate);
OCT_ARGS_MODULE(reshape);
OCT_ARGS_MODULE(move);
OCT_ARGS_MODULE(pad);
OCT_ARGS_MODULE(squeeze);
OCT_ARGS_MODULE(cross_entropy_loss);

typedef struct oct_elementwise_module { /* of elementwise_list.def */
    oct_module base;
    const oct_elementwise *function;
    oct_elementwise_args args;
} oct_elementwise_module;

typedef struct oct_prelu_module {
    oct_module base;
    oct_param *weight; /* (channels); begins as 0.25, and does not decay */
    oct_prelu_args args;
} oct_prelu_module;

/* It remembers what it passed on, so that others can ask whether a tensor came through it. */
typedef struct oct_identity_module {
    oct_module base;
    const void *passed; /* data of the last tensor; for comparing only */
    /* Of a member of what was fused by name: the module whose output it must get, in each of its calls, and get alone;
     * NULL: nothing is known. */
    const oct_module *follows;
    /* A member: its output is a tensor of its own, so that a trace distinguishes the two. */
    bool fused;
} oct_identity_module;

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
/* Returns what the module asks of oct_batch_norm in a step of training or of evaluation. */
oct_bn_args oct_batch_norm_call(const oct_batch_norm_module *m, bool training);
/* Counts the batch norms of a tree if none of them has seen data: all means are 0 and all variances 1. 0: there are
 * none, or one has. */
int64_t oct_batch_norms_unseen(oct_module *root);
oct_status oct_layer_norm_create(oct_module **m, int64_t size, double eps) OCT_NODISCARD;
oct_status oct_group_norm_create(oct_module **m, int64_t groups, int64_t channels,
                                 double eps) OCT_NODISCARD;
/* shape: of the parameter, 1 to 3 dimensions */
oct_status oct_parameter_create(oct_module **m, oct_shape shape) OCT_NODISCARD;
oct_status oct_add_parameter_create(oct_module **m, oct_shape shape) OCT_NODISCARD;
oct_status oct_mul_parameter_create(oct_module **m, oct_shape shape) OCT_NODISCARD;
oct_status oct_mean_create(oct_module **m, int axis, bool keep) OCT_NODISCARD;
oct_status oct_max_pool_create(oct_module **m, oct_pool_geometry g) OCT_NODISCARD;
oct_status oct_avg_pool_create(oct_module **m, oct_pool_geometry g) OCT_NODISCARD;
oct_status oct_clip_create(oct_module **m, double lo, double hi) OCT_NODISCARD;
oct_status oct_prelu_create(oct_module **m, int64_t channels) OCT_NODISCARD;
oct_status oct_dropout_create(oct_module **m, double p) OCT_NODISCARD;
oct_status oct_add_scalar_create(oct_module **m, double value) OCT_NODISCARD;
oct_status oct_mul_scalar_create(oct_module **m, double value) OCT_NODISCARD;
oct_status oct_interpolate_create(oct_module **m, int64_t out_h, int64_t out_w,
                                  oct_interpolation mode) OCT_NODISCARD;
oct_status oct_reshape_create(oct_module **m, oct_shape shape) OCT_NODISCARD;
oct_status oct_move_create(oct_module **m, const oct_move_map *map) OCT_NODISCARD;
oct_status oct_pad_create(oct_module **m, const oct_padding *padding) OCT_NODISCARD;
oct_status oct_squeeze_create(oct_module **m) OCT_NODISCARD;
oct_status oct_squeeze_dim_create(oct_module **m, int dim) OCT_NODISCARD;
/* two inputs: logits and target */
oct_status oct_cross_entropy_loss_create(oct_module **m, double smoothing) OCT_NODISCARD;
oct_status oct_conv_transpose2d_create(oct_module **m, int64_t in, int64_t out, oct_conv_geometry g,
                                       bool bias) OCT_NODISCARD;
oct_status oct_concat_create(oct_module **m) OCT_NODISCARD; /* two or more inputs */
oct_status oct_identity_create(oct_module **m) OCT_NODISCARD;
oct_status oct_sequential_create(oct_module **m) OCT_NODISCARD;
/* Takes *item over (set to NULL), also on failure; its name is its number. */
oct_status oct_sequential_append(oct_module *sequential, oct_module **item) OCT_NODISCARD;

/* Sets initial values as a pure function of (seed, parameter's position in the tree): convolutions
 * and linear layers Kaiming normal, fan-out for convolutions and fan-in for linear (He et al.
 * 2015), biases 0, gamma 1, beta 0, running mean 0, running variance 1; parameters that are values or are
 * added normal with deviation 0.02, those that are multiplied with 1. */
oct_status oct_init_parameters(oct_module *root, uint64_t seed) OCT_NODISCARD;
