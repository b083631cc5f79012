/* The trainer takes one training step after another, and changes the model between the phases. */
#include "launch/run/trainer.h"

#include "core/base/mem.h"
#include "launch/run/build.h"
#include "launch/run/run_check.h"

#include <stdio.h>

/* The step's words that the trainer uses. */
enum { WORD_STOP };

static int64_t full_batch(const oct_recipe *recipe, const oct_dataset *data)
{
    return data->count < recipe->batch_size ? data->count : recipe->batch_size;
}

static oct_loss_spec loss_of(const oct_recipe *recipe)
{
    const oct_texts *metrics = &recipe->metrics;
    return (oct_loss_spec){
        .kind = oct_loss_find(recipe->loss_kind),
        .options = {.smoothing = (double)(float)recipe->loss_label_smoothing},
        .metric = metrics->count > 0 ? oct_metric_find(metrics->value[0]) : NULL,
    };
}

static oct_status start_steps(oct_trainer *trainer)
{
    const oct_recipe *recipe = trainer->recipe;
    const oct_optim_config optimizer = oct_recipe_optim(recipe);
    oct_module_train(trainer->model, true);
    OCT_TRY(oct_train_step_create(&trainer->training, trainer->model, &optimizer,
                                  full_batch(recipe, trainer->train_data), recipe->batch_leaf,
                                  trainer->group));
    trainer->training.loss = loss_of(recipe);
    trainer->training.numerics = recipe->numerics;
    return OCT_OK;
}

oct_optim *oct_trainer_optim(oct_trainer *trainer)
{
    return trainer->phase == OCT_PHASE_CALIBRATE ? NULL : &trainer->training.optim;
}

/* The tree changes where the phase asks for it; the phases differ in what they need, so each starts with
 * memory of its own. */
static oct_status change_tree(oct_trainer *trainer)
{
    const oct_recipe *recipe = trainer->recipe;
    oct_train_step *training = &trainer->training;
    if (trainer->phase == OCT_PHASE_CALIBRATE) {
        OCT_TRY(oct_prepare_model(&trainer->model, recipe, trainer->train_data, NULL));
        oct_module_train(trainer->model, true);
        return oct_train_step_rebind(training, trainer->model);
    }
    if (trainer->phase == OCT_PHASE_QAT_BN_FROZEN && recipe->qat_fold_batch_norm) {
        OCT_TRY(oct_fold_batch_norm(trainer->model));
        return oct_train_step_rebind(training, trainer->model);
    }
    return oct_train_step_renew_memory(training);
}

oct_status oct_trainer_enter(oct_trainer *trainer, oct_phase phase)
{
    while (trainer->phase < phase) {
        trainer->phase++;
        oct_forward_end(&trainer->calibration.forward);
        OCT_TRY(change_tree(trainer));
        oct_set_phase(trainer->model, &trainer->training.quantizers, trainer->phase);
    }
    return OCT_OK;
}

static oct_status start_loader(oct_trainer *trainer)
{
    const oct_recipe *recipe = trainer->recipe;
    oct_loader *loader = &trainer->loader;
    OCT_TRY(oct_loader_init(loader, trainer->train_data));
    loader->seed = (uint64_t)recipe->seed;
    loader->batch = recipe->batch_size;
    loader->leaf = recipe->batch_leaf;
    loader->shuffle = true;
    loader->drop_last = recipe->data_drop_last;
    loader->crop_padding = (int)recipe->data_crop_padding;
    loader->flip = recipe->data_flip;
    for (int64_t c = 0; c < trainer->train_data->c; c++) {
        loader->mean[c] = (float)recipe->data_mean.value[c];
        loader->std[c] = (float)recipe->data_std.value[c];
    }
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
    OCT_TRY(oct_alloc(&trainer->logits, samples, (size_t)data->classes * sizeof(float)));
    return oct_alloc(&trainer->labels, samples, sizeof(int32_t));
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
        .saved_step = -1,
    };
    OCT_TRY(oct_run_check(recipe, train_data, test_data, group->size));
    trainer->plan = oct_plan_of(recipe, train_data->count);
    OCT_TRY_OUT(oct_try_deploy(recipe, train_data, &trainer->report));
    OCT_TRY_OUT(oct_build_model(&trainer->model, recipe, train_data));
    OCT_TRY_OUT(start_steps(trainer));
    OCT_TRY_OUT(start_loader(trainer));
    OCT_TRY_OUT(allocate_batch(trainer));
out:
    if (status != OCT_OK) oct_trainer_destroy(trainer);
    return status;
}

void oct_trainer_release_memory(oct_trainer *trainer)
{
    oct_forward_end(&trainer->calibration.forward);
    oct_train_step_destroy(&trainer->training);
    oct_mem_trim();
}

void oct_trainer_destroy(oct_trainer *trainer)
{
    oct_trainer_release_memory(trainer);
    oct_module_destroy(&trainer->model);
    oct_loader_deinit(&trainer->loader);
    oct_free(&trainer->images);
    oct_free(&trainer->labels);
    oct_free(&trainer->logits);
    oct_text_free(&trainer->report);
}

bool oct_trainer_done(const oct_trainer *trainer)
{
    return trainer->step >= oct_plan_steps(&trainer->plan);
}

/* The batch of the next step, and which leaves of it are here. */
static oct_status fetch(oct_trainer *trainer, oct_batch *batch, oct_leaves *leaves)
{
    int64_t epoch, step_in_epoch;
    const oct_dataset *data = trainer->train_data;
    const oct_collective *group = trainer->group;
    oct_plan_epoch(&trainer->plan, trainer->step, &epoch, &step_in_epoch);
    int64_t samples = oct_loader_samples(&trainer->loader, step_in_epoch);
    *leaves = oct_leaves_split(samples, trainer->recipe->batch_leaf, group->rank, group->size);
    *batch = (oct_batch){1,
                         {OCT_SHAPE(samples, data->h, data->w, data->c)},
                         {trainer->images},
                         .labels = trainer->labels};
    return oct_loader_fetch(&trainer->loader, epoch, step_in_epoch, leaves, trainer->images,
                            trainer->labels);
}

/* Observes the float model, a few samples at a time if it can. */
static oct_status calibrate(oct_trainer *trainer, const oct_batch *batch, const oct_leaves *leaves,
                            oct_step_result *result)
{
    const oct_dataset *data = trainer->train_data;
    oct_calibration *c = &trainer->calibration;
    bool done;
    if (!c->forward.cx) {
        *c = (oct_calibration){.sample = OCT_SHAPE(1, data->h, data->w, data->c),
                               .x = trainer->images,
                               .outputs = data->classes,
                               .rows = trainer->logits};
        OCT_TRY(oct_forward_begin(&c->forward, trainer->training.context, trainer->model));
    }
    OCT_TRY(oct_calibrate(c, leaves, &done));
    if (!done) oct_quantizers_discard_batch(&trainer->training.quantizers);
    return oct_train_step_observe(&trainer->training, batch, done ? c->rows : NULL, c->outputs,
                                  result);
}

/* Numbers go wrong alike on all ranks: what is wrong, where, what to do, what is left. */
static oct_status went_wrong(const oct_trainer *trainer)
{
    const oct_plan_position position = oct_plan_position_at(&trainer->plan, trainer->step);
    const char *part = trainer->phase == OCT_PHASE_FLOAT ? "float" : "qat";
    char what[640], remedy[64] = "", newest[64] = "there is no checkpoint yet";
    snprintf(what, sizeof(what), "%s", oct_fail_text(0));
    if (trainer->phase != OCT_PHASE_CALIBRATE)
        snprintf(remedy, sizeof(remedy), ", which is %s.lr, or give it %s.warmup", part, part);
    if (trainer->saved_step >= 0)
        snprintf(newest, sizeof(newest), "newest good checkpoint step-%08lld.h5",
                 (long long)trainer->saved_step);
    return oct_fail(OCT_NUMERIC, "step %lld (epoch %lld, phase %s): %s%s; %s",
                    (long long)trainer->step + 1, (long long)position.epoch,
                    oct_phase_name(trainer->phase), what, remedy, newest);
}

static oct_status take_step(oct_trainer *trainer, oct_step_result *result)
{
    oct_train_step *training = &trainer->training;
    oct_batch batch;
    oct_leaves leaves;
    OCT_TRY(fetch(trainer, &batch, &leaves));
    training->word[WORD_STOP] = trainer->stop;
    const float lr = (float)oct_plan_lr(&trainer->plan, trainer->recipe, trainer->step);
    const oct_status status = trainer->phase == OCT_PHASE_CALIBRATE
                                  ? calibrate(trainer, &batch, &leaves, result)
                                  : oct_train_step_run(training, &batch, lr, result);
    if (status == OCT_NUMERIC) return went_wrong(trainer);
    trainer->stop = training->word[WORD_STOP] != 0;
    return status;
}

oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result)
{
    *result = (oct_step_result){0};
    OCT_TRY(oct_trainer_enter(trainer, oct_plan_phase(&trainer->plan, trainer->step)));
    OCT_TRY(take_step(trainer, result));
    trainer->step++;
    if (oct_trainer_done(trainer)) OCT_TRY(oct_trainer_enter(trainer, OCT_PHASE_QAT_SCALES_FROZEN));
    return OCT_OK;
}

oct_status oct_trainer_evaluate(oct_trainer *trainer, oct_scores *scores)
{
    oct_context *cx = trainer->training.context;
    cx->group = &oct_collective_one;
    const oct_status status = oct_evaluate_in(cx, trainer->model, trainer->group, trainer->recipe,
                                              trainer->test_data, scores);
    cx->group = trainer->group;
    return status;
}
