/* Shapes of operators that move numbers. */
#include "io/onnx/operator.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Product of the dimensions [from, to); -1 on overflow. */
static int64_t product(const oct_onnx_value *v, int from, int to)
{
    int64_t all = 1;
    for (int i = from; i < to; i++)
        if (__builtin_mul_overflow(all, v->dim[i], &all)) return -1;
    return all;
}

static oct_status too_many(const oct_onnx_call *c)
{
    return oct_onnx_problem(c, "it makes more than %d dimensions", OCT_ONNX_DIMS);
}

oct_status oct_onnx_shape_transpose(oct_onnx_call *c)
{
    oct_onnx_list perm;
    bool seen[OCT_ONNX_DIMS] = {0};
    OCT_TRY(oct_onnx_take_list(c, "perm", -1, &perm));
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value shape = *x;
    if (perm.given && perm.count != x->ndim)
        return oct_onnx_problem(c, "perm has %d numbers for %d dimensions", perm.count, x->ndim);
    for (int i = 0; i < x->ndim; i++) {
        const int64_t from = perm.given ? perm.at[i] : x->ndim - 1 - i;
        if (from < 0 || from >= x->ndim || seen[from])
            return oct_onnx_problem(c, "perm is no permutation of its dimensions");
        seen[from] = true;
        c->node->args.perm[i] = (int)from;
        shape.dim[i] = x->dim[from];
    }
    return oct_onnx_set(c, 0, x->dtype, &shape);
}

/* Numbers before dimension i of a target; 0 when they are unknown. */
static int64_t before_target(const oct_onnx_list *target, int i)
{
    int64_t all = 1;
    for (int k = 0; k < i; k++)
        if (target->at[k] <= 0 || __builtin_mul_overflow(all, target->at[k], &all)) return 0;
    return all;
}

/* Where the batch goes in a target that was written for one batch size: where that number stands by itself, after
 * what is before the batch in the input; else to the dimension that begins there, but not to the last one, which are
 * features (attention has its samples in the middle); -1: nowhere. */
static int batch_slot(const oct_onnx_call *c, const oct_onnx_value *x, const oct_onnx_list *target)
{
    const int at = oct_onnx_batch_dim(c, x);
    const int64_t fixed = c->pass->graph->fixed_batch;
    if (at < 0) return -1;
    const int64_t before = product(x, 0, at), times = x->dim[at] / c->pass->batch;
    for (int i = 0; i < target->count && times > 1; i++)
        if (target->at[i] == fixed && before_target(target, i) / times == before &&
            before_target(target, i) % times == 0)
            return i;
    for (int i = 0; i < target->count; i++)
        if (before_target(target, i) == before) return i == target->count - 1 && i > 0 ? i - 1 : i;
    return -1;
}

static void free_batch(const oct_onnx_call *c, const oct_onnx_value *x, oct_onnx_list *target)
{
    const int64_t fixed = c->pass->graph->fixed_batch;
    int64_t scaled;
    if (fixed == 0 || c->pass->of_batch[c->node->input[1]]) return;
    const int slot = batch_slot(c, x, target);
    if (slot < 0 || target->at[slot] <= 0 || target->at[slot] % fixed != 0) return;
    if (!__builtin_mul_overflow(target->at[slot] / fixed, c->pass->batch, &scaled))
        target->at[slot] = scaled;
}

oct_status oct_onnx_shape_reshape(oct_onnx_call *c)
{
    oct_onnx_list target;
    oct_onnx_value shape = {0};
    char from[OCT_ONNX_SHAPE_BYTES];
    int unknown = -1;
    int64_t numel, rest = 1;
    OCT_TRY(oct_onnx_take_list(c, NULL, 1, &target));
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    const bool zero = oct_onnx_int(c->node, "allowzero", 0) != 0;
    if (target.count > OCT_ONNX_DIMS) return too_many(c);
    free_batch(c, x, &target);
    for (int i = 0; i < target.count; i++) {
        int64_t d = target.at[i];
        if (d == 0 && !zero) d = i < x->ndim ? x->dim[i] : -2;
        if (d < -1 || (d == -1 && unknown >= 0))
            return oct_onnx_problem(c, "its target shape has a %" PRId64 " in dimension %d", d, i);
        if (d == -1) unknown = i;
        shape.dim[shape.ndim++] = d;
        if (d != -1 && __builtin_mul_overflow(rest, d, &rest)) rest = 0;
    }
    numel = product(x, 0, x->ndim);
    if (unknown >= 0 && rest > 0 && numel % rest == 0) shape.dim[unknown] = numel / rest;
    if (product(&shape, 0, shape.ndim) != numel)
        return oct_onnx_problem(
            c,
            "%s cannot be given its target shape; the network is written for another size of "
            "image (or batch)",
            oct_onnx_seen(c, x, from));
    return oct_onnx_set(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_flatten(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    int64_t axis = oct_onnx_int(c->node, "axis", 1);
    if (axis < 0) axis += x->ndim;
    if (axis < 0 || axis > x->ndim)
        return oct_onnx_problem(c, "axis %" PRId64 " is none of its %d dimensions", axis, x->ndim);
    oct_onnx_value shape = {.ndim = 2,
                            .dim = {product(x, 0, (int)axis), product(x, (int)axis, x->ndim)}};
    return oct_onnx_set(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_squeeze(oct_onnx_call *c)
{
    oct_onnx_list axes;
    bool drop[OCT_ONNX_DIMS] = {0};
    oct_onnx_value shape = {0};
    OCT_TRY(oct_onnx_take_list(c, "axes", 1, &axes));
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    for (int i = 0; i < axes.count; i++) {
        int axis;
        OCT_TRY(oct_onnx_take_axis(c, axes.at[i], x->ndim, &axis));
        if (x->dim[axis] != 1)
            return oct_onnx_problem(c, "it removes dimension %d, which has %" PRId64 " numbers",
                                    axis, x->dim[axis]);
        drop[axis] = true;
    }
    for (int i = 0; i < x->ndim; i++)
        if (axes.given ? !drop[i] : x->dim[i] != 1) shape.dim[shape.ndim++] = x->dim[i];
    return oct_onnx_set(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_unsqueeze(oct_onnx_call *c)
{
    oct_onnx_list axes;
    bool added[OCT_ONNX_DIMS] = {0};
    OCT_TRY(oct_onnx_take_list(c, "axes", 1, &axes));
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value shape = {.ndim = x->ndim + axes.count};
    if (shape.ndim > OCT_ONNX_DIMS) return too_many(c);
    for (int i = 0; i < axes.count; i++) {
        int axis;
        OCT_TRY(oct_onnx_take_axis(c, axes.at[i], shape.ndim, &axis));
        if (added[axis]) return oct_onnx_problem(c, "it adds dimension %d twice", axis);
        added[axis] = true;
    }
    for (int i = 0, k = 0; i < shape.ndim; i++)
        shape.dim[i] = added[i] ? 1 : x->dim[k++];
    return oct_onnx_set(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_expand(oct_onnx_call *c)
{
    oct_onnx_list target;
    OCT_TRY(oct_onnx_take_list(c, NULL, 1, &target));
    oct_onnx_value shape = *oct_onnx_in(c, 0), with = {0};
    if (target.count > OCT_ONNX_DIMS) return too_many(c);
    for (int i = 0; i < target.count; i++) {
        with.dim[with.ndim++] = target.at[i];
        if (target.at[i] < 0)
            return oct_onnx_problem(c, "its target shape has a %" PRId64 " in dimension %d",
                                    target.at[i], i);
    }
    OCT_TRY(oct_onnx_broadcast(c, &shape, &with));
    return oct_onnx_set(c, 0, oct_onnx_in(c, 0)->dtype, &shape);
}

oct_status oct_onnx_shape_tile(oct_onnx_call *c)
{
    oct_onnx_list repeats;
    OCT_TRY(oct_onnx_take_list(c, NULL, 1, &repeats));
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    if (repeats.count != shape.ndim)
        return oct_onnx_problem(c, "it repeats %d dimensions of %d", repeats.count, shape.ndim);
    for (int i = 0; i < shape.ndim; i++)
        if (repeats.at[i] < 0 || __builtin_mul_overflow(shape.dim[i], repeats.at[i], &shape.dim[i]))
            return oct_onnx_problem(c, "it repeats dimension %d %" PRId64 " times", i,
                                    repeats.at[i]);
    return oct_onnx_set(c, 0, oct_onnx_in(c, 0)->dtype, &shape);
}

/* A constant of a file that was written for one batch size goes with each sample. */
static bool stands_for_all(const oct_onnx_call *c, const oct_onnx_value *v, int64_t batch)
{
    return v->data && oct_onnx_is_fixed_batch(c, v->dim[0]) && batch == c->pass->batch;
}

oct_status oct_onnx_shape_concat(oct_onnx_call *c)
{
    char first[OCT_ONNX_SHAPE_BYTES], second[OCT_ONNX_SHAPE_BYTES];
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    OCT_TRY(
        oct_onnx_take_axis(c, oct_onnx_int(c->node, "axis", 0), shape.ndim, &c->node->args.axis));
    const int axis = c->node->args.axis;
    for (int i = 1; i < c->node->inputs; i++) {
        const oct_onnx_value *x = oct_onnx_in(c, i);
        OCT_TRY(oct_onnx_need_ndim(c, i, shape.ndim, shape.ndim));
        for (int k = 0; k < shape.ndim; k++) {
            if (k == axis || shape.dim[k] == x->dim[k]) continue;
            if (k == 0 && stands_for_all(c, oct_onnx_in(c, 0), x->dim[0]))
                shape.dim[0] = x->dim[0];
            else if (k != 0 || !stands_for_all(c, x, shape.dim[0]))
                return oct_onnx_problem(c, "its inputs %s and %s do not go together",
                                        oct_onnx_seen(c, &shape, first),
                                        oct_onnx_seen(c, x, second));
        }
        if (__builtin_add_overflow(shape.dim[axis], x->dim[axis], &shape.dim[axis]))
            return oct_onnx_problem(c, "its output is too large");
    }
    return oct_onnx_set(c, 0, oct_onnx_in(c, 0)->dtype, &shape);
}

/* Sizes from the attribute or input, or equal parts. */
static oct_status take_parts(const oct_onnx_call *c, int64_t whole, oct_onnx_list *parts)
{
    const int outputs = c->node->outputs;
    OCT_TRY(oct_onnx_take_list(c, "split", 1, parts));
    if (parts->given) return OCT_OK;
    if (outputs > OCT_ONNX_LIST_MAX)
        return oct_onnx_problem(c, "it makes more than %d parts", OCT_ONNX_LIST_MAX);
    const bool uneven = oct_onnx_attribute_find(c->node, "num_outputs");
    if (whole % outputs != 0 && !uneven)
        return oct_onnx_problem(c, "%" PRId64 " numbers make no %d equal parts", whole, outputs);
    const int64_t part = (whole + outputs - 1) / outputs;
    for (parts->count = 0; parts->count < outputs; whole -= part)
        parts->at[parts->count++] = clamp(whole, 0, part);
    return OCT_OK;
}

oct_status oct_onnx_shape_split(oct_onnx_call *c)
{
    oct_onnx_list parts;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    OCT_TRY(
        oct_onnx_take_axis(c, oct_onnx_int(c->node, "axis", 0), shape.ndim, &c->node->args.axis));
    const int axis = c->node->args.axis;
    if (c->node->outputs < 1) return oct_onnx_problem(c, "it has no output");
    int64_t left = shape.dim[axis];
    if (left > 0 && left % c->pass->batch == 0)
        return oct_onnx_problem(c, "it splits the batch; split parts of a sample only");
    OCT_TRY(take_parts(c, left, &parts));
    if (parts.count != c->node->outputs)
        return oct_onnx_problem(c, "it has %d outputs for %d parts", c->node->outputs, parts.count);
    for (int i = 0; i < parts.count; i++) {
        if (parts.at[i] < 0 || parts.at[i] > left)
            return oct_onnx_problem(c, "its parts are no parts of %" PRId64 " numbers",
                                    oct_onnx_in(c, 0)->dim[axis]);
        left -= parts.at[i];
        shape.dim[axis] = parts.at[i];
        oct_onnx_set(c, i, shape.dtype, &shape);
    }
    return left == 0 ? OCT_OK
                     : oct_onnx_problem(c, "its parts leave %" PRId64 " numbers over", left);
}

/* One dimension of a slice, by NumPy's rules: where it starts and its step; returns how many it takes. */
static int64_t slice_axis(oct_onnx_arguments *args, int axis, int64_t size, const int64_t *given)
{
    int64_t start = given[0], end = given[1], step = given[2];
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
    if (start < 0) start += size;
    if (end < 0) end += size;
    start = clamp(start, step < 0 ? 0 : low, high);
    end = clamp(end, low, high);
    if (step == INT64_MIN) step++;
    const int64_t length = step < 0 ? start - end : end - start;
    const int64_t count = length > 0 && size > 0 ? (length - 1) / (step < 0 ? -step : step) + 1 : 0;
    args->start[axis] = count > 0 ? start : 0;
    args->step[axis] = count > 1 ? step : 1;
    return count;
}

oct_status oct_onnx_shape_slice(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_arguments *args = &c->node->args;
    oct_onnx_value shape = *x;
    oct_onnx_list starts, ends, axes, steps;
    bool seen[OCT_ONNX_DIMS] = {0};
    OCT_TRY(oct_onnx_take_list(c, "starts", 1, &starts));
    OCT_TRY(oct_onnx_take_list(c, "ends", 2, &ends));
    OCT_TRY(oct_onnx_take_list(c, "axes", 3, &axes));
    OCT_TRY(oct_onnx_take_list(c, "steps", 4, &steps));
    for (int i = 0; i < x->ndim; i++)
        args->step[i] = 1;
    if (ends.count != starts.count || (axes.given && axes.count != starts.count) ||
        (steps.given && steps.count != starts.count) || (!axes.given && starts.count > x->ndim))
        return oct_onnx_problem(c, "its starts, ends, axes and steps differ in number");
    for (int i = 0; i < starts.count; i++) {
        int axis;
        const int64_t given[] = {starts.at[i], ends.at[i], steps.given ? steps.at[i] : 1};
        OCT_TRY(oct_onnx_take_axis(c, axes.given ? axes.at[i] : i, x->ndim, &axis));
        if (given[2] == 0) return oct_onnx_problem(c, "it has a step of 0");
        if (seen[axis]) return oct_onnx_problem(c, "it cuts dimension %d twice", axis);
        seen[axis] = true;
        shape.dim[axis] = slice_axis(args, axis, x->dim[axis], given);
    }
    return oct_onnx_set(c, 0, x->dtype, &shape);
}

/* A copy of input 0, in which some is overwritten. */
oct_status oct_onnx_shape_scatter(oct_onnx_call *c)
{
    char first[OCT_ONNX_SHAPE_BYTES], second[OCT_ONNX_SHAPE_BYTES];
    OCT_TRY(oct_onnx_need_ndim(c, 1, 1, OCT_ONNX_DIMS));
    const oct_onnx_value *x = oct_onnx_in(c, 0), *indices = oct_onnx_in(c, 1);
    const int64_t depth = indices->dim[indices->ndim - 1];
    oct_onnx_value wanted = {.ndim = indices->ndim - 1};
    if (depth < 1 || depth > x->ndim || wanted.ndim + x->ndim - depth > OCT_ONNX_DIMS)
        return oct_onnx_problem(c, "its indices are not those of %d dimensions", x->ndim);
    memcpy(wanted.dim, indices->dim, sizeof wanted.dim);
    for (int i = (int)depth; i < x->ndim; i++)
        wanted.dim[wanted.ndim++] = x->dim[i];
    const oct_onnx_value *updates = oct_onnx_in(c, 2);
    bool same = updates->ndim == wanted.ndim;
    for (int i = 0; same && i < wanted.ndim; i++)
        same = updates->dim[i] == wanted.dim[i];
    if (!same || updates->dtype != x->dtype)
        return oct_onnx_problem(c, "it wants new numbers of shape %s and gets %s",
                                oct_onnx_seen(c, &wanted, first),
                                oct_onnx_seen(c, updates, second));
    return oct_onnx_set(c, 0, x->dtype, x);
}

oct_status oct_onnx_shape_gather(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0), *indices = oct_onnx_in(c, 1);
    OCT_TRY(oct_onnx_take_axis(c, oct_onnx_int(c->node, "axis", 0), x->ndim, &c->node->args.axis));
    const int axis = c->node->args.axis;
    oct_onnx_value shape = {.ndim = x->ndim - 1 + indices->ndim};
    if (shape.ndim > OCT_ONNX_DIMS) return too_many(c);
    for (int i = 0; i < shape.ndim; i++)
        shape.dim[i] = i < axis                   ? x->dim[i]
                       : i < axis + indices->ndim ? indices->dim[i - axis]
                                                  : x->dim[i - indices->ndim + 1];
    return oct_onnx_set(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_pad(oct_onnx_call *c)
{
    oct_onnx_arguments *args = &c->node->args;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    oct_onnx_list pads, axes;
    OCT_TRY(oct_onnx_take_list(c, "pads", 1, &pads));
    OCT_TRY(oct_onnx_take_list(c, NULL, 3, &axes));
    const int count = axes.given ? axes.count : shape.ndim;
    if (pads.count != 2 * count)
        return oct_onnx_problem(c, "it has %d pads for %d dimensions", pads.count, count);
    for (int i = 0; i < count; i++) {
        int axis;
        OCT_TRY(oct_onnx_take_axis(c, axes.given ? axes.at[i] : i, shape.ndim, &axis));
        args->before[axis] = clamp(pads.at[i], -INT32_MAX, INT32_MAX);
        args->after[axis] = clamp(pads.at[count + i], -INT32_MAX, INT32_MAX);
    }
    for (int i = 0; i < shape.ndim; i++) {
        shape.dim[i] += args->before[i] + args->after[i];
        if (shape.dim[i] < 0)
            return oct_onnx_problem(c, "its pads take more than there is of dimension %d", i);
    }
    return oct_onnx_set(c, 0, shape.dtype, &shape);
}

/* Upsample and the first Resize have scales as input 1, later ones as input 2. */
static oct_status take_scales(const oct_onnx_call *c, int count, float *scale, bool *given)
{
    const int at = c->pass->graph->opset >= 11 ? 2 : 1;
    const oct_onnx_value *v = oct_onnx_in(c, at);
    *given = v && !(v->known && oct_onnx_numel(v) == 0);
    if (!*given) return OCT_OK;
    if (!v->data || v->dtype != OCT_F32 || oct_onnx_numel(v) != count)
        return oct_onnx_problem(c, "its scales must be %d numbers that are known", count);
    for (int i = 0; i < count; i++) {
        scale[i] = oct_onnx_reals(v)[i];
        if (!(scale[i] > 0 && scale[i] <= 65536))
            return oct_onnx_problem(c, "it has a scale of %g", (double)scale[i]);
    }
    return OCT_OK;
}

oct_status oct_onnx_shape_resize(oct_onnx_call *c)
{
    oct_onnx_list axes, sizes;
    float scale[OCT_ONNX_DIMS];
    bool scaled;
    const int opset = (int)c->pass->graph->opset;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    OCT_TRY(oct_onnx_take_list(c, opset >= 18 ? "axes" : NULL, -1, &axes));
    const int count = axes.given ? axes.count : shape.ndim;
    if (count > shape.ndim) return too_many(c);
    OCT_TRY(oct_onnx_take_list(c, NULL, opset >= 11 ? 3 : -1, &sizes));
    OCT_TRY(take_scales(c, count, scale, &scaled));
    if (sizes.count ? sizes.count != count : !scaled)
        return oct_onnx_problem(c, "it has neither %d sizes nor as many scales", count);
    if (strcmp(oct_onnx_string(c->node, "keep_aspect_ratio_policy", "stretch"), "stretch") != 0 ||
        strcmp(oct_onnx_string(c->node, "coordinate_transformation_mode", ""),
               "tf_crop_and_resize") == 0)
        return oct_onnx_problem(c, "it keeps a ratio or crops, which is not known; give it sizes");
    for (int i = 0; i < count; i++) {
        int axis;
        OCT_TRY(oct_onnx_take_axis(c, axes.given ? axes.at[i] : i, shape.ndim, &axis));
        int64_t *size = &shape.dim[axis];
        if (scaled) c->node->args.scale[axis] = scale[i];
        const int64_t wanted = sizes.count ? sizes.at[i] : (int64_t)floorf((float)*size * scale[i]);
        if (*size != c->pass->batch || !oct_onnx_is_fixed_batch(c, wanted)) *size = wanted;
        if (*size < 0) return oct_onnx_problem(c, "it has a size of %" PRId64, *size);
    }
    return oct_onnx_set(c, 0, shape.dtype, &shape);
}

/* Blocks of an image that become channels, or come of them. */
static oct_status take_block(const oct_onnx_call *c)
{
    const int64_t block = c->node->args.block = oct_onnx_int(c->node, "blocksize", 0);
    OCT_TRY(oct_onnx_need_ndim(c, 0, 4, 4));
    if (block < 1 || block > 1 << 15) return oct_onnx_problem(c, "blocksize is %" PRId64, block);
    return OCT_OK;
}

oct_status oct_onnx_shape_depth_to_space(oct_onnx_call *c)
{
    OCT_TRY(take_block(c));
    const int64_t block = c->node->args.block;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    if (shape.dim[1] % (block * block) != 0)
        return oct_onnx_problem(c, "%" PRId64 " channels make no blocks of %" PRId64, shape.dim[1],
                                block);
    shape.dim[1] /= block * block;
    shape.dim[2] *= block;
    shape.dim[3] *= block;
    return oct_onnx_set(c, 0, shape.dtype, &shape);
}

oct_status oct_onnx_shape_space_to_depth(oct_onnx_call *c)
{
    OCT_TRY(take_block(c));
    const int64_t block = c->node->args.block;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    if (shape.dim[2] % block != 0 || shape.dim[3] % block != 0)
        return oct_onnx_problem(c, "%" PRId64 " x %" PRId64 " makes no blocks of %" PRId64,
                                shape.dim[2], shape.dim[3], block);
    shape.dim[1] *= block * block;
    shape.dim[2] /= block;
    shape.dim[3] /= block;
    return oct_onnx_set(c, 0, shape.dtype, &shape);
}
