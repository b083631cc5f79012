/* The report of a run: one page of at most OCT_PAGE_BYTES.
 *
 * It is made from the files of the run folder alone, so the same run gives the same bytes at any time and
 * from everywhere. Where a file is missing or damaged, a sentence says why.
 */
#pragma once

#include "core/base/text.h"

#define OCT_PAGE_BYTES ((size_t)2 << 20)

/* Writes the report of one run or, side by side, of two (the second NULL: none). */
oct_status oct_page_text(oct_text *out, const char *first, const char *second) OCT_NODISCARD;
/* Writes the report of a run into its own folder, unless the same bytes are there already. */
oct_status oct_page_own(const char *folder) OCT_NODISCARD;
