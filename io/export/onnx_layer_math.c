/* Layers that compute number by number, and products of activations. */
#include "core/nn/module.h"
#include "io/export/onnx_form.h"

#include <math.h>

/* What is computed number by number keeps shape and order. */
static oct_to_onnx_ref shaped_like(const oct_to_onnx_ref *x, const char *name)
{
    return (oct_to_onnx_ref){name, x->tensor};
}

/* A layer that one operator computes, whose attributes are the arguments, by their names. */
static oct_to_onnx_ref write_one_operator(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref *x = &c->input[0];
    const char *y = oct_to_onnx_node_add(w, c->op, 1, &x->name);
    const oct_arg_list *list = oct_module_type_find(c->layer->type)->args;
    for (int i = 0; i < list->count; i++)
        oct_to_onnx_float_set(w, list->arg[i].name, (float)c->layer->args.value[i]);
    return shaped_like(x, y);
}

static oct_to_onnx_ref clip_to(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c, double lo,
                               double hi)
{
    const char *least = isinf(lo) ? "" : oct_to_onnx_scalar(w, (float)lo);
    const char *most = isinf(hi) ? "" : oct_to_onnx_scalar(w, (float)hi);
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, "Clip", c->input[0].name, least, most));
}

static oct_to_onnx_ref write_relu6(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return clip_to(w, c, 0, 6);
}

static oct_to_onnx_ref write_clip(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_clip_args *a = c->args;
    return clip_to(w, c, a->lo, a->hi);
}

static oct_to_onnx_ref write_silu(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *x = c->input[0].name;
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, "Mul", x, OCT_TO_ONNX(w, "Sigmoid", x)));
}

static oct_to_onnx_ref write_hard_swish(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *x = c->input[0].name, *gate = OCT_TO_ONNX(w, "HardSigmoid", x);
    oct_to_onnx_float_set(w, "alpha", 1.0f / 6.0f);
    oct_to_onnx_float_set(w, "beta", 0.5f);
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, "Mul", x, gate));
}

static oct_to_onnx_ref write_square(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
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

static oct_to_onnx_ref write_gelu(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *x =
        OCT_TO_ONNX(w, "Mul", c->input[0].name, oct_to_onnx_scalar(w, (float)M_SQRT1_2));
    return half_with(w, c, OCT_TO_ONNX(w, "Erf", x));
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
static oct_to_onnx_ref write_gelu_tanh(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *x = c->input[0].name, *cube = OCT_TO_ONNX(w, "Mul", OCT_TO_ONNX(w, "Mul", x, x), x);
    const char *sum =
        OCT_TO_ONNX(w, "Add", x, OCT_TO_ONNX(w, "Mul", cube, oct_to_onnx_scalar(w, 0.044715f)));
    const char *scaled =
        OCT_TO_ONNX(w, "Mul", sum, oct_to_onnx_scalar(w, (float)(M_2_SQRTPI * M_SQRT1_2)));
    return half_with(w, c, OCT_TO_ONNX(w, "Tanh", scaled));
}

/* An operator of the input and of the layer's one argument. */
static oct_to_onnx_ref write_with_number(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const char *number = oct_to_onnx_scalar(w, (float)c->layer->args.value[0]);
    return shaped_like(&c->input[0], OCT_TO_ONNX(w, c->op, c->input[0].name, number));
}

oct_to_onnx_ref oct_to_onnx_binary(oct_to_onnx_writer *w, const char *type,
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

static oct_to_onnx_ref write_pair(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    return oct_to_onnx_binary(w, c->op, c->input);
}

static oct_to_onnx_ref write_with_parameter(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    const char *parameter = oct_to_onnx_channel_array(w, c, "weight");
    return shaped_like(&x, OCT_TO_ONNX(w, c->op, x.name, parameter));
}

/* Over the last dimension, the channels, which the file has in another place. */
static oct_to_onnx_ref write_softmax(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_to_onnx_ref x = oct_to_onnx_ordered(w, c->input[0]);
    const int last = x.tensor.shape.ndim - 1;
    const char *y = OCT_TO_ONNX(w, "Softmax", x.name);
    oct_to_onnx_int_set(w, "axis", oct_to_onnx_axis(last + 1, last));
    return shaped_like(&x, y);
}

static oct_to_onnx_ref write_matmul(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    oct_shape out = c->input[0].tensor.shape;
    const oct_shape *b = &c->input[1].tensor.shape;
    const char *y = OCT_TO_ONNX(w, "MatMul", oct_to_onnx_channels_last(w, c->input[0]),
                                oct_to_onnx_channels_last(w, c->input[1]));
    out.dim[out.ndim - 1] = b->dim[b->ndim - 1];
    return oct_to_onnx_channels_first(w, y, out);
}

const oct_to_onnx_layer_type oct_to_onnx_math_layers[] = {
    {"relu", 1, write_one_operator, "Relu"},
    {"sigmoid", 1, write_one_operator, "Sigmoid"},
    {"tanh", 1, write_one_operator, "Tanh"},
    {"softplus", 1, write_one_operator, "Softplus"},
    {"exp", 1, write_one_operator, "Exp"},
    {"logarithm", 1, write_one_operator, "Log"},
    {"sqrt", 1, write_one_operator, "Sqrt"},
    {"abs", 1, write_one_operator, "Abs"},
    {"neg", 1, write_one_operator, "Neg"},
    {"erf", 1, write_one_operator, "Erf"},
    {"reciprocal", 1, write_one_operator, "Reciprocal"},
    {"leaky_relu", 1, write_one_operator, "LeakyRelu"},
    {"elu", 1, write_one_operator, "Elu"},
    {"softsign", 1, write_one_operator, "Softsign"},
    {"thresholded_relu", 1, write_one_operator, "ThresholdedRelu"},
    {"hard_sigmoid", 1, write_one_operator, "HardSigmoid"},
    {"relu6", 1, write_relu6, NULL},
    {"clip", 1, write_clip, NULL},
    {"silu", 1, write_silu, NULL},
    {"hard_swish", 1, write_hard_swish, NULL},
    {"gelu", 1, write_gelu, NULL},
    {"gelu_tanh", 1, write_gelu_tanh, NULL},
    {"square", 1, write_square, NULL},
    {"add_scalar", 1, write_with_number, "Add"},
    {"mul_scalar", 1, write_with_number, "Mul"},
    {"power", 1, write_with_number, "Pow"},
    {"add", 2, write_pair, "Add"},
    {"sub", 2, write_pair, "Sub"},
    {"mul", 2, write_pair, "Mul"},
    {"div", 2, write_pair, "Div"},
    {"prelu", 1, write_with_parameter, "PRelu"},
    {"add_parameter", 1, write_with_parameter, "Add"},
    {"mul_parameter", 1, write_with_parameter, "Mul"},
    {"softmax", 1, write_softmax, NULL},
    {"matmul", 2, write_matmul, NULL},
    {NULL, 0, NULL, NULL},
};
