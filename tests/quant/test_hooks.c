/* Hooks through prepare: which survive, what they see, and that a handle stays good. */
#include "tests/quant/graph_nets.h"

typedef struct seen {
    int calls, order;
    oct_dtype dtype;
    const oct_module *module;
} seen;

static int clock_of_calls;

static oct_tensor *look(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    seen *s = user;
    (void)cx;
    s->calls++;
    s->order = ++clock_of_calls;
    s->dtype = value->dtype;
    s->module = module;
    return NULL;
}

static void reset(seen *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        all[i].calls = 0;
}

static void quantize(rig *r)
{
    rig_calibrate(r);
    OK(oct_set_fake_quant(r->root, OCT_STATE_QAT));
}

/* Several hooks at each end of a fusion, on a module of a nested container. */
Test(hooks, of_first_and_last_member_survive_in_order)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        rig r;
        seen s[4] = {0};
        oct_hook_handle handle[4];
        net_kind_begin(&r, &net_kinds[0], true);
        oct_module *conv = oct_module_find(r.root, "block.conv2");
        oct_module *norm = oct_module_find(r.root, "block.bn2");
        OK(oct_module_pre_hook(conv, look, &s[0], &handle[0]));
        OK(oct_module_pre_hook(conv, look, &s[1], &handle[1]));
        oct_module *head = oct_module_find(r.root, "head");
        OK(oct_module_hook(head, look, &s[2], &handle[2]));
        OK(oct_module_hook(head, look, &s[3], &handle[3]));
        cr_assert_null(norm->hooks);
        oct_prepare_options options = rig_options(graph_methods[i]);
        rig_prepare(&r, &options);
        quantize(&r);
        reset(s, 4);
        rig_step(&r);
        for (int k = 0; k < 4; k++) {
            cr_assert_eq(s[k].calls, 1, "hook %d", k);
            cr_assert_eq(s[k].dtype, OCT_U8, "hook %d sees codes", k);
        }
        cr_assert(s[0].order < s[1].order && s[1].order < s[2].order && s[2].order < s[3].order);
        oct_hook_remove(&handle[0]);
        oct_hook_remove(&handle[3]);
        rig_step(&r);
        cr_assert(s[0].calls == 1 && s[1].calls == 2 && s[2].calls == 2 && s[3].calls == 1);
        rig_convert(&r);
        rig_end(&r);
    }
}

typedef struct line {
    oct_module base;
    oct_module *quant, *inner, *conv, *bn, *relu, *pool, *dequant;
} line;

typedef struct inner {
    oct_module base;
    oct_module *conv, *bn;
} inner;

static oct_tensor *inner_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    inner *m = (inner *)self;
    (void)n;
    return oct_call(cx, m->bn, oct_call(cx, m->conv, in[0]));
}

static const oct_module_type inner_type = {.name = "inner", .forward = inner_forward};

static oct_tensor *line_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    line *m = (line *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->inner, oct_call(cx, m->quant, in[0]));
    return oct_call(cx, m->dequant, oct_call(cx, m->pool, oct_call(cx, m->relu, x)));
}

static const oct_module_type line_type = {.name = "line", .forward = line_forward};

/* A container that ends in the middle of conv - bn - relu. */
static line *line_begin(rig *r)
{
    oct_module *root = NULL;
    OK(oct_module_create(&root, &line_type, sizeof(line)));
    line *m = (line *)root;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    OK(oct_module_create(&m->inner, &inner_type, sizeof(inner)));
    inner *in = (inner *)m->inner;
    CHILD(in, conv, oct_conv2d_create(&in->conv, 3, 2, rig_same(3), false));
    CHILD(in, bn, oct_batch_norm_create(&in->bn, 2));
    OK(oct_module_add_child(root, "inner", &m->inner));
    CHILD(m, relu, oct_relu_create(&m->relu));
    CHILD(m, pool, oct_global_avg_pool_create(&m->pool));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    return m;
}

Test(hooks, of_a_container_around_a_fusion_survive)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        rig r;
        seen s[3] = {0};
        net_kind_begin(&r, &net_kinds[0], true);
        oct_module *container = oct_module_find(r.root, "block");
        OK(oct_module_pre_hook(container, look, &s[0], NULL));
        OK(oct_module_hook(container, look, &s[1], NULL));
        OK(oct_module_hook(r.root, look, &s[2], NULL));
        oct_prepare_options options = rig_options(graph_methods[i]);
        rig_prepare(&r, &options);
        quantize(&r);
        reset(s, 3);
        rig_step(&r);
        cr_assert(s[0].calls == 1 && s[1].calls == 1 && s[2].calls == 1);
        cr_assert(s[0].dtype == OCT_U8 && s[1].dtype == OCT_U8 && s[2].dtype == OCT_F32);
        rig_end(&r);
    }
}

Test(hooks, of_a_container_that_ends_inside_of_a_fusion_are_refused_or_dropped)
{
    rig r;
    seen s = {0};
    line *m = line_begin(&r);
    OK(oct_module_hook(m->inner, look, &s, NULL));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
            "inner: its forward hook would see a value that fusion (conv_bn_relu) removes");
    options.drop_hooks = true;
    rig_prepare(&r, &options);
    reset(&s, 1);
    rig_forward(&r);
    cr_assert_eq(s.calls, 0);
    rig_end(&r);
}

/* Every member, before and behind: the two ends live, all others are named; and dropping drops only
 * those. */
Test(hooks, in_all_places_of_a_fusion)
{
    static const char *const members[] = {"inner.conv", "inner.bn", "relu"};
    for (int member = 0; member < 3; member++)
        for (int pre = 0; pre < 2; pre++) {
            rig r;
            seen s = {0};
            line_begin(&r);
            oct_module *m = oct_module_find(r.root, members[member]);
            oct_hook_handle handle;
            OK(pre ? oct_module_pre_hook(m, look, &s, &handle)
                   : oct_module_hook(m, look, &s, &handle));
            bool lives = pre ? member == 0 : member == 2;
            oct_prepare_options options = rig_options(OCT_METHOD_JIT);
            if (!lives) {
                REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
                        pre ? "its forward-pre hook would be lost" : "its forward hook would be");
                cr_assert(rig_says(members[member]));
                cr_assert_eq(oct_module_find(r.root, "inner.conv")->type, &oct_conv2d_type);
                options.drop_hooks = true;
            }
            rig_prepare(&r, &options);
            quantize(&r);
            reset(&s, 1);
            rig_step(&r);
            cr_assert_eq(s.calls, lives, "%s, %s", members[member], pre ? "pre" : "post");
            if (lives) cr_assert_eq(s.module, oct_module_find(r.root, "inner.conv"), "moved");
            oct_hook_remove(&handle); /* harmless when dropped */
            rig_step(&r);
            cr_assert_eq(s.calls, lives);
            rig_end(&r);
        }
}

Test(hooks, that_are_added_after_prepare_run)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        rig r;
        seen s[5] = {0};
        net_kind_begin(&r, &net_kinds[0], true);
        oct_prepare_options options = rig_options(graph_methods[i]);
        rig_prepare(&r, &options);
        quantize(&r);
        static const char *const paths[] = {"block.conv1", "block.bn1", "block._generated_add_0",
                                            "block.relu", "quant"};
        for (int k = 0; k < 5; k++)
            OK(oct_module_hook(oct_module_find(r.root, paths[k]), look, &s[k], NULL));
        rig_step(&r);
        for (int k = 0; k < 5; k++) {
            cr_assert_eq(s[k].calls, k == 3 ? 2 : 1, "%s", paths[k]); /* relu is called twice */
            cr_assert_eq(s[k].dtype, OCT_U8, "%s", paths[k]);
        }
        rig_end(&r);
    }
}

/* A hook on a module that is called twice runs at both calls, whatever becomes of them. */
Test(hooks, of_a_shared_module_run_at_each_call)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        rig r;
        seen s[2] = {0};
        net_kind_begin(&r, &net_kinds[0], true);
        OK(oct_module_hook(oct_module_find(r.root, "block.relu"), look, &s[0], NULL));
        oct_prepare_options options = rig_options(graph_methods[i]);
        rig_prepare(&r, &options);
        reset(s, 2);
        rig_forward(&r);
        cr_assert_eq(s[0].calls, 2);
        rig_end(&r);

        net_kind_begin(&r, &net_kinds[2], true);
        OK(oct_module_pre_hook(oct_module_find(r.root, "conv"), look, &s[1], NULL));
        rig_prepare(&r, &options);
        reset(s, 2);
        rig_forward(&r);
        cr_assert_eq(s[1].calls, 2);
        rig_end(&r);
    }
}

/* A feature pyramid's hook, which puts another tensor in the place of what it got. */
static oct_tensor *halve(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)module, (void)user;
    return oct_max_pool(cx, value, 2, 2, 0);
}

Test(hooks, may_replace_what_they_see)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        rig r;
        line *m = line_begin(&r);
        OK(oct_module_hook(m->relu, halve, NULL, NULL));
        oct_module_train(r.root, false);
        float before[16], after[16];
        memcpy(before, rig_forward(&r)->data, sizeof before);
        oct_module_train(r.root, true);
        oct_prepare_options options = rig_options(graph_methods[i]);
        rig_prepare(&r, &options);
        oct_module_train(r.root, false);
        memcpy(after, rig_forward(&r)->data, sizeof after);
        cr_assert_arr_eq(before, after, sizeof before);
        oct_module_train(r.root, true);
        quantize(&r);
        rig_step(&r);
        rig_end(&r);
    }
}

/* By hand, in eager. */
Test(hooks, survive_fusing_by_name_as_they_do_prepare)
{
    static const char *const members[] = {"inner.conv", "inner.bn", "relu"};
    for (int member = 0; member < 3; member++)
        for (int pre = 0; pre < 2; pre++) {
            rig r;
            seen s = {0};
            line_begin(&r);
            oct_module *m = oct_module_find(r.root, members[member]);
            OK(pre ? oct_module_pre_hook(m, look, &s, NULL) : oct_module_hook(m, look, &s, NULL));
            bool lives = pre ? member == 0 : member == 2;
            if (!lives)
                REFUSED(oct_fuse_modules(&r.root, members, 3, false), OCT_PREPARE, members[member]);
            OK(oct_fuse_modules(&r.root, members, 3, !lives));
            oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
            rig_prepare(&r, &options);
            quantize(&r);
            reset(&s, 1);
            rig_step(&r);
            cr_assert_eq(s.calls, lives);
            if (lives) cr_assert_eq(s.dtype, OCT_U8);
            rig_end(&r);
        }
}
