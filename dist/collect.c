/* Maximum, broadcast and gather are built from sends and receives.
 *
 * Maximum: in the rounds of a short sum (rounds.h). Broadcast: the binomial tree, in which the parent of
 * v is v without its lowest bit. Gather: the same tree upwards, in which v collects for the ranks from v
 * to the next one that is not below it.
 */
#include "core/base/mem.h"
#include "dist/comm_impl.h"
#include "dist/rounds.h"

#include <string.h>

enum { BROADCAST_PIECE = 64 << 20 };

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
            const oct_partner *with = &rounds[r].partner[i];
            if (with->takes.end > 0) OCT_TRY(oct_exchange_receive(comm, with->rank, heard, bytes));
            if (with->gives.end > 0) OCT_TRY(oct_exchange_send(comm, with->rank, values, bytes));
        }
        OCT_TRY(oct_exchange_wait(comm, r + 1));
        for (int64_t i = 0; i < n; i++)
            if (heard[i] > values[i]) values[i] = heard[i];
    }
    return OCT_OK;
}

oct_status oct_exchange_broadcast(const oct_comm *comm, void *data, size_t bytes, int root)
{
    int size = comm->base.size, position = (comm->base.rank - root + size) % size;
    int depth = __builtin_popcount((unsigned)position);
    int parent = (root + (position & (position - 1))) % size;
    int reach = position == 0 ? size : position & -position;

    for (size_t at = 0; at < bytes; at += BROADCAST_PIECE) {
        size_t piece = bytes - at < BROADCAST_PIECE ? bytes - at : BROADCAST_PIECE;
        char *here = (char *)data + at;
        if (position != 0) OCT_TRY(oct_exchange_receive(comm, parent, here, piece));
        OCT_TRY(oct_exchange_wait(comm, depth));
        for (int ahead = 1; ahead < reach && position + ahead < size; ahead *= 2)
            OCT_TRY(oct_exchange_send(comm, (root + position + ahead) % size, here, piece));
        OCT_TRY(oct_exchange_wait(comm, depth + 1));
    }
    return OCT_OK;
}

oct_status oct_comm_max_i64(const oct_collective *self, int64_t *values, int64_t n)
{
    const oct_comm *comm = oct_comm_of(self);
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_MAX));
    return oct_exchange_max(comm, values, n);
}

oct_status oct_comm_broadcast(const oct_collective *self, void *data, size_t bytes, int root)
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
    const int reach = rank == 0 ? size : rank & -rank;
    const int mine =
        reach < size - rank ? reach : size - rank; /* ranks that this one collects for */
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
