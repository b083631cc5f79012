/* octet bench reduce measures what the sum over ranks costs beside a copy of the same bytes. */
#include "launch/bench/bench.h"
#include "launch/bench/timing.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <inttypes.h>
#include <string.h>

enum { LEAVES = 16 };

typedef struct sums {
    oct_leaves leaves;
    int64_t n;
    float *parts, *out; /* parts: a row of n for each part of this rank */
    double *seconds, copy;
    int64_t repetitions;
} sums;

static oct_status allocate(sums *s, const oct_collective *group)
{
    oct_subtree ranges[OCT_MAX_PARTS];
    size_t parts = (size_t)oct_leaves_parts(&s->leaves, ranges);
    oct_status status = oct_alloc(&s->parts, parts * (size_t)s->n, sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&s->out, (size_t)s->n, sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&s->seconds, (size_t)s->repetitions, sizeof(double));
    return group->agree(group, status);
}

static oct_status time_sums(sums *s, const oct_collective *group)
{
    const bool has_parts = oct_leaves_local_samples(&s->leaves) > 0;
    s->copy = 1e9;
    for (int64_t i = 0; i < s->repetitions; i++) {
        double begin = oct_seconds();
        OCT_TRY(group->tree_sum_f32(group, &s->leaves, s->parts, s->n, s->out));
        double middle = oct_seconds();
        memcpy(s->parts, s->out, has_parts ? (size_t)s->n * sizeof(float) : 0);
        s->seconds[i] = middle - begin;
        if (oct_seconds() - middle < s->copy) s->copy = oct_seconds() - middle;
    }
    return OCT_OK;
}

static oct_status tell(oct_bench *bench, const sums *s, double each)
{
    const int ranks = bench->session->group->size;
    const double mb = (double)s->n * sizeof(float) / 1e6;
    return oct_bench_print(
        bench,
        json_pack("{s:s, s:i, s:I, s:I, s:f, s:f, s:f}", "bench", "reduce", "ranks", ranks,
                  "floats", (json_int_t)s->n, "steps", (json_int_t)s->repetitions, "step_ms",
                  1e3 * each, "mb_per_s", mb / each, "copy_ms", 1e3 * s->copy),
        "reduce %9" PRId64 " floats over %d rank%s: %8.3f ms, %8.0f MB/s (a copy: %.3f ms)", s->n,
        ranks, ranks > 1 ? "s" : "", 1e3 * each, mb / each, 1e3 * s->copy);
}

static oct_status bench_size(oct_bench *bench, int64_t n)
{
    const oct_collective *group = bench->session->group;
    sums s = {
        .leaves = oct_leaves_split(LEAVES, 1, group->rank, group->size),
        .n = n,
        .repetitions = n < 10000     ? 200
                       : n < 1000000 ? 30
                                     : 5,
    };
    oct_status status = OCT_OK;
    OCT_TRY_OUT(allocate(&s, group));
    OCT_TRY_OUT(time_sums(&s, group));
    if (group->rank == 0) OCT_TRY_OUT(tell(bench, &s, oct_median(s.seconds, s.repetitions)));
out:
    oct_free(&s.parts);
    oct_free(&s.out);
    oct_free(&s.seconds);
    return status;
}

oct_status oct_bench_reduce(oct_bench *bench)
{
    static const int64_t sizes[] = {1000, 10000, 100000, 1000000, 4000000};
    for (size_t i = 0; i < OCT_COUNT(sizes); i++)
        OCT_TRY(bench_size(bench, sizes[i]));
    return OCT_OK;
}
