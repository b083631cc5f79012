/* Float products by OpenBLAS, for processors that have no kernel of ours. Its sums have another order than those of the
 * other kernels, so their bits are others.
 *
 * The bits of OpenBLAS depend on the shape of a call. So all calls for a layer have one shape, however ranks and threads
 * cut rows into products: ROWS rows, gathered into a buffer that ends with rows of zeros. What a row becomes must not
 * depend on its place among them either, which is tried before the kernel is used: with 12 rows or more it does in some
 * of OpenBLAS's kernels, such as Haswell's.
 */
#include "core/kernel/float_impl.h"

#include "core/base/int_math.h"
#include "core/kernel/blas.h"

#include <pthread.h>
#include <string.h>

enum { ROWS = 8, COLUMNS = 64, DEPTH = 256 /* words of a call, at most */ };

/* sums (ROWS, n) += rows (ROWS, words of DEPTH) * tiles (words, n of COLUMNS) */
static void multiply_rows(const float *rows, const float *tiles, int64_t n, int64_t words,
                          float *sums)
{
    oct_sgemm(&(oct_sgemm_call){.m = ROWS,
                                .n = n,
                                .k = words,
                                .alpha = 1,
                                .beta = 1,
                                .a = rows,
                                .lda = DEPTH,
                                .b = tiles,
                                .ldb = COLUMNS,
                                .c = sums,
                                .ldc = n});
}

/* Gathers words of the rows from `word` of `run` on, as far as their tiles follow each other, and continues after them;
 * returns how many. */
static int64_t gather_words(const oct_product *p, const oct_row *row, int64_t count,
                            const oct_run **run, int64_t *word, float *rows)
{
    const oct_run *const end = p->runs + p->num_runs;
    const int64_t tile = (*run)->tile + *word;
    int64_t words = 0;
    while (*run < end && words < DEPTH && (*run)->tile + *word == tile + words) {
        const int64_t length = oct_min_i64((*run)->words - *word, DEPTH - words);
        const char *x = (const char *)p->x + (*run)->x + 4 * *word;
        for (int64_t r = 0; r < count; r++)
            memcpy(rows + r * DEPTH + words, x + row[r].x, (size_t)length * sizeof *rows);
        words += length;
        *word += length;
        if (*word == (*run)->words) *word = 0, ++*run;
    }
    for (int64_t r = count; r < ROWS; r++)
        memset(rows + r * DEPTH, 0, (size_t)words * sizeof *rows);
    return words;
}

/* Multiplies gathered rows with all panels, from a tile on, and adds that to their sums. */
static void add_products(const oct_product *p, const oct_row *row, int64_t count, const float *rows,
                         int64_t words, int64_t tile)
{
    float sums[ROWS * COLUMNS] = {0};
    for (int64_t column = 0; column < p->n; column += COLUMNS) {
        const int64_t n = oct_min_i64(COLUMNS, p->n - column);
        const char *panel = (const char *)p->packed + column / COLUMNS * p->panel_bytes;
        float *acc = (float *)p->acc + column;
        for (int64_t r = 0; r < count; r++)
            memcpy(sums + r * n, acc + row[r].acc, (size_t)n * sizeof *sums);
        multiply_rows(rows, (const float *)(const void *)panel + tile * COLUMNS, n, words, sums);
        for (int64_t r = 0; r < count; r++)
            memcpy(acc + row[r].acc, sums + r * n, (size_t)n * sizeof *sums);
    }
}

/* acc (m, n) = or += rows * packed panels (product.h), by calls of sgemm that all have ROWS rows. */
static __attribute__((noinline)) void f32(const oct_product *p)
{
    float rows[ROWS * DEPTH];
    for (int64_t first = 0; first < p->m; first += ROWS) {
        const oct_row *row = p->rows + first;
        const int64_t count = oct_min_i64(ROWS, p->m - first);
        for (int64_t r = 0; r < count && !p->add; r++)
            memset((float *)p->acc + row[r].acc, 0, (size_t)p->n * sizeof(float));
        int64_t word = 0;
        for (const oct_run *run = p->runs; run < p->runs + p->num_runs;) {
            const int64_t tile = run->tile + word;
            const int64_t words = gather_words(p, row, count, &run, &word, rows);
            add_products(p, row, count, rows, words, tile);
        }
    }
}

OCT_FLUSHED(bf16, f32)

static pthread_once_t tried = PTHREAD_ONCE_INIT;
static bool usable;

/* Sets `usable`: equal rows of a call have sums with equal bits, as ranks and threads need. */
static void try_equal_rows(void)
{
    static const int64_t words[] = {1, 7, 64, DEPTH - 1, DEPTH};
    static float rows[ROWS * DEPTH], tiles[DEPTH * COLUMNS];
    usable = oct_blas_found();
    for (int64_t i = 0; i < ROWS * DEPTH; i++)
        rows[i] = 1.0F / (float)(i % DEPTH + 3);
    for (int64_t i = 0; i < DEPTH * COLUMNS; i++)
        tiles[i] = 1.0F / ((float)(i % 101) - 50.5F);
    for (size_t w = 0; w < OCT_COUNT(words); w++)
        for (int64_t n = 1; usable && n <= COLUMNS; n++) {
            float sums[ROWS * COLUMNS] = {0};
            multiply_rows(rows, tiles, n, words[w], sums);
            for (int64_t r = 1; r < ROWS; r++)
                usable = usable && memcmp(sums, sums + r * n, (size_t)n * sizeof *sums) == 0;
        }
}

static bool is_usable(void)
{
    pthread_once(&tried, try_equal_rows);
    return usable;
}

const oct_float_kernel oct_float_kernel_blas = {
    .isa = OCT_ISA_BLAS,
    .name = "blas",
    .col_tile = COLUMNS,
    .bf16_words = OCT_BF16_FLOATS,
    .present = is_usable,
    .f32 = f32,
    .bf16 = bf16,
};
