/* What mpirun and its ranks say goes through the process that started mpirun, since that of Open MPI 4 crashes with its
 * ranks where the reader of its output leaves (head, a tee that Ctrl-C has ended, a terminal that is closed), and tells
 * nobody that results could not be written. */
#pragma once

#include "core/base/status.h"

enum { OCT_RELAY_STREAMS = 2 }; /* stdout, stderr */

typedef struct oct_relay {
    struct oct_relayed {
        int from, to; /* -1: ended; nobody reads it */
        size_t held, given;
        char text[4096]; /* as much as a pipe takes whole */
    } stream[OCT_RELAY_STREAMS];
    bool open_line; /* what was last said on stderr has no end of line, such as a bar */
    int failed;     /* errno of the first write to stdout that failed; 0: none did */
} oct_relay;

/* Makes a pipe for each stream; ends[] are for the child, and the caller closes them here. */
oct_status oct_relay_open(oct_relay *relay, int ends[OCT_RELAY_STREAMS]) OCT_NODISCARD;
/* Makes the ends stdout and stderr of this process, which is the child. */
void oct_relay_enter(const int ends[OCT_RELAY_STREAMS]);
/* Passes on what there is, after it has waited for something up to so many milliseconds. A reader who takes
 * nothing holds up his stream and nothing else; one who has left has read enough, and the rest is dropped. */
void oct_relay_move(oct_relay *relay, int patience_ms);
/* Passes on all that is left and closes the pipes. A reader who takes nothing is waited for, unless asked() says that
 * somebody wants an end. */
void oct_relay_close(oct_relay *relay, bool (*asked)(void));
/* Fails where stdout could not be written. */
oct_status oct_relay_verdict(const oct_relay *relay) OCT_NODISCARD;
