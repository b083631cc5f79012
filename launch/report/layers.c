/* A layers.json is read with distrust: what is missing or of another type is not known. */
#include "launch/report/layers.h"

#include "core/base/mem.h"
#include "launch/evaluate/multiply_adds.h"
#include "launch/report/part.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

enum { LAYERS_MAX = 4096 };

static oct_page_histogram histogram_of(const json_t *json)
{
    const json_t *counts = json_object_get(json, "counts");
    oct_page_histogram h = {.from = oct_page_number(json, "from"),
                            .to = oct_page_number(json, "to")};
    bool whole = json_array_size(counts) == OCT_BINS;
    for (size_t i = 0; whole && i < OCT_BINS; i++) {
        h.counts[i] = json_number_value(json_array_get(counts, i));
        whole = h.counts[i] >= 0;
    }
    return whole && h.from < h.to ? h : (oct_page_histogram){0};
}

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

static double at(const json_t *list, size_t i)
{
    const json_t *value = json_array_get(list, i);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static oct_page_layer measured(const json_t *json)
{
    const json_t *shape = json_object_get(json, "shape"), *out = json_object_get(json, "output"),
                 *weight = json_object_get(json, "weight");
    return (oct_page_layer){
        .path = text_of(json, "path"),
        .type = text_of(json, "type"),
        .h = at(shape, 0),
        .w = at(shape, 1),
        .c = at(shape, 2),
        .quantized = json_is_number(json_object_get(out, "scale")),
        .bits = oct_page_number(out, "bits"),
        .scale = oct_page_number(out, "scale"),
        .zero_point = oct_page_number(out, "zero_point"),
        .qmin = oct_page_number(out, "qmin"),
        .qmax = oct_page_number(out, "qmax"),
        .min = oct_page_number(out, "min"),
        .max = oct_page_number(out, "max"),
        .clipped = oct_page_number(out, "clipped"),
        .sqnr = oct_page_number(out, "sqnr_db"),
        .cosine = oct_page_number(out, "cosine"),
        .max_error = oct_page_number(out, "max_error"),
        .price = oct_page_number(json_object_get(out, "unquantized"), "sqnr_db"),
        .output = histogram_of(json_object_get(out, "histogram")),
        .has_weight = json_is_object(weight),
        .weight_scale_min = oct_page_number(weight, "scale_min"),
        .weight_scale_max = oct_page_number(weight, "scale_max"),
        .weight_min = oct_page_number(weight, "min"),
        .weight_max = oct_page_number(weight, "max"),
        .weight_clipped = oct_page_number(weight, "clipped"),
        .weight_sqnr = oct_page_number(weight, "sqnr_db"),
        .weight = histogram_of(json_object_get(weight, "histogram")),
        .operations = oct_page_number(json, "operations"),
        .weight_bytes = oct_page_number(json, "weight_bytes"),
        .output_bytes = oct_page_number(json, "output_bytes"),
    };
}

static oct_page_histogram histogram_of_codes(const oct_step *step, int64_t numel)
{
    oct_page_histogram h = {.from = -128, .to = 128, .codes = true};
    for (int64_t i = 0; i < numel; i++)
        h.counts[(step->weight[i] + 128) * OCT_BINS / 256]++;
    return h;
}

static void add_weights(oct_page_layer *layer, const oct_step *step)
{
    const int64_t numel = oct_step_array_numel(step, &oct_conv_arrays[0]);
    layer->has_weight = true;
    layer->weight = histogram_of_codes(step, numel);
    layer->weight_scale_min = INFINITY;
    layer->weight_scale_max = 0;
    for (int64_t c = 0; c < step->conv.out_c; c++) {
        layer->weight_scale_min = fmin(layer->weight_scale_min, (double)step->weight_scale[c]);
        layer->weight_scale_max = fmax(layer->weight_scale_max, (double)step->weight_scale[c]);
    }
    layer->weight_bytes = (double)numel;
    layer->operations =
        2 * (double)oct_conv_multiply_adds(&step->conv, step->input_step_h, step->input_step_w);
}

/* What the int8 model alone tells. */
static oct_page_layer of_step(const oct_program *program, const oct_step *step)
{
    const oct_value *value = &program->values[step->output];
    const bool codes = value->dtype == OCT_U8 || value->dtype == OCT_U16;
    oct_page_layer layer = {
        .path = step->name,
        .type = step->island ? step->island->type : oct_step_type_of(step->kind)->name,
        .h = (double)value->h,
        .w = (double)value->w,
        .c = (double)value->c,
        .quantized = codes,
        .bits = codes ? 8.0 * (double)oct_dtype_bytes(value->dtype) : (double)NAN,
        .scale = codes ? (double)value->q.scale : (double)NAN,
        .zero_point = codes ? value->q.zero_point : (double)NAN,
        .qmin = codes ? value->q.qmin : (double)NAN,
        .qmax = codes ? value->q.qmax : (double)NAN,
        .min = NAN,
        .max = NAN,
        .clipped = NAN,
        .sqnr = NAN,
        .cosine = NAN,
        .max_error = NAN,
        .price = NAN,
        .weight_scale_min = NAN,
        .weight_scale_max = NAN,
        .weight_min = NAN,
        .weight_max = NAN,
        .weight_clipped = NAN,
        .weight_sqnr = NAN,
        .operations = NAN,
        .weight_bytes = NAN,
        .output_bytes = (double)oct_value_bytes(value),
    };
    if (oct_step_type_of(step->kind)->weights) add_weights(&layer, step);
    return layer;
}

static oct_status add(oct_page_layers *layers, oct_page_layer layer)
{
    OCT_TRY(oct_grow(&layers->layer, &layers->capacity, layers->count + 1, sizeof layer));
    layers->layer[layers->count++] = layer;
    return OCT_OK;
}

oct_status oct_page_layers_of(oct_page_layers *layers, const oct_page_run *run)
{
    size_t i;
    const json_t *json;
    oct_page_layers_free(layers);
    json_array_foreach(json_object_get(run->layers, "layers"), i,
                       json) if (json_is_object(json) && i < LAYERS_MAX)
        OCT_TRY(add(layers, measured(json)));
    if (layers->count || !run->has_model) return OCT_OK;
    const oct_program *program = &run->model.program;
    for (int64_t s = 0; s < program->num_steps && s < LAYERS_MAX; s++)
        OCT_TRY(add(layers, of_step(program, &program->steps[s])));
    return OCT_OK;
}

void oct_page_layers_free(oct_page_layers *layers)
{
    oct_free(&layers->layer);
    *layers = (oct_page_layers){0};
}

const oct_page_layer *oct_page_layers_find(const oct_page_layers *layers, const char *path)
{
    for (size_t i = 0; i < layers->count; i++)
        if (strcmp(layers->layer[i].path, path) == 0) return &layers->layer[i];
    return NULL;
}
