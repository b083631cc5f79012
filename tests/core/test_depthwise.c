/* Depthwise kernels against a direct loop in double. Values are multiples of 1/8 in a small range, so
 * every product and sum is exact in float and results must be equal to the bit. */
#include "tests/core/conv_rig.h"
#include "tests/support/check_tensor.h"

typedef struct layer {
    int64_t samples, x_numel, y_numel, w_numel;
    oct_conv_shape s;
    float *x, *weight, *bias, *grad;
    uint8_t *codes;              /* 8 x + 128 */
    uint16_t *codes16;           /* 8 x + 40000 */
    int8_t *weight_codes;        /* 8 weight */
    double *y, *grad_x, *grad_w; /* what is right, without the bias */
} layer;

static void *allocate(int64_t count, size_t size)
{
    void *block;
    cr_assert_eq(oct_alloc(&block, (size_t)count, size), OCT_OK);
    return block;
}

static float next_value(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (float)((int)(*state >> 59) - 16) / 8.0F;
}

static void compute(layer *l)
{
    const oct_conv_shape *s = &l->s;
    for (int64_t at = 0; at < l->y_numel; at++) {
        int64_t c = at % s->out_c, ox = at / s->out_c % s->out_w;
        int64_t oy = at / s->out_c / s->out_w % s->out_h, n = at / (s->out_c * s->out_w * s->out_h);
        for (int64_t t = 0; t < (int64_t)s->kernel_h * s->kernel_w; t++) {
            int64_t iy = oy * s->stride_h - s->pad_top + t / s->kernel_w * s->dilation_h;
            int64_t ix = ox * s->stride_w - s->pad_left + t % s->kernel_w * s->dilation_w;
            if (iy < 0 || iy >= s->in_h || ix < 0 || ix >= s->in_w) continue;
            int64_t x = ((n * s->in_h + iy) * s->in_w + ix) * s->in_c + c;
            int64_t w = c * s->kernel_h * s->kernel_w + t;
            l->y[at] += (double)l->x[x] * (double)l->weight[w];
            l->grad_x[x] += (double)l->grad[at] * (double)l->weight[w];
            l->grad_w[w] += (double)l->grad[at] * (double)l->x[x];
        }
    }
}

static layer layer_of(int64_t samples, int64_t h, int64_t w, int64_t channels, oct_conv_geometry g)
{
    g.groups = (int)channels;
    layer l = {.samples = samples, .s = oct_conv_shape_of(h, w, channels, channels, g)};
    uint64_t state = 7;
    l.x_numel = samples * oct_conv_in_numel(&l.s);
    l.y_numel = samples * oct_conv_out_numel(&l.s);
    l.w_numel = channels * g.kernel_h * g.kernel_w;
    l.x = allocate(l.x_numel, sizeof(float));
    l.codes = allocate(l.x_numel, 1);
    l.codes16 = allocate(l.x_numel, 2);
    l.weight = allocate(l.w_numel, sizeof(float));
    l.weight_codes = allocate(l.w_numel, 1);
    l.bias = allocate(channels, sizeof(float));
    l.grad = allocate(l.y_numel, sizeof(float));
    l.y = allocate(l.y_numel, sizeof(double));
    l.grad_x = allocate(l.x_numel, sizeof(double));
    l.grad_w = allocate(l.w_numel, sizeof(double));
    for (int64_t i = 0; i < l.x_numel; i++) {
        l.x[i] = next_value(&state);
        l.codes[i] = (uint8_t)(8 * l.x[i] + 128);
        l.codes16[i] = (uint16_t)(8 * l.x[i] + 40000);
    }
    for (int64_t i = 0; i < l.w_numel; i++) {
        l.weight[i] = next_value(&state);
        l.weight_codes[i] = (int8_t)(8 * l.weight[i]);
    }
    for (int64_t i = 0; i < channels; i++)
        l.bias[i] = next_value(&state);
    for (int64_t i = 0; i < l.y_numel; i++)
        l.grad[i] = next_value(&state);
    compute(&l);
    return l;
}

static void free_layer(layer *l)
{
    oct_free(&l->x);
    oct_free(&l->codes);
    oct_free(&l->codes16);
    oct_free(&l->weight);
    oct_free(&l->weight_codes);
    oct_free(&l->bias);
    oct_free(&l->grad);
    oct_free(&l->y);
    oct_free(&l->grad_x);
    oct_free(&l->grad_w);
}

/* Depthwise products are the same for all kernels and numerics. */
static planned plan_layer(const layer *l, oct_dtype input)
{
    return planned_of(&l->s, oct_float_kernel_here(), OCT_NUMERICS_BF16, input, l->samples);
}

static void check_forward(const layer *l)
{
    float *y = allocate(l->y_numel, sizeof(float));
    planned p = plan_layer(l, OCT_F32);
    oct_conv_forward_pack(&p.plan, l->weight, p.packed);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        const oct_conv_pass pass = {.samples = l->samples,
                                    .x = l->x,
                                    .packed = p.packed,
                                    .bias = with_bias ? l->bias : NULL,
                                    .y = y};
        oct_conv_forward(&p.plan, &pass, p.scratch);
        for (int64_t i = 0; i < l->y_numel; i++) {
            double bias = with_bias ? (double)l->bias[i % l->s.out_c] : 0;
            cr_assert((double)y[i] == l->y[i] + bias, "y[%lld]", (long long)i);
        }
    }
    oct_free(&y);
    free_planned(&p);
}

static void check_backward_data(const layer *l)
{
    float *grad_x = allocate(l->x_numel, sizeof(float));
    planned p = plan_layer(l, OCT_F32);
    oct_conv_pass pass = {.samples = l->samples, .x = l->grad, .packed = p.packed, .y = grad_x};
    cr_assert(p.plan.grad_rows_are_floats);
    oct_conv_backward_data_pack(&p.plan, l->weight, NULL, p.packed);
    oct_conv_backward_data(&p.plan, &pass, p.scratch);
    for (int64_t i = 0; i < l->x_numel; i++)
        cr_assert((double)grad_x[i] == l->grad_x[i], "grad_x[%lld]", (long long)i);
    oct_conv_backward_data_pack(&p.plan, NULL, l->weight_codes, p.packed);
    pass.add = true;
    oct_conv_backward_data(&p.plan, &pass, p.scratch);
    for (int64_t i = 0; i < l->x_numel; i++)
        cr_assert((double)grad_x[i] == 9 * l->grad_x[i], "added grad_x[%lld]", (long long)i);
    oct_free(&grad_x);
    free_planned(&p);
}

static void check_backward_weight_of(const layer *l, const oct_conv_input *x, double scale)
{
    const oct_conv_shape *s = &l->s;
    float *grad_w = allocate(l->w_numel, sizeof(float)), *factor = allocate(s->in_c, sizeof(float));
    planned p = plan_layer(l, x->values ? OCT_F32 : x->codes ? OCT_U8 : OCT_U16);
    oct_conv_weight_pass pass = {.samples = l->samples, .grad = l->grad, .x = *x, .sums = grad_w};
    memset(grad_w, 0xff, (size_t)l->w_numel * sizeof *grad_w);
    for (int64_t c = 0; c < s->in_c; c++)
        factor[c] = (float)(c % 3);
    oct_conv_backward_weight(&p.plan, &pass, p.scratch);
    pass.factor = factor;
    pass.add = true;
    const oct_cut cut = oct_conv_weight_cut(&p.plan, 1, 2);
    for (int t = 0; t < 2; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
            pass.channel = tile.first;
            pass.channels = tile.end - tile.first;
            oct_conv_backward_weight(&p.plan, &pass, p.scratch);
        }
    }
    for (int64_t i = 0; i < l->w_numel; i++) {
        double times = 1 + (double)factor[i / (s->kernel_h * s->kernel_w)];
        cr_assert((double)grad_w[i] == times * scale * l->grad_w[i], "grad_w[%lld]", (long long)i);
    }
    oct_free(&grad_w);
    oct_free(&factor);
    free_planned(&p);
}

static void check_geometry(int64_t samples, int64_t h, int64_t w, int64_t channels,
                           oct_conv_geometry g)
{
    layer l = layer_of(samples, h, w, channels, g);
    check_forward(&l);
    check_backward_data(&l);
    check_backward_weight_of(&l, &(oct_conv_input){.values = l.x}, 1);
    check_backward_weight_of(&l, &(oct_conv_input){.codes = l.codes, .zero_point = 128}, 8);
    check_backward_weight_of(&l, &(oct_conv_input){.codes16 = l.codes16, .zero_point = 40000}, 8);
    free_layer(&l);
}

static void check_layer(int64_t samples, int64_t h, int64_t w, int64_t channels, int kernel_h,
                        int kernel_w, int stride, int padding)
{
    check_geometry(samples, h, w, channels,
                   oct_conv_geometry_of(kernel_h, kernel_w, stride, padding, 1));
}

Test(depthwise, three_by_three_layers_equal_the_direct_loop)
{
    check_layer(2, 9, 8, 16, 3, 3, 1, 1);
    check_layer(2, 9, 8, 5, 3, 3, 1, 1);
    check_layer(2, 8, 11, 33, 3, 3, 2, 1);
    check_layer(3, 4, 4, 48, 3, 3, 1, 1);
    check_layer(1, 1, 1, 16, 3, 3, 1, 1);
}

Test(depthwise, five_by_five_layers_equal_the_direct_loop)
{
    check_layer(2, 9, 8, 32, 5, 5, 1, 2);
    check_layer(2, 9, 8, 19, 5, 5, 2, 2);
}

Test(depthwise, odd_kernels_strides_and_paddings_equal_the_direct_loop)
{
    check_layer(2, 7, 10, 37, 5, 3, 1, 2);
    check_layer(2, 2, 2, 33, 7, 7, 2, 3);
    check_layer(2, 9, 9, 4, 2, 2, 4, 0);
    check_layer(2, 9, 9, 16, 1, 1, 2, 0);
    check_layer(2, 6, 6, 16, 1, 3, 1, 2);
    check_layer(2, 10, 13, 17, 2, 4, 3, 1);
    check_layer(2, 10, 10, 16, 3, 3, 1, 0);
    check_layer(2, 10, 10, 16, 3, 3, 1, 3);
}

Test(depthwise, sides_of_their_own_and_dilation_equal_the_direct_loop)
{
    check_geometry(2, 9, 11, 20,
                   (oct_conv_geometry){.kernel_h = 3,
                                       .kernel_w = 3,
                                       .stride_h = 2,
                                       .stride_w = 1,
                                       .pad_bottom = 1,
                                       .pad_right = 2,
                                       .dilation_h = 1,
                                       .dilation_w = 1});
    check_geometry(2, 12, 10, 16,
                   (oct_conv_geometry){.kernel_h = 3,
                                       .kernel_w = 3,
                                       .stride_h = 1,
                                       .stride_w = 1,
                                       .pad_top = 2,
                                       .pad_left = 3,
                                       .pad_bottom = 2,
                                       .pad_right = 3,
                                       .dilation_h = 2,
                                       .dilation_w = 3});
    check_geometry(2, 13, 12, 33,
                   (oct_conv_geometry){.kernel_h = 5,
                                       .kernel_w = 5,
                                       .stride_h = 2,
                                       .stride_w = 3,
                                       .pad_top = 4,
                                       .pad_right = 1,
                                       .dilation_h = 3,
                                       .dilation_w = 1});
    check_geometry(1, 40, 41, 40,
                   (oct_conv_geometry){.kernel_h = 10,
                                       .kernel_w = 4,
                                       .stride_h = 2,
                                       .stride_w = 2,
                                       .pad_top = 4,
                                       .pad_left = 1,
                                       .pad_bottom = 5,
                                       .pad_right = 1,
                                       .dilation_h = 1,
                                       .dilation_w = 2});
}

Test(depthwise, planes_of_several_blocks_equal_the_direct_loop)
{
    check_layer(2, 50, 70, 40, 3, 3, 1, 1);
    check_layer(1, 61, 70, 40, 3, 3, 2, 1);
    check_layer(1, 41, 40, 100, 5, 5, 1, 2);
}

/* Values whose sums are rounded: what differs in order or in the path it takes differs in bits. */
static float rough(int64_t i)
{
    return (float)(i * 7919 % 1009 - 500) / 997.0F;
}

Test(depthwise, bits_do_not_depend_on_the_samples_of_a_call_nor_on_the_tail_of_channels)
{
    enum { SAMPLES = 3, H = 12, W = 9, WIDE = 32, NARROW = 20 };
    layer wide = layer_of(SAMPLES, H, W, WIDE, oct_conv_geometry_of(3, 3, 1, 1, 1));
    layer narrow = layer_of(SAMPLES, H, W, NARROW, oct_conv_geometry_of(3, 3, 1, 1, 1));
    for (int64_t i = 0; i < wide.x_numel; i++)
        wide.x[i] = rough(i);
    for (int64_t i = 0; i < narrow.x_numel; i++)
        narrow.x[i] = wide.x[i / NARROW * WIDE + i % NARROW];
    for (int64_t i = 0; i < wide.w_numel; i++)
        wide.weight[i] = rough(i * 31);
    float *y = allocate(wide.y_numel, sizeof(float)),
          *part = allocate(narrow.y_numel, sizeof(float));
    planned p = plan_layer(&wide, OCT_F32), q = plan_layer(&narrow, OCT_F32);
    oct_conv_pass all = {
        .samples = SAMPLES, .x = wide.x, .packed = p.packed, .bias = wide.bias, .y = y};
    oct_conv_forward_pack(&p.plan, wide.weight, p.packed);
    oct_conv_forward_pack(&q.plan, wide.weight, q.packed);
    oct_conv_forward(&p.plan, &all, p.scratch);
    for (int64_t n = 0; n < SAMPLES; n++) {
        const oct_conv_pass one = {.samples = 1,
                                   .x = narrow.x + n * H * W * NARROW,
                                   .packed = q.packed,
                                   .bias = wide.bias,
                                   .y = part + n * H * W * NARROW};
        oct_conv_forward(&q.plan, &one, q.scratch);
    }
    for (int64_t i = 0; i < narrow.y_numel; i++)
        oct_check_bits_f32(part + i, y + i / NARROW * WIDE + i % NARROW, 1, "y");
    oct_free(&y);
    oct_free(&part);
    free_planned(&p);
    free_planned(&q);
    free_layer(&wide);
    free_layer(&narrow);
}

Test(depthwise, no_samples_leave_a_weight_gradient_as_it_was)
{
    layer l = layer_of(1, 5, 5, 3, oct_conv_geometry_of(3, 3, 1, 1, 1));
    planned p = plan_layer(&l, OCT_F32);
    const oct_conv_weight_pass none = {
        .grad = l.grad, .x = {.values = l.x}, .sums = l.weight, .add = true};
    l.weight[4] = 3;
    oct_conv_backward_weight(&p.plan, &none, p.scratch);
    cr_assert_eq(l.weight[4], 3);
    free_planned(&p);
    free_layer(&l);
}
