/* HDF5 files of Octet: built as images in memory, so writing to disk, syncing and digests are ours. Images are
 * deterministic: no times, format of HDF5 1.8. HDF5 opens a file in a program of its own (hdf5_child.h), which says
 * what is in it and where; data sets lie whole in the file and over nothing else, so all together are no larger than
 * it. Type and shape are as expected before any allocation. Failures become oct_status with the object's name. */
#pragma once

#include "core/tensor/tensor.h"

typedef struct oct_h5 oct_h5;

/* Begins an image, with room for this many bytes (0: not known), which take no memory before they are written. */
oct_status oct_h5_create(oct_h5 **file, size_t size);
/* Opens an image of `size` bytes in memory (fd -1) or in a file whose digest was checked (fd), borrowed until close.
 * Values of a file are read when they are asked for. `name` for messages. OCT_DATA where it holds anything but groups
 * and plain data sets. */
oct_status oct_h5_open(oct_h5 **file, int fd, const void *image, size_t size, const char *name);
void oct_h5_close(oct_h5 **file);
/* Files with a checksum, which checkpoints and models are: an image followed by its SHA-256. HDF5 tools ignore
 * the last 32 bytes. */
enum { OCT_CHECKSUM_BYTES = 32 };
/* Gives the finished image (a T **; oct_alloc), with its checksum where this is wanted, and closes the file, also on
 * failure. */
oct_status oct_h5_finish(oct_h5 **file, bool checksum, void *image, size_t *size);
/* HDF5's checksum of metadata: Bob Jenkins' lookup3 (2006) with initial value 0. */
uint32_t oct_h5_checksum(const void *bytes, size_t size);
/* Whether an image in memory is followed by its SHA-256. */
bool oct_h5_checksum_fits(const void *bytes, size_t size);
bool oct_h5_begins(const void *bytes, size_t size); /* with the signature of HDF5 */
/* OCT_DATA when the checksum does not fit, in a sentence without the file's name. */
oct_status oct_h5_check_checksum(const void *bytes, size_t size);
/* Opens an image with a checksum like oct_h5_open; OCT_DATA when the checksum does not fit. */
oct_status oct_h5_open_checked(oct_h5 **file, const void *bytes, size_t size, const char *name);

/* Writes a data set at path: "group/.../name", at most 32 names of 255 printable letters; parents are made.
 * Shapes have up to 4 dimensions, and any may be 0. */
oct_status oct_h5_write(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                        const void *data);
/* Makes room for a data set without its values: the image is that of oct_h5_write once they stand in it from *at
 * on, little-endian. */
oct_status oct_h5_reserve(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                          size_t *at);
/* Reads into `data` (NULL: nowhere), refusing when the data set is missing or its dtype or shape differs. */
oct_status oct_h5_read(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                       void *data);
/* Allocates *data (a T **; oct_alloc) after the same checks, then reads. NULL on failure. */
oct_status oct_h5_read_new(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                           void *data);
/* Gives dtype and shape; OCT_DATA when it is missing. This and what reads is for opened files. */
oct_status oct_h5_describe(oct_h5 *file, const char *path, oct_dtype *dtype, oct_shape *shape);
bool oct_h5_has(oct_h5 *file, const char *path);
bool oct_h5_is_group(oct_h5 *file, const char *path);
oct_status oct_h5_write_text(oct_h5 *file, const char *path, const char *text);
/* Reads a text, a u8 data set, of at most `limit` bytes; *text is oct_alloc'ed, with a NUL after. */
oct_status oct_h5_read_text(oct_h5 *file, const char *path, size_t limit, char **text);
oct_status oct_h5_write_i64(oct_h5 *file, const char *path, int64_t value);
/* Reads a scalar; OCT_DATA outside of min to max. */
oct_status oct_h5_read_i64(oct_h5 *file, const char *path, int64_t min, int64_t max,
                           int64_t *value);
/* Gives the path of each data set that begins with a prefix in turn, in the order of the paths, and NULL at the end; *next
 * is 0 at first. */
const char *oct_h5_next_dataset(const oct_h5 *file, const char *prefix, size_t *next);
/* Refuses a file with a data set that has not been read by now: OCT_DATA, naming one. */
oct_status oct_h5_check_all_read(oct_h5 *file);
