/* A steady step of every phase takes no memory: models with branches, depthwise layers and linear ones,
 * one thread and three. */
#include "tests/launch/train_rig.h"

TestSuite(steady, .init = set_up, .fini = tear_down, .timeout = 300);

enum { SETTLING = 4, STEADY = 3 };

static void take_steps(oct_trainer *trainer, int64_t steps)
{
    oct_step_result result;
    for (int64_t i = 0; i < steps; i++)
        cr_assert_eq(oct_trainer_step(trainer, &result), OCT_OK, "step %d: %s", (int)trainer->step,
                     oct_error_message(0));
}

/* The first steps of a phase may take memory. */
static void check_phase(oct_trainer *trainer, oct_phase phase)
{
    const oct_plan *plan = &trainer->plan;
    cr_assert_geq(plan->begin[phase + 1] - plan->begin[phase], SETTLING + STEADY);
    take_steps(trainer, plan->begin[phase] + SETTLING - trainer->step);
    size_t live = oct_mem_live();
    oct_mem_fail_after(1);
    take_steps(trainer, STEADY);
    oct_mem_fail_after(0);
    cr_assert_eq(oct_mem_live(), live);
    take_steps(trainer, plan->begin[phase + 1] - trainer->step);
}

static void check_model(const char *keys)
{
    static const oct_phase phases[] = {OCT_PHASE_FLOAT, OCT_PHASE_QAT, OCT_PHASE_QAT_BN_FROZEN,
                                       OCT_PHASE_QAT_SCALES_FROZEN};
    oct_recipe recipe = make_recipe(keys);
    oct_trainer trainer;
    start(&trainer, &recipe);
    for (size_t i = 0; i < OCT_COUNT(phases); i++)
        check_phase(&trainer, phases[i]);
    oct_trainer_destroy(&trainer);
}

#define PLAN "float.epochs=3 qat.epochs=8 float.lr=0.001 qat.lr=0.001 "

Test(steady, a_step_takes_no_memory)
{
    check_model(PLAN "model.name=cnn-small");
    check_model(PLAN "model.name=resnet20");
    check_model(PLAN "model.name=mobilenetv2c");
}

Test(steady, nor_with_threads_other_scales_and_numerics)
{
    omp_set_num_threads(3);
    check_model(PLAN "model.name=resnet20 quant.scales=current threads=3");
    check_model(PLAN "model.name=cnn-small quant.bits=16 numerics=f32 threads=3");
}
