/* A page is one HTML file that works by itself: template, style sheet and script (page/), and facts as JSON.
 *
 * The script draws the page from the facts. Nothing in them can become markup: no '<' of theirs is in the
 * file, and the script makes text nodes of them. The Content-Security-Policy allows this script, this style sheet
 * and images that are in the file; no network request is possible.
 */
#pragma once

#include "core/base/text.h"

#include <jansson.h>
#include <stdbool.h>

bool oct_page_is_name(const char *path); /* it ends in .html */

/* Writes a page of these facts: {"runs": [...]} of a report or {"sheet": {...}} of `octet data`. `plain` is HTML
 * that is shown where no script may run, below a sentence that says so; it holds no text of a file. */
oct_status oct_page_write(oct_text *page, const json_t *facts, const char *plain);

/* The report of a run is one page of at most OCT_PAGE_BYTES.
 *
 * It is made from the files of the run folder alone, so the same run gives the same bytes at any time and
 * from everywhere. Where a file is missing or damaged, a sentence says why. */
#define OCT_PAGE_BYTES ((size_t)2 << 20)

/* Writes the report of one run or, side by side, of two (the second NULL: none); large: of int8 models beyond the limits, too. */
oct_status oct_page_text(oct_text *out, const char *first, const char *second, bool large);
