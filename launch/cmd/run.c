/* octet run runs the integer model on images of files, and prints what it says about them. */
#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "io/file/file.h"
#include "io/image/decode.h"
#include "io/batch/normalise.h"
#include "io/model/model_file.h"
#include "launch/deploy/certificate.h"
#include "launch/cmd/command.h"
#include "launch/session/job.h"
#include "launch/cmd/run.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <sys/stat.h>

enum { INPUT, INDEX, COUNT, OUTPUT, LOGITS, IMAGES, RAW };
enum { IMAGES_MAX = 1 << 20 };

static const oct_option options[] = {
    [INPUT] = OCT_TEXT('i', "--input", "PATH", "a file of images, or a data set"),
    [INDEX] = OCT_NUMBER(0, "--index", "I", 0, INT32_MAX, "first image of each PATH (default 0)"),
    [COUNT] = OCT_NUMBER(0, "--count", "N", 1, IMAGES_MAX,
                         "how many images of each PATH (default 1; all of a folder of pictures)"),
    [OUTPUT] = OCT_TEXT('o', "--output", "FILE.png",
                        "where to write the class of each pixel (data.goal: map)"),
    [LOGITS] = OCT_SWITCH(0, "--logits", "all numbers that the model returns, too"),
    [IMAGES] =
        OCT_TEXT(0, "--images", "NAME",
                 "the array of images in an .npz or .h5 file, where its name is not the usual"),
    [RAW] = OCT_SWITCH(0, "--raw", "PATH holds bytes of images as the model takes them"),
    {0},
};

/* Images are read, run and printed one after another, so that however many take the memory of one. */
typedef struct running {
    const oct_args *args;
    const oct_model *model;
    const oct_answer_kind *kind;
    oct_answer answer; /* of the image at hand */
    oct_recipe recipe; /* in the model */
    oct_augment augment;
    oct_image_wanted wanted;
    oct_normaliser normaliser;
    oct_runtime *runtime;
    oct_image image;
    float *x; /* the image as the model gets it */
    void *y;  /* what it returned */
    int64_t done;
    bool resizes; /* which was said */
    double seconds;
} running;

/* With --input, words after the model are more of it, as a shell makes them of photos/ *.jpg. */
static size_t count_paths(const oct_args *args)
{
    return args->num_words - 1 + args->option[INPUT].given;
}

static oct_status write_picture(const running *r, const char *file)
{
    OCT_OWNED(oct_image_free) oct_image picture = {0};
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size = 0;
    OCT_TRY(r->kind->draw(&r->answer, &picture));
    OCT_TRY(oct_png_write(&picture, &bytes, &size));
    return oct_file_write(file, bytes, size);
}

static double output_at(const oct_answer *a, int64_t k)
{
    return a->out->dtype == OCT_S32 ? ((const int32_t *)a->y)[k] : (double)((const float *)a->y)[k];
}

static oct_status print_json(const running *r, const char *name)
{
    const char *output = r->args->option[OUTPUT].text;
    json_t *logits = r->args->option[LOGITS].given ? json_array() : NULL;
    for (int64_t k = 0; logits && k < oct_value_numel(r->answer.out); k++)
        json_array_append_new(logits, oct_json_number(output_at(&r->answer, k)));
    json_t *object = json_pack("{s:s, s:I, s:o*}", "file", name, "image",
                               (json_int_t)r->answer.index, "logits", logits);
    oct_status status;
    /* The document is written as its images come: an object that is not closed says that the run failed. */
    if (r->done == 0) {
        oct_print("{\"model\":\n");
        oct_print_json(json_string(r->args->word[0]));
        if (output) oct_print(", \"output\":\n");
        if (output) oct_print_json(json_string(output));
    }
    oct_print(r->done > 0 ? "," : ", \"images\": [\n");
    status = r->kind->add(&r->answer, object);
    oct_print_json(object);
    return status;
}

static oct_status print_text(const running *r, const char *name, bool alone)
{
    const bool named = count_paths(r->args) > 1;
    if (alone || named) oct_print("%s%s", name, alone ? ": " : ", ");
    if (!alone) oct_print("image %" PRId64 ": ", r->answer.index);
    OCT_TRY(r->kind->print(&r->answer));
    for (int64_t k = 0; r->args->option[LOGITS].given && k < oct_value_numel(r->answer.out); k++)
        oct_print("%s%.9g", k == 0 ? "; outputs " : " ", output_at(&r->answer, k));
    oct_print("\n");
    return OCT_OK;
}

static oct_status run_image(running *r, const oct_dataset *data, int64_t i, const char *name)
{
    const char *file = r->args->option[OUTPUT].text;
    const bool alone = data->format->sample_name || (data->count == 1 && count_paths(r->args) > 1);
    r->answer.index = i;
    OCT_TRY(oct_images_read(data, i, name, &r->wanted, &r->image));
    oct_normalise_image(&r->image, &r->normaliser, r->x);
    const double begin = oct_seconds();
    OCT_TRY(oct_runtime_run(r->runtime, 1, (const float *[]){r->x}, r->y));
    r->seconds += oct_seconds() - begin;
    if (file) OCT_TRY(write_picture(r, file));
    OCT_TRY(r->args->json ? print_json(r, name) : print_text(r, name, alone));
    r->done++;
    return oct_print_flush(); /* what cannot be written ends the run */
}

/* Says without being asked that there are more images, and once that others than the model takes are resized. */
static void report_choices(running *r, const oct_dataset *data, const char *path, int64_t count)
{
    const int64_t all = data->count - r->args->option[INDEX].count;
    if (count < all && !r->args->option[COUNT].given)
        oct_log(OCT_LOG_INFO,
                "%s: %" PRId64 " of its %" PRId64 " images; --count %" PRId64 " takes all", path,
                count, all, all);
    if (!r->wanted.augment || r->wanted.raw || r->resizes ||
        (data->read_h == r->answer.in->h && data->read_w == r->answer.in->w))
        return;
    r->resizes = true;
    oct_log(OCT_LOG_INFO,
            "%s: images of another size become %" PRId64 "x%" PRId64
            " by the transforms of the model's recipe (data.size, data.test)",
            path, r->answer.in->h, r->answer.in->w);
}

/* Names a sample: the path of its picture, which the data set gives from its folder on, or from that of its table; without
 * pictures, path. The caller frees *name. */
static oct_status name_sample(const oct_dataset *data, int64_t i, const char *path, char **name)
{
    struct stat info;
    if (!data->format->sample_name) return oct_strdup(name, path);
    const char *picture = data->format->sample_name(data, i);
    if (strncmp(picture, "./", 2) == 0) picture += 2; /* it is in the folder itself */
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) length = strlen(path);
    return oct_format(name, "%.*s%s%s", (int)length, path,
                      length > 0 && path[length - 1] != '/' ? "/" : "", picture);
}

static oct_status run_path(running *r, const char *path)
{
    const oct_args *args = r->args;
    const int64_t first = args->option[INDEX].count;
    OCT_OWNED(oct_dataset_close) oct_dataset data = {0};
    OCT_TRY(oct_images_open(&data, path, &r->recipe, &r->wanted));
    const int64_t most = data.format->sample_name ? oct_max_i64(data.count - first, 1) : 1;
    const int64_t count = oct_option_count(args, COUNT, most);
    OCT_CHECK(data.count > 0, OCT_DATA, "%s: holds no images", path);
    OCT_CHECK_ARGS(first < data.count && count <= data.count - first,
                   "--index and --count ask for images %" PRId64 " to %" PRId64
                   ", but %s holds images 0 to %" PRId64,
                   first, first + count - 1, path, data.count - 1);
    OCT_CHECK_ARGS(!args->option[OUTPUT].given || (count == 1 && count_paths(args) == 1),
                   "--output is for one image; name one PATH and write --count 1");
    OCT_TRY(oct_model_check_work(r->model, r->done + count, args->allow_large, path));
    report_choices(r, &data, path, count);
    for (int64_t i = first; i < first + count; i++) {
        OCT_OWNED(oct_free) char *name = NULL;
        OCT_TRY(name_sample(&data, i, path, &name));
        oct_text_clean(name); /* JSON holds nothing but UTF-8 */
        OCT_TRY(run_image(r, &data, i, name));
    }
    return OCT_OK;
}

/* Sets up what all images share: the model's recipe and transforms, the kind of answer, the buffers x and y, and the
 * runtime. */
static oct_status prepare_run(running *r)
{
    const oct_program *program = &r->model->program;
    const oct_value *in = &program->values[program->inputs[0]];
    r->answer = (oct_answer){
        .in = in, .out = &program->values[program->output], .names = r->model->class_names};
    const char *path = r->args->word[0];
    const oct_status status =
        oct_model_has_recipe(r->model)
            ? oct_recipe_read(&r->recipe, path, r->model->recipe, NULL, 0)
            : oct_job_program_recipe(&r->recipe, path, r->model, NULL, NULL, 0);
    if (status == OCT_USAGE)
        return oct_fail(OCT_DATA, "%s: the recipe in the model: %s", path, oct_error_message(0));
    OCT_TRY(status);
    oct_recipe_augment(&r->recipe, OCT_TEST, &r->augment);
    r->kind = oct_answer_kind_of(&r->recipe, r->answer.in, r->answer.out);
    OCT_CHECK_ARGS(!r->args->option[OUTPUT].given || r->kind->draw,
                   "--output writes a map of classes, but data.goal of %s is %s; leave it out",
                   path, oct_registry_name(&oct_goal_kind_table, r->recipe.data_goal));
    r->wanted =
        (oct_image_wanted){.h = in->h,
                           .w = in->w,
                           .c = in->c,
                           .images = r->args->option[IMAGES].text,
                           .augment = oct_augment_is_empty(&r->augment) ? NULL : &r->augment,
                           .raw = r->args->option[RAW].given};
    /* Where there are more channels than values, the first holds for all. */
    r->normaliser.count = in->c <= OCT_REALS_MAX ? (int)in->c : 1;
    memcpy(r->normaliser.mean, r->model->mean, sizeof r->normaliser.mean);
    memcpy(r->normaliser.std, r->model->std, sizeof r->normaliser.std);
    OCT_TRY(oct_alloc(&r->x, (size_t)(in->h * in->w * in->c), sizeof(float)));
    OCT_TRY(oct_alloc(&r->y, 1, oct_value_bytes(r->answer.out)));
    r->answer.x = r->x;
    r->answer.y = r->y;
    return oct_runtime_create(&r->runtime, program,
                              &(oct_runtime_options){.host = &oct_module_fallbacks});
}

static oct_status run_int8_model(const oct_args *args)
{
    const char *path = args->word[0], *input = args->option[INPUT].text;
    OCT_OWNED(oct_model_free) oct_model model = {0};
    running r = {.args = args, .model = &model};
    oct_status status = OCT_OK;
    OCT_CHECK_ARGS(count_paths(args) > 0, "--input is missing; write octet run %s --input PATH",
                   path);
    OCT_TRY(oct_file_need_model(path));
    OCT_TRY(oct_model_load(&model, path, args->allow_large));
    OCT_TRY_OUT(oct_model_check_runnable(&model, path));
    OCT_TRY_OUT(prepare_run(&r));
    for (size_t i = 0; i < count_paths(args); i++)
        OCT_TRY_OUT(run_path(&r, !input ? args->word[1 + i] : i == 0 ? input : args->word[i]));
    const double each_ms = 1e3 * r.seconds / (double)oct_max_i64(r.done, 1);
    if (args->option[OUTPUT].given && !args->json)
        oct_print("%s: the class of each pixel as its grey value\n", args->option[OUTPUT].text);
    args->json ? oct_print("], \"ms_per_image\": %.9g}\n", each_ms)
               : oct_print("%.3f ms an image\n", each_ms);
out:
    oct_runtime_destroy(&r.runtime);
    oct_recipe_free(&r.recipe);
    oct_image_free(&r.image);
    oct_free(&r.x);
    oct_free(&r.y);
    return status;
}

const oct_command oct_command_run = {
    .name = "run",
    .usage = "octet run MODEL --input PATH ... [--index I] [--count N] [--output MAP.png] [--raw]",
    .summary = "runs an int8 model on images",
    .help =
        "PATH is a JPEG, PNG, .npy, IDX, CIFAR-10 batch, PGM or PPM file, several of them, or a\n"
        "data set as recipes read it (a folder of pictures, arrays in .npz, .npy or .h5, a table\n"
        "in .csv, ...): of that the test part, or all where it has none. data.size and data.test\n"
        "of the model's recipe bring images to the size that it takes; without them, others are\n"
        "refused.\n"
        "\n"
        "Prints what the model says of each image, and the time per image. What that is follows\n"
        "from the data.goal that it learned:\n"
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
        "--logits adds all outputs, --json has the numbers of each image.\n"
        "\n"
        "    octet run model.int8.h5 --input t10k-images-idx3-ubyte.gz --count 5\n"
        "    octet run sounds.int8.h5 --input spectrograms.npy --count 10\n"
        "    octet run cats.int8.h5 --input photos/\n"
        "    octet run roads.int8.h5 --input street.png --output map.png\n",
    .options = options,
    .min_words = 1,
    .max_words = OCT_ARGS_MAX,
    .run = run_int8_model,
};
