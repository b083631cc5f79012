/* Leaf gradients are kept in rows.
 *
 * Parameter gradients are summed leaf by leaf into borrowed rows; the last use of a parameter in
 * backward folds its rows along the fixed tree (core/base/leaves.h). What a dead branch of the
 * forward left unfolded is folded when the walk ends.
 */
#include "core/autograd/leaf_grads.h"

#include "core/base/mem.h"

#include <string.h>

void oct_param_used(oct_context *cx, oct_param *param)
{
    if (cx->record && cx->status == OCT_OK) param->uses++;
}

static size_t row_bytes(const oct_context *cx, const oct_param *param)
{
    return (size_t)cx->leaves.local * (size_t)oct_numel(&param->value) * sizeof(float);
}

static void too_many_gradients(oct_context *cx, const oct_param *param)
{
    oct_context_fail(cx, OCT_DEFECT, "parameter %s: more gradients than uses (oct_param_used)",
                     param->name);
}

bool oct_param_needs_grads(oct_context *cx, const oct_param *param)
{
    if (cx->status != OCT_OK) return false;
    if (!param->parts)
        oct_context_fail(cx, OCT_DEFECT, "parameter %s is not bound (oct_params_bind)",
                         param->name);
    else if (param->folded)
        oct_context_fail(cx, OCT_DEFECT, "parameter %s has its gradient already (oct_params_zero)",
                         param->name);
    else if (param->uses == 0)
        too_many_gradients(cx, param);
    return cx->status == OCT_OK;
}

float *oct_leaf_grads_begin(oct_context *cx, oct_param *param)
{
    if (!oct_param_needs_grads(cx, param)) return NULL;
    if (param->rows) return param->rows;
    float *rows = oct_scratch(cx, row_bytes(cx, param));
    if (!rows) return NULL;
    memset(rows, 0, row_bytes(cx, param));
    param->next_open = cx->open_params;
    cx->open_params = param;
    param->rows = rows;
    return rows;
}

void oct_leaf_watch_add(oct_context *cx, const void *vector, size_t bytes)
{
    const uint64_t both[2] = {cx->watch.digest, oct_digest(vector, bytes)};
    cx->watch.digest = oct_digest(both, sizeof both);
}

static void watch_row(oct_context *cx, const void *rows, size_t bytes)
{
    if (cx->watch.active)
        oct_leaf_watch_add(cx, (const char *)rows + (size_t)cx->watch.leaf * bytes, bytes);
}

static void fold(oct_context *cx, oct_param *param)
{
    int64_t numel = oct_numel(&param->value);
    watch_row(cx, param->rows, (size_t)numel * sizeof(float));
    int parts = oct_tree_fold_f32(&cx->leaves, param->rows, numel);
    OCT_ASSERT(parts <= param->max_parts);
    for (int p = 0; p < parts; p++) {
        const float *row = param->rows + p * numel;
        float *part = param->parts + p * param->stride;
        if (param->row_layout.transpose)
            param->row_layout.transpose(&param->row_layout, row, part);
        else
            memcpy(part, row, (size_t)numel * sizeof(float));
    }
    oct_arena_give(cx->arena, param->rows);
    param->rows = NULL;
    param->folded = true;
}

void oct_leaf_grads_end(oct_context *cx, oct_param *param)
{
    if (cx->status != OCT_OK) return;
    if (!param->rows || param->uses == 0)
        too_many_gradients(cx, param);
    else if (--param->uses == 0)
        fold(cx, param);
}

void oct_leaf_grads_close(oct_context *cx)
{
    for (oct_param *param = cx->open_params; param; param = param->next_open) {
        if (param->rows && cx->status == OCT_OK) fold(cx, param);
        oct_arena_give(cx->arena, param->rows);
        param->rows = NULL;
        param->uses = 0;
    }
    cx->open_params = NULL;
}

bool oct_batch_is_whole(oct_context *cx)
{
    if (cx->part == OCT_BATCH_WHOLE) return true;
    cx->part = OCT_BATCH_PART_REFUSED;
    oct_context_fail(cx, OCT_DEFECT, "a sum over the batch was asked of a part of it");
    return false;
}

bool oct_sum_over_ranks(oct_context *cx, double *rows, int64_t n, double *total)
{
    if (!oct_batch_is_whole(cx)) return false;
    watch_row(cx, rows, (size_t)n * sizeof *rows);
    oct_tree_fold_f64(&cx->leaves, rows, n);
    oct_context_adopt(cx, cx->group->tree_sum_f64(cx->group, &cx->leaves, rows, n, total));
    cx->met = true;
    return cx->status == OCT_OK;
}
