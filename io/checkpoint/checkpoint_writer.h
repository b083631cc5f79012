/* Checkpoints are written beside training, by a thread of their own that makes no call of MPI.
 *
 * A save begins between two updates. What a forward may change is copied at once, the rest by the thread while the next
 * step goes forward and backward: parameters and the optimizer's state may change only after
 * oct_checkpoint_writer_wait_copied. One save is under way at a time, and no other thread may use HDF5 until its
 * outcome was taken. */
#pragma once

#include "io/checkpoint/checkpoint.h"

typedef struct oct_checkpoint_writer oct_checkpoint_writer;

/* What became of a save. */
typedef struct oct_checkpoint_written {
    oct_checkpoint_file file; /* owned by who took it */
    double seconds;           /* from its beginning to its manifest */
    double blocked; /* that the caller stood still for it before it asked for the outcome */
} oct_checkpoint_written;

oct_status oct_checkpoint_writer_create(oct_checkpoint_writer **writer) OCT_NODISCARD;
/* Waits for a save that is under way; a failure that was not asked for is a warning. NULL is fine. */
void oct_checkpoint_writer_destroy(oct_checkpoint_writer **writer);
/* Begins a save as oct_checkpoint_save. The outcome of the one before must have been taken. */
oct_status oct_checkpoint_writer_begin(oct_checkpoint_writer *writer, const char *folder,
                                       const oct_checkpoint_info *info, oct_module *root,
                                       const oct_optim *optim, oct_keep keep) OCT_NODISCARD;
/* Waits until the save under way, if there is one, has copied what it needs. NULL is fine. */
void oct_checkpoint_writer_wait_copied(oct_checkpoint_writer *writer);
/* Whether a save has come to its end and its outcome is there to be taken. NULL: no. */
bool oct_checkpoint_writer_is_done(oct_checkpoint_writer *writer);
/* Waits for the end of the save under way and returns as oct_checkpoint_save does. */
oct_status oct_checkpoint_writer_take(oct_checkpoint_writer *writer,
                                      oct_checkpoint_written *written) OCT_NODISCARD;
