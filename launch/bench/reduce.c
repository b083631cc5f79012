/* octet bench reduce measures what a sum of gradients over ranks costs beside a copy of the same bytes, and with
 * --native beside the sum of the MPI library. */
#include "launch/bench/bench.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LEAVES = 16 };

typedef struct sums {
    oct_leaves leaves;
    int64_t n;
    float *parts; /* a row of n for each part of this rank, the first of them at least */
    float *plain; /* n, which only this rank sees */
    double *seconds, *native; /* of each repetition; native: NULL without --native */
    double copy;
    int64_t repetitions;
} sums;

static oct_status allocate_sums(sums *s, const oct_collective *group, bool native)
{
    oct_subtree ranges[OCT_MAX_PARTS];
    const int parts = oct_leaves_parts(&s->leaves, ranges);
    oct_status status = group->rows_alloc(group, &s->parts, (size_t)(parts > 0 ? parts : 1),
                                          (size_t)s->n * sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&s->plain, (size_t)s->n, sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&s->seconds, (size_t)s->repetitions, sizeof(double));
    if (status == OCT_OK && native)
        status = oct_alloc(&s->native, (size_t)s->repetitions, sizeof(double));
    return group->agree(group, status);
}

static oct_status time_sums(sums *s, const oct_session *session)
{
    const oct_collective *group = session->group;
    s->copy = 1e9;
    for (int64_t i = 0; i < s->repetitions; i++) {
        int64_t met = 0;
        bool lent;
        OCT_TRY(group->max_i64(group, &met, 1));
        double begin = oct_seconds();
        OCT_TRY(group->sum_begin(group, &s->leaves, s->parts, s->n, s->n));
        OCT_TRY(group->sums_finish(group));
        double middle = oct_seconds();
        const float *total = group->rows_total(group, &s->leaves, s->parts, &lent);
        memcpy(s->plain, total, (size_t)s->n * sizeof(float));
        s->seconds[i] = middle - begin;
        if (oct_seconds() - middle < s->copy) s->copy = oct_seconds() - middle;
        if (!s->native) continue;
        begin = oct_seconds();
        OCT_TRY(oct_comm_sum_native(session->comm, s->plain, s->n));
        s->native[i] = oct_seconds() - begin;
    }
    return OCT_OK;
}

static oct_status print_sums(oct_bench *bench, const sums *s)
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
        oct_snprintf(beside, sizeof beside, ", %s %.3f ms", oct_comm_library(bench->session->comm),
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
    OCT_TRY_OUT(allocate_sums(&s, group, bench->native));
    OCT_TRY_OUT(time_sums(&s, bench->session));
    if (group->rank == 0) OCT_TRY_OUT(print_sums(bench, &s));
out:
    if (s.parts) group->rows_free(group, &s.parts);
    oct_free(&s.plain);
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
