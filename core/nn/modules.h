/* The float modules. Structs are open so that passes can look inside; create with the functions. */
#pragma once

#include "core/nn/module.h"
#include "core/op/ops.h"

#define OCT_MODULE(name) extern const oct_module_type oct_##name##_type;
#include "core/nn/module_list.def"
#undef OCT_MODULE
extern const oct_module_type oct_sequential_type;

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

/* Defines the type of an atomic module, whose forward is this call, of its struct `m` and the inputs `x` and `n`; further
 * members of the type follow. */
#define OCT_MODULE_TYPE(id, self_type, call, ...)                                                  \
    static oct_tensor *id##_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,       \
                                    int n)                                                         \
    {                                                                                              \
        self_type *m = (self_type *)self;                                                          \
        (void)m, (void)n;                                                                          \
        return call;                                                                               \
    }                                                                                              \
    const oct_module_type oct_##id##_type = {                                                      \
        .name = #id, .forward = id##_forward, .atomic = true, __VA_ARGS__}
#define OCT_ARGS_TYPE(id, self_type, list, call, ...)                                              \
    OCT_MODULE_TYPE(id, self_type, call, OCT_MODULE_ARGS(list, self_type), __VA_ARGS__)

/* Defines oct_<id>_create with these parameters after the first: the module that has these values as its arguments. */
#define OCT_MODULE_CREATE(id, params, ...)                                                         \
    oct_status oct_##id##_create(oct_module **m, OCT_UNPACK params)                                \
    {                                                                                              \
        return oct_module_make(m, &oct_##id##_type, &(oct_##id##_args){__VA_ARGS__});              \
    }
#define OCT_UNPACK(...) __VA_ARGS__

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

/* Returns what the module asks of oct_batch_norm in a step of training or of evaluation. */
oct_bn_args oct_batch_norm_call(const oct_batch_norm_module *m, bool training);
/* Counts the batch norms of a tree if none of them has seen data: all means are 0 and all variances 1. 0: there are
 * none, or one has. */
int64_t oct_batch_norms_unseen(oct_module *root);
