#include "launch/train/trainer_correct.h"

#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "launch/base/meter.h"
#include "launch/train/trainer_impl.h"
#include "quant/correct/correction.h"
#include "quant/correct/equalize.h"

#include <omp.h>

bool oct_corrects(const oct_recipe *recipe)
{
    return recipe->quant_rounding != OCT_ROUNDING_NEAREST || recipe->quant_bias_correction;
}

oct_status oct_trainer_equalize(oct_trainer *trainer)
{
    int64_t pairs, channels;
    if (!trainer->recipe->quant_equalize || trainer->restores) return OCT_OK;
    OCT_TRY(oct_equalize(trainer->model, &pairs, &channels));
    oct_log(pairs > 0 ? OCT_LOG_INFO : OCT_LOG_WARN,
            "equalized: %lld pairs of layers, %lld factors of channels%s", (long long)pairs,
            (long long)channels,
            pairs > 0 ? ""
                      : "; none reads another directly, without a sum or a bound such as relu6");
    return OCT_OK;
}

/* A forward in codes over the samples of a batch that are here; no sum crosses samples in evaluation. */
static oct_status watch_batch(oct_trainer *t, oct_forward *forward, const oct_leaves *leaves)
{
    const oct_dataset *d = t->train_data;
    const int64_t samples = oct_leaves_local_samples(leaves), numel = d->h * d->w * d->c;
    const int64_t most = t->recipe->batch_leaf * omp_get_max_threads();
    const oct_tensor *y;
    for (int64_t at = 0, n; at < samples; at += n) {
        n = oct_forward_samples(forward, oct_min_i64(most, samples - at));
        OCT_TRY(oct_forward_run(forward, oct_leaves_split(n, 1, 0, 1),
                                OCT_SHAPE(n, d->h, d->w, d->c), t->images + at * numel, &y));
    }
    return OCT_OK;
}

static oct_status watch_all(oct_trainer *t, oct_forward *forward)
{
    const int64_t *begin = t->plan.begin;
    oct_meter meter;
    oct_status status = OCT_OK;
    oct_meter_begin(&meter, "rounding", "batches",
                    begin[OCT_PHASE_QAT] - begin[OCT_PHASE_CALIBRATE]);
    for (int64_t step = begin[OCT_PHASE_CALIBRATE]; step < begin[OCT_PHASE_QAT]; step++) {
        const oct_step_batches b = oct_trainer_batches(t, step);
        for (int64_t i = 0; i < b.count; i++) {
            oct_batch batch;
            oct_leaves leaves;
            OCT_TRY_OUT(oct_trainer_fetch(t, b.epoch, b.first + i, &batch, &leaves));
            OCT_TRY_OUT(watch_batch(t, forward, &leaves));
        }
        oct_meter_show(&meter, step + 1 - begin[OCT_PHASE_CALIBRATE]);
    }
out:
    oct_meter_end(&meter);
    return status;
}

/* One round over the calibration batches; its context has no group meanwhile, since ranks have their own shares. */
static oct_status collect_round(oct_trainer *t, oct_correction *c)
{
    oct_context *cx = t->training.context;
    oct_forward forward = {0};
    OCT_TRY(oct_correction_collect(c));
    cx->group = &oct_collective_one;
    oct_status status = oct_forward_begin(&forward, cx, t->model);
    if (status == OCT_OK) status = watch_all(t, &forward);
    oct_forward_end(&forward);
    cx->group = t->group;
    return status;
}

static oct_status correct_weights(oct_trainer *t, oct_correction *c)
{
    while (oct_correction_goes_on(c)) {
        OCT_TRY(t->group->agree(t->group, collect_round(t, c)));
        OCT_TRY(oct_trainer_agree_on_unread(t));
        OCT_TRY(oct_correction_apply(c, t->group));
    }
    if (c->options.rounding == OCT_ROUNDING_GPTQ)
        oct_log(OCT_LOG_INFO, "gptq: the weights of %lld layers were rounded",
                (long long)c->rounded);
    if (c->options.bias)
        oct_log(OCT_LOG_INFO, "bias correction: %lld layers", (long long)c->corrected);
    if (c->left > 0)
        oct_log(
            OCT_LOG_WARN,
            "%lld layer%s as %s: called twice, without bias and batch norm, or with scales that "
            "would not stay",
            (long long)c->left, c->left == 1 ? " is left" : "s are left",
            c->left == 1 ? "it was" : "they were");
    return OCT_OK;
}

oct_status oct_trainer_correct(oct_trainer *t)
{
    const oct_correction_options options = {t->recipe->quant_rounding,
                                            t->recipe->quant_bias_correction};
    oct_correction c;
    t->unread[0] = '\0';
    oct_module_train(t->model, false);
    oct_quantizers_set_state(&t->training.quantizers, OCT_QUANT_FROZEN);
    oct_status status = oct_correction_begin(&c, t->model, &options);
    if (status == OCT_OK) status = correct_weights(t, &c);
    oct_correction_end(&c);
    oct_module_train(t->model, true);
    return status;
}
