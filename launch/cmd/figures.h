/* What metrics know of each class, label or quantity, as tables for people and as JSON. */
#pragma once

#include "launch/evaluate/evaluate.h"

/* The table of a metric with details, for people: outputs of one row each, up to a hundred, and a matrix of up to
 * twenty. names: of the outputs, or NULL. */
oct_status oct_figures_print(const oct_metric *metric, const double *numbers, int64_t n,
                             char *const *names) OCT_NODISCARD;
/* {"columns": [...], "rows": [[...]]}, without columns for a matrix (new reference); NULL: out of memory. */
json_t *oct_figures_json(const oct_metric *metric, const double *numbers, int64_t n);
