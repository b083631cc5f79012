/* What a run folder holds, read for people: each file that is missing or damaged says so in a sentence,
 * and the others are shown all the same. */
#pragma once

#include "core/base/text.h"
#include "io/model/model_file.h"
#include "io/recipe/recipe.h"
#include "io/recipe/sensitivity_file.h"

#include <jansson.h>

/* Files of a run, in the order in which they are read. */
#define OCT_RUN_FILE_LIST(X)                                                                       \
    X(RECORDS, "metrics.jsonl")                                                                    \
    X(RECIPE, "recipe.yaml")                                                                       \
    X(SESSIONS, "run.json")                                                                        \
    X(MODEL, "model.int8.h5")                                                                      \
    X(CHECK, "model_check_result.txt")                                                             \
    X(LAYERS, "layers.json")                                                                       \
    X(WORST, "worst.json")                                                                         \
    X(SENSITIVITY, "run.sensitivity")

typedef enum oct_run_file {
#define X(id, name) OCT_RUN_FILE_##id,
    OCT_RUN_FILE_LIST(X)
#undef X
        OCT_RUN_FILES
} oct_run_file;

typedef struct oct_page_run {
    char *folder;
    json_t *records;                   /* never NULL once opened */
    json_t *kinds;                     /* of each kind an array of its records */
    json_t *result;                    /* the newest result record; borrowed, NULL: not finished */
    oct_recipe recipe;                 /* valid when recipe_text.data is not NULL */
    oct_text recipe_text;              /* every key, a line each */
    json_t *sessions, *layers, *worst; /* NULL: not there; objects of the right version */
    oct_model model;                   /* valid when has_model */
    bool has_model;
    char *check; /* NULL: not there */
    oct_sensitivity sensitivity;
    /* Why a file is not shown, or where it is damaged; NULL: it is whole. */
    char *why[OCT_RUN_FILES];
} oct_page_run;

/* Opens a run folder, or the one that a folder of checkpoints belongs to; of its files all, or only the records and
 * the recipe. large: its int8 model may be so (io/model/model.h). OCT_DATA for what is no run folder; files inside of it
 * never fail but for memory. Close also after a failure. */
oct_status oct_page_run_open(oct_page_run *run, const char *path, bool records_only, bool large);
void oct_page_run_close(oct_page_run *run);

extern const char *const oct_run_file_names[OCT_RUN_FILES];
/* The records of a kind, in their order; NULL: none. Borrowed. */
json_t *oct_page_run_records(const oct_page_run *run, const char *kind);
/* Finds the newest record of a kind; NULL: none. */
json_t *oct_page_run_record(const oct_page_run *run, const char *kind);
/* Makes a JSON string of at most the first `bytes` bytes of valid UTF-8, cut between characters, with "…" where it was cut. */
json_t *oct_page_beginning(const char *text, size_t bytes);
enum { OCT_NAME_BYTES = 500 };
/* A name as JSON, cut to OCT_NAME_BYTES at the end of a character; invalid UTF-8 becomes '?'. */
json_t *oct_page_name(const char *text);

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
oct_status oct_page_facts(json_t *facts, const oct_page_run *run, const oct_page_limits *limits);
