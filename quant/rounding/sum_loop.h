/* The loop of sums of two codes. Who includes this has defined, of t = ma * a + mb * b,
 *     static inline int64_t round_pair(int64_t t, int64_t a, int64_t b, const oct_qadd *q, const oct_sum_constants *s,
 *                                   bool wide_output) */
#include "core/base/cpu.h"

OCT_CLONES
static void sum(oct_code_block *k, const oct_qadd *add, const oct_sum_constants *constants)
{
    const oct_qadd q = *add;
    const oct_sum_constants s = *constants;
    const int64_t n = k->n, lo = q.lo, hi = q.hi;
    const oct_pass_bounds pass = oct_qadd_pass(&q);
    const bool wide_output = k->wide_output;
    int32_t *restrict a = k->a;
    const int32_t *restrict b = k->b;
    uint8_t *restrict flags = k->flags;
    int64_t least = k->least, most = k->most;
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = q.ma * a[i] + q.mb * b[i];
        const int64_t r = round_pair(t, a[i], b[i], &q, &s, wide_output);
        int64_t cut = r < lo ? lo : r;
        cut = cut > hi ? hi : cut;
        a[i] = (int32_t)cut;
        flags[i] = (uint8_t)((r == cut) & (t >= pass.least) & (t <= pass.most));
        least = t < least ? t : least;
        most = t > most ? t : most;
    }
    k->least = least;
    k->most = most;
}
