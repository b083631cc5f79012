/* What the SIMD variants share: a copy of the requantizer for each kind of call. */
#pragma once

#include "quant/kernel/kernel.h"

/* Defines requantize from `as`, which is inlined and first takes whether there is a mask,
 * whether there is a range and whether there is a second addend: its loops ask none of them. */
#define OCT_REQUANTIZE(as)                                                                         \
    static void requantize(const oct_acc_rows *r, const oct_requant *q)                            \
    {                                                                                              \
        if (q->addend)                                                                             \
            OCT_REQUANTIZE_AS(as, true);                                                           \
        else                                                                                       \
            OCT_REQUANTIZE_AS(as, false);                                                          \
    }
#define OCT_REQUANTIZE_AS(as, added)                                                               \
    do {                                                                                           \
        if (r->mask && r->range)                                                                   \
            as(true, true, added, r, q);                                                           \
        else if (r->mask)                                                                          \
            as(true, false, added, r, q);                                                          \
        else if (r->range)                                                                         \
            as(false, true, added, r, q);                                                          \
        else                                                                                       \
            as(false, false, added, r, q);                                                         \
    } while (0)
