/* Strict numbers, near names, growing strings.
 *
 * Numbers are checked against their grammar before strtod or strtoll sees them, since both accept
 * leading blanks, hexadecimal, "inf" and trailing text.
 */
#include "core/base/text.h"

#include "core/base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LONGEST_NAME = 63, SHORTEST_PART = 3 };

static const char *skip_digits(const char *text)
{
    return text + strspn(text, "0123456789");
}

static const char *skip_sign(const char *text)
{
    return *text == '-' || *text == '+' ? text + 1 : text;
}

bool oct_ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), more = strlen(ending);
    return length >= more && strcmp(text + length - more, ending) == 0;
}

int oct_list_index(const char *const *list, const char *word)
{
    for (int i = 0; list && list[i]; i++)
        if (strcmp(list[i], word) == 0) return i;
    return -1;
}

bool oct_parse_i64(const char *text, int64_t *value)
{
    const char *digits = skip_sign(text), *end = skip_digits(digits);
    if (end == digits || *end != '\0') return false;
    errno = 0;
    long long parsed = strtoll(text, NULL, 10);
    if (errno == ERANGE) return false;
    *value = parsed;
    return true;
}

/* Returns where a decimal number such as 1, -0.5, .5, 1. or 2e-4 ends, or NULL when there is none.
 */
static const char *decimal_end(const char *text)
{
    const char *whole = skip_sign(text), *end = skip_digits(whole);
    int64_t digits = end - whole;
    if (*end == '.') {
        const char *fraction = end + 1;
        end = skip_digits(fraction);
        digits += end - fraction;
    }
    if (digits == 0) return NULL;
    if (*end == 'e' || *end == 'E') {
        const char *exponent = skip_sign(end + 1);
        end = skip_digits(exponent);
        if (end == exponent) return NULL;
    }
    return end;
}

bool oct_parse_f64(const char *text, double *value)
{
    const char *end = decimal_end(text);
    if (!end || *end != '\0') return false;
    char *parsed_end;
    double parsed = oct_strtod(text, &parsed_end);
    if (parsed_end != end || !isfinite(parsed)) return false;
    *value = parsed;
    return true;
}

bool oct_parse_bool(const char *text, bool *value)
{
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0) return false;
    *value = yes;
    return true;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Counts edits (insert, delete, change, swap neighbours) from a to b, and the least of them from a to a beginning of b;
 * both at most LONGEST_NAME long. Capital letters are small ones here. */
static size_t edit_distance(const char *a, const char *b, size_t *beginning)
{
    size_t rows[3][LONGEST_NAME + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    size_t length_a = strlen(a), length_b = strlen(b);
    for (size_t j = 0; j <= length_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t *free_row = before;
        before = above;
        above = row;
        row = free_row;
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            const bool same = tolower((uint8_t)a[i - 1]) == tolower((uint8_t)b[j - 1]);
            row[j] = min_size(above[j - 1] + !same, 1 + min_size(above[j], row[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min_size(row[j], before[j - 2] + 1);
        }
    }
    *beginning = row[0];
    for (size_t j = 1; j <= length_b; j++)
        *beginning = min_size(*beginning, row[j]);
    return row[length_b];
}

/* Words of other frameworks and Octet's names for the same, which are spelled too differently to be near. */
static const char *const same_things[][2] = {
    {"acc", "top1"}, {"accuracy", "top1"}, {"ce", "cross_entropy"}, {"nll", "cross_entropy"},
    {"l1", "mae"},   {"l2", "mse"},        {"smooth_l1", "huber"},  {"iou", "miou"},
};

const char *oct_nearest(const char *word, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    for (size_t i = 0; i < OCT_COUNT(same_things); i++)
        if (strcmp(word, same_things[i][0]) == 0)
            for (size_t k = 0; k < count; k++)
                if (strcmp(names[k], same_things[i][1]) == 0) return names[k];
    size_t best = LONGEST_NAME + 1, best_part = best, length = strlen(word);
    const char *nearest_part = NULL;
    if (length > LONGEST_NAME) return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t name_length = strlen(names[i]), beginning;
        if (name_length > LONGEST_NAME) continue;
        size_t edits = edit_distance(word, names[i], &beginning);
        if (3 * edits <= (length > name_length ? length : name_length) && edits < best) {
            best = edits;
            nearest = names[i];
        }
        for (const char *at = names[i]; at; at = strpbrk(at, "-_."), at += at != NULL) {
            edit_distance(word, at, &beginning);
            if (length < SHORTEST_PART || 4 * beginning > length || beginning >= best_part)
                continue;
            best_part = beginning;
            nearest_part = names[i];
        }
    }
    return nearest ? nearest : nearest_part;
}

const char *oct_did_you_mean(char text[OCT_HINT_BYTES], const char *word, const char *const *names,
                             size_t count, const char *otherwise)
{
    const char *near = oct_nearest(word, names, count);
    if (!near) return otherwise;
    snprintf(text, OCT_HINT_BYTES, "did you mean '%s'?", near);
    return text;
}

oct_status oct_text_add(oct_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = oct_vsnprintf(NULL, 0, format, args);
    va_end(args);
    OCT_CHECK(length >= 0, OCT_DEFECT, "a text could not be formatted from \"%s\"", format);
    OCT_TRY(oct_grow(&text->data, &text->capacity, text->length + (size_t)length + 1, 1));
    va_start(args, format);
    oct_vsnprintf(text->data + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
    return OCT_OK;
}

void oct_text_free(oct_text *text)
{
    oct_free(&text->data);
    *text = (oct_text){0};
}

int32_t oct_utf8(const char *text, const char *end, size_t *bytes)
{
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80   ? 1
               : s[0] < 0xc0 ? 0
               : s[0] < 0xe0 ? 2
               : s[0] < 0xf0 ? 3
               : s[0] < 0xf8 ? 4
                             : 0;
    *bytes = 1;
    if (n == 1) return s[0];
    if (n == 0 || (size_t)(end - text) < n) return -1;
    int32_t code = s[0] & (0x7f >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return -1;
        code = code << 6 | (s[i] & 0x3f);
    }
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    if (code < least[n] || code > 0x10ffff || surrogate) return -1;
    *bytes = n;
    return code;
}

oct_shown oct_show(const char *text, size_t length)
{
    enum { LONGEST = 60 };
    oct_shown shown;
    size_t used = 0, bytes;
    const char *end = text + length;
    for (; text < end; text += bytes) {
        int32_t code = oct_utf8(text, end, &bytes);
        if (used + bytes > LONGEST) {
            memcpy(shown.text + used, "...", 3);
            used += 3;
            break;
        }
        bool mask = code < 0x20 || (code >= 0x7f && code < 0xa0);
        memcpy(shown.text + used, mask ? "?" : text, mask ? 1 : bytes);
        used += mask ? 1 : bytes;
    }
    shown.text[used] = '\0';
    return shown;
}

/* Whether a character neither steers a terminal nor misleads who reads it. */
static bool is_harmless(int32_t code)
{
    if (code < ' ') return code == '\n' || code == '\t';
    const bool control = code >= 0x7f && code < 0xa0;
    const bool turns = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
                       code == 0x200e || code == 0x200f;
    const bool breaks = code == 0x2028 || code == 0x2029;
    return !control && !turns && !breaks;
}

void oct_text_clean(char *text)
{
    const char *end = text + strlen(text);
    for (size_t bytes; text < end; text += bytes) {
        int32_t code = oct_utf8(text, end, &bytes);
        if (code < 0 || !is_harmless(code)) memset(text, '?', bytes);
    }
}

double oct_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
