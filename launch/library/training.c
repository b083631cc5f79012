/* A training of a program's own, on arrays in memory: settings, steps, epochs, evaluation. */
#include "launch/library/library.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/graph/trace.h"
#include "dist/comm.h"
#include "launch/session/task.h"
#include "launch/train/run_check.h"

#include <fenv.h>
#include <math.h>
#include <omp.h>
#include <string.h>

enum { BATCH = 128, LEAF = 8, EPOCHS_MAX = 10000, LR_MAX = 100, THREADS_MAX = 256 };

/* Arrays of a program's own as a data set, and what a network makes of their samples. */

/* Numbers of a sample, and of all samples; so no size in bytes overflows. */
static const int64_t sample_numel_max = INT64_C(1) << 31, numel_max = INT64_C(1) << 56;

oct_data oct_data_of(int64_t count, const float *input, const int32_t *labels)
{
    return (oct_data){.count = count, .input = {input}, .labels = labels};
}

/* Sets the shapes of samples with these inputs. */
static oct_status dataset_of_dims(oct_dataset *shapes, const oct_dims *inputs)
{
    *shapes = (oct_dataset){
        .format = &oct_dataset_memory, .h = 1, .w = 1, .dtype = OCT_F32, .rows = 1, .classes = 1};
    OCT_CHECK(inputs, OCT_USAGE, "the dims of the inputs are missing (NULL)");
    for (int i = 0; i < OCT_INPUTS_MAX && inputs[i].c != 0; i++) {
        const oct_dims *d = &inputs[i];
        const bool plane = d->h != 0 || d->w != 0;
        const oct_shape shape = plane ? OCT_SHAPE(1, d->h, d->w, d->c) : OCT_SHAPE(1, d->c);
        const int64_t numel = oct_shape_numel(&shape);
        OCT_CHECK(
            numel > 0 && numel <= sample_numel_max, OCT_USAGE,
            "input %d has %lld rows, %lld columns and %lld channels; give numbers from 1 on, at "
            "most %lld together, or h and w 0 for features",
            i, (long long)d->h, (long long)d->w, (long long)d->c, (long long)sample_numel_max);
        shapes->input[shapes->num_inputs++] = shape;
        shapes->c += numel;
    }
    OCT_CHECK(shapes->num_inputs > 0, OCT_USAGE,
              "no input has dims; give rows, columns and channels, or features (c) alone");
    return OCT_OK;
}

/* Refuses threads that do not round to nearest: OCT_USAGE. */
static oct_status check_threads(void)
{
    int others = 0;
    OCT_TRY(oct_check_rounding());
#pragma omp parallel reduction(+ : others)
    others += fegetround() != FE_TONEAREST;
    OCT_CHECK(others == 0, OCT_USAGE,
              "%d threads of OpenMP do not round to nearest, as the one that started them did not; "
              "call fesetround(FE_TONEAREST) in a parallel region first",
              others);
    return OCT_OK;
}

/* Finds what a network returns for a sample, by a forward of zeros. */
static oct_status find_outputs(oct_module *root, const oct_dataset *shapes, int64_t *outputs,
                               int64_t *row, bool *class_numbers)
{
    const oct_example example = oct_dataset_inputs(shapes, NULL, 1, 0, 1);
    OCT_OWNED(oct_trace_free) oct_trace trace = {0};
    OCT_TRY(check_threads());
    OCT_TRY(oct_trace_run(&trace, root, &example));
    const oct_trace_value *y = &trace.values[trace.output];
    const int ndim = y->shape.ndim;
    *class_numbers = y->dtype == OCT_S32;
    *outputs = ndim > 0 ? oct_shape_numel(&y->shape) : 0;
    *row = ndim > 0 && !*class_numbers ? y->shape.dim[ndim - 1] : 1;
    return OCT_OK;
}

/* Checks a program's samples and makes *data, which has the shapes of the inputs, point at their arrays. outputs, row:
 * numbers that the network returns for a sample, and those of a row; outputs 0: it returns its loss. */
static oct_status point_dataset(oct_dataset *data, const oct_data *samples, int64_t outputs,
                                int64_t row)
{
    OCT_CHECK(samples, OCT_USAGE, "the samples are missing (NULL)");
    const int64_t rows = samples->rows > 0 ? samples->rows : 1;
    OCT_CHECK(samples->count >= 1, OCT_USAGE, "there are %lld samples; give at least one",
              (long long)samples->count);
    OCT_CHECK(samples->count <= numel_max / (data->c > outputs ? data->c : outputs), OCT_USAGE,
              "%lld samples are more than a memory can have", (long long)samples->count);
    for (int i = 0; i < OCT_INPUTS_MAX; i++) {
        const bool wanted = i < data->num_inputs;
        OCT_CHECK(wanted == (samples->input[i] != NULL), OCT_USAGE,
                  "the array of input %d is %s, and the network has %d input%s", i,
                  wanted ? "missing (NULL)" : "given", data->num_inputs,
                  data->num_inputs == 1 ? "" : "s");
        data->array[i] = samples->input[i];
    }
    OCT_CHECK(!samples->labels || !samples->targets, OCT_USAGE,
              "the samples have both labels and targets; give one of them");
    OCT_CHECK(samples->rows >= 0 && rows <= numel_max / samples->count, OCT_USAGE,
              "a sample has %lld rows; give 0 to %lld", (long long)samples->rows,
              (long long)(numel_max / samples->count));
    OCT_CHECK(
        !samples->labels || outputs == 0 || rows == outputs / row, OCT_USAGE,
        "a sample has %lld label%s, but the network returns %lld rows of %lld outputs for it; "
        "write rows = %lld, or give another network",
        (long long)rows, rows == 1 ? "" : "s", (long long)(outputs / row), (long long)row,
        (long long)(outputs / row));
    OCT_CHECK(
        outputs % rows == 0, OCT_USAGE,
        "a sample has %lld rows of targets, which do not divide the %lld outputs of the network",
        (long long)rows, (long long)outputs);
    data->rows = samples->labels || samples->targets ? rows : outputs > 0 ? outputs / row : 1;
    data->classes = outputs > 0 ? outputs / data->rows : 1;
    data->labels = (int32_t *)(uintptr_t)samples->labels; /* nothing changes or frees them */
    data->values = (float *)(uintptr_t)samples->targets;
    data->goal = samples->targets   ? OCT_GOAL_VALUES
                 : !samples->labels ? OCT_GOAL_NONE
                 : rows > 1         ? OCT_GOAL_MAP
                                    : OCT_GOAL_CLASS;
    data->count = samples->count;
    return OCT_OK;
}

/* Settings. */

static const char *const allowed[] = {
    "optimizer.", "loss.", "metrics=",           "numerics", "batch.leaf=", "batch_norm.group=",
    "float.",     "qat.",  "calibrate.batches=", "quant.",   "ema."};
static const char *const refused[] = {
    "float.epochs=", "float.lr=",          "qat.epochs=",
    "qat.lr=",       "quant.flash_limit=", "quant.scratch_limit="};

static bool begins_with_one_of(const char *text, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(text, list[i], strlen(list[i])) == 0) return true;
    return false;
}

/* Makes the recipe of a training in memory from a recipe text with the options and a stand-in model, and from the settings,
 * which must be keys that such a training has. On failure the recipe is freed. */
static oct_status read_settings(oct_recipe *recipe, const oct_training_options *options)
{
    const int64_t batch = options->batch != 0 ? options->batch : BATCH;
    const uint64_t seed = options->seed != 0 ? options->seed : 1;
    const int threads = omp_get_max_threads();
    size_t count = 0;
    oct_text text = {0};
    while (options->settings && options->settings[count])
        count++;
    oct_status status = oct_text_add(
        &text,
        "model: {onnx: the network}\ndata: {mean: [0], std: [1]}\nseed: %llu\n"
        "threads: %d\nbatch: {size: %lld, leaf: %lld}\n"
        "float: {epochs: %d}\nqat: {epochs: %d}\n",
        (unsigned long long)seed, threads < THREADS_MAX ? threads : THREADS_MAX, (long long)batch,
        (long long)(batch > 0 && batch < LEAF ? batch : LEAF), EPOCHS_MAX, EPOCHS_MAX);
    if (status == OCT_OK)
        status = oct_recipe_read(recipe, "options", text.data, options->settings, count);
    oct_text_free(&text);
    OCT_TRY(status);
    recipe->float_epochs = recipe->qat_epochs = 0; /* each call has its own */
    for (size_t i = 0; i < count; i++)
        OCT_CHECK_OUT(
            begins_with_one_of(options->settings[i], allowed, OCT_COUNT(allowed)) &&
                !begins_with_one_of(options->settings[i], refused, OCT_COUNT(refused)),
            OCT_USAGE,
            "settings: %s: a training in memory has no such key; it has optimizer.*, loss.*, "
            "metrics, numerics, batch.leaf, batch_norm.group, float.* and qat.* but for epochs "
            "and lr, calibrate.batches, quant.* but for limits, and ema.*",
            options->settings[i]);
    /* What a run checks at its start. */
    OCT_TRY_OUT(oct_check_names(recipe));
    OCT_CHECK_OUT(
        !oct_teacher_wanted(recipe), OCT_USAGE,
        "settings: loss.kind=%s needs a teacher network, and a training in memory has none; "
        "use cross_entropy",
        recipe->loss_kind);
    oct_fail_clear(); /* only the problems that the next call adds count */
    OCT_TRY_OUT(oct_recipe_check_unused(recipe));
    if (oct_error_count() > 0) status = OCT_USAGE;
out:
    if (status != OCT_OK) oct_recipe_free(recipe);
    return status;
}

/* Creation. */

/* Whether all weights, that is what weight decay acts on, are zero, and there are some. */
static oct_status find_weights(void *user, oct_module *module)
{
    bool *found = user; /* weights, and one that is not zero */
    for (size_t i = 0; i < module->num_params; i++) {
        const oct_param *param = module->params[i];
        const float *values = param->value.data;
        if (!param->decay) continue;
        found[0] = true;
        for (int64_t k = 0; !found[1] && k < oct_numel(&param->value); k++)
            found[1] = values[k] != 0;
    }
    return OCT_OK;
}

/* What each rank does by itself, before they make the trainer together. */
static oct_status prepare_creation(oct_training *t, oct_module *root,
                                   const oct_training_options *options)
{
    bool weights[2] = {false, false};
    OCT_TRY(read_settings(&t->recipe, options));
    OCT_TRY(dataset_of_dims(&t->data, options->input));
    oct_fail_clear();
    OCT_TRY(oct_check_ranks(&t->recipe, t->recipe.batch_size, t->group->size));
    OCT_TRY(oct_module_walk(root, find_weights, weights));
    if (weights[0] && !weights[1]) OCT_TRY(oct_init_parameters(root, (uint64_t)t->recipe.seed));
    OCT_TRY(find_outputs(root, &t->data, &t->outputs, &t->row, &t->class_numbers));
    t->data.count = t->recipe.batch_size;
    t->data.classes = oct_max_i64(t->outputs, 1);
    return OCT_OK;
}

oct_status oct_training_create(oct_training **t, oct_module **root,
                               const oct_training_options *options)
{
    oct_training *made = NULL;
    const oct_collective *group = &oct_collective_one;
    oct_status status = OCT_OK;
    OCT_CHECK_OUT(t && root && *root && options, OCT_USAGE,
                  "oct_training_create: an argument is missing (NULL)");
    group = oct_comm_collective(options->comm);
    status = oct_alloc(&made, 1, sizeof *made);
    if (status == OCT_OK) {
        made->group = group;
        made->comm = options->comm;
        oct_comm_hold(made->comm);
        status = prepare_creation(made, *root, options);
    }
    OCT_TRY_OUT(group->agree(group, status));
    status = group->agree(
        group, oct_trainer_adopt(&made->trainer, &made->recipe, group, &made->data, root));
out:
    if (status != OCT_OK) oct_training_destroy(&made);
    if (root) oct_module_destroy(root);
    if (t) *t = made;
    return status;
}

void oct_training_destroy(oct_training **t)
{
    if (!t || !*t) return;
    oct_trainer_destroy(&(*t)->trainer);
    oct_recipe_free(&(*t)->recipe);
    oct_comm_release((*t)->comm);
    oct_free(t);
}

oct_module *oct_training_root(oct_training *t)
{
    return t ? t->trainer.model : NULL;
}

/* Calls. */

oct_status oct_training_begin(oct_training *t, const oct_data *samples, oct_status mine, double a,
                              double b)
{
    const oct_collective *group = t->group;
    const double numbers[] = {samples ? (double)samples->count : 0, a, b};
    if (mine == OCT_OK && t->broken)
        mine = oct_fail(OCT_USAGE, "an earlier call has left the network half changed; destroy the "
                                   "training, and make another");
    if (mine == OCT_OK) mine = check_threads();
    if (mine == OCT_OK && samples) mine = point_dataset(&t->data, samples, t->outputs, t->row);
    OCT_TRY(group->agree(group, mine));
    const int64_t digest = (int64_t)(oct_digest(numbers, sizeof numbers) >> 1);
    int64_t words[] = {digest, -digest}; /* maximum and, negated, minimum over the ranks */
    OCT_TRY(group->max_i64(group, words, OCT_COUNT(words)));
    OCT_CHECK(
        words[0] == -words[1], OCT_USAGE,
        "the ranks were given other numbers of samples or epochs, or learning rates; give all "
        "of them the same");
    return samples ? oct_trainer_open_loader(&t->trainer) : OCT_OK;
}

/* Whether the loss fits the samples at hand; chooses the metric of the steps, which the recipe names. */
static oct_status check_task(oct_training *t)
{
    const oct_dataset *data = &t->data;
    oct_recipe task = t->recipe;
    const oct_goals goals =
        oct_task_goals(&task, data, &(oct_goals){.labels = data->labels, .values = data->values});
    t->trainer.training.loss.metric = oct_task_step_metric(&task, &goals);
    task.metrics.count = 0;
    oct_fail_clear();
    if (data->goal != OCT_GOAL_NONE) oct_task_check(&task, data);
    oct_check_values(&task, data, "training");
    return oct_error_count() > 0 ? OCT_USAGE : OCT_OK;
}

oct_status oct_training_check_learning(double epochs, double lr)
{
    OCT_CHECK(lr >= 0 && lr <= LR_MAX, OCT_USAGE, "the learning rate is %g; allowed: 0 to %d", lr,
              LR_MAX);
    OCT_CHECK(epochs >= 0 && epochs <= EPOCHS_MAX, OCT_USAGE, "epochs: %g; allowed: 0 to %d",
              epochs, EPOCHS_MAX);
    return OCT_OK;
}

/* Begins a call that learns. */
static oct_status begin_learning(oct_training *t, const oct_data *data, double epochs, double lr)
{
    oct_status status = OCT_OK;
    OCT_CHECK_OUT(
        t->trainer.phase == OCT_PHASE_FLOAT || t->calibrated, OCT_USAGE,
        "the network is prepared, but has no ranges yet; call oct_training_calibrate first");
    OCT_TRY_OUT(oct_training_check_learning(epochs, lr));
    OCT_CHECK_OUT(
        t->trainer.training.params.count > 0, OCT_USAGE,
        "the network has no parameters, so there is nothing to learn; oct_training_prepare "
        "and oct_training_calibrate make an int8 model of it");
out:
    OCT_TRY(oct_training_begin(t, data, status, epochs, lr));
    return t->group->agree(t->group, check_task(t));
}

oct_status oct_training_step(oct_training *t, const oct_data *batch, double lr, double *loss,
                             double *metric)
{
    oct_step_result result;
    OCT_NEED(t && batch);
    OCT_TRY(begin_learning(t, batch, 0, lr));
    OCT_CHECK(batch->count <= t->recipe.batch_size, OCT_USAGE,
              "a batch of %lld samples, but the training was created for at most %lld; give "
              "options.batch the largest batch",
              (long long)batch->count, (long long)t->recipe.batch_size);
    t->trainer.loader.shuffle = false;
    const oct_step_batches b = {.count = 1, .samples = batch->count};
    OCT_TRY(oct_trainer_take_step(&t->trainer, &b, lr, &result));
    if (loss) *loss = result.loss;
    if (metric) *metric = result.metric;
    return OCT_OK;
}

oct_status oct_training_change(oct_training *t, oct_phase phase)
{
    const oct_status status = oct_trainer_enter(&t->trainer, phase);
    t->broken = status != OCT_OK;
    return status;
}

oct_status oct_training_fit(oct_training *t, const oct_data *data, int64_t epochs, double lr,
                            double *loss, double *metric)
{
    OCT_NEED(t && data);
    oct_trainer *trainer = &t->trainer;
    oct_recipe *recipe = &t->recipe;
    const bool prepared = trainer->phase > OCT_PHASE_CALIBRATE;
    oct_step_result result;
    double sums[2] = {0, 0};
    int64_t samples = 0;
    OCT_TRY(begin_learning(t, data, (double)epochs, lr));
    recipe->float_epochs = prepared ? 0 : epochs;
    recipe->qat_epochs = prepared ? epochs : 0;
    recipe->float_lr = recipe->qat_lr = lr;
    trainer->plan = oct_plan_of(recipe, data->count);
    const int64_t *begin = trainer->plan.begin;
    const int64_t first = prepared ? begin[OCT_PHASE_QAT] : 0;
    const int64_t end = prepared ? begin[OCT_PHASES] : begin[OCT_PHASE_CALIBRATE];
    for (int64_t step = first; step < end; step++) {
        if (prepared) OCT_TRY(oct_training_change(t, oct_plan_phase(&trainer->plan, step)));
        const oct_step_batches b = oct_trainer_batches(trainer, step);
        OCT_TRY(
            oct_trainer_take_step(trainer, &b, oct_plan_lr(&trainer->plan, recipe, step), &result));
        if (step < end - trainer->plan.steps_per_epoch) continue;
        sums[0] += result.loss * (double)result.samples;
        sums[1] += result.metric * (double)result.samples;
        samples += result.samples;
    }
    trainer->epochs_before += epochs;
    if (loss) *loss = samples > 0 ? sums[0] / (double)samples : (double)NAN;
    if (metric) *metric = samples > 0 ? sums[1] / (double)samples : (double)NAN;
    return OCT_OK;
}

/* Evaluation. */

/* Computes loss and metric of outputs that are there, as a step would; nothing is observed or learned. */
static oct_status measure(oct_training *t, const oct_outputs *mine, double *loss, double *metric)
{
    oct_train_step *step = &t->trainer.training;
    const oct_example x = oct_dataset_inputs(&t->data, NULL, 1, 0, t->data.count);
    const oct_goals *goals = &mine->goals;
    oct_batch batch = {.num_inputs = 1,
                       .shape = {x.shape[0]},
                       .input = {t->data.array[0]},
                       .labels = goals->labels,
                       .targets = goals->values,
                       .rows = goals->rows,
                       .ignores = goals->ignores,
                       .ignored = goals->ignored};
    OCT_TRY(oct_train_step_begin(step, 1, t->data.count, 0));
    OCT_TRY(oct_train_step_evaluate_add(step, &batch, mine->y, t->outputs));
    *loss = step->sums.loss;
    *metric = step->sums.metric;
    return OCT_OK;
}

oct_status oct_training_evaluate(oct_training *t, const oct_data *data, float *outputs,
                                 double *loss, double *metric)
{
    OCT_NEED(t && data);
    const oct_collective *group = t->group;
    oct_average *average = &t->trainer.training.optim.average;
    double figures[2] = {(double)NAN, (double)NAN};
    OCT_OWNED(oct_outputs_free) oct_outputs mine = {0};
    oct_status status = OCT_OK;
    OCT_CHECK(t->outputs > 0, OCT_USAGE,
              "the network returns its loss, so it has no outputs to evaluate");
    status = oct_training_begin(t, data, OCT_OK, outputs != NULL, 0);
    const bool scored = status == OCT_OK && !t->class_numbers && t->data.goal != OCT_GOAL_NONE;
    if (scored) status = group->agree(group, check_task(t));
    OCT_TRY(status);
    status = oct_outputs_create(&mine, &t->recipe, &t->data, group);
    oct_average_swap(average, true); /* which is what is deployed */
    if (status == OCT_OK)
        status = oct_evaluate_local(t->trainer.model, &t->recipe, &t->data,
                                    oct_evaluation_batch(&t->recipe, group->size), &mine);
    oct_average_swap(average, false);
    OCT_TRY(group->agree(group, status));
    if (scored) OCT_TRY(measure(t, &mine, &figures[0], &figures[1]));
    if (outputs) {
        const size_t bytes = (size_t)(data->count * t->outputs) * sizeof *outputs;
        OCT_TRY(oct_gather_rows(group, &mine.leaves, t->outputs, mine.y, outputs));
        OCT_TRY(group->broadcast(group, outputs, bytes, 0));
    }
    if (loss) *loss = figures[0];
    if (metric) *metric = figures[1];
    return OCT_OK;
}

oct_status oct_module_outputs(oct_module *root, const oct_dims *inputs, int64_t *outputs)
{
    oct_dataset shapes;
    int64_t row;
    bool class_numbers;
    OCT_NEED(root && outputs);
    OCT_TRY(dataset_of_dims(&shapes, inputs));
    return find_outputs(root, &shapes, outputs, &row, &class_numbers);
}

oct_status oct_forward(oct_module *root, const oct_dims *inputs, const oct_data *data,
                       float *outputs)
{
    OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
    oct_dataset samples;
    OCT_OWNED(oct_outputs_free) oct_outputs mine = {0};
    oct_data unlabelled;
    int64_t numel, row;
    bool class_numbers;
    OCT_NEED(root && data && outputs);
    unlabelled = (oct_data){.count = data->count};
    memcpy(unlabelled.input, data->input, sizeof data->input);
    OCT_TRY(dataset_of_dims(&samples, inputs));
    OCT_TRY(find_outputs(root, &samples, &numel, &row, &class_numbers));
    OCT_CHECK(numel > 0, OCT_USAGE, "the network returns its loss, so it has no outputs");
    OCT_TRY(point_dataset(&samples, &unlabelled, numel, row));
    OCT_TRY(read_settings(&recipe, &(oct_training_options){0}));
    OCT_TRY(oct_outputs_create(&mine, &recipe, &samples, &oct_collective_one));
    OCT_TRY(oct_evaluate_local(root, &recipe, &samples, oct_evaluation_batch(&recipe, 1), &mine));
    memcpy(outputs, mine.y, (size_t)(data->count * numel) * sizeof *outputs);
    return OCT_OK;
}
