/* Elementwise functions with a derivative have one definition each in elementwise.c and one line each in
 * elementwise_list.def. From that follow the op, the module, and on quantized values the table of
 * 256 or 65536 entries. Values are computed in double and rounded once. */
#pragma once

#include "core/autograd/tape.h"

typedef struct oct_elementwise {
    const char *name;
    int num_args;
    oct_elementwise_args default_args;
    bool non_negative; /* its values are >= 0 */
    double (*value)(double x, const oct_elementwise_args *args);
    double (*slope)(double x, const oct_elementwise_args *args);
} oct_elementwise;

#define OCT_ELEMENTWISE(name, args) extern const oct_elementwise oct_elementwise_##name;
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE

/* The parameters of such an op and of its module after the first ones, by their number. */
#define OCT_ELEMENTWISE_ARGS_0
#define OCT_ELEMENTWISE_ARGS_1 , double first
#define OCT_ELEMENTWISE_ARGS_2 , double first, double second

/* y = f(x). args: the first f->num_args members; NULL: the defaults. f32. */
oct_tensor *oct_elementwise_apply(oct_context *cx, const oct_elementwise *f,
                                  const oct_elementwise_args *args, oct_tensor *x);
