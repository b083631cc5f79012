/* What is trained is what is deployed: QAT evaluation and integer program agree in every bit, over
 * the structures that prepare knows. */
#include "tests/quant/net.h"

/* Evaluation of the prepared net against the converted program on the same input. */
static void check_same(net *n)
{
    oct_program program;
    oct_runtime *runtime = NULL;
    oct_module_train(n->root, false);
    oct_quantizers_set_state(&n->quantizers, OCT_QUANT_FROZEN);
    oct_tensor *y = net_forward(n, false);
    OK(oct_convert(&program, n->root, OCT_EXAMPLE(n->input), oct_target_find("x86"), NULL));
    OK(oct_runtime_create(
        &runtime, &program,
        &(oct_runtime_options){.max_batch = n->leaves.samples, .host = &oct_module_fallbacks}));
    float *out = calloc((size_t)oct_numel(y), 4);
    OK(oct_runtime_run(runtime, n->leaves.samples, (const float *[]){n->x}, out));
    /* y lives in the context of the forward; convert traced in one of its own. */
    oct_check_bits_f32(out, oct_f32(y), oct_numel(y), "output");
    bool differs = false;
    for (int64_t i = 1; i < oct_numel(y); i++)
        differs |= out[i] != out[0];
    cr_assert(differs, "an output that is constant proves nothing");
    free(out);
    oct_runtime_destroy(&runtime);
    oct_program_free(&program);
}

static void train_and_check(net *n)
{
    net_enter(n, OCT_QUANT_QAT, false);
    for (int step = 0; step < 3; step++) { /* statistics and scales move */
        net_forward(n, false);
        net_update(n);
    }
    check_same(n);
    net_end(n);
}

static void finish(net *n, bool float_output)
{
    APPEND(n, oct_dequant_stub_create(&item));
    OK(net_prepare(n, float_output, true));
    train_and_check(n);
}

Test(convert, conv_batch_norm_relu_with_odd_sizes_and_negative_and_zero_gamma)
{
    net n;
    net_begin(&n, 9, 7, 3, 5, 2);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 3, 7, conv3x3(2, 1), false));
    APPEND(&n, oct_batch_norm_create(&item, 7));
    APPEND(&n, oct_relu_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 7, 5, conv3x3(1, 1), true));
    APPEND(&n, oct_batch_norm_create(&item, 5));
    finish(&n, false);
}

Test(convert, max_pools_whose_windows_lie_in_the_border_but_for_a_pixel)
{
    net n;
    net_begin(&n, 7, 6, 3, 5, 2);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 3, 4, conv3x3(1, 1), true));
    APPEND(&n, oct_max_pool_create(&item, oct_pool_geometry_of(3, 2, 2)));
    APPEND(&n, oct_conv2d_create(&item, 4, 3, conv3x3(1, 1), true));
    finish(&n, false);
}

Test(convert, groups_relu6_pools_flatten_and_linear_with_a_float_output)
{
    net n;
    net_begin(&n, 12, 12, 4, 6, 4);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 4, 8, conv3x3(1, 2), false));
    APPEND(&n, oct_batch_norm_create(&item, 8));
    APPEND(&n, oct_relu6_create(&item));
    APPEND(&n, oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    APPEND(&n, oct_conv2d_create(&item, 8, 8, conv3x3(1, 8), false)); /* depthwise */
    APPEND(&n, oct_batch_norm_create(&item, 8));
    APPEND(&n, oct_avg_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    APPEND(&n, oct_flatten_create(&item));
    APPEND(&n, oct_linear_create(&item, 72, 20, true));
    APPEND(&n, oct_relu_create(&item));
    APPEND(&n, oct_linear_create(&item, 20, 3, true));
    finish(&n, true);
}

/* A conv with batch norm, prepared, whose channel `o` has no weights and no beta: what is left of it
 * is a zero. Channel 1 has a negative gamma. */
static void net_with_silent_channel(net *n, bool float_output, int64_t o)
{
    net_begin(n, 6, 6, 2, 4, 2);
    APPEND(n, oct_quant_stub_create(&item));
    APPEND(n, oct_conv2d_create(&item, 2, 3, conv3x3(1, 1), false));
    APPEND(n, oct_batch_norm_create(&item, 3));
    APPEND(n, oct_dequant_stub_create(&item));
    OK(net_prepare(n, float_output, true));
    oct_conv2d_module *conv = (oct_conv2d_module *)oct_module_find(n->root, "1.conv");
    oct_batch_norm_module *bn = (oct_batch_norm_module *)oct_module_find(n->root, "1.bn");
    memset(oct_f32(&conv->weight->value) + o * 18, 0, 18 * sizeof(float));
    oct_f32(&bn->beta->value)[o] = 0.0f;
    bn->running_mean[o] = 0.0f;
}

Test(convert, a_zero_has_no_sign_whatever_that_of_gamma)
{
    net n;
    net_with_silent_channel(&n, true, 1);
    train_and_check(&n);
}

Test(convert, channels_whose_gamma_and_beta_are_zero)
{
    for (int float_output = 0; float_output < 2; float_output++) {
        net n;
        net_with_silent_channel(&n, float_output, 2);
        train_and_check(&n);
    }
}

/* conv -> (relu) and a shortcut, added. */
typedef struct residual {
    oct_module base;
    oct_module *conv, *add, *relu;
} residual;

static oct_tensor *residual_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    residual *r = (residual *)self;
    (void)n;
    oct_tensor *y = oct_call2(cx, r->add, oct_call(cx, r->conv, x[0]), x[0]);
    return r->relu ? oct_call(cx, r->relu, y) : y;
}

static const oct_module_type residual_type = {.name = "residual", .forward = residual_forward};

static oct_status residual_create(oct_module **m, int64_t channels, bool relu)
{
    OCT_TRY(oct_module_alloc(m, &residual_type, sizeof(residual)));
    residual *r = (residual *)*m;
    OCT_TRY(oct_conv2d_create(&r->conv, channels, channels, conv3x3(1, 1), true));
    OCT_TRY(oct_module_add_child(*m, "conv", &r->conv));
    OCT_TRY(oct_add_create(&r->add));
    OCT_TRY(oct_module_add_child(*m, "add", &r->add));
    if (!relu) return OCT_OK;
    OCT_TRY(oct_relu_create(&r->relu));
    return oct_module_add_child(*m, "relu", &r->relu);
}

Test(convert, residual_adds_with_and_without_relu_and_a_global_pool)
{
    net n;
    net_begin(&n, 8, 8, 6, 7, 3);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, residual_create(&item, 6, false));
    APPEND(&n, residual_create(&item, 6, true));
    APPEND(&n, residual_create(&item, 6, true));
    APPEND(&n, oct_global_avg_pool_create(&item));
    APPEND(&n, oct_linear_create(&item, 6, 4, true));
    finish(&n, true);
}

Test(convert, refuses_scales_that_still_move)
{
    net n;
    net_begin(&n, 8, 8, 2, 4, 2);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 2, 3, conv3x3(1, 1), true));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(net_prepare(&n, false, false));
    net_enter(&n, OCT_QUANT_QAT, true);
    oct_program program;
    cr_assert_eq(oct_convert(&program, n.root, OCT_EXAMPLE(n.input), oct_target_find("x86"), NULL),
                 OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "scales still move"), "%s", oct_error_message(0));
    net_end(&n);
}

/* A relu after the DeQuantStub is part of the model all the same. */
Test(convert, names_the_layers_that_stay_float)
{
    net n;
    net_begin(&n, 8, 8, 2, 4, 2);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 2, 3, conv3x3(1, 1), true));
    APPEND(&n, oct_dequant_stub_create(&item));
    APPEND(&n, oct_relu_create(&item));
    OK(net_prepare(&n, true, false));
    net_enter(&n, OCT_QUANT_FROZEN, true);
    oct_program program;
    oct_text fallbacks = {0};
    OK(oct_convert(&program, n.root, OCT_EXAMPLE(n.input), oct_target_find("x86"), &fallbacks));
    cr_assert(strncmp(fallbacks.data, "3 (relu): ", 10) == 0, "%s", fallbacks.data);
    cr_assert_str_eq(strchr(fallbacks.data, '\n'), "\n", "one line");
    oct_text_free(&fallbacks);
    oct_program_free(&program);
    check_same(&n);
    net_end(&n);
}

Test(convert, refuses_another_target_than_the_one_prepared_for)
{
    net n;
    net_begin(&n, 8, 8, 2, 4, 2);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 2, 3, conv3x3(1, 1), true));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(net_prepare(&n, false, false));
    net_enter(&n, OCT_QUANT_FROZEN, true);
    oct_program program;
    cr_assert_eq(oct_convert(&program, n.root, OCT_EXAMPLE(n.input), oct_target_find("pow2"), NULL),
                 OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0),
                     "the model was prepared for x86 and learned that target's rounding, so it "
                     "cannot be converted for pow2; train its QAT phase with quant.target pow2");
    cr_assert_null(program.steps);
    cr_assert_eq(oct_convert(&program, n.root, OCT_EXAMPLE(n.input), NULL, NULL), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0),
                     "convert wants to know the target; pass the one that the model was prepared "
                     "for (oct_target_find(\"x86\"))");
    net_end(&n);
}

Test(convert, refuses_a_model_that_is_not_prepared)
{
    net n;
    oct_program program;
    net_begin(&n, 8, 8, 2, 4, 2);
    APPEND(&n, oct_relu_create(&item));
    cr_assert_eq(oct_convert(&program, n.root, OCT_EXAMPLE(n.input), oct_target_find("x86"), NULL),
                 OCT_PREPARE);
    cr_assert_str_eq(
        oct_error_message(0),
        "the model is not prepared: call oct_prepare, or convert a checkpoint of its QAT phase");
    net_end(&n);
}
