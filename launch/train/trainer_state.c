#include "launch/train/trainer_state.h"

#include "core/base/mem.h"
#include "io/model/class_names.h"
#include "launch/session/build.h"

#include <stdio.h>

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

static oct_status check_fit(const oct_checkpoint *checkpoint, oct_module *model,
                            const oct_recipe *recipe)
{
    oct_text differences = {0};
    oct_status status = oct_checkpoint_compare(checkpoint, model, &differences);
    const char *why = recipe->init_observers
                          ? ", or was prepared by other quant keys, such as for another target"
                          : "";
    if (status == OCT_OK && differences.length > 0)
        status = oct_fail(OCT_USAGE, "init: %s does not fit %s%s; these parts differ:\n%s",
                          checkpoint->path, oct_recipe_model(recipe), why, differences.data);
    oct_text_free(&differences);
    return status;
}

oct_status oct_trainer_start_from(oct_trainer *trainer, const oct_checkpoint *checkpoint)
{
    const oct_recipe *recipe = trainer->recipe;
    if (recipe->init_observers) OCT_TRY(oct_trainer_enter(trainer, OCT_PHASE_CALIBRATE));
    OCT_TRY(check_fit(checkpoint, trainer->model, recipe));
    return oct_checkpoint_load(checkpoint, trainer->model, NULL);
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
    if (!oct_trainer_done(trainer)) oct_average_put(&trainer->training.optim.average, false);
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
