/* "Prepare in Detail": the four methods on the example network, whose loop runs a random number of
 * times, which has two inputs with a stub each, work before the stubs and after them that is not to
 * be quantized, and a forward that does other things in training than in evaluation. */
#include "tests/requirements/rig.h"

#include <math.h>
#include <omp.h>

typedef struct example {
    oct_module base;
    oct_module *quant0, *quant1, *dequant, *conv, *bn, *classifier;
    oct_module *add; /* eager's: an op cannot be quantized there */
    int loops;
    bool marked, restless; /* restless: one more turn at each call */
} example;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    example *m = (example *)self;
    oct_tensor *input = oct_add_scalar(cx, in[0], -128 / 128.0);
    oct_tensor *x = oct_call(cx, m->quant0, input), *y = oct_call(cx, m->quant1, in[1]);
    for (int i = 0; i < m->loops; i++) {
        if (m->marked) oct_dynamic_block_begin(cx, self, "conv_bn_add");
        x = oct_call(cx, m->conv, x);
        x = oct_call(cx, m->bn, x);
        x = m->add ? oct_call2(cx, m->add, x, y) : oct_add(cx, x, y);
        if (m->marked) oct_dynamic_block_end(cx);
    }
    m->loops += m->restless;
    x = oct_squeeze(cx, oct_call(cx, m->classifier, x));
    if (!self->training) return oct_argmax(cx, x);
    if (n < 3) return oct_context_fail(cx, OCT_USAGE, "training needs a target");
    x = oct_call(cx, m->dequant, x);
    return oct_cross_entropy_loss(cx, oct_softmax(cx, x), in[2], 0);
}

static const oct_module_type example_type = {.name = "example", .forward = forward};

static example *begin(rig *r, int loops, bool marked)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &example_type, sizeof(example)));
    example *m = (example *)root;
    m->loops = loops;
    m->marked = marked;
    CHILD(m, quant0, oct_quant_stub_create(&m->quant0));
    CHILD(m, quant1, oct_quant_stub_create(&m->quant1));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 3, 3, rig_same(1), true));
    CHILD(m, bn, oct_batch_norm_create(&m->bn, 3));
    oct_conv_geometry whole = oct_conv_geometry_of(6, 6, 1, 0, 1);
    CHILD(m, classifier, oct_conv2d_create(&m->classifier, 3, 2, whole, true));
    oct_example shapes =
        *OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3), OCT_SHAPE(1, 6, 6, 3), OCT_SHAPE(1, 2));
    shapes.count = 2, shapes.training_count = 3;
    rig_begin(r, root, &shapes);
    for (int i = 0; i < 16; i++) /* one class or the other, as probabilities */
        r->x[2][i] = (i + i / 2) % 2 == 0;
    return m;
}

/* A step on the loss that the forward returns. */
static float step(rig *r)
{
    oct_params_zero(&r->params);
    oct_tensor *loss = rig_call(r, true);
    OK(oct_context_status(r->cx));
    cr_assert_eq(oct_numel(loss), 1);
    const float value = oct_f32(loss)[0];
    cr_assert(isfinite(value));
    rig_descend(r, loss);
    return value;
}

Test(prepare_in_detail, jit_strip_keeps_the_loop_and_fuses_in_it)
{
    rig r;
    example *m = begin(&r, 2, true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);

    /* conv and bn went into the generated add; the forward still calls all three. */
    cr_assert_eq(m->conv->type, &oct_identity_type);
    cr_assert_eq(m->bn->type, &oct_identity_type);
    oct_module *made = oct_module_find(r.root, "_generated_add_0");
    cr_assert(made && made->type == &oct_qat_conv_type && ((oct_qat_conv *)made)->add);
    cr_assert_null(oct_module_find(r.root, "_generated_add_1"), "one module for all turns");
    cr_assert_eq(rig_count(r.root, &oct_fake_quant_type), 4, "quant0, quant1, sum, classifier");

    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    double first = 0, last = 0;
    for (int i = 0; i < 40; i++) {
        m->loops = 1 + i % 4;
        last = step(&r);
        if (i == 0) first = last;
    }
    cr_assert_lt(last, first, "it trains");

    /* The deployed program has as many turns as the example. */
    for (m->loops = 0; m->loops < 4; m->loops++)
        rig_convert(&r);
    rig_end(&r);
}

enum { STEPS = 8 };

typedef struct outcome {
    float loss[STEPS];
    int32_t classes[4][8]; /* with 1 to 4 turns */
} outcome;

/* Prepared by a method, calibrated, trained with 1 to 4 turns of the loop, evaluated and deployed with each
 * number of turns that the forward may have, on `threads` threads. kept: the results of the last evaluation. */
static void run_all(oct_prepare_method method, bool by_hand, bool changes, int threads,
                    outcome *kept)
{
    rig r;
    example *m = begin(&r, 2, changes);
    omp_set_num_threads(threads);
    if (by_hand) {
        CHILD(m, add, oct_add_create(&m->add));
        OK(oct_fuse_modules(&r.root, (const char *[]){"conv", "bn", "add"}, 3, false));
    }
    oct_prepare_options options = rig_options(method);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    for (int i = 0; i < STEPS; i++) {
        if (changes) m->loops = 1 + i % 4;
        kept->loss[i] = step(&r);
    }
    for (int turns = 1; turns <= 4; turns++) {
        if (changes) m->loops = turns;
        rig_convert(&r);
        oct_module_train(r.root, false);
        const oct_tensor *y = rig_forward(&r);
        cr_assert(y->dtype == OCT_S32 && oct_numel(y) == 8);
        memcpy(kept->classes[turns - 1], y->data, sizeof kept->classes[0]);
        oct_module_train(r.root, true);
    }
    rig_end(&r);
}

Test(prepare_in_detail, the_network_runs_in_every_method_on_any_threads)
{
    static const struct {
        oct_prepare_method method;
        bool by_hand, changes;
    } ways[] = {{OCT_METHOD_JIT_STRIP, false, true},
                {OCT_METHOD_JIT, false, true},
                {OCT_METHOD_JIT_STRIP, false, false},
                {OCT_METHOD_JIT, false, false},
                {OCT_METHOD_SYMBOLIC, false, false},
                {OCT_METHOD_EAGER, true, false}, /* its forward just runs, */
                {OCT_METHOD_EAGER, true, true}}; /* so blocks are nothing to it */
    outcome kept[OCT_COUNT(ways)], other;
    for (size_t i = 0; i < OCT_COUNT(ways); i++) {
        run_all(ways[i].method, ways[i].by_hand, ways[i].changes, 1, &kept[i]);
        for (int threads = 2; threads <= 3; threads++) {
            run_all(ways[i].method, ways[i].by_hand, ways[i].changes, threads, &other);
            cr_assert_arr_eq(&other, &kept[i], sizeof other, "%d threads", threads);
        }
    }
    cr_assert_arr_eq(&kept[4], &kept[3], sizeof other, "symbolic as jit");
    cr_assert_arr_eq(&kept[6], &kept[0], sizeof other, "one module for all turns, by hand or not");
}

Test(prepare_in_detail, the_printed_graph_and_tree_show_what_happened)
{
    rig r;
    begin(&r, 2, true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    oct_text report = {0}, table = {0}, tree = {0};
    OK(rig_try(&r, &options, &report));
    OK(oct_graph_table(oct_graph_of(r.root), &table));
    OK(oct_tree_write(&tree, r.root));
    static const char *const rows[] = {
        "opcode",           "placeholder", "call_module",        "quant0",  "quant1", "get_attr",
        "_generated_add_0", "scope_end",   "classifier",         "squeeze", "argmax", "In training",
        "dequant",          "softmax",     "cross_entropy_loss", "output"};
    for (size_t i = 0; i < OCT_COUNT(rows); i++)
        cr_assert(strstr(table.data, rows[i]), "no %s in\n%s", rows[i], table.data);
    static const char *const lines[] = {
        "(quant0)",   "(conv): identity", "(bn): identity", "(_generated_add_0): qat_conv",
        "fake_quant", "moving_average",   "scale",          "zero_point"};
    for (size_t i = 0; i < OCT_COUNT(lines); i++)
        cr_assert(strstr(tree.data, lines[i]), "no %s in\n%s", lines[i], tree.data);
    cr_assert(strstr(report.data, "conv_bn_add"), "no dynamic block in\n%s", report.data);
    oct_text_free(&tree);
    oct_text_free(&table);
    oct_text_free(&report);
    rig_end(&r);
}

Test(prepare_in_detail, replacing_and_fusing_leave_the_float_model_as_it_was)
{
    rig r;
    begin(&r, 2, true);
    oct_module_train(r.root, false);
    int32_t before[8], after[8];
    memcpy(before, rig_forward(&r)->data, sizeof before);
    oct_module_train(r.root, true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    oct_module_train(r.root, false);
    OK(oct_set_fake_quant(r.root, OCT_STATE_FLOAT));
    memcpy(after, rig_forward(&r)->data, sizeof after);
    cr_assert_arr_eq(after, before, sizeof before);
    rig_end(&r);
}

Test(prepare_in_detail, an_unmarked_loop_that_changes_is_refused)
{
    rig r;
    example *m = begin(&r, 2, false);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    step(&r); /* two turns, as recorded */
    m->loops = 3;
    rig_call(&r, false);
    REFUSED(oct_context_status(r.cx), OCT_PREPARE, "conv");
    cr_assert(rig_says("dynamic"));
    m->loops = 1;
    rig_call(&r, false);
    REFUSED(oct_context_status(r.cx), OCT_PREPARE, "classifier");
    m->loops = 2; /* and goes on where it is as recorded */
    step(&r);
    rig_end(&r);
}

Test(prepare_in_detail, a_loop_that_changes_while_it_is_traced_is_refused)
{
    static const oct_prepare_method methods[] = {OCT_METHOD_SYMBOLIC, OCT_METHOD_JIT,
                                                 OCT_METHOD_JIT_STRIP};
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        rig r;
        begin(&r, 1, false)->restless = true;
        oct_prepare_options options = rig_options(methods[i]);
        REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "conv");
        rig_end(&r);
    }
}

Test(prepare_in_detail, symbolic_has_no_dynamic_blocks)
{
    rig r;
    begin(&r, 2, true);
    oct_prepare_options options = rig_options(OCT_METHOD_SYMBOLIC);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "conv_bn_add");
    cr_assert(rig_says("jit"), "the remedy is named");
    rig_end(&r);
}

Test(prepare_in_detail, eager_asks_for_modules_by_hand)
{
    rig r;
    begin(&r, 2, false);
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "add");
    rig_end(&r);
}

Test(prepare_in_detail, jit_quantizes_what_lies_outside_of_the_stubs_too)
{
    rig r;
    begin(&r, 2, true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_prepare(&r, &options);
    const oct_module *shift = oct_module_find(r.root, "_generated_add_scalar_0");
    cr_assert(shift && oct_is_quantized(shift));
    rig_end(&r);

    begin(&r, 2, true);
    options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    cr_assert_null(oct_module_find(r.root, "_generated_add_scalar_0"));
    rig_end(&r);
}

Test(prepare_in_detail, states_refuse_what_they_must_not_do)
{
    rig r;
    begin(&r, 2, true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    oct_module_train(r.root, false);
    REFUSED(oct_set_fake_quant(r.root, OCT_STATE_QAT), OCT_USAGE, "oct_module_train");
    OK(oct_set_fake_quant(r.root, OCT_STATE_VALIDATION));
    int64_t updates = r.quantizers.items[0]->updates[0];
    rig_forward(&r);
    rig_update(&r);
    cr_assert_eq(r.quantizers.items[0]->updates[0], updates, "validation data moves no observer");
    oct_module_train(r.root, true);
    REFUSED(oct_set_fake_quant(r.root, OCT_STATE_VALIDATION), OCT_USAGE, "oct_module_train");
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    rig_end(&r);
}

Test(prepare_in_detail, the_target_comes_first)
{
    rig r;
    begin(&r, 2, true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.target = NULL;
    REFUSED(rig_try(&r, &options, NULL), OCT_USAGE, "target");
    rig_end(&r);
}

/* sensitive_op_qat_8bit_weight_16bit_fixed_act_qconfig_setter(table, ratio), default underneath. */
Test(prepare_in_detail, sensitive_layers_get_sixteen_bits)
{
    rig r;
    begin(&r, 2, true);
    oct_sensitivity_row rows[] = {{.path = "_generated_add_0", .tensor = "activation", .sqnr = 10},
                                  {.path = "quant0", .tensor = "activation", .sqnr = 20},
                                  {.path = "quant1", .tensor = "activation", .sqnr = 30}};
    oct_sensitivity table = {.rows = rows, .count = OCT_COUNT(rows)};
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[2];
    setters[1] = oct_setter_default(&qconfig);
    oct_qconfig_setter *sensitive = &setters[0];
    REFUSED(oct_setter_sensitive(sensitive, &table, 1, 0.2, 16, true), OCT_USAGE, "topk");
    REFUSED(oct_setter_sensitive(sensitive, &table, 0, 0, 16, true), OCT_USAGE, "topk");
    REFUSED(oct_setter_sensitive(sensitive, &table, 0, 1.5, 16, true), OCT_USAGE, "ratio");
    REFUSED(oct_setter_sensitive(sensitive, &(oct_sensitivity){0}, 1, 0, 16, true), OCT_USAGE,
            "empty");
    OK(oct_setter_sensitive(sensitive, &table, 0, 0.2, 16, true));

    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.setters = setters;
    options.num_setters = 2;
    rig_prepare(&r, &options);
    for (size_t i = 0; i < r.quantizers.count; i++) {
        const oct_path_text path = oct_module_path(r.quantizers.items[i]->base.parent);
        bool wide = strcmp(path.text, "_generated_add_0") == 0;
        cr_assert_eq(r.quantizers.items[i]->qconfig.bits, wide ? 16 : 8, "%s", path.text);
        cr_assert_eq(r.quantizers.items[i]->qconfig.fixed_scale, wide, "%s", path.text);
    }
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    float scale = r.quantizers.items[r.quantizers.count - 1]->scale[0];
    for (int i = 0; i < 5; i++)
        step(&r);
    cr_assert_eq(r.quantizers.items[r.quantizers.count - 1]->scale[0], scale, "fixed");
    rig_convert(&r); /* 16-bit codes in the deployed model, bit for bit */
    rig_end(&r);
}

/* Deployed is what evaluation does: class numbers, in integers from end to end. */
Test(prepare_in_detail, what_only_training_does_is_reported_and_not_deployed)
{
    rig r;
    begin(&r, 2, true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    oct_text report = {0}, fallbacks = {0};
    oct_program program;
    OK(rig_try(&r, &options, &report));
    OK(oct_quantizers_collect(&r.quantizers, r.root));
    rig_calibrate(&r);
    rig_freeze(&r);
    OK(oct_convert(&program, r.root, &r.example, options.target, &fallbacks));
    for (int64_t i = 0; i < program.num_steps; i++)
        cr_assert_neq((int)program.steps[i].kind, OCT_STEP_FLOAT, "%s is float",
                      program.steps[i].name);
    cr_assert_eq(program.num_inputs, 2);
    cr_assert_eq(program.values[program.output].dtype, OCT_S32);
    cr_assert(strstr(report.data, "only training calls it"), "%s", report.data);
    cr_assert(strstr(report.data, "to float, in training only"), "%s", report.data);
    cr_assert(strstr(report.data, "in evaluation only"), "%s", report.data);
    cr_assert_null(strstr(report.data, "never called"), "%s", report.data);
    oct_program_free(&program);
    oct_text_free(&fallbacks);
    oct_text_free(&report);
    rig_end(&r);
}

Test(prepare_in_detail, a_training_forward_without_its_target_is_named)
{
    rig r;
    begin(&r, 2, true);
    r.example.training_count = 0;
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    REFUSED(rig_try(&r, &options, NULL), OCT_USAGE, "in training mode: ");
    cr_assert(rig_says("training needs a target"));
    r.example.training_count = 3;
    rig_end(&r);
}
