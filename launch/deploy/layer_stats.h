/* Layer statistics are what layers.json of a run folder holds: for each layer of the int8 model how its values
 * lie, what its codes lose of them, and what it costs. */
#pragma once

#include "core/base/collective.h"
#include "io/checkpoint/checkpoint.h"
#include "io/dataset/dataset.h"
#include "io/recipe/recipe.h"
#include "quant/program/program.h"

#include <jansson.h>

/* At most this many samples are evaluated, spread evenly over the data; fewer of a network that multiplies much. */
enum { OCT_LAYER_STATS_SAMPLES = 256 };

typedef struct oct_layer_stats {
    const oct_program *program;
    oct_module *model;               /* what it was made from, its scales frozen */
    const oct_checkpoint *reference; /* of the float phase; bytes NULL: none */
    oct_module *
        *start; /* or the float model that the run started from, which is taken over; NULL: none */
    const oct_recipe *recipe;
    const oct_dataset *data;
} oct_layer_stats;

/* Collective: measures each layer against float. *document: on rank 0 a new one, the same bytes for any number of
 * ranks; NULL elsewhere. */
oct_status oct_layer_stats_make(const oct_layer_stats *stats, const oct_collective *group,
                                json_t **document);
