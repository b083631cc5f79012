/* Operations on rows and tokens against PyTorch's values, on any threads, and in the sentences with which they
 * refuse. */
#include "tests/core/op_rig.h"
#include "tests/golden/token_golden.h"

#include <omp.h>
#include <stdio.h>

TestSuite(tokens, .timeout = 60);

/* Sums of up to a hundred floats of order 1, in another order than PyTorch's. */
static const double near = 2e-5;

typedef struct golden {
    const char *name;
    oct_shape shape[2];
    const float *x[2], *grad_x[2], *p[2], *grad_p[2], *y, *grad_y;
    int64_t numel;
} golden;

#define OF_X1(name) .x = {golden_##name##_x0}, .grad_x = {golden_##name##_grad_x0}
#define OF_X2(name)                                                                                \
    .x = {golden_##name##_x0, golden_##name##_x1},                                                 \
    .grad_x = {golden_##name##_grad_x0, golden_##name##_grad_x1}
#define OF_P1(name) .p = {golden_##name##_p0}, .grad_p = {golden_##name##_grad_p0}
#define OF_P2(name)                                                                                \
    .p = {golden_##name##_p0, golden_##name##_p1},                                                 \
    .grad_p = {golden_##name##_grad_p0, golden_##name##_grad_p1}
#define OF_Y(id)                                                                                   \
    .name = #id, .y = golden_##id##_y, .grad_y = golden_##id##_grad_y,                             \
    .numel = (int64_t)OCT_COUNT(golden_##id##_y)

static void check_values(const golden *g, const float *got, const float *want, int64_t n,
                         const char *what)
{
    char text[96];
    snprintf(text, sizeof text, "%s: %s", g->name, what);
    oct_check_near_f32(got, want, n, near, near, text);
}

/* Takes the module over. */
static void check_golden(oct_module *m, const golden *g)
{
    rig r = rig_of(m, rig_call_root, g->shape[0].dim[0], 2);
    for (size_t i = 0; i < r.params.count; i++)
        memcpy(r.params.items[i]->value.data, g->p[i],
               (size_t)oct_numel(&r.params.items[i]->value) * sizeof(float));
    for (int i = 0; i < 2 && g->x[i]; i++) {
        rig_input(&r, g->shape[i], 1);
        memcpy(r.input[i].data, g->x[i], (size_t)oct_numel(&r.input[i]) * sizeof(float));
    }
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s: %s", g->name, oct_error_message(0));
    cr_assert_eq(oct_numel(y), g->numel);
    check_values(g, oct_f32(y), g->y, g->numel, "y");
    rig_backward(&r, y, g->grad_y);
    for (int i = 0; i < r.num_inputs; i++)
        if (r.input[i].grad)
            check_values(g, r.input[i].grad, g->grad_x[i], oct_numel(&r.input[i]), "grad_x");
    for (size_t i = 0; i < r.params.count; i++)
        check_values(g, r.params.items[i]->grad, g->grad_p[i], oct_numel(&r.params.items[i]->value),
                     "grad_p");
    rig_end(&r);
}

#define CHECK(create, ...)                                                                         \
    do {                                                                                           \
        oct_module *m = NULL;                                                                      \
        RIG_OK(create);                                                                            \
        check_golden(m, &(golden){__VA_ARGS__});                                                   \
    } while (0)

Test(tokens, norms_agree_with_pytorch)
{
    CHECK(oct_layer_norm_create(&m, 8, 1e-5), OF_Y(layer_norm), OF_X1(layer_norm),
          OF_P2(layer_norm), .shape = {OCT_SHAPE(3, 5, 8)});
    CHECK(oct_layer_norm_create(&m, 4, 1e-6), OF_Y(layer_norm_image), OF_X1(layer_norm_image),
          OF_P2(layer_norm_image), .shape = {OCT_SHAPE(3, 2, 3, 4)});
    CHECK(oct_group_norm_create(&m, 2, 6, 1e-5), OF_Y(group_norm), OF_X1(group_norm),
          OF_P2(group_norm), .shape = {OCT_SHAPE(3, 3, 4, 6)});
    CHECK(oct_group_norm_create(&m, 5, 5, 1e-5), OF_Y(instance_norm), OF_X1(instance_norm),
          OF_P2(instance_norm), .shape = {OCT_SHAPE(3, 3, 4, 5)});
}

Test(tokens, products_and_means_agree_with_pytorch)
{
    CHECK(oct_matmul_create(&m), OF_Y(matmul), OF_X2(matmul),
          .shape = {OCT_SHAPE(3, 4, 5), OCT_SHAPE(3, 5, 2)});
    CHECK(oct_matmul_create(&m), OF_Y(matmul_heads), OF_X2(matmul_heads),
          .shape = {OCT_SHAPE(3, 2, 4, 3), OCT_SHAPE(3, 2, 3, 4)});
    CHECK(oct_mean_create(&m, 1, false), OF_Y(mean_tokens), OF_X1(mean_tokens),
          .shape = {OCT_SHAPE(3, 5, 4)});
    CHECK(oct_mean_create(&m, OCT_MEAN_PLANE, true), OF_Y(mean_plane), OF_X1(mean_plane),
          .shape = {OCT_SHAPE(3, 3, 4, 2)});
}

Test(tokens, parameters_agree_with_pytorch)
{
    CHECK(oct_parameter_create(&m, OCT_SHAPE(2, 4)), OF_Y(parameter), OF_X1(parameter),
          OF_P1(parameter), .shape = {OCT_SHAPE(3, 2)});
    CHECK(oct_add_parameter_create(&m, OCT_SHAPE(4, 5)), OF_Y(add_parameter), OF_X1(add_parameter),
          OF_P1(add_parameter), .shape = {OCT_SHAPE(3, 4, 5)});
    CHECK(oct_mul_parameter_create(&m, OCT_SHAPE(1, 1, 4)), OF_Y(mul_parameter),
          OF_X1(mul_parameter), OF_P1(mul_parameter), .shape = {OCT_SHAPE(3, 2, 3, 4)});
}

/* Token, position, norm, attention and mean, one after another. */
static oct_tensor *block(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((oct_sequential_module *)root)->items;
    oct_tensor *y = oct_call(cx, m[1], oct_add(cx, x[0], oct_call(cx, m[0], x[0])));
    y = oct_call(cx, m[3], oct_call(cx, m[2], y));
    oct_tensor *turned = oct_reshape(cx, y, OCT_SHAPE(0, 12, 19));
    y = oct_matmul(cx, oct_softmax(cx, oct_matmul(cx, y, turned)), oct_call(cx, m[4], y));
    return oct_mean(cx, y, 1, false);
}

static rig block_rig(void)
{
    oct_module *root, *m;
    RIG_OK(oct_sequential_create(&root));
    RIG_OK(oct_parameter_create(&m, OCT_SHAPE(19, 12)));
    rig_append(root, m);
    RIG_OK(oct_add_parameter_create(&m, OCT_SHAPE(19, 1)));
    rig_append(root, m);
    RIG_OK(oct_layer_norm_create(&m, 12, 1e-5));
    rig_append(root, m);
    RIG_OK(oct_mul_parameter_create(&m, OCT_SHAPE(1, 12)));
    rig_append(root, m);
    RIG_OK(oct_group_norm_create(&m, 3, 12, 1e-5));
    rig_append(root, m);
    rig r = rig_of(root, block, 21, 4);
    rig_input(&r, OCT_SHAPE(21, 19, 12), 0.001F);
    return r;
}

/* The output, then the gradients of x and of all parameters; the caller frees. */
static float *bits_of(int threads, int64_t *count)
{
    omp_set_num_threads(threads);
    rig r = block_rig();
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s", oct_error_message(0));
    int64_t n = oct_numel(y), at = n;
    float *grad = rig_take((size_t)n, sizeof(float));
    oct_fill_uniform(grad, n, 3, OCT_STREAM_TEST, 1, -1, 1);
    *count = n + oct_numel(&r.input[0]);
    for (size_t i = 0; i < r.params.count; i++)
        *count += oct_numel(&r.params.items[i]->value);
    float *bits = rig_take((size_t)*count, sizeof(float));
    memcpy(bits, y->data, (size_t)n * sizeof(float));
    rig_backward(&r, y, grad);
    memcpy(bits + at, r.input[0].grad, (size_t)oct_numel(&r.input[0]) * sizeof(float));
    at += oct_numel(&r.input[0]);
    for (size_t i = 0; i < r.params.count; i++) {
        const int64_t own = oct_numel(&r.params.items[i]->value);
        memcpy(bits + at, r.params.items[i]->grad, (size_t)own * sizeof(float));
        at += own;
    }
    oct_free(&grad);
    rig_end(&r);
    return bits;
}

Test(tokens, have_the_same_bits_on_any_threads)
{
    int64_t n, other;
    float *one = bits_of(1, &n);
    for (int threads = 2; threads <= 5; threads++) {
        float *more = bits_of(threads, &other);
        oct_check_bits_f32(more, one, n, "threads");
        oct_free(&more);
    }
    oct_free(&one);
}

static void check_refused(rig_forward forward, oct_shape a, oct_shape b, const char *why)
{
    rig r = rig_of(NULL, forward, a.dim[0], 2);
    rig_input(&r, a, 0.05F);
    rig_input(&r, b, 0.05F);
    cr_assert_null(rig_run(&r, false));
    cr_assert_str_eq(oct_error_message(0), why);
    oct_fail_clear();
    rig_end(&r);
}

RIG_FORWARD(matmul_of, oct_matmul(cx, x[0], x[1]))
RIG_FORWARD(mean_of, oct_mean(cx, x[0], 3, false))
RIG_FORWARD(mean_plane_of, oct_mean(cx, x[0], OCT_MEAN_PLANE, false))

Test(tokens, shapes_that_do_not_fit_are_refused)
{
    check_refused(matmul_of, OCT_SHAPE(3, 4, 5), OCT_SHAPE(3, 4, 5),
                  "matmul multiplies (N, ..., M, K) and (N, ..., K, L), but has (3, 4, 5) and "
                  "(3, 4, 5)");
    check_refused(matmul_of, OCT_SHAPE(3, 4), OCT_SHAPE(4, 3),
                  "matmul multiplies (N, ..., M, K) and (N, ..., K, L), but has (3, 4) and (4, 3)");
    check_refused(mean_of, OCT_SHAPE(3, 4, 5), OCT_SHAPE(3, 1),
                  "mean over dimension 3: the input (3, 4, 5) has no such one");
    check_refused(mean_plane_of, OCT_SHAPE(3, 4, 5), OCT_SHAPE(3, 1),
                  "mean over dimension 12: the input (3, 4, 5) has no such plane; it takes images "
                  "(N, H, W, C)");
}

static void check_module_refused(oct_module *m, oct_shape shape, const char *why)
{
    rig r = rig_of(m, rig_call_root, shape.dim[0], 2);
    rig_input(&r, shape, 0.05F);
    cr_assert_null(rig_run(&r, false));
    cr_assert_str_eq(oct_error_message(0), why);
    oct_fail_clear();
    rig_end(&r);
}

Test(tokens, parameters_that_do_not_fit_are_refused)
{
    oct_module *m;
    RIG_OK(oct_layer_norm_create(&m, 6, 1e-5));
    check_module_refused(m, OCT_SHAPE(3, 2, 5),
                         "layer_norm of 6 channels cannot take the input (3, 2, 5)");
    RIG_OK(oct_add_parameter_create(&m, OCT_SHAPE(2, 5)));
    check_module_refused(m, OCT_SHAPE(3, 2, 4),
                         "add_parameter: a parameter (2, 5) does not fit samples of (3, 2, 4); "
                         "each of its dimensions is the sample's or 1");
    RIG_OK(oct_mul_parameter_create(&m, OCT_SHAPE(4)));
    check_module_refused(m, OCT_SHAPE(3, 2, 4),
                         "mul_parameter: a parameter (4) does not fit samples of (3, 2, 4); each "
                         "of its dimensions is the sample's or 1");
}

#define REFUSED(call) cr_assert((call) == OCT_USAGE && !m, #call)

Test(tokens, arguments_that_cannot_be_are_refused)
{
    oct_module *m = NULL;
    REFUSED(oct_layer_norm_create(&m, 0, 1e-5));
    REFUSED(oct_layer_norm_create(&m, 4, 0));
    REFUSED(oct_group_norm_create(&m, 3, 4, 1e-5));
    REFUSED(oct_group_norm_create(&m, 0, 4, 1e-5));
    REFUSED(oct_parameter_create(&m, OCT_SHAPE(2, 2, 2, 2)));
    REFUSED(oct_add_parameter_create(&m, OCT_SHAPE(2, 0)));
    REFUSED(oct_mean_create(&m, 0, false));
    REFUSED(oct_mean_create(&m, 4, false));
    REFUSED(oct_module_from(&m, &oct_parameter_type, OCT_OP_ARGS(2, 3)));
    REFUSED(oct_module_from(&m, &oct_parameter_type, OCT_OP_ARGS(1, 2.5)));
    REFUSED(oct_module_from(&m, &oct_group_norm_type, OCT_OP_ARGS(2, 4)));
    oct_fail_clear();
}
