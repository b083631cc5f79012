/* The ranks of a node sum a vector piece by piece: what the two ways of doing that have in common, and the way through
 * slots of memory that they share.
 *
 * Each rank has two slots, which the pieces take in turn, so that one can be filled while the other is read. A rank
 * copies into its slot what the others sum of its vectors: all but its own share of the piece, which no other rank reads.
 * It sums its share, the others' vectors from their slots and its own from where they are. Of a single node it puts the
 * total of its share into the slot of total_rank, from where the others copy it out. Of several nodes it keeps the sums
 * of its shares as its lane; when the rounds have made the total of that, the lanes go back through the slots.
 */
#include "dist/reduce_impl.h"

#include "core/base/int_math.h"

#include <string.h>

/* Finds the parts of the leaves of ranks [first, end). */
int oct_sum_find_parts(const oct_sum *s, int first, int end, oct_leaves *run,
                       oct_subtree parts[OCT_MAX_PARTS])
{
    const int size = s->comm->base.size;
    const oct_leaves *batch = &s->own.run;
    const oct_leaves last = oct_leaves_split(batch->samples, batch->leaf, end - 1, size);
    *run = oct_leaves_split(batch->samples, batch->leaf, first, size);
    run->local = last.first + last.local - run->first;
    return oct_leaves_parts(run, parts);
}

int64_t oct_sum_piece_length(const oct_sum *s)
{
    return oct_min_i64(s->piece_size, s->n - s->piece_begin);
}

oct_piece oct_sum_share(const oct_sum *s)
{
    const oct_rank_node *node = &s->comm->state->node;
    return oct_share(oct_sum_piece_length(s), s->comm->base.rank - node->first, node->ranks);
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
        const int more = oct_sum_find_parts(s, r, r + 1, &run, parts);
        for (int p = 0; p < more; p++, count++) {
            char *vector = r == s->comm->base.rank
                               ? s->own.vectors[p] + oct_sum_bytes(s, s->piece_begin)
                               : part_of(s, r, p);
            state->parts[count] = parts[p];
            state->vectors[count] = vector + oct_sum_bytes(s, share.begin);
        }
    }
    oct_sum_find_parts(s, node->first, node->first + node->ranks, &run, parts);
    return oct_tree_merge(&run, state->parts, state->vectors, count, oct_piece_length(share),
                          s->width);
}

void oct_sum_end_piece(oct_sum *s)
{
    oct_rank_node *node = &s->comm->state->node;
    oct_exchange_signal(s->comm, oct_sum_progress(node->pieces++, OCT_READ));
    s->piece_begin += oct_sum_piece_length(s);
    s->phase = OCT_SUM_CLEAR;
    if (s->piece_begin < s->n) return;
    s->phase = OCT_SUM_DONE;
    if (s->second_pass || oct_sum_num_nodes(s) == 1) return;

    /* The first pass ends: what this rank holds from now on are parts of the node, in its lane. */
    s->own.num_parts =
        oct_sum_find_parts(s, node->first, node->first + node->ranks, &s->own.run, s->own.parts);
    for (int p = 0; p < s->own.num_parts && !s->rows; p++)
        s->own.vectors[p] = s->lane_parts + oct_sum_bytes(s, p * s->lane);
    s->piece_begin = s->lane_used = 0;
    s->second_pass = true;
    s->phase = OCT_SUM_ROUND;
}

/* Where vector p of a rank, over the piece at hand, is in shared memory. A rank's slots take the pieces in turn. */
static char *slot_part(const oct_sum *s, int rank, int p)
{
    const oct_rank_node *node = &s->comm->state->node;
    const size_t slot =
        (size_t)(rank - node->first) * OCT_NODE_SLOTS + node->pieces % OCT_NODE_SLOTS;
    return node->slots + slot * node->slot_bytes +
           (size_t)p * oct_sum_bytes(s, oct_sum_piece_length(s));
}

/* Copies a vector of the piece at hand but for this rank's share of it. */
static void copy_others(const oct_sum *s, char *to, const char *from)
{
    const oct_piece share = oct_sum_share(s);
    const size_t begin = oct_sum_bytes(s, share.begin), end = oct_sum_bytes(s, share.end);
    memcpy(to, from, begin);
    memcpy(to + end, from + end, oct_sum_bytes(s, oct_sum_piece_length(s)) - end);
}

static void fill_slot(oct_sum *s)
{
    const oct_piece share = oct_sum_share(s);
    if (s->second_pass) {
        memcpy(slot_part(s, s->total_rank, 0) + oct_sum_bytes(s, share.begin),
               s->lane_total + oct_sum_bytes(s, s->lane_used),
               oct_sum_bytes(s, oct_piece_length(share)));
        s->lane_used += oct_piece_length(share);
        return;
    }
    for (int p = 0; p < s->own.num_parts; p++)
        copy_others(s, slot_part(s, s->comm->base.rank, p),
                    s->own.vectors[p] + oct_sum_bytes(s, s->piece_begin));
}

/* Gives the total of this rank's share to the others, and to itself. */
static void give_total(const oct_sum *s)
{
    const oct_piece share = oct_sum_share(s);
    const char *total = s->comm->state->vectors[0];
    char *to[] = {slot_part(s, s->total_rank, 0) + oct_sum_bytes(s, share.begin),
                  s->out + oct_sum_bytes(s, s->piece_begin + share.begin)};
    for (int i = 0; i < 2; i++)
        if (to[i] != total) memcpy(to[i], total, oct_sum_bytes(s, oct_piece_length(share)));
}

static void append_to_lane(oct_sum *s, int parts)
{
    const int64_t length = oct_piece_length(oct_sum_share(s));
    for (int p = 0; p < parts; p++)
        memcpy(s->lane_parts + oct_sum_bytes(s, p * s->lane + s->lane_used),
               s->comm->state->vectors[p], oct_sum_bytes(s, length));
    s->lane_used += length;
}

/* Of several nodes all shares are in the slot; of a single one this rank has written its own to `out`. */
static void read_total(const oct_sum *s)
{
    char *out = s->out + oct_sum_bytes(s, s->piece_begin);
    const char *total = slot_part(s, s->total_rank, 0);
    if (s->second_pass)
        memcpy(out, total, oct_sum_bytes(s, oct_sum_piece_length(s)));
    else
        copy_others(s, out, total);
}

oct_status oct_sum_run_slots(oct_sum *s)
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
        const int parts = oct_sum_add_share(s, slot_part);
        if (oct_sum_num_nodes(s) == 1) {
            give_total(s);
            s->phase = OCT_SUM_READ;
            return oct_sum_synchronize(s, OCT_SUMMED);
        }
        append_to_lane(s, parts);
        oct_sum_end_piece(s);
        return OCT_OK;
    }
    default:
        read_total(s);
        oct_sum_end_piece(s);
        return OCT_OK;
    }
}
