/* What mpirun and its ranks say goes through the process that started mpirun, since that of Open MPI 4 crashes with its
 * ranks where the reader of its output leaves (head, a tee that Ctrl-C has ended, a terminal that is closed), and does
 * not report that results could not be written. */
#pragma once

#include "core/base/status.h"

enum {
    OCT_RELAY_STREAMS = 2,
    OCT_RELAY_BYTES = 4096
}; /* stdout, stderr; what a pipe takes whole */

/* Whoever looks after the job says what of stderr is for him, or said otherwise. */
typedef struct oct_relay_editor {
    const char *const *accounts;  /* of mpirun (mpirun.h): lines, or blocks between two rules */
    bool (*explained)(void *job); /* that a rank has ended is said without these */
    void (*began)(void *job, int ranks, const char *host); /* a line of ranks (rank_table.h) */
    void *job;
} oct_relay_editor;

typedef struct oct_relay {
    struct oct_relayed {
        int from, to; /* -1: ended; nobody reads it */
        size_t held, given;
        char text[2 * OCT_RELAY_BYTES];
    } stream[OCT_RELAY_STREAMS];
    oct_relay_editor editor;
    bool within; /* a line of stderr that is passed on as it comes */
    size_t kept; /* bytes of lines that may be left out */
    char keeps[OCT_RELAY_BYTES];
    char tail[2 * OCT_RELAY_BYTES]; /* of stderr, as it was passed on */
    size_t tailed;
    bool open_line; /* what was last said on stderr has no end of line, such as a bar */
    int failed;     /* errno of the first write to stdout that failed; 0: none did */
} oct_relay;

/* Makes a pipe for each stream; ends[] are for the child, and the caller closes them here. */
oct_status oct_relay_open(oct_relay *relay, const oct_relay_editor *editor,
                          int ends[OCT_RELAY_STREAMS]) OCT_NODISCARD;
/* Makes the ends stdout and stderr of this process, which is the child. */
void oct_relay_enter(const int ends[OCT_RELAY_STREAMS]);
/* Passes on what there is, after it has waited for something up to patience_ms. A reader who reads nothing
 * delays only that stream; after one has left the rest is dropped. */
void oct_relay_move(oct_relay *relay, int patience_ms);
/* Passes on all that is left and closes the pipes. A reader who takes nothing is waited for, unless asked() says that
 * somebody wants an end. */
void oct_relay_close(oct_relay *relay, bool (*asked)(void));
/* True when each line of a text was among the last that came on stderr. */
bool oct_relay_said(const oct_relay *relay, const char *text);
/* Fails where stdout could not be written. */
oct_status oct_relay_verdict(const oct_relay *relay) OCT_NODISCARD;
