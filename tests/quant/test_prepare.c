/* Prepare: what it makes of a model, and that everything it cannot make something of is refused at
 * once, with the module's path. */
#include "tests/quant/net.h"

static void begin_net(net *n)
{
    net_begin(n, 8, 8, 3, 2, 2);
}

Test(prepare, fuses_conv_batch_norm_relu_into_one_module_and_leaves_identities)
{
    net n;
    begin_net(&n);
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
    begin_net(&n);
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
    oct_module_train(n.root, true);
    OK(net_prepare(&n, false, false));
    oct_module_train(n.root, false);
    oct_check_bits_f32(oct_f32(net_forward(&n, false)), before, numel, "off");
    oct_quantizers_set_state(&n.quantizers, OCT_QUANT_CALIBRATE);
    oct_check_bits_f32(oct_f32(net_forward(&n, false)), before, numel, "calibrate");
    cr_assert_eq(*n.quantizers.items[0]->updates, 0, "evaluation must not observe");
    free(before);
    net_end(&n);
}

static bool says(const char *words)
{
    for (size_t i = 0; i < oct_error_count(); i++)
        if (strstr(oct_error_message(i), words)) return true;
    return false;
}

static oct_prepare_options options_of(oct_prepare_method method)
{
    static oct_qconfig qconfig;
    static oct_qconfig_setter setter;
    qconfig = oct_qconfig_default();
    setter = oct_setter_default(&qconfig);
    return (oct_prepare_options){
        .method = method, .target = oct_target_find("x86"), .setters = &setter, .num_setters = 1};
}

static oct_status try_prepare(net *n, const oct_prepare_options *options)
{
    OK(oct_init_parameters(n->root, 3));
    return oct_prepare(&n->root, OCT_EXAMPLE(n->input), options, NULL);
}

/* Refused with this sentence, and the tree is as it was. */
static void check_refused(net *n, const oct_prepare_options *options, const char *sentence)
{
    oct_quantizers none = {0};
    cr_assert_eq(try_prepare(n, options), OCT_PREPARE, "was accepted");
    cr_assert(says(sentence), "got: %s", oct_error_message(0));
    OK(oct_quantizers_collect(&none, n->root));
    cr_assert_eq(none.count, 0, "something was changed");
    cr_assert_null(oct_graph_of(n->root));
    oct_quantizers_free(&none);
}

static void append_conv(net *n, int64_t in, int64_t out)
{
    APPEND(n, oct_conv2d_create(&item, in, out, conv3x3(1, 1), true));
}

static void stubs_around_conv(net *n)
{
    begin_net(n);
    APPEND(n, oct_quant_stub_create(&item));
    append_conv(n, 3, 4);
    APPEND(n, oct_batch_norm_create(&item, 4));
    APPEND(n, oct_dequant_stub_create(&item));
}

Test(prepare, refuses_what_it_cannot_start_from)
{
    net n;
    stubs_around_conv(&n);
    oct_prepare_options options = options_of(OCT_METHOD_JIT);
    oct_module_train(n.root, false);
    check_refused(&n, &options, "the model is in eval mode; call oct_module_train(model, true)");
    oct_module_train(n.root, true);
    options.target = NULL;
    cr_assert_eq(try_prepare(&n, &options), OCT_USAGE);
    cr_assert(says("prepare needs a target"));
    options = options_of(OCT_METHOD_JIT);
    options.setters = NULL;
    cr_assert_eq(try_prepare(&n, &options), OCT_USAGE);
    options = options_of(OCT_METHOD_JIT);
    OK(try_prepare(&n, &options));
    cr_assert_eq(try_prepare(&n, &options), OCT_PREPARE);
    cr_assert(says("the model is prepared already"));
    net_end(&n);

    begin_net(&n);
    oct_module_destroy(&n.root);
    OK(oct_conv2d_create(&n.root, 3, 4, conv3x3(1, 1), true));
    check_refused(&n, &options, "the model is a single conv2d");
    net_end(&n);
}

Test(prepare, refuses_a_part_that_is_prepared_already)
{
    net n;
    stubs_around_conv(&n);
    oct_prepare_options options = options_of(OCT_METHOD_JIT);
    OK(try_prepare(&n, &options));
    oct_module *outer = NULL;
    OK(oct_sequential_create(&outer));
    OK(oct_sequential_append(outer, &n.root));
    n.root = outer;
    cr_assert_eq(try_prepare(&n, &options), OCT_PREPARE);
    cr_assert(says("0 is prepared already"), "%s", oct_error_message(0));
    net_end(&n);
}

Test(prepare, a_lone_batch_norm_has_a_form_of_its_own_in_graph_methods)
{
    net n;
    begin_net(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    APPEND(&n, oct_batch_norm_create(&item, 3));
    APPEND(&n, oct_relu_create(&item));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(net_prepare(&n, false, false));
    cr_assert_eq(oct_module_find(n.root, "2")->type, &oct_qat_batch_norm_type);
    cr_assert_eq(((oct_quantized *)oct_module_find(n.root, "2"))->activation, OCT_ACT_RELU);
    cr_assert_eq(oct_module_find(n.root, "3")->type, &oct_identity_type);
    net_end(&n);
}

Test(prepare, eager_refuses_an_unfused_batch_norm_with_the_line_to_add)
{
    net n;
    begin_net(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    append_conv(&n, 3, 4);
    APPEND(&n, oct_batch_norm_create(&item, 4));
    APPEND(&n, oct_relu_create(&item));
    APPEND(&n, oct_dequant_stub_create(&item));
    oct_prepare_options options = options_of(OCT_METHOD_EAGER);
    check_refused(
        &n, &options,
        "2: a batch norm between quantized modules is not fused; call this before "
        "prepare:\noct_fuse_modules(&model, (const char *[]){\"1\", \"2\", \"3\"}, 3, false)");
    OK(oct_fuse_modules(&n.root, (const char *[]){"1", "2", "3"}, 3, false));
    OK(try_prepare(&n, &options));
    cr_assert_eq(oct_module_find(n.root, "1")->type, &oct_qat_conv_type);
    net_end(&n);
}

Test(prepare, reports_every_problem_of_a_model_at_once)
{
    net n;
    begin_net(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_quant_stub_create(&item));
    append_conv(&n, 3, 40000);
    APPEND(&n, oct_dequant_stub_create(&item));
    APPEND(&n, oct_dequant_stub_create(&item));
    static const char *const none[] = {NULL};
    oct_target small = {
        .name = "small", .no_fusions = none, .unsigned_codes = true, .max_channels = 8};
    oct_prepare_options options = options_of(OCT_METHOD_JIT);
    options.target = &small;
    check_refused(&n, &options, "1: what it gets from 0 is quantized already");
    cr_assert_eq(oct_error_count(), 3);
    cr_assert(says("2: has 40000 channels, and target small allows at most 8"));
    cr_assert(says("4: follows the DeQuantStub 3 directly; remove one of them"));
    net_end(&n);
}

Test(prepare, without_stubs_jit_strip_does_as_jit_and_says_so)
{
    net n;
    begin_net(&n);
    append_conv(&n, 3, 4);
    oct_prepare_options options = options_of(OCT_METHOD_JIT_STRIP);
    OK(try_prepare(&n, &options));
    const oct_graph *g = oct_graph_of(n.root);
    cr_assert(strstr(g->nodes[0].note, "no QuantStub and no DeQuantStub"));
    cr_assert_not_null(g->values[g->inputs[0]].quantize);
    cr_assert_not_null(g->values[g->output[0]].dequantize, "the model's output is float");
    net_end(&n);

    begin_net(&n);
    append_conv(&n, 3, 4);
    options.method = OCT_METHOD_EAGER;
    check_refused(&n, &options, "the model has no QuantStub");
    net_end(&n);
}

Test(prepare, eager_refuses_codes_at_the_end_and_float_at_the_beginning)
{
    net n;
    oct_prepare_options options = options_of(OCT_METHOD_EAGER);
    begin_net(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    append_conv(&n, 3, 4);
    check_refused(&n, &options,
                  "the model's output is quantized: it comes from 1; put a DeQuantStub between 1 "
                  "and the end of the forward");
    net_end(&n);

    begin_net(&n);
    append_conv(&n, 3, 4);
    APPEND(&n, oct_dequant_stub_create(&item));
    check_refused(&n, &options, "put a QuantStub between the model's input and 0");
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
    oct_prepare_options options = options_of(OCT_METHOD_JIT);
    check_refused(&n, &options, "2: 40000 products in one sum could overflow int32");
    net_end(&n);
}

Test(prepare, obeys_the_target)
{
    net n;
    oct_prepare_options options = options_of(OCT_METHOD_JIT);
    options.target = oct_target_find("pow2");
    stubs_around_conv(&n);
    check_refused(&n, &options, "fold it (options.fold_batch_norm; ");
    options.fold_batch_norm = true;
    OK(try_prepare(&n, &options));
    cr_assert_null(oct_module_find(n.root, "1.bn"));
    net_end(&n);

    static const char *const fusions[] = {"conv_bn", NULL}, *const ops[] = {"max_pool", NULL};
    oct_target poor = *oct_target_find("x86");
    poor.no_fusions = fusions, poor.no_ops = ops, poor.wide_codes = false;
    options = options_of(OCT_METHOD_JIT);
    options.target = &poor;
    begin_net(&n);
    append_conv(&n, 3, 4);
    APPEND(&n, oct_batch_norm_create(&item, 4));
    APPEND(&n, oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    OK(try_prepare(&n, &options));
    cr_assert_eq(oct_module_find(n.root, "1")->type, &oct_qat_batch_norm_type, "falls apart");
    cr_assert(strstr(oct_graph_of(n.root)->nodes[2].note, "target x86 cannot run max_pool"));
    net_end(&n);

    oct_qconfig wide = oct_qconfig_default();
    wide.bits = 16;
    oct_qconfig_setter setter = oct_setter_default(&wide);
    options.setters = &setter;
    begin_net(&n);
    append_conv(&n, 3, 4);
    check_refused(&n, &options, "16-bit activations, which target x86 does not have");
    net_end(&n);
}

/* One conv called in odd ways, and functional ops on codes. */
typedef enum odd_way {
    TWICE,
    FIRST_ON_FLOAT,
    FUNCTIONAL_ADD,
    FUNCTIONAL_POOL,
    MIXED_SUM,
    CHANGING,
    UNSTEADY_BLOCK,
    ONE_RUN
} odd_way;

typedef struct odd {
    oct_module base;
    oct_module *quant, *conv, *dequant, *add;
    odd_way way;
    int calls;
} odd;

static oct_tensor *in_block(oct_context *cx, odd *m, oct_tensor *x)
{
    oct_dynamic_block_begin(cx, &m->base, "turn");
    x = oct_call(cx, m->conv, x);
    oct_dynamic_block_end(cx);
    return x;
}

static oct_tensor *odd_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    odd *m = (odd *)self;
    (void)n;
    oct_tensor *first = m->way == FIRST_ON_FLOAT ? oct_call(cx, m->conv, x[0]) : x[0];
    if (m->way == ONE_RUN) return in_block(cx, m, x[0]);
    if (m->way == UNSTEADY_BLOCK) return in_block(cx, m, in_block(cx, m, x[0]));
    oct_tensor *a = oct_call(cx, m->quant, first);
    oct_tensor *b = oct_call(cx, m->conv, a);
    if (m->way == TWICE || (m->way == CHANGING && m->calls++ % 2)) b = oct_call(cx, m->conv, b);
    if (m->way == FUNCTIONAL_ADD) b = oct_add(cx, b, a);
    if (m->way == MIXED_SUM) b = oct_call2(cx, m->add, b, x[0]);
    if (m->way == FUNCTIONAL_POOL) b = oct_max_pool(cx, b, oct_pool_geometry_of(2, 2, 0));
    return oct_call(cx, m->dequant, b);
}

static const oct_module_type odd_type = {.name = "odd", .forward = odd_forward};

static void odd_net(net *n, odd_way way)
{
    begin_net(n);
    oct_module_destroy(&n->root);
    OK(oct_module_alloc(&n->root, &odd_type, sizeof(odd)));
    odd *m = (odd *)n->root;
    m->way = way;
    OK(oct_quant_stub_create(&m->quant));
    OK(oct_module_add_child(n->root, "quant", &m->quant));
    OK(oct_conv2d_create(&m->conv, 3, 3, conv3x3(1, 1), true));
    OK(oct_module_add_child(n->root, "conv", &m->conv));
    OK(oct_dequant_stub_create(&m->dequant));
    OK(oct_module_add_child(n->root, "dequant", &m->dequant));
    OK(oct_add_create(&m->add));
    OK(oct_module_add_child(n->root, "add", &m->add));
}

Test(prepare, a_layer_that_is_called_twice_has_a_module_for_each_call)
{
    net n;
    odd_net(&n, TWICE);
    oct_prepare_options options = options_of(OCT_METHOD_JIT);
    OK(try_prepare(&n, &options));
    cr_assert_eq(oct_module_find(n.root, "_generated_conv2d_0")->type, &oct_qat_conv_type);
    net_end(&n);

    odd_net(&n, TWICE);
    options.method = OCT_METHOD_EAGER;
    OK(try_prepare(&n, &options));
    cr_assert_null(oct_module_find(n.root, "_generated_conv2d_0"), "eager has only the slot");
    net_end(&n);
}

Test(prepare, refuses_a_layer_that_is_called_on_float_and_on_codes)
{
    net n;
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT_STRIP, OCT_METHOD_EAGER};
    static const char *const words[] = {
        "conv: is called more than once, and the calls would become",
        "conv: works on quantized values, but what it gets from the model's input is float"};
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        odd_net(&n, FIRST_ON_FLOAT);
        oct_prepare_options options = options_of(methods[i]);
        check_refused(&n, &options, words[i]);
        net_end(&n);
    }
}

Test(prepare, eager_refuses_an_op_on_codes_and_names_the_module_to_use)
{
    net n;
    odd_net(&n, FUNCTIONAL_ADD);
    oct_prepare_options options = options_of(OCT_METHOD_EAGER);
    check_refused(&n, &options,
                  "the op 'add' works on quantized values, and eager cannot put a module there; "
                  "give the forward a module for it (oct_add_create), or prepare with jit");
    net_end(&n);

    odd_net(&n, FUNCTIONAL_POOL); /* works on codes as it is */
    OK(try_prepare(&n, &options));
    net_end(&n);
}

Test(prepare, refuses_a_sum_of_more_channels_than_the_target_adds)
{
    net n;
    oct_target narrow = *oct_target_find("bpu");
    oct_prepare_options options = options_of(OCT_METHOD_JIT);
    options.target = &narrow;
    narrow.max_channels = 2;
    odd_net(&n, FUNCTIONAL_ADD);
    check_refused(&n, &options, "conv: has 3 channels, and target bpu allows at most 2");
    cr_assert_eq(oct_error_count(), 2);
    cr_assert(says("the op 'add' (_generated_add_0): adds values of 3 channels, and target bpu "
                   "allows at most 2; "),
              "%s", oct_error_message(1));
    net_end(&n);

    narrow.max_channels = 3;
    odd_net(&n, FUNCTIONAL_ADD);
    OK(try_prepare(&n, &options));
    net_end(&n);
}

Test(prepare, eager_names_both_sides_of_a_sum_of_codes_and_float)
{
    net n;
    odd_net(&n, MIXED_SUM);
    oct_prepare_options options = options_of(OCT_METHOD_EAGER);
    check_refused(
        &n, &options,
        "add: works on quantized values, but what it gets from the model's input is float; put a "
        "QuantStub between the model's input and add");
    net_end(&n);
}

Test(prepare, eager_names_both_sides_of_a_part_that_stays_float)
{
    net n;
    begin_net(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    for (int i = 0; i < 3; i++)
        append_conv(&n, 3, 3);
    APPEND(&n, oct_dequant_stub_create(&item));
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("2", NULL), oct_setter_default(&qconfig)};
    oct_prepare_options options = options_of(OCT_METHOD_EAGER);
    options.setters = setters;
    options.num_setters = 2;
    check_refused(&n, &options,
                  "2: gets quantized values from 1, but it stays float: its qconfig is none (by "
                  "name '2'); put a DeQuantStub between 1 and 2");
    cr_assert(
        says("3: works on quantized values, but what it gets from 2 is float; put a QuantStub "
             "between 2 and 3"));
    net_end(&n);
}

Test(prepare, refuses_a_forward_that_changes_from_call_to_call)
{
    net n;
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT_STRIP, OCT_METHOD_JIT,
                                                 OCT_METHOD_SYMBOLIC};
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        odd_net(&n, CHANGING);
        oct_prepare_options options = options_of(methods[i]);
        check_refused(&n, &options,
                      "two forwards of the model differ: one calls dequant where "
                      "the other calls conv");
        cr_assert(says("oct_dynamic_block_begin"));
        net_end(&n);
    }
}

Test(prepare, refuses_a_block_that_could_not_run_a_second_time)
{
    net n;
    static const odd_way ways[] = {ONE_RUN, UNSTEADY_BLOCK};
    for (size_t i = 0; i < OCT_COUNT(ways); i++) {
        odd_net(&n, ways[i]);
        oct_prepare_options options = options_of(OCT_METHOD_JIT);
        check_refused(&n, &options, "dynamic block 'turn': ");
        cr_assert(says("QuantStub before it"), "%s", oct_error_message(0));
        net_end(&n);
    }
}

Test(prepare, symbolic_refuses_dynamic_blocks)
{
    net n;
    odd_net(&n, ONE_RUN);
    oct_prepare_options options = options_of(OCT_METHOD_SYMBOLIC);
    check_refused(&n, &options, "the forward has the dynamic block 'turn'; prepare with jit");
    net_end(&n);
}

/* A layer of the user's own that says nothing of how to make it again. */
static oct_tensor *own_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)self, (void)n;
    return oct_relu(cx, x[0]);
}

static const oct_module_type own_type = {.name = "own", .forward = own_forward, .atomic = true};

Test(prepare, refuses_a_layer_that_could_not_be_deployed)
{
    net n;
    begin_net(&n);
    append_conv(&n, 3, 4);
    APPEND(&n, oct_module_alloc(&item, &own_type, sizeof(oct_module)));
    oct_prepare_options options = options_of(OCT_METHOD_JIT);
    check_refused(&n, &options, "1: its type own has no list of arguments");
    net_end(&n);
}

Test(prepare, refuses_members_in_different_modes)
{
    net n;
    stubs_around_conv(&n);
    oct_module_train(oct_module_find(n.root, "2"), false);
    oct_prepare_options options = options_of(OCT_METHOD_JIT);
    check_refused(&n, &options, "1 is in train mode and 2 in eval mode");
    net_end(&n);
}

Test(prepare, hands_the_last_result_over_unquantized_when_asked)
{
    net n;
    begin_net(&n);
    APPEND(&n, oct_quant_stub_create(&item));
    append_conv(&n, 3, 4);
    append_conv(&n, 4, 4);
    APPEND(&n, oct_flatten_create(&item));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(net_prepare(&n, true, false));
    cr_assert_not_null(oct_module_find(n.root, "1.fake_quant"));
    cr_assert_null(oct_module_find(n.root, "2.fake_quant"), "the last one before the DeQuantStub");
    net_end(&n);
}

Test(prepare, names_its_methods)
{
    for (size_t i = 0; i < OCT_METHODS; i++)
        cr_assert_eq(
            oct_registry_index(&oct_prepare_method_table, oct_method_name((oct_prepare_method)i)),
            i);
    cr_assert_eq(oct_registry_index(&oct_prepare_method_table, "fx"), OCT_METHODS);
}
