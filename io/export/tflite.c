/* The format tflite: an int8 model for TFLite, whose kernels compute its steps' own arithmetic where the model was
 * trained for quant.target: tflite; what is only close to it is said in a notice. Tensors and operators lie in an arena
 * until they are written (tflite_file.c). */
#include "io/export/tflite_form.h"

#include "core/base/mem.h"
#include "quant/program/step.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 512 };

int oct_to_tflite_fail(oct_to_tflite_writer *w, oct_status code, const char *format, ...)
{
    char text[1024];
    OCT_PRINT_ARGS(text, format);
    const oct_status made = oct_fail_add(code, "%s", text);
    if (w->status == OCT_OK) w->status = made;
    return OCT_TFLITE_NONE;
}

void *oct_to_tflite_alloc(oct_to_tflite_writer *w, const void *data, size_t bytes)
{
    if (w->status != OCT_OK) return NULL;
    void *block = oct_arena_take(w->arena, bytes > 0 ? bytes : 1);
    if (!block)
        w->status = OCT_RESOURCE;
    else if (data && bytes > 0)
        memcpy(block, data, bytes);
    return block;
}

static void append(oct_to_tflite_writer *w, oct_tflite_list *list, void *item)
{
    if (w->status == OCT_OK)
        w->status = oct_grow(&list->item, &list->capacity, list->count + 1, sizeof *list->item);
    if (w->status == OCT_OK) list->item[list->count++] = item;
}

int oct_to_tflite_tensor(oct_to_tflite_writer *w, oct_tflite_type type, int ndim,
                         const int64_t *dims, oct_tflite_quant quant)
{
    char name[NAME_BYTES];
    oct_tflite_tensor t = {.number = (int)w->tensors.count,
                           .type = type,
                           .ndim = ndim,
                           .axis = quant.axis,
                           .bytes = type == OCT_TFLITE_S8 || type == OCT_TFLITE_U8 ? 1 : 4};
    OCT_ASSERT(ndim <= OCT_TFLITE_DIMS);
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    for (int i = 0; i < ndim; i++) {
        t.dims[i] = dims[i];
        t.bytes *= (size_t)dims[i];
    }
    snprintf(name, sizeof name, "%s/%zu", w->layer, w->tensors.count);
    t.name = oct_to_tflite_alloc(w, name, strlen(name) + 1);
    if (quant.codes) {
        t.scales = 1;
        t.scale = oct_to_tflite_alloc(w, &quant.codes->scale, sizeof(float));
        t.zero_point = quant.codes->zero_point - OCT_TFLITE_SIGN;
    } else if (quant.scales) {
        t.scales = (size_t)dims[quant.axis];
        t.scale = oct_to_tflite_alloc(w, quant.scales, t.scales * sizeof(float));
    }
    append(w, &w->tensors, oct_to_tflite_alloc(w, &t, sizeof t));
    return w->status == OCT_OK ? (int)w->tensors.count - 1 : OCT_TFLITE_NONE;
}

int oct_to_tflite_constant(oct_to_tflite_writer *w, oct_tflite_type type, int ndim,
                           const int64_t *dims, oct_tflite_quant quant, const void *data)
{
    const int number = oct_to_tflite_tensor(w, type, ndim, dims, quant);
    if (w->status == OCT_OK) oct_to_tflite_at(w, number)->data = data;
    return number;
}

int oct_to_tflite_list(oct_to_tflite_writer *w, int n, const int32_t *values)
{
    const int64_t dims[] = {n};
    return oct_to_tflite_constant(
        w, OCT_TFLITE_S32, n > 0 ? 1 : 0, dims, (oct_tflite_quant){.codes = NULL},
        oct_to_tflite_alloc(w, values, (size_t)(n > 0 ? n : 1) * sizeof *values));
}

int oct_to_tflite_like(oct_to_tflite_writer *w, int number, int ndim, const int64_t *dims)
{
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    const oct_tflite_tensor *t = oct_to_tflite_at(w, number);
    const oct_qparams q = {t->scales ? t->scale[0] : 0, (int32_t)t->zero_point + OCT_TFLITE_SIGN, 0,
                           0};
    return oct_to_tflite_tensor(w, t->type, ndim, dims,
                                (oct_tflite_quant){.codes = t->scales ? &q : NULL});
}

void oct_to_tflite_rename(oct_to_tflite_writer *w, int number, const char *format, ...)
{
    char text[NAME_BYTES];
    OCT_PRINT_ARGS(text, format);
    const char *name = oct_to_tflite_alloc(w, text, strlen(text) + 1);
    if (name) oct_to_tflite_at(w, number)->name = name;
}

void oct_to_tflite_operator(oct_to_tflite_writer *w, oct_tflite_operator kind, int inputs,
                            const int *input, int outputs, const int *output, int options,
                            const oct_tflite_option *option)
{
    oct_tflite_call call = {
        .kind = kind, .layer = w->layer, .inputs = inputs, .outputs = outputs, .options = options};
    OCT_ASSERT(options <= OCT_TFLITE_OPTIONS_MAX);
    if (w->status != OCT_OK) return;
    for (int i = 0; i < inputs; i++)
        OCT_ASSERT(input[i] != OCT_TFLITE_NONE);
    call.input = oct_to_tflite_alloc(w, input, (size_t)inputs * sizeof *input);
    call.output = oct_to_tflite_alloc(w, output, (size_t)outputs * sizeof *output);
    if (options > 0) memcpy(call.option, option, (size_t)options * sizeof *option);
    append(w, &w->calls, oct_to_tflite_alloc(w, &call, sizeof call));
}

int oct_to_tflite_apply(oct_to_tflite_writer *w, oct_tflite_operator kind, int inputs,
                        const int *input, int output, int options, const oct_tflite_option *option)
{
    oct_to_tflite_operator(w, kind, inputs, input, 1, &output, options, option);
    return output;
}

/* Declares an input or output of the model, under its name. */
static void declare_tensor(oct_to_tflite_writer *w, bool output, int number)
{
    if (w->status == OCT_OK)
        append(w, output ? &w->outputs : &w->inputs, oct_to_tflite_at(w, number));
}

/* Adds a text to the model's metadata; both are copied. */
static void add_property(oct_to_tflite_writer *w, const char *key, const char *value)
{
    const oct_tflite_property p = {oct_to_tflite_alloc(w, key, strlen(key) + 1),
                                   oct_to_tflite_alloc(w, value, strlen(value) + 1)};
    append(w, &w->properties, oct_to_tflite_alloc(w, &p, sizeof p));
}

static const char *const diff_words[] = {
#define X(id, words) words,
    OCT_TO_TFLITE_DIFF_LIST(X)
#undef X
};

int oct_to_tflite_value(oct_to_tflite_program *p, int32_t value)
{
    const oct_value *v = &p->program->values[value];
    const int64_t dims[] = {1, v->h, v->w, v->c};
    const oct_tflite_quant none = {.codes = NULL}, codes = {.codes = &v->q};
    if (v->dtype == OCT_U8) return oct_to_tflite_tensor(p->w, OCT_TFLITE_S8, 4, dims, codes);
    return oct_to_tflite_tensor(p->w, v->dtype == OCT_F32 ? OCT_TFLITE_FLOAT : OCT_TFLITE_S32, 4,
                                dims, none);
}

int oct_to_tflite_reshape(oct_to_tflite_writer *w, int x, int ndim, const int64_t *dims)
{
    int32_t sizes[OCT_TFLITE_DIMS];
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    const oct_tflite_tensor *t = oct_to_tflite_at(w, x);
    if (t->ndim == ndim && memcmp(t->dims, dims, (size_t)ndim * sizeof *dims) == 0) return x;
    for (int i = 0; i < ndim; i++)
        sizes[i] = (int32_t)dims[i];
    return oct_to_tflite_apply(w, OCT_TFLITE_RESHAPE,
                               OCT_TO_TFLITE_INPUTS(x, oct_to_tflite_list(w, ndim, sizes)),
                               oct_to_tflite_like(w, x, ndim, dims), OCT_TO_TFLITE_NO_OPTIONS);
}

int oct_to_tflite_output(oct_to_tflite_program *p, const oct_step *step, int y)
{
    const oct_value *v = &p->program->values[step->output];
    return oct_to_tflite_reshape(p->w, y, 4, (int64_t[]){1, v->h, v->w, v->c});
}

int oct_to_tflite_input(oct_to_tflite_program *p, const oct_step *step, int i, int64_t h, int64_t w,
                        int64_t c)
{
    return oct_to_tflite_reshape(p->w, p->values[step->input[i]], 4, (int64_t[]){1, h, w, c});
}

/* A writer that has failed has no tensors any more. */
static bool has_failed(const oct_to_tflite_program *p)
{
    return p->w->status != OCT_OK;
}

static void write_step(oct_to_tflite_program *p, int64_t number)
{
    const oct_step *step = &p->program->steps[number];
    oct_to_tflite_write *product = oct_to_tflite_product_steps[step->kind];
    oct_to_tflite_write *write = product ? product : oct_to_tflite_code_steps[step->kind];
    if (!write)
        oct_to_tflite_fail(p->w, OCT_PREPARE, "%s: TFLite has no form for the step %s", step->name,
                           oct_step_type_of(step->kind)->name);
    if (!write || has_failed(p)) return;
    p->w->layer = step->name;
    p->values[step->output] = write(p, step);
}

/* Gives tensors the names of their steps, as in ONNX: a layer that is called twice has two of one name. A tensor that steps
 * hand on has that of the first. */
static void name_values(oct_to_tflite_program *p)
{
    for (int64_t i = 0; i < p->program->num_steps && !has_failed(p); i++) {
        const oct_step *step = &p->program->steps[i];
        const int x = p->values[step->output];
        const oct_step_tensor_name name = oct_export_step_name(p->program, i);
        bool has_name = x == p->output;
        for (int k = 0; k < p->program->num_inputs; k++)
            has_name |= p->values[p->program->inputs[k]] == x;
        for (int64_t k = 0; k < i; k++)
            has_name |= p->values[p->program->steps[k].output] == x;
        if (has_name) continue;
        const bool taken = strcmp(name.text, oct_export_port(p->job, false).text) == 0 ||
                           strcmp(name.text, oct_export_port(p->job, true).text) == 0;
        oct_to_tflite_rename(p->w, x, "%s%s", name.text, taken ? "_" : "");
        if (p->job->all_values && step->output != p->program->output) declare_tensor(p->w, true, x);
    }
}

/* Makes the tensor of an input: floats, pixels or codes. Pixels are codes of other qparams, so that one table does what
 * normalising and quantizing do; codes are what the quantizing step makes, which has nothing left to do then. */
static int make_input(oct_to_tflite_program *p, int i)
{
    const int32_t input = p->program->inputs[i];
    const oct_value *v = &p->program->values[input];
    const oct_step *quantizer = oct_export_quantizer(p->program, input);
    const bool pixels = p->job->pixels && i == 0;
    if ((pixels || p->job->codes) && !quantizer)
        return oct_to_tflite_fail(p->w, OCT_PREPARE, "%s: a float layer reads the input itself",
                                  pixels ? "--pixels" : "--codes");
    const int64_t dims[] = {1, v->h, v->w, v->c};
    if (pixels) /* bytes from 0, which stand for themselves */
        return oct_to_tflite_tensor(
            p->w, OCT_TFLITE_U8, 4, dims,
            (oct_tflite_quant){.codes = &(oct_qparams){.scale = 1, .zero_point = OCT_TFLITE_SIGN}});
    if (!p->job->codes) return oct_to_tflite_value(p, input);
    return oct_to_tflite_tensor(
        p->w, OCT_TFLITE_S8, 4, dims,
        (oct_tflite_quant){.codes = &p->program->values[quantizer->output].q});
}

/* Declares the output under its name; one of a single position is (1, C). */
static void declare_output(oct_to_tflite_program *p)
{
    const oct_value *v = &p->program->values[p->program->output];
    int y = p->values[p->program->output];
    if (has_failed(p)) return;
    p->w->layer = "output";
    if (v->h == 1 && v->w == 1) y = oct_to_tflite_reshape(p->w, y, 2, (int64_t[]){1, v->c});
    if (has_failed(p)) return;
    oct_to_tflite_rename(p->w, y, "%s", oct_export_port(p->job, true).text);
    declare_tensor(p->w, true, y);
    p->output = y;
}

/* Adds mean or std of the input's channels to the metadata. */
static void add_channel_numbers(oct_to_tflite_program *p, const char *key, const float *values)
{
    OCT_OWNED(oct_text_free) oct_text text = {0};
    const oct_status status =
        oct_export_numbers(&text, values, p->program->values[p->program->inputs[0]].c);
    if (status == OCT_OK)
        add_property(p->w, key, text.data);
    else
        oct_to_tflite_fail(p->w, status, "%s: no memory", key);
}

/* Writes inputs, steps, metadata and output. */
static void write_program(oct_to_tflite_program *p)
{
    const oct_program *program = p->program;
    for (int64_t i = 0; i < program->num_steps && !has_failed(p); i++)
        if (oct_step_output(program, &program->steps[i])->dtype == OCT_U16)
            oct_to_tflite_fail(p->w, OCT_PREPARE,
                               "%s: has codes of 16 bits, for which XNNPACK has no integer "
                               "operators; quantize with 8 bits",
                               program->steps[i].name);
    for (int i = 0; i < program->num_inputs && !has_failed(p); i++) {
        const int x = make_input(p, i);
        p->values[program->inputs[i]] = x;
        if (i == 0)
            oct_to_tflite_rename(p->w, x, "%s", oct_export_port(p->job, false).text);
        else
            oct_to_tflite_rename(p->w, x, "input%d", i);
        declare_tensor(p->w, false, x);
    }
    for (int64_t i = 0; i < program->num_steps; i++)
        write_step(p, i);
    if (!has_failed(p)) {
        add_property(p->w, "octet.target", p->program->target);
        if (!p->job->pixels) { /* otherwise they are part of the network */
            add_channel_numbers(p, "octet.mean", p->job->mean);
            add_channel_numbers(p, "octet.std", p->job->std);
        }
        if (p->job->class_names) add_property(p->w, "octet.class_names", p->job->class_names);
    }
    declare_output(p);
    if (!has_failed(p)) name_values(p);
}

static oct_status write_model(const oct_export *job, oct_exported *out)
{
    oct_to_tflite_writer w = {.layer = ""};
    oct_to_tflite_program p = {.w = &w, .job = job, .program = &job->model->program};
    oct_tflite_list *lists[] = {&w.tensors, &w.calls, &w.properties, &w.inputs, &w.outputs};
    oct_status status;
    OCT_TRY_OUT(oct_arena_create(&w.arena));
    OCT_TRY_OUT(oct_alloc(&p.values, (size_t)p.program->num_values, sizeof *p.values));
    write_program(&p);
    OCT_TRY_OUT(oct_to_tflite_finish(&w, job->version,
                                     oct_rounding_of(p.program->requantizer)->is_tflm, out));
    status = oct_export_report_diffs(OCT_TO_TFLITE_DIFFS, p.diffs, diff_words, &out->notices);
out:
    oct_free(&p.values);
    for (size_t i = 0; i < OCT_COUNT(lists); i++)
        oct_free(&lists[i]->item);
    if (w.arena) oct_arena_destroy(&w.arena);
    return status;
}

const oct_export_format oct_export_format_tflite = {
    .name = "tflite",
    .help = "of an int8 model: integer operators of TFLite and its XNNPACK delegate",
    .suffix = ".tflite",
    .runs = true,
    .choices = true,
    .golden = true,
    .channels_last = true,
    .hands_over_codes = true,
    .write_model = write_model,
};
