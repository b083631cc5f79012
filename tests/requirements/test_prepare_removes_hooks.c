/* "Prepare_qat on module removes hooks": a backbone of inverted bottlenecks whose features a pyramid
 * collects by hooks, set before prepare. They must survive swapping, fusion and convert, and see
 * quantized data: a pre hook the output of the layer before, a hook that of its own layer. */
#include "tests/requirements/rig.h"

#include "launch/model/model.h"

/* What a hook saw. */
typedef struct seen {
    int calls;
    oct_dtype dtype;
    float scale;
    const oct_tensor *tensor;
} seen;

/* Prepare itself runs the forward to learn the graph, hooks and all. */
static void forget(seen *s)
{
    *s = (seen){0};
}

static oct_tensor *look(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    seen *s = user;
    (void)cx, (void)module;
    s->calls++;
    s->dtype = value->dtype;
    s->scale = oct_is_codes(value) ? value->q.scale : 0;
    s->tensor = value;
    return NULL;
}

/* conv_pw - bn1 - relu1 - conv_pwl - bn2, quantized from stub to stub. */
typedef struct bottleneck {
    oct_module base;
    oct_module *quant, *conv_pw, *bn1, *relu1, *conv_pwl, *bn2, *pool, *dequant;
} bottleneck;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    bottleneck *m = (bottleneck *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->quant, in[0]);
    x = oct_call(cx, m->relu1, oct_call(cx, m->bn1, oct_call(cx, m->conv_pw, x)));
    x = oct_call(cx, m->bn2, oct_call(cx, m->conv_pwl, x));
    return oct_call(cx, m->dequant, oct_call(cx, m->pool, x));
}

static const oct_module_type bottleneck_type = {.name = "bottleneck", .forward = forward};

static bottleneck *begin(rig *r)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &bottleneck_type, sizeof(bottleneck)));
    bottleneck *m = (bottleneck *)root;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, conv_pw, oct_conv2d_create(&m->conv_pw, 3, 12, rig_same(1), false));
    CHILD(m, bn1, oct_batch_norm_create(&m->bn1, 12));
    CHILD(m, relu1, oct_relu_create(&m->relu1));
    CHILD(m, conv_pwl, oct_conv2d_create(&m->conv_pwl, 12, 4, rig_same(1), false));
    CHILD(m, bn2, oct_batch_norm_create(&m->bn2, 4));
    CHILD(m, pool, oct_global_avg_pool_create(&m->pool));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    return m;
}

static const oct_prepare_method methods[] = {OCT_METHOD_JIT_STRIP, OCT_METHOD_JIT,
                                             OCT_METHOD_SYMBOLIC};

/* The thread's own case: blocks.2.3.conv_pwl loses its forward-pre hook. */
Test(prepare_removes_hooks, a_pre_hook_stays_and_sees_the_quantized_input)
{
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        rig r;
        seen pre = {0}, post = {0};
        oct_hook_handle pre_handle, post_handle;
        bottleneck *m = begin(&r);
        OK(oct_module_pre_hook(m->conv_pwl, look, &pre, &pre_handle));
        OK(oct_module_hook(m->bn2, look, &post, &post_handle));
        rig_forward(&r);
        cr_assert(pre.calls == 1 && post.calls == 1 && pre.dtype == OCT_F32);

        oct_prepare_options options = rig_options(methods[i]);
        rig_prepare(&r, &options);
        cr_assert_eq(m->conv_pwl->type, &oct_qat_conv_type);
        forget(&pre);
        forget(&post);
        rig_calibrate(&r);
        cr_assert(pre.calls == 1 && pre.dtype == OCT_F32, "calibration runs the float model");
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        rig_step(&r);
        cr_assert(pre.calls == 2 && post.calls == 2);
        const oct_fake_quant *before = (oct_fake_quant *)((oct_quantized *)m->conv_pw)->fake_quant;
        const oct_fake_quant *own = (oct_fake_quant *)((oct_quantized *)m->conv_pwl)->fake_quant;
        cr_assert(pre.dtype == OCT_U8 && post.dtype == OCT_U8);
        rig_freeze(&r);
        rig_forward(&r);
        cr_assert_eq(pre.scale, before->scale[0], "codes of the layer before");
        cr_assert_eq(post.scale, own->scale[0], "codes of this layer");

        rig_convert(&r); /* changes no module: hooks go on */
        int calls = pre.calls;
        oct_hook_remove(&pre_handle);
        rig_forward(&r);
        cr_assert_eq(pre.calls, calls, "the handle still removes it");
        cr_assert_gt(post.calls, calls);
        oct_hook_remove(&post_handle);
        rig_end(&r);
    }
}

Test(prepare_removes_hooks, several_hooks_keep_their_order)
{
    rig r;
    seen a = {0}, b = {0}, c = {0};
    bottleneck *m = begin(&r);
    oct_hook_handle first;
    OK(oct_module_pre_hook(m->conv_pw, look, &a, &first));
    OK(oct_module_pre_hook(m->conv_pw, look, &b, NULL));
    OK(oct_module_hook(m->relu1, look, &c, NULL));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    forget(&a);
    forget(&b);
    forget(&c);
    rig_forward(&r);
    cr_assert(a.calls == 1 && b.calls == 1 && c.calls == 1);
    oct_hook_remove(&first);
    rig_forward(&r);
    cr_assert(a.calls == 1 && b.calls == 2 && c.calls == 2);
    seen late = {0};
    OK(oct_module_hook(m->conv_pw, look, &late, NULL));
    rig_forward(&r);
    cr_assert_eq(late.calls, 1, "a hook added after prepare");
    rig_end(&r);
}

/* "We probably need to error out if you have a prehook for intermediate modules like BatchNorm." */
Test(prepare_removes_hooks, a_hook_that_fusion_would_lose_is_an_error_with_its_name)
{
    static const struct {
        const char *what;
        bool pre;
    } cases[] = {{"conv_pw", false}, {"bn1", true}, {"bn1", false}, {"relu1", true}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        rig r;
        seen s = {0};
        begin(&r);
        oct_module *member = oct_module_find(r.root, cases[i].what);
        if (cases[i].pre)
            OK(oct_module_pre_hook(member, look, &s, NULL));
        else
            OK(oct_module_hook(member, look, &s, NULL));
        oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
        REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, cases[i].what);
        cr_assert(rig_says(cases[i].pre ? "pre hook" : "forward hook"));
        rig_end(&r);
    }
}

Test(prepare_removes_hooks, unless_the_user_says_drop)
{
    rig r;
    seen lost = {0}, kept = {0};
    bottleneck *m = begin(&r);
    OK(oct_module_pre_hook(m->bn1, look, &lost, NULL));
    OK(oct_module_pre_hook(m->conv_pw, look, &kept, NULL));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.drop_hooks = true;
    oct_text report = {0};
    OK(rig_try(&r, &options, &report));
    cr_assert(strstr(report.data, "bn1") && strstr(report.data, "drop"), "%s", report.data);
    forget(&lost);
    forget(&kept);
    rig_forward(&r);
    cr_assert(lost.calls == 0 && kept.calls == 1);
    oct_text_free(&report);
    rig_end(&r);
}

/* ... "and submodule.fuse() too". */
Test(prepare_removes_hooks, fusing_by_hand_keeps_them_too)
{
    rig r;
    seen pre = {0}, post = {0};
    bottleneck *m = begin(&r);
    OK(oct_module_pre_hook(m->conv_pw, look, &pre, NULL));
    OK(oct_module_hook(m->relu1, look, &post, NULL));
    const char *names[] = {"conv_pw", "bn1", "relu1"};
    OK(oct_fuse_modules(&r.root, names, 3, false));
    rig_forward(&r);
    cr_assert(pre.calls == 1 && post.calls == 1);
    cr_assert_null(m->relu1->hooks, "moved to the fused module");
    const char *others[] = {"conv_pwl", "bn2"};
    OK(oct_module_hook(m->conv_pwl, look, &post, NULL));
    REFUSED(oct_fuse_modules(&r.root, others, 2, false), OCT_PREPARE, "conv_pwl");
    cr_assert_eq(m->conv_pwl->type, &oct_conv2d_type, "nothing changed");
    OK(oct_fuse_modules(&r.root, others, 2, true));
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    rig_prepare(&r, &options);
    forget(&pre);
    forget(&post);
    rig_forward(&r);
    cr_assert(pre.calls == 1 && post.calls == 1);
    rig_end(&r);
}

/* "EfficientNet as a backbone of FPN": the whole model in the zoo. */
Test(prepare_removes_hooks, a_feature_pyramid_collects_by_hooks_before_and_after)
{
    static const oct_prepare_method all[] = {OCT_METHOD_JIT_STRIP, OCT_METHOD_JIT,
                                             OCT_METHOD_SYMBOLIC};
    float logits[OCT_COUNT(all)][80];
    for (size_t i = 0; i < OCT_COUNT(all); i++) {
        rig r;
        oct_module *root = NULL;
        OK(oct_model_find("fpn-small")->build(&root, 32, 32, 3, 10));
        rig_begin(&r, root, OCT_EXAMPLE(OCT_SHAPE(1, 32, 32, 3)));
        rig_forward(&r); /* float */
        oct_prepare_options options = rig_options(all[i]);
        rig_prepare(&r, &options);
        rig_calibrate(&r);
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        for (int step = 0; step < 2; step++)
            rig_step(&r);
        rig_convert(&r);
        oct_module_train(r.root, false);
        memcpy(logits[i], rig_forward(&r)->data, sizeof logits[i]);
        cr_assert_arr_eq(logits[i], logits[0], sizeof logits[i], "method %d", (int)i);
        rig_end(&r);
    }
}

/* "Preserve all pre forward / post forward hooks except this one": what observes and quantizes is no hook
 * here, so users' hooks neither hide it nor take it along. */
Test(prepare_removes_hooks, observers_are_no_hooks)
{
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        rig r;
        seen s = {0};
        oct_hook_handle handle;
        bottleneck *m = begin(&r);
        OK(oct_module_hook(m->bn2, look, &s, &handle));
        oct_prepare_options options = rig_options(methods[i]);
        rig_prepare(&r, &options);
        oct_module *const parts[] = {m->quant, m->conv_pw, m->bn1, m->relu1, m->pool, m->dequant};
        for (size_t k = 0; k < OCT_COUNT(parts); k++)
            cr_assert(!parts[k]->pre_hooks && !parts[k]->hooks, "part %zu", k);
        oct_hook_remove(&handle);
        forget(&s);
        rig_calibrate(&r);
        cr_assert_eq(s.calls, 0);
        for (size_t k = 0; k < r.quantizers.count; k++)
            cr_assert_eq(r.quantizers.items[k]->updates[0], 1, "it observes all the same");
        rig_convert(&r);
        rig_end(&r);
    }
}

/* "The hooks will do some meaningful computation for both quantized and unquantized data": the same hook
 * halves floats in calibration and codes in training, evaluation and the deployed model. */
static oct_tensor *halve(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    seen *s = user;
    (void)module;
    oct_tensor *half = oct_mul_scalar(cx, value, 0.5);
    s->calls++;
    s->dtype = half ? half->dtype : OCT_F32;
    return half;
}

Test(prepare_removes_hooks, a_hook_computes_on_floats_and_on_codes)
{
    for (size_t i = 0; i < OCT_COUNT(methods); i++)
        for (int pre = 0; pre < 2; pre++) {
            rig r;
            seen s = {0};
            bottleneck *m = begin(&r);
            OK(pre ? oct_module_pre_hook(m->conv_pwl, halve, &s, NULL)
                   : oct_module_hook(m->bn2, halve, &s, NULL));
            oct_prepare_options options = rig_options(methods[i]);
            rig_prepare(&r, &options);
            rig_calibrate(&r);
            cr_assert_eq(s.dtype, OCT_F32, "calibration runs the float model");
            OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
            for (int step = 0; step < 2; step++)
                rig_step(&r);
            cr_assert_eq(s.dtype, OCT_U8);
            rig_convert(&r);
            rig_end(&r);
        }
}
