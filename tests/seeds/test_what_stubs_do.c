/* "What do [De]QuantStub actually do?": identity before prepare, the place of a quantizer after it; in
 * eager mode the user places them, in graph methods the boundary is found; part of a model can be left
 * in float. */
#include "tests/seeds/rig.h"

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
    OK(oct_module_create(&root, &chain_type, sizeof(chain)));
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
        cr_assert_eq(rig_count(r.root, &oct_quant_stub_type), 2, "its own and one behind conv2");
        cr_assert(strstr(report.data, "conv2") && strstr(report.data, "float"), "%s", report.data);
        OK(oct_params_bind(&r.params, r.root, &r.leaves));
        OK(oct_quantizers_collect(&r.quantizers, r.root));
        rig_calibrate(&r);
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        rig_step(&r);
        rig_convert(&r); /* the island goes with the deployed model */
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
