/* All elementwise functions are one op, over a table of them. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <math.h>

/* Defines a function by its value and its slope at x, in double; both may read its arguments `a`. */
#define FUNCTION(id, value_at_x, slope_at_x, ...)                                                  \
    static double id##_value(double x, const oct_elementwise_args *a)                              \
    {                                                                                              \
        (void)a;                                                                                   \
        return value_at_x;                                                                         \
    }                                                                                              \
    static double id##_slope(double x, const oct_elementwise_args *a)                              \
    {                                                                                              \
        (void)a, (void)x;                                                                          \
        return slope_at_x;                                                                         \
    }                                                                                              \
    const oct_elementwise oct_elementwise_##id = {                                                 \
        .name = #id, .value = id##_value, .slope = id##_slope, __VA_ARGS__}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

FUNCTION(sigmoid, sigmoid(x), sigmoid(x) * (1 - sigmoid(x)), .non_negative = true);
FUNCTION(silu, x / (1 + exp(-x)), sigmoid(x) * (1 + x * (1 - sigmoid(x))), .num_args = 0);
FUNCTION(tanh, tanh(x), 1 - tanh(x) * tanh(x), .num_args = 0);
/* log(1 + exp(x)), with no exponential that overflows. */
FUNCTION(softplus, x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)), sigmoid(x), .non_negative = true);
FUNCTION(softsign, x / (1 + fabs(x)), 1 / ((1 + fabs(x)) * (1 + fabs(x))), .num_args = 0);

/* x * min(max(x + 3, 0), 6) / 6. Slopes at -3 and 3 are PyTorch's: those above. */
FUNCTION(hard_swish,
         (x < -3  ? 0
          : x > 3 ? x
                  : x * (x + 3) / 6),
         x < -3   ? 0
         : x >= 3 ? 1
                  : x / 3 + 0.5,
         .num_args = 0);

/* alpha * x + beta. */
static double line_at(double x, const oct_elementwise_args *a)
{
    return a->alpha * x + a->beta;
}

/* The line, cut to 0 and 1: ONNX's HardSigmoid; with 1/6 and 1/2 that of PyTorch. The slope is 0 at both ends. */
FUNCTION(hard_sigmoid,
         line_at(x, a) > 1   ? 1
         : line_at(x, a) < 0 ? 0
                             : line_at(x, a),
         line_at(x, a) > 0 && line_at(x, a) < 1 ? a->alpha : 0, .num_args = 2,
         .default_args = {.alpha = 1.0 / 6, .beta = 0.5}, .non_negative = true);

FUNCTION(leaky_relu, x > 0 ? x : a->alpha * x, x > 0 ? 1 : a->alpha, .num_args = 1,
         .default_args = {.alpha = 0.01});
FUNCTION(thresholded_relu, x > a->alpha ? x : 0, x > a->alpha ? 1 : 0, .num_args = 1,
         .default_args = {.alpha = 1});
FUNCTION(elu, x > 0 ? x : a->alpha * expm1(x), x > 0 ? 1 : a->alpha * exp(x), .num_args = 1,
         .default_args = {.alpha = 1});

/* x * P(normal <= x). erfc keeps what 1 + erf(x) would lose below 0. */
FUNCTION(gelu, 0.5 * x * erfc(-x * M_SQRT1_2),
         0.5 * erfc(-x * M_SQRT1_2) + x * exp(-0.5 * x * x) * (0.5 * M_2_SQRTPI * M_SQRT1_2),
         .num_args = 0);

static const double root_2_pi = M_2_SQRTPI * M_SQRT1_2; /* sqrt(2 / pi) */

static double gelu_tangent(double x)
{
    return tanh(root_2_pi * (x + 0.044715 * x * x * x));
}

/* With t the tangent, t' = (1 - t * t) times the derivative of its argument. */
static double gelu_tanh_derivative(double x)
{
    const double t = gelu_tangent(x), rise = root_2_pi * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * rise;
}

/* 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))): the approximation of GELU. */
FUNCTION(gelu_tanh, 0.5 * x * (1 + gelu_tangent(x)), gelu_tanh_derivative(x), .num_args = 0);

/* Beyond the largest float it is infinite. */
FUNCTION(exp, exp(x), exp(x), .non_negative = true);
/* -infinity at 0, not a number below it. */
FUNCTION(logarithm, log(x), 1 / x, .num_args = 0);
/* Not a number below 0; its slope at 0 is infinite. */
FUNCTION(sqrt, sqrt(x), 0.5 / sqrt(x), .non_negative = true);
/* The slope at 0 is 0, as in PyTorch. */
FUNCTION(abs, fabs(x), x > 0 ? 1 : x < 0 ? -1 : 0, .non_negative = true);
FUNCTION(neg, -x, -1, .num_args = 0);
FUNCTION(square, (x * x), 2 * x, .non_negative = true);
/* Infinite at 0. */
FUNCTION(reciprocal, 1 / x, -1 / (x * x), .num_args = 0);
FUNCTION(erf, erf(x), (M_2_SQRTPI * exp(-x * x)), .num_args = 0);
/* Below 0 a number only where the power is whole. */
FUNCTION(power, pow(x, a->alpha), (a->alpha * pow(x, a->alpha - 1)), .num_args = 1,
         .default_args = {.alpha = 3});

/* What the backward needs. */
typedef struct applied_function {
    const oct_elementwise *function;
    oct_elementwise_args args;
} applied_function;

static void elementwise_backward(oct_context *cx, oct_node *node)
{
    const applied_function *f = node->saved;
    oct_tensor *x = node->input[0];
    const int64_t n = oct_numel(x);
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        grad[i] = (float)((double)grad[i] * f->function->slope((double)oct_f32(x)[i], &f->args));
    oct_add_grad(cx, x, grad);
}

oct_tensor *oct_elementwise_apply(oct_context *cx, const oct_elementwise *f,
                                  const oct_elementwise_args *args, oct_tensor *x)
{
    const applied_function applied = {.function = f, .args = args ? *args : f->default_args};
    oct_op_args numbers;
    oct_args_write(&oct_elementwise_arg_list[f->num_args], &applied.args, &numbers);
    for (int i = 0; i < numbers.count; i++)
        if (!isfinite(numbers.value[i]))
            return oct_context_fail(cx, OCT_USAGE, "%s takes finite numbers, but has %g", f->name,
                                    numbers.value[i]);
    oct_tensor *y;
    if (oct_op_intercepted(cx, f->name, &numbers, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, f->name, x)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    const int64_t n = oct_numel(x);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        oct_f32(y)[i] = (float)f->value((double)oct_f32(x)[i], &applied.args);
    oct_node *node = oct_record(cx, f->name, elementwise_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &applied, sizeof applied) ? y : NULL;
}

#define GIVEN_0 NULL
#define GIVEN_1                                                                                    \
    &(oct_elementwise_args)                                                                        \
    {                                                                                              \
        .alpha = first                                                                             \
    }
#define GIVEN_2                                                                                    \
    &(oct_elementwise_args)                                                                        \
    {                                                                                              \
        .alpha = first, .beta = second                                                             \
    }
#define OCT_ELEMENTWISE(name, args)                                                                \
    oct_tensor *oct_##name(oct_context *cx, oct_tensor *x OCT_ELEMENTWISE_ARGS_##args)             \
    {                                                                                              \
        return oct_elementwise_apply(cx, &oct_elementwise_##name, GIVEN_##args, x);                \
    }
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
