/* A program as text: what both files of int8 models hold of it, but the numbers in its arrays. A line each for the
 * program, its values in order, its steps in order, and after a step that stays float its arrays:
 *
 *     program float target=x86 inputs=0 output=3
 *     value f32 h=28 w=28 c=1
 *     value u8 h=28 w=28 c=1 scale=0x1p-8 zero_point=0 qmin=0 qmax=255
 *     step quantize quotient=0 inputs=0 output=1 name=quant
 *     step float type=linear dims=2 args=0x1p+3,0x0p+0 inputs=2 output=3 name=head
 *     array f32 shape=10,8 name=weight
 *
 * The second word is the rounding, the type of a value or array, or the kind of a step, which has the fields that the
 * kind lists. Fields are known by their names: each is there once, in any order, but `name` is the last, since it may
 * have spaces. Whole numbers are decimal; others are hexadecimal (%a), which is exact. */
#include "quant/program/step.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FIELDS_MAX = 64, NAME_BYTES = 64, DTYPES = OCT_S64 + 1 };

/* The fields of a struct, and those of all structs that a line holds. */
typedef struct group {
    void *owner; /* the struct */
    const oct_field *fields;
    int count;
} group;
typedef struct groups {
    group item[3];
    int count;
} groups;

/* A float fallback in the line of its step, and a line "array", whose name has a block of its own in a program. */
typedef struct fallback_line {
    oct_fallback fallback;
    int num_dims;
} fallback_line;
typedef struct array_line {
    char name[NAME_BYTES];
    oct_shape shape;
} array_line;

#define LIST(owner, member, number, text, most)                                                    \
    {                                                                                              \
        .name = (text), .type = OCT_FIELD_TYPE(((owner *)0)->member[0]), .list = true,             \
        .offset = offsetof(owner, member), .count = offsetof(owner, number), .max = (most)         \
    }
#define TEXT(owner, member, text)                                                                  \
    {                                                                                              \
        .name = (text), .type = OCT_FIELD_TEXT, .offset = offsetof(owner, member),                 \
        .max = sizeof(((owner *)0)->member) - 1                                                    \
    }

static const oct_field program_fields[] = {
    TEXT(oct_program, target, "target"),
    LIST(oct_program, inputs, num_inputs, "inputs", OCT_PROGRAM_INPUTS),
    OCT_FIELD_IN(oct_program, output, "output", INT32_MIN, INT32_MAX),
};
enum { PLANE_FIELDS = 3 }; /* of all values; the others are those of codes */
static const oct_field value_fields[] = {
    OCT_FIELD_IN(oct_value, h, "h", 1, OCT_DIM_MAX),
    OCT_FIELD_IN(oct_value, w, "w", 1, OCT_DIM_MAX),
    OCT_FIELD_IN(oct_value, c, "c", 1, OCT_DIM_MAX),
    OCT_FIELD_IN(oct_value, q.scale, "scale", 0, 0),
    OCT_FIELD_IN(oct_value, q.zero_point, "zero_point", INT32_MIN, INT32_MAX),
    OCT_FIELD_IN(oct_value, q.qmin, "qmin", INT32_MIN, INT32_MAX),
    OCT_FIELD_IN(oct_value, q.qmax, "qmax", INT32_MIN, INT32_MAX),
};
static const oct_field step_fields[] = {
    LIST(oct_step, input, num_inputs, "inputs", OCT_STEP_INPUTS),
    OCT_FIELD_IN(oct_step, output, "output", INT32_MIN, INT32_MAX),
    TEXT(oct_step, name, "name"),
};
static const oct_field fallback_fields[] = {
    TEXT(fallback_line, fallback.type, "type"),
    LIST(fallback_line, fallback.dims, num_dims, "dims", OCT_STEP_INPUTS),
    LIST(fallback_line, fallback.args.value, fallback.args.count, "args", OCT_MAX_ARGS),
};
static const oct_field array_fields[] = {
    LIST(array_line, shape.dim, shape.ndim, "shape", OCT_MAX_DIMS),
    TEXT(array_line, name, "name"),
};

/* The fields of a struct that is alone in its line. */
#define ONE_GROUP(owner, fields) ((groups){{{(owner), (fields), OCT_COUNT(fields)}}, 1})

static groups groups_of_value(oct_value *value)
{
    const bool codes = value->dtype == OCT_U8 || value->dtype == OCT_U16;
    return (groups){{{value, value_fields, codes ? (int)OCT_COUNT(value_fields) : PLANE_FIELDS}},
                    1};
}

/* The fields of a step's line: those of its kind, of a float fallback, and those of all steps, `name` at the end. */
static groups groups_of_step(oct_step *step, fallback_line *fallback)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    groups g = {{{step, type->fields, type->num_fields}}, 1};
    if (step->kind == OCT_STEP_FLOAT)
        g.item[g.count++] = (group){fallback, fallback_fields, OCT_COUNT(fallback_fields)};
    g.item[g.count++] = (group){step, step_fields, OCT_COUNT(step_fields)};
    return g;
}

static const char *rounding_name(int rounding)
{
    static const char *const names[OCT_REQUANTIZERS] = {
#define OCT_ROUNDING(id, file) [OCT_REQUANT_##id] = #file,
#include "quant/rounding/rounding_list.def"
#undef OCT_ROUNDING
    };
    return names[rounding];
}

static const char *kind_name(int kind)
{
    return oct_step_type_of((oct_step_kind)kind)->name;
}

static const char *dtype_name(int dtype)
{
    return oct_dtype_name((oct_dtype)dtype);
}

/* Writing. */

static oct_status add_number(oct_text *text, const char *before, oct_field_type type,
                             const void *at)
{
    switch (type) {
    case OCT_FIELD_BOOL:
        return oct_text_add(text, "%s%d", before, *(const bool *)at);
    case OCT_FIELD_S32:
        return oct_text_add(text, "%s%d", before, *(const int32_t *)at);
    case OCT_FIELD_S64:
        return oct_text_add(text, "%s%lld", before, (long long)*(const int64_t *)at);
    case OCT_FIELD_F32:
        return oct_text_add(text, "%s%a", before, (double)*(const float *)at);
    case OCT_FIELD_F64:
        return oct_text_add(text, "%s%a", before, *(const double *)at);
    case OCT_FIELD_TEXT:
        return oct_text_add(text, "%s%s", before, (const char *)at);
    }
    return OCT_OK;
}

static const size_t item_bytes[] = {
    [OCT_FIELD_BOOL] = sizeof(bool),   [OCT_FIELD_S32] = sizeof(int32_t),
    [OCT_FIELD_S64] = sizeof(int64_t), [OCT_FIELD_F32] = sizeof(float),
    [OCT_FIELD_F64] = sizeof(double),  [OCT_FIELD_TEXT] = 0};

/* Writes " name=value", or of a list " name=value,value". */
static oct_status add_field(oct_text *text, const oct_field *field, const char *owner)
{
    const int count = field->list ? *(const int *)(const void *)(owner + field->count) : 1;
    OCT_TRY(oct_text_add(text, " %s=", field->name));
    for (int i = 0; i < count; i++)
        OCT_TRY(add_number(text, i ? "," : "", field->type,
                           owner + field->offset + (size_t)i * item_bytes[field->type]));
    return OCT_OK;
}

/* Writes a line: its record, its type and all fields. */
static oct_status add_line(oct_text *text, const char *record, const char *type, groups g)
{
    OCT_TRY(oct_text_add(text, "%s %s", record, type));
    for (int i = 0; i < g.count; i++)
        for (int k = 0; k < g.item[i].count; k++)
            OCT_TRY(add_field(text, &g.item[i].fields[k], g.item[i].owner));
    return oct_text_add(text, "\n");
}

/* Writes the line of a step, and those of a float fallback's arrays. */
static oct_status add_step(oct_text *text, oct_step step)
{
    fallback_line fallback = {.num_dims = step.num_inputs};
    if (step.kind == OCT_STEP_FLOAT) fallback.fallback = *step.fallback;
    OCT_TRY(add_line(text, "step", kind_name((int)step.kind), groups_of_step(&step, &fallback)));
    for (int64_t i = 0; step.kind == OCT_STEP_FLOAT && i < step.fallback->num_arrays; i++) {
        const oct_fallback_array *array = &step.fallback->arrays[i];
        array_line line = {.shape = array->shape};
        snprintf(line.name, sizeof line.name, "%s", array->name);
        OCT_TRY(
            add_line(text, "array", dtype_name((int)array->dtype), ONE_GROUP(&line, array_fields)));
    }
    return OCT_OK;
}

oct_status oct_program_write_text(const oct_program *program, oct_text *text)
{
    oct_program copy = *program;
    OCT_TRY(add_line(text, "program", rounding_name((int)program->requantizer),
                     ONE_GROUP(&copy, program_fields)));
    for (int64_t i = 0; i < program->num_values; i++) {
        oct_value value = program->values[i];
        OCT_TRY(add_line(text, "value", dtype_name((int)value.dtype), groups_of_value(&value)));
    }
    for (int64_t i = 0; i < program->num_steps; i++)
        OCT_TRY(add_step(text, program->steps[i]));
    return OCT_OK;
}

/* Reading. */

typedef struct reader {
    oct_program *program;
    int64_t values, steps; /* that have been read */
    size_t arrays;         /* for which the last step's fallback has room */
} reader;

/* Cuts a word off a text, up to `end` or the text's end. Afterwards *text is what follows, NULL where nothing does. */
static char *cut(char **text, char end)
{
    char *word = *text, *at = strchr(word, end);
    if (at) *at = '\0';
    *text = at ? at + 1 : NULL;
    return word;
}

/* The number whose name a word is; OCT_DATA where it is none of `count`. */
static oct_status find_name(const char *word, const char *what, const char *(*name)(int), int count,
                            int *found)
{
    for (*found = 0; *found < count; (*found)++)
        if (strcmp(name(*found), word) == 0) return OCT_OK;
    return oct_fail(OCT_DATA, "it is of a %s '%s' that this Octet does not know", what,
                    oct_show(word, strlen(word)).text);
}

/* A number within the field's bounds, or of a list any of its type; `at` is where it is written. */
static bool read_number(const oct_field *field, const char *word, void *at)
{
    const bool narrow = field->type == OCT_FIELD_S32;
    int64_t whole = 0, low = field->min, high = field->max;
    char *end;
    if (field->type == OCT_FIELD_F32 || field->type == OCT_FIELD_F64) {
        const double real = oct_strtod(word, &end);
        const float single = (float)real;
        if (end == word || *end != '\0' || isnan(real)) return false;
        if (field->type == OCT_FIELD_F64) return memcpy(at, &real, sizeof real);
        return (double)single == real && memcpy(at, &single, sizeof single);
    }
    if (field->list) low = narrow ? INT32_MIN : INT64_MIN, high = narrow ? INT32_MAX : INT64_MAX;
    if (!oct_parse_i64(word, &whole) || whole < low || whole > high) return false;
    if (field->type == OCT_FIELD_BOOL) return memcpy(at, &(bool){whole != 0}, sizeof(bool));
    if (field->type == OCT_FIELD_S64) return memcpy(at, &whole, sizeof whole);
    return memcpy(at, &(int32_t){(int32_t)whole}, sizeof(int32_t));
}

static oct_status read_field(const oct_field *field, char *owner, char *word)
{
    char *at = owner + field->offset;
    int count = 0;
    if (field->type == OCT_FIELD_TEXT) {
        OCT_CHECK(strlen(word) <= (size_t)field->max, OCT_DATA, "its %s is longer than %lld bytes",
                  field->name, (long long)field->max);
        memcpy(at, word, strlen(word) + 1);
        return OCT_OK;
    }
    if (!field->list) {
        OCT_CHECK(read_number(field, word, at), OCT_DATA, "its %s is %s", field->name,
                  oct_show(word, strlen(word)).text);
        return OCT_OK;
    }
    for (char *rest = *word ? word : NULL; rest; count++) {
        const char *number = cut(&rest, ',');
        OCT_CHECK(count < field->max, OCT_DATA, "its %s are more than %lld", field->name,
                  (long long)field->max);
        OCT_CHECK(read_number(field, number, at + (size_t)count * item_bytes[field->type]),
                  OCT_DATA, "its %s have the number %s", field->name,
                  oct_show(number, strlen(number)).text);
    }
    memcpy(owner + field->count, &count, sizeof count);
    return OCT_OK;
}

/* The place of a field among all of the groups, or -1. */
static int find_field(const groups *g, const char *name, const oct_field **field, char **owner)
{
    int place = 0;
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->item[i].count; k++, place++)
            if (strcmp(g->item[i].fields[k].name, name) == 0) {
                *field = &g->item[i].fields[k];
                *owner = g->item[i].owner;
                return place;
            }
    return -1;
}

/* Reads the fields of a line: each must be there once. line: NULL when there is none. */
static oct_status read_fields(char *line, groups g)
{
    bool seen[FIELDS_MAX] = {false};
    const oct_field *field;
    char *owner;
    while (line) {
        char *name = line, *equals = strchr(line, '=');
        OCT_CHECK(equals, OCT_DATA, "'%s' is no field", oct_show(line, strlen(line)).text);
        *equals = '\0';
        line = equals + 1;
        char *value = cut(&line, strcmp(name, "name") == 0 ? '\n' : ' ');
        const int place = find_field(&g, name, &field, &owner);
        OCT_CHECK(place >= 0 && place < FIELDS_MAX, OCT_DATA, "it has no field '%s'",
                  oct_show(name, strlen(name)).text);
        OCT_CHECK(!seen[place], OCT_DATA, "its %s is there twice", field->name);
        seen[place] = true;
        OCT_TRY(read_field(field, owner, value));
    }
    int place = 0;
    for (int i = 0; i < g.count; i++)
        for (int k = 0; k < g.item[i].count; k++)
            OCT_CHECK(seen[place++], OCT_DATA, "its %s is missing", g.item[i].fields[k].name);
    return OCT_OK;
}

static oct_status read_value(reader *r, const char *type, char *fields)
{
    int dtype;
    oct_value *value = &r->program->values[r->values];
    OCT_TRY(find_name(type, "type", dtype_name, DTYPES, &dtype));
    value->dtype = (oct_dtype)dtype;
    OCT_TRY(read_fields(fields, groups_of_value(value)));
    r->values++;
    return OCT_OK;
}

/* Reads the line of a step, which may be a float fallback. */
static oct_status read_step(reader *r, const char *type, char *fields)
{
    fallback_line fallback = {.num_dims = 0};
    int kind;
    oct_step *step = &r->program->steps[r->steps];
    OCT_TRY(find_name(type, "kind", kind_name, OCT_STEP_KINDS, &kind));
    step->kind = (oct_step_kind)kind;
    OCT_TRY(read_fields(fields, groups_of_step(step, &fallback)));
    if (step->kind == OCT_STEP_FLOAT) {
        OCT_CHECK(fallback.num_dims == step->num_inputs, OCT_DATA, "it has %d inputs and %d dims",
                  step->num_inputs, fallback.num_dims);
        OCT_TRY(oct_alloc(&step->fallback, 1, sizeof *step->fallback));
        *step->fallback = fallback.fallback;
    }
    r->arrays = 0;
    r->steps++;
    return OCT_OK;
}

/* Reads the line of an array of the float fallback before it. */
static oct_status read_array(reader *r, const char *type, char *fields)
{
    oct_step *step = r->steps > 0 ? &r->program->steps[r->steps - 1] : NULL;
    array_line line = {.name = ""};
    int dtype;
    OCT_CHECK(step && step->kind == OCT_STEP_FLOAT, OCT_DATA,
              "it follows no step that stays float");
    oct_fallback *fallback = step->fallback;
    OCT_CHECK(fallback->num_arrays < OCT_FALLBACK_ARRAYS_MAX, OCT_DATA, "the step has more than %d",
              OCT_FALLBACK_ARRAYS_MAX);
    OCT_TRY(find_name(type, "type", dtype_name, DTYPES, &dtype));
    OCT_TRY(read_fields(fields, ONE_GROUP(&line, array_fields)));
    OCT_TRY(oct_grow(&fallback->arrays, &r->arrays, (size_t)fallback->num_arrays + 1,
                     sizeof *fallback->arrays));
    oct_fallback_array *array = &fallback->arrays[fallback->num_arrays];
    *array = (oct_fallback_array){.dtype = (oct_dtype)dtype, .shape = line.shape};
    fallback->num_arrays++;
    return oct_strdup(&array->name, line.name);
}

static oct_status read_program(reader *r, const char *rounding, char *fields)
{
    int requantizer;
    OCT_TRY(find_name(rounding, "rounding", rounding_name, OCT_REQUANTIZERS, &requantizer));
    r->program->requantizer = (oct_requantizer)requantizer;
    return read_fields(fields, ONE_GROUP(r->program, program_fields));
}

/* Each line is of one of these; the first is of the first. */
enum { PROGRAM, VALUE, STEP, ARRAY };
static const struct {
    const char *name;
    oct_status (*read)(reader *r, const char *type, char *fields);
} records[] = {
    [PROGRAM] = {"program ", read_program},
    [VALUE] = {"value ", read_value},
    [STEP] = {"step ", read_step},
    [ARRAY] = {"array ", read_array},
};

static bool begins_with(const char *line, const char *word)
{
    return strncmp(line, word, strlen(word)) == 0;
}

/* Makes room for as many values and steps as there are lines of them. */
static oct_status make_room(oct_program *program, const char *text)
{
    int64_t values = 0, steps = 0;
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        values += begins_with(line, "value ");
        steps += begins_with(line, "step ");
    }
    OCT_CHECK(steps >= 1 && steps <= OCT_PROGRAM_STEPS_MAX && values >= 2 &&
                  values <= OCT_PROGRAM_STEPS_MAX + OCT_PROGRAM_INPUTS,
              OCT_DATA, "the program has no steps, or more than %d", OCT_PROGRAM_STEPS_MAX);
    OCT_TRY(oct_alloc(&program->values, (size_t)values, sizeof *program->values));
    OCT_TRY(oct_alloc(&program->steps, (size_t)steps, sizeof *program->steps));
    program->num_values = values;
    program->num_steps = steps;
    return OCT_OK;
}

static oct_status read_lines(oct_program *program, char *text)
{
    reader r = {.program = program};
    int64_t number = 1;
    OCT_TRY(make_room(program, text));
    for (char *rest = text; rest && *rest; number++) {
        char *fields = cut(&rest, '\n');
        size_t k = 0;
        while (k < OCT_COUNT(records) && !begins_with(fields, records[k].name))
            k++;
        OCT_CHECK(k < OCT_COUNT(records) && (k == PROGRAM) == (number == 1), OCT_DATA,
                  "line %lld of the program is none that can be there", (long long)number);
        fields += strlen(records[k].name);
        const char *type = cut(&fields, ' ');
        const long long place = k == VALUE ? r.values : k == STEP ? r.steps : r.steps - 1;
        if (records[k].read(&r, type, fields) == OCT_OK) continue;
        if (k == PROGRAM) return oct_fail_prefix("the program");
        return oct_fail_prefix("%s%lld", k == ARRAY ? "an array of step " : records[k].name, place);
    }
    return OCT_OK;
}

oct_status oct_program_read_text(oct_program *program, const char *text, size_t bytes)
{
    OCT_OWNED(oct_free) char *copy = NULL;
    *program = (oct_program){.num_steps = 0};
    for (size_t i = 0; i < bytes; i++)
        OCT_CHECK(((unsigned char)text[i] >= ' ' || text[i] == '\n' || text[i] == '\t') &&
                      text[i] != 0x7f,
                  OCT_DATA, "byte %zu of the program is a control character", i);
    OCT_TRY(oct_alloc(&copy, bytes + 1, 1));
    memcpy(copy, text, bytes);
    return read_lines(program, copy);
}
