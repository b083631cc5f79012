#include "launch/cmd/calibrate_source.h"

#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "io/dataset/dataset.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"
#include "launch/cmd/import_recipe.h"
#include "launch/cmd/shipped.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), more = strlen(ending);
    return length >= more && strcmp(text + length - more, ending) == 0;
}

/* What tells the format of a data set: the ending of a file, or a file in the folder. */
static const struct {
    const char *ending, *file, *format;
} signs[] = {
    {".npz", "train.npz", "npz"},
    {".csv", "train.csv", "csv"},
    {".h5", "train.h5", "hdf5"},
    {".hdf5", "train.hdf5", "hdf5"},
    {NULL, "train_images.npy", "npy"},
    {NULL, "data_batch_1.bin", "cifar10"},
    {NULL, "train.bin", "cifar100"},
    {NULL, "train-images-idx3-ubyte", "idx"},
    {NULL, "train-images-idx3-ubyte.gz", "idx"},
};

static const char *format_of(const char *path)
{
    char file[4200];
    for (size_t i = 0; i < OCT_COUNT(signs); i++) {
        if (signs[i].ending && ends_with(path, signs[i].ending)) return signs[i].format;
        snprintf(file, sizeof file, "%s/%s", path, signs[i].file);
        if (access(file, R_OK) == 0) return signs[i].format;
    }
    return "folder";
}

/* The second word, where it is no key=value. */
static const char *data_of(const oct_args *args)
{
    if (args->num_words < 2 || strchr(args->word[1], '=')) return NULL;
    return args->word[1];
}

/* The words of a recipe's overrides; the data come first, so that keys go before them. */
typedef struct overrides {
    char path[4200], format[64];
    const char *word[OCT_ARGS_MAX + 4];
    size_t count;
} overrides;

static bool is_given(const oct_args *args, const char *key)
{
    for (size_t i = 1; i < args->num_words; i++)
        if (strncmp(args->word[i], key, strlen(key)) == 0) return true;
    return false;
}

static oct_status take_overrides(overrides *o, const oct_args *args, bool onnx)
{
    const char *data = data_of(args);
    o->count = 0;
    if (data) {
        OCT_CHECK(!is_given(args, "data.path="), OCT_USAGE,
                  "command line: %s and data.path: both name the data; leave one out",
                  oct_show(data, strlen(data)).text);
        OCT_CHECK(access(data, R_OK) == 0, OCT_DATA,
                  "%s: there are no such data; name a folder or file of a data set, or write "
                  "key=value",
                  oct_show(data, strlen(data)).text);
        OCT_CHECK(snprintf(o->path, sizeof o->path, "data.path=%s", data) < (int)sizeof o->path,
                  OCT_USAGE, "command line: the path of the data is too long");
        o->word[o->count++] = o->path;
    }
    if (data && onnx && !is_given(args, "data.format=")) {
        snprintf(o->format, sizeof o->format, "data.format=%s", format_of(data));
        o->word[o->count++] = o->format;
    }
    /* What is watched are the images that the network will see. */
    if (onnx && !is_given(args, "data.train=")) o->word[o->count++] = "data.train=[]";
    for (size_t i = data ? 2 : 1; i < args->num_words; i++)
        o->word[o->count++] = args->word[i];
    return OCT_OK;
}

static oct_status write_recipe(const char *path, oct_text *text)
{
    oct_onnx_graph graph = {0};
    void *bytes = NULL;
    size_t size;
    oct_status status = OCT_OK;
    OCT_TRY(oct_onnx_load(path, &bytes, &size));
    const oct_onnx_source source = {.path = path, .bytes = bytes, .size = size};
    OCT_TRY_OUT(oct_onnx_read_bytes(&graph, &source));
    OCT_TRY_OUT(oct_onnx_fold(&graph, 0, 0, 0));
    status = oct_import_recipe(&graph, path, path, false, text);
out:
    oct_onnx_free(&graph);
    oct_free(&bytes);
    return status;
}

static oct_status of_onnx(oct_recipe *recipe, const oct_args *args, const overrides *o)
{
    oct_text text = {0};
    const char *path = args->word[0];
    OCT_CHECK(data_of(args) || is_given(args, "data.path="), OCT_USAGE,
              "command line: %s alone has no data to watch; name them behind it: octet calibrate "
              "%s pictures",
              path, path);
    oct_status status = write_recipe(path, &text);
    if (status == OCT_OK) status = oct_recipe_read(recipe, path, text.data, o->word, o->count);
    oct_text_free(&text);
    return status;
}

oct_status oct_calibrate_recipe(oct_recipe *recipe, const oct_args *args)
{
    overrides o;
    const bool onnx = ends_with(args->word[0], ".onnx");
    OCT_TRY(take_overrides(&o, args, onnx));
    if (onnx) return of_onnx(recipe, args, &o);
    return oct_recipe_of_words(recipe, args->word[0], o.word, o.count);
}

bool oct_calibrate_guesses(const oct_args *args)
{
    return ends_with(args->word[0], ".onnx") && !is_given(args, "data.mean=");
}
