/* Members of a zip archive, as NumPy's .npz is one: stored, or deflated and then inflated into memory.
 * This is the one door to libzip. */
#pragma once

#include "io/dataset/array_set.h"

typedef struct oct_zip oct_zip;

/* Opens an archive; `path` is borrowed. OCT_DATA when it is none, is damaged, or has two members of one name, of
 * which readers take one or the other. */
oct_status oct_zip_open(oct_zip **zip, const char *path) OCT_NODISCARD;
void oct_zip_close(oct_zip **zip);
/* The name of a member, in the order of the archive; NULL after the last. */
const char *oct_zip_name(const oct_zip *zip, int64_t i);
/* Finds a member and gives its bytes as a span of its own, which outlives the archive; their checksum has been
 * compared. OCT_DATA with the names that there are when it is missing, or when it is damaged, encrypted or packed
 * another way. */
oct_status oct_zip_member(oct_zip *zip, const char *member, oct_span *span) OCT_NODISCARD;
