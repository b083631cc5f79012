/* Hooks through prepare: which survive, what they see, and that a handle stays good. */
#include "tests/quant/graph_nets.h"

#include <omp.h>

typedef struct seen {
    int calls, order;
    oct_dtype dtype;
    const oct_module *module;
} seen;

static int clock_of_calls;

static oct_tensor *look_at_value(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
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
        OK(oct_module_pre_hook(conv, look_at_value, &s[0], &handle[0]));
        OK(oct_module_pre_hook(conv, look_at_value, &s[1], &handle[1]));
        oct_module *head = oct_module_find(r.root, "head");
        OK(oct_module_hook(head, look_at_value, &s[2], &handle[2]));
        OK(oct_module_hook(head, look_at_value, &s[3], &handle[3]));
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
    OK(oct_module_alloc(&root, &line_type, sizeof(line)));
    line *m = (line *)root;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    OK(oct_module_alloc(&m->inner, &inner_type, sizeof(inner)));
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
        OK(oct_module_pre_hook(container, look_at_value, &s[0], NULL));
        OK(oct_module_hook(container, look_at_value, &s[1], NULL));
        OK(oct_module_hook(r.root, look_at_value, &s[2], NULL));
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
    OK(oct_module_hook(m->inner, look_at_value, &s, NULL));
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

/* Every member, before and after: the two ends live, all others are named; and dropping drops only
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
            OK(pre ? oct_module_pre_hook(m, look_at_value, &s, &handle)
                   : oct_module_hook(m, look_at_value, &s, &handle));
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
            OK(oct_module_hook(oct_module_find(r.root, paths[k]), look_at_value, &s[k], NULL));
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
        OK(oct_module_hook(oct_module_find(r.root, "block.relu"), look_at_value, &s[0], NULL));
        oct_prepare_options options = rig_options(graph_methods[i]);
        rig_prepare(&r, &options);
        reset(s, 2);
        rig_forward(&r);
        cr_assert_eq(s[0].calls, 2);
        rig_end(&r);

        net_kind_begin(&r, &net_kinds[2], true);
        OK(oct_module_pre_hook(oct_module_find(r.root, "conv"), look_at_value, &s[1], NULL));
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
    return oct_max_pool(cx, value, oct_pool_geometry_of(2, 2, 0));
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
            OK(pre ? oct_module_pre_hook(m, look_at_value, &s, NULL)
                   : oct_module_hook(m, look_at_value, &s, NULL));
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

/* Hooks that compute: their ops and modules are part of the graph. */

typedef oct_tensor *op_fn(oct_context *cx, oct_tensor *x);

static oct_tensor *pool(oct_context *cx, oct_tensor *x)
{
    return x->shape.ndim == 4 ? oct_max_pool(cx, x, oct_pool_geometry_of(1, 1, 0))
                              : oct_flatten(cx, x); /* codes or not */
}

static oct_tensor *scale(oct_context *cx, oct_tensor *x)
{
    return oct_mul_scalar(cx, x, 0.5);
}

static oct_tensor *gate(oct_context *cx, oct_tensor *x)
{
    return oct_mul(cx, x, oct_sigmoid(cx, x));
}

/* Its softmax stays float: see compute_options. */
static oct_tensor *soften(oct_context *cx, oct_tensor *x)
{
    return oct_add(cx, oct_softmax(cx, x), x);
}

static oct_tensor *twice_float(oct_context *cx, oct_tensor *x)
{
    return oct_softmax(cx, oct_softmax(cx, x));
}

static op_fn *ops[] = {pool, scale, gate, soften, twice_float};

static oct_tensor *replace(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)module;
    return (*(op_fn *const *)user)(cx, value);
}

/* Computes and keeps its result to itself. */
static oct_tensor *watch(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)module;
    const oct_tensor *y = (*(op_fn *const *)user)(cx, value);
    cr_assert(!y || y->dtype == OCT_F32 || user == &ops[0]);
    return NULL;
}

static oct_prepare_options compute_options(oct_prepare_method method)
{
    static oct_qconfig qconfig;
    static oct_qconfig_setter setters[2];
    qconfig = oct_qconfig_default();
    setters[0] = oct_setter_by_type("softmax", NULL);
    setters[1] = oct_setter_default(&qconfig);
    oct_prepare_options options = rig_options(method);
    options.setters = setters;
    options.num_setters = 2;
    return options;
}

/* Trains, evaluates, converts and runs; the evaluation's output goes to `out`. */
static void live_prepared(rig *r, float out[16])
{
    omp_set_num_threads(1); /* many small steps */
    OK(oct_params_bind(&r->params, r->root, &r->leaves));
    OK(oct_quantizers_collect(&r->quantizers, r->root));
    quantize(r);
    double first = rig_step(r);
    cr_assert_neq(first, rig_step(r));
    rig_freeze(r);
    rig_convert(r);
    oct_module_train(r->root, false);
    memcpy(out, rig_forward(r)->data, 16 * sizeof *out);
}

static void live(rig *r, bool softmax, oct_prepare_method method, float out[16])
{
    oct_prepare_options options = softmax ? compute_options(method) : rig_options(method);
    OK(rig_try(r, &options, NULL));
    live_prepared(r, out);
}

/* Before and after every module that no fusion swallows, what is put in place and what is not: each
 * method that knows the graph gives the same bits, in training, evaluation and deployment. */
static const char *const hooked[] = {"quant", "inner", "inner.conv", "relu", "pool"};

static void compute_everywhere(oct_hook_fn hook, size_t op)
{
    for (size_t place = 0; place < OCT_COUNT(hooked); place++)
        for (int pre = 0; pre < 2; pre++) {
            float out[OCT_COUNT(graph_methods)][16];
            for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
                rig r;
                line_begin(&r);
                oct_module *m = oct_module_find(r.root, hooked[place]);
                void *user = &ops[op];
                OK(pre ? oct_module_pre_hook(m, hook, user, NULL)
                       : oct_module_hook(m, hook, user, NULL));
                live(&r, ops[op] == soften || ops[op] == twice_float, graph_methods[i], out[i]);
                rig_end(&r);
            }
            cr_assert_arr_eq(out[1], out[2], sizeof out[1], "op %zu, %s of %s: symbolic differs",
                             op, pre ? "pre hook" : "hook", hooked[place]);
            /* jit quantizes before the first stub, too */
            if (place == 0 && pre) continue;
            cr_assert_arr_eq(out[0], out[1], sizeof out[0], "op %zu, %s of %s: jit differs", op,
                             pre ? "pre hook" : "hook", hooked[place]);
        }
}

Test(hooks, that_replace_by_pooled_codes, .timeout = 240)
{
    compute_everywhere(replace, 0);
}

Test(hooks, that_replace_by_a_quantized_op, .timeout = 240)
{
    compute_everywhere(replace, 1);
}

Test(hooks, that_replace_by_several_ops, .timeout = 240)
{
    compute_everywhere(replace, 2);
}

Test(hooks, that_replace_by_float_and_quantized_ops, .timeout = 240)
{
    compute_everywhere(replace, 3);
}

Test(hooks, that_replace_by_float_ops, .timeout = 240)
{
    compute_everywhere(replace, 4);
}

Test(hooks, that_compute_for_themselves, .timeout = 240)
{
    compute_everywhere(watch, 1);
    compute_everywhere(watch, 4);
}

typedef struct found {
    oct_module *module[16];
    size_t count;
} found;

static oct_status find_module(void *user, oct_module *module)
{
    found *all = user;
    bool stub = module->type == &oct_quant_stub_type || module->type == &oct_dequant_stub_type;
    if (module->parent && !stub) all->module[all->count++] = module;
    return OCT_OK;
}

/* In networks with sums, branches, shared modules, ops in their forwards and containers, on every module:
 * what prepare accepts trains, evaluates, converts and runs, and jit and symbolic have the same bits. */
static bool compute_on(const net_kind *kind, size_t number, bool pre, oct_prepare_method method,
                       float out[16])
{
    rig r;
    found all = {0};
    net_kind_begin(&r, kind, true);
    OK(oct_module_walk(r.root, find_module, &all));
    if (number >= all.count) {
        rig_end(&r);
        return false;
    }
    OK(pre ? oct_module_pre_hook(all.module[number], replace, &ops[2], NULL)
           : oct_module_hook(all.module[number], replace, &ops[2], NULL));
    oct_prepare_options options = rig_options(method);
    if (rig_try(&r, &options, NULL) == OCT_OK)
        live_prepared(&r, out);
    else
        cr_assert(rig_says("bn: is called more than once, and the calls would become different"),
                  "%s", oct_error_message(0));
    rig_end(&r);
    return true;
}

static void compute_in_networks(bool pre)
{
    size_t count = 0;
    for (size_t k = 0; k < OCT_COUNT(net_kinds); k++) {
        float jit[16] = {0}, symbolic[16] = {0};
        for (size_t i = 0; compute_on(&net_kinds[k], i, pre, OCT_METHOD_JIT, jit); i++) {
            compute_on(&net_kinds[k], i, pre, OCT_METHOD_SYMBOLIC, symbolic);
            cr_assert_arr_eq(jit, symbolic, sizeof jit, "%s, module %zu", net_kinds[k].name, i);
            count++;
        }
    }
    cr_assert_geq(count, 20);
}

Test(hooks, that_compute_in_networks_of_all_kinds, .timeout = 240)
{
    compute_in_networks(false);
}

Test(hooks, that_compute_before_modules_in_networks_of_all_kinds, .timeout = 240)
{
    compute_in_networks(true);
}

/* A feature pyramid: one hook keeps a value that is added to another module's result later. */
typedef struct pyramid {
    oct_tensor *kept;
    oct_module *conv; /* called by the hook: part of the model */
} pyramid;

static oct_tensor *keep_value(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    pyramid *p = user;
    (void)module;
    p->kept = oct_call(cx, p->conv, value);
    return NULL;
}

static oct_tensor *add_kept(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)module;
    return oct_add(cx, value, oct_relu(cx, ((pyramid *)user)->kept));
}

Test(hooks, that_collect_features_for_others)
{
    float out[OCT_COUNT(graph_methods)][16];
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        rig r;
        pyramid p;
        line *m = line_begin(&r);
        OK(oct_conv2d_create(&p.conv, 3, 2, rig_same(1), true));
        OK(oct_module_add_child(&m->base, "lateral", &p.conv));
        OK(oct_init_parameters(r.root, 7));
        OK(oct_module_pre_hook(oct_module_find(r.root, "inner.conv"), keep_value, &p, NULL));
        OK(oct_module_hook(m->relu, add_kept, &p, NULL));
        live(&r, false, graph_methods[i], out[i]);
        cr_assert_eq(oct_module_find(r.root, "lateral")->type, &oct_qat_conv_type);
        cr_assert_eq(memcmp(out[0], out[i], sizeof out[0]), 0);
        rig_end(&r);
    }
}

/* In the middle of what would be fused a hook that computes keeps the parts apart, and the report says so. */
Test(hooks, that_compute_inside_of_a_fusion_prevent_it)
{
    for (int member = 0; member < 2; member++) {
        rig r;
        float out[16];
        oct_text report = {0};
        line_begin(&r);
        static const char *const members[] = {"inner.conv", "inner.bn"};
        OK(oct_module_hook(oct_module_find(r.root, members[member]), watch, &ops[1], NULL));
        oct_prepare_options options = rig_options(OCT_METHOD_JIT);
        OK(rig_try(&r, &options, &report));
        cr_assert(strstr(report.data,
                         "is not fused with what follows: the op 'mul_scalar' in a hook "
                         "of inner."),
                  "%s", report.data);
        oct_text_free(&report);
        rig_end(&r);
        line_begin(&r);
        OK(oct_module_hook(oct_module_find(r.root, members[member]), watch, &ops[1], NULL));
        live(&r, false, OCT_METHOD_JIT, out);
        rig_end(&r);
    }
}

/* Nothing intercepts the operations of eager's forward, so a hook works on codes, or is refused with
 * its module's name. */
Test(hooks, that_compute_in_eager)
{
    static const char *const fused[] = {"inner.conv", "inner.bn", "relu"};
    for (int op = 0; op < 3; op++)
        for (int hooks = 0; hooks < 2; hooks++) {
            rig r;
            float out[16];
            line *m = line_begin(&r);
            OK(oct_fuse_modules(&r.root, fused, 3, false));
            OK(oct_module_hook(m->relu, hooks ? replace : watch, &ops[op], NULL));
            oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
            if (op == 0) {
                live(&r, false, OCT_METHOD_EAGER, out);
            } else {
                REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
                        op == 1
                            ? "the op 'mul_scalar' in a hook of relu works on quantized values, "
                              "and eager cannot put a module there; let the hook pass what it "
                              "gets through a DeQuantStub first, or prepare with jit"
                            : "the op 'sigmoid' in a hook of relu works on quantized values");
            }
            rig_end(&r);
        }
}

typedef struct through {
    oct_module *dequant, *quant;
} through;

static oct_tensor *through_stubs(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    const through *t = user;
    (void)module;
    return oct_call(cx, t->quant, scale(cx, oct_call(cx, t->dequant, value)));
}

Test(hooks, that_pass_stubs_work_in_every_method)
{
    for (int method = 0; method < OCT_METHODS; method++) {
        rig r;
        through t;
        float out[16];
        static const char *const fused[] = {"inner.conv", "inner.bn", "relu"};
        line *m = line_begin(&r);
        OK(oct_dequant_stub_create(&t.dequant));
        OK(oct_module_add_child(&m->base, "out_of_codes", &t.dequant));
        OK(oct_quant_stub_create(&t.quant));
        OK(oct_module_add_child(&m->base, "into_codes", &t.quant));
        if (method == OCT_METHOD_EAGER) OK(oct_fuse_modules(&r.root, fused, 3, false));
        OK(oct_module_hook(m->relu, through_stubs, &t, NULL));
        live(&r, false, (oct_prepare_method)method, out);
        rig_end(&r);
    }
}

static oct_tensor *only_on_codes(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)module, (void)user;
    return oct_is_codes(value) ? oct_mul_scalar(cx, value, 0.5) : NULL;
}

static oct_tensor *from_nowhere(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)module, (void)user;
    return oct_tensor_new(cx, value->dtype, value->shape);
}

/* What a hook does with codes only is seen at prepare: it is called with codes there. */
Test(hooks, that_fail_on_codes_fail_at_prepare)
{
    for (int method = 0; method < OCT_METHODS; method++)
        for (int pre = 0; pre < 2; pre++) {
            rig r;
            line *m = line_begin(&r);
            if (method == OCT_METHOD_EAGER)
                OK(oct_fuse_modules(
                    &r.root, (const char *const[]){"inner.conv", "inner.bn", "relu"}, 3, false));
            OK(pre ? oct_module_pre_hook(m->pool, only_on_codes, NULL, NULL)
                   : oct_module_hook(m->pool, only_on_codes, NULL, NULL));
            oct_prepare_options options = rig_options((oct_prepare_method)method);
            REFUSED(
                rig_try(&r, &options, NULL), OCT_PREPARE,
                "pool: mul_scalar takes f32 values, but its input holds u8; dequantize it first");
            rig_end(&r);
            m = line_begin(&r);
            OK(pre ? oct_module_pre_hook(m->pool, from_nowhere, NULL, NULL)
                   : oct_module_hook(m->pool, from_nowhere, NULL, NULL));
            REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
                    "pool: a hook puts a tensor in place of another that no operation");
            rig_end(&r);
        }
}

/* The model's own hooks see its float input and output, whatever its inside does. */
Test(hooks, of_the_root_compute_on_floats)
{
    for (int method = 0; method < OCT_METHODS; method++) {
        rig r;
        float out[16];
        line_begin(&r);
        if (method == OCT_METHOD_EAGER)
            OK(oct_fuse_modules(&r.root, (const char *const[]){"inner.conv", "inner.bn", "relu"}, 3,
                                false));
        OK(oct_module_pre_hook(r.root, watch, &ops[2], NULL));
        OK(oct_module_hook(r.root, watch, &ops[2], NULL));
        live(&r, false, (oct_prepare_method)method, out);
        rig_end(&r);
        line_begin(&r);
        OK(oct_module_hook(r.root, replace, &ops[1], NULL));
        oct_prepare_options options = rig_options(OCT_METHOD_JIT);
        REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
                "a hook of the model itself puts another tensor in place of its input or output");
        rig_end(&r);
    }
}
