/* Calibration runs part by part.
 *
 * No bit depends on the parts. Observers take minima and maxima; the batch norms of the tree are frozen; nothing
 * else sees more than a sample. A module of the user's own may sum over the batch all the same: the context
 * refuses that for a part of a batch, on every rank at the same place, and says so.
 */
#include "launch/train/calibrate.h"

#include "core/autograd/context.h"
#include "core/base/int_math.h"

#include <omp.h>
#include <string.h>

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

/* Outputs of local samples from `at` on, to their place among all. */
static oct_status forward_some(oct_calibration *c, const oct_leaves *some, int64_t at, bool *fits)
{
    const int64_t samples = oct_leaves_local_samples(some), n = c->outputs;
    const oct_tensor *y;
    oct_shape shape = c->sample;
    shape.dim[0] = samples;
    OCT_TRY(
        oct_forward_run(&c->forward, *some, shape, c->x + at * oct_shape_numel(&c->sample), &y));
    *fits = y->dtype == OCT_F32 && oct_numel(y) == samples * n;
    if (*fits && samples > 0)
        memcpy(c->rows + at * n, y->data, (size_t)(samples * n) * sizeof(float));
    return OCT_OK;
}

static oct_status forward_all(oct_calibration *c, const oct_leaves *leaves, bool *fits)
{
    const int64_t samples = oct_leaves_local_samples(leaves);
    const int64_t most = leaves->leaf * omp_get_max_threads();
    *fits = true;
    for (int64_t at = 0, n; *fits && (at == 0 || at < samples); at += oct_max_i64(n, 1)) {
        const oct_leaves some = some_samples(leaves, at, oct_forward_samples(&c->forward, most));
        n = oct_leaves_local_samples(&some);
        OCT_TRY(forward_some(c, &some, at, fits));
    }
    return OCT_OK;
}

oct_status oct_calibrate(oct_calibration *c, const oct_leaves *leaves, bool *done)
{
    oct_context *cx = c->forward.cx;
    const oct_collective *group = cx->group;
    cx->group = &oct_collective_one;
    cx->part = OCT_BATCH_PART;
    const oct_status status = forward_all(c, leaves, done);
    const bool refused = cx->part == OCT_BATCH_PART_REFUSED;
    cx->group = group;
    cx->part = OCT_BATCH_WHOLE;
    if (!refused) return status;
    oct_fail_clear();
    *done = false;
    return OCT_OK;
}
