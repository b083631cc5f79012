/* Records what a training step does together with other ranks, and when: events with the processor time of this
 * thread since the step began, so that other work on the machine does not count. One line an event:
 *     KIND MICROSECONDS COUNT
 * look: sums in flight could move on; sum: that of COUNT gradients begins; finish: all of them are waited for; f32,
 * f64, max: COUNT numbers are summed, or their maximum found, and waited for; end.
 *     record_step MODEL BATCH SIDE
 */
#include "core/base/text.h"
#include "launch/bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST_EVENTS = 1 << 16, WARM_UP = 4, LEAF = 8 };

static const double look_every_us = 20; /* dist/reduce.c looks no more often */

static struct {
    struct {
        const char *kind;
        double at;
        int64_t count;
    } event[MOST_EVENTS];
    int count;
    double begin, looked;
} all;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static void note(const char *kind, int64_t count)
{
    const double at = now_us() - all.begin;
    if (strcmp(kind, "look") == 0 && at - all.looked < look_every_us) return;
    if (strcmp(kind, "look") == 0) all.looked = at;
    if (all.count == MOST_EVENTS) return;
    all.event[all.count].kind = kind;
    all.event[all.count].at = at;
    all.event[all.count++].count = count;
}

static oct_status tree_sum(const oct_collective *self, const oct_leaves *leaves, void *parts,
                           int64_t n, size_t width, void *out)
{
    note(width == sizeof(float) ? "f32" : "f64", n);
    return oct_collective_one.tree_sum(self, leaves, parts, n, width, out);
}

static oct_status max_i64(const oct_collective *self, int64_t *values, int64_t n)
{
    note("max", n);
    return oct_collective_one.max_i64(self, values, n);
}

static oct_status sum_begin(const oct_collective *self, const oct_leaves *leaves, float *parts,
                            int64_t stride, int64_t n)
{
    note("sum", n);
    return oct_collective_one.sum_begin(self, leaves, parts, stride, n);
}

static oct_status sums_move(const oct_collective *self)
{
    note("look", 0);
    return oct_collective_one.sums_move(self);
}

static oct_status sums_finish(const oct_collective *self)
{
    note("finish", 0);
    return oct_collective_one.sums_finish(self);
}

static oct_status record(const oct_bench *bench, oct_bench_run *run)
{
    oct_step_result result;
    OCT_TRY(oct_bench_run_begin(run, bench, 0, WARM_UP + 1));
    for (int i = 0; i <= WARM_UP; i++) {
        all.count = 0;
        all.looked = -look_every_us;
        all.begin = now_us();
        OCT_TRY(oct_trainer_step(&run->trainer, &result));
    }
    note("end", 0);
    return OCT_OK;
}

int main(int argc, char **argv)
{
    oct_collective group = oct_collective_one;
    oct_session session = {.group = &group};
    oct_bench_run run = {0};
    oct_bench bench = {
        .session = &session, .c = 3, .threads = 1, .qat = true, .numerics = OCT_NUMERICS_BF16};
    group.tree_sum = tree_sum;
    group.max_i64 = max_i64;
    group.sum_begin = sum_begin;
    group.sums_move = sums_move;
    group.sums_finish = sums_finish;
    if (argc != 4 || !oct_parse_i64(argv[2], &bench.batch) || !oct_parse_i64(argv[3], &bench.h)) {
        fprintf(stderr, "usage: record_step MODEL BATCH SIDE\n");
        return 2;
    }
    bench.model = argv[1];
    bench.w = bench.h;
    bench.leaf = bench.batch < LEAF ? bench.batch : LEAF;
    if (record(&bench, &run) != OCT_OK) {
        fprintf(stderr, "%s\n", oct_error_message(0));
        return 1;
    }
    printf("# A QAT step of %s, %s images of %sx%s, on one thread.\n", argv[1], argv[2], argv[3],
           argv[3]);
    for (int i = 0; i < all.count; i++)
        printf("%s %.0f %" PRId64 "\n", all.event[i].kind, all.event[i].at, all.event[i].count);
    oct_bench_run_end(&run);
    return 0;
}
