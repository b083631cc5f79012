/* The plan is computed from the recipe, the size of the data set and the step alone. */
#include "launch/session/plan.h"

#include "core/base/int_math.h"

#include <math.h>
#include <string.h>

static const char *const phase_names[] = {
#define X(name, text) [OCT_PHASE_##name] = text,
    OCT_PHASE_LIST(X)
#undef X
};

/* Finds the steps of each phase. Batch norm freezes no later than the scales do: the recipe is refused otherwise. */
oct_plan oct_plan_of(const oct_recipe *recipe, int64_t train_samples)
{
    const int64_t accumulate = oct_max_i64(recipe->batch_accumulate, 1), batch = recipe->batch_size;
    const int64_t whole = train_samples / batch / accumulate; /* steps without a short one */
    const int64_t batches = recipe->data_drop_last
                                ? whole * accumulate
                                : train_samples / batch + (train_samples % batch != 0);
    const int64_t per_epoch = batches / accumulate + (batches % accumulate != 0);
    int64_t qat = recipe->qat_epochs * per_epoch;
    int64_t scales = (int64_t)floor(recipe->qat_freeze_scales * (double)qat);
    int64_t norms = (int64_t)floor(recipe->qat_freeze_batch_norm * (double)qat);
    oct_plan plan = {
        .steps_per_epoch = per_epoch, .accumulate = accumulate, .epoch_batches = batches};
    plan.begin[OCT_PHASE_FLOAT] = 0;
    plan.begin[OCT_PHASE_CALIBRATE] = recipe->float_epochs * per_epoch;
    plan.begin[OCT_PHASE_QAT] = plan.begin[OCT_PHASE_CALIBRATE] + recipe->calibrate_batches;
    plan.begin[OCT_PHASE_QAT_BN_FROZEN] = plan.begin[OCT_PHASE_QAT] + norms;
    plan.begin[OCT_PHASE_QAT_SCALES_FROZEN] = plan.begin[OCT_PHASE_QAT] + scales;
    plan.begin[OCT_PHASES] = plan.begin[OCT_PHASE_QAT] + qat;
    plan.float_steps = plan.begin[OCT_PHASE_CALIBRATE];
    plan.qat_steps = qat;
    return plan;
}

void oct_plan_end_float(oct_plan *plan, int64_t step)
{
    const int64_t fewer = plan->begin[OCT_PHASE_CALIBRATE] - step;
    for (int phase = OCT_PHASE_CALIBRATE; phase <= OCT_PHASES; phase++)
        plan->begin[phase] -= fewer;
}

void oct_plan_end_qat(oct_plan *plan, int64_t step)
{
    for (int phase = OCT_PHASE_QAT_BN_FROZEN; phase <= OCT_PHASES; phase++)
        plan->begin[phase] = oct_min_i64(plan->begin[phase], step);
}

oct_phase oct_plan_phase(const oct_plan *plan, int64_t step)
{
    int phase = 0;
    while (phase < OCT_PHASES - 1 && step >= plan->begin[phase + 1])
        phase++;
    return (oct_phase)phase;
}

int64_t oct_plan_steps(const oct_plan *plan)
{
    return plan->begin[OCT_PHASES];
}

const char *oct_phase_name(oct_phase phase)
{
    return phase_names[phase];
}

bool oct_phase_of_name(const char *name, oct_phase *phase)
{
    for (int i = 0; i < OCT_PHASES; i++) {
        if (strcmp(name, phase_names[i]) == 0) {
            *phase = (oct_phase)i;
            return true;
        }
    }
    return false;
}

oct_status oct_checkpoint_phase(const oct_checkpoint *checkpoint, oct_phase *phase)
{
    OCT_CHECK(oct_phase_of_name(checkpoint->info.phase, phase), OCT_DATA,
              "%s: there is no phase '%s'; the checkpoint is of another version of Octet",
              checkpoint->path, checkpoint->info.phase);
    return OCT_OK;
}

/* Finds the planned steps [begin, end) of the part that holds `step`: float, calibration, or the three QAT phases
 * together. Epochs and learning rates are counted within a part. */
static void find_plan_part(const oct_plan *plan, int64_t step, int64_t *begin, int64_t *end)
{
    if (step < plan->begin[OCT_PHASE_CALIBRATE]) {
        *begin = 0;
        *end = plan->float_steps;
    } else if (step < plan->begin[OCT_PHASE_QAT]) {
        *begin = plan->begin[OCT_PHASE_CALIBRATE];
        *end = plan->begin[OCT_PHASE_QAT];
    } else {
        *begin = plan->begin[OCT_PHASE_QAT];
        *end = *begin + plan->qat_steps;
    }
}

void oct_plan_epoch(const oct_plan *plan, int64_t step, int64_t *epoch, int64_t *step_in_epoch)
{
    int64_t begin, end, per_epoch = plan->steps_per_epoch;
    find_plan_part(plan, step, &begin, &end);
    int64_t float_epochs = plan->float_steps / per_epoch;
    int64_t qat_epochs = plan->qat_steps / per_epoch;
    int64_t first_epoch = 0;
    if (step >= plan->begin[OCT_PHASE_QAT])
        first_epoch = float_epochs;
    else if (step >= plan->begin[OCT_PHASE_CALIBRATE])
        first_epoch = float_epochs + qat_epochs;
    *epoch = first_epoch + (step - begin) / per_epoch;
    *step_in_epoch = (step - begin) % per_epoch;
}

int64_t oct_plan_batches(const oct_plan *plan, int64_t step, int64_t *epoch, int64_t *first)
{
    int64_t step_in_epoch;
    oct_plan_epoch(plan, step, epoch, &step_in_epoch);
    *first = step_in_epoch * plan->accumulate;
    return oct_min_i64(plan->accumulate, plan->epoch_batches - *first);
}

/* Within the part that holds the step, epochs count from 1, and the last epoch may be a short one. */
oct_plan_position oct_plan_position_at(const oct_plan *plan, int64_t step)
{
    int64_t begin, end, per_epoch = plan->steps_per_epoch;
    find_plan_part(plan, step, &begin, &end);
    oct_plan_position position = {.step = step - begin, .steps = end - begin};
    position.epochs = (position.steps + per_epoch - 1) / per_epoch;
    position.epoch = oct_min_i64(position.step / per_epoch + 1, position.epochs);
    return position;
}

bool oct_plan_evaluates(const oct_plan *plan, const oct_recipe *recipe, int64_t step)
{
    const oct_phase phase = oct_plan_phase(plan, step - 1);
    if (phase == OCT_PHASE_CALIBRATE) return false;
    if (step >= oct_plan_steps(plan)) return recipe->evaluate_best && recipe->evaluate_best[0];
    if (oct_plan_phase(plan, step) != phase) return true;
    const oct_plan_position position = oct_plan_position_at(plan, step - 1);
    const bool epoch_ends = (position.step + 1) % plan->steps_per_epoch == 0;
    return recipe->evaluate_every > 0 && epoch_ends && position.epoch % recipe->evaluate_every == 0;
}

double oct_plan_lr(const oct_plan *plan, const oct_recipe *recipe, int64_t step)
{
    const bool is_float = step < plan->begin[OCT_PHASE_CALIBRATE];
    if (!is_float && step < plan->begin[OCT_PHASE_QAT]) return 0;
    int64_t begin, end;
    find_plan_part(plan, step, &begin, &end);
    oct_schedule schedule =
        is_float ? oct_recipe_float_schedule(recipe) : oct_recipe_qat_schedule(recipe);
    schedule.total = end - begin;
    schedule.steps_per_epoch = plan->steps_per_epoch;
    return oct_schedule_lr(&schedule, step - begin);
}
