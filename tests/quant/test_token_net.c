/* Float fallbacks of rows and tokens: alone between quantized layers, and together in a small transformer that is
 * trained by quantization and converted. */
#include "tests/quant/deploy.h"
#include "tests/quant/token_net.h"

TestSuite(token_net, .timeout = 120);

static oct_tensor *chain_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    parts *p = (parts *)self;
    (void)n;
    return oct_call(cx, p->m[2], oct_call(cx, p->m[1], oct_call(cx, p->m[0], x[0])));
}
static const oct_module_type chain_type = {.name = "chain", .forward = chain_forward};

static const oct_prepare_method graph_methods[] = {OCT_METHOD_JIT, OCT_METHOD_SYMBOLIC};

/* Converts a convolution, `middle`, which has 4 input channels, and another convolution. */
static void deploy_between(oct_status (*create)(oct_module **m), int64_t channels)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        deployment d;
        const oct_prepare_options options = deploy_options(graph_methods[i], NULL);
        oct_module *root = parts_create(&chain_type);
        PART(root, 0, oct_conv2d_create(&item, 3, 4, deploy_conv(3, 1), true));
        PART(root, 1, create(&item));
        PART(root, 2, oct_conv2d_create(&item, channels, 5, deploy_conv(1, 1), true));
        deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
        deploy(&d, &options);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 1);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_QUANTIZE), 2);
        deploy_end(&d);
    }
}

#define BETWEEN(name, channels, call)                                                              \
    static oct_status name##_between(oct_module **m)                                               \
    {                                                                                              \
        return call;                                                                               \
    }                                                                                              \
    Test(token_net, name##_is_an_fallback)                                                         \
    {                                                                                              \
        deploy_between(name##_between, channels);                                                  \
    }

BETWEEN(layer_norm, 4, oct_layer_norm_create(m, 4, 1e-5))
BETWEEN(group_norm, 4, oct_group_norm_create(m, 2, 4, 1e-5))
BETWEEN(instance_norm, 4, oct_group_norm_create(m, 4, 4, 1e-5))
BETWEEN(parameter, 3, oct_parameter_create(m, OCT_SHAPE(2, 2, 3)))
BETWEEN(add_parameter, 4, oct_add_parameter_create(m, OCT_SHAPE(6, 5, 4)))
BETWEEN(mul_parameter, 4, oct_mul_parameter_create(m, OCT_SHAPE(1, 1, 4)))
BETWEEN(mean, 4, oct_mean_create(m, OCT_MEAN_PLANE, true))

/* The product of two convolutions' planes, row by row of pixels. */
static oct_tensor *product_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    parts *p = (parts *)self;
    (void)n;
    oct_tensor *a = oct_call(cx, p->m[0], x[0]), *b = oct_call(cx, p->m[1], x[0]);
    return oct_call(cx, p->m[2], oct_matmul(cx, a, b));
}
static const oct_module_type product_type = {.name = "product", .forward = product_forward};

Test(token_net, matmul_is_an_fallback)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        deployment d;
        const oct_prepare_options options = deploy_options(graph_methods[i], NULL);
        oct_module *root = parts_create(&product_type);
        PART(root, 0, oct_conv2d_create(&item, 3, 5, deploy_conv(3, 1), true));
        PART(root, 1, oct_conv2d_create(&item, 3, 5, deploy_conv(3, 1), true));
        PART(root, 2, oct_conv2d_create(&item, 5, 2, deploy_conv(1, 1), true));
        deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
        deploy(&d, &options);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 1);
        deploy_end(&d);
    }
}

/* What stays float: the token, its positions, three norms, two products, the scale and the mean. */
Test(token_net, a_transformer_is_deployed)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        deployment d;
        oct_module *root = NULL;
        const oct_prepare_options options = deploy_options(graph_methods[i], NULL);
        OK(token_net_create(&root));
        deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, TOKEN_SIDE, TOKEN_SIDE, 3)));
        deploy(&d, &options);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 9);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_SOFTMAX), 1);
        deploy_end(&d);
    }
}
