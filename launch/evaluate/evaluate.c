/* An evaluation computes the logits of a data set, its samples split over ranks in whole leaves.
 *
 * No op in evaluation mode sums over samples, so every logit has the same bits on any number of ranks
 * and in batches of any size. The forward of a rank does not communicate; ranks synchronize only to
 * agree and to add up.
 */
#include "launch/evaluate/evaluate.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/int_math.h"
#include "core/nn/module.h"
#include "core/tensor/tensor.h"
#include "launch/base/meter.h"
#include "launch/session/task.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { BATCH_SAMPLES = 64 };

int64_t oct_evaluation_batch(const oct_recipe *recipe, int ranks)
{
    const int64_t leaf = recipe->batch_leaf, all = (recipe->batch_size + leaf - 1) / leaf;
    const int64_t share = (all + ranks - 1) / ranks;
    return oct_min_i64(oct_max_i64(BATCH_SAMPLES / leaf, recipe->threads), share) * leaf;
}

void oct_loader_read_ahead(oct_loader *loader, const oct_recipe *recipe)
{
    loader->prefetch = recipe->data_prefetch;
    loader->prefetch_threads = (int)recipe->data_prefetch_threads;
}

/* Samples that a rank has passed over, and why the first of them. */
typedef struct damage {
    int64_t count;
    char text[OCT_READ_TEXT];
} damage;

oct_status oct_report_damaged(const oct_collective *group, int64_t damaged, const char *text,
                              const char *what)
{
    damage mine = {.count = damaged};
    OCT_OWNED(oct_free) damage *all = NULL;
    int64_t sum = 0, first = -1;
    snprintf(mine.text, sizeof mine.text, "%s", text);
    OCT_TRY(group->agree(group, group->rank == 0 ? oct_alloc(&all, (size_t)group->size, sizeof *all)
                                                 : OCT_OK));
    OCT_TRY(group->gather(group, &mine, sizeof mine, all));
    for (int64_t i = 0; all && i < group->size; i++) {
        sum += all[i].count;
        if (first < 0 && all[i].count > 0) first = i;
    }
    if (first >= 0)
        oct_log(OCT_LOG_WARN,
                "%s: %lld damaged sample%s passed over so far (data.damaged: skip): %s", what,
                (long long)sum, sum == 1 ? " was" : "s were", all[first].text);
    return OCT_OK;
}

oct_status oct_evaluation_loader(oct_loader *loader, const oct_recipe *recipe,
                                 const oct_dataset *data)
{
    OCT_TRY(oct_loader_init(loader, data));
    loader->damaged_mode = recipe->data_damaged;
    loader->normaliser = oct_normaliser_of(&recipe->data_mean, &recipe->data_std);
    oct_recipe_augment(recipe, OCT_TEST, &loader->augment);
    return OCT_OK;
}

oct_status oct_outputs_create(oct_outputs *o, const oct_recipe *recipe, const oct_dataset *data,
                              const oct_collective *group)
{
    const bool values = data->goal == OCT_GOAL_VALUES || data->goal == OCT_GOAL_INPUT;
    *o = (oct_outputs){
        .leaves = oct_leaves_split(data->count, recipe->batch_leaf, group->rank, group->size),
        .rows = data->rows,
        .row = data->classes};
    o->samples = oct_leaves_local_samples(&o->leaves);
    const size_t rows = (size_t)(o->samples * o->rows), numel = rows * (size_t)o->row;
    OCT_TRY(oct_alloc(&o->y, numel, sizeof *o->y));
    if (values) OCT_TRY(oct_alloc(&o->values, numel, sizeof *o->values));
    if (data->labels || (!values && data->goal != OCT_GOAL_NONE))
        OCT_TRY(oct_alloc(&o->labels, rows, sizeof *o->labels));
    o->goals = oct_task_goals(recipe, data, &(oct_goals){.labels = o->labels, .values = o->values});
    return OCT_OK;
}

void oct_outputs_free(oct_outputs *o)
{
    OCT_FREE_ALL(&o->y, &o->labels, &o->values);
    *o = (oct_outputs){0};
}

oct_status oct_outputs_read(oct_outputs *o, oct_loader *loader, int64_t from, int64_t n,
                            float *images)
{
    const int64_t first = oct_leaves_first_sample(&o->leaves);
    oct_goals goals;
    loader->read_end = first + o->samples;
    OCT_TRY(oct_loader_read(loader, first + from, n, images, &goals));
    o->damaged = loader->damaged;
    memcpy(o->damaged_text, loader->damaged_text, sizeof o->damaged_text);
    if (o->labels)
        memcpy(o->labels + from * o->rows, goals.labels, (size_t)(n * o->rows) * sizeof *o->labels);
    if (o->values)
        memcpy(o->values + from * o->rows * o->row, goals.values,
               (size_t)(n * o->rows * o->row) * sizeof *o->values);
    return OCT_OK;
}

double oct_scores_accuracy(const oct_scores *scores)
{
    if (scores->correct < 0) return -1;
    return scores->rows > 0 ? 100.0 * (double)scores->correct / (double)scores->rows : 0;
}

oct_figure oct_figure_text(const oct_metric *metric, double value)
{
    oct_figure figure = {"not defined"};
    if (!isnan(value))
        oct_snprintf(figure.text, sizeof figure.text, "%.*f%s%.8s", metric->unit[0] ? 2 : 4, value,
                     metric->unit[0] ? " " : "", metric->unit);
    return figure;
}

const char *oct_scores_text(const oct_scores *scores, char text[OCT_SCORES_TEXT])
{
    size_t length = 0;
    text[0] = '\0';
    if (scores->correct >= 0)
        length = (size_t)oct_snprintf(text, OCT_SCORES_TEXT, "accuracy %.2f %%",
                                      oct_scores_accuracy(scores));
    for (int i = 0; i < scores->num_metrics; i++) {
        const oct_metric *m = scores->metric[i];
        if (m == &oct_metric_top1) continue;
        length += (size_t)snprintf(text + length, OCT_SCORES_TEXT - length, "%s%.40s %s",
                                   length > 0 ? ", " : "", m->title,
                                   oct_figure_text(m, scores->value[i]).text);
    }
    return text;
}

json_t *oct_scores_json(const oct_scores *scores)
{
    json_t *object = NULL;
    for (int i = 0; i < scores->num_metrics; i++) {
        const double value = scores->value[i];
        if (scores->metric[i] == &oct_metric_top1) continue;
        if (!object) object = json_object();
        json_object_set_new(object, scores->metric[i]->name,
                            isnan(value) ? json_null() : json_real(value));
    }
    return object;
}

/* Computes one figure; those of top1 also count the rows that are right. */
static oct_status measure_metric(const oct_metric *metric, const oct_collective *group,
                                 const oct_leaves *leaves, const oct_output_rows *rows,
                                 oct_scores *scores, double *value)
{
    OCT_OWNED(oct_free) double *numbers = NULL;
    OCT_TRY(oct_metric_sum(metric, group, leaves, rows, &numbers));
    *value = metric->value(numbers, rows->n);
    if (metric == &oct_metric_top1) {
        scores->correct = (int64_t)numbers[0];
        scores->rows = (int64_t)numbers[1];
    }
    return OCT_OK;
}

/* The metrics of the recipe that apply to these rows, or else another that does: a model that is evaluated
 * outside its run folder has the key's default. */
static oct_status choose_metrics(const oct_recipe *recipe, const oct_goals *goals,
                                 oct_scores *scores)
{
    OCT_CHECK(recipe->metrics.count <= OCT_METRICS_MAX, OCT_USAGE,
              "metrics: %d are too many; name at most %d", recipe->metrics.count, OCT_METRICS_MAX);
    for (int i = 0; i < recipe->metrics.count; i++) {
        const oct_metric *metric = oct_metric_find(recipe->metrics.value[i]);
        OCT_CHECK(metric, OCT_USAGE, "metrics: there is no metric '%s'", recipe->metrics.value[i]);
        if (oct_task_measures(metric, recipe, goals))
            scores->metric[scores->num_metrics++] = metric;
    }
    if (scores->num_metrics == 0 && recipe->metrics.count > 0)
        scores->metric[scores->num_metrics++] = oct_task_metric(recipe, goals);
    return OCT_OK;
}

oct_status oct_score(const oct_collective *group, const oct_recipe *recipe,
                     const oct_outputs *outputs, oct_scores *scores)
{
    const oct_leaves *leaves = &outputs->leaves;
    const oct_output_rows rows = {outputs->y, outputs->row, outputs->goals};
    double accuracy;
    *scores = (oct_scores){.images = leaves->samples, .rows = leaves->samples, .correct = -1};
    if (!rows.goals.labels && !rows.goals.values) return OCT_OK;
    OCT_TRY(choose_metrics(recipe, &rows.goals, scores));
    for (int i = 0; i < scores->num_metrics; i++)
        OCT_TRY(measure_metric(scores->metric[i], group, leaves, &rows, scores, &scores->value[i]));
    if (scores->correct >= 0 || !oct_task_has_classes(recipe, &rows.goals)) return OCT_OK;
    return measure_metric(&oct_metric_top1, group, leaves, &rows, scores, &accuracy);
}

/* Forwards. */

/* This is little beside what a training step takes, and holds many samples where they are small. */
enum { ACTIVATION_BYTES = 128 << 20 };

oct_status oct_forward_begin(oct_forwards *f, oct_context *cx, oct_module *model)
{
    *f = (oct_forwards){.cx = cx, .model = model};
    return oct_module_calls_only(model) ? oct_lifetimes_create(&f->lifetimes) : OCT_OK;
}

void oct_forward_end(oct_forwards *f)
{
    oct_lifetimes_destroy(&f->lifetimes);
    *f = (oct_forwards){0};
}

int64_t oct_forward_samples(const oct_forwards *f, int64_t most)
{
    if (f->sample_bytes == 0) return oct_min_i64(1, most);
    return oct_min_i64(most,
                       oct_max_i64(ACTIVATION_BYTES / f->sample_bytes, omp_get_max_threads()));
}

static const oct_tensor *call_model(oct_forwards *f, oct_leaves leaves, const oct_example *x)
{
    oct_context *cx = f->cx;
    oct_tensor *input[OCT_MODEL_INPUTS];
    cx->lifetimes = f->lifetimes;
    oct_context_begin(cx, leaves, false);
    for (int i = 0; i < x->count; i++)
        input[i] = oct_tensor_view(cx, OCT_F32, x->shape[i], x->data[i]);
    const oct_tensor *y = oct_module_call(cx, f->model, input, x->count);
    cx->lifetimes = NULL;
    return y;
}

oct_status oct_forward_run(oct_forwards *f, oct_leaves leaves, const oct_example *x,
                           const oct_tensor **y)
{
    *y = call_model(f, leaves, x);
    const int64_t bytes = f->lifetimes ? oct_lifetimes_end(f->lifetimes, *y) : 0;
    if (bytes < 0) { /* it read what was freed, so it runs again and keeps all */
        oct_fail_clear();
        oct_lifetimes_destroy(&f->lifetimes);
        f->sample_bytes = 0;
        *y = call_model(f, leaves, x);
    }
    OCT_TRY(oct_context_status(f->cx));
    const int64_t samples = oct_max_i64(1, oct_leaves_local_samples(&leaves));
    if (f->sample_bytes == 0)
        f->sample_bytes = (f->lifetimes ? bytes : (int64_t)oct_arena_peak(f->cx->arena)) / samples;
    f->sample_bytes = oct_max_i64(f->sample_bytes, 1);
    return OCT_OK;
}

/* Computes the outputs of this rank's samples, in the memory of a context that does not communicate. */
static oct_status forward_all(oct_context *cx, oct_module *model, const oct_recipe *recipe,
                              const oct_dataset *data, int64_t batch, oct_outputs *o)
{
    const bool training = model->training;
    const int64_t threads = omp_get_max_threads();
    OCT_OWNED(oct_forward_end) oct_forwards f = {0};
    OCT_OWNED(oct_loader_deinit) oct_loader loader = {0};
    OCT_OWNED(oct_meter_end) oct_meter meter = {0};
    OCT_OWNED(oct_free) float *images = NULL;
    oct_status status = OCT_OK;

    oct_module_train(model, false);
    OCT_TRY_OUT(oct_forward_begin(&f, cx, model));
    OCT_TRY_OUT(oct_evaluation_loader(&loader, recipe, data));
    oct_loader_read_ahead(&loader, recipe);
    OCT_TRY_OUT(oct_alloc(&images, (size_t)(batch * data->h * data->w * data->c), sizeof(float)));
    oct_meter_begin(&meter, "evaluate", "images", o->samples);
    for (int64_t first = 0, n; first < o->samples; first += n) {
        oct_meter_show(&meter, first);
        n = oct_forward_samples(&f, oct_min_i64(batch, o->samples - first));
        OCT_TRY_OUT(oct_outputs_read(o, &loader, first, n, images));
        /* Each thread has samples of its own. */
        const int64_t each = oct_min_i64((n + threads - 1) / threads, recipe->batch_leaf);
        const oct_tensor *y;
        const oct_example x = oct_dataset_inputs(data, images, n, 0, n);
        OCT_TRY_OUT(oct_forward_run(&f, oct_leaves_split(n, each, 0, 1), &x, &y));
        OCT_TRY_OUT(
            oct_class_rows(y, n * data->rows, data->classes, o->y + first * o->rows * o->row));
    }
out:
    oct_module_train(model, training);
    return status;
}

oct_status oct_evaluate_local(oct_module *model, const oct_recipe *recipe, const oct_dataset *data,
                              int64_t batch, oct_outputs *outputs)
{
    OCT_OWNED(oct_context_destroy) oct_context *cx = NULL;
    OCT_TRY(oct_context_create(&cx, &oct_collective_one));
    return forward_all(cx, model, recipe, data, batch, outputs);
}

/* A gather moves the same number of bytes from each rank: shares are padded to the largest. */
oct_status oct_gather_rows(const oct_collective *group, const oct_leaves *leaves, int64_t row,
                           const float *mine, float *all)
{
    int64_t share = (leaves->count / group->size + 1) * leaves->leaf * row;
    OCT_OWNED(oct_free) float *padded = NULL, *gathered = NULL;

    OCT_TRY(oct_alloc(&padded, (size_t)share, sizeof(float)));
    if (group->rank == 0)
        OCT_TRY(oct_alloc(&gathered, (size_t)group->size * (size_t)share, sizeof(float)));
    int64_t local = oct_leaves_local_samples(leaves);
    OCT_ASSERT(local == 0 || mine);
    if (local > 0) memcpy(padded, mine, (size_t)(local * row) * sizeof(float));
    OCT_TRY(group->gather(group, padded, (size_t)share * sizeof(float), gathered));
    for (int rank = 0; group->rank == 0 && rank < group->size; rank++) {
        oct_leaves theirs = oct_leaves_split(leaves->samples, leaves->leaf, rank, group->size);
        int64_t samples = oct_leaves_local_samples(&theirs);
        OCT_ASSERT(all && gathered);
        if (samples > 0)
            memcpy(all + oct_leaves_first_sample(&theirs) * row, gathered + rank * share,
                   (size_t)(samples * row) * sizeof(float));
    }
    return OCT_OK;
}

oct_status oct_evaluate(oct_context *cx, oct_module *model, const oct_collective *group,
                        const oct_recipe *recipe, const oct_dataset *data, oct_scores *scores,
                        float *logits)
{
    OCT_OWNED(oct_context_destroy) oct_context *own = NULL;
    OCT_OWNED(oct_outputs_free) oct_outputs mine = {0};
    oct_status status = cx ? OCT_OK : oct_context_create(&own, &oct_collective_one);
    if (status == OCT_OK) status = oct_outputs_create(&mine, recipe, data, group);
    if (status == OCT_OK)
        status = forward_all(cx ? cx : own, model, recipe, data,
                             oct_evaluation_batch(recipe, group->size), &mine);
    OCT_TRY(group->agree(group, status));
    if (recipe->data_damaged == OCT_DAMAGED_SKIP)
        OCT_TRY(oct_report_damaged(group, mine.damaged, mine.damaged_text, "test data"));
    OCT_TRY(oct_score(group, recipe, &mine, scores));
    /* Only rank 0 has room for the logits of all, but all take part in bringing them there. */
    int64_t wanted = logits != NULL;
    OCT_TRY(group->max_i64(group, &wanted, 1));
    if (wanted) OCT_TRY(oct_gather_rows(group, &mine.leaves, mine.rows * mine.row, mine.y, logits));
    return OCT_OK;
}

/* Sample subsets. */

oct_status oct_sample_subset_create(oct_sample_subset *s, const oct_recipe *recipe,
                                    const oct_dataset *data, int64_t most)
{
    *s = (oct_sample_subset){.data = data, .count = oct_min_i64(data->count, most)};
    return oct_evaluation_loader(&s->loader, recipe, data);
}

void oct_sample_subset_free(oct_sample_subset *s)
{
    oct_loader_deinit(&s->loader);
    *s = (oct_sample_subset){0};
}

int64_t oct_sample_subset_number(const oct_sample_subset *s, int64_t i)
{
    return i * s->data->count / s->count;
}

oct_status oct_sample_subset_read(oct_sample_subset *s, int64_t i, float *input)
{
    oct_goals goals;
    return oct_loader_read(&s->loader, oct_sample_subset_number(s, i), 1, input, &goals);
}

/* Sensitivities. */

/* Reads samples for a measurement, which the meter follows. */
typedef struct reading {
    oct_loader loader;
    oct_meter meter;
} reading;

static oct_status fetch_samples(void *user, int64_t first, int64_t n, float *const *input)
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

/* Warns where tensors change no output: class numbers seldom change with the codes of one layer. */
static void warn_of_silent_tensors(const oct_sensitivity *table)
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

oct_status oct_evaluate_sensitivity(oct_module *model, const oct_collective *group,
                                    const oct_recipe *recipe, const oct_dataset *data,
                                    int64_t batches, oct_sensitivity *table)
{
    reading r = {0};
    const oct_sensitivity_data samples = {
        .samples = oct_min_i64(data->count, batches * recipe->batch_size),
        .batch = oct_evaluation_batch(recipe, group->size),
        .leaf = recipe->batch_leaf,
        .example = *OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c)),
        .outputs = data->rows * data->classes,
        .labels = data->rows == 1 ? data->labels : NULL,
        .fetch = fetch_samples,
        .progress = show_progress,
        .user = &r,
    };
    oct_status status = OCT_OK;
    OCT_TRY_OUT(group->agree(group, oct_evaluation_loader(&r.loader, recipe, data)));
    oct_meter_begin(&r.meter, "sensitivity", "forwards", 0);
    status = oct_sensitivity_measure(table, model, &samples, group);
    oct_meter_end(&r.meter);
    if (status == OCT_OK && group->rank == 0) warn_of_silent_tensors(table);
out:
    oct_loader_deinit(&r.loader);
    return status;
}
