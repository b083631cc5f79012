/* The teacher is built from its checkpoint, which carries its recipe, and computes a few samples at a time. No
 * operation in evaluation mode sums over samples, so its outputs have the same bits on any number of ranks. */
#include "launch/train/teacher.h"

#include "core/base/mem.h"
#include "core/op/loss.h"
#include "launch/session/build.h"
#include "launch/session/job.h"
#include "launch/session/task.h"

#include <omp.h>
#include <string.h>

static bool same_reals(const oct_reals *a, const oct_reals *b)
{
    return a->count == b->count &&
           memcmp(a->value, b->value, (size_t)a->count * sizeof *a->value) == 0;
}

static oct_status build(oct_module **model, const oct_checkpoint *checkpoint,
                        const oct_recipe *recipe, const oct_dataset *data)
{
    oct_recipe teacher_recipe;
    bool prepared;
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
        status = oct_build_from_checkpoint(model, checkpoint, &teacher_recipe, data, &prepared);
    oct_recipe_free(&teacher_recipe);
    return status == OCT_OK ? OCT_OK : oct_fail_prefix("distill.teacher");
}

oct_status oct_teacher_create(oct_teacher *teacher, const oct_checkpoint *checkpoint,
                              const oct_recipe *recipe, const oct_dataset *data)
{
    oct_module *model = NULL;
    *teacher = (oct_teacher){0};
    OCT_TRY(build(&model, checkpoint, recipe, data));
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

oct_status oct_teacher_ask(oct_teacher *teacher, float *images, int64_t n, const float **y)
{
    const int64_t each = oct_shape_numel(&teacher->sample);
    OCT_TRY(oct_grow(&teacher->y, &teacher->capacity, (size_t)(n * teacher->outputs),
                     sizeof *teacher->y));
    for (int64_t at = 0, some; at < n; at += some) {
        const oct_tensor *out;
        oct_shape shape = teacher->sample;
        char text[96];
        some = shape.dim[0] = oct_forward_samples(&teacher->forward, n - at);
        OCT_TRY(oct_forward_run(&teacher->forward, oct_leaves_split(some, 1, 0, 1), shape,
                                images + at * each, &out));
        OCT_CHECK(out->dtype == OCT_F32 && oct_numel(out) == some * teacher->outputs, OCT_PREPARE,
                  "distill.teacher: the teacher returns %s %s for %lld samples; it must return "
                  "%lld floats for each, as the model does",
                  oct_dtype_name(out->dtype), oct_shape_text(&out->shape, text), (long long)some,
                  (long long)teacher->outputs);
        memcpy(teacher->y + at * teacher->outputs, out->data,
               (size_t)oct_numel(out) * sizeof(float));
    }
    *y = teacher->y;
    return OCT_OK;
}
