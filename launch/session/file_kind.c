/* HDF5 files begin with a signature; an int8 model is one of them with its own mark. Recipes have no
 * mark, so anything that looks like text is taken for one and judged by the recipe's reader.
 */
#include "launch/session/file_kind.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"
#include "io/checkpoint/manifest.h"
#include "io/model/model_file.h"
#include "io/weights/weights.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a folder is that of a run, or its checkpoints/, which holds checkpoints even without a manifest. */
static bool is_run_folder(const char *path)
{
    static const char *const marks[] = {"recipe.yaml", "checkpoints", "manifest.json"};
    bool found = false;
    int64_t step;
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && !found && (e = readdir(folder)) != NULL;)
        found = oct_checkpoint_name_step(e->d_name, &step);
    if (folder) closedir(folder);
    for (size_t i = 0; !found && i < OCT_COUNT(marks); i++) {
        char inside[4200];
        int length = snprintf(inside, sizeof(inside), "%s/%s", path, marks[i]);
        found = length < (int)sizeof(inside) && access(inside, F_OK) == 0;
    }
    return found;
}

/* What Octet writes for other readers, known by words among its first bytes. */
typedef struct foreign_kind {
    const char *words;
    size_t within;
    const char *is;
} foreign_kind;

static const foreign_kind foreign_kinds[] = {
    {"TFL3", 8,
     "is a network of TFLite, which TFLite's interpreter reads, with XNNPACK code for code where "
     "the model was trained with quant.target=tflite"},
    {"An int8 model as C99, by octet ", 128,
     "is the header of an int8 model as C99, which a C compiler reads; its comments say how to run "
     "it"},
    {"First the operations that the model has, then its constants", 512,
     "is an int8 model as C99, which a C compiler reads with the header beside it"},
};

/* Refuses what cannot be a recipe: exports of Octet, weights of other frameworks, and bytes that are no text. */
static oct_status check_readable(const char *path, const unsigned char *head, size_t size)
{
    for (size_t i = 0; i < OCT_COUNT(foreign_kinds); i++) {
        const foreign_kind *k = &foreign_kinds[i];
        OCT_CHECK(!memmem(head, size < k->within ? size : k->within, k->words, strlen(k->words)),
                  OCT_DATA,
                  "%s: %s; Octet reads the model.int8.h5 that an export was made of, or a flat "
                  "file",
                  path, k->is);
    }
    OCT_CHECK(!oct_weights_is(path), OCT_DATA,
              "%s: is a file of another framework; a recipe takes its weights as init, `octet "
              "import` and model.onnx an ONNX network",
              path);
    bool text = size > 0;
    for (size_t i = 0; i < size; i++)
        text = text && (head[i] >= ' ' || head[i] == '\n' || head[i] == '\r' || head[i] == '\t');
    OCT_CHECK(
        text, OCT_DATA,
        "%s: is no recipe, checkpoint, int8 model or run folder; if it holds data, `octet data` "
        "says which",
        path);
    return OCT_OK;
}

oct_status oct_file_kind_of(const char *path, oct_file_kind *kind)
{
    unsigned char head[512];
    struct stat info;
    OCT_CHECK(stat(path, &info) == 0, OCT_DATA, "%s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) {
        OCT_CHECK(is_run_folder(path), OCT_DATA,
                  "%s: this is not a run folder: it holds neither recipe.yaml nor checkpoints",
                  path);
        *kind = OCT_FILE_RUN_FOLDER;
        return OCT_OK;
    }
    OCT_TRY(oct_file_check_regular(path, &info));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    OCT_CHECK(fd >= 0, OCT_DATA, "%s: %s", path, strerror(errno));
    ssize_t size = read(fd, head, sizeof(head));
    int error = errno;
    close(fd);
    OCT_CHECK(size >= 0, OCT_DATA, "%s: %s", path, strerror(error));
    OCT_CHECK(size > 0, OCT_DATA, "%s: the file is empty", path);
    if (oct_h5_begins(head, (size_t)size)) {
        bool model;
        OCT_TRY(oct_model_probe(path, &model));
        *kind = model ? OCT_FILE_MODEL : OCT_FILE_CHECKPOINT;
        return OCT_OK;
    }
    if (oct_model_is_flat(head, (size_t)size)) {
        *kind = OCT_FILE_MODEL;
        return OCT_OK;
    }
    OCT_TRY(check_readable(path, head, (size_t)size));
    *kind = OCT_FILE_RECIPE;
    return OCT_OK;
}

const char *oct_file_kind_name(oct_file_kind kind)
{
    return kind == OCT_FILE_RECIPE       ? "recipe"
           : kind == OCT_FILE_CHECKPOINT ? "checkpoint"
           : kind == OCT_FILE_MODEL      ? "int8 model"
           : kind == OCT_FILE_RUN_FOLDER ? "run folder"
                                         : "unknown";
}

oct_status oct_file_check_intact(const char *path, oct_file_kind kind)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size;
    if (kind != OCT_FILE_CHECKPOINT) return OCT_OK;
    OCT_TRY(oct_file_read(path, oct_checkpoint_limit, &bytes, &size));
    const oct_status status = oct_h5_check_checksum(bytes, size);
    return status == OCT_OK ? OCT_OK : oct_fail_prefix("%s", path);
}

oct_status oct_file_take(const char *path, int kinds, const char *takes, oct_file_kind *kind)
{
    OCT_TRY(oct_file_kind_of(path, kind));
    if (kinds & (int)*kind) return OCT_OK;
    OCT_TRY(oct_file_check_intact(path, *kind));
    return oct_fail(OCT_DATA, "%s: is %s %s; %s", path, *kind == OCT_FILE_MODEL ? "an" : "a",
                    oct_file_kind_name(*kind), takes);
}

oct_status oct_file_need_model(const char *path)
{
    oct_file_kind kind;
    return oct_file_take(
        path, OCT_FILE_MODEL,
        "give an int8 model, such as the model.int8.h5 in the folder of a finished "
        "run; `octet convert` makes one of a checkpoint",
        &kind);
}
