/* The forward of a calibration step, a few leaves at a time: calibration runs the float model, of which
 * a forward keeps every activation, and would need more memory than all of the training that follows.
 *
 * No bit depends on it. Observers take minima and maxima; the batch norms of the tree are frozen; a few
 * leaves are what a rank of a larger job would have. A module of the user's own may sum over the batch
 * all the same. Then the collective that it finds here notes the question and refuses, on every rank at
 * the same place, and the step is done again with the batch in one piece.
 */
#include "launch/trainer_impl.h"

#include "core/base/whole.h"

#include <omp.h>
#include <string.h>

typedef struct refusal {
    oct_collective face;
    bool *asked;
} refusal;

static oct_status refuse(const oct_collective *self)
{
    *((const refusal *)self)->asked = true;
    return oct_fail(OCT_DEFECT, "a sum over the batch was asked of a part of it");
}

static oct_status refuse_f32(const oct_collective *self, const oct_leaves *leaves, float *parts,
                             int64_t n, float *out)
{
    (void)leaves, (void)parts, (void)n, (void)out;
    return refuse(self);
}

static oct_status refuse_f64(const oct_collective *self, const oct_leaves *leaves, double *parts,
                             int64_t n, double *out)
{
    (void)leaves, (void)parts, (void)n, (void)out;
    return refuse(self);
}

static oct_status refuse_max(const oct_collective *self, int64_t *values, int64_t n)
{
    (void)values, (void)n;
    return refuse(self);
}

static oct_status refuse_broadcast(const oct_collective *self, void *data, size_t bytes, int root)
{
    (void)data, (void)bytes, (void)root;
    return refuse(self);
}

static oct_status refuse_gather(const oct_collective *self, const void *src, size_t bytes,
                                void *dst)
{
    (void)src, (void)bytes, (void)dst;
    return refuse(self);
}

static oct_status refuse_agree(const oct_collective *self, oct_status mine)
{
    (void)mine;
    return refuse(self);
}

static oct_collective refusing(const oct_collective *group)
{
    return (oct_collective){
        .rank = group->rank,
        .size = group->size,
        .tree_sum_f32 = refuse_f32,
        .tree_sum_f64 = refuse_f64,
        .max_i64 = refuse_max,
        .broadcast = refuse_broadcast,
        .gather = refuse_gather,
        .agree = refuse_agree,
    };
}

/* Logits of local leaves [first, first + some->local), to their place among all. */
static oct_status forward_some(oct_trainer *trainer, const oct_leaves *some, int64_t sample,
                               bool *fits)
{
    const oct_dataset *data = trainer->train_data;
    oct_context *cx = trainer->context;
    int64_t samples = oct_leaves_local_samples(some), image = data->h * data->w * data->c;
    oct_context_begin(cx, *some, false);
    oct_tensor *x = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(samples, data->h, data->w, data->c),
                                    trainer->images + sample * image);
    oct_tensor *y = oct_call(cx, trainer->model, x);
    OCT_TRY(oct_context_status(cx));
    *fits = y->dtype == OCT_F32 && oct_numel(y) == samples * data->classes;
    if (*fits && samples > 0)
        memcpy(trainer->logits + sample * data->classes, y->data,
               (size_t)(samples * data->classes) * sizeof(float));
    return OCT_OK;
}

oct_status oct_calibrate_logits(oct_trainer *trainer, const oct_leaves *leaves, bool *done)
{
    bool asked = false;
    const refusal refusal_of_sums = {refusing(trainer->group), &asked};
    int64_t together = omp_get_max_threads();
    oct_status status = OCT_OK;
    *done = true;
    trainer->context->group = &refusal_of_sums.face;
    for (int64_t i = 0; status == OCT_OK && *done && (i == 0 || i < leaves->local); i += together) {
        oct_leaves some = *leaves;
        some.first += i;
        some.local = oct_smaller(together, leaves->local - i);
        status = forward_some(trainer, &some, oct_leaf_begin(leaves, i), done);
    }
    trainer->context->group = trainer->group;
    if (!asked) return status;
    oct_fail_clear();
    *done = false;
    return OCT_OK;
}
