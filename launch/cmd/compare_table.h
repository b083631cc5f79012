/* Judges and prints what a comparison has found, as a table or as JSON. */
#pragma once

#include "launch/cmd/compare_side.h"
#include "quant/layers/layer_compare.h"

typedef struct oct_compare_verdict {
    const oct_compare_side *a, *b;
    const oct_comparing *found;
    bool exact;    /* both compute the same, so every bit counts */
    double enough; /* otherwise: dB of SQNR below which a layer departs */
    /* Layers of b; -1: none. */
    int64_t first; /* that departs */
    int64_t worst; /* by SQNR, of those that differ at all */
    int64_t drop;  /* whose SQNR is furthest below that of the layer before */
    double drop_db;
    int64_t departing; /* layers */
} oct_compare_verdict;

/* given: --sqnr, or NULL. */
oct_compare_verdict oct_compare_judge(const oct_compare_side *a, const oct_compare_side *b,
                                      const oct_comparing *found, const double *given);
bool oct_compare_departs(const oct_compare_verdict *verdict, int64_t layer);
/* OCT_DATA naming the layers that one side lacks. */
oct_status oct_compare_check(const oct_compare_side *a, const oct_compare_side *b,
                             const oct_layer_pairs *pairs) OCT_NODISCARD;

/* number_of: of a sample in the data. */
typedef int64_t (*oct_compare_number)(const void *user, int64_t sample);
oct_status oct_compare_print(const oct_compare_verdict *verdict, oct_compare_number number_of,
                             const void *user) OCT_NODISCARD;
oct_status oct_compare_print_json(const oct_compare_verdict *verdict, oct_compare_number number_of,
                                  const void *user) OCT_NODISCARD;
/* OCT_NO with the place where they depart; OCT_OK when they do not. */
oct_status oct_compare_answer(const oct_compare_verdict *verdict, oct_compare_number number_of,
                              const void *user) OCT_NODISCARD;
