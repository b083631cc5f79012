/* Members of a zip archive, as NumPy's .npz is one: stored, or deflated and then inflated into memory. */
#pragma once

#include "io/dataset/array.h"

/* Finds a member and gives its bytes as a span of its own. OCT_DATA with the names that there are when it
 * is missing, or when the archive is damaged, encrypted or packed another way. */
oct_status oct_zip_member(oct_span *span, const char *path, const char *member) OCT_NODISCARD;
/* Visits the names of all members in the order of the directory; they have no NUL behind. */
typedef oct_status oct_zip_visit(void *user, const char *name, size_t length);
oct_status oct_zip_names(const char *path, oct_zip_visit *visit, void *user) OCT_NODISCARD;
