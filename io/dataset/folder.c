/* Folders of pictures: one folder for each class, in train and test (or val), or all in one place; then a
 * share is drawn for the test.
 *
 * Everything goes by the sorted names (bytes, not the language): classes, the order of samples, and the
 * draw, so that the same files are the same data set on every machine.
 */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/dataset/picture_list.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FILES                                                                                      \
    "expected: train/CLASS/*.jpg (.jpeg, .png) and test/CLASS/* (or val/CLASS/*); or CLASS/*, "    \
    "and data.split says the share for the test; with data.goal=none pictures without such "       \
    "folders, too"

/* The entries of a folder, sorted; hidden ones are left out. */
typedef struct listing {
    char *block;
    size_t bytes, capacity;
    char **name;
    int64_t count;
} listing;

static void free_listing(listing *l)
{
    oct_free(&l->block);
    oct_free(&l->name);
    *l = (listing){0};
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static oct_status read_entries(listing *l, DIR *stream, const char *path)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        OCT_CHECK(entry || errno == 0, OCT_DATA, "%s: cannot be read: %s", path, strerror(errno));
        if (!entry) return OCT_OK;
        if (entry->d_name[0] != '.') {
            const size_t length = strlen(entry->d_name) + 1;
            OCT_TRY(oct_grow(&l->block, &l->capacity, l->bytes + length, 1));
            memcpy(l->block + l->bytes, entry->d_name, length);
            l->bytes += length;
            l->count++;
        }
    }
}

static oct_status list_folder(listing *l, const char *path)
{
    DIR *stream = opendir(path);
    *l = (listing){0};
    OCT_CHECK(stream, errno == EACCES ? OCT_RESOURCE : OCT_DATA, "%s: cannot be read: %s", path,
              strerror(errno));
    oct_status status = read_entries(l, stream, path);
    closedir(stream);
    if (status == OCT_OK) status = oct_alloc(&l->name, (size_t)l->count, sizeof *l->name);
    if (status != OCT_OK) {
        free_listing(l);
        return status;
    }
    size_t at = 0;
    for (int64_t i = 0; i < l->count; i++) {
        l->name[i] = l->block + at;
        at += strlen(l->block + at) + 1;
    }
    if (l->count > 1) qsort(l->name, (size_t)l->count, sizeof *l->name, by_bytes);
    return OCT_OK;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* What an opening works with. */
typedef struct reading {
    oct_dataset *data;
    const oct_dataset_source *source;
    oct_split split;
    char root[PATH_MAX];
    const char *part;    /* "train", "test", "val", or "" without such folders */
    bool drawn;          /* the test is a share of the classes' pictures */
    char **class_names;  /* sorted; borrowed of a listing */
    int64_t num_classes; /* of them */
    size_t label_capacity;
    int64_t others; /* entries that are neither class folder nor picture */
    char other[NAME_MAX + 1];
} reading;

static void count_other(reading *r, const char *name)
{
    if (r->others++ == 0) memcpy(r->other, name, strlen(name) + 1);
}

static oct_status path_of(char **path, const reading *r, const char *part, const char *name)
{
    return *part ? oct_format(path, "%s/%s/%s", r->root, part, name)
                 : oct_format(path, "%s/%s", r->root, name);
}

static oct_status has_part(const reading *r, const char *part, bool *there)
{
    char *path = NULL;
    OCT_TRY(path_of(&path, r, "", part));
    *there = is_folder(path);
    oct_free(&path);
    return OCT_OK;
}

static bool holds_pictures(const listing *l)
{
    for (int64_t i = 0; i < l->count; i++)
        if (oct_is_picture_name(l->name[i])) return true;
    return false;
}

/* Keeps the folders of a listing, which are the classes. Where classes are not asked for, pictures beside them or
 * without them are those of the folder itself. */
static oct_status keep_folders(reading *r, const char *part, listing *l)
{
    static char here[] = ".";
    int64_t kept = 0;
    if (r->source->goal == OCT_GOAL_NONE && holds_pictures(l)) {
        l->name[0] = here;
        l->count = 1;
        return OCT_OK;
    }
    for (int64_t i = 0; i < l->count; i++) {
        char *path = NULL;
        OCT_TRY(path_of(&path, r, part, l->name[i]));
        const bool folder = is_folder(path);
        const oct_status status = folder ? oct_check_inside(r->root, path) : OCT_OK;
        oct_free(&path);
        OCT_TRY(status);
        if (folder)
            l->name[kept++] = l->name[i];
        else
            count_other(r, l->name[i]);
    }
    l->count = kept;
    return OCT_OK;
}

static oct_status list_classes(reading *r, const char *part, listing *l)
{
    char *path = NULL;
    OCT_TRY(path_of(&path, r, "", part));
    oct_status status = list_folder(l, path);
    oct_free(&path);
    if (status == OCT_OK) status = keep_folders(r, part, l);
    return status;
}

static oct_status add_picture(reading *r, const char *class, const char *name)
{
    char *inner = NULL, *path = NULL;
    int64_t bytes;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(*r->part ? oct_format(&inner, "%s/%s/%s", r->part, class, name)
                         : oct_format(&inner, "%s/%s", class, name));
    OCT_TRY_OUT(path_of(&path, r, "", inner));
    OCT_TRY_OUT(oct_picture_check(r->root, path, &bytes));
    status = oct_pictures_add(r->data->store, inner, NULL, bytes);
out:
    oct_free(&inner);
    oct_free(&path);
    return status;
}

/* Adds the pictures at these positions, all of the class. */
static oct_status add_pictures(reading *r, int64_t class, char **names, int64_t count)
{
    const oct_picture_list *list = r->data->store;
    const size_t all = (size_t)(list->count + count);
    OCT_TRY(oct_grow(&r->data->labels, &r->label_capacity, all, sizeof *r->data->labels));
    for (int64_t i = 0; i < count; i++) {
        r->data->labels[list->count] = (int32_t) class;
        OCT_TRY(add_picture(r, r->class_names[class], names[i]));
    }
    return OCT_OK;
}

/* Leaves the drawn ones of a class's pictures. */
static oct_status draw(const reading *r, int64_t class, listing *l)
{
    const oct_split_draw d = {l->count, r->source->split, r->source->seed, (uint32_t) class};
    int64_t *positions = NULL, chosen;
    OCT_CHECK(l->count > 1 || d.share >= 1, OCT_DATA,
              "%s/%s: holds one picture; %s where data.split draws the test", r->source->folder,
              r->class_names[class],
              r->source->goal == OCT_GOAL_NONE ? "two are needed" : "a class needs two");
    OCT_TRY(oct_split_choose(&d, r->split, &positions, &chosen));
    for (int64_t i = 0; i < chosen; i++)
        l->name[i] = l->name[positions[i]];
    l->count = chosen;
    oct_free(&positions);
    return OCT_OK;
}

static oct_status scan_class(reading *r, int64_t class, const char *path)
{
    listing l;
    OCT_TRY(list_folder(&l, path));
    oct_status status = OCT_OK;
    int64_t kept = 0;
    for (int64_t i = 0; i < l.count; i++)
        if (oct_is_picture_name(l.name[i]))
            l.name[kept++] = l.name[i];
        else
            count_other(r, l.name[i]);
    l.count = kept;
    if (l.count == 0)
        status = oct_fail(OCT_DATA,
                          "%s: holds no pictures (.jpg, .jpeg, .png); remove the folder or fill it",
                          path);
    if (status == OCT_OK && r->drawn) status = draw(r, class, &l);
    if (status == OCT_OK) status = add_pictures(r, class, l.name, l.count);
    free_listing(&l);
    return status;
}

/* A class may be missing in the test; scan_class refuses an empty folder. */
static oct_status scan_classes(reading *r)
{
    for (int64_t i = 0; i < r->num_classes; i++) {
        char *path = NULL;
        OCT_TRY(path_of(&path, r, r->part, r->class_names[i]));
        oct_status status = OCT_OK;
        if (is_folder(path))
            status = scan_class(r, i, path);
        else
            oct_log(OCT_LOG_WARN, "%s: the class is in train, but not here", path);
        oct_free(&path);
        OCT_TRY(status);
    }
    return OCT_OK;
}

/* Training knows the classes; others in the test could never be right. */
static oct_status check_test_classes(reading *r)
{
    listing l = {0};
    oct_status status = list_classes(r, r->part, &l);
    for (int64_t i = 0; i < l.count && status == OCT_OK; i++)
        if (!bsearch(&l.name[i], r->class_names, (size_t)r->num_classes, sizeof *r->class_names,
                     by_bytes))
            status = oct_fail(OCT_DATA,
                              "%s/%s/%s: the class is not in train; move the folder away or add it "
                              "to train",
                              r->source->folder, r->part, l.name[i]);
    free_listing(&l);
    return status;
}

static oct_status fill_list(reading *r)
{
    oct_picture_list *list = r->data->store;
    if (r->num_classes == 0) {
        oct_fail(OCT_DATA, "%s%s%s: holds no folders of classes%s%s; %s", r->source->folder,
                 *r->part ? "/" : "", r->part, r->others ? ", but files such as " : "", r->other,
                 FILES);
        return OCT_DATA;
    }
    OCT_CHECK(r->num_classes > 1 || r->source->goal == OCT_GOAL_INPUT ||
                  r->source->goal == OCT_GOAL_NONE,
              OCT_DATA, "%s: holds one class folder, %s; at least two classes are needed; %s",
              r->source->folder, r->class_names[0], FILES);
    OCT_CHECK(r->source->classes == 0 || r->source->classes == r->num_classes ||
                  r->source->goal == OCT_GOAL_NONE,
              OCT_USAGE,
              "data.classes: %" PRId64 ", but %s holds %" PRId64
              " folders of classes; leave the key out",
              r->source->classes, r->source->folder, r->num_classes);
    OCT_TRY(oct_dataset_name_classes(r->data, r->num_classes));
    for (int64_t i = 0; i < r->num_classes; i++)
        OCT_TRY(oct_strdup(&r->data->class_names[i], r->class_names[i]));
    if (!r->drawn && r->split == OCT_TEST) OCT_TRY(check_test_classes(r));
    OCT_TRY(scan_classes(r));
    OCT_CHECK(list->count > 0, OCT_DATA, "%s/%s: holds no pictures; %s", r->source->folder, r->part,
              FILES);
    if (r->others > 0)
        oct_log(OCT_LOG_WARN,
                "%s: what is no picture is passed over, such as %s (%" PRId64 " in all)",
                r->source->folder, r->other, r->others);
    if (r->drawn && r->split == OCT_TRAIN)
        oct_log(OCT_LOG_INFO, "%s: no folder test or val; %g of %s is kept for the test",
                r->source->folder, r->source->split,
                r->source->goal == OCT_GOAL_NONE ? "the pictures" : "each class");
    r->data->count = list->count;
    return OCT_OK;
}

static oct_status open_split(oct_dataset *data, const oct_dataset_source *source, oct_split split)
{
    reading r = {.data = data, .source = source, .split = split};
    listing classes = {0};
    OCT_CHECK(realpath(source->folder, r.root), OCT_DATA, "%s: %s", source->folder,
              strerror(errno));
    OCT_TRY(oct_pictures_begin(data, source, r.root));
    /* Which folder holds the split: train beside test or val, or everything in one. */
    bool train, test, val;
    OCT_TRY(has_part(&r, "train", &train));
    OCT_TRY(has_part(&r, "test", &test));
    OCT_TRY(has_part(&r, "val", &val));
    OCT_CHECK(train || !(test || val), OCT_DATA, "%s: holds the folder %s, but no folder train; %s",
              r.source->folder, test ? "test" : "val", FILES);
    r.drawn = !test && !val;
    r.part = train ? "train" : "";
    if (!r.drawn && r.split == OCT_TEST) r.part = test ? "test" : "val";
    oct_status status = list_classes(&r, r.drawn ? r.part : "train", &classes);
    r.class_names = classes.name;
    r.num_classes = classes.count;
    if (status == OCT_OK) status = fill_list(&r);
    free_listing(&classes);
    return status;
}

const oct_dataset_format oct_dataset_folder = {
    .name = "folder",
    .files = FILES,
    .reads_files = true,
    .open = open_split,
    .read = oct_pictures_read,
    .sample_name = oct_pictures_sample_name,
    .close = oct_pictures_close,
    .digest = oct_pictures_digest,
    .pack = oct_pictures_pack,
    .unpack = oct_pictures_unpack,
};
