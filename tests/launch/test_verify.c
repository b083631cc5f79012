/* Each field of a model is changed in turn, and the digests that follow from the program are put right again: `octet
 * verify` refuses it, or io/README.md says why the field cannot matter. */
#include "core/base/mem.h"
#include "io/image/decode.h"
#include "io/model/model_file.h"
#include "launch/deploy/certificate.h"
#include "quant/program/step.h"
#include "tests/launch/small_data.h"
#include "tests/support/check_status.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { SIDE = 12, IMAGES = 4, CLASSES = 3, DIGEST = 32 };

#define MODEL "run/model.int8.h5"
#define CHANGED "changed.int8.h5"

TestSuite(verify, .fini = leave_folder, .timeout = 300);

static void write_picture(const char *path, uint32_t seed)
{
    oct_image image = {0};
    void *bytes = NULL;
    size_t size;
    MUST(oct_image_resize(&image, OCT_U8, SIDE, SIDE, 1));
    for (int i = 0; i < SIDE * SIDE; i++)
        ((uint8_t *)image.data)[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    MUST(oct_png_write(&image, &bytes, &size));
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, size, file) == size);
    fclose(file);
    oct_free(&bytes);
    oct_image_free(&image);
}

/* A run on pictures in folders, whose classes have names. */
static void train(void)
{
    static const char *const splits[] = {"train", "test"};
    enter_folder();
    must("mkdir data && cd data && mkdir -p train/cat train/dog train/eel test/cat test/dog "
         "test/eel");
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < CLASSES * IMAGES; i++) {
            char path[64];
            snprintf(path, sizeof path, "data/%s/%.3s/%d.png", splits[s], "catdogeel" + i % 3 * 3,
                     i);
            write_picture(path, (uint32_t)(i + 100 * s + 1));
        }
    oct_tmp_write_text(&tmp, "r.yaml", small_recipe);
    must(OCT_PROGRAM
         " train r.yaml output=run data.format=folder data.channels=1 data.size=12 batch.size=4 -q "
         ">log 2>&1 || { cat log; exit 1; }");
    OCTET("verify", MODEL, "--data", "data");
    oct_check_exit(job, 0);
}

/* Puts right what follows from the program. */
static oct_status mend(oct_model *m)
{
    oct_free(&m->overflow_bound);
    OCT_TRY(oct_program_check(&m->program));
    OCT_TRY(oct_model_find_bounds(m));
    OCT_TRY(oct_golden_digests(&m->program, m->golden_input, m->certificate.golden_count,
                               m->golden_digest));
    return oct_model_write(CHANGED, m);
}

/* The exit status of verify after a change; of a model that cannot even be saved, OCT_DATA's. */
static int answer(oct_model *m)
{
    const oct_status status = mend(m);
    oct_model_free(m);
    oct_fail_clear();
    if (status != OCT_OK) return 3;
    OCTET("verify", CHANGED, "--data", "data");
    return job.exit_code;
}

static oct_model load(void)
{
    oct_model m;
    MUST(oct_model_load(&m, MODEL, false));
    return m;
}

static void replace(char **text, const char *from, const char *to)
{
    char *made, *at = strstr(*text, from);
    cr_assert(at, "no %s in %s", from, *text);
    MUST(oct_format(&made, "%.*s%s%s", (int)(at - *text), *text, to, at + strlen(from)));
    oct_free(text);
    *text = made;
}

#define CHANGE(name, ...)                                                                          \
    static void name(oct_model *m)                                                                 \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
CHANGE(mean, m->mean[0] += 0.01F)
CHANGE(deviation, m->std[0] *= 1.5F)
CHANGE(recipe_mean, replace(&m->recipe, "mean: [0.5]", "mean: [0.25]"))
CHANGE(recipe_target, replace(&m->recipe, "target: x86", "target: tflite"))
CHANGE(recipe_format, replace(&m->recipe, "format: folder", "format: idx"))
CHANGE(names, replace(&m->class_names, "cat\ndog", "dog\ncat"))
CHANGE(format, replace(&m->data_format, "folder", "idx"))
CHANGE(classes, m->classes++)
CHANGE(target, snprintf(m->program.target, sizeof m->program.target, "tflite"))
CHANGE(requantizer, m->program.requantizer = OCT_REQUANT_DOUBLE)
CHANGE(golden_input, m->golden_input[0] += 1)
CHANGE(golden_count, m->certificate.golden_count = 0)
CHANGE(images, m->certificate.images++)
CHANGE(rows, m->certificate.rows = 20000)
CHANGE(logits_differ, m->certificate.logits_differ = 7)
CHANGE(correct, m->certificate.correct++)
CHANGE(accuracy, m->certificate.qat_accuracy += 0.5)
CHANGE(better, m->certificate.correct = 12; m->certificate.qat_accuracy = 100)
CHANGE(no_classes, m->certificate.correct = 0; m->certificate.qat_accuracy = -1)
CHANGE(fallbacks, m->certificate.num_fallbacks++)
CHANGE(logits, m->certificate.logits_digest[0] ^= 1)
CHANGE(data, m->certificate.data_digest[0] ^= 1)
/* What io/README.md says does not matter. */
CHANGE(learning_rate, replace(&m->recipe, "lr: 0.01", "lr: 0.02"))
CHANGE(no_names, oct_free(&m->class_names))
CHANGE(checkpoint, m->checkpoint_digest[0] ^= 1)
CHANGE(ports, MUST(oct_strdup(&m->port_names, "image\nlogits\n")))
CHANGE(one_port, MUST(oct_strdup(&m->port_names, "image\n")))
CHANGE(plugins, MUST(oct_strdup(&m->plugins, "00  none.so\n")))
CHANGE(fallback_text, MUST(oct_strdup(&m->certificate.fallbacks, "none\n")))
CHANGE(step_name, m->program.steps[0].name[0] = 'x')

Test(verify, refuses_what_does_not_fit_recipe_data_or_figures)
{
    static const struct {
        const char *name;
        void (*change)(oct_model *m);
    } fields[] = {
#define FIELD(name) {#name, name}
        FIELD(mean),          FIELD(deviation),     FIELD(recipe_mean),
        FIELD(recipe_target), FIELD(recipe_format), FIELD(names),
        FIELD(format),        FIELD(classes),       FIELD(target),
        FIELD(requantizer),   FIELD(golden_input),  FIELD(golden_count),
        FIELD(images),        FIELD(rows),          FIELD(logits_differ),
        FIELD(correct),       FIELD(accuracy),      FIELD(better),
        FIELD(no_classes),    FIELD(fallbacks),     FIELD(logits),
        FIELD(data),          FIELD(one_port),      {NULL, NULL}, /* the others do not matter */
        FIELD(learning_rate), FIELD(no_names),      FIELD(checkpoint),
        FIELD(plugins),       FIELD(fallback_text), FIELD(step_name),
        FIELD(ports),
    };
    bool matters = true;
    train();
    for (size_t i = 0; i < OCT_COUNT(fields); i++) {
        oct_model m = load();
        if (!fields[i].change) matters = false;
        if (fields[i].change) fields[i].change(&m);
        const int code = answer(&m);
        cr_expect(matters ? code == 1 || code == 3 : code == 0, "%s: exit status %d",
                  fields[i].name, code);
    }
}

/* Names over data that have none, and data of as many images: each sentence says what differs. */
Test(verify, names_what_differs)
{
    enter_with_run();
    oct_model m = load();
    MUST(oct_strdup(&m.class_names, "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"));
    cr_assert_eq(answer(&m), 1);
    oct_check_said(job, "calls its class 0 a, but the test data here name no classes");
    m = load();
    m.certificate.data_digest[0] ^= 1;
    cr_assert_eq(answer(&m), 3);
    oct_check_said(job, "data: not the test data of the certificate (40 images here, 40 there, "
                        "but of another size or SHA-256)");
}

/* One number more in each field and array of each step, and in each value. Where an output changes for one of the golden
 * inputs, which are test images, so do the logits of the test set. */

static uint8_t outputs[OCT_GOLDEN_IMAGES][DIGEST]; /* before */

static bool changes_outputs(const oct_model *m)
{
    const oct_program *p = &m->program;
    for (int64_t i = 0; i < m->certificate.golden_count; i++)
        if (memcmp(outputs[i], m->golden_digest + (i * p->num_values + p->output) * DIGEST,
                   DIGEST) != 0)
            return true;
    return false;
}

static void expect_refusal(oct_model *m, const char *name, const char *what)
{
    const bool harmless = mend(m) == OCT_OK && !changes_outputs(m);
    oct_model_free(m);
    oct_fail_clear();
    if (!harmless) return;
    OCTET("verify", CHANGED, "--data", "data");
    cr_expect_neq(job.exit_code, 0, "%s: %s", name, what);
}

/* Geometry that no number depends on: of pools the groups, and padding that no window reaches or that is rounded; of
 * a single pixel how far windows are apart. */
static bool no_number_depends_on(const oct_step *step, const char *field)
{
    static const char *const pools[] = {"shape.groups", "shape.pad_bottom", "shape.pad_right",
                                        "ceil"};
    static const char *const pixels[] = {"shape.stride_h",   "shape.stride_w", "shape.dilation_h",
                                         "shape.dilation_w", "input_step_h",   "input_step_w"};
    const bool pixel = step->conv.shape.in_h == 1 && step->conv.shape.in_w == 1;
    for (size_t i = 0; step->kind == OCT_STEP_MAX_POOL && i < OCT_COUNT(pools); i++)
        if (strcmp(field, pools[i]) == 0) return true;
    for (size_t i = 0; pixel && i < OCT_COUNT(pixels); i++)
        if (strcmp(field, pixels[i]) == 0) return true;
    return false;
}

static int64_t whole_number(const oct_field *field, const void *at)
{
    return field->type == OCT_FIELD_BOOL  ? *(const bool *)at
           : field->type == OCT_FIELD_S32 ? *(const int32_t *)at
                                          : *(const int64_t *)at;
}

static void change_field(int64_t s, const oct_field *field)
{
    oct_model m = load();
    oct_step *step = &m.program.steps[s];
    char *at = (char *)step + field->offset;
    const int64_t up =
        field->type == OCT_FIELD_F32 || whole_number(field, at) < field->max ? 1 : -1;
    if (field->type == OCT_FIELD_F32)
        *(float *)(void *)at = *(float *)(void *)at * 1.5F + 1;
    else if (field->type == OCT_FIELD_BOOL)
        *at = !*at;
    else if (field->type == OCT_FIELD_S32)
        *(int32_t *)(void *)at += (int32_t)up;
    else
        *(int64_t *)(void *)at += up;
    const bool in_range = field->type == OCT_FIELD_F32 || whole_number(field, at) >= field->min;
    if (in_range && !no_number_depends_on(step, field->name))
        expect_refusal(&m, step->name, field->name);
    oct_fail_clear();
    oct_model_free(&m);
}

static void change_array(int64_t s, const oct_step_array *array)
{
    oct_model m = load();
    oct_step *step = &m.program.steps[s];
    union {
        const void *in;
        void *out;
    } data = {.in = oct_step_data(step, array)};
    const int64_t bytes =
        oct_step_array_numel(step, array) * (int64_t)oct_dtype_bytes(array->dtype);
    for (int64_t i = 0; i < bytes; i += 4)
        if (array->dtype == OCT_F32)
            ((float *)data.out)[i / 4] *= 1.5F;
        else
            ((uint8_t *)data.out)[i] ^= 0x15;
    expect_refusal(&m, step->name, array->name);
}

static void change_value(int64_t v, int number)
{
    static const char *const names[] = {"scale", "zero_point", "qmax", "h", "w", "c"};
    oct_model m = load();
    oct_value *value = &m.program.values[v];
    char name[32];
    snprintf(name, sizeof name, "value %d", (int)v);
    if (number == 0) value->q.scale *= 1.5F;
    if (number == 1) value->q.zero_point++;
    if (number == 2) value->q.qmax--;
    if (number == 3) value->h++;
    if (number == 4) value->w++;
    if (number == 5) value->c++;
    const bool codes = value->dtype == OCT_U8 || value->dtype == OCT_U16;
    if (codes || number > 2) expect_refusal(&m, name, names[number]);
    oct_model_free(&m);
}

Test(verify, refuses_another_number_anywhere_in_the_program)
{
    train();
    oct_model m = load();
    const oct_program *p = &m.program;
    for (int64_t i = 0; i < m.certificate.golden_count; i++)
        memcpy(outputs[i], m.golden_digest + (i * p->num_values + p->output) * DIGEST, DIGEST);
    for (int64_t s = 0; s < p->num_steps; s++) {
        const oct_step_type *type = oct_step_type_of(p->steps[s].kind);
        for (int i = 0; i < type->num_fields; i++)
            change_field(s, &type->fields[i]);
        for (int i = 0; i < type->num_arrays; i++)
            change_array(s, &type->arrays[i]);
    }
    for (int64_t v = 0; v < p->num_values; v++)
        for (int i = 0; i < 6; i++)
            change_value(v, i);
    oct_model_free(&m);
}
