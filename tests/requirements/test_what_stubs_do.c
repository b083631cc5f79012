/* "What do [De]QuantStub actually do?": identity before prepare, the place of a quantizer after it; in
 * eager mode the user places them, in graph methods the boundary is found; part of a model can be left
 * in float. */
#include "tests/requirements/rig.h"

typedef struct chain {
    oct_module base;
    oct_module *quant, *conv1, *conv2, *conv3, *pool, *dequant; /* stubs may be NULL */
} chain;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    chain *m = (chain *)self;
    (void)n;
    oct_tensor *x = m->quant ? oct_call(cx, m->quant, in[0]) : in[0];
    x = oct_call(cx, m->conv3, oct_call(cx, m->conv2, oct_call(cx, m->conv1, x)));
    x = oct_call(cx, m->pool, x);
    return m->dequant ? oct_call(cx, m->dequant, x) : x;
}

static const oct_module_type chain_type = {.name = "chain", .forward = forward};

static chain *begin(rig *r, bool quant, bool dequant)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &chain_type, sizeof(chain)));
    chain *m = (chain *)root;
    if (quant) CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, conv1, oct_conv2d_create(&m->conv1, 3, 4, rig_same(3), true));
    CHILD(m, conv2, oct_conv2d_create(&m->conv2, 4, 4, rig_same(3), true));
    CHILD(m, conv3, oct_conv2d_create(&m->conv3, 4, 2, rig_same(3), true));
    CHILD(m, pool, oct_global_avg_pool_create(&m->pool));
    if (dequant) CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    return m;
}

static oct_fake_quant *quantizer_of(oct_module *m)
{
    return (oct_fake_quant *)((oct_quantized *)m)->fake_quant;
}

Test(what_stubs_do, identity_before_prepare)
{
    rig r;
    chain *m = begin(&r, true, true);
    oct_context_begin(r.cx, r.leaves, false);
    oct_tensor *x = oct_tensor_view(r.cx, OCT_F32, OCT_SHAPE(8, 6, 6, 3), r.x[0]);
    const oct_tensor *y = oct_call(r.cx, m->quant, x), *z = oct_call(r.cx, m->dequant, x);
    cr_assert(y->data == x->data && z->data == x->data);
    rig_end(&r);
}

/* "it needs to be unique since it has state"; "DeQuantStub does not: it is stateless". */
Test(what_stubs_do, quant_carries_the_inputs_quantizer_and_dequant_nothing)
{
    rig r;
    chain *m = begin(&r, true, true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    cr_assert_not_null(quantizer_of(m->quant));
    cr_assert_eq(rig_count(m->dequant, &oct_fake_quant_type), 0);
    rig_calibrate(&r);
    cr_assert_eq(quantizer_of(m->quant)->updates[0], 1, "at calibration time it observes");
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    oct_context_begin(r.cx, r.leaves, false);
    oct_tensor *x = oct_tensor_view(r.cx, OCT_F32, OCT_SHAPE(8, 6, 6, 3), r.x[0]);
    oct_tensor *codes = oct_module_execute(r.cx, m->quant, &x, 1);
    cr_assert_eq(codes->dtype, OCT_U8, "in training it quantizes");
    const oct_tensor *back = oct_module_execute(r.cx, m->dequant, &codes, 1);
    cr_assert_eq(back->dtype, OCT_F32);
    for (int64_t i = 0; i < oct_numel(back); i++)
        cr_assert_float_eq(oct_f32(back)[i], r.x[0][i], codes->q.scale * 0.51f);
    rig_convert(&r);
    rig_end(&r);
}

/* "How does pytorch decide what is previous? It doesn't in eager mode." Octet's eager says at prepare
 * what is missing, and where. */
Test(what_stubs_do, eager_names_both_modules_where_a_stub_is_missing)
{
    rig r;
    begin(&r, false, true);
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "QuantStub");
    cr_assert(rig_says("conv1"));
    rig_end(&r);

    begin(&r, true, false);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "DeQuantStub");
    rig_end(&r);

    /* conv2 stays float between two quantized modules. */
    begin(&r, true, true);
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("conv2", NULL),
                                    oct_setter_default(&qconfig)};
    options.setters = setters;
    options.num_setters = 2;
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "conv1");
    cr_assert(rig_says("conv2") && rig_says("DeQuantStub"));
    rig_end(&r);
}

/* "this is done automatically in graph mode quantization" */
Test(what_stubs_do, graph_methods_find_the_boundary)
{
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT_STRIP, OCT_METHOD_JIT,
                                                 OCT_METHOD_SYMBOLIC};
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        rig r;
        chain *m = begin(&r, false, false);
        oct_prepare_options options = rig_options(methods[i]);
        rig_prepare(&r, &options);
        cr_assert_eq(m->conv1->type, &oct_qat_conv_type);
        cr_assert_eq(rig_count(r.root, &oct_quant_stub_type), 1, "one generated for the input");
        rig_calibrate(&r);
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        rig_step(&r);
        rig_convert(&r);
        rig_end(&r);
    }
}

/* "The purpose is to quant part of the module ... configure qconfig correctly." */
Test(what_stubs_do, a_part_without_qconfig_stays_float_in_every_method)
{
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT_STRIP, OCT_METHOD_JIT,
                                                 OCT_METHOD_SYMBOLIC};
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("conv2", NULL),
                                    oct_setter_default(&qconfig)};
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        rig r;
        chain *m = begin(&r, true, true);
        oct_prepare_options options = rig_options(methods[i]);
        options.setters = setters;
        options.num_setters = 2;
        oct_text report = {0};
        OK(rig_try(&r, &options, &report));
        cr_assert_eq(m->conv2->type, &oct_conv2d_type, "float");
        cr_assert_eq(m->conv1->type, &oct_qat_conv_type);
        cr_assert_eq(rig_count(r.root, &oct_quant_stub_type), 2, "its own and one after conv2");
        cr_assert(strstr(report.data, "conv2") && strstr(report.data, "float"), "%s", report.data);
        OK(oct_params_bind(&r.params, r.root, &r.leaves));
        OK(oct_quantizers_collect(&r.quantizers, r.root));
        rig_calibrate(&r);
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        rig_step(&r);
        rig_convert(&r); /* the float fallback goes with the deployed model */
        oct_text_free(&report);
        rig_end(&r);
    }
}

/* "not do anything during qat training even after model.eval()? I change the qconfig and the mAP is
 * different": evaluation is the quantized model. */
Test(what_stubs_do, evaluation_quantizes_as_training_does)
{
    rig r;
    chain *m = begin(&r, true, true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    rig_freeze(&r);
    float training[16];
    memcpy(training, rig_forward(&r)->data, sizeof training);
    oct_module_train(r.root, false);
    cr_assert_arr_eq(training, rig_forward(&r)->data, sizeof training, "the same bits");
    quantizer_of(m->quant)->scale[0] *= 8;
    cr_assert(memcmp(training, rig_forward(&r)->data, sizeof training) != 0);
    rig_end(&r);
}

/* Two parts, with work between them that is not to be quantized; the second QuantStub may be forgotten. */
typedef struct parts {
    oct_module base;
    oct_module *quant, *conv1, *dequant, *quant1, *conv2, *pool, *dequant1;
} parts;

static oct_tensor *parts_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    parts *m = (parts *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->conv1, oct_call(cx, m->quant, in[0]));
    x = oct_softmax(cx, oct_call(cx, m->dequant, x));
    x = oct_call(cx, m->conv2, m->quant1 ? oct_call(cx, m->quant1, x) : x);
    x = oct_call(cx, m->pool, x);
    return m->dequant1 ? oct_call(cx, m->dequant1, x) : x;
}

static const oct_module_type parts_type = {.name = "parts", .forward = parts_forward};

static parts *begin_parts(rig *r, bool quant1, bool dequant1)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &parts_type, sizeof(parts)));
    parts *m = (parts *)root;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, conv1, oct_conv2d_create(&m->conv1, 3, 4, rig_same(3), true));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    if (quant1) CHILD(m, quant1, oct_quant_stub_create(&m->quant1));
    CHILD(m, conv2, oct_conv2d_create(&m->conv2, 4, 2, rig_same(3), true));
    CHILD(m, pool, oct_global_avg_pool_create(&m->pool));
    if (dequant1) CHILD(m, dequant1, oct_dequant_stub_create(&m->dequant1));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    return m;
}

static void train_and_deploy(rig *r, const oct_prepare_options *options)
{
    rig_prepare(r, options);
    rig_calibrate(r);
    OK(oct_set_fake_quant(r->root, OCT_STATE_QAT));
    rig_step(r);
    rig_convert(r);
}

/* "eager mode will just swap all modules that has a qconfig, so user need to make sure the swap makes
 * sense and set qconfig and place QuantStub/DeQuantStub correctly". */
Test(what_stubs_do, eager_names_the_line_of_a_forgotten_second_stub)
{
    for (int dequant1 = 0; dequant1 < 2; dequant1++) {
        rig r;
        begin_parts(&r, false, dequant1);
        oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
        REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
                "conv2: works on quantized values, but what it gets from the op 'softmax' is "
                "float; put a QuantStub between the op 'softmax' and conv2, or set the qconfig of "
                "conv2 to none:\nx = oct_call(cx, m->quant1, x);");
        cr_assert_eq(oct_error_count(), dequant1 ? 1 : 2, "and the DeQuantStub at the end");
        rig_end(&r);
    }
    rig r;
    begin_parts(&r, true, true);
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    train_and_deploy(&r, &options);
    rig_end(&r);
}

/* A stub that is to stay float is no forgotten one. */
Test(what_stubs_do, eager_names_a_stub_without_a_qconfig)
{
    rig r;
    begin(&r, true, true);
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_type("quant_stub", NULL),
                                    oct_setter_default(&qconfig)};
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    options.setters = setters;
    options.num_setters = 2;
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
            "conv1: works on quantized values, but the QuantStub quant before it stays float: its "
            "qconfig is none (by type 'type:quant_stub'); give quant a qconfig, or set that of "
            "conv1 to none");
    rig_end(&r);
}

/* Float on purpose, or because it has no weights: both in the report, with the reason. */
Test(what_stubs_do, eager_reports_why_a_module_stays_float)
{
    rig r;
    parts *m = begin_parts(&r, false, false);
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("conv2", NULL),
                                    oct_setter_default(&qconfig)};
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    options.setters = setters;
    options.num_setters = 2;
    oct_text report = {0}, fallbacks = {0};
    oct_program program = {0};
    OK(rig_try(&r, &options, &report));
    OK(oct_params_bind(&r.params, r.root, &r.leaves));
    OK(oct_quantizers_collect(&r.quantizers, r.root));
    cr_assert(strstr(report.data, "softmax(): stays float: what it gets from dequant is float"),
              "%s", report.data);
    cr_assert_eq(m->conv2->type, &oct_conv2d_type);
    rig_calibrate(&r);
    rig_freeze(&r);
    oct_module_train(r.root, false);
    OK(oct_convert(&program, r.root, &r.example, options.target, &fallbacks));
    cr_assert(strstr(fallbacks.data, "what it gets from dequant is float"), "%s", fallbacks.data);
    oct_program_free(&program);
    oct_text_free(&fallbacks);
    oct_text_free(&report);
    rig_end(&r);
}

/* jit_strip quantizes between stubs, so a QuantStub without its DeQuantStub is one too many. */
Test(what_stubs_do, jit_strip_names_the_stub_that_has_no_counterpart)
{
    rig r;
    begin_parts(&r, true, false);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
            "quant1: no DeQuantStub follows this QuantStub, so nothing after it would be "
            "quantized; put one where its codes are to end, or remove the QuantStub:\nx = "
            "oct_call(cx, m->dequant1, x);");
    rig_end(&r);
}

static oct_tensor *swapped_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    chain *m = (chain *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->conv1, oct_call(cx, m->dequant, in[0]));
    x = oct_call(cx, m->pool, oct_call(cx, m->conv3, oct_call(cx, m->conv2, x)));
    return oct_call(cx, m->quant, x);
}

/* The QuantStub's result is dropped. */
static oct_tensor *unread_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    chain *m = (chain *)self;
    (void)n;
    if (!oct_call(cx, m->quant, in[0])) return NULL;
    oct_tensor *x = oct_call(cx, m->conv2, oct_call(cx, m->conv1, in[0]));
    return oct_call(cx, m->dequant, oct_call(cx, m->pool, oct_call(cx, m->conv3, x)));
}

/* One stub is called twice, the second time on codes. */
static oct_tensor *twice_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    chain *m = (chain *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->conv1, oct_call(cx, m->quant, in[0]));
    x = oct_call(cx, m->conv3, oct_call(cx, m->conv2, oct_call(cx, m->quant, x)));
    return oct_call(cx, m->dequant, oct_call(cx, m->pool, x));
}

Test(what_stubs_do, a_quant_stub_that_nothing_reads_or_that_gets_codes_is_named_as_such)
{
    static const oct_module_type types[] = {{.name = "unread", .forward = unread_forward},
                                            {.name = "twice", .forward = twice_forward}};
    static const char *const says[] = {
        "quant: nothing reads what this QuantStub makes; pass its result on, or remove it",
        "quant: what it gets from conv1 is quantized already; remove this QuantStub, or put a "
        "DeQuantStub before it"};
    static const oct_prepare_method methods[] = {OCT_METHOD_EAGER, OCT_METHOD_JIT_STRIP};
    for (size_t i = 0; i < OCT_COUNT(types); i++)
        for (size_t k = 0; k < OCT_COUNT(methods); k++) {
            rig r;
            begin(&r, true, true);
            r.root->type = &types[i];
            oct_prepare_options options = rig_options(methods[k]);
            REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, says[i]);
            rig_end(&r);
        }
}

/* A model in which every operation would stay float is refused; jit and symbolic, which find the
 * boundary themselves, quantize it and say what the stubs do. */
Test(what_stubs_do, swapped_stubs_are_found_in_every_method)
{
    static const oct_module_type swapped = {.name = "swapped", .forward = swapped_forward};
    for (int method = 0; method < OCT_METHODS; method++) {
        rig r;
        begin(&r, true, true);
        r.root->type = &swapped;
        oct_prepare_options options = rig_options((oct_prepare_method)method);
        oct_text report = {0};
        if (method == OCT_METHOD_EAGER || method == OCT_METHOD_JIT_STRIP) {
            REFUSED(rig_try(&r, &options, &report), OCT_PREPARE,
                    "dequant and quant are swapped, so nothing would be quantized: dequant is a "
                    "DeQuantStub, but what it gets from the model's input is float, and quant is a "
                    "QuantStub "
                    "that no DeQuantStub follows; pass what comes from the model's input through "
                    "quant and "
                    "what comes from pool through dequant");
            cr_assert_eq(oct_error_count(), 1);
        } else {
            OK(rig_try(&r, &options, &report));
            cr_assert(strstr(report.data, "quant: does nothing: what it gets from pool") &&
                          strstr(report.data,
                                 "dequant: does nothing: what it gets from the model's input is "
                                 "float"),
                      "%s", report.data);
            OK(oct_params_bind(&r.params, r.root, &r.leaves));
            OK(oct_quantizers_collect(&r.quantizers, r.root));
            rig_calibrate(&r);
            OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
            rig_step(&r);
            rig_convert(&r);
        }
        oct_text_free(&report);
        rig_end(&r);
    }
}

/* Only the stub would be quantized: every method says so. */
Test(what_stubs_do, a_model_in_which_nothing_is_quantized_is_refused_in_every_method)
{
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("conv?", NULL),
                                    oct_setter_by_name("pool", NULL), oct_setter_default(&qconfig)};
    for (int method = 0; method < OCT_METHODS; method++) {
        rig r;
        begin(&r, true, true);
        oct_prepare_options options = rig_options((oct_prepare_method)method);
        options.setters = setters;
        options.num_setters = OCT_COUNT(setters);
        cr_assert_eq(rig_try(&r, &options, NULL), OCT_PREPARE, "%s",
                     oct_method_name(options.method));
        cr_assert(method == OCT_METHOD_EAGER ? rig_says("put a DeQuantStub between quant and conv1")
                                             : rig_says("nothing would be quantized"),
                  "%s", oct_error_message(0));
        rig_end(&r);
    }
}
