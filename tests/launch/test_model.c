/* The models: they have the sizes of PyTorch's, run forward and backward on a small batch, and
 * can be fused by hand where they say so. */
#include "core/graph/trace.h"
#include "launch/model/model.h"
#include "quant/module/quant_modules.h"
#include "tests/core/op_rig.h"
#include "tests/golden/model_golden.h"
#include "tests/support/check_status.h"
#include "tests/support/cross_entropy.h"

#include <math.h>

/* Its parameters are 0. */
static oct_module *empty(const oct_model_spec *spec)
{
    oct_module *root;
    RIG_OK(spec->build(&root, 32, 32, 3, 10));
    return root;
}

static oct_module *built(const oct_model_spec *spec)
{
    oct_module *root = empty(spec);
    RIG_OK(oct_init_parameters(root, 1));
    return root;
}

static void check_size(oct_module *root, const char *name, int64_t numel)
{
    oct_leaves leaves = oct_leaves_split(1, 1, 0, 1);
    oct_params params;
    RIG_OK(oct_params_bind(&params, root, &leaves));
    cr_assert_eq(params.numel, numel, "%s has %lld trained numbers, not %lld", name,
                 (long long)params.numel, (long long)numel);
    oct_params_unbind(&params);
    oct_module_destroy(&root);
}

Test(model, every_one_has_the_size_of_pytorchs, .timeout = 60)
{
    cr_assert_eq(oct_registry_count(&oct_model_table), OCT_COUNT(golden_models));
    for (size_t i = 0; i < OCT_COUNT(golden_models); i++) {
        const oct_model_spec *spec = oct_model_find(golden_models[i].name);
        cr_assert(spec, "%s", golden_models[i].name);
        check_size(empty(spec), spec->name, golden_models[i].numel);
    }
    check_nothing_held();
}

/* The figures that papers, torchvision and MLPerf Tiny give. */
Test(model, known_networks_have_their_published_size, .timeout = 60)
{
    static const struct {
        const char *name;
        int64_t h, w, c, classes, numel;
    } known[] = {{"resnet18", 224, 224, 3, 1000, 11689512},
                 {"resnet50", 224, 224, 3, 1000, 25557032},
                 {"mobilenetv2", 224, 224, 3, 1000, 3504872},
                 {"autoencoder", 5, 128, 1, 640, 267928}};
    for (size_t i = 0; i < OCT_COUNT(known); i++) {
        oct_module *root;
        RIG_OK(oct_model_find(known[i].name)
                   ->build(&root, known[i].h, known[i].w, known[i].c, known[i].classes));
        check_size(root, known[i].name, known[i].numel);
    }
    check_nothing_held();
}

static oct_loss loss;

static oct_tensor *loss_of(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    static const int32_t labels[] = {3, 9, 0};
    (void)n;
    oct_tensor *y = oct_call(cx, root, x[0]);
    if (y && y->shape.ndim == 4) y = oct_global_avg_pool(cx, y);
    return oct_cross_entropy(cx, y, labels, 0, &loss);
}

static void check_gradients(const oct_model_spec *spec)
{
    rig r = rig_of(NULL, loss_of, 3, 2);
    r.root = built(spec);
    RIG_OK(oct_params_bind(&r.params, r.root, &r.leaves));
    rig_input(&r, OCT_SHAPE(3, 32, 32, 3), 1e-3F);
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s: %s", spec->name, oct_error_message(0));
    cr_assert(isfinite(loss.loss_sum), "%s: the loss is %g", spec->name, loss.loss_sum);
    rig_backward(&r, y, NULL);
    for (size_t i = 0; i < r.params.count; i++) {
        const oct_param *p = r.params.items[i];
        double size = 0;
        for (int64_t k = 0; k < oct_numel(&p->value); k++)
            size += fabs((double)p->grad[k]);
        cr_assert(isfinite(size), "%s: the gradient of parameter %zu (%s) is %g", spec->name, i,
                  p->name, size);
        /* The bias of a layer before a batch norm has the gradient 0. */
        cr_assert(size > 0 || strcmp(p->name, "bias") == 0, "%s: parameter %zu (%s) gets none",
                  spec->name, i, p->name);
    }
    rig_end(&r);
}

Test(model, every_one_runs_forward_and_backward, .timeout = 300)
{
    for (size_t i = 0; i < oct_registry_count(&oct_model_table); i++)
        check_gradients(oct_registry_at(&oct_model_table, i));
    check_nothing_held();
}

Test(model, every_one_takes_its_smallest_image, .timeout = 300)
{
    for (size_t i = 0; i < oct_registry_count(&oct_model_table); i++) {
        const oct_model_spec *spec = oct_registry_at(&oct_model_table, i);
        oct_module *root;
        RIG_OK(spec->build(&root, spec->min_size, spec->min_size, 1, 7));
        oct_module_train(root, false);
        rig r = rig_of(NULL, rig_call_root, 1, 1); /* fills no parameters */
        r.root = root;
        RIG_OK(oct_params_bind(&r.params, root, &r.leaves));
        rig_input(&r, OCT_SHAPE(1, spec->min_size, spec->min_size, 1), 1e-3F);
        const oct_tensor *y = rig_run(&r, false);
        cr_assert(y, "%s: %s", spec->name, oct_error_message(0));
        oct_shape pixels = OCT_SHAPE(1, spec->min_size, spec->min_size, 7);
        oct_shape want = spec->per_pixel ? pixels : OCT_SHAPE(1, 7);
        cr_assert(oct_shape_equal(&y->shape, &want), "%s", spec->name);
        rig_end(&r);
    }
}

Test(model, a_pyramid_without_its_hook_says_so, .timeout = 60)
{
    oct_module *root = built(oct_model_find("fpn-small")), *other;
    RIG_OK(oct_relu_create(&other));
    oct_hooks_move(&oct_module_find(root, "backbone.stage2")->hooks, &other->hooks);
    rig r = rig_of(root, rig_call_root, 1, 1);
    rig_input(&r, OCT_SHAPE(1, 8, 8, 3), 1);
    cr_assert_null(rig_run(&r, false));
    check_said("backbone.stage2 handed no features over; leave its hook on");
    oct_module_destroy(&other);
    rig_end(&r);
}

Test(model, a_pyramid_without_memory_leaves_nothing_after, .timeout = 60)
{
    oct_status status = OCT_RESOURCE;
    for (int n = 1; status != OCT_OK; n++) {
        oct_module *root = NULL;
        oct_mem_fail_after(n);
        status = oct_model_find("fpn-small")->build(&root, 8, 8, 1, 2);
        oct_mem_fail_after(0);
        oct_module_destroy(&root); /* of a failure what is built so far */
        cr_assert_eq(oct_mem_live(), 0, "failure %d leaks", n);
    }
}

static int functional(const oct_trace *trace, const char *op)
{
    int count = 0;
    for (size_t i = 0; i < trace->num_nodes; i++)
        count += !trace->nodes[i].module && strcmp(trace->nodes[i].op, op) == 0;
    return count;
}

Test(model, a_trace_sees_the_functions_that_forwards_call, .timeout = 60)
{
    static const struct {
        const char *model, *op;
        int count;
    } want[] = {{"resnet18c", "add", 8},    {"resnet18c", "relu", 17},
                {"fpn-small", "add", 2},    {"fpn-small", "relu", 3},
                {"fpn-small", "concat", 1}, {"fpn-small", "interpolate", 2},
                {"resnet50", "add", 16},    {"resnet50", "relu", 49},
                {"vgg11c", "relu", 0},      {"mobilenetv2c", "add", 0}};
    for (size_t i = 0; i < OCT_COUNT(want); i++) {
        oct_module *root = empty(oct_model_find(want[i].model));
        oct_trace trace;
        RIG_OK(oct_trace_run(&trace, root, OCT_EXAMPLE(OCT_SHAPE(1, 32, 32, 3))));
        cr_assert_eq(functional(&trace, want[i].op), want[i].count, "%s: %d of %s", want[i].model,
                     functional(&trace, want[i].op), want[i].op);
        oct_trace_free(&trace);
        oct_module_destroy(&root);
    }
}

static oct_status count_batch_norms(void *user, oct_module *module)
{
    if (module->type == &oct_batch_norm_type && module->parent->type != &oct_qat_conv_type)
        ++*(int *)user;
    return OCT_OK;
}

/* The output of an evaluation on fixed values: 10 for each of 2 images, or for each of their pixels. */
enum { MOST_LOGITS = 2 * 32 * 32 * 10 };
static int64_t evaluate(oct_module *root, float logits[MOST_LOGITS])
{
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(2, 2, 0, 1), false);
    oct_tensor *x = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(2, 32, 32, 3));
    rig_fill(oct_f32(x), oct_numel(x), 1e-3F, 5);
    oct_module_train(root, false);
    const oct_tensor *y = oct_call(cx, root, x);
    cr_assert(y, "%s", oct_error_message(0));
    int64_t count = oct_numel(y);
    memcpy(logits, y->data, (size_t)count * sizeof(float));
    oct_module_train(root, true);
    oct_context_destroy(&cx);
    return count;
}

Test(model, fused_by_hand_it_computes_what_it_did, .timeout = 300)
{
    for (size_t i = 0; i < oct_registry_count(&oct_model_table); i++) {
        const oct_model_spec *spec = oct_registry_at(&oct_model_table, i);
        if (!spec->fuse) continue;
        oct_module *root = built(spec);
        static float before[MOST_LOGITS], after[MOST_LOGITS];
        int64_t count = evaluate(root, before);
        cr_assert_eq(spec->fuse(&root), OCT_OK, "%s: %s", spec->name, oct_error_message(0));
        cr_assert_eq(evaluate(root, after), count);
        /* Float sums in another order, over up to 50 layers. */
        oct_check_near_f32(after, before, count, 1e-3, 1e-3, spec->name);
        int left = 0;
        RIG_OK(oct_module_walk(root, count_batch_norms, &left));
        cr_assert_eq(left, 0, "%s: %d batch norms are left", spec->name, left);
        oct_module_destroy(&root);
    }
    check_nothing_held();
}
