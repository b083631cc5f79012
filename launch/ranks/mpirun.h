/* The mpirun that --ranks starts: which MPI library it belongs to, and which options it takes. */
#pragma once

#include "launch/base/args.h"

#include <sys/types.h>

/* When a word or a setting is needed. */
typedef enum oct_mpirun_need {
    OCT_MPIRUN_ALWAYS,
    OCT_MPIRUN_CROWDED,     /* more ranks than cores, on this host alone */
    OCT_MPIRUN_ON_HOSTS,    /* there is a list of hosts */
    OCT_MPIRUN_PINNED,      /* a rank has a core of its own */
    OCT_MPIRUN_LOOSE,       /* or not */
    OCT_MPIRUN_WITH_FOLDER, /* its files go into the job's folder */
    OCT_MPIRUN_AS_ROOT,
    OCT_MPIRUN_NEEDS
} oct_mpirun_need;

typedef struct oct_mpirun_words {
    oct_mpirun_need need;
    const char *word[3]; /* flag and values, or a variable and its value; NULL after them */
} oct_mpirun_words;

/* Placeholders of a row, which each job replaces. */
#define OCT_MPIRUN_RANKS "{ranks}"
#define OCT_MPIRUN_HOSTFILE "{hostfile}"
#define OCT_MPIRUN_FOLDER "{folder}"

/* What an mpirun differs in from others. Lists end with zero. */
typedef struct oct_mpirun_dialect {
    const char *name;    /* of the library */
    const char *said[4]; /* one of these is in what --version says, or the library of itself, */
    const char *number;  /* and this before its version; NULL: it follows at once */
    long since;          /* from this version on */
    const char *package; /* of Debian */
    const char *slots;   /* between a host and its slots in a list of hosts */
    const char *agent;   /* the variable with the program that leads to other hosts */
    const char *default_hosts; /* the variable with a list of hosts that is always used; or NULL */
    bool exports;              /* variables for other hosts must be named; the others take all */
    /* Its exit status holds the bits of all ranks' statuses, and a signal as it is; the others give the first status
     * that is not 0, and 128 and the signal. */
    bool merges;
    oct_mpirun_words flags[8], settings[8];
    const char *accounts
        [16]; /* each is in the first line of what it says after a rank's end, which Octet says */
} oct_mpirun_dialect;

enum {
    OCT_MPIRUN_OPEN_MPI_4,
    OCT_MPIRUN_OPEN_MPI_5,
    OCT_MPIRUN_MPICH, /* hydra */
    OCT_MPIRUN_INTEL,
    OCT_MPIRUN_DIALECTS
};
extern const oct_mpirun_dialect oct_mpirun_dialects[OCT_MPIRUN_DIALECTS];

typedef struct oct_mpi_launcher {
    const char *program; /* "mpirun", or Debian's "mpirun.mpich" */
    const oct_mpirun_dialect *dialect;
    char name[64]; /* "Open MPI 4.1.4" */
} oct_mpi_launcher;

/* Finds, by what `mpirun --version` says, one that belongs to the MPI library of this program. OCT_USAGE where
 * that of PATH belongs to another: each rank would take itself for the only one. One that says nothing
 * within patience_s, or nothing known, is taken for the library's own. */
oct_status oct_mpirun_find(oct_mpi_launcher *mpirun, double patience_s);
/* Reads what --version says; false where it is of no mpirun that is known. */
bool oct_mpirun_recognize(oct_mpi_launcher *mpirun, const char *said);

/* What is to be started. */
typedef struct oct_mpirun_job {
    const oct_args *args;
    int64_t ranks, threads, cores; /* threads of a rank; cores of this host that it may use */
    bool narrowed;                 /* the host has more, which are for others */
    bool bar; /* progress is a bar, since stderr of the process that starts mpirun is a terminal */
    const char *program; /* the path of octet */
    /* Written by oct_rank_hosts_write for this dialect; NULL: this host alone, or those of an allocation (beyond). */
    const char *hostfile;
    bool beyond;
    /* For files of this job (guard.c), on this host alone; NULL: mpirun's own choice. */
    const char *folder;
} oct_mpirun_job;

/* Command lines have room for these words beside those of the user. */
enum { OCT_MPIRUN_WORDS = 96 };

/* Writes the command line that is run: fills argv (`capacity` pointers, ended by NULL; strings are
 * borrowed, the number of ranks is written into `number`) and returns its length. */
size_t oct_mpirun_command(const oct_mpi_launcher *mpirun, const oct_mpirun_job *job,
                          char number[24], const char **argv, size_t capacity);
/* Sets what mpirun reads from the environment of this process, and leaves out what would bind all ranks to the same cores. */
void oct_mpirun_environment(const oct_mpi_launcher *mpirun, const oct_mpirun_job *job);

/* Small programs are asked something while ranks are started. */

/* Starts a program of PATH in a process group of its own, without stdin; stdout and stderr go to `out` (-1:
 * nowhere). *pid is to be ended by oct_spawn_end; false with errno where it cannot be started. */
bool oct_spawn(const char *const *argv, int out, pid_t *pid);
/* Ends a program that has not ended, and its group. */
void oct_spawn_end(pid_t pid);
