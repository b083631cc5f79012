/* Float convolution kernels. Where inputs are multiples of 1/8 in a small range, every product and every
 * sum is exact in float32 and the operands are exact in bfloat16: results must be those of a direct loop
 * in double, to the bit. Other inputs are judged by a bound on rounding, and every table against the
 * reference to the bit. */
#include "core/base/half.h"
#include "core/kernel/blas.h"

#include "core/base/leaves.h"
#include "tests/core/conv_rig.h"
#include "tests/support/check_tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A sum of n products that are rounded once each, and n sums: within n units of rounding of the sum of
 * magnitudes; twice that leaves room for the factor and what was there before. */
static const double unit = 0x1p-24;
/* Sums and products below the smallest normal float may be flushed. */
static const double smallest = 0x1p-126;

static const oct_numerics both_numerics[] = {OCT_NUMERICS_F32, OCT_NUMERICS_BF16};

static const oct_float_kernel *const tables[] = {
#define OCT_FLOAT_KERNEL(ISA, isa) &oct_float_kernel_##isa,
#include "core/kernel/float_kernel_list.def"
#undef OCT_FLOAT_KERNEL
};

/* Tables that this machine can run. */
static bool is_here(const oct_float_kernel *k)
{
    return oct_isa_has(oct_cpu_isa(), k->isa) && (!k->present || k->present());
}

typedef struct example {
    int64_t samples;
    oct_conv_shape s;
    float *x, *w, *bias, *grad_y, *factor;
    uint8_t *codes;
    uint16_t *codes16;
    int8_t *weight_codes;
} example;

typedef struct results {
    float *y, *grad_x, *grad_w, *grad_w8, *grad_w16;
} results;

static void *allocate(size_t count, size_t size)
{
    void *block;
    cr_assert_eq(oct_alloc(&block, count, size), OCT_OK);
    return block;
}

/* Multiples of 1/8 in [-2, 2). */
static float next_value(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (float)((int)(*state >> 59) - 16) / 8.0F;
}

/* Any sign and fraction, in `powers` magnitudes up to 16. */
static float wild_value(uint64_t *state, int powers)
{
    float fraction = next_value(state) + next_value(state) / 64 + next_value(state) / 4096 +
                     next_value(state) / 65536;
    return ldexpf(fraction, (int)(*state >> 40 & 0xffff) % powers + 4 - powers);
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

/* powers 0: exact values. Codes are 8 x + 128 and 8 x + 300 of exact values. */
static example example_of(int64_t samples, oct_conv_shape s, int powers)
{
    oct_conv_set_out(&s);
    example e = {.samples = samples, .s = s};
    uint64_t state = 7;
    e.x = allocate((size_t)x_numel(&e), sizeof(float));
    e.codes = allocate((size_t)x_numel(&e), 1);
    e.codes16 = allocate((size_t)x_numel(&e), 2);
    e.w = allocate((size_t)w_numel(&e), sizeof(float));
    e.weight_codes = allocate((size_t)w_numel(&e), 1);
    e.bias = allocate((size_t)s.out_c, sizeof(float));
    e.factor = allocate((size_t)s.out_c, sizeof(float));
    e.grad_y = allocate((size_t)y_numel(&e), sizeof(float));
    for (int64_t i = 0; i < x_numel(&e); i++) {
        float v = next_value(&state);
        e.x[i] = powers ? wild_value(&state, powers) : v;
        e.codes[i] = (uint8_t)(int)(v * 8 + 128);
        e.codes16[i] = (uint16_t)(int)(v * 8 + 300);
    }
    for (int64_t i = 0; i < w_numel(&e); i++) {
        float v = next_value(&state);
        e.w[i] = powers ? wild_value(&state, powers) : v;
        e.weight_codes[i] = (int8_t)(v * 8);
    }
    for (int64_t i = 0; i < s.out_c; i++) {
        e.bias[i] = next_value(&state);
        e.factor[i] = i % 3 ? 2 : 0.5F;
    }
    for (int64_t i = 0; i < y_numel(&e); i++)
        e.grad_y[i] = powers ? wild_value(&state, powers) : next_value(&state);
    return e;
}

static void free_example(example *e)
{
    oct_free(&e->x);
    oct_free(&e->codes);
    oct_free(&e->codes16);
    oct_free(&e->w);
    oct_free(&e->weight_codes);
    oct_free(&e->bias);
    oct_free(&e->factor);
    oct_free(&e->grad_y);
}

static void free_results(results *r)
{
    oct_free(&r->y);
    oct_free(&r->grad_x);
    oct_free(&r->grad_w);
    oct_free(&r->grad_w8);
    oct_free(&r->grad_w16);
}

static float *forward(const example *e, const oct_float_kernel *k, oct_numerics numerics,
                      int64_t together)
{
    float *y = allocate((size_t)y_numel(e), sizeof *y);
    planned p = planned_of(&e->s, k, numerics, OCT_F32, 1);
    oct_conv_forward_pack(&p.plan, e->w, p.packed);
    for (int64_t n = 0; n < e->samples; n += together)
        oct_conv_forward(&p.plan,
                         &(oct_conv_pass){.samples = together,
                                          .x = e->x + n * oct_conv_in_numel(&e->s),
                                          .packed = p.packed,
                                          .bias = e->bias,
                                          .y = y + n * oct_conv_out_numel(&e->s)},
                         p.scratch);
    free_planned(&p);
    return y;
}

/* From 99 on when it adds. rows: the gradient as the plan takes it. */
static float *backward_data(const example *e, const planned *p, const char *rows, bool codes,
                            bool add, int64_t together)
{
    const size_t row =
        p->plan.config.grad_is_floats ? (size_t)e->s.out_c * 4 : p->plan.grad_row_bytes;
    float *grad_x = allocate((size_t)x_numel(e), sizeof *grad_x);
    for (int64_t i = 0; i < x_numel(e); i++)
        grad_x[i] = 99;
    oct_conv_backward_data_pack(&p->plan, codes ? NULL : e->w, e->weight_codes, p->packed);
    for (int64_t n = 0; n < e->samples; n += together)
        oct_conv_backward_data(
            &p->plan,
            &(oct_conv_pass){.samples = together,
                             .x = rows + (size_t)(n * e->s.out_h * e->s.out_w) * row,
                             .packed = p->packed,
                             .y = grad_x + n * oct_conv_in_numel(&e->s),
                             .add = add},
            p->scratch);
    return grad_x;
}

/* A pass has the same bits where the gradient comes as it is. */
static void check_float_gradient(const example *e, const planned *p, oct_conv_weight_pass pass,
                                 const float *want)
{
    planned floats = planned_with_floats(p);
    pass.grad = e->grad_y;
    pass.sums = take_dirty((size_t)w_numel(e) * sizeof(float));
    pass.add = false;
    oct_conv_backward_weight(&floats.plan, &pass, floats.scratch);
    oct_check_bits_f32(pass.sums, want, w_numel(e), p->plan.config.kernel->name);
    oct_free(&pass.sums);
    free_planned(&floats);
}

static oct_dtype dtype_of(const oct_conv_input *x)
{
    return x->values ? OCT_F32 : x->codes ? OCT_U8 : OCT_U16;
}

/* In the layout of the weights, from i % 5 on. */
static float *backward_weight(const example *e, const oct_float_kernel *k, oct_numerics numerics,
                              const char *rows, const oct_conv_input *x)
{
    const int64_t depth = oct_conv_depth(&e->s), outs = e->s.out_c / e->s.groups;
    float *grad = allocate((size_t)w_numel(e), sizeof *grad),
          *sums = allocate((size_t)w_numel(e), 4);
    planned p = planned_of(&e->s, k, numerics, dtype_of(x), e->samples);
    for (int64_t i = 0; i < w_numel(e); i++) {
        const int64_t g = i / (depth * outs), at = i / outs % depth, o = i % outs;
        sums[i] = (float)(((g * outs + o) * depth + at) % 5);
    }
    oct_conv_backward_weight(&p.plan,
                             &(oct_conv_weight_pass){.samples = e->samples,
                                                     .grad = rows,
                                                     .x = *x,
                                                     .factor = e->factor,
                                                     .sums = sums,
                                                     .add = true},
                             p.scratch);
    oct_conv_weight_transpose(e->s.groups, depth, outs, sums, grad);
    free_planned(&p);
    oct_free(&sums);
    return grad;
}

static char *grad_rows(const example *e, const oct_conv_plan *p)
{
    const int64_t rows = e->samples * e->s.out_h * e->s.out_w;
    char *out = take_dirty((size_t)rows * p->grad_row_bytes);
    oct_conv_grad_rows(p, rows, e->grad_y, NULL, out);
    return out;
}

static results run_kernel(const example *e, const oct_float_kernel *k, oct_numerics numerics,
                          int64_t together)
{
    planned p = planned_of(&e->s, k, numerics, OCT_F32, 1), floats = planned_with_floats(&p);
    char *rows = grad_rows(e, &p.plan);
    results r = {
        .y = forward(e, k, numerics, together),
        .grad_x = backward_data(e, &p, rows, false, false, together),
        .grad_w = backward_weight(e, k, numerics, rows, &(oct_conv_input){.values = e->x}),
        .grad_w8 = backward_weight(e, k, numerics, rows,
                                   &(oct_conv_input){.codes = e->codes, .zero_point = 128}),
        .grad_w16 = backward_weight(e, k, numerics, rows,
                                    &(oct_conv_input){.codes16 = e->codes16, .zero_point = 300})};
    float *grad_x = backward_data(e, &floats, (const char *)e->grad_y, false, false, together);
    oct_check_bits_f32(grad_x, r.grad_x, x_numel(e), k->name);
    oct_free(&grad_x);
    free_planned(&p);
    free_planned(&floats);
    oct_free(&rows);
    return r;
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
                                int64_t iy = oy * s->stride_h - s->pad_top + ky * s->dilation_h;
                                int64_t ix = ox * s->stride_w - s->pad_left + kx * s->dilation_w;
                                if (iy < 0 || iy >= s->in_h || ix < 0 || ix >= s->in_w) continue;
                                visit(user,
                                      ((n * s->in_h + iy) * s->in_w + ix) * s->in_c +
                                          o / outs * ins + i,
                                      ((o * s->kernel_h + ky) * s->kernel_w + kx) * ins + i,
                                      ((n * s->out_h + oy) * s->out_w + ox) * s->out_c + o);
                            }
}

/* The direct loop, in double, and the sums of magnitudes that bounds are made of. */
typedef struct reference {
    const example *e;
    oct_numerics numerics;
    double *y, *grad_x, *grad_w, *grad_w8;
    double *most_y, *most_grad_x, *most_grad_w;
} reference;

static double operand(const reference *r, float v)
{
    return (double)(r->numerics == OCT_NUMERICS_BF16 ? oct_bf16_value(oct_bf16_of(v)) : v);
}

static void add_product(void *user, int64_t x, int64_t w, int64_t y)
{
    reference *r = user;
    const example *e = r->e;
    const double g = operand(r, e->grad_y[y]), f = (double)e->factor[y % e->s.out_c];
    const double forward = operand(r, e->x[x]) * operand(r, e->w[w]);
    const double data = g * operand(r, e->w[w]);
    const double weight = f * g * operand(r, e->x[x]);
    r->y[y] += forward;
    r->most_y[y] += fabs(forward);
    r->grad_x[x] += data;
    r->most_grad_x[x] += fabs(data);
    r->grad_w[w] += weight;
    r->most_grad_w[w] += fabs(weight);
    r->grad_w8[w] += f * g * (e->codes[x] - 128);
}

static reference reference_of(const example *e, oct_numerics numerics)
{
    reference r = {.e = e,
                   .numerics = oct_conv_is_depthwise(&e->s) ? OCT_NUMERICS_F32 : numerics,
                   .y = allocate((size_t)y_numel(e), sizeof(double)),
                   .most_y = allocate((size_t)y_numel(e), sizeof(double)),
                   .grad_x = allocate((size_t)x_numel(e), sizeof(double)),
                   .most_grad_x = allocate((size_t)x_numel(e), sizeof(double)),
                   .grad_w = allocate((size_t)w_numel(e), sizeof(double)),
                   .grad_w8 = allocate((size_t)w_numel(e), sizeof(double)),
                   .most_grad_w = allocate((size_t)w_numel(e), sizeof(double))};
    for (int64_t i = 0; i < y_numel(e); i++) {
        r.y[i] = (double)e->bias[i % e->s.out_c];
        r.most_y[i] = fabs(r.y[i]);
    }
    for (int64_t i = 0; i < w_numel(e); i++)
        r.grad_w[i] = r.grad_w8[i] = r.most_grad_w[i] = (double)(i % 5);
    each_product(e, add_product, &r);
    return r;
}

static void free_reference(reference *r)
{
    oct_free(&r->y);
    oct_free(&r->most_y);
    oct_free(&r->grad_x);
    oct_free(&r->most_grad_x);
    oct_free(&r->grad_w);
    oct_free(&r->grad_w8);
    oct_free(&r->most_grad_w);
}

static void check_exact(const float *got, const double *want, int64_t n, const char *table,
                        const char *what)
{
    for (int64_t i = 0; i < n; i++)
        cr_assert((double)got[i] == want[i], "%s, %s: element %lld of %lld: got %.9g, wanted %.9g",
                  table, what, (long long)i, (long long)n, (double)got[i], want[i]);
}

/* most: sums of magnitudes; of `terms` terms each. */
static void check_close(const float *got, const double *want, const double *most, int64_t terms,
                        int64_t n, const char *table, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        const double bound = 2 * (double)(terms + 2) * (unit * most[i] + smallest);
        cr_assert(fabs((double)got[i] - want[i]) <= bound,
                  "%s, %s: element %lld of %lld: got %.9g, wanted %.9g within %.3g", table, what,
                  (long long)i, (long long)n, (double)got[i], want[i], bound);
    }
}

/* Sums that go on in grad_x, from weights that are codes: 8 times those of the exact weights. */
static void check_added_codes(const example *e, const oct_float_kernel *k, oct_numerics numerics,
                              const reference *want)
{
    planned p = planned_of(&e->s, k, numerics, OCT_F32, 1);
    char *rows = grad_rows(e, &p.plan);
    float *got = backward_data(e, &p, rows, true, true, e->samples);
    for (int64_t i = 0; i < x_numel(e); i++)
        cr_assert((double)got[i] == 99 + 8 * want->grad_x[i], "%s: element %lld", k->name,
                  (long long)i);
    free_planned(&p);
    oct_free(&got);
    oct_free(&rows);
}

/* What threads that share a pass by its channels compute. */
static void backward_by_channels(const planned *p, oct_conv_weight_pass pass, int threads)
{
    const oct_cut cut = oct_conv_weight_cut(&p->plan, 1, threads);
    for (int t = 0; t < threads; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
            pass.channel = tile.first;
            pass.channels = tile.end - tile.first;
            oct_conv_backward_weight(&p->plan, &pass, p->scratch);
        }
    }
}

/* Written over garbage: the bits of adding to zeros, also some channels at a time. The first channel's sums are 0 and its factor is
 * negative, so their products are -0, which nothing may keep. */
static void check_fresh(const example *e, const oct_float_kernel *k, oct_numerics numerics)
{
    const int64_t numel = w_numel(e);
    float *zeros = allocate((size_t)numel, sizeof *zeros), *fresh = take_dirty((size_t)numel * 4);
    float *factor = allocate((size_t)e->s.out_c, sizeof *factor);
    planned p = planned_of(&e->s, k, numerics, OCT_U8, e->samples);
    memcpy(factor, e->factor, (size_t)e->s.out_c * sizeof *factor);
    factor[0] = -1;
    for (int64_t i = 0; i < y_numel(e); i += e->s.out_c)
        e->grad_y[i] = 0;
    char *rows = grad_rows(e, &p.plan);
    for (int scaled = 0; scaled < 2; scaled++) {
        oct_conv_weight_pass pass = {.samples = e->samples,
                                     .grad = rows,
                                     .x = {.codes = e->codes, .zero_point = 128},
                                     .factor = scaled ? factor : NULL,
                                     .sums = zeros,
                                     .add = true};
        memset(zeros, 0, (size_t)numel * sizeof *zeros);
        oct_conv_backward_weight(&p.plan, &pass, p.scratch);
        pass.sums = fresh;
        pass.add = false;
        oct_conv_backward_weight(&p.plan, &pass, p.scratch);
        oct_check_bits_f32(fresh, zeros, numel, k->name);
        check_float_gradient(e, &p, pass, zeros);
        cr_assert_not(signbit(fresh[0]));
        for (int threads = 2; threads < 6; threads++) {
            memset(fresh, 0xff, (size_t)numel * sizeof *fresh);
            backward_by_channels(&p, pass, threads);
            oct_check_bits_f32(fresh, zeros, numel, k->name);
        }
    }
    oct_free(&rows);
    oct_free(&zeros);
    oct_free(&fresh);
    oct_free(&factor);
    free_planned(&p);
}

static void check_table(const example *e, const oct_float_kernel *k, oct_numerics numerics,
                        const reference *want)
{
    results got = run_kernel(e, k, numerics, e->samples);
    check_exact(got.y, want->y, y_numel(e), k->name, "y");
    check_exact(got.grad_x, want->grad_x, x_numel(e), k->name, "grad_x");
    check_exact(got.grad_w, want->grad_w, w_numel(e), k->name, "grad_w");
    check_exact(got.grad_w8, want->grad_w8, w_numel(e), k->name, "grad_w of codes");
    check_exact(got.grad_w16, want->grad_w8, w_numel(e), k->name, "grad_w of 16-bit codes");
    check_added_codes(e, k, numerics, want);
    free_results(&got);
}

static void check_example(int64_t samples, oct_conv_shape s)
{
    example e = example_of(samples, s, 0), f = example_of(samples, s, 0);
    for (size_t n = 0; n < OCT_COUNT(both_numerics); n++) {
        reference want = reference_of(&e, both_numerics[n]);
        for (size_t t = 0; t < OCT_COUNT(tables); t++)
            if (is_here(tables[t])) check_table(&e, tables[t], both_numerics[n], &want);
        free_reference(&want);
        for (size_t t = 0; t < OCT_COUNT(tables); t++)
            if (is_here(tables[t])) check_fresh(&f, tables[t], both_numerics[n]);
    }
    free_example(&e);
    free_example(&f);
}

#define SHAPE(h, w, i, o, kh, kw, st, pad, g)                                                      \
    (oct_conv_shape)                                                                               \
    {                                                                                              \
        .in_h = (h), .in_w = (w), .in_c = (i), .out_c = (o), .kernel_h = (kh), .kernel_w = (kw),   \
        .stride_h = (st), .stride_w = (st), .pad_top = (pad), .pad_left = (pad),                   \
        .pad_bottom = (pad), .pad_right = (pad), .dilation_h = 1, .dilation_w = 1, .groups = (g)   \
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

/* Blocks are of positions, whatever the channels: sanitizers, which make the kernels fifty times as slow, see a
 * quarter of them. */
#ifdef __SANITIZE_ADDRESS__
#define CHANNELS(n) (((n) + 3) / 4)
#else
#define CHANNELS(n) (n)
#endif

Test(conv, images_of_several_blocks_equal_the_direct_loop)
{
    check_example(2, SHAPE(31, 29, CHANNELS(32), CHANNELS(8), 3, 3, 1, 1, 1));
    check_example(1, SHAPE(40, 40, CHANNELS(16), CHANNELS(8), 3, 3, 2, 1, 1));
}

static void check_same(const results *a, const results *b, const example *e, const char *what)
{
    char text[64];
    snprintf(text, sizeof text, "y, %s", what);
    oct_check_bits_f32(a->y, b->y, y_numel(e), text);
    snprintf(text, sizeof text, "grad_x, %s", what);
    oct_check_bits_f32(a->grad_x, b->grad_x, x_numel(e), text);
    snprintf(text, sizeof text, "grad_w, %s", what);
    oct_check_bits_f32(a->grad_w, b->grad_w, w_numel(e), text);
    oct_check_bits_f32(a->grad_w8, b->grad_w8, w_numel(e), text);
    oct_check_bits_f32(a->grad_w16, b->grad_w16, w_numel(e), text);
}

/* All samples in one call, within the bound of rounding. */
static results run_close(const example *e, const oct_float_kernel *k, oct_numerics numerics,
                         const reference *want)
{
    const int64_t outs = e->s.out_c / e->s.groups * e->s.kernel_h * e->s.kernel_w;
    const int64_t positions = e->samples * e->s.out_h * e->s.out_w;
    const results r = run_kernel(e, k, numerics, e->samples);
    check_close(r.y, want->y, want->most_y, oct_conv_depth(&e->s), y_numel(e), k->name, "y");
    check_close(r.grad_x, want->grad_x, want->most_grad_x, outs, x_numel(e), k->name, "grad_x");
    check_close(r.grad_w, want->grad_w, want->most_grad_w, positions, w_numel(e), k->name,
                "grad_w");
    return r;
}

/* The reference within the bound of rounding; every table, and every number of samples a call, equal to
 * it, or of OpenBLAS equal to its own. */
static void check_wild(int64_t samples, oct_conv_shape s, int powers)
{
    example e = example_of(samples, s, powers);
    for (size_t n = 0; n < OCT_COUNT(both_numerics); n++) {
        reference want = reference_of(&e, both_numerics[n]);
        results first = run_close(&e, &oct_float_kernel_ref, both_numerics[n], &want);
        for (size_t t = 0; t < OCT_COUNT(tables); t++) {
            const bool blas = tables[t] == &oct_float_kernel_blas;
            if (!is_here(tables[t])) continue;
            results own = blas ? run_close(&e, tables[t], both_numerics[n], &want) : first;
            results got = run_kernel(&e, tables[t], both_numerics[n], 1);
            check_same(&got, &own, &e, tables[t]->name);
            free_results(&got);
            if (blas) free_results(&own);
        }
        free_results(&first);
        free_reference(&want);
    }
    free_example(&e);
}

/* For the same reason random shapes are fewer there and have smaller
 * sides, but as many channels, since these decide which blocks and ends of blocks are worked. */
#if defined(__SANITIZE_ADDRESS__) || defined(OCT_FEWER_SHAPES)
enum { EXACT_SHAPES = 4, RANDOM_SHAPES = 6, UNEVEN_SHAPES = 3, LEAF_SHAPES = 1 };
enum { SIDE_MOST = 6, KERNEL_MOST = 3, SOME_LEAVES = 1 };
#else
enum { EXACT_SHAPES = 20, RANDOM_SHAPES = 36, UNEVEN_SHAPES = 16, LEAF_SHAPES = 5 };
enum { SIDE_MOST = 14, KERNEL_MOST = 7, SOME_LEAVES = 0 };
#endif

static int64_t pick(uint64_t *state, int64_t least, int64_t most)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return least + (int64_t)((*state >> 33) % (uint64_t)(most - least + 1));
}

/* Makes the input large enough for a window. */
static oct_conv_shape fitting(oct_conv_shape s)
{
    const int64_t h = oct_conv_extent(s.kernel_h, s.dilation_h);
    const int64_t w = oct_conv_extent(s.kernel_w, s.dilation_w);
    if (s.in_h + s.pad_top + s.pad_bottom < h) s.in_h = h;
    if (s.in_w + s.pad_left + s.pad_right < w) s.in_w = w;
    return s;
}

static oct_conv_shape random_shape(uint64_t *state)
{
    const int groups = pick(state, 0, 3) ? 1 : (int)pick(state, 2, 4);
    const int kernel = (int)pick(state, 1, KERNEL_MOST);
    oct_conv_shape s = {.in_h = pick(state, 1, SIDE_MOST),
                        .in_w = pick(state, 1, SIDE_MOST),
                        .in_c = pick(state, 1, 70 / groups) * groups,
                        .out_c = pick(state, 1, 70 / groups) * groups,
                        .kernel_h = kernel,
                        .kernel_w = pick(state, 0, 2) ? kernel : (int)pick(state, 1, KERNEL_MOST),
                        .stride_h = (int)pick(state, 1, 3),
                        .pad_top = (int)pick(state, 0, 3),
                        .dilation_h = 1,
                        .dilation_w = 1,
                        .groups = groups};
    s.stride_w = s.stride_h;
    s.pad_bottom = s.pad_left = s.pad_right = s.pad_top;
    return fitting(s);
}

/* The same with every side's own stride and padding, and with dilation. */
static oct_conv_shape uneven_shape(uint64_t *state)
{
    oct_conv_shape s = random_shape(state);
    s.stride_w = (int)pick(state, 1, 3);
    s.pad_left = (int)pick(state, 0, 3);
    s.pad_bottom = (int)pick(state, 0, 3);
    s.pad_right = (int)pick(state, 0, 3);
    s.dilation_h = (int)pick(state, 1, 4);
    s.dilation_w = (int)pick(state, 1, 4);
    return fitting(s);
}

Test(conv, sides_of_their_own_and_dilation_equal_the_direct_loop)
{
    uint64_t state = 11;
    for (int i = 0; i < EXACT_SHAPES; i++) {
        oct_conv_shape s = uneven_shape(&state);
        if (i % 4 == 0) s.out_c = s.in_c, s.groups = (int)s.in_c; /* depthwise */
        check_example(pick(&state, 1, 3), s);
    }
}

Test(conv, all_tables_give_the_bits_of_the_reference_for_sides_of_their_own)
{
    uint64_t state = 5;
    for (int i = 0; i < UNEVEN_SHAPES; i++)
        check_wild(pick(&state, 1, 3), uneven_shape(&state), i % 4 ? 12 : 120);
}

Test(conv, all_tables_give_the_bits_of_the_reference)
{
    uint64_t state = 3;
    for (int i = 0; i < RANDOM_SHAPES; i++)
        check_wild(pick(&state, 1, 3), random_shape(&state), i % 4 ? 12 : 120);
}

Test(conv, all_tables_give_the_bits_of_the_reference_in_several_blocks)
{
    check_wild(3, SHAPE(33, 31, CHANNELS(5), CHANNELS(20), 3, 3, 1, 1, 1), 12);
    check_wild(2, SHAPE(40, 67, CHANNELS(3), CHANNELS(7), 5, 5, 2, 2, 1), 12);
    check_wild(1, SHAPE(50, 50, CHANNELS(24), CHANNELS(6), 3, 3, 1, 1, 1), 12);
}

/* Scratch is taken for a full leaf; the last one of a batch may be short. */
Test(conv, fewer_samples_never_need_more_room)
{
    const oct_float_kernel *k = oct_float_kernel_here();
    uint64_t state = 3;
    for (int i = 0; i < 300; i++) {
        oct_conv_config config = {.shape = random_shape(&state),
                                  .kernel = k,
                                  .numerics = OCT_NUMERICS_BF16,
                                  .input = i % 2 ? OCT_U16 : OCT_U8,
                                  .max_leaves = 1,
                                  .products = OCT_CONV_BACKWARD_WEIGHT};
        oct_conv_shape *s = &config.shape;
        oct_conv_set_out(s);
        size_t room = 0;
        for (config.leaf = 1; config.leaf <= 12; config.leaf++) {
            oct_conv_plan plan;
            oct_conv_plan_init(&plan, &config);
            const size_t bytes = plan.weight.scratch_bytes;
            cr_assert_geq(bytes, room, "shape %d, %lld samples", i, (long long)config.leaf);
            room = bytes;
        }
    }
}

/* The definition: a row for each leaf, and the tree. They begin at 0; the group's is added to `start`. */
static void sum_by_rows(const example *e, const planned *p, const oct_conv_weight_pass *all,
                        float *sum)
{
    const oct_leaves leaves = oct_leaves_split(e->samples, p->plan.config.leaf, 0, 1);
    const int64_t numel = w_numel(e);
    float *each = allocate((size_t)(leaves.count * numel), sizeof *each);
    for (int64_t i = 0; i < leaves.count; i++) {
        oct_conv_weight_pass pass = *all;
        const int64_t inputs = oct_leaf_begin(&leaves, i) * oct_conv_in_numel(&e->s);
        const int64_t outputs = oct_leaf_begin(&leaves, i) * e->s.out_h * e->s.out_w;
        if (pass.x.values) pass.x.values += inputs;
        if (pass.x.codes) pass.x.codes += inputs;
        if (pass.x.codes16) pass.x.codes16 += inputs;
        pass.samples = oct_leaf_size(&leaves, i);
        pass.grad = (const char *)all->grad + (size_t)outputs * p->plan.grad_row_bytes;
        pass.sums = each + i * numel;
        oct_conv_backward_weight(&p->plan, &pass, p->scratch);
    }
    cr_assert_eq(oct_tree_fold_f32(&leaves, each, numel), 1);
    memcpy(sum, each, (size_t)numel * sizeof *sum);
    oct_free(&each);
}

static void check_leaf_group(const example *e, const planned *p, const oct_conv_input *x)
{
    const int64_t numel = w_numel(e);
    const char *name = p->plan.config.kernel->name;
    cr_assert_leq(e->samples, p->plan.weight.leaves * p->plan.config.leaf);
    float *want = allocate((size_t)numel, sizeof *want), *got = take_dirty((size_t)numel * 4);
    char *rows = grad_rows(e, &p->plan);
    for (int scaled = 0; scaled < 2; scaled++) {
        oct_conv_weight_pass pass = {.samples = e->samples,
                                     .grad = rows,
                                     .x = *x,
                                     .factor = scaled ? e->factor : NULL,
                                     .sums = got};
        sum_by_rows(e, p, &pass, want);
        oct_conv_backward_weight(&p->plan, &pass, p->scratch);
        oct_check_bits_f32(got, want, numel, name);
        check_float_gradient(e, p, pass, want);
        pass.add = true;
        oct_conv_backward_weight(&p->plan, &pass, p->scratch);
        for (int64_t i = 0; i < numel; i++)
            want[i] += want[i];
        oct_check_bits_f32(got, want, numel, name);
    }
    oct_free(&want);
    oct_free(&got);
    oct_free(&rows);
}

/* Up to as many leaves as a call takes (with sanitizers: that many alone); the last may be short. input: floats (0),
 * bytes (1) or 16-bit codes (2). */
static void check_leaf_groups_of(const oct_conv_shape *s, const oct_float_kernel *k,
                                 oct_numerics numerics, int64_t leaf, int input)
{
    static const oct_dtype dtypes[] = {OCT_F32, OCT_U8, OCT_U16};
    const int64_t most = plan_of(s, k, numerics, dtypes[input], leaf).weight.leaves;
    for (int64_t leaves = SOME_LEAVES ? most : 1; leaves <= most; leaves++) {
        example e = example_of(leaves * leaf - (leaves % 3 ? leaf / 2 : 0), *s, 12);
        planned p = planned_of(&e.s, k, numerics, dtypes[input], leaf);
        const oct_conv_input inputs[] = {{.values = e.x},
                                         {.codes = e.codes, .zero_point = 128},
                                         {.codes16 = e.codes16, .zero_point = 300}};
        check_leaf_group(&e, &p, &inputs[input]);
        free_planned(&p);
        free_example(&e);
    }
}

/* Checks the first `inputs` kinds of input. Returns the number of leaves of floats that this machine's kernel takes. */
static int64_t check_leaf_groups(oct_conv_shape s, int64_t leaf, int inputs)
{
    oct_conv_set_out(&s);
    for (size_t t = 0; t < OCT_COUNT(tables); t++)
        for (size_t i = 0; is_here(tables[t]) && i < OCT_COUNT(both_numerics); i++)
            for (int input = 0; input < inputs; input++)
                check_leaf_groups_of(&s, tables[t], both_numerics[i], leaf, input);
    return plan_of(&s, oct_float_kernel_here(), OCT_NUMERICS_F32, OCT_F32, leaf).weight.leaves;
}

Test(conv, leaves_that_are_worked_side_by_side_give_the_bits_of_the_tree_over_them)
{
    cr_assert_eq(check_leaf_groups(SHAPE(4, 4, 20, 40, 3, 3, 1, 1, 1), 3, 3), 4);
    cr_assert_eq(check_leaf_groups(SHAPE(1, 1, 70, 30, 1, 1, 1, 0, 1), 8, 3), 8);
    cr_assert_eq(check_leaf_groups(SHAPE(7, 7, 12, 20, 1, 1, 1, 0, 1), 1, 3), 4);
    cr_assert_eq(check_leaf_groups(SHAPE(8, 8, 12, 20, 1, 1, 1, 0, 1), 2, 3), 2);
    cr_assert_eq(check_leaf_groups(SHAPE(5, 5, 12, 300, 3, 3, 2, 1, 4), 3, 3), 8);
    cr_assert_eq(check_leaf_groups(SHAPE(16, 16, 3, 5, 3, 3, 1, 1, 1), 8, 3), 1);
    cr_assert_eq(check_leaf_groups(SHAPE(4, 4, 8, 8, 3, 3, 1, 1, 8), 3, 3), 1);
}

Test(conv, leaves_side_by_side_of_random_layers)
{
    uint64_t state = 11;
    for (int i = 0; i < LEAF_SHAPES; i++) {
        const oct_conv_shape s = random_shape(&state);
        check_leaf_groups(s, pick(&state, 1, 5), 2);
    }
}

/* Writes elements, whole quads, as words of a table; returns the bytes. */
static size_t put_quads(const oct_float_kernel *k, int n, const uint16_t *elements, void *words)
{
    static const int parities[4] = {2, 0, 3, 1};
    for (int i = 0; i < n; i++) {
        const int at = k->bf16_words == OCT_BF16_PARITIES ? i / 4 * 4 + parities[i % 4] : i;
        if (k->bf16_words == OCT_BF16_FLOATS)
            ((float *)words)[i] = oct_bf16_value(elements[i]);
        else
            ((uint16_t *)words)[i] = elements[at];
    }
    return (size_t)n * (k->bf16_words == OCT_BF16_FLOATS ? 4 : 2);
}

static float element_of(const char *at, size_t bytes)
{
    uint16_t half;
    memcpy(&half, at + bytes - 2, sizeof half);
    return oct_bf16_value(half);
}

Test(conv, gradient_rows_are_scaled_and_rounded)
{
    oct_conv_shape s = SHAPE(1, 1, 4, 3, 1, 1, 1, 0, 1);
    s.out_h = s.out_w = 1;
    const float grad[] = {1, -2, 1.01171875F, 4, NAN, 3}, factor[] = {2, 0.5F, 1};
    float rows[6];
    for (size_t t = 0; t < OCT_COUNT(tables); t++) {
        const oct_conv_plan p = plan_of(&s, tables[t], OCT_NUMERICS_F32, OCT_F32, 1);
        oct_conv_grad_rows(&p, 2, grad, factor, rows);
        cr_assert_eq(rows[2], 1.01171875F);
        cr_assert_eq(rows[3], 8);
    }
    for (size_t t = 0; t < OCT_COUNT(tables); t++) {
        const oct_conv_plan p = plan_of(&s, tables[t], OCT_NUMERICS_BF16, OCT_U8, 1);
        const uint16_t want[4] = {0x4000, 0xbf80, 0x3f82 /* a tie, to even */, 0};
        char rounded[32], quad[16];
        const size_t bytes = put_quads(tables[t], 4, want, quad);
        cr_assert_eq(p.grad_row_bytes, bytes);
        oct_conv_grad_rows(&p, 2, grad, factor, rounded);
        oct_check_bytes(rounded, quad, (int64_t)bytes, tables[t]->name);
        int numbers = 0;
        for (size_t i = bytes; i < 2 * bytes; i += bytes / 4)
            numbers += element_of(rounded + i, bytes / 4) <= 8;
        cr_assert_eq(numbers, 3, "%s: a NaN stays one", tables[t]->name);
    }
}

/* The definition of float_kernel.h, step by step. */

enum { RUNS = 5, MOST = 192, ROWS = 37, COLUMNS = 50 };

static float flushed(float v)
{
    return fabsf(v) < 0x1p-126F ? copysignf(0, v) : v;
}

static float defined_sum(int n, const uint16_t *x, const uint16_t *w, float sum)
{
    for (int first = 0; first < n; first += 32) {
        float chain[2] = {0, 0};
        for (int i = first; i < first + 32; i++) {
            const float a = i < n ? flushed(oct_bf16_value(x[i])) : 0;
            const float b = i < n ? flushed(oct_bf16_value(w[i])) : 0;
            chain[i % 2] = flushed(fmaf(a, b, chain[i % 2]));
        }
        sum = flushed(flushed(sum) + flushed(chain[0] + chain[1]));
    }
    return sum;
}

/* Products of `n` elements in runs that do not follow each other, of values from one power of two on. */
typedef struct defined_product {
    int n, lengths[RUNS];
    uint16_t x[ROWS * MOST], w[COLUMNS * MOST];
    float acc[ROWS * COLUMNS];
} defined_product;

/* exponent < 0: any bits, with infinities, NaN and denormals. */
static void fill_product(defined_product *d, int exponent, uint64_t *state)
{
    d->n = 0;
    for (int i = 0; i < RUNS; i++)
        d->n += d->lengths[i] = 4 * (int)pick(state, 1, i % 2 ? 3 : 14);
    uint16_t *halves[] = {d->x, d->w};
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < (h ? COLUMNS : ROWS) * MOST; i++) {
            const int power = (exponent + (int)pick(state, 0, 3)) * 128;
            const int bits = (int)pick(state, 0, 0xffff);
            halves[h][i] = (uint16_t)(exponent < 0 ? bits : (bits & 0x807f) | power);
        }
    for (int i = 0; i < ROWS * COLUMNS; i++)
        d->acc[i] = ldexpf(next_value(state), 2 * (exponent < 0 ? 127 : exponent) - 254);
}

static void check_defined(const oct_float_kernel *k, const defined_product *d, bool add)
{
    const int64_t pitch = 24 * MOST, tile = k->col_tile, word = 4 * tile;
    char *x = take_dirty((size_t)(ROWS * pitch)), *packed = take_dirty(64 * 4 * MOST * 64);
    float acc[ROWS * COLUMNS];
    memcpy(acc, d->acc, sizeof acc);
    oct_row rows[ROWS];
    for (int r = 0; r < ROWS; r++) /* not a fixed distance apart */
        rows[r] = (oct_row){.x = r * pitch + (r > 20 ? 12 : 0), .acc = r * COLUMNS};
    oct_run runs[RUNS];
    oct_product p = {.x = x,
                     .rows = rows,
                     .m = ROWS,
                     .runs = runs,
                     .num_runs = RUNS,
                     .packed = packed,
                     .panel_bytes = 4 * MOST * word,
                     .n = COLUMNS,
                     .acc = acc,
                     .add = add};
    int64_t at = 0, first = 0;
    for (int i = 0; i < RUNS; i++, at += 8 + runs[i - 1].words) {
        const int length = d->lengths[i];
        runs[i] = (oct_run){.x = 4 * at,
                            .tile = 2 * at,
                            .words = length / (k->bf16_words == OCT_BF16_FLOATS ? 1 : 2)};
        for (int r = 0; r < ROWS; r++)
            put_quads(k, length, d->x + r * MOST + first, x + rows[r].x + runs[i].x);
        for (int c = 0; c < COLUMNS; c++) {
            char words[MOST * 4];
            put_quads(k, length, d->w + c * MOST + first, words);
            for (int64_t w = 0; w < runs[i].words; w++)
                memcpy(packed + c / tile * p.panel_bytes + (runs[i].tile + w) * word + c % tile * 4,
                       words + 4 * w, 4);
        }
        first += length;
    }
    k->bf16(&p);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const uint16_t *a = d->x + i / COLUMNS * MOST, *b = d->w + i % COLUMNS * MOST;
        const float want = defined_sum(d->n, a, b, add ? d->acc[i] : 0);
        if (isnan((double)want))
            cr_assert(isnan((double)acc[i]), "%s: %a for NaN", k->name, (double)acc[i]);
        else
            oct_check_bits_f32(&acc[i], &want, 1, k->name);
    }
    oct_free(&x);
    oct_free(&packed);
}

Test(conv, products_of_bfloat16_are_those_of_the_definition)
{
    static const int exponents[] = {-1, 63, 120, 190};
    static defined_product d;
    uint64_t state = 5;
    for (size_t t = 0; t < OCT_COUNT(tables); t++) {
        if (!is_here(tables[t]) || tables[t] == &oct_float_kernel_blas) continue;
        for (int i = 0; i < 12; i++) {
            fill_product(&d, exponents[i % 4], &state);
            check_defined(tables[t], &d, i % 3 > 0);
        }
    }
}

Test(conv, choice_of_a_table_follows_the_instruction_sets)
{
    const oct_isa_set ref = 1u << OCT_ISA_REF;
    cr_assert_eq(oct_float_kernel_select(ref), &oct_float_kernel_ref);
    cr_assert_eq(oct_float_kernel_select(ref | 1u << OCT_ISA_BLAS),
                 oct_blas_found() ? &oct_float_kernel_blas : &oct_float_kernel_ref);
#if defined(__x86_64__)
    const oct_isa_set avx2 = ref | 1u << OCT_ISA_AVX2, vnni = avx2 | 1u << OCT_ISA_AVX512VNNI;
    cr_assert_eq(oct_float_kernel_select(avx2), &oct_float_kernel_avx2);
    cr_assert_eq(oct_float_kernel_select(vnni), &oct_float_kernel_avx512);
    const oct_isa_set bf16 = vnni | 1u << OCT_ISA_AVX512BF16;
    cr_assert_eq(oct_float_kernel_select(bf16), oct_float_kernel_avx512bf16.pays()
                                                    ? &oct_float_kernel_avx512bf16
                                                    : &oct_float_kernel_avx512);
    cr_assert_eq(oct_float_kernel_select(bf16 | 1u << OCT_ISA_AMX), &oct_float_kernel_amx);
#elif defined(__aarch64__)
    const oct_isa_set neon = ref | 1u << OCT_ISA_BLAS | 1u << OCT_ISA_NEON;
    cr_assert_eq(oct_float_kernel_select(neon), &oct_float_kernel_neon);
#endif
}

Test(conv, no_samples_leave_everything_as_it_was_and_make_zeros_of_what_is_fresh)
{
    for (size_t t = 0; t < OCT_COUNT(tables); t++) {
        if (!is_here(tables[t])) continue;
        example e = example_of(0, SHAPE(5, 5, 2, 2, 3, 3, 1, 1, 1), 0);
        results r = run_kernel(&e, tables[t], OCT_NUMERICS_BF16, 1);
        for (int64_t i = 0; i < w_numel(&e); i++)
            cr_assert_eq(r.grad_w[i], (float)(i % 5));
        check_fresh(&e, tables[t], OCT_NUMERICS_BF16);
        free_results(&r);
        free_example(&e);
    }
}

Test(conv, a_bias_gradient_is_the_sum_over_rows_in_order)
{
    float grad[3] = {1, 2, 3}, rows[] = {1e8F, 1, 2, 1, 1, 2, -1e8F, 1, 2};
    oct_bias_backward(3, 3, 3, rows, grad);
    float want[3] = {0, 5, 9}; /* (1 + 1e8) + 1 - 1e8 in float */
    oct_check_bits_f32(grad, want, 3, "bias");
}

Test(conv, output_sizes_follow_the_window)
{
    cr_assert_eq(oct_conv_out(28 + 2, 3, 1), 28);
    cr_assert_eq(oct_conv_out(28 + 2, 3, 2), 14);
    cr_assert_eq(oct_conv_out(7, 2, 2), 3);
    cr_assert_eq(oct_conv_out(2, 3, 1), 0);
    cr_assert_eq(oct_conv_out(2 + 2, 5, 1), 0);
}
