/* Leaves are summed along the fixed tree, for any number of ranks, in the rounds of rounds.h.
 *
 * A rank holds sums over a run of leaves: its own at first, one vector for each maximal aligned subtree
 * of the run (a part). In each round it takes the parts of the neighbouring run and joins them with its
 * own along the tree, over the piece of the vector that it keeps. Where the ranks' shares of the leaves are
 * aligned, each has one part and the traffic is that of the best allreduce: two vectors. Elsewhere the
 * first rounds carry a few parts instead of one. Who holds which parts follows from the batch alone, so
 * nothing is negotiated.
 *
 * Pieces change no bit: the tree is the same for every element.
 */
#include "core/base/mem.h"
#include "dist/comm_impl.h"
#include "dist/rounds.h"

#include <string.h>

/* Below, the time of a message counts more than its bytes. */
static const size_t short_vector_bytes = 16384;

/* Parts of a run of leaves, over a piece of the vector. */
typedef struct holding {
    oct_leaves run;
    int num_parts;
    oct_subtree parts[OCT_MAX_PARTS];
    char *vectors[OCT_MAX_PARTS];
} holding;

/* A sum sees its vectors as bytes, `width` bytes an element. */
typedef struct sum {
    const oct_comm *comm;
    char *out;
    int64_t n;
    size_t width;
    bool halves;
    oct_round rounds[OCT_MAX_ROUNDS];
    int num_rounds;
    oct_piece piece;
    holding own, other; /* of this rank, and what comes from the other half in a round */
    char *scratch;      /* not used yet */
} sum;

static size_t bytes_of(const sum *s, int64_t elements)
{
    return (size_t)elements * s->width;
}

static int64_t length(oct_piece range)
{
    return range.end - range.begin;
}

/* Finds the parts of the leaves of ranks [first, end). */
static void find_parts(const sum *s, int first, int end, holding *held)
{
    const int size = s->comm->base.size;
    const oct_leaves *batch = &s->own.run;
    held->run = oct_leaves_split(batch->samples, batch->leaf, first, size);
    const oct_leaves last = oct_leaves_split(batch->samples, batch->leaf, end - 1, size);
    held->run.local = last.first + last.local - held->run.first;
    held->num_parts = oct_leaves_parts(&held->run, held->parts);
}

static oct_status reserve_scratch(sum *s)
{
    oct_comm_state *state = s->comm->state;
    size_t bytes = 0;
    for (int r = 0; r < s->num_rounds; r++) {
        find_parts(s, s->rounds[r].first, s->rounds[r].end, &s->other);
        bytes += (size_t)s->other.num_parts * bytes_of(s, length(s->rounds[r].keeps));
    }
    OCT_TRY(oct_grow(&state->scratch, &state->scratch_capacity, bytes, 1));
    s->scratch = state->scratch;
    return OCT_OK;
}

static oct_status begin(sum *s, const oct_leaves *leaves, char *parts)
{
    const int rank = s->comm->base.rank, size = s->comm->base.size;
    s->own.run = *leaves;
    find_parts(s, rank, rank + 1, &s->own);
    OCT_CHECK(s->own.run.first == leaves->first && s->own.run.local == leaves->local, OCT_DEFECT,
              "rank %d sums leaves that are not its share of the batch", rank);
    for (int p = 0; p < s->own.num_parts; p++)
        s->own.vectors[p] = parts + (size_t)p * bytes_of(s, s->n);
    s->halves = bytes_of(s, s->n) >= short_vector_bytes;
    s->num_rounds = oct_rounds(rank, size, s->n, s->halves, s->rounds);
    s->piece = (oct_piece){0, s->n};
    return reserve_scratch(s);
}

static oct_status exchange_parts(sum *s, const oct_round *round)
{
    holding *other = &s->other;
    find_parts(s, round->first, round->end, other);
    for (int p = 0; p < other->num_parts; p++, s->scratch += bytes_of(s, length(round->keeps)))
        other->vectors[p] = s->scratch;
    for (int i = 0; i < round->num_partners; i++) {
        const oct_partner *with = &round->partner[i];
        const size_t takes = bytes_of(s, length(with->takes)),
                     gives = bytes_of(s, length(with->gives));
        for (int p = 0; p < other->num_parts && takes > 0; p++)
            OCT_TRY(oct_exchange_receive(
                s->comm, with->rank,
                other->vectors[p] + bytes_of(s, with->takes.begin - round->keeps.begin), takes));
        for (int p = 0; p < s->own.num_parts && gives > 0; p++)
            OCT_TRY(oct_exchange_send(
                s->comm, with->rank,
                s->own.vectors[p] + bytes_of(s, with->gives.begin - s->piece.begin), gives));
    }
    return OCT_OK;
}

/* Joins what has come with what this rank holds: the parts of both runs become those of one. */
static void join_parts(sum *s, const oct_round *round)
{
    const bool below = round->first < s->comm->base.rank;
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
        oct_tree_join(&s->own.run, parts, vectors, count, length(s->piece), s->width);
    for (int p = 0; p < s->own.num_parts; p++) {
        s->own.parts[p] = parts[p];
        s->own.vectors[p] = vectors[p];
    }
}

/* What was given comes back summed, for what was taken. */
static oct_status exchange_sums(const sum *s, const oct_round *round)
{
    for (int i = 0; i < round->num_partners; i++) {
        const oct_partner *with = &round->partner[i];
        OCT_TRY(oct_exchange_receive(s->comm, with->rank, s->out + bytes_of(s, with->gives.begin),
                                     bytes_of(s, length(with->gives))));
        OCT_TRY(oct_exchange_send(s->comm, with->rank, s->out + bytes_of(s, with->takes.begin),
                                  bytes_of(s, length(with->takes))));
    }
    return OCT_OK;
}

static void settle(const sum *s)
{
    char *total = s->out + bytes_of(s, s->piece.begin);
    OCT_ASSERT(s->own.num_parts == 1);
    if (s->own.vectors[0] != total) memcpy(total, s->own.vectors[0], bytes_of(s, length(s->piece)));
}

static oct_status tree_sum(sum *s, const oct_leaves *leaves, char *parts)
{
    OCT_TRY(oct_exchange_begin(s->comm, OCT_EXCHANGE_TREE_SUM));
    OCT_TRY(begin(s, leaves, parts));
    if (leaves->count == 0) {
        memset(s->out, 0, bytes_of(s, s->n));
        return OCT_OK;
    }
    for (int r = 0; r < s->num_rounds; r++) {
        OCT_TRY(exchange_parts(s, &s->rounds[r]));
        OCT_TRY(oct_exchange_wait(s->comm, r + 1));
        join_parts(s, &s->rounds[r]);
    }
    settle(s);
    for (int r = s->num_rounds - 1; r >= 0 && s->halves; r--) {
        OCT_TRY(exchange_sums(s, &s->rounds[r]));
        OCT_TRY(oct_exchange_wait(s->comm, 2 * s->num_rounds - r));
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
