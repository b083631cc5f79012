/* Layers that compute number by number, and products of activations. */
#include "io/export/onnx_form.h"

#include <math.h>

/* What is computed number by number keeps shape and order. */
static oct_to_onnx_ref shaped_like(const oct_to_onnx_ref *x, const char *name)
{
    return (oct_to_onnx_ref){name, x->tensor};
}

/* Layers that one operator says, with their arguments as its attributes: type, operator, arguments, names of the
 * attributes. */
#define OPERATOR_LIST(X)                                                                           \
    X(relu, "Relu", 0, NULL, NULL)                                                                 \
    X(sigmoid, "Sigmoid", 0, NULL, NULL)                                                           \
    X(tanh, "Tanh", 0, NULL, NULL)                                                                 \
    X(softplus, "Softplus", 0, NULL, NULL)                                                         \
    X(exp, "Exp", 0, NULL, NULL)                                                                   \
    X(logarithm, "Log", 0, NULL, NULL)                                                             \
    X(sqrt, "Sqrt", 0, NULL, NULL)                                                                 \
    X(abs, "Abs", 0, NULL, NULL)                                                                   \
    X(neg, "Neg", 0, NULL, NULL)                                                                   \
    X(erf, "Erf", 0, NULL, NULL)                                                                   \
    X(reciprocal, "Reciprocal", 0, NULL, NULL)                                                     \
    X(leaky_relu, "LeakyRelu", 1, "alpha", NULL)                                                   \
    X(elu, "Elu", 1, "alpha", NULL)                                                                \
    X(softsign, "Softsign", 0, NULL, NULL)                                                         \
    X(thresholded_relu, "ThresholdedRelu", 1, "alpha", NULL)                                       \
    X(hard_sigmoid, "HardSigmoid", 2, "alpha", "beta")

static oct_to_onnx_ref one_operator(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                                    const char *op, const char *const attributes[2])
{
    const oct_to_onnx_ref *x = &c->input[0];
    const char *y = oct_to_onnx_node_add(w, op, 1, &x->name);
    for (int i = 0; i < 2 && attributes[i]; i++)
        oct_to_onnx_float_set(w, attributes[i], (float)c->layer->args.value[i]);
    return shaped_like(x, y);
}

#define X(type, op, args, first, second)                                                           \
    static oct_to_onnx_ref write_##type(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)    \
    {                                                                                              \
        return one_operator(w, c, op, (const char *const[]){first, second});                       \
    }
OPERATOR_LIST(X)
#undef X

static oct_to_onnx_ref clip_to(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c, double lo,
                               double hi)
{
    const char *least = isinf(lo) ? "" : oct_to_onnx_scalar(w, (float)lo);
    const char *most = isinf(hi) ? "" : oct_to_onnx_scalar(w, (float)hi);
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, "Clip", c->input[0].name, least, most));
}

static oct_to_onnx_ref relu6(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return clip_to(w, c, 0, 6);
}

static oct_to_onnx_ref clip(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return clip_to(w, c, c->layer->args.value[0], c->layer->args.value[1]);
}

static oct_to_onnx_ref silu(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *x = c->input[0].name;
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, "Mul", x, OCT_TO_ONNX(w, "Sigmoid", x)));
}

static oct_to_onnx_ref hard_swish(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *x = c->input[0].name, *gate = OCT_TO_ONNX(w, "HardSigmoid", x);
    oct_to_onnx_float_set(w, "alpha", 1.0f / 6.0f);
    oct_to_onnx_float_set(w, "beta", 0.5f);
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, "Mul", x, gate));
}

static oct_to_onnx_ref square(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *x = c->input[0].name;
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, "Mul", x, x));
}

/* x/2 (1 + f) */
static oct_to_onnx_ref half_with(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                                 const char *f)
{
    const char *half = OCT_TO_ONNX(w, "Mul", c->input[0].name, oct_to_onnx_scalar(w, 0.5f));
    const char *more = OCT_TO_ONNX(w, "Add", f, oct_to_onnx_scalar(w, 1.0f));
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, "Mul", half, more));
}

static oct_to_onnx_ref gelu(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *x =
        OCT_TO_ONNX(w, "Mul", c->input[0].name, oct_to_onnx_scalar(w, (float)M_SQRT1_2));
    return half_with(w, c, OCT_TO_ONNX(w, "Erf", x));
}

/* tanh(sqrt(2/pi) (x + 0.044715 x^3)) */
static oct_to_onnx_ref gelu_tanh(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *x = c->input[0].name, *cube = OCT_TO_ONNX(w, "Mul", OCT_TO_ONNX(w, "Mul", x, x), x);
    const char *sum =
        OCT_TO_ONNX(w, "Add", x, OCT_TO_ONNX(w, "Mul", cube, oct_to_onnx_scalar(w, 0.044715f)));
    const char *scaled =
        OCT_TO_ONNX(w, "Mul", sum, oct_to_onnx_scalar(w, (float)(M_2_SQRTPI * M_SQRT1_2)));
    return half_with(w, c, OCT_TO_ONNX(w, "Tanh", scaled));
}

static oct_to_onnx_ref with_number(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                                   const char *type)
{
    const char *number = oct_to_onnx_scalar(w, (float)c->layer->args.value[0]);
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, type, c->input[0].name, number));
}

static oct_to_onnx_ref add_scalar(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return with_number(w, c, "Add");
}

static oct_to_onnx_ref mul_scalar(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return with_number(w, c, "Mul");
}

static oct_to_onnx_ref power(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return with_number(w, c, "Pow");
}

oct_to_onnx_ref oct_to_onnx_pair(oct_to_onnx_writer *w, const char *type,
                                 const oct_to_onnx_ref *both)
{
    oct_to_onnx_ref x[2] = {both[0], both[1]};
    if (!oct_shape_equal(&x[0].tensor.plane, &x[1].tensor.plane) ||
        !oct_shape_equal(&x[0].tensor.shape, &x[1].tensor.shape))
        for (int i = 0; i < 2; i++)
            x[i] = oct_to_onnx_ordered(w, x[i]);
    for (int i = 0; i < 2; i++) {
        const oct_shape s = x[i].tensor.shape;
        if (s.ndim == 2 && x[1 - i].tensor.shape.ndim == 4)
            x[i] = oct_to_onnx_view(w, x[i], OCT_SHAPE(s.dim[0], 1, 1, s.dim[1]));
    }
    const bool second = oct_shape_numel(&x[1].tensor.shape) > oct_shape_numel(&x[0].tensor.shape);
    return shaped_like(&x[second], OCT_TO_ONNX(w, type, x[0].name, x[1].name));
}

static oct_to_onnx_ref add(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return oct_to_onnx_pair(w, "Add", c->input);
}

static oct_to_onnx_ref sub(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return oct_to_onnx_pair(w, "Sub", c->input);
}

static oct_to_onnx_ref mul(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return oct_to_onnx_pair(w, "Mul", c->input);
}

static oct_to_onnx_ref divide(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return oct_to_onnx_pair(w, "Div", c->input);
}

static oct_to_onnx_ref prelu(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    return shaped_like(&x,
                       OCT_TO_ONNX(w, "PRelu", x.name, oct_to_onnx_channel_array(w, c, "weight")));
}

static oct_to_onnx_ref with_parameter(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                                      const char *type)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    return shaped_like(&x, OCT_TO_ONNX(w, type, x.name, oct_to_onnx_channel_array(w, c, "weight")));
}

static oct_to_onnx_ref add_parameter(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return with_parameter(w, c, "Add");
}

static oct_to_onnx_ref mul_parameter(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return with_parameter(w, c, "Mul");
}

static oct_to_onnx_ref softmax(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    const int last = x.tensor.shape.ndim - 1;
    const char *y = OCT_TO_ONNX(w, "Softmax", x.name);
    oct_to_onnx_int_set(w, "axis", oct_to_onnx_axis(last + 1, last));
    return shaped_like(&x, y);
}

static oct_to_onnx_ref matmul(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    oct_shape out = c->input[0].tensor.shape;
    const oct_shape *b = &c->input[1].tensor.shape;
    const char *y = OCT_TO_ONNX(w, "MatMul", oct_to_onnx_channels_last(w, c->input[0]),
                                oct_to_onnx_channels_last(w, c->input[1]));
    out.dim[out.ndim - 1] = b->dim[b->ndim - 1];
    return oct_to_onnx_channels_first(w, y, out);
}

const oct_to_onnx_layer_type oct_to_onnx_math_layers[] = {
#define X(type, op, args, first, second) {#type, 1, args, write_##type},
    OPERATOR_LIST(X)
#undef X
        {"relu6", 1, 0, relu6},
    {"clip", 1, 2, clip},
    {"silu", 1, 0, silu},
    {"hard_swish", 1, 0, hard_swish},
    {"gelu", 1, 0, gelu},
    {"gelu_tanh", 1, 0, gelu_tanh},
    {"square", 1, 0, square},
    {"add_scalar", 1, 1, add_scalar},
    {"mul_scalar", 1, 1, mul_scalar},
    {"power", 1, 1, power},
    {"add", 2, 0, add},
    {"sub", 2, 0, sub},
    {"mul", 2, 0, mul},
    {"div", 2, 0, divide},
    {"prelu", 1, 1, prelu},
    {"add_parameter", 1, -1, add_parameter},
    {"mul_parameter", 1, -1, mul_parameter},
    {"softmax", 1, 0, softmax},
    {"matmul", 2, 0, matmul},
};
const size_t oct_to_onnx_math_layers_count = OCT_COUNT(oct_to_onnx_math_layers);
