/* Views are small values; nothing here allocates. */
#include "io/onnx/view.h"

#include <string.h>

static bool is_batch(const oct_view_atom *a)
{
    return a->size == OCT_ONNX_BATCH;
}

int oct_view_first_atom(const oct_onnx_view *v, int dim)
{
    int first = 0;
    for (int d = 0; d < dim; d++)
        first += v->num_atoms[d];
    return first;
}

static int count_atoms(const oct_onnx_view *v)
{
    return oct_view_first_atom(v, v->dims);
}

int64_t oct_view_size(const oct_onnx_view *v, int dim)
{
    int64_t size = 1;
    for (int i = oct_view_first_atom(v, dim), end = i + v->num_atoms[dim]; i < end; i++)
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

int64_t oct_view_tensor_numel(const oct_onnx_view *v)
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
        v.num_atoms[d] = 1;
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
    oct_view_atom atom[OCT_VIEW_ATOMS]; /* without the batch, by falling stride */
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
    return v->offset == 0 && stride == oct_view_tensor_numel(v);
}

int oct_view_merge_atoms(const oct_onnx_view *v, oct_view_atom atom[OCT_VIEW_ATOMS])
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

typedef struct atom_queue {
    oct_view_atom atom[OCT_VIEW_ATOMS]; /* the next one may be the rest of a cut one */
    int next, count;
} atom_queue;

/* Adds a dimension of this size to `out`, from the next atoms of the queue whose sizes multiply to it; an atom that is
 * too large is cut, and its inner part stays. A negative size takes the batch too. False: the sizes do not divide each
 * other. */
static bool take_atoms(atom_queue *queue, int64_t size, oct_onnx_view *out, int *total_atoms)
{
    const int first = *total_atoms;
    bool batch = size < 0;
    if (batch) size = -size;
    while (size > 1 || batch) {
        if (queue->next == queue->count || *total_atoms == OCT_VIEW_ATOMS) return false;
        oct_view_atom *a = &queue->atom[queue->next];
        if (is_batch(a)) {
            if (!batch) return false;
            batch = false;
        } else if (a->size <= size && size % a->size == 0) {
            size /= a->size;
        } else if (size > 1 && a->size % size == 0) {
            const int64_t inner = a->size / size;
            out->atom[(*total_atoms)++] = (oct_view_atom){size, inner * a->stride};
            a->size = inner;
            size = 1;
            continue;
        } else {
            return false;
        }
        out->atom[(*total_atoms)++] = *a;
        queue->next++;
    }
    out->num_atoms[out->dims++] = *total_atoms - first;
    return true;
}

bool oct_view_reshape(const oct_onnx_view *v, int dims, const int64_t *size, oct_onnx_view *out)
{
    atom_queue queue = {.next = 0};
    oct_onnx_view result = {.value = v->value, .shape = v->shape, .offset = v->offset};
    int atoms = 0;
    if (dims > OCT_VIEW_ATOMS) return false;
    queue.count = oct_view_merge_atoms(v, queue.atom);
    for (int d = 0; d < dims; d++)
        if (!take_atoms(&queue, size[d], &result, &atoms)) return false;
    if (queue.next < queue.count) return false;
    *out = result;
    return true;
}

bool oct_view_set_atoms(oct_onnx_view *v, int dim, const oct_view_atom *atom, int count)
{
    const int first = oct_view_first_atom(v, dim), had = v->num_atoms[dim], all = count_atoms(v);
    if (all - had + count > OCT_VIEW_ATOMS) return false;
    memmove(&v->atom[first + count], &v->atom[first + had],
            (size_t)(all - first - had) * sizeof *atom);
    memcpy(&v->atom[first], atom, (size_t)count * sizeof *atom);
    v->num_atoms[dim] = count;
    return true;
}

bool oct_view_slice(const oct_onnx_view *v, int dim, int64_t start, int64_t count, int64_t step,
                    oct_onnx_view *out)
{
    oct_view_atom atom[OCT_VIEW_ATOMS];
    const int first = oct_view_first_atom(v, dim), atoms = v->num_atoms[dim];
    const int64_t size = oct_view_size(v, dim);
    *out = *v;
    if (start == 0 && count == size && step == 1) return true;
    if (atoms == 0) return count == 1 && start == 0;
    memcpy(atom, &v->atom[first], (size_t)atoms * sizeof *atom);
    int64_t inner = 1; /* only the outer atom can be cut */
    for (int i = 1; i < atoms; i++)
        inner *= atom[i].size;
    if (size < 0 || start % inner != 0 || (count % inner != 0) || (step != 1 && inner != 1))
        return false;
    out->offset += start / inner * atom[0].stride;
    atom[0].size = count / inner;
    atom[0].stride *= step;
    return atom[0].size == 1 ? oct_view_set_atoms(out, dim, atom + 1, atoms - 1)
                             : oct_view_set_atoms(out, dim, atom, atoms);
}

bool oct_view_expand(const oct_onnx_view *v, int dims, const int64_t *size, oct_onnx_view *out)
{
    oct_onnx_view wide = *v;
    const int front = dims - v->dims;
    if (front < 0 || dims > OCT_VIEW_ATOMS) return false;
    memcpy(&wide.num_atoms[front], v->num_atoms, (size_t)v->dims * sizeof wide.num_atoms[0]);
    for (int d = 0; d < front; d++)
        wide.num_atoms[d] = 0;
    wide.dims = dims;
    for (int d = 0; d < dims; d++) {
        const oct_view_atom repeated = {size[d], 0};
        if (oct_view_size(&wide, d) == size[d]) continue;
        if (wide.num_atoms[d] > 0 || size[d] < 0 || !oct_view_set_atoms(&wide, d, &repeated, 1))
            return false;
    }
    *out = wide;
    return true;
}

bool oct_view_tile(const oct_onnx_view *v, int dim, int64_t times, oct_onnx_view *out)
{
    oct_view_atom atom[OCT_VIEW_ATOMS + 1] = {{times, 0}};
    *out = *v;
    if (times == 1) return true;
    if (oct_view_size(v, dim) < 0) return false;
    memcpy(&atom[1], &v->atom[oct_view_first_atom(v, dim)],
           (size_t)v->num_atoms[dim] * sizeof *atom);
    return oct_view_set_atoms(out, dim, atom, v->num_atoms[dim] + 1);
}

void oct_view_merge(oct_onnx_view *v, int dim, int64_t stride)
{
    const oct_view_atom one = {oct_view_size(v, dim), stride};
    (void)oct_view_set_atoms(v, dim, &one, one.size == 1 ? 0 : 1); /* fewer always fit */
}

oct_onnx_view oct_view_transpose(const oct_onnx_view *v, const int *order, int n)
{
    oct_onnx_view out = *v;
    int next = 0;
    out.dims = n;
    for (int d = 0; d < n; d++) {
        const int first = oct_view_first_atom(v, order[d]), count = v->num_atoms[order[d]];
        memcpy(&out.atom[next], &v->atom[first], (size_t)count * sizeof out.atom[0]);
        out.num_atoms[d] = count;
        next += count;
    }
    return out;
}

oct_onnx_view oct_view_split(const oct_onnx_view *v)
{
    oct_onnx_view out = *v;
    out.dims = count_atoms(v);
    for (int d = 0; d < out.dims; d++)
        out.num_atoms[d] = 1;
    return out;
}

/* Sorts by the stride of each dimension's outer atom, largest first; those of size 1 come first of all. */
int oct_view_order(const oct_onnx_view *v, int order[OCT_VIEW_ATOMS])
{
    int count = 0;
    for (int d = 0; d < v->dims; d++) {
        const oct_view_atom *a = &v->atom[oct_view_first_atom(v, d)];
        if (v->num_atoms[d] > 0 && oct_view_size(v, d) < 0) continue;
        const int64_t stride = v->num_atoms[d] > 0 ? a->stride : INT64_MAX;
        int at = count++;
        for (; at > 0; at--) {
            const int before = order[at - 1];
            const int64_t other = v->num_atoms[before] > 0
                                      ? v->atom[oct_view_first_atom(v, before)].stride
                                      : INT64_MAX;
            if (other >= stride) break;
            order[at] = before;
        }
        order[at] = d;
    }
    return count;
}
