/* Kernels of C files are written here from their texts, which the build makes from the files of c_kernel/: an array of
 * lines each, and a table of them all. */
#include "io/export/c_form.h"

#include "core/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* In the file that the build writes. */
extern const struct oct_to_c_kernel_text {
    const char *name;
    const char *const *lines; /* up to a NULL */
} oct_to_c_texts[];

void oct_to_c_add(oct_to_c *w, oct_text *text, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (w->status != OCT_OK) return;
    va_start(args, format);
    const int length = oct_vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof line)
        oct_to_c_fail(w, OCT_DEFECT, "a line of C is longer than %zu bytes", sizeof line);
    else
        w->status = oct_text_add(text, "%s", line);
}

void oct_to_c_fail(oct_to_c *w, oct_status status, const char *format, ...)
{
    char line[1024];
    OCT_PRINT_ARGS(line, format);
    if (w->status == OCT_OK)
        w->status = oct_fail(status, "%s", line);
    else if (w->status == status)
        (void)oct_fail_add(status, "%s", line);
}

const char *oct_to_c_type(oct_dtype dtype)
{
    static const char *const types[OCT_S64 + 1] = {
        [OCT_U8] = "uint8_t",  [OCT_U16] = "uint16_t", [OCT_S8] = "int8_t",
        [OCT_S32] = "int32_t", [OCT_S64] = "int64_t",
    };
    return types[dtype] ? types[dtype] : "float";
}

/* The lines of a kernel, up to a NULL; NULL: there is no such kernel. */
static const char *const *find_lines(const char *kernel)
{
    for (size_t i = 0; oct_to_c_texts[i].name; i++)
        if (strcmp(oct_to_c_texts[i].name, kernel) == 0) return oct_to_c_texts[i].lines;
    return NULL;
}

/* Whether a kernel without types in its name rounds in float or in double, and has a form for each. */
static bool has_wide_form(const char *kernel)
{
    const char *const *lines = find_lines(kernel);
    for (; lines && *lines; lines++)
        if (strstr(*lines, "$E")) return true;
    return false;
}

/* The text in place of the letter after a '$' (c_form.h); NULL: it has none. */
static const char *expand_letter(const oct_to_c_form *f, char letter, const char *names)
{
    const struct {
        char letter;
        const char *text;
    } texts[] = {
        {'X', oct_to_c_type(f->x)},
        {'B', oct_to_c_type(f->second)},
        {'Y', oct_to_c_type(f->y)},
        {'A', oct_to_c_type(f->acc)},
        {'S', f->wide ? "int64_t" : "int32_t"},
        {'F', f->wide ? "double" : "float"},
        {'E', f->wide ? "_wide" : ""},
        {'N', names},
        {'P', f->parameters},
        {'Q', f->function},
        {'C', f->constants},
    };
    for (size_t i = 0; i < OCT_COUNT(texts); i++)
        if (texts[i].letter == letter) return texts[i].text;
    return NULL;
}

/* Writes a line of a kernel's text, with what its '$' letters stand for. */
static void write_line(oct_to_c *w, const oct_to_c_form *form, const char *names, const char *line)
{
    for (const char *at = line; *at;) {
        const size_t plain = strcspn(at, "$");
        oct_to_c_add(w, &w->kernels, "%.*s", (int)plain, at);
        at += plain;
        if (!*at) return;
        const char *text = expand_letter(form, at[1], names);
        w->wide = w->wide || (form->wide && at[1] == 'F');
        if (at[1] == 'R')
            write_line(w, form, names, find_lines(form->result)[0]);
        else if (text)
            oct_to_c_add(w, &w->kernels, "%s", text);
        else
            oct_to_c_fail(w, OCT_DEFECT, "the kernel %s has a '$' without a meaning", form->kernel);
        if (at[1] == 'Q' && form->wide && has_wide_form(text))
            oct_to_c_add(w, &w->kernels, "_wide");
        at += 2;
    }
}

/* Whether a kernel has been written: `written` has their names, a line each. */
static bool is_written(const oct_to_c *w, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = w->written.data; at && *at; at += strcspn(at, "\n") + 1)
        if (strcspn(at, "\n") == length && memcmp(at, name, length) == 0) return true;
    return false;
}

static void write_kernel(oct_to_c *w, const oct_to_c_form *form, const char *names,
                         const char *name);

/* Writes a function or type without types in its name, which a kernel needs. */
static void write_helper(oct_to_c *w, const char *kernel, bool wide)
{
    char name[OCT_TO_C_TEXT];
    const oct_to_c_form form = {.kernel = kernel, .wide = wide && has_wide_form(kernel)};
    snprintf(name, sizeof name, "%s%s", kernel, form.wide ? "_wide" : "");
    write_kernel(w, &form, "", name);
}

/* Writes what a line of a kernel needs: structs, "name *" (types), or functions, "name(", "name$E(" or "$Q(". */
static void write_needs(oct_to_c *w, const oct_to_c_form *form, const char *line, bool types)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    char name[64];
    for (const char *at = line; *at;) {
        const size_t length = strspn(at, letters);
        const char *after = at + length;
        const bool forms = strncmp(after, "$E(", 3) == 0;
        const bool needed = types ? strncmp(after, " *", 2) == 0 : forms || *after == '(';
        if (!types && strncmp(at, "$Q", 2) == 0) write_helper(w, form->function, form->wide);
        if (needed && length > 0 && length < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)length, at);
            if (find_lines(name) && strcmp(name, form->kernel) != 0)
                write_helper(w, name, forms && form->wide);
        }
        at = length > 0 ? after : at + 1;
    }
}

/* Writes a kernel unless it is there already, after what it needs: types first, then the rounding of a layer. */
static void write_kernel(oct_to_c *w, const oct_to_c_form *form, const char *names,
                         const char *name)
{
    const char *const *lines = find_lines(form->kernel);
    if (is_written(w, name)) return;
    oct_to_c_add(w, &w->written, "%s\n", name);
    if (!lines) oct_to_c_fail(w, OCT_DEFECT, "there is no kernel %s", form->kernel);
    for (int types = 1; lines && types >= 0; types--) {
        bool comment = false;
        if (!types && form->result) write_needs(w, form, find_lines(form->result)[0], false);
        for (size_t i = 0; lines[i]; i++) {
            comment = comment || strncmp(lines[i], "/*", 2) == 0;
            if (!comment) write_needs(w, form, lines[i], types);
            if (strstr(lines[i], "*/")) comment = false;
        }
    }
    for (; lines && *lines && w->status == OCT_OK; lines++)
        write_line(w, form, names, *lines);
}

void oct_to_c_kernel(oct_to_c *w, const oct_to_c_form *form, char name[OCT_TO_C_TEXT])
{
    char names[64];
    const char *variant = form->variant ? form->variant : "", *end = form->variant ? "_" : "";
    const char *x = oct_dtype_name(form->x), *y = oct_dtype_name(form->y);
    if (form->pair)
        snprintf(names, sizeof names, "%s%s%s_%s_%s", variant, end, x, oct_dtype_name(form->second),
                 y);
    else
        snprintf(names, sizeof names, "%s%s%s_%s", variant, end, x, y);
    snprintf(name, OCT_TO_C_TEXT, "%s_%s", form->kernel, names);
    write_kernel(w, form, names, name);
}

void oct_to_c_begin_call(oct_to_c *w, const oct_to_c_call *c, const oct_to_c_form *form)
{
    char name[OCT_TO_C_TEXT];
    oct_to_c_form typed = *form;
    typed.x = c->x->dtype;
    typed.y = c->y->dtype;
    typed.second = c->second ? c->second->dtype : OCT_U8;
    if (form->acc != OCT_S64) typed.acc = c->x->dtype == OCT_U16 ? OCT_S64 : OCT_S32;
    oct_to_c_kernel(w, &typed, name);
    oct_to_c_add(w, &w->calls, "    %s(", name);
}

oct_to_c_rounding oct_to_c_rounds(const oct_to_c *w, const oct_value *y, const char *multiplier,
                                  const char *shift, const char *factor)
{
    const oct_rounding_row *rounding = oct_rounding_of(w->program->requantizer);
    oct_to_c_rounding r = {.function = "requantize"};
    if (!rounding->constants_of) {
        snprintf(r.constants, sizeof r.constants, "%s", factor);
        return r;
    }
    const char *name = rounding->code_name ? rounding->code_name : rounding->name;
    const char *width = rounding->c_width[y->dtype == OCT_U16];
    snprintf(r.function, sizeof r.function, "requantize_%s", name);
    snprintf(r.constants, sizeof r.constants, "%s%s%s%s%s",
             rounding->c_multiplier ? multiplier : "", rounding->c_multiplier ? ", " : "", shift,
             width ? ", " : "", width ? width : "");
    return r;
}

const char *oct_to_c_value(const oct_to_c *w, int32_t value, char text[OCT_TO_C_TEXT])
{
    const oct_program *program = w->program;
    const oct_dtype dtype = program->values[value].dtype;
    if (w->offsets[value] >= 0) {
        snprintf(text, OCT_TO_C_TEXT, "scratch.%s + %lld", oct_dtype_name(dtype),
                 (long long)(w->offsets[value] / (int64_t)oct_dtype_bytes(dtype)));
        return text;
    }
    snprintf(text, OCT_TO_C_TEXT, "output");
    for (int i = 0; i < program->num_inputs; i++) {
        if (program->inputs[i] != value) continue;
        snprintf(text, OCT_TO_C_TEXT, i ? "input%d" : "input", i);
    }
    return text;
}

/* Writes one number of an array as C has it. */
static void format_number(oct_dtype dtype, const void *data, int64_t i, char text[64])
{
    switch ((int)dtype) {
    case OCT_U8:
        snprintf(text, 64, "%d", ((const uint8_t *)data)[i]);
        return;
    case OCT_U16:
        snprintf(text, 64, "%d", ((const uint16_t *)data)[i]);
        return;
    case OCT_S8:
        snprintf(text, 64, "%d", ((const int8_t *)data)[i]);
        return;
    case OCT_S32:
        /* The least number has no constant in C. */
        snprintf(text, 64, ((const int32_t *)data)[i] == INT32_MIN ? "INT32_MIN" : "%ld",
                 (long)((const int32_t *)data)[i]);
        return;
    case OCT_S64:
        snprintf(text, 64, "INT64_C(%lld)", (long long)((const int64_t *)data)[i]);
        return;
    default:
        oct_snprintf(text, 64, "%aF", (double)((const float *)data)[i]);
        return;
    }
}

void oct_to_c_constants(oct_to_c *w, const oct_to_c_array *array)
{
    enum { WIDTH = 112 };
    char number[64];
    int column = 0;
    w->constant_bytes += array->count * (int64_t)oct_dtype_bytes(array->dtype);
    if (w->counts) return;
    oct_to_c_add(w, &w->constants, "CONSTANT_PLACE static const %s %s_%lld[%lld] = {\n",
                 oct_to_c_type(array->dtype), array->name, (long long)array->step,
                 (long long)array->count);
    for (int64_t i = 0; i < array->count && w->status == OCT_OK; i++) {
        format_number(array->dtype, array->data, i, number);
        const int length = (int)strlen(number) + 2;
        if (column + length > WIDTH) column = 0;
        oct_to_c_add(w, &w->constants, "%s%s%s",
                     column ? " "
                     : i    ? "\n    "
                            : "    ",
                     number, i + 1 < array->count ? "," : "");
        column += column ? length : length + 4;
    }
    oct_to_c_add(w, &w->constants, "\n};\n");
}

void oct_to_c_write_call(oct_to_c_write *write, oct_to_c *w, int64_t number)
{
    oct_to_c_call c = {.step = &w->program->steps[number], .number = number};
    c.x = oct_step_input(w->program, c.step, 0);
    if (c.step->num_inputs > 1) c.second = oct_step_input(w->program, c.step, 1);
    c.y = oct_step_output(w->program, c.step);
    oct_to_c_value(w, c.step->input[0], c.from);
    oct_to_c_value(w, c.step->output, c.to);
    write(w, &c);
}

oct_status oct_c_constant_bytes(const oct_program *program, int64_t *bytes)
{
    oct_to_c w = {.program = program, .counts = true};
    oct_status status;
    OCT_TRY_OUT(oct_alloc(&w.offsets, (size_t)program->num_values, sizeof *w.offsets));
    OCT_TRY_OUT(oct_plan_values(program, w.offsets, &w.scratch_bytes));
    for (int64_t i = 0; i < program->num_steps; i++) {
        oct_to_c_write *write = oct_to_c_writer_of(&program->steps[i]);
        const int64_t before = w.constant_bytes;
        if (write) oct_to_c_write_call(write, &w, i);
        bytes[i] = write ? w.constant_bytes - before : -1;
    }
    status = w.status;
out:
    oct_text_free(&w.kernels);
    oct_text_free(&w.written);
    oct_text_free(&w.constants);
    oct_text_free(&w.calls);
    oct_free(&w.offsets);
    return status;
}
