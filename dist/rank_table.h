/* The ranks of one host, and the process that started them, know of each other without MPI by a
 * table in shared memory with a line for each rank.
 *
 * It answers where MPI cannot be asked: before it has started, while it ends, and when a rank is gone.
 * Where there is no place for it (the launcher has no folder on this host) only names are lost: every
 * function then does nothing, or what a rank alone would do. A process has one table.
 */
#pragma once

#include "core/base/status.h"

#include <stdint.h>
#include <sys/types.h>

/* A stage says how far a rank has come. */
typedef enum oct_rank_stage {
    OCT_RANK_ABSENT,
    OCT_RANK_STARTED,
    OCT_RANK_IN_INIT, /* inside of MPI_Init */
    OCT_RANK_IN_DUP,  /* inside of MPI_Comm_dup */
    OCT_RANK_RUNNING,
    OCT_RANK_IN_FINALIZE,
    OCT_RANK_ENDED
} oct_rank_stage;

/* What a rank notes of itself, in its line. */
typedef enum oct_rank_field {
    OCT_RANK_STAGE,
    OCT_RANK_STEP,  /* the training step that it begins */
    OCT_RANK_WAITS, /* for this rank; -1: for none */
    OCT_RANK_STOPS, /* 1: a signal has asked it to stop */
    OCT_RANK_FIELDS
} oct_rank_field;

/* Host, environment and processes, as the system knows them: process.c. */
enum { OCT_HOST_BYTES = 64 };
/* The name of this host, cut where it is longer. */
void oct_host_name(char host[OCT_HOST_BYTES]);
/* Reads a file of a process from /proc, up to size - 1 bytes and a NUL; -1 when it cannot be opened. */
ssize_t oct_process_read(int pid, const char *file, char *text, size_t size);
/* 'R' and 'S' run or wait, 'T' is stopped, 'Z' has ended, 0 is gone. */
char oct_process_state(int pid);

/* Makes, for the process that starts mpirun, a table of `ranks` lines, and its path as the
 * environment must name it to the ranks; the one before is gone. False where it cannot be made. */
bool oct_rank_table_create(int64_t ranks, char path[64]);
#define OCT_RANK_TABLE_VARIABLE "OCT_RANK_TABLE"
/* Begins the line by which ranks of a host that cannot open it report that they begin: how many, and the host. */
#define OCT_RANK_MARK "\001octet-ranks"

/* A view is what a rank's line says. */
typedef struct oct_rank_view {
    int rank, pid;
    oct_rank_stage stage;
    int exit_status; /* of a rank that has ended */
    bool stops;      /* a signal has asked it to stop */
    int64_t step;    /* training steps that it has begun; 0: none */
    int waits_for;   /* the rank whose message it waits for; -1: none */
    int operation;   /* that it has begun last (comm_impl.h), of this number; -1: none */
    uint32_t sequence;
    double since_s; /* on the clock of this host (oct_seconds) */
} oct_rank_view;
int oct_rank_table_lines(void); /* 0 without a table */
/* Returns what line `line` of the table says; below oct_rank_table_lines. */
oct_rank_view oct_rank_table_line(int line);
/* Finds the line of a rank; false: it is none of this host, or has not started. */
bool oct_rank_table_find(int rank, oct_rank_view *view);

void oct_rank_table_ask_to_stop(void);
bool oct_rank_stop_asked(void);

/* A rank calls these. The first call looks for the table. */
void oct_rank_table_enter(void);
void oct_rank_note(oct_rank_field field, int64_t value); /* as a handler of signals may */
/* Notes in this rank's line the operation (comm_impl.h) that it begins, its sequence number, and the time. */
void oct_rank_note_operation(int operation, uint32_t sequence);
/* Notes in this rank's line that it ends, with this status. */
void oct_rank_note_end(int exit_status);
/* What a rank said of its end, the first that said any, up to 4 KB, since mpirun may not pass it on; "": none did. */
const char *oct_rank_table_words(void);
/* Several ranks see the same failure, or wait for the same rank; the first of them reports it. The others learn that they
 * may not when it has ended, or after five seconds: what they do next may end it. */
bool oct_rank_may_report(void);
bool oct_rank_may_warn(void); /* once in 20 seconds */
/* Returns after how long a wait with this deadline is reported: half a minute, less if the deadline is short. */
double oct_warn_after(double deadline_s);
