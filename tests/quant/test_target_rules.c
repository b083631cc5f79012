/* What prepare makes of a target's rules (quant/target/target.h), on targets onnxruntime and tflite, which together
 * have some of each: the program has its arithmetic in its steps, and computes what training evaluation computes. */
#include "core/op/ops.h"
#include "quant/module/quant_modules.h"
#include "quant/prepare/report.h"
#include "quant/kernel/qcodes.h"
#include "tests/quant/deploy.h"
#include "tests/quant/own_methods.h"
#include "tests/support/check_status.h"

#include <math.h>

static oct_prepare_options options_for(const char *target, oct_prepare_method method)
{
    static oct_qconfig_setter first;
    first = oct_setter_float_output();
    oct_prepare_options options = deploy_options(method, &first);
    options.target = oct_target_find(target);
    return options;
}

static oct_prepare_options options_of(oct_prepare_method method)
{
    return options_for("onnxruntime", method);
}

static const oct_step *step_named(const oct_program *p, const char *name)
{
    for (int64_t i = 0; i < p->num_steps; i++)
        if (strcmp(p->steps[i].name, name) == 0) return &p->steps[i];
    cr_assert_fail("there is no step %s", name);
    return NULL;
}

/* a, b: convolutions; c: a pool; d: a head. */
static oct_tensor *residual(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_relu(cx, oct_call(cx, m[0], x[0]));
    y = oct_relu(cx, oct_add(cx, oct_call(cx, m[1], y), y));
    y = oct_mul(cx, y, oct_sigmoid(cx, y));
    return oct_call(cx, m[3], oct_flatten(cx, oct_call(cx, m[2], y)));
}

Test(target_rules, are_in_the_steps_of_the_program)
{
    static const oct_module_type type = {.name = "residual", .forward = residual};
    const oct_prepare_options options = options_of(OCT_METHOD_JIT);
    deployment d;
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 1, oct_conv2d_create(&item, 8, 8, deploy_conv(3, 1), true));
    PART(root, 2, oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    PART(root, 3, oct_linear_create(&item, 8 * 16, 5, true));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    deploy(&d, &options);
    const oct_program *p = &d.program;
    const oct_step *add = step_named(p, "_generated_add_0");
    const oct_value *left = oct_step_input(p, add, 0), *right = oct_step_input(p, add, 1);
    const oct_value *sum = oct_step_output(p, add);
    cr_assert_str_eq(p->target, "onnxruntime");
    cr_assert(p->steps[0].kind == OCT_STEP_QUANTIZE && p->steps[0].quantize.quotient);
    cr_assert(left->q.scale == sum->q.scale && right->q.scale == sum->q.scale);
    cr_assert(left->q.zero_point == sum->q.zero_point && sum->q.zero_point != 0 &&
                  sum->q.zero_point != 128,
              "a group with values below 0 has the zero_point that its range wants");
    cr_assert_eq(add->add.lo, 0, "a relu after it cuts where the value is 0");
    cr_assert(step_named(p, "_generated_mul_0")->mul.offset_first);
    cr_assert_eq(deploy_count(p, OCT_STEP_LUT), 1);
    cr_assert_eq(deploy_count(p, OCT_STEP_CONV), 2, "no addend is fused into them");
    cr_assert_eq(deploy_count(p, OCT_STEP_CONV_FLOAT), 1, "a linear layer returns its sums");
    deploy_end(&d);
}

/* Whether a sum has these multipliers. */
static bool is_sum(const oct_program *p, const oct_step *add,
                   oct_qadd (*of)(oct_qparams, oct_qparams, oct_qparams, bool))
{
    const oct_qadd other = of(oct_step_input(p, add, 0)->q, oct_step_input(p, add, 1)->q,
                              oct_step_output(p, add)->q, true);
    return add->add.ma == other.ma && add->add.mb == other.mb && add->add.shift == other.shift;
}

Test(target_rules, of_tflite_are_in_the_steps_of_the_program)
{
    static const oct_module_type type = {.name = "residual", .forward = residual};
    const oct_prepare_options options = options_for("tflite", OCT_METHOD_JIT);
    deployment d;
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 1, oct_conv2d_create(&item, 8, 8, deploy_conv(3, 1), true));
    PART(root, 2, oct_avg_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    PART(root, 3, oct_linear_create(&item, 8 * 16, 5, true));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    deploy(&d, &options);
    const oct_program *p = &d.program;
    const oct_step *add = step_named(p, "_generated_add_0");
    const oct_step *mul = step_named(p, "_generated_mul_0"), *pool = step_named(p, "c");
    cr_assert_str_eq(p->target, "tflite");
    cr_assert(p->steps[0].kind == OCT_STEP_QUANTIZE && !p->steps[0].quantize.quotient);
    cr_assert(is_sum(p, add, oct_qadd_of_floats) && !is_sum(p, add, oct_qadd_of));
    cr_assert(!mul->mul.offset_first &&
              mul->mul.factor == oct_qmul_factor_float(oct_step_input(p, mul, 0)->q,
                                                       oct_step_input(p, mul, 1)->q,
                                                       oct_step_output(p, mul)->q));
    cr_assert(pool->pool.of_codes && pool->pool.factor == 0.0f);
    cr_assert_eq(deploy_count(p, OCT_STEP_CONV), 3,
                 "no addend is fused into one, and the last layer returns codes");
    cr_assert_eq(deploy_count(p, OCT_STEP_CONV_FLOAT), 0);
    deploy_end(&d);
}

Test(target_rules, of_tflm_round_twice_without_a_second_addend)
{
    static const oct_module_type type = {.name = "residual", .forward = residual};
    const oct_prepare_options options = options_for("tflm", OCT_METHOD_JIT);
    deployment d;
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 1, oct_conv2d_create(&item, 8, 8, deploy_conv(3, 1), true));
    PART(root, 2, oct_avg_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    PART(root, 3, oct_linear_create(&item, 8 * 16, 5, true));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    deploy(&d, &options);
    const oct_program *p = &d.program;
    cr_assert_str_eq(p->target, "tflm");
    cr_assert_eq(p->requantizer, OCT_REQUANT_DOUBLE);
    cr_assert(p->steps[0].kind == OCT_STEP_QUANTIZE && p->steps[0].quantize.quotient);
    cr_assert(is_sum(p, step_named(p, "_generated_add_0"), oct_qadd_of));
    cr_assert(step_named(p, "c")->pool.of_codes);
    cr_assert_eq(deploy_count(p, OCT_STEP_CONV), 3);
    cr_assert_eq(deploy_count(p, OCT_STEP_CONV_FLOAT), 0);
    deploy_end(&d);
}

/* a: a convolution; b, c: functions; the product of both after a pool. */
static oct_tensor *gates(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_call(cx, m[0], x[0]), *pair[2];
    pair[0] = oct_call(cx, m[3], oct_call(cx, m[1], y));
    pair[1] = oct_call(cx, m[3], oct_call(cx, m[2], y));
    return oct_mul(cx, pair[0], pair[1]);
}

static void check_gates(const char *target, oct_prepare_method method, bool fixed)
{
    static const oct_module_type type = {.name = "gates", .forward = gates};
    const oct_prepare_options options = options_for(target, method);
    deployment d;
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 1, oct_module_from(&item, &oct_sigmoid_type, &(oct_op_args){0}));
    PART(root, 2, oct_module_from(&item, &oct_tanh_type, &(oct_op_args){0}));
    PART(root, 3, oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    deploy(&d, &options);
    const char *const names[] = {"b", "c"};
    for (int f = 0; f < OCT_FIXED_FUNCTIONS; f++) {
        const oct_step *step = step_named(&d.program, names[f]);
        const oct_qparams x = oct_step_input(&d.program, step, 0)->q;
        const oct_qparams y = oct_step_output(&d.program, step)->q;
        uint16_t table[OCT_FIXED_CODES];
        oct_fixed_function_table((oct_fixed_function)f, x, table);
        cr_assert_eq(oct_qparams_equal(y, oct_fixed_function_output((oct_fixed_function)f)), fixed,
                     "%s: scale %g, zero_point %d", names[f], (double)y.scale, y.zero_point);
        if (fixed) cr_assert_arr_eq(step->lut.table, table, sizeof table);
    }
    deploy_end(&d);
}

Test(target_rules, of_tflm_give_sigmoid_and_tanh_the_codes_of_its_kernels)
{
    check_gates("tflm", OCT_METHOD_JIT, true);
    check_gates("tflm", OCT_METHOD_SYMBOLIC, true);
    check_gates("tflite", OCT_METHOD_JIT, false);
}

/* a: a convolution; b: an average pool; the mean of the plane after it. */
static oct_tensor *means(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    return oct_global_avg_pool(cx, oct_call(cx, m[1], oct_call(cx, m[0], x[0])));
}

/* Converts a network with such an average pool and returns the factors of its pools. */
static int count_means(const char *target, const oct_op_args *pool, float factor[2])
{
    static const oct_module_type type = {.name = "means", .forward = means};
    const oct_prepare_options options = options_for(target, OCT_METHOD_JIT);
    deployment d;
    int pools = 0;
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 1, oct_module_from(&item, oct_module_type_find("avg_pool"), pool));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 9, 8, 3)));
    deploy(&d, &options);
    for (int64_t i = 0; i < d.program.num_steps; i++)
        if (d.program.steps[i].kind == OCT_STEP_AVG_POOL)
            factor[pools++] = d.program.steps[i].pool.factor;
    deploy_end(&d);
    return pools;
}

static int check_means(bool count_include_pad, float factor[2])
{
    return count_means("onnxruntime", OCT_OP_ARGS(3, 2, 2, 1, 1, 0, 1, 1, 0, count_include_pad),
                       factor);
}

Test(target_rules, make_averages_convolutions_where_all_are_of_as_many_positions)
{
    float factor[2] = {0, 0};
    cr_assert_eq(check_means(true, factor), 2);
    cr_assert(fabsf(factor[0] - 1.0f / 6) < 1e-6f && fabsf(factor[1] - 1.0f / 40) < 1e-6f);
    cr_assert_eq(check_means(false, factor), 0, "one cannot, and so the next one gets floats");
}

Test(target_rules, of_tflite_leave_averages_float_whose_padding_it_has_not)
{
    float factor[2] = {1, 1};
    cr_assert_eq(count_means("tflite", OCT_OP_ARGS(3, 3, 1, 1, 1, 1, 1, 1, 0, false), factor), 2);
    cr_assert(factor[0] == 0.0f && factor[1] == 0.0f);
    cr_assert_eq(count_means("tflite", OCT_OP_ARGS(3, 2, 2, 1, 1, 0, 1, 1, 0, true), factor), 2);
    cr_assert_eq(count_means("tflite", OCT_OP_ARGS(3, 3, 2, 2, 1, 1, 1, 1, 0, false), factor), 0);
    cr_assert_eq(count_means("tflite", OCT_OP_ARGS(3, 3, 1, 1, 1, 1, 0, 0, 0, false), factor), 0);
    cr_assert_eq(count_means("tflite", OCT_OP_ARGS(2, 2, 2, 2, 0, 0, 0, 0, 1, false), factor), 0);
}

/* a: a convolution; b: resizes; c: a head of one pixel each. */
static oct_tensor *dense(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_call(cx, m[1], oct_relu6(cx, oct_call(cx, m[0], x[0])));
    return oct_softmax(cx, oct_call(cx, m[2], y));
}

/* Converts a network that resizes in this mode and returns how many layers stay float. */
static int check_dense(double mode)
{
    static const oct_module_type type = {.name = "dense", .forward = dense};
    const oct_prepare_options options = options_of(OCT_METHOD_JIT);
    deployment d;
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 1,
         oct_module_from(&item, oct_module_type_find("interpolate"), OCT_OP_ARGS(16, 12, mode)));
    PART(root, 2, oct_conv2d_create(&item, 8, 4, deploy_conv(1, 1), true));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    deploy(&d, &options);
    const oct_program *p = &d.program;
    cr_assert_eq(deploy_count(p, OCT_STEP_CONV_FLOAT), 0, "a convolution hands over codes");
    cr_assert_eq(deploy_count(p, OCT_STEP_SOFTMAX), 0);
    const int fallbacks = deploy_count(p, OCT_STEP_FLOAT);
    deploy_end(&d);
    return fallbacks;
}

Test(target_rules, leave_float_what_the_target_cannot_run)
{
    cr_assert_eq(check_dense(0), 1, "softmax alone");
    cr_assert_eq(check_dense(1), 2, "linear resizing, too");
}

static oct_tensor *by_hand(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_call(cx, m[1], oct_call(cx, m[0], x[0]));
    y = oct_module_call(cx, m[3], (oct_tensor *[]){oct_call(cx, m[2], y), y}, 2);
    return oct_call(cx, m[4], y);
}

static oct_module *make_by_hand(void)
{
    static const oct_module_type type = {.name = "by_hand", .forward = by_hand};
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_quant_stub_create(&item));
    PART(root, 1, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 2, oct_conv2d_create(&item, 8, 8, deploy_conv(3, 1), true));
    PART(root, 3, oct_module_from(&item, oct_module_type_find("add"), OCT_NO_ARGS));
    PART(root, 4, oct_dequant_stub_create(&item));
    return root;
}

Test(target_rules, hold_in_eager_too)
{
    const oct_prepare_options options = options_of(OCT_METHOD_EAGER);
    deployment d;
    deploy_begin(&d, make_by_hand(), OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    deploy(&d, &options);
    const oct_step *add = step_named(&d.program, "d");
    for (int i = 0; i < 2; i++)
        cr_assert(oct_step_input(&d.program, add, i)->q.scale ==
                  oct_step_output(&d.program, add)->q.scale);
    deploy_end(&d);
    deploy_begin(&d, make_by_hand(), OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 3)));
    OK(oct_fuse_modules(&d.root, (const char *const[]){"c", "d"}, 2, false));
    cr_assert_eq(oct_prepare(&d.root, &d.example, &options, NULL), OCT_PREPARE);
    check_said("d: target onnxruntime cannot add something to a layer before it is rounded");
    oct_fail_clear();
    deploy_end(&d);
}

/* A target whose named layers have one scale for their weights. */
static const oct_target *one_scale_target(const char *const *layers)
{
    static oct_target target;
    target = *oct_target_find("tflite");
    target.per_tensor = layers;
    return &target;
}

static const char *const linear_alone[] = {"linear", NULL};
static const char *const every_layer[] = {"conv2d", "conv_transpose2d", "linear", NULL};

static oct_prepare_options one_scale_options(const char *const *layers,
                                             const oct_fake_quant_kind *kind)
{
    static oct_qconfig qconfig;
    static oct_qconfig_setter setter;
    qconfig = oct_qconfig_default();
    qconfig.weight_fake_quant = kind;
    setter = oct_setter_default(&qconfig);
    oct_prepare_options options = deploy_options(OCT_METHOD_JIT, &setter);
    options.target = one_scale_target(layers);
    options.fold_batch_norm = true;
    return options;
}

/* a: a convolution; b: its batch norm; d: a head. */
static oct_tensor *normed(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_relu(cx, oct_call(cx, m[1], oct_call(cx, m[0], x[0])));
    return oct_call(cx, m[3], oct_flatten(cx, y));
}

static oct_module *normed_network(void)
{
    static const oct_module_type type = {.name = "normed", .forward = normed};
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 1, oct_batch_norm_create(&item, 8));
    PART(root, 3, oct_linear_create(&item, 8 * 36, 5, true));
    return root;
}

static bool has_one_scale(const oct_step *step)
{
    bool one = true;
    for (int64_t o = 1; o < step->conv.shape.out_c; o++)
        one &= fabsf(step->conv.weight_scale[o]) == fabsf(step->conv.weight_scale[0]) &&
               fabsf(step->conv.multiplier[o]) == fabsf(step->conv.multiplier[0]);
    return one;
}

static void check_one_scale(const char *const *layers, const oct_fake_quant_kind *kind, bool conv)
{
    const oct_prepare_options options = one_scale_options(layers, kind);
    oct_text tree = {0};
    deployment d;
    deploy_begin(&d, normed_network(), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy(&d, &options);
    cr_assert_eq(has_one_scale(step_named(&d.program, "a")), conv);
    cr_assert(has_one_scale(step_named(&d.program, "d")));
    OK(oct_tree_write(&tree, d.root));
    cr_assert(strstr(tree.data, "scheme=per_tensor_symmetric"), "%s", tree.data);
    cr_assert_eq(strstr(tree.data, "scheme=per_channel_symmetric") != NULL, !conv, "%s", tree.data);
    oct_text_free(&tree);
    deploy_end(&d);
}

Test(target_rules, give_all_weights_of_a_layer_one_scale)
{
    check_one_scale(linear_alone, NULL, false);
    check_one_scale(every_layer, &oct_fake_quant_affine, true);
    check_one_scale(linear_alone, &lsq_fake_quant, false);
    check_one_scale(every_layer, &lsq_fake_quant, true);
}

Test(target_rules, of_one_scale_refuse_a_live_batch_norm)
{
    oct_prepare_options options = one_scale_options(every_layer, NULL);
    oct_module *root = normed_network();
    options.fold_batch_norm = false;
    cr_assert_eq(oct_prepare(&root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)), &options, NULL),
                 OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "one scale for all weights of such a layer"), "%s",
              oct_error_message(0));
    oct_module_destroy(&root);
    oct_fail_clear();
}

/* Folds a batch norm of uneven gains into a layer that is prepared already. */
Test(target_rules, of_one_scale_stay_when_a_batch_norm_is_folded_later)
{
    static const oct_fake_quant_kind *const kinds[] = {&oct_fake_quant_affine, &lsq_fake_quant};
    for (int i = 0; i < 2; i++) {
        oct_module *layer = NULL, *bn = NULL, *m = NULL;
        float scale[8];
        bool exactly = true;
        OK(oct_conv2d_create(&layer, 3, 8, deploy_conv(3, 1), true));
        OK(oct_init_parameters(layer, 11));
        OK(oct_batch_norm_create(&bn, 8));
        for (int c = 0; c < 8; c++)
            oct_f32(&((oct_batch_norm_module *)bn)->gamma->value)[c] = 0.25f * (float)(c - 3);
        OK(oct_qat_conv_create(&m, &layer, &bn, false, OCT_ACT_NONE));
        oct_qat_conv *conv = (oct_qat_conv *)m;
        OK(oct_qat_conv_quantize_weights(conv, kinds[i], one_scale_target(every_layer)));
        const oct_qparams input = {.scale = 0.02f, .zero_point = 128, .qmax = 255};
        OK(oct_qat_conv_folds_exactly(conv, input, &exactly));
        cr_assert_not(exactly);
        OK(oct_qat_conv_fold(conv, input));
        cr_assert_null(conv->batch_norm);
        oct_qat_conv_weight_scales(conv, scale);
        for (int c = 1; c < 8; c++)
            cr_assert_eq(scale[c], scale[0], "channel %d", c);
        oct_module_destroy(&m);
    }
}

/* a, b: a convolution and its batch norm, which has gains of both signs; c: an average pool; e: a batch norm of its own;
 * d: a head. */
static oct_tensor *everything(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_module *const *m = ((parts *)self)->m;
    oct_tensor *y = oct_call(cx, m[1], oct_call(cx, m[0], x[0]));
    y = oct_call(cx, m[4], oct_add(cx, y, oct_mul(cx, y, oct_sigmoid(cx, y))));
    return oct_call(cx, m[3], oct_flatten(cx, oct_call(cx, m[2], y)));
}

static void check_everything(const char *target, int bits)
{
    static const oct_module_type type = {.name = "everything", .forward = everything};
    oct_qconfig qconfig = oct_qconfig_default();
    qconfig.bits = bits;
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    oct_prepare_options options = deploy_options(OCT_METHOD_JIT, &setter);
    deployment d;
    options.target = oct_target_find(target);
    options.fold_batch_norm = oct_requantizer_shifts(options.target->requantizer);
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 3, 8, deploy_conv(3, 1), true));
    PART(root, 1, oct_batch_norm_create(&item, 8));
    PART(root, 2, oct_avg_pool_create(&item, oct_pool_geometry_of(3, 1, 0)));
    PART(root, 3, oct_linear_create(&item, 8 * 16, 5, true));
    PART(root, 4, oct_batch_norm_create(&item, 8));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    for (int c = 0; c < 8; c++)
        for (int i = 1; i <= 4; i += 3)
            oct_f32(&((oct_batch_norm_module *)((parts *)root)->m[i])->gamma->value)[c] =
                0.25f * (float)(c - 3);
    deploy(&d, &options);
    cr_assert_eq(d.program.requantizer, options.target->requantizer);
    deploy_end(&d);
}

Test(target_rules, of_every_target_are_those_of_training)
{
    for (size_t i = 0; i < oct_registry_count(&oct_target_id_table); i++) {
        const oct_target *target = oct_target_at(i);
        check_everything(target->name, 8);
        if (target->wide_codes) check_everything(target->name, 16);
    }
}
