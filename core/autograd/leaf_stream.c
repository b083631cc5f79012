/* The gradient of a large parameter is summed while its leaves are computed.
 *
 * Leaf groups cut each part of the rank's leaves into subtrees of one size (the last may reach beyond the
 * part's end), so the tree over the part is a tree over groups, summed as they are computed (oct_tree_merges). The
 * merges of a round are listed first and then done block by block of columns, so each row is read
 * from memory once. A group whose left neighbour of the tree waits is added to it where it is made, and needs
 * neither a row nor a merge: the bits are those of the merge, since nothing that waits is -0.
 */
#include "core/autograd/tape.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"

#include <omp.h>
#include <string.h>

enum { COLUMNS = 2048, LEVELS = 64 };

/* A merge makes sum = left + right, or left where there is no right. */
typedef struct merge {
    float *sum;
    const float *left, *right;
} merge;

typedef struct oct_leaf_pending {
    oct_subtree parts[OCT_MAX_PARTS];
    int num_parts, part;    /* the part at hand */
    int64_t part_begin;     /* its first group */
    float *waiting[LEVELS]; /* stack: subtree sums that wait for their right neighbour */
    int num_waiting;
    float **group_row;    /* of the groups of this round */
    bool adds_to_waiting; /* the first of them is added to the sum on top of the stack */
    float **unused;       /* rows to take from */
    float **borrowed;     /* rows from scratch */
    int64_t rows, num_unused, num_borrowed;
    float *in_place; /* the memory of the only part, also used as a row; or NULL */
    merge *merges;   /* of the round */
    int num_merges;
} oct_leaf_pending;

static int64_t round_size(const oct_leaf_stream *stream)
{
    return oct_min_i64(omp_get_max_threads(), stream->num_groups);
}

static int64_t leaves_in(const oct_leaves *leaves, const oct_subtree *part)
{
    return oct_min_i64(part->span, leaves->first + leaves->local - part->first);
}

static int64_t groups_in(const oct_leaves *leaves, const oct_leaf_stream *stream,
                         const oct_subtree *part)
{
    return (leaves_in(leaves, part) + stream->leaves - 1) / stream->leaves;
}

/* A round that begins after n groups of a part may begin by adding to the group before it. */
static bool begins_by_adding(const oct_leaf_stream *stream, int64_t n)
{
    return n % 2 == 1 && !stream->apart;
}

/* Returns the most rows (partial sums of the gradient) needed at a time: one for each group of a round, and one for
 * each subtree that waits for its right neighbour (after n groups of a part as many as n has one bits). */
static int64_t rows_needed(const oct_leaves *leaves, const oct_leaf_stream *stream)
{
    oct_subtree parts[OCT_MAX_PARTS];
    int num_parts = oct_leaves_parts(leaves, parts);
    int64_t most = 0, per_round = round_size(stream), group = 0;
    for (int p = 0; p < num_parts; p++) {
        for (int64_t n = 0; n < groups_in(leaves, stream, &parts[p]); n++, group++) {
            int64_t rows = __builtin_popcountll((uint64_t)n) - begins_by_adding(stream, n);
            if (group % per_round == 0) most = oct_max_i64(most, rows);
        }
    }
    return most + per_round;
}

/* Allocates the state of the sum with its lists and rows; stream->pending stays NULL, or has too few rows, when there
 * is no memory. Each row is a block, which finds room more easily than all in one. Where all groups make one part, the
 * parameter's memory for that part serves as a row too, until the last merge. */
static void alloc_pending(oct_context *cx, oct_leaf_stream *stream)
{
    const oct_leaves *leaves = &cx->leaves;
    const int64_t groups = stream->num_groups;
    oct_leaf_pending start = {.rows = rows_needed(leaves, stream)};
    start.num_parts = oct_leaves_parts(leaves, start.parts);
    size_t per_round = (size_t)round_size(stream), merges = 2 * per_round + LEVELS;
    bool last_is_merge = groups > 2 || (groups == 2 && per_round == 2);
    if (start.num_parts == 1 && last_is_merge) start.in_place = stream->param->parts;
    size_t pointers = per_round + 2 * (size_t)start.rows;
    oct_leaf_pending *pending =
        oct_scratch(cx, sizeof *pending + merges * sizeof(merge) + pointers * sizeof(float *));
    if (!pending) return;
    *pending = start;
    pending->merges = (merge *)(void *)(pending + 1);
    pending->group_row = (float **)(void *)(pending->merges + merges);
    pending->unused = pending->group_row + per_round;
    pending->borrowed = pending->unused + pending->rows;
    stream->pending = pending;
    if (pending->in_place) pending->unused[pending->num_unused++] = pending->in_place;
    while (pending->num_unused < pending->rows) {
        float *row = oct_scratch(cx, (size_t)oct_numel(&stream->param->value) * sizeof(float));
        if (!row) return;
        pending->borrowed[pending->num_borrowed++] = pending->unused[pending->num_unused++] = row;
    }
}

int64_t oct_leaf_stream_leaves(const oct_context *cx, int64_t most)
{
    if (cx->watch.active) return 1;
    while (most > 1 && most * omp_get_max_threads() > cx->leaves.local)
        most /= 2;
    return most;
}

void oct_leaf_stream_begin(oct_context *cx, oct_leaf_stream *stream, oct_param *param,
                           int64_t leaves, const oct_leaf_layout *layout)
{
    OCT_ASSERT(leaves > 0 && (leaves & (leaves - 1)) == 0);
    OCT_ASSERT(leaves == 1 || !cx->watch.active);
    *stream = (oct_leaf_stream){
        .param = param, .layout = layout, .leaves = leaves, .apart = cx->watch.active};
    if (!oct_param_needs_grads(cx, param)) return;
    if (param->rows || param->uses > 1) { /* uses are added within each leaf, which has a row */
        stream->leaves = 1;
        stream->leaf_rows = oct_leaf_grads_begin(cx, param);
        if (layout) param->row_layout = *layout;
    }
    oct_subtree parts[OCT_MAX_PARTS];
    const int num_parts = oct_leaves_parts(&cx->leaves, parts);
    for (int p = 0; p < num_parts; p++)
        stream->num_groups += groups_in(&cx->leaves, stream, &parts[p]);
    if (!stream->leaf_rows) alloc_pending(cx, stream);
}

OCT_CLONES static void add_rows(float *sum, const float *left, const float *right, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = left[i] + right[i];
}

/* Executes the merges, sum = left + right or left alone, some columns at a time: each row is read from memory once. */
static void do_merges(oct_leaf_pending *pending, int64_t numel)
{
    int64_t blocks = (numel + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t column = b * COLUMNS, columns = oct_min_i64(COLUMNS, numel - column);
        for (int i = 0; i < pending->num_merges; i++) {
            const merge *m = &pending->merges[i];
            if (m->right)
                add_rows(m->sum + column, m->left + column, m->right + column, columns);
            else
                memcpy(m->sum + column, m->left + column, (size_t)columns * sizeof(float));
        }
    }
    pending->num_merges = 0;
}

/* Writes the current part's sum, the only row that waits, to the parameter: its last merge may write it in place. */
static void finish_part(oct_leaf_stream *stream)
{
    oct_leaf_pending *pending = stream->pending;
    const oct_param *param = stream->param;
    float *row = pending->waiting[--pending->num_waiting],
          *part = param->parts + pending->part * param->stride;
    OCT_ASSERT(pending->num_waiting == 0 && pending->part < param->max_parts);
    if (stream->layout) {
        do_merges(pending, oct_numel(&param->value));
        stream->layout->transpose(stream->layout, row, part);
    } else if (pending->num_merges > 0 && pending->merges[pending->num_merges - 1].sum == row) {
        pending->merges[pending->num_merges - 1].sum = part;
    } else {
        pending->merges[pending->num_merges++] = (merge){part, row, NULL};
    }
    pending->unused[pending->num_unused++] = row;
    pending->part++;
}

/* Puts the row of group `first + i` on the stack of waiting sums, and lists the merges of the two on top while they are
 * neighbours in the tree over groups. */
static void merge_group(const oct_leaves *leaves, oct_leaf_stream *stream, int64_t i)
{
    oct_leaf_pending *pending = stream->pending;
    const int64_t groups = groups_in(leaves, stream, &pending->parts[pending->part]);
    const int64_t group = stream->first + i - pending->part_begin;
    int merges = oct_tree_merges(group, groups);
    if (i == 0 && pending->adds_to_waiting)
        merges--; /* its leaves were added to the waiting sum already */
    else
        pending->waiting[pending->num_waiting++] = pending->group_row[i];
    for (; merges > 0; merges--) { /* the two subtrees on top of the stack become one */
        float *right = pending->waiting[--pending->num_waiting],
              *left = pending->waiting[pending->num_waiting - 1];
        float *sum = left == pending->in_place ? right : left;
        pending->merges[pending->num_merges++] = (merge){sum, left, right};
        pending->unused[pending->num_unused++] = sum == left ? right : left;
        pending->waiting[pending->num_waiting - 1] = sum;
    }
    if (group + 1 < groups) return;
    finish_part(stream);
    pending->part_begin += groups;
}

/* Adds the gradient of the watched leaf (samples whose contribution an audit checks) to the audit's digest, if this
 * round computed it. While a leaf is watched each group is a single leaf. */
static void report_watched_leaf(oct_context *cx, const oct_leaf_stream *stream)
{
    const size_t bytes = (size_t)oct_numel(&stream->param->value) * sizeof(float);
    for (int64_t g = stream->first; cx->watch.active && g < stream->end; g++) {
        const oct_leaf_group group = oct_leaf_stream_group(cx, stream, g);
        if (group.first == cx->watch.leaf) oct_leaf_watch_add(cx, group.row, bytes);
    }
}

bool oct_leaf_stream_next(oct_context *cx, oct_leaf_stream *stream, int64_t *first, int64_t *end)
{
    oct_meanwhile(cx);
    if (cx->status != OCT_OK) return false;
    if (stream->pending && stream->end > stream->first) {
        report_watched_leaf(cx, stream);
        for (int64_t i = 0; i < stream->end - stream->first; i++)
            merge_group(&cx->leaves, stream, i);
        do_merges(stream->pending, oct_numel(&stream->param->value));
    }
    stream->first = stream->end;
    if (stream->first == stream->num_groups) return false;
    int64_t size = stream->leaf_rows ? stream->num_groups : round_size(stream);
    stream->end = oct_min_i64(stream->first + size, stream->num_groups);
    oct_leaf_pending *pending = stream->pending;
    if (pending) {
        pending->adds_to_waiting = begins_by_adding(stream, stream->first - pending->part_begin);
        if (pending->adds_to_waiting)
            pending->group_row[0] = pending->waiting[pending->num_waiting - 1];
        for (int64_t i = pending->adds_to_waiting; i < stream->end - stream->first; i++)
            pending->group_row[i] = pending->unused[--pending->num_unused];
        OCT_ASSERT(pending->num_unused >= 0);
    }
    *first = stream->first;
    *end = stream->end;
    return true;
}

oct_leaf_group oct_leaf_stream_group(const oct_context *cx, const oct_leaf_stream *stream,
                                     int64_t group)
{
    if (stream->leaf_rows) {
        float *row = stream->leaf_rows + group * oct_numel(&stream->param->value);
        return (oct_leaf_group){.first = group, .end = group + 1, .row = row, .add = true};
    }
    const oct_leaves *leaves = &cx->leaves;
    const oct_leaf_pending *pending = stream->pending;
    const oct_subtree *part = &pending->parts[pending->part];
    int64_t n = group - pending->part_begin; /* counted in its part */
    for (; n >= groups_in(leaves, stream, part); part++)
        n -= groups_in(leaves, stream, part);
    const int64_t first = n * stream->leaves, begin = part->first - leaves->first;
    const int64_t end = oct_min_i64(first + stream->leaves, leaves_in(leaves, part));
    return (oct_leaf_group){.first = begin + first,
                            .end = begin + end,
                            .row = pending->group_row[group - stream->first],
                            .add = pending->adds_to_waiting && group == stream->first};
}

void oct_leaf_stream_end(oct_context *cx, oct_leaf_stream *stream)
{
    oct_param *param = stream->param;
    if (stream->leaf_rows) {
        oct_leaf_grads_end(cx, param);
        return;
    }
    oct_leaf_pending *pending = stream->pending;
    while (pending && pending->num_borrowed > 0)
        oct_scratch_end(cx, pending->borrowed[--pending->num_borrowed]);
    oct_scratch_end(cx, pending);
    if (cx->status != OCT_OK) return;
    OCT_ASSERT(stream->first == stream->num_groups); /* every leaf went by */
    param->uses--;
    param->folded = true;
}
