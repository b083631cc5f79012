/* Norm groups sum their leaves along their own subtree, in place where a rank has all of them. */
#include "core/op/norm_groups.h"

#include "core/autograd/tape.h"
#include "core/base/int_math.h"

#include <math.h>
#include <string.h>

oct_norm_groups oct_norm_groups_of(const oct_context *cx, bool live)
{
    const oct_leaves *leaves = &cx->leaves;
    oct_norm_groups groups = {.leaves = *leaves, .span = INT64_MAX, .count = 1};
    if (!live || cx->norm_group == 0) return groups;
    const int64_t end = leaves->first + leaves->local;
    groups.span = cx->norm_group;
    groups.first = leaves->first / groups.span;
    groups.count = leaves->local == 0 ? 0 : (end - 1) / groups.span + 1 - groups.first;
    return groups;
}

static bool is_whole_batch(const oct_norm_groups *groups)
{
    return groups->span == INT64_MAX;
}

int64_t oct_norm_group_at(const oct_norm_groups *groups, int64_t i)
{
    return (groups->leaves.first + i) / groups->span - groups->first;
}

int64_t oct_norm_group_samples(const oct_norm_groups *groups, int64_t g)
{
    const oct_leaves *leaves = &groups->leaves;
    if (is_whole_batch(groups)) return leaves->samples;
    const int64_t samples = groups->span * leaves->leaf;
    return oct_min_i64(samples, leaves->samples - (groups->first + g) * samples);
}

int64_t oct_norm_group_least(const oct_norm_groups *groups)
{
    const oct_leaves *leaves = &groups->leaves;
    if (is_whole_batch(groups)) return leaves->samples;
    return (leaves->samples - 1) % (groups->span * leaves->leaf) + 1;
}

/* Gives the run of this rank's leaves that are in group g. */
static oct_leaves leaves_of_group(const oct_norm_groups *groups, int64_t g)
{
    oct_leaves own = groups->leaves;
    const int64_t end = own.first + own.local, at = (groups->first + g) * groups->span;
    own.first = oct_max_i64(own.first, at);
    own.local = oct_min_i64(end, at + groups->span) - own.first;
    return own;
}

/* own: this rank's leaves of group g. */
static bool is_inside_rank(const oct_context *cx, const oct_norm_groups *groups,
                           const oct_leaves *own, int64_t g)
{
    if (cx->norm_share_all) return false;
    const int64_t at = (groups->first + g) * groups->span;
    return own->local == oct_min_i64(groups->span, own->count - at);
}

/* Counts the groups of the batch, below the one numbered `end`, that have leaves of several ranks, or all of
 * them with norm_share_all. */
static int64_t crossing_below(const oct_context *cx, const oct_norm_groups *groups, int64_t end)
{
    int64_t count = 0, last = -1;
    if (cx->norm_share_all) return oct_min_i64(end, (cx->leaves.count - 1) / groups->span + 1);
    for (int r = 1; r < cx->group->size; r++) {
        const oct_leaves *all = &cx->leaves;
        const int64_t begin = oct_leaves_split(all->samples, all->leaf, r, cx->group->size).first;
        const int64_t g = begin / groups->span;
        if (begin == cx->leaves.count || begin % groups->span == 0 || g == last || g >= end)
            continue;
        last = g;
        count++;
    }
    return count;
}

/* A sum over ranks has a row for each leaf with columns of each group, so its memory grows with both; it takes some
 * groups at a time, as many on each rank. That matters in an audit, where all ranks get the sums of each group. */
enum { SUM_BYTES = 1 << 26 };

/* Returns the number of group g among those that cross ranks, in all of the batch; -1 where it lies inside this one. */
static int64_t crossing_number(const oct_context *cx, const oct_norm_groups *groups, int64_t g)
{
    const oct_leaves own = leaves_of_group(groups, g);
    return is_inside_rank(cx, groups, &own, g) ? -1 : crossing_below(cx, groups, groups->first + g);
}

/* Sums those of the groups crossing ranks that are numbered [from, end). Each has columns of its own, in which the
 * leaves of others count 0, so the tree over all leaves gives what the group's subtree gives. */
static bool sum_crossing_groups(oct_context *cx, const oct_norm_groups *groups, const double *rows,
                                int64_t n, int64_t from, int64_t end, double *totals)
{
    const int64_t width = (end - from) * n, local = cx->leaves.local;
    const size_t bytes = (size_t)(local * width) * sizeof(double);
    double *leaf_rows = oct_scratch(cx, bytes + (size_t)width * sizeof(double));
    if (!leaf_rows) return false;
    double *total = leaf_rows + local * width;
    memset(leaf_rows, 0, bytes);
    for (int64_t g = 0; g < groups->count; g++) {
        const int64_t number = crossing_number(cx, groups, g);
        if (number < from || number >= end) continue;
        const oct_leaves own = leaves_of_group(groups, g);
        for (int64_t i = own.first - cx->leaves.first, stop = i + own.local; i < stop; i++)
            memcpy(leaf_rows + i * width + (number - from) * n, rows + i * n,
                   (size_t)n * sizeof *leaf_rows);
    }
    const bool done = oct_sum_over_ranks(cx, leaf_rows, width, total);
    for (int64_t g = 0; done && g < groups->count; g++) {
        const int64_t number = crossing_number(cx, groups, g);
        if (number < from || number >= end) continue;
        memcpy(totals + g * n, total + (number - from) * n, (size_t)n * sizeof *totals);
    }
    oct_scratch_end(cx, leaf_rows);
    return done;
}

bool oct_sum_over_groups(oct_context *cx, const oct_norm_groups *groups, double *rows, int64_t n,
                         double *totals)
{
    if (is_whole_batch(groups)) return oct_sum_over_ranks(cx, rows, n, totals);
    if (!oct_batch_is_whole(cx)) return false;
    const int64_t crossing = crossing_below(cx, groups, INT64_MAX);
    const int64_t most_leaves = cx->leaves.count / cx->group->size + 1; /* of a rank */
    const int64_t at_once = oct_max_i64(1, SUM_BYTES / (most_leaves * n * (int64_t)sizeof(double)));
    for (int64_t from = 0; from < crossing; from += at_once)
        if (!sum_crossing_groups(cx, groups, rows, n, from, oct_min_i64(from + at_once, crossing),
                                 totals))
            return false;
    for (int64_t g = 0; g < groups->count; g++) {
        const oct_leaves own = leaves_of_group(groups, g);
        if (!is_inside_rank(cx, groups, &own, g)) continue;
        double *row = rows + (own.first - cx->leaves.first) * n;
        oct_tree_fold_f64(&own, row, n);
        memcpy(totals + g * n, row, (size_t)n * sizeof *totals);
    }
    return true;
}

/* A call of a batch norm in the forward at hand. It is borrowed, since a backward gives back what the forward
 * has saved. */
typedef struct oct_norm_note oct_norm_note;
struct oct_norm_note {
    oct_bn_args args;
    oct_norm_groups groups;
    int64_t channels;
    float *values; /* (groups.count, 2, C) */
    oct_module *module;
    oct_norm_note *next; /* in the order of the calls */
};

/* Fails the context of all ranks where a group has a single value of a channel. */
static bool has_variance(oct_context *cx, const oct_bn_stats *stats)
{
    if (oct_norm_group_least(&stats->groups) * stats->positions >= 2) return true;
    if (cx->norm_group > 0)
        return oct_context_fail(
            cx, OCT_USAGE,
            "batch_norm has 1 value a channel in the last group of a batch of %lld samples and "
            "needs 2 or more to train; drop the last batch (data.drop_last) or make the group "
            "larger",
            (long long)cx->leaves.samples);
    return oct_context_fail(
        cx, OCT_USAGE,
        "batch_norm has 1 value a channel in the whole batch and needs 2 or more to train; "
        "make the batch larger or freeze the batch norm");
}

bool oct_bn_stats_begin(oct_context *cx, oct_bn_stats *stats)
{
    const oct_norm_groups *groups = &stats->groups;
    stats->noted = NULL;
    if (!has_variance(cx, stats)) return false;
    if (is_whole_batch(groups)) return true;
    oct_norm_note *note = oct_scratch(cx, sizeof *note);
    stats->noted =
        oct_scratch(cx, (size_t)(groups->count * 2 * stats->channels) * sizeof *stats->noted);
    if (!note || !stats->noted) return false;
    *note = (oct_norm_note){.args = *stats->args,
                            .groups = *groups,
                            .channels = stats->channels,
                            .values = stats->noted,
                            .module = cx->module};
    oct_norm_note **end = &cx->norm_notes;
    while (*end)
        end = &(*end)->next;
    *end = note;
    return true;
}

/* Moves the running values of channel c towards the batch's, unless one would not be finite. */
static bool move_running(const oct_bn_args *args, int64_t c, float mean, float unbiased)
{
    float *running_mean = &args->running_mean[c], *running_var = &args->running_var[c];
    const float next_mean = *running_mean + args->momentum * (mean - *running_mean);
    const float next_var = *running_var + args->momentum * (unbiased - *running_var);
    if (!isfinite(next_mean) || !isfinite(next_var)) return false;
    *running_mean = next_mean;
    *running_var = next_var;
    return true;
}

void oct_bn_invalidate(const oct_bn_stats *stats, int64_t g, int64_t c)
{
    const int64_t at = g * stats->channels + c;
    stats->mean[at] = stats->inv_std[at] = 0.0f;
    if (stats->noted) stats->noted[g * 2 * stats->channels + c] = NAN;
}

bool oct_bn_update(const oct_bn_stats *stats, int64_t g, int64_t c, const oct_bn_batch *batch)
{
    const int64_t at = g * stats->channels + c;
    const float mean = (float)batch->mean;
    const float inv_std = (float)(1.0 / sqrt(batch->var + (double)stats->args->eps));
    stats->mean[at] = mean;
    stats->inv_std[at] = inv_std;
    if (!stats->noted) return move_running(stats->args, c, mean, (float)batch->unbiased);
    const double share =
        (double)oct_norm_group_samples(&stats->groups, g) / (double)stats->groups.leaves.samples;
    float *noted = stats->noted + g * 2 * stats->channels + c;
    noted[0] = (float)(batch->mean * share);
    noted[stats->channels] = (float)(batch->unbiased * share);
    if (!isfinite(mean) || !isfinite(inv_std) || !isfinite((float)batch->unbiased))
        oct_bn_invalidate(stats, g, c);
    return true;
}

int64_t oct_norm_notes_numel(const oct_context *cx)
{
    int64_t numel = 0;
    for (const oct_norm_note *note = cx->norm_notes; note; note = note->next)
        numel += 2 * note->channels;
    return numel;
}

/* A group's share is a term of its first leaf, and that leaf's rank has it. */
void oct_norm_notes_fold(const oct_context *cx, float *rows)
{
    const int64_t numel = oct_norm_notes_numel(cx);
    float *column = rows;
    if (cx->leaves.local == 0) return;
    memset(rows, 0, (size_t)(cx->leaves.local * numel) * sizeof *rows);
    for (const oct_norm_note *note = cx->norm_notes; note; note = note->next) {
        const int64_t width = 2 * note->channels;
        for (int64_t g = 0; g < note->groups.count; g++) {
            const int64_t i = (note->groups.first + g) * note->groups.span - cx->leaves.first;
            if (i >= 0)
                memcpy(column + i * numel, note->values + g * width, (size_t)width * sizeof *rows);
        }
        column += width;
    }
    oct_tree_fold_f32(&cx->leaves, rows, numel);
}

void oct_norm_notes_take(oct_context *cx, const float *total)
{
    oct_module *module = cx->module;
    for (oct_norm_note *note = cx->norm_notes, *next; note; note = next) {
        const int64_t n = note->channels;
        bool finite = true;
        next = note->next;
        for (int64_t c = 0; c < n; c++)
            finite &= move_running(&note->args, c, total[c], total[n + c]);
        cx->module = note->module;
        if (!finite)
            oct_context_fail(cx, OCT_NUMERIC, "the batch's mean or variance is not finite");
        cx->module = module;
        total += 2 * n;
        oct_scratch_end(cx, note->values);
        oct_scratch_end(cx, note);
    }
    cx->norm_notes = NULL;
}
