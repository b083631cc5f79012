/* The teacher is built from its checkpoint, which carries its recipe, and computes a few samples at a time. No
 * operation in evaluation mode sums over samples, so its outputs have the same bits on any number of ranks. */
#include "launch/train/teacher.h"

#include "core/base/mem.h"
#include "core/op/loss.h"
#include "launch/session/build.h"
#include "launch/session/checkpoint_key.h"
#include "launch/session/job.h"
#include "launch/session/task.h"

#include <omp.h>
#include <string.h>

static oct_checkpoint_key key_of(oct_recipe *recipe)
{
    const bool named = oct_teacher_wanted(recipe) && !oct_teacher_is_own(recipe);
    return (oct_checkpoint_key){"distill.teacher", "distill.sha256",
                                named ? recipe->distill_teacher : "", &recipe->distill_sha256,
                                "a checkpoint or a run folder"};
}

oct_status oct_teacher_open(oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    const oct_checkpoint_key key = key_of(recipe);
    OCT_TRY(oct_checkpoint_key_open(&key, false, checkpoint));
    if (!checkpoint->bytes) return OCT_OK;
    const oct_status status = oct_checkpoint_key_digest(&key, checkpoint);
    if (status != OCT_OK) oct_checkpoint_close(checkpoint);
    return status;
}

oct_status oct_teacher_share(oct_session *session, oct_recipe *recipe, oct_checkpoint *checkpoint)
{
    const oct_checkpoint_key key = key_of(recipe);
    oct_status status = OCT_OK;
    *checkpoint = (oct_checkpoint){0};
    if (session->group->rank == 0) status = oct_teacher_open(recipe, checkpoint);
    return oct_checkpoint_key_share(&key, session, status, checkpoint);
}

static bool same_reals(const oct_reals *a, const oct_reals *b)
{
    return a->count == b->count &&
           memcmp(a->value, b->value, (size_t)a->count * sizeof *a->value) == 0;
}

/* Teacher and model see the same floats, so both must have learned with the same normalisation. */
static oct_status check_inputs(const char *path, const oct_recipe *there, const oct_recipe *recipe)
{
    OCT_CHECK(same_reals(&there->data_mean, &recipe->data_mean) &&
                  same_reals(&there->data_std, &recipe->data_std),
              OCT_USAGE,
              "%s: has learned with another data.mean or data.std than this recipe has; use the "
              "teacher's",
              path);
    return OCT_OK;
}

static oct_status build(oct_module **model, const oct_checkpoint *checkpoint,
                        const oct_recipe *recipe, const oct_dataset *data)
{
    oct_recipe there;
    bool prepared;
    OCT_TRY(oct_job_checkpoint_recipe(&there, checkpoint, NULL));
    oct_status status = check_inputs(checkpoint->path, &there, recipe);
    if (status == OCT_OK)
        status = oct_build_from_checkpoint(model, checkpoint, &there, data, &prepared);
    oct_recipe_free(&there);
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

/* Takes the next few samples; *done: how many. */
static oct_status ask_some(oct_teacher *teacher, float *images, int64_t left, float *y,
                           int64_t *done)
{
    const oct_tensor *out;
    oct_shape shape = teacher->sample;
    char text[96];
    const int64_t n = *done = shape.dim[0] = oct_forward_samples(&teacher->forward, left);
    OCT_TRY(oct_forward_run(&teacher->forward, oct_leaves_split(n, 1, 0, 1), shape, images, &out));
    OCT_CHECK(out->dtype == OCT_F32 && oct_numel(out) == n * teacher->outputs, OCT_PREPARE,
              "distill.teacher: the teacher returns %s %s for %lld samples; it must return %lld "
              "floats for each, as the model does",
              oct_dtype_name(out->dtype), oct_shape_text(&out->shape, text), (long long)n,
              (long long)teacher->outputs);
    memcpy(y, out->data, (size_t)oct_numel(out) * sizeof *y);
    return OCT_OK;
}

oct_status oct_teacher_ask(oct_teacher *teacher, float *images, int64_t n, const float **y)
{
    const int64_t each = oct_shape_numel(&teacher->sample);
    OCT_TRY(oct_grow(&teacher->y, &teacher->capacity, (size_t)(n * teacher->outputs),
                     sizeof *teacher->y));
    for (int64_t at = 0, done; at < n; at += done)
        OCT_TRY(ask_some(teacher, images + at * each, n - at, teacher->y + at * teacher->outputs,
                         &done));
    *y = teacher->y;
    return OCT_OK;
}
