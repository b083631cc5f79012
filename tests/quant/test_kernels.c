/* Every kernel table that this machine runs against plain loops written here. */
#include "core/product/product.h"
#include "quant/kernel/kernel.h"

#include "tests/quant/every_kernel.h"
#include "tests/quant/quant_random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const oct_isa_set only_ref = 1u << OCT_ISA_REF;
#if defined(__x86_64__)
static const oct_isa_set with_avx2 = 1u << OCT_ISA_REF | 1u << OCT_ISA_AVX2;
static const oct_isa_set with_avxvnni =
    1u << OCT_ISA_REF | 1u << OCT_ISA_AVX2 | 1u << OCT_ISA_AVXVNNI;
static const oct_isa_set with_vnni =
    1u << OCT_ISA_REF | 1u << OCT_ISA_AVX2 | 1u << OCT_ISA_AVX512VNNI;
#elif defined(__aarch64__)
static const oct_isa_set with_neon = 1u << OCT_ISA_REF | 1u << OCT_ISA_NEON;
static const oct_isa_set with_dot = 1u << OCT_ISA_REF | 1u << OCT_ISA_NEON | 1u << OCT_ISA_NEONDOT;
#endif

Test(kernel_select, takes_the_best_of_the_set_and_always_ends)
{
    cr_assert_eq(oct_kernel_select(only_ref), &oct_kernel_ref);
#if defined(__x86_64__)
    cr_assert_eq(oct_kernel_select(with_avx2), &oct_kernel_avx2);
    cr_assert_eq(oct_kernel_select(with_avxvnni), &oct_kernel_avxvnni);
    cr_assert_eq(oct_kernel_select(with_vnni), &oct_kernel_avx512vnni);
    cr_assert_eq(oct_kernel_select(with_vnni | 1u << OCT_ISA_AVXVNNI), &oct_kernel_avx512vnni);
    cr_assert_eq(oct_kernel_select(with_vnni | 1u << OCT_ISA_AVX512BF16), &oct_kernel_avx512vnni);
    cr_assert_eq(oct_kernel_select(with_vnni | 1u << OCT_ISA_AVX512BF16 | 1u << OCT_ISA_AMX),
                 &oct_kernel_amx);
    cr_assert_eq(oct_kernel_select(1u << OCT_ISA_REF | 1u << OCT_ISA_AVX512VNNI),
                 &oct_kernel_avx512vnni);
#elif defined(__aarch64__)
    cr_assert_eq(oct_kernel_select(with_neon), &oct_kernel_neon);
    cr_assert_eq(oct_kernel_select(with_dot), &oct_kernel_neondot);
    cr_assert_eq(oct_kernel_select(with_dot | 1u << OCT_ISA_NEONI8MM), &oct_kernel_neoni8mm);
#endif
    cr_assert_eq(oct_kernel_select(0), &oct_kernel_ref);
    cr_assert_eq(all_kernels[OCT_COUNT(all_kernels) - 1], &oct_kernel_ref);
}

Test(kernel_select, has_tables_that_name_their_instruction_set)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++)
        cr_assert_str_eq(all_kernels[i]->name, oct_isa_name(all_kernels[i]->isa));
}

/* Criterion runs each test in a process of its own, and the machine is asked once in each. */
Test(kernel_here, obeys_oct_isa_ref)
{
    setenv("OCT_ISA", "ref", 1);
    cr_assert_eq(oct_kernel_here(), &oct_kernel_ref);
}

/* The table of a word, or a lesser one where the machine has not got it. */
Test(kernel_here, obeys_oct_isa)
{
    const oct_kernel *second =
        all_kernels[OCT_COUNT(all_kernels) - 2]; /* the last but the reference */
    setenv("OCT_ISA", second->name, 1);
    const oct_kernel *kernel = oct_kernel_here();
    cr_assert(kernel == second || kernel == &oct_kernel_ref);
    cr_assert_eq(kernel, oct_kernel_select(oct_cpu_isa()));
}

Test(kernel_here, is_the_best_of_this_machine)
{
    unsetenv("OCT_ISA");
    cr_assert_eq(oct_kernel_here(), oct_kernel_select(oct_cpu_isa()));
}

/* Plain matrix products, whose rows have one run. w (n, k). */
static int64_t packed_bytes(const oct_kernel *kernel, int64_t n, int64_t k)
{
    return oct_packed_taps_bytes(kernel, n, 1, k);
}

static void pack_weights(const oct_kernel *kernel, int64_t n, int64_t k, const int8_t *w,
                         int8_t *packed)
{
    oct_pack_taps(kernel, n, 1, k, w, packed);
}

static void gemm(const oct_kernel *kernel, int64_t m, int64_t n, int64_t k, const uint8_t *a,
                 int64_t lda, const int8_t *packed, int32_t *acc, int64_t ldc)
{
    enum { ROWS = 96 }; /* of one call, whose table and codes stay in the first-level cache */
    const oct_run whole_row = {.words = (k + OCT_WORD - 1) / OCT_WORD};
    oct_row rows[ROWS];
    for (int64_t i = 0; i < m; i += ROWS) {
        const int64_t count = m - i < ROWS ? m - i : ROWS;
        for (int64_t r = 0; r < count; r++)
            rows[r] = (oct_row){.x = (i + r) * lda, .acc = (i + r) * ldc};
        const oct_product p = {.x = a,
                               .rows = rows,
                               .m = count,
                               .runs = &whole_row,
                               .num_runs = 1,
                               .packed = packed,
                               .panel_bytes = oct_panel_bytes(kernel, 1, k),
                               .n = n,
                               .acc = acc};
        kernel->bytes.product(&p);
    }
}

/* lda and ldc larger than needed; the bytes between must stay untouched. */
static void check_gemm(const oct_kernel *kernel, dice *d, int64_t m, int64_t n, int64_t k)
{
    const int64_t padded = (k + OCT_WORD - 1) / OCT_WORD * OCT_WORD;
    const int64_t lda = padded + roll_between(d, 0, 5), ldc = n + roll_between(d, 0, 5);
    uint8_t *a = room(m * lda, 1);
    int8_t *w = room(n * k, 1), *packed = room(packed_bytes(kernel, n, k), 1);
    int32_t *acc = room(m * ldc, sizeof *acc);
    roll_bytes(d, a, m * lda);
    roll_weights(d, w, n * k);
    memset(acc, 0x5a, (size_t)(m * ldc) * sizeof *acc);
    pack_weights(kernel, n, k, w, packed);
    gemm(kernel, m, n, k, a, lda, packed, acc, ldc);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < ldc; j++) {
            int32_t sum = j < n ? 0 : 0x5a5a5a5a;
            for (int64_t x = 0; j < n && x < k; x++)
                sum += a[i * lda + x] * w[j * k + x];
            cr_assert_eq(acc[i * ldc + j], sum, "%s %lldx%lldx%lld at (%lld, %lld): %d, not %d",
                         kernel->name, (long long)m, (long long)n, (long long)k, (long long)i,
                         (long long)j, acc[i * ldc + j], sum);
        }
    }
    oct_free(&a);
    oct_free(&w);
    oct_free(&packed);
    oct_free(&acc);
}

Test(gemm, is_exact_on_every_instruction_set)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 7};
        for (int round = 0; round < 150; round++)
            check_gemm(all_kernels[i], &d, roll_between(&d, 1, 40), roll_between(&d, 1, 150),
                       roll_between(&d, 1, 70));
        for (int64_t columns = 1; columns <= 82; columns++)
            check_gemm(all_kernels[i], &d, 1 + columns % 9, columns, 5);
        check_gemm(all_kernels[i], &d, 200, 33, 9);
        check_gemm(all_kernels[i], &d, 0, 3, 3);
    }
}

/* Two runs of a row, taken out of order and in two calls; the second call continues the first one's
 * sums. */
static void check_continued(const oct_kernel *kernel, dice *d, int64_t n)
{
    enum { M = 11, WORDS = 5, K = WORDS * OCT_WORD };
    uint8_t a[M * K];
    int8_t *w = room(n * K, 1), *packed = room(packed_bytes(kernel, n, K), 1);
    int32_t *whole = room(M * n, sizeof *whole), *parts = room(M * n, sizeof *parts);
    oct_row rows[M];
    const oct_run late = {.x = 2 * OCT_WORD, .tile = 2, .words = 3}, early = {.words = 2};
    roll_bytes(d, a, sizeof a);
    roll_weights(d, w, n * K);
    for (int64_t i = 0; i < M; i++)
        rows[i] = (oct_row){.x = i * K, .acc = (M - 1 - i) * n};
    pack_weights(kernel, n, K, w, packed);
    gemm(kernel, M, n, K, a, K, packed, whole, n);
    oct_product p = {.x = a,
                     .rows = rows,
                     .m = M,
                     .runs = &late,
                     .num_runs = 1,
                     .packed = packed,
                     .panel_bytes = oct_panel_bytes(kernel, 1, K),
                     .n = n,
                     .acc = parts};
    kernel->bytes.product(&p);
    p.runs = &early;
    p.add = true;
    kernel->bytes.product(&p);
    for (int64_t i = 0; i < M; i++)
        cr_assert_arr_eq(parts + (M - 1 - i) * n, whole + i * n, (size_t)n * sizeof *whole,
                         "%s: %lld columns, row %lld", kernel->name, (long long)n, (long long)i);
    oct_free(&w);
    oct_free(&packed);
    oct_free(&whole);
    oct_free(&parts);
}

Test(product, continues_sums_run_by_run)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 8};
        for (int64_t n = 1; n <= 70; n++)
            check_continued(all_kernels[i], &d, n);
    }
}

Test(gemm, does_not_saturate_at_the_ends_of_codes)
{
    enum { K = 4096 };
    static uint8_t a[K];
    static int8_t w[2 * K], packed[16 * K * 2];
    memset(a, 255, K);
    memset(w, 127, K);
    memset(w + K, -127, K);
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        int32_t acc[2];
        cr_assert_leq(packed_bytes(all_kernels[i], 2, K), (int64_t)sizeof packed);
        pack_weights(all_kernels[i], 2, K, w, packed);
        gemm(all_kernels[i], 1, 2, K, a, K, packed, acc, 2);
        cr_assert(acc[0] == K * 255 * 127 && acc[1] == -K * 255 * 127, "%s", all_kernels[i]->name);
    }
}

/* The definition in kernel.h, in double where the float product is then rounded by a cast. */
static uint8_t oracle_code(float v, const oct_requant *q, bool *pass)
{
    double r = nearbyint((double)v);
    *pass = r >= q->lo && r <= q->hi && !(q->relu && v <= q->floor) && v < q->six;
    return (uint8_t)((r < q->lo ? q->lo : r > q->hi ? q->hi : (int32_t)r) + q->zero_point);
}

static float oracle_clip(float v, const oct_requant *q)
{
    if (q->relu && v < q->floor) v = q->floor;
    return v > q->six ? q->six : v;
}

/* Sums near ties and ends for multipliers that are powers of two, and anything otherwise. */
static int32_t roll_sum(dice *d)
{
    switch (roll_between(d, 0, 5)) {
    case 0:
        return (int32_t)roll_between(d, -40, 40);
    case 1:
        return (int32_t)roll_between(d, -3000, 3000);
    case 2:
        return roll(d) & 1 ? (1 << 30) - 1 : -(1 << 30);
    default:
        return (int32_t)roll(d) >> roll_between(d, 1, 20);
    }
}

static float roll_multiplier(dice *d)
{
    static const float chosen[] = {0.5f,  0.25f,    -0.5f,    0.125f, 0.0f,   -0.0f, 1.0f,
                                   2e-3f, -1.3e-3f, 0x1p-12f, 1e30f,  -1e30f, 3e38f, 0x1.8p-8f};
    if (roll(d) & 1) return chosen[oct_below(roll(d), OCT_COUNT(chosen))];
    return oct_uniform(roll(d)) * 0.01f;
}

static oct_requant roll_requant(dice *d, int64_t n, int32_t *bias, float *multiplier)
{
    for (int64_t c = 0; c < n; c++) {
        bias[c] = (int32_t)roll_between(d, -50, 50);
        multiplier[c] = roll_multiplier(d);
    }
    oct_requant q = {.bias = bias,
                     .multiplier = multiplier,
                     .zero_point = roll_zero_point(d, 255),
                     .relu = roll(d) & 1,
                     .six = INFINITY};
    if (q.relu && roll(d) & 1) q.floor = (float)roll_between(d, -30, 30) / 2;
    q.lo = -q.zero_point;
    q.hi = 255 - q.zero_point;
    if (q.relu) q.lo = (int32_t)fminf(fmaxf(nearbyintf(q.floor), (float)q.lo), (float)q.hi);
    if (roll_between(d, 0, 3) == 0) {
        q.six = (float)roll_between(d, 20, 60) + 0.5f * (float)(roll(d) & 1);
        if (q.six < (float)q.hi) q.hi = (int32_t)q.six;
    }
    return q;
}

/* Memory whose next byte may not be read. */
static void *room_at_the_end(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    char *at = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)at, MAP_FAILED);
    cr_assert_eq(mprotect(at + whole, page, PROT_NONE), 0);
    return at + whole - bytes;
}

static void free_room_at_the_end(void *block, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    cr_assert_eq(munmap((char *)block + bytes - whole, whole + page), 0);
}

enum { MOST_ROWS = 100, MOST_RUNS = 6 };

/* A product as convolutions have them: lines of rows that are `pixel` bytes apart, and runs that leave tiles out. */
typedef struct ragged {
    oct_row rows[MOST_ROWS];
    oct_run runs[MOST_RUNS];
    int64_t m, num_runs, n, ldc, x_bytes, tiles;
} ragged;

static ragged roll_ragged(dice *d)
{
    ragged r = {.m = roll_between(d, 1, MOST_ROWS),
                .num_runs = roll_between(d, 1, MOST_RUNS),
                .n = roll_between(d, 1, 150)};
    const bool whole =
        roll(d) & 1; /* tiles of rows, and columns, that a matrix unit takes as they are */
    const int64_t pixel = whole ? 64 * roll_between(d, 0, 2) : OCT_WORD * roll_between(d, 1, 30);
    const int64_t line = roll_between(d, 1, 60),
                  gap = whole ? 64 : OCT_WORD * roll_between(d, 0, 9);
    if (roll(d) & 1) r.n = (r.n + 15) / 16 * 16;
    r.ldc = r.n + 16 * roll_between(d, 0, 1);
    int64_t last = 0;
    for (int64_t i = 0; i < r.m; i++) {
        last = i * pixel + i / line * gap;
        r.rows[i] = (oct_row){.x = last, .acc = (line == 7 ? r.m - 1 - i : i) * r.ldc};
    }
    for (int64_t i = 0; i < r.num_runs; i++) {
        r.tiles += roll(d) & 1 ? roll_between(d, 0, 3) : 0;
        const int64_t words =
            whole && roll(d) & 1 ? 16 * roll_between(d, 1, 30) : roll_between(d, 1, 60);
        r.runs[i] = (oct_run){.x = r.x_bytes, .tile = r.tiles, .words = words};
        r.tiles += words;
        r.x_bytes += words * OCT_WORD + (whole ? 0 : OCT_WORD * roll_between(d, 0, 3));
    }
    r.x_bytes = last + r.runs[r.num_runs - 1].x + r.runs[r.num_runs - 1].words * OCT_WORD;
    return r;
}

/* The sum of a row and a column, from `start` on. w (n, tiles of words). */
static int32_t plain_sum(const ragged *r, int64_t row, int64_t column, const uint8_t *x,
                         const int8_t *w, int32_t start)
{
    for (int64_t i = 0; i < r->num_runs; i++)
        for (int64_t k = 0; k < r->runs[i].words * OCT_WORD; k++)
            start += x[r->rows[row].x + r->runs[i].x + k] *
                     w[column * r->tiles * OCT_WORD + r->runs[i].tile * OCT_WORD + k];
    return start;
}

/* The sums, from zero and from others, and, where a table makes codes at once, the codes of its own requantizer. */
static void check_ragged(const oct_kernel *kernel, dice *d)
{
    const ragged r = roll_ragged(d);
    const int64_t sums = r.m * r.ldc, weights = r.n * r.tiles * OCT_WORD;
    const size_t packed_size = (size_t)packed_bytes(kernel, r.n, r.tiles * OCT_WORD);
    uint8_t *x = room_at_the_end((size_t)r.x_bytes), *codes = room(sums, 1),
            *expected = room(sums, 1);
    int8_t *w = room(weights, 1), *packed = room_at_the_end(packed_size);
    int32_t *acc = room(sums, sizeof *acc), *bias = room(r.n, sizeof *bias);
    float *multiplier = room(r.n, sizeof *multiplier);
    roll_bytes(d, x, r.x_bytes);
    roll_weights(d, w, weights);
    pack_weights(kernel, r.n, r.tiles * OCT_WORD, w, packed);
    oct_product p = {.x = x,
                     .rows = r.rows,
                     .m = r.m,
                     .runs = r.runs,
                     .num_runs = r.num_runs,
                     .packed = packed,
                     .panel_bytes = oct_panel_bytes(kernel, 1, r.tiles * OCT_WORD),
                     .n = r.n,
                     .acc = acc,
                     .add = roll(d) & 1};
    for (int64_t i = 0; i < sums; i++)
        acc[i] = (int32_t)(1000 + i);
    kernel->bytes.product(&p);
    for (int64_t i = 0; i < r.m; i++)
        for (int64_t c = 0; c < r.ldc; c++) {
            const int64_t at = r.rows[i].acc + c;
            const int32_t start = p.add || c >= r.n ? (int32_t)(1000 + at) : 0;
            const int32_t sum = c < r.n ? plain_sum(&r, i, c, x, w, start) : start;
            cr_assert_eq(acc[at], sum,
                         "%s, %lld rows, %lld columns: row %lld, column %lld: %d, not %d",
                         kernel->name, (long long)r.m, (long long)r.n, (long long)i, (long long)c,
                         acc[at], sum);
        }
    const oct_requant q = roll_requant(d, r.n, bias, multiplier);
    p.add = false;
    p.acc = codes;
    memset(codes, 0xa5, (size_t)sums);
    memset(expected, 0xa5, (size_t)sums);
    if (kernel->product_codes) {
        kernel->product_codes(&p, &q);
        p.acc = acc;
        kernel->bytes.product(&p);
        for (int64_t i = 0; i < r.m; i++)
            kernel->requantize(
                &(oct_acc_rows){1, r.n, acc + r.rows[i].acc, expected + r.rows[i].acc, NULL, NULL},
                &q);
        cr_assert_arr_eq(codes, expected, (size_t)sums, "%s: codes", kernel->name);
    }
    free_room_at_the_end(x, (size_t)r.x_bytes);
    free_room_at_the_end(packed, packed_size);
    oct_free(&codes);
    oct_free(&expected);
    oct_free(&w);
    oct_free(&acc);
    oct_free(&bias);
    oct_free(&multiplier);
}

Test(product, of_ragged_rows_is_exact_and_reads_only_its_operands)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 9};
        for (int round = 0; round < 30; round++)
            check_ragged(all_kernels[i], &d);
    }
}

static void check_requantize(const oct_kernel *kernel, dice *d, int64_t m, int64_t n)
{
    const int64_t count = m * n;
    int32_t *acc = room(count, sizeof *acc), *bias = room(n, sizeof *bias);
    float *multiplier = room(n, sizeof *multiplier), range[2] = {INFINITY, -INFINITY};
    uint8_t *codes = room(count + 64, 1), *bare = room(count + 64, 1),
            *mask = room(count / 8 + 64, 1);
    uint8_t *addend = room(count, 1);
    oct_requant q = roll_requant(d, n, bias, multiplier);
    for (int64_t i = 0; i < count; i++)
        acc[i] = roll_sum(d);
    if (roll(d) & 1) {
        roll_bytes(d, addend, count);
        q.addend = addend;
        q.addend_zero_point = roll_zero_point(d, 255);
        q.addend_multiplier = roll(d) & 1 ? 0.75f : 1.37f;
    }
    memset(codes, 0xa5, (size_t)count + 64);
    memset(mask, 0xa5, (size_t)count / 8 + 64);

    kernel->requantize(&(oct_acc_rows){m, n, acc, codes, mask, range}, &q);
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        float v = (float)(acc[i] + bias[i % n]) * multiplier[i % n];
        if (q.addend) v += (float)(addend[i] - q.addend_zero_point) * q.addend_multiplier;
        bool pass;
        const uint8_t code = oracle_code(v, &q, &pass);
        low = fminf(low, oracle_clip(v, &q));
        high = fmaxf(high, oracle_clip(v, &q));
        cr_assert_eq(codes[i], code, "%s %lldx%lld, v %a: %d, not %d", kernel->name, (long long)m,
                     (long long)n, (double)v, codes[i], code);
        cr_assert_eq(mask[i / 8] >> (i % 8) & 1, pass, "%s %lldx%lld, v %a: mask", kernel->name,
                     (long long)m, (long long)n, (double)v);
    }
    for (int64_t i = count; i < (count + 7) / 8 * 8; i++)
        cr_assert_eq(mask[i / 8] >> (i % 8) & 1, 0, "bits after the last are zero");
    cr_assert_eq(mask[(count + 7) / 8], 0xa5);
    cr_assert_eq(codes[count], 0xa5);
    const float expected[2] = {low + 0.0f, high + 0.0f};
    cr_assert_arr_eq(range, expected, sizeof range, "%s: [%a, %a], not [%a, %a]", kernel->name,
                     (double)range[0], (double)range[1], (double)low, (double)high);

    /* Leaving out mask or range changes nothing else. */
    float alone[2] = {INFINITY, -INFINITY};
    kernel->requantize(&(oct_acc_rows){m, n, acc, bare, NULL, NULL}, &q);
    cr_assert_arr_eq(bare, codes, (size_t)count);
    kernel->requantize(&(oct_acc_rows){m, n, acc, bare, NULL, alone}, &q);
    cr_assert_arr_eq(bare, codes, (size_t)count);
    cr_assert_arr_eq(alone, range, sizeof range);
    uint8_t *again = room(count / 8 + 64, 1);
    kernel->requantize(&(oct_acc_rows){m, n, acc, bare, again, NULL}, &q);
    cr_assert_arr_eq(again, mask, (size_t)(count + 7) / 8);
    oct_free(&again);
    oct_free(&addend);
    oct_free(&acc);
    oct_free(&bias);
    oct_free(&multiplier);
    oct_free(&codes);
    oct_free(&bare);
    oct_free(&mask);
}

Test(requantize, follows_the_definition_on_every_instruction_set)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 11};
        for (int round = 0; round < 400; round++)
            check_requantize(all_kernels[i], &d, roll_between(&d, 1, 20), roll_between(&d, 1, 70));
        for (int64_t n = 1; n <= 40; n++)
            check_requantize(all_kernels[i], &d, 8, n);
    }
}

Test(requantize, rounds_ties_to_even)
{
    const int32_t bias = 0, acc[] = {1, 3, 5, -1, -3, -5, 2, 0};
    const float half = 0.5f;
    const oct_requant q = {.bias = &bias,
                           .multiplier = &half,
                           .lo = -128,
                           .hi = 127,
                           .zero_point = 128,
                           .six = INFINITY};
    const uint8_t expected[] = {128, 130, 130, 128, 126, 126, 129, 128};
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        uint8_t codes[8], mask;
        all_kernels[i]->requantize(&(oct_acc_rows){8, 1, acc, codes, &mask, NULL}, &q);
        cr_assert_arr_eq(codes, expected, sizeof codes, "%s", all_kernels[i]->name);
        cr_assert_eq(mask, 0xff);
    }
}

Test(requantize, merges_into_the_range_it_is_given)
{
    const int32_t bias = 0, acc[] = {10, 20};
    const float one = 1.0f;
    const oct_requant q = {.bias = &bias, .multiplier = &one, .hi = 255, .six = INFINITY};
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        float range[2] = {-3.0f, 15.0f};
        uint8_t codes[2];
        all_kernels[i]->requantize(&(oct_acc_rows){2, 1, acc, codes, NULL, range}, &q);
        cr_assert(range[0] == -3.0f && range[1] == 20.0f, "%s", all_kernels[i]->name);
        all_kernels[i]->requantize(&(oct_acc_rows){0, 1, acc, codes, NULL, range}, &q);
        cr_assert(range[0] == -3.0f && range[1] == 20.0f, "%s", all_kernels[i]->name);
    }
}

Test(requantize, shows_a_multiplier_that_is_not_finite_in_the_range)
{
    const float broken[] = {NAN, INFINITY, -INFINITY};
    int32_t bias[20] = {0}, acc[20] = {0};
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        for (size_t j = 0; j < OCT_COUNT(broken); j++) {
            float multiplier[20] = {[17] = broken[j]}, range[2] = {INFINITY, -INFINITY};
            const oct_requant q = {
                .bias = bias, .multiplier = multiplier, .lo = 3, .hi = 255, .six = INFINITY};
            uint8_t codes[20];
            all_kernels[i]->requantize(&(oct_acc_rows){1, 20, acc, codes, NULL, range}, &q);
            cr_assert(isnan(range[0]) && isnan(range[1]), "%s", all_kernels[i]->name);
            cr_assert_eq(codes[17], 3);
        }
    }
}

Test(requantize, lets_no_gradient_pass_at_the_corners_of_relu_and_relu6)
{
    /* v is -0.25, 0, 0.25, 39.75, 40, 40.25; the codes of all of them are within the bounds. */
    enum { N = 6 };
    const int32_t acc[N] = {-1, 0, 1, 159, 160, 161};
    int32_t many[8 * N], bias[8 * N] = {0};
    float quarter[8 * N];
    uint8_t codes[8 * N], mask[N];
    for (int j = 0; j < 8 * N; j++) {
        many[j] = acc[j % N];
        quarter[j] = 0.25f;
    }
    const oct_requant q = {
        .bias = bias, .multiplier = quarter, .hi = 255, .relu = true, .six = 40.0f};
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        for (int repeat = 1; repeat <= 8; repeat++) { /* whole vectors and their tails */
            float range[2] = {INFINITY, -INFINITY};
            all_kernels[i]->requantize(&(oct_acc_rows){1, repeat * N, many, codes, mask, range},
                                       &q);
            for (int j = 0; j < repeat * N; j++)
                cr_assert_eq(mask[j / 8] >> (j % 8) & 1, j % N == 2 || j % N == 3, "%s: element %d",
                             all_kernels[i]->name, j);
            cr_assert(range[0] == 0.0f && range[1] == 40.0f);
        }
    }
}

Test(requantize, has_one_zero_in_its_range)
{
    int32_t acc[20] = {0}, bias[20] = {0};
    float multiplier[20];
    uint8_t codes[20];
    const oct_requant q = {.bias = bias, .multiplier = multiplier, .hi = 255, .six = INFINITY};
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int c = 0; c < 20; c++)
            multiplier[c] = (float)sign;
        for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
            if (!runs_here(all_kernels[i])) continue;
            float range[2] = {INFINITY, -INFINITY};
            all_kernels[i]->requantize(&(oct_acc_rows){1, 20, acc, codes, NULL, range}, &q);
            cr_assert(range[0] == 0.0f && range[1] == 0.0f && !signbit(range[0]) &&
                          !signbit(range[1]),
                      "%s", all_kernels[i]->name);
        }
    }
}
