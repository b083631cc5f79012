/* Ops against PyTorch's values, at their edges, and in the sentences with which they refuse. */
#include "tests/core/op_rig.h"
#include "tests/support/cross_entropy.h"
#include "tests/golden/core_golden.h"

#include <math.h>
#include <omp.h>

/* Sums of up to a hundred floats of order 1, in another order than PyTorch's. */
static const double near = 2e-5;

#define CHECK_GOLDEN(got, want)                                                                    \
    oct_check_near_f32((got), (want), (int64_t)OCT_COUNT(want), near, near, #want)

static void set_values(void *to, const float *from, size_t count)
{
    memcpy(to, from, count * sizeof(float));
}
#define SET(to, from) set_values((to), (from), OCT_COUNT(from))

static void add_input(rig *r, oct_shape shape, const float *values)
{
    rig_input(r, shape, 1);
    set_values(r->input[r->num_inputs - 1].data, values, (size_t)oct_shape_numel(&shape));
}

typedef oct_status (*conv_create)(oct_module **m, int64_t in, int64_t out, oct_conv_geometry g,
                                  bool bias);

static rig conv_rig(conv_create create, oct_shape x, const float *values, int64_t out,
                    oct_conv_geometry g, const float *w, const float *b)
{
    oct_module *m;
    RIG_OK(create(&m, x.dim[3], out, g, true));
    oct_conv2d_module *conv = (oct_conv2d_module *)m;
    rig r = rig_of(m, rig_call_root, x.dim[0], 2);
    set_values(conv->weight->value.data, w, (size_t)oct_numel(&conv->weight->value));
    set_values(conv->bias->value.data, b, (size_t)out);
    add_input(&r, x, values);
    return r;
}

#define CHECK_GOLDEN_CONV(name, create, shape, out, ...)                                           \
    do {                                                                                           \
        rig r = conv_rig(create, shape, golden_##name##_x, out, __VA_ARGS__, golden_##name##_w,    \
                         golden_##name##_b);                                                       \
        oct_tensor *y = rig_run(&r, true);                                                         \
        cr_assert(y, "%s", oct_error_message(0));                                                  \
        cr_assert_eq(oct_numel(y), (int64_t)OCT_COUNT(golden_##name##_y));                         \
        CHECK_GOLDEN(oct_f32(y), golden_##name##_y);                                               \
        rig_backward(&r, y, golden_##name##_grad_y);                                               \
        CHECK_GOLDEN(r.input[0].grad, golden_##name##_grad_x);                                     \
        CHECK_GOLDEN(r.params.items[0]->grad, golden_##name##_grad_w);                             \
        CHECK_GOLDEN(r.params.items[1]->grad, golden_##name##_grad_b);                             \
        rig_end(&r);                                                                               \
    } while (0)

/* y and gradients of a linear layer of `ins` inputs, which begins with -1. */
static void run_linear(bool bf16, bool record, int64_t ins, float *y, float grad[2])
{
    oct_module *m;
    RIG_OK(oct_linear_create(&m, ins, 3, true));
    rig r = rig_of(m, rig_call_root, 4, 2);
    rig_input(&r, OCT_SHAPE(4, ins), 0.013F);
    r.cx->float_bf16 = bf16;
    const oct_tensor *out = rig_run(&r, record);
    memcpy(y, oct_f32(out), 12 * sizeof *y);
    if (record) {
        rig_backward(&r, (oct_tensor *)(uintptr_t)out, y);
        grad[0] = r.input[0].grad[0];
        grad[1] = r.params.items[0]->grad[0];
    }
    rig_end(&r);
}

/* What learns rounds operands to 8 bits, unless the sums are short. Values are below 0.85, weights below 2.5. */
Test(ops, a_layer_that_learns_multiplies_in_bfloat16_where_it_is_to)
{
    float exact[12], y[12], exact_grad[2], grad[2];
    for (int64_t ins = 31; ins <= 32; ins++) {
        run_linear(false, true, ins, exact, exact_grad);
        run_linear(true, false, ins, y, NULL);
        oct_check_bits_f32(y, exact, OCT_COUNT(y), "evaluation");
        run_linear(true, true, ins, y, grad);
        if (ins == 31) {
            oct_check_bits_f32(y, exact, OCT_COUNT(y), "short sums");
            oct_check_bits_f32(grad, exact_grad, OCT_COUNT(grad), "their gradients");
            continue;
        }
        cr_assert_neq(memcmp(y, exact, sizeof y), 0);
        cr_assert(grad[0] != exact_grad[0] && grad[1] != exact_grad[1]);
        /* Each operand is off by 2^-9 of itself at most, so a product by little more than 2^-8. */
        for (size_t i = 0; i < OCT_COUNT(y); i++)
            cr_assert_float_eq((double)y[i], (double)exact[i], 32 * 0.85 * 2.5 * 0x1.1p-8);
    }
}

Test(ops, convolutions_agree_with_pytorch)
{
    CHECK_GOLDEN_CONV(conv, oct_conv2d_create, OCT_SHAPE(3, 7, 6, 3), 4,
                      oct_conv_geometry_of(3, 3, 2, 1, 1));
    CHECK_GOLDEN_CONV(conv_groups, oct_conv2d_create, OCT_SHAPE(3, 9, 8, 4), 6,
                      oct_conv_geometry_of(3, 3, 1, 1, 2));
    CHECK_GOLDEN_CONV(conv_depth, oct_conv2d_create, OCT_SHAPE(3, 5, 6, 4), 4,
                      oct_conv_geometry_of(3, 3, 1, 1, 4));
}

Test(ops, transposed_convolutions_agree_with_pytorch)
{
    CHECK_GOLDEN_CONV(conv_transpose, oct_conv_transpose2d_create, OCT_SHAPE(3, 4, 3, 3), 4,
                      oct_conv_geometry_of(4, 4, 2, 1, 1));
    CHECK_GOLDEN_CONV(conv_transpose_one, oct_conv_transpose2d_create, OCT_SHAPE(2, 4, 3, 3), 2,
                      oct_conv_geometry_of(3, 3, 1, 0, 1));
}

RIG_FORWARD(add_scalar_of, oct_add_scalar(cx, x[0], 0.3))
RIG_FORWARD(mul_scalar_of, oct_mul_scalar(cx, x[0], -1.7))
RIG_FORWARD(mul_of, oct_mul(cx, x[0], x[1]))
RIG_FORWARD(sigmoid_of, oct_sigmoid(cx, x[0]))
RIG_FORWARD(silu_of, oct_silu(cx, x[0]))
RIG_FORWARD(hard_swish_of, oct_hard_swish(cx, x[0]))
RIG_FORWARD(leaky_relu_of, oct_leaky_relu(cx, x[0], 0.125))
RIG_FORWARD(softmax_of, oct_softmax(cx, x[0]))
RIG_FORWARD(nearest_of, oct_interpolate(cx, x[0], 3, 10, OCT_NEAREST))
RIG_FORWARD(bilinear_of, oct_interpolate(cx, x[0], 3, 10, OCT_BILINEAR))
RIG_FORWARD(bilinear_up_of, oct_interpolate(cx, x[0], 8, 6, OCT_BILINEAR))

#define CHECK_GOLDEN_FUNCTION(name, shape)                                                         \
    do {                                                                                           \
        rig r = rig_of(NULL, name##_of, (shape).dim[0], 2);                                        \
        add_input(&r, shape, golden_##name##_x0);                                                  \
        oct_tensor *y = rig_run(&r, true);                                                         \
        cr_assert(y, "%s", oct_error_message(0));                                                  \
        cr_assert_eq(oct_numel(y), (int64_t)OCT_COUNT(golden_##name##_y));                         \
        CHECK_GOLDEN(oct_f32(y), golden_##name##_y);                                               \
        rig_backward(&r, y, golden_##name##_grad_y);                                               \
        CHECK_GOLDEN(r.input[0].grad, golden_##name##_grad_x0);                                    \
        rig_end(&r);                                                                               \
    } while (0)

Test(ops, elementwise_functions_agree_with_pytorch)
{
    CHECK_GOLDEN_FUNCTION(sigmoid, OCT_SHAPE(3, 7));
    CHECK_GOLDEN_FUNCTION(silu, OCT_SHAPE(3, 7));
    CHECK_GOLDEN_FUNCTION(hard_swish, OCT_SHAPE(3, 7));
    CHECK_GOLDEN_FUNCTION(leaky_relu, OCT_SHAPE(3, 7));
    CHECK_GOLDEN_FUNCTION(add_scalar, OCT_SHAPE(3, 7));
    CHECK_GOLDEN_FUNCTION(mul_scalar, OCT_SHAPE(3, 7));
}

Test(ops, a_product_agrees_with_pytorch)
{
    rig r = rig_of(NULL, mul_of, 3, 2);
    add_input(&r, OCT_SHAPE(3, 7), golden_mul_x0);
    add_input(&r, OCT_SHAPE(3, 7), golden_mul_x1);
    oct_tensor *y = rig_run(&r, true);
    CHECK_GOLDEN(oct_f32(y), golden_mul_y);
    rig_backward(&r, y, golden_mul_grad_y);
    CHECK_GOLDEN(r.input[0].grad, golden_mul_grad_x0);
    CHECK_GOLDEN(r.input[1].grad, golden_mul_grad_x1);
    rig_end(&r);
}

Test(ops, softmax_and_interpolations_agree_with_pytorch)
{
    CHECK_GOLDEN_FUNCTION(softmax, OCT_SHAPE(4, 9));
    CHECK_GOLDEN_FUNCTION(nearest, OCT_SHAPE(2, 4, 5, 3));
    CHECK_GOLDEN_FUNCTION(bilinear, OCT_SHAPE(2, 4, 5, 3));
    CHECK_GOLDEN_FUNCTION(bilinear_up, OCT_SHAPE(2, 4, 3, 2));
}

Test(ops, softmax_survives_large_values_and_keeps_nan)
{
    rig r = rig_of(NULL, softmax_of, 2, 2);
    add_input(&r, OCT_SHAPE(2, 3), (float[]){3e4F, -3e4F, 3e4F, NAN, 0, 1});
    const float *y = oct_f32(rig_run(&r, false));
    oct_check_bits_f32(y, (float[]){0.5F, 0, 0.5F}, 3, "large values");
    cr_assert(isnan(y[3]) && isnan(y[4]) && isnan(y[5]), "a NaN among the values is hidden");
    rig_end(&r);
}

RIG_FORWARD(soft_loss_of, oct_cross_entropy_loss(cx, x[0], x[1], 0))
RIG_FORWARD(soft_loss_smooth_of,
            oct_cross_entropy_loss(cx, x[0], oct_softmax(cx, x[1]), (double)0.1F))
RIG_FORWARD(seed_loss_of, oct_cross_entropy_loss(cx, oct_softmax(cx, x[0]), x[1], 0))

#define CHECK_GOLDEN_LOSS(name)                                                                    \
    do {                                                                                           \
        rig r = rig_of(NULL, name##_of, 6, 4);                                                     \
        add_input(&r, OCT_SHAPE(6, 5), golden_##name##_x0);                                        \
        add_input(&r, OCT_SHAPE(6, 5), golden_##name##_x1);                                        \
        oct_tensor *y = rig_run(&r, true);                                                         \
        cr_assert(y, "%s", oct_error_message(0));                                                  \
        cr_assert_eq(y->shape.ndim, 0);                                                            \
        CHECK_GOLDEN(oct_f32(y), golden_##name##_y);                                               \
        rig_backward(&r, y, golden_##name##_grad_y);                                               \
        CHECK_GOLDEN(r.input[0].grad, golden_##name##_grad_x0);                                    \
        CHECK_GOLDEN(r.input[1].grad, golden_##name##_grad_x1);                                    \
        rig_end(&r);                                                                               \
    } while (0)

Test(ops, losses_of_probabilities_agree_with_pytorch)
{
    CHECK_GOLDEN_LOSS(soft_loss);
    CHECK_GOLDEN_LOSS(soft_loss_smooth);
    CHECK_GOLDEN_LOSS(seed_loss);
}

RIG_FORWARD(argmax_of, oct_argmax(cx, x[0]))

Test(ops, argmax_agrees_with_pytorch_also_where_maxima_tie)
{
    rig r = rig_of(NULL, argmax_of, 12, 8);
    add_input(&r, OCT_SHAPE(12, 6), golden_argmax_x);
    const oct_tensor *y = rig_run(&r, true); /* recording, though no gradient goes back */
    cr_assert(y, "%s", oct_error_message(0));
    cr_assert_eq(y->dtype, OCT_S32);
    cr_assert(y->shape.ndim == 1 && oct_dim(y, 0) == 12);
    cr_assert(!y->needs_grad && !y->node);
    for (int i = 0; i < 12; i++)
        cr_assert_eq(((const int32_t *)y->data)[i], (int32_t)golden_argmax_y[i], "row %d", i);
    rig_end(&r);
}

/* As the definition says: the first place that none is larger than. */
static int32_t first_largest(const uint16_t *codes, int n)
{
    for (int i = 0; i < n; i++) {
        bool largest = true;
        for (int k = 0; k < n; k++)
            largest &= codes[k] <= codes[i];
        if (largest) return i;
    }
    return -1;
}

Test(ops, argmax_of_codes_takes_the_first_of_equal_ones)
{
    enum { ROWS = 2 * 7 * 9, WIDE = 5 };
    uint16_t words[ROWS * WIDE];
    uint8_t bytes[ROWS * WIDE];
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(2, 8, 0, 1), false);
    for (int i = 0; i < ROWS * WIDE; i++) {
        int drawn = (int)(golden_argmax_x[i % 12] + 3) % 4 + (i * 7919) % 3;
        bytes[i] = (uint8_t)(250 + drawn);
        words[i] = (uint16_t)(i % 3 ? 65530 + drawn : 255 + drawn);
    }
    for (int wide = 0; wide < 2; wide++) {
        oct_tensor x = {.dtype = wide ? OCT_U16 : OCT_U8,
                        .shape = OCT_SHAPE(2, 7, 9, WIDE),
                        .data = wide ? (void *)words : bytes,
                        .trace_value = -1,
                        .graph_value = -1};
        const oct_tensor *y = oct_argmax(cx, &x);
        oct_shape want = OCT_SHAPE(2, 7, 9);
        cr_assert(y && oct_shape_equal(&y->shape, &want), "%s", oct_error_message(0));
        for (int r = 0; r < ROWS; r++) {
            uint16_t row[WIDE];
            for (int i = 0; i < WIDE; i++)
                row[i] = wide ? words[r * WIDE + i] : bytes[r * WIDE + i];
            cr_assert_eq(((const int32_t *)y->data)[r], first_largest(row, WIDE));
        }
    }
    oct_context_destroy(&cx);
}

/* Two losses in one, as a forward may end. */
static oct_tensor *two_losses(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    (void)root, (void)n;
    oct_tensor *a = oct_cross_entropy_loss(cx, x[0], x[1], 0);
    return oct_add(cx, oct_mul_scalar(cx, a, 0.5), oct_cross_entropy_loss(cx, x[0], x[2], 0.1));
}

Test(ops, a_loss_counts_on_like_any_number)
{
    rig r = rig_of(NULL, two_losses, 6, 4);
    float numbers[6] = {0, 4, 2, 2, 1, 3}, *grad[3], total, one = 1;
    add_input(&r, OCT_SHAPE(6, 5), golden_soft_loss_x0);
    add_input(&r, OCT_SHAPE(6, 5), golden_soft_loss_x1);
    add_input(&r, OCT_SHAPE(6), numbers);
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s", oct_error_message(0));
    total = oct_f32(y)[0];
    rig_backward(&r, y, &one);
    cr_assert_null(r.input[2].grad, "a class number got a gradient");
    grad[0] = rig_take(30, sizeof(float));
    set_values(grad[0], r.input[0].grad, 30);

    /* The same from each loss alone; numbers as s32 this time. */
    int32_t labels_of_x2[6];
    for (int i = 0; i < 6; i++)
        labels_of_x2[i] = (int32_t)numbers[i];
    for (int k = 0; k < 2; k++) {
        oct_tensor whole = {.dtype = OCT_S32, .shape = OCT_SHAPE(6), .data = labels_of_x2};
        oct_context_begin(r.cx, r.leaves, true);
        r.input[0].grad = r.input[1].grad = NULL; /* those of before ended with their run */
        oct_tensor *x = &r.input[0], *target = k ? &whole : &r.input[1];
        y = oct_cross_entropy_loss(r.cx, x, target, k ? 0.1 : 0);
        cr_assert(y, "%s", oct_error_message(0));
        total -= oct_f32(y)[0] * (k ? 1.0F : 0.5F);
        rig_backward(&r, y, NULL);
        grad[k + 1] = rig_take(30, sizeof(float));
        set_values(grad[k + 1], r.input[0].grad, 30);
    }
    cr_assert_float_eq((double)total, 0, 1e-5);
    for (int i = 0; i < 30; i++)
        cr_assert_float_eq((double)grad[0][i], 0.5 * (double)grad[1][i] + (double)grad[2][i], 1e-6);
    for (int k = 0; k < 3; k++)
        oct_free(&grad[k]);
    rig_end(&r);
}

static rig bn_rig(bool training)
{
    oct_module *m;
    RIG_OK(oct_batch_norm_create(&m, 3));
    oct_module_train(m, training);
    rig r = rig_of(m, rig_call_root, 5, 2);
    SET(r.params.items[0]->value.data, golden_bn_gamma);
    SET(r.params.items[1]->value.data, golden_bn_beta);
    add_input(&r, OCT_SHAPE(5, 2, 3, 3), golden_bn_x);
    return r;
}

Test(ops, batch_norm_agrees_with_pytorch_in_training)
{
    rig r = bn_rig(true);
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)r.root;
    oct_tensor *y = rig_run(&r, true);
    CHECK_GOLDEN(oct_f32(y), golden_bn_y);
    rig_backward(&r, y, golden_bn_grad_y);
    CHECK_GOLDEN(r.input[0].grad, golden_bn_grad_x);
    CHECK_GOLDEN(r.params.items[0]->grad, golden_bn_grad_gamma);
    CHECK_GOLDEN(r.params.items[1]->grad, golden_bn_grad_beta);
    CHECK_GOLDEN(bn->running_mean, golden_bn_mean);
    CHECK_GOLDEN(bn->running_var, golden_bn_var);
    rig_end(&r);
}

/* Readers of a batch norm's output, and of its sum with x, that compute it as they need it. */
static oct_tensor *read_norm(oct_context *cx, oct_module *root, oct_tensor *const *x, int which)
{
    oct_tensor *n = oct_module_call(cx, root, x, 1), *m = oct_module_call(cx, root, x, 1);
    oct_tensor *const y[] = {oct_relu(cx, n),
                             oct_relu6(cx, n),
                             oct_add(cx, n, x[0]),
                             oct_relu(cx, oct_add(cx, x[0], n)),
                             oct_relu6(cx, oct_add(cx, n, m)), /* two of them */
                             oct_add(cx, oct_add(cx, n, x[0]), m),
                             oct_add(cx, m, m),
                             oct_mul(cx, n, n),
                             n};
    return which < (int)OCT_COUNT(y) ? y[which] : NULL;
}

enum { NORM_READERS = 9 };
static int reader;
RIG_FORWARD(read_norm_first, read_norm(cx, root, x, reader))

/* Without a tape it is computed at once. All readers are there in each forward, so some read it after others. */
Test(ops, what_reads_a_batch_norm_has_the_bits_of_one_that_is_computed_at_once)
{
    for (reader = 0; reader < NORM_READERS; reader++) {
        rig r = bn_rig(true);
        r.forward = read_norm_first;
        float want[90];
        oct_tensor *y = rig_run(&r, false);
        cr_assert_eq(oct_numel(y), (int64_t)OCT_COUNT(want));
        memcpy(want, oct_f32(y), sizeof want);
        y = rig_run(&r, true);
        oct_check_bits_f32(oct_f32(y), want, OCT_COUNT(want), "y");
        rig_end(&r);
    }
}

/* Both norms are read by a relu, one of them in a sum; then by the test too, if `all`. */
static size_t taken_by_readers(bool all)
{
    rig r = bn_rig(true);
    oct_context_begin(r.cx, r.leaves, true);
    oct_tensor *x[] = {&r.input[0]}, *n = oct_module_call(r.cx, r.root, x, 1);
    oct_tensor *sum = oct_add(r.cx, x[0], oct_module_call(r.cx, r.root, x, 1));
    cr_assert(oct_relu(r.cx, n) && oct_relu(r.cx, sum));
    if (all) cr_assert(oct_tensor_values(n) && oct_tensor_values(sum));
    const size_t taken = oct_arena_mark(r.cx->arena);
    rig_end(&r);
    return taken;
}

Test(ops, what_relu_alone_reads_of_a_batch_norm_takes_no_memory)
{
    cr_assert_eq(taken_by_readers(true) - taken_by_readers(false),
                 2 * oct_cache_aligned(90 * sizeof(float)));
}

Test(ops, batch_norm_agrees_with_pytorch_in_evaluation)
{
    rig r = bn_rig(false);
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)r.root;
    SET(bn->running_mean, golden_bn_mean);
    SET(bn->running_var, golden_bn_var);
    CHECK_GOLDEN(oct_f32(rig_run(&r, false)), golden_bn_eval_y);
    CHECK_GOLDEN(bn->running_mean, golden_bn_mean);
    rig_end(&r);
}

RIG_FORWARD(max_pool_of, oct_max_pool(cx, x[0], oct_pool_geometry_of(3, 2, 1)))
RIG_FORWARD(avg_pool_of, oct_avg_pool(cx, x[0], oct_pool_geometry_of(2, 2, 0)))

#define CHECK_GOLDEN_POOL(name)                                                                    \
    do {                                                                                           \
        rig r = rig_of(NULL, name##_of, 2, 1);                                                     \
        add_input(&r, OCT_SHAPE(2, 7, 6, 2), golden_##name##_x);                                   \
        oct_tensor *y = rig_run(&r, true);                                                         \
        cr_assert_eq(oct_numel(y), (int64_t)OCT_COUNT(golden_##name##_y));                         \
        CHECK_GOLDEN(oct_f32(y), golden_##name##_y);                                               \
        rig_backward(&r, y, golden_##name##_grad_y);                                               \
        CHECK_GOLDEN(r.input[0].grad, golden_##name##_grad_x);                                     \
        rig_end(&r);                                                                               \
    } while (0)

Test(ops, pools_agree_with_pytorch_also_where_maxima_tie)
{
    CHECK_GOLDEN_POOL(max_pool);
    CHECK_GOLDEN_POOL(avg_pool);
}

static int32_t labels[6] = {0, 4, 2, 2, 1, 3};
static oct_loss loss;

RIG_FORWARD(cross_entropy_of, oct_cross_entropy(cx, x[0], labels, 0.1F, &loss))

Test(ops, cross_entropy_with_smoothing_agrees_with_pytorch)
{
    rig r = rig_of(NULL, cross_entropy_of, 6, 4);
    add_input(&r, OCT_SHAPE(6, 5), golden_ce_z);
    oct_tensor *y = rig_run(&r, true);
    CHECK_GOLDEN(oct_f32(y), golden_ce_loss);
    cr_assert_float_eq(loss.loss_sum / 6, (double)golden_ce_loss[0], near);
    rig_backward(&r, y, NULL);
    CHECK_GOLDEN(r.input[0].grad, golden_ce_grad);
    rig_end(&r);
}

Test(ops, cross_entropy_survives_large_logits)
{
    rig r = rig_of(NULL, cross_entropy_of, 3, 2);
    add_input(&r, OCT_SHAPE(3, 5),
              (float[]){1e4F, 0, 0, 0, 0, 0, -1e4F, 0, 0, 1e4F, 0, 0, 1, 0, 3e4F});
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y);
    cr_assert(isfinite(loss.loss_sum));
    rig_backward(&r, y, NULL);
    for (int64_t i = 0; i < 15; i++)
        cr_assert(isfinite(r.input[0].grad[i]));
    rig_end(&r);
}

Test(ops, a_label_out_of_range_names_the_sample)
{
    rig r = rig_of(NULL, cross_entropy_of, 6, 4);
    add_input(&r, OCT_SHAPE(6, 5), golden_ce_z);
    labels[4] = 5;
    cr_assert_null(rig_run(&r, true));
    cr_assert_eq(oct_context_status(r.cx), OCT_DATA);
    cr_assert_str_eq(oct_error_message(0),
                     "sample 4 of the batch has label 5, but the model has 5 classes; "
                     "labels must be 0 to 4");
    labels[4] = -1;
    cr_assert_null(rig_run(&r, true));
    cr_assert(strstr(oct_error_message(0), "label -1"));
    float given[6] = {0, 4, 2.5F, 2, 1, 3};
    oct_tensor target = {.shape = OCT_SHAPE(6), .data = given};
    oct_context_begin(r.cx, r.leaves, true);
    cr_assert_null(oct_cross_entropy_loss(r.cx, &r.input[0], &target, 0));
    cr_assert(
        strstr(oct_error_message(0), "sample 2 of the batch has label 2.5, but the model has 5"));
    rig_end(&r);
}

/* The other rank's part of a sum, as a collective of two ranks would add it. */
static oct_status sum_with_bad_peer(const oct_collective *self, const oct_leaves *leaves,
                                    void *parts, int64_t n, size_t width, void *out)
{
    (void)self, (void)leaves, (void)width;
    for (int64_t i = 0; i < n; i++)
        ((double *)out)[i] = ((double *)parts)[i] + (i == n - 1 ? 1 : 0);
    return OCT_OK;
}

Test(ops, a_bad_label_on_another_rank_fails_here_too)
{
    rig r = rig_of(NULL, cross_entropy_of, 6, 8);
    add_input(&r, OCT_SHAPE(6, 5), golden_ce_z);
    oct_collective two = oct_collective_one;
    two.tree_sum = sum_with_bad_peer;
    r.cx->group = &two;
    cr_assert_null(rig_run(&r, true));
    cr_assert_eq(oct_context_status(r.cx), OCT_PEER);
    rig_end(&r);
}

Test(ops, activations_keep_nan_and_stop_gradients_at_their_bounds)
{
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 8, 0, 1), true);
    float values[] = {-1, 0, 0.5F, 6, 7, NAN};
    oct_tensor x = {
        .shape = OCT_SHAPE(1, 6), .data = values, .needs_grad = true, .trace_value = -1};
    oct_tensor *relu = oct_relu(cx, &x), *relu6 = oct_relu6(cx, &x);
    oct_check_bits_f32(oct_f32(relu), (float[]){0, 0, 0.5F, 6, 7}, 5, "relu");
    oct_check_bits_f32(oct_f32(relu6), (float[]){0, 0, 0.5F, 6, 6}, 5, "relu6");
    cr_assert(isnan(oct_f32(relu)[5]) && isnan(oct_f32(relu6)[5]));
    for (int i = 0; i < 2; i++) {
        float *grad = oct_scratch(cx, sizeof values);
        for (int k = 0; k < 6; k++)
            grad[k] = 1;
        oct_add_grad(cx, i == 0 ? relu : relu6, grad);
    }
    RIG_OK(oct_backward(cx, relu6));
    oct_check_bits_f32(x.grad, (float[]){0, 0, 2, 1, 1, 2}, 6, "gradients of both");
    oct_context_destroy(&cx);
}

/* 60 values with ties, as f32 and as codes of `dtype`, and what max_pool makes of them. */
static void check_max_pool_of_codes(oct_dtype dtype, int first)
{
    float values[60];
    uint8_t bytes[60];
    uint16_t words[60];
    for (int i = 0; i < 60; i++) {
        values[i] = (float)(words[i] = (uint16_t)(i * 37 % 11 + first));
        bytes[i] = (uint8_t)words[i];
    }
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 8, 0, 1), true);
    oct_tensor x = {
        .shape = OCT_SHAPE(1, 5, 4, 3), .data = values, .needs_grad = true, .trace_value = -1};
    oct_tensor q = x;
    q.dtype = dtype;
    q.data = dtype == OCT_U8 ? (void *)bytes : words;
    q.q = (oct_qparams){.scale = 0.25F, .zero_point = 128, .qmax = 255};
    oct_tensor *y = oct_max_pool(cx, &x, oct_pool_geometry_of(3, 1, 1)),
               *yq = oct_max_pool(cx, &q, oct_pool_geometry_of(3, 1, 1));
    cr_assert_eq(yq->dtype, dtype);
    cr_assert_eq(yq->q.zero_point, 128);
    cr_assert(oct_shape_equal(&y->shape, &yq->shape));
    for (int64_t i = 0; i < oct_numel(y); i++)
        cr_assert_eq((float)(dtype == OCT_U8 ? oct_u8(yq)[i] : oct_u16(yq)[i]), oct_f32(y)[i]);
    for (int i = 0; i < 2; i++) {
        float *grad = oct_scratch(cx, (size_t)oct_numel(y) * sizeof(float));
        for (int64_t k = 0; k < oct_numel(y); k++)
            grad[k] = (float)k;
        oct_add_grad(cx, i == 0 ? y : yq, grad);
    }
    RIG_OK(oct_backward(cx, yq));
    oct_check_bits_f32(q.grad, x.grad, 60, "gradient of codes");
    oct_context_destroy(&cx);
}

Test(ops, max_pool_of_codes_equals_that_of_values_and_keeps_the_scale)
{
    check_max_pool_of_codes(OCT_U8, 120);
    check_max_pool_of_codes(OCT_U16, 250); /* on both sides of a byte's end */
}

static void check_view(const oct_tensor *y, const oct_tensor *x, oct_shape shape)
{
    cr_assert(y, "%s", oct_error_message(0));
    cr_assert_eq(y->data, x->data);
    cr_assert_eq(y->dtype, x->dtype);
    cr_assert_eq(y->q.scale, x->q.scale);
    cr_assert_eq(y->trace_value, -1);
    cr_assert_eq(y->graph_value, -1);
    cr_assert(oct_shape_equal(&y->shape, &shape));
}

Test(ops, squeeze_drops_what_has_size_one_but_never_the_batch)
{
    static const struct {
        oct_shape from, all, first; /* all: of every dimension; first: of dimension 1 */
    } cases[] = {
        {{4, {2, 1, 1, 5}}, {2, {2, 5}}, {3, {2, 1, 5}}},
        {{4, {1, 1, 1, 1}}, {1, {1}}, {3, {1, 1, 1}}},
        {{4, {1, 3, 1, 4}}, {3, {1, 3, 4}}, {4, {1, 3, 1, 4}}},
        {{3, {2, 1, 7}}, {2, {2, 7}}, {2, {2, 7}}},
        {{2, {1, 7}}, {2, {1, 7}}, {2, {1, 7}}},
    };
    static const oct_dtype types[] = {OCT_F32, OCT_U8, OCT_U16, OCT_S32};
    float data[32];
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(2, 8, 0, 1), false);
    for (size_t i = 0; i < OCT_COUNT(cases) * OCT_COUNT(types); i++) {
        oct_tensor x = {.dtype = types[i % OCT_COUNT(types)],
                        .shape = cases[i / OCT_COUNT(types)].from,
                        .data = data,
                        .trace_value = 3,
                        .graph_value = 4,
                        .q = {.scale = 0.5F}};
        check_view(oct_squeeze(cx, &x), &x, cases[i / OCT_COUNT(types)].all);
        check_view(oct_squeeze_dim(cx, &x, 1), &x, cases[i / OCT_COUNT(types)].first);
    }
    oct_context_destroy(&cx);
}

Test(ops, flatten_and_reshape_are_views_that_keep_the_scale)
{
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(2, 8, 0, 1), false);
    uint16_t codes[12];
    oct_tensor x = {.dtype = OCT_U8,
                    .shape = OCT_SHAPE(2, 1, 2, 3),
                    .data = codes,
                    .trace_value = 3,
                    .graph_value = 4,
                    .q = {.scale = 0.5F}};
    for (int i = 0; i < 2; i++) {
        check_view(oct_flatten(cx, &x), &x, OCT_SHAPE(2, 6));
        check_view(oct_reshape(cx, &x, OCT_SHAPE(9, 3, 2)), &x, OCT_SHAPE(2, 3, 2));
        x.dtype = OCT_U16;
    }
    oct_context_destroy(&cx);
}

Test(ops, dilation_puts_the_zero_of_its_kind_between_values)
{
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 8, 0, 1), false);
    uint16_t words[] = {1000, 2000};
    uint8_t bytes[] = {1, 2};
    float values[] = {-1, 5};
    oct_tensor x = {.dtype = OCT_U16, .shape = OCT_SHAPE(1, 1, 2, 1), .data = words};
    x.q.zero_point = 32768;
    const oct_tensor *y = oct_dilate(cx, &x, 1, 3);
    oct_check_bytes(y->data, (uint16_t[]){1000, 32768, 32768, 2000}, 8, "u16");
    cr_assert_eq(y->q.zero_point, 32768);
    x.dtype = OCT_U8;
    x.data = bytes;
    x.q.zero_point = 128;
    y = oct_dilate(cx, &x, 2, 2);
    oct_check_bytes(y->data, (uint8_t[]){1, 128, 2}, 3, "u8");
    x.dtype = OCT_F32;
    x.data = values;
    x.shape = OCT_SHAPE(1, 2, 1, 1);
    y = oct_dilate(cx, &x, 2, 2);
    oct_shape want = OCT_SHAPE(1, 3, 1, 1);
    cr_assert(oct_shape_equal(&y->shape, &want));
    oct_check_bits_f32(y->data, (float[]){-1, 0, 5}, 3, "f32");
    oct_context_destroy(&cx);
}

/* A net with every kind of layer that holds parameters. */
static oct_module *small_net(void)
{
    oct_module *net, *m;
    RIG_OK(oct_sequential_create(&net));
    RIG_OK(oct_conv2d_create(&m, 3, 8, oct_conv_geometry_of(3, 3, 1, 1, 1), false));
    rig_append(net, m);
    RIG_OK(oct_batch_norm_create(&m, 8));
    rig_append(net, m);
    RIG_OK(oct_relu_create(&m));
    rig_append(net, m);
    RIG_OK(oct_conv2d_create(&m, 8, 8, oct_conv_geometry_of(3, 3, 2, 1, 8), true));
    rig_append(net, m);
    RIG_OK(oct_max_pool_create(&m, oct_pool_geometry_of(2, 2, 0)));
    rig_append(net, m);
    RIG_OK(oct_flatten_create(&m));
    rig_append(net, m);
    RIG_OK(oct_linear_create(&m, 8 * 3 * 3, 5, true));
    rig_append(net, m);
    return net;
}

/* A net of what has no batch norm before it: up, bent, resized, multiplied. */
static oct_module *upsampling_net(void)
{
    oct_module *net, *m;
    RIG_OK(oct_sequential_create(&net));
    RIG_OK(oct_conv_transpose2d_create(&m, 3, 4, oct_conv_geometry_of(4, 4, 2, 1, 1), true));
    rig_append(net, m);
    RIG_OK(oct_silu_create(&m));
    rig_append(net, m);
    RIG_OK(oct_interpolate_create(&m, 9, 7, OCT_BILINEAR));
    rig_append(net, m);
    RIG_OK(oct_softmax_create(&m));
    rig_append(net, m);
    RIG_OK(oct_mul_scalar_create(&m, 3));
    rig_append(net, m);
    RIG_OK(oct_reshape_create(&m, OCT_SHAPE(1, 9 * 7 * 4)));
    rig_append(net, m);
    RIG_OK(oct_linear_create(&m, 9 * 7 * 4, 5, true));
    rig_append(net, m);
    return net;
}

static oct_tensor *net_loss(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    static const int32_t net_labels[] = {1, 4, 0, 2, 3, 3, 1, 0, 2, 4, 1};
    (void)n;
    return oct_cross_entropy(cx, oct_call(cx, root, x[0]), net_labels, 0.0F, &loss);
}

static void check_threads(oct_module *(*create)(void))
{
    float *grads[3], *grad_x[3];
    int64_t numel = 0;
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        rig r = rig_of(create(), net_loss, 11, 2);
        rig_input(&r, OCT_SHAPE(11, 12, 12, 3), 0.001F);
        RIG_OK(oct_init_parameters(r.root, 3));
        rig_backward(&r, rig_run(&r, true), NULL);
        numel = r.params.numel;
        grads[threads - 1] = rig_take((size_t)numel, sizeof(float));
        set_values(grads[threads - 1], r.params.grads, (size_t)numel);
        grad_x[threads - 1] = rig_take((size_t)oct_numel(&r.input[0]), sizeof(float));
        set_values(grad_x[threads - 1], r.input[0].grad, (size_t)oct_numel(&r.input[0]));
        rig_end(&r);
    }
    double size = 0;
    for (int64_t i = 0; i < numel; i++)
        size += fabs((double)grads[0][i]);
    cr_assert(size > 0.1, "the gradients are all but zero");
    for (int i = 1; i < 3; i++) {
        oct_check_bits_f32(grads[i], grads[0], numel, "parameters");
        oct_check_bits_f32(grad_x[i], grad_x[0], 11 * 12 * 12 * 3, "input");
    }
    for (int i = 0; i < 3; i++) {
        oct_free(&grads[i]);
        oct_free(&grad_x[i]);
    }
}

Test(ops, gradients_do_not_depend_on_the_number_of_threads)
{
    check_threads(small_net);
    check_threads(upsampling_net);
}

/* The same leaf in two batches of different size, at different places and with different neighbours. */
static void check_leaf_stands_alone(oct_shape shape, int64_t out, oct_conv_geometry g)
{
    const int64_t leaf = 4;
    int64_t numel = shape.dim[1] * shape.dim[2] * shape.dim[3];
    oct_module *a_conv, *b_conv;
    RIG_OK(oct_conv2d_create(&a_conv, shape.dim[3], out, g, true));
    RIG_OK(oct_conv2d_create(&b_conv, shape.dim[3], out, g, true));
    rig a = rig_of(a_conv, rig_call_root, 3 * leaf, leaf),
        b = rig_of(b_conv, rig_call_root, 2 * leaf, leaf);
    shape.dim[0] = 3 * leaf;
    rig_input(&a, shape, 0.001F);
    shape.dim[0] = 2 * leaf;
    rig_input(&b, shape, 0.003F);
    set_values(b.input[0].data, oct_f32(&a.input[0]) + 2 * leaf * numel, (size_t)(leaf * numel));
    oct_tensor *ya = rig_run(&a, false), *yb = rig_run(&b, false);
    int64_t n = leaf * oct_numel(yb) / (2 * leaf);
    oct_check_bits_f32(oct_f32(yb), oct_f32(ya) + 2 * n, n, "leaf");
    rig_end(&a);
    rig_end(&b);
}

Test(ops, a_convolution_of_a_leaf_does_not_depend_on_the_batch)
{
    check_leaf_stands_alone(OCT_SHAPE(0, 12, 12, 16), 24, oct_conv_geometry_of(3, 3, 1, 1, 1));
    check_leaf_stands_alone(OCT_SHAPE(0, 4, 4, 64), 24, oct_conv_geometry_of(3, 3, 1, 1, 1));
    check_leaf_stands_alone(OCT_SHAPE(0, 7, 5, 33), 33, oct_conv_geometry_of(3, 3, 2, 1, 33));
}

/* The sums of a batch that lies on other ranks. */
static oct_status sum_of_others(const oct_collective *self, const oct_leaves *leaves, void *parts,
                                int64_t n, size_t width, void *out)
{
    (void)self, (void)leaves, (void)parts, (void)width;
    for (int64_t i = 0; i < n; i++)
        ((double *)out)[i] = i + 1 == n ? 0 : 500;
    return OCT_OK;
}

Test(ops, a_rank_without_samples_follows_the_batch_of_the_others)
{
    rig r = rig_of(small_net(), net_loss, 11, 2);
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)oct_module_find(r.root, "1");
    oct_collective others = oct_collective_one;
    others.tree_sum = sum_of_others;
    r.cx->group = &others;
    r.leaves.first = r.leaves.local = 0;
    rig_input(&r, OCT_SHAPE(0, 12, 12, 3), 1);
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s", oct_error_message(0));
    cr_assert_eq(loss.loss_sum, 500);
    cr_assert_float_eq((double)bn->running_mean[0], 0.1 * 500 / (11 * 144), 1e-6);
    RIG_OK(oct_backward(r.cx, y));
    rig_end(&r);
}

static void check_refused(oct_tensor *y, oct_context *cx, const char *sentence)
{
    cr_assert_null(y);
    cr_assert_eq(oct_context_status(cx), OCT_USAGE);
    cr_assert(strstr(oct_error_message(0), sentence), "\"%s\" lacks \"%s\"", oct_error_message(0),
              sentence);
    oct_context_begin(cx, oct_leaves_split(2, 8, 0, 1), false);
}

Test(ops, wrong_shapes_are_refused_with_the_shapes_named)
{
    oct_module *conv, *linear, *bn;
    RIG_OK(oct_conv2d_create(&conv, 3, 4, oct_conv_geometry_of(3, 3, 1, 0, 1), false));
    RIG_OK(oct_linear_create(&linear, 7, 4, false));
    RIG_OK(oct_batch_norm_create(&bn, 3));
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(2, 8, 0, 1), false);
    float *data = rig_take(1000, sizeof *data);
    oct_tensor image = {.shape = OCT_SHAPE(2, 2, 5, 3), .data = data, .trace_value = -1};
    oct_tensor wide = {.shape = OCT_SHAPE(2, 5, 5, 4), .data = data, .trace_value = -1};
    oct_tensor row = {.shape = OCT_SHAPE(2, 6), .data = data, .trace_value = -1};
    oct_tensor codes = {.dtype = OCT_U8, .shape = OCT_SHAPE(2, 6), .data = data, .trace_value = -1};

    check_refused(oct_call(cx, conv, &wide), cx,
                  "input (2, 5, 5, 4) (N, H, W, I) and weight (4, 3, 3, 3)");
    check_refused(oct_call(cx, conv, &image), cx,
                  "a window of 3x3 does not fit into the input (2, 2, 5, 3)");
    check_refused(oct_call(cx, linear, &row), cx, "input (2, 6) (N, ..., I) and weight (4, 7)");
    check_refused(oct_call(cx, linear, &image), cx, "put a flatten");
    check_refused(oct_call(cx, bn, &wide), cx,
                  "batch_norm of 3 channels cannot take the input (2, 5, 5, 4)");
    check_refused(oct_relu(cx, &codes), cx, "relu takes f32 values, but its input holds u8");
    check_refused(oct_add(cx, &row, &image), cx, "(2, 6) and (2, 2, 5, 3)");
    check_refused(oct_concat(cx, (oct_tensor *[]){&row, &image}, 2), cx, "(2, 6) and (2, 2, 5, 3)");
    check_refused(oct_max_pool(cx, &image, oct_pool_geometry_of(3, 1, 0)), cx,
                  "a window of 3x3 does not fit into the input (2, 2, 5, 3)");
    check_refused(oct_max_pool(cx, &image, oct_pool_geometry_of(2, 1, 2)), cx,
                  "padding below the kernel");
    check_refused(oct_avg_pool(cx, &row, oct_pool_geometry_of(2, 1, 0)), cx,
                  "takes images (N, H, W, C), but its input is (2, 6)");
    check_refused(oct_global_avg_pool(cx, &row), cx,
                  "takes images (N, H, W, C), but its input is (2, 6)");
    check_refused(oct_cross_entropy(cx, &image, labels, 0, &loss), cx,
                  "takes logits (N, K), but its input is (2, 2, 5, 3)");
    oct_free(&data);
    oct_module_destroy(&conv);
    oct_module_destroy(&linear);
    oct_module_destroy(&bn);
    oct_context_destroy(&cx);
}

Test(ops, new_shapes_and_numbers_that_cannot_be_are_refused)
{
    oct_module *up;
    RIG_OK(oct_conv_transpose2d_create(&up, 3, 4, oct_conv_geometry_of(1, 1, 1, 0, 1), false));
    oct_param *weight = ((oct_conv2d_module *)up)->weight;
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(2, 8, 0, 1), false);
    float *data = rig_take(1000, sizeof *data);
    oct_tensor image = {.shape = OCT_SHAPE(2, 2, 5, 3), .data = data, .trace_value = -1};
    oct_tensor wide = {.shape = OCT_SHAPE(2, 5, 5, 4), .data = data, .trace_value = -1};
    oct_tensor row = {.shape = OCT_SHAPE(2, 6), .data = data, .trace_value = -1};
    oct_tensor sums = {
        .dtype = OCT_S32, .shape = OCT_SHAPE(2, 2, 5, 3), .data = data, .trace_value = -1};

    check_refused(oct_mul(cx, &row, &image), cx,
                  "mul takes two tensors of one shape, or one of them (N, 1, 1, C), (N, C) or "
                  "(N, H, W, 1), but has (2, 6) and (2, 2, 5, 3)");
    check_refused(oct_add_scalar(cx, &row, (double)NAN), cx, "takes a finite number, but has nan");
    check_refused(oct_mul_scalar(cx, &row, 1e39), cx, "takes a finite number, but has 1e+39");
    check_refused(oct_leaky_relu(cx, &row, HUGE_VAL), cx, "takes finite numbers, but has inf");
    check_refused(oct_sigmoid(cx, &sums), cx, "sigmoid takes f32 values, but its input holds s32");
    check_refused(oct_squeeze_dim(cx, &image, 0), cx, "dimension 0 is the batch, which stays");
    check_refused(oct_squeeze_dim(cx, &image, 4), cx, "drop dimension 4 of (2, 2, 5, 3)");
    check_refused(oct_argmax(cx, &sums), cx, "u8 or u16 codes, but its input holds s32");
    oct_tensor flat = {.shape = OCT_SHAPE(2), .data = data, .trace_value = -1};
    check_refused(oct_argmax(cx, &flat), cx, "one or more values each, but its input is (2)");
    check_refused(oct_cross_entropy_loss(cx, &row, &image, 0), cx,
                  "has (2, 6) and (2, 2, 5, 3) f32");
    check_refused(oct_cross_entropy_loss(cx, &image, &row, 0), cx,
                  "takes logits (N, K), but its input is (2, 2, 5, 3)");
    check_refused(oct_cross_entropy_loss(cx, &row, &row, 1.5), cx, "a smoothing of 0 to 1");
    check_refused(oct_reshape(cx, &image, OCT_SHAPE(0, 5, 5)), cx,
                  "(2, 2, 5, 3) and (2, 5, 5) hold different numbers");
    check_refused(oct_interpolate(cx, &row, 2, 2, OCT_NEAREST), cx,
                  "takes images (N, H, W, C), but its input is (2, 6)");
    check_refused(oct_interpolate(cx, &image, 0, 2, OCT_BILINEAR), cx, "cannot make 0x2 pixels");
    check_refused(oct_interpolate(cx, &image, 2, 2, (oct_interpolation)7), cx, "in mode 7");
    check_refused(oct_dilate(cx, &image, 1, 0), cx, "distances of 1 or more");
    check_refused(oct_dilate(cx, &sums, 2, 2), cx, "u8 or u16 codes, but its input holds s32");
    check_refused(oct_call(cx, up, &wide), cx,
                  "input (2, 5, 5, 4) (N, H, W, I) and weight (4, 1, 1, 3)");
    check_refused(
        oct_conv_transpose2d(cx, &image, weight, NULL, oct_conv_geometry_of(1, 1, 1, 1, 1)), cx,
        "the padding below what the kernel reaches");
    oct_free(&data);
    oct_module_destroy(&up);
    oct_context_destroy(&cx);
}

Test(ops, a_transposed_convolution_whose_padding_takes_all_is_refused)
{
    oct_module *up;
    RIG_OK(oct_conv_transpose2d_create(&up, 1, 1, oct_conv_geometry_of(2, 2, 1, 1, 1), false));
    rig r = rig_of(up, rig_call_root, 2, 2);
    rig_input(&r, OCT_SHAPE(2, 1, 1, 1), 1);
    cr_assert_null(rig_run(&r, false));
    cr_assert(strstr(oct_error_message(0),
                     "windows of 2x2, padding 1 leave nothing of the input (2, 1, 1, 1)"));
    rig_end(&r);
}

Test(ops, batch_norm_refuses_to_train_on_one_value_a_channel)
{
    oct_module *bn;
    RIG_OK(oct_batch_norm_create(&bn, 4));
    rig r = rig_of(bn, rig_call_root, 1, 8);
    rig_input(&r, OCT_SHAPE(1, 4), 1);
    cr_assert_null(rig_run(&r, true));
    cr_assert(strstr(oct_error_message(0), "needs 2 or more to train"));
    rig_end(&r);
}

Test(ops, a_failed_context_and_a_missing_input_give_nothing)
{
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 8, 0, 1), false);
    cr_assert_null(oct_add(cx, oct_relu(cx, NULL), NULL));
    cr_assert_eq(oct_context_status(cx), OCT_OK);
    oct_context_fail(cx, OCT_DATA, "first");
    float value = 1;
    oct_tensor x = {.shape = OCT_SHAPE(1, 1), .data = &value, .trace_value = -1};
    cr_assert_null(oct_relu(cx, &x));
    cr_assert_str_eq(oct_error_message(0), "first");
    oct_context_destroy(&cx);
}

Test(ops, batch_norm_refuses_statistics_that_overflow)
{
    oct_module *bn;
    oct_context *cx;
    float values[] = {1e30F, -1e30F, 2e30F, 5};
    RIG_OK(oct_batch_norm_create(&bn, 1));
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(4, 2, 0, 1), false);
    oct_call(cx, bn, oct_tensor_view(cx, OCT_F32, OCT_SHAPE(4, 1), values));
    cr_assert_eq(oct_context_status(cx), OCT_NUMERIC);
    cr_assert_str_eq(oct_error_message(0), "the batch's mean or variance is not finite");
    oct_context_destroy(&cx);
    oct_module_destroy(&bn);
}
