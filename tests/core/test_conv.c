/* Float convolution kernels against a direct loop in double. Inputs are multiples of 1/8 in a small
 * range, so every product and every sum here is exact in float: results must be equal to the bit,
 * whatever the order of summation. */
#include "core/kernel/blas.h"
#include "core/kernel/conv.h"

#include "core/base/mem.h"
#include "tests/support/check_tensor.h"

typedef struct example {
    int64_t samples;
    oct_conv_shape s;
    float *x, *w, *bias, *y, *grad_y, *grad_x, *grad_w;
    uint8_t *codes;
} example;

static void *take(size_t count, size_t size)
{
    void *block;
    cr_assert_eq(oct_alloc(&block, count, size), OCT_OK);
    return block;
}

static float value(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (float)((int)(*state >> 59) - 16) / 8.0F;
}

static int64_t x_numel(const example *e)
{
    return e->samples * e->s.in_h * e->s.in_w * e->s.in_c;
}

static int64_t y_numel(const example *e)
{
    return e->samples * e->s.out_h * e->s.out_w * e->s.out_c;
}

static int64_t w_numel(const example *e)
{
    return e->s.out_c * e->s.kernel_h * e->s.kernel_w * (e->s.in_c / e->s.groups);
}

static example example_of(int64_t samples, oct_conv_shape s)
{
    s.out_h = oct_conv_out(s.in_h, s.kernel_h, s.stride, s.padding);
    s.out_w = oct_conv_out(s.in_w, s.kernel_w, s.stride, s.padding);
    example e = {.samples = samples, .s = s};
    uint64_t state = 7;
    e.x = take((size_t)x_numel(&e), sizeof(float));
    e.codes = take((size_t)x_numel(&e), 1);
    e.w = take((size_t)w_numel(&e), sizeof(float));
    e.bias = take((size_t)s.out_c, sizeof(float));
    e.y = take((size_t)y_numel(&e), sizeof(float));
    e.grad_y = take((size_t)y_numel(&e), sizeof(float));
    e.grad_x = take((size_t)x_numel(&e), sizeof(float));
    e.grad_w = take((size_t)w_numel(&e), sizeof(float));
    for (int64_t i = 0; i < x_numel(&e); i++) {
        e.x[i] = value(&state);
        e.codes[i] = (uint8_t)(int)(e.x[i] * 8 + 128);
    }
    for (int64_t i = 0; i < w_numel(&e); i++)
        e.w[i] = value(&state);
    for (int64_t i = 0; i < s.out_c; i++)
        e.bias[i] = value(&state);
    for (int64_t i = 0; i < y_numel(&e); i++)
        e.grad_y[i] = value(&state);
    return e;
}

static void free_example(example *e)
{
    oct_free(&e->x);
    oct_free(&e->codes);
    oct_free(&e->w);
    oct_free(&e->bias);
    oct_free(&e->y);
    oct_free(&e->grad_y);
    oct_free(&e->grad_x);
    oct_free(&e->grad_w);
}

/* Calls visit for every product of the convolution: offsets into x, w and y. */
static void each_product(const example *e, void (*visit)(void *, int64_t, int64_t, int64_t),
                         void *user)
{
    const oct_conv_shape *s = &e->s;
    int64_t ins = s->in_c / s->groups, outs = s->out_c / s->groups;
    for (int64_t n = 0; n < e->samples; n++)
        for (int64_t oy = 0; oy < s->out_h; oy++)
            for (int64_t ox = 0; ox < s->out_w; ox++)
                for (int64_t o = 0; o < s->out_c; o++)
                    for (int64_t ky = 0; ky < s->kernel_h; ky++)
                        for (int64_t kx = 0; kx < s->kernel_w; kx++)
                            for (int64_t i = 0; i < ins; i++) {
                                int64_t iy = oy * s->stride - s->padding + ky;
                                int64_t ix = ox * s->stride - s->padding + kx;
                                if (iy < 0 || iy >= s->in_h || ix < 0 || ix >= s->in_w) continue;
                                visit(user,
                                      ((n * s->in_h + iy) * s->in_w + ix) * s->in_c +
                                          o / outs * ins + i,
                                      ((o * s->kernel_h + ky) * s->kernel_w + kx) * ins + i,
                                      ((n * s->out_h + oy) * s->out_w + ox) * s->out_c + o);
                            }
}

typedef struct reference {
    const example *e;
    double *y, *grad_x, *grad_w;
} reference;

static void add_product(void *user, int64_t x, int64_t w, int64_t y)
{
    reference *r = user;
    r->y[y] += (double)r->e->x[x] * (double)r->e->w[w];
    r->grad_x[x] += (double)r->e->grad_y[y] * (double)r->e->w[w];
    r->grad_w[w] += (double)r->e->grad_y[y] * (double)r->e->x[x];
}

static void check_exact(const float *got, const double *want, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        cr_assert((double)got[i] == want[i], "%s: element %lld of %lld: got %.9g, wanted %.9g",
                  what, (long long)i, (long long)n, (double)got[i], want[i]);
}

static void check_example(int64_t samples, oct_conv_shape s)
{
    example e = example_of(samples, s);
    reference r = {.e = &e,
                   .y = take((size_t)y_numel(&e), sizeof(double)),
                   .grad_x = take((size_t)x_numel(&e), sizeof(double)),
                   .grad_w = take((size_t)w_numel(&e), sizeof(double))};
    for (int64_t i = 0; i < y_numel(&e); i++)
        r.y[i] = (double)e.bias[i % s.out_c];
    for (int64_t i = 0; i < w_numel(&e); i++)
        e.grad_w[i] = (float)(r.grad_w[i] = (double)(i % 5));
    for (int64_t i = 0; i < x_numel(&e); i++)
        e.grad_x[i] = 99;
    each_product(&e, add_product, &r);

    void *scratch = take(oct_conv_forward_scratch_bytes(&e.s, samples), 1);
    oct_conv_forward(&e.s, samples, e.x, e.w, e.bias, e.y, scratch);
    oct_free(&scratch);
    check_exact(e.y, r.y, y_numel(&e), "y");

    scratch = take(oct_conv_backward_data_scratch_bytes(&e.s, samples), 1);
    oct_conv_backward_data(&e.s, samples, e.grad_y, e.w, e.grad_x, scratch);
    oct_free(&scratch);
    check_exact(e.grad_x, r.grad_x, x_numel(&e), "grad_x");

    scratch = take(oct_conv_backward_weight_scratch_bytes(&e.s, samples), 1);
    oct_conv_backward_weight(&e.s, samples, e.grad_y, e.x, e.grad_w, scratch);
    oct_free(&scratch);
    check_exact(e.grad_w, r.grad_w, w_numel(&e), "grad_w");

    /* codes are 8 x + 128, so their gradient is 8 times that of x; both are exact */
    float *grad = take((size_t)w_numel(&e), sizeof(float));
    scratch = take(oct_conv_backward_weight_codes_scratch_bytes(&e.s, samples), 1);
    oct_conv_backward_weight_codes(&e.s, samples, e.grad_y, e.codes, 128, grad, scratch);
    oct_free(&scratch);
    for (int64_t i = 0; i < w_numel(&e); i++)
        r.grad_w[i] = 8 * (r.grad_w[i] - (double)(i % 5));
    check_exact(grad, r.grad_w, w_numel(&e), "grad_w of codes");
    oct_free(&grad);
    oct_free(&r.y);
    oct_free(&r.grad_x);
    oct_free(&r.grad_w);
    free_example(&e);
}

#define SHAPE(h, w, i, o, kh, kw, st, pad, g)                                                      \
    (oct_conv_shape)                                                                               \
    {                                                                                              \
        .in_h = (h), .in_w = (w), .in_c = (i), .out_c = (o), .kernel_h = (kh), .kernel_w = (kw),   \
        .stride = (st), .padding = (pad), .groups = (g)                                            \
    }

Test(conv, three_by_three_layers_equal_the_direct_loop)
{
    check_example(2, SHAPE(9, 7, 3, 5, 3, 3, 1, 1, 1));
    check_example(3, SHAPE(8, 8, 4, 6, 3, 3, 2, 1, 1));
    check_example(2, SHAPE(12, 12, 8, 16, 3, 3, 1, 1, 1));
    check_example(1, SHAPE(28, 28, 1, 4, 3, 3, 1, 1, 1));
}

Test(conv, odd_kernels_strides_and_paddings_equal_the_direct_loop)
{
    check_example(2, SHAPE(11, 9, 2, 3, 5, 3, 2, 2, 1));
    check_example(2, SHAPE(10, 13, 3, 2, 2, 4, 3, 1, 1));
    check_example(2, SHAPE(9, 9, 2, 2, 7, 7, 1, 3, 1));
    check_example(2, SHAPE(10, 10, 2, 3, 3, 3, 1, 0, 1));
    check_example(2, SHAPE(10, 10, 2, 3, 3, 3, 1, 2, 1));
    check_example(2, SHAPE(10, 10, 2, 3, 1, 3, 1, 1, 1));
    check_example(2, SHAPE(8, 8, 2, 3, 1, 1, 1, 1, 1));
}

Test(conv, a_window_that_jumps_over_pixels_equals_the_direct_loop)
{
    check_example(2, SHAPE(9, 9, 4, 4, 1, 1, 2, 0, 1));
    check_example(2, SHAPE(9, 9, 4, 4, 2, 2, 4, 0, 1));
    check_example(2, SHAPE(9, 9, 4, 4, 2, 2, 4, 0, 4));
}

Test(conv, one_by_one_layers_equal_the_direct_loop)
{
    check_example(3, SHAPE(6, 5, 7, 9, 1, 1, 1, 0, 1));
    check_example(3, SHAPE(6, 5, 8, 12, 1, 1, 1, 0, 4));
}

Test(conv, linear_layers_equal_the_direct_loop)
{
    check_example(8, SHAPE(1, 1, 33, 10, 1, 1, 1, 0, 1));
    check_example(1, SHAPE(1, 1, 5, 1, 1, 1, 1, 0, 1));
    check_example(300, SHAPE(1, 1, 5, 3, 1, 1, 1, 0, 1));
}

Test(conv, grouped_layers_equal_the_direct_loop)
{
    check_example(2, SHAPE(9, 8, 6, 4, 3, 3, 1, 1, 2));
    check_example(2, SHAPE(9, 8, 6, 9, 3, 3, 2, 1, 3));
    check_example(2, SHAPE(9, 8, 4, 8, 3, 3, 1, 1, 4));
}

Test(conv, depthwise_layers_equal_the_direct_loop)
{
    check_example(2, SHAPE(9, 8, 5, 5, 3, 3, 1, 1, 5));
    check_example(2, SHAPE(9, 8, 16, 16, 3, 3, 2, 1, 16));
    check_example(2, SHAPE(7, 10, 37, 37, 5, 3, 1, 2, 37));
    check_example(2, SHAPE(2, 2, 33, 33, 7, 7, 2, 3, 33));
}

Test(conv, small_images_that_share_a_block_equal_the_direct_loop)
{
    check_example(11, SHAPE(4, 4, 20, 12, 3, 3, 1, 1, 1));
    check_example(9, SHAPE(2, 2, 20, 12, 3, 3, 1, 1, 1));
    check_example(9, SHAPE(4, 4, 20, 12, 3, 3, 2, 1, 2));
}

Test(conv, images_of_several_blocks_equal_the_direct_loop)
{
    check_example(2, SHAPE(31, 29, 32, 8, 3, 3, 1, 1, 1));
    check_example(1, SHAPE(40, 40, 16, 8, 3, 3, 2, 1, 1));
}

Test(conv, no_samples_leave_everything_as_it_was)
{
    oct_conv_shape s = SHAPE(5, 5, 2, 2, 3, 3, 1, 1, 1);
    s.out_h = s.out_w = 5;
    float w[36] = {0}, grad[36] = {3}, *nothing = take(0, 1);
    void *scratch = take(oct_conv_backward_data_scratch_bytes(&s, 0), 1);
    oct_conv_forward(&s, 0, nothing, w, NULL, nothing, nothing);
    oct_conv_backward_data(&s, 0, nothing, w, nothing, scratch);
    oct_conv_backward_weight(&s, 0, nothing, nothing, grad, nothing);
    cr_assert_eq(grad[0], 3);
    oct_free(&scratch);
    oct_free(&nothing);
}

Test(conv, a_bias_gradient_is_the_sum_over_rows_in_order)
{
    float grad[3] = {1, 2, 3}, rows[] = {1e8F, 1, 2, 1, 1, 2, -1e8F, 1, 2};
    oct_bias_backward(3, 3, rows, grad);
    float want[3] = {0, 5, 9}; /* (1 + 1e8) + 1 - 1e8 in float */
    oct_check_bits_f32(grad, want, 3, "bias");
}

Test(conv, output_sizes_follow_the_window)
{
    cr_assert_eq(oct_conv_out(28, 3, 1, 1), 28);
    cr_assert_eq(oct_conv_out(28, 3, 2, 1), 14);
    cr_assert_eq(oct_conv_out(7, 2, 2, 0), 3);
    cr_assert_eq(oct_conv_out(2, 3, 1, 0), 0);
    cr_assert_eq(oct_conv_out(2, 5, 1, 1), 0);
}

Test(blas, products_with_transposed_operands_and_wide_rows)
{
    oct_blas_init();
    cr_assert(oct_blas_core()[0] != '\0');
    const float a[] = {1, 2, 9, 3, 4, 9}, b[] = {5, 6, 7, 8};
    float c[] = {1, 1, 1, 1};
    oct_sgemm(false, false, 2, 2, 2, 1, a, 3, b, 2, 0, c, 2);
    oct_check_bits_f32(c, (float[]){19, 22, 43, 50}, 4, "a b");
    oct_sgemm(true, false, 2, 2, 2, 1, a, 3, b, 2, 1, c, 2);
    oct_check_bits_f32(c, (float[]){45, 52, 81, 94}, 4, "a' b + c");
    oct_sgemm(false, true, 2, 2, 2, 2, a, 3, b, 2, 0, c, 2);
    oct_check_bits_f32(c, (float[]){34, 46, 78, 106}, 4, "2 a b'");
}
