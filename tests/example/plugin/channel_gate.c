/* A layer with a parameter and a backward: each channel has a gain, which starts at 0.
 *
 *     y = x * (1 + gain)      dx = dy * (1 + gain)      dgain = sum of dy * x
 *
 * It has no integer form, so in a prepared model it stays float between a dequantize and a quantize
 * that prepare puts there.
 */
#include "example.h"

typedef struct gate_args {
    int64_t channels;
} gate_args;

typedef struct gate {
    oct_param *gain; /* (C) */
} gate;

static void scale(int64_t rows, int64_t channels, const float *gain, const float *x, float *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++)
            y[r * channels + c] = x[r * channels + c] * (1.0f + gain[c]);
}

/* Sums over samples are taken leaf by leaf, so that no bit depends on how many ranks share them. */
static void backward(oct_context *cx, oct_node *node)
{
    oct_param *gain = *(oct_param **)oct_node_saved(node);
    oct_tensor *x = oct_node_input(node, 0), *y = oct_node_output(node);
    const float *dy = oct_tensor_grad(y), *values = oct_tensor_values(x);
    const int64_t channels = oct_tensor_dim(x, -1), samples = oct_tensor_dim(x, 0);
    const int64_t size = samples ? oct_tensor_numel(x) / samples : 0;
    float *sums = oct_leaf_grads_begin(cx, gain);
    if (!sums) return;
    for (int64_t i = 0, first, end; oct_leaf_range(cx, i, &first, &end); i++, sums += channels)
        for (int64_t at = first * size; at < end * size; at += channels)
            for (int64_t c = 0; c < channels; c++)
                sums[c] += dy[at + c] * values[at + c];
    oct_leaf_grads_end(cx, gain);

    float *dx = oct_detach_grad(y); /* in place */
    scale(samples * size / channels, channels, oct_param_values(gain), dx, dx);
    oct_add_grad(cx, x, dx);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    gate *m = oct_module_data(self);
    const gate_args *args = oct_module_own_args(self);
    if (!oct_inputs_ok(cx, x, n)) return NULL;
    const float *values = oct_tensor_values(x[0]);
    if (!values || oct_tensor_dim(x[0], -1) != args->channels)
        return oct_context_fail(cx, OCT_USAGE,
                                "channel_gate takes one float input of %lld channels",
                                (long long)args->channels);
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, oct_tensor_shape(x[0]));
    if (!y) return NULL;
    scale(oct_tensor_numel(x[0]) / args->channels, args->channels, oct_param_values(m->gain),
          values, oct_tensor_values(y));
    oct_node *node = oct_record(cx, "channel_gate", backward, x, 1, true, y);
    if (!oct_node_save(cx, node, &m->gain, sizeof m->gain)) return NULL;
    if (node) oct_param_used(cx, m->gain);
    return y;
}

/* What the layer is made from, in code and in files: a deployed model makes it again from this list. */
static const oct_arg arguments[] = {{.name = "channels",
                                     .type = OCT_ARG_INT64,
                                     .offset = offsetof(gate_args, channels),
                                     .least = 1,
                                     .most = INT32_MAX,
                                     .text = "# channels"}};

/* The arguments are set, and within their bounds. */
static oct_status init(oct_module *self)
{
    gate *m = oct_module_data(self);
    const gate_args *args = oct_module_own_args(self);
    const oct_shape shape = {.ndim = 1, .dim = {args->channels}};
    return oct_module_add_param(self, "gain", shape, false, &m->gain);
}

const oct_module_spec channel_gate = {
    .name = "channel_gate",
    .data_bytes = sizeof(gate),
    .forward = forward,
    .inputs = 1,
    .atomic = true,
    .args = arguments,
    .num_args = 1,
    .args_bytes = sizeof(gate_args),
    .init = init,
};

oct_status channel_gate_create(oct_module **m, int64_t channels)
{
    return oct_module_create(m, &channel_gate, &(gate_args){channels});
}
