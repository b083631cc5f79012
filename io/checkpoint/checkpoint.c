/* Loading checkpoints: everything is read into memory of its own before the first value of the model changes. */
#include "io/checkpoint/checkpoint_impl.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/model/class_names.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"
#include "io/checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECIPE_BYTES_MAX = 1 << 20 };

static oct_status read_early_stopping(oct_h5 *h5, oct_early_stopping *stopping)
{
    int64_t bits;
    if (!oct_h5_has(h5, "info/best_value_bits")) return OCT_OK;
#define X(name) OCT_TRY(oct_h5_read_i64(h5, "info/" #name, 0, INT64_MAX, &stopping->name));
    OCT_EARLY_STOPPING_NUMBERS(X)
#undef X
    OCT_TRY(oct_h5_read_i64(h5, "info/best_value_bits", INT64_MIN, INT64_MAX, &bits));
    memcpy(&stopping->best_value, &bits, sizeof bits);
    return OCT_OK;
}

static oct_status read_skips(oct_h5 *h5, oct_skips *skips)
{
    if (!oct_h5_has(h5, "info/skipped")) return OCT_OK;
    OCT_TRY(oct_h5_read_i64(h5, "info/skipped", 1, INT64_MAX, &skips->all));
    return oct_h5_read_i64(h5, "info/skipped_row", 0, skips->all, &skips->row);
}

static oct_status read_info(oct_h5 *h5, const char *path, oct_checkpoint_info *info, bool *newer)
{
    char *phase = NULL;
    int64_t format;

    OCT_CHECK(!oct_h5_has(h5, "program"), OCT_DATA, "%s: is an int8 model, not a checkpoint", path);
    OCT_TRY(oct_h5_read_i64(h5, "info/format", 1, INT64_MAX, &format));
    *newer = format > OCT_CHECKPOINT_FORMAT;
    OCT_CHECK(!*newer, OCT_DATA,
              "%s: has checkpoint format %lld and this Octet knows format %d; use a newer Octet",
              path, (long long)format, OCT_CHECKPOINT_FORMAT);
    OCT_TRY(oct_h5_read_i64(h5, "info/step", 0, INT64_MAX, &info->step));
    OCT_TRY(oct_h5_read_i64(h5, "info/updates", 0, INT64_MAX, &info->updates));
    OCT_TRY(oct_h5_read_text(h5, "info/phase", sizeof info->phase - 1, &phase));
    snprintf(info->phase, sizeof info->phase, "%s", phase);
    oct_free(&phase);
    OCT_TRY(read_early_stopping(h5, &info->stopping));
    OCT_TRY(read_skips(h5, &info->skips));
    OCT_TRY(oct_h5_read_text(h5, "info/recipe", RECIPE_BYTES_MAX, &info->recipe));
    if (!oct_h5_has(h5, "info/class_names")) return OCT_OK;
    return oct_h5_read_text(h5, "info/class_names", OCT_CLASS_NAMES_BYTES_MAX, &info->class_names);
}

/* Takes the bytes over; a checkpoint comes out whole or empty. */
static oct_status adopt(oct_checkpoint *ckpt, const char *path, void *bytes, size_t size,
                        bool *newer)
{
    oct_status status = OCT_OK;

    *newer = false;
    *ckpt = (oct_checkpoint){.bytes = bytes, .size = size, .fd = -1};
    OCT_TRY_OUT(oct_strdup(&ckpt->path, path));
    OCT_TRY_OUT(oct_h5_open_checked(&ckpt->file, bytes, size, path));
    status = read_info(ckpt->file, path, &ckpt->info, newer);
out:
    if (status != OCT_OK) oct_checkpoint_close(ckpt);
    return status;
}

/* Checks a file against what the manifest says of it; entry: NULL when it says nothing. */
static oct_status check_bytes(const char *path, const void *bytes, size_t size,
                              const oct_manifest_entry *entry)
{
    uint8_t digest[32];
    if (!entry || entry->damaged) return OCT_OK;
    OCT_CHECK(size == entry->bytes, OCT_DATA, "%s: is damaged: it has %zu bytes instead of %llu",
              path, size, (unsigned long long)entry->bytes);
    oct_sha256(bytes, size, digest);
    OCT_CHECK(memcmp(digest, entry->digest, sizeof digest) == 0, OCT_DATA,
              "%s: is damaged: its SHA-256 differs", path);
    return OCT_OK;
}

/* Closes a checkpoint of another step than the manifest says. */
static oct_status check_step(oct_checkpoint *ckpt, const oct_manifest_entry *entry)
{
    if (!entry || ckpt->info.step == entry->step) return OCT_OK;
    const oct_status status = oct_fail(OCT_DATA, "%s: holds step %lld, not the step of its name",
                                       ckpt->path, (long long)ckpt->info.step);
    oct_checkpoint_close(ckpt);
    return status;
}

static oct_status open_file(oct_checkpoint *ckpt, const char *path, const oct_manifest_entry *entry,
                            bool *newer)
{
    void *bytes = NULL;
    size_t size;

    *newer = false;
    *ckpt = (oct_checkpoint){0};
    OCT_CHECK(oct_file_exists(path), OCT_DATA, "%s: there is no such file", path);
    OCT_TRY(oct_file_read(path, oct_checkpoint_limit, &bytes, &size));
    oct_status status = check_bytes(path, bytes, size, entry);
    if (status != OCT_OK) {
        oct_free(&bytes);
        return status;
    }
    OCT_TRY(adopt(ckpt, path, bytes, size, newer));
    return check_step(ckpt, entry);
}

/* One pass over the file: its own checksum, and what the manifest says of all of it. */
static oct_status check_digests(int fd, const char *path, size_t size,
                                const oct_manifest_entry *entry)
{
    enum { CHUNK = 1 << 18 };
    oct_status status = OCT_OK;
    oct_sha256_state *sum = NULL;
    uint8_t *chunk = NULL, checksum[OCT_CHECKSUM_BYTES] = {0}, there[OCT_CHECKSUM_BYTES],
            digest[32];
    const size_t image = size > OCT_CHECKSUM_BYTES ? size - OCT_CHECKSUM_BYTES : 0;
    const bool named = entry && !entry->damaged;

    OCT_CHECK(!named || size == entry->bytes, OCT_DATA,
              "%s: is damaged: it has %zu bytes instead of %llu", path, size,
              (unsigned long long)entry->bytes);
    OCT_CHECK(image > 0, OCT_DATA, "%s: is damaged: its SHA-256 differs", path);
    OCT_TRY_OUT(oct_sha256_begin(&sum));
    OCT_TRY_OUT(oct_alloc(&chunk, CHUNK, 1));
    for (size_t at = 0; at < image; at += CHUNK) {
        const size_t bytes = image - at < CHUNK ? image - at : CHUNK;
        OCT_TRY_OUT(oct_file_read_at(fd, at, chunk, bytes));
        oct_sha256_add(sum, chunk, bytes);
    }
    OCT_TRY_OUT(oct_sha256_peek(sum, checksum));
    OCT_TRY_OUT(oct_file_read_at(fd, image, there, sizeof there));
    oct_sha256_add(sum, there, sizeof there);
out:
    oct_sha256_end(&sum, digest);
    oct_free(&chunk);
    if (status != OCT_OK) return oct_fail_prefix("%s", path);
    OCT_CHECK(memcmp(checksum, there, sizeof checksum) == 0 &&
                  (!named || memcmp(digest, entry->digest, sizeof digest) == 0),
              OCT_DATA, "%s: is damaged: its SHA-256 differs", path);
    return OCT_OK;
}

/* Takes fd over; a checkpoint comes out whole or empty. */
static oct_status adopt_file(oct_checkpoint *ckpt, const char *path, int fd, size_t size,
                             bool *newer)
{
    oct_status status = oct_h5_open_file(&ckpt->file, fd, size - OCT_CHECKSUM_BYTES, path);
    if (status != OCT_OK) {
        close(fd);
        return status;
    }
    ckpt->fd = fd;
    ckpt->size = size;
    status = oct_strdup(&ckpt->path, path);
    if (status == OCT_OK) status = read_info(ckpt->file, path, &ckpt->info, newer);
    if (status != OCT_OK) oct_checkpoint_close(ckpt);
    return status;
}

static oct_status open_on_disk(oct_checkpoint *ckpt, const char *path,
                               const oct_manifest_entry *entry, bool *newer)
{
    int fd;
    size_t size;

    *newer = false;
    *ckpt = (oct_checkpoint){0};
    OCT_CHECK(oct_file_exists(path), OCT_DATA, "%s: there is no such file", path);
    OCT_TRY(oct_file_open(path, oct_checkpoint_limit, &fd, &size));
    oct_status status = check_digests(fd, path, size, entry);
    if (status != OCT_OK) {
        close(fd);
        return status;
    }
    OCT_TRY(adopt_file(ckpt, path, fd, size, newer));
    return check_step(ckpt, entry);
}

static oct_status path_of_step(const char *folder, int64_t step, char **path)
{
    char name[OCT_CHECKPOINT_NAME];
    return oct_format(path, "%s/%s", folder, oct_checkpoint_name(step, name));
}

/* A plain file that holds what its name says, of this recipe. */
static bool is_of_run(const char *path, int64_t step, const char *recipe)
{
    /* Nothing is known of its bytes but what they say themselves. */
    const oct_manifest_entry entry = {.step = step, .damaged = true};
    struct stat info;
    oct_checkpoint ckpt;
    bool newer;

    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    if (open_on_disk(&ckpt, path, &entry, &newer) != OCT_OK) {
        oct_fail_clear();
        return false;
    }
    const bool is = strcmp(ckpt.info.recipe, recipe) == 0;
    oct_checkpoint_close(&ckpt);
    return is;
}

oct_status oct_checkpoint_clean(const char *folder, const char *recipe)
{
    oct_status status = OCT_OK;
    char *path = NULL;
    oct_manifest unnamed = {0};

    OCT_TRY_OUT(oct_manifest_unnamed(&unnamed, folder));
    for (size_t i = 0; i < unnamed.count; i++) {
        const int64_t step = unnamed.entries[i].step;
        oct_free(&path);
        OCT_TRY_OUT(path_of_step(folder, step, &path));
        if (is_of_run(path, step, recipe)) unlink(path);
    }
out:
    oct_free(&path);
    oct_manifest_free(&unnamed);
    return status;
}

/* Returns the sentence of the failure at hand without path and kind: "its SHA-256 differs". */
static const char *reason(const char *path)
{
    static const char kind[] = "is damaged: ";
    const char *text = oct_fail_text(0);
    size_t length = strlen(path);
    if (strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0)
        text += length + 2;
    return strncmp(text, kind, sizeof kind - 1) == 0 ? text + sizeof kind - 1 : text;
}

static oct_status find_newest(oct_checkpoint *ckpt, const char *folder, const char *phase,
                              bool on_disk)
{
    oct_status status = OCT_OK;
    char name[OCT_CHECKPOINT_NAME], *path = NULL;
    oct_manifest manifest = {0};
    oct_text bad = {0};
    bool newer;

    *ckpt = (oct_checkpoint){0};
    OCT_TRY_OUT(oct_manifest_read(&manifest, folder));
    for (size_t i = 0; i < manifest.count && !ckpt->path; i++) {
        const oct_manifest_entry *entry = &manifest.entries[i];
        oct_checkpoint_name(entry->step, name);
        oct_free(&path);
        OCT_TRY_OUT(oct_format(&path, "%s/%s", folder, name));
        status = on_disk ? open_on_disk(ckpt, path, entry, &newer)
                         : open_file(ckpt, path, entry, &newer);
        if (status == OCT_OK && (!phase || strcmp(ckpt->info.phase, phase) == 0)) break;
        oct_checkpoint_close(ckpt);
        if (status == OCT_OK) continue;
        if (status != OCT_DATA || newer) goto out;
        OCT_TRY_OUT(
            oct_text_add(&bad, "%s%s is damaged (%s)", bad.length ? ", " : "", name, reason(path)));
    }
    if (ckpt->path && bad.length)
        oct_log(OCT_LOG_WARN, "checkpoint %s: using %s", bad.data, name);
    else if (!ckpt->path && bad.length)
        status =
            oct_fail(OCT_DATA,
                     "%s: no checkpoint is good: %s; restore one from a copy, or choose another "
                     "output folder to start anew",
                     folder, bad.data);
    if (ckpt->path) oct_fail_clear();
out:
    if (status != OCT_OK) oct_checkpoint_close(ckpt);
    oct_free(&path);
    oct_text_free(&bad);
    oct_manifest_free(&manifest);
    return status;
}

oct_status oct_checkpoint_newest_in(oct_checkpoint *ckpt, const char *folder, const char *phase)
{
    return find_newest(ckpt, folder, phase, false);
}

oct_status oct_checkpoint_newest(oct_checkpoint *ckpt, const char *folder)
{
    return find_newest(ckpt, folder, NULL, false);
}

oct_status oct_checkpoint_newest_on_disk(oct_checkpoint *ckpt, const char *folder)
{
    return find_newest(ckpt, folder, NULL, true);
}

oct_status oct_checkpoint_open(oct_checkpoint *ckpt, const char *path)
{
    oct_status status = OCT_OK;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    oct_manifest manifest = {0};
    char *folder = NULL;
    int64_t step;
    bool newer;

    *ckpt = (oct_checkpoint){0};
    if (!oct_checkpoint_name_step(name, &step)) return open_file(ckpt, path, NULL, &newer);
    OCT_TRY_OUT(slash ? oct_format(&folder, "%.*s", (int)(slash - path) + 1, path)
                      : oct_strdup(&folder, "."));
    OCT_TRY_OUT(oct_manifest_read(&manifest, folder));
    status = open_file(ckpt, path, oct_manifest_find(&manifest, step), &newer);
out:
    oct_free(&folder);
    oct_manifest_free(&manifest);
    return status;
}

oct_status oct_checkpoint_open_step(oct_checkpoint *ckpt, const char *folder, int64_t step)
{
    char *path;
    *ckpt = (oct_checkpoint){0};
    OCT_TRY(path_of_step(folder, step, &path));
    const oct_status status = oct_checkpoint_open(ckpt, path);
    oct_free(&path);
    return status;
}

oct_status oct_checkpoint_digest(const char *folder, int64_t step, uint8_t digest[32], char **path)
{
    oct_status status = OCT_OK;
    oct_manifest manifest = {0};
    OCT_TRY(path_of_step(folder, step, path));
    OCT_TRY_OUT(oct_manifest_read(&manifest, folder));
    const oct_manifest_entry *entry = oct_manifest_find(&manifest, step);
    OCT_CHECK_OUT(entry && !entry->damaged, OCT_DATA, "%s: is %s", *path,
                  entry ? "damaged, or cannot be read" : "gone");
    memcpy(digest, entry->digest, sizeof entry->digest);
out:
    oct_manifest_free(&manifest);
    if (status != OCT_OK) oct_free(path);
    return status;
}

oct_status oct_checkpoint_from_bytes(oct_checkpoint *ckpt, const char *path, void *bytes,
                                     size_t size)
{
    bool newer;
    return adopt(ckpt, path, bytes, size, &newer);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const oct_saved_array *)a)->path, ((const oct_saved_array *)b)->path);
}

/* Makes "head.2.bias" of "state/head/2/bias". */
static void module_path(char text[OCT_ITEM_PATH], const char *path)
{
    snprintf(text, OCT_ITEM_PATH, "%s", path + strlen("state/"));
    for (char *p = text; *p; p++) {
        if (*p == '/') *p = '.';
    }
}

/* The data sets of a file that were not asked for: how many, and the names of the first, or a line each. */
typedef struct surplus {
    oct_h5 *h5;
    const char *file;
    const oct_saved_arrays *list; /* sorted by path */
    bool optimizer;               /* is wanted */
    char path[OCT_ITEM_PATH * 2];
    size_t seen, count;
    oct_text names;
    oct_text *lines; /* NULL: only the names are wanted */
} surplus;

static oct_status add_surplus(surplus *s)
{
    enum { NAMED = 3 };
    char name[OCT_ITEM_PATH];
    if (s->lines) {
        module_path(name, s->path);
        return oct_text_add(s->lines, "%s: only there\n", name);
    }
    if (++s->count > NAMED) return OCT_OK;
    return oct_text_add(&s->names, "%s%s", s->count > 1 ? ", " : "", s->path);
}

static bool is_known(surplus *s)
{
#define X(name) "info/" #name,
    static const char *const info[] = {
        "info/format",  "info/step",        "info/updates",
        "info/phase",   "info/recipe",      "info/class_names",
        "info/skipped", "info/skipped_row", OCT_EARLY_STOPPING_NUMBERS(X) "info/best_value_bits"};
#undef X
    const oct_saved_array key = {.path = s->path};
    for (size_t i = 0; i < OCT_COUNT(info); i++)
        if (strcmp(info[i], s->path) == 0) return true;
    return s->list->count > 0 &&
           bsearch(&key, s->list->items, s->list->count, sizeof *s->list->items, by_path);
}

static oct_status find_surplus(void *user, const char *name)
{
    enum { SEEN_MAX = 100000 };
    surplus *s = user;
    size_t length = strlen(s->path);

    OCT_CHECK(++s->seen <= SEEN_MAX, OCT_DATA, "%s: holds more than %d items", s->file, SEEN_MAX);
    OCT_CHECK(length + strlen(name) + 2 <= sizeof s->path, OCT_DATA,
              "%s: holds names that are too long", s->file);
    snprintf(s->path + length, sizeof s->path - length, "%s%s", length ? "/" : "", name);
    if (!s->optimizer && strcmp(s->path, "optimizer") == 0) {
        /* Nobody asks for it here. */
    } else if (oct_h5_is_group(s->h5, s->path)) {
        OCT_TRY(oct_h5_list(s->h5, s->path, find_surplus, s));
    } else if (!is_known(s)) {
        OCT_TRY(add_surplus(s));
    }
    s->path[length] = '\0';
    return OCT_OK;
}

/* The file must hold exactly the wanted items, no fewer and no more. */
static oct_status check_items(oct_h5 *h5, const char *file, const oct_saved_arrays *list,
                              bool optimizer)
{
    oct_status status = OCT_OK;
    surplus s = {.h5 = h5, .file = file, .list = list, .optimizer = optimizer};
    const char *first = NULL;
    size_t missing = 0;

    for (size_t i = list->count; i-- > 0;) {
        if (oct_h5_has(h5, list->items[i].path)) continue;
        first = list->items[i].path;
        missing++;
    }
    OCT_CHECK(
        missing == 0, OCT_DATA,
        "%s: is a checkpoint of another model: it lacks %zu of the %zu items of this one, the "
        "first is %s",
        file, missing, list->count, first);
    OCT_TRY_OUT(oct_h5_list(h5, "", find_surplus, &s));
    OCT_CHECK_OUT(
        s.count == 0, OCT_DATA,
        "%s: is a checkpoint of another model: %zu of its items are not in this one, such as "
        "%s",
        file, s.count, s.names.data);
out:
    oct_text_free(&s.names);
    return status;
}

/* Refuses a value outside of what the model allows there. */
static oct_status check_range(const char *file, const oct_saved_array *a, const uint8_t *data)
{
    const oct_value_range r = a->range;
    size_t each = oct_dtype_bytes(a->dtype);
    if (r.min >= r.max) return OCT_OK;
    OCT_ASSERT(a->dtype == OCT_F32 || a->dtype == OCT_S64);
    for (size_t at = 0; at < a->bytes; at += each) {
        float real;
        int64_t whole;
        memcpy(a->dtype == OCT_F32 ? (void *)&real : (void *)&whole, data + at, each);
        double value = a->dtype == OCT_F32 ? (double)real : (double)whole;
        OCT_CHECK(value >= r.min && value <= r.max, OCT_DATA,
                  "%s: %s holds %g, outside of %g to %g", file, a->path, value, r.min, r.max);
    }
    return OCT_OK;
}

static void count_updates(const oct_checkpoint *ckpt, oct_optim *optim)
{
    if (!optim) return;
    optim->updates = ckpt->info.updates;
    optim->average.begun = optim->average.in_model = optim->average.values && optim->updates > 0;
}

oct_status oct_checkpoint_load(const oct_checkpoint *ckpt, oct_module *root, oct_optim *optim)
{
    oct_status status = OCT_OK;
    oct_saved_arrays list = {0};
    oct_h5 *h5 = ckpt->file;
    uint8_t *bytes = NULL;

    OCT_TRY_OUT(oct_saved_arrays_list(&list, root, optim, ckpt->info.updates > 0, false));
    if (list.count > 0) qsort(list.items, list.count, sizeof *list.items, by_path);
    OCT_TRY_OUT(check_items(h5, ckpt->path, &list, optim != NULL));
    OCT_TRY_OUT(oct_alloc(&bytes, list.bytes, 1));
    for (size_t i = list.count; i-- > 0;) { /* a layer says more than the optimizer before it */
        const oct_saved_array *a = &list.items[i];
        OCT_TRY_OUT(oct_h5_read(h5, a->path, a->dtype, a->shape, bytes + a->offset));
        OCT_TRY_OUT(check_range(ckpt->path, a, bytes + a->offset));
    }
    for (size_t i = 0; i < list.count; i++) {
        const oct_saved_array *a = &list.items[i];
        if (a->bytes > 0) memcpy(a->data, bytes + a->offset, a->bytes);
    }
    count_updates(ckpt, optim);
out:
    oct_saved_arrays_free(&list);
    oct_free(&bytes);
    return status;
}

/* Rank 0 proves that all of it is there, with its types and shapes, before a value changes anywhere. */
static oct_status check_all(oct_h5 *h5, const char *path, const oct_saved_arrays *list,
                            bool optimizer)
{
    OCT_TRY(check_items(h5, path, list, optimizer));
    for (size_t i = list->count; i-- > 0;) {
        const oct_saved_array *a = &list->items[i];
        OCT_TRY(oct_h5_check(h5, a->path, a->dtype, a->shape));
    }
    return OCT_OK;
}

static oct_status read_in_place(oct_h5 *h5, const char *path, const oct_saved_array *a)
{
    OCT_TRY(oct_h5_read(h5, a->path, a->dtype, a->shape, a->data));
    return check_range(path, a, a->data);
}

oct_status oct_checkpoint_load_shared(const oct_checkpoint *ckpt, oct_module *root,
                                      oct_optim *optim, const oct_collective *group)
{
    const bool first = group->rank == 0;
    oct_status status, first_status = OCT_OK;
    oct_saved_arrays list = {0};
    oct_h5 *h5 = ckpt->file;
    status = oct_saved_arrays_list(&list, root, optim, ckpt->info.updates > 0, false);
    if (status == OCT_OK && list.count > 0)
        qsort(list.items, list.count, sizeof *list.items, by_path);
    if (status == OCT_OK && first) status = check_all(h5, ckpt->path, &list, optim != NULL);
    OCT_TRY_OUT(group->agree(group, status));
    /* What rank 0 cannot read is reported at the end: all ranks keep to the order of the arrays. */
    for (size_t i = 0; i < list.count; i++) {
        const oct_saved_array *a = &list.items[i];
        if (first && first_status == OCT_OK) first_status = read_in_place(h5, ckpt->path, a);
        if (a->bytes > 0) OCT_TRY_OUT(group->broadcast(group, a->data, a->bytes, 0));
    }
    OCT_TRY_OUT(group->agree(group, first_status));
    count_updates(ckpt, optim);
out:
    oct_saved_arrays_free(&list);
    return status;
}

static oct_status compare_array(oct_h5 *h5, const oct_saved_array *a, oct_text *out)
{
    char name[OCT_ITEM_PATH], there[96], here[96];
    oct_dtype dtype;
    oct_shape shape;
    module_path(name, a->path);
    if (!oct_h5_has(h5, a->path)) return oct_text_add(out, "%s: only here\n", name);
    OCT_TRY(oct_h5_look(h5, a->path, &dtype, &shape));
    if (dtype == a->dtype && oct_shape_equal(&shape, &a->shape)) return OCT_OK;
    return oct_text_add(out, "%s: %s %s there, %s %s here\n", name, oct_dtype_name(dtype),
                        oct_shape_text(&shape, there), oct_dtype_name(a->dtype),
                        oct_shape_text(&a->shape, here));
}

oct_status oct_checkpoint_compare(const oct_checkpoint *ckpt, oct_module *root,
                                  oct_text *differences)
{
    oct_status status = OCT_OK;
    oct_saved_arrays list = {0};
    oct_h5 *h5 = ckpt->file;
    surplus s = {
        .h5 = h5, .file = ckpt->path, .list = &list, .path = "state", .lines = differences};

    OCT_TRY_OUT(oct_saved_arrays_list(&list, root, NULL, false, false));
    for (size_t i = 0; i < list.count; i++)
        OCT_TRY_OUT(compare_array(h5, &list.items[i], differences));
    if (list.count > 0) qsort(list.items, list.count, sizeof *list.items, by_path);
    if (oct_h5_has(h5, s.path)) OCT_TRY_OUT(oct_h5_list(h5, s.path, find_surplus, &s));
out:
    oct_saved_arrays_free(&list);
    oct_text_free(&s.names);
    return status;
}

void oct_checkpoint_close(oct_checkpoint *ckpt)
{
    if (ckpt->file && ckpt->fd >= 0) close(ckpt->fd);
    oct_h5_close(&ckpt->file);
    oct_free(&ckpt->path);
    oct_free(&ckpt->bytes);
    oct_free(&ckpt->info.recipe);
    oct_free(&ckpt->info.class_names);
    *ckpt = (oct_checkpoint){0};
}
