/* A replay lets one rank do again, alone, what the ranks have done together: it keeps the totals of a forward and
 * a backward, and returns them again.
 *
 *     oct_replay_record(&replay, group);   work over &replay.face
 *     oct_replay_again(&replay);           the same work, or what another rank did in it, over &replay.face
 */
#pragma once

#include "core/base/collective.h"

typedef struct oct_replay {
    oct_collective face;         /* first: its functions find the rest after it */
    const oct_collective *ranks; /* borrowed */
    bool again;
    char *totals; /* one total after the other */
    size_t used, capacity, at;
} oct_replay;

/* Forgets what was kept. The sums of gradients, which go on besides a backward, are no part of it. */
void oct_replay_record(oct_replay *replay, const oct_collective *ranks);
/* From now on the calls take no other rank. OCT_DEFECT from one that comes in another order than was kept. */
void oct_replay_again(oct_replay *replay);
void oct_replay_free(oct_replay *replay);
