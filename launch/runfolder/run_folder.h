/* The run folder: recipe.yaml, model_check_result.txt, run.json, metrics.jsonl, log.txt, checkpoints/,
 * model.int8.h5, layers.json, worst.json, lock, and where they are asked for TensorBoard's events.out.tfevents.*.
 *
 * Used by rank 0 only. What differs between machines is in run.json, metrics.jsonl and log.txt; the
 * other files have the same bytes wherever the run was made.
 */
#pragma once

#include "core/nn/module.h"
#include "io/recipe/recipe.h"
#include "io/tensorboard/event_file.h"

#include <jansson.h>

typedef struct oct_run_folder {
    const char *path;         /* borrowed: recipe.output */
    int lock;                 /* of the folder; -1: not held */
    int metrics;              /* metrics.jsonl; -1: not open */
    int64_t length;           /* of its good records, bytes */
    bool metrics_lost;        /* could not be written: said once */
    json_t *records;          /* an array of all of them */
    const oct_recipe *recipe; /* borrowed */
    oct_event_file events;    /* log.tensorboard */
} oct_run_folder;

/* "<folder>/<name>", owned by the caller. */
oct_status oct_run_path(const char *folder, const char *name, char **path);

/* Checks whether this recipe may run in its output folder, and changes nothing: OCT_USAGE for a folder with foreign files or a
 * recipe of another identity (every key that differs, and the remedy). *result: the result record of
 * a run that is finished and whose model file is still the one that it made (new reference), else
 * NULL. */
oct_status oct_run_folder_look(const oct_recipe *recipe, json_t **result);

/* Compares the identity of a recipe with that of a run: of its checkpoint `path`, which holds the text, or with text NULL
 * of its recipe.yaml. OCT_USAGE with every key that differs. */
oct_status oct_run_same_recipe(const char *path, const char *text, const oct_recipe *recipe);

/* Makes the folder, locks it, removes what killed sessions were writing, writes recipe.yaml and
 * model_check_result.txt (report: of prepare), opens log.txt.
 * OCT_RESOURCE when a live run holds it. Close also after a failure. */
oct_status oct_run_folder_open(oct_run_folder *folder, const oct_recipe *recipe,
                               const oct_text *report);
void oct_run_folder_close(oct_run_folder *folder);
/* Appends what is logged from now on to the folder's log.txt, until oct_log_file(NULL): for who speaks while no rank
 * has the folder open. */
oct_status oct_run_folder_log(const char *folder);
/* Reads metrics.jsonl, drops what is beyond `step` and what is made at the end of the run, after its
 * step `last` (and a line that was cut short), and goes on after it. Warns when checkpoints beyond
 * `step` were written. */
oct_status oct_run_folder_rewind(oct_run_folder *folder, int64_t step, int64_t last);
/* Appends a record (takes the reference; NULL is out of memory). A disk that is full costs the record
 * and a warning, never the run. */
void oct_run_folder_record(oct_run_folder *folder, json_t *record);
/* For a number of a record: the nearest multiple of `unit`; value >= 0. */
static inline double oct_rounded(double value, double unit)
{
    return (double)(int64_t)(value / unit + 0.5) * unit;
}
/* Writes a document to a file of the folder (takes the reference; NULL is out of memory). A disk that is full costs the
 * file and a warning, never the run. */
void oct_run_folder_document(oct_run_folder *folder, const char *name, json_t *document);
/* Reads the records of a metrics.jsonl, an array; an empty one where there is no file. Records end before a
 * line that is no JSON object, whose number is *bad_line (0: none; may be NULL), and before one that was cut short. */
oct_status oct_run_folder_records(const char *path, json_t **records, size_t *bad_line);

/* The newest of these records of this kind whose phase is `phase` (NULL: any); borrowed, NULL if there is none. */
const json_t *oct_run_records_newest(const json_t *records, const char *kind, const char *phase);
/* The same of the records of an open run. */
const json_t *oct_run_folder_find(const oct_run_folder *folder, const char *kind,
                                  const char *phase);

/* Compares data as run.json describes them (oct_job_data_record, whose reference it takes) with
 * those of the last session. OCT_DATA when they are others, or a warning where data.changed allows that. */
oct_status oct_run_folder_same_data(const oct_run_folder *folder, json_t *data);
/* Appends a session to run.json: takes the reference. */
oct_status oct_run_folder_session(oct_run_folder *folder, json_t *session);

/* "<path>/checkpoints", or the path itself when it is such a folder. Owned by the caller. */
oct_status oct_run_checkpoints(const char *path, char **folder);
/* Finds the run folder that a checkpoint, model or folder belongs to: NULL if none. Owned by the caller. */
oct_status oct_run_folder_of(const char *path, char **folder);

/* TensorBoard's view of a run: what metrics.jsonl gets, as event files in the run folder (log.tensorboard).
 *
 * A number of a record becomes a scalar of the same name: train/loss of a `step` record, test/accuracy of an
 * `eval` record, scale/LAYER of a `scales` record. Beside them are histograms of the weights, samples of
 * the test data, and the recipe as hyperparameters.
 * Used by rank 0 only; with a file that is not open all of these do nothing.
 */

/* Adds some samples of the data to the events, where they are pictures that are not too large to look at. */
void oct_tensorboard_samples(oct_event_file *file, const oct_dataset *data);
/* A histogram of each weight of the model. */
void oct_tensorboard_weights(oct_event_file *file, oct_module *model, int64_t step);
