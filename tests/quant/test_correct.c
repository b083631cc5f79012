/* What is done to weights without training: Cholesky's factor, moments by their definition, GPTQ against the form of its
 * authors (tests/golden/make_gptq_golden.py), bias correction, equalization. */
#include "core/base/int_math.h"
#include "core/kernel/blas.h"
#include "quant/module/conv/conv_impl.h"
#include "quant/correct/correction.h"
#include "tests/golden/gptq_golden.h"
#include "tests/quant/deploy.h"

#include <math.h>
#include <omp.h>

/* A positive definite matrix: B B^T and something on the diagonal. */
static void fill_definite(double *a, int64_t n)
{
    float *b = malloc((size_t)(n * n) * sizeof *b);
    oct_fill_normal(b, n * n, 5, OCT_STREAM_TEST, 0, 0, 1);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = i == j ? 0.5 : 0;
            for (int64_t k = 0; k < n; k++)
                sum += (double)b[i * n + k] * (double)b[j * n + k];
            a[i * n + j] = sum;
        }
    free(b);
}

/* Cholesky's method, one column after the other. */
static void factor_plainly(double *a, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        a[k * n + k] = sqrt(a[k * n + k]);
        for (int64_t i = k + 1; i < n; i++)
            a[i * n + k] /= a[k * n + k];
        for (int64_t i = k + 1; i < n; i++)
            for (int64_t j = k + 1; j <= i; j++)
                a[i * n + j] -= a[i * n + k] * a[j * n + k];
    }
}

static void check_factor(int64_t n)
{
    const size_t bytes = (size_t)(n * n) * sizeof(double);
    double *a = malloc(bytes), *l = malloc(bytes), *own = malloc(bytes);
    fill_definite(a, n);
    memcpy(l, a, bytes);
    memcpy(own, a, bytes);
    OK(oct_cholesky(l, n));
    factor_plainly(own, n);
    for (int64_t i = 0; i < n * n; i++)
        if (i % n > i / n)
            cr_assert(l[i] == a[i], "above the diagonal");
        else
            cr_assert_leq(fabs(l[i] - own[i]), 1e-12 * (double)n * own[i / n * (n + 1)]);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = 0; k <= j; k++)
                sum += l[i * n + k] * l[j * n + k];
            cr_assert_leq(fabs(sum - a[i * n + j]), 1e-11 * (double)n * a[i * n + i]);
        }
    free(a);
    free(l);
    free(own);
}

Test(cholesky, times_its_transpose_is_the_matrix)
{
    static const int64_t sizes[] = {1, 2, 63, 64, 65, 200};
    for (size_t i = 0; i < OCT_COUNT(sizes); i++)
        check_factor(sizes[i]);
    double indefinite[] = {1, 2, 2, 1};
    cr_assert_eq(oct_cholesky(indefinite, 2), OCT_NUMERIC);
    double unknown[] = {(double)NAN};
    cr_assert_eq(oct_cholesky(unknown, 1), OCT_NUMERIC);
    oct_fail_clear();
    cr_assert_eq(oct_mem_live(), 0);
}

/* By the definition, a window and two of its terms at a time. */
static int64_t code_of(const oct_tensor *x, const oct_conv_shape *s, int64_t window, int64_t group,
                       int64_t k)
{
    const int64_t channels = s->in_c / s->groups, plane = s->out_h * s->out_w;
    const int64_t c = k % channels, kx = k / channels % s->kernel_w,
                  ky = k / channels / s->kernel_w;
    const int64_t y = window % plane / s->out_w * s->stride_h - s->pad_top + ky * s->dilation_h;
    const int64_t z = window % s->out_w * s->stride_w - s->pad_left + kx * s->dilation_w;
    if (y < 0 || y >= s->in_h || z < 0 || z >= s->in_w) return 0;
    const int64_t at =
        ((window / plane * s->in_h + y) * s->in_w + z) * s->in_c + group * channels + c;
    return (x->dtype == OCT_U8 ? (int64_t)oct_u8(x)[at] : (int64_t)oct_u16(x)[at]) -
           x->q.zero_point;
}

static void check_moments(oct_conv_geometry g, int64_t in_c, int64_t out_c, bool wide)
{
    enum { N = 5, SIDE = 9 };
    const oct_conv_shape s = oct_conv_shape_of(SIDE, SIDE, in_c, out_c, g);
    const size_t n = (size_t)(N * SIDE * SIDE * in_c);
    uint16_t *codes = malloc(n * 2);
    for (size_t i = 0; i < n; i++) {
        uint32_t draw[4];
        oct_philox(3, OCT_STREAM_TEST, i, 0, draw);
        if (wide)
            codes[i] = (uint16_t)draw[0];
        else
            ((uint8_t *)codes)[i] = (uint8_t)draw[0];
    }
    oct_tensor x = {.dtype = wide ? OCT_U16 : OCT_U8,
                    .shape = OCT_SHAPE(N, SIDE, SIDE, in_c),
                    .data = codes,
                    .q = {0.5f, wide ? 32768 : 128, 0, wide ? 65535 : 255}};
    oct_moments m, pieces;
    OK(oct_moments_create(&m, &s, true));
    OK(oct_moments_create(&pieces, &s, true));
    OK(oct_moments_add(&m, &s, &x));
    for (int64_t i = N; i > 0; i--) { /* one after the other, from the last on */
        oct_tensor one = x;
        one.shape.dim[0] = 1;
        one.data = (uint8_t *)codes + (size_t)(i - 1) * (n / N) * (wide ? 2 : 1);
        OK(oct_moments_add(&pieces, &s, &one));
    }
    const int64_t k = m.depth;
    cr_assert(m.windows == N * s.out_h * s.out_w && pieces.windows == m.windows && !m.mixed);
    cr_assert(memcmp(m.sum, pieces.sum, (size_t)(m.groups * k) * 8) == 0);
    cr_assert(memcmp(m.product, pieces.product, (size_t)(m.groups * k * k) * 8) == 0);
    for (int64_t group = 0; group < m.groups; group++)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j <= i; j += 3) {
                int64_t sum = 0, product = 0;
                for (int64_t w = 0; w < m.windows; w++) {
                    sum += code_of(&x, &s, w, group, i);
                    product += code_of(&x, &s, w, group, i) * code_of(&x, &s, w, group, j);
                }
                cr_assert_eq(m.sum[group * k + i], sum);
                cr_assert_eq(m.product[(group * k + i) * k + j], product);
            }
    x.q.scale = 0.25f;
    OK(oct_moments_add(&m, &s, &x));
    cr_assert(m.mixed, "of two scales");
    oct_moments_free(&m);
    oct_moments_free(&pieces);
    free(codes);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(moments, are_the_sums_over_all_windows)
{
    oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 1, 1);
    check_moments(g, 3, 4, false);
    check_moments(g, 3, 4, true);
    check_moments(oct_conv_geometry_of(3, 3, 2, 1, 6), 6, 6, false);
    check_moments(oct_conv_geometry_of(1, 1, 1, 0, 2), 8, 4, false);
    g.dilation_h = 2;
    g.pad_left = 0;
    check_moments(g, 2, 2, false);
}

/* A linear layer with the weights of the golden file, and the moments of its inputs. */
static oct_qat_conv *golden_layer(oct_moments *m, bool bias)
{
    oct_module *layer, *module, *none = NULL;
    OK(oct_linear_create(&layer, GPTQ_DEPTH, GPTQ_ROWS, bias));
    memcpy(layer->params[0]->value.data, gptq_weights, sizeof gptq_weights);
    OK(oct_qat_conv_create(&module, &layer, &none, false, OCT_ACT_NONE));
    const oct_conv_shape s = oct_linear_shape(1, 1, GPTQ_DEPTH, GPTQ_ROWS);
    static uint8_t inputs[sizeof gptq_inputs];
    memcpy(inputs, gptq_inputs, sizeof inputs);
    const oct_tensor x = {.dtype = OCT_U8,
                          .shape = OCT_SHAPE(GPTQ_WINDOWS, GPTQ_DEPTH),
                          .data = inputs,
                          .q = {0.125f, 128, 0, 255}};
    OK(oct_moments_create(m, &s, true));
    OK(oct_moments_add(m, &s, &x));
    return (oct_qat_conv *)module;
}

static double error_of(const oct_moments *m, const float *row, const float *codes_row)
{
    double sum = 0;
    for (int64_t i = 0; i < m->depth; i++)
        for (int64_t j = 0; j < m->depth; j++)
            sum += (double)m->product[oct_max_i64(i, j) * m->depth + oct_min_i64(i, j)] *
                   ((double)row[i] - (double)codes_row[i]) *
                   ((double)row[j] - (double)codes_row[j]);
    return sum;
}

Test(gptq, gives_the_codes_of_its_authors_form)
{
    oct_moments m;
    oct_qat_conv *layer = golden_layer(&m, false);
    const float *weight = oct_f32(&layer->layer->params[0]->value);
    bool rounded = false;
    OK(oct_qat_conv_round(layer, &m, &rounded));
    cr_assert(rounded);
    for (int64_t o = 0; o < GPTQ_ROWS; o++) {
        const float *exact = gptq_weights + o * GPTQ_DEPTH, *row = weight + o * GPTQ_DEPTH;
        const float scale = oct_weight_scale(exact, GPTQ_DEPTH);
        float nearest[GPTQ_DEPTH];
        int8_t codes[GPTQ_DEPTH];
        cr_assert_eq(oct_weight_scale(row, GPTQ_DEPTH), scale, "the scale stays");
        oct_weight_codes(row, GPTQ_DEPTH, scale, codes);
        cr_assert_arr_eq(codes, gptq_codes + o * GPTQ_DEPTH, sizeof codes, "row %d", (int)o);
        oct_weight_codes(exact, GPTQ_DEPTH, scale, codes);
        for (int i = 0; i < GPTQ_DEPTH; i++)
            nearest[i] = (float)codes[i] * scale;
        cr_assert_lt(error_of(&m, exact, row), 0.5 * error_of(&m, exact, nearest));
    }
    oct_module *module = &layer->q.base;
    oct_moments_free(&m);
    oct_module_destroy(&module);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(bias_correction, keeps_the_mean_of_each_channel)
{
    oct_moments m;
    bool corrected = false;
    oct_qat_conv *layer = golden_layer(&m, true);
    const float *bias = oct_f32(&layer->layer->params[1]->value);
    OK(oct_qat_conv_correct_bias(layer, &m, gptq_weights, &corrected));
    cr_assert(corrected);
    for (int64_t o = 0; o < GPTQ_ROWS; o++) {
        const float *exact = gptq_weights + o * GPTQ_DEPTH;
        const float scale = oct_weight_scale(exact, GPTQ_DEPTH);
        int8_t codes[GPTQ_DEPTH];
        double before = 0, after = (double)bias[o];
        oct_weight_codes(exact, GPTQ_DEPTH, scale, codes);
        for (int64_t i = 0; i < GPTQ_DEPTH; i++) {
            const double mean = 0.125 * (double)m.sum[i] / GPTQ_WINDOWS;
            before += (double)exact[i] * mean;
            after += (double)codes[i] * (double)scale * mean;
        }
        cr_assert_leq(fabs(before - after), 1e-5, "%g, then %g", before, after);
        cr_assert_neq(bias[o], 0.0f);
    }
    oct_module *module = &layer->q.base;
    oct_moments_free(&m);
    oct_module_destroy(&module);
    layer = golden_layer(&m, false);
    OK(oct_qat_conv_correct_bias(layer, &m, gptq_weights, &corrected));
    cr_assert(!corrected, "without bias and batch norm there is nothing to move");
    module = &layer->q.base;
    oct_moments_free(&m);
    oct_module_destroy(&module);
    cr_assert_eq(oct_mem_live(), 0);
}

/* conv, bn, relu, pool, depthwise conv, relu, conv, relu6, conv: three pairs, and none after relu6. */
static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    parts *p = (parts *)self;
    (void)n;
    oct_tensor *a = oct_relu(cx, oct_call(cx, p->m[1], oct_call(cx, p->m[0], x[0])));
    oct_tensor *b =
        oct_relu(cx, oct_call(cx, p->m[2], oct_max_pool(cx, a, oct_pool_geometry_of(2, 2, 0))));
    oct_tensor *c = oct_relu6(cx, oct_call(cx, p->m[3], b));
    return oct_global_avg_pool(cx, oct_call(cx, p->m[4], c));
}

static const oct_module_type type = {.name = "of_pairs", .forward = forward};

static void build(oct_module **root)
{
    *root = parts_create(&type);
    PART(*root, 0, oct_conv2d_create(&item, 3, 8, oct_conv_geometry_of(3, 3, 1, 1, 1), false));
    PART(*root, 1, oct_batch_norm_create(&item, 8));
    PART(*root, 2, oct_conv2d_create(&item, 8, 8, oct_conv_geometry_of(3, 3, 1, 1, 8), true));
    PART(*root, 3, oct_conv2d_create(&item, 8, 6, oct_conv_geometry_of(1, 1, 1, 0, 1), true));
    PART(*root, 4, oct_conv2d_create(&item, 6, 5, oct_conv_geometry_of(1, 1, 1, 0, 1), true));
}

static void unbalance(oct_module *root)
{
    oct_batch_norm_module *bn = (oct_batch_norm_module *)((parts *)root)->m[1];
    float *depthwise = oct_f32(&((parts *)root)->m[2]->params[0]->value);
    for (int i = 0; i < 8; i++) {
        oct_f32(&bn->gamma->value)[i] = (i % 2 ? -1.0f : 1.0f) * ldexpf(1.1f, i - 3);
        oct_f32(&bn->beta->value)[i] = 0.3f * (float)i;
        for (int k = 0; k < 9; k++)
            depthwise[i * 9 + k] *= ldexpf(1.0f, 2 * (i % 3));
    }
}

Test(equalization, makes_ranges_equal_and_changes_no_bit_of_the_output)
{
    deployment d;
    oct_module *root;
    const oct_qconfig qconfig = oct_qconfig_default();
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    const oct_prepare_options options = {
        .method = OCT_METHOD_JIT, .target = &oct_target_x86, .setters = &setter, .num_setters = 1};
    int64_t pairs, channels;
    build(&root);
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    unbalance(d.root);
    OK(oct_prepare(&d.root, &d.example, &options, NULL));
    oct_module_train(d.root, false);
    oct_tensor *y = deploy_forward(&d);
    const size_t bytes = (size_t)oct_numel(y) * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, y->data, bytes);
    OK(oct_equalize(d.root, &pairs, &channels));
    cr_assert_eq(pairs, 2, "%lld pairs", (long long)pairs);
    cr_assert_gt(channels, 8);
    y = deploy_forward(&d);
    cr_assert(memcmp(before, y->data, bytes) == 0, "factors are powers of two");
    OK(oct_equalize(d.root, &pairs, &channels));
    cr_assert_eq(channels, 0, "nothing is left to do");
    free(before);
    deploy_end(&d);
}

/* A pooled convolution is the addend of another one, which reads the pooled input. */
static oct_tensor *forward_of_addend(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    parts *p = (parts *)self;
    (void)n;
    const oct_pool_geometry half = oct_pool_geometry_of(2, 2, 0);
    oct_tensor *a = oct_max_pool(cx, oct_call(cx, p->m[0], x[0]), half);
    oct_tensor *z = oct_call(cx, p->m[1], oct_max_pool(cx, x[0], half));
    return oct_global_avg_pool(cx, oct_add(cx, z, a));
}

static const oct_module_type type_of_addend = {.name = "of_addend", .forward = forward_of_addend};

/* The convolution that adds the value does not multiply it by its weights, so no factor can pass to these. */
Test(equalization, passes_over_a_layer_that_only_adds_the_value)
{
    deployment d;
    oct_module *root = parts_create(&type_of_addend);
    const oct_qconfig qconfig = oct_qconfig_default();
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    const oct_prepare_options options = {
        .method = OCT_METHOD_JIT, .target = &oct_target_x86, .setters = &setter, .num_setters = 1};
    int64_t pairs, channels;
    PART(root, 0, oct_conv2d_create(&item, 3, 3, oct_conv_geometry_of(3, 3, 1, 1, 1), true));
    PART(root, 1, oct_conv2d_create(&item, 3, 3, oct_conv_geometry_of(3, 3, 1, 1, 1), true));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    for (int i = 0; i < 27; i++) /* one channel with the largest weights */
        oct_f32(&((parts *)d.root)->m[0]->params[0]->value)[i] *= 16;
    OK(oct_prepare(&d.root, &d.example, &options, NULL));
    oct_module_train(d.root, false);
    oct_tensor *y = deploy_forward(&d);
    float before[3];
    memcpy(before, y->data, sizeof before);
    OK(oct_equalize(d.root, &pairs, &channels));
    cr_assert_eq(pairs, 0, "%lld pairs", (long long)pairs);
    y = deploy_forward(&d);
    cr_assert_eq(memcmp(before, y->data, sizeof before), 0);
    deploy_end(&d);
}

Test(equalization, leaves_tied_weights_as_they_are)
{
    deployment d;
    oct_module *root;
    const oct_qconfig qconfig = oct_qconfig_default();
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    const oct_prepare_options options = {
        .method = OCT_METHOD_JIT, .target = &oct_target_x86, .setters = &setter, .num_setters = 1};
    int64_t pairs, channels;
    build(&root);
    ((parts *)root)->m[3]->params[0]->tied = true;
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    OK(oct_prepare(&d.root, &d.example, &options, NULL));
    OK(oct_equalize(d.root, &pairs, &channels));
    cr_assert_eq(pairs, 1, "%lld pairs", (long long)pairs);
    deploy_end(&d);
}

Test(equalization, wants_a_graph)
{
    deployment d;
    oct_module *root;
    int64_t pairs, channels;
    build(&root);
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    cr_assert_eq(oct_equalize(d.root, &pairs, &channels), OCT_USAGE);
    oct_fail_clear();
    deploy_end(&d);
}
