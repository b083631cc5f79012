/* The trainer takes one training step after another, and changes the model between the phases. */
#include "launch/train/trainer_impl.h"

#include "core/base/mem.h"
#include "launch/session/build.h"
#include "launch/train/run_check.h"
#include "launch/session/task.h"
#include "launch/train/trainer_correct.h"

#include <stdio.h>

/* The step's words that the trainer uses. */
enum { FLAG_STOP, FLAG_UNREAD, FLAG_SAVED, FLAG_STATE, FLAG_STATE_LEAST };

static int64_t full_batch(const oct_recipe *recipe, const oct_dataset *data)
{
    return data->count < recipe->batch_size ? data->count : recipe->batch_size;
}

static oct_status start_steps(oct_trainer *trainer)
{
    const oct_recipe *recipe = trainer->recipe;
    const oct_optim_config optimizer = oct_recipe_optim(recipe);
    oct_module_train(trainer->model, true);
    OCT_TRY(oct_train_step_create(&trainer->training, trainer->model, &optimizer,
                                  full_batch(recipe, trainer->train_data), recipe->batch_leaf,
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
        oct_average_put(&training->optim.average, true);
        OCT_TRY(oct_prepare_model(&trainer->model, recipe, trainer->train_data, NULL));
        OCT_TRY(oct_trainer_equalize(trainer));
        oct_module_train(trainer->model, true);
        return oct_train_step_rebind(training, trainer->model);
    }
    if (trainer->phase == OCT_PHASE_QAT && !trainer->restores && oct_corrects(recipe)) {
        OCT_TRY(oct_trainer_correct(trainer));
        return oct_train_step_rebind(training, trainer->model);
    }
    if (trainer->phase == OCT_PHASE_QAT_BN_FROZEN && !trainer->restores &&
        oct_folds_by(recipe, trainer->phase)) {
        oct_average_put(&training->optim.average, true);
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

oct_status oct_training_loader(oct_loader *loader, const oct_recipe *recipe,
                               const oct_dataset *data)
{
    OCT_TRY(oct_loader_init(loader, data));
    loader->seed = (uint64_t)recipe->seed;
    loader->batch = recipe->batch_size;
    loader->leaf = recipe->batch_leaf;
    loader->shuffle = true;
    loader->drop_last = recipe->data_drop_last;
    loader->crop_padding = (int)recipe->data_crop_padding;
    loader->flip = recipe->data_flip;
    loader->damaged_mode = recipe->data_damaged;
    loader->normaliser = oct_normaliser_of(&recipe->data_mean, &recipe->data_std);
    loader->mixing = (oct_mixing){recipe->data_mixup, recipe->data_cutmix};
    oct_recipe_augment(recipe, OCT_TRAIN, &loader->augment);
    return OCT_OK;
}

/* Room for the largest share that this rank can have of any batch: a short batch may give one leaf
 * more to a rank than the full batch does. */
static oct_status allocate_batch(oct_trainer *trainer)
{
    const oct_dataset *data = trainer->train_data;
    int64_t leaf = trainer->recipe->batch_leaf;
    int64_t leaves = (full_batch(trainer->recipe, data) + leaf - 1) / leaf;
    size_t samples = (size_t)((leaves + trainer->group->size - 1) / trainer->group->size * leaf);
    size_t image = (size_t)(data->h * data->w * data->c);
    OCT_TRY(oct_alloc(&trainer->images, samples, image * sizeof(float)));
    OCT_TRY(
        oct_alloc(&trainer->logits, samples, (size_t)(data->rows * data->classes) * sizeof(float)));
    return oct_loader_reserve(&trainer->loader, (int64_t)samples);
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
    OCT_TRY_OUT(oct_training_loader(&trainer->loader, recipe, train_data));
    oct_loader_read_ahead(&trainer->loader, recipe);
    trainer->loader.cache_bytes = recipe->data_cache * 1000000;
    trainer->loader.rank = group->rank;
    trainer->loader.ranks = group->size;
    OCT_TRY_OUT(allocate_batch(trainer));
    OCT_TRY_OUT(oct_trainer_audit_create(trainer));
    OCT_TRY_OUT(oct_straggler_init(&trainer->straggler, group));
    trainer->training.rank_flag = trainer->straggler.own_ns;
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
    oct_loader_deinit(&trainer->audit.loader);
    oct_free(&trainer->audit.images);
    oct_straggler_deinit(&trainer->straggler);
    oct_free(&trainer->images);
    oct_free(&trainer->logits);
    oct_text_free(&trainer->report);
    oct_text_free(&trainer->exports);
}

bool oct_trainer_done(const oct_trainer *trainer)
{
    return trainer->step >= oct_plan_steps(&trainer->plan);
}

oct_step_batches oct_trainer_batches(const oct_trainer *trainer, int64_t step)
{
    oct_step_batches b = {0};
    int64_t step_in_epoch;
    oct_plan_epoch(&trainer->plan, step, &b.epoch, &step_in_epoch);
    b.count = oct_plan_batches(&trainer->plan, step_in_epoch, &b.first);
    for (int64_t i = 0; i < b.count; i++)
        b.samples += oct_loader_samples(&trainer->loader, b.first + i);
    return b;
}

/* The step goes on with zeros in place of what cannot be read, and the other ranks know at its end: no rank
 * waits for another meanwhile. */
static void note_unread(oct_trainer *trainer)
{
    if (trainer->unread[0] == '\0')
        snprintf(trainer->unread, sizeof trainer->unread, "%s", oct_fail_text(0));
    trainer->training.flag[FLAG_UNREAD] = 1;
    oct_fail_clear();
}

/* Collective, where some rank could not read a sample: the run ends, with the name of the first. */
oct_status oct_trainer_agree_on_unread(oct_trainer *trainer)
{
    const oct_collective *group = trainer->group;
    const bool mine = trainer->unread[0] != '\0';
    return group->agree(group, mine ? oct_fail(OCT_DATA, "%s", trainer->unread) : OCT_OK);
}

oct_status oct_trainer_read(oct_trainer *trainer, const oct_batch_source *source,
                            const oct_leaves *leaves, oct_batch *batch)
{
    const oct_dataset *data = trainer->train_data;
    oct_goals goals;
    const oct_status status = oct_loader_fetch(source->loader, source->epoch, source->number,
                                               leaves, source->images, &goals);
    if (status != OCT_OK && status != OCT_DATA) return status;
    goals = oct_task_goals(trainer->recipe, data, &goals);
    *batch = (oct_batch){1,
                         {OCT_SHAPE(leaves->samples, data->h, data->w, data->c)},
                         {source->images},
                         .labels = oct_task_learns_labels(&goals) ? goals.labels : NULL,
                         .probabilities = goals.values,
                         .rows = goals.rows,
                         .ignores = goals.ignores,
                         .ignored = goals.ignored};
    return status;
}

oct_status oct_trainer_ask(oct_trainer *trainer, const oct_leaves *leaves, oct_batch *batch)
{
    if (!trainer->teacher.model || trainer->phase == OCT_PHASE_CALIBRATE) return OCT_OK;
    return oct_teacher_ask(&trainer->teacher, batch->input[0], oct_leaves_local_samples(leaves),
                           &batch->teacher);
}

/* A batch of an epoch, and which leaves of it are here. */
oct_status oct_trainer_fetch(oct_trainer *trainer, int64_t epoch, int64_t number, oct_batch *batch,
                             oct_leaves *leaves)
{
    const oct_collective *group = trainer->group;
    const oct_batch_source source = {&trainer->loader, trainer->images, epoch, number};
    *leaves = oct_leaves_split(oct_loader_samples(&trainer->loader, number),
                               trainer->recipe->batch_leaf, group->rank, group->size);
    const double begin = oct_seconds();
    const oct_status status = oct_trainer_read(trainer, &source, leaves, batch);
    trainer->data_seconds += oct_seconds() - begin;
    if (status != OCT_DATA) return status;
    note_unread(trainer);
    return OCT_OK;
}

/* Observes the float model, a few samples at a time if it can. */
static oct_status calibrate(oct_trainer *trainer, const oct_batch *batch, const oct_leaves *leaves)
{
    const oct_dataset *data = trainer->train_data;
    oct_calibration *c = &trainer->calibration;
    if (!c->forward.cx) {
        *c = (oct_calibration){.sample = OCT_SHAPE(1, data->h, data->w, data->c),
                               .x = trainer->images,
                               .outputs = data->rows * data->classes,
                               .rows = trainer->logits};
        OCT_TRY(oct_forward_begin(&c->forward, trainer->training.context, trainer->model));
    }
    bool done = false;
    if (!c->whole) OCT_TRY(oct_calibrate(c, leaves, &done));
    if (!c->whole && !done) oct_quantizers_discard_batch(&trainer->training.quantizers);
    c->whole = !done;
    return oct_train_step_look(&trainer->training, batch, done ? c->rows : NULL, c->outputs);
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

static void count_skip(oct_trainer *trainer, bool skipped)
{
    trainer->skips.all += skipped;
    trainer->skips.row = skipped ? trainer->skips.row + 1 : 0;
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

/* Parameters change in the update, but for a step that is undone, and what plug-ins may do. */
static bool changes_early(const oct_trainer *trainer)
{
    return trainer->training.nonfinite == OCT_NONFINITE_SKIP || trainer->recipe->plugins.count > 0;
}

static oct_status take_batches(oct_trainer *trainer, oct_step_result *result)
{
    oct_train_step *training = &trainer->training;
    const bool calibrates = trainer->phase == OCT_PHASE_CALIBRATE;
    const double lr = oct_plan_lr(&trainer->plan, trainer->recipe, trainer->step);
    const oct_step_batches b = oct_trainer_batches(trainer, trainer->step);
    training->update = (uint64_t)trainer->step;
    training->nonfinite = may_skip(trainer) ? OCT_NONFINITE_SKIP : OCT_NONFINITE_STOP;
    oct_trainer_audit_begin(trainer, &b);
    if (changes_early(trainer)) oct_saver_wait_copied(trainer->saver);
    OCT_TRY(oct_train_step_begin(training, b.count, b.samples, (float)lr));
    for (int64_t i = 0; i < b.count; i++) {
        oct_batch batch;
        oct_leaves leaves;
        OCT_TRY(oct_trainer_fetch(trainer, b.epoch, b.first + i, &batch, &leaves));
        OCT_TRY(oct_trainer_ask(trainer, &leaves, &batch));
        OCT_TRY(calibrates ? calibrate(trainer, &batch, &leaves)
                           : oct_train_step_learn(training, &batch));
    }
    oct_saver_wait_copied(trainer->saver);
    OCT_TRY(calibrates ? oct_train_step_observed(training, result)
                       : oct_train_step_update(training, result));
    return oct_trainer_audit_end(trainer, &b);
}

static oct_status set_reduced_flags(oct_trainer *trainer)
{
    oct_train_step *training = &trainer->training;
    const oct_collective *group = trainer->group;
    const int64_t samples = full_batch(trainer->recipe, trainer->train_data);
    const oct_leaves leaves =
        oct_leaves_split(samples, trainer->recipe->batch_leaf, group->rank, group->size);
    oct_straggler_begin(&trainer->straggler, &leaves);
    OCT_TRY(oct_replica_check_slice(&trainer->replicas, training, trainer->step));
    training->flag[FLAG_STOP] = trainer->stop;
    training->flag[FLAG_SAVED] = oct_saver_is_done(trainer->saver);
    training->flag[FLAG_UNREAD] = 0;
    training->flag[FLAG_STATE] = trainer->replicas.most;
    training->flag[FLAG_STATE_LEAST] = trainer->replicas.least;
    trainer->unread[0] = '\0';
    return OCT_OK;
}

/* After the control reduction. */
static oct_status read_words(oct_trainer *trainer)
{
    const oct_train_step *training = &trainer->training;
    trainer->replicas.most = training->flag[FLAG_STATE];
    trainer->replicas.least = training->flag[FLAG_STATE_LEAST];
    trainer->stop = training->flag[FLAG_STOP] != 0;
    if (trainer->saver) trainer->saver->ended = training->flag[FLAG_SAVED] != 0;
    oct_straggler_end(&trainer->straggler);
    return oct_replica_check_judge(&trainer->replicas, trainer->group, trainer->step + 1);
}

static oct_status take_step(oct_trainer *trainer, oct_step_result *result)
{
    OCT_TRY(set_reduced_flags(trainer));
    const oct_status status = take_batches(trainer, result);
    if (status == OCT_OK && trainer->training.flag[FLAG_UNREAD])
        return oct_trainer_agree_on_unread(trainer);
    if (status == OCT_NUMERIC) return went_wrong(trainer);
    OCT_TRY(status);
    return read_words(trainer);
}

oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result)
{
    *result = (oct_step_result){0};
    OCT_TRY(oct_trainer_enter(trainer, oct_plan_phase(&trainer->plan, trainer->step)));
    OCT_TRY(take_step(trainer, result));
    count_skip(trainer, result->skipped);
    trainer->step++;
    return oct_trainer_done(trainer) ? oct_trainer_finish(trainer) : OCT_OK;
}

oct_status oct_trainer_finish(oct_trainer *trainer)
{
    OCT_TRY(oct_trainer_enter(trainer, OCT_PHASE_QAT_SCALES_FROZEN));
    oct_saver_wait_copied(trainer->saver);
    oct_average_put(&trainer->training.optim.average, true);
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
    oct_average_put(average, true);
    const oct_status status = oct_evaluate_in(cx, trainer->model, trainer->group, trainer->recipe,
                                              trainer->test_data, scores);
    oct_average_put(average, averaged);
    cx->group = trainer->group;
    return status;
}

oct_status oct_trainer_judge(oct_trainer *trainer, const oct_scores *scores, oct_verdict *verdict)
{
    *verdict = oct_early_stopping_judge(&trainer->stopping, &trainer->plan, trainer->recipe,
                                        trainer->step, scores);
    return verdict->ends && oct_trainer_done(trainer) ? oct_trainer_finish(trainer) : OCT_OK;
}
