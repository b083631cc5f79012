/* Rounds say who exchanges what with whom, so that every rank hears of all others.
 *
 * Ranks are halved, and halved again, down to one: neighbours first, each round merges the two halves of a
 * group. In rounds that halve the vector, each of the s ranks of a group holds an s-th of the vector,
 * summed over the group: a rank keeps what belongs to its place in the larger group, a part of what it held,
 * and gives the rest away. Places alternate between the halves (of s ranks the lower half has the places
 * 0, 2, 4, ...), so whatever the number of ranks no rank exchanges with more than two others in a round,
 * and with one where the halves are equally large; all transfer the same. The rounds backwards
 * spread what they have summed. In rounds that double, everybody hears the whole vector each time, which
 * takes half the rounds: for short vectors.
 *
 * So there are ceil(log2 size) rounds, and twice as many partners at most.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct oct_piece {
    int64_t begin, end;
} oct_piece;

/* What is given to a partner and taken from it; either may be empty. Backwards it is the other way
 * round. */
typedef struct oct_partner {
    int rank;
    oct_piece gives, takes;
} oct_partner;

enum { OCT_MAX_ROUNDS = 31, OCT_MAX_PARTNERS = 2 };

typedef struct oct_round {
    int first, end;  /* the ranks of the other half */
    oct_piece keeps; /* what this rank keeps */
    int num_partners;
    oct_partner partner[OCT_MAX_PARTNERS];
} oct_round;

/* Returns the piece of n elements at this place of `size`. */
oct_piece oct_share(int64_t n, int place, int size);
/* Lists the rounds of a rank over a vector of n elements; returns how many. */
int oct_rounds(int rank, int size, int64_t n, bool halve, oct_round rounds[OCT_MAX_ROUNDS]);
