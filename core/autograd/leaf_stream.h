/* Gradients of large parameters are summed without a row for each leaf.
 *
 * Leaves go by in leaf groups: up to `leaves` leaves, a subtree of the tree over leaves, whose sum is one
 * row. Groups go by in rounds of consecutive ones, as many as there are threads. After a round its rows
 * are folded as far as the tree allows, so only the subtrees that wait for their neighbour are kept (a
 * row for each level at most). A parameter with several uses in this step keeps the rows of all leaves
 * instead, each a group, because a leaf's contributions are added before leaves are.
 *
 *     oct_leaf_stream stream;
 *     oct_leaf_stream_begin(cx, &stream, weight, leaves, layout);
 *     for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);)
 *         parallel for groups i in [first, end): write or add to oct_leaf_stream_group(cx, &stream, i).row
 *     oct_leaf_stream_end(cx, &stream);
 *
 * leaves: a power of two, oct_leaf_stream_leaves(cx, most) of the most that the op takes, so that all
 * threads have work. Rows are numel floats, to be added to (add) or fresh (not add): not initialised, and
 * to be written whole. A leaf contributes one float, rounded, to each element; what the tree makes of
 * these over the group is written as 0 + it (-0 becomes 0) or added to what is there, this leaf's own or
 * the left neighbour's of the tree, as a merge of their rows would; so neither groups nor which rows are
 * fresh show in a result. layout: that of the rows; NULL: the parameter's own. Every use of a
 * parameter in a step has the same one. next ends when the context has failed; end comes in any case.
 */
#pragma once

#include "core/autograd/leaf_grads.h"

typedef struct oct_leaf_stream {
    oct_param *param;
    const oct_leaf_layout *layout;
    int64_t leaves;                /* of a group, at most */
    int64_t num_groups;            /* of this rank */
    bool apart;                    /* each group has a row of its own: a leaf is watched */
    int64_t first, end;            /* groups at hand */
    float *all;                    /* rows of all leaves, or NULL: */
    struct oct_leaf_pending *some; /* those at hand and the sums that wait */
} oct_leaf_stream;

typedef struct oct_leaf_group {
    int64_t first, end; /* local leaves */
    float *row;
    bool add;
} oct_leaf_group;

int64_t oct_leaf_stream_leaves(const oct_context *cx, int64_t most);
void oct_leaf_stream_begin(oct_context *cx, oct_leaf_stream *stream, oct_param *param,
                           int64_t leaves, const oct_leaf_layout *layout);
bool oct_leaf_stream_next(oct_context *cx, oct_leaf_stream *stream, int64_t *first, int64_t *end);
oct_leaf_group oct_leaf_stream_group(const oct_context *cx, const oct_leaf_stream *stream,
                                     int64_t group);
void oct_leaf_stream_end(oct_context *cx, oct_leaf_stream *stream);
