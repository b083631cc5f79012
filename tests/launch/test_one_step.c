/* The training step is one: a program of one's own that takes the steps of quant/train/train_step.h on the batches of a
 * run has, after each of them, the bits of the octet program. */
#include "tests/launch/train_rig.h"

TestSuite(one_step, .init = set_up, .fini = tear_down, .timeout = 120);

/* What a user writes: the model, its steps, and what changes between the phases. */
typedef struct own_program {
    const oct_recipe *recipe;
    oct_module *model;
    oct_train_step step;
    oct_phase phase;
    oct_loader *loader; /* the data of the run */
    const oct_plan *plan;
    float images[16 * SIZE * SIZE];
} own_program;

static void must(oct_status status)
{
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
}

static void begin_program(own_program *p)
{
    const oct_optim_config config = oct_recipe_optim(p->recipe);
    must(oct_build_model(&p->model, p->recipe, &train_data));
    oct_module_train(p->model, true);
    must(oct_train_step_create(&p->step, p->model, &config, 16, 4, &oct_collective_one));
    p->step.numerics = p->recipe->numerics;
    p->step.seed = (uint64_t)p->recipe->seed;
}

static void enter(own_program *p, oct_phase phase)
{
    for (; p->phase < phase; oct_set_phase(p->model, &p->step.quantizers, p->phase)) {
        p->phase++;
        if (p->phase == OCT_PHASE_CALIBRATE) {
            must(oct_prepare_model(&p->model, p->recipe, &train_data, NULL));
            oct_module_train(p->model, true);
        } else if (p->phase == OCT_PHASE_QAT_BN_FROZEN && p->recipe->qat_fold_batch_norm) {
            must(oct_fold_batch_norm(p->model));
        } else {
            continue;
        }
        must(oct_train_step_rebind(&p->step, p->model));
    }
}

static void take_step(own_program *p, int64_t at, oct_step_result *result)
{
    int64_t epoch, step_in_epoch;
    enter(p, oct_plan_phase(p->plan, at));
    oct_plan_epoch(p->plan, at, &epoch, &step_in_epoch);
    const int64_t samples = oct_loader_samples(p->loader, step_in_epoch);
    const oct_leaves leaves = oct_leaves_split(samples, 4, 0, 1);
    oct_goals goals;
    must(oct_loader_fetch(p->loader, epoch, step_in_epoch, &leaves, p->images, &goals));
    const oct_batch batch = {
        1, {OCT_SHAPE(samples, SIZE, SIZE, 1)}, {p->images}, .labels = goals.labels};
    p->step.update = (uint64_t)at; /* numbers count calibration, too */
    if (p->phase == OCT_PHASE_CALIBRATE)
        must(oct_train_step_evaluate(&p->step, &batch, NULL, 0, result));
    else
        must(oct_train_step_run(&p->step, &batch, (float)oct_plan_lr(p->plan, p->recipe, at),
                                result));
}

static void compare(const char *keys)
{
    const oct_recipe recipe = make_recipe(keys);
    oct_trainer trainer;
    static own_program own;
    start(&trainer, &recipe);
    own = (own_program){.recipe = &recipe, .loader = &trainer.loader, .plan = &trainer.plan};
    begin_program(&own);
    for (int64_t at = 0; at < STEPS; at++) {
        oct_step_result theirs, ours;
        take_step(&own, at, &ours);
        must(oct_trainer_step(&trainer, &theirs));
        cr_assert(ours.loss == theirs.loss && ours.metric == theirs.metric, "%s: step %d", keys,
                  (int)at);
        const oct_optim *optim = own.phase == OCT_PHASE_CALIBRATE ? NULL : &own.step.optim;
        cr_assert(same(digest_of_state(own.model, optim), digest_of(&trainer)), "%s: step %d", keys,
                  (int)at);
    }
    oct_train_step_destroy(&own.step);
    oct_module_destroy(&own.model);
    oct_trainer_destroy(&trainer);
}

Test(one_step, of_library_and_program_leaves_the_same_bits)
{
    compare("");
    compare("qat.fold_batch_norm=true optimizer.kind=adamw numerics=f32");
    compare("numerics=bf16");
    compare("quant.scales=current quant.bits=16 quant.method=symbolic");
}

/* A forward that reads its tensors after the backward would keep all of them. */
Test(one_step, gives_the_forward_back_while_the_backward_goes)
{
    const oct_recipe recipe = make_recipe("model.name=resnet20");
    static own_program own;
    oct_trainer trainer;
    oct_step_result result;
    size_t peak[2];
    start(&trainer, &recipe);
    own = (own_program){.recipe = &recipe, .loader = &trainer.loader, .plan = &trainer.plan};
    begin_program(&own);
    for (int64_t at = 0; at < 2; at++) {
        const size_t before = oct_mem_live();
        oct_mem_peak_reset();
        if (at == 0)
            take_step(&own, 0, &result);
        else
            run_to(&trainer, 1);
        peak[at] = oct_mem_peak() - before;
    }
    cr_assert_eq(peak[0], peak[1], "%zu bytes by the library, %zu by the program", peak[0],
                 peak[1]);
    oct_train_step_destroy(&own.step);
    oct_module_destroy(&own.model);
    oct_trainer_destroy(&trainer);
}
