/* What calibration without training costs each layer, and which layers want more. */
#pragma once

#include "quant/module/qconfig.h"

#include <jansson.h>

/* dB that the output of an int8 model should have against float: a hundredth of its power in error is 20. */
#define OCT_CALIBRATE_SQNR 30.0

/* What calibration has found out of a layer. */
typedef struct oct_calibrate_layer {
    const char *path, *type; /* borrowed from the document */
    double sqnr;             /* of its output, int8 against float; NaN: not measured */
    double weights,
        output; /* shares of its quantizers in the error of the network; NaN: it has none */
    bool
        clips; /* what is outside of its codes costs more than rounding: more bits would not help */
    bool wants_qat, wants_16, wants_range;
} oct_calibrate_layer;

typedef struct oct_calibrate_report {
    double float_accuracy; /* percent; -1: rows have no classes */
    json_t *document;      /* as layers.json, of float's start; owned */
    json_t *result;        /* of the run; borrowed */
    const oct_sensitivity *table;
    double wanted;        /* dB of the output */
    bool wide;            /* the target has 16-bit codes */
    const char *observer; /* quant.observer */
    /* Filled by oct_calibrate_judge: */
    oct_calibrate_layer *layers;
    size_t count;
    double sqnr;     /* of the last layer that was measured */
    double expected; /* with what is wanted, dB */
} oct_calibrate_report;

/* Marks the fewest quantizers, the largest first, without whose error the output has what is wanted: errors are taken
 * to add up, as independent ones do, to the one that was measured. */
oct_status oct_calibrate_judge(oct_calibrate_report *report) OCT_NODISCARD;
oct_status oct_calibrate_print(const oct_calibrate_report *report) OCT_NODISCARD;
oct_status oct_calibrate_print_json(const oct_calibrate_report *report) OCT_NODISCARD;
void oct_calibrate_report_free(oct_calibrate_report *report);
