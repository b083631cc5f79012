/* NumPy's files: .npy, a header of text that says type and shape, and the numbers; .npz, a zip archive of these. */
#pragma once

#include "io/dataset/array_set.h"

/* Makes the array of a span that holds a .npy file, of no dimension where it has none; takes the span, also when it
 * fails. `name` for messages. OCT_DATA for what is damaged, in Fortran's order, or no array of numbers in up to 4
 * dimensions; with `other` the last is no failure: *other is true, and the array may only be closed. */
oct_status oct_npy_take(oct_array *array, oct_span *span, const char *name, bool *other);

/* Members of a zip archive, as NumPy's .npz is one: stored, or deflated and then inflated into memory.
 * This is the one door to libzip. */
typedef struct oct_zip oct_zip;

/* Opens an archive; `path` is borrowed. OCT_DATA when it is none, is damaged, or has two members of one name, of
 * which readers take one or the other. */
oct_status oct_zip_open(oct_zip **zip, const char *path);
void oct_zip_close(oct_zip **zip);
/* The name of a member, in the order of the archive; NULL after the last. */
const char *oct_zip_name(const oct_zip *zip, int64_t i);
/* Finds a member and gives its bytes as a span of its own, which outlives the archive; their checksum has been
 * compared. OCT_DATA with the names that there are when it is missing, or when it is damaged, encrypted or packed
 * another way. */
oct_status oct_zip_member(oct_zip *zip, const char *member, oct_span *span);
