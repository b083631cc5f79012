/* The trainer takes one training step after another, and changes the model between the phases. */
#include "launch/train/trainer_impl.h"

#include "core/base/mem.h"
#include "io/model/class_names.h"
#include "launch/session/build.h"
#include "launch/train/run_check.h"
#include "launch/session/task.h"

#include <stdio.h>

static oct_status start_steps(oct_trainer *trainer)
{
    const oct_recipe *recipe = trainer->recipe;
    const oct_optim_config optimizer = oct_recipe_optim(recipe);
    oct_module_train(trainer->model, true);
    OCT_TRY(oct_train_step_create(&trainer->training, trainer->model, &optimizer,
                                  oct_trainer_full_batch(trainer), recipe->batch_leaf,
                                  trainer->group));
    OCT_CHECK(trainer->training.params.count > 0 || recipe->float_epochs + recipe->qat_epochs == 0,
              OCT_PREPARE,
              "%s has no parameters, so there is nothing to learn; octet calibrate makes an int8 "
              "model of it",
              oct_recipe_model(recipe));
    trainer->training.loss = oct_task_loss(recipe);
    trainer->training.numerics = recipe->numerics;
    trainer->training.norm_group = oct_recipe_norm_group(recipe);
    trainer->training.seed = (uint64_t)recipe->seed;
    const oct_average_options average = {recipe->ema_decay, recipe->ema_warmup};
    return oct_train_step_average(&trainer->training, &average);
}

oct_optim *oct_trainer_optim(oct_trainer *trainer)
{
    return trainer->phase == OCT_PHASE_CALIBRATE ? NULL : &trainer->training.optim;
}

/* The tree changes where the phase asks for it, and where it does, training goes on from the averaged weights; the
 * phases differ in what they need, so each starts with memory of its own. */
static oct_status change_tree(oct_trainer *trainer)
{
    const oct_recipe *recipe = trainer->recipe;
    oct_train_step *training = &trainer->training;
    if (trainer->phase == OCT_PHASE_CALIBRATE) {
        oct_average_swap(&training->optim.average, true);
        OCT_TRY(oct_prepare_model(&trainer->model, recipe, trainer->train_data, NULL));
        OCT_TRY(oct_trainer_equalize(trainer));
        oct_module_train(trainer->model, true);
        return oct_train_step_rebind(training, trainer->model);
    }
    const bool corrects =
        recipe->quant_rounding != OCT_ROUNDING_NEAREST || recipe->quant_bias_correction;
    if (trainer->phase == OCT_PHASE_QAT && !trainer->restores && corrects) {
        OCT_TRY(oct_trainer_correct(trainer));
        return oct_train_step_rebind(training, trainer->model);
    }
    if (trainer->phase == OCT_PHASE_QAT_BN_FROZEN && !trainer->restores &&
        oct_folds_by(recipe, trainer->phase)) {
        oct_average_swap(&training->optim.average, true);
        OCT_TRY(oct_fold_batch_norm(trainer->model));
        return oct_train_step_rebind(training, trainer->model);
    }
    return oct_train_step_renew_memory(training);
}

oct_status oct_trainer_enter(oct_trainer *trainer, oct_phase phase)
{
    while (trainer->phase < phase) {
        oct_saver_wait_copied(trainer->saver);
        trainer->phase++;
        oct_forward_end(&trainer->calibration.forward);
        OCT_TRY(change_tree(trainer));
        oct_set_phase(trainer->model, &trainer->training.quantizers, trainer->phase);
    }
    return OCT_OK;
}

oct_status oct_trainer_create(oct_trainer *trainer, const oct_recipe *recipe,
                              const oct_collective *group, const oct_dataset *train_data,
                              const oct_dataset *test_data)
{
    oct_status status = OCT_OK;
    *trainer = (oct_trainer){
        .recipe = recipe,
        .group = group,
        .train_data = train_data,
        .test_data = test_data,
    };
    OCT_TRY(oct_run_check(recipe, train_data, test_data, group->size));
    trainer->plan = oct_plan_of(recipe, train_data->count);
    OCT_TRY_OUT(oct_try_deploy(recipe, train_data, &trainer->report, &trainer->exports));
    OCT_TRY_OUT(oct_build_model(&trainer->model, recipe, train_data));
    OCT_TRY_OUT(start_steps(trainer));
    OCT_TRY_OUT(oct_trainer_batches_create(trainer));
    OCT_TRY_OUT(oct_rank_checks_create(trainer));
out:
    if (status != OCT_OK) oct_trainer_destroy(trainer);
    return status;
}

void oct_trainer_release_memory(oct_trainer *trainer)
{
    oct_forward_end(&trainer->calibration.forward);
    oct_train_step_destroy(&trainer->training);
    oct_teacher_destroy(&trainer->teacher);
    oct_mem_trim();
}

void oct_trainer_destroy(oct_trainer *trainer)
{
    oct_trainer_release_memory(trainer);
    oct_module_destroy(&trainer->model);
    oct_loader_deinit(&trainer->loader);
    oct_rank_checks_destroy(trainer);
    oct_free(&trainer->images);
    oct_free(&trainer->logits);
    oct_text_free(&trainer->report);
    oct_text_free(&trainer->exports);
}

bool oct_trainer_done(const oct_trainer *trainer)
{
    return trainer->step >= oct_plan_steps(&trainer->plan);
}

/* Whether the step at hand may be skipped: not after too many, nor where all of calibration would be. */
static bool may_skip(const oct_trainer *trainer)
{
    const int64_t *begin = trainer->plan.begin, row = trainer->skips.row;
    const bool last_of_calibration = trainer->step + 1 == begin[OCT_PHASE_QAT];
    return trainer->recipe->nonfinite_step == OCT_NONFINITE_SKIP &&
           row < trainer->recipe->nonfinite_limit &&
           !(last_of_calibration && row + 1 >= begin[OCT_PHASE_QAT] - begin[OCT_PHASE_CALIBRATE]);
}

/* Numbers go wrong on all ranks at once: what is wrong, where, what to do, what is left. */
static oct_status went_wrong(const oct_trainer *trainer)
{
    const oct_plan_position position = oct_plan_position_at(&trainer->plan, trainer->step);
    const char *part = trainer->phase == OCT_PHASE_FLOAT ? "float" : "qat";
    char what[640], remedy[64] = "", skipped[64] = "", newest[64] = "there is no checkpoint yet";
    snprintf(what, sizeof(what), "%s", oct_fail_text(0));
    if (trainer->phase != OCT_PHASE_CALIBRATE)
        snprintf(remedy, sizeof(remedy), ", which is %s.lr, or give it %s.warmup", part, part);
    if (trainer->skips.row > 0)
        snprintf(skipped, sizeof(skipped), "; %lld step%s before it %s skipped",
                 (long long)trainer->skips.row, trainer->skips.row == 1 ? "" : "s",
                 trainer->skips.row == 1 ? "was" : "were");
    OCT_TRY(oct_saver_settle(trainer->saver));
    if (trainer->saver && trainer->saver->step >= 0)
        snprintf(newest, sizeof(newest), "newest good checkpoint step-%08lld.h5",
                 (long long)trainer->saver->step);
    return oct_fail(OCT_NUMERIC, "step %lld (epoch %lld, phase %s): %s%s%s; %s",
                    (long long)trainer->step + 1, (long long)position.epoch,
                    oct_phase_name(trainer->phase), what, remedy, skipped, newest);
}

static oct_status take_batches(oct_trainer *trainer, const oct_step_batches *b,
                               oct_step_result *result)
{
    oct_train_step *training = &trainer->training;
    const bool calibrates = trainer->phase == OCT_PHASE_CALIBRATE;
    const double lr = oct_plan_lr(&trainer->plan, trainer->recipe, trainer->step);
    training->update = (uint64_t)trainer->step;
    training->nonfinite = may_skip(trainer) ? OCT_NONFINITE_SKIP : OCT_NONFINITE_STOP;
    /* Parameters change in the update, but for a step that is undone, and what plug-ins may do. */
    if (training->nonfinite == OCT_NONFINITE_SKIP || trainer->recipe->plugins.count > 0)
        oct_saver_wait_copied(trainer->saver);
    OCT_TRY(oct_train_step_begin(training, b->count, b->samples, (float)lr));
    for (int64_t i = 0; i < b->count; i++) {
        oct_batch batch;
        oct_leaves leaves;
        OCT_TRY(oct_trainer_fetch(trainer, b->epoch, b->first + i, &batch, &leaves));
        OCT_TRY(oct_trainer_ask(trainer, &leaves, &batch));
        OCT_TRY(calibrates ? oct_trainer_observe(trainer, &batch, &leaves)
                           : oct_train_step_learn(training, &batch));
    }
    oct_saver_wait_copied(trainer->saver);
    return calibrates ? oct_train_step_observed(training, result)
                      : oct_train_step_update(training, result);
}

oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result)
{
    oct_train_step *training = &trainer->training;
    oct_saver *saver = trainer->saver;
    *result = (oct_step_result){0};
    OCT_TRY(oct_trainer_enter(trainer, oct_plan_phase(&trainer->plan, trainer->step)));
    const oct_step_batches b = oct_trainer_batches(trainer, trainer->step);
    OCT_TRY(oct_rank_checks_begin(trainer, &b));
    training->flag[OCT_FLAG_STOP] = trainer->stop;
    training->flag[OCT_FLAG_SAVED] = saver && oct_checkpoint_writer_is_done(saver->writer);
    training->flag[OCT_FLAG_UNREAD] = 0;
    trainer->unread[0] = '\0';
    const oct_status status = take_batches(trainer, &b, result);
    if (status == OCT_OK && training->flag[OCT_FLAG_UNREAD])
        return oct_trainer_agree_on_unread(trainer);
    if (status == OCT_NUMERIC) return went_wrong(trainer);
    OCT_TRY(status);
    trainer->stop = training->flag[OCT_FLAG_STOP] != 0;
    if (saver) saver->ended = training->flag[OCT_FLAG_SAVED] != 0;
    OCT_TRY(oct_rank_checks_end(trainer, &b));
    trainer->skips.all += result->skipped;
    trainer->skips.row = result->skipped ? trainer->skips.row + 1 : 0;
    trainer->step++;
    return oct_trainer_done(trainer) ? oct_trainer_finish(trainer) : OCT_OK;
}

oct_status oct_trainer_finish(oct_trainer *trainer)
{
    OCT_TRY(oct_trainer_enter(trainer, OCT_PHASE_QAT_SCALES_FROZEN));
    oct_saver_wait_copied(trainer->saver);
    oct_average_swap(&trainer->training.optim.average, true);
    return OCT_OK;
}

oct_status oct_trainer_evaluate(oct_trainer *trainer, oct_scores *scores)
{
    oct_context *cx = trainer->training.context;
    oct_average *average = &trainer->training.optim.average;
    const bool averaged = average->in_model;
    if (trainer->recipe->data_damaged == OCT_DAMAGED_SKIP)
        OCT_TRY(oct_report_damaged(trainer->group, trainer->loader.damaged,
                                   trainer->loader.damaged_text, "training data"));
    cx->group = &oct_collective_one;
    oct_saver_wait_copied(trainer->saver);
    oct_average_swap(average, true);
    const oct_status status = oct_evaluate_in(cx, trainer->model, trainer->group, trainer->recipe,
                                              trainer->test_data, scores);
    oct_average_swap(average, averaged);
    cx->group = trainer->group;
    return status;
}

/* Checkpoints. */

/* Whoever reads a checkpoint gets the model that was evaluated: where weights are averaged, the averages. */
typedef struct description {
    oct_checkpoint_info info;
    oct_keep keep;
    oct_text identity;
    char *class_names;
} description;

static oct_status describe(description *d, oct_trainer *trainer)
{
    oct_optim *optim = oct_trainer_optim(trainer);
    *d = (description){0};
    OCT_TRY(oct_recipe_write(trainer->recipe, true, &d->identity));
    OCT_TRY(oct_class_names_make(&d->class_names, trainer->train_data));
    d->info = (oct_checkpoint_info){
        .step = trainer->step,
        .updates = optim ? optim->updates : 0,
        .stopping = trainer->stopping,
        .skips = trainer->skips,
        .recipe = d->identity.data,
        .class_names = d->class_names,
    };
    snprintf(d->info.phase, sizeof(d->info.phase), "%s", oct_phase_name(trainer->phase));
    /* The end of the float phase may be the start of other runs. */
    d->keep = (oct_keep){trainer->recipe->checkpoint_keep, trainer->plan.begin[OCT_PHASE_CALIBRATE],
                         oct_early_stopping_best(&trainer->stopping, &trainer->plan)};
    return OCT_OK;
}

static void free_description(description *d)
{
    oct_text_free(&d->identity);
    oct_free(&d->class_names);
}

oct_status oct_trainer_save(oct_trainer *trainer, const char *folder, oct_checkpoint_file *file)
{
    description d;
    if (file) *file = (oct_checkpoint_file){0};
    if (trainer->group->rank != 0) return OCT_OK;
    oct_status status = describe(&d, trainer);
    if (status == OCT_OK)
        status = oct_checkpoint_save(folder, &d.info, trainer->model, oct_trainer_optim(trainer),
                                     d.keep, file);
    free_description(&d);
    return status;
}

oct_status oct_trainer_save_begin(oct_trainer *trainer, const char *folder)
{
    description d;
    if (trainer->group->rank != 0) return OCT_OK;
    oct_status status = describe(&d, trainer);
    if (status == OCT_OK)
        status = oct_checkpoint_writer_begin(trainer->saver->writer, folder, &d.info,
                                             trainer->model, oct_trainer_optim(trainer), d.keep);
    free_description(&d);
    return status;
}

/* Goes to the phase of the checkpoint, if it can be of this run. */
static oct_status enter_phase_of(oct_trainer *trainer, const oct_checkpoint *checkpoint)
{
    oct_phase phase;
    const int64_t step = checkpoint->info.step;
    OCT_TRY(oct_early_stopping_apply(&checkpoint->info.stopping, &trainer->plan, checkpoint->path));
    trainer->stopping = checkpoint->info.stopping;
    trainer->skips = checkpoint->info.skips;
    const int64_t steps = oct_plan_steps(&trainer->plan);
    OCT_TRY(oct_checkpoint_phase(checkpoint, &phase));
    OCT_CHECK(step > 0 && step <= steps, OCT_DATA, "%s: step %lld, but the run has steps 1 to %lld",
              checkpoint->path, (long long)step, (long long)steps);
    oct_phase expected =
        step == steps ? OCT_PHASE_QAT_SCALES_FROZEN : oct_plan_phase(&trainer->plan, step - 1);
    OCT_CHECK(
        phase == expected, OCT_DATA,
        "%s: was saved in phase %s, but step %lld of this run is in phase %s; the training data or "
        "the recipe changed",
        checkpoint->path, checkpoint->info.phase, (long long)step, oct_phase_name(expected));
    trainer->restores = true;
    const oct_status status = oct_trainer_enter(trainer, phase);
    trainer->restores = false;
    return status;
}

oct_status oct_trainer_restore(oct_trainer *trainer, const oct_checkpoint *checkpoint)
{
    const oct_collective *group = trainer->group;
    OCT_TRY(group->agree(group, enter_phase_of(trainer, checkpoint)));
    if (oct_folds_by(trainer->recipe, trainer->phase)) {
        OCT_TRY(oct_checkpoint_fold(checkpoint, trainer->model, group));
        OCT_TRY(oct_train_step_rebind(&trainer->training, trainer->model));
    }
    OCT_TRY(
        oct_checkpoint_load_shared(checkpoint, trainer->model, oct_trainer_optim(trainer), group));
    trainer->step = checkpoint->info.step;
    if (trainer->saver) trainer->saver->step = trainer->step;
    if (!oct_trainer_done(trainer)) oct_average_swap(&trainer->training.optim.average, false);
    return OCT_OK;
}

oct_status oct_trainer_go_back(oct_trainer *trainer, const oct_checkpoint *checkpoint)
{
    oct_module *model = NULL;
    oct_phase phase;
    bool prepared;
    OCT_TRY(oct_checkpoint_phase(checkpoint, &phase));
    OCT_TRY(oct_build_from_checkpoint(&model, checkpoint, trainer->recipe, trainer->train_data,
                                      &prepared));
    const oct_status status = oct_train_step_rebind(&trainer->training, model);
    oct_module_destroy(&trainer->model);
    trainer->model = model;
    trainer->phase = phase;
    OCT_TRY(status);
    return oct_trainer_finish(trainer);
}
