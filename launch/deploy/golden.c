#include "launch/deploy/golden.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/graph/trace.h"
#include "io/export/program_parts.h"
#include "io/file/file.h"
#include "launch/deploy/certificate.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

typedef struct golden_samples {
    const oct_golden_source *source;
    oct_npz_array array[OCT_PROGRAM_INPUTS + 1]; /* data are owned */
    int num_arrays;
    int64_t count; /* samples */
} golden_samples;

/* Puts other data in place of those of an array, which are freed. */
static void replace_data(oct_npz_array *array, oct_dtype dtype, const void *data)
{
    void *old = (void *)(uintptr_t)array->data;
    oct_free(&old);
    array->data = data;
    array->dtype = dtype;
}

/* Adds an array of all samples, from numbers with channels last to the layout of the exported file. */
static oct_status add_array(golden_samples *golden, const char *name, const oct_value *v,
                            const void *numbers)
{
    const int64_t pixels = v->h * v->w;
    const bool plane = pixels > 1;
    const uint32_t *from = numbers; /* float or int32 */
    uint32_t *to = NULL;
    OCT_TRY(oct_alloc(&to, (size_t)(golden->count * oct_value_numel(v)), sizeof *to));
    if (golden->source->channels_last)
        memcpy(to, from, (size_t)(golden->count * oct_value_numel(v)) * sizeof *to);
    else
        for (int64_t n = 0; n < golden->count; n++) /* (N, H, W, C) -> (N, C, H, W) */
            for (int64_t i = 0; i < pixels; i++)
                for (int64_t c = 0; c < v->c; c++)
                    to[(n * v->c + c) * pixels + i] = from[(n * pixels + i) * v->c + c];
    golden->array[golden->num_arrays++] = (oct_npz_array){
        .name = name,
        .dtype = v->dtype,
        .shape = !plane                          ? OCT_SHAPE(golden->count, v->c)
                 : golden->source->channels_last ? OCT_SHAPE(golden->count, v->h, v->w, v->c)
                                                 : OCT_SHAPE(golden->count, v->c, v->h, v->w),
        .data = to};
    return OCT_OK;
}

/* What the bytes from 0 to 255 become in each channel. */
typedef struct byte_values {
    float of[OCT_REALS_MAX][UINT8_MAX + 1];
    int64_t channels;
} byte_values;

/* Normalises each byte with the mean and std of each channel. */
static void find_byte_values(byte_values *v, int64_t channels, const float *mean, const float *std)
{
    uint8_t all[UINT8_MAX + 1];
    v->channels = channels;
    for (int b = 0; b <= UINT8_MAX; b++)
        all[b] = (uint8_t)b;
    for (int64_t c = 0; c < channels && c < OCT_REALS_MAX; c++)
        oct_normalise(all, UINT8_MAX + 1, 1, &mean[c], &std[c], v->of[c]);
}

/* The byte that becomes a value, number `i` of values whose channels are last; -1: none does. */
static int byte_of(const byte_values *v, int64_t i, float value)
{
    const float *of = v->of[v->channels > OCT_REALS_MAX ? 0 : i % v->channels];
    int b = 0;
    while (b <= UINT8_MAX && of[b] != value)
        b++;
    return b > UINT8_MAX ? -1 : b;
}

bool oct_golden_are_pixels(const oct_model *model)
{
    const oct_program *program = &model->program;
    const oct_value *in = &program->values[program->inputs[0]];
    const int64_t all = oct_inputs_numel(program);
    byte_values values;
    find_byte_values(&values, in->c, model->mean, model->std);
    for (int64_t n = 0; n < model->certificate.golden_count; n++)
        for (int64_t i = 0; i < oct_value_numel(in); i++)
            if (byte_of(&values, i, model->golden_input[n * all + i]) < 0) return false;
    return true;
}

void oct_golden_round_to_pixels(oct_model *model)
{
    const oct_program *program = &model->program;
    const oct_value *in = &program->values[program->inputs[0]];
    const int64_t all = oct_inputs_numel(program);
    byte_values values;
    find_byte_values(&values, in->c, model->mean, model->std);
    for (int64_t n = 0; n < model->certificate.golden_count; n++)
        for (int64_t i = 0; i < oct_value_numel(in); i++) {
            float *x = &model->golden_input[n * all + i];
            const float *of = values.of[in->c > OCT_REALS_MAX ? 0 : i % in->c];
            const float byte = roundf((*x - of[0]) / (of[UINT8_MAX] - of[0]) * (float)UINT8_MAX);
            if (!(byte >= 0 && byte <= UINT8_MAX)) continue;
            const float near = of[(int)byte];
            if (fabsf(near - *x) <= 1e-3F * (of[1] - of[0])) *x = near;
        }
}

/* Replaces the normalised values of input 0 by the bytes of pixels that become them. */
static oct_status make_pixels(golden_samples *golden, const float *mean, const float *std)
{
    oct_npz_array *a = &golden->array[0];
    const int64_t channels = a->shape.dim[golden->source->channels_last ? a->shape.ndim - 1 : 1],
                  pixels = oct_shape_numel(&a->shape) / (a->shape.dim[0] * channels);
    const float *numbers = a->data;
    byte_values values;
    uint8_t *bytes = NULL;
    OCT_TRY(oct_alloc(&bytes, (size_t)oct_shape_numel(&a->shape), 1));
    find_byte_values(&values, channels, mean, std);
    for (int64_t i = 0; i < oct_shape_numel(&a->shape); i++) {
        const int b = byte_of(&values, golden->source->channels_last ? i : i / pixels, numbers[i]);
        if (b < 0) {
            oct_free(&bytes);
            return oct_fail(OCT_PREPARE, OCT_NO_PIXELS);
        }
        bytes[i] = (uint8_t)b;
    }
    replace_data(a, OCT_U8, bytes);
    return OCT_OK;
}

/* Adds the numbers of input i of all golden samples; a sample has its inputs one after another. */
static oct_status add_input(golden_samples *golden, const oct_model *model, int i)
{
    static const char *const names[OCT_PROGRAM_INPUTS] = {"input",  "input1", "input2", "input3",
                                                          "input4", "input5", "input6", "input7"};
    const oct_program *program = &model->program;
    const oct_value *v = &program->values[program->inputs[i]];
    const int64_t numel = oct_value_numel(v), all = oct_inputs_numel(program);
    int64_t first = 0;
    OCT_OWNED(oct_free) float *numbers = NULL;
    for (int k = 0; k < i; k++)
        first += oct_value_numel(&program->values[program->inputs[k]]);
    OCT_TRY(oct_alloc(&numbers, (size_t)(golden->count * numel), sizeof *numbers));
    for (int64_t n = 0; n < golden->count; n++)
        memcpy(numbers + n * numel, model->golden_input + n * all + first,
               (size_t)numel * sizeof *numbers);
    return add_array(golden, names[i], v, numbers);
}

static oct_status add_output(golden_samples *golden, const oct_model *model)
{
    const oct_program *program = &model->program;
    const oct_value *v = &program->values[program->output];
    const float *input[OCT_PROGRAM_INPUTS];
    OCT_OWNED(oct_runtime_destroy) oct_runtime *runtime = NULL;
    OCT_OWNED(oct_free) uint8_t *output = NULL;
    OCT_TRY(oct_alloc(&output, (size_t)golden->count, oct_value_bytes(v)));
    OCT_TRY(oct_runtime_create(&runtime, program,
                               &(oct_runtime_options){.host = &oct_module_fallbacks}));
    for (int64_t n = 0; n < golden->count; n++) {
        const float *at = model->golden_input + n * oct_inputs_numel(program);
        for (int i = 0; i < program->num_inputs; i++) {
            input[i] = at;
            at += oct_value_numel(&program->values[program->inputs[i]]);
        }
        OCT_TRY(oct_runtime_run(runtime, 1, input, output + (size_t)n * oct_value_bytes(v)));
    }
    return add_array(golden, "output", v, output);
}

/* Replaces the values of an array by their codes. */
static oct_status make_codes(oct_npz_array *a, const oct_step *quantizer, oct_qparams q)
{
    const int64_t n = oct_shape_numel(&a->shape);
    uint8_t *codes = NULL;
    OCT_TRY(oct_alloc(&codes, (size_t)n, 1));
    oct_step_quantize_values(quantizer, q, a->data, n, codes, NULL, NULL);
    for (int64_t i = 0; i < n; i++)
        codes[i] ^= 1 << 7; /* 128 less, as a signed byte */
    replace_data(a, OCT_S8, codes);
    return OCT_OK;
}

static oct_status collect_from_model(golden_samples *golden)
{
    const oct_model *model = golden->source->model;
    const oct_program *program = &model->program;
    const bool codes = golden->source->codes;
    golden->count = model->certificate.golden_count;
    for (int i = 0; i < program->num_inputs; i++)
        OCT_TRY(add_input(golden, model, i));
    OCT_TRY(add_output(golden, model));
    for (int i = 0; codes && i < program->num_inputs; i++) {
        const oct_step *step = oct_export_quantizer(program, program->inputs[i]);
        if (step) OCT_TRY(make_codes(&golden->array[i], step, oct_step_output(program, step)->q));
    }
    const oct_step *last = &program->steps[program->num_steps - 1];
    if (codes && last->kind == OCT_STEP_DEQUANTIZE && last->output == program->output)
        OCT_TRY(make_codes(&golden->array[program->num_inputs], last,
                           oct_step_input(program, last, 0)->q));
    return golden->source->pixels ? make_pixels(golden, model->mean, model->std) : OCT_OK;
}

/* A network's output: its number in the trace, its type and shape, and where the next sample's numbers go. */
typedef struct network_output {
    int64_t value;
    oct_value shape;
    uint8_t *next;
} network_output;

static void copy_output(void *user, int64_t value, const oct_tensor *tensor)
{
    const network_output *out = user;
    if (value == out->value)
        memcpy(out->next, tensor->data, (size_t)oct_numel(tensor) * oct_dtype_bytes(tensor->dtype));
}

/* Finds the output's number and shape. With `next` set, which takes an earlier call, copies its numbers too. */
static oct_status run_sample(oct_module *root, oct_example *example, const float *image,
                             network_output *out)
{
    oct_trace trace;
    example->data[0] = image;
    OCT_TRY(oct_trace_watch(&trace, NULL, root, example, out->next ? copy_output : NULL, out));
    out->value = trace.output;
    out->shape.dtype = trace.values[trace.output].dtype;
    oct_value_set_plane(&out->shape, &trace.values[trace.output].shape);
    oct_trace_free(&trace);
    if (out->next) out->next += oct_value_bytes(&out->shape);
    return OCT_OK;
}

/* Collects the first images of the data and what the float network computes of them. */
static oct_status collect_from_network(golden_samples *golden)
{
    const oct_dataset *data = golden->source->data;
    const oct_recipe *recipe = golden->source->recipe;
    oct_module *root = golden->source->root;
    const oct_value in = {.dtype = OCT_F32, .h = data->h, .w = data->w, .c = data->c};
    oct_example example = *OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c));
    const oct_normaliser n = oct_normaliser_of(&recipe->data_mean, &recipe->data_std);
    OCT_OWNED(oct_free) float *images = NULL;
    float mean[OCT_REALS_MAX], std[OCT_REALS_MAX];
    OCT_OWNED(oct_free) uint8_t *outputs = NULL;
    network_output out = {.next = NULL};
    golden->count = oct_min_i64(data->count, OCT_GOLDEN_IMAGES);
    OCT_TRY(oct_alloc(&images, (size_t)(golden->count * oct_value_numel(&in)), sizeof *images));
    OCT_TRY(oct_golden_read(recipe, data, golden->count, images));
    OCT_TRY(run_sample(root, &example, images, &out)); /* only for the size of the output */
    OCT_TRY(oct_alloc(&outputs, (size_t)golden->count, oct_value_bytes(&out.shape)));
    out.next = outputs;
    for (int64_t i = 0; i < golden->count; i++)
        OCT_TRY(run_sample(root, &example, images + i * oct_value_numel(&in), &out));
    OCT_TRY(add_array(golden, "input", &in, images));
    OCT_TRY(add_array(golden, "output", &out.shape, outputs));
    oct_normaliser_spread(&n, data->c, mean, std);
    return golden->source->pixels ? make_pixels(golden, mean, std) : OCT_OK;
}

oct_status oct_golden_write(const oct_golden_source *source, const char *path, int64_t *count)
{
    golden_samples golden = {.source = source};
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size;
    oct_status status = source->model ? collect_from_model(&golden) : collect_from_network(&golden);
    if (status == OCT_OK) status = oct_npz_make(golden.array, golden.num_arrays, &bytes, &size);
    if (status == OCT_OK) status = oct_file_write(path, bytes, size);
    *count = golden.count;
    for (int i = 0; i < golden.num_arrays; i++)
        replace_data(&golden.array[i], OCT_F32, NULL);
    return status;
}
