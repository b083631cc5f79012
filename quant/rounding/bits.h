/* Masks of one bit an element, inside quant. Bit i of a mask is bit i % 8 of byte i / 8. */
#pragma once

#include <stdint.h>
#include <string.h>

enum { OCT_FLAG_BLOCK = 512 }; /* elements whose flags loops keep as bytes before packing */

/* Writes bits, one group after another; words of 32 bits go out as they fill. */
typedef struct oct_bit_writer {
    uint8_t *out;
    uint64_t pending;
    int count;
} oct_bit_writer;

/* count: at most 32. */
static inline void oct_bits_put(oct_bit_writer *w, uint32_t bits, int count)
{
    w->pending |= (uint64_t)bits << w->count;
    w->count += count;
    if (w->count < 32) return;
    const uint32_t word = (uint32_t)w->pending;
    memcpy(w->out, &word, sizeof word);
    w->out += sizeof word;
    w->pending >>= 32;
    w->count -= 32;
}

static inline void oct_bits_end(oct_bit_writer *w)
{
    for (; w->count > 0; w->count -= 8, w->pending >>= 8)
        *w->out++ = (uint8_t)w->pending;
}

/* Packs n flags of one byte (0 or 1) into bits; the multiplication gathers eight of them in the top byte. */
static inline void oct_bits_pack(const uint8_t *flags, int64_t n, uint8_t *mask)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t eight;
        memcpy(&eight, flags + i, 8);
        mask[i / 8] = (uint8_t)((eight * 0x0102040810204080u) >> 56);
    }
    if (i < n) {
        unsigned byte = 0;
        for (int64_t j = i; j < n; j++)
            byte |= (unsigned)flags[j] << (j - i);
        mask[i / 8] = (uint8_t)byte;
    }
}

/* Appends `count` bits of src after the first `first` bits of mask. */
static inline void oct_bits_append(uint8_t *mask, int64_t first, const uint8_t *src, int64_t count)
{
    uint8_t *out = mask + first / 8;
    int shift = (int)(first % 8);
    unsigned carry = *out & ((1u << shift) - 1);
    int64_t bytes = (count + 7) / 8, last = (first % 8 + count + 7) / 8;
    for (int64_t i = 0; i < bytes; i++) {
        unsigned wide = carry | (unsigned)src[i] << shift;
        out[i] = (uint8_t)wide;
        carry = wide >> 8;
    }
    if (last > bytes) out[bytes] = (uint8_t)carry;
}
