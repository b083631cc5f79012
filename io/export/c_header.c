/* The header of a model as C: sizes, scales and functions. Names come from a model file that anybody may have made. */
#include "io/export/c_form.h"

#include "io/export/program_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { STACK_BYTES = 768 };

const char *oct_to_c_comment(const char *text, char masked[128])
{
    size_t i = 0;
    for (; text[i] && i < 127; i++)
        masked[i] = isalnum((unsigned char)text[i]) || strchr("_.:- ", text[i]) ? text[i] : '_';
    masked[i] = '\0';
    return masked;
}

const char *oct_to_c_inputs(const oct_program *program, char text[OCT_TO_C_INPUTS])
{
    size_t used = (size_t)snprintf(text, OCT_TO_C_INPUTS, "const float *input");
    for (int i = 1; i < program->num_inputs; i++)
        used += (size_t)snprintf(text + used, OCT_TO_C_INPUTS - used, ", const float *input%d", i);
    return text;
}

static void write_plane(oct_to_c_file *f, const char *what, const oct_value *v)
{
    oct_to_c_add(
        &f->w, &f->text,
        "#define %s_%s_HEIGHT %lld\n#define %s_%s_WIDTH %lld\n#define %s_%s_CHANNELS %lld\n"
        "#define %s_%s_SIZE %lld /* numbers of one sample */\n",
        f->macro, what, (long long)v->h, f->macro, what, (long long)v->w, f->macro, what,
        (long long)v->c, f->macro, what, (long long)oct_value_numel(v));
}

/* Nine digits are a float, and C++ has no hexadecimal ones before 2017. */
static void write_qparams(oct_to_c_file *f, const char *what, oct_qparams q)
{
    oct_to_c_add(&f->w, &f->text, "#define %s_%s_SCALE %.8eF\n#define %s_%s_ZERO_POINT %d\n",
                 f->macro, what, (double)q.scale, f->macro, what, q.zero_point);
}

/* Names as strings in a macro, which take no memory where it is not used. Their bytes are not trusted. */
static void write_class_names(oct_to_c_file *f)
{
    const char *at = f->w.job->class_names;
    if (!at) return;
    oct_to_c_add(&f->w, &f->text,
                 "\n/* In the order of the output: static const char *const names[] = "
                 "{%s_CLASS_NAMES}; */\n#define %s_CLASS_NAMES",
                 f->macro, f->macro);
    for (; *at; at += *at == '\n') {
        oct_to_c_add(&f->w, &f->text, " \\\n    \"");
        for (; *at && *at != '\n'; at++)
            oct_to_c_add(&f->w, &f->text,
                         isalnum((unsigned char)*at) || strchr("_.- ", *at) ? "%c" : "\\%03o",
                         (unsigned char)*at);
        oct_to_c_add(&f->w, &f->text, at[0] && at[1] ? "\"," : "\"");
    }
    oct_to_c_add(&f->w, &f->text, "\n");
}

/* Says in the comment on top how pixels become values of the input. */
static void write_normalisation(oct_to_c_file *f)
{
    const oct_export *job = f->w.job;
    const int64_t channels = oct_export_channels(f->in->c);
    oct_to_c_add(&f->w, &f->text,
                 " * Values of the input are (%s - mean) / std as in training, with mean "
                 "and std of each channel%s\n",
                 job->no_bytes ? "x" : "pixel / 255",
                 job->no_bytes ? ";\n * x is a number of the data, of signed bytes / 128" : "");
    for (int64_t c = 0; c < channels; c++)
        oct_to_c_add(&f->w, &f->text, " *     %.9g and %.9g\n", (double)job->mean[c],
                     (double)job->std[c]);
}

/* Writes the declarations of the functions that the model has. */
static void write_api(oct_to_c_file *f)
{
    oct_to_c *w = &f->w;
    char inputs[OCT_TO_C_INPUTS];
    char masked[128];
    const char *type = oct_to_c_type(f->out->dtype);
    for (int i = 0; w->job->port_names && i < 2; i++)
        oct_to_c_add(w, &f->text, "/* The %s is %s of the network that it comes from. */\n",
                     i ? "output" : "input",
                     oct_to_c_comment(oct_export_port(w->job, i > 0).text, masked));
    oct_to_c_add(w, &f->text,
                 "/* Computes one sample: values of the input, rows of columns of channels, to %s "
                 "of the output.\n"
                 " * Scratch is static: one call at a time. */\n"
                 "void %s_run(%s, %s *output);\n",
                 f->out->dtype == OCT_F32 ? "values" : "numbers of classes", f->name,
                 oct_to_c_inputs(w->program, inputs), type);
    if (f->output_codes >= 0) {
        const oct_qparams q = w->program->values[f->output_codes].q;
        oct_to_c_add(w, &f->text,
                     "\n/* The codes of the last output, until the next run: a value is (code - "
                     "zero point) * scale. */\n");
        write_qparams(f, "OUTPUT", q);
        oct_to_c_add(w, &f->text, "const %s *%s_output_codes(void);\n",
                     oct_to_c_type(oct_codes_dtype(q)), f->name);
    }
    if (!f->quantizer) return;
    const oct_qparams q = oct_step_output(w->program, f->quantizer)->q;
    oct_to_c_add(w, &f->text,
                 "\n/* The same as %s_run of codes: a value is (code - zero point) * scale, a code "
                 "from %d to %d. */\n",
                 f->name, q.qmin, q.qmax);
    write_qparams(f, "INPUT", q);
    oct_to_c_add(w, &f->text, "void %s_run_codes(const %s *codes, %s *output);\n", f->name,
                 oct_to_c_type(oct_codes_dtype(q)), type);
    if (w->job->pixels)
        oct_to_c_add(w, &f->text,
                     "\n/* The same of pixels from 0 to 255, which a table makes codes of: no "
                     "float is touched. */\n"
                     "void %s_run_pixels(const uint8_t *pixels, %s *output);\n",
                     f->name, type);
}

oct_status oct_to_c_header(oct_to_c_file *f, oct_exported *out)
{
    oct_to_c *w = &f->w;
    char target[128];
    oct_to_c_add(
        w, &f->text,
        "/* An int8 model as C99, by octet %s, for the target %s: no allocation, and nothing but "
        "<stdint.h>.\n *\n",
        w->job->version, oct_to_c_comment(w->program->target, target));
    write_normalisation(f);
    oct_to_c_add(
        w, &f->text,
        " *\n * Each operation on floats rounds by itself (IEEE 754, also where software does it): "
        "compile without -ffast-math,\n * its parts and -Ofast.");
    if (f->golden > 0)
        oct_to_c_add(w, &f->text, " With %s_SELF_TEST defined there is %s_self_test().", f->macro,
                     f->name);
    oct_to_c_add(w, &f->text,
                 " Where %s_CONSTANT_PLACE and\n * %s_SCRATCH_PLACE are defined, they stand "
                 "before each constant and before the scratch, such as\n"
                 " * __attribute__((section(\".dtcm\"))).\n */\n",
                 f->macro, f->macro);
    oct_to_c_add(w, &f->text,
                 "#ifndef %s_octet_h\n#define %s_octet_h\n\n#include <stdint.h>\n\n#ifdef "
                 "__cplusplus\nextern "
                 "\"C\" {\n#endif\n\n",
                 f->name, f->name);
    if (w->job->model_sha256)
        oct_to_c_add(w, &f->text, "#define %s_MODEL_SHA256 \"%s\" /* of the model's file */\n",
                     f->macro, w->job->model_sha256);
    write_plane(f, "INPUT", f->in);
    write_plane(f, "OUTPUT", f->out);
    oct_to_c_add(
        w, &f->text,
        "#define %s_SCRATCH_BYTES %lld /* static, for all values between layers */\n"
        "#define %s_CONSTANT_BYTES %lld /* weights, biases, multipliers, tables, layers */\n"
        "#define %s_STACK_BYTES %d /* at most, by gcc -O2 for a Cortex-M; nothing calls itself "
        "*/\n\n",
        f->macro, (long long)w->scratch_bytes, f->macro, (long long)w->constant_bytes, f->macro,
        STACK_BYTES);
    write_api(f);
    write_class_names(f);
    if (f->golden > 0)
        oct_to_c_add(
            w, &f->text,
            "\n#ifdef %s_SELF_TEST\n/* Computes %lld samples that Octet has computed, and counts "
            "the numbers of their outputs that differ in any bit. */\nint32_t %s_self_test(void);\n"
            "#endif\n",
            f->macro, (long long)f->golden, f->name);
    oct_to_c_add(w, &f->text, "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    if (w->status != OCT_OK) return w->status;
    out->beside = f->text.data;
    out->beside_size = f->text.length;
    f->text = (oct_text){0};
    return OCT_OK;
}
