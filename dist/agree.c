/* The ranks agree: all go on, or all leave with the same reason.
 *
 * One maximum of four numbers says whether anybody failed, who first, and whether all failed the same way
 * (a mistake in the recipe is found by every rank: that is one message, not one for each rank). Only
 * after a lone failure do the sentences travel, from the first rank that failed.
 */
#include "core/base/mem.h"
#include "dist/comm_impl.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 3500 };

/* A failure travels as its problems one after another, each ended by NUL. */
typedef struct lone_failure {
    int32_t code;
    int32_t problems;
    char text[TEXT_BYTES];
} lone_failure;

static void failure_take(lone_failure *failure, oct_status code)
{
    size_t used = 0;
    *failure = (lone_failure){.code = (int32_t)code};
    size_t problems = oct_fail_count();
    for (size_t i = 0; i < problems || (i == 0 && problems == 0); i++) {
        const char *text = problems > 0 ? oct_fail_text(i) : oct_status_meaning(code);
        size_t room = TEXT_BYTES - used;
        int length = snprintf(failure->text + used, room, "%s", text);
        if (length < 0) return;
        failure->problems++;
        if ((size_t)length >= room) return; /* cut short, but ended */
        used += (size_t)length + 1;
        if (used == TEXT_BYTES) return;
    }
}

static void failure_record(const lone_failure *failure)
{
    const char *text = failure->text;
    oct_fail_clear();
    for (int32_t i = 0; i < failure->problems; i++) {
        oct_fail_add((oct_status)failure->code, "%s", text);
        text += strlen(text) + 1;
    }
}

static oct_status agree(const oct_comm *comm, oct_status mine, lone_failure *failure)
{
    int rank = comm->base.rank, size = comm->base.size;
    int64_t digest = mine == OCT_OK ? 0 : (int64_t)(oct_digest(failure, sizeof(*failure)) >> 1);
    int64_t votes[4] = {
        mine == OCT_OK ? 0 : size - rank, /* the first that failed */
        mine == OCT_OK ? 1 : 0,           /* anybody fine? */
        digest, -digest,                  /* the same failure everywhere? */
    };
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_AGREE));
    OCT_TRY(oct_exchange_max(comm, votes, 4));
    if (votes[0] == 0) return OCT_OK;
    if (votes[1] == 0 && votes[2] == -votes[3]) return mine;

    int first = size - (int)votes[0];
    OCT_TRY(oct_exchange_broadcast(comm, failure, sizeof(*failure), first));
    if (mine != OCT_OK) return mine;
    char who[128];
    failure_record(failure);
    oct_fail_prefix("%s", oct_rank_text(comm, first, who));
    return OCT_PEER;
}

static oct_status agree_or_report(const oct_comm *comm, oct_status mine)
{
    lone_failure failure = {0}, own;
    if (mine == OCT_OK) return agree(comm, mine, &failure);

    failure_take(&failure, mine);
    own = failure;
    if (comm->state->broken) return mine;
    /* Whatever happens on the way, this rank's own reason is the one to report. */
    if (agree(comm, mine, &failure) != mine) failure_record(&own);
    return mine;
}

/* A lost rank has agreed to nothing. */
oct_status oct_comm_agree(const oct_collective *self, oct_status mine)
{
    const oct_comm *comm = oct_comm_of(self);
    const oct_status status = agree_or_report(comm, mine);
    comm->state->agreed = status != OCT_OK && oct_fail_code() != OCT_LOST;
    return status;
}
