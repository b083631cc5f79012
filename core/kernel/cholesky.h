/* Cholesky's factorisation, in double and in plain C: the bits depend on the matrix alone, on no library, instruction set
 * or number of threads. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

/* Replaces the lower triangle of a (n x n, row by row) by L with L L^T = a; what lies above the diagonal is not touched.
 * OCT_NUMERIC when a is not positive definite. */
oct_status oct_cholesky(double *a, int64_t n) OCT_NODISCARD;
