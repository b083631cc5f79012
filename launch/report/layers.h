/* Layers as a report shows them: what was measured (layers.json), or else what the int8 model holds. */
#pragma once

#include "launch/report/page_run.h"

enum { OCT_BINS = 64 };

/* Counts of values in OCT_BINS bins of equal width. */
typedef struct oct_page_histogram {
    double from, to; /* to <= from: there is none */
    double counts[OCT_BINS];
    bool codes; /* of codes, not of real numbers */
} oct_page_histogram;

/* Numbers that are not known are not a number. */
typedef struct oct_page_layer {
    const char *path, *type; /* borrowed from the run */
    double h, w, c;
    bool quantized; /* its output is codes */
    double bits, scale, zero_point, qmin, qmax;
    double min, max, clipped;
    double sqnr, cosine, max_error; /* against the reference of layers.json */
    double price;                   /* dB: SQNR against the same weights, nothing rounded */
    oct_page_histogram output;
    bool has_weight;
    double weight_scale_min, weight_scale_max, weight_min, weight_max, weight_clipped, weight_sqnr;
    oct_page_histogram weight;
    double operations, weight_bytes, output_bytes;
} oct_page_layer;

typedef struct oct_page_layers {
    oct_page_layer *layer;
    size_t count, capacity;
} oct_page_layers;

/* Lists the layers of a run in the order in which they run; none when it has neither of the two. */
oct_status oct_page_layers_of(oct_page_layers *layers, const oct_page_run *run) OCT_NODISCARD;
void oct_page_layers_free(oct_page_layers *layers);
/* Finds a layer by its path; NULL: there is none. */
const oct_page_layer *oct_page_layers_find(const oct_page_layers *layers, const char *path);
