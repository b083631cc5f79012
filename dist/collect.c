/* Maximum, broadcast and gather are built from sends and receives.
 *
 * Maximum: in round k every rank sends to the one 2^k ahead and receives from the one 2^k behind.
 * After ceil(log2 size) rounds everybody has heard of everybody, some twice, which a maximum does
 * not mind; so any number of ranks works alike. Broadcast: the binomial tree, in which the parent of
 * v is v without its lowest bit. Gather: straight to rank 0.
 */
#include "core/base/mem.h"
#include "dist/comm_impl.h"

#include <string.h>

enum { BROADCAST_PIECE = 64 << 20 };

oct_status oct_exchange_max(const oct_comm *comm, int64_t *values, int64_t n)
{
    oct_comm_state *s = comm->state;
    int rank = comm->base.rank, size = comm->base.size;
    size_t bytes = (size_t)n * sizeof(int64_t);
    OCT_TRY(oct_grow(&s->scratch, &s->scratch_capacity, bytes, 1));
    int64_t *heard = (int64_t *)(void *)s->scratch;

    for (int distance = 1, round = 1; distance < size; distance *= 2, round++) {
        OCT_TRY(oct_exchange_receive(comm, (rank - distance + size) % size, heard, bytes));
        OCT_TRY(oct_exchange_send(comm, (rank + distance) % size, values, bytes));
        OCT_TRY(oct_exchange_wait(comm, round));
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
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_GATHER));
    if (self->rank != 0) {
        OCT_TRY(oct_exchange_send(comm, 0, src, bytes));
        return oct_exchange_wait(comm, 2);
    }
    memcpy(dst, src, bytes);
    for (int rank = 1; rank < self->size; rank++)
        OCT_TRY(oct_exchange_receive(comm, rank, (char *)dst + (size_t)rank * bytes, bytes));
    return oct_exchange_wait(comm, 1);
}
