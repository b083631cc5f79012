/* A step's batches are read here: which samples, from which loader, with which labels and what the teacher says. */
#include "launch/train/trainer_impl.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "launch/session/task.h"

#include <stdio.h>

int64_t oct_trainer_full_batch(const oct_trainer *trainer)
{
    return oct_min_i64(trainer->train_data->count, trainer->recipe->batch_size);
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
oct_status oct_trainer_batches_create(oct_trainer *trainer)
{
    OCT_TRY(oct_training_loader(&trainer->loader, trainer->recipe, trainer->train_data));
    oct_loader_read_ahead(&trainer->loader, trainer->recipe);
    trainer->loader.cache_bytes = trainer->recipe->data_cache * 1000000;
    trainer->loader.rank = trainer->group->rank;
    trainer->loader.ranks = trainer->group->size;
    const oct_dataset *data = trainer->train_data;
    int64_t leaf = trainer->recipe->batch_leaf;
    int64_t leaves = (oct_trainer_full_batch(trainer) + leaf - 1) / leaf;
    size_t samples = (size_t)((leaves + trainer->group->size - 1) / trainer->group->size * leaf);
    size_t image = (size_t)(data->h * data->w * data->c);
    OCT_TRY(oct_alloc(&trainer->images, samples, image * sizeof(float)));
    OCT_TRY(
        oct_alloc(&trainer->logits, samples, (size_t)(data->rows * data->classes) * sizeof(float)));
    return oct_loader_reserve(&trainer->loader, (int64_t)samples);
}

oct_step_batches oct_trainer_batches(const oct_trainer *trainer, int64_t step)
{
    oct_step_batches b = {0};
    b.count = oct_plan_batches(&trainer->plan, step, &b.epoch, &b.first);
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
        snprintf(trainer->unread, sizeof trainer->unread, "%s", oct_fail_text(0));
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
