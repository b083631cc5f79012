/* The forward of a calibration step, a few samples at a time: calibration runs the float model, whose
 * activations would need more memory than all of the training that follows.
 *
 * No bit depends on it. Observers take minima and maxima; the batch norms of the tree are frozen; nothing
 * else sees more than a sample. A module of the user's own may sum over the batch
 * all the same. Then the collective that it finds here notes the question and refuses, on every rank at
 * the same place, and the step is done again with the batch in one piece.
 */
#include "launch/run/trainer_impl.h"

#include "core/base/int_math.h"
#include "launch/run/forward.h"

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

/* A few of the rank's samples: whole leaves, or what is left of one, each sample as a leaf. */
static oct_leaves some_samples(const oct_leaves *leaves, int64_t at, int64_t wanted)
{
    const int64_t left = oct_leaves_local_samples(leaves) - at, into = at % leaves->leaf;
    oct_leaves some = *leaves;
    if (into == 0 && (wanted >= leaves->leaf || wanted >= left)) {
        some.first += at / leaves->leaf;
        some.local = oct_min_i64(oct_max_i64(wanted / leaves->leaf, 1), leaves->local);
        if (some.first + some.local > leaves->first + leaves->local)
            some.local = leaves->first + leaves->local - some.first;
        return some;
    }
    some.leaf = 1;
    some.count = leaves->samples;
    some.first = oct_leaves_first_sample(leaves) + at;
    some.local = oct_min_i64(oct_min_i64(wanted, left), leaves->leaf - into);
    return some;
}

/* Logits of local samples from `at` on, to their place among all. */
static oct_status forward_some(oct_trainer *trainer, oct_forward *f, const oct_leaves *some,
                               int64_t at, bool *fits)
{
    const oct_dataset *data = trainer->train_data;
    int64_t samples = oct_leaves_local_samples(some), image = data->h * data->w * data->c;
    const oct_tensor *y;
    OCT_TRY(oct_forward_run(f, *some, OCT_SHAPE(samples, data->h, data->w, data->c),
                            trainer->images + at * image, &y));
    *fits = y->dtype == OCT_F32 && oct_numel(y) == samples * data->classes;
    if (*fits && samples > 0)
        memcpy(trainer->logits + at * data->classes, y->data,
               (size_t)(samples * data->classes) * sizeof(float));
    return OCT_OK;
}

static oct_status forward_all(oct_trainer *trainer, oct_forward *f, const oct_leaves *leaves,
                              bool *fits)
{
    const int64_t samples = oct_leaves_local_samples(leaves);
    const int64_t most = leaves->leaf * omp_get_max_threads();
    for (int64_t at = 0, n; *fits && (at == 0 || at < samples); at += oct_max_i64(n, 1)) {
        const oct_leaves some = some_samples(leaves, at, oct_forward_samples(f, most));
        n = oct_leaves_local_samples(&some);
        OCT_TRY(forward_some(trainer, f, &some, at, fits));
    }
    return OCT_OK;
}

oct_status oct_calibrate_logits(oct_trainer *trainer, const oct_leaves *leaves, bool *done)
{
    bool asked = false;
    const refusal refusal_of_sums = {refusing(trainer->group), &asked};
    oct_forward *f = &trainer->calibration;
    *done = true;
    if (!f->cx) OCT_TRY(oct_forward_begin(f, trainer->context, trainer->model));
    trainer->context->group = &refusal_of_sums.face;
    oct_status status = forward_all(trainer, f, leaves, done);
    trainer->context->group = trainer->group;
    if (!asked) return status;
    oct_fail_clear();
    *done = false;
    return OCT_OK;
}
