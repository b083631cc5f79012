/* Every op's backward against central differences of its forward.
 *
 * The loss is the sum of the outputs times fixed random weights, summed in double. Inputs are on a
 * grid without ties and away from kinks (rig_fill), and the difference step is below half the grid's.
 */
#include "tests/core/op_rig.h"
#include "tests/support/cross_entropy.h"

#include <math.h>

/* Differences of float forwards: rounding of 1e-6 of the output over the step, and for batch norm the
 * curvature. A wrong backward is off by far more. */
static const double tolerance = 1e-2;

static double loss_of(rig *r, const float *weight)
{
    oct_tensor *y = rig_run(r, false);
    cr_assert(y, "%s", oct_error_message(0));
    double sum = 0;
    for (int64_t i = 0; i < oct_numel(y); i++)
        sum += (double)oct_f32(y)[i] * (double)weight[i];
    return sum;
}

static void check_values(rig *r, const float *weight, float *values, const float *grad, int64_t n,
                         float step, const char *what)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)grad[i]));
    for (int64_t i = 0; i < n; i++) {
        float old = values[i], up = old + step, down = old - step;
        values[i] = up;
        double high = loss_of(r, weight);
        values[i] = down;
        double low = loss_of(r, weight);
        values[i] = old;
        double want = (high - low) / ((double)up - (double)down);
        cr_assert(fabs((double)grad[i] - want) <= tolerance * (0.1 + largest),
                  "%s: element %lld of %lld: backward says %.6g, differences say %.6g", what,
                  (long long)i, (long long)n, (double)grad[i], want);
    }
}

static float *copy_of(const float *x, int64_t n)
{
    float *copy = rig_take((size_t)n, sizeof(float));
    memcpy(copy, x, (size_t)n * sizeof(float));
    return copy;
}

/* Checks the gradients of all inputs and parameters, and ends the rig. */
static void check_grads(rig *r, float step)
{
    oct_tensor *y = rig_run(r, true);
    cr_assert(y, "%s", oct_error_message(0));
    float *weight = rig_take((size_t)oct_numel(y), sizeof(float)), *grad[RIG_INPUTS];
    oct_fill_uniform(weight, oct_numel(y), 3, OCT_STREAM_TEST, 9, -1, 1);
    rig_backward(r, y, weight);
    for (int i = 0; i < r->num_inputs; i++) {
        cr_assert(r->input[i].grad, "input %d got no gradient", i);
        grad[i] = copy_of(r->input[i].grad, oct_numel(&r->input[i]));
    }
    for (int i = 0; i < r->num_inputs; i++) {
        check_values(r, weight, oct_f32(&r->input[i]), grad[i], oct_numel(&r->input[i]), step,
                     "input");
        oct_free(&grad[i]);
    }
    for (size_t i = 0; i < r->params.count; i++) {
        oct_param *p = r->params.items[i];
        check_values(r, weight, oct_f32(&p->value), p->grad, oct_numel(&p->value), step, p->name);
    }
    oct_free(&weight);
    rig_end(r);
}

static void check_conv(oct_shape shape, int64_t out, oct_conv_geometry g, int64_t leaf)
{
    oct_module *conv;
    RIG_OK(oct_conv2d_create(&conv, shape.dim[3], out, g, true));
    rig r = rig_of(conv, rig_call_root, shape.dim[0], leaf);
    rig_input(&r, shape, 0.05F);
    check_grads(&r, 0.25F); /* linear in each value, so a large step is exact */
}

Test(gradcheck, conv2d)
{
    check_conv(OCT_SHAPE(5, 5, 4, 3), 4, oct_conv_geometry_of(3, 3, 1, 1, 1), 2);
    check_conv(OCT_SHAPE(3, 9, 8, 2), 3, oct_conv_geometry_of(3, 3, 1, 1, 1), 2);
    check_conv(OCT_SHAPE(3, 6, 7, 2), 3, oct_conv_geometry_of(3, 2, 2, 1, 1), 2);
    check_conv(OCT_SHAPE(3, 5, 5, 3), 2, oct_conv_geometry_of(1, 1, 1, 0, 1), 8);
    check_conv(OCT_SHAPE(3, 5, 5, 3), 2, oct_conv_geometry_of(1, 1, 2, 0, 1), 1);
}

Test(gradcheck, conv2d_with_groups)
{
    check_conv(OCT_SHAPE(3, 5, 5, 4), 6, oct_conv_geometry_of(3, 3, 1, 1, 2), 2);
    check_conv(OCT_SHAPE(3, 6, 5, 4), 4, oct_conv_geometry_of(3, 3, 2, 1, 4), 2);
    check_conv(OCT_SHAPE(3, 9, 8, 3), 3, oct_conv_geometry_of(5, 3, 1, 2, 3), 2);
}

static void check_conv_transpose(oct_shape shape, int64_t out, oct_conv_geometry g)
{
    oct_module *conv;
    RIG_OK(oct_conv_transpose2d_create(&conv, shape.dim[3], out, g, true));
    rig r = rig_of(conv, rig_call_root, shape.dim[0], 2);
    rig_input(&r, shape, 0.05F);
    check_grads(&r, 0.25F);
}

Test(gradcheck, conv_transpose2d)
{
    check_conv_transpose(OCT_SHAPE(3, 3, 4, 3), 2, oct_conv_geometry_of(4, 4, 2, 1, 1));
    check_conv_transpose(OCT_SHAPE(3, 3, 4, 2), 3, oct_conv_geometry_of(3, 3, 1, 1, 1));
    check_conv_transpose(OCT_SHAPE(3, 2, 3, 2), 2, oct_conv_geometry_of(2, 2, 3, 0, 1));
}

/* Every side has its own. */
static oct_conv_geometry uneven_geometry(int groups)
{
    return (oct_conv_geometry){.kernel_h = 2,
                               .kernel_w = 3,
                               .stride_h = 1,
                               .stride_w = 2,
                               .pad_top = 1,
                               .pad_left = 2,
                               .pad_right = 1,
                               .dilation_h = 3,
                               .dilation_w = 2,
                               .groups = groups};
}

Test(gradcheck, sides_of_their_own)
{
    oct_conv_geometry rising = uneven_geometry(2);
    rising.output_padding_h = 2;
    rising.output_padding_w = 1;
    check_conv(OCT_SHAPE(3, 5, 6, 3), 4, uneven_geometry(1), 2);
    check_conv(OCT_SHAPE(3, 5, 6, 4), 6, uneven_geometry(2), 2);
    check_conv(OCT_SHAPE(3, 5, 6, 4), 4, uneven_geometry(4), 2);
    check_conv_transpose(OCT_SHAPE(3, 3, 2, 4), 6, rising);
    check_conv_transpose(OCT_SHAPE(3, 3, 2, 2), 2, rising);
}

Test(gradcheck, linear)
{
    oct_module *linear;
    RIG_OK(oct_linear_create(&linear, 7, 4, true));
    rig r = rig_of(linear, rig_call_root, 5, 2);
    rig_input(&r, OCT_SHAPE(5, 7), 0.05F);
    check_grads(&r, 0.25F);
}

static void check_batch_norm_in_groups(oct_shape shape, int64_t leaf, bool frozen, int64_t group)
{
    oct_module *bn;
    RIG_OK(oct_batch_norm_create(&bn, shape.dim[shape.ndim - 1]));
    oct_batch_norm_module *self = (oct_batch_norm_module *)bn;
    self->frozen = frozen;
    self->args.momentum = frozen ? 0.0F : 0.1F;
    rig r = rig_of(bn, rig_call_root, shape.dim[0], leaf);
    for (int64_t c = 0; c < self->args.channels; c++) {
        oct_f32(&self->gamma->value)[c] = c == 0 ? -0.7F : 0.5F + (float)c;
        self->running_mean[c] = 0.3F * (float)c;
        self->running_var[c] = 1.5F + (float)c;
    }
    r.cx->norm_group = group;
    rig_input(&r, shape, 0.05F);
    check_grads(&r, 0.01F);
}

static void check_batch_norm(oct_shape shape, int64_t leaf, bool frozen)
{
    check_batch_norm_in_groups(shape, leaf, frozen, 0);
}

Test(gradcheck, batch_norm_with_the_statistics_of_groups)
{
    check_batch_norm_in_groups(OCT_SHAPE(6, 3, 3, 3), 2, false, 1);
    check_batch_norm_in_groups(OCT_SHAPE(7, 2, 2, 5), 1, false, 4);
    check_batch_norm_in_groups(OCT_SHAPE(7, 4), 1, false, 2 * 8);
}

Test(gradcheck, batch_norm_with_batch_statistics)
{
    check_batch_norm(OCT_SHAPE(5, 3, 3, 3), 2, false);
    check_batch_norm(OCT_SHAPE(3, 2, 1, 19), 2, false);
    check_batch_norm(OCT_SHAPE(7, 4), 3, false);
}

Test(gradcheck, batch_norm_with_running_statistics)
{
    check_batch_norm(OCT_SHAPE(5, 3, 3, 3), 2, true);
    check_batch_norm(OCT_SHAPE(7, 4), 3, true);
}

/* Takes the module over; its values count per sample. */
static void check_module(oct_module *module, oct_shape shape, float step)
{
    rig r = rig_of(module, rig_call_root, shape.dim[0], 2);
    rig_input(&r, shape, 0.05F);
    check_grads(&r, step);
}

Test(gradcheck, linear_over_more_positions)
{
    oct_module *linear;
    RIG_OK(oct_linear_create(&linear, 3, 4, true));
    check_module(linear, OCT_SHAPE(3, 5, 3), 0.25F);
    RIG_OK(oct_linear_create(&linear, 3, 2, false));
    check_module(linear, OCT_SHAPE(3, 2, 4, 3), 0.25F);
}

Test(gradcheck, layer_norm_and_group_norm)
{
    oct_module *norm;
    RIG_OK(oct_layer_norm_create(&norm, 6, 1e-5));
    check_module(norm, OCT_SHAPE(5, 6), 0.01F);
    RIG_OK(oct_layer_norm_create(&norm, 4, 1e-2));
    check_module(norm, OCT_SHAPE(3, 3, 2, 4), 0.01F);
    RIG_OK(oct_group_norm_create(&norm, 2, 6, 1e-5));
    check_module(norm, OCT_SHAPE(3, 2, 3, 6), 0.01F);
    RIG_OK(oct_group_norm_create(&norm, 3, 3, 1e-5)); /* instance norm */
    check_module(norm, OCT_SHAPE(3, 4, 3), 0.01F);
}

/* Its first output takes the batch from x alone, so x needs another way to a gradient. */
static oct_tensor *token_of(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    (void)n;
    return oct_add(cx, oct_call(cx, root, x[0]), x[0]);
}

Test(gradcheck, parameters)
{
    oct_module *parameter;
    RIG_OK(oct_parameter_create(&parameter, OCT_SHAPE(2, 3)));
    rig r = rig_of(parameter, token_of, 5, 2);
    rig_input(&r, OCT_SHAPE(5, 2, 3), 0.05F);
    check_grads(&r, 0.25F);
    RIG_OK(oct_add_parameter_create(&parameter, OCT_SHAPE(4, 3)));
    check_module(parameter, OCT_SHAPE(5, 4, 3), 0.25F);
    RIG_OK(oct_add_parameter_create(&parameter, OCT_SHAPE(2, 1, 3)));
    check_module(parameter, OCT_SHAPE(3, 2, 4, 3), 0.25F);
    RIG_OK(oct_mul_parameter_create(&parameter, OCT_SHAPE(1, 3)));
    check_module(parameter, OCT_SHAPE(5, 4, 3), 0.25F);
    RIG_OK(oct_mul_parameter_create(&parameter, OCT_SHAPE(2, 3, 1)));
    check_module(parameter, OCT_SHAPE(3, 2, 3, 2), 0.25F);
}

RIG_FORWARD(relu_of, oct_relu(cx, x[0]))
RIG_FORWARD(relu6_of, oct_relu6(cx, x[0]))
static oct_pool_geometry uneven_pool(bool count_include_pad)
{
    return (oct_pool_geometry){.kernel_h = 3,
                               .kernel_w = 2,
                               .stride_h = 2,
                               .stride_w = 3,
                               .pad_top = 2,
                               .pad_left = 1,
                               .pad_right = 1,
                               .ceil = true,
                               .count_include_pad = count_include_pad};
}

RIG_FORWARD(max_pool_of, oct_max_pool(cx, x[0], oct_pool_geometry_of(3, 2, 1)))
RIG_FORWARD(max_pool_even_of, oct_max_pool(cx, x[0], oct_pool_geometry_of(2, 2, 0)))
RIG_FORWARD(avg_pool_of, oct_avg_pool(cx, x[0], oct_pool_geometry_of(3, 2, 0)))
RIG_FORWARD(max_pool_uneven_of, oct_max_pool(cx, x[0], uneven_pool(false)))
RIG_FORWARD(avg_pool_uneven_of, oct_avg_pool(cx, x[0], uneven_pool(false)))
RIG_FORWARD(avg_pool_counting_of, oct_avg_pool(cx, x[0], uneven_pool(true)))
RIG_FORWARD(global_avg_pool_of, oct_global_avg_pool(cx, x[0]))
RIG_FORWARD(flatten_of, oct_flatten(cx, x[0]))
RIG_FORWARD(add_of, oct_add(cx, x[0], x[1]))
RIG_FORWARD(double_of, oct_add(cx, x[0], x[0]))

static oct_tensor *concat_of(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    (void)root;
    return oct_concat(cx, x, n);
}

RIG_FORWARD(mul_of, oct_mul(cx, x[0], x[1]))
RIG_FORWARD(square_of, oct_mul(cx, x[0], x[0]))
RIG_FORWARD(matmul_of, oct_matmul(cx, x[0], x[1]))
RIG_FORWARD(matmul_square_of, oct_matmul(cx, x[0], x[0]))
RIG_FORWARD(mean_of, oct_mean(cx, x[0], 1, false))
RIG_FORWARD(mean_last_of, oct_mean(cx, x[0], 2, true))
RIG_FORWARD(mean_plane_of, oct_mean(cx, x[0], OCT_MEAN_PLANE, true))
RIG_FORWARD(line_of, oct_add_scalar(cx, oct_mul_scalar(cx, x[0], -1.5), 0.25))
RIG_FORWARD(sigmoid_of, oct_sigmoid(cx, x[0]))
RIG_FORWARD(silu_of, oct_silu(cx, x[0]))
RIG_FORWARD(hard_swish_of, oct_hard_swish(cx, x[0]))
RIG_FORWARD(leaky_relu_of, oct_leaky_relu(cx, x[0], 0.2))
RIG_FORWARD(softmax_of, oct_softmax(cx, x[0]))
RIG_FORWARD(nearest_of, oct_interpolate(cx, x[0], 6, 4, OCT_NEAREST))
RIG_FORWARD(bilinear_of, oct_interpolate(cx, x[0], 7, 3, OCT_BILINEAR))
RIG_FORWARD(reshape_of, oct_reshape(cx, x[0], OCT_SHAPE(0, 4, 1, 6)))
RIG_FORWARD(pad_of, oct_pad(cx, x[0], &(oct_padding){1, 0, 2, 1, 0, 3, 0.5, OCT_PAD_CONSTANT}))
RIG_FORWARD(mirror_of, oct_pad(cx, x[0], &(oct_padding){1, 0, 2, 1, 3, 1, 0, OCT_PAD_REFLECT}))
RIG_FORWARD(edge_of, oct_pad(cx, x[0], &(oct_padding){1, 2, 0, 1, 2, 0, 0, OCT_PAD_EDGE}))
RIG_FORWARD(corners_of, oct_interpolate(cx, x[0], 7, 3, OCT_BILINEAR_CORNERS))
RIG_FORWARD(asymmetric_of, oct_interpolate(cx, x[0], 2, 8, OCT_BILINEAR_ASYMMETRIC))
RIG_FORWARD(nearest_centre_of, oct_interpolate(cx, x[0], 2, 8, OCT_NEAREST_ROUND))
RIG_FORWARD(centre_before_of, oct_interpolate(cx, x[0], 2, 8, OCT_NEAREST_HALF))
RIG_FORWARD(slice_of, oct_slice(cx, x[0], 3, 3, -2, 2))
RIG_FORWARD(shuffle_of, oct_channel_shuffle(cx, x[0], 2))
RIG_FORWARD(dilate_of, oct_dilate(cx, x[0], 3, 2))

RIG_FORWARD(squeeze_of, oct_squeeze(cx, x[0]))
RIG_FORWARD(squeeze_dim_of, oct_squeeze_dim(cx, x[0], 2))

static const oct_elementwise *function;
RIG_FORWARD(function_of, oct_elementwise_apply(cx, function, NULL, x[0]))
/* Of values above 1/2, for functions that have none below 0. */
RIG_FORWARD(function_above_of,
            oct_elementwise_apply(cx, function, NULL,
                                  oct_add_scalar(cx, oct_mul(cx, x[0], x[0]), 0.5)))
RIG_FORWARD(clip_of, oct_clip(cx, x[0], -0.5, 1))
RIG_FORWARD(sub_of, oct_sub(cx, x[0], x[1]))
RIG_FORWARD(div_of, oct_div(cx, x[0], x[1]))

static void check_op(rig_forward forward, oct_shape shape)
{
    rig r = rig_of(NULL, forward, shape.dim[0], 2);
    rig_input(&r, shape, 0.05F);
    check_grads(&r, 0.02F);
}

Test(gradcheck, activations)
{
    check_op(relu_of, OCT_SHAPE(3, 4, 5, 3));
    check_op(relu6_of, OCT_SHAPE(3, 10, 11, 3)); /* values up to 24 */
    check_op(relu_of, OCT_SHAPE(3, 7));
}

Test(gradcheck, elementwise_functions)
{
    check_op(sigmoid_of, OCT_SHAPE(3, 4, 5, 3));
    check_op(silu_of, OCT_SHAPE(3, 4, 5, 3));
    check_op(hard_swish_of, OCT_SHAPE(3, 4, 5, 3));
    check_op(leaky_relu_of, OCT_SHAPE(3, 7));
    check_op(line_of, OCT_SHAPE(3, 7));
    static const oct_elementwise *const listed[] = {
#define OCT_ELEMENTWISE(name, args) &oct_elementwise_##name,
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
    };
    for (size_t i = 0; i < OCT_COUNT(listed); i++) {
        function = listed[i];
        const bool everywhere = isfinite(function->value(-1, &function->default_args)) &&
                                isfinite(function->value(0, &function->default_args));
        check_op(everywhere ? function_of : function_above_of, OCT_SHAPE(3, 2, 5, 3));
    }
}

Test(gradcheck, clip_and_prelu)
{
    check_op(clip_of, OCT_SHAPE(3, 4, 5, 3));
    for (int64_t channels = 1; channels <= 3; channels += 2) {
        oct_module *prelu;
        RIG_OK(oct_prelu_create(&prelu, channels));
        rig r = rig_of(prelu, rig_call_root, 5, 2);
        rig_input(&r, OCT_SHAPE(5, 2, 3, 3), 0.05F);
        check_grads(&r, 0.02F);
    }
}

static void check_two(rig_forward forward, oct_shape a, oct_shape b)
{
    rig r = rig_of(NULL, forward, a.dim[0], 2);
    rig_input(&r, a, 0.05F);
    rig_input(&r, b, 0.05F);
    for (int64_t i = 0; i < oct_numel(&r.input[1]); i++) /* divisors are not near 0 */
        oct_f32(&r.input[1])[i] += 4;
    check_grads(&r, 0.02F);
}

Test(gradcheck, functions_of_two_where_one_repeats)
{
    static const rig_forward forwards[] = {add_of, sub_of, mul_of, div_of};
    for (size_t i = 0; i < OCT_COUNT(forwards); i++) {
        check_two(forwards[i], OCT_SHAPE(3, 2, 3, 4), OCT_SHAPE(3, 2, 3, 4));
        check_two(forwards[i], OCT_SHAPE(3, 2, 3, 4), OCT_SHAPE(3, 1, 1, 4));
        check_two(forwards[i], OCT_SHAPE(3, 2, 3, 4), OCT_SHAPE(3, 2, 3, 1));
        check_two(forwards[i], OCT_SHAPE(3, 2, 3, 1), OCT_SHAPE(3, 2, 3, 4));
        check_two(forwards[i], OCT_SHAPE(3, 4), OCT_SHAPE(3, 2, 3, 4));
        check_two(forwards[i], OCT_SHAPE(3, 5, 4), OCT_SHAPE(3, 1, 1));
    }
    check_two(mul_of, OCT_SHAPE(3, 2, 1, 300), OCT_SHAPE(3, 300)); /* more than one block */
    check_two(sub_of, OCT_SHAPE(3, 2, 1, 300), OCT_SHAPE(3, 2, 1, 1));
}

Test(gradcheck, mul_of_two_and_of_one_twice)
{
    rig r = rig_of(NULL, mul_of, 3, 2);
    rig_input(&r, OCT_SHAPE(3, 2, 3, 4), 0.05F);
    rig_input(&r, OCT_SHAPE(3, 2, 3, 4), 0.05F);
    check_grads(&r, 0.02F);
    check_op(square_of, OCT_SHAPE(3, 5));
}

static void check_matmul(oct_shape a, oct_shape b)
{
    rig r = rig_of(NULL, matmul_of, a.dim[0], 2);
    rig_input(&r, a, 0.05F);
    rig_input(&r, b, 0.05F);
    check_grads(&r, 0.25F);
}

Test(gradcheck, matmul_of_two_and_of_one_twice)
{
    check_matmul(OCT_SHAPE(3, 4, 2), OCT_SHAPE(3, 2, 5));
    check_matmul(OCT_SHAPE(3, 2, 3, 4), OCT_SHAPE(3, 2, 4, 1));
    check_op(matmul_square_of, OCT_SHAPE(3, 3, 3));
}

Test(gradcheck, mean)
{
    check_op(mean_of, OCT_SHAPE(3, 4, 2));
    check_op(mean_last_of, OCT_SHAPE(3, 2, 3, 2));
    check_op(mean_plane_of, OCT_SHAPE(3, 3, 2, 4));
}

Test(gradcheck, softmax)
{
    check_op(softmax_of, OCT_SHAPE(3, 9));
    check_op(softmax_of, OCT_SHAPE(3, 2, 2, 4));
}

Test(gradcheck, interpolate)
{
    check_op(nearest_of, OCT_SHAPE(3, 3, 5, 2));
    check_op(bilinear_of, OCT_SHAPE(3, 3, 5, 2));
    check_op(bilinear_of, OCT_SHAPE(3, 1, 1, 4));
    check_op(corners_of, OCT_SHAPE(3, 3, 5, 2));
    check_op(asymmetric_of, OCT_SHAPE(3, 3, 5, 2));
    check_op(nearest_centre_of, OCT_SHAPE(3, 3, 5, 2));
    check_op(centre_before_of, OCT_SHAPE(3, 3, 5, 2));
}

Test(gradcheck, squeeze)
{
    check_op(squeeze_of, OCT_SHAPE(3, 1, 1, 4));
    check_op(squeeze_dim_of, OCT_SHAPE(3, 1, 1, 4));
}

Test(gradcheck, reshape_and_spread)
{
    check_op(reshape_of, OCT_SHAPE(3, 2, 3, 4));
    check_op(dilate_of, OCT_SHAPE(3, 2, 3, 4));
}

Test(gradcheck, move)
{
    check_op(slice_of, OCT_SHAPE(3, 2, 3, 4));
    check_op(shuffle_of, OCT_SHAPE(3, 2, 3, 4));
}

Test(gradcheck, pad)
{
    check_op(pad_of, OCT_SHAPE(3, 2, 3, 4));
    check_op(mirror_of, OCT_SHAPE(3, 2, 3, 4));
    check_op(edge_of, OCT_SHAPE(3, 2, 3, 4));
}

Test(gradcheck, pools)
{
    check_op(max_pool_of, OCT_SHAPE(3, 6, 5, 3));
    check_op(max_pool_even_of, OCT_SHAPE(3, 7, 4, 17));
    check_op(avg_pool_of, OCT_SHAPE(3, 7, 6, 3));
    check_op(max_pool_uneven_of, OCT_SHAPE(3, 6, 5, 3));
    check_op(avg_pool_uneven_of, OCT_SHAPE(3, 6, 5, 3));
    check_op(avg_pool_counting_of, OCT_SHAPE(3, 6, 5, 3));
    check_op(global_avg_pool_of, OCT_SHAPE(3, 3, 5, 4));
}

Test(gradcheck, flatten)
{
    check_op(flatten_of, OCT_SHAPE(3, 2, 3, 4));
}

Test(gradcheck, add_of_two_and_of_one_twice)
{
    rig r = rig_of(NULL, add_of, 3, 2);
    rig_input(&r, OCT_SHAPE(3, 2, 3, 4), 0.05F);
    rig_input(&r, OCT_SHAPE(3, 2, 3, 4), 0.05F);
    check_grads(&r, 0.02F);
    check_op(double_of, OCT_SHAPE(3, 5));
}

Test(gradcheck, concat_of_three)
{
    rig r = rig_of(NULL, concat_of, 3, 2);
    rig_input(&r, OCT_SHAPE(3, 2, 2, 4), 0.05F);
    rig_input(&r, OCT_SHAPE(3, 2, 2, 1), 0.05F);
    rig_input(&r, OCT_SHAPE(3, 2, 2, 3), 0.05F);
    check_grads(&r, 0.02F);
}

static const int32_t labels[5] = {3, 0, 2, 3, 1};
static oct_loss loss;

RIG_FORWARD(cross_entropy_of, oct_cross_entropy(cx, x[0], labels, 0.1F, &loss))

Test(gradcheck, cross_entropy_with_smoothing)
{
    rig r = rig_of(NULL, cross_entropy_of, 5, 2);
    rig_input(&r, OCT_SHAPE(5, 4), 0.3F);
    oct_tensor *y = rig_run(&r, true);
    rig_backward(&r, y, NULL);
    float *grad = copy_of(r.input[0].grad, 20);
    for (int64_t i = 0; i < 20; i++) {
        float *x = oct_f32(&r.input[0]) + i, old = *x;
        *x = old + 0.0078125F;
        rig_run(&r, false);
        double high = loss.loss_sum / 5;
        *x = old - 0.0078125F;
        rig_run(&r, false);
        double want = (high - loss.loss_sum / 5) / 0.015625;
        *x = old;
        cr_assert(fabs((double)grad[i] - want) < 1e-5, "element %lld: got %.7g, wanted %.7g",
                  (long long)i, (double)grad[i], want);
    }
    oct_free(&grad);
    rig_end(&r);
}

/* Gradients are those of a mean over 5 samples: small numbers, taken times 5 to be seen. */
RIG_FORWARD(soft_loss_of,
            oct_mul_scalar(cx, oct_cross_entropy_loss(cx, x[0], oct_softmax(cx, x[1]), 0.2), 5))
RIG_FORWARD(plain_soft_loss_of, oct_mul_scalar(cx, oct_cross_entropy_loss(cx, x[0], x[1], 0), 5))

Test(gradcheck, losses_of_probabilities)
{
    rig r = rig_of(NULL, soft_loss_of, 5, 2);
    rig_input(&r, OCT_SHAPE(5, 4), 0.3F);
    rig_input(&r, OCT_SHAPE(5, 4), 0.3F);
    check_grads(&r, 0.02F);
    r = rig_of(NULL, plain_soft_loss_of, 5, 2);
    rig_input(&r, OCT_SHAPE(5, 4), 0.3F);
    rig_input(&r, OCT_SHAPE(5, 4), 0.3F);
    check_grads(&r, 0.02F);
}

static oct_tensor *twice_conv(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    (void)n;
    return oct_call(cx, root, oct_relu(cx, oct_call(cx, root, x[0])));
}

Test(gradcheck, a_convolution_used_twice_sums_both_uses)
{
    oct_module *conv;
    RIG_OK(oct_conv2d_create(&conv, 2, 2, oct_conv_geometry_of(3, 3, 1, 1, 1), false));
    rig r = rig_of(conv, twice_conv, 3, 2);
    rig_input(&r, OCT_SHAPE(3, 4, 4, 2), 0.05F);
    check_grads(&r, 0.001F);
}
