/* octet run runs the integer model on images of a file, and prints what it says about them. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/class_names.h"
#include "io/loader.h"
#include "io/model_file.h"
#include "io/recipe.h"
#include "launch/run/certificate.h"
#include "launch/cmd/command.h"
#include "launch/run/file_kind.h"
#include "launch/cmd/image_file.h"
#include "launch/base/output.h"
#include "quant/pass/convert/convert.h"
#include "quant/runtime/step.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

enum { INPUT, INDEX, COUNT };
enum { SHOWN = 3, IMAGES_MAX = 1 << 20 };

static const oct_option options[] = {
    [INPUT] = {"--input", 'i', OCT_OPT_TEXT, "FILE",
               "JPEG, PNG, IDX, CIFAR-10 batch, PGM, PPM or raw bytes", 0, 0},
    [INDEX] = {"--index", 0, OCT_OPT_COUNT, "I", "first image of the file (default 0)", 0,
               INT32_MAX},
    [COUNT] = {"--count", 0, OCT_OPT_COUNT, "N", "how many images (default 1)", 1, IMAGES_MAX},
    {0},
};

typedef struct guess {
    int class;
    double probability;
} guess;

/* Finds the classes with the largest logits, and their softmax probabilities. */
static int best_guesses(const float *logits, int classes, guess best[SHOWN])
{
    double sum = 0, largest = (double)logits[0];
    int n = 0;
    for (int k = 1; k < classes; k++)
        largest = fmax(largest, (double)logits[k]);
    for (int k = 0; k < classes; k++) {
        double p = exp((double)logits[k] - largest);
        int at = n < SHOWN ? n++ : SHOWN;
        sum += p;
        for (; at > 0 && best[at - 1].probability < p; at--)
            if (at < SHOWN) best[at] = best[at - 1];
        if (at < SHOWN) best[at] = (guess){k, p};
    }
    for (int i = 0; i < n; i++)
        best[i].probability /= sum;
    return n;
}

static oct_status print_guesses(const char *names, int64_t index, const guess *best, int n)
{
    OCT_TRY(oct_print("image %" PRId64 ": %s, %.1f %%", index,
                      oct_class_name(names, best[0].class).text, 100 * best[0].probability));
    for (int i = 1; i < n; i++)
        OCT_TRY(oct_print("%s %s %.1f %%", i == 1 ? "; then" : ",",
                          oct_class_name(names, best[i].class).text, 100 * best[i].probability));
    return oct_print("\n");
}

/* Adds the name of a class to an object, where classes have names. */
static json_t *with_name(json_t *object, const char *names, int class)
{
    if (names) json_object_set_new(object, "name", json_string(oct_class_name(names, class).text));
    return object;
}

static json_t *guesses_json(const char *names, int64_t index, const guess *best, int n)
{
    json_t *top = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(top, with_name(json_pack("{s:i, s:f}", "class", best[i].class,
                                                       "probability", best[i].probability),
                                             names, best[i].class));
    return with_name(json_pack("{s:I, s:i, s:o}", "image", (json_int_t)index, "class",
                               best[0].class, "top", top),
                     names, best[0].class);
}

/* This holds what a model returned for `count` images, in a row. */
typedef struct results {
    const oct_value *value;
    const char *names; /* of classes, or NULL */
    int64_t numel;     /* of an image */
    void *data;
    int64_t first, count; /* images */
    double seconds;
} results;

/* A model that returns class numbers says nothing of how sure it is. */
static oct_status print_numbers(const results *r, int64_t i)
{
    const int32_t *number = (const int32_t *)r->data + i * r->numel;
    if (r->names && r->numel == 1)
        return oct_print("image %" PRId64 ": %s\n", r->first + i,
                         oct_class_name(r->names, number[0]).text);
    OCT_TRY(oct_print("image %" PRId64 ": class", r->first + i));
    for (int64_t k = 0; k < r->numel; k++)
        OCT_TRY(oct_print(" %d", (int)number[k]));
    return oct_print("\n");
}

static json_t *numbers_json(const results *r, int64_t i)
{
    const int32_t *number = (const int32_t *)r->data + i * r->numel;
    json_t *all = json_array();
    if (r->numel == 1) {
        json_decref(all);
        return with_name(
            json_pack("{s:I, s:i}", "image", (json_int_t)(r->first + i), "class", number[0]),
            r->names, number[0]);
    }
    for (int64_t k = 0; k < r->numel; k++)
        json_array_append_new(all, json_integer(number[k]));
    return json_pack("{s:I, s:o}", "image", (json_int_t)(r->first + i), "classes", all);
}

static oct_status print_results(const oct_args *args, const results *r)
{
    json_t *images = args->json ? json_array() : NULL;
    oct_status status = OCT_OK;
    double each_ms = 1e3 * r->seconds / (double)r->count;
    for (int64_t i = 0; i < r->count; i++) {
        guess best[SHOWN] = {0};
        bool numbers = r->value->dtype == OCT_S32;
        int n =
            numbers ? 0 : best_guesses((const float *)r->data + i * r->numel, (int)r->numel, best);
        if (args->json)
            json_array_append_new(images, numbers ? numbers_json(r, i)
                                                  : guesses_json(r->names, r->first + i, best, n));
        else
            OCT_TRY_OUT(numbers ? print_numbers(r, i)
                                : print_guesses(r->names, r->first + i, best, n));
    }
    if (!args->json) return oct_print("%.3f ms an image\n", each_ms);
    return oct_print_json(json_pack("{s:s, s:f, s:o}", "model", args->word[0], "ms_per_image",
                                    each_ms, "images", images));
out:
    json_decref(images);
    return status;
}

/* The recipe in the model knows what its evaluation makes of samples. */
static oct_status evaluation_of(const oct_model *model, const char *path, oct_augment *augment)
{
    oct_recipe recipe;
    const oct_status status = oct_recipe_read(&recipe, path, model->recipe, NULL, 0);
    if (status == OCT_USAGE)
        return oct_fail(OCT_DATA, "%s: the recipe in the model: %s", path, oct_fail_text(0));
    OCT_TRY(status);
    oct_recipe_augment(&recipe, OCT_TEST, augment);
    oct_recipe_free(&recipe);
    return OCT_OK;
}

/* Runs one image after another, as a user of a single image would see it. */
static oct_status run_images(const oct_model *model, const oct_args *args)
{
    const oct_program *program = &model->program;
    const oct_value *in = &program->values[program->inputs[0]];
    const oct_value *out = &program->values[program->output];
    int64_t image = in->h * in->w * in->c, bytes = (int64_t)oct_value_bytes(out);
    results r = {.value = out,
                 .names = model->class_names,
                 .numel = oct_value_numel(out),
                 .first = args->option[INDEX].count,
                 .count = args->option[COUNT].given ? args->option[COUNT].count : 1};
    oct_runtime *runtime = NULL;
    oct_augment augment;
    uint8_t *pixels = NULL;
    float *x = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(evaluation_of(model, args->word[0], &augment));
    const oct_image_wanted wanted = {in->h, in->w, in->c,
                                     oct_augment_is_empty(&augment) ? NULL : &augment};
    OCT_TRY_OUT(oct_image_file_read(args->option[INPUT].text, &wanted, r.first, r.count, &pixels));
    OCT_TRY_OUT(oct_alloc(&x, (size_t)image, sizeof(float)));
    OCT_TRY_OUT(oct_alloc(&r.data, (size_t)r.count, (size_t)bytes));
    OCT_TRY_OUT(oct_runtime_create(&runtime, program, 1, &oct_module_islands));
    double begin = oct_seconds();
    for (int64_t i = 0; i < r.count; i++) {
        oct_normalise(pixels + i * image, in->h * in->w, in->c, model->mean, model->std, x);
        OCT_TRY_OUT(
            oct_runtime_run(runtime, 1, (const float *[]){x}, (uint8_t *)r.data + i * bytes));
    }
    r.seconds = oct_seconds() - begin;
    OCT_TRY_OUT(print_results(args, &r));
out:
    oct_runtime_destroy(&runtime);
    oct_free(&pixels);
    oct_free(&x);
    oct_free(&r.data);
    return status;
}

static oct_status run(const oct_args *args)
{
    const char *path = args->word[0];
    oct_model model = {0};
    OCT_CHECK(args->option[INPUT].given, OCT_USAGE,
              "command line: --input is missing; write octet run %s --input FILE", path);
    OCT_TRY(oct_file_need_model(path));
    OCT_TRY(oct_model_load(&model, path));
    oct_status status = oct_model_check_runnable(&model, path);
    if (status == OCT_OK) status = run_images(&model, args);
    oct_model_free(&model);
    return status;
}

const oct_command oct_command_run = {
    .name = "run",
    .usage = "octet run MODEL --input FILE [--index I] [--count N]",
    .summary = "runs an int8 model on the images in a file",
    .help =
        "Prints the three most likely classes of each image and the time per image; of a model\n"
        "that returns class numbers (argmax), the class.\n"
        "\n"
        "    octet run model.int8.h5 --input t10k-images-idx3-ubyte.gz --count 5\n",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
