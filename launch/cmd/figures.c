/* A table has a row for each output. */
#include "launch/cmd/figures.h"

#include "core/base/mem.h"
#include "launch/base/output.h"

#include <math.h>
#include <stdio.h>

enum { ROWS_MOST = 100, MATRIX_MOST = 20 };

static int64_t columns_of(const oct_metric_details *details, int64_t n)
{
    return details->columns ? details->num_columns : n;
}

static oct_status cells_of(const oct_metric *metric, const double *numbers, int64_t n,
                           double **cells)
{
    const size_t columns = (size_t)columns_of(metric->details, n);
    OCT_TRY(oct_alloc(cells, (size_t)n * columns, sizeof **cells));
    metric->details->fill(numbers, n, *cells);
    return OCT_OK;
}

static oct_status print_head(const oct_metric *metric, int64_t n)
{
    const oct_metric_details *details = metric->details;
    OCT_TRY(oct_print("\n%s\n%-16s", metric->title, details->columns ? "" : "true \\ predicted"));
    for (int64_t k = 0; k < columns_of(details, n); k++)
        OCT_TRY(details->columns ? oct_print(" %10s", details->columns[k].name)
                                 : oct_print(" %7lld", (long long)k));
    return oct_print("\n");
}

static oct_status print_cell(const oct_metric_details *details, int64_t column, double value)
{
    const int width = details->columns ? 10 : 7;
    if (isnan(value)) return oct_print(" %*s", width, "-");
    return oct_print(" %*.*f", width, details->columns ? details->columns[column].digits : 0,
                     value);
}

oct_status oct_figures_print(const oct_metric *metric, const double *numbers, int64_t n,
                             char *const *names)
{
    const oct_metric_details *details = metric->details;
    const int64_t columns = columns_of(details, n);
    double *cells = NULL;
    char number[32];
    oct_status status = OCT_OK;
    if (n > (details->columns ? ROWS_MOST : MATRIX_MOST))
        return oct_print("\n%s: %lld rows, which --json shows\n", metric->title, (long long)n);
    OCT_TRY_OUT(cells_of(metric, numbers, n, &cells));
    OCT_TRY_OUT(print_head(metric, n));
    for (int64_t i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%lld", (long long)i);
        OCT_TRY_OUT(oct_print("%-16.40s", names ? names[i] : number));
        for (int64_t k = 0; k < columns; k++)
            OCT_TRY_OUT(print_cell(details, k, cells[i * columns + k]));
        OCT_TRY_OUT(oct_print("\n"));
    }
out:
    oct_free(&cells);
    return status;
}

json_t *oct_figures_json(const oct_metric *metric, const double *numbers, int64_t n)
{
    const oct_metric_details *details = metric->details;
    const int64_t columns = columns_of(details, n);
    double *cells = NULL;
    if (cells_of(metric, numbers, n, &cells) != OCT_OK) return NULL;
    json_t *rows = json_array(), *names = details->columns ? json_array() : NULL;
    for (int64_t k = 0; details->columns && k < columns; k++)
        json_array_append_new(names, json_string(details->columns[k].name));
    for (int64_t i = 0; i < n; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < columns; k++) {
            const double value = cells[i * columns + k];
            const bool count = !details->columns || details->columns[k].digits == 0;
            json_array_append_new(row, isnan(value) ? json_null()
                                       : count      ? json_integer((json_int_t)value)
                                                    : json_real(value));
        }
        json_array_append_new(rows, row);
    }
    oct_free(&cells);
    return json_pack("{s:o*, s:o}", "columns", names, "rows", rows);
}
