/* The sums of the interface: those that are waited for, and those that go on besides other work.
 *
 * Sums besides other work go in lanes, communicators of their own over the same ranks, which the sums take in turn. In a
 * lane one is done after another. A sum is mostly latency, of messages and until the next look; so the lanes run side by
 * side.
 */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/reduce_impl.h"

static const double look_every_s = 20e-6;

static oct_status tree_sum(oct_sum *s, const oct_leaves *leaves, void *parts)
{
    OCT_TRY(oct_exchange_begin(s->comm, OCT_EXCHANGE_TREE_SUM));
    OCT_TRY(oct_sum_begin(s, leaves, parts, s->n));
    while (s->phase != OCT_SUM_DONE) {
        OCT_TRY(oct_sum_run_phase(s));
        OCT_TRY(oct_exchange_wait(s->comm, oct_sum_patience(s)));
    }
    return OCT_OK;
}

static oct_status tree_sum_f32(const oct_collective *self, const oct_leaves *leaves, float *parts,
                               int64_t n, float *out)
{
    oct_sum s = {.comm = oct_comm_of(self), .out = (char *)out, .n = n, .width = sizeof(float)};
    return tree_sum(&s, leaves, parts);
}

static oct_status tree_sum_f64(const oct_collective *self, const oct_leaves *leaves, double *parts,
                               int64_t n, double *out)
{
    oct_sum s = {.comm = oct_comm_of(self), .out = (char *)out, .n = n, .width = sizeof(double)};
    return tree_sum(&s, leaves, parts);
}

typedef struct request {
    oct_leaves leaves;
    float *parts;
    int64_t stride, n;
} request;

/* The sums that have begun in a lane and are not waited for. */
typedef struct oct_sums {
    oct_sum sum; /* the first of them */
    bool runs;
    request *requests;
    size_t capacity, count, next;
    double looked;
} oct_sums;

/* Runs the sums of a lane until one has to wait for other ranks, or all are done. */
static oct_status advance_sums(const oct_comm *lane, oct_sums *sums)
{
    while (sums->next < sums->count) {
        const request *r = &sums->requests[sums->next];
        bool moved;
        if (!sums->runs) {
            sums->sum = (oct_sum){.comm = lane,
                                  .out = (char *)r->parts,
                                  .n = r->n,
                                  .width = sizeof(float),
                                  .rows = oct_rows_around(lane, r->parts)};
            OCT_TRY(oct_exchange_begin(lane, OCT_EXCHANGE_GRADIENT_SUM));
            OCT_TRY(oct_sum_begin(&sums->sum, &r->leaves, (char *)r->parts, r->stride));
            sums->runs = true;
        }
        if (lane->state->pending > 0) OCT_TRY(oct_exchange_look(lane, &moved));
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
static oct_status with_lane(const oct_comm *comm, const oct_comm *lane, oct_status status)
{
    if (lane->state->broken) comm->state->broken = true;
    return status;
}

static oct_status move_sums(const oct_collective *self)
{
    const oct_comm *comm = oct_comm_of(self);
    for (const oct_comm *lane = comm->besides; lane; lane = lane->besides) {
        oct_sums *sums = lane->state->sums;
        const double now = sums && sums->count > 0 ? oct_seconds() : 0;
        if (!sums || sums->count == 0 || now - sums->looked < look_every_s) continue;
        sums->looked = now;
        OCT_TRY(with_lane(comm, lane, advance_sums(lane, sums)));
    }
    return OCT_OK;
}

/* While a lane is waited for, those after it move on. */
static oct_status finish_sums(const oct_collective *self)
{
    const oct_comm *comm = oct_comm_of(self);
    comm->state->syncs++;
    for (const oct_comm *lane = comm->besides; lane; lane = lane->besides) {
        oct_sums *sums = lane->state->sums;
        if (!sums) continue;
        OCT_TRY(with_lane(comm, lane, advance_sums(lane, sums)));
        while (sums->count > 0) {
            const int patience = oct_sum_patience(&sums->sum);
            OCT_TRY(with_lane(comm, lane, oct_exchange_wait(lane, patience)));
            OCT_TRY(with_lane(comm, lane, advance_sums(lane, sums)));
        }
    }
    return OCT_OK;
}

static oct_status begin_sum(const oct_collective *self, const oct_leaves *leaves, float *parts,
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
    return move_sums(self);
}

void oct_sums_free(struct oct_sums **sums)
{
    if (*sums) oct_free(&(*sums)->requests);
    oct_free(sums);
}

void oct_supply_sums(oct_collective *group)
{
    group->tree_sum_f32 = tree_sum_f32;
    group->tree_sum_f64 = tree_sum_f64;
    group->sum_begin = begin_sum;
    group->sums_move = move_sums;
    group->sums_finish = finish_sums;
}
