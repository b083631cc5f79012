/* "Why add observer to a fakequant module?": prepare has several steps, and each tensor must come out
 * of them with one quantizer, not two. */
#include "core/base/mem.h"
#include "tests/requirements/rig.h"

typedef struct residual {
    oct_module base;
    oct_module *quant, *conv1, *bn1, *relu, *conv2, *bn2, *pool, *head, *dequant;
} residual;

/* relu is called twice, the first one's output is read twice. */
static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    residual *m = (residual *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->quant, in[0]);
    x = oct_call(cx, m->relu, oct_call(cx, m->bn1, oct_call(cx, m->conv1, x)));
    oct_tensor *y = oct_call(cx, m->bn2, oct_call(cx, m->conv2, x));
    y = oct_call(cx, m->relu, oct_add(cx, y, x));
    oct_tensor *both[] = {x, y};
    y = oct_call(cx, m->pool, oct_concat(cx, both, 2));
    return oct_call(cx, m->dequant, oct_call(cx, m->head, y));
}

static const oct_module_type residual_type = {.name = "residual", .forward = forward};

static residual *begin(rig *r)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &residual_type, sizeof(residual)));
    residual *m = (residual *)root;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, conv1, oct_conv2d_create(&m->conv1, 3, 8, rig_same(3), false));
    CHILD(m, bn1, oct_batch_norm_create(&m->bn1, 8));
    CHILD(m, relu, oct_relu_create(&m->relu));
    CHILD(m, conv2, oct_conv2d_create(&m->conv2, 8, 8, rig_same(3), false));
    CHILD(m, bn2, oct_batch_norm_create(&m->bn2, 8));
    CHILD(m, pool, oct_global_avg_pool_create(&m->pool));
    CHILD(m, head, oct_linear_create(&m->head, 16, 2, true));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    return m;
}

Test(why_one_observer, every_tensor_has_one_quantizer)
{
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT_STRIP, OCT_METHOD_JIT,
                                                 OCT_METHOD_SYMBOLIC};
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        rig r;
        begin(&r);
        oct_prepare_options options = rig_options(methods[i]);
        rig_prepare(&r, &options);
        oct_tensor_quantizer *list = NULL;
        size_t count = 0;
        OK(oct_graph_quantizers(oct_graph_of(r.root), &list, &count));
        for (size_t a = 0; a < count; a++)
            for (size_t b = a + 1; b < count; b++)
                cr_assert_neq(list[a].value, list[b].value, "two quantizers for %s", list[a].path);
        /* quant; conv1 and the sum with concat and pool, which share one; head. */
        cr_assert_eq(r.quantizers.count, 3);
        cr_assert_eq(rig_count(r.root, &oct_fake_quant_type), 3,
                     "and no other is left in the tree");
        oct_free(&list);
        rig_end(&r);
    }
}

/* "comparing the scales calculated twice seems to yield only minor differences": here there is one. */
Test(why_one_observer, a_step_updates_each_once)
{
    rig r;
    begin(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    rig_step(&r);
    for (size_t i = 0; i < r.quantizers.count; i++)
        cr_assert_eq(r.quantizers.items[i]->updates[0], 2, "calibration and one step");
    rig_convert(&r);
    rig_end(&r);
}

/* The swap adds the weight's quantizer only; the activation's is placed by the graph, on the output. */
Test(why_one_observer, the_weight_has_its_own_inside_of_the_module)
{
    rig r;
    residual *m = begin(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    cr_assert_eq(m->conv1->type, &oct_qat_conv_type);
    cr_assert_not_null(((oct_quantized *)m->conv1)->fake_quant);
    oct_text tree = {0};
    OK(oct_tree_write(&tree, r.root));
    cr_assert(strstr(tree.data, "per_channel"), "the weight's scheme is shown in\n%s", tree.data);
    oct_text_free(&tree);
    rig_end(&r);
}

Test(why_one_observer, preparing_twice_is_refused)
{
    rig r;
    begin(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "prepared already");
    rig_end(&r);
}

/* "This is true for both PTQ and QAT": prepare, calibrate, convert, without a step of training. The
 * deployed model has no observer, only the scales that they left. */
Test(why_one_observer, calibration_alone_is_enough_to_deploy)
{
    rig r;
    begin(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    for (int batch = 0; batch < 3; batch++)
        rig_calibrate(&r);
    rig_convert(&r);
    rig_end(&r);
}
