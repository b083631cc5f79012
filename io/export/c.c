/* The format c: an int8 model as a pair of C99 files without allocation and dependencies, for microcontrollers and as
 * its readable specification. Names and sizes come from a model file that anybody may have made: what goes into a
 * comment is masked, and the program has passed its check. */
#include "io/export/c_form.h"

#include "core/base/mem.h"
#include "io/batch/normalise.h"
#include "io/export/program_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Bytes of constants; each takes about four in the file. */
static const int64_t constants_max = INT64_C(1) << 27;
enum { GOLDEN_BYTES = 64 * 1024 };

/* Sets the name that begins files, functions and macros, and refuses those that the C library has for headers. */
static oct_status set_name(oct_to_c_file *f, const char *name)
{
    static const char *const taken[] = {
        "assert", "complex", "ctype",  "errno",  "fenv",   "float",  "inttypes", "iso646",
        "limits", "locale",  "math",   "setjmp", "signal", "stdarg", "stdbool",  "stddef",
        "stdint", "stdio",   "stdlib", "string", "tgmath", "time",   "wchar",    "wctype"};
    const size_t length = strlen(name);
    bool fits = length >= 1 && length <= OCT_TO_C_NAME && isalpha((unsigned char)name[0]);
    for (size_t i = 0; fits && i < length; i++)
        fits = isalnum((unsigned char)name[i]) || name[i] == '_';
    for (size_t i = 0; fits && i < OCT_COUNT(taken); i++)
        fits = strcmp(taken[i], name) != 0;
    OCT_CHECK(
        fits, OCT_USAGE,
        "command line: -o: '%s' is no name for C; use up to %d letters, digits and _, a letter "
        "first, and no name of the C library, such as -o model.c",
        oct_show(name, length).text, OCT_TO_C_NAME);
    for (size_t i = 0; i <= length; i++) {
        f->name[i] = name[i];
        f->macro[i] = (char)toupper((unsigned char)name[i]);
    }
    return OCT_OK;
}

static const char *shape_text(const oct_value *v, char text[64])
{
    snprintf(text, 64, "%lldx%lldx%lld %s", (long long)v->h, (long long)v->w, (long long)v->c,
             oct_dtype_name(v->dtype));
    return text;
}

/* Writes what a step is, in front of its constants and its call. */
static void write_title(oct_to_c *w, oct_text *text, const char *indent, int64_t number)
{
    const oct_step *step = &w->program->steps[number];
    const oct_step_type *type = oct_step_type_of(step->kind);
    char name[128], in[64], out[64], window[OCT_WINDOW_TEXT];
    oct_step_window_text(step, window);
    oct_to_c_add(w, text, "\n%s/* %lld %s: %s%s%s, ", indent, (long long)number,
                 oct_to_c_comment(step->name, name), type->name, *window ? " " : "", window);
    for (int i = 0; i < step->num_inputs; i++)
        oct_to_c_add(w, text, "%s%s", i ? " and " : "",
                     shape_text(oct_step_input(w->program, step, i), in));
    oct_to_c_add(w, text, " -> %s */\n", shape_text(oct_step_output(w->program, step), out));
}

/* Writes the constants and the call of a step, each with its title, and the hook AFTER_LAYER. */
static void write_step(oct_to_c *w, int64_t number)
{
    const oct_step *step = &w->program->steps[number];
    const oct_value *y = oct_step_output(w->program, step);
    oct_to_c_write *write = oct_to_c_writer_of(step);
    char value[OCT_TO_C_TEXT];
    if (!write) {
        oct_to_c_fail(w, OCT_PREPARE,
                      "%s: C has no form for the step %s%s; quantize it, or give it to the "
                      "program around the model",
                      step->name, step->kind == OCT_STEP_FLOAT ? "float " : "",
                      oct_step_operation(step));
        return;
    }
    if (w->status != OCT_OK) return;
    write_title(w, &w->constants, "", number);
    write_title(w, &w->calls, "    ", number);
    oct_to_c_write_call(write, w, number);
    oct_to_c_add(w, &w->calls, "    AFTER_LAYER(%lld, %s, %lld);\n", (long long)number,
                 oct_to_c_value(w, step->output, value), (long long)oct_value_bytes(y));
    if (w->offsets[step->output] >= 0) w->holds[y->dtype] = true;
    if (w->constant_bytes > constants_max)
        oct_to_c_fail(w, OCT_PREPARE,
                      "its constants take more than %lld MiB, which is too much for a C file",
                      (long long)(constants_max >> 20));
}

/* Finds the step that quantizes the only input, perhaps after reshapes: callers can give codes where nothing else reads
 * the input or its reshapes. */
static void find_quantizer(oct_to_c_file *f)
{
    const oct_program *program = f->w.program;
    const oct_step *found = oct_export_quantizer(program, program->inputs[0]);
    if (!found || program->num_inputs != 1 || found->output == program->output) return;
    for (const oct_step *step = program->steps; step < found; step++)
        if (step->kind != OCT_STEP_RESHAPE) return;
    f->quantizer = found;
    f->after_quantizer = found - program->steps + 1;
}

/* Writes what comes before the kernels: what the compiler must do, macros that users may set, and the scratch. */
static void write_preamble(oct_to_c_file *f)
{
    oct_to_c *w = &f->w;
    static const oct_dtype types[] = {OCT_U8, OCT_U16, OCT_S32, OCT_F32};
    static const char *const places[] = {"CONSTANT", "SCRATCH"};
    oct_to_c_add(w, &f->text,
                 "/* See %s.h. First the operations that the model has, then its constants, then "
                 "%s_run, a call "
                 "for each layer. */\n#include \"%s.h\"\n\n#include <float.h>\n\n",
                 f->name, f->name, f->name);
    oct_to_c_add(
        w, &f->text,
        "#if defined(__FAST_MATH__) || defined(__RECIPROCAL_MATH__) || "
        "defined(__ASSOCIATIVE_MATH__) || \\\n    defined(__NO_SIGNED_ZEROS__) || "
        "(defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || defined(_M_FP_FAST)\n"
        "#error \"floats must be computed as they are written: no -ffast-math and none of its "
        "parts\"\n#endif\n"
        "/* 16 and 32 round float as 0 does; only narrower types are wider there. */\n"
        "#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16 && "
        "FLT_EVAL_METHOD != 32\n"
        "#error \"floats must be rounded after each operation: -mfpmath=sse on 32-bit x86\"\n"
        "#endif\n#if (-1 >> 1) != -1\n#error \"shifts to the right must keep the "
        "sign\"\n#endif\n\n");
    oct_to_c_add(
        w, &f->text,
        "/* Called after each layer with its number, its output and the bytes of that: for "
        "whoever wants "
        "to look. */\n#ifdef %s_AFTER_LAYER\n#define AFTER_LAYER(number, values, bytes) "
        "%s_AFTER_LAYER(number, values, bytes)\n#else\n#define AFTER_LAYER(number, values, bytes) "
        "((void)0)\n#endif\n\n",
        f->macro, f->macro);
    for (int i = 0; i < 2; i++)
        oct_to_c_add(w, &f->text,
                     "#ifdef %s_%s_PLACE\n#define %s_PLACE %s_%s_PLACE\n#else\n"
                     "#define %s_PLACE\n#endif\n\n",
                     f->macro, places[i], places[i], f->macro, places[i], places[i]);
    if (w->scratch_bytes == 0) return;
    oct_to_c_add(
        w, &f->text,
        "/* Values between layers; those that are never needed at the same time share bytes. */\n"
        "SCRATCH_PLACE static union {\n");
    for (size_t i = 0; i < OCT_COUNT(types); i++)
        if (w->holds[types[i]])
            oct_to_c_add(w, &f->text, "    %s %s[%lld];\n", oct_to_c_type(types[i]),
                         oct_dtype_name(types[i]),
                         (long long)(w->scratch_bytes / (int64_t)oct_dtype_bytes(types[i])));
    oct_to_c_add(w, &f->text, "} scratch;\n\n");
}

static void append_text(oct_to_c *w, oct_text *to, const oct_text *part)
{
    if (w->status == OCT_OK && part->data) w->status = oct_text_add(to, "%s", part->data);
}

/* Writes the codes of all pixels: a table for each channel, or one for all. */
static oct_status write_pixel_table(oct_to_c_file *f, int64_t *tables)
{
    oct_to_c *w = &f->w;
    const oct_value *codes = oct_step_output(w->program, f->quantizer);
    const int64_t channels = oct_export_channels(f->in->c);
    OCT_OWNED(oct_free) uint16_t *table = NULL;
    bool equal = true;
    for (int64_t c = 1; c < channels; c++)
        equal = equal && w->job->mean[c] == w->job->mean[0] && w->job->std[c] == w->job->std[0];
    *tables = equal ? 1 : channels;
    OCT_TRY(oct_alloc(&table, (size_t)*tables * OCT_EXPORT_CODES, sizeof *table));
    oct_export_pixels(f->quantizer, codes->q, *tables, w->job->mean, w->job->std, table);
    oct_to_c_add(w, &w->constants, "\n/* Codes of the pixels 0 to 255. */\n");
    oct_to_c_constants(w, &(oct_to_c_array){"pixels", 0, codes->dtype, *tables * 256, table});
    return w->status;
}

/* Adds to `runs`: NAME_run, on floats; if the first layer quantizes the input, also NAME_run_codes and, where the job wants
 * it, NAME_run_pixels, which begin after that layer (run_layers). */
static oct_status write_run_functions(oct_to_c_file *f, oct_text *runs)
{
    oct_to_c *w = &f->w;
    const char *type = oct_to_c_type(f->out->dtype);
    char inputs[OCT_TO_C_INPUTS], to[OCT_TO_C_TEXT], kernel[OCT_TO_C_TEXT];
    int64_t tables;
    if (!f->quantizer) {
        for (int64_t i = 0; i < w->program->num_steps; i++)
            write_step(w, i);
        oct_to_c_add(w, runs, "void %s_run(%s, %s *output)\n{", f->name,
                     oct_to_c_inputs(w->program, inputs), type);
        append_text(w, runs, &w->calls);
        oct_to_c_add(w, runs, "}\n");
        return w->status;
    }
    const oct_value *codes = oct_step_output(w->program, f->quantizer);
    const long long numel = oct_value_numel(codes), bytes = (long long)oct_value_bytes(codes);
    const char *code = oct_to_c_type(codes->dtype);
    for (int64_t i = 0; i < f->after_quantizer; i++)
        write_step(w, i);
    oct_text begin = w->calls;
    w->calls = (oct_text){0};
    for (int64_t i = f->after_quantizer; i < w->program->num_steps; i++)
        write_step(w, i);
    oct_to_c_add(w, runs, "static void run_layers(%s *output)\n{", type);
    append_text(w, runs, &w->calls);
    oct_to_c_add(w, runs, "}\n\nvoid %s_run(const float *input, %s *output)\n{", f->name, type);
    append_text(w, runs, &begin);
    oct_text_free(&begin);
    oct_to_c_value(w, f->quantizer->output, to);
    oct_to_c_kernel(w, &(oct_to_c_form){.kernel = "copy", .x = codes->dtype, .y = codes->dtype},
                    kernel);
    oct_to_c_add(
        w, runs,
        "    run_layers(output);\n}\n\nvoid %s_run_codes(const %s *codes, %s *output)\n{\n"
        "    %s(%lld, codes, %s);\n    AFTER_LAYER(%lld, %s, %lld);\n    run_layers(output);\n}\n",
        f->name, code, type, kernel, numel, to, (long long)(f->after_quantizer - 1), to, bytes);
    if (!w->job->pixels || w->status != OCT_OK) return w->status;
    OCT_TRY(write_pixel_table(f, &tables));
    oct_to_c_kernel(w, &(oct_to_c_form){.kernel = "pixels", .x = OCT_U8, .y = codes->dtype},
                    kernel);
    oct_to_c_add(w, runs,
                 "\nvoid %s_run_pixels(const uint8_t *pixels, %s *output)\n{\n"
                 "    %s(%lld, %lld, pixels_0, pixels, %s);\n    AFTER_LAYER(%lld, %s, %lld);\n"
                 "    run_layers(output);\n}\n",
                 f->name, type, kernel, numel, (long long)tables, to,
                 (long long)(f->after_quantizer - 1), to, bytes);
    return w->status;
}

/* What the self-test computes: samples of floats or, where the model begins with them, of codes; of these the first one
 * is given as floats, too, and with --pixels all pixels make a further one. */
typedef struct golden {
    float *input; /* of the samples in turn, owned, as are all */
    uint8_t *codes, *pixels;
    uint8_t *output; /* of the samples and of the pixels */
} golden;

/* Makes the samples of the self-test and computes their outputs. */
static oct_status compute_golden(const oct_to_c_file *f, golden *g)
{
    const oct_export *job = f->w.job;
    const int64_t numel = oct_inputs_numel(f->w.program), all = f->golden * numel;
    const int64_t samples = f->golden + job->pixels, c = f->in->c;
    OCT_TRY(oct_alloc(&g->input, (size_t)(samples * numel), sizeof *g->input));
    OCT_TRY(oct_alloc(&g->pixels, (size_t)numel, 1));
    OCT_TRY(oct_alloc(&g->output, (size_t)samples, oct_value_bytes(f->out)));
    memcpy(g->input, job->model->golden_input, (size_t)all * sizeof *g->input);
    /* Pixels count up in each channel, and channels begin a third of 256 apart. */
    for (int64_t i = 0; job->pixels && i < numel; i++) {
        const int64_t channel = c > OCT_REALS_MAX ? 0 : i % c;
        g->pixels[i] = (uint8_t)(i / c + 85 * (i % c));
        oct_normalise(&g->pixels[i], 1, 1, &job->mean[channel], &job->std[channel],
                      &g->input[all + i]);
    }
    OCT_TRY(oct_model_run_golden(f->w.program, g->input, samples, g->output));
    if (!f->quantizer) return OCT_OK;
    const oct_qparams q = oct_step_output(f->w.program, f->quantizer)->q;
    OCT_TRY(oct_alloc(&g->codes, (size_t)all, oct_dtype_bytes(oct_codes_dtype(q))));
    oct_step_quantize_values(f->quantizer, q, g->input, all, g->codes, NULL, NULL);
    return OCT_OK;
}

/* Writes a loop that computes samples of an array by a function of the model, and compares them from sample `first` on. */
static void write_comparison(oct_to_c_file *f, oct_text *text, const char *function,
                             const char *array, long long samples, long long first)
{
    oct_to_c *w = &f->w;
    const long long numel = oct_inputs_numel(w->program), out = oct_value_numel(f->out);
    long long at = oct_value_numel(f->in);
    oct_to_c_add(w, text, "    for (int32_t n = 0; n < %lld; n++) {\n        %s_%s(%s_0 + n * %lld",
                 samples, f->name, function, array, numel);
    for (int i = 1; i < w->program->num_inputs; i++) {
        oct_to_c_add(w, text, ", %s_0 + n * %lld + %lld", array, numel, at);
        at += oct_value_numel(&w->program->values[w->program->inputs[i]]);
    }
    oct_to_c_add(w, text,
                 ", output.numbers);\n        for (int32_t i = 0; i < %lld; i++)\n"
                 "            differ += output.bits[i] != golden_output_0[(%lld + n) * %lld + i];\n"
                 "    }\n",
                 out, first, out);
}

/* Writes the function that computes the samples and counts numbers that differ. Its constants do not count as the
 * model's. */
static void write_self_test(oct_to_c_file *f, const golden *g, oct_text *text)
{
    oct_to_c *w = &f->w;
    const long long numel = oct_inputs_numel(w->program), out = oct_value_numel(f->out);
    const int64_t constant_bytes = w->constant_bytes, floats = f->quantizer ? 1 : f->golden;
    const oct_dtype code = f->quantizer ? oct_step_output(w->program, f->quantizer)->dtype : OCT_U8;
    oct_text before = w->constants;
    w->constants = (oct_text){0};
    oct_to_c_constants(w, &(oct_to_c_array){"golden_input", 0, OCT_F32, floats * numel, g->input});
    if (f->quantizer)
        oct_to_c_constants(w,
                           &(oct_to_c_array){"golden_codes", 0, code, f->golden * numel, g->codes});
    if (w->job->pixels)
        oct_to_c_constants(w, &(oct_to_c_array){"golden_pixels", 0, OCT_U8, numel, g->pixels});
    /* Bits are compared, of floats as whole numbers. */
    oct_to_c_constants(w, &(oct_to_c_array){"golden_output", 0, OCT_S32,
                                            (f->golden + w->job->pixels) * out, g->output});
    oct_to_c_add(w, text, "\n#ifdef %s_SELF_TEST\n", f->macro);
    append_text(w, text, &w->constants);
    oct_text_free(&w->constants);
    w->constants = before;
    w->constant_bytes = constant_bytes;
    oct_to_c_add(w, text,
                 "\nint32_t %s_self_test(void)\n{\n"
                 "    static union {\n        %s numbers[%lld];\n        int32_t bits[%lld];\n"
                 "    } output;\n    int32_t differ = 0;\n",
                 f->name, oct_to_c_type(f->out->dtype), out, out);
    write_comparison(f, text, "run", "golden_input", floats, 0);
    if (f->quantizer) write_comparison(f, text, "run_codes", "golden_codes", f->golden, 0);
    if (w->job->pixels) write_comparison(f, text, "run_pixels", "golden_pixels", 1, f->golden);
    if (f->output_codes >= 0)
        oct_to_c_add(w, text,
                     "    for (int32_t i = 0; i < %lld; i++)\n        differ += (float)"
                     "(%s_output_codes()[i] - %s_OUTPUT_ZERO_POINT) * %s_OUTPUT_SCALE != "
                     "output.numbers[i];\n",
                     out, f->name, f->macro, f->macro);
    oct_to_c_add(w, text, "    return differ;\n}\n#endif\n");
}

/* Writes the .c file. Steps are written first, since they find the kernels, constants and sizes that come before
 * them. */
static oct_status write_source(oct_to_c_file *f, oct_exported *out)
{
    oct_to_c *w = &f->w;
    char codes[OCT_TO_C_TEXT];
    oct_text runs = {0};
    golden g = {0};
    oct_status status;
    OCT_TRY_OUT(write_run_functions(f, &runs));
    if (w->counts) goto out;
    if (f->output_codes >= 0)
        oct_to_c_add(w, &runs, "\nconst %s *%s_output_codes(void)\n{\n    return %s;\n}\n",
                     oct_to_c_type(w->program->values[f->output_codes].dtype), f->name,
                     oct_to_c_value(w, f->output_codes, codes));
    if (f->golden > 0) OCT_TRY_OUT(compute_golden(f, &g));
    write_preamble(f);
    append_text(w, &f->text, &w->kernels);
    append_text(w, &f->text, &w->constants);
    oct_to_c_add(w, &f->text, "\n");
    append_text(w, &f->text, &runs);
    if (f->golden > 0) write_self_test(f, &g, &f->text);
    OCT_TRY_OUT(w->status);
    out->bytes = f->text.data;
    out->size = f->text.length;
    f->text = (oct_text){0};
out:
    oct_text_free(&runs);
    OCT_FREE_ALL(&g.input, &g.codes, &g.pixels, &g.output);
    return status;
}

/* Finds what both files say of the model. */
static oct_status describe_model(oct_to_c_file *f, const oct_export *job)
{
    const oct_program *program = &job->model->program;
    const int64_t sample = oct_inputs_numel(program) * (int64_t)sizeof(float);
    f->w.job = job;
    f->w.program = program;
    f->in = &program->values[program->inputs[0]];
    f->out = &program->values[program->output];
    find_quantizer(f);
    /* The output's codes can be read where the last layer does nothing but dequantize them. */
    const oct_step *last = &program->steps[program->num_steps - 1];
    const bool dequantizes = last->kind == OCT_STEP_DEQUANTIZE && last->output == program->output;
    f->output_codes = dequantizes ? last->input[0] : -1;
    f->golden = GOLDEN_BYTES / sample < 1 ? 1 : GOLDEN_BYTES / sample;
    if (f->golden > job->model->certificate.golden_count)
        f->golden = job->model->certificate.golden_count;
    OCT_TRY(set_name(f, job->name));
    f->w.counts = job->tries;
    OCT_CHECK(!job->pixels || f->quantizer, OCT_PREPARE,
              "--pixels: this model does not begin by quantizing a single input; leave it out");
    OCT_TRY(oct_alloc(&f->w.offsets, (size_t)program->num_values, sizeof *f->w.offsets));
    return oct_plan_values(program, f->w.offsets, &f->w.scratch_bytes);
}

static oct_status write_model(const oct_export *job, oct_exported *out)
{
    oct_to_c_file *f = NULL;
    oct_status status;
    OCT_TRY(oct_alloc(&f, 1, sizeof *f));
    OCT_TRY_OUT(describe_model(f, job));
    OCT_TRY_OUT(write_source(f, out));
    OCT_TRY_OUT(oct_to_c_header(f, out));
    if (f->w.wide)
        status = oct_text_add(&out->notices,
                              "it rounds in double, because it has codes of 16 bits or unquantized "
                              "results of a program that shifts\n");
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
