/* What users of PyTorch's and Horizon's prepare run into, one test a case: Octet's own sentence, or why
 * the case cannot occur here. */
#include "tests/requirements/rig.h"

/* conv - bn - relu - linear, with stubs; created by layers of a sequential. */
static void begin_rig(rig *r)
{
    oct_module *root = NULL;
    OK(oct_sequential_create(&root));
    APPEND(root, oct_quant_stub_create(&item));                       /* 0 */
    APPEND(root, oct_conv2d_create(&item, 3, 4, rig_same(3), false)); /* 1 */
    APPEND(root, oct_batch_norm_create(&item, 4));                    /* 2 */
    APPEND(root, oct_relu_create(&item));                             /* 3 */
    APPEND(root, oct_global_avg_pool_create(&item));                  /* 4 */
    APPEND(root, oct_linear_create(&item, 4, 2, true));               /* 5 */
    APPEND(root, oct_dequant_stub_create(&item));                     /* 6 */
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
}

static void begin_layer(rig *r, oct_module *layer, oct_shape input)
{
    oct_module *root = NULL;
    OK(oct_sequential_create(&root));
    APPEND(root, oct_quant_stub_create(&item));
    OK(oct_sequential_append(root, &layer));
    rig_begin(r, root, OCT_EXAMPLE(input));
}

#define FUSE(r, ...)                                                                               \
    oct_fuse_modules(&(r)->root, (const char *[]){__VA_ARGS__},                                    \
                     OCT_COUNT(((const char *[]){__VA_ARGS__})), false)

Test(error_cases, unknown_name_in_a_fuse_list)
{
    rig r;
    begin_rig(&r);
    REFUSED(FUSE(&r, "1", "bn"), OCT_PREPARE, "bn");
    cr_assert(rig_says("0, 1, 2"), "%s", oct_error_message(0));
    rig_end(&r);
}

Test(error_cases, types_that_no_pattern_fuses)
{
    rig r;
    begin_rig(&r);
    REFUSED(FUSE(&r, "1", "3", "2"), OCT_PREPARE, "1 (conv2d), 3 (relu), 2 (batch_norm)");
    REFUSED(FUSE(&r, "4", "5"), OCT_PREPARE, "4 (global_avg_pool), 5 (linear)");
    REFUSED(FUSE(&r, "1"), OCT_PREPARE, "give 2");
    REFUSED(FUSE(&r, "1", "1"), OCT_PREPARE, "twice");
    rig_end(&r);
}

Test(error_cases, members_in_different_modes)
{
    rig r;
    begin_rig(&r);
    oct_module_train(oct_module_find(r.root, "2"), false);
    REFUSED(FUSE(&r, "1", "2"), OCT_PREPARE, "mode");
    rig_end(&r);
}

/* PyTorch also asks for an affine batch norm with running statistics: here every batch norm is. */
Test(error_cases, channel_counts_that_differ)
{
    rig r;
    oct_module *root = NULL;
    OK(oct_sequential_create(&root));
    APPEND(root, oct_conv2d_create(&item, 3, 4, rig_same(3), false));
    APPEND(root, oct_batch_norm_create(&item, 5));
    rig_begin(&r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    REFUSED(FUSE(&r, "0", "1"), OCT_PREPARE, "5");
    cr_assert(rig_says("4"), "both counts are named");
    rig_end(&r);
}

/* PyTorch: an exception. Here transposed convolutions fuse, weights quantized per output channel, which
 * PyTorch's per-channel observers refuse. */
Test(error_cases, transposed_convolution_with_batch_norm_works)
{
    rig r;
    oct_module *root = NULL;
    OK(oct_sequential_create(&root));
    APPEND(root, oct_quant_stub_create(&item));
    oct_conv_geometry g = oct_conv_geometry_of(2, 2, 2, 0, 1);
    APPEND(root, oct_conv_transpose2d_create(&item, 3, 4, g, false));
    APPEND(root, oct_batch_norm_create(&item, 4));
    APPEND(root, oct_relu_create(&item));
    APPEND(root, oct_global_avg_pool_create(&item));
    APPEND(root, oct_dequant_stub_create(&item));
    rig_begin(&r, root, OCT_EXAMPLE(OCT_SHAPE(1, 4, 4, 3)));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    cr_assert_eq(rig_count(r.root, &oct_qat_conv_type), 1);
    cr_assert_eq(rig_count(r.root, &oct_batch_norm_type), 1, "inside of it");
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    rig_step(&r);
    rig_convert(&r);
    rig_end(&r);
}

Test(error_cases, batch_norm_left_between_quantized_modules)
{
    rig r;
    begin_rig(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "oct_fuse_modules");
    cr_assert(rig_says("\"1\", \"2\""), "%s", oct_error_message(0));
    rig_end(&r);
}

Test(error_cases, prepare_in_eval_mode)
{
    rig r;
    begin_rig(&r);
    oct_module_train(r.root, false);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "oct_module_train");
    rig_end(&r);
}

/* PyTorch warns. */
Test(error_cases, no_qconfig_anywhere)
{
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT_STRIP, OCT_METHOD_JIT,
                                                 OCT_METHOD_SYMBOLIC, OCT_METHOD_EAGER};
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        rig r;
        begin_rig(&r);
        oct_qconfig none = {.none = true};
        oct_qconfig_setter setter = oct_setter_default(&none);
        oct_prepare_options options = rig_options(methods[i]);
        options.setters = &setter;
        REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "qconfig");
        options.num_setters = 0;
        REFUSED(rig_try(&r, &options, NULL), OCT_USAGE, "setter");
        rig_end(&r);
    }
}

/* Only the DeQuantStub has a qconfig. (Where only the QuantStub has none, one is generated.) */
Test(error_cases, a_qconfig_where_nothing_can_be_quantized)
{
    rig r;
    begin_rig(&r);
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("0", NULL), oct_setter_by_name("1", NULL),
                                    oct_setter_by_name("2", NULL), oct_setter_by_name("3", NULL),
                                    oct_setter_by_name("4", NULL), oct_setter_by_name("5", NULL),
                                    oct_setter_default(&qconfig)};
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.setters = setters;
    options.num_setters = OCT_COUNT(setters);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "nothing would be quantized: no module");
    rig_end(&r);
}

/* A QAT module without qconfig or of a wrong source cannot be: only prepare makes them. An observer in
 * place of its class cannot be either: a qconfig holds a pointer to the table entry. What is left: */
Test(error_cases, qconfigs_that_make_no_sense)
{
    oct_qconfig bad[4];
    static const char *const words[] = {"observer", "bits", "bits", "averaging"};
    for (size_t i = 0; i < OCT_COUNT(bad); i++)
        bad[i] = oct_qconfig_default();
    bad[0].observer = NULL;
    bad[1].bits = 0;
    bad[2].bits = 12; /* PyTorch: qmin and qmax outside of the type */
    bad[3].averaging = 0;
    for (size_t i = 0; i < OCT_COUNT(bad); i++) {
        rig r;
        begin_rig(&r);
        oct_qconfig_setter setter = oct_setter_default(&bad[i]);
        oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
        options.setters = &setter;
        cr_assert_neq(rig_try(&r, &options, NULL), OCT_OK);
        cr_assert(rig_says(words[i]), "%s", oct_error_message(0));
        rig_end(&r);
    }
}

static float halves(const float *weight, int64_t n)
{
    return weight[n - 1] * 0 + 0.5f;
}
static float tens(const float *weight, int64_t n)
{
    return weight[n - 1] * 0 + 10.0f;
}
static float no_number(const float *weight, int64_t n)
{
    return weight[0] + (float)n + NAN;
}

static oct_status prepare_by(const oct_fake_quant_kind *kind, oct_text *report)
{
    rig r;
    begin_rig(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    oct_qconfig qconfig = oct_qconfig_default();
    qconfig.weight_fake_quant = kind;
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    options.setters = &setter;
    options.num_setters = 1;
    const oct_status status = rig_try(&r, &options, report);
    rig_end(&r);
    return status;
}

Test(error_cases, weights_whose_fake_quant_leaves_next_to_no_codes)
{
    static const oct_fake_quant_kind coarse = {.name = "halves", .weight_scale = halves},
                                     zero = {.name = "tens", .weight_scale = tens},
                                     none = {.name = "no_number", .weight_scale = no_number};
    oct_text report = {0};
    REFUSED(prepare_by(&zero, NULL), OCT_PREPARE, "1: the fake-quant 'tens' gave its weights, ");
    cr_assert(rig_says("so each of them becomes 0"), "%s", oct_error_message(0));
    REFUSED(prepare_by(&none, NULL), OCT_PREPARE, "the scale nan, which is no number");
    OK(prepare_by(&coarse, &report));
    cr_assert_not_null(strstr(report.data, "1: the fake-quant 'halves' gives its weights a scale "
                                           "with which the largest has the code 1 of 127"),
                       "%s", report.data);
    oct_text_free(&report);
}

/* There is no dynamic quantization, no reduce_range, no choice of the weight's type and there are no
 * devices, so the cases of those cannot occur. A module without a range can: */
Test(error_cases, convert_before_anything_was_observed)
{
    rig r;
    oct_program program = {0};
    begin_rig(&r);
    const oct_target *x86 = oct_target_find("x86");
    REFUSED(oct_convert(&program, r.root, &r.example, x86, NULL), OCT_PREPARE, "not prepared");
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    REFUSED(oct_convert(&program, r.root, &r.example, x86, NULL), OCT_PREPARE, "still move");
    rig_freeze(&r);
    REFUSED(oct_convert(&program, r.root, &r.example, oct_target_find("pow2"), NULL), OCT_PREPARE,
            "x86");
    rig_convert(&r);
    rig_end(&r);
}

/* PT2E models refuse train() and eval(). */
Test(error_cases, train_and_eval_change_the_mode_and_nothing_else)
{
    rig r;
    begin_rig(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_SYMBOLIC);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    rig_freeze(&r);
    float before[16];
    oct_module_train(r.root, false);
    memcpy(before, rig_forward(&r)->data, sizeof before);
    oct_module_train(r.root, true);
    oct_module_train(r.root, false);
    cr_assert_arr_eq(before, rig_forward(&r)->data, sizeof before);
    rig_end(&r);
}

Test(error_cases, no_target_or_no_example)
{
    rig r;
    begin_rig(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.target = NULL;
    REFUSED(rig_try(&r, &options, NULL), OCT_USAGE, "target");
    options = rig_options(OCT_METHOD_JIT);
    r.example.count = 0;
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "inputs");
    r.example.count = 1;
    rig_end(&r);
}

/* Horizon warns and skips. */
Test(error_cases, a_name_pattern_that_fits_nothing)
{
    rig r;
    begin_rig(&r);
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("9", NULL), oct_setter_default(&qconfig)};
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.setters = setters;
    options.num_setters = 2;
    cr_assert_neq(rig_try(&r, &options, NULL), OCT_OK);
    cr_assert(rig_says("9"), "%s", oct_error_message(0));
    rig_end(&r);
}

/* A layer that the target cannot hold. */
Test(error_cases, sums_that_could_overflow)
{
    rig r;
    oct_module *layer = NULL;
    OK(oct_linear_create(&layer, OCT_MAX_PRODUCTS + 1, 2, true));
    begin_layer(&r, layer, OCT_SHAPE(1, OCT_MAX_PRODUCTS + 1));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "overflow");
    rig_end(&r);
}

Test(error_cases, batch_norm_that_a_shifting_target_cannot_keep)
{
    rig r;
    begin_rig(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.target = oct_target_find("pow2");
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "fold");
    options.fold_batch_norm = true;
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    rig_step(&r);
    rig_convert(&r);
    rig_end(&r);
}

/* Two layers with one weight would need two of it once a batch norm is in one of them. */
Test(error_cases, batch_norm_folded_into_weights_that_are_tied)
{
    rig r;
    oct_module *root = NULL;
    OK(oct_sequential_create(&root));
    APPEND(root, oct_quant_stub_create(&item));
    APPEND(root, oct_conv2d_create(&item, 3, 3, rig_same(3), false)); /* 1 */
    APPEND(root, oct_conv2d_create(&item, 3, 3, rig_same(3), false));
    APPEND(root, oct_batch_norm_create(&item, 3)); /* 3 */
    APPEND(root, oct_global_avg_pool_create(&item));
    APPEND(root, oct_linear_create(&item, 3, 2, true));
    APPEND(root, oct_dequant_stub_create(&item));
    oct_param *first = oct_module_find(root, "1")->params[0];
    oct_param *again = oct_module_find(root, "2")->params[0];
    const oct_file_order order = oct_file_order_of(1, (const int64_t[]){81});
    OK(oct_param_tie(again, &order, first, &order));
    rig_begin(&r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.fold_batch_norm = true;
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "2: another layer has the same weights");
    options.fold_batch_norm = false;
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    rig_step(&r);
    OK(oct_fold_batch_norm(r.root));
    cr_assert(oct_module_find(r.root, "2.bn"), "it is not folded later, either");
    rig_convert(&r);
    rig_end(&r);
}
