/* What an update may be made of beside one batch and its optimizer: several batches, clipped gradients,
 * averaged weights. */
#include "tests/launch/train_rig.h"

TestSuite(update, .init = set_up, .fini = tear_down, .timeout = 120);

/* Batch norms are folded before the first step, so nothing sums over a batch but losses and gradients. */
#define FOLDED "float.epochs=0 quant.batch_norm=folded optimizer.clip_norm=0.7 "

/* 40 samples are 2 and a half of the large batches; the short one is 3 of the smallest, which leave one out. */
static void check_accumulation(const char *one, const char *many)
{
    oct_recipe whole = make_recipe(one), parts = make_recipe(many);
    oct_trainer a, b;
    start(&a, &whole);
    start(&b, &parts);
    const int64_t steps = oct_plan_steps(&a.plan);
    cr_assert_eq(steps, oct_plan_steps(&b.plan));
    for (int64_t step = 1; step <= steps; step++) {
        oct_step_result of_one = {0}, of_many = {0};
        cr_assert_eq(oct_trainer_step(&a, &of_one), OCT_OK);
        cr_assert_eq(oct_trainer_step(&b, &of_many), OCT_OK);
        cr_assert(same(digest_of(&a), digest_of(&b)), "%s: step %lld", many, (long long)step);
        cr_assert_eq(of_one.samples, of_many.samples);
        cr_assert_float_eq(of_one.loss, of_many.loss, 1e-12);
        cr_assert_float_eq(of_one.metric, of_many.metric, 1e-9);
        cr_assert(of_one.grad_norm == of_many.grad_norm ||
                  (isnan(of_one.grad_norm) && isnan(of_many.grad_norm)));
    }
    oct_trainer_destroy(&a);
    oct_trainer_destroy(&b);
}

Test(update, several_batches_learn_what_one_of_all_their_samples_learns)
{
    check_accumulation(FOLDED, FOLDED "batch.size=8 batch.accumulate=2");
    check_accumulation(FOLDED, FOLDED "batch.size=4 batch.accumulate=4");
    check_accumulation(FOLDED "batch.size=24", FOLDED "batch.size=8 batch.accumulate=3");
    check_accumulation(FOLDED "optimizer.kind=lamb ema.decay=0.9 data.drop_last=true",
                       FOLDED "optimizer.kind=lamb ema.decay=0.9 data.drop_last=true batch.size=8 "
                              "batch.accumulate=2");
}

Test(update, a_step_of_several_batches_is_planned_as_one)
{
    oct_recipe recipe = make_recipe("batch.size=8 batch.accumulate=2");
    const oct_plan plan = oct_plan_of(&recipe, TRAIN);
    int64_t epoch, first;
    cr_assert_eq(plan.steps_per_epoch, 3);
    cr_assert_eq(oct_plan_batches(&plan, 1, &epoch, &first), 2);
    cr_assert_eq(first, 2);
    cr_assert_eq(oct_plan_batches(&plan, 2, &epoch, &first), 1);
    cr_assert_eq(first, 4);
    recipe.data_drop_last = true;
    cr_assert_eq(oct_plan_of(&recipe, TRAIN).steps_per_epoch, 2);
    cr_assert_eq(oct_plan_of(&recipe, 15).steps_per_epoch, 0);
    recipe.batch_accumulate = 100;
    cr_assert_eq(oct_plan_of(&recipe, TRAIN).steps_per_epoch, 0);
    recipe.data_drop_last = false;
    cr_assert_eq(oct_plan_of(&recipe, TRAIN).steps_per_epoch, 1);
}

static void check_taken_up(const char *keys, int64_t every)
{
    oct_recipe recipe = make_recipe(keys);
    const state_digest undisturbed = digest_of_run(&recipe);
    for (int64_t step = 1; step <= STEPS; step += every) {
        oct_trainer first, second;
        char name[32];
        snprintf(name, sizeof name, "step%lld", (long long)step);
        const char *folder = oct_tmp_path(&tmp, name);
        start(&first, &recipe);
        run_to(&first, step);
        const state_digest before = digest_of(&first);
        cr_assert_eq(oct_trainer_save(&first, folder, NULL), OCT_OK);
        cr_assert(same(before, digest_of(&first)), "saving moved the state");
        start(&second, &recipe);
        restore(&second, folder);
        cr_assert(same(before, digest_of(&second)), "restored at step %lld", (long long)step);
        run_to(&second, STEPS);
        cr_assert(same(undisturbed, digest_of(&second)), "taken up at step %lld", (long long)step);
        oct_trainer_destroy(&first);
        oct_trainer_destroy(&second);
    }
}

Test(update, averages_and_accumulation_can_be_taken_up_after_any_step)
{
    check_taken_up("ema.decay=0.9 batch.size=8 batch.accumulate=2 optimizer.clip_norm=0.5", 1);
}

Test(update, averages_with_lars_and_folding_can_be_taken_up)
{
    check_taken_up("ema.decay=0.8 ema.warmup=false optimizer.kind=lars optimizer.trust=0.02 "
                   "qat.fold_batch_norm=true",
                   2);
}

static const float *weight_of(const oct_trainer *trainer)
{
    return oct_f32(&trainer->training.params.items[0]->value);
}

/* The average is worked out again, in double, and is what an evaluation sees and QAT begins with. */
Test(update, evaluation_and_the_next_phase_see_the_averaged_weights)
{
    enum { WATCHED = 16 };
    oct_recipe recipe = make_recipe("ema.decay=0.7 ema.warmup=false");
    oct_trainer trainer;
    oct_scores scores;
    double average[WATCHED];
    start(&trainer, &recipe);
    for (int64_t step = 1; step <= 3; step++) {
        run_to(&trainer, step);
        for (int i = 0; i < WATCHED; i++) {
            const double w = (double)weight_of(&trainer)[i];
            average[i] = step == 1 ? w : 0.7 * average[i] + 0.3 * w;
        }
    }
    const state_digest trained = digest_of(&trainer);
    cr_assert_eq(oct_trainer_evaluate(&trainer, &scores), OCT_OK);
    cr_assert(same(trained, digest_of(&trainer)), "an evaluation moved the state");
    cr_assert(fabs(average[0] - (double)weight_of(&trainer)[0]) > 1e-5, "nothing was averaged");
    run_to(&trainer, 4); /* calibration */
    for (int i = 0; i < WATCHED; i++)
        cr_assert_float_eq((double)weight_of(&trainer)[i], average[i], 1e-7);
    oct_trainer_destroy(&trainer);
}

/* A checkpoint holds the model that training evaluates. */
Test(update, a_checkpoint_holds_the_model_that_was_evaluated)
{
    static const int64_t steps[] = {2, 4, 7, 9, STEPS};
    oct_recipe recipe = make_recipe("ema.decay=0.9 optimizer.kind=adamw");
    oct_trainer trainer;
    start(&trainer, &recipe);
    for (size_t i = 0; i < OCT_COUNT(steps); i++) {
        oct_checkpoint checkpoint;
        oct_module *model;
        bool prepared;
        oct_scores there, here, raw;
        float a[TEST * CLASSES], b[TEST * CLASSES], c[TEST * CLASSES];
        char name[32];
        snprintf(name, sizeof name, "at%lld", (long long)steps[i]);
        const char *folder = oct_tmp_path(&tmp, name);
        run_to(&trainer, steps[i]);
        cr_assert_eq(oct_trainer_save(&trainer, folder, NULL), OCT_OK);
        cr_assert_eq(oct_checkpoint_newest(&checkpoint, folder, NULL), OCT_OK);
        cr_assert_eq(oct_build_from_checkpoint(&model, &checkpoint, &recipe, &test_data, &prepared),
                     OCT_OK);
        const oct_collective *one = &oct_collective_one;
        oct_average *averages = &trainer.training.optim.average;
        const bool averaged = averages->in_model;
        cr_assert_eq(oct_evaluate(NULL, model, one, &recipe, &test_data, &here, b), OCT_OK);
        cr_assert_eq(oct_evaluate(NULL, trainer.model, one, &recipe, &test_data, &raw, c), OCT_OK);
        oct_average_swap(averages, true);
        cr_assert_eq(oct_evaluate(NULL, trainer.model, one, &recipe, &test_data, &there, a),
                     OCT_OK);
        oct_average_swap(averages, averaged);
        cr_assert_eq(memcmp(a, b, sizeof a), 0, "step %lld", (long long)steps[i]);
        cr_assert_eq(memcmp(a, c, sizeof a) == 0, steps[i] == 4 || steps[i] == STEPS);
        cr_assert_eq(oct_trainer_evaluate(&trainer, &raw), OCT_OK);
        cr_assert_eq(raw.correct, here.correct);
        oct_module_destroy(&model);
        oct_checkpoint_close(&checkpoint);
    }
    oct_trainer_destroy(&trainer);
}

Test(update, a_model_of_averages_converts_to_what_was_evaluated)
{
    check_end("ema.decay=0.9");
    check_end("ema.decay=0.99 qat.fold_batch_norm=true batch.size=8 batch.accumulate=2");
    check_end("ema.decay=0.9 qat.epochs=0");
    check_end("ema.decay=0.9 quant.target=pow2 quant.batch_norm=folded");
    check_end("ema.decay=0.9 float.epochs=0 qat.freeze_scales=1 qat.freeze_batch_norm=1");
}
