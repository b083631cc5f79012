/* `octet check` foretells memory and time from a short run, which it continues along lines. */
#include "launch/train/forecast.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/int_math.h"
#include "launch/deploy/certificate.h"
#include "launch/base/machine.h"
#include "launch/train/trainer.h"

#include <math.h>
#include <omp.h>
#include <string.h>
#include <sys/resource.h>

enum {
    MOST_IMAGES = 64, /* at a time; more are continued along the line */
    FLOAT_STEPS = 3,
    QAT_STEPS = 6, /* the last has frozen scales, the last half frozen batch norms */
};

/* Writing a checkpoint takes this multiple of its bytes: HDF5's image, the file's, these with their checksum, and a
 * third of one for what HDF5 holds besides (3.1 to 3.5 on five models). */
static const double save_copies = 10.0 / 3.0;

/* What MPI takes of a rank's memory, alone and with others (measured with Open MPI 4.1.4), and HDF5. */
enum { LONE_RANK = 4 << 20, RANK_AMONG_OTHERS = 8 << 20, HDF5_BYTES = 5 << 20 };

const char *oct_stage_text(oct_stage stage)
{
    static const char *const texts[] = {
#define X(name, text) [OCT_STAGE_##name] = text,
        OCT_STAGE_LIST(X)
#undef X
    };
    return texts[stage];
}

/* A short run, which takes `images` images at a time. */
typedef struct short_run {
    const oct_forecast_subject *subject;
    int64_t images;
    oct_recipe recipe; /* borrowed texts */
    oct_dataset train, test;
    oct_trainer trainer;
    oct_stage stage;
    int64_t save_bytes;
    int64_t bytes[OCT_STAGES];
    double step_seconds[OCT_PHASES];
    double float_seconds, qat_seconds; /* of the evaluation of an image */
    int64_t params_bytes;
} short_run;

static bool has_phase(const oct_plan *plan, oct_phase phase)
{
    return plan->begin[phase] < plan->begin[phase + 1];
}

static int64_t count_epochs(int64_t steps, int64_t steps_per_epoch)
{
    OCT_ASSERT(steps_per_epoch > 0);
    return (steps + steps_per_epoch - 1) / steps_per_epoch;
}

static oct_dataset first_images(const oct_dataset *data, int64_t count)
{
    oct_dataset some = *data;
    some.count = oct_min_i64(count, data->count);
    return some;
}

/* Two batches to a step are enough to measure what a further one costs. */
static int64_t count_few_batches(const oct_recipe *recipe)
{
    return oct_min_i64(recipe->batch_accumulate, 2);
}

/* Makes the recipe of the short run: a few steps of each phase. All that decides about memory stays as it is; the
 * learning rate is next to nothing, since schedules would be other ones. */
static void shorten_recipe(short_run *r, const oct_plan *plan)
{
    static const double rate = 1e-9;
    oct_recipe *s = &r->recipe;
    *s = *r->subject->recipe;
    s->batch_size = r->images;
    s->batch_accumulate = count_few_batches(r->subject->recipe);
    s->data_drop_last = false;
    s->float_lr = s->qat_lr = rate;
    s->float_final_lr = s->qat_final_lr = 0;
    s->float_warmup = s->qat_warmup = 0;
    r->train = first_images(r->subject->train, 2 * s->batch_accumulate * r->images);
    if (r->train.count > r->images) r->train.count -= r->train.count % r->images;
    r->test = first_images(r->subject->test, 2 * oct_evaluation_batch(s, 1) + 1);
    const int64_t each = count_epochs(r->train.count, s->batch_accumulate * r->images);
    const bool qat = plan->begin[OCT_PHASE_QAT] < oct_plan_steps(plan);
    s->float_epochs = has_phase(plan, OCT_PHASE_FLOAT) ? count_epochs(FLOAT_STEPS, each) : 0;
    s->calibrate_batches = has_phase(plan, OCT_PHASE_CALIBRATE);
    s->qat_epochs = qat ? count_epochs(QAT_STEPS, each) : 0;
    s->qat_freeze_batch_norm = 0.5;
    s->qat_freeze_scales = 0.7;
}

static void enter_stage(short_run *r, oct_stage stage)
{
    if (stage != r->stage) oct_memory_reset_peak();
    r->stage = stage;
}

static void note_peak(short_run *r, int64_t bytes)
{
    r->bytes[r->stage] = oct_max_i64(r->bytes[r->stage], bytes);
}

static oct_status evaluate_short_run(short_run *r, double *seconds)
{
    oct_scores scores;
    enter_stage(r, OCT_STAGE_EVALUATE);
    const double begin = oct_seconds();
    OCT_TRY(oct_trainer_evaluate(&r->trainer, &scores));
    *seconds = (oct_seconds() - begin) / (double)r->test.count;
    note_peak(r, oct_memory_resident_peak());
    return OCT_OK;
}

/* Takes all steps of a phase. The first fills the pools; of the others the fastest counts, since whatever else
 * the machine does only makes them slower. */
static oct_status run_phase(short_run *r, oct_phase phase)
{
    oct_trainer *trainer = &r->trainer;
    oct_step_result result;
    double fastest = HUGE_VAL, first = 0;
    enter_stage(r, phase == OCT_PHASE_FLOAT       ? OCT_STAGE_FLOAT
                   : phase == OCT_PHASE_CALIBRATE ? OCT_STAGE_CALIBRATE
                                                  : OCT_STAGE_QAT);
    for (int64_t i = trainer->step; i < trainer->plan.begin[phase + 1]; i++) {
        const double begin = oct_seconds();
        OCT_TRY(oct_trainer_step(trainer, &result));
        const double seconds = oct_seconds() - begin;
        if (i == trainer->plan.begin[phase])
            first = seconds;
        else
            fastest = fmin(fastest, seconds);
    }
    r->step_seconds[phase] = fastest < HUGE_VAL ? fastest : first;
    note_peak(r, oct_memory_resident_peak());
    note_peak(r, oct_memory_resident() + r->save_bytes);
    if (phase == OCT_PHASE_FLOAT) {
        r->params_bytes = trainer->training.params.numel * (int64_t)sizeof(float);
        return evaluate_short_run(r, &r->float_seconds);
    }
    return phase == OCT_PHASE_QAT ? evaluate_short_run(r, &r->qat_seconds) : OCT_OK;
}

/* Runs the phases of the short run, evaluates and converts; notes the time of a step and the peak of memory of each. */
static oct_status run_all_phases(short_run *r)
{
    const oct_plan plan = oct_plan_of(r->subject->recipe, r->subject->train->count);
    oct_status status = OCT_OK;
    shorten_recipe(r, &plan);
    oct_mem_trim();
    oct_memory_reset_peak();
    OCT_TRY(oct_trainer_create(&r->trainer, &r->recipe, &oct_collective_one, &r->train, &r->test));
    note_peak(r, oct_memory_resident_peak());
    OCT_TRY_OUT(oct_init_apply(r->subject->init, &r->trainer, NULL));
    for (int phase = 0; phase < OCT_PHASES; phase++)
        if (has_phase(&r->trainer.plan, (oct_phase)phase))
            OCT_TRY_OUT(run_phase(r, (oct_phase)phase));
    oct_conversion conversion = {
        .root = r->trainer.model, .recipe = &r->recipe, .test_data = &r->test};
    oct_model model = {0};
    oct_trainer_release_memory(&r->trainer);
    enter_stage(r, OCT_STAGE_CONVERT);
    OCT_TRY_OUT(oct_certify(&model, &conversion, &oct_collective_one));
    note_peak(r, oct_memory_resident_peak());
    oct_model_free(&model);
    note_peak(r, oct_memory_resident() + r->save_bytes);
out:
    oct_trainer_destroy(&r->trainer);
    oct_mem_trim();
    return status;
}

/* While it lives, memory that the machine lacks is a failed allocation and not the end of a process. */
typedef struct memory_limit {
    struct rlimit before;
    bool set;
} memory_limit;

/* Limits the address space of this process to what it has and what the machine has available. */
static memory_limit limit_memory(int64_t available)
{
    memory_limit f = {0};
    if (available < 0 || getrlimit(RLIMIT_AS, &f.before) != 0) return f;
    const int64_t in_use = oct_memory_virtual();
    struct rlimit narrow = f.before;
    if (in_use <= 0) return f;
    const rlim_t most = (rlim_t)(in_use + available);
    if (f.before.rlim_cur == RLIM_INFINITY || f.before.rlim_cur > most) narrow.rlim_cur = most;
    f.set = setrlimit(RLIMIT_AS, &narrow) == 0;
    return f;
}

/* Runs the short run with `images` at a time. Where memory lacks, *fits is false and the status OCT_OK. */
static oct_status try_share(short_run *r, int64_t images, const oct_forecast_subject *subject,
                            bool *fits)
{
    const double save_bytes = save_copies * (double)subject->checkpoint_bytes;
    *r = (short_run){.subject = subject, .images = images};
    r->save_bytes = (int64_t)save_bytes + HDF5_BYTES;
    oct_status status = run_all_phases(r);
    *fits = status != OCT_RESOURCE;
    if (*fits) return status;
    oct_fail_clear();
    return OCT_OK;
}

/* Continues the line through (x1, y1) and (x2, y2) to x, but never below the second point. */
static double extrapolate(double x1, double y1, double x2, double y2, double x)
{
    const double slope = x2 > x1 ? (y2 - y1) / (x2 - x1) : 0;
    return y2 + fmax(slope, 0) * (x - x2);
}

/* Memory of a rank beside that of one process alone: MPI's, and gradient sums that wait for other ranks' leaves. */
static int64_t bytes_of_ranks(const oct_recipe *recipe, const oct_dataset *train, int ranks,
                              int64_t params_bytes)
{
    const int64_t batch = oct_min_i64(recipe->batch_size, train->count);
    int64_t most = 1;
    oct_subtree parts[OCT_MAX_PARTS];
    if (ranks == 1) return LONE_RANK;
    for (int rank = 0; rank < ranks; rank++) {
        const oct_leaves leaves = oct_leaves_split(batch, recipe->batch_leaf, rank, ranks);
        most = oct_max_i64(most, oct_leaves_parts(&leaves, parts));
    }
    return RANK_AMONG_OTHERS + (most - 1) * params_bytes;
}

static void count_evaluations(const oct_recipe *recipe, const oct_plan *plan, int64_t *in_float,
                              int64_t *in_qat)
{
    const int64_t each = plan->steps_per_epoch, qat = plan->begin[OCT_PHASE_QAT];
    *in_float = *in_qat = 0;
    for (int64_t step = each; step <= plan->begin[OCT_PHASE_CALIBRATE]; step += each)
        *in_float += oct_plan_evaluates(plan, recipe, step);
    for (int64_t step = qat + each; step <= oct_plan_steps(plan); step += each)
        *in_qat += oct_plan_evaluates(plan, recipe, step);
    for (int phase = OCT_PHASE_QAT_BN_FROZEN; phase < OCT_PHASES; phase++)
        if (has_phase(plan, (oct_phase)(phase - 1)) && (plan->begin[phase] - qat) % each != 0)
            *in_qat += oct_plan_evaluates(plan, recipe, plan->begin[phase]);
}

/* Continues bytes and seconds of two short runs to `share` images at a time, and adds up those of the whole run. */
static void predict_costs(oct_forecast *f, int64_t share, const short_run *few,
                          const short_run *many)
{
    const oct_recipe *recipe = many->subject->recipe;
    const oct_dataset *train = many->subject->train, *test = many->subject->test;
    const int ranks = many->subject->ranks;
    const oct_plan plan = oct_plan_of(recipe, train->count);
    const double x1 = (double)few->images, x2 = (double)many->images, x = (double)share;
    /* An update of more batches than the short run's keeps more sums of gradients waiting. */
    int64_t rows = 0;
    while ((recipe->batch_accumulate - 1) >> rows)
        rows++;
    const int64_t others = bytes_of_ranks(recipe, train, ranks, many->params_bytes) +
                           oct_max_i64(rows - 1, 0) * many->params_bytes;
    const double batches = (double)recipe->batch_accumulate / (double)count_few_batches(recipe);
    const int64_t logits = 2 * (test->count / ranks + 1) * test->classes * (int64_t)sizeof(float);
    for (int i = 0; i < OCT_STAGES; i++) {
        if (many->bytes[i] == 0) continue;
        const double y = extrapolate(x1, (double)few->bytes[i], x2, (double)many->bytes[i], x);
        f->bytes[i] = oct_max_i64(f->bytes[i], (int64_t)y + others);
    }
    f->bytes[OCT_STAGE_EVALUATE] += logits / 2;
    f->bytes[OCT_STAGE_CONVERT] += logits;
    for (int i = 0; i < OCT_STAGES; i++)
        if (f->bytes[i] > f->bytes[f->peak]) f->peak = (oct_stage)i;

    int64_t in_float, in_qat;
    count_evaluations(recipe, &plan, &in_float, &in_qat);
    f->evaluations = in_float + in_qat + 1;
    const int64_t images_a_rank = test->count / ranks + 1;
    f->seconds =
        ((double)in_float * many->float_seconds + (double)(in_qat + 1) * many->qat_seconds) *
        (double)images_a_rank;
    for (int phase = 0; phase < OCT_PHASES; phase++) {
        if (!has_phase(&plan, (oct_phase)phase)) continue;
        f->step_seconds[phase] =
            extrapolate(x1, few->step_seconds[phase], x2, many->step_seconds[phase], x) * batches;
        f->seconds += f->step_seconds[phase] * (double)(plan.begin[phase + 1] - plan.begin[phase]);
    }
}

/* The second measure takes as many images as matter, and as are sure to fit: whole leaves, by what an image took in the
 * first one into half of what is available. */
static int64_t images_to_try(const short_run *few, int64_t share, int64_t leaf, int64_t available)
{
    int64_t most = oct_min_i64(share, oct_max_i64(MOST_IMAGES / leaf, 2) * leaf), bytes = 0;
    for (int i = 0; i < OCT_STAGES; i++)
        bytes = oct_max_i64(bytes, few->bytes[i]);
    const int64_t each = (bytes - few->bytes[OCT_STAGE_START]) / few->images + 1;
    if (available > 0) most = oct_min_i64(most, available / 2 / each / leaf * leaf);
    return oct_max_i64(most, few->images);
}

/* The trial's learning rate is next to nothing, so the remedy is another than in training. */
static oct_status explain_failure(oct_status status)
{
    const char *text = oct_error_message(0);
    if (status != OCT_NUMERIC) return status;
    return oct_fail(OCT_NUMERIC,
                    "a trial of a few steps, at a learning rate of nearly 0, fails at %.*s; either "
                    "the weights at the start are not trained (train in float first: "
                    "float.epochs), or the data are far from 1 (data.mean, data.std)",
                    (int)strcspn(text, ";"), text);
}

/* Runs a few images and then more, and continues memory and time along the line through both to the whole share. */
oct_status oct_forecast_make(oct_forecast *f, const oct_forecast_subject *subject)
{
    const oct_recipe *recipe = subject->recipe;
    const int64_t samples = subject->train->count, ranks = subject->ranks;
    const int64_t leaf = recipe->batch_leaf, batch = oct_min_i64(recipe->batch_size, samples);
    const int64_t leaves = (batch + leaf - 1) / leaf, available = oct_machine_memory();
    const int64_t share = oct_min_i64((leaves + ranks - 1) / ranks * leaf, samples);
    short_run few, many;
    bool fits;
    *f = (oct_forecast){.images = oct_min_i64(leaf, share)};
    f->bytes[OCT_STAGE_START] = oct_memory_resident_peak();
    omp_set_num_threads((int)recipe->threads);
    const memory_limit limit = limit_memory(available);
    oct_status status = try_share(&few, f->images, subject, &fits);
    f->too_large = status == OCT_OK && !fits;
    many = few;
    const int64_t more = status == OCT_OK && fits ? images_to_try(&few, share, leaf, available) : 0;
    if (more > few.images) {
        oct_log_again(true);
        status = try_share(&many, more, subject, &fits);
        oct_log_again(false);
        if (!fits) many = few;
    }
    if (limit.set) (void)setrlimit(RLIMIT_AS, &limit.before);
    OCT_TRY(explain_failure(status));
    if (f->too_large) return OCT_OK;
    f->images = many.images;
    if (many.images == few.images) { /* the line begins at no image */
        few.images = 0;
        for (int i = 0; i < OCT_STAGES; i++)
            few.bytes[i] = few.bytes[OCT_STAGE_START];
        memset(few.step_seconds, 0, sizeof few.step_seconds);
    }
    predict_costs(f, share, &few, &many);
    return OCT_OK;
}
