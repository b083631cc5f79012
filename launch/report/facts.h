/* The facts of a run, which a report shows. */
#pragma once

#include "launch/report/page_run.h"

/* How much a report shows at most. */
typedef struct oct_page_limits {
    size_t layers;
    size_t steps; /* of the graph */
    size_t rows;  /* of a table */
    size_t images;
    size_t text; /* bytes of a file that is shown as it is */
} oct_page_limits;

/* Adds to an object the facts of the run: documents and records of its folder, cut to the limits; curves of at most
 * a few hundred points; what the int8 model holds; under "why" a sentence for each file that has nothing to
 * show. page/report.js reads them. */
oct_status oct_page_facts(json_t *facts, const oct_page_run *run,
                          const oct_page_limits *limits) OCT_NODISCARD;
/* The int8 model's layers in the form of layers.json, for a run that has measured none; an array. */
json_t *oct_page_model_layers(const oct_program *program, size_t most);
