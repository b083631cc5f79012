/* Views are small values; nothing here allocates. */
#include "io/onnx/view.h"

#include <string.h>

static int count_atoms(const oct_onnx_view *v)
{
    int count = 0;
    for (int d = 0; d < v->dims; d++)
        count += v->atoms[d];
    return count;
}

static bool is_batch(const oct_view_atom *a)
{
    return a->size == OCT_ONNX_BATCH;
}

int oct_view_first(const oct_onnx_view *v, int dim)
{
    int first = 0;
    for (int d = 0; d < dim; d++)
        first += v->atoms[d];
    return first;
}

int64_t oct_view_size(const oct_onnx_view *v, int dim)
{
    int64_t size = 1;
    for (int i = oct_view_first(v, dim), end = i + v->atoms[dim]; i < end; i++)
        size *= v->atom[i].size;
    return size;
}

int oct_view_batch(const oct_onnx_view *v)
{
    for (int d = 0; d < v->dims; d++)
        if (oct_view_size(v, d) < 0) return d;
    return -1;
}

int64_t oct_view_numel(const oct_onnx_view *v)
{
    int64_t numel = 1;
    for (int i = 0, n = count_atoms(v); i < n; i++)
        if (!is_batch(&v->atom[i])) numel *= v->atom[i].size;
    return numel;
}

int64_t oct_view_base(const oct_onnx_view *v)
{
    oct_shape sample = v->shape;
    sample.dim[0] = 1;
    return oct_shape_numel(&sample);
}

oct_onnx_view oct_view_in_order(int32_t value, oct_shape shape, int dims, const int64_t *size,
                                const int *order, int n)
{
    oct_onnx_view v = {.value = value, .shape = shape, .dims = dims};
    int64_t stride[OCT_VIEW_ATOMS] = {0}, inner = 1;
    int count = 0;
    for (int i = n - 1; i >= 0; i--) {
        stride[order[i]] = inner;
        inner *= size[order[i]];
    }
    for (int d = 0; d < dims; d++) {
        if (size[d] == 1) continue;
        v.atom[count++] = (oct_view_atom){size[d], stride[d]};
        v.atoms[d] = 1;
    }
    return v;
}

oct_onnx_view oct_view_of(int32_t value, oct_shape shape, int dims, const int64_t *size)
{
    int order[OCT_VIEW_ATOMS], n = 0;
    for (int d = 0; d < dims; d++)
        if (size[d] > 0) order[n++] = d;
    return oct_view_in_order(value, shape, dims, size, order, n);
}

bool oct_view_is_whole(const oct_onnx_view *v)
{
    oct_view_atom
        atom[OCT_VIEW_ATOMS]; /* without the batch, by falling stride: as they lie in memory */
    int64_t stride = 1;
    int count = 0;
    for (int i = 0, n = count_atoms(v); i < n; i++) {
        if (is_batch(&v->atom[i])) continue;
        int at = count++;
        for (; at > 0 && atom[at - 1].stride < v->atom[i].stride; at--)
            atom[at] = atom[at - 1];
        atom[at] = v->atom[i];
    }
    for (int i = count - 1; i >= 0; i--) {
        if (atom[i].stride != stride) return false;
        stride *= atom[i].size;
    }
    return v->offset == 0 && stride == oct_view_base(v);
}

/* Merges atoms that are adjacent in memory, also those of different dimensions. */
static int merge_atoms(const oct_onnx_view *v, oct_view_atom atom[OCT_VIEW_ATOMS])
{
    int count = 0;
    for (int i = 0, n = count_atoms(v); i < n; i++) {
        const oct_view_atom *a = &v->atom[i];
        oct_view_atom *last = count > 0 ? &atom[count - 1] : NULL;
        if (last && !is_batch(a) && !is_batch(last) && last->stride == a->size * a->stride)
            *last = (oct_view_atom){last->size * a->size, a->stride};
        else
            atom[count++] = *a;
    }
    return count;
}

typedef struct cutter {
    oct_view_atom
        atom[OCT_VIEW_ATOMS]; /* the first that is left may be the inner part of a cut one */
    int next, count;
} cutter;

/* Gives the next dimension of `out` atoms from the front of those that are left, until their sizes multiply to `size`; an
 * atom that is too large is cut, its outer part taken. One of them is the batch where the size is negative. False: the
 * sizes do not divide each other. */
static bool take_atoms(cutter *c, int64_t size, oct_onnx_view *out, int *num_atoms)
{
    const int first = *num_atoms;
    bool batch = size < 0;
    if (batch) size = -size;
    while (size > 1 || batch) {
        if (c->next == c->count || *num_atoms == OCT_VIEW_ATOMS) return false;
        oct_view_atom *a = &c->atom[c->next];
        if (is_batch(a)) {
            if (!batch) return false;
            batch = false;
        } else if (a->size <= size && size % a->size == 0) {
            size /= a->size;
        } else if (size > 1 && a->size % size == 0) {
            const int64_t inner = a->size / size;
            out->atom[(*num_atoms)++] = (oct_view_atom){size, inner * a->stride};
            a->size = inner;
            size = 1;
            continue;
        } else {
            return false;
        }
        out->atom[(*num_atoms)++] = *a;
        c->next++;
    }
    out->atoms[out->dims++] = *num_atoms - first;
    return true;
}

bool oct_view_reshape(const oct_onnx_view *v, int dims, const int64_t *size, oct_onnx_view *out)
{
    cutter c = {.next = 0};
    oct_onnx_view made = {.value = v->value, .shape = v->shape, .offset = v->offset};
    int atoms = 0;
    if (dims > OCT_VIEW_ATOMS) return false;
    c.count = merge_atoms(v, c.atom);
    for (int d = 0; d < dims; d++)
        if (!take_atoms(&c, size[d], &made, &atoms)) return false;
    if (c.next < c.count) return false;
    *out = made;
    return true;
}

/* Puts `count` atoms in the place of those of one dimension. */
static bool set_atoms(oct_onnx_view *v, int dim, const oct_view_atom *atom, int count)
{
    const int first = oct_view_first(v, dim), had = v->atoms[dim], all = count_atoms(v);
    if (all - had + count > OCT_VIEW_ATOMS) return false;
    memmove(&v->atom[first + count], &v->atom[first + had],
            (size_t)(all - first - had) * sizeof *atom);
    memcpy(&v->atom[first], atom, (size_t)count * sizeof *atom);
    v->atoms[dim] = count;
    return true;
}

bool oct_view_slice(const oct_onnx_view *v, int dim, int64_t start, int64_t count, int64_t step,
                    oct_onnx_view *out)
{
    oct_view_atom atom[OCT_VIEW_ATOMS];
    const int first = oct_view_first(v, dim), atoms = v->atoms[dim];
    const int64_t size = oct_view_size(v, dim);
    *out = *v;
    if (start == 0 && count == size && step == 1) return true;
    if (atoms == 0) return count == 1 && start == 0;
    memcpy(atom, &v->atom[first], (size_t)atoms * sizeof *atom);
    int64_t inner = 1; /* a part of the outer atom, with all of the inner ones */
    for (int i = 1; i < atoms; i++)
        inner *= atom[i].size;
    if (size < 0 || start % inner != 0 || (count % inner != 0) || (step != 1 && inner != 1))
        return false;
    out->offset += start / inner * atom[0].stride;
    atom[0].size = count / inner;
    atom[0].stride *= step;
    return atom[0].size == 1 ? set_atoms(out, dim, atom + 1, atoms - 1)
                             : set_atoms(out, dim, atom, atoms);
}

bool oct_view_expand(const oct_onnx_view *v, int dims, const int64_t *size, oct_onnx_view *out)
{
    oct_onnx_view made = *v;
    const int front = dims - v->dims;
    if (front < 0 || dims > OCT_VIEW_ATOMS) return false;
    memmove(&made.atoms[front], made.atoms, (size_t)v->dims * sizeof made.atoms[0]);
    for (int d = 0; d < front; d++)
        made.atoms[d] = 0;
    made.dims = dims;
    for (int d = 0; d < dims; d++) {
        const oct_view_atom repeated = {size[d], 0};
        if (oct_view_size(&made, d) == size[d]) continue;
        if (made.atoms[d] > 0 || size[d] < 0 || !set_atoms(&made, d, &repeated, 1)) return false;
    }
    *out = made;
    return true;
}

bool oct_view_tile(const oct_onnx_view *v, int dim, int64_t times, oct_onnx_view *out)
{
    oct_view_atom atom[OCT_VIEW_ATOMS + 1] = {{times, 0}};
    *out = *v;
    if (times == 1) return true;
    if (oct_view_size(v, dim) < 0) return false;
    memcpy(&atom[1], &v->atom[oct_view_first(v, dim)], (size_t)v->atoms[dim] * sizeof *atom);
    return set_atoms(out, dim, atom, v->atoms[dim] + 1);
}

void oct_view_merge(oct_onnx_view *v, int dim, int64_t stride)
{
    const oct_view_atom one = {oct_view_size(v, dim), stride};
    (void)set_atoms(v, dim, &one, one.size == 1 ? 0 : 1); /* fewer always fit */
}

oct_onnx_view oct_view_transpose(const oct_onnx_view *v, const int *order)
{
    oct_onnx_view out = *v;
    int made = 0;
    for (int d = 0; d < v->dims; d++) {
        const int first = oct_view_first(v, order[d]), count = v->atoms[order[d]];
        memcpy(&out.atom[made], &v->atom[first], (size_t)count * sizeof out.atom[0]);
        out.atoms[d] = count;
        made += count;
    }
    return out;
}

oct_onnx_view oct_view_split(const oct_onnx_view *v)
{
    oct_onnx_view out = *v;
    out.dims = count_atoms(v);
    for (int d = 0; d < out.dims; d++)
        out.atoms[d] = 1;
    return out;
}

/* A dimension lies where its outer atom does; those of size 1 come first. */
int oct_view_order(const oct_onnx_view *v, int order[OCT_VIEW_ATOMS])
{
    int count = 0;
    for (int d = 0; d < v->dims; d++) {
        const oct_view_atom *a = &v->atom[oct_view_first(v, d)];
        if (v->atoms[d] > 0 && oct_view_size(v, d) < 0) continue;
        const int64_t stride = v->atoms[d] > 0 ? a->stride : INT64_MAX;
        int at = count++;
        for (; at > 0; at--) {
            const int before = order[at - 1];
            const int64_t theirs =
                v->atoms[before] > 0 ? v->atom[oct_view_first(v, before)].stride : INT64_MAX;
            if (theirs >= stride) break;
            order[at] = before;
        }
        order[at] = d;
    }
    return count;
}
