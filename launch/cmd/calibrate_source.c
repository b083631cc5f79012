#include "launch/cmd/calibrate_source.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "io/dataset/dataset.h"
#include "io/dataset/picture_list.h"
#include "io/dataset/zip_file.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"
#include "launch/cmd/import_recipe.h"
#include "launch/cmd/shipped.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
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
    char path[4200], format[64], images[320], classes[64];
    bool unlabelled; /* the data have no labels */
    const char *word[OCT_ARGS_MAX + 8];
    size_t count;
} overrides;

static bool is_given(const oct_args *args, const char *key)
{
    for (size_t i = 1; i < args->num_words; i++)
        if (strncmp(args->word[i], key, strlen(key)) == 0) return true;
    return false;
}

/* What a folder holds, hidden entries apart. */
typedef struct inside {
    bool pictures, folders;
} inside;

static inside look_into(const char *folder)
{
    inside found = {false, false};
    struct stat info;
    char file[4200];
    DIR *stream = opendir(folder);
    for (const struct dirent *e; stream && (e = readdir(stream)) != NULL;) {
        const int length = snprintf(file, sizeof file, "%s/%s", folder, e->d_name);
        if (e->d_name[0] == '.' || length >= (int)sizeof file || stat(file, &info) != 0) continue;
        found.folders = found.folders || S_ISDIR(info.st_mode);
        found.pictures = found.pictures || oct_is_picture_name(e->d_name);
    }
    if (stream) closedir(stream);
    return found;
}

/* Pictures that lie in a folder, or in its train, and not in folders of classes. */
static bool is_plain(const char *folder)
{
    char train[4200];
    snprintf(train, sizeof train, "%s/train", folder);
    const inside found = look_into(access(train, X_OK) == 0 ? train : folder);
    return found.pictures && !found.folders;
}

/* What an archive holds. */
typedef struct members {
    int64_t count;
    bool labels, pairs; /* arrays by the names of labels, and of both splits' samples */
    char first[256];
} members;

static oct_status look_into_archive(const char *path, members *m)
{
    oct_zip *zip = NULL;
    const char *name;
    OCT_TRY(oct_zip_open(&zip, path));
    for (; (name = oct_zip_name(zip, m->count)); m->count++) {
        const size_t length = strlen(name) - (ends_with(name, ".npy") ? 4 : 0);
        if (m->count == 0) snprintf(m->first, sizeof m->first, "%.*s", (int)length, name);
        m->labels = m->labels || strstr(name, "label") != NULL;
        m->pairs = m->pairs || strcmp(name, "train_images.npy") == 0;
    }
    oct_zip_close(&zip);
    return OCT_OK;
}

/* Says where samples without labels lie, where that can be seen: a folder of pictures, one array. */
static oct_status find_unlabelled(overrides *o, const oct_args *args, const char *data)
{
    const char *slash = strrchr(data, '/'), *name = slash ? slash + 1 : data;
    const int folder = (int)(name - data);
    members m = {0};
    o->images[0] = '\0';
    if (ends_with(data, ".npy")) {
        o->unlabelled = true;
        snprintf(o->path, sizeof o->path, "data.path=%.*s", folder > 0 ? folder : 1,
                 folder > 0 ? data : ".");
        snprintf(o->images, sizeof o->images, "data.images=%.*s",
                 (int)oct_min_i64((int64_t)strlen(name) - 4, 255), name);
        snprintf(o->format, sizeof o->format, "data.format=npy");
    } else if (ends_with(data, ".npz") && !is_given(args, "data.labels=")) {
        OCT_TRY(look_into_archive(data, &m));
        o->unlabelled = m.count == 1 || (m.pairs && !m.labels);
        if (m.count == 1) snprintf(o->images, sizeof o->images, "data.images=%s", m.first);
        snprintf(o->format, sizeof o->format, "data.format=npz");
    } else if (strcmp(format_of(data), "folder") == 0) {
        o->unlabelled = is_plain(data);
        snprintf(o->format, sizeof o->format, "data.format=folder");
    }
    return OCT_OK;
}

static void add_unless_given(overrides *o, const oct_args *args, const char *word)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s=", (int)strcspn(word, "="), word);
    if (!is_given(args, key)) o->word[o->count++] = word;
}

static oct_status take_overrides(overrides *o, const oct_args *args, bool onnx)
{
    const char *data = data_of(args);
    *o = (overrides){0};
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
        if (!is_given(args, "data.goal=") || is_given(args, "data.goal=none"))
            OCT_TRY(find_unlabelled(o, args, data));
    }
    if (data && onnx && !o->unlabelled)
        snprintf(o->format, sizeof o->format, "data.format=%s", format_of(data));
    if (data && (onnx || o->unlabelled)) add_unless_given(o, args, o->format);
    if (o->unlabelled) {
        add_unless_given(o, args, "data.goal=none");
        if (o->images[0]) add_unless_given(o, args, o->images);
    }
    /* What is watched are the images that the network will see. */
    if (onnx && !is_given(args, "data.train=")) o->word[o->count++] = "data.train=[]";
    for (size_t i = data ? 2 : 1; i < args->num_words; i++)
        o->word[o->count++] = args->word[i];
    return OCT_OK;
}

/* The network itself says how many outputs it has, which labels would say otherwise. */
static void take_outputs(overrides *o, const oct_onnx_graph *graph)
{
    const oct_onnx_value *y = &graph->values[graph->outputs[0]];
    int64_t outputs = 1;
    for (int i = 1; i < y->ndim; i++)
        outputs = y->dim[i] > 0 && outputs <= OCT_CLASSES_MAX ? outputs * y->dim[i] : 0;
    if (graph->num_outputs != 1 || !y->known || y->ndim < 2 || outputs < 1) return;
    snprintf(o->classes, sizeof o->classes, "data.classes=%lld", (long long)outputs);
}

static bool wants_outputs(const overrides *o)
{
    for (size_t i = 0; i < o->count; i++) /* given, or found */
        if (strcmp(o->word[i], "data.goal=none") == 0) return true;
    return false;
}

static oct_status write_recipe(const char *path, overrides *o, oct_text *text)
{
    oct_onnx_graph graph = {0};
    void *bytes = NULL;
    size_t size;
    oct_status status = OCT_OK;
    OCT_TRY(oct_onnx_load(path, &bytes, &size));
    const oct_onnx_source source = {.path = path, .bytes = bytes, .size = size};
    OCT_TRY_OUT(oct_onnx_read_bytes(&graph, &source));
    OCT_TRY_OUT(oct_onnx_fold(&graph, 0, 0, 0));
    take_outputs(o, &graph);
    status = oct_import_recipe(&graph, path, path, false, text);
out:
    oct_onnx_free(&graph);
    oct_free(&bytes);
    return status;
}

static oct_status of_onnx(oct_recipe *recipe, const oct_args *args, overrides *o)
{
    oct_text text = {0};
    const char *path = args->word[0];
    OCT_CHECK(data_of(args) || is_given(args, "data.path="), OCT_USAGE,
              "command line: %s alone has no data to watch; name them behind it: octet calibrate "
              "%s pictures",
              path, path);
    oct_status status = write_recipe(path, o, &text);
    if (wants_outputs(o) && o->classes[0]) add_unless_given(o, args, o->classes);
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
