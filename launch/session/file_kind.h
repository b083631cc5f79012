/* The first bytes show what a file on the command line is. */
#pragma once

#include "core/base/status.h"

typedef enum oct_file_kind {
    OCT_FILE_RECIPE = 1,
    OCT_FILE_CHECKPOINT = 2,
    OCT_FILE_MODEL = 4,      /* int8 model */
    OCT_FILE_RUN_FOLDER = 8, /* a folder with recipe.yaml or checkpoints */
} oct_file_kind;

/* Finds the kind by a file's first bytes; nothing is verified. OCT_DATA when missing, unreadable or none of these. */
oct_status oct_file_kind_of(const char *path, oct_file_kind *kind);
/* Finds the kind, which must be one of `kinds`; takes says so: "convert takes a checkpoint or a run folder". */
oct_status oct_file_take(const char *path, int kinds, const char *takes, oct_file_kind *kind);
/* Checks the checksum of a checkpoint: OCT_DATA when it is damaged, and its kind only a guess. Commands that would
 * refuse a file for its kind ask this first. */
oct_status oct_file_check_intact(const char *path, oct_file_kind kind);
/* Refuses what is no int8 model, for commands that take nothing else. */
oct_status oct_file_need_model(const char *path);
const char *oct_file_kind_name(oct_file_kind kind); /* "checkpoint" */
