/* A sum over leaves, phase by phase. reduce.c has the order of the phases and the rounds between nodes; the phases in
 * a node are done in one of two ways: through slots that the ranks share (reduce.c), or where the vectors are (sums.c).
 * Each way is a function that does the phase at hand, and can be read by itself. */
#pragma once

#include "dist/comm_impl.h"
#include "dist/rounds.h"

/* A piece in slots, and a rank's share of it, begins at a cache line. */
enum { OCT_PIECE_STEP = 16 /* elements */ };

/* What comes next; in between, what was posted has ended. */
typedef enum oct_sum_phase {
    OCT_SUM_CLEAR, /* wait until the memory of the piece at hand is free */
    OCT_SUM_FILL, /* show the node this rank's vectors; in the second pass its share of the total */
    OCT_SUM_MERGE,  /* sum this rank's share of the piece, which all have filled in */
    OCT_SUM_READ,   /* read the total of the piece, which all have summed */
    OCT_SUM_ROUND,  /* exchange with the other half of the nodes */
    OCT_SUM_FOLD,   /* add what came in the round */
    OCT_SUM_SPREAD, /* the rounds backwards */
    OCT_SUM_DONE    /* the total is in `out` on this rank */
} oct_sum_phase;

/* The stages that a rank reports to its node of each piece. */
typedef enum oct_sum_stage {
    OCT_FILLED = 1,
    OCT_SUMMED,
    OCT_READ,
    OCT_STAGES = OCT_READ
} oct_sum_stage;

/* Vectors over some elements, one for each part (maximal aligned subtree) of a run of leaves. */
typedef struct oct_holding {
    oct_leaves run;
    int num_parts;
    oct_subtree parts[OCT_MAX_PARTS];
    char *vectors[OCT_MAX_PARTS];
} oct_holding;

/* Vectors are bytes here, `width` bytes an element. */
typedef struct oct_sum oct_sum;
struct oct_sum {
    const oct_comm *comm;
    char *out; /* the total of all n elements, on every rank */
    int64_t n;
    size_t width;
    oct_sum_phase phase;
    oct_holding own;   /* at first this rank's vectors; then what it has summed, in its lane */
    oct_holding other; /* what comes from the other half in a round */
    char *scratch;     /* free memory for `other` */

    /* In the node, piece by piece of the vector. A rank sums its share of each piece. Of several nodes there are two
     * passes: in the first the node is summed, in the second each rank gives the others its share of the total. */
    oct_status (*run_in_node)(oct_sum *s); /* the phases CLEAR to READ; NULL at the begin: slots */
    oct_rows *rows;                        /* that the others see in place; NULL: slots */
    size_t stride;                         /* bytes from one vector of a rank to its next */
    int64_t piece_size, piece_begin;       /* elements */
    int total_rank;                        /* the rank in whose slot or rows the total is */
    bool second_pass;

    /* Between nodes, over this rank's shares of all pieces, one after the other: its lane. */
    int64_t lane;     /* elements */
    char *lane_parts; /* slots: the sums of the node in the lane, part after part */
    char *lane_total;
    int64_t lane_used; /* slots: elements of the lane that this pass has filled or read */
    bool halves;       /* each round halves what a rank keeps; else all have all of the lane */
    oct_round rounds[OCT_MAX_ROUNDS];
    int num_rounds, round;
    oct_piece piece; /* of the lane: what `own` is over */
};

static inline size_t oct_sum_bytes(const oct_sum *s, int64_t elements)
{
    return (size_t)elements * s->width;
}

static inline int64_t oct_piece_length(oct_piece piece)
{
    return piece.end - piece.begin;
}

/* What a rank has done, as its line counts it: a number that rises with each stage of each piece. */
static inline uint64_t oct_sum_progress(uint64_t piece, oct_sum_stage stage)
{
    return piece * OCT_STAGES + (uint64_t)stage;
}

/* The nodes that the ranks of the sum are on. */
static inline int oct_sum_num_nodes(const oct_sum *s)
{
    return s->comm->base.size / s->comm->state->node.ranks;
}

/* reduce.c, for the two ways through a node: this rank's share of the piece at hand. */
oct_piece oct_sum_share(const oct_sum *s);
/* Reports a stage of the piece at hand, and posts the wait for the others of the node. */
oct_status oct_sum_synchronize(const oct_sum *s, oct_sum_stage stage);
/* Sums this rank's share of the piece. part_of returns where part p of another rank is over the piece. Returns how many
 * parts the node has; their sums over the share are at state->vectors. */
int oct_sum_add_share(const oct_sum *s, char *(*part_of)(const oct_sum *s, int rank, int p));
/* Reports the piece as read and moves on: to the next piece, to the rounds, or to the end. */
void oct_sum_end_piece(oct_sum *s);
/* The rank of this node in whose slots or rows the total is. */
int oct_sum_total_rank(const oct_comm *comm, const oct_leaves *leaves);

/* reduce.c, for sums.c: begins a sum of this rank's vectors, `stride` elements apart. */
oct_status oct_sum_begin(oct_sum *s, const oct_leaves *leaves, char *parts, int64_t stride);
/* Runs the next phase of a sum and moves s->phase on; nothing that was posted before may be in flight. */
oct_status oct_sum_run_phase(oct_sum *s);
/* Returns how many waits of other ranks may come before the wait of this phase ends: the factor of its deadline. */
int oct_sum_patience(const oct_sum *s);
