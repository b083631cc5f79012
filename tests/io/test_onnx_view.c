/* Views against arrays that are really moved: whatever is done to a view, each of its values is the same that
 * the array has there. */
#include "core/base/rng.h"
#include "io/onnx/view.h"

#include <criterion/criterion.h>
#include <string.h>

enum { VALUES = 4096, STEPS = 12, RUNS = 400 };

/* An array of places in the tensor, without the batch, and the view of the same. */
typedef struct pair {
    oct_onnx_view view;
    int dims;
    int64_t size[OCT_VIEW_ATOMS], numel;
    int64_t place[VALUES];
} pair;

/* Where the view has the value at this index. */
static int64_t place_in_view(const oct_onnx_view *v, int64_t index)
{
    int64_t place = v->offset;
    for (int d = v->dims - 1; d >= 0; d--)
        for (int i = oct_view_first_atom(v, d) + v->num_atoms[d] - 1;
             i >= oct_view_first_atom(v, d); i--) {
            if (v->atom[i].size < 0) continue;
            place += index % v->atom[i].size * v->atom[i].stride;
            index /= v->atom[i].size;
        }
    return place;
}

static void check_pair(const pair *p)
{
    cr_assert_eq(p->view.dims, p->dims + 1);
    cr_assert_eq(oct_view_size(&p->view, 0), OCT_ONNX_BATCH);
    for (int d = 0; d < p->dims; d++)
        cr_assert_eq(oct_view_size(&p->view, d + 1), p->size[d]);
    cr_assert_eq(oct_view_numel(&p->view), p->numel);
    for (int64_t i = 0; i < p->numel; i++)
        cr_assert_eq(place_in_view(&p->view, i), p->place[i]);
}

static uint32_t draw(uint32_t run, uint32_t *count, uint32_t below)
{
    uint32_t word[4];
    oct_philox(5, OCT_STREAM_TEST, run, (*count)++, word);
    return word[0] % below;
}

static void transpose(pair *p, uint32_t run, uint32_t *count)
{
    int order[OCT_VIEW_ATOMS];
    int64_t size[OCT_VIEW_ATOMS], place[VALUES];
    order[0] = 0;
    for (int d = 0; d < p->dims; d++) { /* a permutation, built by insertion */
        const int at = 1 + (int)draw(run, count, (uint32_t)d + 1);
        memmove(&order[at + 1], &order[at], (size_t)(d + 1 - at) * sizeof *order);
        order[at] = d + 1;
    }
    p->view = oct_view_transpose(&p->view, order, p->view.dims);
    for (int d = 0; d < p->dims; d++)
        size[d] = p->size[order[d + 1] - 1];
    for (int64_t i = 0; i < p->numel; i++) {
        int64_t index[OCT_VIEW_ATOMS], rest = i, from = 0;
        for (int d = p->dims - 1; d >= 0; d--) {
            index[order[d + 1] - 1] = rest % size[d];
            rest /= size[d];
        }
        for (int d = 0; d < p->dims; d++)
            from = from * p->size[d] + index[d];
        place[i] = p->place[from];
    }
    memcpy(p->size, size, sizeof size);
    memcpy(p->place, place, sizeof place);
}

/* Cuts from `dim`; where the view cannot, nothing changes. */
static void slice(pair *p, uint32_t run, uint32_t *count)
{
    const int dim = (int)draw(run, count, (uint32_t)p->dims);
    const int64_t size = p->size[dim], start = draw(run, count, (uint32_t)size);
    const int64_t step = draw(run, count, 2) ? 1 : -1;
    const int64_t room = step > 0 ? size - start : start + 1;
    const int64_t taken = 1 + draw(run, count, (uint32_t)room);
    oct_onnx_view out;
    int64_t inner = 1, made = 0;
    if (!oct_view_slice(&p->view, dim + 1, start, taken, step, &out)) return;
    p->view = out;
    for (int d = dim + 1; d < p->dims; d++)
        inner *= p->size[d];
    int64_t place[VALUES];
    for (int64_t o = 0; o < p->numel / size / inner; o++)
        for (int64_t k = 0; k < taken; k++)
            for (int64_t i = 0; i < inner; i++)
                place[made++] = p->place[(o * size + start + k * step) * inner + i];
    memcpy(p->place, place, sizeof place);
    p->size[dim] = taken;
    p->numel = made;
}

/* Merges two neighbours, or splits one by a factor; the array stays as it is. */
static void reshape(pair *p, uint32_t run, uint32_t *count)
{
    int64_t size[OCT_VIEW_ATOMS + 1] = {OCT_ONNX_BATCH};
    int dims = p->dims;
    memcpy(size + 1, p->size, sizeof p->size);
    const int at = 1 + (int)draw(run, count, (uint32_t)dims);
    if (draw(run, count, 2) && at < dims) {
        size[at] *= size[at + 1];
        memmove(&size[at + 1], &size[at + 2], (size_t)(dims - at - 1) * sizeof *size);
        dims--;
    } else if (size[at] % 2 == 0 && dims < 6) {
        memmove(&size[at + 1], &size[at], (size_t)(dims - at + 1) * sizeof *size);
        size[at] = 2;
        size[at + 1] /= 2;
        dims++;
    }
    oct_onnx_view out;
    if (!oct_view_reshape(&p->view, dims + 1, size, &out)) return;
    p->view = out;
    p->dims = dims;
    memcpy(p->size, size + 1, sizeof p->size);
}

static void tile(pair *p, uint32_t run, uint32_t *count)
{
    const int dim = (int)draw(run, count, (uint32_t)p->dims);
    int64_t inner = 1, place[VALUES];
    oct_onnx_view out;
    if (p->numel > VALUES / 2 || !oct_view_tile(&p->view, dim + 1, 2, &out)) return;
    p->view = out;
    for (int d = dim; d < p->dims; d++)
        inner *= p->size[d];
    for (int64_t i = 0; i < 2 * p->numel; i++)
        place[i] = p->place[i / (2 * inner) * inner + i % inner];
    memcpy(p->place, place, sizeof place);
    p->size[dim] *= 2;
    p->numel *= 2;
}

static void begin_pair(pair *p)
{
    const int64_t size[] = {OCT_ONNX_BATCH, 8, 6, 10};
    static const int order[] = {2, 3, 1};
    *p = (pair){.dims = 3, .size = {8, 6, 10}, .numel = 480};
    p->view = oct_view_in_order(0, OCT_SHAPE(1, 6, 10, 8), 4, size, order, 3);
    for (int64_t i = 0; i < p->numel; i++) /* (C, H, W) in a tensor of (H, W, C) */
        p->place[i] = i % 60 * 8 + i / 60;
}

Test(onnx_view, sees_what_an_array_would_have)
{
    static pair p;
    static void (*const steps[])(pair *, uint32_t, uint32_t *) = {transpose, slice, reshape, tile};
    for (uint32_t run = 0; run < RUNS; run++) {
        uint32_t count = 0;
        begin_pair(&p);
        check_pair(&p);
        for (int i = 0; i < STEPS; i++) {
            steps[draw(run, &count, OCT_COUNT(steps))](&p, run, &count);
            check_pair(&p);
        }
    }
}

Test(onnx_view, knows_when_every_value_of_the_tensor_is_seen_once)
{
    static pair p;
    oct_onnx_view part;
    begin_pair(&p);
    cr_assert(oct_view_is_whole(&p.view));
    cr_assert(oct_view_slice(&p.view, 2, 1, 5, 1, &part));
    cr_assert_not(oct_view_is_whole(&part));
    cr_assert(oct_view_slice(&p.view, 2, 0, 6, 1, &part));
    cr_assert(oct_view_is_whole(&part));
}

Test(onnx_view, keeps_a_batch_that_is_folded_with_heads)
{
    const int64_t tokens[] = {OCT_ONNX_BATCH, 5, 3, 4}, folded[] = {-3, 5, 4};
    static const int order[] = {0, 2, 1, 3};
    const int64_t back[] = {OCT_ONNX_BATCH, 3, 5, 4};
    oct_onnx_view v = oct_view_of(0, OCT_SHAPE(1, 5, 12), 4, tokens), heads;
    v = oct_view_transpose(&v, order, v.dims);
    cr_assert(oct_view_reshape(&v, 3, folded, &heads));
    cr_assert_eq(oct_view_size(&heads, 0), -3);
    cr_assert_eq(oct_view_batch(&heads), 0);
    cr_assert(oct_view_reshape(&heads, 4, back, &heads));
    cr_assert(oct_shape_equal(&heads.shape, &v.shape) && heads.dims == 4 &&
              heads.offset == v.offset);
    for (int d = 0; d < 4; d++)
        cr_assert(heads.num_atoms[d] == 1 && v.num_atoms[d] == 1 &&
                  heads.atom[d].size == v.atom[d].size && heads.atom[d].stride == v.atom[d].stride);
    const int64_t mixed[] = {5, OCT_ONNX_BATCH, 12};
    cr_assert_not(oct_view_reshape(&v, 3, mixed, &heads));
}
