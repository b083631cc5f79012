/* The trainer takes one training step after another, and changes the model between the phases. */
#include "launch/train/trainer_impl.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "launch/session/build.h"
#include "launch/train/run_check.h"
#include "launch/session/task.h"
#include "quant/correct/correction.h"

#include <stdio.h>

/* The values of a list; NULL where it is empty. */
static const double *values_or_null(const oct_reals *list)
{
    return list->count > 0 ? list->value : NULL;
}

oct_status oct_trainer_open_loader(oct_trainer *trainer)
{
    oct_loader_deinit(&trainer->loader);
    OCT_TRY(oct_trainer_loader(&trainer->loader, trainer->recipe, trainer->train_data));
    oct_loader_read_ahead(&trainer->loader, trainer->recipe);
    trainer->loader.cache_bytes = trainer->recipe->data_cache * 1000000;
    trainer->loader.rank = trainer->group->rank;
    trainer->loader.ranks = trainer->group->size;
    return OCT_OK;
}

/* Makes the training steps of the model: loss, optimizer, average. */
static oct_status create_train_step(oct_trainer *trainer)
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
    trainer->training.loss = (oct_loss_spec){
        .kind = oct_loss_find(recipe->loss_kind),
        .options = /* which point into the recipe */
        {
            .smoothing = (double)(float)recipe->loss_label_smoothing,
            .class_weights = values_or_null(&recipe->loss_class_weights),
            .positive_weights = values_or_null(&recipe->loss_positive_weights),
            .teacher_share = recipe->distill_weight,
            .temperature = recipe->distill_temperature,
#define OCT_LOSS_KEY(name, def, min, max, same, help) .name = recipe->loss_##name,
#include "core/op/loss_list.def"
        },
        .metric = recipe->data_goal != OCT_GOAL_NONE ? oct_task_step_metric(recipe, NULL) : NULL,
    };
    trainer->training.numerics = recipe->numerics;
    trainer->training.int16_layers = &recipe->numerics_int16;
    trainer->training.float_bf16 = recipe->float_numerics == OCT_FLOAT_BF16;
    trainer->training.norm_group = oct_recipe_norm_group(recipe);
    trainer->training.seed = (uint64_t)recipe->seed;
    const oct_average_options average = {recipe->ema_decay, recipe->ema_warmup};
    return oct_train_step_average(&trainer->training, &average);
}

/* Equalizes the prepared model, if the recipe asks for it. */
static oct_status equalize_model(oct_trainer *trainer)
{
    int64_t pairs, channels;
    if (!trainer->recipe->quant_equalize || trainer->restores) return OCT_OK;
    OCT_TRY(oct_equalize(trainer->model, &pairs, &channels));
    oct_log(pairs > 0 ? OCT_LOG_INFO : OCT_LOG_WARN,
            "equalized: %lld pairs of layers, %lld factors of channels%s", (long long)pairs,
            (long long)channels,
            pairs > 0 ? ""
                      : "; none reads another directly, without a sum or a bound such as relu6");
    return OCT_OK;
}

/* Changes the model as the phase asks, and goes on from the averaged weights where that changes the module tree;
 * phases differ in what they need, so each starts with memory of its own. */
static oct_status change_model(oct_trainer *trainer)
{
    const oct_recipe *recipe = trainer->recipe;
    oct_train_step *training = &trainer->training;
    if (trainer->phase == OCT_PHASE_CALIBRATE) {
        oct_average_swap(&training->optim.average, true);
        /* A run has its report since before its first step. */
        OCT_TRY(oct_prepare_model(&trainer->model, recipe, trainer->train_data,
                                  trainer->report.length > 0 ? NULL : &trainer->report));
        OCT_TRY(equalize_model(trainer));
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
        OCT_TRY(change_model(trainer));
        oct_set_phase(trainer->model, &trainer->training.quantizers, trainer->phase);
    }
    return OCT_OK;
}

/* Makes what the steps of the model need, with room for the largest share that this rank can have of any batch: a short
 * batch may give one leaf more to a rank than the full batch does. */
static oct_status create_steps(oct_trainer *trainer)
{
    const oct_dataset *data = trainer->train_data;
    const int64_t leaf = trainer->recipe->batch_leaf, ranks = trainer->group->size;
    const int64_t leaves = (oct_trainer_full_batch(trainer) + leaf - 1) / leaf;
    const size_t samples = (size_t)((leaves + ranks - 1) / ranks * leaf);
    OCT_TRY(create_train_step(trainer));
    OCT_TRY(oct_trainer_open_loader(trainer));
    OCT_TRY(oct_alloc(&trainer->images, samples,
                      (size_t)(data->h * data->w * data->c) * sizeof(float)));
    OCT_TRY(
        oct_alloc(&trainer->logits, samples, (size_t)(data->rows * data->classes) * sizeof(float)));
    OCT_TRY(oct_loader_reserve(&trainer->loader, (int64_t)samples));
    return oct_rank_checks_create(trainer);
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
    status = create_steps(trainer);
out:
    if (status != OCT_OK) oct_trainer_destroy(trainer);
    return status;
}

oct_status oct_trainer_adopt(oct_trainer *trainer, const oct_recipe *recipe,
                             const oct_collective *group, const oct_dataset *data,
                             oct_module **model)
{
    *trainer = (oct_trainer){.recipe = recipe, .group = group, .train_data = data, .model = *model};
    *model = NULL;
    const oct_status status = create_steps(trainer);
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
    oct_loader_deinit(&trainer->audit.loader);
    OCT_FREE_ALL(&trainer->audit.images, &trainer->straggler.own_ns, &trainer->images,
                 &trainer->logits);
    oct_text_free(&trainer->report);
    oct_text_free(&trainer->exports);
}

bool oct_trainer_done(const oct_trainer *trainer)
{
    return trainer->step >= oct_plan_steps(&trainer->plan);
}

/* Whether this step may be skipped where numbers are not finite: fewer than nonfinite_limit steps in a row were, and
 * calibration keeps at least one step. */
static bool may_skip(const oct_trainer *trainer)
{
    const int64_t *begin = trainer->plan.begin, in_a_row = trainer->skips.row;
    const bool last_of_calibration = trainer->step + 1 == begin[OCT_PHASE_QAT];
    return trainer->recipe->nonfinite_step == OCT_NONFINITE_SKIP &&
           in_a_row < trainer->recipe->nonfinite_limit &&
           !(last_of_calibration &&
             in_a_row + 1 >= begin[OCT_PHASE_QAT] - begin[OCT_PHASE_CALIBRATE]);
}

/* Says which number is not finite, in which step, what to do and which checkpoint is left; the same on all ranks. */
static oct_status fail_numeric(const oct_trainer *trainer)
{
    const oct_plan_position position = oct_plan_position_at(&trainer->plan, trainer->step);
    const char *part = trainer->phase == OCT_PHASE_FLOAT ? "float" : "qat";
    char what[640], remedy[64] = "", skipped[64] = "", newest[64] = "there is no checkpoint yet";
    snprintf(what, sizeof(what), "%s", oct_error_message(0));
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

/* One update, or one observation while calibrating, of all batches of the step. */
static oct_status run_batches(oct_trainer *trainer, const oct_step_batches *b, double lr,
                              oct_step_result *result)
{
    oct_train_step *training = &trainer->training;
    const bool calibrates = trainer->phase == OCT_PHASE_CALIBRATE;
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
                           : oct_train_step_accumulate(training, &batch));
    }
    oct_saver_wait_copied(trainer->saver);
    return calibrates ? oct_train_step_evaluate_end(training, result)
                      : oct_train_step_update(training, result);
}

oct_status oct_trainer_take_step(oct_trainer *trainer, const oct_step_batches *b, double lr,
                                 oct_step_result *result)
{
    oct_train_step *training = &trainer->training;
    oct_saver *saver = trainer->saver;
    *result = (oct_step_result){0};
    OCT_TRY(oct_rank_checks_begin(trainer, b));
    training->flag[OCT_FLAG_STOP] = trainer->stop;
    training->flag[OCT_FLAG_SAVED] = saver && oct_checkpoint_writer_is_done(saver->writer);
    training->flag[OCT_FLAG_UNREAD] = 0;
    trainer->unread[0] = '\0';
    OCT_TRY(run_batches(trainer, b, lr, result));
    if (training->flag[OCT_FLAG_UNREAD]) return oct_trainer_agree_on_unread(trainer);
    trainer->stop = training->flag[OCT_FLAG_STOP] != 0;
    if (saver) saver->ended = training->flag[OCT_FLAG_SAVED] != 0;
    OCT_TRY(oct_rank_checks_end(trainer, b));
    trainer->skips.all += result->skipped;
    trainer->skips.row = result->skipped ? trainer->skips.row + 1 : 0;
    trainer->step++;
    return OCT_OK;
}

oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result)
{
    OCT_TRY(oct_trainer_enter(trainer, oct_plan_phase(&trainer->plan, trainer->step)));
    const oct_step_batches b = oct_trainer_batches(trainer, trainer->step);
    const double lr = oct_plan_lr(&trainer->plan, trainer->recipe, trainer->step);
    const oct_status status = oct_trainer_take_step(trainer, &b, lr, result);
    if (status == OCT_NUMERIC) return fail_numeric(trainer);
    OCT_TRY(status);
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
    const oct_status status = oct_evaluate(cx, trainer->model, trainer->group, trainer->recipe,
                                           trainer->test_data, scores, NULL);
    oct_average_swap(average, averaged);
    cx->group = trainer->group;
    return status;
}

/* Checkpoints (saver.c writes them). */

oct_status oct_early_stopping_apply(const oct_early_stopping *stopping, oct_plan *plan,
                                    const char *path)
{
    OCT_CHECK(stopping->float_end <= plan->begin[OCT_PHASE_CALIBRATE], OCT_DATA,
              "%s: says that the float phase ended after step %lld, but it has %lld steps", path,
              (long long)stopping->float_end, (long long)plan->begin[OCT_PHASE_CALIBRATE]);
    if (stopping->float_end > 0) oct_plan_end_float(plan, stopping->float_end);
    if (stopping->qat_end == 0) return OCT_OK;
    OCT_CHECK(stopping->qat_end > plan->begin[OCT_PHASE_QAT] &&
                  stopping->qat_end <= oct_plan_steps(plan),
              OCT_DATA, "%s: says that QAT ended after step %lld, but its steps are %lld to %lld",
              path, (long long)stopping->qat_end, (long long)plan->begin[OCT_PHASE_QAT] + 1,
              (long long)oct_plan_steps(plan));
    oct_plan_end_qat(plan, stopping->qat_end);
    return OCT_OK;
}

/* Enters the phase of the checkpoint, with its early stopping and counts; OCT_DATA when it cannot be of this run. */
static oct_status enter_checkpoint_phase(oct_trainer *trainer, const oct_checkpoint *checkpoint)
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
    OCT_TRY(group->agree(group, enter_checkpoint_phase(trainer, checkpoint)));
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

oct_status oct_trainer_compare_gradients(oct_trainer *trainer, int64_t batches,
                                         oct_error_sums *sums)
{
    oct_train_step *training = &trainer->training;
    const oct_params *params = &training->params;
    const oct_numerics numerics[] = {trainer->recipe->numerics, OCT_NUMERICS_F32};
    OCT_OWNED(oct_free) float *kept = NULL;
    oct_status status = OCT_OK;
    OCT_TRY(oct_alloc(&kept, (size_t)params->numel, sizeof *kept));
    for (int64_t i = 0; i < 2 * batches; i++) {
        const int64_t number = i / 2 % trainer->plan.epoch_batches;
        oct_batch batch;
        oct_leaves leaves;
        training->numerics = numerics[i % 2];
        training->update = (uint64_t)(i / 2);
        OCT_TRY_OUT(
            oct_train_step_begin(training, 1, oct_loader_samples(&trainer->loader, number), 0));
        OCT_TRY_OUT(oct_trainer_fetch(trainer, 0, number, &batch, &leaves));
        OCT_TRY_OUT(oct_trainer_ask(trainer, &leaves, &batch));
        OCT_TRY_OUT(oct_train_step_accumulate(training, &batch));
        for (size_t k = 0; k < params->count; k++) {
            const oct_param *param = params->items[k];
            const int64_t n = oct_numel(&param->value);
            float *values = kept + param->offset;
            if (i % 2 == 0) memcpy(values, param->grad, (size_t)n * sizeof *values);
            if (i % 2 == 1) oct_error_add(&sums[k], param->grad, values, n);
            if (i % 2 == 1 && param->value.shape.ndim > 1)
                oct_error_add(&sums[params->count], param->grad, values, n);
        }
    }
out:
    training->numerics = numerics[0];
    return status;
}
