/* Fields are unquoted in place, since they never become longer. */
#include "io/dataset/csv_file.h"

#include "core/base/mem.h"
#include "io/file/file.h"

#include <inttypes.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 30, COLUMNS_MAX = 65537 };

typedef struct scan {
    oct_csv *csv;
    char separator; /* comma, semicolon or tab */
    char *at, *end;
    int64_t line, columns; /* of this row so far */
    size_t fields;         /* of all rows */
} scan;

static oct_status add_field(scan *s, char *begin)
{
    OCT_CHECK(++s->columns <= COLUMNS_MAX, OCT_DATA, "%s:%" PRId64 ": has more than %d fields",
              s->csv->path, s->line, COLUMNS_MAX);
    OCT_TRY(
        oct_grow(&s->csv->field, &s->csv->field_capacity, s->fields + 1, sizeof *s->csv->field));
    s->csv->field[s->fields++] = begin;
    return OCT_OK;
}

static void skip_blanks(scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t') && *s->at != s->separator)
        s->at++;
}

/* Reads a field in quotes, without them; s->at is then after it. */
static oct_status read_quoted_field(scan *s)
{
    char *to = ++s->at;
    const int64_t line = s->line;
    OCT_TRY(add_field(s, to));
    for (;; s->at++) {
        OCT_CHECK(s->at < s->end, OCT_DATA,
                  "%s:%" PRId64 ": a field begins with a quote that nothing ends", s->csv->path,
                  line);
        if (*s->at == '"' && s->at + 1 < s->end && s->at[1] == '"')
            s->at++;
        else if (*s->at == '"')
            break;
        if (*s->at == '\n') s->line++;
        *to++ = *s->at;
    }
    s->at++;
    skip_blanks(s);
    const bool line_end =
        s->at < s->end && *s->at == '\r' && (s->at + 1 == s->end || s->at[1] == '\n');
    OCT_CHECK(s->at == s->end || *s->at == s->separator || *s->at == '\n' || line_end, OCT_DATA,
              "%s:%" PRId64 ": a field has text after its closing quote", s->csv->path, s->line);
    *to = '\0'; /* where the last quote stood, or before */
    return OCT_OK;
}

static oct_status read_field(scan *s)
{
    skip_blanks(s);
    if (s->at < s->end && *s->at == '"') return read_quoted_field(s);
    OCT_TRY(add_field(s, s->at));
    while (s->at < s->end && *s->at != s->separator && *s->at != '\n')
        s->at++;
    return OCT_OK;
}

/* Reads a row, ends its fields in place, and checks that it has as many as the first row. */
static oct_status read_row(scan *s)
{
    oct_csv *csv = s->csv;
    const int64_t line = s->line;
    bool more = true;
    s->columns = 0;
    while (more) {
        OCT_TRY(read_field(s));
        /* The field ends before s->at; another one follows in the row after a separator. */
        char *end = s->at, *field = s->csv->field[s->fields - 1];
        more = end < s->end && *end == s->separator;
        if (end < s->end && *end == '\r') s->at++;
        if (s->at < s->end) s->at++;
        if (!more && end > field && end[-1] == '\r') end--;
        while (end > field && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        *end = '\0';
    }
    s->line++;
    if (csv->rows == 0) csv->columns = s->columns;
    OCT_CHECK(s->columns == csv->columns, OCT_DATA,
              "%s:%" PRId64 ": has %" PRId64 " fields, but the first row has %" PRId64, csv->path,
              line, s->columns, csv->columns);
    OCT_TRY(oct_grow(&csv->line, &csv->line_capacity, (size_t)csv->rows + 1, sizeof *csv->line));
    csv->line[csv->rows++] = line;
    return OCT_OK;
}

/* Skips a line without text; false, and nothing is skipped, where it has some. */
static bool skip_empty_line(scan *s)
{
    char *at = s->at;
    while (at < s->end && *at == ' ')
        at++;
    if (at < s->end && *at == '\r') at++;
    if (at < s->end && *at != '\n') return false;
    s->at = at < s->end ? at + 1 : at;
    s->line++;
    return true;
}

/* Returns the most frequent of , ; and tab outside of quotes in the first line; in a tie the earlier of these. */
static char find_separator(const char *at, const char *end)
{
    static const char kinds[] = ",;\t";
    int count[sizeof kinds] = {0}, most = 0;
    for (bool quoted = false; at < end && (quoted || *at != '\n'); at++) {
        const char *kind = quoted ? NULL : memchr(kinds, *at, sizeof kinds - 1);
        if (*at == '"') quoted = !quoted;
        if (kind) count[kind - kinds]++;
    }
    for (int i = 1; kinds[i]; i++)
        if (count[i] > count[most]) most = i;
    return kinds[most];
}

oct_status oct_csv_read(oct_csv *csv, const char *path)
{
    void *bytes = NULL;
    size_t size = 0;
    *csv = (oct_csv){0};
    OCT_TRY(oct_file_read(path, FILE_BYTES_MAX, &bytes, &size));
    csv->bytes = bytes;
    scan s = {.csv = csv, .at = csv->bytes, .end = csv->bytes + size, .line = 1};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_strdup(&csv->path, path));
    OCT_CHECK_OUT(!memchr(bytes, 0, size), OCT_DATA, "%s: is no text: it holds a byte of 0", path);
    if (size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) s.at += 3;
    while (s.at < s.end && skip_empty_line(&s)) {
    }
    s.separator = find_separator(s.at, s.end);
    while (s.at < s.end)
        if (!skip_empty_line(&s)) OCT_TRY_OUT(read_row(&s));
    OCT_CHECK_OUT(csv->rows > 0, OCT_DATA, "%s: holds no rows", path);
out:
    if (status != OCT_OK) oct_csv_free(csv);
    return status;
}

void oct_csv_free(oct_csv *csv)
{
    OCT_FREE_ALL(&csv->path, &csv->bytes, &csv->field, &csv->line);
    *csv = (oct_csv){0};
}
