/* Functions of one value run on the tensor as it lies. */
#include "io/onnx/build_impl.h"

#include <math.h>
#include <string.h>

/* The node's result is a module that computes each element of `input` by itself. */
static oct_status build_unary(oct_onnx_builder *b, int32_t input, const char *type,
                              const oct_op_args *args)
{
    OCT_CHECK(input >= 0 && b->has_view[input], OCT_PREPARE,
              "its input is a constant; compute it before the export");
    oct_onnx_view x = b->view[input];
    OCT_TRY(oct_build_call_unary(b, type, args, &x));
    return oct_build_set_result(b, &x);
}

/* Functions without numbers: ONNX's name, the module's. */
#define PLAIN(function, module)                                                                    \
    oct_status oct_build_##function(oct_onnx_builder *b, const oct_onnx_node *n)                   \
    {                                                                                              \
        (void)n;                                                                                   \
        return build_unary(b, oct_build_input(b, b->current, 0), module, OCT_NO_ARGS);             \
    }
PLAIN(relu, "relu")
PLAIN(sigmoid, "sigmoid")
PLAIN(tanh, "tanh")
PLAIN(softplus, "softplus")
PLAIN(softsign, "softsign")
PLAIN(exp, "exp")
PLAIN(log, "logarithm")
PLAIN(sqrt, "sqrt")
PLAIN(abs, "abs")
PLAIN(neg, "neg")
PLAIN(reciprocal, "reciprocal")
PLAIN(erf, "erf")
PLAIN(silu, "silu")
PLAIN(hard_swish, "hard_swish")
PLAIN(gelu_erf, "gelu")
PLAIN(gelu_tanh, "gelu_tanh")
#undef PLAIN

oct_status oct_build_gelu(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const bool tanh = strcmp(oct_onnx_string(n, "approximate", "none"), "tanh") == 0;
    return build_unary(b, n->input[0], tanh ? "gelu_tanh" : "gelu", OCT_NO_ARGS);
}

/* Functions with one number, which ONNX calls alpha. */
#define ALPHA(function, otherwise)                                                                 \
    oct_status oct_build_##function(oct_onnx_builder *b, const oct_onnx_node *n)                   \
    {                                                                                              \
        return build_unary(b, n->input[0], #function,                                              \
                           OCT_OP_ARGS((double)oct_onnx_float(n, "alpha", otherwise)));            \
    }
ALPHA(leaky_relu, 0.01F)
ALPHA(thresholded_relu, 1)
ALPHA(elu, 1)
#undef ALPHA

/* alpha * elu(x / alpha, 1) */
oct_status oct_build_celu(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    const double alpha = (double)oct_onnx_float(n, "alpha", 1);
    OCT_CHECK(alpha > 0, OCT_PREPARE, "its alpha is %g; only numbers above 0 are supported", alpha);
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(oct_build_call_unary(b, "mul_scalar", OCT_OP_ARGS(1 / alpha), &x));
    OCT_TRY(oct_build_call_unary(b, "elu", OCT_OP_ARGS(1), &x));
    OCT_TRY(oct_build_call_unary(b, "mul_scalar", OCT_OP_ARGS(alpha), &x));
    return oct_build_set_result(b, &x);
}

/* gamma * elu(x, alpha) */
oct_status oct_build_selu(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(oct_build_call_unary(b, "elu",
                                 OCT_OP_ARGS((double)oct_onnx_float(n, "alpha", 1.67326319F)), &x));
    OCT_TRY(oct_build_call_unary(b, "mul_scalar",
                                 OCT_OP_ARGS((double)oct_onnx_float(n, "gamma", 1.05070102F)), &x));
    return oct_build_set_result(b, &x);
}

/* max(0, min(1, alpha x + beta)), of the node or of the pattern that ends with it */
oct_status oct_build_hard_sigmoid(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const oct_onnx_fused *f = &b->fused[b->current];
    const double alpha = f->type ? f->number[0] : (double)oct_onnx_float(n, "alpha", 0.2F);
    const double beta = f->type ? f->number[1] : (double)oct_onnx_float(n, "beta", 0.5F);
    return build_unary(b, oct_build_input(b, b->current, 0), "hard_sigmoid",
                       OCT_OP_ARGS(alpha, beta));
}

/* The first input, as a value that several modules read. */
static oct_status view_to_share(oct_onnx_builder *b, const oct_onnx_node *n, oct_onnx_view *x)
{
    OCT_TRY(oct_build_view(b, n, 0, x));
    return oct_view_numel(x) < oct_view_tensor_numel(x) ? oct_build_lay_out_natural(b, x) : OCT_OK;
}

/* The product of two values of the same layout. */
static oct_status multiply_views(oct_onnx_builder *b, const oct_onnx_view *x, oct_onnx_view *y)
{
    const int32_t both[] = {x->value, y->value};
    OCT_TRY(oct_build_call(b, "mul", OCT_NO_ARGS, both, 2, &y->value));
    return oct_build_set_result(b, y);
}

/* x * tanh(softplus(x)) */
oct_status oct_build_mish(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x, y;
    OCT_TRY(view_to_share(b, n, &x));
    y = x;
    OCT_TRY(oct_build_call_unary(b, "softplus", OCT_NO_ARGS, &y));
    OCT_TRY(oct_build_call_unary(b, "tanh", OCT_NO_ARGS, &y));
    return multiply_views(b, &x, &y);
}

/* x * sigmoid(alpha x) */
oct_status oct_build_swish(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x, y;
    const double alpha = (double)oct_onnx_float(n, "alpha", 1);
    if (alpha == 1) return oct_build_silu(b, n);
    OCT_TRY(view_to_share(b, n, &x));
    y = x;
    OCT_TRY(oct_build_call_unary(b, "mul_scalar", OCT_OP_ARGS(alpha), &y));
    OCT_TRY(oct_build_call_unary(b, "sigmoid", OCT_NO_ARGS, &y));
    return multiply_views(b, &x, &y);
}

static oct_status call_clip(oct_onnx_builder *b, oct_onnx_view *x, double lo, double hi)
{
    if (lo == 0 && isinf(hi)) return oct_build_call_unary(b, "relu", OCT_NO_ARGS, x);
    if (lo == 0 && hi == 6) return oct_build_call_unary(b, "relu6", OCT_NO_ARGS, x);
    return oct_build_call_unary(b, "clip", OCT_ARGS(clip, lo, hi), x);
}

/* min(max(x, lo), hi), with the bounds of the node or of the pattern Clip(Relu(x)) */
oct_status oct_build_clip(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const oct_onnx_fused *f = &b->fused[b->current];
    double lo = f->number[0], hi = f->number[1];
    const int32_t input = oct_build_input(b, b->current, 0);
    OCT_CHECK(f->type || oct_build_bounds(b, n, &lo, &hi), OCT_PREPARE,
              "its bounds are computed; export it with constants");
    OCT_CHECK(input >= 0 && b->has_view[input], OCT_PREPARE,
              "its input is a constant; compute it before the export");
    oct_onnx_view x = b->view[input];
    OCT_TRY(call_clip(b, &x, lo, hi));
    return oct_build_set_result(b, &x);
}

/* Max and Min: max(x, y) is x + relu(y - x), min(x, y) is x - relu(x - y). Constants become the bounds of a Clip. */
oct_status oct_build_bound(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const bool max = strcmp(n->type, "Max") == 0;
    double number, lo = -(double)INFINITY, hi = (double)INFINITY;
    oct_onnx_view y, x, difference;
    int num_values = 0;
    for (int i = 0; i < n->inputs; i++) {
        if (oct_build_scalar(b, n->input[i], &number)) {
            lo = max ? fmax(lo, number) : lo;
            hi = max ? hi : fmin(hi, number);
            continue;
        }
        OCT_TRY(oct_build_operand(b, n, i, &x));
        if (num_values++ == 0) {
            y = x;
            continue;
        }
        OCT_TRY(oct_build_call_binary(b, "sub", max ? &x : &y, max ? &y : &x, &difference));
        OCT_TRY(oct_build_call_unary(b, "relu", OCT_NO_ARGS, &difference));
        OCT_TRY(oct_build_call_binary(b, max ? "add" : "sub", &y, &difference, &y));
    }
    OCT_CHECK(num_values > 0, OCT_DATA, "it compares constants alone; export the network again");
    if (isfinite(lo) || isfinite(hi)) OCT_TRY(call_clip(b, &y, lo, hi));
    return oct_build_set_result(b, &y);
}

/* x to a constant power: modules for the common ones, and the cube as the product of x and its square */
oct_status oct_build_pow(oct_onnx_builder *b, const oct_onnx_node *n)
{
    double power;
    oct_onnx_view x, y;
    OCT_CHECK(n->inputs == 2 && oct_build_scalar(b, n->input[1], &power), OCT_PREPARE,
              "its exponent is not one number; write it as a product or a function");
    if (power == 2) return build_unary(b, n->input[0], "square", OCT_NO_ARGS);
    if (power == 0.5) return build_unary(b, n->input[0], "sqrt", OCT_NO_ARGS);
    if (power == -1) return build_unary(b, n->input[0], "reciprocal", OCT_NO_ARGS);
    if (power == 1) return oct_build_identity(b, n);
    if (power != 3) return build_unary(b, n->input[0], "power", OCT_OP_ARGS(power));
    OCT_TRY(view_to_share(b, n, &x));
    y = x;
    OCT_TRY(oct_build_call_unary(b, "square", OCT_NO_ARGS, &y));
    return multiply_views(b, &x, &y);
}

/* x where it is positive, else slope times x, with one slope for all or one for each channel */
oct_status oct_build_prelu(oct_onnx_builder *b, const oct_onnx_node *n)
{
    const oct_onnx_value *slope;
    oct_onnx_view x;
    OCT_TRY(oct_build_weights(b, n, 1, &slope));
    OCT_TRY(oct_build_view(b, n, 0, &x));
    const int64_t count = oct_onnx_numel(slope);
    if (x.dims > 2)
        OCT_TRY(oct_build_lay_out_image(b, &x));
    else
        OCT_TRY(oct_build_lay_out_natural(b, &x));
    const int channel = slope->ndim - (x.dims - 1);
    OCT_CHECK(count == 1 || (channel >= 0 && slope->ndim <= x.dims &&
                             slope->dim[channel] == count && oct_view_size(&x, 1) == count),
              OCT_PREPARE, "its slopes are not one for all or one for each channel");
    OCT_TRY(oct_build_call(b, "prelu", OCT_OP_ARGS((double)count), &x.value, 1, &x.value));
    OCT_TRY(oct_build_fill_flat(b, x.value, "weight", slope));
    return oct_build_set_result(b, &x);
}
