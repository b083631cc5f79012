/* octet run runs the integer model on images of a file, and prints what it says about them. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/file.h"
#include "io/image/decode.h"
#include "io/batch/normalise.h"
#include "io/model/model_file.h"
#include "io/recipe/recipe.h"
#include "launch/deploy/certificate.h"
#include "launch/cmd/answer.h"
#include "launch/cmd/command.h"
#include "launch/session/file_kind.h"
#include "launch/cmd/image_file.h"
#include "launch/base/output.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

enum { INPUT, INDEX, COUNT, OUTPUT, RAW };
enum { IMAGES_MAX = 1 << 20 };

static const oct_option options[] = {
    [INPUT] = {"--input", 'i', OCT_OPT_TEXT, "FILE",
               "JPEG, PNG, .npy, IDX, CIFAR-10 batch, PGM or PPM", 0, 0},
    [INDEX] = {"--index", 0, OCT_OPT_COUNT, "I", "first image of the file (default 0)", 0,
               INT32_MAX},
    [COUNT] = {"--count", 0, OCT_OPT_COUNT, "N", "how many images (default 1)", 1, IMAGES_MAX},
    [OUTPUT] = {"--output", 'o', OCT_OPT_TEXT, "FILE.png",
                "where to write the class of each pixel (data.goal: map)", 0, 0},
    [RAW] = {"--raw", 0, OCT_OPT_FLAG, NULL, "FILE holds bytes of images as the model takes them",
             0, 0},
    {0},
};

/* This holds what a model returned for `count` images, in a row. */
typedef struct results {
    const oct_model *model;
    const oct_answer_kind *kind;
    const oct_value *in, *out;
    oct_image_samples samples;
    oct_normaliser normaliser;
    float *x; /* room for one image as the model gets it */
    void *data;
    int64_t first, count; /* images */
    double seconds;
} results;

/* Where there are more channels than values, the first holds for all. */
static oct_normaliser normaliser_of(const oct_model *model, int64_t channels)
{
    oct_normaliser n = {.count = channels <= OCT_REALS_MAX ? (int)channels : 1};
    memcpy(n.mean, model->mean, sizeof n.mean);
    memcpy(n.std, model->std, sizeof n.std);
    return n;
}

/* Fills x with image i. */
static void give(const results *r, int64_t i)
{
    const int64_t numel = r->in->h * r->in->w * r->in->c;
    const size_t bytes = (size_t)numel * oct_dtype_bytes(r->samples.dtype);
    const oct_image image = {.dtype = r->samples.dtype,
                             .h = r->in->h,
                             .w = r->in->w,
                             .c = r->in->c,
                             .data = (uint8_t *)r->samples.data + (size_t)i * bytes};
    oct_normalise_image(&image, &r->normaliser, r->x);
}

static void *place_of(const results *r, int64_t i)
{
    return (uint8_t *)r->data + (size_t)i * oct_value_bytes(r->out);
}

static oct_answer answer_of(const results *r, int64_t i)
{
    give(r, i);
    return (oct_answer){.in = r->in,
                        .out = r->out,
                        .names = r->model->class_names,
                        .index = r->first + i,
                        .x = r->x,
                        .y = place_of(r, i)};
}

static oct_status write_picture(const results *r, const char *file)
{
    const oct_answer answer = answer_of(r, 0);
    oct_image picture = {0};
    void *bytes = NULL;
    size_t size = 0;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_answer_picture(&answer, &picture));
    OCT_TRY_OUT(oct_png_write(&picture, &bytes, &size));
    OCT_TRY_OUT(oct_file_write(file, bytes, size));
out:
    oct_free(&bytes);
    oct_image_free(&picture);
    return status;
}

static oct_status print_text(const results *r, const char *file, double each_ms)
{
    for (int64_t i = 0; i < r->count; i++) {
        const oct_answer answer = answer_of(r, i);
        OCT_TRY(oct_print("image %" PRId64 ": ", answer.index));
        OCT_TRY(r->kind->print(&answer));
        OCT_TRY(oct_print("\n"));
    }
    if (file) OCT_TRY(oct_print("%s: the class of each pixel as its grey value\n", file));
    return oct_print("%.3f ms an image\n", each_ms);
}

static oct_status print_results(const oct_args *args, const results *r)
{
    const char *file = args->option[OUTPUT].text;
    const double each_ms = 1e3 * r->seconds / (double)r->count;
    oct_status status = OCT_OK;
    if (!args->json) return print_text(r, file, each_ms);
    json_t *images = json_array();
    for (int64_t i = 0; i < r->count; i++) {
        const oct_answer answer = answer_of(r, i);
        json_t *object = json_pack("{s:I}", "image", (json_int_t)answer.index);
        json_array_append_new(images, object);
        OCT_TRY_OUT(r->kind->add(&answer, object));
    }
    return oct_print_json(json_pack("{s:s, s:f, s:s*, s:o}", "model", args->word[0], "ms_per_image",
                                    each_ms, "output", file, "images", images));
out:
    json_decref(images);
    return status;
}

/* The recipe in the model knows what its evaluation makes of samples, and what it learned. */
static oct_status look_at_recipe(results *r, const oct_args *args, oct_augment *augment)
{
    const char *path = args->word[0];
    oct_recipe recipe;
    oct_status status = oct_recipe_read(&recipe, path, r->model->recipe, NULL, 0);
    if (status == OCT_USAGE)
        return oct_fail(OCT_DATA, "%s: the recipe in the model: %s", path, oct_fail_text(0));
    OCT_TRY(status);
    oct_recipe_augment(&recipe, OCT_TEST, augment);
    r->kind = oct_answer_kind_of(&recipe, r->in, r->out);
    OCT_CHECK_OUT(
        !args->option[OUTPUT].given || r->kind == &oct_answer_map, OCT_USAGE,
        "command line: --output writes a map of classes, but data.goal of %s is %s; leave "
        "it out",
        path, oct_registry_name(&oct_goal_kind_table, recipe.data_goal));
out:
    oct_recipe_free(&recipe);
    return status;
}

/* Runs one image after another, as a user of a single image would see it. */
static oct_status run_images(const oct_model *model, const oct_args *args)
{
    const oct_program *program = &model->program;
    const oct_value *in = &program->values[program->inputs[0]];
    const oct_value *out = &program->values[program->output];
    const char *file = args->option[OUTPUT].text;
    results r = {.model = model,
                 .in = in,
                 .out = out,
                 .first = args->option[INDEX].count,
                 .count = args->option[COUNT].given ? args->option[COUNT].count : 1};
    oct_runtime *runtime = NULL;
    oct_augment augment;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(look_at_recipe(&r, args, &augment));
    const oct_image_wanted wanted = {in->h, in->w, in->c,
                                     oct_augment_is_empty(&augment) ? NULL : &augment,
                                     args->option[RAW].given};
    OCT_TRY_OUT(
        oct_image_file_read(args->option[INPUT].text, &wanted, r.first, r.count, &r.samples));
    r.normaliser = normaliser_of(model, in->c);
    OCT_TRY_OUT(oct_alloc(&r.x, (size_t)(in->h * in->w * in->c), sizeof(float)));
    OCT_TRY_OUT(oct_alloc(&r.data, (size_t)r.count, oct_value_bytes(out)));
    OCT_TRY_OUT(oct_runtime_create(&runtime, program, 1, &oct_module_islands));
    double begin = oct_seconds();
    for (int64_t i = 0; i < r.count; i++) {
        give(&r, i);
        OCT_TRY_OUT(oct_runtime_run(runtime, 1, (const float *[]){r.x}, place_of(&r, i)));
    }
    r.seconds = oct_seconds() - begin;
    if (file) OCT_TRY_OUT(write_picture(&r, file));
    OCT_TRY_OUT(print_results(args, &r));
out:
    oct_runtime_destroy(&runtime);
    oct_free(&r.samples.data);
    oct_free(&r.x);
    oct_free(&r.data);
    return status;
}

static oct_status run(const oct_args *args)
{
    const char *path = args->word[0];
    oct_model model = {0};
    OCT_CHECK(args->option[INPUT].given, OCT_USAGE,
              "command line: --input is missing; write octet run %s --input FILE", path);
    OCT_CHECK(!args->option[OUTPUT].given || !args->option[COUNT].given ||
                  args->option[COUNT].count == 1,
              OCT_USAGE, "command line: --output is for one image; leave --count out");
    OCT_TRY(oct_file_need_model(path));
    OCT_TRY(oct_model_load(&model, path));
    oct_status status = oct_model_check_runnable(&model, path);
    if (status == OCT_OK) status = run_images(&model, args);
    oct_model_free(&model);
    return status;
}

const oct_command oct_command_run = {
    .name = "run",
    .usage = "octet run MODEL --input FILE [--index I] [--count N] [--output MAP.png] [--raw]",
    .summary = "runs an int8 model on the images in a file",
    .help =
        "Prints what the model says of each image, and the time per image. What that is follows "
        "from\n"
        "the data.goal that it learned:\n"
        "\n"
        "  class     the three most likely classes; where the model returns class numbers "
        "(argmax),\n"
        "            the class\n"
        "  values    with loss.kind: bce each label's probability, those above 50 % first; of "
        "other\n"
        "            losses the values\n"
        "  map       each class's share of the pixels; --output writes the map as a grey PNG "
        "whose\n"
        "            pixels are class numbers\n"
        "  input     the mean squared error between the input, as it is normalised, and the "
        "output\n"
        "\n"
        "--json has all numbers.\n"
        "\n"
        "    octet run model.int8.h5 --input t10k-images-idx3-ubyte.gz --count 5\n"
        "    octet run sounds.int8.h5 --input spectrograms.npy --count 10\n"
        "    octet run roads.int8.h5 --input street.png --output map.png\n",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
