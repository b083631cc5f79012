#include "quant/layers/layer_source.h"

#include "core/base/mem.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <stdio.h>
#include <string.h>

static void number_namesakes(oct_layer_source *s)
{
    for (int64_t i = 0; i < s->count; i++)
        for (int64_t k = 0; k < i; k++)
            s->layers[i].namesake += strcmp(s->layers[i].name, s->layers[k].name) == 0;
}

/* Layers of a model. */

/* The type of a quantized module begins with this: "qat_add". */
static const char quantized_form[] = "qat_";

/* What a functional op is called in a program, too: "layer1.0.add". */
static void describe_node(oct_layer_info *layer, const oct_trace *trace, const oct_trace_node *node)
{
    const oct_trace_value *value = &trace->values[node->output];
    const char *op = node->module ? "" : node->op;
    const char *type = node->op;
    snprintf(layer->name, sizeof layer->name, "%s%s%s", node->path, *node->path && *op ? "." : "",
             op);
    if (node->module && node->module->type == &oct_qat_conv_type)
        type = ((const oct_qat_conv *)node->module)->layer->type->name;
    if (strncmp(type, quantized_form, strlen(quantized_form)) == 0) type += strlen(quantized_form);
    snprintf(layer->type, sizeof layer->type, "%s", type);
    layer->module = node->module;
    layer->value = (oct_value){.dtype = value->dtype, .q = value->q};
    oct_value_set_plane(&layer->value, &value->shape);
    layer->passes = node->module && (node->module->type == &oct_quant_stub_type ||
                                     node->module->type == &oct_dequant_stub_type);
}

/* While the model runs for the first time: where the data of each value lies, to know views of others. */
typedef struct place {
    const void *data;
} place;

typedef struct first_run {
    place *places;
    size_t count, capacity;
    oct_status status;
} first_run;

static void note_place(void *user, int64_t value, const oct_tensor *tensor)
{
    first_run *f = user;
    const size_t wanted = (size_t)value + 1;
    if (f->status == OCT_OK)
        f->status = oct_grow(&f->places, &f->capacity, wanted, sizeof *f->places);
    if (f->status != OCT_OK) return;
    f->places[value].data = tensor->data;
    if (wanted > f->count) f->count = wanted;
}

static bool is_view(const first_run *f, const oct_trace_node *node)
{
    const size_t in = (size_t)node->input[0], out = (size_t)node->output;
    return node->num_inputs == 1 && in < f->count && out < f->count && f->places[in].data &&
           f->places[in].data == f->places[out].data;
}

static oct_status make_layers(oct_layer_source *s, const oct_trace *trace, const first_run *f,
                              const bool *live)
{
    s->num_values = trace->num_values;
    OCT_TRY(oct_alloc(&s->layers, trace->num_nodes, sizeof *s->layers));
    OCT_TRY(oct_alloc(&s->layer_of, trace->num_values, sizeof *s->layer_of));
    for (size_t i = 0; i < trace->num_values; i++)
        s->layer_of[i] = -1;
    for (size_t i = 0; i < trace->num_nodes; i++) {
        const oct_trace_node *node = &trace->nodes[i];
        if (!live[i] || trace->values[node->output].producer != (int64_t)i) continue;
        oct_layer_info *layer = &s->layers[s->count];
        describe_node(layer, trace, node);
        layer->passes = layer->passes || is_view(f, node);
        s->layer_of[node->output] = s->count++;
    }
    number_namesakes(s);
    return OCT_OK;
}

oct_status oct_layer_source_of_model(oct_layer_source *s, oct_module *root,
                                     const oct_example *example)
{
    oct_trace trace = {0};
    first_run f = {0};
    bool *live = NULL;
    *s = (oct_layer_source){.root = root, .example = *example};
    oct_status status = oct_trace_watch(&trace, root, example, note_place, &f);
    if (status == OCT_OK) status = f.status;
    if (status == OCT_OK) status = oct_trace_live(&trace, &live);
    if (status == OCT_OK) status = make_layers(s, &trace, &f, live);
    oct_free(&live);
    oct_free(&f.places);
    oct_trace_free(&trace);
    if (status != OCT_OK) oct_layer_source_free(s);
    return status;
}

typedef struct watch {
    const oct_layer_source *source;
    oct_layer_fn show;
    void *user;
    bool other_way;
} watch;

static bool same_value(const oct_layer_info *layer, const oct_tensor *tensor)
{
    const oct_value *value = &layer->value;
    return value->dtype == tensor->dtype && value->h * value->w * value->c == oct_numel(tensor);
}

static void show_value(void *user, int64_t value, const oct_tensor *tensor)
{
    watch *w = user;
    if ((size_t)value >= w->source->num_values) w->other_way = true;
    const int64_t layer = w->other_way ? -1 : w->source->layer_of[value];
    if (layer >= 0 && !same_value(&w->source->layers[layer], tensor)) w->other_way = true;
    if (layer >= 0 && !w->other_way) w->show(w->user, layer, tensor);
}

static oct_status run_model(const oct_layer_source *s, const float *const *input, oct_layer_fn show,
                            void *user)
{
    oct_trace trace = {0};
    oct_example example = s->example;
    watch w = {.source = s, .show = show, .user = user};
    for (int i = 0; i < example.count; i++)
        example.data[i] = input[i];
    OCT_TRY(oct_trace_watch(&trace, s->root, &example, show_value, &w));
    const bool other_way = w.other_way || trace.num_values != s->num_values;
    oct_trace_free(&trace);
    OCT_CHECK(!other_way, OCT_NO,
              "the model's forward calls other operations on this sample than on another one; what "
              "a forward does must not depend on the values of its input");
    return OCT_OK;
}

/* Layers of a program. */

oct_status oct_layer_source_of_program(oct_layer_source *s, const oct_program *program)
{
    oct_status status = OCT_OK;
    *s = (oct_layer_source){.program = program, .count = program->num_steps};
    s->example.count = program->num_inputs;
    for (int i = 0; i < program->num_inputs; i++) {
        const oct_value *value = &program->values[program->inputs[i]];
        s->example.shape[i] = OCT_SHAPE(1, value->h, value->w, value->c);
    }
    OCT_TRY_OUT(oct_alloc(&s->layers, (size_t)program->num_steps, sizeof *s->layers));
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        const oct_step_kind kind = step->kind;
        oct_layer_info *layer = &s->layers[i];
        snprintf(layer->name, sizeof layer->name, "%s", step->name);
        snprintf(layer->type, sizeof layer->type, "%s", oct_step_operation(step));
        layer->value = *oct_step_output(program, step);
        layer->passes =
            kind == OCT_STEP_QUANTIZE || kind == OCT_STEP_DEQUANTIZE || kind == OCT_STEP_RESHAPE;
    }
    number_namesakes(s);
    OCT_TRY_OUT(oct_alloc(&s->output, oct_value_bytes(&program->values[program->output]), 1));
    status = oct_runtime_create(&s->runtime, program, 1, &oct_module_fallbacks);
out:
    if (status != OCT_OK) oct_layer_source_free(s);
    return status;
}

static void show_step(void *user, int64_t value, const oct_step *step, const void *data,
                      size_t bytes)
{
    const watch *w = user;
    const oct_value *v = &w->source->program->values[value];
    const oct_tensor output = {.dtype = v->dtype,
                               .shape = OCT_SHAPE(1, v->h, v->w, v->c),
                               .data = (void *)(uintptr_t)data,
                               .q = v->q};
    (void)bytes;
    w->show(w->user, step - w->source->program->steps, &output);
}

oct_status oct_layer_source_run(const oct_layer_source *s, const float *const *input,
                                oct_layer_fn show, void *user)
{
    watch w = {.source = s, .show = show, .user = user};
    if (!s->program) return run_model(s, input, show, user);
    return oct_runtime_watch(s->runtime, 1, input, s->output, show_step, &w);
}

void oct_layer_source_free(oct_layer_source *s)
{
    oct_runtime_destroy(&s->runtime);
    oct_free(&s->output);
    oct_free(&s->layer_of);
    oct_free(&s->layers);
    *s = (oct_layer_source){0};
}

/* Both. */

int64_t oct_layer_find(const oct_layer_source *other, const oct_layer_source *source,
                       int64_t number)
{
    const oct_layer_info *wanted = &source->layers[number];
    for (int64_t i = 0; i < other->count; i++)
        if (other->layers[i].namesake == wanted->namesake &&
            strcmp(other->layers[i].name, wanted->name) == 0)
            return i;
    return -1;
}

void oct_layer_values(const oct_tensor *y, float *values)
{
    const int64_t n = oct_numel(y);
    if (y->dtype == OCT_U8)
        oct_dequantize(oct_u8(y), n, y->q, values);
    else if (y->dtype == OCT_U16)
        oct_dequantize16(oct_u16(y), n, y->q, values);
    else if (y->dtype == OCT_S32)
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)((const int32_t *)y->data)[i];
    else
        memcpy(values, y->data, (size_t)n * sizeof *values);
}
