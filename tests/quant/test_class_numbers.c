/* Models that end in argmax: class numbers of codes of 8 and 16 bits and of float values, in every method;
 * evaluation and program agree, and what cannot be deployed is refused at prepare. */
#include "quant/prepare/report.h"
#include "tests/quant/deploy.h"
#include "tests/support/check_status.h"

#include <stdio.h>

TestSuite(class_numbers, .timeout = 120);

/* How a forward ends. */
typedef enum ending { PLAIN, AFTER_STUB, PLANES, AS_MODULES, ENDINGS } ending;
static ending how;

/* Stub a, conv b, conv c (a classifier over the whole plane, or of each pixel), dequant d, squeeze e,
 * argmax f. */
static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *y = oct_relu(cx, oct_call(cx, p->m[1], oct_call(cx, p->m[0], x[0])));
    y = oct_call(cx, p->m[2], y);
    if (how == AFTER_STUB) y = oct_call(cx, p->m[3], y);
    if (how == AS_MODULES) return oct_call(cx, p->m[5], oct_call(cx, p->m[4], y));
    if (how == PLANES) return oct_flatten(cx, oct_argmax(cx, y));
    return oct_argmax(cx, oct_squeeze(cx, y));
}
static const oct_module_type classifier_type = {.name = "classifier", .forward = forward};

static oct_module *classifier(void)
{
    oct_module *root = parts_create(&classifier_type);
    PART(root, 0, oct_quant_stub_create(&item));
    PART(root, 1, oct_conv2d_create(&item, 3, 4, deploy_conv(3, 1), true));
    if (how == PLANES)
        PART(root, 2, oct_conv2d_create(&item, 4, 5, deploy_conv(1, 1), true));
    else
        PART(root, 2, oct_conv2d_create(&item, 4, 5, oct_conv_geometry_of(6, 6, 1, 0, 1), true));
    if (how == AFTER_STUB) PART(root, 3, oct_dequant_stub_create(&item));
    if (how == AS_MODULES) PART(root, 4, oct_squeeze_create(&item));
    if (how == AS_MODULES) PART(root, 5, oct_argmax_create(&item));
    return root;
}

static const oct_step *argmax_step(const oct_program *p)
{
    cr_assert_eq(deploy_count(p, OCT_STEP_ARGMAX), 1);
    cr_assert_eq(deploy_count(p, OCT_STEP_FLOAT), 0);
    for (int64_t i = 0; i < p->num_steps; i++)
        if (p->steps[i].kind == OCT_STEP_ARGMAX) return &p->steps[i];
    return NULL;
}

static void check_ending(oct_prepare_method method, const char *target, int bits)
{
    deployment d;
    oct_qconfig qconfig = oct_qconfig_default();
    qconfig.bits = bits;
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    const oct_prepare_options options = {
        .method = method, .target = oct_target_find(target), .setters = &setter, .num_setters = 1};
    deploy_begin(&d, classifier(), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy(&d, &options);
    const oct_value *output = &d.program.values[d.program.output];
    const oct_value *in = oct_step_input(&d.program, argmax_step(&d.program), 0);
    cr_assert_eq(output->dtype, OCT_S32);
    cr_assert_eq(oct_value_numel(output), how == PLANES ? 36 : 1);
    cr_assert_eq(in->dtype, how == AFTER_STUB ? OCT_F32 : bits == 16 ? OCT_U16 : OCT_U8);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_DEQUANTIZE), how == AFTER_STUB);
    deploy_end(&d);
}

Test(class_numbers, are_the_same_in_evaluation_and_program)
{
    for (how = PLAIN; how < ENDINGS; how++)
        for (int method = 0; method < OCT_METHODS; method++) {
            if (method == OCT_METHOD_EAGER) continue; /* below: it takes no functions like relu */
            check_ending((oct_prepare_method)method, "x86", 8);
            check_ending((oct_prepare_method)method, "x86", 16);
            check_ending((oct_prepare_method)method, "pow2", 8);
        }
}

/* Stub a, conv b, then functions that work on codes as they are. */
static oct_tensor *eager_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *y = oct_call(cx, p->m[1], oct_call(cx, p->m[0], x[0]));
    if (how == AFTER_STUB) return oct_argmax(cx, oct_squeeze(cx, oct_call(cx, p->m[2], y)));
    if (how == AS_MODULES) return oct_call(cx, p->m[2], oct_argmax(cx, y));
    return oct_argmax(cx, oct_squeeze_dim(cx, y, 1));
}
static const oct_module_type eager_type = {.name = "eager", .forward = eager_forward};

Test(class_numbers, of_eager_models)
{
    for (how = PLAIN; how < ENDINGS; how++) {
        deployment d;
        const oct_prepare_options options = deploy_options(OCT_METHOD_EAGER, NULL);
        oct_module *root = parts_create(&eager_type);
        PART(root, 0, oct_quant_stub_create(&item));
        PART(root, 1, oct_conv2d_create(&item, 3, 7, oct_conv_geometry_of(6, 6, 1, 0, 1), true));
        if (how == AFTER_STUB || how == AS_MODULES) PART(root, 2, oct_dequant_stub_create(&item));
        deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
        deploy(&d, &options);
        const oct_value *in = oct_step_input(&d.program, argmax_step(&d.program), 0);
        cr_assert_eq(in->dtype, how == AFTER_STUB ? OCT_F32 : OCT_U8);
        deploy_end(&d);
    }
}

/* Channels 1 and 2 compute the same, and more than the others. */
Test(class_numbers, of_equal_channels_are_the_lowest)
{
    for (int bits = 8; bits <= 16; bits += 8) {
        deployment d;
        oct_qconfig qconfig = oct_qconfig_default();
        qconfig.bits = bits;
        const oct_qconfig_setter setter = oct_setter_default(&qconfig);
        const oct_prepare_options options = {.method = OCT_METHOD_JIT,
                                             .target = oct_target_find("x86"),
                                             .setters = &setter,
                                             .num_setters = 1};
        how = PLAIN;
        deploy_begin(&d, classifier(), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
        const oct_conv2d_module *layer = (oct_conv2d_module *)((parts *)d.root)->m[2];
        float *weight = oct_f32(&layer->weight->value), *bias = oct_f32(&layer->bias->value);
        const int64_t row = oct_numel(&layer->weight->value) / 5;
        memcpy(weight + 2 * row, weight + row, (size_t)row * sizeof(float));
        bias[1] = bias[2] = 0.5f;
        deploy(&d, &options);
        const oct_tensor *y = deploy_forward(&d);
        int ones = 0;
        for (int64_t i = 0; i < oct_numel(y); i++) {
            ones += ((const int32_t *)y->data)[i] == 1;
            cr_assert_neq(((const int32_t *)y->data)[i], 2);
        }
        cr_assert_gt(ones, 0);
        deploy_end(&d);
    }
}

Test(class_numbers, have_words_in_the_report)
{
    deployment d;
    oct_text report = {0};
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
    how = PLAIN;
    deploy_begin(&d, classifier(), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy_train(&d, &options);
    OK(oct_report_write(&report, d.root));
    const char *line = strstr(report.data, "_generated_argmax_0");
    cr_assert(line && strstr(line, "class numbers") && strstr(line, "integers\n"), "%s",
              report.data);
    cr_assert(!strstr(report.data, "unquantized"), "%s", report.data);
    oct_text_free(&report);
    deploy_end(&d);
}

/* A program comes from a file, which may say anything. */
Test(class_numbers, of_a_program_that_cannot_be_are_refused)
{
    deployment d;
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
    how = PLAIN;
    deploy_begin(&d, classifier(), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy(&d, &options);
    oct_program *p = &d.program;
    oct_value *in = &p->values[argmax_step(p)->input[0]], *out = &p->values[p->output];
    const oct_value right_in = *in, right_out = *out;
    OK(oct_program_check(p));
    out->dtype = OCT_F32;
    cr_assert_eq(oct_program_check(p), OCT_DATA);
    check_said("its output is f32 and not s32");
    *out = right_out;
    out->c = 2;
    cr_assert_eq(oct_program_check(p), OCT_DATA);
    check_said("it makes a number of each position of 1 x 1, but its output has 2");
    *out = right_out;
    in->dtype = OCT_S32; /* what makes it makes codes */
    cr_assert_eq(oct_program_check(p), OCT_DATA);
    check_said("is not codes");
    *in = right_in;
    p->values[p->inputs[0]].dtype = OCT_S32;
    cr_assert_eq(oct_program_check(p), OCT_DATA);
    check_said("is not one of its f32 values");
    p->values[p->inputs[0]].dtype = OCT_F32;
    deploy_end(&d);
}

/* What a forward may not do with its numbers, or with a loss. */

static oct_tensor *scaled(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *y = oct_call(cx, p->m[0], x[0]);
    return how == PLAIN        ? oct_call(cx, p->m[1], oct_argmax(cx, y))
           : how == AFTER_STUB ? oct_cross_entropy_loss(cx, y, x[0], 0)
                               : oct_mul_scalar(cx, oct_argmax(cx, y), 2);
}
static const oct_module_type scaled_type = {.name = "scaled", .forward = scaled};

/* Takes any values. */
static oct_tensor *any_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)self, (void)n;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(oct_dim(x[0], 0), 1));
    if (y) memset(y->data, 0, (size_t)oct_numel(y) * sizeof(float));
    oct_record(cx, "any", NULL, x, 1, false, y);
    return y;
}
static const oct_module_type any_type = {
    .name = "any", .forward = any_forward, .atomic = true, OCT_MODULE_NO_ARGS(oct_module)};

static void refused(bool stub, const char *sentence)
{
    oct_module *root = parts_create(&scaled_type);
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
    PART(root, 0, oct_linear_create(&item, 5, 5, true));
    if (stub)
        PART(root, 1, oct_quant_stub_create(&item));
    else
        PART(root, 1, oct_module_make(&item, &any_type, NULL));
    cr_assert_eq(oct_prepare(&root, OCT_EXAMPLE(OCT_SHAPE(1, 5)), &options, NULL), OCT_PREPARE);
    check_said(sentence);
    oct_module_destroy(&root);
}

Test(class_numbers, are_no_values_to_compute_with)
{
    how = PLAIN;
    refused(true, "b: input 0 holds s32 numbers, which are no values to quantize");
    refused(false, "b: computes with the class numbers of the op 'argmax', which a deployed model "
                   "only returns; do it outside of the model");
}

Test(class_numbers, are_distinguished_from_a_loss)
{
    how = AFTER_STUB;
    refused(false, "the forward returns a loss in evaluation mode too, one number for the whole "
                   "batch from the op 'cross_entropy_loss', which cannot be deployed; return it in "
                   "training mode only (self->training) and what the model predicts otherwise");
}
