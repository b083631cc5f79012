/* The format tflite: an int8 model for TFLite, whose kernels compute its steps' own arithmetic where the model was
 * trained for quant.target: tflite; what is only close to it is said in a notice. */
#include "io/export/tflite_form.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "io/batch/normalise.h"
#include "io/export/tflite_writer_impl.h"
#include "quant/program/planner.h"
#include "quant/program/step.h"

#include <stdio.h>
#include <string.h>

static const char *const loss_words[] = {
#define X(id, words) words,
    OCT_TO_TFLITE_LOSS_LIST(X)
#undef X
};

void oct_to_tflite_lose(oct_to_tflite_program *p, oct_to_tflite_loss_kind kind,
                        const oct_step *step)
{
    oct_export_lose(&p->losses[kind], step);
}

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
    if (oct_to_tflite_status(w) != OCT_OK) return OCT_TFLITE_NONE;
    if (oct_to_tflite_ndim(w, x) == ndim &&
        memcmp(oct_to_tflite_dims(w, x), dims, (size_t)ndim * sizeof *dims) == 0)
        return x;
    for (int i = 0; i < ndim; i++)
        sizes[i] = (int32_t)dims[i];
    return oct_to_tflite_made(w, OCT_TFLITE_RESHAPE,
                              OCT_TO_TFLITE_INPUTS(x, oct_to_tflite_list(w, ndim, sizes)),
                              oct_to_tflite_like(w, x, ndim, dims), OCT_TO_TFLITE_NO_OPTIONS);
}

int oct_to_tflite_input(oct_to_tflite_program *p, const oct_step *step, int i, int64_t h, int64_t w,
                        int64_t c)
{
    return oct_to_tflite_reshape(p->w, p->values[step->input[i]], 4, (int64_t[]){1, h, w, c});
}

/* A writer that has failed has no tensors any more. */
static bool has_failed(const oct_to_tflite_program *p)
{
    return oct_to_tflite_status(p->w) != OCT_OK;
}

static void write_step(oct_to_tflite_program *p, int64_t number)
{
    const oct_step *step = &p->program->steps[number];
    oct_to_tflite_write *product = oct_to_tflite_product_steps[step->kind];
    oct_to_tflite_write *write = product ? product : oct_to_tflite_code_steps[step->kind];
    if (!write)
        oct_to_tflite_fail(p->w, OCT_PREPARE, "%s: TFLite has no form for the step %s", step->name,
                           oct_step_type_of(step->kind)->name);
    if (has_failed(p)) return;
    oct_to_tflite_layer(p->w, step->name);
    p->values[step->output] = write(p, step);
}

/* Whether a tensor was one of the first `n` values. */
static bool is_earlier(const oct_to_tflite_program *p, int x, int64_t number)
{
    bool earlier = false;
    for (int i = 0; i < p->program->num_inputs; i++)
        earlier |= p->values[p->program->inputs[i]] == x;
    for (int64_t i = 0; i < number; i++)
        earlier |= p->values[p->program->steps[i].output] == x;
    return earlier;
}

/* The names are those of steps, as in ONNX: a layer that is called twice has two of one name. */
static void name_values(oct_to_tflite_program *p)
{
    for (int64_t i = 0; i < p->program->num_steps && !has_failed(p); i++) {
        const oct_step *step = &p->program->steps[i];
        const int x = p->values[step->output];
        char name[OCT_STEP_NAME_BYTES], in[OCT_PORT_BYTES], out[OCT_PORT_BYTES];
        if (x == p->output || is_earlier(p, x, i)) continue;
        oct_export_step_name(p->program, i, name);
        const bool taken = strcmp(name, oct_export_port(p->job, false, in)) == 0 ||
                           strcmp(name, oct_export_port(p->job, true, out)) == 0;
        oct_to_tflite_rename(p->w, x, "%s%s", name, taken ? "_" : "");
        if (p->job->all_values && step->output != p->program->output)
            oct_to_tflite_declare(p->w, true, x);
    }
}

/* Pixels are codes of other qparams, so that one table does what normalising and quantizing do; codes are what the
 * step makes. Neither leaves anything to the step. */
static int write_input(oct_to_tflite_program *p, int i)
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

static void declare_output(oct_to_tflite_program *p)
{
    const oct_value *v = &p->program->values[p->program->output];
    char name[OCT_PORT_BYTES];
    int y = p->values[p->program->output];
    if (has_failed(p)) return;
    oct_to_tflite_layer(p->w, "output");
    if (v->h == 1 && v->w == 1) y = oct_to_tflite_reshape(p->w, y, 2, (int64_t[]){1, v->c});
    if (has_failed(p)) return;
    oct_to_tflite_rename(p->w, y, "%s", oct_export_port(p->job, true, name));
    oct_to_tflite_declare(p->w, true, y);
    p->output = y;
}

static void add_numbers(oct_to_tflite_program *p, const char *key, const float *values)
{
    oct_text text = {0};
    const oct_status status =
        oct_export_numbers(&text, values, p->program->values[p->program->inputs[0]].c);
    if (status == OCT_OK)
        oct_to_tflite_property(p->w, key, text.data);
    else
        oct_to_tflite_fail(p->w, status, "%s: no memory", key);
    oct_text_free(&text);
}

static void write_program(oct_to_tflite_program *p)
{
    const oct_program *program = p->program;
    char name[OCT_PORT_BYTES];
    for (int64_t i = 0; i < program->num_steps && !has_failed(p); i++)
        if (oct_step_output(program, &program->steps[i])->dtype == OCT_U16)
            oct_to_tflite_fail(p->w, OCT_PREPARE,
                               "%s: has codes of 16 bits, for which XNNPACK has no integer "
                               "operators; quantize with 8 bits",
                               program->steps[i].name);
    for (int i = 0; i < program->num_inputs && !has_failed(p); i++) {
        const int x = write_input(p, i);
        p->values[program->inputs[i]] = x;
        if (i == 0)
            oct_to_tflite_rename(p->w, x, "%s", oct_export_port(p->job, false, name));
        else
            oct_to_tflite_rename(p->w, x, "input%d", i);
        oct_to_tflite_declare(p->w, false, x);
    }
    for (int64_t i = 0; i < program->num_steps; i++)
        write_step(p, i);
    if (!has_failed(p)) {
        oct_to_tflite_property(p->w, "octet.target", p->program->target);
        if (!p->job->pixels) { /* otherwise they are part of the network */
            add_numbers(p, "octet.mean", p->job->mean);
            add_numbers(p, "octet.std", p->job->std);
        }
        if (p->job->class_names)
            oct_to_tflite_property(p->w, "octet.class_names", p->job->class_names);
    }
    declare_output(p);
    if (!has_failed(p)) name_values(p);
}

/* TensorFlow Lite for Microcontrollers (TFLM) of August 2026, 90b983c: what a TFLite file asks of it. */

static const struct {
    const char *name, *types;
} kinds[OCT_TFLITE_KINDS] = {
#define X(name, number, version, options, tflm) {#name, tflm},
    OCT_TFLITE_OPERATORS(X)
#undef X
};

static const tensor *tensor_at(const oct_to_tflite_writer *w, int32_t number)
{
    return w->tensors.item[number];
}

static const char letters[] = {
    [OCT_TFLITE_FLOAT] = 'f', [OCT_TFLITE_S32] = 'i', [OCT_TFLITE_U8] = 'u', [OCT_TFLITE_S8] = 'b'};

/* Inputs that are whole numbers may be indices; every kernel takes such ones. */
static bool takes(const oct_to_tflite_writer *w, const operator* o)
{
    const char *types = kinds[o->kind].types;
    bool all = o->kind != OCT_TFLITE_CONCATENATION || o->inputs <= OCT_TFLM_CONCATENATED;
    for (int i = 0; i < o->inputs; i++) {
        const oct_tflite_type type = tensor_at(w, o->input[i])->type;
        all = all && (type == OCT_TFLITE_S32 || strchr(types, letters[type]));
    }
    for (int i = 0; i < o->outputs; i++)
        all = all && strchr(types, letters[tensor_at(w, o->output[i])->type]);
    return all;
}

/* Fails the writer for each operator that TFLM's kernels do not take, by its layer's name. */
static void check_for_tflm(oct_to_tflite_writer *w)
{
    const size_t count = oct_to_tflite_status(w) == OCT_OK ? w->operators.count : 0;
    for (size_t i = 0; i < count; i++) {
        const operator* o = w->operators.item[i];
        if (!takes(w, o))
            (void)oct_to_tflite_fail(
                w, OCT_PREPARE,
                "%s: is written with %s of a type that TFLM's kernel does not take; "
                "--format c has a form for it",
                o->layer, kinds[o->kind].name);
    }
}

static void extend_interval(oct_interval *x, int64_t at)
{
    if (x->first < 0) x->first = at;
    x->last = at;
}

/* When each tensor is in use, counted in operators; -1: never, or it is a constant. */
static void find_uses(const oct_to_tflite_writer *w, oct_interval *x)
{
    for (size_t i = 0; i < w->tensors.count; i++) {
        const tensor *t = tensor_at(w, (int32_t)i);
        int64_t bytes = t->type == OCT_TFLITE_S8 || t->type == OCT_TFLITE_U8 ? 1 : 4;
        for (int d = 0; d < t->ndim; d++)
            bytes *= t->dims[d];
        x[i] = (oct_interval){.first = -1, .bytes = oct_round_up(bytes, 16)};
        for (size_t k = 0; k < w->inputs.count; k++)
            if (w->inputs.item[k] == t) extend_interval(&x[i], 0);
    }
    for (size_t i = 0; i < w->operators.count; i++) {
        const operator* o = w->operators.item[i];
        for (int k = 0; k < o->outputs; k++)
            extend_interval(&x[o->output[k]], (int64_t)i + 1);
        for (int k = 0; k < o->inputs; k++)
            if (!tensor_at(w, o->input[k])->data) extend_interval(&x[o->input[k]], (int64_t)i + 1);
    }
    for (size_t i = 0; i < w->tensors.count; i++)
        for (size_t k = 0; k < w->outputs.count; k++)
            if (w->outputs.item[k] == tensor_at(w, (int32_t)i))
                extend_interval(&x[i], (int64_t)w->operators.count);
}

/* The largest first, of equal ones the last. */
static int64_t assign_places(oct_interval *x, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t n = 0; n < count; n++) {
        int64_t most = n;
        for (int64_t i = n; i < count; i++)
            if (x[i].bytes >= x[most].bytes) most = i;
        const oct_interval next = x[most];
        memmove(x + n + 1, x + n, (size_t)(most - n) * sizeof *x);
        x[n] = next;
        x[n].offset = oct_lowest_fit(x, n, &x[n]);
        bytes = oct_max_i64(bytes, x[n].offset + x[n].bytes);
    }
    return bytes;
}

/* Gives the names of a file's operators, which a program registers, with spaces between them, and the bytes of the
 * tensors between them as TFLM's greedy planner lays them into its arena. */
static oct_status find_tflm_needs(const oct_to_tflite_writer *w, oct_text *operators,
                                  int64_t *arena)
{
    bool seen[OCT_TFLITE_KINDS] = {false};
    oct_interval *x = NULL;
    int64_t count = 0;
    for (size_t i = 0; i < w->operators.count; i++) {
        const oct_tflite_operator kind = ((const operator*)w->operators.item[i])->kind;
        if (!seen[kind])
            OCT_TRY(
                oct_text_add(operators, "%s%s", operators->length ? " " : "", kinds[kind].name));
        seen[kind] = true;
    }
    OCT_TRY(oct_alloc(&x, w->tensors.count, sizeof *x));
    find_uses(w, x);
    for (size_t i = 0; i < w->tensors.count; i++)
        if (x[i].first >= 0) x[count++] = x[i];
    *arena = assign_places(x, count);
    oct_free(&x);
    return OCT_OK;
}

static oct_status write_model(const oct_export *job, oct_exported *out)
{
    char description[64];
    oct_to_tflite_program p = {.job = job, .program = &job->model->program};
    oct_status status;
    snprintf(description, sizeof description, "octet %s", job->version);
    OCT_TRY(oct_to_tflite_writer_create(&p.w));
    OCT_TRY_OUT(oct_alloc(&p.values, (size_t)p.program->num_values, sizeof *p.values));
    write_program(&p);
    const bool tflm = oct_rounding_of(p.program->requantizer)->is_tflm;
    if (tflm) check_for_tflm(p.w);
    OCT_TRY_OUT(oct_to_tflite_end(p.w, description, &out->bytes, &out->size));
    if (tflm) OCT_TRY_OUT(find_tflm_needs(p.w, &out->operators, &out->arena));
    status = oct_export_losses_say(OCT_TO_TFLITE_LOSSES, p.losses, loss_words, &out->notices);
out:
    oct_free(&p.values);
    oct_to_tflite_writer_destroy(&p.w);
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
