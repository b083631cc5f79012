/* The table of data set formats, and what formats have in common: the default folder, the number of classes, the cut to
 * a limit, the digest, the way of an index from rank 0 to the others, and samples in memory.
 *
 * A format's open may leave *data half-filled when it fails; releasing it happens here, once.
 */
#include "io/dataset/dataset.h"

#include "core/base/log.h"
#include "core/base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
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

oct_status oct_path_make(oct_path *path, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = oct_vsnprintf(path->text, sizeof path->text, format, args);
    va_end(args);
    OCT_CHECK(length >= 0 && length < (int)sizeof path->text, OCT_DATA,
              "%.60s...: the path is too long", path->text);
    return OCT_OK;
}

/* A split that is being opened. */
typedef struct opening {
    oct_dataset *data;
    oct_dataset_source source; /* with the folder that is meant, without a slash at its end */
    const oct_dataset_format *format;
    oct_path folder;
    oct_split split;
} opening;

/* Refuses labels outside of first_label to first_label + classes - 1, naming the file and index of the first. */
static oct_status check_labels(const opening *l, const oct_dataset *data, oct_split split,
                               int64_t classes)
{
    const char *file = l->format->label_file[split];
    int64_t first = l->source.first_label;
    for (int64_t i = 0; i < data->count; i++) {
        int64_t label = data->labels[i];
        OCT_CHECK(label >= first, OCT_DATA,
                  "%s/%s: label %" PRId64 " at index %" PRId64 " is below the first label, %" PRId64
                  "%s",
                  l->folder.text, file, label, i, first,
                  first > 0 ? "; set data.first_label to the smallest label"
                            : "; number the classes from 0 on");
        OCT_CHECK(label - first < classes, OCT_DATA,
                  "%s/%s: label %" PRId64 " at index %" PRId64 " is out of range %" PRId64
                  "..%" PRId64 "%s",
                  l->folder.text, file, label, i, first, first + classes - 1,
                  l->source.classes ? "; raise data.classes, or take data of these classes"
                                    : "; number the classes without gaps, from 0 on");
    }
    return OCT_OK;
}

/* The largest label of both splits, and where it is. */
typedef struct largest_label {
    oct_split split;
    int64_t label, index;
} largest_label;

/* Marks the classes that occur and returns how many of them are new. */
static int64_t mark_classes(const oct_dataset *data, int64_t first, uint8_t *seen)
{
    int64_t found = 0;
    for (int64_t i = 0; i < data->count; i++) {
        uint8_t *class = &seen[data->labels[i] - first];
        found += !*class;
        *class = 1;
    }
    return found;
}

/* Refuses labels where less than half of the classes up to the largest occur: a few labels far apart are a damaged
 * file or a mistake more often than a wish, and would make a huge last layer. */
static oct_status check_gaps(const opening *l, const oct_dataset *const splits[2],
                             const largest_label *top)
{
    int64_t first = l->source.first_label, classes = top->label - first + 1;
    OCT_OWNED(oct_free) uint8_t *seen = NULL;
    OCT_TRY(oct_alloc(&seen, (size_t)classes, 1));
    int64_t found = mark_classes(splits[0], first, seen) + mark_classes(splits[1], first, seen);
    OCT_CHECK(2 * found >= classes, OCT_DATA,
              "%s/%s: label %" PRId64 " at index %" PRId64 ", although only %" PRId64
              " different labels occur; number the classes without gaps, or write "
              "data.classes=%" PRId64 " if that many are meant",
              l->folder.text, l->format->label_file[top->split], top->label, top->index, found,
              classes);
    if (!seen[0] && first == 0 && l->split == OCT_TRAIN)
        oct_log(OCT_LOG_WARN,
                "%s: no sample has label 0, so one of the %" PRId64
                " classes stays unused; data.first_label=1 makes label 1 class 0",
                l->folder.text, classes);
    return OCT_OK;
}

/* Counts one class more than the largest label of both splits, so that the number does not depend on
 * which of them is loaded. */
static oct_status count_classes(const opening *l, int64_t *classes)
{
    const oct_split other = l->split == OCT_TRAIN ? OCT_TEST : OCT_TRAIN;
    OCT_OWNED(oct_dataset_close) oct_dataset labels = {.format = l->format};
    oct_dataset_source source = l->source;
    source.labels_only = true;
    const oct_dataset *splits[2];
    splits[l->split] = l->data;
    splits[other] = &labels;
    OCT_TRY(l->format->open(&labels, &source, other));
    OCT_TRY(check_labels(l, l->data, l->split, OCT_CLASSES_MAX));
    OCT_TRY(check_labels(l, &labels, other, OCT_CLASSES_MAX));
    largest_label top = {.label = INT64_MIN};
    for (int k = 0; k < 2; k++) {
        const oct_split split = k == 0 ? l->split : other;
        for (int64_t i = 0; i < splits[split]->count; i++)
            if (splits[split]->labels[i] > top.label)
                top = (largest_label){split, splits[split]->labels[i], i};
    }
    *classes = top.label - l->source.first_label + 1;
    OCT_CHECK(*classes > 1, OCT_DATA,
              "%s: every label is %" PRId64 "; at least two classes are needed", l->folder.text,
              l->source.first_label);
    return check_gaps(l, splits, &top);
}

/* Counts or checks the classes, and numbers labels from 0. Formats that know the classes by name have done both. */
static oct_status find_classes(const opening *l)
{
    oct_dataset *data = l->data;
    int64_t classes = l->source.classes ? l->source.classes : l->format->classes;
    if (data->class_names) return OCT_OK;
    if (classes == 0)
        OCT_TRY(count_classes(l, &classes));
    else
        OCT_TRY(check_labels(l, data, l->split, classes));
    for (int64_t i = 0; i < data->count; i++)
        data->labels[i] -= (int32_t)l->source.first_label;
    data->classes = classes;
    return OCT_OK;
}

/* Digests the samples, as their format does it, with their labels or values. */
static oct_status make_digest(oct_dataset *data)
{
    oct_sha256_state *state = NULL;
    OCT_TRY(oct_sha256_begin(&state));
    data->format->digest(data, state);
    if (data->labels) {
        /* Labels that fit are digested as the bytes that they are in the usual files, others as they lie. */
        enum { BYTE_CLASSES = 256 };
        for (int64_t i = 0; i < data->count; i++)
            oct_sha256_add(state, &data->labels[i],
                           data->classes <= BYTE_CLASSES ? 1 : sizeof *data->labels);
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
    const int64_t sample =
        numel > 0 ? numel * (int64_t)oct_dtype_bytes(data->dtype) : PICTURE_BYTES;
    /* Of samples that have more than PROBE_BYTES together each step-th one, but PROBES of them at least. */
    const int64_t by_bytes = data->count * sample / PROBE_BYTES + 1;
    const int64_t by_count = data->count > PROBES ? data->count / PROBES : 1;
    const int64_t step = by_bytes < by_count ? by_bytes : by_count;
    OCT_OWNED(oct_image_free) oct_image image = {0}, map = {0};
    oct_status status = OCT_OK;
    OCT_TRY(oct_sha256_begin(&state));
    oct_sha256_add(state, data->digest, sizeof data->digest);
    for (int64_t i = 0; data->format->reads_files && i < data->count; i += step) {
        status = data->format->read(data, i, &image, &map);
        if (status != OCT_OK && status != OCT_DATA) break;
        if (status == OCT_DATA) {
            oct_fail_clear(); /* whoever needs the sample reports it */
            status = OCT_OK;
            continue;
        }
        oct_sha256_add(state, image.data,
                       (size_t)oct_image_numel(&image) * oct_dtype_bytes(image.dtype));
        oct_sha256_add(state, map.data, (size_t)oct_image_numel(&map) * sizeof(int32_t));
    }
    oct_sha256_end(&state, contents);
    return status;
}

void oct_dataset_resize(oct_dataset *data, int64_t h, int64_t w, int64_t c)
{
    data->h = h;
    data->w = w;
    data->c = c;
    data->rows = data->goal == OCT_GOAL_MAP ? h * w : 1;
    if (data->goal == OCT_GOAL_INPUT) data->classes = h * w * c;
}

/* Opens a split in this process alone: checks source and goal, reads the index, finds the classes, digests all. */
static oct_status open_alone(opening *l)
{
    oct_dataset *data = l->data;
    const char *folder = l->source.folder;
    *data = (oct_dataset){.format = l->format, .goal = l->source.goal};
    if (!folder || !*folder) folder = l->format->default_path;
    OCT_CHECK(folder, OCT_USAGE,
              "data.path: the format %s has no default folder; write data.path=FOLDER, or with a "
              "model or checkpoint --data FOLDER; %s",
              l->format->name, l->format->files);
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    OCT_TRY(oct_path_make(&l->folder, "%.*s", (int)length, folder));
    l->source.folder = l->folder.text;
    const unsigned can = l->format->goals ? l->format->goals : 1u << OCT_GOAL_CLASS;
    OCT_CHECK(can >> data->goal & 1 || data->goal == OCT_GOAL_INPUT || data->goal == OCT_GOAL_NONE,
              OCT_USAGE,
              "data.goal: the format %s has no goals of the kind %s; use another format or goal",
              l->format->name, oct_registry_name(&oct_goal_kind_table, data->goal));
    struct stat info;
    bool there = stat(l->folder.text, &info) == 0;
    OCT_CHECK(
        there, OCT_DATA,
        "%s: there is no such folder; %s; name another with data.path=FOLDER or, where a model "
        "or checkpoint is given, --data FOLDER",
        l->folder.text, l->format->files);
    OCT_CHECK(S_ISDIR(info.st_mode) || l->format->takes_file, OCT_DATA,
              "%s: is a file, not a folder; data.path is the folder that holds the files",
              l->folder.text);
    OCT_TRY(l->format->open(data, &l->source, l->split));
    data->read_h = data->h;
    data->read_w = data->w;
    data->read_c = data->c;
    if (data->goal == OCT_GOAL_CLASS)
        OCT_TRY(find_classes(l));
    else
        oct_free(&data->class_names); /* which are not those of the outputs */
    if (data->goal == OCT_GOAL_NONE) {
        /* Labels are not asked for, even where the files have some. */
        oct_free(&data->labels);
        data->classes = l->source.classes ? l->source.classes : l->format->classes;
        OCT_CHECK(
            data->classes > 0, OCT_USAGE,
            "data.classes: samples without labels (data.goal: none) do not say how many outputs "
            "the network has; write data.classes=NUMBER");
    }
    oct_dataset_resize(data, data->h, data->w, data->c);
    if (l->source.limit > 0 && l->source.limit < data->count) data->count = l->source.limit;
    return make_digest(data);
}

/* The texts of the names, one after another, each with its NUL: the end of the block of class_names. */
static char *names_text(const oct_dataset *data)
{
    return (char *)(data->class_names + data->classes);
}

static oct_status reserve_names(oct_dataset *data, int64_t classes, size_t bytes)
{
    data->classes = classes;
    return oct_alloc(&data->class_names, (size_t)classes * sizeof(char *) + bytes, 1);
}

static void point_to_names(oct_dataset *data)
{
    char *name = names_text(data);
    for (int64_t i = 0; i < data->classes; i++) {
        data->class_names[i] = name;
        name += strlen(name) + 1;
    }
}

oct_status oct_dataset_name_classes(oct_dataset *data, char *const *names, int64_t classes)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < classes; i++)
        bytes += strlen(names[i]) + 1;
    OCT_TRY(reserve_names(data, classes, bytes));
    char *text = names_text(data);
    for (int64_t i = 0; i < classes; i++) {
        const size_t length = strlen(names[i]) + 1;
        memcpy(text, names[i], length);
        text += length;
    }
    point_to_names(data);
    return OCT_OK;
}

/* What rank 0 sends the others first. */
typedef struct shared_head {
    oct_dataset data; /* of its pointers only whether they are NULL means something elsewhere */
    size_t name_bytes, index_bytes;
} shared_head;

/* Allocates what rank 0's data set holds (labels, values, names, index), which is then received. */
static oct_status make_room(oct_dataset *data, const shared_head *head, void **index)
{
    const oct_dataset_format *format = data->format;
    const size_t count = (size_t)head->data.count, classes = (size_t)head->data.classes;
    *data = head->data;
    data->format = format;
    data->labels = NULL;
    data->values = NULL;
    data->class_names = NULL;
    data->store = NULL;
    if (head->data.labels) OCT_TRY(oct_alloc(&data->labels, count, sizeof *data->labels));
    if (head->data.values) OCT_TRY(oct_alloc(&data->values, count * classes, sizeof(float)));
    if (head->data.class_names) OCT_TRY(reserve_names(data, data->classes, head->name_bytes));
    return oct_alloc(index, head->index_bytes, 1);
}

/* Rank 0 has opened; it sends the others what it found. */
static oct_status share_dataset(oct_dataset *data, const oct_collective *group)
{
    const bool first = group->rank == 0;
    shared_head head = {.data = *data};
    OCT_OWNED(oct_free) void *index = NULL;
    oct_status status = OCT_OK;
    for (int64_t i = 0; first && data->class_names && i < data->classes; i++)
        head.name_bytes += strlen(data->class_names[i]) + 1;
    if (first) status = data->format->pack(data, &index, &head.index_bytes);
    OCT_TRY(group->agree(group, status));
    OCT_TRY(group->broadcast(group, &head, sizeof head, 0));
    if (!first) status = make_room(data, &head, &index);
    OCT_TRY(group->agree(group, status));
    const size_t count = (size_t)data->count, classes = (size_t)data->classes;
    if (data->labels)
        OCT_TRY(group->broadcast(group, data->labels, count * sizeof *data->labels, 0));
    if (data->values)
        OCT_TRY(group->broadcast(group, data->values, count * classes * sizeof(float), 0));
    if (data->class_names) OCT_TRY(group->broadcast(group, names_text(data), head.name_bytes, 0));
    OCT_TRY(group->broadcast(group, index, head.index_bytes, 0));
    if (!first && data->class_names) point_to_names(data);
    if (!first) status = data->format->unpack(data, index, head.index_bytes);
    return group->agree(group, status);
}

oct_status oct_dataset_open(oct_dataset *data, const oct_dataset_source *source, oct_split split)
{
    const oct_collective *group = source->group;
    opening l = {.data = data, .source = *source, .format = source->format, .split = split};
    const bool shared = source->format->pack && group && group->size > 1;
    *data = (oct_dataset){.format = source->format};
    oct_status status = shared && group->rank > 0 ? OCT_OK : open_alone(&l);
    if (group) status = group->agree(group, status);
    if (shared && status == OCT_OK) status = share_dataset(data, group);
    if (status != OCT_OK) oct_dataset_close(data);
    return status;
}

void oct_dataset_close(oct_dataset *data)
{
    OCT_FREE_ALL(&data->class_names, &data->labels, &data->values);
    if (data->format) data->format->close(data);
    *data = (oct_dataset){0};
}

/* Samples in memory: what the small formats read whole, and what programs make. */

static size_t sample_bytes(const oct_dataset *data)
{
    return (size_t)(data->read_h * data->read_w * data->read_c) * oct_dtype_bytes(data->dtype);
}

oct_status oct_memory_read(const oct_dataset *data, int64_t index, oct_image *image, oct_image *map)
{
    const size_t bytes = sample_bytes(data);
    (void)map;
    OCT_TRY(oct_image_resize(image, data->dtype, data->read_h, data->read_w, data->read_c));
    memcpy(image->data, (const uint8_t *)data->store + (size_t)index * bytes, bytes);
    return OCT_OK;
}

void oct_memory_close(oct_dataset *data)
{
    oct_free(&data->store);
}

void oct_memory_digest(const oct_dataset *data, oct_sha256_state *state)
{
    oct_sha256_add(state, data->store, (size_t)data->count * sample_bytes(data));
}

const oct_dataset_format oct_dataset_memory = {
    .name = "memory",
    .files = "nothing: the samples are a program's own",
    OCT_MEMORY_MEMBERS,
};

oct_example oct_dataset_inputs(const oct_dataset *data, const float *batch, int64_t samples,
                               int64_t at, int64_t n)
{
    oct_example x = *OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c));
    if (data->num_inputs > 0) x.count = data->num_inputs;
    for (int i = 0; i < x.count; i++) {
        if (data->num_inputs > 0) x.shape[i] = data->input[i];
        const int64_t numel = oct_shape_numel(&x.shape[i]);
        x.shape[i].dim[0] = n;
        if (batch) x.data[i] = batch + at * numel;
        if (batch) batch += samples * numel;
    }
    return x;
}

oct_status oct_memory_make(oct_dataset *data, int64_t count, const oct_image *sample,
                           int64_t classes)
{
    *data = (oct_dataset){.format = &oct_dataset_memory,
                          .count = count,
                          .h = sample->h,
                          .w = sample->w,
                          .c = sample->c,
                          .read_h = sample->h,
                          .read_w = sample->w,
                          .read_c = sample->c,
                          .dtype = sample->dtype,
                          .classes = classes,
                          .rows = 1};
    OCT_TRY(oct_alloc(&data->store, (size_t)count, sample_bytes(data)));
    return oct_alloc(&data->labels, (size_t)count, sizeof *data->labels);
}
