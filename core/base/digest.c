/* Eight digests by FNV-1a over 64-bit words go side by side, so that their multiplications overlap; what they
 * end with, and the words left, are the words of a ninth. Each step is a bijection of the digest, and so is what
 * mixes the bits of the last: a multiplication carries upwards only. */
#include "core/base/digest.h"

#include <string.h>

enum { LANES = 8 };

static const uint64_t basis = 0xcbf29ce484222325u, prime = 0x100000001b3u;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t oct_digest(const void *data, size_t bytes)
{
    const char *at = data, *end = at + bytes;
    uint64_t lane[LANES], word[LANES], digest = basis ^ (uint64_t)bytes;
    for (int i = 0; i < LANES; i++)
        lane[i] = basis + (uint64_t)i;
    for (; (size_t)(end - at) >= sizeof word; at += sizeof word) {
        memcpy(word, at, sizeof word);
        for (int i = 0; i < LANES; i++)
            lane[i] = (lane[i] ^ word[i]) * prime;
    }
    for (int i = 0; i < LANES; i++)
        digest = (digest ^ lane[i]) * prime;
    for (; at < end; at += sizeof *word) {
        const size_t left = (size_t)(end - at);
        uint64_t last = 0;
        memcpy(&last, at, left < sizeof last ? left : sizeof last);
        digest = (digest ^ last) * prime;
        if (left < sizeof last) break;
    }
    return mix(digest);
}
