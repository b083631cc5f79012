/* The steps of learner.h: they learn, what is not finite changes nothing, and a changed tree is taken
 * up. That no bit depends on ranks is judged in tests/dist. */
#include "core/base/mem.h"
#include "quant/learner.h"
#include "tests/quant/graph_nets.h"
#include "tests/support/check_status.h"

#include <math.h>

TestSuite(learner, .timeout = 60);

static const oct_optim_config sgd = {.kind = OCT_SGD, .momentum = 0.9f};

static void begin(rig *r, oct_learner *learner)
{
    net_kind_begin(r, &net_kinds[0], true);
    MUST(oct_learner_create(learner, r->root, &sgd, 8, 4, &oct_collective_one));
}

static oct_shape batch_of(const rig *r)
{
    oct_shape shape = r->example.shape[0];
    shape.dim[0] = 8;
    return shape;
}

static double steps(rig *r, oct_learner *learner, int count)
{
    oct_loss loss = {0};
    for (int i = 0; i < count; i++)
        MUST(oct_learner_step(learner, batch_of(r), r->x[0], r->labels, 0.02f, &loss));
    return loss.loss_sum;
}

Test(learner, learns_in_float_and_quantized)
{
    rig r;
    oct_learner learner;
    float y[8 * 2];
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    begin(&r, &learner);
    double before = steps(&r, &learner, 1), after = steps(&r, &learner, 20);
    cr_assert_lt(after, 0.8 * before);
    MUST(oct_prepare(&r.root, &r.example, &options, NULL));
    REFUSED(oct_learner_forward(&learner, batch_of(&r), r.x[0], y), OCT_USAGE,
            "the model has changed since its parameters were bound (prepare, folding); call "
            "oct_learner_rebind first");
    MUST(oct_learner_rebind(&learner, r.root));
    MUST(oct_set_fake_quant(r.root, OCT_STATE_CALIBRATION));
    MUST(oct_learner_forward(&learner, batch_of(&r), r.x[0], y));
    MUST(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    before = steps(&r, &learner, 1), after = steps(&r, &learner, 20);
    cr_assert_lt(after, before);
    cr_assert(isfinite((double)y[0]));
    oct_learner_destroy(&learner);
    rig_end(&r);
    check_nothing_held();
}

Test(learner, a_loss_that_is_not_finite_changes_nothing)
{
    rig r;
    oct_learner learner;
    oct_loss loss;
    begin(&r, &learner);
    oct_f32(&learner.params.items[learner.params.count - 1]->value)[0] = INFINITY;
    const oct_param *param = learner.params.items[0];
    float before = oct_f32(&param->value)[0];
    cr_assert_eq(oct_learner_step(&learner, batch_of(&r), r.x[0], r.labels, 0.02f, &loss),
                 OCT_NUMERIC);
    check_said("the loss is not finite; lower the learning rate (now 0.02)");
    cr_assert_eq(oct_f32(&param->value)[0], before);
    oct_learner_destroy(&learner);
    rig_end(&r);
    check_nothing_held();
}

/* Two layers without bias behind each other, the first of zeros: the loss is log 2 whatever the second
 * one's weights are, and the gradient of the first is made of them. */
static oct_module *two_layers(float second)
{
    oct_module *root = NULL, *layer[2];
    MUST(oct_sequential_create(&root));
    for (int i = 0; i < 2; i++) {
        MUST(oct_linear_create(&layer[i], 2, 2, false));
        float *w = oct_f32(&layer[i]->params[0]->value);
        for (int k = 0; k < 4; k++)
            w[k] = i == 1 && k == 0 ? second : 0.0f;
        MUST(oct_sequential_append(root, &layer[i]));
    }
    return root;
}

static void check_step_refused(float second, float lr, const char *sentence)
{
    oct_learner learner;
    oct_loss loss;
    float x[4] = {100, 100, 100, 100};
    const int32_t labels[2] = {0, 0};
    oct_module *root = two_layers(second);
    MUST(oct_learner_create(&learner, root, &sgd, 2, 2, &oct_collective_one));
    oct_status status = oct_learner_step(&learner, OCT_SHAPE(2, 2), x, labels, lr, &loss);
    cr_assert_eq(status, OCT_NUMERIC);
    cr_assert_float_eq(loss.loss_sum, 2 * log(2), 1e-6);
    check_said(sentence);
    oct_learner_destroy(&learner);
    oct_module_destroy(&root);
    check_nothing_held();
}

Test(learner, a_gradient_or_a_parameter_that_is_not_finite_is_said)
{
    check_step_refused(1e38f, 0.02f,
                       "a gradient is not finite; lower the learning rate (now 0.02)");
    check_step_refused(1.0f, 3e38f,
                       "the update made a value of the parameter 0.weight infinite or NaN");
}

/* Prepare and folding destroy batch norms whose parameters are bound; nothing of them may be touched
 * behind that, in any order of calls. */
static void check_change(bool fold_at_prepare, bool root_first)
{
    rig r;
    oct_learner learner;
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.fold_batch_norm = fold_at_prepare;
    begin(&r, &learner);
    steps(&r, &learner, 2);
    MUST(oct_prepare(&r.root, &r.example, &options, NULL));
    MUST(oct_learner_rebind(&learner, r.root));
    MUST(oct_set_fake_quant(r.root, OCT_STATE_CALIBRATION));
    MUST(oct_learner_forward(&learner, batch_of(&r), r.x[0], NULL));
    MUST(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    steps(&r, &learner, 2);
    if (!fold_at_prepare) {
        oct_loss loss;
        MUST(oct_fold_batch_norm(r.root));
        REFUSED(oct_learner_step(&learner, batch_of(&r), r.x[0], r.labels, 0.02f, &loss), OCT_USAGE,
                "the model has changed since its parameters were bound");
        MUST(oct_learner_rebind(&learner, r.root));
        steps(&r, &learner, 2);
    }
    if (!root_first) oct_learner_destroy(&learner);
    rig_end(&r);
    if (root_first) oct_learner_destroy(&learner);
    check_nothing_held();
}

Test(learner, the_tree_may_change_and_end_while_it_is_bound)
{
    for (int i = 0; i < 4; i++)
        check_change(i % 2, i / 2);
}

Test(learner, survives_every_failed_allocation)
{
    rig r;
    oct_learner learner;
    net_kind_begin(&r, &net_kinds[0], true);
    size_t held = oct_mem_live();
    oct_status status = OCT_RESOURCE;
    for (int64_t n = 1; status != OCT_OK; n++) {
        oct_mem_fail_after(n);
        status = oct_learner_create(&learner, r.root, &sgd, 8, 4, &oct_collective_one);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
        if (status == OCT_OK) oct_learner_destroy(&learner);
        cr_assert_eq(oct_mem_live(), held);
    }
    cr_assert_eq(oct_learner_create(&learner, r.root, &sgd, 0, 4, &oct_collective_one), OCT_USAGE);
    check_said("both must be at least 1");
    rig_end(&r);
    check_nothing_held();
}
