/* Metrics: how good the outputs of a model are, as one figure over many rows, and as a table of figures. What one is made
 * of is in octet/task.h. Adding one: a file in this folder and a line in metric_list.def; or a plug-in's.
 */
#pragma once

#include "core/base/collective.h"
#include "core/base/registry.h"

#include <octet/task.h>

int64_t oct_goals_rows(const oct_goals *goals); /* of a sample */
bool oct_goals_ignore(const oct_goals *goals, int64_t row);
/* Row i: its outputs, with the label, wanted values and teacher outputs that the goals have. */
oct_output_row oct_output_row_at(const oct_output_rows *rows, int64_t i);

#define OCT_METRIC(name) extern const oct_metric oct_metric_##name;
#include "core/metric/metric_list.def"
#undef OCT_METRIC

/* Those of the list, then those that plug-ins added. */
extern oct_registry oct_metric_table;
const oct_metric *oct_metric_find(const char *name); /* NULL */

/* Collective: the metric's sums over the rows of all ranks, the same on each of them. rows: those of
 * this rank's samples; numbers: metric->numbers(rows->n) of them, to be freed by the caller; NULL on failure.
 * Those of oct_metric_top1 are the rows whose largest output is that of their class, and all rows. */
oct_status oct_metric_sum(const oct_metric *metric, const oct_collective *group,
                          const oct_leaves *leaves, const oct_output_rows *rows, double **numbers);
