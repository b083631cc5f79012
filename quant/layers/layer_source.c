#include "quant/layers/layer_source.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <math.h>
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
static const char quantized_prefix[] = "qat_";

/* Names a traced node and describes its type and output. A functional op is named by its caller: "layer1.0.add". */
static void describe_node(oct_layer_info *layer, const oct_trace *trace, const oct_trace_node *node)
{
    const oct_trace_value *value = &trace->values[node->output];
    const char *op = node->module ? "" : node->op;
    const char *type = node->op;
    snprintf(layer->name, sizeof layer->name, "%s%s%s", node->path, *node->path && *op ? "." : "",
             op);
    if (node->module && node->module->type == &oct_qat_conv_type)
        type = ((const oct_qat_conv *)node->module)->layer->type->name;
    if (strncmp(type, quantized_prefix, strlen(quantized_prefix)) == 0)
        type += strlen(quantized_prefix);
    snprintf(layer->type, sizeof layer->type, "%s", type);
    layer->module = node->module;
    layer->value = (oct_value){.dtype = value->dtype, .q = value->q};
    oct_value_set_plane(&layer->value, &value->shape);
    layer->passes = node->module && (node->module->type == &oct_quant_stub_type ||
                                     node->module->type == &oct_dequant_stub_type);
}

/* While the model runs for the first time: where the data of each value is, to find views of others. */
typedef struct first_run {
    const void **data;
    size_t count, capacity;
    oct_status status;
} first_run;

/* Keeps the address of a value's data, by which views of it are found. */
static void note_data(void *user, int64_t value, const oct_tensor *tensor)
{
    first_run *f = user;
    const size_t wanted = (size_t)value + 1;
    if (f->status == OCT_OK) f->status = oct_grow(&f->data, &f->capacity, wanted, sizeof *f->data);
    if (f->status != OCT_OK) return;
    f->data[value] = tensor->data;
    if (wanted > f->count) f->count = wanted;
}

static bool is_view(const first_run *f, const oct_trace_node *node)
{
    const size_t in = (size_t)node->input[0], out = (size_t)node->output;
    return node->num_inputs == 1 && in < f->count && out < f->count && f->data[in] &&
           f->data[in] == f->data[out];
}

/* Makes a layer of each live node that computes its output itself; layer_of finds it by value. */
static oct_status list_layers(oct_layer_source *s, const oct_trace *trace, const first_run *f,
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
    oct_status status = oct_context_create(&s->cx, &oct_collective_one);
    if (status == OCT_OK) status = oct_trace_watch(&trace, s->cx, root, example, note_data, &f);
    if (status == OCT_OK) status = f.status;
    if (status == OCT_OK) status = oct_trace_live(&trace, &live);
    if (status == OCT_OK) status = list_layers(s, &trace, &f, live);
    oct_free(&live);
    oct_free(&f.data);
    oct_trace_free(&trace);
    if (status != OCT_OK) oct_layer_source_free(s);
    return status;
}

typedef struct watch {
    const oct_layer_source *source;
    oct_layer_fn show;
    void *user;
    bool differs;
} watch;

/* Shows the layer that makes a value. differs: the forward calls other operations than when the source was made. */
static void show_value(void *user, int64_t value, const oct_tensor *tensor)
{
    watch *w = user;
    if ((size_t)value >= w->source->num_values) w->differs = true;
    const int64_t layer = w->differs ? -1 : w->source->layer_of[value];
    if (layer >= 0) {
        const oct_value *expected = &w->source->layers[layer].value;
        w->differs =
            expected->dtype != tensor->dtype || oct_value_numel(expected) != oct_numel(tensor);
    }
    if (layer >= 0 && !w->differs) w->show(w->user, layer, tensor);
}

static oct_status run_model_layers(const oct_layer_source *s, const float *const *input,
                                   oct_layer_fn show, void *user)
{
    oct_trace trace = {0};
    oct_example example = s->example;
    watch w = {.source = s, .show = show, .user = user};
    for (int i = 0; i < example.count; i++)
        example.data[i] = input[i];
    OCT_TRY(oct_trace_watch(&trace, s->cx, s->root, &example, show_value, &w));
    const bool differs = w.differs || trace.num_values != s->num_values;
    oct_trace_free(&trace);
    OCT_CHECK(!differs, OCT_MISMATCH,
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
    status = oct_runtime_create(&s->runtime, program,
                                &(oct_runtime_options){.host = &oct_module_fallbacks});
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
    if (!s->program) return run_model_layers(s, input, show, user);
    return oct_runtime_watch(s->runtime, 1, input, s->output, show_step, &w);
}

void oct_layer_source_free(oct_layer_source *s)
{
    oct_runtime_destroy(&s->runtime);
    oct_context_destroy(&s->cx);
    OCT_FREE_ALL(&s->output, &s->layer_of, &s->layers);
    *s = (oct_layer_source){0};
}

/* Both. */

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

/* Pairs. */

/* The layer of `other` that is layer `number` of `source`, by name; -1: there is none. */
static int64_t find_layer(const oct_layer_source *other, const oct_layer_source *source,
                          int64_t number)
{
    const oct_layer_info *wanted = &source->layers[number];
    for (int64_t i = 0; i < other->count; i++)
        if (other->layers[i].namesake == wanted->namesake &&
            strcmp(other->layers[i].name, wanted->name) == 0)
            return i;
    return -1;
}

/* Layers of one name but of different sizes are no pair. What the first network computes for a pair is
 * held until the second one comes to it. */
oct_status oct_layer_pairs_create(oct_layer_pairs *p, const oct_layer_source *a,
                                  const oct_layer_source *b)
{
    oct_status status = OCT_OK;
    int64_t bytes = 0;
    *p = (oct_layer_pairs){.a = a, .b = b};
    OCT_TRY_OUT(oct_alloc(&p->a_of, (size_t)b->count, sizeof *p->a_of));
    OCT_TRY_OUT(oct_alloc(&p->b_of, (size_t)a->count, sizeof *p->b_of));
    OCT_TRY_OUT(oct_alloc(&p->held, (size_t)a->count, sizeof *p->held));
    for (int64_t i = 0; i < a->count; i++)
        p->b_of[i] = -1;
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t of_a = find_layer(a, b, i);
        const bool pair = of_a >= 0 && oct_value_numel(&a->layers[of_a].value) ==
                                           oct_value_numel(&b->layers[i].value);
        p->a_of[i] = pair ? of_a : -1;
        if (!pair) continue;
        p->b_of[of_a] = i;
        bytes += oct_round_up((int64_t)oct_value_bytes(&a->layers[of_a].value), OCT_CACHE_LINE);
    }
    OCT_TRY_OUT(oct_alloc(&p->memory, (size_t)bytes, 1));
    uint8_t *next = p->memory;
    for (int64_t i = 0; i < a->count; i++) {
        if (p->b_of[i] < 0) continue;
        p->held[i].data = next;
        next += oct_round_up((int64_t)oct_value_bytes(&a->layers[i].value), OCT_CACHE_LINE);
    }
out:
    if (status != OCT_OK) oct_layer_pairs_free(p);
    return status;
}

void oct_layer_pairs_free(oct_layer_pairs *p)
{
    OCT_FREE_ALL(&p->a_of, &p->b_of, &p->held, &p->memory);
    *p = (oct_layer_pairs){0};
}

typedef struct showing {
    const oct_layer_pairs *pairs;
    oct_layer_pair_fn show;
    void *user;
} showing;

/* Keeps an output of the first network until the second one comes to that layer. */
static void hold_output(void *user, int64_t layer, const oct_tensor *output)
{
    const showing *s = user;
    oct_tensor *held = &s->pairs->held[layer];
    if (s->pairs->b_of[layer] < 0) return;
    void *data = held->data;
    *held =
        (oct_tensor){.dtype = output->dtype, .shape = output->shape, .data = data, .q = output->q};
    memcpy(data, output->data, (size_t)oct_numel(output) * oct_dtype_bytes(output->dtype));
}

static void show_pair(void *user, int64_t layer, const oct_tensor *output)
{
    const showing *s = user;
    const int64_t a = s->pairs->a_of[layer];
    if (a >= 0) s->show(s->user, layer, &s->pairs->held[a], output);
}

oct_status oct_layer_pairs_run(const oct_layer_pairs *p, const float *input_a, const float *input_b,
                               oct_layer_pair_fn show, void *user)
{
    showing s = {p, show, user};
    OCT_TRY(oct_layer_source_run(p->a, &input_a, hold_output, &s));
    return oct_layer_source_run(p->b, &input_b, show_pair, &s);
}

/* Comparisons. */

oct_status oct_comparing_begin(oct_comparing *c, const oct_layer_source *a,
                               const oct_layer_source *b)
{
    int64_t most = 0;
    oct_status status = OCT_OK;
    *c = (oct_comparing){0};
    OCT_TRY_OUT(oct_layer_pairs_create(&c->pairs, a, b));
    OCT_TRY_OUT(oct_alloc(&c->layers, (size_t)b->count, sizeof *c->layers));
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t other = c->pairs.a_of[i];
        c->layers[i] = (oct_layer_comparison){.pair = other >= 0, .same_format = other >= 0};
        most = oct_max_i64(most, oct_value_numel(&b->layers[i].value));
    }
    OCT_TRY_OUT(oct_alloc(&c->values_a, (size_t)most, sizeof *c->values_a));
    status = oct_alloc(&c->values_b, (size_t)most, sizeof *c->values_b);
out:
    if (status != OCT_OK) oct_comparing_end(c);
    return status;
}

void oct_comparing_end(oct_comparing *c)
{
    oct_layer_pairs_free(&c->pairs);
    OCT_FREE_ALL(&c->layers, &c->values_a, &c->values_b);
    *c = (oct_comparing){0};
}

static double read_code(const oct_tensor *y, int64_t i)
{
    return y->dtype == OCT_U8 ? oct_u8(y)[i] : oct_u16(y)[i];
}

/* Counts the numbers of a layer that differ, keeps the first of them, and adds up the errors. */
static void compare_layer(void *user, int64_t number, const oct_tensor *a, const oct_tensor *b)
{
    oct_comparing *c = user;
    oct_layer_comparison *layer = &c->layers[number];
    const int64_t n = oct_numel(b);
    const size_t bytes = oct_dtype_bytes(b->dtype);
    if (a->dtype != b->dtype || (oct_is_codes(b) && !oct_qparams_equal(a->q, b->q)))
        layer->same_format = false;
    const bool codes = layer->same_format && oct_is_codes(b);
    oct_layer_values(a, c->values_a);
    oct_layer_values(b, c->values_b);
    for (int64_t i = 0; i < n; i++) {
        const bool differs = layer->same_format
                                 ? memcmp((const uint8_t *)a->data + (size_t)i * bytes,
                                          (const uint8_t *)b->data + (size_t)i * bytes, bytes) != 0
                                 : c->values_a[i] != c->values_b[i];
        if (!differs || layer->different++ > 0) continue;
        layer->first =
            (oct_layer_difference){.sample = c->samples,
                                   .index = i,
                                   .a = codes ? read_code(a, i) : (double)c->values_a[i],
                                   .b = codes ? read_code(b, i) : (double)c->values_b[i]};
    }
    layer->numbers += n;
    const double largest = oct_error_add(&layer->sums, c->values_a, c->values_b, n);
    if (largest > layer->max_error || isnan(largest)) layer->max_error = largest;
}

oct_status oct_comparing_add(oct_comparing *c, const float *input_a, const float *input_b)
{
    OCT_TRY(oct_layer_pairs_run(&c->pairs, input_a, input_b, compare_layer, c));
    c->samples++;
    return OCT_OK;
}

double oct_error_add(oct_error_sums *sums, const float *reference, const float *values, int64_t n)
{
    oct_error_sums s = *sums;
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)reference[i], y = (double)values[i], off = fabs(x - y);
        s.signal += x * x;
        s.power += y * y;
        s.product += x * y;
        s.noise += (x - y) * (x - y);
        if (off > largest || isnan(off)) largest = off;
    }
    *sums = s;
    return largest;
}

double oct_error_sqnr(const oct_error_sums *s)
{
    const bool same = !(s->noise > 0) && !isnan(s->noise);
    return same ? HUGE_VAL : 10.0 * log10(s->signal / s->noise);
}

double oct_error_cosine(const oct_error_sums *s)
{
    const double norm = sqrt(s->signal) * sqrt(s->power);
    return norm > 0 ? s->product / norm : (double)!(s->noise > 0);
}
