/* OpenBLAS: plain products through its wrapper, and the float kernel that uses them. */
#include "core/kernel/blas.h"

#include "core/base/rng.h"
#include "core/kernel/float_kernel.h"
#include "tests/support/check_tensor.h"

static void check_product(const oct_sgemm_call *given, const float want[4], const char *what)
{
    const float a[] = {1, 2, 9, 3, 4, 9}, b[] = {5, 6, 7, 8};
    float c[] = {1, 1, 1, 1};
    oct_sgemm_call call = *given;
    call.m = call.n = call.k = 2;
    call.a = a;
    call.lda = 3;
    call.b = b;
    call.c = c;
    call.ldb = call.ldc = 2;
    oct_sgemm(&call);
    oct_check_bits_f32(c, want, 4, what);
}

Test(blas, products_with_transposed_operands_and_wide_rows)
{
    cr_assert_eq(oct_blas_init(), OCT_OK, "%s", oct_error_message(0));
    cr_assert_eq(strncmp(oct_blas_name(), "OpenBLAS 0.", 11), 0, "%s", oct_blas_name());
    check_product(&(oct_sgemm_call){.alpha = 1}, (float[]){19, 22, 43, 50}, "a b");
    check_product(&(oct_sgemm_call){.trans_a = true, .alpha = 1, .beta = 1},
                  (float[]){27, 31, 39, 45}, "a' b + c");
    check_product(&(oct_sgemm_call){.trans_b = true, .alpha = 2}, (float[]){34, 46, 78, 106},
                  "2 a b'");
}

enum { ROWS = 70, WORDS = 700, COLUMNS = 100, PANELS = 2, TILE = 64 };

/* Rows that overlap, with two runs that follow each other in the panel and one after a gap. */
static void multiply(float *acc, int64_t first, int64_t rows, int64_t words, int64_t columns)
{
    static float x[WORDS + ROWS], packed[PANELS * TILE * WORDS];
    const oct_run runs[] = {{.words = words / 3},
                            {.x = 8, .tile = words / 3, .words = words / 3},
                            {.x = 4, .tile = words - words / 4, .words = words / 4}};
    oct_row row[ROWS];
    oct_fill_uniform(x, OCT_COUNT(x), 1, OCT_STREAM_TEST, 0, -1, 1);
    oct_fill_uniform(packed, OCT_COUNT(packed), 2, OCT_STREAM_TEST, 0, -1, 1);
    for (int64_t r = 0; r < rows; r++)
        row[r] = (oct_row){.x = 4 * (first + r), .acc = (first + r) * COLUMNS};
    oct_float_kernel_blas.f32(&(oct_product){.x = x,
                                             .rows = row,
                                             .m = rows,
                                             .runs = runs,
                                             .num_runs = 3,
                                             .packed = packed,
                                             .panel_bytes = (int64_t)TILE * WORDS * 4,
                                             .n = columns,
                                             .acc = acc});
}

/* So ranks and threads, which cut rows into calls, change no bit. */
Test(blas, a_row_has_the_same_bits_in_any_place_and_with_any_number_of_others)
{
    static const int64_t words[] = {12, 64, 300, 700}, columns[] = {1, 16, 64, COLUMNS};
    static float all[ROWS * COLUMNS], parts[ROWS * COLUMNS];
    cr_assert_eq(oct_blas_init(), OCT_OK, "%s", oct_error_message(0));
    for (size_t w = 0; w < OCT_COUNT(words); w++)
        for (size_t c = 0; c < OCT_COUNT(columns); c++)
            for (int64_t cut = 1; cut < 40; cut += 6) {
                multiply(all, 0, ROWS, words[w], columns[c]);
                for (int64_t r = 0; r < ROWS; r += cut)
                    multiply(parts, r, ROWS - r < cut ? ROWS - r : cut, words[w], columns[c]);
                oct_check_bits_f32(parts, all, ROWS * COLUMNS, "rows in calls of their own");
            }
}
