/* PReLU as tables, clips in the epilogue of what makes their input, and quotients that stay float: on every target,
 * what training evaluation computes is what the program computes, and what the definition says. */
#include "core/nn/params.h"
#include "core/op/ops.h"
#include "quant/module/quant_modules.h"
#include "tests/quant/deploy.h"
#include "tests/support/check_status.h"

#include <math.h>

static const char *const targets[] = {"x86", "pow2", "onnxruntime", "tflite", "tflm"};

static oct_prepare_options options_of(const char *target, oct_prepare_method method)
{
    oct_prepare_options options = deploy_options(method, NULL);
    options.target = oct_target_find(target);
    return options;
}

/* a, c: convolutions; b: a slope a channel; d: one slope, called twice; e: a head. */
static oct_tensor *slopes(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_call(cx, m[1], oct_call(cx, m[0], x[0]));
    y = oct_call(cx, m[3], oct_call(cx, m[2], y));
    y = oct_call(cx, m[3], oct_add_scalar(cx, y, -0.5));
    return oct_call(cx, m[4], oct_flatten(cx, y));
}

static oct_module *make_slopes(void)
{
    static const oct_module_type type = {.name = "slopes", .forward = slopes};
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 1, oct_prelu_create(&item, 8));
    PART(root, 2, oct_conv2d_create(&item, 8, 8, deploy_conv(3, 2), true));
    PART(root, 3, oct_prelu_create(&item, 1));
    PART(root, 4, oct_linear_create(&item, 8 * 9, 5, true));
    return root;
}

static void set_slopes(deployment *d)
{
    float *weight = oct_f32(&((oct_prelu_module *)((parts *)d->root)->m[1])->weight->value);
    for (int c = 0; c < 8; c++)
        weight[c] = 0.3f * (float)c - 0.9f;
}

/* The entry of each code in each channel is the code of its value. */
static void check_tables(const oct_program *p, const oct_step *step)
{
    const oct_qparams x = oct_step_input(p, step, 0)->q, y = oct_step_output(p, step)->q;
    const int64_t codes = oct_qtable_size(x);
    cr_assert_eq(step->lut.size, 8 * codes);
    for (int64_t i = 0; i < step->lut.size; i++) {
        const double v = (double)(i % codes - x.zero_point) * (double)x.scale;
        const double slope = (double)(0.3f * (float)(i / codes) - 0.9f);
        const double code = nearbyint((v > 0 ? v : slope * v) / (double)y.scale) + y.zero_point;
        cr_assert_eq(step->lut.table[i], (int)fmin(fmax(code, y.qmin), y.qmax), "entry %lld",
                     (long long)i);
    }
}

static const oct_step *find_step(const oct_program *p, oct_step_kind kind)
{
    for (int64_t i = 0; i < p->num_steps; i++)
        if (p->steps[i].kind == kind) return &p->steps[i];
    cr_assert_fail("there is no such step");
    return NULL;
}

static void check_slopes(const char *target, oct_prepare_method method, int bits)
{
    deployment d;
    oct_qconfig wide = oct_qconfig_default();
    oct_prepare_options options = options_of(target, method);
    wide.bits = bits;
    const oct_qconfig_setter setter = oct_setter_default(&wide);
    options.setters = &setter;
    options.num_setters = 1;
    deploy_begin(&d, make_slopes(), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    set_slopes(&d);
    deploy(&d, &options);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 0, "%s", target);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_LUT), 4, "b, d, add_scalar, d");
    check_tables(&d.program, find_step(&d.program, OCT_STEP_LUT));
    deploy_end(&d);
}

Test(slopes, are_tables_on_every_target)
{
    for (size_t t = 0; t < OCT_COUNT(targets); t++) {
        check_slopes(targets[t], OCT_METHOD_JIT, 8);
        check_slopes(targets[t], OCT_METHOD_SYMBOLIC, 8);
    }
    check_slopes("x86", OCT_METHOD_JIT, 16);
}

/* A module that is called twice keeps one weight: a step moves it for both calls. */
Test(slopes, of_two_calls_are_one)
{
    deployment d;
    const oct_prepare_options options = options_of("x86", OCT_METHOD_JIT);
    deploy_begin(&d, make_slopes(), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy_train(&d, &options);
    oct_params params = {0};
    OK(oct_params_bind(&params, d.root, &d.leaves));
    int slopes_found = 0;
    for (size_t i = 0; i < params.count; i++)
        slopes_found += oct_numel(&params.items[i]->value) == 1;
    cr_assert_eq(slopes_found, 1);
    oct_params_unbind(&params);
    deploy_end(&d);
}

Test(slopes, that_are_not_finite_are_reported)
{
    deployment d;
    const oct_prepare_options options = options_of("x86", OCT_METHOD_JIT);
    deploy_begin(&d, make_slopes(), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy_train(&d, &options);
    const oct_module *function = oct_module_find(d.root, "b.function");
    cr_assert_not_null(function);
    oct_f32(&((const oct_prelu_module *)function)->weight->value)[2] = NAN;
    cr_assert_eq(oct_convert(&d.program, d.root, &d.example, options.target, NULL), OCT_NUMERIC);
    check_said("a slope of it is not finite");
    oct_fail_clear();
    deploy_end(&d);
}

/* a, c: convolutions, b: a batch norm; d: a linear layer; e: a head. */
static oct_tensor *clips(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_clip(cx, oct_call(cx, m[1], oct_call(cx, m[0], x[0])), -0.4, 0.7);
    oct_tensor *z = oct_clip(cx, oct_add(cx, oct_call(cx, m[2], y), y), 0.1, HUGE_VAL);
    z = oct_clip(cx, oct_add(cx, z, y), -0.2, 0.9);
    z = oct_clip(cx, oct_call(cx, m[3], oct_flatten(cx, z)), -HUGE_VAL, 0.3);
    return oct_call(cx, m[4], z);
}

static oct_module *make_clips(void)
{
    static const oct_module_type type = {.name = "clips", .forward = clips};
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), false));
    PART(root, 1, oct_batch_norm_create(&item, 8));
    PART(root, 2, oct_conv2d_create(&item, 8, 8, deploy_conv(3, 1), true));
    PART(root, 3, oct_linear_create(&item, 8 * 36, 12, true));
    PART(root, 4, oct_linear_create(&item, 12, 5, true));
    return root;
}

/* Bounds of codes are those of the clip, as far as there are such codes. */
static void check_bounds(int32_t lo, int32_t hi, oct_qparams q, double least, double most)
{
    const double first = q.qmin - q.zero_point, last = q.qmax - q.zero_point;
    cr_assert_eq(lo, (int)fmin(fmax(nearbyint(least / (double)q.scale), first), last));
    cr_assert_eq(hi, (int)fmin(fmax(nearbyint(most / (double)q.scale), first), last));
}

static void check_clips(const char *target, oct_prepare_method method)
{
    static const double bounds[][2] = {{-0.4, 0.7}, {0.1, HUGE_VAL}, {-0.2, 0.9}, {-HUGE_VAL, 0.3}};
    oct_prepare_options options = options_of(target, method);
    deployment d;
    size_t seen = 0;
    options.fold_batch_norm = oct_requantizer_shifts(options.target->requantizer);
    deploy_begin(&d, make_clips(), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy(&d, &options);
    const oct_program *p = &d.program;
    cr_assert_eq(deploy_count(p, OCT_STEP_RELU), 0, "%s: a clip is a step of its own", target);
    cr_assert_eq(deploy_count(p, OCT_STEP_FLOAT), 0);
    const bool fused = oct_target_fuses(options.target, "conv_add_clip");
    for (int64_t i = 0; i < p->num_steps; i++) {
        const oct_step *step = &p->steps[i];
        const oct_qparams q = oct_step_output(p, step)->q;
        const bool sum = step->kind == OCT_STEP_ADD;
        if ((step->kind != OCT_STEP_CONV && !sum) || seen == OCT_COUNT(bounds)) continue;
        if (!fused && seen == 1 && !sum) continue; /* the convolution in front of the sum */
        check_bounds(sum ? step->add.lo : step->conv.lo, sum ? step->add.hi : step->conv.hi, q,
                     bounds[seen][0], bounds[seen][1]);
        seen++;
    }
    cr_assert_eq(seen, OCT_COUNT(bounds));
    deploy_end(&d);
}

Test(clips, are_bounds_of_what_makes_their_input_on_every_target)
{
    for (size_t t = 0; t < OCT_COUNT(targets); t++) {
        check_clips(targets[t], OCT_METHOD_JIT);
        check_clips(targets[t], OCT_METHOD_SYMBOLIC);
    }
}

/* a: a convolution; b: clips; c: a head. */
static oct_tensor *by_name(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_call(cx, m[2], oct_call(cx, m[1], oct_call(cx, m[0], x[0])));
    return oct_call(cx, m[4], oct_call(cx, m[3], y));
}

Test(clips, are_fused_by_name_too)
{
    static const oct_module_type type = {.name = "by_name", .forward = by_name};
    const oct_prepare_options options = options_of("x86", OCT_METHOD_EAGER);
    deployment d;
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_quant_stub_create(&item));
    PART(root, 1, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 2, oct_clip_create(&item, -0.3, 0.8));
    PART(root, 3, oct_prelu_create(&item, 8));
    PART(root, 4, oct_dequant_stub_create(&item));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    OK(oct_fuse_modules(&d.root, (const char *const[]){"b", "c"}, 2, false));
    deploy(&d, &options);
    const oct_step *conv = find_step(&d.program, OCT_STEP_CONV);
    check_bounds(conv->conv.lo, conv->conv.hi, oct_step_output(&d.program, conv)->q, -0.3, 0.8);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_RELU), 0);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_LUT), 1);
    deploy_end(&d);
}

/* a, b: convolutions; their quotient, by more than 0; c: a head. */
static oct_tensor *quotient(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_call(cx, m[0], x[0]), *z = oct_sigmoid(cx, oct_call(cx, m[1], x[0]));
    y = oct_div(cx, y, oct_add_scalar(cx, z, 0.5));
    y = oct_div(cx, y, oct_add_scalar(cx, oct_global_avg_pool(cx, z), 1));
    return oct_call(cx, m[2], oct_flatten(cx, oct_relu(cx, y)));
}

Test(quotients, stay_float_between_codes_on_every_target)
{
    static const oct_module_type type = {.name = "quotient", .forward = quotient};
    for (size_t t = 0; t < OCT_COUNT(targets); t++) {
        const oct_prepare_options options = options_of(targets[t], OCT_METHOD_JIT);
        deployment d;
        oct_module *root = parts_create(&type);
        PART(root, 0, oct_conv2d_create(&item, 3, 4, deploy_conv(3, 1), true));
        PART(root, 1, oct_conv2d_create(&item, 3, 4, deploy_conv(3, 1), true));
        PART(root, 2, oct_linear_create(&item, 4 * 36, 5, true));
        deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
        deploy(&d, &options);
        cr_assert_geq(deploy_count(&d.program, OCT_STEP_FLOAT), 2, "%s", targets[t]);
        deploy_end(&d);
    }
}
