/* Tables of text: fields between commas, semicolons or tabs, whichever the first line has most of; quoted where they
 * hold one, quotes ("" for one) or ends of lines; blanks around a field do not count; UTF-8 with or without a mark. Files
 * are untrusted: every row has as many fields as the first, and no bytes of 0. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef struct oct_csv {
    char *path;
    char *bytes;   /* of the file, with a NUL after each field */
    char **field;  /* rows x columns, in bytes */
    int64_t *line; /* of the file, from 1 on, for each row */
    int64_t rows, columns;
    size_t field_capacity, line_capacity;
} oct_csv;

/* Reads a whole file; empty lines are passed over. OCT_DATA with path and line. On failure *csv is empty. */
oct_status oct_csv_read(oct_csv *csv, const char *path);
void oct_csv_free(oct_csv *csv);
static inline const char *oct_csv_field(const oct_csv *csv, int64_t row, int64_t column)
{
    return csv->field[row * csv->columns + column];
}
