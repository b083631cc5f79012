/* A network of somebody else's, by specs and what octet/nn.h declares alone: a container, and an atomic layer with
 * arguments, a parameter and a backward. */
#pragma once

#include <octet/nn.h>

#include <math.h>

/* y = factor * x * (1 + gain of the channel) */
typedef struct gate_args {
    int64_t channels;
    double factor;
} gate_args;

typedef struct gate_data {
    oct_param *gain; /* (C) */
} gate_data;

static inline void gate_values(const float *x, const float *gain, float factor, int64_t rows,
                               int64_t channels, float *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++)
            y[r * channels + c] = factor * x[r * channels + c] * (1 + gain[c]);
}

/* sums[c] += the terms of rows [first, end) */
static inline void gate_sums(const float *x, const float *dy, float factor, int64_t first,
                             int64_t end, int64_t channels, float *sums)
{
    for (int64_t r = first; r < end; r++)
        for (int64_t c = 0; c < channels; c++)
            sums[c] += factor * dy[r * channels + c] * x[r * channels + c];
}

static inline void gate_backward(oct_context *cx, oct_node *node)
{
    oct_module *self = *(oct_module **)oct_node_saved(node);
    const gate_data *m = (const gate_data *)oct_module_data(self);
    const gate_args *args = (const gate_args *)oct_module_own_args(self);
    const float factor = (float)args->factor;
    oct_tensor *x = oct_node_input(node, 0);
    const int64_t c = oct_tensor_dim(x, -1), rows = oct_tensor_numel(x) / c;
    const int64_t of_sample = rows / oct_tensor_dim(x, 0);
    float *sums = oct_leaf_grads_begin(cx, m->gain);
    if (!sums) return;
    int64_t first, end;
    for (int64_t i = 0; oct_leaf_range(cx, i, &first, &end); i++)
        gate_sums(oct_tensor_values(x), oct_tensor_grad(oct_node_output(node)), factor,
                  first * of_sample, end * of_sample, c, sums + i * c);
    oct_leaf_grads_end(cx, m->gain);
    float *dx = oct_detach_grad(oct_node_output(node));
    gate_values(dx, oct_param_values(m->gain), factor, rows, c, dx);
    oct_add_grad(cx, x, dx);
}

static inline oct_tensor *gate_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                       int n)
{
    const gate_data *m = (const gate_data *)oct_module_data(self);
    const gate_args *args = (const gate_args *)oct_module_own_args(self);
    if (oct_tensor_dtype(x[0]) != OCT_F32 || oct_tensor_dim(x[0], -1) != args->channels)
        return (oct_tensor *)oct_context_fail(cx, OCT_USAGE, "a gate takes %d channels",
                                              (int)args->channels);
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, oct_tensor_shape(x[0]));
    if (!y) return NULL;
    gate_values(oct_tensor_values(x[0]), oct_param_values(m->gain), (float)args->factor,
                oct_tensor_numel(x[0]) / args->channels, args->channels, oct_tensor_values(y));
    oct_node *node = oct_record(cx, "gate", gate_backward, x, n, true, y);
    if (node) oct_param_used(cx, m->gain);
    return oct_node_save(cx, node, &self, sizeof(oct_module *)) ? y : NULL;
}

static inline oct_status gate_init(oct_module *self)
{
    gate_data *m = (gate_data *)oct_module_data(self);
    const gate_args *args = (const gate_args *)oct_module_own_args(self);
    const oct_shape shape = {1, {args->channels}};
    return oct_module_add_param(self, "gain", shape, false, &m->gain);
}

static const oct_arg gate_arguments[] = {
    {"channels", OCT_ARG_INT64, offsetof(gate_args, channels), 1, INFINITY, "# channels", false},
    {"factor", OCT_ARG_DOUBLE, offsetof(gate_args, factor), -8, 8, ", times #", true}};

static const oct_module_spec gate_spec = {.name = "spec_gate",
                                          .data_bytes = sizeof(gate_data),
                                          .forward = gate_forward,
                                          .inputs = 1,
                                          .atomic = true,
                                          .args = gate_arguments,
                                          .num_args = 2,
                                          .args_bytes = sizeof(gate_args),
                                          .init = gate_init};

/* A network around it: convolution, gate, relu, convolution, between stubs. */
typedef struct gated {
    oct_module *quant, *stem, *gate, *head, *dequant;
} gated;

static inline oct_tensor *gated_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                        int n)
{
    gated *m = (gated *)oct_module_data(self);
    (void)n;
    oct_tensor *y = oct_call(cx, m->stem, oct_call(cx, m->quant, x[0]));
    y = oct_relu(cx, oct_call(cx, m->gate, y));
    return oct_call(cx, m->dequant, oct_call(cx, m->head, y));
}

static inline oct_status gated_init(oct_module *self)
{
    gated *m = (gated *)oct_module_data(self);
    const oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 1, 1);
    const gate_args args = {4, 1.5};
    OCT_TRY(oct_module_add(self, "quant", &m->quant, oct_quant_stub_create(&m->quant)));
    OCT_TRY(oct_module_add(self, "stem", &m->stem, oct_conv2d_create(&m->stem, 3, 4, g, true)));
    OCT_TRY(oct_module_add(self, "gate", &m->gate, oct_module_create(&m->gate, &gate_spec, &args)));
    OCT_TRY(oct_module_add(self, "head", &m->head, oct_conv2d_create(&m->head, 4, 5, g, true)));
    return oct_module_add(self, "dequant", &m->dequant, oct_dequant_stub_create(&m->dequant));
}

static const oct_module_spec gated_spec = {.name = "spec_net",
                                           .data_bytes = sizeof(gated),
                                           .forward = gated_forward,
                                           .inputs = 1,
                                           .calls_only = true,
                                           .init = gated_init};
