/* Members of a zip archive, as NumPy's .npz is one: stored, or deflated and then inflated into memory. */
#pragma once

#include "io/dataset/array.h"

/* Finds a member and gives its bytes as a span of its own. OCT_DATA with the names that there are when it
 * is missing, or when the archive is damaged, encrypted or packed another way. */
oct_status oct_zip_member(oct_span *span, const char *path, const char *member) OCT_NODISCARD;
