/* Rows of a rank that the others of its host read in place.
 *
 * They are in a file of memory without a name. With each sum of them a rank says in its line of the node
 * which file that is and where in it they begin, before it reports that they are filled in; the others open the
 * file by way of /proc the first time, and keep it mapped until they free their own rows of that sum. What
 * has been freed is gone when the last of them has.
 *
 * A sum is made where the rows are, so the total is in those of the first rank of the node that has leaves, and all
 * read it there. That rank writes there again in its next backward: by then the others have read, since all
 * ranks have synchronized for the loss.
 */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct peer {
    uint64_t id; /* of the rows that are mapped; 0: none */
    char *memory;
    size_t bytes;
} peer;

struct oct_rows {
    oct_rows *next;
    uint64_t id; /* of all that this rank has ever had; from 1 on */
    char *memory;
    size_t bytes;
    int file;
    uint32_t
        read_since; /* the operation of the communicator since which others may read totals; 0: none */
    peer peers[]; /* of the node */
};

static bool create(oct_rows *rows, size_t bytes)
{
    rows->bytes = bytes > 0 ? bytes : 1;
    rows->file = memfd_create("octet-rows", MFD_CLOEXEC);
    if (rows->file < 0 || ftruncate(rows->file, (off_t)rows->bytes) != 0) return false;
    rows->memory = oct_memory_map(rows->file, rows->bytes);
    return rows->memory != NULL;
}

static void destroy(const oct_comm *comm, oct_rows *rows)
{
    for (int i = 0; i < comm->state->node.ranks; i++)
        if (rows->peers[i].memory) munmap(rows->peers[i].memory, rows->peers[i].bytes);
    if (rows->memory) munmap(rows->memory, rows->bytes);
    if (rows->file >= 0) close(rows->file);
    oct_free(&rows);
}

oct_status oct_comm_rows_alloc(const oct_collective *self, void *block, size_t count, size_t size)
{
    const oct_comm *comm = oct_comm_of(self);
    oct_comm_state *state = comm->state;
    oct_rows *rows;
    size_t bytes;
    memset(block, 0, sizeof(void *));
    if (!state->node.shows_rows || __builtin_mul_overflow(count, size, &bytes))
        return oct_alloc(block, count, size);
    OCT_TRY(oct_mem_check_available(bytes > 0 ? bytes : 1));
    OCT_TRY(oct_alloc(&rows, 1, sizeof *rows + (size_t)state->node.ranks * sizeof *rows->peers));
    if (!create(rows, bytes)) {
        destroy(comm, rows);
        return oct_mem_fail(bytes, " that the ranks of a host can share");
    }
    rows->id = ++state->rows_made;
    rows->next = *state->rows;
    *state->rows = rows;
    oct_mem_count((int64_t)rows->bytes);
    memcpy(block, &rows->memory, sizeof rows->memory);
    return OCT_OK;
}

void oct_comm_rows_free(const oct_collective *self, void *block)
{
    const oct_comm *comm = oct_comm_of(self);
    void *memory;
    memcpy(&memory, block, sizeof memory);
    for (oct_rows **at = comm->state->rows; *at; at = &(*at)->next) {
        oct_rows *rows = *at;
        if (rows->memory != memory) continue;
        *at = rows->next;
        oct_mem_count(-(int64_t)rows->bytes);
        destroy(comm, rows);
        memset(block, 0, sizeof memory);
        return;
    }
    oct_free(block);
}

oct_rows *oct_rows_around(const oct_comm *comm, const void *first)
{
    for (oct_rows *rows = *comm->state->rows; rows; rows = rows->next)
        if ((uintptr_t)first - (uintptr_t)rows->memory < rows->bytes) return rows;
    return NULL;
}

void oct_rows_offer(const oct_comm *comm, const oct_rows *rows, const void *first)
{
    const oct_rank_node *node = &comm->state->node;
    node->lines[comm->base.rank - node->first].rows =
        (oct_rows_place){.id = rows->id,
                         .bytes = rows->bytes,
                         .at = (uintptr_t)first - (uintptr_t)rows->memory,
                         .file = rows->file};
}

oct_status oct_rows_of_rank(const oct_comm *comm, oct_rows *rows, int rank, char **first)
{
    const oct_rank_node *node = &comm->state->node;
    const oct_rows_place *place = &node->lines[rank - node->first].rows;
    peer *p = &rows->peers[rank - node->first];
    char name[128];
    if (rank == comm->base.rank) {
        *first = rows->memory + place->at;
        return OCT_OK;
    }
    if (p->id != place->id) {
        if (p->memory) munmap(p->memory, p->bytes);
        *p = (peer){.id = place->id, .bytes = place->bytes};
        p->memory = oct_memory_of_process(comm->hosts[rank].pid, place->file, place->bytes);
        if (!p->memory) p->id = 0;
        OCT_CHECK(p->memory, OCT_RESOURCE,
                  "no room for a view of %s of %s, which has its gradients there; use fewer "
                  "ranks on a host, or more memory",
                  oct_text_size((int64_t)place->bytes).text, oct_rank_text(comm, rank, name));
    }
    *first = p->memory + place->at;
    return OCT_OK;
}

/* The first rank of the node that has leaves: a sum writes its total into the rows of that rank. */
int oct_rows_holder(const oct_comm *comm, const oct_leaves *leaves)
{
    const oct_rank_node *node = &comm->state->node;
    int rank = node->first;
    while (rank + 1 < node->first + node->ranks &&
           oct_leaves_split(leaves->samples, leaves->leaf, rank, comm->base.size).local == 0)
        rank++;
    return rank;
}

const float *oct_comm_rows_total(const oct_collective *self, const oct_leaves *leaves,
                                 const float *parts, bool *lent)
{
    const oct_comm *comm = oct_comm_of(self);
    const int holder = oct_rows_holder(comm, leaves);
    oct_rows *rows = oct_rows_around(comm, parts);
    *lent = rows && holder == comm->base.rank;
    if (!rows) return parts;
    rows->read_since = comm->state->sequence;
    const char *memory = rows->peers[holder - comm->state->node.first].memory;
    if (holder == comm->base.rank || !memory) return parts; /* no memory: nothing was summed */
    /* The same offset as that of `parts` in this rank's rows: all ranks lay out their rows the same way. */
    const void *total = memory + ((uintptr_t)parts - (uintptr_t)rows->memory);
    return total;
}

oct_status oct_rows_may_change(const oct_comm *comm, const void *first)
{
    const oct_rows *rows = oct_rows_around(comm, first);
    OCT_CHECK(!rows || rows->read_since == 0 || rows->read_since != comm->state->sequence,
              OCT_DEFECT,
              "rows are summed again before the ranks have synchronized, while others may still "
              "read their total");
    return OCT_OK;
}
