/* Leaves are summed along the fixed tree, for any number of ranks.
 *
 * First the ranks of a node sum what they have, in memory that they share, each its share of the vector. With a single
 * node they then have the total. With several nodes each rank goes on with its shares (its lane), which it sums with the
 * same rank of the other nodes in the rounds of rounds.h; then the node puts its lanes together.
 *
 * A rank holds sums over a run of leaves: its own at first, one vector for each maximal aligned subtree of the run (a
 * part). In each round it takes the parts of the neighbouring run and adds them to its own along the tree, over the
 * piece of the vector that it keeps. Where the shares of the leaves are aligned, each has one part and the traffic is
 * that of the best allreduce: two vectors. Elsewhere the first rounds carry a few parts instead of one. Who holds
 * which parts follows from the batch alone, so nothing is negotiated.
 *
 * In a node a vector is summed where it is (rows, sums.c), or piece by piece through slots of memory that the ranks
 * share: two a rank, which the pieces take in turn, so that one can be filled while the other is read. A rank copies
 * into its slot what the others sum of its vectors: all but its own share of the piece, which no other rank reads. It
 * sums its share, the others' vectors from their slots and its own from where they are. Of a single node it puts the
 * total of its share into the slot of total_rank, from where the others copy it out. Of several nodes it keeps the
 * sums of its shares as its lane; when the rounds have made the total of that, the lanes go back through the slots.
 *
 * Pieces change no bit: the tree is the same for every element. */
#include "dist/reduce_impl.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <string.h>

/* Below, the time of a message counts more than its bytes. */
static const size_t short_vector_bytes = 16384;

/* --- in a node ----------------------------------------------------------------------------- */

/* Finds the parts (maximal aligned subtrees) of the leaves of ranks [first, end), which are *run; returns how many. */
static int find_parts(const oct_sum *s, int first, int end, oct_leaves *run,
                      oct_subtree parts[OCT_MAX_PARTS])
{
    const int size = s->comm->base.size;
    const oct_leaves *batch = &s->own.run;
    const oct_leaves last = oct_leaves_split(batch->samples, batch->leaf, end - 1, size);
    *run = oct_leaves_split(batch->samples, batch->leaf, first, size);
    run->local = last.first + last.local - run->first;
    return oct_leaves_parts(run, parts);
}

/* The elements of the piece at hand; the last piece of a vector may be shorter. */
static int64_t current_piece_length(const oct_sum *s)
{
    return oct_min_i64(s->piece_size, s->n - s->piece_begin);
}

oct_piece oct_sum_share(const oct_sum *s)
{
    const oct_rank_node *node = &s->comm->state->node;
    return oct_share(current_piece_length(s), s->comm->base.rank - node->first, node->ranks);
}

oct_status oct_sum_synchronize(const oct_sum *s, oct_sum_stage stage)
{
    const uint64_t progress = oct_sum_progress(s->comm->state->node.pieces, stage);
    oct_exchange_signal(s->comm, progress);
    return oct_exchange_await(s->comm, progress);
}

int oct_sum_add_share(const oct_sum *s, char *(*part_of)(const oct_sum *s, int rank, int p))
{
    oct_comm_state *state = s->comm->state;
    const oct_rank_node *node = &state->node;
    const oct_piece share = oct_sum_share(s);
    oct_subtree parts[OCT_MAX_PARTS];
    oct_leaves run;
    int count = 0;
    for (int r = node->first; r < node->first + node->ranks; r++) {
        const int more = find_parts(s, r, r + 1, &run, parts);
        for (int p = 0; p < more; p++, count++) {
            char *vector = r == s->comm->base.rank
                               ? s->own.vectors[p] + oct_sum_bytes(s, s->piece_begin)
                               : part_of(s, r, p);
            state->parts[count] = parts[p];
            state->vectors[count] = vector + oct_sum_bytes(s, share.begin);
        }
    }
    find_parts(s, node->first, node->first + node->ranks, &run, parts);
    return oct_tree_merge(&run, state->parts, state->vectors, count, oct_piece_length(share),
                          s->width);
}

void oct_sum_end_piece(oct_sum *s)
{
    oct_rank_node *node = &s->comm->state->node;
    oct_exchange_signal(s->comm, oct_sum_progress(node->pieces++, OCT_READ));
    s->piece_begin += current_piece_length(s);
    s->phase = OCT_SUM_CLEAR;
    if (s->piece_begin < s->n) return;
    s->phase = OCT_SUM_DONE;
    if (s->second_pass || oct_sum_num_nodes(s) == 1) return;

    /* The first pass ends: what this rank holds from now on are parts of the node, in its lane. */
    s->own.num_parts =
        find_parts(s, node->first, node->first + node->ranks, &s->own.run, s->own.parts);
    for (int p = 0; p < s->own.num_parts && !s->rows; p++)
        s->own.vectors[p] = s->lane_parts + oct_sum_bytes(s, p * s->lane);
    s->piece_begin = s->lane_used = 0;
    s->second_pass = true;
    s->phase = OCT_SUM_ROUND;
}

/* A sum writes its total into the slots or rows of the first rank of the node that has leaves. */
int oct_sum_total_rank(const oct_comm *comm, const oct_leaves *leaves)
{
    const oct_rank_node *node = &comm->state->node;
    int rank = node->first;
    while (rank + 1 < node->first + node->ranks &&
           oct_leaves_split(leaves->samples, leaves->leaf, rank, comm->base.size).local == 0)
        rank++;
    return rank;
}

/* Through slots. */

/* Where vector p of a rank, over the piece at hand, is in shared memory. A rank's slots take the pieces in turn. */
static char *slot_vector(const oct_sum *s, int rank, int p)
{
    const oct_rank_node *node = &s->comm->state->node;
    const size_t slot =
        (size_t)(rank - node->first) * OCT_NODE_SLOTS + node->pieces % OCT_NODE_SLOTS;
    return node->slots + slot * node->slot_bytes +
           (size_t)p * oct_sum_bytes(s, current_piece_length(s));
}

/* Copies a vector of the piece at hand except for this rank's share of it. */
static void copy_shares_of_others(const oct_sum *s, char *to, const char *from)
{
    const oct_piece share = oct_sum_share(s);
    const size_t begin = oct_sum_bytes(s, share.begin), end = oct_sum_bytes(s, share.end);
    memcpy(to, from, begin);
    memcpy(to + end, from + end, oct_sum_bytes(s, current_piece_length(s)) - end);
}

/* Shows the others what they need of this rank: of its vectors all but its own share; in the second pass its share of
 * the total. */
static void fill_slot(oct_sum *s)
{
    const oct_piece share = oct_sum_share(s);
    if (s->second_pass) {
        memcpy(slot_vector(s, s->total_rank, 0) + oct_sum_bytes(s, share.begin),
               s->lane_total + oct_sum_bytes(s, s->lane_used),
               oct_sum_bytes(s, oct_piece_length(share)));
        s->lane_used += oct_piece_length(share);
        return;
    }
    for (int p = 0; p < s->own.num_parts; p++)
        copy_shares_of_others(s, slot_vector(s, s->comm->base.rank, p),
                              s->own.vectors[p] + oct_sum_bytes(s, s->piece_begin));
}

/* Copies the total of this rank's share to its slot in shared memory, where the others read it, and to its own
 * output; the last sum may have left it in one of these. */
static void give_total(const oct_sum *s)
{
    const oct_piece share = oct_sum_share(s);
    const char *total = s->comm->state->vectors[0];
    char *to[] = {slot_vector(s, s->total_rank, 0) + oct_sum_bytes(s, share.begin),
                  s->out + oct_sum_bytes(s, s->piece_begin + share.begin)};
    for (int i = 0; i < 2; i++)
        if (to[i] != total) memcpy(to[i], total, oct_sum_bytes(s, oct_piece_length(share)));
}

/* Copies the total of the piece from the slot to `out`; of a single node this rank's share is in `out` already. */
static void read_total(const oct_sum *s)
{
    char *out = s->out + oct_sum_bytes(s, s->piece_begin);
    const char *total = slot_vector(s, s->total_rank, 0);
    if (s->second_pass)
        memcpy(out, total, oct_sum_bytes(s, current_piece_length(s)));
    else
        copy_shares_of_others(s, out, total);
}

/* Runs the next phase of a piece in the node, through slots of shared memory. */
static oct_status run_phase_in_slots(oct_sum *s)
{
    const uint64_t piece = s->comm->state->node.pieces;
    switch ((int)s->phase) {
    case OCT_SUM_CLEAR: /* the piece that had this slot before has been read */
        s->phase = OCT_SUM_FILL;
        return piece < OCT_NODE_SLOTS
                   ? OCT_OK
                   : oct_exchange_await(s->comm,
                                        oct_sum_progress(piece - OCT_NODE_SLOTS, OCT_READ));
    case OCT_SUM_FILL:
        fill_slot(s);
        s->phase = s->second_pass ? OCT_SUM_READ : OCT_SUM_MERGE;
        return oct_sum_synchronize(s, OCT_FILLED);
    case OCT_SUM_MERGE: {
        const int parts = oct_sum_add_share(s, slot_vector);
        if (oct_sum_num_nodes(s) == 1) {
            give_total(s);
            s->phase = OCT_SUM_READ;
            return oct_sum_synchronize(s, OCT_SUMMED);
        }
        const int64_t length = oct_piece_length(oct_sum_share(s));
        for (int p = 0; p < parts; p++) /* the sums of the share go on in the lane */
            memcpy(s->lane_parts + oct_sum_bytes(s, p * s->lane + s->lane_used),
                   s->comm->state->vectors[p], oct_sum_bytes(s, length));
        s->lane_used += length;
        oct_sum_end_piece(s);
        return OCT_OK;
    }
    default:
        read_total(s);
        oct_sum_end_piece(s);
        return OCT_OK;
    }
}

/* --- between nodes ----------------------------------------------------------------------------- */

/* Finds which leaves the nodes of a round's other half hold, in how many parts. */
static void find_parts_of_other_half(const oct_sum *s, const oct_round *round, oct_holding *other)
{
    const int ranks = s->comm->state->node.ranks;
    other->num_parts =
        find_parts(s, round->first * ranks, round->end * ranks, &other->run, other->parts);
}

/* rounds.h counts nodes here: a rank exchanges with the rank of the partner's node that has the same position in it. */
static int rank_of_partner(const oct_sum *s, const oct_partner *partner)
{
    const oct_rank_node *node = &s->comm->state->node;
    return partner->rank * node->ranks + s->comm->base.rank - node->first;
}

/* Posts the messages of a round: this rank gives a partner its parts over the piece that the partner keeps, and
 * takes the partner's parts over the piece that it keeps itself. */
static oct_status exchange_parts(oct_sum *s, const oct_round *round)
{
    oct_holding *other = &s->other;
    find_parts_of_other_half(s, round, other);
    for (int p = 0; p < other->num_parts; p++) {
        other->vectors[p] = s->scratch;
        s->scratch += oct_sum_bytes(s, oct_piece_length(round->keeps));
    }
    for (int i = 0; i < round->num_partners; i++) {
        const oct_partner *partner = &round->partner[i];
        const int peer = rank_of_partner(s, partner);
        const size_t takes = oct_sum_bytes(s, oct_piece_length(partner->takes)),
                     gives = oct_sum_bytes(s, oct_piece_length(partner->gives)),
                     takes_at = oct_sum_bytes(s, partner->takes.begin - round->keeps.begin),
                     gives_at = oct_sum_bytes(s, partner->gives.begin - s->piece.begin);
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

/* A round backwards: a partner returns the total of what it was given, and gets that of what was taken from it. */
static oct_status exchange_totals(const oct_sum *s, const oct_round *round)
{
    for (int i = 0; i < round->num_partners; i++) {
        const oct_partner *partner = &round->partner[i];
        const int peer = rank_of_partner(s, partner);
        OCT_TRY(oct_exchange_receive(s->comm, peer,
                                     s->lane_total + oct_sum_bytes(s, partner->gives.begin),
                                     oct_sum_bytes(s, oct_piece_length(partner->gives))));
        OCT_TRY(oct_exchange_send(s->comm, peer,
                                  s->lane_total + oct_sum_bytes(s, partner->takes.begin),
                                  oct_sum_bytes(s, oct_piece_length(partner->takes))));
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
    case OCT_SUM_ROUND: {
        s->phase = s->round < s->num_rounds ? OCT_SUM_FOLD : OCT_SUM_SPREAD;
        if (s->phase == OCT_SUM_FOLD) return exchange_parts(s, &s->rounds[s->round]);
        /* After the rounds this rank holds the total of its piece as its only part, which may not be in its place
         * yet. */
        OCT_ASSERT(s->own.num_parts == 1);
        char *place = s->lane_total + oct_sum_bytes(s, s->piece.begin);
        if (s->own.vectors[0] != place)
            memcpy(place, s->own.vectors[0], oct_sum_bytes(s, oct_piece_length(s->piece)));
        return OCT_OK;
    }
    case OCT_SUM_FOLD:
        merge_parts(s, &s->rounds[s->round++]);
        s->phase = OCT_SUM_ROUND;
        return OCT_OK;
    case OCT_SUM_SPREAD:
        if (s->halves && s->round > 0) return exchange_totals(s, &s->rounds[--s->round]);
        s->phase = s->run_in_node ? OCT_SUM_CLEAR : OCT_SUM_DONE;
        return OCT_OK;
    case OCT_SUM_DONE:
        break;
    }
    return OCT_OK;
}

/* Counts the waits of other ranks that may come before the one at hand can end: in the node for the vectors and for
 * their sums, then one for each round there and back. */
int oct_sum_patience(const oct_sum *s)
{
    const int in_node = s->run_in_node ? 2 : 0;
    if (s->phase == OCT_SUM_FOLD) return in_node + s->round + 1;
    if (s->phase == OCT_SUM_SPREAD) return in_node + 2 * s->num_rounds - s->round;
    if (s->second_pass) return in_node + 2 * s->num_rounds + 1;
    return s->phase == OCT_SUM_READ ? 2 : 1;
}

/* --- begin ------------------------------------------------------------------------------------- */

/* Returns the most parts that a rank has of this batch; kept for the next sum, which is mostly of the same batch. */
static int most_parts_of_rank(const oct_sum *s)
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

/* Cuts the vector so that a slot has room for a piece of each part that a rank may have. Rows are one piece. */
static oct_status plan_pieces(oct_sum *s)
{
    oct_comm_state *state = s->comm->state;
    const oct_rank_node *node = &state->node;
    const size_t most = (size_t)most_parts_of_rank(s), parts = most * (size_t)node->ranks;
    s->piece_size = s->n;
    if (!s->rows)
        s->piece_size =
            (int64_t)(node->slot_bytes / (most * s->width)) / OCT_PIECE_STEP * OCT_PIECE_STEP;
    s->lane = 0;
    for (s->piece_begin = 0; s->piece_begin < s->n; s->piece_begin += s->piece_size)
        s->lane += oct_piece_length(oct_sum_share(s));
    s->piece_begin = 0;
    s->total_rank = oct_sum_total_rank(s->comm, &s->own.run);
    if (!s->run_in_node) s->run_in_node = run_phase_in_slots;
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
    const int parts = find_parts(s, node->first, node->first + node->ranks, &run, s->other.parts);
    size_t bytes = (size_t)(parts + 1) * lane + OCT_PIECE_STEP;
    for (int r = 0; r < s->num_rounds; r++) {
        find_parts_of_other_half(s, &s->rounds[r], &s->other);
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
        find_parts(s, comm->base.rank, comm->base.rank + 1, &s->own.run, s->own.parts);
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
    /* One more for rows, so that a rank that sums in slots is found. */
    oct_exchange_announce(comm, oct_sum_bytes(s, s->n) + (s->rows != NULL));
    s->lane = s->n; /* elements that go through the rounds */
    s->phase = OCT_SUM_ROUND;
    if (node->memory) OCT_TRY(plan_pieces(s));
    s->halves = oct_sum_bytes(s, s->lane) >= short_vector_bytes;
    s->num_rounds = oct_rounds(comm->base.rank / node->ranks, oct_sum_num_nodes(s), s->lane,
                               s->halves, s->rounds);
    s->piece = (oct_piece){0, s->lane};
    return reserve_scratch(s);
}
