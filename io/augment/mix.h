/* Mixup (H. Zhang et al., 2017) and cutmix (S. Yun et al., 2019): a sample gets a part of another one, and its
 * label the same part of that one's.
 *
 * The other one is of the same leaf, so a rank has it whatever the ranks are: as many samples further, in
 * a circle, as the leaf draws. How much of it, and where from, the sample draws. */
#pragma once

#include "io/augment/dice.h"

typedef struct oct_mixing {
    double mixup, cutmix; /* alpha of the beta distribution of the shares; 0: off */
} oct_mixing;

/* The samples of a leaf as the model gets them. */
typedef struct oct_mix_leaf {
    oct_draw first; /* of the first sample; the others follow */
    int64_t samples, h, w, c, classes;
    float *images; /* samples x h x w x c */
    float *values; /* samples x classes: probabilities of the classes, or other goals */
    float *spare;  /* room for h * w * c + classes */
} oct_mix_leaf;

/* Mixes the samples in place; one alone stays as it is. */
void oct_mix(const oct_mixing *mixing, const oct_mix_leaf *leaf);
