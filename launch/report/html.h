/* HTML and SVG are written through one function, so that no text gets into a page unescaped.
 *
 * A report shows names that come from data sets, models and plug-ins: whatever is written with %s stands
 * in the page as text, in an element and in an attribute alike. Markup is only what the format says.
 */
#pragma once

#include "core/base/text.h"

/* The first failure stays: nothing is written after it. */
typedef struct oct_html {
    oct_text text;
    oct_status status;
} oct_html;

/* Adds markup. Conversions: %s (escaped; of HTML's five characters none gets through), %d, %ld, %lld, %zu,
 * %.Nf, %.Ng and %%. */
void oct_html_put(oct_html *html, const char *format, ...) OCT_PRINTF(2, 3);

/* Adds a number as people read it: four digits, or an exponent where it is very large or small. */
void oct_html_number(oct_html *html, double value);
/* Adds a text cut to so many characters, and three dots. */
void oct_html_cut(oct_html *html, const char *text, size_t characters);

/* Adds the style sheet of a report: light and dark, from 400 pixels on, on paper. */
void oct_html_style(oct_html *html);
