/* Leaves are summed along the fixed tree, for any number of ranks.
 *
 * The vector is cut into one chunk for each rank. Every rank sends each owner the owner's chunk of
 * its parts (whole aligned subtrees); the owner joins the parts of all ranks along the tree and
 * sends the sum to everybody. Who holds which parts follows from the batch alone, so nothing is
 * negotiated. For a power of two of ranks each has one part and the traffic is that of the best
 * allreduce: two vectors. Short vectors have one owner, rank 0, since there latency is all.
 *
 * Chunks change no bit: the tree is the same for every element.
 */
#include "core/base/mem.h"
#include "dist/comm_impl.h"

#include <string.h>

static const size_t short_vector_bytes = 2048;

enum { CHUNK_STEP = 16 }; /* chunks begin at multiples, so no cache line has two owners */

/* A sum sees its vectors as bytes, `width` bytes an element. */
typedef struct sum_job {
    const oct_comm *comm;
    char *parts, *out;
    int64_t n;
    size_t width;
} sum_job;

static int64_t chunk_begin(const sum_job *sum, int owner)
{
    if ((size_t)sum->n * sum->width < short_vector_bytes) return owner == 0 ? 0 : sum->n;
    int64_t steps = (sum->n + CHUNK_STEP - 1) / CHUNK_STEP;
    int64_t begin = steps * owner / sum->comm->base.size * CHUNK_STEP;
    return begin < sum->n ? begin : sum->n;
}

static size_t chunk_bytes(const sum_job *sum, int owner)
{
    return (size_t)(chunk_begin(sum, owner + 1) - chunk_begin(sum, owner)) * sum->width;
}

static char *chunk_of(const sum_job *sum, char *vector, int owner)
{
    return vector + (size_t)chunk_begin(sum, owner) * sum->width;
}

/* Finds which parts every rank holds for this batch; kept until the batch changes its size. */
static oct_status make_plan(const oct_comm *comm, const oct_leaves *leaves)
{
    oct_comm_state *s = comm->state;
    int rank = comm->base.rank, size = comm->base.size;
    oct_leaves mine = oct_leaves_split(leaves->samples, leaves->leaf, rank, size);
    OCT_CHECK(mine.first == leaves->first && mine.local == leaves->local, OCT_DEFECT,
              "rank %d sums leaves that are not its share of the batch", rank);
    if (s->plan_samples == leaves->samples && s->plan_leaf == leaves->leaf) return OCT_OK;

    s->plan_leaf = 0;
    for (int r = 0; r < size; r++) {
        oct_leaves theirs = oct_leaves_split(leaves->samples, leaves->leaf, r, size);
        size_t need = (size_t)s->plan_begin[r] + OCT_MAX_PARTS;
        OCT_TRY(oct_grow(&s->plan, &s->plan_capacity, need, sizeof(*s->plan)));
        int parts = theirs.local > 0 ? oct_leaves_parts(&theirs, s->plan + s->plan_begin[r]) : 0;
        s->plan_begin[r + 1] = s->plan_begin[r] + parts;
    }
    s->plan_samples = leaves->samples;
    s->plan_leaf = leaves->leaf;
    return OCT_OK;
}

static void set_vector(const sum_job *sum, int part, char *vector)
{
    void *vectors = sum->comm->state->vectors;
    if (sum->width == sizeof(float))
        ((float **)vectors)[part] = (float *)(void *)vector;
    else
        ((double **)vectors)[part] = (double *)(void *)vector;
}

/* Posts the receives of the parts of this rank's chunk; own parts are used where they are. */
static oct_status receive_parts(const sum_job *sum)
{
    oct_comm_state *s = sum->comm->state;
    int rank = sum->comm->base.rank, size = sum->comm->base.size;
    size_t bytes = chunk_bytes(sum, rank);
    if (bytes == 0) return OCT_OK;
    OCT_TRY(oct_grow(&s->scratch, &s->scratch_capacity, (size_t)s->plan_begin[size] * bytes, 1));
    OCT_TRY(
        oct_grow(&s->vectors, &s->vectors_capacity, (size_t)s->plan_begin[size], sizeof(void *)));
    for (int r = 0; r < size; r++)
        for (int part = s->plan_begin[r]; part < s->plan_begin[r + 1]; part++) {
            char *vector = s->scratch + (size_t)part * bytes;
            if (r == rank) {
                size_t row = (size_t)(part - s->plan_begin[rank]) * (size_t)sum->n * sum->width;
                vector = chunk_of(sum, sum->parts + row, rank);
            } else {
                OCT_TRY(oct_exchange_receive(sum->comm, r, vector, bytes));
            }
            set_vector(sum, part, vector);
        }
    return OCT_OK;
}

static oct_status send_parts(const sum_job *sum)
{
    const oct_comm_state *s = sum->comm->state;
    int rank = sum->comm->base.rank, size = sum->comm->base.size;
    int mine = s->plan_begin[rank + 1] - s->plan_begin[rank];
    for (int ahead = 1; ahead < size; ahead++) {
        int owner = (rank + ahead) % size;
        for (int p = 0; p < mine; p++) {
            char *row = sum->parts + (size_t)p * (size_t)sum->n * sum->width;
            OCT_TRY(oct_exchange_send(sum->comm, owner, chunk_of(sum, row, owner),
                                      chunk_bytes(sum, owner)));
        }
    }
    return OCT_OK;
}

/* Joins all parts of this rank's chunk and puts the sum into its place. */
static void join_chunk(const sum_job *sum)
{
    const oct_comm_state *s = sum->comm->state;
    int rank = sum->comm->base.rank, parts = s->plan_begin[sum->comm->base.size];
    int64_t elements = chunk_begin(sum, rank + 1) - chunk_begin(sum, rank);
    char *target = chunk_of(sum, sum->out, rank);
    if (elements == 0) return;
    if (sum->width == sizeof(float))
        oct_tree_join_f32(s->plan, s->vectors, parts, elements);
    else
        oct_tree_join_f64(s->plan, s->vectors, parts, elements);
    void *first; /* an array of float * or of double * */
    memcpy(&first, s->vectors, sizeof first);
    if (target != first) memcpy(target, first, chunk_bytes(sum, rank));
}

static oct_status spread_chunks(const sum_job *sum)
{
    int rank = sum->comm->base.rank, size = sum->comm->base.size;
    for (int r = 0; r < size; r++)
        if (r != rank)
            OCT_TRY(oct_exchange_receive(sum->comm, r, chunk_of(sum, sum->out, r),
                                         chunk_bytes(sum, r)));
    for (int ahead = 1; ahead < size; ahead++)
        OCT_TRY(oct_exchange_send(sum->comm, (rank + ahead) % size, chunk_of(sum, sum->out, rank),
                                  chunk_bytes(sum, rank)));
    return oct_exchange_wait(sum->comm, 2);
}

static oct_status tree_sum(const sum_job *sum, const oct_leaves *leaves)
{
    OCT_TRY(oct_exchange_begin(sum->comm, OCT_EXCHANGE_TREE_SUM));
    OCT_TRY(make_plan(sum->comm, leaves));
    if (leaves->count == 0) {
        memset(sum->out, 0, (size_t)sum->n * sum->width);
        return OCT_OK;
    }
    OCT_TRY(receive_parts(sum));
    OCT_TRY(send_parts(sum));
    OCT_TRY(oct_exchange_wait(sum->comm, 1));
    join_chunk(sum);
    return spread_chunks(sum);
}

oct_status oct_comm_tree_sum_f32(const oct_collective *self, const oct_leaves *leaves, float *parts,
                                 int64_t n, float *out)
{
    sum_job sum = {oct_comm_of(self), (char *)parts, (char *)out, n, sizeof(float)};
    return tree_sum(&sum, leaves);
}

oct_status oct_comm_tree_sum_f64(const oct_collective *self, const oct_leaves *leaves,
                                 double *parts, int64_t n, double *out)
{
    sum_job sum = {oct_comm_of(self), (char *)parts, (char *)out, n, sizeof(double)};
    return tree_sum(&sum, leaves);
}
