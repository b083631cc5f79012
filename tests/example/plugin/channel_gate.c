/* A layer with a parameter and a backward: each channel has a gain, which starts at 0.
 *
 *     y = x * (1 + gain)      dx = dy * (1 + gain)      dgain = sum of dy * x
 *
 * It has no integer form, so in a prepared model it stays float between a dequantize and a quantize
 * that prepare puts there.
 */
#include "core/autograd/tape.h"
#include "example.h"

typedef struct channel_gate_args {
    int64_t channels;
} channel_gate_args;

typedef struct channel_gate {
    oct_module base; /* always first */
    oct_param *gain; /* (C) */
    channel_gate_args args;
} channel_gate;

/* The last dimension is the channel. */
static int64_t channels_of(const oct_tensor *x)
{
    return oct_dim(x, x->shape.ndim - 1);
}

static void scale(int64_t rows, int64_t channels, const float *gain, const float *x, float *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++)
            y[r * channels + c] = x[r * channels + c] * (1.0f + gain[c]);
}

/* Sums over samples are taken leaf by leaf, so that no bit depends on how many ranks share them. */
static void backward(oct_context *cx, oct_node *node)
{
    oct_param *gain = *(oct_param **)node->saved;
    oct_tensor *x = node->input[0];
    int64_t channels = channels_of(x), samples = oct_dim(x, 0);
    int64_t positions = samples ? oct_numel(x) / samples / channels : 0;
    const float *dy = node->output->grad;
    float *rows = oct_leaf_grads_begin(cx, gain);
    if (!rows) return;
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t at = oct_leaf_begin(&cx->leaves, i) * positions * channels;
        int64_t end = at + oct_leaf_size(&cx->leaves, i) * positions * channels;
        for (float *row = rows + i * channels; at < end; at += channels)
            for (int64_t c = 0; c < channels; c++)
                row[c] += dy[at + c] * oct_f32(x)[at + c];
    }
    oct_leaf_grads_end(cx, gain);

    float *dx = oct_detach_grad(node->output); /* in place */
    scale(samples * positions, channels, oct_f32(&gain->value), dx, dx);
    oct_add_grad(cx, x, dx);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    channel_gate *m = (channel_gate *)self;
    if (!oct_inputs_ok(cx, x, n)) return NULL;
    int64_t channels = m->args.channels;
    if (x[0]->dtype != OCT_F32 || channels_of(x[0]) != channels)
        return oct_context_fail(cx, OCT_USAGE,
                                "channel_gate takes one float input of %lld channels",
                                (long long)channels);
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x[0]->shape);
    if (!y) return NULL;
    scale(oct_numel(x[0]) / channels, channels, oct_f32(&m->gain->value), oct_f32(x[0]),
          oct_f32(y));
    oct_node *node = oct_record(cx, "channel_gate", backward, x, 1, true, y);
    if (node) {
        oct_param **saved = node->saved = oct_save(cx, sizeof *saved);
        if (!saved) return NULL;
        *saved = m->gain;
        oct_param_used(cx, m->gain);
    }
    return y;
}

/* What the layer is made from, in code and in files: a deployed model makes it again from this list. */
static const oct_arg arguments[] = {
    OCT_ARG(channel_gate_args, channels, .least = 1, .most = INT32_MAX, .text = "# channels")};
static const oct_arg_list argument_list = OCT_ARG_LIST(arguments, channel_gate_args);

/* The arguments are set, and within their bounds. */
static oct_status init(oct_module *self)
{
    channel_gate *m = (channel_gate *)self;
    return oct_module_add_param(self, "gain", OCT_SHAPE(m->args.channels), false, &m->gain);
}

const oct_module_type channel_gate_type = {
    .name = "channel_gate",
    .forward = forward,
    .inputs = 1,
    .atomic = true,
    OCT_MODULE_ARGS(argument_list, channel_gate),
    .init = init,
};

oct_status channel_gate_create(oct_module **m, int64_t channels)
{
    return oct_module_make(m, &channel_gate_type, &(channel_gate_args){channels});
}
