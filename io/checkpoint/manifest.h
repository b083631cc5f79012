/* Which checkpoints a folder has: `manifest.json`, written last and so the commit of each save.
 *
 *     {"schema": 1, "checkpoints": [
 *       {"file": "step-00000400.h5", "step": 400, "bytes": 23456, "sha256": "..."},
 *       {"file": "step-00000200.h5", "step": 200, "bytes": 23456, "sha256": "..."}
 *     ]}
 *
 * It is read strictly: no other keys, no duplicates, steps falling, names that follow from the steps
 * and so never lead out of the folder. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

enum { OCT_CHECKPOINT_NAME = 32 };
static const size_t oct_checkpoint_limit = (size_t)1 << 36; /* bytes of one file that is read */

typedef struct oct_manifest_entry {
    int64_t step;
    uint64_t bytes;     /* of the file */
    uint8_t digest[32]; /* SHA-256 of the file */
    bool damaged;       /* found by a scan and its own checksum does not fit */
} oct_manifest_entry;

typedef struct oct_manifest {
    oct_manifest_entry *entries; /* newest first */
    size_t count, capacity;
} oct_manifest;

/* Writes "step-00000400.h5" into text, which it returns. */
const char *oct_checkpoint_name(int64_t step, char text[OCT_CHECKPOINT_NAME]);
/* Makes the path of a step's file in a folder, oct_alloc'ed. */
oct_status oct_checkpoint_path(char **path, const char *folder, int64_t step);
/* Reads the step from a name such as "step-00000400.h5"; false: the name has another form. */
bool oct_checkpoint_name_step(const char *name, int64_t *step);

/* Which checkpoints stay: the newest ones, one step for good, and the best one so far. */
typedef struct oct_keep {
    int64_t newest; /* >= 1 */
    int64_t always; /* 0: none */
    int64_t best;   /* 0: none */
} oct_keep;

/* Reads the manifest. A folder without manifest and step files, or no folder, gives none. When only the manifest is lost
 * or damaged, a warning says so and the step files are read instead. OCT_DATA for the manifest of a
 * newer Octet. strict: for a save, which writes it anew: what could not be read for the moment would be lost then, so a
 * manifest, or a step file that stands for it, which is there and cannot be read is OCT_RESOURCE. */
oct_status oct_manifest_read(oct_manifest *manifest, const char *folder, bool strict);
/* Reads the manifest alone: *why is NULL, or says in a few words why there is none to go by. */
oct_status oct_manifest_read_file(oct_manifest *manifest, const char *folder, bool strict,
                                  const char **why);
/* Writes the manifest of a new checkpoint: of the old one's entries those of earlier steps that are not damaged and that
 * `keep` names. Then deletes the files that the old manifest names and the new one does not. */
oct_status oct_manifest_commit(const oct_manifest *old, const oct_manifest_entry *entry,
                               oct_keep keep, const char *folder);
/* Finds the entry of a step; NULL when there is none. */
const oct_manifest_entry *oct_manifest_find(const oct_manifest *manifest, int64_t step);
oct_status oct_manifest_write(const oct_manifest *manifest, const char *folder);
void oct_manifest_free(oct_manifest *manifest);
