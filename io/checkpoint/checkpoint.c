/* Checkpoints are found, checked against their digests and opened. */
#include "io/checkpoint/checkpoint_impl.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/model/class_names.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECIPE_BYTES_MAX = 1 << 20 };

/* Reads what is saved beside the tensors; some items only where it has them. *newer: it is of a newer Octet. */
static oct_status read_info(oct_h5 *h5, const char *path, oct_checkpoint_info *info, bool *newer)
{
    char *phase = NULL;
    int64_t format, bits;
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
    if (oct_h5_has(h5, "info/best_value_bits")) {
#define X(name) OCT_TRY(oct_h5_read_i64(h5, "info/" #name, 0, INT64_MAX, &info->stopping.name));
        OCT_EARLY_STOPPING_NUMBERS(X)
#undef X
        OCT_TRY(oct_h5_read_i64(h5, "info/best_value_bits", INT64_MIN, INT64_MAX, &bits));
        memcpy(&info->stopping.best_value, &bits, sizeof bits);
    }
    if (oct_h5_has(h5, "info/skipped")) {
        OCT_TRY(oct_h5_read_i64(h5, "info/skipped", 1, INT64_MAX, &info->skips.all));
        OCT_TRY(oct_h5_read_i64(h5, "info/skipped_row", 0, info->skips.all, &info->skips.row));
    }
    OCT_TRY(oct_h5_read_text(h5, "info/recipe", RECIPE_BYTES_MAX, &info->recipe));
    if (!oct_h5_has(h5, "info/class_names")) return OCT_OK;
    return oct_h5_read_text(h5, "info/class_names", OCT_CLASS_NAMES_BYTES_MAX, &info->class_names);
}

/* Gives an open checkpoint its path and reads its info; *newer: its format is that of a newer Octet. */
static oct_status read_opened(oct_checkpoint *ckpt, const char *path, bool *newer)
{
    OCT_TRY(oct_strdup(&ckpt->path, path));
    return read_info(ckpt->file, path, &ckpt->info, newer);
}

/* Checks a file on the disk in one pass: the checksum at its end, and the digest of all of it (NULL: not known). */
static oct_status check_digests(int fd, const char *path, size_t size, const uint8_t *expected)
{
    oct_status status = OCT_OK;
    oct_sha256_state *sum = NULL;
    uint8_t checksum[OCT_CHECKSUM_BYTES] = {0}, stored[OCT_CHECKSUM_BYTES] = {0}, digest[32];
    const size_t image = size > OCT_CHECKSUM_BYTES ? size - OCT_CHECKSUM_BYTES : 0;
    OCT_CHECK(image > 0, OCT_DATA, "%s: is damaged: its SHA-256 differs", path);
    OCT_TRY_OUT(oct_sha256_begin(&sum));
    OCT_TRY_OUT(oct_sha256_add_file(sum, fd, image));
    oct_sha256_peek(sum, checksum);
    OCT_TRY_OUT(oct_file_read_at(fd, image, stored, sizeof stored));
    oct_sha256_add(sum, stored, sizeof stored);
out:
    oct_sha256_end(&sum, digest);
    if (status != OCT_OK) return oct_fail_prefix("%s", path);
    OCT_CHECK(memcmp(checksum, stored, sizeof checksum) == 0 &&
                  (!expected || memcmp(digest, expected, sizeof digest) == 0),
              OCT_DATA, "%s: is damaged: its SHA-256 differs", path);
    return OCT_OK;
}

/* Opens a file: its bytes in memory or, on_disk, its values where they are. entry: what the manifest says of it (NULL:
 * nothing). A checkpoint comes out whole or empty. */
static oct_status open_file(oct_checkpoint *ckpt, const char *path, const oct_manifest_entry *entry,
                            bool on_disk, bool *newer)
{
    oct_status status = OCT_OK;
    uint8_t digest[32];
    size_t size;
    int fd = -1;
    const uint8_t *expected = entry && !entry->damaged ? entry->digest : NULL;

    *newer = false;
    *ckpt = (oct_checkpoint){0};
    OCT_CHECK(oct_file_exists(path), OCT_DATA, "%s: there is no such file", path);
    if (on_disk)
        OCT_TRY(oct_file_open(path, oct_checkpoint_limit, &fd, &size));
    else
        OCT_TRY(oct_file_read(path, oct_checkpoint_limit, &ckpt->bytes, &size));
    ckpt->fd = fd;
    ckpt->size = size;
    OCT_CHECK_OUT(!expected || size == entry->bytes, OCT_DATA,
                  "%s: is damaged: it has %zu bytes instead of %llu", path, size,
                  (unsigned long long)entry->bytes);
    if (on_disk) {
        OCT_TRY_OUT(check_digests(fd, path, size, expected));
        OCT_TRY_OUT(oct_h5_open(&ckpt->file, fd, NULL, size - OCT_CHECKSUM_BYTES, path));
        fd = -1; /* closed with the checkpoint from here on */
    } else {
        if (expected) oct_sha256(ckpt->bytes, size, digest);
        OCT_CHECK_OUT(!expected || memcmp(digest, expected, sizeof digest) == 0, OCT_DATA,
                      "%s: is damaged: its SHA-256 differs", path);
        OCT_TRY_OUT(oct_h5_open_checked(&ckpt->file, ckpt->bytes, size, path));
    }
    OCT_TRY_OUT(read_opened(ckpt, path, newer));
    OCT_CHECK_OUT(!entry || ckpt->info.step == entry->step, OCT_DATA,
                  "%s: holds step %lld, not the step of its name", path,
                  (long long)ckpt->info.step);
out:
    if (fd >= 0) close(fd);
    if (status != OCT_OK) oct_checkpoint_close(ckpt);
    return status;
}

/* Whether a plain file is an undamaged checkpoint of this step and recipe. */
static bool is_of_run(const char *path, int64_t step, const char *recipe)
{
    /* Nothing is known of its bytes but what they say themselves. */
    const oct_manifest_entry entry = {.step = step, .damaged = true};
    struct stat info;
    OCT_OWNED(oct_checkpoint_close) oct_checkpoint ckpt = {0};
    bool newer;
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    if (open_file(&ckpt, path, &entry, true, &newer) == OCT_OK)
        return strcmp(ckpt.info.recipe, recipe) == 0;
    oct_fail_clear();
    return false;
}

oct_status oct_checkpoint_clean(const char *folder, const char *recipe)
{
    OCT_OWNED(oct_manifest_free) oct_manifest named = {0};
    OCT_OWNED(oct_free) char *path = NULL;
    const char *why;
    int64_t step;
    OCT_TRY(oct_manifest_read_file(&named, folder, false, &why));
    oct_status status = OCT_OK;
    /* Without a good manifest the step files stand for it, and all of them stay. */
    DIR *dir = why ? NULL : opendir(folder);
    for (struct dirent *found = NULL; dir && (found = readdir(dir));) {
        if (!oct_checkpoint_name_step(found->d_name, &step) || oct_manifest_find(&named, step))
            continue;
        oct_free(&path);
        OCT_TRY_OUT(oct_checkpoint_path(&path, folder, step));
        if (is_of_run(path, step, recipe)) unlink(path);
    }
out:
    if (dir) closedir(dir);
    return status;
}

/* Returns the sentence of the failure at hand without path and kind: "its SHA-256 differs". */
static const char *failure_reason(const char *path)
{
    static const char kind[] = "is damaged: ";
    const char *text = oct_error_message(0);
    size_t length = strlen(path);
    if (strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0)
        text += length + 2;
    return strncmp(text, kind, sizeof kind - 1) == 0 ? text + sizeof kind - 1 : text;
}

/* Opens the newest good checkpoint of a phase (NULL: of any); a warning names damaged ones before it. */
static oct_status find_newest(oct_checkpoint *ckpt, const char *folder, const char *phase,
                              bool on_disk)
{
    oct_status status = OCT_OK;
    char name[OCT_CHECKPOINT_NAME];
    OCT_OWNED(oct_free) char *path = NULL;
    OCT_OWNED(oct_manifest_free) oct_manifest manifest = {0};
    OCT_OWNED(oct_text_free) oct_text bad = {0};
    bool newer;

    *ckpt = (oct_checkpoint){0};
    OCT_TRY_OUT(oct_manifest_read(&manifest, folder, false));
    for (size_t i = 0; i < manifest.count && !ckpt->path; i++) {
        const oct_manifest_entry *entry = &manifest.entries[i];
        oct_checkpoint_name(entry->step, name);
        oct_free(&path);
        OCT_TRY_OUT(oct_checkpoint_path(&path, folder, entry->step));
        status = open_file(ckpt, path, entry, on_disk, &newer);
        if (status == OCT_OK && (!phase || strcmp(ckpt->info.phase, phase) == 0)) break;
        oct_checkpoint_close(ckpt);
        if (status == OCT_OK) continue;
        if (status != OCT_DATA || newer) goto out;
        OCT_TRY_OUT(oct_text_add(&bad, "%s%s is damaged (%s)", bad.length ? ", " : "", name,
                                 failure_reason(path)));
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
    return status;
}

oct_status oct_checkpoint_newest(oct_checkpoint *ckpt, const char *folder, const char *phase)
{
    return find_newest(ckpt, folder, phase, false);
}

oct_status oct_checkpoint_newest_on_disk(oct_checkpoint *ckpt, const char *folder)
{
    return find_newest(ckpt, folder, NULL, true);
}

oct_status oct_checkpoint_open(oct_checkpoint *ckpt, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    OCT_OWNED(oct_manifest_free) oct_manifest manifest = {0};
    OCT_OWNED(oct_free) char *folder = NULL;
    int64_t step;
    bool newer;
    *ckpt = (oct_checkpoint){0};
    if (!oct_checkpoint_name_step(name, &step)) return open_file(ckpt, path, NULL, false, &newer);
    OCT_TRY(slash ? oct_format(&folder, "%.*s", (int)(slash - path) + 1, path)
                  : oct_strdup(&folder, "."));
    OCT_TRY(oct_manifest_read(&manifest, folder, false));
    return open_file(ckpt, path, oct_manifest_find(&manifest, step), false, &newer);
}

oct_status oct_checkpoint_open_step(oct_checkpoint *ckpt, const char *folder, int64_t step)
{
    OCT_OWNED(oct_free) char *path = NULL;
    *ckpt = (oct_checkpoint){0};
    OCT_TRY(oct_checkpoint_path(&path, folder, step));
    return oct_checkpoint_open(ckpt, path);
}

oct_status oct_checkpoint_from_bytes(oct_checkpoint *ckpt, const char *path, void *bytes,
                                     size_t size)
{
    bool newer;
    *ckpt = (oct_checkpoint){.bytes = bytes, .size = size, .fd = -1};
    oct_status status = oct_h5_open_checked(&ckpt->file, bytes, size, path);
    if (status == OCT_OK) status = read_opened(ckpt, path, &newer);
    if (status != OCT_OK) oct_checkpoint_close(ckpt);
    return status;
}

void oct_checkpoint_close(oct_checkpoint *ckpt)
{
    if (ckpt->file && ckpt->fd >= 0) close(ckpt->fd);
    oct_h5_close(&ckpt->file);
    OCT_FREE_ALL(&ckpt->path, &ckpt->bytes, &ckpt->info.recipe, &ckpt->info.class_names);
    *ckpt = (oct_checkpoint){0};
}
