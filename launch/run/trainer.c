/* The trainer: one step after another through the phases of the plan.
 *
 * A step takes this rank's leaves of the global batch through forward and backward, sums gradients
 * over all leaves, and then meets the other ranks once more in the control reduction, which carries
 * all that is small: did a number go wrong, does somebody want to stop, and the observers' ranges.
 * Everything a rank does after that meeting follows from numbers that are alike on all ranks.
 */
#include "launch/run/trainer.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "launch/run/trainer_impl.h"
#include "quant/pass/convert/convert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The control reduction's numbers; the observers' keys follow. */
enum { CONTROL_NOT_FINITE, CONTROL_STOP, CONTROL_KEYS };

static int64_t full_batch(const oct_recipe *recipe, const oct_dataset *data)
{
    return data->count < recipe->batch_size ? data->count : recipe->batch_size;
}

static oct_status start_optimizer(oct_trainer *trainer)
{
    const oct_optim_config config = oct_recipe_optim(trainer->recipe);
    OCT_TRY(oct_optim_create(&trainer->optim, &config, &trainer->params));
    trainer->has_optim = true;
    return OCT_OK;
}

static void end_optimizer(oct_trainer *trainer)
{
    if (trainer->has_optim) oct_optim_destroy(&trainer->optim);
    trainer->has_optim = false;
}

static oct_status bind_parameters(oct_trainer *trainer)
{
    const oct_collective *group = trainer->group;
    oct_leaves full = oct_leaves_split(full_batch(trainer->recipe, trainer->train_data),
                                       trainer->recipe->batch_leaf, group->rank, group->size);
    oct_params_unbind(&trainer->params);
    return oct_params_bind(&trainer->params, trainer->model, &full);
}

static oct_status allocate_control(oct_trainer *trainer)
{
    oct_free(&trainer->control);
    return oct_alloc(&trainer->control, CONTROL_KEYS + 2 * trainer->quantizers.count,
                     sizeof(int64_t));
}

/* The phases differ in what they need, so each starts with memory of its own. */
static oct_status renew_context(oct_trainer *trainer)
{
    oct_forward_end(&trainer->calibration);
    oct_context_destroy(&trainer->context);
    OCT_TRY(oct_context_create(&trainer->context, trainer->group));
    trainer->context->release_on_backward = true;
    trainer->context->numerics = trainer->recipe->numerics;
    return OCT_OK;
}

static oct_status enter_calibration(oct_trainer *trainer)
{
    end_optimizer(trainer);
    oct_params_unbind(&trainer->params);
    OCT_TRY(oct_prepare_model(&trainer->model, trainer->recipe, trainer->train_data, NULL));
    trainer->prepared = true;
    OCT_TRY(oct_quantizers_collect(&trainer->quantizers, trainer->model));
    OCT_TRY(allocate_control(trainer));
    oct_module_train(trainer->model, true);
    return bind_parameters(trainer);
}

/* The batch norms' parameters go, so the optimizer starts anew with those that are left. */
static oct_status fold(oct_trainer *trainer)
{
    end_optimizer(trainer);
    oct_params_unbind(&trainer->params);
    OCT_TRY(oct_fold_batch_norm(trainer->model));
    OCT_TRY(bind_parameters(trainer));
    return start_optimizer(trainer);
}

/* Walks through the phases up to this one; empty phases leave their mark all the same. */
static oct_status enter(oct_trainer *trainer, oct_phase phase)
{
    while (trainer->phase < phase) {
        trainer->phase++;
        OCT_TRY(renew_context(trainer));
        if (trainer->phase == OCT_PHASE_CALIBRATE) OCT_TRY(enter_calibration(trainer));
        if (trainer->phase == OCT_PHASE_QAT) OCT_TRY(start_optimizer(trainer));
        if (trainer->phase == OCT_PHASE_QAT_BN_FROZEN && trainer->recipe->qat_fold_batch_norm)
            OCT_TRY(fold(trainer));
        oct_set_phase(trainer->model, &trainer->quantizers, trainer->phase);
    }
    return OCT_OK;
}

/* A model that cannot be prepared or converted shall be known now and not after the float phase. */
static oct_status try_deploy(const oct_recipe *recipe, const oct_dataset *data, oct_text *report)
{
    oct_module *model = NULL;
    oct_quantizers quantizers = {0};
    oct_program program = {0};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_build_model(&model, recipe, data));
    OCT_TRY_OUT(oct_prepare_model(&model, recipe, data, report));
    OCT_TRY_OUT(oct_quantizers_collect(&quantizers, model));
    if (recipe->qat_fold_batch_norm) OCT_TRY_OUT(oct_fold_batch_norm(model));
    oct_set_phase(model, &quantizers, OCT_PHASE_QAT_SCALES_FROZEN);
    OCT_TRY_OUT(oct_convert(&program, model, OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c)),
                            oct_target_at(recipe->quant_target), NULL));
out:
    oct_program_free(&program);
    oct_quantizers_free(&quantizers);
    oct_module_destroy(&model);
    return status;
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
    OCT_TRY_OUT(try_deploy(recipe, train_data, &trainer->report));
    OCT_TRY_OUT(oct_build_model(&trainer->model, recipe, train_data));
    oct_module_train(trainer->model, true);
    OCT_TRY_OUT(bind_parameters(trainer));
    OCT_TRY_OUT(start_optimizer(trainer));
    OCT_TRY_OUT(allocate_control(trainer));
    OCT_TRY_OUT(renew_context(trainer));
    OCT_TRY_OUT(start_loader(trainer));
    OCT_TRY_OUT(allocate_batch(trainer));
out:
    if (status != OCT_OK) oct_trainer_destroy(trainer);
    return status;
}

void oct_trainer_release_memory(oct_trainer *trainer)
{
    oct_forward_end(&trainer->calibration);
    oct_context_destroy(&trainer->context);
    end_optimizer(trainer);
    oct_params_unbind(&trainer->params);
    oct_mem_trim();
}

void oct_trainer_destroy(oct_trainer *trainer)
{
    oct_trainer_release_memory(trainer);
    oct_quantizers_free(&trainer->quantizers);
    oct_module_destroy(&trainer->model);
    oct_loader_deinit(&trainer->loader);
    oct_free(&trainer->control);
    oct_free(&trainer->images);
    oct_free(&trainer->labels);
    oct_free(&trainer->logits);
    oct_text_free(&trainer->report);
}

bool oct_trainer_done(const oct_trainer *trainer)
{
    return trainer->step >= oct_plan_steps(&trainer->plan);
}

static oct_status fetch(oct_trainer *trainer, oct_leaves *leaves)
{
    int64_t epoch, step_in_epoch;
    const oct_collective *group = trainer->group;
    oct_plan_position(&trainer->plan, trainer->step, &epoch, &step_in_epoch);
    int64_t samples = oct_loader_samples(&trainer->loader, step_in_epoch);
    *leaves = oct_leaves_split(samples, trainer->recipe->batch_leaf, group->rank, group->size);
    return oct_loader_fetch(&trainer->loader, epoch, step_in_epoch, leaves, trainer->images,
                            trainer->labels);
}

static oct_status forward(oct_trainer *trainer, const oct_leaves *leaves, bool learn,
                          oct_tensor **loss, oct_loss *sums)
{
    const oct_dataset *data = trainer->train_data;
    oct_context *cx = trainer->context;
    int64_t samples = oct_leaves_local_samples(leaves);
    bool done = false;
    oct_params_zero(&trainer->params);
    if (!learn) OCT_TRY(oct_calibrate_logits(trainer, leaves, &done));
    oct_context_begin(cx, *leaves, learn);
    oct_tensor *logits;
    if (done)
        logits = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(samples, data->classes), trainer->logits);
    else
        logits =
            oct_call(cx, trainer->model,
                     oct_tensor_view(cx, OCT_F32, OCT_SHAPE(samples, data->h, data->w, data->c),
                                     trainer->images));
    *loss = oct_cross_entropy(cx, logits, trainer->labels,
                              (float)trainer->recipe->loss_label_smoothing, sums);
    return oct_context_status(cx);
}

static oct_status backward(oct_trainer *trainer, const oct_leaves *leaves, oct_tensor *loss)
{
    OCT_TRY(oct_backward(trainer->context, loss));
    OCT_TRY(oct_params_reduce(&trainer->params, trainer->group, leaves));
    return oct_quantizers_backward(&trainer->quantizers);
}

/* Numbers go wrong alike on all ranks: what is wrong, where, what to do, what is left. */
static oct_status went_wrong(const oct_trainer *trainer, const char *what)
{
    oct_place place = oct_plan_place(&trainer->plan, trainer->step);
    bool is_float = trainer->phase == OCT_PHASE_FLOAT;
    const char *part = is_float ? "float" : "qat";
    double lr = is_float ? trainer->recipe->float_lr : trainer->recipe->qat_lr;
    char newest[64] = "there is no checkpoint yet";
    if (trainer->saved_step >= 0)
        snprintf(newest, sizeof(newest), "newest good checkpoint step-%08lld.h5",
                 (long long)trainer->saved_step);
    return oct_fail(
        OCT_NUMERIC,
        "step %lld (epoch %lld, phase %s): %s; lower %s.lr (now %g), or give it %s.warmup; %s",
        (long long)trainer->step + 1, (long long)place.epoch, oct_phase_name(trainer->phase), what,
        part, lr, part, newest);
}

/* Passes the failure of a part of the step on. */
static oct_status part_failed(const oct_trainer *trainer, oct_status status)
{
    char what[512];
    if (status != OCT_NUMERIC) return status;
    snprintf(what, sizeof(what), "%s", oct_fail_text(0));
    return went_wrong(trainer, what);
}

/* The one small meeting of the step. Afterwards all ranks know the same. */
static oct_status meet(oct_trainer *trainer, bool learn, double loss, bool *stop)
{
    const oct_collective *group = trainer->group;
    int64_t *control = trainer->control;
    bool finite =
        isfinite(loss) && (!learn || oct_all_finite(trainer->params.grads, trainer->params.numel));
    control[CONTROL_NOT_FINITE] = !finite;
    control[CONTROL_STOP] = trainer->stop;
    if (trainer->quantizers.count > 0)
        oct_quantizers_keys(&trainer->quantizers, control + CONTROL_KEYS);
    OCT_TRY(
        group->max_i64(group, control, (int64_t)(CONTROL_KEYS + 2 * trainer->quantizers.count)));
    OCT_TRY(oct_quantizers_sum_counts(&trainer->quantizers, group));
    if (control[CONTROL_NOT_FINITE])
        return went_wrong(trainer,
                          isfinite(loss) ? "a gradient is not finite" : "the loss is not finite");
    *stop = control[CONTROL_STOP] != 0;
    return OCT_OK;
}

static oct_status update(oct_trainer *trainer, bool learn)
{
    if (learn) {
        oct_optim_step(&trainer->optim, &trainer->params,
                       (float)oct_plan_lr(&trainer->plan, trainer->recipe, trainer->step));
        OCT_TRY(oct_params_check_values(&trainer->params, trainer->model));
    }
    if (trainer->quantizers.count == 0) return OCT_OK;
    return oct_quantizers_update(&trainer->quantizers, trainer->control + CONTROL_KEYS);
}

static oct_status take_step(oct_trainer *trainer, oct_step_result *result)
{
    oct_leaves leaves;
    oct_tensor *loss = NULL;
    oct_loss sums = {0};
    bool learn = trainer->phase != OCT_PHASE_CALIBRATE;
    OCT_TRY(fetch(trainer, &leaves));
    OCT_TRY(part_failed(trainer, forward(trainer, &leaves, learn, &loss, &sums)));
    if (learn) OCT_TRY(part_failed(trainer, backward(trainer, &leaves, loss)));
    OCT_TRY(meet(trainer, learn, sums.loss_sum, &result->stop));
    OCT_TRY(part_failed(trainer, update(trainer, learn)));
    result->loss = sums.loss_sum / (double)leaves.samples;
    result->correct = sums.correct;
    result->samples = leaves.samples;
    return OCT_OK;
}

oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result)
{
    *result = (oct_step_result){0};
    OCT_TRY(enter(trainer, oct_plan_phase(&trainer->plan, trainer->step)));
    OCT_TRY(take_step(trainer, result));
    trainer->step++;
    if (oct_trainer_done(trainer)) OCT_TRY(enter(trainer, OCT_PHASE_QAT_SCALES_FROZEN));
    return OCT_OK;
}

oct_status oct_trainer_save(oct_trainer *trainer, const char *folder, char **file)
{
    oct_text identity = {0};
    oct_status status = OCT_OK;
    /* The end of the float phase may be the start of other runs. */
    oct_keep keep = {trainer->recipe->checkpoint_keep, trainer->plan.begin[OCT_PHASE_CALIBRATE]};
    if (file) *file = NULL;
    if (trainer->group->rank != 0) return OCT_OK;

    OCT_TRY_OUT(oct_recipe_write(trainer->recipe, true, &identity));
    oct_checkpoint_info info = {
        .step = trainer->step,
        .updates = trainer->has_optim ? trainer->optim.updates : 0,
        .recipe = identity.data,
    };
    snprintf(info.phase, sizeof(info.phase), "%s", oct_phase_name(trainer->phase));
    OCT_TRY_OUT(oct_checkpoint_save(folder, &info, trainer->model,
                                    trainer->has_optim ? &trainer->optim : NULL, keep, file));
out:
    oct_text_free(&identity);
    return status;
}

static oct_status check_fit(const oct_checkpoint *checkpoint, oct_module *model, const char *name)
{
    oct_text differences = {0};
    oct_status status = oct_checkpoint_compare(checkpoint, model, &differences);
    if (status == OCT_OK && differences.length > 0)
        status = oct_fail(OCT_USAGE, "init: %s does not fit %s; these parts differ:\n%s",
                          checkpoint->path, name, differences.data);
    oct_text_free(&differences);
    return status;
}

oct_status oct_trainer_start_from(oct_trainer *trainer, const oct_checkpoint *checkpoint)
{
    const oct_recipe *recipe = trainer->recipe;
    if (recipe->init_observers) OCT_TRY(enter(trainer, OCT_PHASE_CALIBRATE));
    OCT_TRY(check_fit(checkpoint, trainer->model, recipe->model_name));
    return oct_checkpoint_load(checkpoint, trainer->model, NULL);
}

oct_status oct_trainer_restore(oct_trainer *trainer, const oct_checkpoint *checkpoint)
{
    oct_phase phase;
    int64_t step = checkpoint->info.step, steps = oct_plan_steps(&trainer->plan);
    OCT_TRY(oct_checkpoint_phase(checkpoint, &phase));
    OCT_CHECK(step > 0 && step <= steps, OCT_DATA, "%s: step %lld, but the run has steps 1 to %lld",
              checkpoint->path, (long long)step, (long long)steps);
    oct_phase expected =
        step == steps ? OCT_PHASE_QAT_SCALES_FROZEN : oct_plan_phase(&trainer->plan, step - 1);
    OCT_CHECK(
        phase == expected, OCT_DATA,
        "%s: stands in phase %s, but step %lld of this run is in phase %s; the training data or "
        "the recipe changed",
        checkpoint->path, checkpoint->info.phase, (long long)step, oct_phase_name(expected));
    OCT_TRY(enter(trainer, phase));
    OCT_TRY(oct_checkpoint_load(checkpoint, trainer->model,
                                trainer->has_optim ? &trainer->optim : NULL));
    if (trainer->has_optim) trainer->optim.updates = checkpoint->info.updates;
    trainer->step = step;
    trainer->saved_step = step;
    return OCT_OK;
}
