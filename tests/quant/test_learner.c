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
            "the model was prepared behind the learner's back; call oct_learner_rebind first");
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
