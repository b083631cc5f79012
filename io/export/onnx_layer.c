/* This file holds what all layers share, and the way from a layer to its operators. */
#include "io/export/onnx_form.h"

#include "core/base/mem.h"
#include "core/nn/module.h"

#include <string.h>

static const char *add_array(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                             const oct_layer_array *array, bool channels)
{
    oct_torch_array made;
    if (oct_torch_array_make(&made, c->layer, array, &c->input[0].tensor) != OCT_OK)
        return oct_to_onnx_fail(w, OCT_RESOURCE, "%s: no memory for its %s", c->layer->name,
                                array->name);
    /* (C) beside (N, C, H, W) is (C, 1, 1). */
    if (channels && made.ndim == 1 && c->input[0].tensor.shape.ndim == 4 && made.dim[0] > 1) {
        made.ndim = 3;
        made.dim[1] = made.dim[2] = 1;
    }
    const char *name =
        c->own_names ? oct_to_onnx_name(w, "%s.%s", c->layer->name, array->name) : NULL;
    const char *constant = oct_to_onnx_constant(w, name, OCT_F32, made.ndim, made.dim, made.data);
    oct_free(&made.data);
    return constant;
}

static const char *find_array(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                              const char *array, bool channels)
{
    const oct_layer_array *found = oct_layer_array_find(c->layer, array);
    if (found) return add_array(w, c, found, channels);
    return oct_to_onnx_fail(w, OCT_PREPARE, "%s: this %s has no %s", c->layer->name, c->layer->type,
                            array);
}

const char *oct_to_onnx_array(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                              const char *array)
{
    return find_array(w, c, array, false);
}

const char *oct_to_onnx_channel_array(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c,
                                      const char *array)
{
    return find_array(w, c, array, true);
}

static const oct_to_onnx_layer_type *type_of(const char *name)
{
    const struct {
        const oct_to_onnx_layer_type *types;
        size_t count;
    } tables[] = {{oct_to_onnx_weight_layers, oct_to_onnx_weight_layers_count},
                  {oct_to_onnx_math_layers, oct_to_onnx_math_layers_count},
                  {oct_to_onnx_shape_layers, oct_to_onnx_shape_layers_count}};
    for (size_t t = 0; t < OCT_COUNT(tables); t++)
        for (size_t i = 0; i < tables[t].count; i++)
            if (strcmp(tables[t].types[i].type, name) == 0) return &tables[t].types[i];
    return NULL;
}

oct_to_onnx_ref oct_to_onnx_layer_write(oct_to_onnx_writer *w, const oct_to_onnx_layer_call *c)
{
    const oct_float_layer *layer = c->layer;
    const oct_to_onnx_ref none = {.name = NULL};
    oct_args_buffer args;
    oct_to_onnx_layer_call call = *c;
    if (oct_layer_passes(layer->type)) return c->input[0];
    const oct_to_onnx_layer_type *type = type_of(layer->type);
    const oct_module_type *module = oct_module_type_find(layer->type);
    if (!type || !module) {
        oct_to_onnx_fail(w, OCT_PREPARE,
                         "%s: ONNX has no operators for a %s; only Octet runs this model",
                         layer->name, layer->type);
        return none;
    }
    if (type->inputs > 0 && c->num_inputs != type->inputs) {
        oct_to_onnx_fail(w, OCT_PREPARE, "%s: this %s has %d inputs, but a file has %d of it",
                         layer->name, layer->type, c->num_inputs, type->inputs);
        return none;
    }
    if (oct_args_read(module->args, layer->type, &layer->args, &args) != OCT_OK) {
        oct_to_onnx_fail(w, OCT_PREPARE, "%s: %s", layer->name, oct_fail_text(0));
        oct_fail_clear();
        return none;
    }
    for (int i = 0; i < c->num_inputs; i++)
        if (!c->input[i].name) return none;
    oct_to_onnx_layer_begin(w, layer->name);
    call.args = &args;
    return type->write(w, &call);
}
