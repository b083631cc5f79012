/* The mpirun that --ranks starts: whose it is, and how it wants to be asked. */
#pragma once

#include "launch/base/args.h"

typedef enum oct_mpirun_dialect {
    OCT_MPIRUN_OPEN_MPI_4,
    OCT_MPIRUN_OPEN_MPI_5,
    OCT_MPIRUN_MPICH, /* hydra */
    OCT_MPIRUN_INTEL
} oct_mpirun_dialect;

typedef struct oct_mpi_launcher {
    const char *program; /* "mpirun", or Debian's "mpirun.mpich" */
    oct_mpirun_dialect dialect;
    char name[64]; /* "Open MPI 4.1.4" */
} oct_mpi_launcher;

/* Finds, by what `mpirun --version` says, one that belongs to the MPI library of this program. OCT_USAGE where
 * that of PATH belongs to another: each rank would take itself for the only one. One that says nothing
 * within patience_s, or nothing known, is taken for the library's own. */
oct_status oct_mpirun_find(oct_mpi_launcher *mpirun, double patience_s) OCT_NODISCARD;
/* Reads what --version says; false where it is of no mpirun that is known. */
bool oct_mpirun_recognize(oct_mpi_launcher *mpirun, const char *said);

/* What is to be started. */
typedef struct oct_mpirun_job {
    const oct_args *args;
    int64_t ranks, threads, cores; /* threads of a rank; cores of this host */
    bool bar; /* progress is a bar, since stderr of the process that starts mpirun is a terminal */
    const char *program;  /* the path of octet */
    const char *hostfile; /* written for this dialect (hosts.h); NULL: this host alone */
    const char *
        folder; /* for files of this job (guard.h), on this host alone; NULL: mpirun's own choice */
} oct_mpirun_job;

/* Command lines have room for these words beside those of the user. */
enum { OCT_MPIRUN_WORDS = 96 };

/* Writes the command line that is run: fills argv (`capacity` pointers, ended by NULL; strings are
 * borrowed, the number of ranks is written into `number`) and returns its length. */
size_t oct_mpirun_command(const oct_mpi_launcher *mpirun, const oct_mpirun_job *job,
                          char number[24], const char **argv, size_t capacity);
/* Sets what mpirun reads from the environment of this process. */
void oct_mpirun_environment(const oct_mpi_launcher *mpirun, const oct_mpirun_job *job);
