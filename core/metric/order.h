/* Metrics of how rows are ordered by a score: rank 0 sorts the scores of all ranks. */
#pragma once

#include "core/metric/metric.h"

/* Collective: the numbers of a metric with an order, over the rows of all ranks. */
oct_status oct_metric_sum_order(const oct_metric *metric, const oct_collective *group,
                                const oct_leaves *leaves, const oct_output_rows *rows,
                                double *numbers) OCT_NODISCARD;
