/* A step's batches are read here: which samples, from which loader, with which labels and what the teacher says of
 * them. */
#include "launch/train/trainer_impl.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "launch/session/build.h"
#include "launch/session/job.h"
#include "launch/session/task.h"

#include <stdio.h>
#include <string.h>

int64_t oct_trainer_full_batch(const oct_trainer *trainer)
{
    return oct_min_i64(trainer->train_data->count, trainer->recipe->batch_size);
}

oct_status oct_trainer_loader(oct_loader *loader, const oct_recipe *recipe, const oct_dataset *data)
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

/* Finds the batches of a step in its epoch, and how many samples they have on all ranks together. */
oct_step_batches oct_trainer_batches(const oct_trainer *trainer, int64_t step)
{
    oct_step_batches b = {0};
    b.count = oct_plan_batches(&trainer->plan, step, &b.epoch, &b.first);
    b.epoch += trainer->epochs_before;
    for (int64_t i = 0; i < b.count; i++)
        b.samples += oct_loader_samples(&trainer->loader, b.first + i);
    return b;
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
    const int64_t local = oct_leaves_local_samples(leaves);
    const oct_example x = oct_dataset_inputs(data, source->images, local, 0, local);
    *batch = (oct_batch){.num_inputs = x.count,
                         .labels = oct_task_learns_labels(&goals) ? goals.labels : NULL,
                         .targets = goals.values,
                         .rows = goals.rows,
                         .ignores = goals.ignores,
                         .ignored = goals.ignored};
    for (int i = 0; i < x.count; i++) {
        batch->input[i] = x.data[i];
        batch->shape[i] = x.shape[i];
        batch->shape[i].dim[0] = leaves->samples;
    }
    return status;
}

/* Computes the teacher's outputs for the samples of a batch, in evaluation mode, a few samples at a time. No
 * operation in that mode sums over samples, so its outputs have the same bits on any number of ranks. */
oct_status oct_trainer_ask(oct_trainer *trainer, const oct_leaves *leaves, oct_batch *batch)
{
    oct_teacher *teacher = &trainer->teacher;
    if (!teacher->model || trainer->phase == OCT_PHASE_CALIBRATE) return OCT_OK;
    const int64_t n = oct_leaves_local_samples(leaves), each = oct_shape_numel(&teacher->sample);
    OCT_TRY(oct_grow(&teacher->y, &teacher->capacity, (size_t)(n * teacher->outputs),
                     sizeof *teacher->y));
    for (int64_t done = 0, some; done < n; done += some) {
        const oct_tensor *out;
        oct_example x = *OCT_EXAMPLE(teacher->sample);
        some = x.shape[0].dim[0] = oct_forward_samples(&teacher->forward, n - done);
        x.data[0] = batch->input[0] + done * each;
        OCT_TRY(oct_forward_run(&teacher->forward, oct_leaves_split(some, 1, 0, 1), &x, &out));
        OCT_CHECK(out->dtype == OCT_F32 && oct_numel(out) == some * teacher->outputs, OCT_PREPARE,
                  "distill.teacher: the teacher returns %s %s for %lld samples; it must return "
                  "%lld floats for each, as the model does",
                  oct_dtype_name(out->dtype), oct_text_shape(&out->shape).text, (long long)some,
                  (long long)teacher->outputs);
        memcpy(teacher->y + done * teacher->outputs, out->data,
               (size_t)oct_numel(out) * sizeof(float));
    }
    batch->teacher = teacher->y;
    return OCT_OK;
}

/* A step goes on with zeros in place of what cannot be read, and the other ranks know at its end: no rank waits for
 * another meanwhile. */
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
    if (trainer->unread[0] == '\0')
        snprintf(trainer->unread, sizeof trainer->unread, "%s", oct_error_message(0));
    trainer->training.flag[OCT_FLAG_UNREAD] = 1;
    oct_fail_clear();
    return OCT_OK;
}

oct_status oct_trainer_agree_on_unread(oct_trainer *trainer)
{
    const oct_collective *group = trainer->group;
    const bool mine = trainer->unread[0] != '\0';
    return group->agree(group, mine ? oct_fail(OCT_DATA, "%s", trainer->unread) : OCT_OK);
}

/* The teacher is built from its checkpoint, which carries its recipe. */

static bool same_reals(const oct_reals *a, const oct_reals *b)
{
    return a->count == b->count &&
           memcmp(a->value, b->value, (size_t)a->count * sizeof *a->value) == 0;
}

oct_status oct_teacher_create(oct_teacher *teacher, const oct_checkpoint *checkpoint,
                              const oct_recipe *recipe, const oct_dataset *data)
{
    oct_module *model = NULL;
    OCT_OWNED(oct_recipe_free) oct_recipe teacher_recipe = {0};
    bool prepared;
    *teacher = (oct_teacher){0};
    OCT_TRY(oct_job_checkpoint_recipe(&teacher_recipe, checkpoint, NULL));
    oct_status status = OCT_OK;
    /* Teacher and model see the same floats, so both must have learned with the same normalisation. */
    if (!same_reals(&teacher_recipe.data_mean, &recipe->data_mean) ||
        !same_reals(&teacher_recipe.data_std, &recipe->data_std))
        status = oct_fail(OCT_USAGE,
                          "%s: has learned with another data.mean or data.std than this recipe "
                          "has; use the teacher's",
                          checkpoint->path);
    if (status == OCT_OK)
        status = oct_build_from_checkpoint(&model, checkpoint, &teacher_recipe, data, &prepared);
    if (status != OCT_OK) return oct_fail_prefix("distill.teacher");
    return oct_teacher_take(teacher, &model, data);
}

oct_status oct_teacher_take(oct_teacher *teacher, oct_module **model, const oct_dataset *data)
{
    oct_status status = OCT_OK;
    *teacher = (oct_teacher){.model = *model,
                             .sample = OCT_SHAPE(1, data->h, data->w, data->c),
                             .outputs = data->classes};
    *model = NULL;
    oct_module_train(teacher->model, false);
    OCT_TRY_OUT(oct_context_create(&teacher->cx, &oct_collective_one));
    OCT_TRY_OUT(oct_forward_begin(&teacher->forward, teacher->cx, teacher->model));
out:
    if (status != OCT_OK) oct_teacher_destroy(teacher);
    return status;
}

void oct_teacher_destroy(oct_teacher *teacher)
{
    oct_forward_end(&teacher->forward);
    oct_context_destroy(&teacher->cx);
    oct_module_destroy(&teacher->model);
    oct_free(&teacher->y);
    *teacher = (oct_teacher){0};
}
