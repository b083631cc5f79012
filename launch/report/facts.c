/* Documents of a run folder are copied with distrust: depth, members, items and texts are bounded. What a number or
 * text means is the script's business; it takes a value of another type for absent. */
#include "launch/report/page_run.h"

#include "io/file/file.h"
#include "launch/report/diagram.h"
#include "launch/report/series.h"
#include "launch/evaluate/evaluate.h"
#include "launch/deploy/device.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

enum { DEPTH_MAX = 6, MEMBERS_MAX = 256, ITEMS_MAX = 100, PNG_TEXT_MAX = 40000 };
enum { LINE_POINTS = 400, DOT_POINTS = 100, SESSIONS_MAX = 8, CURVES_MAX = 16, DIGITS_JS = 53 };

static json_t *copy_bounded_value(json_t *value, size_t text, int depth);

static json_t *copy_bounded_object(json_t *value, int depth)
{
    const char *key;
    json_t *member, *copy = json_object();
    json_object_foreach(value, key, member)
    {
        const size_t text = strcmp(key, "png") == 0 ? PNG_TEXT_MAX : OCT_NAME_BYTES;
        if (json_object_size(copy) == MEMBERS_MAX) break;
        if (strlen(key) <= OCT_NAME_BYTES)
            json_object_set_new(copy, key, copy_bounded_value(member, text, depth - 1));
    }
    return copy;
}

static json_t *copy_bounded_array(json_t *value, size_t most, int depth)
{
    size_t i;
    json_t *item;
    json_t *copy = json_array();
    json_array_foreach(value, i, item)
    {
        if (i == most) {
            json_array_append_new(copy, json_sprintf("… (%zu in all)", json_array_size(value)));
            break;
        }
        json_array_append_new(copy, copy_bounded_value(item, OCT_NAME_BYTES, depth - 1));
    }
    return copy;
}

/* Copies JSON to some depth, strings to `text` bytes. Whole numbers that JavaScript would round become texts. */
static json_t *copy_bounded_value(json_t *value, size_t text, int depth)
{
    const int64_t exact = (int64_t)1 << DIGITS_JS;
    if (depth == 0) return json_null();
    if (json_is_object(value)) return copy_bounded_object(value, depth);
    if (json_is_array(value)) return copy_bounded_array(value, ITEMS_MAX, depth);
    if (json_is_string(value)) return oct_page_beginning(json_string_value(value), text);
    const int64_t whole = json_integer_value(value);
    if (whole > exact || whole < -exact) return json_sprintf("%lld", (long long)whole);
    return json_deep_copy(value);
}

static json_t *bounded_copy(json_t *value)
{
    return copy_bounded_value(value, OCT_NAME_BYTES, DEPTH_MAX);
}

/* The first objects of an array. */
static json_t *copy_first(json_t *array, size_t most)
{
    size_t i;
    json_t *item;
    json_t *copy = json_array();
    json_array_foreach(array, i, item) if (i < most && json_is_object(item))
        json_array_append_new(copy, bounded_copy(item));
    return copy;
}

/* A number; a text where it is not finite. */
static json_t *finite_or_text(double value)
{
    return isfinite(value) ? json_real(value)
                           : json_string(isnan(value) ? "not a number"
                                         : value > 0  ? "∞"
                                                      : "−∞");
}

/* Adds a curve, thinned to `points`, for each number of the newest record of a kind, or of an object in it; `most` at most. */
static oct_status add_curves(json_t *curves, const oct_page_run *run, const char *kind,
                             const char *object, size_t most, size_t points)
{
    json_t *newest = oct_page_run_record(run, kind), *value;
    const char *key;
    size_t count = 0;
    if (object) newest = json_object_get(newest, object);
    json_object_foreach(newest, key, value)
    {
        OCT_OWNED(oct_series_free) oct_series series = {0};
        if (!json_is_number(value) || strlen(key) > OCT_NAME_BYTES || count++ >= most) continue;
        OCT_TRY(oct_series_of(&series, oct_page_run_records(run, kind), object, key));
        oct_series_thin(&series, points);
        json_object_set_new(curves, key, oct_series_json(&series));
    }
    return OCT_OK;
}

static oct_status add_all_curves(json_t *facts, const oct_page_run *run, size_t layers)
{
    /* These members say where a record is in the run, or count samples; they make no curve. */
    static const char *const not_curves[] = {"step", "epoch", "images", "correct"};
    json_t *step = json_object(), *eval = json_object(), *scales = json_object();
    json_object_set_new(facts, "curves",
                        json_pack("{s:o, s:o, s:o}", "step", step, "eval", eval, "scales", scales));
    OCT_TRY(add_curves(step, run, "step", NULL, CURVES_MAX, LINE_POINTS));
    OCT_TRY(add_curves(eval, run, "eval", NULL, CURVES_MAX, DOT_POINTS));
    OCT_TRY(add_curves(eval, run, "eval", "metrics", CURVES_MAX, DOT_POINTS));
    OCT_TRY(add_curves(scales, run, "scales", "scales", layers, DOT_POINTS));
    for (size_t i = 0; i < OCT_COUNT(not_curves); i++) {
        json_object_del(step, not_curves[i]);
        json_object_del(eval, not_curves[i]);
    }
    return OCT_OK;
}

/* Metrics of the result with their units; of a metric of a plug-in, which this process may not know, the number
 * alone. */
static json_t *describe_metrics(const json_t *result)
{
    enum { METRICS_MAX = 4 };
    static const char *const keys[][2] = {
        {"int8", "metrics"}, {"float", "float_metrics"}, {"qat", "qat_metrics"}};
    const char *name;
    json_t *value, *metrics = json_array();
    json_object_foreach(json_object_get(result, "metrics"), name, value)
    {
        json_t *metric = json_pack("{s:o}", "name", oct_page_beginning(name, 50));
        if (json_array_size(metrics) < METRICS_MAX && json_is_number(value))
            json_array_append(metrics, metric);
        const oct_metric *known = oct_metric_find(name);
        for (size_t i = 0; i < OCT_COUNT(keys); i++) {
            oct_figure shown;
            const json_t *figure = json_object_get(json_object_get(result, keys[i][1]), name);
            if (!json_is_number(figure)) continue;
            if (known)
                shown = oct_figure_text(known, json_number_value(figure));
            else
                oct_snprintf(shown.text, sizeof shown.text, "%.5g", json_number_value(figure));
            json_object_set_new(metric, keys[i][0], json_string(shown.text));
        }
        json_decref(metric);
    }
    return metrics;
}

static void add_records(json_t *facts, const oct_page_run *run, const oct_page_limits *limits)
{
    json_t *evaluations = oct_page_run_records(run, "eval"),
           *confusion = oct_page_run_record(run, "confusion"),
           *step = oct_page_run_record(run, "step");
    /* Of many evaluations those that are evenly apart, the last among them. */
    const size_t all = json_array_size(evaluations),
                 every = (all + limits->rows - 1) / limits->rows;
    json_t *spread = json_array(), *evaluation;
    size_t i;
    json_array_foreach(evaluations, i, evaluation) if ((all - 1 - i) % every == 0)
        json_array_append_new(spread, bounded_copy(evaluation));
    json_object_set_new(facts, "phase_spans", oct_plot_spans_json(run->records));
    json_object_set_new(facts, "evaluations", spread);
    json_object_set_new(facts, "evaluations_in_all",
                        json_integer((json_int_t)json_array_size(evaluations)));
    json_object_set_new(facts, "phases",
                        copy_first(oct_page_run_records(run, "phase"), limits->rows));
    if (confusion) json_object_set_new(facts, "confusion", bounded_copy(confusion));
    if (step) json_object_set_new(facts, "newest", bounded_copy(step));
    if (!run->result) return;
    json_object_set_new(facts, "result", bounded_copy(run->result));
    json_object_set_new(facts, "metrics", describe_metrics(run->result));
}

static void add_recipe(json_t *facts, const oct_page_run *run, size_t text)
{
    const oct_recipe *r = &run->recipe;
    const bool known = run->recipe_text.data != NULL;
    bool classifies = !known; /* the accuracy is a figure of the run: its recipe measures top1 */
    for (int i = 0; known && i < r->metrics.count; i++)
        classifies = classifies || strcmp(r->metrics.value[i], "top1") == 0;
    json_object_set_new(facts, "name", oct_page_name(known && r->name[0] ? r->name : "run"));
    json_object_set_new(facts, "classifies", json_boolean(classifies));
    if (!known) return;
    json_t *recipe = json_pack(
        "{s:o, s:o, s:s, s:o, s:o}", "model", oct_page_name(oct_recipe_model(r)), "seed",
        json_sprintf("%lld", (long long)r->seed), "target",
        oct_registry_name(&oct_target_id_table, (size_t)r->quant_target), "output",
        oct_page_name(r->output), "text", oct_page_beginning(run->recipe_text.data, text));
    json_object_set_new(facts, "recipe", recipe);
}

enum { BINS = 64, CODES = 256 };

static json_t *describe_weights(const oct_step *step, int64_t numel)
{
    json_int_t count[BINS] = {0};
    json_t *counts = json_array();
    double low = INFINITY, high = 0;
    for (int64_t i = 0; i < numel; i++)
        count[(step->conv.weight[i] + CODES / 2) * BINS / CODES]++;
    for (int i = 0; i < BINS; i++)
        json_array_append_new(counts, json_integer(count[i]));
    for (int64_t c = 0; c < step->conv.shape.out_c; c++) {
        low = fmin(low, (double)step->conv.weight_scale[c]);
        high = fmax(high, (double)step->conv.weight_scale[c]);
    }
    return json_pack("{s:b, s:f, s:f, s:{s:i, s:i, s:o}}", "codes", true, "scale_min", low,
                     "scale_max", high, "histogram", "from", -CODES / 2, "to", CODES / 2, "counts",
                     counts);
}

static json_t *describe_layer(const oct_program *program, const oct_step *step)
{
    const oct_value *v = &program->values[step->output];
    const oct_step_type *type = oct_step_type_of(step->kind);
    json_t *output = json_object();
    if (v->dtype == OCT_U8 || v->dtype == OCT_U16)
        json_object_update_new(output,
                               json_pack("{s:I, s:f, s:i, s:i, s:i}", "bits",
                                         (json_int_t)(8 * oct_dtype_bytes(v->dtype)), "scale",
                                         (double)v->q.scale, "zero_point", (int)v->q.zero_point,
                                         "qmin", (int)v->q.qmin, "qmax", (int)v->q.qmax));
    json_t *layer = json_pack(
        "{s:o, s:o, s:[I, I, I], s:o, s:I}", "path", oct_page_name(step->name), "type",
        oct_page_name(oct_step_operation(step)), "shape", (json_int_t)v->h, (json_int_t)v->w,
        (json_int_t)v->c, "output", output, "output_bytes", (json_int_t)oct_value_bytes(v));
    if (!type->weights) return layer;
    const int64_t numel = oct_step_array_numel(step, &oct_conv_arrays[0]);
    json_object_set_new(layer, "weight", describe_weights(step, numel));
    json_object_set_new(layer, "weight_bytes", json_integer(numel));
    const int64_t adds =
        oct_conv_multiply_adds(&step->conv.shape, step->conv.input_step_h, step->conv.input_step_w);
    json_object_set_new(layer, "operations", json_integer(2 * adds));
    return layer;
}

static void add_layers(json_t *facts, const oct_page_run *run, size_t most)
{
    json_t *measured = json_object_get(run->layers, "layers");
    const oct_program *program = &run->model.program;
    json_t *layers = copy_first(measured, most);
    /* Of a run that has measured none, what the model alone says, in the form of layers.json. */
    for (int64_t s = 0; run->has_model && json_array_size(measured) == 0 &&
                        s < program->num_steps && (size_t)s < most;
         s++)
        json_array_append_new(layers, describe_layer(program, &program->steps[s]));
    const size_t all = json_array_size(measured) ? json_array_size(measured)
                       : run->has_model          ? (size_t)program->num_steps
                                                 : 0;
    json_t *object = json_pack("{s:o, s:I}", "layers", layers, "in_all", (json_int_t)all);
    static const char *const keys[] = {"reference", "images", "findings"};
    for (size_t i = 0; i < OCT_COUNT(keys); i++) {
        json_t *value = json_object_get(run->layers, keys[i]);
        if (value) json_object_set_new(object, keys[i], bounded_copy(value));
    }
    json_object_set_new(facts, "layers", object);
}

static void add_certificate(json_t *facts, const oct_model *model)
{
    const oct_certificate *c = &model->certificate;
    char logits[65], data[65], checkpoint[65];
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:f, s:I, s:I, s:s, s:s, s:s}", "images", (json_int_t)c->images,
                  "logits_differ", (json_int_t)c->logits_differ, "correct", (json_int_t)c->correct,
                  "qat_accuracy", c->qat_accuracy, "golden", (json_int_t)c->golden_count,
                  "float_layers", (json_int_t)c->num_fallbacks, "logits_sha256",
                  oct_hex(c->logits_digest, logits), "data_sha256", oct_hex(c->data_digest, data),
                  "checkpoint_sha256", oct_hex(model->checkpoint_digest, checkpoint));
    if (c->fallbacks) json_object_set_new(object, "notes", oct_page_name(c->fallbacks));
    json_object_set_new(facts, "certificate", object);
}

static void add_sensitivity(json_t *facts, const oct_sensitivity *table, size_t most)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < table->count && i < most; i++) {
        const oct_sensitivity_row *r = &table->rows[i];
        json_array_append_new(rows,
                              json_pack("{s:o, s:s, s:o, s:o, s:o}", "path", oct_page_name(r->path),
                                        "tensor", r->tensor, "sqnr", finite_or_text(r->sqnr),
                                        "cosine", finite_or_text(r->cosine), "loss_change",
                                        finite_or_text(r->loss_change)));
    }
    json_object_set_new(facts, "sensitivity", rows);
    json_object_set_new(facts, "sensitivity_in_all", json_integer((json_int_t)table->count));
}

oct_status oct_page_facts(json_t *facts, const oct_page_run *run, const oct_page_limits *limits)
{
    json_t *why = json_object();
    for (int file = 0; file < OCT_RUN_FILES; file++)
        if (run->why[file])
            json_object_set_new(why, oct_run_file_names[file], oct_page_name(run->why[file]));
    json_object_set_new(facts, "why", why);
    add_recipe(facts, run, limits->text);
    add_records(facts, run, limits);
    OCT_TRY(add_all_curves(facts, run, limits->layers));
    add_layers(facts, run, limits->layers);
    add_sensitivity(facts, &run->sensitivity, limits->rows);
    /* Of many sessions the first ones and the last one say enough. */
    const json_t *sessions = json_object_get(run->sessions, "sessions");
    json_t *session, *some = json_array();
    size_t i;
    json_array_foreach(sessions, i,
                       session) if (json_is_object(session) &&
                                    (i < SESSIONS_MAX - 1 || i + 1 == json_array_size(sessions)))
        json_array_append_new(some, bounded_copy(session));
    json_object_set_new(facts, "sessions", some);
    json_object_set_new(facts, "sessions_in_all",
                        json_integer((json_int_t)json_array_size(sessions)));
    if (run->worst)
        json_object_set_new(
            facts, "worst",
            json_pack("{s:o}", "samples",
                      copy_first(json_object_get(run->worst, "samples"), limits->images)));
    if (run->check)
        json_object_set_new(facts, "check", oct_page_beginning(run->check, limits->text));
    if (!run->has_model) return OCT_OK;
    add_certificate(facts, &run->model);
    json_t *program;
    OCT_TRY(oct_diagram_of_program(&run->model.program, limits->steps, &program));
    json_object_set_new(facts, "program", program);
    return OCT_OK;
}
