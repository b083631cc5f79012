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

/* Lists the entries of a folder but hidden ones, sorted by their bytes. */
static oct_status list_folder(listing *l, const char *path)
{
    DIR *stream = opendir(path);
    *l = (listing){0};
    OCT_CHECK(stream, errno == EACCES ? OCT_RESOURCE : OCT_DATA, "%s: cannot be read: %s", path,
              strerror(errno));
    oct_status status = OCT_OK;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        OCT_CHECK_OUT(entry || errno == 0, OCT_DATA, "%s: cannot be read: %s", path,
                      strerror(errno));
        if (!entry) break;
        if (entry->d_name[0] == '.') continue;
        const size_t length = strlen(entry->d_name) + 1;
        OCT_TRY_OUT(oct_grow(&l->block, &l->capacity, l->bytes + length, 1));
        memcpy(l->block + l->bytes, entry->d_name, length);
        l->bytes += length;
        l->count++;
    }
    OCT_TRY_OUT(oct_alloc(&l->name, (size_t)l->count, sizeof *l->name));
    char *name = l->block;
    for (int64_t i = 0; i < l->count; i++) {
        l->name[i] = name;
        name += strlen(name) + 1;
    }
    if (l->count > 1) qsort(l->name, (size_t)l->count, sizeof *l->name, oct_compare_names);
out:
    closedir(stream);
    if (status != OCT_OK) free_listing(l);
    return status;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* A split that is being opened. */
typedef struct reading {
    oct_dataset *data;
    const oct_dataset_source *source;
    oct_split split;
    char root[PATH_MAX];
    const char *split_folder; /* "train", "test", "val", or "" without such folders */
    bool drawn;               /* the test is a share of the classes' pictures */
    char **class_names;       /* sorted; borrowed of a listing */
    int64_t num_classes;      /* of them */
    size_t label_capacity;
    int64_t num_ignored;        /* entries that are neither class folder nor picture */
    char ignored[NAME_MAX + 1]; /* the first of them */
} reading;

static void count_ignored(reading *r, const char *name)
{
    if (r->num_ignored++ == 0) memcpy(r->ignored, name, strlen(name) + 1);
}

/* Makes the path of a folder in the root or, split_folder not empty, in that folder of the root. */
static oct_status make_path(oct_path *path, const reading *r, const char *split_folder,
                            const char *name)
{
    return oct_path_make(path, "%s/%s%s%s", r->root, split_folder, *split_folder ? "/" : "", name);
}

static oct_status has_folder(const reading *r, const char *name, bool *found)
{
    oct_path path;
    OCT_TRY(make_path(&path, r, "", name));
    *found = is_folder(path.text);
    return OCT_OK;
}

/* Keeps the folders of a listing, which are the classes. Where classes are not asked for and the folder holds
 * pictures, it is the only class itself. */
static oct_status keep_folders(reading *r, const char *split_folder, listing *l)
{
    static char folder_itself[] = ".";
    int64_t kept = 0;
    for (int64_t i = 0; r->source->goal == OCT_GOAL_NONE && i < l->count; i++)
        if (oct_is_picture_name(l->name[i])) {
            l->name[0] = folder_itself;
            l->count = 1;
            return OCT_OK;
        }
    for (int64_t i = 0; i < l->count; i++) {
        oct_path path;
        OCT_TRY(make_path(&path, r, split_folder, l->name[i]));
        if (!is_folder(path.text)) {
            count_ignored(r, l->name[i]);
            continue;
        }
        OCT_TRY(oct_check_inside(r->root, path.text));
        l->name[kept++] = l->name[i];
    }
    l->count = kept;
    return OCT_OK;
}

static oct_status list_classes(reading *r, const char *split_folder, listing *l)
{
    oct_path path;
    OCT_TRY(make_path(&path, r, "", split_folder));
    OCT_TRY(list_folder(l, path.text));
    return keep_folders(r, split_folder, l);
}

/* Adds pictures of a class to the index. */
static oct_status add_pictures(reading *r, int64_t class, char **names, int64_t count)
{
    oct_picture_list *list = r->data->store;
    const size_t all = (size_t)(list->count + count);
    OCT_TRY(oct_grow(&r->data->labels, &r->label_capacity, all, sizeof *r->data->labels));
    for (int64_t i = 0; i < count; i++) {
        oct_path inner, path; /* below the root, and from it on */
        int64_t bytes;
        OCT_TRY(oct_path_make(&inner, "%s%s%s/%s", r->split_folder, *r->split_folder ? "/" : "",
                              r->class_names[class], names[i]));
        OCT_TRY(make_path(&path, r, "", inner.text));
        OCT_TRY(oct_picture_check(r->root, path.text, &bytes));
        r->data->labels[list->count] = (int32_t) class;
        OCT_TRY(oct_pictures_add(list, inner.text, NULL, bytes));
    }
    return OCT_OK;
}

/* Keeps the pictures of a class that are drawn for the split. */
static oct_status draw_pictures(const reading *r, int64_t class, listing *l)
{
    const oct_split_draw d = {l->count, r->source->split, r->source->seed, (uint32_t) class};
    OCT_OWNED(oct_free) int64_t *positions = NULL;
    int64_t chosen;
    OCT_CHECK(l->count > 1 || d.share >= 1, OCT_DATA,
              "%s/%s: holds one picture; %s where data.split draws the test", r->source->folder,
              r->class_names[class],
              r->source->goal == OCT_GOAL_NONE ? "two are needed" : "a class needs two");
    OCT_TRY(oct_split_choose(&d, r->split, &positions, &chosen));
    for (int64_t i = 0; i < chosen; i++)
        l->name[i] = l->name[positions[i]];
    l->count = chosen;
    return OCT_OK;
}

/* Adds the pictures of a class's folder to the index. */
static oct_status index_class(reading *r, int64_t class, const char *path)
{
    OCT_OWNED(free_listing) listing l = {0};
    OCT_TRY(list_folder(&l, path));
    int64_t kept = 0;
    for (int64_t i = 0; i < l.count; i++)
        if (oct_is_picture_name(l.name[i]))
            l.name[kept++] = l.name[i];
        else
            count_ignored(r, l.name[i]);
    l.count = kept;
    OCT_CHECK(l.count > 0, OCT_DATA,
              "%s: holds no pictures (.jpg, .jpeg, .png); remove the folder or fill it", path);
    if (r->drawn) OCT_TRY(draw_pictures(r, class, &l));
    return add_pictures(r, class, l.name, l.count);
}

/* Adds the pictures of all classes to the index. A class may have no folder in the test, but no empty one. */
static oct_status index_classes(reading *r)
{
    for (int64_t i = 0; i < r->num_classes; i++) {
        oct_path path;
        OCT_TRY(make_path(&path, r, r->split_folder, r->class_names[i]));
        if (is_folder(path.text))
            OCT_TRY(index_class(r, i, path.text));
        else
            oct_log(OCT_LOG_WARN, "%s: the class is in train, but not here", path.text);
    }
    return OCT_OK;
}

/* Refuses class folders of the test that train lacks: training knows the classes, so others are never right. */
static oct_status check_test_classes(reading *r)
{
    OCT_OWNED(free_listing) listing l = {0};
    OCT_TRY(list_classes(r, r->split_folder, &l));
    for (int64_t i = 0; i < l.count; i++)
        OCT_CHECK(bsearch(&l.name[i], r->class_names, (size_t)r->num_classes,
                          sizeof *r->class_names, oct_compare_names),
                  OCT_DATA,
                  "%s/%s/%s: the class is not in train; move the folder away or add it to train",
                  r->source->folder, r->split_folder, l.name[i]);
    return OCT_OK;
}

/* Checks the classes and indexes the pictures of the split. */
static oct_status index_pictures(reading *r)
{
    oct_picture_list *list = r->data->store;
    if (r->num_classes == 0) {
        return oct_fail(OCT_DATA, "%s%s%s: holds no folders of classes%s%s; %s", r->source->folder,
                        *r->split_folder ? "/" : "", r->split_folder,
                        r->num_ignored ? ", but files such as " : "", r->ignored, FILES);
    }
    OCT_CHECK(r->num_classes > 1 || r->source->goal == OCT_GOAL_INPUT ||
                  r->source->goal == OCT_GOAL_NONE,
              OCT_DATA, "%s: holds one class folder, %s; at least two classes are needed; %s",
              r->source->folder, r->class_names[0], FILES);
    OCT_CHECK(r->source->classes == 0 || r->source->classes == r->num_classes ||
                  r->source->goal == OCT_GOAL_NONE,
              OCT_USAGE,
              "data.classes: %" PRId64 ", but %s holds %" PRId64
              " folders of classes; take data of as many classes, or leave the key out",
              r->source->classes, r->source->folder, r->num_classes);
    OCT_TRY(oct_dataset_name_classes(r->data, r->class_names, r->num_classes));
    if (!r->drawn && r->split == OCT_TEST) OCT_TRY(check_test_classes(r));
    OCT_TRY(index_classes(r));
    OCT_CHECK(list->count > 0, OCT_DATA, "%s/%s: holds no pictures; %s", r->source->folder,
              r->split_folder, FILES);
    if (r->num_ignored > 0)
        oct_log(OCT_LOG_WARN,
                "%s: what is no picture is passed over, such as %s (%" PRId64 " in all)",
                r->source->folder, r->ignored, r->num_ignored);
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
    OCT_OWNED(free_listing) listing classes = {0};
    OCT_CHECK(realpath(source->folder, r.root), OCT_DATA, "%s: %s", source->folder,
              strerror(errno));
    OCT_TRY(oct_pictures_begin(data, source, r.root));
    /* Which folder holds the split: train beside test or val, or everything in one. */
    bool train, test, val;
    OCT_TRY(has_folder(&r, "train", &train));
    OCT_TRY(has_folder(&r, "test", &test));
    OCT_TRY(has_folder(&r, "val", &val));
    OCT_CHECK(train || !(test || val), OCT_DATA, "%s: holds the folder %s, but no folder train; %s",
              r.source->folder, test ? "test" : "val", FILES);
    r.drawn = !test && !val;
    r.split_folder = train ? "train" : "";
    if (!r.drawn && r.split == OCT_TEST) r.split_folder = test ? "test" : "val";
    OCT_TRY(list_classes(&r, r.drawn ? r.split_folder : "train", &classes));
    r.class_names = classes.name;
    r.num_classes = classes.count;
    return index_pictures(&r);
}

const oct_dataset_format oct_dataset_folder = {
    .name = "folder",
    .files = FILES,
    .open = open_split,
    OCT_PICTURES_MEMBERS,
};
