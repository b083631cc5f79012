/* The table of data set formats, and what all formats have in common: the default folder, the number of
 * classes, the cut to a limit, the digest, and the way of an index from rank 0 to the others.
 *
 * A format's open may leave *data half-filled when it fails; releasing it happens here, once.
 */
#include "io/dataset/dataset.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/file/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const void *const listed[] = {
#define OCT_DATASET(id, file) &oct_dataset_##file,
#include "io/dataset/dataset_list.def"
#undef OCT_DATASET
};
const oct_registry oct_dataset_id_table = OCT_REGISTRY("a format", listed);

static const void *const goals[] = {OCT_GOAL_LIST(OCT_WORD_ITEM)};
const oct_registry oct_goal_kind_table = OCT_REGISTRY("a goal", goals);

const char *oct_goal_outputs(oct_goal_kind goal, int64_t count, char text[48])
{
    const bool classes = goal == OCT_GOAL_CLASS || goal == OCT_GOAL_MAP;
    snprintf(text, 48, "%lld %s", (long long)count, classes ? "classes" : "values");
    return text;
}

/* What an opening works with. */
typedef struct opening {
    oct_dataset *data;
    const oct_dataset_source *source;
    oct_dataset_source there;         /* the same, with the folder that is meant */
    const oct_dataset_format *format; /* of the source */
    const char *folder;
    char *plain; /* the folder without a slash at its end; owned */
    oct_split split;
} opening;

/* Labels of one split while classes are counted. */
typedef struct label_list {
    const int32_t *labels;
    int64_t count;
    const char *file;
} label_list;

/* Classes count from the first label; the first bad one of the files' labels is named. */
static oct_status check_labels(const opening *l, const label_list *list, int64_t classes)
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
static oct_status check_gaps(const opening *l, const label_list lists[2], const largest *top)
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
static oct_status count_classes(const opening *l, int64_t *classes)
{
    oct_split split = l->split, other = split == OCT_TRAIN ? OCT_TEST : OCT_TRAIN;
    int32_t *labels = NULL;
    int64_t count = 0;
    oct_status status = OCT_OK;
    OCT_TRY(l->format->read_labels(&labels, &count, &l->there, other));
    const label_list lists[2] = {
        {l->data->labels, l->data->count, l->format->label_file[split]},
        {labels, count, l->format->label_file[other]},
    };
    for (int i = 0; i < 2; i++)
        OCT_TRY_OUT(check_labels(l, &lists[i], OCT_CLASSES_MAX));
    largest top = {.label = INT64_MIN};
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < lists[k].count; i++)
            if (lists[k].labels[i] > top.label)
                top = (largest){lists[k].file, lists[k].labels[i], i};
    *classes = top.label - l->source->first_label + 1;
    OCT_CHECK_OUT(*classes > 1, OCT_DATA,
                  "%s: every label is %" PRId64 "; at least two classes are needed", l->folder,
                  l->source->first_label);
    status = check_gaps(l, lists, &top);
out:
    oct_free(&labels);
    return status;
}

/* Formats that know the classes by name have numbered them themselves. */
static oct_status find_classes(const opening *l)
{
    oct_dataset *data = l->data;
    int64_t classes = l->source->classes ? l->source->classes : l->format->classes;
    const label_list list = {data->labels, data->count, l->format->label_file[l->split]};
    if (data->class_names) return OCT_OK;
    if (classes == 0)
        OCT_TRY(count_classes(l, &classes));
    else
        OCT_TRY(check_labels(l, &list, classes));
    for (int64_t i = 0; i < data->count; i++)
        data->labels[i] -= (int32_t)l->source->first_label;
    data->classes = classes;
    return OCT_OK;
}

static void free_names(oct_dataset *data)
{
    for (int64_t i = 0; data->class_names && i < data->classes; i++)
        oct_free(&data->class_names[i]);
    oct_free(&data->class_names);
}

static oct_status take_digest(oct_dataset *data)
{
    oct_sha256_state *state = NULL;
    OCT_TRY(oct_sha256_begin(&state));
    data->format->digest(data, state);
    if (data->labels) {
        /* Labels that fit are digested as the bytes that they are in the usual files. */
        enum { BYTE_CLASSES = 256 };
        for (int64_t i = 0; i < data->count; i++) {
            uint32_t label = (uint32_t)data->labels[i];
            const uint8_t bytes[4] = {(uint8_t)label, (uint8_t)(label >> 8), (uint8_t)(label >> 16),
                                      (uint8_t)(label >> 24)};
            oct_sha256_add(state, bytes, data->classes <= BYTE_CLASSES ? 1 : sizeof bytes);
        }
    }
    if (data->values)
        oct_sha256_add(state, data->values,
                       (size_t)(data->count * data->classes) * sizeof *data->values);
    oct_sha256_end(&state, data->digest);
    return OCT_OK;
}

oct_status oct_dataset_contents(const oct_dataset *data, uint8_t contents[32])
{
    oct_sha256_state *state = NULL;
    enum { PROBES = 64, PROBE_BYTES = 1 << 26, PICTURE_BYTES = 1 << 18 };
    const int64_t numel = data->read_h * data->read_w * data->read_c;
    const int64_t each = numel > 0 ? numel * (int64_t)oct_dtype_bytes(data->dtype) : PICTURE_BYTES;
    const int64_t few = data->count * each / PROBE_BYTES + 1,
                  most = data->count > PROBES ? data->count / PROBES : 1;
    oct_image image = {0}, map = {0};
    OCT_TRY(oct_sha256_begin(&state));
    oct_sha256_add(state, data->digest, sizeof data->digest);
    for (int64_t i = 0; data->format->reads_files && i < data->count;
         i += few < most ? few : most) {
        if (data->format->read(data, i, &image, &map) != OCT_OK) {
            oct_fail_clear(); /* who needs the sample says so */
            continue;
        }
        oct_sha256_add(state, image.data,
                       (size_t)oct_image_numel(&image) * oct_dtype_bytes(image.dtype));
        oct_sha256_add(state, map.data, (size_t)oct_image_numel(&map) * sizeof(int32_t));
    }
    oct_image_free(&image);
    oct_image_free(&map);
    oct_sha256_end(&state, contents);
    return OCT_OK;
}

void oct_dataset_resize(oct_dataset *data, int64_t h, int64_t w, int64_t c)
{
    data->h = h;
    data->w = w;
    data->c = c;
    data->rows = data->goal == OCT_GOAL_MAP ? h * w : 1;
    if (data->goal == OCT_GOAL_INPUT) data->classes = h * w * c;
}

static oct_status open_here(opening *l)
{
    const oct_dataset_source *source = l->source;
    oct_dataset *data = l->data;
    *data = (oct_dataset){.format = l->format, .goal = source->goal};
    if (!l->folder || !*l->folder) l->folder = l->format->default_path;
    OCT_CHECK(l->folder, OCT_USAGE,
              "data.path: the format %s has no default folder; write data.path=FOLDER, or with a "
              "model or checkpoint --data FOLDER; %s",
              l->format->name, l->format->files);
    size_t length = strlen(l->folder);
    while (length > 1 && l->folder[length - 1] == '/')
        length--;
    OCT_TRY(oct_format(&l->plain, "%.*s", (int)length, l->folder));
    l->folder = l->plain;
    l->there = *source;
    l->there.folder = l->folder;
    const unsigned can = source->format->goals ? source->format->goals : 1u << OCT_GOAL_CLASS;
    OCT_CHECK(can >> source->goal & 1 || source->goal == OCT_GOAL_INPUT ||
                  source->goal == OCT_GOAL_NONE,
              OCT_USAGE,
              "data.goal: the format %s has no goals of the kind %s; use another format or goal",
              source->format->name, oct_registry_name(&oct_goal_kind_table, source->goal));
    struct stat info;
    bool there = stat(l->folder, &info) == 0;
    OCT_CHECK(
        there, OCT_DATA,
        "%s: there is no such folder; %s; name another with data.path=FOLDER or, where a model "
        "or checkpoint is given, --data FOLDER",
        l->folder, l->format->files);
    OCT_CHECK(S_ISDIR(info.st_mode) || l->format->takes_file, OCT_DATA,
              "%s: is a file, not a folder; data.path is the folder that holds the files",
              l->folder);
    OCT_TRY(l->format->open(data, &l->there, l->split));
    data->read_h = data->h;
    data->read_w = data->w;
    data->read_c = data->c;
    if (data->goal == OCT_GOAL_CLASS) OCT_TRY(find_classes(l));
    if (data->goal == OCT_GOAL_NONE) {
        /* Labels are not asked for, even where the files have some. */
        free_names(data);
        oct_free(&data->labels);
        data->classes = l->source->classes ? l->source->classes : l->format->classes;
        OCT_CHECK(
            data->classes > 0, OCT_USAGE,
            "data.classes: samples without labels (data.goal: none) do not say how many outputs "
            "the network has; write data.classes=NUMBER");
    }
    oct_dataset_resize(data, data->h, data->w, data->c);
    if (source->limit > 0 && source->limit < data->count) data->count = source->limit;
    return take_digest(data);
}

/* Class names one after another, each with its NUL. */
static oct_status pack_names(const oct_dataset *data, char **bytes, size_t *size)
{
    *size = 0;
    if (!data->class_names) return OCT_OK;
    for (int64_t i = 0; i < data->classes; i++)
        *size += strlen(data->class_names[i]) + 1;
    OCT_TRY(oct_alloc(bytes, *size, 1));
    char *at = *bytes;
    for (int64_t i = 0; i < data->classes; i++) {
        const size_t length = strlen(data->class_names[i]) + 1;
        memcpy(at, data->class_names[i], length);
        at += length;
    }
    return OCT_OK;
}

static oct_status part_names(oct_dataset *data, const char *bytes, size_t size)
{
    if (size == 0) return OCT_OK;
    OCT_TRY(oct_dataset_name_classes(data, data->classes));
    for (int64_t i = 0; i < data->classes; i++) {
        OCT_TRY(oct_strdup(&data->class_names[i], bytes));
        bytes += strlen(bytes) + 1;
    }
    return OCT_OK;
}

/* What goes from rank 0 to the others. */
typedef struct parcel {
    struct {
        oct_dataset data; /* of its pointers only whether they are NULL means something elsewhere */
        size_t names, packed; /* bytes */
    } head;
    void *packed;
    char *names;
} parcel;

static oct_status make_parcel(parcel *p, const oct_dataset *data)
{
    p->head.data = *data;
    OCT_TRY(pack_names(data, &p->names, &p->head.names));
    return data->format->pack(data, &p->packed, &p->head.packed);
}

static oct_status make_room(parcel *p, oct_dataset *data, const oct_dataset_format *format)
{
    const oct_dataset *there = &p->head.data;
    *data = *there;
    data->format = format;
    data->labels = NULL;
    data->values = NULL;
    data->class_names = NULL;
    data->store = NULL;
    const size_t count = (size_t)data->count;
    if (there->labels) OCT_TRY(oct_alloc(&data->labels, count, sizeof *data->labels));
    if (there->values)
        OCT_TRY(oct_alloc(&data->values, count * (size_t)data->classes, sizeof *data->values));
    OCT_TRY(oct_alloc(&p->names, p->head.names, 1));
    return oct_alloc(&p->packed, p->head.packed, 1);
}

static oct_status send_arrays(const parcel *p, oct_dataset *data, const oct_collective *group)
{
    const size_t count = (size_t)data->count;
    if (data->labels)
        OCT_TRY(group->broadcast(group, data->labels, count * sizeof *data->labels, 0));
    if (data->values)
        OCT_TRY(group->broadcast(group, data->values,
                                 count * (size_t)data->classes * sizeof *data->values, 0));
    OCT_TRY(group->broadcast(group, p->names, p->head.names, 0));
    return group->broadcast(group, p->packed, p->head.packed, 0);
}

/* Rank 0 has opened; it sends the others what it found. */
static oct_status share(opening *l, const oct_collective *group)
{
    parcel p = {0};
    oct_dataset *data = l->data;
    const bool first = group->rank == 0;
    oct_status status = first ? make_parcel(&p, data) : OCT_OK;
    OCT_TRY_OUT(group->agree(group, status));
    OCT_TRY_OUT(group->broadcast(group, &p.head, sizeof p.head, 0));
    if (!first) status = make_room(&p, data, l->format);
    OCT_TRY_OUT(group->agree(group, status));
    OCT_TRY_OUT(send_arrays(&p, data, group));
    if (!first) {
        status = part_names(data, p.names, p.head.names);
        if (status == OCT_OK) status = l->format->unpack(data, p.packed, p.head.packed);
    }
    status = group->agree(group, status);
out:
    oct_free(&p.packed);
    oct_free(&p.names);
    return status;
}

static oct_status open_together(opening *l, const oct_collective *group)
{
    const bool shared = l->format->pack && group->size > 1;
    const oct_status status = shared && group->rank > 0 ? OCT_OK : open_here(l);
    OCT_TRY(group->agree(group, status));
    return shared ? share(l, group) : OCT_OK;
}

oct_status oct_dataset_open(oct_dataset *data, const oct_dataset_source *source, oct_split split)
{
    opening l = {.data = data,
                 .source = source,
                 .format = source->format,
                 .folder = source->folder,
                 .split = split};
    *data = (oct_dataset){.format = source->format};
    const oct_status status = source->group ? open_together(&l, source->group) : open_here(&l);
    if (status != OCT_OK) oct_dataset_close(data);
    oct_free(&l.plain);
    return status;
}

oct_status oct_dataset_name_classes(oct_dataset *data, int64_t classes)
{
    OCT_TRY(oct_alloc(&data->class_names, (size_t)classes, sizeof *data->class_names));
    data->classes = classes;
    return OCT_OK;
}

void oct_dataset_close(oct_dataset *data)
{
    free_names(data);
    oct_free(&data->labels);
    oct_free(&data->values);
    if (data->format) data->format->close(data);
    *data = (oct_dataset){0};
}
