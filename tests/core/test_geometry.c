/* Windows whose sides differ against PyTorch: convolutions, transposed ones, pools, and linear layers over more than
 * one position. */
#include "tests/core/op_rig.h"
#include "tests/golden/geometry_golden.h"

/* Sums of up to a hundred floats of order 1, in another order than PyTorch's. */
static const double near = 2e-5;

#define CHECK_GOLDEN(got, want)                                                                    \
    oct_check_near_f32((got), (want), (int64_t)OCT_COUNT(want), near, near, #want)

static void set_values(void *to, const float *from, int64_t count)
{
    memcpy(to, from, (size_t)count * sizeof(float));
}

static rig rig_with(oct_module *m, rig_forward forward, oct_shape shape, const float *x)
{
    rig r = rig_of(m, forward, shape.dim[0], 2);
    rig_input(&r, shape, 1);
    set_values(r.input[0].data, x, oct_shape_numel(&shape));
    return r;
}

/* The layer m has a weight and a bias. */
#define CHECK_LAYER(name, m, ...)                                                                  \
    do {                                                                                           \
        rig r = rig_with((m), rig_call_root, __VA_ARGS__, golden_##name##_x);                      \
        set_values((m)->params[0]->value.data, golden_##name##_w,                                  \
                   (int64_t)OCT_COUNT(golden_##name##_w));                                         \
        set_values((m)->params[1]->value.data, golden_##name##_b,                                  \
                   (int64_t)OCT_COUNT(golden_##name##_b));                                         \
        oct_tensor *y = rig_run(&r, true);                                                         \
        cr_assert(y, "%s", oct_error_message(0));                                                  \
        cr_assert_eq(oct_numel(y), (int64_t)OCT_COUNT(golden_##name##_y), #name);                  \
        CHECK_GOLDEN(oct_f32(y), golden_##name##_y);                                               \
        rig_backward(&r, y, golden_##name##_grad_y);                                               \
        CHECK_GOLDEN(r.input[0].grad, golden_##name##_grad_x);                                     \
        CHECK_GOLDEN(r.params.items[0]->grad, golden_##name##_grad_w);                             \
        CHECK_GOLDEN(r.params.items[1]->grad, golden_##name##_grad_b);                             \
        rig_end(&r);                                                                               \
    } while (0)

#define CHECK_CONV(name, create, shape, out, ...)                                                  \
    do {                                                                                           \
        oct_module *layer;                                                                         \
        const oct_shape in = shape;                                                                \
        const oct_conv_geometry g = {__VA_ARGS__};                                                 \
        RIG_OK(create(&layer, in.dim[3], out, g, true));                                           \
        CHECK_LAYER(name, layer, in);                                                              \
    } while (0)

Test(geometry, convolutions_with_sides_of_their_own_agree_with_pytorch)
{
    CHECK_CONV(conv_uneven, oct_conv2d_create, OCT_SHAPE(2, 7, 6, 3), 4, .kernel_h = 2,
               .kernel_w = 3, .stride_h = 2, .stride_w = 1, .pad_left = 2, .pad_bottom = 1,
               .pad_right = 1, .dilation_h = 2, .dilation_w = 1, .groups = 1);
    CHECK_CONV(conv_same, oct_conv2d_create, OCT_SHAPE(2, 13, 7, 1), 3, .kernel_h = 10,
               .kernel_w = 4, .stride_h = 2, .stride_w = 2, .pad_top = 4, .pad_left = 1,
               .pad_bottom = 5, .pad_right = 1, .dilation_h = 1, .dilation_w = 1, .groups = 1);
    CHECK_CONV(conv_groups, oct_conv2d_create, OCT_SHAPE(2, 5, 6, 4), 4, .kernel_h = 3,
               .kernel_w = 3, .stride_h = 1, .stride_w = 1, .pad_top = 2, .pad_left = 3,
               .pad_bottom = 1, .dilation_h = 1, .dilation_w = 3, .groups = 2);
    CHECK_CONV(conv_depth, oct_conv2d_create, OCT_SHAPE(2, 6, 7, 3), 3, .kernel_h = 3,
               .kernel_w = 3, .stride_h = 1, .stride_w = 2, .pad_top = 2, .pad_left = 4,
               .pad_bottom = 2, .pad_right = 4, .dilation_h = 2, .dilation_w = 4, .groups = 3);
    CHECK_CONV(conv_point, oct_conv2d_create, OCT_SHAPE(2, 5, 5, 3), 4, .kernel_h = 1,
               .kernel_w = 1, .stride_h = 1, .stride_w = 1, .pad_bottom = 1, .dilation_h = 1,
               .dilation_w = 1, .groups = 1);
}

Test(geometry, transposed_convolutions_with_sides_of_their_own_agree_with_pytorch)
{
    CHECK_CONV(transposed, oct_conv_transpose2d_create, OCT_SHAPE(2, 2, 3, 4), 4, .kernel_h = 2,
               .kernel_w = 3, .stride_h = 3, .stride_w = 2, .pad_top = 1, .pad_left = 1,
               .pad_bottom = 1, .pad_right = 1, .dilation_h = 1, .dilation_w = 2, .groups = 2,
               .output_padding_h = 2, .output_padding_w = 1);
    CHECK_CONV(transposed_uneven, oct_conv_transpose2d_create, OCT_SHAPE(2, 4, 3, 3), 2,
               .kernel_h = 3, .kernel_w = 4, .stride_h = 1, .stride_w = 3, .pad_left = 2,
               .pad_bottom = 1, .pad_right = 1, .dilation_h = 1, .dilation_w = 1, .groups = 1);
    CHECK_CONV(transposed_depth, oct_conv_transpose2d_create, OCT_SHAPE(2, 3, 4, 3), 3,
               .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .dilation_h = 1,
               .dilation_w = 1, .groups = 3);
}

Test(geometry, linear_layers_over_more_positions_agree_with_pytorch)
{
    oct_module *layer;
    RIG_OK(oct_linear_create(&layer, 5, 6, true));
    CHECK_LAYER(linear3, layer, OCT_SHAPE(3, 4, 5));
    RIG_OK(oct_linear_create(&layer, 5, 4, true));
    CHECK_LAYER(linear4, layer, OCT_SHAPE(2, 3, 2, 5));
}

static const oct_pool_geometry ceiled = {.kernel_h = 3,
                                         .kernel_w = 2,
                                         .stride_h = 2,
                                         .stride_w = 3,
                                         .pad_top = 1,
                                         .pad_left = 1,
                                         .pad_bottom = 1,
                                         .pad_right = 1,
                                         .ceil = true};
static const oct_pool_geometry uneven = {
    .kernel_h = 3, .kernel_w = 2, .stride_h = 1, .stride_w = 2, .pad_left = 1, .pad_bottom = 2};

static oct_pool_geometry counting(oct_pool_geometry g)
{
    g.count_include_pad = true;
    return g;
}

RIG_FORWARD(max_ceil_of, oct_max_pool(cx, x[0], ceiled))
RIG_FORWARD(max_uneven_of, oct_max_pool(cx, x[0], uneven))
RIG_FORWARD(avg_ceil_of, oct_avg_pool(cx, x[0], counting(ceiled)))
RIG_FORWARD(avg_ceil_inside_of, oct_avg_pool(cx, x[0], ceiled))
RIG_FORWARD(avg_uneven_of, oct_avg_pool(cx, x[0], counting(uneven)))
RIG_FORWARD(avg_uneven_inside_of, oct_avg_pool(cx, x[0], uneven))

#define CHECK_POOL(name, ...)                                                                      \
    do {                                                                                           \
        rig r = rig_with(NULL, name##_of, __VA_ARGS__, golden_##name##_x);                         \
        oct_tensor *y = rig_run(&r, true);                                                         \
        cr_assert(y, "%s", oct_error_message(0));                                                  \
        cr_assert_eq(oct_numel(y), (int64_t)OCT_COUNT(golden_##name##_y), #name);                  \
        CHECK_GOLDEN(oct_f32(y), golden_##name##_y);                                               \
        rig_backward(&r, y, golden_##name##_grad_y);                                               \
        CHECK_GOLDEN(r.input[0].grad, golden_##name##_grad_x);                                     \
        rig_end(&r);                                                                               \
    } while (0)

Test(geometry, pools_with_sides_of_their_own_agree_with_pytorch_also_where_maxima_tie)
{
    CHECK_POOL(max_ceil, OCT_SHAPE(2, 7, 6, 2));
    CHECK_POOL(max_uneven, OCT_SHAPE(2, 6, 7, 3));
    CHECK_POOL(avg_ceil, OCT_SHAPE(2, 7, 6, 2));
    CHECK_POOL(avg_ceil_inside, OCT_SHAPE(2, 8, 6, 2));
    CHECK_POOL(avg_uneven, OCT_SHAPE(2, 6, 7, 3));
    CHECK_POOL(avg_uneven_inside, OCT_SHAPE(2, 6, 7, 3));
}

/* 0: PyTorch refuses it. */
Test(geometry, sizes_in_ceil_mode_are_those_of_pytorch)
{
    for (size_t i = 0; i < OCT_COUNT(golden_ceil_sizes); i += 5) {
        const int *row = golden_ceil_sizes + i;
        oct_pool_geometry g = oct_pool_geometry_of(row[1], row[2], row[3]);
        g.ceil = true;
        const oct_conv_shape s = oct_pool_shape_of(row[0], 8, 1, g);
        cr_assert_eq(s.out_h, row[4], "in %d, kernel %d, stride %d, padding %d: %lld, not %d",
                     row[0], row[1], row[2], row[3], (long long)s.out_h, row[4]);
    }
}

Test(geometry, windows_are_described_without_what_is_the_default)
{
    char brief[OCT_WINDOW_TEXT];
    oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 0, 1);
    cr_assert_str_eq(oct_text_conv_geometry(&g).text, "3x3");
    g = oct_conv_geometry_of(5, 1, 2, 1, 4);
    cr_assert_str_eq(oct_text_conv_geometry(&g).text, "5x1, stride 2, padding 1, groups 4");
    g.stride_w = 1;
    g.pad_left = g.pad_right = 0;
    g.dilation_h = 3;
    g.output_padding_h = 1;
    cr_assert_str_eq(oct_text_conv_geometry(&g).text,
                     "5x1, stride 2x1, padding 1x0, output padding 1x0, dilation 3x1, groups 4");
    g.pad_bottom = 2;
    cr_assert_str_eq(oct_text_conv_geometry(&g).text,
                     "5x1, stride 2x1, padding 1 above, 0 left, 2 below, 0 right, output padding "
                     "1x0, dilation 3x1, groups 4");
    cr_assert_str_eq(oct_text_pool_geometry(&ceiled).text, "3x2, stride 2x3, padding 1, ceil");
    const oct_pool_geometry counted = counting(uneven);
    cr_assert_str_eq(oct_text_pool_geometry(&counted).text,
                     "3x2, stride 1x2, padding 0 above, 1 left, 2 below, 0 right, padding counts");
    const oct_conv_shape s = oct_conv_shape_of(20, 20, 1, 1, g);
    cr_assert_str_eq(oct_window_text(&s, brief), "5x1 s2x1 d3x1");
}
