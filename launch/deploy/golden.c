/* Golden samples of exported files. */
#include "launch/deploy/golden.h"

#include "core/base/mem.h"
#include "core/graph/trace.h"
#include "io/export/program_parts.h"
#include "io/batch/loader.h"
#include "launch/deploy/certificate.h"
#include "launch/evaluate/evaluate.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void oct_golden_free(oct_golden *golden)
{
    for (int i = 0; i < golden->num_arrays; i++) {
        void *data = (void *)(uintptr_t)golden->array[i].data;
        oct_free(&data);
    }
    *golden = (oct_golden){.count = 0};
}

/* Adds the numbers of `samples` samples, whose channels are last. */
static oct_status add_array(oct_golden *golden, const char *name, const oct_value *v,
                            const void *numbers)
{
    const int64_t pixels = v->h * v->w;
    const bool plane = pixels > 1;
    const uint32_t *from = numbers; /* float or int32 */
    uint32_t *to = NULL;
    OCT_TRY(oct_alloc(&to, (size_t)(golden->count * oct_value_numel(v)), sizeof *to));
    if (golden->channels_last)
        memcpy(to, from, (size_t)(golden->count * oct_value_numel(v)) * sizeof *to);
    else
        for (int64_t n = 0; n < golden->count; n++) /* (N, H, W, C) -> (N, C, H, W) */
            for (int64_t i = 0; i < pixels; i++)
                for (int64_t c = 0; c < v->c; c++)
                    to[(n * v->c + c) * pixels + i] = from[(n * pixels + i) * v->c + c];
    golden->array[golden->num_arrays++] = (oct_npz_array){
        .name = name,
        .dtype = v->dtype,
        .shape = !plane                  ? OCT_SHAPE(golden->count, v->c)
                 : golden->channels_last ? OCT_SHAPE(golden->count, v->h, v->w, v->c)
                                         : OCT_SHAPE(golden->count, v->c, v->h, v->w),
        .data = to};
    return OCT_OK;
}

/* What the bytes from 0 to 255 become in each channel. */
typedef struct byte_values {
    float of[OCT_REALS_MAX][UINT8_MAX + 1];
    int64_t channels;
} byte_values;

static void find_byte_values(byte_values *v, int64_t channels, const float *mean, const float *std)
{
    uint8_t all[UINT8_MAX + 1];
    v->channels = channels;
    for (int b = 0; b <= UINT8_MAX; b++)
        all[b] = (uint8_t)b;
    for (int64_t c = 0; c < channels && c < OCT_REALS_MAX; c++)
        oct_normalise(all, UINT8_MAX + 1, 1, &mean[c], &std[c], v->of[c]);
}

/* The byte that becomes a value, number `at` of values whose channels are last; -1: none does. */
static int byte_of(const byte_values *v, int64_t at, float value)
{
    const float *of = v->of[v->channels > OCT_REALS_MAX ? 0 : at % v->channels];
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

/* Finds the byte that becomes each value. */
static oct_status make_pixels(oct_golden *golden, const float *mean, const float *std)
{
    oct_npz_array *a = &golden->array[0];
    const int64_t channels = a->shape.dim[golden->channels_last ? a->shape.ndim - 1 : 1],
                  pixels = oct_shape_numel(&a->shape) / (a->shape.dim[0] * channels);
    const float *numbers = a->data;
    byte_values values;
    uint8_t *bytes = NULL;
    OCT_TRY(oct_alloc(&bytes, (size_t)oct_shape_numel(&a->shape), 1));
    find_byte_values(&values, channels, mean, std);
    for (int64_t i = 0; i < oct_shape_numel(&a->shape); i++) {
        const int b = byte_of(&values, golden->channels_last ? i : i / pixels, numbers[i]);
        if (b < 0) {
            oct_free(&bytes);
            return oct_fail(OCT_PREPARE, OCT_NO_PIXELS);
        }
        bytes[i] = (uint8_t)b;
    }
    void *old = (void *)(uintptr_t)a->data;
    oct_free(&old);
    a->data = bytes;
    a->dtype = OCT_U8;
    return OCT_OK;
}

/* Adds the numbers of input i of all golden samples; a sample has its inputs one after another. */
static oct_status add_input(oct_golden *golden, const oct_model *model, int i)
{
    static const char *const names[OCT_PROGRAM_INPUTS] = {"input",  "input1", "input2", "input3",
                                                          "input4", "input5", "input6", "input7"};
    const oct_program *program = &model->program;
    const oct_value *v = &program->values[program->inputs[i]];
    const int64_t numel = oct_value_numel(v), all = oct_inputs_numel(program);
    int64_t first = 0;
    float *numbers = NULL;
    for (int k = 0; k < i; k++)
        first += oct_value_numel(&program->values[program->inputs[k]]);
    OCT_TRY(oct_alloc(&numbers, (size_t)(golden->count * numel), sizeof *numbers));
    for (int64_t n = 0; n < golden->count; n++)
        memcpy(numbers + n * numel, model->golden_input + n * all + first,
               (size_t)numel * sizeof *numbers);
    const oct_status status = add_array(golden, names[i], v, numbers);
    oct_free(&numbers);
    return status;
}

static oct_status run_program(oct_golden *golden, const oct_model *model)
{
    const oct_program *program = &model->program;
    const oct_value *v = &program->values[program->output];
    const float *input[OCT_PROGRAM_INPUTS];
    oct_runtime *runtime = NULL;
    uint8_t *output = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_alloc(&output, (size_t)golden->count, oct_value_bytes(v)));
    OCT_TRY_OUT(oct_runtime_create(&runtime, program, 1, &oct_module_fallbacks));
    for (int64_t n = 0; n < golden->count; n++) {
        const float *at = model->golden_input + n * oct_inputs_numel(program);
        for (int i = 0; i < program->num_inputs; i++) {
            input[i] = at;
            at += oct_value_numel(&program->values[program->inputs[i]]);
        }
        OCT_TRY_OUT(oct_runtime_run(runtime, 1, input, output + (size_t)n * oct_value_bytes(v)));
    }
    status = add_array(golden, "output", v, output);
out:
    oct_runtime_destroy(&runtime);
    oct_free(&output);
    return status;
}

/* The codes that values are made to or of. */
static oct_status make_codes(oct_npz_array *a, const oct_step *quantizer, oct_qparams q)
{
    const int64_t n = oct_shape_numel(&a->shape);
    uint8_t *codes = NULL;
    OCT_TRY(oct_alloc(&codes, (size_t)n, 1));
    oct_export_quantize(quantizer, q, a->data, n, codes);
    for (int64_t i = 0; i < n; i++)
        codes[i] ^= 1 << 7; /* 128 less, as a signed byte */
    void *old = (void *)(uintptr_t)a->data;
    oct_free(&old);
    a->data = codes;
    a->dtype = OCT_S8;
    return OCT_OK;
}

oct_status oct_golden_of_model(oct_golden *golden, const oct_model *model, bool pixels, bool codes)
{
    const oct_program *program = &model->program;
    *golden = (oct_golden){.count = model->certificate.golden_count,
                           .channels_last = golden->channels_last};
    for (int i = 0; i < program->num_inputs; i++)
        OCT_TRY(add_input(golden, model, i));
    OCT_TRY(run_program(golden, model));
    for (int i = 0; codes && i < program->num_inputs; i++) {
        const oct_step *step = oct_export_quantizer(program, program->inputs[i]);
        if (step) OCT_TRY(make_codes(&golden->array[i], step, oct_step_output(program, step)->q));
    }
    const oct_step *last = &program->steps[program->num_steps - 1];
    if (codes && last->kind == OCT_STEP_DEQUANTIZE && last->output == program->output)
        OCT_TRY(make_codes(&golden->array[program->num_inputs], last,
                           oct_step_input(program, last, 0)->q));
    return pixels ? make_pixels(golden, model->mean, model->std) : OCT_OK;
}

/* A network's output: its number in the trace, its type and shape, and where the next sample's numbers go. */
typedef struct network_output {
    int64_t value;
    oct_value shape;
    uint8_t *at;
} network_output;

static void copy_output(void *user, int64_t value, const oct_tensor *tensor)
{
    const network_output *out = user;
    if (value == out->value)
        memcpy(out->at, tensor->data, (size_t)oct_numel(tensor) * oct_dtype_bytes(tensor->dtype));
}

/* Finds the output's number and shape. With `at` set, which takes an earlier call, copies its numbers too. */
static oct_status run_sample(oct_module *root, oct_example *example, const float *image,
                             network_output *out)
{
    oct_trace trace;
    example->data[0] = image;
    OCT_TRY(oct_trace_watch(&trace, root, example, out->at ? copy_output : NULL, out));
    out->value = trace.output;
    out->shape.dtype = trace.values[trace.output].dtype;
    oct_value_set_plane(&out->shape, &trace.values[trace.output].shape);
    oct_trace_free(&trace);
    if (out->at) out->at += oct_value_bytes(&out->shape);
    return OCT_OK;
}

oct_status oct_golden_of_network(oct_golden *golden, oct_module *root, const oct_recipe *recipe,
                                 const oct_dataset *data, bool pixels)
{
    const oct_value in = {.dtype = OCT_F32, .h = data->h, .w = data->w, .c = data->c};
    oct_example example = *OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c));
    const oct_normaliser normaliser = oct_normaliser_of(&recipe->data_mean, &recipe->data_std);
    oct_loader loader = {0};
    oct_goals goals;
    float *images = NULL, mean[OCT_REALS_MAX], std[OCT_REALS_MAX];
    uint8_t *outputs = NULL;
    network_output out = {.at = NULL};
    oct_status status = OCT_OK;
    *golden =
        (oct_golden){.count = data->count < OCT_GOLDEN_IMAGES ? data->count : OCT_GOLDEN_IMAGES,
                     .channels_last = golden->channels_last};
    OCT_TRY_OUT(oct_evaluation_loader(&loader, recipe, data));
    OCT_TRY_OUT(oct_alloc(&images, (size_t)(golden->count * oct_value_numel(&in)), sizeof *images));
    OCT_TRY_OUT(oct_loader_read(&loader, 0, golden->count, images, &goals));
    OCT_TRY_OUT(run_sample(root, &example, images, &out)); /* only for the size of the output */
    OCT_TRY_OUT(oct_alloc(&outputs, (size_t)golden->count, oct_value_bytes(&out.shape)));
    out.at = outputs;
    for (int64_t n = 0; n < golden->count; n++)
        OCT_TRY_OUT(run_sample(root, &example, images + n * oct_value_numel(&in), &out));
    OCT_TRY_OUT(add_array(golden, "input", &in, images));
    OCT_TRY_OUT(add_array(golden, "output", &out.shape, outputs));
    for (int64_t c = 0; c < data->c && c < OCT_REALS_MAX; c++) {
        mean[c] = normaliser.mean[normaliser.count == 1 ? 0 : c];
        std[c] = normaliser.std[normaliser.count == 1 ? 0 : c];
    }
    if (pixels) status = make_pixels(golden, mean, std);
out:
    oct_loader_deinit(&loader);
    oct_free(&images);
    oct_free(&outputs);
    return status;
}
