/* Sensitivity tables are words between blanks, one row a line, everything checked. */
#include "io/recipe/sensitivity_file.h"

#include "core/base/mem.h"
#include "io/file/file.h"

#include <math.h>
#include <string.h>

enum {
    FILE_LIMIT = 1 << 20,
    COLUMNS = 5,
    NUMBER_BYTES = 330 /* the largest double, and 8 digits */
};
static const char first_line[] = "# octet sensitivity 1";

/* Rounds for people; a small negative number is not "-0.000". */
static void round_number(double value, int digits, char text[NUMBER_BYTES])
{
    oct_snprintf(text, NUMBER_BYTES, "%.*f", digits, value);
    if (text[0] == '-' && text[1 + strspn(text + 1, "0.")] == '\0')
        memmove(text, text + 1, strlen(text));
}

oct_status oct_sensitivity_print(const oct_sensitivity *table, const char *comment, oct_text *out)
{
    int width = 6; /* of "# path" */
    for (size_t i = 0; i < table->count; i++)
        if ((int)strlen(table->rows[i].path) > width) width = (int)strlen(table->rows[i].path);
    OCT_TRY(oct_text_add(out, "%s\n", first_line));
    while (comment && *comment) {
        size_t length = strcspn(comment, "\n");
        OCT_TRY(oct_text_add(out, "# %.*s\n", (int)length, comment));
        comment += length + (comment[length] == '\n');
    }
    OCT_TRY(oct_text_add(out, "# %-*s  %-10s  %9s  %11s  %11s\n", width - 2, "path", "tensor",
                         "sqnr_db", "cosine", "loss_change"));
    for (const oct_sensitivity_row *row = table->rows; row < table->rows + table->count; row++) {
        char sqnr[NUMBER_BYTES], cosine[NUMBER_BYTES], loss[NUMBER_BYTES];
        round_number(row->sqnr, 4, sqnr);
        round_number(row->cosine, 8, cosine);
        round_number(row->loss_change, 6, loss);
        OCT_TRY(oct_text_add(out, "%-*s  %-10s  %9s  %11s  %11s\n", width, row->path, row->tensor,
                             sqnr, cosine, loss));
    }
    return OCT_OK;
}

void oct_sensitivity_free(oct_sensitivity *table)
{
    oct_free(&table->rows);
    table->count = 0;
}

typedef struct line_reader {
    const char *path;
    size_t line;
    oct_sensitivity *table;
    size_t capacity;
} line_reader;

static oct_status read_number(const line_reader *r, const char *what, const char *word,
                              bool may_be_infinite, double *value)
{
    if (may_be_infinite && strcmp(word, "inf") == 0) {
        *value = INFINITY;
        return OCT_OK;
    }
    oct_shown shown = oct_show(word, strlen(word));
    OCT_CHECK(oct_parse_f64(word, value), OCT_DATA, "%s:%zu: %s is '%s'; write a number%s", r->path,
              r->line, what, shown.text, may_be_infinite ? " or inf" : "");
    return OCT_OK;
}

/* Refuses a row that the table has already, or whose SQNR is lower than that of the row before. */
static oct_status check_row(const line_reader *r, const oct_sensitivity_row *row)
{
    const oct_sensitivity *t = r->table;
    for (size_t i = 0; i < t->count; i++)
        OCT_CHECK(strcmp(t->rows[i].path, row->path) != 0 ||
                      strcmp(t->rows[i].tensor, row->tensor) != 0,
                  OCT_DATA, "%s:%zu: the %s of %s is already in the table; keep one of the rows",
                  r->path, r->line, row->tensor, row->path);
    OCT_CHECK(t->count == 0 || t->rows[t->count - 1].sqnr <= row->sqnr, OCT_DATA,
              "%s:%zu: sqnr_db %g comes after %g; the most sensitive row, with the lowest, comes "
              "first",
              r->path, r->line, row->sqnr, t->rows[t->count - 1].sqnr);
    return OCT_OK;
}

/* Whether a word can be the path of one module: blanks separate words, and a pattern would name several. */
static bool may_be_path(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == 0x7f || *text == '*' || *text == '?')
            return false;
    return true;
}

static oct_status read_row(line_reader *r, char *const word[COLUMNS])
{
    oct_sensitivity *t = r->table;
    oct_sensitivity_row row = {0};
    oct_shown path = oct_show(word[0], strlen(word[0])),
              tensor = oct_show(word[1], strlen(word[1]));
    OCT_CHECK(may_be_path(word[0]), OCT_DATA, "%s:%zu: '%s' is not the path of a module", r->path,
              r->line, path.text);
    OCT_CHECK(strlen(word[0]) < sizeof row.path, OCT_DATA,
              "%s:%zu: the path has %zu letters; a module's has less than %zu", r->path, r->line,
              strlen(word[0]), sizeof row.path);
    OCT_CHECK(strcmp(word[1], "activation") == 0 || strcmp(word[1], "weight") == 0, OCT_DATA,
              "%s:%zu: the second word is '%s'; write activation or weight", r->path, r->line,
              tensor.text);
    memcpy(row.path, word[0], strlen(word[0]) + 1);
    memcpy(row.tensor, word[1], strlen(word[1]) + 1);
    OCT_TRY(read_number(r, "sqnr_db", word[2], true, &row.sqnr));
    OCT_TRY(read_number(r, "cosine", word[3], false, &row.cosine));
    OCT_TRY(read_number(r, "loss_change", word[4], false, &row.loss_change));
    OCT_TRY(check_row(r, &row));
    OCT_TRY(oct_grow(&t->rows, &r->capacity, t->count + 1, sizeof *t->rows));
    t->rows[t->count++] = row;
    return OCT_OK;
}

/* Cuts a line into words, which end in place, and reads them as a row of the table. */
static oct_status read_line(line_reader *r, char *line)
{
    char *word[COLUMNS + 1];
    int count = 0;
    line += strspn(line, " \t");
    if (line[0] == '#') return OCT_OK;
    for (char *at = line; *at && count <= COLUMNS;) {
        word[count++] = at;
        at += strcspn(at, " \t");
        if (*at) *at++ = '\0';
        at += strspn(at, " \t");
    }
    if (count == 0) return OCT_OK;
    OCT_CHECK(count == COLUMNS, OCT_DATA,
              "%s:%zu: a row has five words (path, activation or weight, sqnr_db, cosine, "
              "loss_change), this one has %s",
              r->path, r->line, count > COLUMNS ? "more" : "fewer");
    return read_row(r, word);
}

static bool begins_as_table(const char *text)
{
    return strcspn(text, "\r\n") == strlen(first_line) &&
           strncmp(text, first_line, strlen(first_line)) == 0;
}

oct_status oct_sensitivity_read(oct_sensitivity *table, const char *path)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size;
    line_reader r = {.path = path, .table = table};
    *table = (oct_sensitivity){0};
    OCT_TRY(oct_file_read(path, FILE_LIMIT, &bytes, &size));
    oct_status status = OCT_OK;
    OCT_CHECK_OUT(strlen(bytes) == size, OCT_DATA,
                  "%s: this is not a sensitivity table: it is not text", path);
    OCT_CHECK_OUT(
        begins_as_table(bytes), OCT_DATA,
        "%s: this is not a sensitivity table: its first line is not '%s'; make one with `octet "
        "sensitivity CHECKPOINT --output FILE`",
        path, first_line);
    for (char *line = bytes, *next; *line; line = next) {
        const size_t length = strcspn(line, "\n");
        next = line + length + (line[length] == '\n');
        line[length] = '\0';
        if (length > 0 && line[length - 1] == '\r') line[length - 1] = '\0';
        r.line++;
        OCT_TRY_OUT(read_line(&r, line));
    }
out:
    if (status != OCT_OK) oct_sensitivity_free(table);
    return status;
}

oct_status oct_sensitivity_is(const char *path, bool *is_table)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size;
    const oct_status status = oct_file_read(path, FILE_LIMIT, &bytes, &size);
    *is_table = status == OCT_OK && begins_as_table(bytes);
    if (status == OCT_RESOURCE) return status;
    oct_fail_clear();
    return OCT_OK;
}
