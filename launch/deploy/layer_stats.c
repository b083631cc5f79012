/* Figures of layers become a JSON document. */
#include "launch/deploy/device.h"
#include "launch/deploy/layer_stats.h"

#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "launch/base/meter.h"
#include "launch/base/output.h"
#include "launch/session/build.h"
#include "launch/evaluate/evaluate.h"
#include "quant/correct/correction.h"
#include "quant/layers/layer_survey.h"
#include "quant/program/step.h"

#include <math.h>

enum { VERSION = 1, FEWEST_SAMPLES = 8 };

/* Some seconds of a slow core, for three runs of each sample. */
static const int64_t most_multiply_adds = (int64_t)1 << 36;

typedef struct reading {
    oct_sample_subset subset;
    oct_meter meter;
    int64_t done;
} reading;

static oct_status fetch_sample(void *user, int64_t i, float *input)
{
    reading *r = user;
    oct_meter_show(&r->meter, r->done++);
    return oct_sample_subset_read(&r->subset, i, input);
}

/* The document. */

static json_t *histogram_json(const oct_spread *spread)
{
    json_t *counts = json_array();
    for (int i = 0; i < OCT_SPREAD_BINS; i++)
        json_array_append_new(counts, json_integer(spread->count[i]));
    return json_pack("{s:f, s:f, s:o}", "from", oct_spread_from(spread), "to",
                     oct_spread_to(spread), "counts", counts);
}

static double share_of(int64_t part, int64_t all)
{
    return all > 0 ? (double)part / (double)all : 0;
}

static json_t *distance_json(const oct_layer_distance *d)
{
    return json_pack("{s:o, s:o, s:o}", "sqnr_db", oct_json_number(oct_error_sqnr(&d->sums)),
                     "cosine", oct_json_number(oct_error_cosine(&d->sums)), "max_error",
                     oct_json_number(d->max_error));
}

static json_t *output_json(const oct_value *value, const oct_layer_figures *f)
{
    const bool codes = value->dtype == OCT_U8 || value->dtype == OCT_U16;
    const int bits = 8 * (int)oct_dtype_bytes(value->dtype);
    if (!f->known) return json_null();
    json_t *output = f->referred ? distance_json(&f->reference) : distance_json(&f->same_weights);
    json_object_update_new(
        output, json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o}", "bits", bits,
                          "scale", codes ? json_real((double)value->q.scale) : json_null(),
                          "zero_point", codes ? json_integer(value->q.zero_point) : json_null(),
                          "qmin", codes ? json_integer(value->q.qmin) : json_null(), "qmax",
                          codes ? json_integer(value->q.qmax) : json_null(), "min",
                          oct_json_number((double)f->spread.min), "max",
                          oct_json_number((double)f->spread.max), "clipped",
                          share_of(f->clipped, f->values), "histogram", histogram_json(&f->spread),
                          "unquantized", distance_json(&f->same_weights)));
    return output;
}

static oct_status weight_json(const oct_module *module, json_t **weight)
{
    oct_weight_figures f;
    *weight = json_null();
    if (!module || module->type != &oct_qat_conv_type) return OCT_OK;
    OCT_TRY(oct_weight_figures_of((const oct_qat_conv *)module, &f));
    *weight = json_pack("{s:i, s:f, s:f, s:o, s:o, s:f, s:o, s:o}", "bits", 8, "scale_min",
                        (double)f.scale_min, "scale_max", (double)f.scale_max, "min",
                        oct_json_number((double)f.spread.min), "max",
                        oct_json_number((double)f.spread.max), "clipped",
                        share_of(f.clipped, f.values), "histogram", histogram_json(&f.spread),
                        "sqnr_db", oct_json_number(oct_error_sqnr(&f.sums)));
    return OCT_OK;
}

static oct_status layer_json(const oct_layer_stats *stats, int64_t index,
                             const oct_layer_figures *f, json_t **layer)
{
    const oct_program *program = stats->program;
    const oct_step *step = &program->steps[index];
    const oct_value *value = oct_step_output(program, step);
    const oct_module *module = oct_module_find(stats->model, step->name);
    /* A convolution has the type of its float layer. */
    const char *type = oct_step_operation(step);
    if (module && step->kind != OCT_STEP_FLOAT && module->type == &oct_qat_conv_type)
        type = ((const oct_qat_conv *)module)->layer->type->name;
    json_t *weight;
    OCT_TRY(weight_json(module, &weight));
    *layer =
        json_pack("{s:s, s:s, s:[I, I, I], s:o, s:o, s:I, s:I, s:I}", "path", step->name, "type",
                  type, "shape", (json_int_t)value->h, (json_int_t)value->w, (json_int_t)value->c,
                  "output", step->kind == OCT_STEP_FLOAT ? json_null() : output_json(value, f),
                  "weight", weight, "operations", (json_int_t)(2 * oct_step_multiply_adds(step)),
                  "weight_bytes", (json_int_t)oct_step_bytes(program, step), "output_bytes",
                  (json_int_t)oct_value_bytes(value));
    return OCT_OK;
}

/* The largest magnitude of what a step computes in float; 0: it is not known. */
static double largest_magnitude(const oct_layer_figures *f)
{
    const oct_spread *s = &f->spread;
    return f->known && s->min <= s->max ? fmax(-(double)s->min, (double)s->max) : 0;
}

/* Reports a concat whose inputs differ much in range: they get one scale, which leaves the smaller ones few codes. */
static oct_status find_uneven_inputs(const oct_program *program, const oct_step *step,
                                     const oct_layer_figures *figures, oct_text *finding)
{
    const double uneven = 100;
    int64_t least = -1, most = -1;
    for (int i = 0; i < step->num_inputs; i++) {
        int64_t at = program->num_steps - 1; /* the step that makes the input; -1: none */
        while (at >= 0 && program->steps[at].output != step->input[i])
            at--;
        if (at < 0 || largest_magnitude(&figures[at]) == 0) continue;
        if (least < 0 || largest_magnitude(&figures[at]) < largest_magnitude(&figures[least]))
            least = at;
        if (most < 0 || largest_magnitude(&figures[at]) > largest_magnitude(&figures[most]))
            most = at;
    }
    if (least < 0 ||
        largest_magnitude(&figures[most]) < uneven * largest_magnitude(&figures[least]))
        return OCT_OK;
    return oct_text_add(
        finding,
        "%s: combines %s, whose values reach %.3g, and %s, whose values reach %.3g, in one scale, "
        "which leaves the smaller ones few codes; bring the branches to like ranges, such as by a "
        "batch norm in each, or give it 16 bits (quant.int16_layers)",
        step->name, program->steps[least].name, largest_magnitude(&figures[least]),
        program->steps[most].name, largest_magnitude(&figures[most]));
}

/* Writes the problem of a step, and what to do; empty: none. A step that keeps its input's codes clips nothing. */
static oct_status find_flaw(const oct_program *program, const oct_step *step,
                            const oct_layer_figures *figures, oct_text *finding)
{
    const double much = 0.1;
    const oct_layer_figures *f = &figures[step - program->steps];
    if (step->kind == OCT_STEP_CONCAT) return find_uneven_inputs(program, step, figures, finding);
    if (!f->known || share_of(f->clipped, f->values) <= much ||
        oct_qparams_equal(oct_step_input(program, step, 0)->q, oct_step_output(program, step)->q))
        return OCT_OK;
    return oct_text_add(finding,
                        "%s: %.0f %% of its values, which reach %.3g, lie outside of its codes and "
                        "are clipped; train longer before the scales freeze (qat.freeze_scales), "
                        "or choose an observer that cuts less (quant.observer: min_max)",
                        step->name, 100 * share_of(f->clipped, f->values), largest_magnitude(f));
}

/* Adds the list of problems to the document, where there are any, and logs the first ones. */
static oct_status add_findings(const oct_program *program, const oct_layer_figures *figures,
                               json_t *document)
{
    enum { SAID = 3 };
    json_auto_t *findings = json_array();
    oct_text finding = {0};
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < program->num_steps && status == OCT_OK; i++) {
        status = find_flaw(program, &program->steps[i], figures, &finding);
        if (finding.length > 0) json_array_append_new(findings, json_string(finding.data));
        if (finding.length > 0 && json_array_size(findings) <= SAID)
            oct_log(OCT_LOG_WARN, "%s", finding.data);
        oct_text_free(&finding);
    }
    if (json_array_size(findings) > SAID)
        oct_log(OCT_LOG_WARN, "%zu more such layer%s: octet report names them",
                json_array_size(findings) - SAID, json_array_size(findings) - SAID == 1 ? "" : "s");
    if (json_array_size(findings) > 0) json_object_set(document, "findings", findings);
    return status;
}

static oct_status make_document(const oct_layer_stats *stats, int64_t images,
                                const oct_layer_figures *figures, json_t **document)
{
    json_auto_t *layers = json_array();
    for (int64_t i = 0; i < stats->program->num_steps; i++) {
        json_t *layer;
        OCT_TRY(layer_json(stats, i, &figures[i], &layer));
        json_array_append_new(layers, layer);
    }
    *document = json_pack("{s:i, s:I, s:s, s:O}", "schema_version", VERSION, "images",
                          (json_int_t)images, "reference",
                          stats->start              ? "start"
                          : stats->reference->bytes ? "float_phase"
                                                    : "unquantized",
                          "layers", layers);
    OCT_CHECK(*document, OCT_RESOURCE, "out of memory for the statistics of layers");
    return add_findings(stats->program, figures, *document);
}

/* Builds the float model to compare with: prepared as the int8 model was, for equal names, its quantizers off. */
static oct_status build_reference(const oct_layer_stats *stats, oct_module **reference)
{
    bool prepared;
    if (stats->start) {
        *reference = *stats->start;
        *stats->start = NULL;
    } else if (stats->reference->bytes) {
        OCT_TRY(oct_build_from_checkpoint(reference, stats->reference, stats->recipe, stats->data,
                                          &prepared));
    } else {
        return OCT_OK;
    }
    oct_module_train(*reference, true);
    OCT_TRY(oct_prepare_model(reference, stats->recipe, stats->data, NULL));
    /* Channels have the ranges that the model's have. */
    int64_t pairs, channels;
    return stats->recipe->quant_equalize ? oct_equalize(*reference, &pairs, &channels) : OCT_OK;
}

oct_status oct_layer_stats_make(const oct_layer_stats *stats, const oct_collective *group,
                                json_t **document)
{
    reading r = {0};
    oct_layer_survey survey = {
        .program = stats->program, .model = stats->model, .fetch = fetch_sample, .user = &r};
    OCT_OWNED(oct_free) oct_layer_figures *figures = NULL;
    *document = NULL;
    int64_t operations = 1;
    for (int64_t i = 0; i < stats->program->num_steps; i++)
        operations += 2 * oct_step_multiply_adds(&stats->program->steps[i]);
    const int64_t affordable = oct_max_i64(2 * most_multiply_adds / operations, FEWEST_SAMPLES);
    oct_status status = oct_sample_subset_create(&r.subset, stats->recipe, stats->data,
                                                 oct_min_i64(affordable, OCT_LAYER_STATS_SAMPLES));
    survey.samples = r.subset.count;
    if (status == OCT_OK) status = build_reference(stats, &survey.reference);
    OCT_TRY_OUT(group->agree(group, status));
    oct_meter_begin(&r.meter, "layers", "images", survey.samples / group->size);
    status = oct_layer_survey_run(&survey, group, &figures);
    oct_meter_end(&r.meter);
    OCT_TRY_OUT(status);
    if (group->rank == 0) status = make_document(stats, survey.samples, figures, document);
out:
    oct_module_destroy(&survey.reference);
    oct_sample_subset_free(&r.subset);
    return status;
}
