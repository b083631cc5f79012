/* The subject of a command: a checkpoint, the newest one of a run folder, or an int8 model, with what the recipe in it
 * names. */
#pragma once

#include "io/model/model_file.h"
#include "launch/session/build.h"
#include "launch/session/job.h"

typedef struct oct_subject {
    const char *path; /* as the user wrote it */
    oct_file_kind kind;
    oct_checkpoint checkpoint; /* or: */
    oct_model model;
    bool large; /* the model may be so (io/model/model.h); set before it is opened */
    oct_recipe recipe;
    oct_dataset data;
    oct_module *root; /* of a checkpoint */
    /* Words key=value of the command line, for a model without a recipe alone; set by the caller. */
    const char *const *keys;
    size_t num_keys;
    bool no_data; /* nothing names the data: neither a recipe nor the command line */
} oct_subject;

/* Opens the file, which must be of one of these kinds, a bit each (oct_file_take); takes: their names, for the
 * sentence that refuses another. An int8 model must be runnable. */
oct_status oct_subject_open(oct_subject *subject, const char *path, int kinds, const char *takes);
/* Reads the recipe in it, whose data are where data_path says (NULL: where the run had them). A model without a recipe gets
 * one for the data at data_path, whose format is found by names of files, with the keys on top. */
oct_status oct_subject_read_recipe(oct_subject *subject, const char *data_path);
/* Whether it is a model that a program has made, without a recipe. */
bool oct_subject_is_programs(const oct_subject *subject);
/* Loads the test data in this process alone. */
oct_status oct_subject_open_data(const oct_subject *subject, oct_dataset *data);
/* Collective: gives each rank its share of the cores, and loads a split of the data on all of them. */
oct_status oct_subject_load_data(oct_subject *subject, oct_session *session, oct_split split);
/* Collective: builds the model of a checkpoint, in the phase that it has there. */
oct_status oct_subject_build(oct_subject *subject, oct_session *session);
/* OCT_DATA when an int8 model takes images of another size than those of the data. */
oct_status oct_subject_check_images(const oct_subject *subject, const oct_dataset *data);
void oct_subject_close(oct_subject *subject);

/* The file itself: of a run folder its newest checkpoint. */
const char *oct_subject_file(const oct_subject *subject);
/* Makes a prepared model compute in float. */
oct_status oct_switch_quantizers_off(oct_module *root);
