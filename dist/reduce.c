/* Leaves are summed along the fixed tree, for any number of ranks.
 *
 * First the ranks of a node sum what they have, in memory that they share. Rows that they see in each other
 * (rows.c) are one piece: each sums its share of the vector where the rows are, and the total stays there.
 * Other vectors go piece by piece: each copies into its slot what others sum, sums its share of the piece with
 * its own where that is, and with a single node each copies out what others have summed. With several nodes
 * each rank goes on with its shares of all pieces (its lane), which it sums with the same rank of the other nodes
 * in the rounds of rounds.h; then the node puts its lanes together.
 *
 * A rank holds sums over a run of leaves: its own at first, one vector for each maximal aligned subtree
 * of the run (a part). In each round it takes the parts of the neighbouring run and adds them to its
 * own along the tree, over the piece of the vector that it keeps. Where the shares of the leaves are
 * aligned, each has one part and the traffic is that of the best allreduce: two vectors. Elsewhere the
 * first rounds carry a few parts instead of one. Who holds which parts follows from the batch alone, so
 * nothing is negotiated.
 *
 * Pieces change no bit: the tree is the same for every element.
 */
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"
#include "dist/rounds.h"

#include <string.h>

/* Below, the time of a message counts more than its bytes. */
static const size_t short_vector_bytes = 16384;

enum { PIECE_STEP = 16 }; /* elements: pieces in slots begin at cache lines */

/* Parts of a run of leaves, over a piece of the vector. */
typedef struct holding {
    oct_leaves run;
    int num_parts;
    oct_subtree parts[OCT_MAX_PARTS];
    char *vectors[OCT_MAX_PARTS];
} holding;

/* What comes next; in between, what was posted has ended. */
typedef enum sum_phase {
    FILL,  /* a piece of what this rank has into its slot; of rows, that they are there */
    MERGE, /* this rank's share of the piece that all have filled in */
    READ,  /* the total of a piece out of a slot; of rows, that it is there */
    ROUND, /* with the other half */
    FOLD,  /* what came in the round */
    BACK,  /* the rounds backwards */
    OVER   /* the total is in `out` on this rank */
} sum_phase;

/* A sum sees its vectors as bytes, `width` bytes an element. */
typedef struct sum {
    const oct_comm *comm;
    char *out;
    int64_t n;
    size_t width;
    sum_phase phase;
    holding own, other; /* of this rank, and what comes from the other half in a round */
    char *scratch;      /* not used yet */

    /* In the node: */
    oct_rows *rows; /* that the others see in place, and then the vector is one piece; else NULL */
    size_t stride;  /* bytes from one part of a rank to its next, in rows */
    int64_t piece_size, at; /* elements of a piece, and where the one at hand begins */
    int holder;             /* the rank in whose slot or rows the total is */
    bool slot_free;         /* the slot at hand is */
    bool returns;           /* lanes go back into whole vectors */

    /* Between nodes, over the lane: */
    int64_t lane, filled;        /* elements: all of the lane, and those that are in it so far */
    char *lane_parts, *lane_out; /* what the node has of it, part after part, and the total */
    bool halves;
    oct_round rounds[OCT_MAX_ROUNDS];
    int num_rounds, round;
    oct_piece piece;
} sum;

static size_t bytes_of(const sum *s, int64_t elements)
{
    return (size_t)elements * s->width;
}

static int64_t length(oct_piece piece)
{
    return piece.end - piece.begin;
}

static int num_nodes(const sum *s)
{
    return s->comm->base.size / s->comm->state->node.ranks;
}

/* Finds the parts of the leaves of ranks [first, end). */
static int find_parts(const sum *s, int first, int end, oct_leaves *run,
                      oct_subtree parts[OCT_MAX_PARTS])
{
    const int size = s->comm->base.size;
    const oct_leaves *batch = &s->own.run;
    const oct_leaves last = oct_leaves_split(batch->samples, batch->leaf, end - 1, size);
    *run = oct_leaves_split(batch->samples, batch->leaf, first, size);
    run->local = last.first + last.local - run->first;
    return oct_leaves_parts(run, parts);
}

/* Says what the nodes of a round's other half hold. */
static void find_other(const sum *s, const oct_round *round, holding *other)
{
    const int ranks = s->comm->state->node.ranks;
    other->num_parts =
        find_parts(s, round->first * ranks, round->end * ranks, &other->run, other->parts);
}

/* --- between nodes ----------------------------------------------------------------------------- */

static int peer_of(const sum *s, const oct_partner *partner)
{
    const oct_rank_node *node = &s->comm->state->node;
    return partner->rank * node->ranks + s->comm->base.rank - node->first;
}

static oct_status exchange_parts(sum *s, const oct_round *round)
{
    holding *other = &s->other;
    find_other(s, round, other);
    for (int p = 0; p < other->num_parts; p++, s->scratch += bytes_of(s, length(round->keeps)))
        other->vectors[p] = s->scratch;
    for (int i = 0; i < round->num_partners; i++) {
        const oct_partner *with = &round->partner[i];
        const size_t takes = bytes_of(s, length(with->takes)),
                     gives = bytes_of(s, length(with->gives));
        for (int p = 0; p < other->num_parts && takes > 0; p++)
            OCT_TRY(oct_exchange_receive(
                s->comm, peer_of(s, with),
                other->vectors[p] + bytes_of(s, with->takes.begin - round->keeps.begin), takes));
        for (int p = 0; p < s->own.num_parts && gives > 0; p++)
            OCT_TRY(oct_exchange_send(
                s->comm, peer_of(s, with),
                s->own.vectors[p] + bytes_of(s, with->gives.begin - s->piece.begin), gives));
    }
    return OCT_OK;
}

/* Adds what has come to what this rank holds: the parts of both runs become those of one. */
static void merge_parts(sum *s, const oct_round *round)
{
    const bool below = s->other.run.first < s->own.run.first;
    const holding *halves[] = {below ? &s->other : &s->own, below ? &s->own : &s->other};
    oct_subtree parts[2 * OCT_MAX_PARTS];
    void *vectors[2 * OCT_MAX_PARTS];
    int count = 0;
    for (int p = 0; p < s->own.num_parts; p++)
        s->own.vectors[p] += bytes_of(s, round->keeps.begin - s->piece.begin);
    s->piece = round->keeps;
    for (int h = 0; h < 2; h++)
        for (int p = 0; p < halves[h]->num_parts; p++, count++) {
            parts[count] = halves[h]->parts[p];
            vectors[count] = halves[h]->vectors[p];
        }
    s->own.run.first = halves[0]->run.first;
    s->own.run.local += s->other.run.local;
    s->own.num_parts =
        oct_tree_merge(&s->own.run, parts, vectors, count, length(s->piece), s->width);
    for (int p = 0; p < s->own.num_parts; p++) {
        s->own.parts[p] = parts[p];
        s->own.vectors[p] = vectors[p];
    }
}

/* After the rounds this rank holds the total of its piece as a single part, which may not be in its place yet. */
static void place_total(const sum *s)
{
    char *total = s->lane_out + bytes_of(s, s->piece.begin);
    OCT_ASSERT(s->own.num_parts == 1);
    if (s->own.vectors[0] != total) memcpy(total, s->own.vectors[0], bytes_of(s, length(s->piece)));
}

/* What was given comes back summed, for what was taken. */
static oct_status exchange_sums(const sum *s, const oct_round *round)
{
    for (int i = 0; i < round->num_partners; i++) {
        const oct_partner *with = &round->partner[i];
        OCT_TRY(oct_exchange_receive(s->comm, peer_of(s, with),
                                     s->lane_out + bytes_of(s, with->gives.begin),
                                     bytes_of(s, length(with->gives))));
        OCT_TRY(oct_exchange_send(s->comm, peer_of(s, with),
                                  s->lane_out + bytes_of(s, with->takes.begin),
                                  bytes_of(s, length(with->takes))));
    }
    return OCT_OK;
}

/* --- in the node ------------------------------------------------------------------------------- */

/* What the ranks of a node report of a piece: filled in, summed, done with. */
enum { FILLED = 1, SUMMED, DONE, STAGES = DONE };

static uint64_t stage_of(uint64_t piece, int stage)
{
    return piece * STAGES + (uint64_t)stage;
}

static int64_t piece_length(const sum *s)
{
    return oct_min_i64(s->piece_size, s->n - s->at);
}

/* The share of the piece at hand that this rank sums. */
static oct_piece own_share(const sum *s)
{
    const oct_rank_node *node = &s->comm->state->node;
    return oct_share(piece_length(s), s->comm->base.rank - node->first, node->ranks);
}

/* Part p of a rank, over the piece at hand, as all see it. */
static char *shared_part(const sum *s, int rank, int p)
{
    const oct_rank_node *node = &s->comm->state->node;
    if (s->rows) return s->comm->state->firsts[rank - node->first] + (size_t)p * s->stride;
    return oct_rank_node_slot(node, rank, node->pieces) + (size_t)p * bytes_of(s, piece_length(s));
}

/* Copies a vector of the piece at hand but for this rank's share of it. */
static void copy_others(const sum *s, char *to, const char *from)
{
    const oct_piece share = own_share(s);
    memcpy(to, from, bytes_of(s, share.begin));
    memcpy(to + bytes_of(s, share.end), from + bytes_of(s, share.end),
           bytes_of(s, piece_length(s) - share.end));
}

static void fill_slot(sum *s)
{
    const oct_piece share = own_share(s);
    if (s->rows) return;
    if (s->returns) {
        memcpy(shared_part(s, s->holder, 0) + bytes_of(s, share.begin),
               s->lane_out + bytes_of(s, s->filled), bytes_of(s, length(share)));
        s->filled += length(share);
        return;
    }
    for (int p = 0; p < s->own.num_parts; p++)
        copy_others(s, shared_part(s, s->comm->base.rank, p),
                    s->own.vectors[p] + bytes_of(s, s->at));
}

/* Sums this rank's share of what all have filled in and of its own; returns how many parts the node has. */
static int sum_share(const sum *s)
{
    oct_comm_state *state = s->comm->state;
    const oct_rank_node *node = &state->node;
    const oct_piece share = own_share(s);
    oct_subtree parts[OCT_MAX_PARTS];
    oct_leaves run;
    int count = 0;
    for (int r = node->first; r < node->first + node->ranks; r++) {
        const int more = find_parts(s, r, r + 1, &run, parts);
        for (int p = 0; p < more; p++, count++) {
            char *vector = r == s->comm->base.rank ? s->own.vectors[p] + bytes_of(s, s->at)
                                                   : shared_part(s, r, p);
            state->parts[count] = parts[p];
            state->vectors[count] = vector + bytes_of(s, share.begin);
        }
    }
    find_parts(s, node->first, node->first + node->ranks, &run, parts);
    return oct_tree_merge(&run, state->parts, state->vectors, count, length(share), s->width);
}

/* Gives the total of this rank's share to the others, and to itself. */
static void give_total(const sum *s)
{
    const oct_piece share = own_share(s);
    const char *total = s->comm->state->vectors[0];
    if (s->rows) return;
    char *to[] = {shared_part(s, s->holder, 0) + bytes_of(s, share.begin),
                  s->out + bytes_of(s, s->at + share.begin)};
    for (int i = 0; i < 2; i++)
        if (to[i] != total) memcpy(to[i], total, bytes_of(s, length(share)));
}

static void move_to_lane(sum *s, int parts)
{
    const oct_piece share = own_share(s);
    if (s->rows) {
        for (int p = 0; p < parts; p++)
            s->own.vectors[p] = s->comm->state->vectors[p];
        s->lane_out = shared_part(s, s->holder, 0) + bytes_of(s, share.begin);
        return;
    }
    for (int p = 0; p < parts; p++)
        memcpy(s->lane_parts + bytes_of(s, p * s->lane + s->filled), s->comm->state->vectors[p],
               bytes_of(s, length(share)));
    s->filled += length(share);
}

/* --- one after another ------------------------------------------------------------------------- */

static void begin_rounds(sum *s)
{
    const oct_rank_node *node = &s->comm->state->node;
    s->halves = bytes_of(s, s->lane) >= short_vector_bytes;
    s->num_rounds =
        oct_rounds(s->comm->base.rank / node->ranks, num_nodes(s), s->lane, s->halves, s->rounds);
    s->piece = (oct_piece){0, s->lane};
}

/* The lanes of all pieces are there: what this rank holds from now on are parts of the node. */
static void enter_lane(sum *s)
{
    const oct_rank_node *node = &s->comm->state->node;
    s->own.num_parts =
        find_parts(s, node->first, node->first + node->ranks, &s->own.run, s->own.parts);
    s->at = s->filled = 0;
    s->returns = true;
    s->phase = ROUND;
    if (s->rows) return;
    for (int p = 0; p < s->own.num_parts; p++)
        s->own.vectors[p] = s->lane_parts + bytes_of(s, p * s->lane);
    s->holder = node->first;
}

static void end_piece(sum *s)
{
    oct_rank_node *node = &s->comm->state->node;
    oct_exchange_signal(s->comm, stage_of(node->pieces++, DONE));
    s->at += piece_length(s);
    if (s->at < s->n)
        s->phase = FILL;
    else if (s->returns || num_nodes(s) == 1)
        s->phase = OVER;
    else
        enter_lane(s);
}

static oct_status signal_and_await(const sum *s, int stage)
{
    const uint64_t progress = stage_of(s->comm->state->node.pieces, stage);
    oct_exchange_signal(s->comm, progress);
    return oct_exchange_await(s->comm, progress);
}

static oct_status fill_piece(sum *s)
{
    const uint64_t piece = s->comm->state->node.pieces;
    s->slot_free = !s->slot_free && !s->rows;
    if (s->slot_free)
        return piece < OCT_NODE_SLOTS
                   ? OCT_OK
                   : oct_exchange_await(s->comm, stage_of(piece - OCT_NODE_SLOTS, DONE));
    fill_slot(s);
    s->phase = s->returns ? READ : MERGE;
    return signal_and_await(s, FILLED);
}

static oct_status find_rows(const sum *s)
{
    const oct_rank_node *node = &s->comm->state->node;
    for (int i = 0; i < node->ranks; i++)
        OCT_TRY(oct_rows_of_rank(s->comm, s->rows, node->first + i, &s->comm->state->firsts[i]));
    return OCT_OK;
}

static oct_status sum_piece(sum *s)
{
    if (s->rows) OCT_TRY(find_rows(s));
    const int parts = sum_share(s);
    if (num_nodes(s) == 1) {
        give_total(s);
        s->phase = READ;
        return signal_and_await(s, SUMMED);
    }
    move_to_lane(s, parts);
    end_piece(s);
    return OCT_OK;
}

/* Of several nodes all shares are in the slot, of a single one this rank has its own. */
static void read_total(const sum *s)
{
    char *out = s->out + bytes_of(s, s->at);
    const char *total = shared_part(s, s->holder, 0);
    if (s->rows) return;
    if (s->returns)
        memcpy(out, total, bytes_of(s, piece_length(s)));
    else
        copy_others(s, out, total);
}

/* Does the next phase of the sum: what it waits for, if anything, is posted and has to end before the next call. */
static oct_status run_phase(sum *s)
{
    const oct_comm_state *state = s->comm->state;
    switch (s->phase) {
    case FILL:
        return fill_piece(s);
    case MERGE:
        return sum_piece(s);
    case READ:
        read_total(s);
        end_piece(s);
        return OCT_OK;
    case ROUND:
        s->phase = s->round < s->num_rounds ? FOLD : BACK;
        if (s->phase == FOLD) return exchange_parts(s, &s->rounds[s->round]);
        place_total(s);
        return OCT_OK;
    case FOLD:
        merge_parts(s, &s->rounds[s->round++]);
        s->phase = ROUND;
        return OCT_OK;
    case BACK:
        if (s->halves && s->round > 0) return exchange_sums(s, &s->rounds[--s->round]);
        s->phase = state->node.memory ? FILL : OVER;
        return OCT_OK;
    case OVER:
        break;
    }
    return OCT_OK;
}

/* Each step waits for the ones before it, of other ranks too. */
static int patience(const sum *s)
{
    const int in_node = s->comm->state->node.memory ? 2 : 0;
    if (s->phase == FOLD) return in_node + s->round + 1;
    if (s->phase == BACK) return in_node + 2 * s->num_rounds - s->round;
    return s->returns ? in_node + 2 * s->num_rounds + 1 : s->phase == READ ? 2 : 1;
}

/* --- begin ------------------------------------------------------------------------------------- */

/* The most parts that a rank has of this batch decide how long pieces are. */
static int most_parts(const sum *s)
{
    oct_comm_state *state = s->comm->state;
    const oct_leaves *batch = &s->own.run;
    oct_subtree parts[OCT_MAX_PARTS];
    oct_leaves run;
    if (state->most_samples == batch->samples && state->most_leaf == batch->leaf)
        return state->most_parts;
    state->most_parts = 1;
    for (int r = 0; r < s->comm->base.size; r++) {
        const int count = find_parts(s, r, r + 1, &run, parts);
        if (count > state->most_parts) state->most_parts = count;
    }
    state->most_samples = batch->samples;
    state->most_leaf = batch->leaf;
    return state->most_parts;
}

static oct_status plan_pieces(sum *s)
{
    oct_comm_state *state = s->comm->state;
    const oct_rank_node *node = &state->node;
    const size_t most = (size_t)most_parts(s), parts = most * (size_t)node->ranks;
    const int64_t slot = (int64_t)(node->slot_bytes / (most * s->width)) / PIECE_STEP * PIECE_STEP;
    s->piece_size = s->rows ? s->n : slot;
    s->lane = 0;
    for (s->at = 0; s->at < s->n; s->at += s->piece_size)
        s->lane += length(own_share(s));
    s->at = 0;
    s->holder = oct_rows_holder(s->comm, &s->own.run);
    OCT_TRY(oct_grow(&state->firsts, &state->firsts_capacity, (size_t)node->ranks,
                     sizeof(*state->firsts)));
    OCT_TRY(oct_grow(&state->parts, &state->parts_capacity, parts, sizeof(*state->parts)));
    return oct_grow(&state->vectors, &state->vectors_capacity, parts, sizeof(*state->vectors));
}

/* Memory for the lanes, and for what comes in the rounds. */
static oct_status reserve_scratch(sum *s)
{
    oct_comm_state *state = s->comm->state;
    const oct_rank_node *node = &state->node;
    oct_leaves run;
    const bool copied = node->memory && !s->rows && num_nodes(s) > 1;
    const size_t lane = copied ? bytes_of(s, s->lane) : 0;
    const int parts = find_parts(s, node->first, node->first + node->ranks, &run, s->other.parts);
    size_t bytes = (size_t)(parts + 1) * lane + PIECE_STEP;
    for (int r = 0; r < s->num_rounds; r++) {
        find_other(s, &s->rounds[r], &s->other);
        bytes += (size_t)s->other.num_parts * bytes_of(s, length(s->rounds[r].keeps));
    }
    OCT_TRY(oct_grow(&state->scratch, &state->scratch_capacity, bytes, 1));
    s->lane_out = node->memory ? state->scratch : s->out;
    s->lane_parts = state->scratch + lane;
    s->scratch = state->scratch + (size_t)(parts + 1) * lane;
    return OCT_OK;
}

static oct_status begin_sum(sum *s, const oct_leaves *leaves, char *parts, int64_t stride)
{
    const oct_comm *comm = s->comm;
    s->own.run = *leaves;
    s->own.num_parts =
        find_parts(s, comm->base.rank, comm->base.rank + 1, &s->own.run, s->own.parts);
    OCT_CHECK(s->own.run.first == leaves->first && s->own.run.local == leaves->local, OCT_DEFECT,
              "rank %d sums leaves that are not its share of the batch", comm->base.rank);
    for (int p = 0; p < s->own.num_parts; p++)
        s->own.vectors[p] = parts + (size_t)p * bytes_of(s, stride);
    s->phase = OVER;
    if (s->n == 0) return OCT_OK;
    if (leaves->count == 0) {
        memset(s->out, 0, bytes_of(s, s->n));
        return OCT_OK;
    }
    s->stride = bytes_of(s, stride);
    if (s->rows) oct_rows_offer(comm, s->rows, parts);
    oct_exchange_announce(comm, bytes_of(s, s->n) + (s->rows != NULL));
    s->lane = s->n;
    s->phase = ROUND;
    if (comm->state->node.memory) {
        s->phase = FILL;
        OCT_TRY(plan_pieces(s));
    }
    begin_rounds(s);
    return reserve_scratch(s);
}

static oct_status tree_sum(sum *s, const oct_leaves *leaves, char *parts)
{
    OCT_TRY(oct_exchange_begin(s->comm, OCT_EXCHANGE_TREE_SUM));
    OCT_TRY(begin_sum(s, leaves, parts, s->n));
    while (s->phase != OVER) {
        OCT_TRY(run_phase(s));
        OCT_TRY(oct_exchange_wait(s->comm, patience(s)));
    }
    return OCT_OK;
}

oct_status oct_comm_tree_sum_f32(const oct_collective *self, const oct_leaves *leaves, float *parts,
                                 int64_t n, float *out)
{
    sum s = {.comm = oct_comm_of(self), .out = (char *)out, .n = n, .width = sizeof(float)};
    return tree_sum(&s, leaves, (char *)parts);
}

oct_status oct_comm_tree_sum_f64(const oct_collective *self, const oct_leaves *leaves,
                                 double *parts, int64_t n, double *out)
{
    sum s = {.comm = oct_comm_of(self), .out = (char *)out, .n = n, .width = sizeof(double)};
    return tree_sum(&s, leaves, (char *)parts);
}

/* --- besides other work ------------------------------------------------------------------------ */

typedef struct request {
    oct_leaves leaves;
    float *parts;
    int64_t stride, n;
} request;

/* Sums that have begun in a lane go one after another. A sum is mostly latency, of messages
 * and until the next look; so several lanes go side by side, and the sums take them in turn. */
typedef struct oct_sums {
    sum sum; /* the one at hand */
    bool runs;
    request *requests;
    size_t capacity, count, next;
    double looked;
} oct_sums;

static const double look_every_s = 20e-6;

static oct_status begin_next(const oct_comm *comm, oct_sums *sums)
{
    const request *r = &sums->requests[sums->next];
    sums->sum = (sum){.comm = comm,
                      .out = (char *)r->parts,
                      .n = r->n,
                      .width = sizeof(float),
                      .rows = oct_rows_around(comm, r->parts),
                      .phase = OVER};
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_GRADIENT_SUM));
    OCT_TRY(begin_sum(&sums->sum, &r->leaves, (char *)r->parts, r->stride));
    sums->runs = true;
    return OCT_OK;
}

/* Runs the sums of a lane until one has to wait for other ranks, or all are over. */
static oct_status advance_sums(const oct_comm *comm, oct_sums *sums)
{
    while (sums->next < sums->count) {
        bool moved;
        if (!sums->runs) OCT_TRY(begin_next(comm, sums));
        if (comm->state->pending > 0) OCT_TRY(oct_exchange_look(comm, &moved));
        if (comm->state->pending > 0) return OCT_OK;
        if (sums->sum.phase != OVER) {
            OCT_TRY(run_phase(&sums->sum));
            continue;
        }
        sums->runs = false;
        sums->next++;
    }
    sums->next = sums->count = 0;
    return OCT_OK;
}

/* Where sums of a lane fail, nothing may be exchanged any more elsewhere either. */
static oct_status with_lane(const oct_comm *comm, const oct_comm *lane, oct_status status)
{
    if (lane->state->broken) comm->state->broken = true;
    return status;
}

static oct_status move_lane(const oct_comm *lane)
{
    oct_sums *sums = lane->state->sums;
    if (!sums || sums->count == 0) return OCT_OK;
    const double now = oct_seconds();
    if (now - sums->looked < look_every_s) return OCT_OK;
    sums->looked = now;
    return advance_sums(lane, sums);
}

oct_status oct_comm_sums_move(const oct_collective *self)
{
    const oct_comm *comm = oct_comm_of(self);
    for (const oct_comm *lane = comm->besides; lane; lane = lane->besides)
        OCT_TRY(with_lane(comm, lane, move_lane(lane)));
    return OCT_OK;
}

static oct_status finish_lane(const oct_comm *lane)
{
    oct_sums *sums = lane->state->sums;
    if (!sums) return OCT_OK;
    OCT_TRY(advance_sums(lane, sums));
    while (sums->count > 0) {
        OCT_TRY(oct_exchange_wait(lane, patience(&sums->sum)));
        OCT_TRY(advance_sums(lane, sums));
    }
    return OCT_OK;
}

/* While a lane is waited for, those after it move on. */
oct_status oct_comm_sums_finish(const oct_collective *self)
{
    const oct_comm *comm = oct_comm_of(self);
    comm->state->syncs++;
    for (const oct_comm *lane = comm->besides; lane; lane = lane->besides)
        OCT_TRY(with_lane(comm, lane, finish_lane(lane)));
    return OCT_OK;
}

oct_status oct_comm_sum_begin(const oct_collective *self, const oct_leaves *leaves, float *parts,
                              int64_t stride, int64_t n)
{
    const oct_comm *comm = oct_comm_of(self), *lane = comm->besides;
    for (uint64_t turn = comm->state->sums_begun++ % OCT_SUMS_BESIDES; turn > 0; turn--)
        lane = lane->besides;
    oct_comm_state *state = lane->state;
    OCT_TRY(oct_rows_may_change(comm, parts));
    if (!state->sums) OCT_TRY(oct_alloc(&state->sums, 1, sizeof(*state->sums)));
    oct_sums *sums = state->sums;
    OCT_TRY(oct_grow(&sums->requests, &sums->capacity, sums->count + 1, sizeof(*sums->requests)));
    sums->requests[sums->count++] = (request){*leaves, parts, stride, n};
    return oct_comm_sums_move(self);
}

void oct_sums_free(struct oct_sums **sums)
{
    if (*sums) oct_free(&(*sums)->requests);
    oct_free(sums);
}
