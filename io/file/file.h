/* Whole files: read with a size cap, written aside, synced and renamed, SHA-256, locks. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>
#include <sys/stat.h>

void oct_sha256(const void *data, size_t size, uint8_t digest[32]);
typedef struct oct_sha256_state oct_sha256_state;
oct_status oct_sha256_begin(oct_sha256_state **state);
void oct_sha256_add(oct_sha256_state *state, const void *data, size_t size);
/* Adds the first `size` bytes of an open file; OCT_DATA without its path where they cannot be read. */
oct_status oct_sha256_add_file(oct_sha256_state *state, int fd, uint64_t size);
void oct_sha256_end(oct_sha256_state **state, uint8_t digest[32]); /* frees */
/* Gives the digest of what was added so far; more may follow. */
void oct_sha256_peek(const oct_sha256_state *state, uint8_t digest[32]);
const char *oct_hex(const uint8_t digest[32], char text[65]);
oct_status oct_base64(const void *bytes, size_t size, char **text); /* oct_alloc'ed */
/* Gives size and SHA-256 of a whole file. */
oct_status oct_file_sha256(const char *path, size_t *size, char hex[65]);
/* The same of a file with further bytes after it. */
oct_status oct_file_sha256_with(const char *path, const void *more, size_t more_bytes, size_t *size,
                                char hex[65]);

/* Refuses a folder, a pipe or a device: OCT_DATA with path and remedy. info: what stat gave for the path. */
oct_status oct_file_check_regular(const char *path, const struct stat *info);
/* Reads a whole file into memory; OCT_DATA with path and reason when missing, no regular file (a pipe is not
 * waited for), or above `limit`.
 * gzip is not undone. *bytes is oct_alloc'ed with a NUL after. */
oct_status oct_file_read(const char *path, size_t limit, void **bytes, size_t *size);
/* Opens a file for reading: *fd, which the caller closes, and its size; OCT_DATA as oct_file_read. */
oct_status oct_file_open(const char *path, size_t limit, int *fd, size_t *size);
/* Reads bytes that lie at `at`; OCT_DATA without the path where they are not there or cannot be read. */
oct_status oct_file_read_at(int fd, uint64_t at, void *to, size_t bytes);
/* Writes a whole file: temporary name in the same folder (O_EXCL, locked), write, fsync, rename, fsync the
 * folder; temp files of the same that killed writers left are removed. On
 * failure (OCT_RESOURCE, path and reason) the old file is untouched and no temp file stays; only when
 * the last step fails is the new file there already, but not certain to outlive a power cut. */
oct_status oct_file_write(const char *path, const void *bytes, size_t size);
/* Says before any work whether a file can be made in its folder: OCT_RESOURCE with path and remedy where it cannot. */
oct_status oct_file_check_place(const char *path);
/* A file of `size` bytes that is written in pieces. Nobody sees any of it before commit, which frees it on
 * failure too; discard leaves nothing. */
typedef struct oct_new_file oct_new_file;
/* Creates a temporary file beside path, locked, with `size` bytes reserved. */
oct_status oct_new_file_begin(oct_new_file **file, const char *path, size_t size);
oct_status oct_new_file_add(oct_new_file *file, const void *bytes, size_t size);
/* Syncs the file, renames it to its path, syncs the folder, and frees `file`, also on failure. */
oct_status oct_new_file_commit(oct_new_file **file);
void oct_new_file_discard(oct_new_file **file); /* NULL is fine */
/* Appends to a file that is open and has `*length` good bytes: all, or nothing, and then errno says why. A file
 * that cannot be set back is closed (*fd -1). */
bool oct_file_append(int *fd, int64_t *length, const void *bytes, size_t size);
/* Removes from a folder the temp files that killed writers left; where the file system has no locks, all of them. */
void oct_file_clean(const char *folder);
bool oct_file_is_temp(const char *name); /* the bare name of such a file */
/* Makes a folder and those above it, like mkdir -p. */
oct_status oct_make_folders(const char *path);
bool oct_file_exists(const char *path);

/* Takes the exclusive lock of a run folder (`<folder>/lock`, holding host and pid): OCT_RESOURCE naming the holder when
 * it is taken. The lock ends with the process. */
oct_status oct_folder_lock(const char *folder, int *fd);
void oct_folder_unlock(int *fd);
