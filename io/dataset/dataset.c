/* The table of data set formats, and what all formats have in common: the default folder, the number of
 * classes, the cut to a limit, the digest.
 *
 * A format's load may leave *data half-filled when it fails; releasing it happens here, once.
 */
#include "io/dataset/dataset.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/file.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static const void *const listed[] = {
#define OCT_DATASET(id, file) &oct_dataset_##file,
#include "io/dataset/dataset_list.def"
#undef OCT_DATASET
};
const oct_registry oct_dataset_id_table = OCT_REGISTRY("a format", listed);

static oct_status check_folder(const oct_dataset_format *format, const char *folder)
{
    struct stat info;
    bool there = stat(folder, &info) == 0;
    OCT_CHECK(
        there, OCT_DATA,
        "%s: there is no such folder; %s; name another with data.path=FOLDER or, where a model "
        "or checkpoint is given, --data FOLDER",
        folder, format->files);
    OCT_CHECK(S_ISDIR(info.st_mode), OCT_DATA,
              "%s: is a file, not a folder; data.path is the folder that holds the files", folder);
    return OCT_OK;
}

/* What a load works with. */
typedef struct loading {
    oct_dataset *data;
    const oct_dataset_source *source;
    const oct_dataset_format *format; /* of the source */
    const char *folder;
    oct_split split;
} loading;

/* Labels of one split while classes are counted. */
typedef struct label_list {
    const int32_t *labels;
    int64_t count;
    const char *file;
} label_list;

/* Classes count from the first label; the first bad one of the files' labels is named. */
static oct_status check_labels(const loading *l, const label_list *list, int64_t classes)
{
    int64_t first = l->source->first_label;
    for (int64_t i = 0; i < list->count; i++) {
        int64_t label = list->labels[i];
        OCT_CHECK(label >= first, OCT_DATA,
                  "%s/%s: label %" PRId64 " at index %" PRId64 " is below the first label, %" PRId64
                  "%s",
                  l->folder, list->file, label, i, first,
                  first > 0 ? "; set data.first_label to the smallest label"
                            : "; number the classes from 0 on");
        OCT_CHECK(label - first < classes, OCT_DATA,
                  "%s/%s: label %" PRId64 " at index %" PRId64 " is out of range %" PRId64
                  "..%" PRId64 "%s",
                  l->folder, list->file, label, i, first, first + classes - 1,
                  l->source->classes ? "; raise data.classes, or take data of these classes"
                                     : "; number the classes without gaps, from 0 on");
    }
    return OCT_OK;
}

/* Where the largest label of both splits stands. */
typedef struct largest {
    const char *file;
    int64_t label, index;
} largest;

static largest find_largest(const label_list lists[2])
{
    largest found = {.label = INT64_MIN};
    for (int l = 0; l < 2; l++)
        for (int64_t i = 0; i < lists[l].count; i++)
            if (lists[l].labels[i] > found.label)
                found = (largest){lists[l].file, lists[l].labels[i], i};
    return found;
}

/* Marks the classes that occur and returns how many of them are new. */
static int64_t mark(const label_list *list, int64_t first, uint8_t *seen)
{
    int64_t found = 0;
    for (int64_t i = 0; i < list->count; i++) {
        uint8_t *class = &seen[list->labels[i] - first];
        found += !*class;
        *class = 1;
    }
    return found;
}

/* A few labels far apart are a damaged file or a mistake more often than a wish, and would make a huge
 * last layer. */
static oct_status check_gaps(const loading *l, const label_list lists[2], const largest *top)
{
    int64_t first = l->source->first_label, classes = top->label - first + 1;
    uint8_t *seen = NULL;
    OCT_TRY(oct_alloc(&seen, (size_t)classes, 1));
    int64_t found = mark(&lists[0], first, seen) + mark(&lists[1], first, seen);
    bool unused = !seen[0];
    oct_free(&seen);
    OCT_CHECK(2 * found >= classes, OCT_DATA,
              "%s/%s: label %" PRId64 " at index %" PRId64 ", although only %" PRId64
              " different labels occur; number the classes without gaps, or write "
              "data.classes=%" PRId64 " if that many are meant",
              l->folder, top->file, top->label, top->index, found, classes);
    if (unused && first == 0 && l->split == OCT_TRAIN)
        oct_log(OCT_LOG_WARN,
                "%s: no sample has label 0, so one of the %" PRId64
                " classes stays unused; data.first_label=1 makes label 1 class 0",
                l->folder, classes);
    return OCT_OK;
}

/* Counts one class more than the largest label of both splits, so that the number does not depend on
 * which of them is loaded. */
static oct_status count_classes(const loading *l, int64_t *classes)
{
    oct_split split = l->split, other = split == OCT_TRAIN ? OCT_TEST : OCT_TRAIN;
    int32_t *labels = NULL;
    int64_t count = 0;
    oct_status status = OCT_OK;
    OCT_TRY(l->format->read_labels(&labels, &count, l->folder, other));
    const label_list lists[2] = {
        {l->data->labels, l->data->count, l->format->label_file[split]},
        {labels, count, l->format->label_file[other]},
    };
    for (int i = 0; i < 2; i++)
        OCT_TRY_OUT(check_labels(l, &lists[i], OCT_CLASSES_MAX));
    largest top = find_largest(lists);
    *classes = top.label - l->source->first_label + 1;
    OCT_CHECK_OUT(*classes > 1, OCT_DATA,
                  "%s: every label is %" PRId64 "; at least two classes are needed", l->folder,
                  l->source->first_label);
    status = check_gaps(l, lists, &top);
out:
    oct_free(&labels);
    return status;
}

static oct_status find_classes(const loading *l)
{
    oct_dataset *data = l->data;
    int64_t classes = l->source->classes ? l->source->classes : l->format->classes;
    const label_list list = {data->labels, data->count, l->format->label_file[l->split]};
    if (classes == 0)
        OCT_TRY(count_classes(l, &classes));
    else
        OCT_TRY(check_labels(l, &list, classes));
    for (int64_t i = 0; i < data->count; i++)
        data->labels[i] -= (int32_t)l->source->first_label;
    data->classes = (int)classes;
    return OCT_OK;
}

/* Labels that fit are digested as the bytes that they are in the usual files. */
static void add_labels(oct_sha256_state *state, const oct_dataset *data)
{
    enum { BYTE_CLASSES = 256 };
    for (int64_t i = 0; i < data->count; i++) {
        uint32_t label = (uint32_t)data->labels[i];
        const uint8_t bytes[4] = {(uint8_t)label, (uint8_t)(label >> 8), (uint8_t)(label >> 16),
                                  (uint8_t)(label >> 24)};
        oct_sha256_add(state, bytes, data->classes <= BYTE_CLASSES ? 1 : sizeof bytes);
    }
}

static oct_status take_digest(oct_dataset *data)
{
    oct_sha256_state *state = NULL;
    OCT_TRY(oct_sha256_begin(&state));
    oct_sha256_add(state, data->images,
                   (size_t)data->count * (size_t)(data->h * data->w * data->c));
    add_labels(state, data);
    oct_sha256_end(&state, data->digest);
    return OCT_OK;
}

oct_status oct_dataset_load(oct_dataset *data, const oct_dataset_source *source, oct_split split)
{
    oct_status status = OCT_OK;
    loading l = {data, source, source->format, source->folder, split};
    *data = (oct_dataset){0};
    if (!l.folder || !*l.folder) l.folder = l.format->default_path;
    OCT_CHECK(l.folder, OCT_USAGE,
              "data.path: the format %s has no default folder; write data.path=FOLDER; %s",
              l.format->name, l.format->files);
    OCT_TRY(check_folder(l.format, l.folder));
    OCT_TRY_OUT(l.format->load(l.format, data, l.folder, split));
    OCT_TRY_OUT(find_classes(&l));
    if (source->limit > 0 && source->limit < data->count) data->count = source->limit;
    status = take_digest(data);
out:
    if (status != OCT_OK) oct_dataset_free(data);
    return status;
}

void oct_dataset_free(oct_dataset *data)
{
    oct_free(&data->images);
    oct_free(&data->labels);
    *data = (oct_dataset){0};
}
