/* Random numbers of one transform for one sample, word by word from Philox. Reals come from words by
 * exact operations and the functions below, so their bits do not depend on the C library. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Which sample of a run it is: the seed of the recipe, and epoch * count + position in the epoch. */
typedef struct oct_draw {
    uint64_t seed, index;
} oct_draw;

typedef struct oct_dice {
    oct_draw draw;
    uint32_t sub; /* of the block that comes next */
    uint32_t word[4];
    int left;      /* words of the block that are not used yet */
    double normal; /* the second one of a pair */
    bool has_normal;
} oct_dice;

/* Places of a list are 0 to OCT_DICE_PLACES - 1; each has 2^28 words of its own, after sub 0. The last two
 * belong to mixing: of a sample, and of a leaf, which is named by its first sample. */
enum { OCT_DICE_PLACES = 63, OCT_DICE_MIX = OCT_DICE_PLACES - 1, OCT_DICE_LEAF = OCT_DICE_MIX - 1 };
oct_dice oct_dice_of(const oct_draw *draw, int place);

/* Returns the next random word; Philox makes four at a time. */
uint32_t oct_dice_word(oct_dice *dice);
double oct_dice_real(oct_dice *dice, double from, double to); /* [from, to) */
int64_t oct_dice_below(oct_dice *dice, int64_t n);            /* [0, n), n below 2^32 */
bool oct_dice_chance(oct_dice *dice, double p);
double oct_dice_normal(oct_dice *dice); /* mean 0, variance 1; two of two words */
/* Beta(alpha, alpha), as mixup wants: a share in [0, 1]. */
double oct_dice_beta(oct_dice *dice, double alpha);

/* Exponential, logarithm, sine and cosine whose bits are the same everywhere: additions, multiplications
 * and divisions of doubles in a fixed order, within some units of the last place. */
double oct_real_exp(double x); /* 0 and infinity where the result leaves the doubles */
double oct_real_log(double x); /* x > 0, finite */
void oct_real_sin_cos(double x, double *sine, double *cosine); /* |x| up to 1e6 */
