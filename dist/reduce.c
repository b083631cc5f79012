/* Leaves are summed along the fixed tree, for any number of ranks.
 *
 * First the ranks of a node sum what they have, in memory that they share, each its share of the vector. With a single
 * node they then have the total. With several nodes each rank goes on with its shares (its lane), which it sums with the
 * same rank of the other nodes in the rounds of rounds.h; then the node puts its lanes together.
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
#include "dist/reduce_impl.h"

#include "core/base/mem.h"

#include <string.h>

/* Below, the time of a message counts more than its bytes. */
static const size_t short_vector_bytes = 16384;

/* --- between nodes ----------------------------------------------------------------------------- */

/* Says what the nodes of a round's other half hold. */
static void find_other(const oct_sum *s, const oct_round *round, oct_holding *other)
{
    const int ranks = s->comm->state->node.ranks;
    other->num_parts =
        oct_sum_find_parts(s, round->first * ranks, round->end * ranks, &other->run, other->parts);
}

/* The rank of a partner's node that is at the place of this one in its node. */
static int peer_of(const oct_sum *s, const oct_partner *partner)
{
    const oct_rank_node *node = &s->comm->state->node;
    return partner->rank * node->ranks + s->comm->base.rank - node->first;
}

static oct_status exchange_parts(oct_sum *s, const oct_round *round)
{
    oct_holding *other = &s->other;
    find_other(s, round, other);
    for (int p = 0; p < other->num_parts; p++) {
        other->vectors[p] = s->scratch;
        s->scratch += oct_sum_bytes(s, oct_piece_length(round->keeps));
    }
    for (int i = 0; i < round->num_partners; i++) {
        const oct_partner *with = &round->partner[i];
        const int peer = peer_of(s, with);
        const size_t takes = oct_sum_bytes(s, oct_piece_length(with->takes)),
                     gives = oct_sum_bytes(s, oct_piece_length(with->gives)),
                     takes_at = oct_sum_bytes(s, with->takes.begin - round->keeps.begin),
                     gives_at = oct_sum_bytes(s, with->gives.begin - s->piece.begin);
        for (int p = 0; p < other->num_parts && takes > 0; p++)
            OCT_TRY(oct_exchange_receive(s->comm, peer, other->vectors[p] + takes_at, takes));
        for (int p = 0; p < s->own.num_parts && gives > 0; p++)
            OCT_TRY(oct_exchange_send(s->comm, peer, s->own.vectors[p] + gives_at, gives));
    }
    return OCT_OK;
}

/* Adds what has come to what this rank holds: the parts of both runs become those of one. */
static void merge_parts(oct_sum *s, const oct_round *round)
{
    const bool below = s->other.run.first < s->own.run.first;
    const oct_holding *halves[] = {below ? &s->other : &s->own, below ? &s->own : &s->other};
    oct_subtree parts[2 * OCT_MAX_PARTS];
    void *vectors[2 * OCT_MAX_PARTS];
    int count = 0;
    for (int p = 0; p < s->own.num_parts; p++)
        s->own.vectors[p] += oct_sum_bytes(s, round->keeps.begin - s->piece.begin);
    s->piece = round->keeps;
    for (int h = 0; h < 2; h++)
        for (int p = 0; p < halves[h]->num_parts; p++, count++) {
            parts[count] = halves[h]->parts[p];
            vectors[count] = halves[h]->vectors[p];
        }
    s->own.run.first = halves[0]->run.first;
    s->own.run.local += s->other.run.local;
    s->own.num_parts =
        oct_tree_merge(&s->own.run, parts, vectors, count, oct_piece_length(s->piece), s->width);
    for (int p = 0; p < s->own.num_parts; p++) {
        s->own.parts[p] = parts[p];
        s->own.vectors[p] = vectors[p];
    }
}

/* After the rounds this rank holds the total of its piece as its only part, which may not be in its place yet. */
static void place_total(const oct_sum *s)
{
    const char *total = s->own.vectors[0];
    char *place = s->lane_total + oct_sum_bytes(s, s->piece.begin);
    OCT_ASSERT(s->own.num_parts == 1);
    if (total != place) memcpy(place, total, oct_sum_bytes(s, oct_piece_length(s->piece)));
}

/* A round backwards: what was given comes back summed, for what was taken. */
static oct_status exchange_sums(const oct_sum *s, const oct_round *round)
{
    for (int i = 0; i < round->num_partners; i++) {
        const oct_partner *with = &round->partner[i];
        const int peer = peer_of(s, with);
        OCT_TRY(oct_exchange_receive(s->comm, peer,
                                     s->lane_total + oct_sum_bytes(s, with->gives.begin),
                                     oct_sum_bytes(s, oct_piece_length(with->gives))));
        OCT_TRY(oct_exchange_send(s->comm, peer,
                                  s->lane_total + oct_sum_bytes(s, with->takes.begin),
                                  oct_sum_bytes(s, oct_piece_length(with->takes))));
    }
    return OCT_OK;
}

/* --- one after another ------------------------------------------------------------------------- */

oct_status oct_sum_run_phase(oct_sum *s)
{
    switch (s->phase) {
    case OCT_SUM_CLEAR:
    case OCT_SUM_FILL:
    case OCT_SUM_MERGE:
    case OCT_SUM_READ:
        return s->run_in_node(s);
    case OCT_SUM_ROUND:
        s->phase = s->round < s->num_rounds ? OCT_SUM_FOLD : OCT_SUM_SPREAD;
        if (s->phase == OCT_SUM_FOLD) return exchange_parts(s, &s->rounds[s->round]);
        place_total(s);
        return OCT_OK;
    case OCT_SUM_FOLD:
        merge_parts(s, &s->rounds[s->round++]);
        s->phase = OCT_SUM_ROUND;
        return OCT_OK;
    case OCT_SUM_SPREAD:
        if (s->halves && s->round > 0) return exchange_sums(s, &s->rounds[--s->round]);
        s->phase = s->run_in_node ? OCT_SUM_CLEAR : OCT_SUM_DONE;
        return OCT_OK;
    case OCT_SUM_DONE:
        break;
    }
    return OCT_OK;
}

int oct_sum_patience(const oct_sum *s)
{
    const int in_node = s->run_in_node ? 2 : 0;
    if (s->phase == OCT_SUM_FOLD) return in_node + s->round + 1;
    if (s->phase == OCT_SUM_SPREAD) return in_node + 2 * s->num_rounds - s->round;
    if (s->second_pass) return in_node + 2 * s->num_rounds + 1;
    return s->phase == OCT_SUM_READ ? 2 : 1;
}

/* --- begin ------------------------------------------------------------------------------------- */

/* Returns the most parts that a rank has of this batch. */
static int most_parts(const oct_sum *s)
{
    oct_comm_state *state = s->comm->state;
    const oct_leaves *batch = &s->own.run;
    oct_subtree parts[OCT_MAX_PARTS];
    oct_leaves run;
    if (state->most_samples == batch->samples && state->most_leaf == batch->leaf)
        return state->most_parts;
    state->most_parts = 1;
    for (int r = 0; r < s->comm->base.size; r++) {
        const int count = oct_sum_find_parts(s, r, r + 1, &run, parts);
        if (count > state->most_parts) state->most_parts = count;
    }
    state->most_samples = batch->samples;
    state->most_leaf = batch->leaf;
    return state->most_parts;
}

/* A slot has room for a piece of each part that a rank may have. Rows are one piece. */
static oct_status plan_pieces(oct_sum *s)
{
    oct_comm_state *state = s->comm->state;
    const oct_rank_node *node = &state->node;
    const size_t most = (size_t)most_parts(s), parts = most * (size_t)node->ranks;
    s->piece_size = s->n;
    if (!s->rows)
        s->piece_size =
            (int64_t)(node->slot_bytes / (most * s->width)) / OCT_PIECE_STEP * OCT_PIECE_STEP;
    s->lane = 0;
    for (s->piece_begin = 0; s->piece_begin < s->n; s->piece_begin += s->piece_size)
        s->lane += oct_piece_length(oct_sum_share(s));
    s->piece_begin = 0;
    s->total_rank = oct_rows_holder(s->comm, &s->own.run);
    s->run_in_node = s->rows ? oct_sum_run_rows : oct_sum_run_slots;
    s->phase = OCT_SUM_CLEAR;
    OCT_TRY(oct_grow(&state->parts, &state->parts_capacity, parts, sizeof(*state->parts)));
    return oct_grow(&state->vectors, &state->vectors_capacity, parts, sizeof(*state->vectors));
}

/* Scratch: the lane's total and its parts, where they are not in rows or in the vectors themselves; then what comes in
 * the rounds. */
static oct_status reserve_scratch(oct_sum *s)
{
    oct_comm_state *state = s->comm->state;
    const oct_rank_node *node = &state->node;
    oct_leaves run;
    const bool copied = s->run_in_node && !s->rows && oct_sum_num_nodes(s) > 1;
    const size_t lane = copied ? oct_sum_bytes(s, s->lane) : 0;
    const int parts =
        oct_sum_find_parts(s, node->first, node->first + node->ranks, &run, s->other.parts);
    size_t bytes = (size_t)(parts + 1) * lane + OCT_PIECE_STEP;
    for (int r = 0; r < s->num_rounds; r++) {
        find_other(s, &s->rounds[r], &s->other);
        bytes +=
            (size_t)s->other.num_parts * oct_sum_bytes(s, oct_piece_length(s->rounds[r].keeps));
    }
    OCT_TRY(oct_grow(&state->scratch, &state->scratch_capacity, bytes, 1));
    s->lane_total = s->run_in_node ? state->scratch : s->out;
    s->lane_parts = state->scratch + lane;
    s->scratch = state->scratch + (size_t)(parts + 1) * lane;
    return OCT_OK;
}

oct_status oct_sum_begin(oct_sum *s, const oct_leaves *leaves, char *parts, int64_t stride)
{
    const oct_comm *comm = s->comm;
    const oct_rank_node *node = &comm->state->node;
    s->own.run = *leaves;
    s->own.num_parts =
        oct_sum_find_parts(s, comm->base.rank, comm->base.rank + 1, &s->own.run, s->own.parts);
    OCT_CHECK(s->own.run.first == leaves->first && s->own.run.local == leaves->local, OCT_DEFECT,
              "rank %d sums leaves that are not its share of the batch", comm->base.rank);
    s->stride = oct_sum_bytes(s, stride);
    for (int p = 0; p < s->own.num_parts; p++)
        s->own.vectors[p] = parts + (size_t)p * s->stride;
    s->phase = OCT_SUM_DONE;
    if (s->n == 0) return OCT_OK;
    if (leaves->count == 0) {
        memset(s->out, 0, oct_sum_bytes(s, s->n));
        return OCT_OK;
    }
    oct_exchange_announce(comm, oct_sum_bytes(s, s->n) + (s->rows != NULL));
    s->lane = s->n;
    s->phase = OCT_SUM_ROUND;
    if (node->memory) OCT_TRY(plan_pieces(s));
    s->halves = oct_sum_bytes(s, s->lane) >= short_vector_bytes;
    s->num_rounds = oct_rounds(comm->base.rank / node->ranks, oct_sum_num_nodes(s), s->lane,
                               s->halves, s->rounds);
    s->piece = (oct_piece){0, s->lane};
    return reserve_scratch(s);
}
