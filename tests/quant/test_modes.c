/* Forwards that branch on training: what prepare makes of both branches, run in both modes. */
#include "tests/requirements/rig.h"

#include "core/base/mem.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

enum { CLASSES = 3 };

typedef struct net net;
typedef oct_tensor *(*forward_fn)(oct_context *cx, net *m, oct_tensor *const *x);
struct net {
    oct_module base;
    oct_module *quant, *dequant, *conv, *second, *head, *aux;
    forward_fn forward;
    int32_t labels[8];
    int loops;
};

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    net *m = (net *)self;
    (void)n;
    return m->forward(cx, m, x);
}

static const oct_module_type net_type = {.name = "net", .forward = forward};

/* A user's hook that computes, for all networks of a test. */
static struct {
    const char *path;
    bool pre, returns;
    bool looks; /* at its module's mode */
    bool idle;
} hook;

static oct_tensor *halve(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)user;
    if (hook.idle) return NULL;
    if (hook.looks) return module->training ? oct_mul_scalar(cx, value, 0.5) : NULL;
    oct_tensor *y = oct_mul_scalar(cx, value, 0.5);
    return hook.returns ? y : NULL;
}

static void add_hook(oct_module *root)
{
    oct_module *m = hook.path ? oct_module_find(root, hook.path) : NULL;
    if (!m) return;
    OK(hook.pre ? oct_module_pre_hook(m, halve, NULL, NULL)
                : oct_module_hook(m, halve, NULL, NULL));
}

static net *begin_net(rig *r, forward_fn fn, const oct_example *example)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &net_type, sizeof(net)));
    net *m = (net *)root;
    m->forward = fn;
    m->loops = 2;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 2, 2, rig_same(3), true));
    CHILD(m, second, oct_conv2d_create(&m->second, 2, 2, rig_same(1), true));
    CHILD(m, head, oct_linear_create(&m->head, 2, CLASSES, true));
    CHILD(m, aux, oct_linear_create(&m->aux, 2, CLASSES, true));
    for (int i = 0; i < 8; i++)
        m->labels[i] = i % CLASSES;
    rig_begin(r, root, example);
    add_hook(root);
    return m;
}

#define IMAGE OCT_SHAPE(1, 4, 4, 2)

static oct_example one_input(void)
{
    return (oct_example){.count = 1, .shape = {IMAGE}};
}

static oct_example with_target(void)
{
    oct_example example = *OCT_EXAMPLE(IMAGE, OCT_SHAPE(1, CLASSES));
    example.count = 1;
    example.training_count = 2;
    return example;
}

static void finish(rig *r)
{
    rig_end(r);
    cr_assert_eq(oct_mem_live(), 0);
}

/* Quantized training for a few steps, whatever the forward returns: the sum of its squares. */
static void train(rig *r, int steps)
{
    for (int step = 0; step < steps; step++) {
        oct_params_zero(&r->params);
        oct_tensor *y = rig_call(r, true);
        OK(oct_context_status(r->cx));
        if (oct_numel(y) > 1) {
            float *grad = oct_scratch(r->cx, (size_t)oct_numel(y) * sizeof(float) + 64);
            memcpy(grad, y->data, (size_t)oct_numel(y) * sizeof(float));
            oct_add_grad(r->cx, y, grad);
        }
        rig_descend(r, y);
        for (int64_t i = 0; i < r->params.numel; i++)
            cr_assert(isfinite(r->params.grads[i]));
    }
}

/* All of a model's life, in one method; *kept is what evaluation gives in the end. */
static void live(forward_fn fn, const oct_example *example, oct_prepare_method method, float *kept,
                 oct_text *report)
{
    rig r;
    begin_net(&r, fn, example);
    oct_prepare_options options = rig_options(method);
    OK(rig_try(&r, &options, report));
    OK(oct_params_bind(&r.params, r.root, &r.leaves));
    OK(oct_quantizers_collect(&r.quantizers, r.root));
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    train(&r, 3);
    rig_convert(&r);
    oct_module_train(r.root, false);
    const oct_tensor *y = rig_forward(&r);
    memcpy(kept, y->data, (size_t)oct_numel(y) * sizeof(float));
    rig_end(&r);
}

enum { KEPT = 8 * 32 };

/* jit and symbolic always agree; jit_strip where the stubs hold all of the model. */
static void live_in_graph_methods(forward_fn fn, const oct_example *example, bool strip,
                                  oct_text *report)
{
    float jit[KEPT] = {0}, other[KEPT] = {0};
    live(fn, example, OCT_METHOD_JIT, jit, NULL);
    live(fn, example, OCT_METHOD_SYMBOLIC, other, NULL);
    cr_assert_arr_eq(other, jit, sizeof jit);
    memset(other, 0, sizeof other);
    live(fn, example, OCT_METHOD_JIT_STRIP, other, report);
    if (strip) cr_assert_arr_eq(other, jit, sizeof jit);
}

static oct_tensor *body(oct_context *cx, net *m, oct_tensor *x)
{
    x = oct_relu(cx, oct_call(cx, m->conv, oct_call(cx, m->quant, x)));
    return oct_call(cx, m->head, oct_global_avg_pool(cx, x));
}

/* The loss in training, from a target that only training has; the logits otherwise. */
static oct_tensor *loss_or_logits(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->dequant, body(cx, m, x[0]));
    return m->base.training ? oct_mul(cx, oct_softmax(cx, y), x[1]) : y;
}

Test(modes, a_target_is_an_input_of_training_only)
{
    const oct_example example = with_target();
    oct_text report = {0};
    live_in_graph_methods(loss_or_logits, &example, true, &report);
    cr_assert(strstr(report.data, "only training calls it"), "%s", report.data);
    cr_assert(strstr(report.data, "in training only"), "%s", report.data);
    cr_assert(strstr(report.data, "; input 1 is for training only"), "%s", report.data);
    oct_text_free(&report);
}

Test(modes, the_wrong_number_of_inputs_names_the_mode)
{
    rig r;
    const oct_example example = with_target();
    begin_net(&r, loss_or_logits, &example);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_prepare(&r, &options);
    r.example.training_count = 1;
    rig_call(&r, false);
    REFUSED(oct_context_status(r.cx), OCT_USAGE, "2 inputs in training mode");
    r.example.training_count = 2;
    oct_module_train(r.root, false);
    r.example.count = 2;
    rig_call(&r, false);
    REFUSED(oct_context_status(r.cx), OCT_USAGE, "1 inputs in evaluation mode");
    finish(&r);
}

/* A DeQuantStub in training only, as in the seed. */
static oct_tensor *stub_in_training(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = body(cx, m, x[0]);
    if (m->base.training)
        return oct_cross_entropy(cx, oct_call(cx, m->dequant, y), m->labels, 0, &(oct_loss){0});
    return oct_softmax(cx, y);
}

Test(modes, a_dequant_stub_in_training_only_is_called)
{
    const oct_example example = one_input();
    oct_text report = {0};
    float jit[KEPT] = {0}, strip[KEPT] = {0};
    live(stub_in_training, &example, OCT_METHOD_JIT, jit, NULL);
    live(stub_in_training, &example, OCT_METHOD_JIT_STRIP, strip, &report);
    cr_assert_arr_eq(strip, jit, sizeof jit);
    cr_assert_null(strstr(report.data, "dequant: is never called"), "%s", report.data);
    cr_assert(strstr(report.data, "aux: is never called"), "%s", report.data);
    cr_assert(strstr(report.data, "cross_entropy(): stays float: only training calls it"), "%s",
              report.data);
    oct_text_free(&report);
}

Test(modes, symbolic_refuses_a_loss_that_is_no_module)
{
    rig r;
    const oct_example example = one_input();
    begin_net(&r, stub_in_training, &example);
    oct_prepare_options options = rig_options(OCT_METHOD_SYMBOLIC);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "cross_entropy");
    finish(&r);
}

static oct_tensor *loss_of_codes(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_relu(cx, body(cx, m, x[0]));
    return m->base.training ? oct_cross_entropy(cx, y, m->labels, 0, &(oct_loss){0}) : y;
}

Test(modes, what_is_no_module_cannot_get_codes)
{
    rig r;
    const oct_example example = one_input();
    begin_net(&r, loss_of_codes, &example);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "put a DeQuantStub before it");
    finish(&r);
}

/* Eager: the same modules in both modes, each with its stub. */
static oct_tensor *by_hand(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->conv, oct_call(cx, m->quant, x[0]));
    y = oct_call(cx, m->head, oct_flatten(cx, oct_max_pool(cx, y, oct_pool_geometry_of(4, 4, 0))));
    if (!m->base.training) return oct_softmax(cx, oct_call(cx, m->dequant, y));
    y = oct_call(cx, m->dequant, y);
    return oct_cross_entropy(cx, oct_add(cx, y, oct_call(cx, m->aux, oct_flatten(cx, x[1]))),
                             m->labels, 0, &(oct_loss){0});
}

Test(modes, eager_judges_both)
{
    oct_example example = *OCT_EXAMPLE(IMAGE, OCT_SHAPE(1, 2));
    example.count = 1, example.training_count = 2;
    oct_text report = {0};
    float kept[KEPT];
    live(by_hand, &example, OCT_METHOD_EAGER, kept, &report);
    cr_assert(strstr(report.data,
                     "aux to cross_entropy() (3 operations): each stays float: only training"),
              "%s", report.data);
    oct_text_free(&report);
}

static oct_tensor *unstub_in_training(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->quant, x[0]);
    if (m->base.training) y = oct_call(cx, m->dequant, y);
    return oct_call(cx, m->dequant, oct_call(cx, m->second, oct_call(cx, m->conv, y)));
}

static oct_tensor *stub_in_evaluation(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->conv, oct_call(cx, m->quant, x[0]));
    if (!m->base.training) y = oct_call(cx, m->dequant, y);
    return oct_flatten(cx, y);
}

Test(modes, eager_refuses_what_is_quantized_in_one_of_them_only)
{
    static const struct {
        forward_fn forward;
        const char *says;
    } cases[] = {{unstub_in_training,
                  "conv: gets quantized values from quant in evaluation and float "
                  "ones from dequant in training; call the same stubs in both"},
                 {stub_in_evaluation, "the op 'flatten': gets float values from dequant in "
                                      "evaluation and quantized ones from conv in training"}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        rig r;
        begin_net(&r, cases[i].forward, OCT_EXAMPLE(IMAGE));
        oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
        REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, cases[i].says);
        rig_end(&r);
    }
}

static oct_tensor *relu_of_the_forward(oct_context *cx, net *m, oct_tensor *const *x)
{
    return oct_relu(cx, oct_call(cx, m->conv, x[0]));
}

static oct_tensor *only_look(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)cx, (void)module, (void)value, (void)user;
    return NULL;
}

/* The fusion ends in an op, so there is no module that could have the hook. */
Test(modes, a_hook_before_a_fused_op_is_refused_with_a_remedy)
{
    rig r;
    net *m = begin_net(&r, relu_of_the_forward, OCT_EXAMPLE(IMAGE));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    OK(oct_module_hook(m->conv, only_look, NULL, NULL));
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
            "conv: its forward hook would be lost when it is fused; it is fused up to an op of the "
            "forward, which has no hooks: make that a module and put the hook there, or drop");
    rig_end(&r);
}

/* Something between two layers in one mode only: both are one module in both modes. */

static oct_tensor *scaled_in_training(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->conv, oct_call(cx, m->quant, x[0]));
    if (m->base.training) y = oct_mul_scalar(cx, y, 1.5);
    return oct_call(cx, m->dequant, oct_call(cx, m->second, y));
}

static oct_tensor *scaled_in_evaluation(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->conv, oct_call(cx, m->quant, x[0]));
    if (!m->base.training) y = oct_mul_scalar(cx, y, 1.5);
    return oct_call(cx, m->dequant, oct_call(cx, m->second, y));
}

/* On modules that both modes call, with what only one of them does around them. */
Test(modes, hooks_compute_in_both, .timeout = 240)
{
    static const char *const paths[] = {"quant", "conv", "second", "head", "dequant"};
    const oct_example one = one_input(), target = with_target();
    omp_set_num_threads(1); /* many small steps */
    for (size_t i = 0; i < OCT_COUNT(paths); i++)
        for (int way = 0; way < 4; way++) {
            hook.path = paths[i];
            hook.pre = way % 2;
            hook.returns = way / 2;
            bool strip = i > 0 && i + 1 < OCT_COUNT(paths); /* else outside of the stubs */
            live_in_graph_methods(scaled_in_training, &one, strip, NULL);
            live_in_graph_methods(scaled_in_evaluation, &one, strip, NULL);
            live_in_graph_methods(loss_or_logits, &target, strip, NULL);
        }
}

Test(modes, hooks_of_layers_may_look_at_the_mode)
{
    static const char *const paths[] = {"conv", "head"};
    const oct_example example = with_target();
    hook.looks = true;
    for (size_t i = 0; i < 2 * OCT_COUNT(paths); i++) {
        oct_text report = {0};
        hook.path = paths[i / 2];
        hook.pre = i % 2;
        live_in_graph_methods(loss_or_logits, &example, true, &report);
        cr_assert(strstr(report.data, "only training calls it"), "%s", report.data);
        oct_text_free(&report);
    }
}

Test(modes, a_hook_that_stops_computing_is_refused)
{
    static const oct_prepare_method methods[] = {OCT_METHOD_SYMBOLIC, OCT_METHOD_JIT,
                                                 OCT_METHOD_JIT_STRIP};
    const oct_example example = one_input();
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        rig r;
        hook.path = "conv";
        hook.pre = hook.looks = hook.idle = false;
        hook.returns = true;
        begin_net(&r, scaled_in_training, &example);
        oct_prepare_options options = rig_options(methods[i]);
        rig_prepare(&r, &options);
        hook.idle = true;
        rig_call(&r, false);
        cr_assert_eq(oct_context_status(r.cx), OCT_PREPARE);
        finish(&r);
    }
}

Test(modes, a_layer_may_read_another_value_in_each)
{
    const oct_example example = one_input();
    live_in_graph_methods(scaled_in_training, &example, true, NULL);
}

Test(modes, what_only_evaluation_makes_has_the_range_of_what_training_makes)
{
    const oct_example example = one_input();
    oct_text report = {0};
    live_in_graph_methods(scaled_in_evaluation, &example, true, &report);
    cr_assert(strstr(report.data, "only evaluation calls it"), "%s", report.data);
    oct_text_free(&report);
    rig r;
    begin_net(&r, scaled_in_evaluation, &example);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    for (size_t i = 0; i < r.quantizers.count; i++)
        cr_assert_gt(r.quantizers.items[i]->updates[0], 0, "quantizer %zu saw nothing", i);
    finish(&r);
}

static oct_tensor *only_evaluation_reads(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->quant, x[0]);
    if (m->base.training) return oct_call(cx, m->second, oct_call(cx, m->conv, y));
    y = oct_mul_scalar(cx, y, 1.5);
    y = oct_add(cx, y, oct_call(cx, m->conv, y));
    return oct_call(cx, m->second, oct_call(cx, m->conv, y));
}

Test(modes, a_range_that_training_never_sees_is_refused_or_not_needed)
{
    const oct_example example = one_input();
    rig r;
    begin_net(&r, only_evaluation_reads, &example);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    oct_status status = rig_try(&r, &options, NULL);
    if (status != OCT_OK) {
        cr_assert_eq(status, OCT_PREPARE);
        cr_assert(rig_says("only evaluation"), "%s", oct_error_message(0));
    }
    finish(&r);
    if (status != OCT_OK) return;
    float kept[KEPT];
    live(only_evaluation_reads, &example, OCT_METHOD_JIT, kept, NULL);
}

/* A fusion must be right in both modes. */
static oct_tensor *relu_in_evaluation(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->conv, oct_call(cx, m->quant, x[0]));
    y = m->base.training ? oct_sigmoid(cx, y) : oct_relu(cx, y);
    return oct_call(cx, m->dequant, oct_call(cx, m->second, y));
}

Test(modes, a_layer_is_not_fused_with_what_one_of_them_does)
{
    const oct_example example = one_input();
    rig r;
    begin_net(&r, relu_in_evaluation, &example);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_prepare(&r, &options);
    const oct_graph *g = oct_graph_of(r.root);
    for (size_t i = 0; i < g->num_nodes; i++)
        cr_assert_null(g->nodes[i].fusion);
    finish(&r);
    live_in_graph_methods(relu_in_evaluation, &example, true, NULL);
}

/* The same layers on a second input that only training has. */
static oct_tensor *two_views(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->conv, oct_call(cx, m->quant, x[0]));
    if (m->base.training)
        y = oct_add(cx, y, oct_relu(cx, oct_call(cx, m->conv, oct_call(cx, m->quant, x[1]))));
    return oct_call(cx, m->dequant, oct_call(cx, m->second, y));
}

Test(modes, a_layer_may_be_called_once_more_in_training)
{
    oct_example example = *OCT_EXAMPLE(IMAGE, IMAGE);
    example.count = 1, example.training_count = 2;
    live_in_graph_methods(two_views, &example, true, NULL);
}

/* A branch inside of a dynamic block. */
static oct_tensor *branch_in_block(oct_context *cx, net *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(cx, m->quant, x[0]);
    for (int i = 0; i < m->loops; i++) {
        oct_dynamic_block_begin(cx, &m->base, "turn");
        y = oct_call(cx, m->conv, y);
        if (m->base.training) y = oct_mul_scalar(cx, y, 0.5);
        y = oct_relu(cx, y);
        oct_dynamic_block_end(cx);
    }
    return oct_call(cx, m->dequant, oct_call(cx, m->second, y));
}

Test(modes, a_block_may_branch)
{
    const oct_example example = one_input();
    float jit[KEPT] = {0}, strip[KEPT] = {0};
    live(branch_in_block, &example, OCT_METHOD_JIT, jit, NULL);
    live(branch_in_block, &example, OCT_METHOD_JIT_STRIP, strip, NULL);
    cr_assert_arr_eq(strip, jit, sizeof jit);
}

/* With quantizers off, both modes compute what the float model does. */
static void same_as_float(forward_fn fn, oct_example example, oct_prepare_method method)
{
    rig prepared, plain;
    begin_net(&prepared, fn, &example);
    begin_net(&plain, fn, &example);
    oct_prepare_options options = rig_options(method);
    rig_prepare(&prepared, &options);
    for (int training = 0; training < 2; training++) {
        oct_module_train(prepared.root, training);
        oct_module_train(plain.root, training);
        const oct_tensor *a = rig_forward(&prepared), *b = rig_forward(&plain);
        cr_assert_eq(oct_numel(a), oct_numel(b));
        cr_assert_arr_eq(a->data, b->data, (size_t)oct_numel(a) * sizeof(float), "training %d",
                         training);
    }
    rig_end(&plain);
    finish(&prepared);
}

Test(modes, prepare_changes_no_value_in_either)
{
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT, OCT_METHOD_JIT_STRIP,
                                                 OCT_METHOD_SYMBOLIC};
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        same_as_float(loss_or_logits, with_target(), methods[i]);
        same_as_float(scaled_in_training, one_input(), methods[i]);
        same_as_float(scaled_in_evaluation, one_input(), methods[i]);
        same_as_float(relu_in_evaluation, one_input(), methods[i]);
    }
}

static oct_tensor *wants_a_target(oct_context *cx, net *m, oct_tensor *const *x)
{
    if (m->base.training) return oct_context_fail(cx, OCT_USAGE, "where is the target?");
    return body(cx, m, x[0]);
}

Test(modes, a_training_forward_that_fails_is_named)
{
    rig r;
    const oct_example example = one_input();
    begin_net(&r, wants_a_target, &example);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    REFUSED(rig_try(&r, &options, NULL), OCT_USAGE, "in training mode: ");
    cr_assert(rig_says("where is the target?"));
    cr_assert(r.root->training, "the mode is as it was");
    finish(&r);
}

Test(modes, the_table_has_both)
{
    rig r;
    const oct_example example = with_target();
    oct_text table = {0};
    begin_net(&r, loss_or_logits, &example);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    OK(oct_graph_table(oct_graph_of(r.root), &table));
    const char *training = strstr(table.data, "In training");
    cr_assert(training && strstr(table.data, "In evaluation"), "%s", table.data);
    cr_assert(strstr(training, "input_1") && strstr(training, "softmax"), "%s", table.data);
    cr_assert(strstr(table.data, "input_1") > training, "%s", table.data);
    oct_text_free(&table);
    finish(&r);
}

/* A part of the model that stays in eval mode while the rest trains. */
Test(modes, a_frozen_part_goes_by_its_own)
{
    rig r;
    const oct_example example = one_input();
    net *inner = begin_net(&r, scaled_in_training, &example);
    oct_module *root = NULL, *part = r.root;
    OK(oct_sequential_create(&root));
    OK(oct_sequential_append(root, &part));
    r.root = root;
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    train(&r, 1);
    oct_module_train(&inner->base, false);
    train(&r, 1);
    rig_convert(&r);
    finish(&r);
}
