/* The program octet-hdf5, in which libhdf5 reads a file (hdf5_wire.h): it is started, asked, and given the bytes that
 * it asks for. Whatever it says may come from the one who wrote the file. Its end in the middle of a file, by a crash,
 * a limit or a forbidden call, is a fault of that file: OCT_DATA. One thread at a time. */
#pragma once

#include "io/file/array.h"
#include "io/hdf5/hdf5_wire.h"

#include <sys/types.h>

typedef struct oct_h5_child {
    oct_span file;       /* borrowed: what it may read */
    const char *name;    /* for messages, borrowed */
    int socket, process; /* process: -1 where the system has no descriptors of processes */
    pid_t pid;
    bool reading; /* it has begun, confined */
} oct_h5_child;

#define OCT_H5_NO_CHILD ((oct_h5_child){.socket = -1, .process = -1, .pid = -1})
/* Starts the program for a file. OCT_RESOURCE, also where it cannot be found or confined, with the remedy. */
oct_status oct_h5_child_start(oct_h5_child *child, const oct_span *file, const char *name);
oct_status oct_h5_child_ask(oct_h5_child *child, const oct_h5_message *request);
/* Receives the next message of an answer, which is of this kind, or DONE where `done` is not NULL: *done. */
oct_status oct_h5_child_answer(oct_h5_child *child, oct_h5_kind kind, oct_h5_message *m,
                               bool *done);
/* Receives the numbers that follow DATA. */
oct_status oct_h5_child_take(oct_h5_child *child, void *to, size_t bytes);
/* Refuses the file for a message that cannot be. */
oct_status oct_h5_child_nonsense(const oct_h5_child *child);
void oct_h5_child_end(oct_h5_child *child);
