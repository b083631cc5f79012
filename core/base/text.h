/* Strict numbers from text, near names, growing strings, lists. */
#pragma once

#include "core/base/c_locale.h"
#include "core/base/status.h"

#include <stdint.h>

/* These parse a text that is, as a whole, a finite decimal number in the C locale; false otherwise
 * (also "", " 1", "1x", "nan", "1e999", "0x10"). */
bool oct_parse_i64(const char *text, int64_t *value);
bool oct_parse_f64(const char *text, double *value);
bool oct_parse_bool(const char *text, bool *value); /* true, false */

bool oct_ends_with(const char *text, const char *ending);
/* Of a list that ends with NULL, or is NULL: the index of a word (-1: it is not there), and whether it is there. */
int oct_list_index(const char *const *list, const char *word);
static inline bool oct_list_has(const char *const *list, const char *word)
{
    return oct_list_index(list, word) >= 0;
}

/* Returns the name among `names` that is another framework's `word` (acc: top1), else the nearest to it by
 * Damerau-Levenshtein distance, else one with a part that begins as the word does (fashion: fashion-mnist), or NULL
 * when none is near (distance above a third of the length, of a part above a quarter). */
const char *oct_nearest(const char *word, const char *const *names, size_t count);
enum { OCT_HINT_BYTES = 128 };
/* Returns "did you mean 'NAME'?" when a name is near, `otherwise` when none is; may be in text. */
const char *oct_did_you_mean(char text[OCT_HINT_BYTES], const char *word, const char *const *names,
                             size_t count, const char *otherwise);

typedef struct oct_text {
    char *data; /* NUL-terminated, owned; NULL when empty */
    size_t length, capacity;
} oct_text;

/* Appends formatted text. */
oct_status oct_text_add(oct_text *text, const char *format, ...) OCT_PRINTF(2, 3);
void oct_text_free(oct_text *text);

/* Puts '?' for every byte that could steer a terminal or mislead who reads it: control characters but
 * newline and tab, those of two bytes (U+0080 to U+009F), marks that turn the direction of writing, and
 * what is no UTF-8. All text for people is cleaned here. */
void oct_text_clean(char *text);

/* The character at `text` (below `end`) and its bytes, or -1 and one byte when it is not UTF-8. */
int32_t oct_utf8(const char *text, const char *end, size_t *bytes);
typedef struct oct_shown {
    char text[72];
} oct_shown;
/* Makes a word of the user's fit for a message: control characters masked, cut to a readable length. */
oct_shown oct_show(const char *text, size_t length);

double oct_seconds(void); /* monotonic clock */

/* Lists of numbers and of texts, as a recipe has them. */
enum { OCT_REALS_MAX = 1024, OCT_TEXTS_MAX = 256 };

typedef struct oct_reals {
    int count;
    double value[OCT_REALS_MAX];
} oct_reals;

typedef struct oct_texts {
    int count;
    char *value[OCT_TEXTS_MAX]; /* owned */
} oct_texts;
