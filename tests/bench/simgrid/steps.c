/* Training steps over simulated ranks: each rank computes as long as a recorded step did, and in between runs the
 * collectives of that step with the others.
 *     steps TRACE LEAVES_OF_A_RANK FASTER GROUPS
 * prints a line. FASTER: how many times as fast as the trace it computes. GROUPS: 1 if batch norms have groups of their
 * own in each rank; their statistics are then left out (sums of doubles that are not the loss's).
 * tests/bench/simgrid/run builds and starts it; record.c writes the trace. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"
#include "tests/bench/simgrid/must.h"
#include "tests/bench/simgrid/simulated.h"

#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <stdio.h>

enum { STEPS = 1, MOST_EVENTS = 1 << 16, BATCH_NORM_NUMBERS = 16 };

/* What happens `compute` seconds after the one before. */
typedef struct event {
    char kind[8];
    int64_t count;
    double compute;
} event;

typedef struct trace {
    event *events;
    int num_events;
    double faster;
    bool groups;
    int64_t longest;      /* of the vectors of collectives */
    int64_t gradients;    /* all of them */
    double compute;       /* of a step */
    int synchronizations; /* sums that are waited for, maxima, and the gradients */
} trace;

static bool is(const event *e, const char *kind)
{
    return strcmp(e->kind, kind) == 0;
}

/* All ranks are of one process and read the same trace. */
static const trace *read_trace(const trace *wanted, const char *path)
{
    static trace t;
    if (t.events) return &t;
    FILE *file = fopen(path, "r");
    t = *wanted;
    char line[256];
    double at = 0, before = 0;
    if (!file) return NULL;
    MUST(oct_alloc(&t.events, MOST_EVENTS, sizeof *t.events));
    while (fgets(line, sizeof line, file) && t.num_events < MOST_EVENTS) {
        event *e = &t.events[t.num_events];
        long long count = 0;
        if (sscanf(line, "%7s %lf %lld", e->kind, &at, &count) < 2 || e->kind[0] == '#') continue;
        e->count = count;
        if (t.groups && is(e, "f64") && count >= BATCH_NORM_NUMBERS) continue;
        e->compute = 1e-6 * (at - before) / t.faster;
        before = at;
        t.num_events++;
        if (is(e, "sum")) t.gradients += count;
        if (is(e, "finish") || is(e, "f32") || is(e, "f64") || is(e, "max")) t.synchronizations++;
        if (count > t.longest) t.longest = count;
    }
    fclose(file);
    t.compute = 1e-6 * at / t.faster;
    return &t;
}

typedef struct replay {
    const oct_collective *all;
    const trace *trace;
    oct_leaves leaves;
    char *gradients, *vector;
    int64_t summed;
} replay;

static void do_together(replay *r, const event *e)
{
    const oct_collective *all = r->all;
    if (is(e, "sum")) {
        oct_sim_may_sleep(false);
        float *rows = (float *)(void *)r->gradients + r->trace->gradients - r->summed - e->count;
        r->summed += e->count;
        MUST(all->sum_begin(all, &r->leaves, rows, r->trace->gradients, e->count));
    }
    if (is(e, "look")) MUST(all->sums_move(all));
    if (is(e, "finish")) MUST(all->sums_finish(all));
    if (is(e, "finish")) oct_sim_may_sleep(true);
    if (is(e, "f32") || is(e, "f64"))
        MUST(all->tree_sum(all, &r->leaves, r->vector, e->count,
                           is(e, "f32") ? sizeof(float) : sizeof(double), r->vector));
    if (is(e, "max")) MUST(all->max_i64(all, (int64_t *)(void *)r->vector, e->count));
}

static double synchronized_at(const oct_collective *all)
{
    int64_t nothing = 0;
    MUST(all->max_i64(all, &nothing, 1));
    return simgrid_get_clock();
}

int main(int argc, char **argv)
{
    oct_transport *transport;
    oct_comm *comm;
    int64_t leaves = 1;
    if (argc != 5 || !oct_parse_i64(argv[2], &leaves)) return 2;
    int64_t groups = 0;
    trace wanted = {.groups = false};
    if (!oct_parse_f64(argv[3], &wanted.faster) || !oct_parse_i64(argv[4], &groups)) return 2;
    wanted.groups = groups != 0;
    const trace *t = wanted.faster > 0 ? read_trace(&wanted, argv[1]) : NULL;
    if (!t) return 2;
    oct_sim_may_sleep(true);
    oct_process_own();
    MUST(oct_transport_mpi(&transport, NULL, 1e9));
    MUST(oct_comm_over(&comm, transport, 1e9));
    replay r = {.all = oct_comm_collective(comm), .trace = t};
    oct_subtree parts[OCT_MAX_PARTS];
    r.leaves = oct_leaves_split(leaves * r.all->size, 1, r.all->rank, r.all->size);
    const size_t rows = (size_t)oct_leaves_parts(&r.leaves, parts);
    MUST(r.all->rows_alloc(r.all, &r.gradients, rows > 0 ? rows : 1,
                           (size_t)t->gradients * sizeof(float)));
    r.vector = oct_sim_vectors((rows + 1) * (size_t)t->longest * sizeof(double));
    if (!r.vector) return 4;
    const double begin = synchronized_at(r.all);
    for (int step = 0; step < STEPS; step++) {
        r.summed = 0;
        for (int i = 0; i < t->num_events; i++) {
            if (t->events[i].compute > 0) sg_actor_sleep_for(t->events[i].compute);
            do_together(&r, &t->events[i]);
        }
    }
    const double each = (synchronized_at(r.all) - begin) / STEPS;
    if (r.all->rank == 0)
        printf("%d ranks, %d on a node: a step of %.1f MB with %d synchronizations in %.3f ms; it "
               "computes %.3f ms: efficiency %.2f %%\n",
               r.all->size, comm->state ? comm->state->node.ranks : 1, 4e-6 * (double)t->gradients,
               t->synchronizations, 1e3 * each, 1e3 * t->compute, 100 * t->compute / each);
    r.all->rows_free(r.all, &r.gradients);
    oct_comm_close(&comm);
    return 0;
}
