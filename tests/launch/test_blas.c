/* OpenBLAS, through the door that `octet bench kernels` has to it. */
#include "launch/bench/blas.h"

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
    cr_assert_eq(oct_blas_init(), OCT_OK, "%s", oct_fail_text(0));
    cr_assert(oct_blas_core()[0] != '\0');
    check_product(&(oct_sgemm_call){.alpha = 1}, (float[]){19, 22, 43, 50}, "a b");
    check_product(&(oct_sgemm_call){.trans_a = true, .alpha = 1, .beta = 1},
                  (float[]){27, 31, 39, 45}, "a' b + c");
    check_product(&(oct_sgemm_call){.trans_b = true, .alpha = 2}, (float[]){34, 46, 78, 106},
                  "2 a b'");
}
