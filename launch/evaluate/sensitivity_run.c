#include "launch/evaluate/sensitivity_run.h"

#include "core/base/int_math.h"
#include "core/base/log.h"
#include "launch/base/meter.h"
#include "launch/evaluate/evaluate.h"

#include <math.h>

typedef struct reading {
    oct_loader loader;
    oct_meter meter;
} reading;

static oct_status fetch(void *user, int64_t first, int64_t n, float *const *input)
{
    reading *r = user;
    oct_goals goals;
    return oct_loader_read(&r->loader, first, n, input[0], &goals);
}

static void show_progress(void *user, int64_t done, int64_t all)
{
    reading *r = user;
    r->meter.total = all;
    oct_meter_show(&r->meter, done);
}

/* Class numbers seldom change with the codes of one layer. */
static void warn_of_silence(const oct_sensitivity *table)
{
    size_t silent = 0;
    for (size_t i = 0; i < table->count; i++)
        silent += isinf(table->rows[i].sqnr) != 0;
    if (silent > 1)
        oct_log(OCT_LOG_WARN,
                "%zu of %zu tensors change no output of these images (sqnr inf), so their order "
                "means nothing; take more --batches, or measure a network that returns scores and "
                "not class numbers",
                silent, table->count);
}

oct_status oct_sensitivity_run_it(const oct_sensitivity_run *run, oct_session *session,
                                  oct_sensitivity *table)
{
    const oct_dataset *d = run->data;
    reading r = {0};
    const oct_sensitivity_data data = {
        .samples = oct_min_i64(d->count, run->batches * run->recipe->batch_size),
        .batch = oct_evaluation_batch(run->recipe, session->group->size),
        .leaf = run->recipe->batch_leaf,
        .example = *OCT_EXAMPLE(OCT_SHAPE(1, d->h, d->w, d->c)),
        .outputs = d->rows * d->classes,
        .labels = d->rows == 1 ? d->labels : NULL,
        .fetch = fetch,
        .progress = show_progress,
        .user = &r,
    };
    oct_status status = oct_evaluation_loader(&r.loader, run->recipe, d);
    OCT_TRY_OUT(oct_session_agree(session, status));
    oct_meter_begin(&r.meter, "sensitivity", "forwards", 0);
    status = oct_sensitivity_measure(table, run->model, &data, session->group);
    oct_meter_end(&r.meter);
    if (status == OCT_OK && session->group->rank == 0) warn_of_silence(table);
out:
    oct_loader_deinit(&r.loader);
    return status;
}
