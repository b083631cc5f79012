/* Live batch norm of quantized layers in groups: each group is computed as a batch of its own would be, bit for bit,
 * and what is added to parameters is the sum along the tree. */
#include "core/op/norm_groups.h"
#include "tests/quant/net.h"

TestSuite(qat_norm_groups, .timeout = 60);

enum { H = 6, SAMPLES = 16, LEAF = 2, OUT = 10, IMAGE = H * H * 5 };

typedef struct form {
    float
        gamma; /* of the last channel; next to 0 it is carried by its bias alone, in some groups */
    oct_hold hold; /* of accumulators */
} form;

/* A convolution with batch norm and relu, a depthwise one with batch norm, and a batch norm on its own. */
static void build(net *n)
{
    net_begin(n, H, H, 5, SAMPLES, LEAF);
    APPEND(n, oct_conv2d_create(&item, 5, OUT, conv3x3(1, 1), false));
    APPEND(n, oct_batch_norm_create(&item, OUT));
    APPEND(n, oct_relu_create(&item));
    APPEND(n, oct_batch_norm_create(&item, OUT));
    APPEND(n, oct_conv2d_create(&item, OUT, OUT, conv3x3(1, OUT), true));
    APPEND(n, oct_batch_norm_create(&item, OUT));
    OK(net_prepare(n, false, false));
    for (int64_t i = SAMPLES / 2 * IMAGE; i < SAMPLES * IMAGE; i++)
        n->x[i] *= 3; /* so that groups have other gains */
}

static oct_status set_form(void *user, oct_module *m)
{
    const form *f = user;
    if (m->type == &oct_qat_conv_type) ((oct_qat_conv *)m)->hold = f->hold;
    if (m->type == &oct_batch_norm_type)
        oct_f32(&((oct_batch_norm_module *)m)->gamma->value)[OUT - 1] = f->gamma;
    return OCT_OK;
}

/* Forward and backward of samples [first, first + count); gradients of the parameters to grads. */
static void train_step(net *n, int64_t first, int64_t count, float *y, float *grads)
{
    float *all = n->x;
    n->leaves = oct_leaves_split(count, LEAF, 0, 1);
    n->x += first * IMAGE;
    oct_tensor *out = net_forward(n, true);
    n->x = all;
    const int64_t numel = oct_numel(out), each = numel / count;
    memcpy(y + first * each, oct_f32(out), (size_t)numel * sizeof *y);
    float *grad = oct_scratch(n->cx, (size_t)numel * sizeof *grad);
    for (int64_t i = 0; i < count; i += SAMPLES / 2)
        oct_fill_normal(grad + i * each, SAMPLES / 2 * each, 11, OCT_STREAM_TEST,
                        (uint32_t)(first + i), 0.0f, 1.0f);
    oct_add_grad(n->cx, out, grad);
    OK(oct_backward(n->cx, out));
    OK(oct_params_reduce(&n->params, &oct_collective_one, &n->leaves));
    memcpy(grads, n->params.grads, (size_t)n->params.numel * sizeof *grads);
}

static void check_form(const form *f)
{
    net n;
    static float whole[SAMPLES * H * H * OUT], parts[SAMPLES * H * H * OUT];
    build(&n);
    net_enter(&n, OCT_QUANT_QAT, false);
    OK(oct_module_walk(n.root, set_form, (void *)(uintptr_t)f));
    const size_t bytes = (size_t)n.params.numel * sizeof(float);
    float *grads = malloc(3 * bytes), *left = grads + n.params.numel,
          *right = left + n.params.numel;
    n.cx->norm_group = SAMPLES / 2 / LEAF;
    train_step(&n, 0, SAMPLES, whole, grads);
    n.cx->norm_group = 0;
    train_step(&n, 0, SAMPLES / 2, parts, left);
    train_step(&n, SAMPLES / 2, SAMPLES / 2, parts, right);
    oct_check_bits_f32(whole, parts, OCT_COUNT(whole), "outputs");
    for (int64_t i = 0; i < n.params.numel; i++)
        left[i] += right[i];
    oct_check_bits_f32(grads, left, n.params.numel, "gradients");
    free(grads);
    net_end(&n);
}

static const oct_hold holds[] = {OCT_HOLD_BY_SHAPE, OCT_HOLD_NEVER, OCT_HOLD_ALWAYS};

Test(qat_norm_groups, are_batches_by_themselves)
{
    for (size_t h = 0; h < OCT_COUNT(holds); h++)
        check_form(&(form){0.7f, holds[h]});
}

Test(qat_norm_groups, with_channels_carried_by_their_bias)
{
    for (size_t h = 0; h < OCT_COUNT(holds); h++) {
        check_form(&(form){0, holds[h]});
        for (int e = -34; e < -18; e++)
            check_form(&(form){ldexpf(1, e), holds[h]});
    }
}
