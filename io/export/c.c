/* The format c: an int8 model as a pair of C99 files without allocation and dependencies, for microcontrollers and as
 * its readable specification. Names and sizes come from a model file that anybody may have made: what goes into a
 * comment is masked, and the program has passed its check. */
#include "io/export/c_form.h"

#include "core/base/mem.h"
#include "io/loader.h"
#include "quant/qparams.h"
#include "quant/runtime/planner.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Bytes of constants, each of which takes about four in the file. */
static const int64_t constants_max = INT64_C(1) << 27;
enum { NAME_MAX_LENGTH = 48, GOLDEN_BYTES = 64 * 1024, INPUT_TEXT = 512 };

/* What both files say. */
typedef struct form {
    oct_to_c w;
    char name[NAME_MAX_LENGTH + 1], macro[NAME_MAX_LENGTH + 1]; /* "kws", "KWS" */
    const oct_value *in, *out;
    const oct_step *first; /* the step that makes codes of the only input; NULL: there is none */
    int64_t behind;        /* the number of the step behind it */
    int64_t golden;        /* samples of the self-test */
    oct_text text;
} form;

/* A name that begins files, functions and macros, and none of those that the C library has for headers. */
static oct_status take_name(form *f, const char *name)
{
    static const char *const taken[] = {
        "assert", "complex", "ctype",  "errno",  "fenv",   "float",  "inttypes", "iso646",
        "limits", "locale",  "math",   "setjmp", "signal", "stdarg", "stdbool",  "stddef",
        "stdint", "stdio",   "stdlib", "string", "tgmath", "time",   "wchar",    "wctype"};
    const size_t length = strlen(name);
    bool fits = length >= 1 && length <= NAME_MAX_LENGTH && isalpha((unsigned char)name[0]);
    for (size_t i = 0; fits && i < length; i++)
        fits = isalnum((unsigned char)name[i]) || name[i] == '_';
    for (size_t i = 0; fits && i < OCT_COUNT(taken); i++)
        fits = strcmp(taken[i], name) != 0;
    OCT_CHECK(
        fits, OCT_USAGE,
        "command line: -o: '%s' is no name for C; use up to %d letters, digits and _, a letter "
        "first, and no name of the C library, such as -o model.c",
        oct_show(name, length).text, NAME_MAX_LENGTH);
    for (size_t i = 0; i <= length; i++) {
        f->name[i] = name[i];
        f->macro[i] = (char)toupper((unsigned char)name[i]);
    }
    return OCT_OK;
}

/* Masks what could end a comment or a line of one. */
static const char *comment_text(const char *text, char masked[128])
{
    size_t i = 0;
    for (; text[i] && i < 127; i++)
        masked[i] = isalnum((unsigned char)text[i]) || strchr("_.:- ", text[i]) ? text[i] : '_';
    masked[i] = '\0';
    return masked;
}

const oct_to_c_step_type *oct_to_c_step_type_of(const char *kind)
{
    const struct {
        const oct_to_c_step_type *types;
        size_t count;
    } tables[] = {{oct_to_c_product_steps, oct_to_c_product_steps_count},
                  {oct_to_c_code_steps, oct_to_c_code_steps_count}};
    for (size_t t = 0; t < OCT_COUNT(tables); t++)
        for (size_t i = 0; i < tables[t].count; i++)
            if (strcmp(tables[t].types[i].kind, kind) == 0) return &tables[t].types[i];
    return NULL;
}

static const char *shape_text(const oct_value *v, char text[64])
{
    snprintf(text, 64, "%lldx%lldx%lld %s", (long long)v->h, (long long)v->w, (long long)v->c,
             oct_dtype_name(v->dtype));
    return text;
}

/* What a step is, in front of its constants and its call. */
static void write_title(oct_to_c *w, oct_text *text, const char *indent, int64_t number)
{
    const oct_step *step = &w->program->steps[number];
    const oct_step_type *type = oct_step_type_of(step->kind);
    char name[128], in[64], out[64], window[OCT_WINDOW_TEXT] = "";
    if (type->window) (void)oct_window_text(&step->conv, window);
    oct_to_c_add(w, text, "\n%s/* %lld %s: %s%s%s, ", indent, (long long)number,
                 comment_text(step->name, name), type->name, *window ? " " : "", window);
    for (int i = 0; i < step->num_inputs; i++)
        oct_to_c_add(w, text, "%s%s", i ? " and " : "",
                     shape_text(oct_step_input(w->program, step, i), in));
    oct_to_c_add(w, text, " -> %s */\n", shape_text(oct_step_output(w->program, step), out));
}

static void write_step(oct_to_c *w, int64_t number)
{
    const oct_step *step = &w->program->steps[number];
    const oct_value *y = oct_step_output(w->program, step);
    const char *kind = oct_step_type_of(step->kind)->name;
    const oct_to_c_step_type *type = oct_to_c_step_type_of(kind);
    char value[OCT_TO_C_TEXT];
    if (!type) {
        oct_to_c_fail(w, OCT_PREPARE,
                      "%s: C has no form for the step %s%s%s; quantize it, or give it to the "
                      "program around the model",
                      step->name, kind, step->island ? " " : "",
                      step->island ? step->island->type : "");
        return;
    }
    if (w->status != OCT_OK) return;
    write_title(w, &w->constants, "", number);
    write_title(w, &w->calls, "    ", number);
    type->write(w, number);
    oct_to_c_add(w, &w->calls, "    AFTER_LAYER(%lld, %s, %lld);\n", (long long)number,
                 oct_to_c_value(w, step->output, value), (long long)oct_value_bytes(y));
    if (w->offsets[step->output] >= 0) w->holds[y->dtype] = true;
    if (w->constant_bytes > constants_max)
        oct_to_c_fail(w, OCT_PREPARE,
                      "its constants take more than %lld MiB, which is too much for a C file",
                      (long long)(constants_max >> 20));
}

static bool reads(const oct_step *step, int32_t value)
{
    for (int k = 0; k < step->num_inputs; k++)
        if (step->input[k] == value) return true;
    return false;
}

/* Finds the step that makes codes of the only input: codes can be given where nothing else reads the input, which may
 * take another shape before. */
static void find_first(form *f)
{
    const oct_program *program = f->w.program;
    int32_t value = program->inputs[0];
    int64_t at = 0;
    while (at + 1 < program->num_steps && program->steps[at].kind == OCT_STEP_RESHAPE &&
           program->steps[at].input[0] == value)
        value = program->steps[at++].output;
    const oct_step *first = &program->steps[at];
    if (program->num_inputs != 1 || first->kind != OCT_STEP_QUANTIZE || first->input[0] != value ||
        first->output == program->output)
        return;
    for (int64_t i = at + 1; i < program->num_steps; i++) {
        if (reads(&program->steps[i], program->inputs[0])) return;
        for (int64_t k = 0; k < at; k++)
            if (reads(&program->steps[i], program->steps[k].output)) return;
    }
    f->first = first;
    f->behind = at + 1;
}

/* "const float *input, const float *input1". */
static const char *inputs_text(const oct_program *program, char text[INPUT_TEXT])
{
    size_t used = (size_t)snprintf(text, INPUT_TEXT, "const float *input");
    for (int i = 1; i < program->num_inputs; i++)
        used += (size_t)snprintf(text + used, INPUT_TEXT - used, ", const float *input%d", i);
    return text;
}

/* What a number of the output is: values, or numbers of classes. */
static const char *output_type(const form *f)
{
    return oct_to_c_type(f->out->dtype);
}

static void write_plane(form *f, const char *what, const oct_value *v)
{
    oct_to_c_add(
        &f->w, &f->text,
        "#define %s_%s_HEIGHT %lld\n#define %s_%s_WIDTH %lld\n#define %s_%s_CHANNELS %lld\n"
        "#define %s_%s_SIZE %lld /* numbers of one sample */\n",
        f->macro, what, (long long)v->h, f->macro, what, (long long)v->w, f->macro, what,
        (long long)v->c, f->macro, what, (long long)oct_value_numel(v));
}

static void write_normalisation(form *f)
{
    const oct_export *job = f->w.job;
    const int64_t channels = f->in->c > OCT_REALS_MAX ? 1 : f->in->c;
    oct_to_c_add(&f->w, &f->text,
                 " * Values of the input are (%s - mean) / std as in training, with mean "
                 "and std of each channel%s\n",
                 job->no_bytes ? "x" : "pixel / 255",
                 job->no_bytes ? ";\n * x is a number of the data, of signed bytes / 128" : "");
    for (int64_t c = 0; c < channels; c++)
        oct_to_c_add(&f->w, &f->text, " *     %.9g and %.9g\n", (double)job->mean[c],
                     (double)job->std[c]);
}

static void write_api(form *f)
{
    oct_to_c *w = &f->w;
    char inputs[INPUT_TEXT];
    const char *type = output_type(f);
    oct_to_c_add(w, &f->text,
                 "/* Computes one sample: values of the input, rows of columns of channels, to %s "
                 "of the output.\n"
                 " * Scratch is static: one call at a time. */\n"
                 "void %s_run(%s, %s *output);\n",
                 f->out->dtype == OCT_F32 ? "values" : "numbers of classes", f->name,
                 inputs_text(w->program, inputs), type);
    if (!f->first) return;
    const oct_qparams q = oct_step_output(w->program, f->first)->q;
    const char *codes = oct_to_c_type(oct_codes_dtype(q));
    oct_to_c_add(
        w, &f->text,
        "\n/* The same of codes: a value is (code - zero point) * scale, a code from %d to %d. */\n"
        "#define %s_INPUT_SCALE %aF /* %.9g */\n#define %s_INPUT_ZERO_POINT %d\n"
        "void %s_run_codes(const %s *codes, %s *output);\n",
        q.qmin, q.qmax, f->macro, (double)q.scale, (double)q.scale, f->macro, q.zero_point, f->name,
        codes, type);
    if (w->job->pixels)
        oct_to_c_add(w, &f->text,
                     "\n/* The same of pixels from 0 to 255, which a table makes codes of: no "
                     "float is touched. */\n"
                     "void %s_run_pixels(const uint8_t *pixels, %s *output);\n",
                     f->name, type);
}

static oct_status write_header(form *f, oct_exported *out)
{
    oct_to_c *w = &f->w;
    char target[128];
    oct_to_c_add(
        w, &f->text,
        "/* An int8 model as C99, by octet %s, for the target %s: no allocation, and nothing but "
        "<stdint.h>.\n *\n",
        w->job->version, comment_text(w->program->target, target));
    write_normalisation(f);
    oct_to_c_add(
        w, &f->text,
        " *\n * Each operation on floats rounds by itself (IEEE 754, also where software does it): "
        "compile without -ffast-math\n * and -Ofast. With %s_SELF_TEST defined there is "
        "%s_self_test().\n */\n",
        f->macro, f->name);
    oct_to_c_add(w, &f->text,
                 "#ifndef %s_OCTET_H\n#define %s_OCTET_H\n\n#include <stdint.h>\n\n#ifdef "
                 "__cplusplus\nextern "
                 "\"C\" {\n#endif\n\n",
                 f->macro, f->macro);
    write_plane(f, "INPUT", f->in);
    write_plane(f, "OUTPUT", f->out);
    oct_to_c_add(
        w, &f->text,
        "#define %s_SCRATCH_BYTES %lld /* static, for all values between layers */\n"
        "#define %s_CONSTANT_BYTES %lld /* weights, biases, multipliers, tables, layers */\n\n",
        f->macro, (long long)w->scratch_bytes, f->macro, (long long)w->constant_bytes);
    write_api(f);
    oct_to_c_add(
        w, &f->text,
        "\n#ifdef %s_SELF_TEST\n/* Computes %lld samples that Octet has computed, and counts "
        "the numbers of their outputs that differ in any bit. */\nint32_t %s_self_test(void);\n"
        "#endif\n\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
        f->macro, (long long)f->golden, f->name);
    if (w->status != OCT_OK) return w->status;
    out->beside = f->text.data;
    out->beside_size = f->text.length;
    f->text = (oct_text){0};
    return OCT_OK;
}

static void write_preamble(form *f)
{
    oct_to_c *w = &f->w;
    static const oct_dtype types[] = {OCT_U8, OCT_U16, OCT_S32, OCT_F32};
    oct_to_c_add(w, &f->text,
                 "/* See %s.h. First the operations that the model has, then its constants, then "
                 "%s_run, a call "
                 "for each layer. */\n#include \"%s.h\"\n\n#include <float.h>\n\n",
                 f->name, f->name, f->name);
    oct_to_c_add(
        w, &f->text,
        "#if defined(__FAST_MATH__) || (defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0)\n"
        "#error \"floats must be rounded after each operation: no -ffast-math; -mfpmath=sse on "
        "32-bit x86\"\n"
        "#endif\n#if (-1 >> 1) != -1\n#error \"shifts to the right must keep the "
        "sign\"\n#endif\n\n");
    oct_to_c_add(
        w, &f->text,
        "/* Called behind each layer with its number, its output and the bytes of that: for "
        "whoever wants "
        "to look. */\n#ifdef %s_AFTER_LAYER\n#define AFTER_LAYER(number, values, bytes) "
        "%s_AFTER_LAYER(number, values, bytes)\n#else\n#define AFTER_LAYER(number, values, bytes) "
        "((void)0)\n#endif\n\n",
        f->macro, f->macro);
    if (w->scratch_bytes == 0) return;
    oct_to_c_add(
        w, &f->text,
        "/* Values between layers; those that are never needed at the same time share bytes. */\n"
        "static union {\n");
    for (size_t i = 0; i < OCT_COUNT(types); i++)
        if (w->holds[types[i]])
            oct_to_c_add(w, &f->text, "    %s %s[%lld];\n", oct_to_c_type(types[i]),
                         oct_dtype_name(types[i]),
                         (long long)(w->scratch_bytes / (int64_t)oct_dtype_bytes(types[i])));
    oct_to_c_add(w, &f->text, "} scratch;\n\n");
}

static void append(oct_to_c *w, oct_text *to, const oct_text *part)
{
    if (w->status == OCT_OK && part->data) w->status = oct_text_add(to, "%s", part->data);
}

/* The codes of all pixels, of each channel or of all alike. */
static oct_status write_pixel_table(form *f, int64_t *tables)
{
    oct_to_c *w = &f->w;
    const oct_value *codes = oct_step_output(w->program, f->first);
    const int64_t channels = f->in->c > OCT_REALS_MAX ? 1 : f->in->c;
    uint8_t pixels[UINT8_MAX + 1];
    float values[UINT8_MAX + 1];
    uint16_t *table = NULL;
    bool alike = true;
    for (int i = 0; i <= UINT8_MAX; i++)
        pixels[i] = (uint8_t)i;
    for (int64_t c = 1; c < channels; c++)
        alike = alike && w->job->mean[c] == w->job->mean[0] && w->job->std[c] == w->job->std[0];
    *tables = alike ? 1 : channels;
    OCT_TRY(oct_alloc(&table, (size_t)*tables * 256, sizeof *table));
    for (int64_t c = 0; c < *tables; c++) {
        oct_normalise(pixels, 256, 1, &w->job->mean[c], &w->job->std[c], values);
        if (codes->dtype == OCT_U16)
            oct_quantize16(values, 256, codes->q, table + c * 256, NULL, NULL);
        else if (f->first->quotient)
            oct_quantize_quotient(values, 256, codes->q, (uint8_t *)table + c * 256, NULL, NULL);
        else
            oct_quantize(values, 256, codes->q, (uint8_t *)table + c * 256, NULL, NULL);
    }
    oct_to_c_add(w, &w->constants, "\n/* Codes of the pixels 0 to 255. */\n");
    oct_to_c_constants(w, &(oct_to_c_array){"pixels", 0, codes->dtype, *tables * 256, table});
    oct_free(&table);
    return w->status;
}

/* Calls of the layers behind the codes of the input are a function of their own. */
static oct_status write_runs(form *f, oct_text *runs)
{
    oct_to_c *w = &f->w;
    const char *type = output_type(f);
    char inputs[INPUT_TEXT], to[OCT_TO_C_TEXT], kernel[OCT_TO_C_TEXT];
    int64_t tables;
    if (!f->first) {
        for (int64_t i = 0; i < w->program->num_steps; i++)
            write_step(w, i);
        oct_to_c_add(w, runs, "void %s_run(%s, %s *output)\n{", f->name,
                     inputs_text(w->program, inputs), type);
        append(w, runs, &w->calls);
        oct_to_c_add(w, runs, "}\n");
        return w->status;
    }
    const oct_value *codes = oct_step_output(w->program, f->first);
    const long long numel = oct_value_numel(codes), bytes = (long long)oct_value_bytes(codes);
    const char *code = oct_to_c_type(codes->dtype);
    for (int64_t i = 0; i < f->behind; i++)
        write_step(w, i);
    oct_text begin = w->calls;
    w->calls = (oct_text){0};
    for (int64_t i = f->behind; i < w->program->num_steps; i++)
        write_step(w, i);
    oct_to_c_add(w, runs, "static void run_layers(%s *output)\n{", type);
    append(w, runs, &w->calls);
    oct_to_c_add(w, runs, "}\n\nvoid %s_run(const float *input, %s *output)\n{", f->name, type);
    append(w, runs, &begin);
    oct_text_free(&begin);
    oct_to_c_value(w, f->first->output, to);
    oct_to_c_kernel(w, &(oct_to_c_form){.kernel = "copy", .x = codes->dtype, .y = codes->dtype},
                    kernel);
    oct_to_c_add(
        w, runs,
        "    run_layers(output);\n}\n\nvoid %s_run_codes(const %s *codes, %s *output)\n{\n"
        "    %s(%lld, codes, %s);\n    AFTER_LAYER(%lld, %s, %lld);\n    run_layers(output);\n}\n",
        f->name, code, type, kernel, numel, to, (long long)(f->behind - 1), to, bytes);
    if (!w->job->pixels || w->status != OCT_OK) return w->status;
    OCT_TRY(write_pixel_table(f, &tables));
    oct_to_c_kernel(w, &(oct_to_c_form){.kernel = "pixels", .x = OCT_U8, .y = codes->dtype},
                    kernel);
    oct_to_c_add(w, runs,
                 "\nvoid %s_run_pixels(const uint8_t *pixels, %s *output)\n{\n"
                 "    %s(%lld, %lld, pixels_0, pixels, %s);\n    AFTER_LAYER(%lld, %s, %lld);\n"
                 "    run_layers(output);\n}\n",
                 f->name, type, kernel, numel, (long long)tables, to, (long long)(f->behind - 1),
                 to, bytes);
    return w->status;
}

/* Inputs, as codes where they can be, and outputs of the golden samples: bytes of one, all together in these. */
typedef struct golden {
    const void *input;
    void *codes, *output; /* owned */
    oct_dtype in;
} golden;

static oct_status compute_golden(const form *f, golden *g)
{
    const oct_program *program = f->w.program;
    const int64_t samples = f->golden, numel = oct_inputs_numel(program);
    const float *inputs = f->w.job->model->golden_input, *input[OCT_PROGRAM_INPUTS];
    oct_runtime *runtime = NULL;
    oct_status status = OCT_OK;
    *g = (golden){.input = inputs, .in = OCT_F32};
    OCT_TRY_OUT(oct_alloc(&g->output, (size_t)samples, oct_value_bytes(f->out)));
    OCT_TRY_OUT(oct_runtime_create(&runtime, program, 1, NULL));
    for (int64_t n = 0; n < samples; n++) {
        const float *at = inputs + n * numel;
        for (int i = 0; i < program->num_inputs; i++) {
            input[i] = at;
            at += oct_value_numel(&program->values[program->inputs[i]]);
        }
        OCT_TRY_OUT(oct_runtime_run(runtime, 1, input,
                                    (uint8_t *)g->output + n * (int64_t)oct_value_bytes(f->out)));
    }
    if (!f->first) goto out;
    const oct_qparams q = oct_step_output(program, f->first)->q;
    g->in = oct_codes_dtype(q);
    OCT_TRY_OUT(oct_alloc(&g->codes, (size_t)(samples * numel), oct_dtype_bytes(g->in)));
    g->input = g->codes;
    if (g->in == OCT_U16)
        oct_quantize16(inputs, samples * numel, q, g->codes, NULL, NULL);
    else if (f->first->quotient)
        oct_quantize_quotient(inputs, samples * numel, q, g->codes, NULL, NULL);
    else
        oct_quantize(inputs, samples * numel, q, g->codes, NULL, NULL);
out:
    oct_runtime_destroy(&runtime);
    return status;
}

static void write_self_test(form *f, const golden *g, oct_text *text)
{
    oct_to_c *w = &f->w;
    const long long numel = oct_inputs_numel(w->program), out = oct_value_numel(f->out);
    const int64_t constant_bytes = w->constant_bytes;
    oct_text before = w->constants;
    w->constants = (oct_text){0};
    oct_to_c_constants(w, &(oct_to_c_array){"golden_input", 0, g->in, f->golden * numel, g->input});
    /* Bits are compared, of floats as whole numbers. */
    oct_to_c_constants(w,
                       &(oct_to_c_array){"golden_output", 0, OCT_S32, f->golden * out, g->output});
    oct_to_c_add(w, text, "\n#ifdef %s_SELF_TEST\n", f->macro);
    append(w, text, &w->constants);
    oct_text_free(&w->constants);
    w->constants = before;
    w->constant_bytes = constant_bytes;
    oct_to_c_add(
        w, text,
        "\nint32_t %s_self_test(void)\n{\n"
        "    static union {\n        %s numbers[%lld];\n        int32_t bits[%lld];\n    } "
        "output;\n"
        "    int32_t differ = 0;\n"
        "    for (int32_t n = 0; n < %lld; n++) {\n        %s_run%s(golden_input_0 + n * %lld",
        f->name, output_type(f), out, out, (long long)f->golden, f->name, f->first ? "_codes" : "",
        numel);
    int64_t at = oct_value_numel(f->in);
    for (int i = 1; i < w->program->num_inputs; i++) {
        oct_to_c_add(w, text, ", golden_input_0 + n * %lld + %lld", numel, (long long)at);
        at += oct_value_numel(&w->program->values[w->program->inputs[i]]);
    }
    oct_to_c_add(w, text,
                 ", output.numbers);\n        for (int32_t i = 0; i < %lld; i++)\n"
                 "            differ += output.bits[i] != golden_output_0[n * %lld + i];\n    }\n"
                 "    return differ;\n}\n#endif\n",
                 out, out);
}

static oct_status write_source(form *f, oct_exported *out)
{
    oct_to_c *w = &f->w;
    oct_text runs = {0};
    golden g = {0};
    oct_status status;
    OCT_TRY_OUT(write_runs(f, &runs));
    OCT_TRY_OUT(compute_golden(f, &g));
    write_preamble(f);
    append(w, &f->text, &w->kernels);
    append(w, &f->text, &w->constants);
    oct_to_c_add(w, &f->text, "\n");
    append(w, &f->text, &runs);
    write_self_test(f, &g, &f->text);
    OCT_TRY_OUT(w->status);
    out->bytes = f->text.data;
    out->size = f->text.length;
    f->text = (oct_text){0};
out:
    oct_text_free(&runs);
    oct_free(&g.codes);
    oct_free(&g.output);
    return status;
}

static oct_status open_form(form *f, const oct_export *job)
{
    const oct_program *program = &job->model->program;
    const int64_t sample = oct_inputs_numel(program) * (int64_t)sizeof(float);
    f->w.job = job;
    f->w.program = program;
    f->in = &program->values[program->inputs[0]];
    f->out = &program->values[program->output];
    find_first(f);
    f->golden = GOLDEN_BYTES / sample < 1 ? 1 : GOLDEN_BYTES / sample;
    if (f->golden > job->model->certificate.golden_count)
        f->golden = job->model->certificate.golden_count;
    OCT_TRY(take_name(f, job->name));
    OCT_CHECK(f->golden > 0, OCT_PREPARE, "has no golden inputs, of which the self-test consists");
    OCT_CHECK(!job->pixels || f->first, OCT_PREPARE,
              "--pixels: this model does not begin by quantizing a single input; leave it out");
    OCT_TRY(oct_alloc(&f->w.offsets, (size_t)program->num_values, sizeof *f->w.offsets));
    return oct_plan_values(program, f->w.offsets, &f->w.scratch_bytes);
}

static oct_status say(const form *f, oct_text *notices)
{
    if (!f->w.wide) return OCT_OK;
    return oct_text_add(notices,
                        "it rounds in double, because it has codes of 16 bits or unquantized "
                        "results of a program that shifts\n");
}

static oct_status write_model(const oct_export *job, oct_exported *out)
{
    form *f = NULL;
    oct_status status;
    OCT_TRY(oct_alloc(&f, 1, sizeof *f));
    OCT_TRY_OUT(open_form(f, job));
    OCT_TRY_OUT(write_source(f, out));
    OCT_TRY_OUT(write_header(f, out));
    status = say(f, &out->notices);
out:
    oct_text_free(&f->text);
    oct_text_free(&f->w.kernels);
    oct_text_free(&f->w.written);
    oct_text_free(&f->w.constants);
    oct_text_free(&f->w.calls);
    oct_free(&f->w.offsets);
    oct_free(&f);
    return status;
}

const oct_export_format oct_export_format_c = {
    .name = "c",
    .help = "C99, for microcontrollers: a .c and a .h without allocation and dependencies",
    .suffix = ".c",
    .beside_suffix = ".h",
    .runs = true,
    .write_model = write_model,
};
