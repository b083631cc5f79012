/* Of data: the format is found by names alone; then the index of the data is opened, for shapes and labels. */
#include "launch/cmd/begun_recipe.h"

#include "core/base/int_math.h"
#include "core/base/log.h"
#include "io/dataset/dataset.h"
#include "io/dataset/picture_list.h"
#include "io/dataset/npy_file.h"
#include "io/image/image.h"
#include "io/checkpoint/manifest.h"
#include "launch/base/args.h"
#include "launch/session/file_kind.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 64 };

/* Names a run after the last part of a path, up to a dot; what is neither letter nor digit, _ nor - becomes _. */
static void name_run(const char *path, char name[NAME_BYTES])
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    const char *begin = path + end;
    while (begin > path && begin[-1] != '/')
        begin--;
    size_t length = strcspn(begin, "./");
    length = length < NAME_BYTES - 1 ? length : NAME_BYTES - 1;
    for (size_t i = 0; i < length; i++) {
        const char c = begin[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '_' || c == '-';
        name[i] = plain ? c : '_';
    }
    memcpy(name + length, "", 1);
    if (length == 0) memcpy(name, "net", 4);
}

/* Adds a word of the user's between quotes of YAML. */
static oct_status add_quotes(oct_text *text, const char *word)
{
    OCT_TRY(oct_text_add(text, "\""));
    for (const char *at = word; *at; at++)
        OCT_TRY(oct_text_add(text, "%s%c", *at == '"' || *at == '\\' ? "\\" : "", *at));
    return oct_text_add(text, "\"");
}

/* What shows the format of a data set: the ending of a file, or a file in the folder. */
static const struct {
    const char *ending, *file, *format;
} signs[] = {
    {".npz", "train.npz", "npz"},
    {".csv", "train.csv", "csv"},
    {".h5", "train.h5", "hdf5"},
    {".hdf5", "train.hdf5", "hdf5"},
    {".npy", "train_images.npy", "npy"},
    {NULL, "data_batch_1.bin", "cifar10"},
    {NULL, "train.bin", "cifar100"},
    {NULL, "train-images-idx3-ubyte", "idx"},
    {NULL, "train-images-idx3-ubyte.gz", "idx"},
};

static bool is_there(const char *folder, const char *name)
{
    char file[4200];
    return snprintf(file, sizeof file, "%s/%s", folder, name) < (int)sizeof file &&
           access(file, R_OK) == 0;
}

/* Whether Octet wrote a file or folder: its models and checkpoints end in .h5, as HDF5 data sets do. */
static bool octet_wrote(const char *path)
{
    const char *slash = strrchr(path, '/');
    int64_t step;
    oct_file_kind kind;
    if (oct_checkpoint_name_step(slash ? slash + 1 : path, &step) ||
        oct_ends_with(path, ".int8.h5"))
        return true; /* even if it is damaged */
    const bool known = oct_file_kind_of(path, &kind) == OCT_OK && kind != OCT_FILE_CHECKPOINT;
    oct_fail_clear();
    return known && kind != OCT_FILE_RECIPE;
}

bool oct_data_is(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return false;
    if (S_ISDIR(info.st_mode)) return !octet_wrote(path);
    for (size_t i = 0; i < OCT_COUNT(signs); i++)
        if (signs[i].ending && oct_ends_with(path, signs[i].ending)) return !octet_wrote(path);
    return false;
}

/* Whether a folder holds pictures, and no folders, such as those of classes; hidden entries apart. */
static bool holds_pictures_alone(const char *folder)
{
    bool pictures = false, folders = false;
    struct stat info;
    char file[4200];
    DIR *stream = opendir(folder);
    for (const struct dirent *e; stream && (e = readdir(stream)) != NULL;) {
        const int length = snprintf(file, sizeof file, "%s/%s", folder, e->d_name);
        if (e->d_name[0] == '.' || length >= (int)sizeof file || stat(file, &info) != 0) continue;
        folders = folders || S_ISDIR(info.st_mode);
        pictures = pictures || oct_is_picture_name(e->d_name);
    }
    if (stream) closedir(stream);
    return pictures && !folders;
}

/* What an archive holds, as far as names show. */
typedef struct archive {
    int64_t count;
    bool has_train_images, has_x_train; /* arrays called train_images, or x_train */
    char samples[256],
        labels[256]; /* one of each kind: "y", "target" and what holds "label" are labels */
} archive;

/* Finds by their names which arrays of an .npz archive hold samples and labels; the format's own names stay empty. */
static oct_status name_arrays(const char *path, oct_data_found *found)
{
    archive m = {0};
    oct_zip *zip = NULL;
    const char *member;
    OCT_TRY(oct_zip_open(&zip, path));
    for (; (member = oct_zip_name(zip, m.count)); m.count++) {
        char name[256];
        const size_t length = strlen(member) - (oct_ends_with(member, ".npy") ? 4 : 0);
        snprintf(name, sizeof name, "%.*s", (int)oct_min_i64((int64_t)length, 255), member);
        const bool label =
            strstr(name, "label") || strcmp(name, "y") == 0 || strcmp(name, "target") == 0;
        memcpy(label ? m.labels : m.samples, name, sizeof name);
        m.has_train_images = m.has_train_images || strcmp(name, "train_images") == 0;
        m.has_x_train = m.has_x_train || strcmp(name, "x_train") == 0;
    }
    oct_zip_close(&zip);
    const bool one = m.count == 1, two = m.count == 2 && m.samples[0] && m.labels[0];
    found->unlabelled = one || (m.has_train_images && !m.labels[0]);
    if (one || two)
        snprintf(found->images, sizeof found->images, "%s",
                 one && m.labels[0] ? m.labels : m.samples);
    if (two) snprintf(found->labels, sizeof found->labels, "%s", m.labels);
    if (m.has_x_train) {
        snprintf(found->images, sizeof found->images, "x_{split}");
        snprintf(found->labels, sizeof found->labels, "y_{split}");
    }
    return OCT_OK;
}

oct_status oct_data_look(const char *path, bool labels, oct_data_found *found)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const int folder = slash ? (int)(name - path) : 0;
    *found = (oct_data_found){0};
    size_t sign = 0;
    while (sign < OCT_COUNT(signs) && !is_there(path, signs[sign].file) &&
           !(signs[sign].ending && oct_ends_with(path, signs[sign].ending)))
        sign++;
    snprintf(found->format, sizeof found->format, "%s",
             sign < OCT_COUNT(signs) ? signs[sign].format : "folder");
    OCT_CHECK_ARGS(snprintf(found->path, sizeof found->path, "%s", path) < (int)sizeof found->path,
                   "the path of the data is too long");
    if (oct_ends_with(path, ".npy")) {
        found->unlabelled = !labels;
        snprintf(found->path, sizeof found->path, "%.*s", folder ? folder : 1, folder ? path : ".");
        snprintf(found->images, sizeof found->images, "%.*s",
                 (int)oct_min_i64((int64_t)strlen(name) - 4, 255), name);
    } else if (oct_ends_with(path, ".npz") && !labels) {
        return name_arrays(path, found);
    } else if (strcmp(found->format, "npy") == 0 && !is_there(path, "test_images.npy")) {
        snprintf(found->images, sizeof found->images,
                 "train_images"); /* a share becomes the test split */
        snprintf(found->labels, sizeof found->labels, "train_labels");
    } else if (strcmp(found->format, "folder") == 0) {
        char train[4200];
        snprintf(train, sizeof train, "%s/train", path);
        found->unlabelled = holds_pictures_alone(access(train, X_OK) == 0 ? train : path);
    }
    return OCT_OK;
}

/* What a recipe is begun with. */
typedef struct beginning {
    oct_data_found found;
    oct_dataset data; /* the training part, by its index alone */
    int64_t size;     /* data.size; 0: as it is */
} beginning;

/* Opens the data by the first goal that fits them; where none does, the failure is that of classes. */
static oct_status open_by_first_goal(beginning *b)
{
    static const oct_goal_kind goals[] = {OCT_GOAL_CLASS, OCT_GOAL_VALUES, OCT_GOAL_MAP,
                                          OCT_GOAL_CLASS};
    oct_dataset_source source = {.format =
                                     oct_registry_find(&oct_dataset_id_table, b->found.format),
                                 .folder = b->found.path,
                                 .images = b->found.images,
                                 .labels = b->found.labels,
                                 .channels = 3,
                                 .seed = 1,
                                 .split = 0.1};
    oct_status status = OCT_DATA;
    if (b->found.unlabelled) {
        source.goal = OCT_GOAL_INPUT;
        return oct_dataset_open(&b->data, &source, OCT_TRAIN);
    }
    for (size_t i = 0; i < OCT_COUNT(goals) && status != OCT_OK; i++) {
        source.goal = goals[i];
        status = oct_dataset_open(&b->data, &source, OCT_TRAIN);
        if (status != OCT_OK && status != OCT_DATA && status != OCT_USAGE) return status;
    }
    return status;
}

/* Whether values are several labels: all 0 or 1. */
static bool are_all_labels(const oct_dataset *data)
{
    const int64_t all = data->goal == OCT_GOAL_VALUES ? data->count * data->classes : 0;
    for (int64_t i = 0; i < all; i++)
        if (data->values[i] != 0 && data->values[i] != 1) return false;
    return all > 0;
}

static const char *choose_model(const beginning *b)
{
    const oct_dataset *d = &b->data;
    const int64_t h = b->size ? b->size : d->read_h, w = b->size ? b->size : d->read_w;
    if (d->goal == OCT_GOAL_MAP) return "unet-small";
    if (d->goal == OCT_GOAL_INPUT) return "autoencoder";
    if (h < 8 || w < 8) return "mlp";
    return h > 64 || w > 64 ? "resnet18" : h > 32 || w > 32 ? "resnet20" : "cnn-small";
}

/* Measures mean and standard deviation of samples spread evenly over the data, within the bounds of the recipe keys. */
static oct_status measure_values(const oct_dataset *data, double *mean, double *std)
{
    enum { SAMPLES = 256 };
    const int64_t step = (data->count + SAMPLES - 1) / SAMPLES;
    OCT_OWNED(oct_image_free) oct_image image = {0}, map = {0};
    double n = 0, sum = 0, squares = 0;
    for (int64_t i = 0; i < data->count; i += step) {
        OCT_TRY(data->format->read(data, i, &image, &map));
        const float *x = image.data;
        for (int64_t k = 0; k < oct_image_numel(&image); k++) {
            n++;
            sum += (double)x[k];
            squares += (double)x[k] * (double)x[k];
        }
    }
    *mean = fmin(fmax(sum / n, -1e6), 1e6);
    *std = fmin(fmax(sqrt(fmax(squares / n - *mean * *mean, 0)), 1e-9), 1e6);
    OCT_CHECK(isfinite(sum), OCT_DATA, "the data hold values that are not finite");
    return OCT_OK;
}

static oct_status add_normalisation(const beginning *b, oct_text *text)
{
    const oct_dataset *d = &b->data;
    double mean, std;
    if (d->dtype == OCT_F32) {
        OCT_TRY(measure_values(d, &mean, &std));
        return oct_text_add(
            text, "  mean: [%.3g] # of up to 256 samples; octet data counts all\n  std: [%.3g]\n",
            mean, std);
    }
    if (d->read_c == 3)
        return oct_text_add(text,
                            "  mean: [0.485, 0.456, 0.406] # of ImageNet, good for photographs\n"
                            "  std: [0.229, 0.224, 0.225]\n");
    return oct_text_add(text, "  mean: [0.5] # octet data counts them\n  std: [0.5]\n");
}

/* Adds a key of the section `data` with a word of the user's, unless that is empty. */
static oct_status add_quoted(oct_text *text, const char *key, const char *name)
{
    if (!name[0]) return OCT_OK;
    OCT_TRY(oct_text_add(text, "  %s: ", key));
    OCT_TRY(add_quotes(text, name));
    return oct_text_add(text, "\n");
}

oct_status oct_data_found_write(const oct_data_found *f, oct_text *text)
{
    OCT_TRY(oct_text_add(text, "  format: %s\n", f->format));
    OCT_TRY(add_quoted(text, "path", f->path));
    OCT_TRY(add_quoted(text, "images", f->images));
    return add_quoted(text, "labels", f->labels);
}

static oct_status add_data(const beginning *b, oct_text *text)
{
    OCT_TRY(oct_text_add(text, "data:\n"));
    OCT_TRY(oct_data_found_write(&b->found, text));
    if (b->data.goal != OCT_GOAL_CLASS)
        OCT_TRY(oct_text_add(text, "  goal: %s\n",
                             oct_registry_name(&oct_goal_kind_table, b->data.goal)));
    if (b->size) OCT_TRY(oct_text_add(text, "  size: %lld\n", (long long)b->size));
    if (b->size && b->data.goal == OCT_GOAL_CLASS)
        OCT_TRY(oct_text_add(text, "  train: [random_resized_crop scale=0.25..1, flip]\n"));
    return add_normalisation(b, text);
}

/* The float phase sees about 20,000 samples, in eight or more batches an epoch of eight leaves each. */
static oct_status add_training(const beginning *b, oct_text *text)
{
    enum { SAMPLES_SEEN = 20000, BATCH = 64, BATCH_LEAST = 16, LEAVES = 8, STEPS = 8 };
    const int64_t count = oct_max_i64(b->data.count, 1);
    int64_t batch = BATCH;
    while (batch > BATCH_LEAST && batch * STEPS > count)
        batch /= 2;
    const int64_t epochs = oct_min_i64(oct_max_i64(SAMPLES_SEEN / count, 5), 60);
    return oct_text_add(text,
                        "batch:\n  size: %lld\n  leaf: %lld\n"
                        "float:\n  epochs: %lld\n  lr: %s\n  schedule: cosine\n  warmup: 1\n"
                        "calibrate:\n  batches: 16\n"
                        "qat:\n  epochs: %lld\n  lr: 0.001\n  schedule: cosine\n",
                        (long long)batch, (long long)(batch / LEAVES), (long long)epochs,
                        b->data.goal == OCT_GOAL_CLASS ? "0.03" : "0.01",
                        (long long)oct_max_i64(epochs / 8, 2));
}

oct_status oct_data_recipe(const char *path, oct_text *text)
{
    enum { SIDE_KEPT = 96, FEW = 5000, SMALL = 64, USUAL = 128 };
    beginning b = {0};
    char name[NAME_BYTES];
    oct_status status = OCT_OK;
    OCT_TRY(oct_data_look(path, false, &b.found));
    oct_log_again(true); /* warnings about the data are left to the run */
    status = open_by_first_goal(&b);
    oct_log_again(false);
    OCT_TRY(status);
    /* Large pictures, and those whose sizes differ, are made small at first: a network that learns from few of them
     * within minutes says more than one that takes a night. */
    const bool kept = b.data.read_h > 0 && b.data.read_h <= SIDE_KEPT && b.data.read_w <= SIDE_KEPT;
    b.size = kept ? 0 : b.data.count < FEW ? SMALL : USUAL;
    name_run(path, name);
    OCT_TRY_OUT(oct_text_add(text,
                             "# Begun from the data alone: octet help recipe explains each key\n"
                             "schema: 1\nname: %s\noutput: runs/%s\nmodel:\n  name: %s\n",
                             name, name, choose_model(&b)));
    OCT_TRY_OUT(add_data(&b, text));
    if (b.data.goal == OCT_GOAL_MAP)
        OCT_TRY_OUT(oct_text_add(text, "metrics: [miou]\n"));
    else if (b.data.goal !=
             OCT_GOAL_CLASS) /* classes have the loss and the metrics of the defaults */
        OCT_TRY_OUT(oct_text_add(text, are_all_labels(&b.data)
                                           ? "metrics: [multilabel_f1]\nloss:\n  kind: bce\n"
                                           : "metrics: [mae]\nloss:\n  kind: mse\n"));
    status = add_training(&b, text);
out:
    oct_dataset_close(&b.data);
    return status;
}

/* Of an ONNX network: what follows from it is written, and comments where the user has to say something. */

/* Adds the section `data` for images of the network's input size, with a path that the user fills in. */
static oct_status add_data_of_network(const oct_onnx_graph *g, oct_text *text)
{
    const oct_onnx_value *x = &g->values[g->inputs[0]];
    const int channel = g->channels_last ? 3 : 1, h = g->channels_last ? 1 : 2;
    if (x->ndim != 4)
        return oct_text_add(
            text, "data:\n"
                  "  format: npz # octet help formats lists the others\n"
                  "  path: data.npz # train_images, train_labels, test_images, test_labels\n"
                  "  mean: [0] # octet data RECIPE counts them\n"
                  "  std: [1]\n");
    const int64_t channels = x->dim[channel];
    OCT_TRY(oct_text_add(text,
                         "data:\n"
                         "  format: folder # of pictures; octet help formats lists the others\n"
                         "  path: pictures # train/CLASS/*.jpg and test/CLASS/*.jpg\n"
                         "  channels: %" PRId64 "\n"
                         "  size: %" PRId64 "x%" PRId64 "\n",
                         channels, x->dim[h], x->dim[h + 1]));
    OCT_TRY(oct_text_add(text, "  train: [random_resized_crop scale=0.25..1, flip]\n"));
    if (channels == 3)
        return oct_text_add(text,
                            "  mean: [0.485, 0.456, 0.406] # of ImageNet: what most networks of "
                            "PyTorch were trained with; use yours\n"
                            "  std: [0.229, 0.224, 0.225]\n");
    return oct_text_add(text, "  mean: [0.5] # use those that the network was trained with\n"
                              "  std: [0.5]\n");
}

oct_status oct_import_recipe(const oct_onnx_graph *g, const char *path, const char *model,
                             bool untrained, oct_text *text)
{
    char name[NAME_BYTES];
    name_run(path, name);
    OCT_TRY(oct_text_add(text,
                         "# %s, imported by octet import: fine-tuned for int8\n"
                         "#\n"
                         "# Say below which data it is for, then: octet check RECIPE, octet train "
                         "RECIPE\n"
                         "schema: 1\n"
                         "name: %s\n"
                         "output: runs/%s\n"
                         "seed: 1\n\n"
                         "model:\n"
                         "  onnx: ",
                         name, name, name));
    OCT_TRY(add_quotes(text, model));
    OCT_TRY(oct_text_add(text, " # its weights are the start\n\n"));
    OCT_TRY(add_data_of_network(g, text));
    return oct_text_add(text,
                        "\nbatch:\n"
                        "  size: 64\n"
                        "  leaf: 8\n\n"
                        "float:\n"
                        "  epochs: %s\n"
                        "  lr: 0.01\n\n"
                        "calibrate:\n"
                        "  batches: 32\n\n"
                        "qat:\n"
                        "  epochs: 2\n"
                        "  lr: 0.001\n"
                        "  schedule: cosine\n\n"
                        "quant:\n"
                        "  target: x86 # what the int8 model runs on: octet targets\n",
                        untrained ? "10 # the network was not trained yet"
                                  : "0 # more: fine-tune in float first");
}
