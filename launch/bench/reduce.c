/* octet bench reduce measures what the sum over ranks costs beside a copy of the same bytes, and with --native
 * beside the sum of the MPI library. */
#include "launch/bench/bench.h"
#include "launch/bench/timing.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LEAVES = 16 };

typedef struct sums {
    oct_leaves leaves;
    int64_t n;
    float *parts, *out;       /* parts: a row of n for each part of this rank */
    double *seconds, *native; /* of each repetition; native: NULL without --native */
    double copy;
    int64_t repetitions;
} sums;

static oct_status allocate(sums *s, const oct_collective *group, bool native)
{
    oct_subtree ranges[OCT_MAX_PARTS];
    size_t parts = (size_t)oct_leaves_parts(&s->leaves, ranges);
    oct_status status = oct_alloc(&s->parts, parts * (size_t)s->n, sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&s->out, (size_t)s->n, sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&s->seconds, (size_t)s->repetitions, sizeof(double));
    if (status == OCT_OK && native)
        status = oct_alloc(&s->native, (size_t)s->repetitions, sizeof(double));
    return group->agree(group, status);
}

static oct_status time_sums(sums *s, const oct_session *session)
{
    const oct_collective *group = session->group;
    const bool has_parts = oct_leaves_local_samples(&s->leaves) > 0;
    s->copy = 1e9;
    for (int64_t i = 0; i < s->repetitions; i++) {
        double begin = oct_seconds();
        OCT_TRY(group->tree_sum_f32(group, &s->leaves, s->parts, s->n, s->out));
        double middle = oct_seconds();
        memcpy(s->parts, s->out, has_parts ? (size_t)s->n * sizeof(float) : 0);
        s->seconds[i] = middle - begin;
        if (oct_seconds() - middle < s->copy) s->copy = oct_seconds() - middle;
        if (!s->native) continue;
        begin = oct_seconds();
        OCT_TRY(oct_comm_sum_native(session->comm, s->out, s->n));
        s->native[i] = oct_seconds() - begin;
    }
    return OCT_OK;
}

static oct_status tell(oct_bench *bench, const sums *s)
{
    const int ranks = bench->session->group->size;
    const double mb = (double)s->n * sizeof(float) / 1e6;
    const double each = oct_median(s->seconds, s->repetitions);
    const double native = s->native ? oct_median(s->native, s->repetitions) : 0;
    char beside[64] = "";
    json_t *figure =
        json_pack("{s:s, s:i, s:I, s:I, s:f, s:f, s:f}", "bench", "reduce", "ranks", ranks,
                  "floats", (json_int_t)s->n, "steps", (json_int_t)s->repetitions, "step_ms",
                  1e3 * each, "mb_per_s", mb / each, "copy_ms", 1e3 * s->copy);
    if (s->native) {
        json_object_set_new(figure, "native_ms", json_real(1e3 * native));
        snprintf(beside, sizeof beside, ", %s %.3f ms", oct_comm_library(bench->session->comm),
                 1e3 * native);
    }
    return oct_bench_print(
        bench, figure,
        "reduce %9" PRId64 " floats over %d rank%s: %8.3f ms, %8.0f MB/s (a copy: %.3f ms%s)", s->n,
        ranks, ranks > 1 ? "s" : "", 1e3 * each, mb / each, 1e3 * s->copy, beside);
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
    OCT_TRY_OUT(allocate(&s, group, bench->native));
    OCT_TRY_OUT(time_sums(&s, bench->session));
    if (group->rank == 0) OCT_TRY_OUT(tell(bench, &s));
out:
    oct_free(&s.parts);
    oct_free(&s.out);
    oct_free(&s.seconds);
    oct_free(&s.native);
    return status;
}

oct_status oct_bench_reduce(oct_bench *bench)
{
    static const int64_t sizes[] = {1000, 10000, 100000, 1000000, 4000000, 11170000};
    for (size_t i = 0; i < OCT_COUNT(sizes); i++)
        OCT_TRY(bench_size(bench, sizes[i]));
    return OCT_OK;
}
