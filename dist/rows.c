/* The ranks of a node sum rows (parts of gradients, one after another in memory) where they are.
 *
 * Rows are in a file of memory without a name. With each sum of them a rank writes into its line of the node
 * which file that is and where in it they begin, before it reports that they are filled in; the others open the
 * file by way of /proc the first time, and keep it mapped until they free their own rows of that sum. What
 * has been freed is gone when the last of them has freed its view.
 *
 * A vector of rows is one piece: each rank sums its share of it over the rows of all ranks, and the total is in the rows of
 * the first rank of the node that has leaves, where all read it. That rank writes there again in its next backward: by
 * then the others have read, since all ranks have synchronized for the loss.
 */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/reduce_impl.h"

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
    uint32_t read_since; /* since this operation others may read totals here; 0: they do not */
    peer peers[];        /* of the node */
};

static void destroy(const oct_comm *comm, oct_rows *rows)
{
    for (int i = 0; i < comm->state->node.ranks; i++)
        if (rows->peers[i].memory) munmap(rows->peers[i].memory, rows->peers[i].bytes);
    if (rows->memory) munmap(rows->memory, rows->bytes);
    if (rows->file >= 0) close(rows->file);
    oct_free(&rows);
}

/* Sets the pointer at `block` to rows in memory that the other ranks of the node can map, and so read in place; to plain
 * memory where ranks share none. */
static oct_status alloc_rows(const oct_collective *self, void *block, size_t count, size_t size)
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
    rows->bytes = bytes > 0 ? bytes : 1;
    rows->file = memfd_create("octet-rows", MFD_CLOEXEC);
    if (rows->file >= 0 && ftruncate(rows->file, (off_t)rows->bytes) == 0)
        rows->memory = oct_memory_map(rows->file, rows->bytes);
    if (!rows->memory) {
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

static void free_rows(const oct_collective *self, void *block)
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
    if (!comm->state->node.memory) return NULL;
    for (oct_rows *rows = *comm->state->rows; rows; rows = rows->next)
        if ((uintptr_t)first - (uintptr_t)rows->memory < rows->bytes) return rows;
    return NULL;
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

/* Shows the others of the node where this rank's vectors of the sum begin. */
static void offer_rows(const oct_sum *s)
{
    const oct_rank_node *node = &s->comm->state->node;
    node->lines[s->comm->base.rank - node->first].rows =
        (oct_rows_place){.id = s->rows->id,
                         .bytes = s->rows->bytes,
                         .at = (uintptr_t)s->out - (uintptr_t)s->rows->memory,
                         .file = s->rows->file};
}

/* Maps the rows that another rank has offered for this sum, unless they are mapped. */
static oct_status map_rows(const oct_sum *s, int rank)
{
    const oct_comm *comm = s->comm;
    const int at = rank - comm->state->node.first;
    const oct_rows_place *place = &comm->state->node.lines[at].rows;
    peer *p = &s->rows->peers[at];
    char name[128];
    if (rank == comm->base.rank || p->id == place->id) return OCT_OK;
    if (p->memory) munmap(p->memory, p->bytes);
    *p = (peer){.id = place->id, .bytes = place->bytes};
    p->memory = oct_memory_of_process(comm->hosts[rank].pid, place->file, place->bytes);
    if (!p->memory) p->id = 0;
    OCT_CHECK(p->memory, OCT_RESOURCE,
              "no room for a view of %s of %s, which has its gradients there; use fewer "
              "ranks on a host, or more memory",
              oct_text_size((int64_t)place->bytes).text, oct_rank_text(comm, rank, name));
    return OCT_OK;
}

/* Row p of a rank: p rows after the place that its line names, in its memory as it is mapped here. Rows are as far apart
 * on all ranks. */
static char *row_of(const oct_sum *s, int rank, int p)
{
    const oct_rank_node *node = &s->comm->state->node;
    const int at = rank - node->first;
    char *memory = rank == s->comm->base.rank ? s->rows->memory : s->rows->peers[at].memory;
    return memory + node->lines[at].rows.at + (size_t)p * s->stride;
}

oct_status oct_sum_run_rows(oct_sum *s)
{
    const oct_rank_node *node = &s->comm->state->node;
    switch ((int)s->phase) {
    case OCT_SUM_CLEAR: /* rows may change (oct_rows_may_change) */
    case OCT_SUM_FILL:
        if (!s->second_pass) offer_rows(s);
        s->phase = s->second_pass ? OCT_SUM_READ : OCT_SUM_MERGE;
        return oct_sum_synchronize(s, OCT_FILLED);
    case OCT_SUM_MERGE: {
        for (int r = node->first; r < node->first + node->ranks; r++)
            OCT_TRY(map_rows(s, r));
        const int parts = oct_sum_add_share(s, row_of);
        if (oct_sum_num_nodes(s) == 1) {
            s->phase = OCT_SUM_READ;
            return oct_sum_synchronize(s, OCT_SUMMED);
        }
        /* The lane is this rank's share of the rows. */
        for (int p = 0; p < parts; p++)
            s->own.vectors[p] = s->comm->state->vectors[p];
        s->lane_total = row_of(s, s->total_rank, 0) + oct_sum_bytes(s, oct_sum_share(s).begin);
        oct_sum_end_piece(s);
        return OCT_OK;
    }
    default:
        oct_sum_end_piece(s);
        return OCT_OK;
    }
}

static const float *rows_total(const oct_collective *self, const oct_leaves *leaves,
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
    /* The total is in the holder's memory where `parts` are in this rank's: all ranks lay out their rows the same way,
     * so the offset from the beginning is the same. */
    const size_t offset = (uintptr_t)parts - (uintptr_t)rows->memory;
    return (const float *)(const void *)(memory + offset);
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

void oct_supply_rows(oct_collective *group)
{
    group->rows_alloc = alloc_rows;
    group->rows_free = free_rows;
    group->rows_total = rows_total;
}
