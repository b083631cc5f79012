/* Prepare: what it makes of a model, and that everything it cannot make something of is refused at
 * once, with the module's path. */
#include "tests/quant/net.h"

static oct_tensor *noop_hook(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)cx, (void)module, (void)value;
    (*(int *)user)++;
    return NULL;
}

static void check_refused(net *n, int problem, const char *sentence)
{
    oct_status status = net_prepare(n, false, false);
    cr_assert_eq(status, OCT_PREPARE, "was accepted");
    cr_assert_gt((int)oct_fail_count(), problem);
    cr_assert(strstr(oct_fail_text((size_t)problem), sentence), "got: %s",
              oct_fail_text((size_t)problem));
}

static void begin(net *n)
{
    net_begin(n, 8, 8, 3, 2, 2);
}

Test(prepare, fuses_conv_batch_norm_relu_into_one_module_and_leaves_identities)
{
    net n;
    begin(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 3, 4, conv3x3(1, 1), false));
    APPEND(&n, oct_batch_norm_create(&item, 4));
    APPEND(&n, oct_relu_create(&item));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(net_prepare(&n, false, false));
    cr_assert_eq(oct_module_find(n.root, "1")->type, &oct_qat_conv_type);
    cr_assert_eq(oct_module_find(n.root, "1.conv")->type, &oct_conv2d_type);
    cr_assert_eq(oct_module_find(n.root, "1.bn")->type, &oct_batch_norm_type);
    cr_assert_eq(oct_module_find(n.root, "2")->type, &oct_identity_type);
    cr_assert_eq(oct_module_find(n.root, "3")->type, &oct_identity_type);
    cr_assert_eq(n.quantizers.count, 2, "one for the input, one for the fused output");
    cr_assert_not(((oct_fake_quant *)oct_module_find(n.root, "1.fake_quant"))->is_signed);
    cr_assert(((oct_fake_quant *)oct_module_find(n.root, "0.fake_quant"))->is_signed);
    net_end(&n);
}

Test(prepare, float_and_calibrating_models_compute_what_the_model_computed_before)
{
    net n;
    begin(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 3, 4, conv3x3(1, 1), true));
    APPEND(&n, oct_batch_norm_create(&item, 4));
    APPEND(&n, oct_relu_create(&item));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(oct_init_parameters(n.root, 3));
    bool zero = false;
    OK(oct_module_walk(n.root, net_randomise, &zero));
    oct_module_train(n.root, false);
    oct_tensor *y = net_forward(&n, false);
    int64_t numel = oct_numel(y);
    float *before = malloc((size_t)numel * 4);
    memcpy(before, y->data, (size_t)numel * 4);
    OK(net_prepare(&n, false, false));
    oct_module_train(n.root, false);
    oct_check_bits_f32(oct_f32(net_forward(&n, false)), before, numel, "off");
    oct_quantizers_set_state(&n.quantizers, OCT_QUANT_CALIBRATE);
    oct_check_bits_f32(oct_f32(net_forward(&n, false)), before, numel, "calibrate");
    cr_assert_eq(*n.quantizers.items[0]->updates, 0, "evaluation must not observe");
    free(before);
    net_end(&n);
}

Test(prepare, keeps_the_hooks_of_the_first_and_last_member)
{
    net n;
    int pre = 0, post = 0;
    oct_hook_handle a, b;
    begin(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 3, 4, conv3x3(1, 1), false));
    APPEND(&n, oct_relu_create(&item));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(oct_module_pre_hook(oct_module_find(n.root, "1"), noop_hook, &pre, &a));
    OK(oct_module_hook(oct_module_find(n.root, "2"), noop_hook, &post, &b));
    OK(net_prepare(&n, false, false));
    pre = post = 0; /* prepare traced the model */
    net_enter(&n, OCT_QUANT_QAT, true);
    net_forward(&n, false);
    cr_assert_eq(pre, 2);
    cr_assert_eq(post, 2);
    oct_hook_remove(&a);
    net_forward(&n, false);
    cr_assert_eq(pre, 2);
    cr_assert_eq(post, 3);
    net_end(&n);
}

Test(prepare, refuses_a_hook_that_fusion_would_lose)
{
    net n;
    int calls = 0;
    oct_hook_handle handle;
    begin(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 3, 4, conv3x3(1, 1), false));
    APPEND(&n, oct_batch_norm_create(&item, 4));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(oct_module_hook(oct_module_find(n.root, "1"), noop_hook, &calls, &handle));
    check_refused(&n, 0, "1: its forward hook would be lost");
    net_end(&n);
}

Test(prepare, refuses_an_unfused_batch_norm_with_its_path)
{
    net n;
    begin(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_max_pool_create(&item, 2, 2, 0));
    APPEND(&n, oct_batch_norm_create(&item, 3));
    APPEND(&n, oct_dequant_stub_create(&item));
    check_refused(&n, 0, "2: batch norm on quantized values is not fused");
    net_end(&n);
}

Test(prepare, reports_every_problem_of_a_model_at_once)
{
    net n;
    begin(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_max_pool_create(&item, 2, 2, 0));
    APPEND(&n, oct_relu_create(&item)); /* its output counts as float from here */
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_batch_norm_create(&item, 3));
    APPEND(&n, oct_quant_stub_create(&item));
    cr_assert_eq(net_prepare(&n, false, false), OCT_PREPARE);
    cr_assert_eq(oct_fail_count(), 3);
    cr_assert(strstr(oct_fail_text(0), "2: relu on quantized values is not fused"), "%s",
              oct_fail_text(0));
    cr_assert(strstr(oct_fail_text(1), "4: batch norm on quantized values is not fused"), "%s",
              oct_fail_text(1));
    cr_assert(strstr(oct_fail_text(2), "the model's output is quantized"), "%s", oct_fail_text(2));
    net_end(&n);
}

Test(prepare, refuses_a_model_without_stubs)
{
    net n;
    begin(&n);
    APPEND(&n, oct_conv2d_create(&item, 3, 4, conv3x3(1, 1), false));
    check_refused(&n, 0, "no QuantStub");
    net_end(&n);
}

Test(prepare, refuses_an_output_that_is_codes)
{
    net n;
    begin(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 3, 4, conv3x3(1, 1), false));
    check_refused(&n, 0, "the model's output is quantized; pass it through a DeQuantStub");
    net_end(&n);
}

Test(prepare, refuses_a_model_that_is_prepared_already)
{
    net n;
    begin(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 3, 4, conv3x3(1, 1), false));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(net_prepare(&n, false, false));
    oct_params_unbind(&n.params);
    oct_quantizers_free(&n.quantizers);
    check_refused(&n, 0, "1: the model is prepared already");
    net_end(&n);
}

Test(prepare, refuses_sums_that_could_overflow)
{
    net n;
    net_begin(&n, 1, 1, 40000, 1, 1);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_flatten_create(&item));
    APPEND(&n, oct_linear_create(&item, 40000, 2, false));
    APPEND(&n, oct_dequant_stub_create(&item));
    check_refused(&n, 0, "2: 40000 products in one sum could overflow int32");
    net_end(&n);
}

/* One conv called twice, and functional ops on codes. */
typedef enum odd_way { TWICE, FIRST_ON_FLOAT, FUNCTIONAL_ADD, FUNCTIONAL_POOL } odd_way;

typedef struct odd {
    oct_module base;
    oct_module *quant, *conv, *dequant;
    odd_way way;
} odd;

static oct_tensor *odd_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    odd *m = (odd *)self;
    (void)n;
    oct_tensor *first = m->way == FIRST_ON_FLOAT ? oct_call(cx, m->conv, x[0]) : x[0];
    oct_tensor *a = oct_call(cx, m->quant, first);
    oct_tensor *b = oct_call(cx, m->conv, a);
    if (m->way == TWICE) b = oct_call(cx, m->conv, b);
    if (m->way == FUNCTIONAL_ADD) b = oct_add(cx, b, a);
    if (m->way == FUNCTIONAL_POOL) b = oct_max_pool(cx, b, 2, 2, 0);
    return oct_call(cx, m->dequant, b);
}

static const oct_module_type odd_type = {.name = "odd", .forward = odd_forward};

static void odd_net(net *n, odd_way way)
{
    begin(n);
    oct_module_destroy(&n->root);
    OK(oct_module_create(&n->root, &odd_type, sizeof(odd)));
    odd *m = (odd *)n->root;
    m->way = way;
    OK(oct_quant_stub_create(&m->quant));
    OK(oct_module_add_child(n->root, "quant", &m->quant));
    OK(oct_conv2d_create(&m->conv, 3, 3, conv3x3(1, 1), true));
    OK(oct_module_add_child(n->root, "conv", &m->conv));
    OK(oct_dequant_stub_create(&m->dequant));
    OK(oct_module_add_child(n->root, "dequant", &m->dequant));
}

Test(prepare, refuses_a_layer_that_is_called_twice)
{
    net n;
    odd_net(&n, TWICE);
    check_refused(&n, 0, "conv: is called more than once");
    net_end(&n);
}

Test(prepare, refuses_a_layer_that_is_called_on_float_before_it_is_called_on_codes)
{
    net n;
    odd_net(&n, FIRST_ON_FLOAT);
    check_refused(&n, 0, "conv: is called more than once");
    net_end(&n);
}

Test(prepare, refuses_a_functional_op_on_codes_and_names_the_place)
{
    net n;
    odd_net(&n, FUNCTIONAL_ADD);
    check_refused(&n, 0, "the model: calls the op 'add' on quantized values");
    net_end(&n);
}

Test(prepare, refuses_a_functional_max_pool_on_codes_that_convert_could_not_express)
{
    net n;
    odd_net(&n, FUNCTIONAL_POOL);
    check_refused(&n, 0, "the model: calls the op 'max_pool' on quantized values");
    net_end(&n);
}
