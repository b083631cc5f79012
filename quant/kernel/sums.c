/* Sums over rows of accumulators, for the statistics of a batch. A block of channels keeps its sums in
 * registers while all rows go by; the order of a channel's terms is that of the rows, whatever the
 * block. */
#include "quant/kernel/qconv.h"

enum { BLOCK = 32 }; /* channels */

/* Channels [c, c + wide) of all rows; where `wide` is a constant, the sums stay in registers. */
#define SUM_BLOCK()                                                                                \
    do {                                                                                           \
        double total[BLOCK], squares[BLOCK];                                                       \
        for (int64_t j = 0; j < wide; j++) {                                                       \
            total[j] = sum[c + j];                                                                 \
            squares[j] = sum[n + c + j];                                                           \
        }                                                                                          \
        for (int64_t i = 0; i < rows; i++)                                                         \
            for (int64_t j = 0; j < wide; j++) {                                                   \
                const double a = (double)(acc[i * n + c + j] - offset[c + j]);                     \
                total[j] += a;                                                                     \
                squares[j] += a * a;                                                               \
            }                                                                                      \
        for (int64_t j = 0; j < wide; j++) {                                                       \
            sum[c + j] = total[j];                                                                 \
            sum[n + c + j] = squares[j];                                                           \
        }                                                                                          \
    } while (0)

#define SUMS(name, acc_t)                                                                          \
    OCT_CLONES                                                                                     \
    void name(int64_t rows, int64_t n, int64_t channels, const acc_t *restrict acc,                \
              const acc_t *restrict offset, double *restrict sum)                                  \
    {                                                                                              \
        int64_t c = 0;                                                                             \
        for (; c + BLOCK <= channels; c += BLOCK) {                                                \
            enum { wide = BLOCK };                                                                 \
            SUM_BLOCK();                                                                           \
        }                                                                                          \
        for (; c + 16 <= channels; c += 16) {                                                      \
            enum { wide = 16 };                                                                    \
            SUM_BLOCK();                                                                           \
        }                                                                                          \
        if (c < channels) {                                                                        \
            const int64_t wide = channels - c;                                                     \
            SUM_BLOCK();                                                                           \
        }                                                                                          \
    }
SUMS(oct_acc_sums, int32_t)
SUMS(oct_acc_sums16, int64_t)
