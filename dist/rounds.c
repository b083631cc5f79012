/* Halves of halves of the ranks, and the shares of a vector that they hold. */
#include "dist/rounds.h"

#include "core/base/int_math.h"
#include "core/base/status.h"

enum { STEP = 16 }; /* shares begin at multiples, so no cache line has two owners */

typedef struct group {
    int first, end;
} group;

static int group_size(group g)
{
    return g.end - g.first;
}

/* The lower half has one rank more where the number is odd. */
static group half_of_group(group g, bool upper)
{
    const int middle = g.first + (group_size(g) + 1) / 2;
    return upper ? (group){middle, g.end} : (group){g.first, middle};
}

/* Returns the rank at a place of the group: even places are in its lower half, odd ones in the upper, at place / 2. */
static int rank_at_place(group g, int place)
{
    while (group_size(g) > 1) {
        g = half_of_group(g, place % 2 == 1);
        place /= 2;
    }
    return g.first;
}

oct_piece oct_share(int64_t n, int place, int size)
{
    const int64_t steps = (n + STEP - 1) / STEP;
    return (oct_piece){oct_min_i64(steps * place / size * STEP, n),
                       oct_min_i64(steps * (place + 1) / size * STEP, n)};
}

static oct_piece intersect_pieces(oct_piece a, oct_piece b)
{
    const oct_piece common = {oct_max_i64(a.begin, b.begin), oct_min_i64(a.end, b.end)};
    return common.begin < common.end ? common : (oct_piece){0, 0};
}

/* Adds a partner to a round unless nothing is exchanged with it. */
static void add_partner(oct_round *round, oct_partner partner)
{
    if (partner.gives.begin == partner.gives.end && partner.takes.begin == partner.takes.end)
        return;
    OCT_ASSERT(round->num_partners < OCT_MAX_PARTNERS);
    round->partner[round->num_partners++] = partner;
}

/* A seat is the place of a rank where two halves exchange. */
typedef struct seat {
    int64_t n;
    int place, mine; /* in its own half, and the ranks of that */
    group other;
    bool upper; /* its own half is */
} seat;

/* Makes a round that halves what a rank has, its share among its own half, to its share among both halves. The rest
 * belongs to at most two ranks of the other half, at its place and beside it, which have the rest of what it keeps. */
static void halve_round(const seat *s, oct_round *round)
{
    const int others = group_size(s->other), all = s->mine + others;
    const oct_piece had = oct_share(s->n, s->place, s->mine);
    round->keeps = oct_share(s->n, 2 * s->place + s->upper, all);
    for (int place = s->place - 1; place <= s->place + 1; place++) {
        if (place < 0 || place >= others) continue;
        const oct_piece theirs = oct_share(s->n, 2 * place + !s->upper, all);
        add_partner(round,
                    (oct_partner){rank_at_place(s->other, place), intersect_pieces(had, theirs),
                                  intersect_pieces(round->keeps, oct_share(s->n, place, others))});
    }
}

/* Makes a round that exchanges whole vectors with the rank at the same place of the other half. A rank without one
 * opposite, at the end of the larger half, receives from the partner of its neighbour. */
static void double_round(const seat *s, oct_round *round)
{
    const oct_piece whole = {0, s->n}, nothing = {0, 0};
    const int others = group_size(s->other);
    round->keeps = whole;
    if (s->place >= others) {
        add_partner(round, (oct_partner){rank_at_place(s->other, others - 1), nothing, whole});
        return;
    }
    add_partner(round, (oct_partner){rank_at_place(s->other, s->place), whole, whole});
    if (s->place + 1 == s->mine && s->mine < others)
        add_partner(round, (oct_partner){rank_at_place(s->other, s->mine), whole, nothing});
}

/* Halves the ranks down to this one, then lists the rounds from there up: one for each halving, with the other half. */
int oct_rounds(int rank, int size, int64_t n, bool halve, oct_round rounds[OCT_MAX_ROUNDS])
{
    group path[OCT_MAX_ROUNDS + 1] = {{0, size}};
    int count = 0, place = 0;
    while (group_size(path[count]) > 1) {
        OCT_ASSERT(count < OCT_MAX_ROUNDS);
        const group lower = half_of_group(path[count], false);
        path[count + 1] = half_of_group(path[count], rank >= lower.end);
        count++;
    }
    for (int r = 0; r < count; r++) {
        const group mine = path[count - r], all = path[count - r - 1];
        const bool upper = mine.first > all.first;
        const seat s = {n, place, group_size(mine), half_of_group(all, !upper), upper};
        rounds[r] = (oct_round){.first = s.other.first, .end = s.other.end};
        if (halve)
            halve_round(&s, &rounds[r]);
        else
            double_round(&s, &rounds[r]);
        place = 2 * place + upper;
    }
    return count;
}
