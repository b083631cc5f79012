/* Sums over leaves against the definition: for every element, plain recursion over the balanced binary
 * tree of leaves. Bits must be equal. For programs under mpirun and for ranks that are threads. */
#pragma once

#include "core/base/mem.h"
#include "tests/ranks/rank.h"

enum { LEAF = 3 };

/* Element i of leaf l: numbers of very different sizes, so any other order shows. */
static inline float leaf_value(int64_t l, int64_t i)
{
    uint64_t bits = ((uint64_t)l * 100003u + (uint64_t)i + 7) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9u;
    float value = (float)(bits >> 40) * 0x1p-24f - 0.5f;
    return bits % 3 == 0 ? value * 4096.0f : value;
}

static inline float tree_f32(int64_t lo, int64_t span, int64_t count, int64_t i)
{
    if (span == 1) return leaf_value(lo, i);
    float left = tree_f32(lo, span / 2, count, i);
    return lo + span / 2 < count ? left + tree_f32(lo + span / 2, span / 2, count, i) : left;
}

static inline double tree_f64(int64_t lo, int64_t span, int64_t count, int64_t i)
{
    if (span == 1) return (double)leaf_value(lo, i) / 3.0;
    double left = tree_f64(lo, span / 2, count, i);
    return lo + span / 2 < count ? left + tree_f64(lo + span / 2, span / 2, count, i) : left;
}

static inline int64_t root_span(int64_t count)
{
    int64_t span = 1;
    while (span < count)
        span *= 2;
    return span;
}

static inline void fill_parts(const oct_leaves *leaves, float *rows, int64_t n)
{
    for (int64_t l = 0; l < leaves->local; l++)
        for (int64_t i = 0; i < n; i++)
            rows[l * n + i] = leaf_value(leaves->first + l, i);
    if (leaves->local > 0) oct_tree_fold_f32(leaves, rows, n);
}

static inline void compare_f32(const oct_comm *comm, const oct_leaves *leaves, const float *sum,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float want = tree_f32(0, root_span(leaves->count), leaves->count, i);
        RANK_CHECK(comm, memcmp(&sum[i], &want, sizeof(want)) == 0,
                   "f32, %lld leaves, element %lld of %lld: got %a, wanted %a",
                   (long long)leaves->count, (long long)i, (long long)n, (double)sum[i],
                   (double)want);
    }
}

/* Into a vector of its own, and in place of the first part. */
static inline void check_f32(const oct_comm *comm, int64_t samples, int64_t n)
{
    const oct_collective *all = oct_comm_collective(comm);
    oct_leaves leaves = oct_leaves_split(samples, LEAF, all->rank, all->size);
    float *rows, *out;
    RANK_OK(comm, oct_alloc(&rows, (size_t)(leaves.local * n), sizeof(*rows)));
    RANK_OK(comm, oct_alloc(&out, (size_t)n, sizeof(*out)));
    for (int in_place = 0; in_place < 2; in_place++) {
        float *sum = in_place && leaves.local > 0 ? rows : out;
        fill_parts(&leaves, rows, n);
        RANK_OK(comm,
                all->tree_sum(all, &leaves, leaves.local > 0 ? rows : NULL, n, sizeof(float), sum));
        compare_f32(comm, &leaves, sum, n);
    }
    oct_free(&rows);
    oct_free(&out);
}

static inline void check_f64(const oct_comm *comm, int64_t samples, int64_t n)
{
    const oct_collective *all = oct_comm_collective(comm);
    oct_leaves leaves = oct_leaves_split(samples, LEAF, all->rank, all->size);
    double *rows, *out;
    RANK_OK(comm, oct_alloc(&rows, (size_t)(leaves.local * n), sizeof(*rows)));
    RANK_OK(comm, oct_alloc(&out, (size_t)n, sizeof(*out)));
    for (int64_t l = 0; l < leaves.local; l++)
        for (int64_t i = 0; i < n; i++)
            rows[l * n + i] = (double)leaf_value(leaves.first + l, i) / 3.0;
    if (leaves.local > 0) oct_tree_fold_f64(&leaves, rows, n);
    RANK_OK(comm,
            all->tree_sum(all, &leaves, leaves.local > 0 ? rows : NULL, n, sizeof(double), out));
    for (int64_t i = 0; i < n; i++) {
        double want = tree_f64(0, root_span(leaves.count), leaves.count, i);
        RANK_CHECK(comm, memcmp(&out[i], &want, sizeof(want)) == 0,
                   "f64, %lld leaves, element %lld of %lld: got %a, wanted %a",
                   (long long)leaves.count, (long long)i, (long long)n, out[i], want);
    }
    oct_free(&rows);
    oct_free(&out);
}

/* Columns of rows, which the ranks of a host see in each other or not, begin one after another and go on while other
 * sums are waited for. */
static inline void check_besides(const oct_comm *comm, int64_t samples, bool seen)
{
    enum { N = 9000, COLUMNS = 5 };
    static const int64_t ends[COLUMNS] = {9000, 8999, 4000, 3500, 17};
    const oct_collective *all = oct_comm_collective(comm);
    const oct_leaves leaves = oct_leaves_split(samples, LEAF, all->rank, all->size);
    const int64_t rows_needed = leaves.local > 0 ? leaves.local : 1;
    float *rows;
    const oct_collective *memory = seen ? all : &oct_collective_one;
    bool lent;
    RANK_OK(comm, memory->rows_alloc(memory, &rows, (size_t)(rows_needed * N), sizeof(*rows)));
    fill_parts(&leaves, rows, N);
    for (int c = 0; c < COLUMNS; c++) {
        const int64_t begin = c + 1 < COLUMNS ? ends[c + 1] : 0;
        RANK_OK(comm, all->sum_begin(all, &leaves, rows + begin, N, ends[c] - begin));
        if (c % 2 == 0) check_f64(comm, samples, 40);
        RANK_OK(comm, all->sums_move(all));
    }
    RANK_OK(comm, all->sums_finish(all));
    compare_f32(comm, &leaves, memory->rows_total(memory, &leaves, rows, &lent), N);
    memory->rows_free(memory, &rows);
}

/* A batch without samples sums to zero. */
static inline void check_empty(const oct_comm *comm)
{
    const oct_collective *all = oct_comm_collective(comm);
    oct_leaves leaves = oct_leaves_split(0, LEAF, all->rank, all->size);
    float out[3] = {1, 2, 3};
    RANK_OK(comm, all->tree_sum(all, &leaves, NULL, 3, sizeof(float), out));
    for (int i = 0; i < 3; i++)
        RANK_CHECK(comm, out[i] == 0.0f, "empty batch: %g", (double)out[i]);
}

/* Batches of 1 to `leaves` leaves, with a short last one too, and vectors that are short and long. */
static inline void check_sums(const oct_comm *comm, int64_t leaves, int64_t step)
{
    static const int64_t lengths[] = {1, 511, 4603};
    for (int64_t count = 1; count <= leaves; count += step)
        for (size_t k = 0; k < OCT_COUNT(lengths); k++) {
            int64_t samples = count * LEAF - (k % 2 ? LEAF - 1 : 0);
            check_f32(comm, samples, lengths[k]);
            check_f64(comm, samples, lengths[k]);
        }
    for (int64_t count = 1; count <= leaves; count += 4)
        for (int seen = 0; seen < 2; seen++)
            check_besides(comm, count * LEAF, seen);
    check_empty(comm);
}
