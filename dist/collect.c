/* Maximum, broadcast, gather, agreement and comparison are built from sends and receives.
 *
 * Maximum: in the rounds of a short sum (rounds.h). Broadcast: the binomial tree, in which the parent of
 * v is v without its lowest bit. Gather: the same tree upwards, in which v collects for the ranks from v
 * to the next one that is not below it.
 */
#include "core/base/mem.h"
#include "dist/comm_impl.h"
#include "dist/rounds.h"

#include <stdio.h>
#include <string.h>

enum { BROADCAST_PIECE = 64 << 20 };

/* In each round all values are exchanged with partners of the other half, so that all ranks hear of all. */
oct_status oct_exchange_max(const oct_comm *comm, int64_t *values, int64_t n)
{
    oct_comm_state *s = comm->state;
    oct_round rounds[OCT_MAX_ROUNDS];
    const int count = oct_rounds(comm->base.rank, comm->base.size, n, false, rounds);
    size_t bytes = (size_t)n * sizeof(int64_t);
    OCT_TRY(oct_grow(&s->scratch, &s->scratch_capacity, bytes, 1));
    int64_t *heard = (int64_t *)(void *)s->scratch;

    for (int r = 0; r < count; r++) {
        for (int i = 0; i < rounds[r].num_partners; i++) {
            const oct_partner *partner = &rounds[r].partner[i];
            if (partner->takes.end > 0)
                OCT_TRY(oct_exchange_receive(comm, partner->rank, heard, bytes));
            if (partner->gives.end > 0)
                OCT_TRY(oct_exchange_send(comm, partner->rank, values, bytes));
        }
        OCT_TRY(oct_exchange_wait(comm, r + 1));
        for (int64_t i = 0; i < n; i++)
            if (heard[i] > values[i]) values[i] = heard[i];
    }
    return OCT_OK;
}

oct_status oct_exchange_broadcast(const oct_comm *comm, void *data, size_t bytes, int root)
{
    /* The root has position 0; the children of one are a power of two below its lowest bit ahead. */
    int size = comm->base.size, position = (comm->base.rank - root + size) % size;
    int depth = __builtin_popcount((unsigned)position);
    int parent = (root + (position & (position - 1))) % size;
    int lowest_bit = position == 0 ? size : position & -position;

    for (size_t sent = 0; sent < bytes; sent += BROADCAST_PIECE) {
        size_t piece = bytes - sent < BROADCAST_PIECE ? bytes - sent : BROADCAST_PIECE;
        char *from = (char *)data + sent;
        if (position != 0) OCT_TRY(oct_exchange_receive(comm, parent, from, piece));
        OCT_TRY(oct_exchange_wait(comm, depth));
        for (int ahead = 1; ahead < lowest_bit && position + ahead < size; ahead *= 2)
            OCT_TRY(oct_exchange_send(comm, (root + position + ahead) % size, from, piece));
        OCT_TRY(oct_exchange_wait(comm, depth + 1));
    }
    return OCT_OK;
}

static oct_status max_i64(const oct_collective *self, int64_t *values, int64_t n)
{
    const oct_comm *comm = oct_comm_of(self);
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_MAX));
    return oct_exchange_max(comm, values, n);
}

static oct_status broadcast(const oct_collective *self, void *data, size_t bytes, int root)
{
    const oct_comm *comm = oct_comm_of(self);
    OCT_CHECK(root >= 0 && root < self->size, OCT_DEFECT, "broadcast from rank %d of %d", root,
              self->size);
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_BROADCAST));
    return oct_exchange_broadcast(comm, data, bytes, root);
}

oct_status oct_comm_gather(const oct_collective *self, const void *src, size_t bytes, void *dst)
{
    const oct_comm *comm = oct_comm_of(self);
    oct_comm_state *s = comm->state;
    const int rank = self->rank, size = self->size;
    const int lowest_bit = rank == 0 ? size : rank & -rank;
    const int mine = lowest_bit < size - rank ? lowest_bit : size - rank;
    int round = 1;
    char *all = dst;
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_GATHER));
    if (rank != 0) {
        OCT_TRY(oct_grow(&s->scratch, &s->scratch_capacity, (size_t)mine * bytes, 1));
        all = s->scratch;
    }
    if (bytes > 0) memcpy(all, src, bytes);
    for (int ahead = 1; ahead < mine; ahead *= 2, round++) {
        const int theirs = ahead < mine - ahead ? ahead : mine - ahead;
        OCT_TRY(oct_exchange_receive(comm, rank + ahead, all + (size_t)ahead * bytes,
                                     (size_t)theirs * bytes));
        OCT_TRY(oct_exchange_wait(comm, round));
    }
    if (rank != 0) OCT_TRY(oct_exchange_send(comm, rank & (rank - 1), all, (size_t)mine * bytes));
    return oct_exchange_wait(comm, round + 1);
}

enum { TEXT_BYTES = 3500 };

/* A failure travels as its problems one after another, each ended by NUL. */
typedef struct lone_failure {
    int32_t code;
    int32_t problems;
    char text[TEXT_BYTES];
} lone_failure;

/* Packs the sentences of this thread's failure, one after another, as many as there is room for; without one, what the
 * status means. */
static void pack_failure(lone_failure *failure, oct_status code)
{
    size_t used = 0;
    *failure = (lone_failure){.code = (int32_t)code};
    size_t problems = oct_error_count();
    for (size_t i = 0; i < problems || (i == 0 && problems == 0); i++) {
        const char *text = problems > 0 ? oct_error_message(i) : oct_status_meaning(code);
        size_t room = TEXT_BYTES - used;
        int length = snprintf(failure->text + used, room, "%s", text);
        if (length < 0) return;
        failure->problems++;
        if ((size_t)length >= room) return; /* cut short, but ended */
        used += (size_t)length + 1;
        if (used == TEXT_BYTES) return;
    }
}

/* Makes a failure that was received the record of this thread. */
static void unpack_failure(const lone_failure *failure)
{
    const char *text = failure->text;
    oct_fail_clear();
    for (int32_t i = 0; i < failure->problems; i++) {
        (void)oct_fail_add((oct_status)failure->code, "%s", text);
        text += strlen(text) + 1;
    }
}

/* All go on, or all leave with the same reason.
 *
 * One maximum of four numbers says whether anybody failed, who first, and whether all failed the same way
 * (a mistake in the recipe is found by every rank: that is one message, not one for each rank). Only
 * after a lone failure do the sentences travel, from the first rank that failed. */
static oct_status vote(const oct_comm *comm, oct_status mine, lone_failure *failure)
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
    unpack_failure(failure);
    (void)oct_fail_prefix("%s", oct_text_rank(comm, first).text);
    return OCT_PEER;
}

static oct_status agree(const oct_collective *self, oct_status mine)
{
    const oct_comm *comm = oct_comm_of(self);
    oct_status status = mine;
    lone_failure failure = {0};
    if (mine == OCT_OK) {
        status = vote(comm, mine, &failure);
    } else {
        pack_failure(&failure, mine);
        const lone_failure own = failure;
        /* Whatever happens on the way, this rank's own reason is the one to report. */
        if (comm->state->broken == OCT_OK && vote(comm, mine, &failure) != mine)
            unpack_failure(&own);
    }
    comm->state->agreed =
        status != OCT_OK && oct_fail_code() != OCT_LOST; /* not with a lost rank */
    return status;
}

/* A maximum of size - rank finds the first rank whose digest is not that of rank 0. */
oct_status oct_comm_same(const oct_comm *comm, const void *data, size_t bytes, const char *what)
{
    int size = comm->base.size;
    if (size == 1) return OCT_OK;
    int64_t mine = (int64_t)oct_digest(data, bytes), first = mine;
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_SAME));
    OCT_TRY(oct_exchange_broadcast(comm, &first, sizeof(first), 0));
    int64_t differs = mine == first ? 0 : size - comm->base.rank;
    OCT_TRY(oct_exchange_max(comm, &differs, 1));
    OCT_CHECK(differs == 0, OCT_DATA,
              "%s reads other %s than %s: their files differ; give all hosts the same ones",
              oct_text_rank(comm, size - (int)differs).text, what, oct_text_rank(comm, 0).text);
    return OCT_OK;
}

void oct_supply_collect(oct_collective *group)
{
    group->max_i64 = max_i64;
    group->broadcast = broadcast;
    group->gather = oct_comm_gather;
    group->agree = agree;
}
