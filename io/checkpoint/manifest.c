/* The manifest lists the checkpoints of a folder. */
#include "io/checkpoint/manifest.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SCHEMA = 1,
    ENTRIES_MAX = 10000,
    MANIFEST_BYTES_MAX = 1 << 22,
    DIGITS_MIN = 8,
    DIGITS_MAX = 18
};

static const char prefix[] = "step-", suffix[] = ".h5", manifest_name[] = "manifest.json";

const char *oct_checkpoint_name(int64_t step, char text[OCT_CHECKPOINT_NAME])
{
    snprintf(text, OCT_CHECKPOINT_NAME, "%s%0*lld%s", prefix, DIGITS_MIN, (long long)step, suffix);
    return text;
}

oct_status oct_checkpoint_path(char **path, const char *folder, int64_t step)
{
    char name[OCT_CHECKPOINT_NAME];
    return oct_format(path, "%s/%s", folder, oct_checkpoint_name(step, name));
}

bool oct_checkpoint_name_step(const char *name, int64_t *step)
{
    char digits[DIGITS_MAX + 1], again[OCT_CHECKPOINT_NAME];
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    name += sizeof prefix - 1;
    size_t length = strspn(name, "0123456789");
    if (length < DIGITS_MIN || length > DIGITS_MAX || strcmp(name + length, suffix) != 0)
        return false;
    memcpy(digits, name, length);
    digits[length] = '\0';
    *step = (int64_t)strtoll(digits, NULL, 10);
    /* One step, one name: no zeros beyond the eight digits. */
    oct_checkpoint_name(*step, again);
    return strcmp(again + sizeof prefix - 1, name) == 0;
}

static oct_status add_entry(oct_manifest *manifest, const oct_manifest_entry *entry)
{
    OCT_TRY(oct_grow(&manifest->entries, &manifest->capacity, manifest->count + 1,
                     sizeof *manifest->entries));
    manifest->entries[manifest->count++] = *entry;
    return OCT_OK;
}

static bool read_hex(const char *text, uint8_t digest[32])
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 64 || strspn(text, digits) != 64) return false;
    for (int i = 0; i < 32; i++)
        digest[i] = (uint8_t)((strchr(digits, text[2 * i]) - digits) << 4 |
                              (strchr(digits, text[2 * i + 1]) - digits));
    return true;
}

/* Reads an entry; false where it has another form. */
static bool read_entry(json_t *item, oct_manifest_entry *entry)
{
    const char *file, *sha256;
    json_int_t step, bytes;
    int64_t step_of_name;
    *entry = (oct_manifest_entry){0};
    if (json_unpack_ex(item, NULL, JSON_STRICT, "{s:s, s:I, s:I, s:s}", "file", &file, "step",
                       &step, "bytes", &bytes, "sha256", &sha256) != 0)
        return false;
    entry->step = step;
    entry->bytes = (uint64_t)bytes;
    return oct_checkpoint_name_step(file, &step_of_name) && step == step_of_name && bytes > 0 &&
           (uint64_t)bytes <= oct_checkpoint_limit && read_hex(sha256, entry->digest);
}

/* Returns what is wrong with the document as a short text; NULL when all is well. *status: a failure of
 * memory, or a newer schema; neither makes the manifest damaged. */
static const char *read_document(oct_manifest *manifest, const char *path, json_t *root,
                                 oct_status *status)
{
    json_int_t schema;
    json_t *list;

    *status = OCT_OK;
    if (json_unpack_ex(root, NULL, 0, "{s:I}", "schema", &schema) != 0 || schema < SCHEMA)
        return "it has no schema number";
    if (schema > SCHEMA) {
        *status = oct_fail(OCT_DATA,
                           "%s: has schema %lld and this Octet knows schema %d; use a newer Octet",
                           path, (long long)schema, SCHEMA);
        return NULL;
    }
    if (json_unpack_ex(root, NULL, JSON_STRICT, "{s:I, s:o}", "schema", &schema, "checkpoints",
                       &list) != 0 ||
        !json_is_array(list) || json_array_size(list) > ENTRIES_MAX)
        return "it has no list of checkpoints, or other keys";
    if (json_array_size(list) == 0) return "it names no checkpoint";
    for (size_t i = 0; i < json_array_size(list); i++) {
        oct_manifest_entry entry;
        if (!read_entry(json_array_get(list, i), &entry)) return "it has an entry of another form";
        if (i > 0 && entry.step >= manifest->entries[i - 1].step)
            return "its entries are not newest first";
        *status = add_entry(manifest, &entry);
        if (*status != OCT_OK) return NULL;
    }
    return NULL;
}

/* Fails for a file that could not be read: OCT_DATA. strict: OCT_RESOURCE where the file is, or may be, there and of a
 * proper size: what resources lack now may be there later. */
static oct_status classify_read_failure(const char *path, size_t limit, bool strict)
{
    struct stat info;
    const int error = stat(path, &info) == 0 ? 0 : errno;
    const bool unreadable = error ? error == ENOENT || error == ENOTDIR
                                  : !S_ISREG(info.st_mode) || (uint64_t)info.st_size > limit;
    if (!strict || unreadable) return OCT_DATA;
    char why[1024];
    snprintf(why, sizeof why, "%s", oct_error_message(0));
    return oct_fail(OCT_RESOURCE, "%s", why);
}

static const char missing[] = "it is missing";

oct_status oct_manifest_read_file(oct_manifest *manifest, const char *folder, bool strict,
                                  const char **why)
{
    struct stat info;
    OCT_OWNED(oct_free) void *bytes = NULL;
    OCT_OWNED(oct_free) char *path = NULL;
    size_t size;
    oct_status status;

    *manifest = (oct_manifest){0};
    *why = missing;
    OCT_TRY(oct_format(&path, "%s/%s", folder, manifest_name));
    /* strict: where it is unknown whether there is a manifest, there is one, which then cannot be read. */
    const bool exists = stat(path, &info) == 0 || (strict && errno != ENOENT && errno != ENOTDIR);
    status = exists ? oct_file_read(path, MANIFEST_BYTES_MAX, &bytes, &size) : OCT_OK;
    if (status == OCT_DATA) status = classify_read_failure(path, MANIFEST_BYTES_MAX, strict);
    if (status == OCT_DATA) {
        oct_fail_clear();
        *why = "it cannot be read";
        status = OCT_OK;
    } else if (bytes) {
        json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, NULL);
        *why = root ? read_document(manifest, path, root, &status) : "it is no JSON";
        json_decref(root);
    }
    if (*why || status != OCT_OK) oct_manifest_free(manifest);
    return status;
}

/* Finds size and digest of a step file, and whether its own checksum fits. A file that cannot be read is one
 * more that is damaged. */
static oct_status examine_step_file(const char *folder, bool strict, oct_manifest_entry *entry)
{
    oct_status status = OCT_OK;
    OCT_OWNED(oct_free) char *path = NULL;
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size = 0;
    OCT_TRY(oct_checkpoint_path(&path, folder, entry->step));
    status = oct_file_read(path, oct_checkpoint_limit, &bytes, &size);
    if (status == OCT_DATA) status = classify_read_failure(path, oct_checkpoint_limit, strict);
    if (status == OCT_DATA) {
        oct_fail_clear();
        entry->damaged = true;
        return OCT_OK;
    }
    OCT_TRY(status);
    entry->bytes = size;
    oct_sha256(bytes, size, entry->digest);
    entry->damaged = !oct_h5_checksum_fits(bytes, size);
    return OCT_OK;
}

static int compare_newest_first(const void *a, const void *b)
{
    int64_t x = ((const oct_manifest_entry *)a)->step, y = ((const oct_manifest_entry *)b)->step;
    return (x < y) - (x > y);
}

/* Makes a manifest of the step files of a folder. */
static oct_status scan_folder(oct_manifest *manifest, const char *folder, bool strict)
{
    oct_status status = OCT_OK;
    int64_t step;
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT) return OCT_OK;
    OCT_CHECK(dir, errno == ENOTDIR ? OCT_DATA : OCT_RESOURCE, "%s: cannot be read: %s", folder,
              strerror(errno));
    for (struct dirent *found = readdir(dir); found; found = readdir(dir)) {
        if (!oct_checkpoint_name_step(found->d_name, &step)) continue;
        OCT_CHECK_OUT(manifest->count < ENTRIES_MAX, OCT_DATA,
                      "%s: holds more than %d checkpoints and no good manifest; remove some",
                      folder, ENTRIES_MAX);
        OCT_TRY_OUT(add_entry(manifest, &(oct_manifest_entry){.step = step}));
    }
    if (manifest->count > 0)
        qsort(manifest->entries, manifest->count, sizeof *manifest->entries, compare_newest_first);
    for (size_t i = 0; i < manifest->count; i++)
        OCT_TRY_OUT(examine_step_file(folder, strict, &manifest->entries[i]));
out:
    closedir(dir);
    return status;
}

oct_status oct_manifest_read(oct_manifest *manifest, const char *folder, bool strict)
{
    const char *why;
    OCT_TRY(oct_manifest_read_file(manifest, folder, strict, &why));
    if (!why) return OCT_OK;
    const oct_status status = scan_folder(manifest, folder, strict);
    if (status == OCT_OK && (why != missing || manifest->count > 0))
        oct_log(OCT_LOG_WARN, "%s/%s is not usable (%s): going by the checkpoint files themselves",
                folder, manifest_name, why);
    if (status != OCT_OK) oct_manifest_free(manifest);
    return status;
}

const oct_manifest_entry *oct_manifest_find(const oct_manifest *manifest, int64_t step)
{
    for (size_t i = 0; i < manifest->count; i++)
        if (manifest->entries[i].step == step) return &manifest->entries[i];
    return NULL;
}

oct_status oct_manifest_write(const oct_manifest *manifest, const char *folder)
{
    char name[OCT_CHECKPOINT_NAME], hex[65];
    OCT_OWNED(oct_free) char *path = NULL;
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_TRY(oct_format(&path, "%s/%s", folder, manifest_name));
    OCT_TRY(oct_text_add(&text, "{\"schema\": %d, \"checkpoints\": [", SCHEMA));
    for (size_t i = 0; i < manifest->count; i++) {
        const oct_manifest_entry *entry = &manifest->entries[i];
        OCT_TRY(oct_text_add(
            &text, "%s\n  {\"file\": \"%s\", \"step\": %lld, \"bytes\": %llu, \"sha256\": \"%s\"}",
            i ? "," : "", oct_checkpoint_name(entry->step, name), (long long)entry->step,
            (unsigned long long)entry->bytes, oct_hex(entry->digest, hex)));
    }
    OCT_TRY(oct_text_add(&text, "\n]}\n"));
    return oct_file_write(path, text.data, text.length);
}

oct_status oct_manifest_commit(const oct_manifest *old, const oct_manifest_entry *entry,
                               oct_keep keep, const char *folder)
{
    char *path = NULL;
    OCT_OWNED(oct_manifest_free) oct_manifest new = {0};
    int64_t newest = 1;

    OCT_TRY(add_entry(&new, entry));
    for (size_t i = 0; i < old->count; i++) {
        const oct_manifest_entry *e = &old->entries[i];
        if (e->damaged || e->step >= entry->step) continue;
        if (newest++ < keep.newest || e->step == keep.always || e->step == keep.best)
            OCT_TRY(add_entry(&new, e));
    }
    OCT_TRY(oct_manifest_write(&new, folder));
    for (size_t i = 0; i < old->count; i++) {
        const oct_manifest_entry *e = &old->entries[i];
        if (e->damaged || oct_manifest_find(&new, e->step)) continue;
        /* What cannot be deleted now goes when the run is resumed (oct_checkpoint_clean). */
        if (oct_checkpoint_path(&path, folder, e->step) != OCT_OK) break;
        unlink(path);
        oct_free(&path);
    }
    return OCT_OK;
}

void oct_manifest_free(oct_manifest *manifest)
{
    oct_free(&manifest->entries);
    *manifest = (oct_manifest){0};
}
