/* Shapes of operators that move numbers. */
#include "io/onnx/operator.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Sizes of a shape multiplied: count times N to the power batches. */
typedef struct product {
    int64_t count; /* -1: it overflows */
    int batch_power;
} product;

/* Multiplies the dimensions [from, to) of a shape. */
static product multiply_dims(const oct_onnx_value *v, int from, int to)
{
    product all = {.count = 1};
    for (int i = from; i < to; i++) {
        const int64_t size = v->dim[i] < 0 ? -v->dim[i] : v->dim[i];
        all.batch_power += v->dim[i] < 0;
        if (__builtin_mul_overflow(all.count, size, &all.count)) return (product){.count = -1};
    }
    if (all.count == 0) all.batch_power = 0;
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
    OCT_TRY(oct_onnx_read_integer_list(c, "perm", -1, &perm));
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value shape = *x;
    if (perm.given && perm.count != x->ndim)
        return oct_onnx_problem(c, "perm has %d numbers for %d dimensions", perm.count, x->ndim);
    for (int i = 0; i < x->ndim; i++) {
        const int64_t from = perm.given ? perm.fixed[i] : x->ndim - 1 - i;
        if (from < 0 || from >= x->ndim || seen[from])
            return oct_onnx_problem(c, "perm is no permutation of its dimensions");
        seen[from] = true;
        c->node->args.perm[i] = (int)from;
        shape.dim[i] = x->dim[from];
    }
    return oct_onnx_declare(c, 0, x->dtype, &shape);
}

/* The product of a target's dimensions before dimension i; 0 when it is unknown. */
static int64_t numel_before(const oct_onnx_list *target, int i)
{
    int64_t all = 1;
    for (int k = 0; k < i; k++)
        if (target->fixed[k] <= 0 || __builtin_mul_overflow(all, target->fixed[k], &all)) return 0;
    return all;
}

/* The dimension of a Reshape's target that is the batch, where the file was written for one batch size: the one of that
 * size with as many elements before it as the batch has in the input, or else the one that begins there; but not the
 * last one, which are features (attention has its samples in the middle). -1: none. */
static int find_batch_dimension(const oct_onnx_call *c, const oct_onnx_value *x,
                                const oct_onnx_list *target)
{
    const int at = oct_onnx_batch_dim(x);
    const int64_t fixed = c->pass->graph->fixed_batch;
    if (at < 0) return -1;
    const int64_t before = multiply_dims(x, 0, at).count, times = -x->dim[at];
    for (int i = 0; i < target->count && times > 1; i++)
        if (target->fixed[i] == fixed && numel_before(target, i) / times == before &&
            numel_before(target, i) % times == 0)
            return i;
    for (int i = 0; i < target->count; i++)
        if (numel_before(target, i) == before) return i == target->count - 1 && i > 0 ? i - 1 : i;
    return -1;
}

/* Makes the batch in a Reshape's target free (a multiple of N) where the file was written for one batch size. */
static void free_fixed_batch(const oct_onnx_call *c, const oct_onnx_value *x, oct_onnx_list *target)
{
    const int64_t fixed = c->pass->graph->fixed_batch;
    if (fixed == 0 || oct_onnx_in(c, 1)->from_shape) return;
    const int d = find_batch_dimension(c, x, target);
    if (d < 0 || target->fixed[d] <= 0 || target->fixed[d] % fixed != 0) return;
    target->times[d] = (double)target->fixed[d] / (double)fixed;
    target->fixed[d] = 0;
}

/* A target of 0 copies the input's dimension (unless allowzero is set), one -1 takes what remains. */
oct_status oct_onnx_shape_reshape(oct_onnx_call *c)
{
    oct_onnx_list target;
    oct_onnx_value shape = {0};
    char from[OCT_ONNX_SHAPE_BYTES];
    int unknown = -1;
    OCT_TRY(oct_onnx_read_affine_list(c, NULL, 1, &target));
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    const bool zero = oct_onnx_int(c->node, "allowzero", 0) != 0;
    if (target.count > OCT_ONNX_DIMS) return too_many(c);
    free_fixed_batch(c, x, &target);
    for (int i = 0; i < target.count; i++) {
        const bool plain = target.times[i] == 0, copied = plain && target.fixed[i] == 0 && !zero;
        int64_t *dim = &shape.dim[shape.ndim++];
        if (plain && target.fixed[i] == -1 && unknown < 0) {
            unknown = i;
            *dim = 1;
        } else if (copied && i < x->ndim) {
            *dim = x->dim[i];
        } else {
            if (copied || (plain && target.fixed[i] < 0))
                return oct_onnx_problem(c, "its target shape has a %" PRId64 " in dimension %d",
                                        target.fixed[i], i);
            OCT_TRY(oct_onnx_set_dim(c, oct_onnx_list_affine(&target, i), dim));
        }
    }
    const product all = multiply_dims(x, 0, x->ndim);
    product result = multiply_dims(&shape, 0, shape.ndim);
    const int missing_power = all.count == 0 ? 0 : all.batch_power - result.batch_power;
    if (unknown >= 0 && result.count > 0 && all.count % result.count == 0 &&
        (missing_power == 0 || missing_power == 1)) {
        shape.dim[unknown] = all.count / result.count * (missing_power == 1 ? OCT_ONNX_BATCH : 1);
        result = all;
    }
    if (result.count != all.count || result.batch_power != all.batch_power)
        return oct_onnx_problem(
            c,
            "%s cannot be given its target shape; the network is written for another size of "
            "image (or batch)",
            oct_onnx_shape_text(x, from));
    return oct_onnx_declare(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_flatten(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    int64_t axis = oct_onnx_int(c->node, "axis", 1);
    if (axis < 0) axis += x->ndim;
    if (axis < 0 || axis > x->ndim)
        return oct_onnx_problem(c, "axis %" PRId64 " is none of its %d dimensions", axis, x->ndim);
    oct_onnx_value shape = {.ndim = 2};
    for (int i = 0; i < 2; i++) {
        const product part =
            i == 0 ? multiply_dims(x, 0, (int)axis) : multiply_dims(x, (int)axis, x->ndim);
        if (part.batch_power > 1)
            return oct_onnx_problem(c, "the size of its output is no multiple of the batch size");
        shape.dim[i] = part.batch_power == 1 ? -part.count : part.count;
    }
    return oct_onnx_declare(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_squeeze(oct_onnx_call *c)
{
    oct_onnx_list axes;
    bool drop[OCT_ONNX_DIMS] = {0};
    oct_onnx_value shape = {0};
    OCT_TRY(oct_onnx_read_integer_list(c, "axes", 1, &axes));
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    for (int i = 0; i < axes.count; i++) {
        int axis;
        OCT_TRY(oct_onnx_wrap_axis(c, axes.fixed[i], x->ndim, &axis));
        if (x->dim[axis] != 1)
            return oct_onnx_problem(c, "it removes dimension %d, which has %s numbers", axis,
                                    oct_onnx_show_dim(x->dim[axis]).text);
        drop[axis] = true;
    }
    for (int i = 0; i < x->ndim; i++)
        if (axes.given ? !drop[i] : x->dim[i] != 1) shape.dim[shape.ndim++] = x->dim[i];
    return oct_onnx_declare(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_unsqueeze(oct_onnx_call *c)
{
    oct_onnx_list axes;
    bool added[OCT_ONNX_DIMS] = {0};
    OCT_TRY(oct_onnx_read_integer_list(c, "axes", 1, &axes));
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value shape = {.ndim = x->ndim + axes.count};
    if (shape.ndim > OCT_ONNX_DIMS) return too_many(c);
    for (int i = 0; i < axes.count; i++) {
        int axis;
        OCT_TRY(oct_onnx_wrap_axis(c, axes.fixed[i], shape.ndim, &axis));
        if (added[axis]) return oct_onnx_problem(c, "it adds dimension %d twice", axis);
        added[axis] = true;
    }
    for (int i = 0, k = 0; i < shape.ndim; i++)
        shape.dim[i] = added[i] ? 1 : x->dim[k++];
    return oct_onnx_declare(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_expand(oct_onnx_call *c)
{
    oct_onnx_list target;
    OCT_TRY(oct_onnx_read_affine_list(c, NULL, 1, &target));
    oct_onnx_value shape = *oct_onnx_in(c, 0), with = {.ndim = target.count};
    if (target.count > OCT_ONNX_DIMS) return too_many(c);
    for (int i = 0; i < target.count; i++) {
        if (target.fixed[i] < 0 && target.times[i] == 0)
            return oct_onnx_problem(c, "its target shape has a %" PRId64 " in dimension %d",
                                    target.fixed[i], i);
        OCT_TRY(oct_onnx_set_dim(c, oct_onnx_list_affine(&target, i), &with.dim[i]));
    }
    OCT_TRY(oct_onnx_broadcast_shape(c, &shape, &with));
    return oct_onnx_declare(c, 0, oct_onnx_in(c, 0)->dtype, &shape);
}

oct_status oct_onnx_shape_tile(oct_onnx_call *c)
{
    oct_onnx_list repeats;
    OCT_TRY(oct_onnx_read_affine_list(c, NULL, 1, &repeats));
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    if (repeats.count != shape.ndim)
        return oct_onnx_problem(c, "it repeats %d dimensions of %d", repeats.count, shape.ndim);
    for (int i = 0; i < shape.ndim; i++) {
        const oct_onnx_affine times = oct_onnx_list_affine(&repeats, i);
        if (times.fixed < 0 && times.times == 0)
            return oct_onnx_problem(c, "it repeats dimension %d %.0f times", i, times.fixed);
        OCT_TRY(oct_onnx_set_dim(c, oct_onnx_affine_mul(oct_onnx_extent(shape.dim[i]), times),
                                 &shape.dim[i]));
    }
    return oct_onnx_declare(c, 0, oct_onnx_in(c, 0)->dtype, &shape);
}

/* A constant of a file that was written for one batch size goes with each sample. */
static bool stands_for_each_sample(const oct_onnx_call *c, const oct_onnx_value *v, int64_t batch)
{
    return v->data && oct_onnx_is_fixed_batch(c, v->dim[0]) && batch == OCT_ONNX_BATCH;
}

/* A constant of the one batch size of a file, such as a class token, takes the batch of the other inputs. */
oct_status oct_onnx_shape_concat(oct_onnx_call *c)
{
    char first[OCT_ONNX_SHAPE_BYTES], second[OCT_ONNX_SHAPE_BYTES];
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    OCT_TRY(oct_onnx_read_axis(c, 0));
    const int axis = c->node->args.axis;
    for (int i = 1; i < c->node->inputs; i++) {
        const oct_onnx_value *x = oct_onnx_in(c, i);
        OCT_TRY(oct_onnx_need_ndim(c, i, shape.ndim, shape.ndim));
        for (int k = 0; k < shape.ndim; k++) {
            if (k == axis || shape.dim[k] == x->dim[k]) continue;
            if (k == 0 && stands_for_each_sample(c, oct_onnx_in(c, 0), x->dim[0]))
                shape.dim[0] = x->dim[0];
            else if (k != 0 || !stands_for_each_sample(c, x, shape.dim[0]))
                return oct_onnx_problem(c, "its inputs %s and %s do not go together",
                                        oct_onnx_shape_text(&shape, first),
                                        oct_onnx_shape_text(x, second));
        }
        OCT_TRY(oct_onnx_set_dim(
            c, oct_onnx_affine_add(oct_onnx_extent(shape.dim[axis]), oct_onnx_extent(x->dim[axis])),
            &shape.dim[axis]));
    }
    return oct_onnx_declare(c, 0, oct_onnx_in(c, 0)->dtype, &shape);
}

/* Reads the sizes of a Split's parts, or makes them equal, the last one smaller where num_outputs is given. */
static oct_status read_split_sizes(const oct_onnx_call *c, int64_t whole, oct_onnx_list *parts)
{
    const int outputs = c->node->outputs;
    OCT_TRY(oct_onnx_read_integer_list(c, "split", 1, parts));
    if (parts->given) return OCT_OK;
    if (outputs > OCT_ONNX_LIST_MAX)
        return oct_onnx_problem(c, "it makes more than %d parts", OCT_ONNX_LIST_MAX);
    const bool uneven = oct_onnx_attribute_find(c->node, "num_outputs");
    if (whole % outputs != 0 && !uneven)
        return oct_onnx_problem(c, "%" PRId64 " numbers make no %d equal parts", whole, outputs);
    const int64_t part = (whole + outputs - 1) / outputs;
    for (parts->count = 0; parts->count < outputs; whole -= part)
        parts->fixed[parts->count++] = clamp(whole, 0, part);
    return OCT_OK;
}

oct_status oct_onnx_shape_split(oct_onnx_call *c)
{
    oct_onnx_list parts;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    OCT_TRY(oct_onnx_read_axis(c, 0));
    const int axis = c->node->args.axis;
    if (c->node->outputs < 1) return oct_onnx_problem(c, "it has no output");
    int64_t left = shape.dim[axis];
    if (left < 0) return oct_onnx_problem(c, "it splits the batch; split parts of a sample only");
    OCT_TRY(read_split_sizes(c, left, &parts));
    if (parts.count != c->node->outputs)
        return oct_onnx_problem(c, "it has %d outputs for %d parts", c->node->outputs, parts.count);
    for (int i = 0; i < parts.count; i++) {
        if (c->node->output[i] < 0)
            return oct_onnx_problem(c, "its output %d has no name; give each part one", i);
        if (parts.fixed[i] < 0 || parts.fixed[i] > left)
            return oct_onnx_problem(c, "its parts are no parts of %" PRId64 " numbers",
                                    oct_onnx_in(c, 0)->dim[axis]);
        left -= parts.fixed[i];
        shape.dim[axis] = parts.fixed[i];
        (void)oct_onnx_declare(c, i, shape.dtype, &shape);
    }
    return left == 0 ? OCT_OK
                     : oct_onnx_problem(c, "its parts leave %" PRId64 " numbers over", left);
}

/* A start or end of a slice in [low, size + high]: a negative one counts from the end. */
static oct_onnx_affine clamp_bound(oct_onnx_affine n, oct_onnx_affine size, double low, double high)
{
    const oct_onnx_affine negative = oct_onnx_affine_less(n, oct_onnx_plain(0));
    const oct_onnx_affine first = {low, 0}, last = {size.fixed + high, size.times};
    if (negative.fixed == 1) n = oct_onnx_affine_add(n, size);
    n.times += negative.times; /* unknown stays unknown */
    return oct_onnx_affine_min(oct_onnx_affine_max(n, first), last);
}

/* One dimension of a slice, by NumPy's rules: sets where it starts, its step and how many it takes. */
static oct_status slice_axis(const oct_onnx_call *c, int axis, int64_t *dim, oct_onnx_affine start,
                             oct_onnx_affine end, int64_t step)
{
    oct_onnx_arguments *args = &c->node->args;
    const oct_onnx_affine size = oct_onnx_extent(*dim);
    const bool back = step < 0;
    const double stride = fabs((double)step);
    start = clamp_bound(start, size, 0, back ? -1 : 0);
    end = clamp_bound(end, size, back ? -1 : 0, back ? -1 : 0);
    oct_onnx_affine length =
        back ? oct_onnx_affine_sub(start, end) : oct_onnx_affine_sub(end, start);
    length = oct_onnx_affine_max(length, oct_onnx_plain(0));
    const oct_onnx_affine count = {ceil(length.fixed / stride), length.times / stride};
    const bool empty = count.fixed == 0 && count.times == 0;
    if (isnan(count.times) || (start.times != 0 && !empty))
        return size.times != 0
                   ? oct_onnx_problem(
                         c, "it takes samples out of the batch; take parts of a sample only")
                   : oct_onnx_problem(c,
                                      "where it cuts dimension %d follows from the number of "
                                      "samples; export it with constants",
                                      axis);
    OCT_TRY(oct_onnx_set_dim(c, count, dim));
    args->start[axis] = empty ? 0 : (int64_t)start.fixed;
    args->step[axis] = *dim == 0 || *dim == 1 ? 1 : step;
    return OCT_OK;
}

oct_status oct_onnx_shape_slice(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value shape = *x;
    oct_onnx_list starts, ends, axes, steps;
    bool seen[OCT_ONNX_DIMS] = {0};
    OCT_TRY(oct_onnx_read_affine_list(c, "starts", 1, &starts));
    OCT_TRY(oct_onnx_read_affine_list(c, "ends", 2, &ends));
    OCT_TRY(oct_onnx_read_integer_list(c, "axes", 3, &axes));
    OCT_TRY(oct_onnx_read_integer_list(c, "steps", 4, &steps));
    for (int i = 0; i < x->ndim; i++)
        c->node->args.step[i] = 1;
    if (ends.count != starts.count || (axes.given && axes.count != starts.count) ||
        (steps.given && steps.count != starts.count) || (!axes.given && starts.count > x->ndim))
        return oct_onnx_problem(c, "its starts, ends, axes and steps differ in number");
    for (int i = 0; i < starts.count; i++) {
        int axis;
        const int64_t step = steps.given ? steps.fixed[i] : 1;
        OCT_TRY(oct_onnx_wrap_axis(c, axes.given ? axes.fixed[i] : i, x->ndim, &axis));
        if (step == 0) return oct_onnx_problem(c, "it has a step of 0");
        if (seen[axis]) return oct_onnx_problem(c, "it cuts dimension %d twice", axis);
        seen[axis] = true;
        OCT_TRY(slice_axis(c, axis, &shape.dim[axis], oct_onnx_list_affine(&starts, i),
                           oct_onnx_list_affine(&ends, i), step));
    }
    return oct_onnx_declare(c, 0, x->dtype, &shape);
}

/* ScatterND: the shape of input 0; checks that the updates have the shape of the slices that the indices point at. */
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
                                oct_onnx_shape_text(&wanted, first),
                                oct_onnx_shape_text(updates, second));
    return oct_onnx_declare(c, 0, x->dtype, x);
}

oct_status oct_onnx_shape_gather(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0), *indices = oct_onnx_in(c, 1);
    OCT_TRY(oct_onnx_read_axis(c, 0));
    const int axis = c->node->args.axis;
    oct_onnx_value shape = {.ndim = x->ndim - 1 + indices->ndim};
    if (shape.ndim > OCT_ONNX_DIMS) return too_many(c);
    for (int i = 0; i < shape.ndim; i++)
        shape.dim[i] = i < axis                   ? x->dim[i]
                       : i < axis + indices->ndim ? indices->dim[i - axis]
                                                  : x->dim[i - indices->ndim + 1];
    return oct_onnx_declare(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_pad(oct_onnx_call *c)
{
    oct_onnx_arguments *args = &c->node->args;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    oct_onnx_list pads, axes;
    OCT_TRY(oct_onnx_read_integer_list(c, "pads", 1, &pads));
    OCT_TRY(oct_onnx_read_integer_list(c, NULL, 3, &axes));
    const int count = axes.given ? axes.count : shape.ndim;
    if (pads.count != 2 * count)
        return oct_onnx_problem(c, "it has %d pads for %d dimensions", pads.count, count);
    for (int i = 0; i < count; i++) {
        int axis;
        OCT_TRY(oct_onnx_wrap_axis(c, axes.given ? axes.fixed[i] : i, shape.ndim, &axis));
        args->before[axis] = clamp(pads.fixed[i], -INT32_MAX, INT32_MAX);
        args->after[axis] = clamp(pads.fixed[count + i], -INT32_MAX, INT32_MAX);
    }
    for (int i = 0; i < shape.ndim; i++) {
        const oct_onnx_affine pad = oct_onnx_plain((double)(args->before[i] + args->after[i]));
        const oct_onnx_affine size = oct_onnx_affine_add(oct_onnx_extent(shape.dim[i]), pad);
        if (size.fixed < 0 && size.times == 0)
            return oct_onnx_problem(c, "its pads take more than there is of dimension %d", i);
        OCT_TRY(oct_onnx_set_dim(c, size, &shape.dim[i]));
    }
    return oct_onnx_declare(c, 0, shape.dtype, &shape);
}
