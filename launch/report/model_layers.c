/* What the int8 model alone says of its layers. */
#include "launch/report/facts.h"
#include "launch/evaluate/multiply_adds.h"
#include "quant/program/step.h"

#include <math.h>

enum { BINS = 64, CODES = 256 };

static json_t *weights_of(const oct_step *step, int64_t numel)
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

static json_t *layer_of(const oct_program *program, const oct_step *step)
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
    const int64_t products =
        oct_conv_multiply_adds(&step->conv.shape, step->conv.input_step_h, step->conv.input_step_w);
    json_object_set_new(layer, "weight", weights_of(step, numel));
    json_object_set_new(layer, "weight_bytes", json_integer(numel));
    json_object_set_new(layer, "operations", json_integer(2 * products));
    return layer;
}

json_t *oct_page_model_layers(const oct_program *program, size_t most)
{
    json_t *layers = json_array();
    for (int64_t s = 0; s < program->num_steps && (size_t)s < most; s++)
        json_array_append_new(layers, layer_of(program, &program->steps[s]));
    return layers;
}
