/* Commands that compute share these: threads, data and checkpoints on every rank, and what to write
 * down about the machine. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "io/dataset/dataset.h"
#include "io/model/model_file.h"
#include "io/recipe/recipe.h"
#include "launch/session/file_kind.h"
#include "launch/session/session.h"

#include <jansson.h>

/* Sets the threads of this rank, and warns on rank 0 of what makes a run slow or different. */
void oct_job_threads(const oct_session *session, int64_t threads);
int64_t oct_job_share_of_cores(void); /* of oct_machine_cores, a rank of this host; at least 1 */

/* Loads the split on every rank (collective): the same bytes, and the same plug-ins, on all of them. */
oct_status oct_job_data(oct_session *session, const oct_recipe *recipe, oct_split split,
                        oct_dataset *data);

/* Gives rank 0's checkpoint (bytes NULL: none) to every rank (collective). */
oct_status oct_job_share(oct_session *session, oct_checkpoint *checkpoint);

/* Opens the checkpoint file at `path` or, where kind is OCT_FILE_RUN_FOLDER, the newest of that run (OCT_DATA: it has
 * none). The caller closes it. */
oct_status oct_job_open_checkpoint(oct_checkpoint *checkpoint, const char *path,
                                   oct_file_kind kind);

/* Reads the recipe inside of a checkpoint or model; its plug-ins are loaded, if they may be
 * (plugin_load.h). Where its data is is not part of it: that comes from data_path (NULL: the run
 * folder that `file` is in, else the format's own place); nor are its metrics, which come from that
 * folder too. */
oct_status oct_job_checkpoint_recipe(oct_recipe *recipe, const oct_checkpoint *checkpoint,
                                     const char *data_path);
oct_status oct_job_model_recipe(oct_recipe *recipe, const char *file, const oct_model *model,
                                const char *data_path);

/* Makes a recipe for a model that has none: how pixels are normalised, what its outputs are, the lines below `data:` that
 * say where data are (NULL: nothing does), and overrides. */
oct_status oct_job_program_recipe(oct_recipe *recipe, const char *file, const oct_model *model,
                                  const char *data, const char *const *overrides, size_t count);

/* Makes a new object of both parts' counts and digests; NULL: out of memory. */
json_t *oct_job_data_record(const oct_dataset *train_data, const oct_dataset *test_data);

/* Makes, on rank 0, a new object with versions, hosts, processor, plug-ins, environment, command line
 * and data; NULL elsewhere. Collective. */
oct_status oct_job_describe(oct_session *session, const oct_args *args, const oct_recipe *recipe,
                            const oct_dataset *train_data, const oct_dataset *test_data,
                            json_t **description);
