/* The sums of the interface: those that are waited for, those that go on besides other work, and the rows of gradients
 * that a node sums where they are.
 *
 * Rows are in a file of memory without a name. With each sum of them a rank writes into its line of the node which
 * file that is and where in it they begin, before it reports that they are filled in; the others open the file by way
 * of /proc the first time, and keep it mapped until they free their own rows of that sum. What has been freed is gone
 * when the last of them has freed its view.
 *
 * A vector of rows is one piece: each rank sums its share of it over the rows of all ranks, and the total is in the
 * rows of the first rank of the node that has leaves, where all read it. That rank writes there again in its next
 * backward: by then the others have read, since all ranks have synchronized for the loss.
 *
 * Sums besides other work go in lanes, communicators of their own over the same ranks, which the sums take in turn. In a
 * lane one is done after another. A sum is mostly latency, of messages and until the next look; so the lanes run side by
 * side. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/reduce_impl.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const double look_every_s = 20e-6;

/* --- rows ---------------------------------------------------------------------------------------- */

/* The rows of another rank of the node, as this process maps them. */
typedef struct mapped_rows {
    uint64_t id; /* 0: none are mapped */
    char *memory;
    size_t bytes;
} mapped_rows;

struct oct_rows {
    oct_rows *next;
    uint64_t id; /* of all that this rank has ever had; from 1 on */
    char *memory;
    size_t bytes;
    int file;
    uint32_t read_since; /* since this operation others may read totals here; 0: they do not */
    mapped_rows peers[]; /* of each rank of the node */
};

static void destroy_rows(const oct_comm *comm, oct_rows *rows)
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
        destroy_rows(comm, rows);
        return oct_mem_fail(bytes, " that the ranks of a host can share");
    }
    rows->id = ++state->rows_made;
    rows->next = *state->rows;
    *state->rows = rows;
    oct_mem_count((int64_t)rows->bytes);
    memcpy(block, &rows->memory, sizeof rows->memory);
    return OCT_OK;
}

/* Frees what alloc_rows gave and sets the pointer at `block` to NULL. */
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
        destroy_rows(comm, rows);
        memset(block, 0, sizeof memory);
        return;
    }
    oct_free(block);
}

/* Finds the rows that hold `first`; NULL where it is other memory or the ranks share none. */
static oct_rows *find_rows(const oct_comm *comm, const void *first)
{
    if (!comm->state->node.memory) return NULL;
    for (oct_rows *rows = *comm->state->rows; rows; rows = rows->next)
        if ((uintptr_t)first - (uintptr_t)rows->memory < rows->bytes) return rows;
    return NULL;
}

/* Maps the rows that another rank has offered for this sum, unless they are mapped. */
static oct_status map_rows(const oct_sum *s, int rank)
{
    const oct_comm *comm = s->comm;
    const int in_node = rank - comm->state->node.first;
    const oct_rows_place *place = &comm->state->node.lines[in_node].rows;
    mapped_rows *view = &s->rows->peers[in_node];
    if (rank == comm->base.rank || view->id == place->id) return OCT_OK;
    if (view->memory) munmap(view->memory, view->bytes);
    *view = (mapped_rows){.id = place->id, .bytes = place->bytes};
    view->memory = oct_memory_of_process(comm->hosts[rank].pid, place->file, place->bytes);
    if (!view->memory) view->id = 0;
    OCT_CHECK(view->memory, OCT_RESOURCE,
              "no room for a view of %s of %s, which has its gradients there; use fewer "
              "ranks on a host, or more memory",
              oct_text_size((int64_t)place->bytes).text, oct_text_rank(comm, rank).text);
    return OCT_OK;
}

/* Row p of a rank: p rows after the place that its line names, in its memory as it is mapped here. Rows are as far apart
 * on all ranks. */
static char *find_row(const oct_sum *s, int rank, int p)
{
    const oct_rank_node *node = &s->comm->state->node;
    const int in_node = rank - node->first;
    char *memory = rank == s->comm->base.rank ? s->rows->memory : s->rows->peers[in_node].memory;
    return memory + node->lines[in_node].rows.at + (size_t)p * s->stride;
}

/* Runs the next phase of a sum in a node whose ranks read the rows of each other in place. */
static oct_status run_phase_in_rows(oct_sum *s)
{
    const oct_rank_node *node = &s->comm->state->node;
    switch ((int)s->phase) {
    case OCT_SUM_CLEAR: /* nobody reads these rows any more (begin_sum) */
    case OCT_SUM_FILL:
        if (!s->second_pass) /* the others find this rank's vectors by its line */
            node->lines[s->comm->base.rank - node->first].rows =
                (oct_rows_place){.id = s->rows->id,
                                 .bytes = s->rows->bytes,
                                 .at = (uintptr_t)s->out - (uintptr_t)s->rows->memory,
                                 .file = s->rows->file};
        s->phase = s->second_pass ? OCT_SUM_READ : OCT_SUM_MERGE;
        return oct_sum_synchronize(s, OCT_FILLED);
    case OCT_SUM_MERGE: {
        for (int r = node->first; r < node->first + node->ranks; r++)
            OCT_TRY(map_rows(s, r));
        const int parts = oct_sum_add_share(s, find_row);
        if (oct_sum_num_nodes(s) == 1) {
            s->phase = OCT_SUM_READ;
            return oct_sum_synchronize(s, OCT_SUMMED);
        }
        /* The lane is this rank's share of the rows. */
        for (int p = 0; p < parts; p++)
            s->own.vectors[p] = s->comm->state->vectors[p];
        s->lane_total = find_row(s, s->total_rank, 0) + oct_sum_bytes(s, oct_sum_share(s).begin);
        oct_sum_end_piece(s);
        return OCT_OK;
    }
    default:
        oct_sum_end_piece(s);
        return OCT_OK;
    }
}

/* Returns where the total of the sum of these parts is: in the same rows of the rank that holds it, as mapped here; if
 * rows are not shared, at `parts`. *lent: others read it in this rank's rows, from this operation on (read_since). */
static const float *find_rows_total(const oct_collective *self, const oct_leaves *leaves,
                                    const float *parts, bool *lent)
{
    const oct_comm *comm = oct_comm_of(self);
    const int holder = oct_sum_total_rank(comm, leaves);
    oct_rows *rows = find_rows(comm, parts);
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

/* --- sums ---------------------------------------------------------------------------------------- */

/* Sums the parts of all ranks along the tree, phase by phase, and waits for other ranks after each. */
static oct_status sum_and_wait(const oct_collective *self, const oct_leaves *leaves, void *parts,
                               int64_t n, size_t width, void *out)
{
    oct_sum s = {.comm = oct_comm_of(self), .out = out, .n = n, .width = width};
    OCT_TRY(oct_exchange_begin(s.comm, OCT_EXCHANGE_TREE_SUM));
    OCT_TRY(oct_sum_begin(&s, leaves, parts, n));
    while (s.phase != OCT_SUM_DONE) {
        OCT_TRY(oct_sum_run_phase(&s));
        OCT_TRY(oct_exchange_wait(s.comm, oct_sum_patience(&s)));
    }
    return OCT_OK;
}

typedef struct sum_request {
    oct_leaves leaves;
    float *parts;
    int64_t stride, n;
} sum_request;

/* The sums that have begun in a lane and are not waited for. */
typedef struct oct_sums {
    oct_sum sum; /* the first of them */
    bool runs;
    size_t count, next; /* of the requests of the lane; next: the first that is not over */
    double looked_s;    /* the clock when they last moved on */
} oct_sums;

/* Runs the sums of a lane until one has to wait for other ranks, or all are done. */
static oct_status advance_sums(const oct_comm *lane, oct_sums *sums)
{
    OCT_TRY(oct_exchange_check(lane));
    while (sums->next < sums->count) {
        const sum_request *r = (sum_request *)lane->state->sum_requests + sums->next;
        bool moved;
        if (!sums->runs) {
            oct_rows *rows = find_rows(lane, r->parts);
            sums->sum = (oct_sum){.comm = lane,
                                  .out = (char *)r->parts,
                                  .n = r->n,
                                  .width = sizeof(float),
                                  .rows = rows,
                                  .run_in_node = rows ? run_phase_in_rows : NULL};
            OCT_TRY(oct_exchange_begin(lane, OCT_EXCHANGE_GRADIENT_SUM));
            OCT_TRY(oct_sum_begin(&sums->sum, &r->leaves, (char *)r->parts, r->stride));
            sums->runs = true;
        }
        if (lane->state->pending > 0) OCT_TRY(oct_exchange_poll(lane, &moved));
        if (lane->state->pending > 0) return OCT_OK;
        if (sums->sum.phase != OCT_SUM_DONE) {
            OCT_TRY(oct_sum_run_phase(&sums->sum));
            continue;
        }
        sums->runs = false;
        sums->next++;
    }
    sums->next = sums->count = 0;
    return OCT_OK;
}

/* Where sums of a lane fail, nothing may be exchanged any more elsewhere either. */
static oct_status break_with_lane(const oct_comm *comm, const oct_comm *lane, oct_status status)
{
    if (lane->state->broken != OCT_OK) oct_exchange_give_up(comm, lane->state->broken);
    return status;
}

/* Lets the sums of each lane go on without waiting, at most every look_every_s. */
static oct_status move_sums(const oct_collective *self)
{
    const oct_comm *comm = oct_comm_of(self);
    for (const oct_comm *lane = comm->besides; lane; lane = lane->besides) {
        oct_sums *sums = lane->state->sums;
        if (!sums || sums->count == 0) continue;
        const double now_s = oct_seconds();
        if (now_s - sums->looked_s < look_every_s) continue;
        sums->looked_s = now_s;
        OCT_TRY(break_with_lane(comm, lane, advance_sums(lane, sums)));
    }
    return OCT_OK;
}

/* Waits until the sums of all lanes are over. While a lane is waited for, those after it move on. */
static oct_status finish_sums(const oct_collective *self)
{
    const oct_comm *comm = oct_comm_of(self);
    comm->state->syncs++;
    for (const oct_comm *lane = comm->besides; lane; lane = lane->besides) {
        oct_sums *sums = lane->state->sums;
        if (!sums) continue;
        OCT_TRY(break_with_lane(comm, lane, advance_sums(lane, sums)));
        while (sums->count > 0) {
            const int patience = oct_sum_patience(&sums->sum);
            OCT_TRY(break_with_lane(comm, lane, oct_exchange_wait(lane, patience)));
            OCT_TRY(break_with_lane(comm, lane, advance_sums(lane, sums)));
        }
    }
    return OCT_OK;
}

/* Adds a sum of gradients to the requests of a lane, which take turns, and lets the lanes move on without waiting. */
static oct_status begin_sum(const oct_collective *self, const oct_leaves *leaves, float *parts,
                            int64_t stride, int64_t n)
{
    const oct_comm *comm = oct_comm_of(self), *lane = comm->besides;
    OCT_TRY(oct_exchange_check(comm)); /* or there are no lanes */
    for (uint64_t turn = comm->state->sums_begun++ % OCT_SUMS_BESIDES; turn > 0; turn--)
        lane = lane->besides;
    oct_comm_state *state = lane->state;
    const oct_rows *rows = find_rows(comm, parts);
    OCT_CHECK(!rows || rows->read_since == 0 || rows->read_since != comm->state->sequence,
              OCT_DEFECT,
              "rows are summed again before the ranks have synchronized, while others may still "
              "read their total");
    if (!state->sums) OCT_TRY(oct_alloc(&state->sums, 1, sizeof(*state->sums)));
    oct_sums *sums = state->sums;
    OCT_TRY(oct_grow(&state->sum_requests, &state->sum_requests_capacity, sums->count + 1,
                     sizeof(sum_request)));
    ((sum_request *)state->sum_requests)[sums->count++] = (sum_request){*leaves, parts, stride, n};
    return move_sums(self);
}

void oct_supply_sums(oct_collective *group)
{
    group->tree_sum = sum_and_wait;
    group->sum_begin = begin_sum;
    group->sums_move = move_sums;
    group->sums_finish = finish_sums;
    group->rows_alloc = alloc_rows;
    group->rows_free = free_rows;
    group->rows_total = find_rows_total;
}
