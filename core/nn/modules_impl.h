/* The float modules share these. */
#pragma once

#include "core/nn/module.h"

/* Fails the context unless the module was called with `wanted` inputs. */
bool oct_needs_inputs(oct_context *cx, const oct_module *self, int n, int wanted);

/* Fails unless there are `count` arguments. */
oct_status oct_args_count(const char *type, const oct_op_args *args, int count) OCT_NODISCARD;
/* Reads exactly `count` arguments that are integers of 32 bits; what they may be beyond that is
 * checked by who makes the module. */
oct_status oct_args_integers(const char *type, const oct_op_args *args, int count,
                             int64_t *whole) OCT_NODISCARD;

/* Writes the shape of an output: "(N, 4, 4, 8)". */
void oct_describe_shape(const oct_shape *shape, char *text, size_t size);

/* Adds the weight, whose dimensions are positive, and where bias is given a bias for its dimension 0;
 * fails when they are more than can be counted. Destroys *m on failure. */
oct_status oct_add_weight(oct_module **m, const oct_shape *shape, oct_param **weight,
                          oct_param **bias) OCT_NODISCARD;

/* Defines the type and the create function of an atomic module without arguments: `id`_forward is there, and
 * `self` is its struct. */
#define OCT_PLAIN_MODULE(id, self)                                                                 \
    static oct_status id##_from(oct_module **m, const oct_op_args *args)                           \
    {                                                                                              \
        return oct_plain_create(m, &oct_##id##_type, sizeof(self), args);                          \
    }                                                                                              \
    const oct_module_type oct_##id##_type = {.name = #id,                                          \
                                             .forward = id##_forward,                              \
                                             .atomic = true,                                       \
                                             .create = id##_from,                                  \
                                             .args = oct_plain_args};                              \
    oct_status oct_##id##_create(oct_module **m)                                                   \
    {                                                                                              \
        return oct_plain_create(m, &oct_##id##_type, sizeof(self), OCT_NO_ARGS);                   \
    }

oct_status oct_plain_create(oct_module **m, const oct_module_type *type, size_t size,
                            const oct_op_args *args) OCT_NODISCARD;
void oct_plain_args(const oct_module *self, oct_op_args *args);
