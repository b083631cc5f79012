/* The digest of memory (core/base/mem.h). */
#include "core/base/mem.h"

#include <criterion/criterion.h>
#include <string.h>

Test(digest, depends_on_every_bit_and_every_length)
{
    enum { BYTES = 200 };
    uint8_t data[BYTES + 1];
    for (int i = 0; i <= BYTES; i++)
        data[i] = (uint8_t)(i * 37);
    for (size_t n = 0; n <= BYTES; n += 1 + n / 8) {
        const uint64_t digest = oct_digest(data, n);
        cr_assert_neq(oct_digest(data, n + 1), digest);
        cr_assert_eq(oct_digest(memmove(data, data, n), n), digest);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            cr_assert_neq(oct_digest(data, n) >> 1, digest >> 1, "%zu bytes, bit %zu", n, bit);
            data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}
