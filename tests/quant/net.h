/* Small networks for the tests of quant: a list of layers in a sequential, prepared, calibrated, and
 * stepped without a trainer. */
#pragma once

#include "core/base/rng.h"
#include "core/nn/params.h"
#include "quant/convert/convert.h"
#include "tests/support/check_tensor.h"

#include <criterion/criterion.h>

#define OK(call) cr_assert((call) == OCT_OK, "%s", oct_error_count() ? oct_error_message(0) : #call)

#define APPEND(net, create)                                                                        \
    do {                                                                                           \
        oct_module *item = NULL;                                                                   \
        OK(create);                                                                                \
        OK(oct_sequential_append((net)->root, &item));                                             \
    } while (0)

typedef struct net {
    oct_module *root; /* a sequential */
    oct_context *cx;
    oct_params params;
    oct_quantizers quantizers;
    oct_shape input; /* with a batch of 1 */
    oct_leaves leaves;
    float *x; /* leaves.samples inputs */
} net;

static inline void net_begin(net *n, int64_t h, int64_t w, int64_t c, int64_t samples, int64_t leaf)
{
    *n = (net){.input = OCT_SHAPE(1, h, w, c), .leaves = oct_leaves_split(samples, leaf, 0, 1)};
    OK(oct_sequential_create(&n->root));
    OK(oct_context_create(&n->cx, &oct_collective_one));
    n->x = calloc((size_t)(samples * h * w * c), sizeof(float));
    oct_fill_normal(n->x, samples * h * w * c, 5, OCT_STREAM_TEST, 0, 0.2f, 1.0f);
}

static inline void net_end(net *n)
{
    oct_quantizers_free(&n->quantizers);
    oct_params_unbind(&n->params);
    oct_context_destroy(&n->cx);
    oct_module_destroy(&n->root);
    free(n->x);
}

/* Random parameters and running statistics; every third gamma is negative and, with zero_gamma, one is 0. */
static inline oct_status net_randomise(void *user, oct_module *m)
{
    if (m->type != &oct_batch_norm_type) return OCT_OK;
    oct_batch_norm_module *bn = (oct_batch_norm_module *)m;
    for (int64_t c = 0; c < bn->args.channels; c++) {
        oct_f32(&bn->gamma->value)[c] =
            (c % 3 == 1 ? -1.0f : 1.0f) * (0.5f + 0.1f * (float)(c % 7));
        oct_f32(&bn->beta->value)[c] = 0.3f * (float)(c % 5) - 0.5f;
        bn->running_mean[c] = 0.05f * (float)(c % 4) - 0.1f;
        bn->running_var[c] = 0.5f + 0.2f * (float)(c % 3);
    }
    if (*(const bool *)user) oct_f32(&bn->gamma->value)[bn->args.channels - 1] = 0.0f;
    return OCT_OK;
}

static inline oct_status net_prepare(net *n, bool float_output, bool zero_gamma)
{
    OK(oct_init_parameters(n->root, 3));
    OK(oct_module_walk(n->root, net_randomise, &zero_gamma));
    oct_qconfig config = oct_qconfig_default();
    config.float_output = float_output;
    oct_qconfig_setter setter = oct_setter_default(&config);
    oct_prepare_options options = {
        .target = oct_target_find("x86"), .setters = &setter, .num_setters = 1};
    oct_status status = oct_prepare(&n->root, OCT_EXAMPLE(n->input), &options, NULL);
    if (status != OCT_OK) return status;
    OK(oct_params_bind(&n->params, n->root, &n->leaves));
    OK(oct_quantizers_collect(&n->quantizers, n->root));
    return OCT_OK;
}

static inline oct_tensor *net_forward(net *n, bool record)
{
    oct_shape shape = n->input;
    shape.dim[0] = oct_leaves_local_samples(&n->leaves);
    if (record) oct_params_zero(&n->params);
    oct_context_begin(n->cx, n->leaves, record);
    oct_tensor *x = oct_tensor_view(n->cx, OCT_F32, shape, n->x);
    x->needs_grad = record;
    oct_tensor *y = oct_call(n->cx, n->root, x);
    OK(oct_context_status(n->cx));
    return y;
}

static inline void net_update(net *n)
{
    int64_t keys[256];
    oct_quantizers_keys(&n->quantizers, keys);
    OK(oct_quantizers_update(&n->quantizers, keys));
}

/* Calibrates on the input, then enters `state`; batch norm live or frozen. */
static inline void net_enter(net *n, oct_quant_state state, bool frozen)
{
    oct_module_train(n->root, true);
    oct_freeze_batch_norm(n->root, true);
    oct_quantizers_set_state(&n->quantizers, OCT_QUANT_CALIBRATE);
    net_forward(n, false);
    net_update(n);
    oct_freeze_batch_norm(n->root, frozen);
    oct_quantizers_set_state(&n->quantizers, state);
}

/* Backward from a random gradient of the output; totals in n->params.grads. */
static inline void net_backward(net *n, oct_tensor *y)
{
    float *grad = oct_scratch(n->cx, (size_t)oct_numel(y) * 4 + 64);
    oct_fill_normal(grad, oct_numel(y), 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    oct_add_grad(n->cx, y, grad);
    OK(oct_backward(n->cx, y));
    OK(oct_params_reduce(&n->params, &oct_collective_one, &n->leaves));
}

static inline oct_conv_geometry conv3x3(int stride, int groups)
{
    return oct_conv_geometry_of(3, 3, stride, 1, groups);
}
