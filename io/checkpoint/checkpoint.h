/* Checkpoints: `<folder>/step-NNNNNNNN.h5` and `<folder>/manifest.json`.
 *
 * A file holds logical state only, no rank count, host or time: same state, same bytes. It is an HDF5
 * image followed by the SHA-256 of the image, so it proves itself. It is written aside, synced and
 * renamed; the manifest (file names, sizes, SHA-256 of the whole files, newest first) is written last.
 * Only what the manifest names exists; a manifest that is lost or damaged is replaced, with a warning,
 * by the step files that prove themselves. Loading goes newest first: size and digests on the raw
 * bytes, then HDF5; a damaged file is reported (oct_log warning, naming file and reason) and the
 * previous one is used. A folder whose manifest names checkpoints, none of them good, is OCT_DATA,
 * and so is one of a newer version of Octet, which is never skipped or overwritten.
 */
#pragma once

#include "core/base/collective.h"
#include "core/nn/module.h"
#include "core/base/text.h"
#include "core/optim/optim.h"
#include "io/checkpoint/manifest.h"

/* What the evaluations of a run have decided so far (launch/train/trainer.h); all 0: nothing. Steps are counted from
 * the start of the run. A file holds it only where there is something. */
typedef struct oct_early_stopping {
    int64_t float_end, qat_end; /* where a phase ended before its time; 0: it did not */
    int64_t best_step;          /* of the evaluation that was the best; 0: there is none */
    int64_t since;              /* evaluations without a better one */
    double best_value;
} oct_early_stopping;

/* Steps that were skipped for numbers that are not finite (`nonfinite.step`). A file holds it only where there are
 * any. */
typedef struct oct_skips {
    int64_t all, row; /* row: that end at the step at hand */
} oct_skips;

/* What is saved beside the tensors. */
typedef struct oct_checkpoint_info {
    int64_t step;                /* steps done since the start of the run */
    char phase[32];              /* name of the phase that the module tree is in */
    int64_t updates;             /* of the optimizer */
    oct_early_stopping stopping; /* decided by evaluations */
    oct_skips skips;
    char *recipe;      /* identity text of the recipe; owned when loaded */
    char *class_names; /* class_names.h; NULL: the data set has none; owned when loaded */
} oct_checkpoint_info;

/* A file that was written. */
typedef struct oct_checkpoint_file {
    char *path;         /* owned */
    uint8_t digest[32]; /* SHA-256 of the whole file */
} oct_checkpoint_file;

/* Saves a checkpoint. One rank calls it, the only writer of the folder, which is made if need be. Datasets:
 * "state/<path with '/' for '.'>" for every state item of root, "optimizer/slot0", ..., "info/...". With
 * averages "state" is of these, and "optimizer/trained/<path>" is what is trained.
 * Checkpoints of the same or later steps are superseded. Deletes those that `keep` does not name
 * only after the new one is committed; on failure nothing has changed. file (may be
 * NULL): what was written, without a path on failure. */
oct_status oct_checkpoint_save(const char *folder, const oct_checkpoint_info *info,
                               oct_module *root, const oct_optim *optim, oct_keep keep,
                               oct_checkpoint_file *file);

/* Deletes what killed sessions of a run have left in its folder: checkpoints that the manifest does not name,
 * that prove themselves and are of the recipe with this identity text. Damaged files, links and
 * checkpoints of other runs stay, and so does all without a good manifest. For the writer of the folder. */
oct_status oct_checkpoint_clean(const char *folder, const char *recipe);

/* A checkpoint that has passed its digests: its bytes, or its file, whose values stay on the disk. */
typedef struct oct_checkpoint {
    char *path;
    void *bytes;
    size_t size;
    struct oct_h5 *file; /* NULL: it is on another rank */
    int fd;              /* -1: the bytes are here */
    oct_checkpoint_info info;
} oct_checkpoint;

/* Opens the newest good checkpoint of the folder, or of one phase (NULL: of any); ckpt->bytes NULL and OCT_OK when there
 * is none at all. */
oct_status oct_checkpoint_newest(oct_checkpoint *ckpt, const char *folder, const char *phase);
/* Does so of any phase, and leaves the values on the disk, for oct_checkpoint_load_shared; ckpt->file NULL when there is none. */
oct_status oct_checkpoint_newest_on_disk(oct_checkpoint *ckpt, const char *folder);
/* Opens a given file, checked against its own digest and the manifest beside it when that names it. */
oct_status oct_checkpoint_open(oct_checkpoint *ckpt, const char *path);
/* Opens the checkpoint of one step, where no other will do; OCT_DATA with the path when it is gone or damaged. */
oct_status oct_checkpoint_open_step(oct_checkpoint *ckpt, const char *folder, int64_t step);
/* Makes one from bytes (a broadcast) and reads its info only. Takes bytes over, also on failure. */
oct_status oct_checkpoint_from_bytes(oct_checkpoint *ckpt, const char *path, void *bytes,
                                     size_t size);
/* Fills every state item of root and the optimizer with its count of updates (NULL to leave out) from
 * it. OCT_DATA naming the item when one is missing or has another shape, or when the file holds items
 * that the model does not have. Nothing is changed on failure. */
oct_status oct_checkpoint_load(const oct_checkpoint *ckpt, oct_module *root, oct_optim *optim);
/* Collective: the same of a checkpoint that rank 0 has, read value by value into rank 0's model and passed on, so that no
 * rank needs more memory than the model has. ckpt: elsewhere the info alone. After a failure, which is the
 * same on all ranks, model and optimizer may be half of each. */
oct_status oct_checkpoint_load_shared(const oct_checkpoint *ckpt, oct_module *root,
                                      oct_optim *optim, const oct_collective *group);
/* Collective: folds the batch norms of a prepared model that are folded in a checkpoint that rank 0 has, whose arrays are
 * the record of it: the values decided then, and those of the model at hand may decide otherwise. Values are to be
 * loaded next. */
oct_status oct_checkpoint_fold(const oct_checkpoint *ckpt, oct_module *root,
                               const oct_collective *group);
/* Says what keeps it from being loaded into root: a line for each item that only one of them has or that has
 * another type or shape there ("head.2.bias: f32 (10) there, f32 (26) here"). Empty: nothing. */
oct_status oct_checkpoint_compare(const oct_checkpoint *ckpt, oct_module *root,
                                  oct_text *differences);
void oct_checkpoint_close(oct_checkpoint *ckpt);

/* Checkpoints are written beside training, by a thread of their own that makes no call of MPI.
 *
 * A save begins between two updates. What a forward may change is copied at once, the rest by the thread while the next
 * step goes forward and backward: parameters and the optimizer's state may change only after
 * oct_checkpoint_writer_wait_copied. One save is under way at a time, and no other thread may use HDF5 until its
 * outcome was taken. */
typedef struct oct_checkpoint_writer oct_checkpoint_writer;

/* What became of a save. */
typedef struct oct_checkpoint_written {
    oct_checkpoint_file file; /* owned by who took it */
    double seconds;           /* from its beginning to its manifest */
    double blocked; /* that the caller stood still for it before it asked for the outcome */
} oct_checkpoint_written;

oct_status oct_checkpoint_writer_create(oct_checkpoint_writer **writer);
/* Waits for a save that is under way; a failure that was not asked for is a warning. NULL is fine. */
void oct_checkpoint_writer_destroy(oct_checkpoint_writer **writer);
/* Begins a save as oct_checkpoint_save. The outcome of the one before must have been taken. */
oct_status oct_checkpoint_writer_begin(oct_checkpoint_writer *writer, const char *folder,
                                       const oct_checkpoint_info *info, oct_module *root,
                                       const oct_optim *optim, oct_keep keep);
/* Waits until the save under way, if there is one, has copied what it needs. NULL is fine. */
void oct_checkpoint_writer_wait_copied(oct_checkpoint_writer *writer);
/* Whether a save has come to its end and its outcome is there to be taken. NULL: no. */
bool oct_checkpoint_writer_is_done(oct_checkpoint_writer *writer);
/* Waits for the end of the save under way and returns as oct_checkpoint_save does. */
oct_status oct_checkpoint_writer_take(oct_checkpoint_writer *writer,
                                      oct_checkpoint_written *written);
