/* Loops that touch each other become one, and the two innermost are run as a plane: rows of memory by memcpy,
 * others in loops over their longer side. */
#include "core/tensor/move.h"

#include <string.h>

oct_move_map oct_move_over(int dims, const int64_t *size)
{
    OCT_ASSERT(dims >= 0 && dims <= OCT_MOVE_DIMS);
    oct_move_map map = {.dims = dims};
    int64_t stride = 1;
    for (int k = dims - 1; k >= 0; stride *= size[k--]) {
        map.size[k] = size[k];
        map.stride[k] = stride;
    }
    return map;
}

int64_t oct_move_numel(const oct_move_map *map)
{
    int64_t numel = 1;
    for (int k = 0; k < map->dims; k++)
        if (__builtin_mul_overflow(numel, map->size[k], &numel)) return -1;
    return numel;
}

/* Finds the first and the last value of the sample that the map reads; false when their indices overflow. */
static bool find_range(const oct_move_map *map, int64_t *first, int64_t *last)
{
    *first = *last = map->offset;
    for (int k = 0; k < map->dims; k++) {
        int64_t distance, *end = map->stride[k] < 0 ? first : last;
        if (__builtin_mul_overflow(map->size[k] - 1, map->stride[k], &distance) ||
            __builtin_add_overflow(*end, distance, end))
            return false;
    }
    return true;
}

oct_status oct_move_check(const oct_move_map *map, int64_t numel, oct_status code)
{
    int64_t first, last;
    OCT_CHECK(map->dims >= 0 && map->dims <= OCT_MOVE_DIMS, code,
              "it has %d loops; 0 to %d are allowed", map->dims, OCT_MOVE_DIMS);
    for (int k = 0; k < map->dims; k++)
        OCT_CHECK(map->size[k] >= 1, code, "its loop %d has %lld turns; it must have at least 1", k,
                  (long long)map->size[k]);
    OCT_CHECK(oct_move_numel(map) >= 1 && find_range(map, &first, &last), code,
              "its loops read more values than can be counted");
    OCT_CHECK(first >= 0 && last < numel, code,
              "it reads value %lld of a sample, whose values are 0 to %lld",
              (long long)(first < 0 ? first : last), (long long)numel - 1);
    return OCT_OK;
}

/* The map's loops without those of one turn, an outer one merged with the inner where it continues at the inner's end;
 * at least two of them. The innermost two are a plane; `at` counts the turns of the others, `place` is where the plane
 * at hand begins. */
typedef struct plane_walk {
    int dims;
    int64_t size[OCT_MOVE_DIMS + 2], stride[OCT_MOVE_DIMS + 2], at[OCT_MOVE_DIMS + 2];
    int64_t place;
} plane_walk;

static void add_loop(plane_walk *w, int64_t size, int64_t stride)
{
    w->size[w->dims] = size;
    w->stride[w->dims++] = stride;
}

/* Merges loops of a map that continue each other, and begins at the first plane, which the two innermost loops make. */
static plane_walk begin_walk(const oct_move_map *map)
{
    plane_walk w = {.place = map->offset};
    add_loop(&w, 1, 0);
    for (int k = 0; k < map->dims; k++) {
        const int outer = w.dims - 1;
        if (map->size[k] == 1) continue;
        if (outer > 0 && w.stride[outer] == map->size[k] * map->stride[k]) {
            w.size[outer] *= map->size[k];
            w.stride[outer] = map->stride[k];
        } else {
            add_loop(&w, map->size[k], map->stride[k]);
        }
    }
    if (w.dims == 1) add_loop(&w, 1, 1);
    return w;
}

/* Goes to the next plane; false after the last. */
static bool next_plane(plane_walk *w)
{
    for (int k = w->dims - 3; k >= 0; k--) {
        w->place += w->stride[k];
        if (++w->at[k] < w->size[k]) return true;
        w->place -= w->size[k] * w->stride[k];
        w->at[k] = 0;
    }
    return false;
}

/* A plane of h rows of w values; in x rows are row_stride apart and values stride apart. */
typedef struct plane {
    int64_t h, w, row_stride, stride;
} plane;

static plane plane_of(const plane_walk *w)
{
    const int last = w->dims - 1;
    return (plane){w->size[last - 1], w->size[last], w->stride[last - 1], w->stride[last]};
}

/* Copies a plane; the longer side is the inner loop. */
#define OCT_COPY_PLANE(name, type)                                                                 \
    static void name(const plane *p, const type *x, type *restrict y)                              \
    {                                                                                              \
        const int64_t h = p->h, w = p->w, row_stride = p->row_stride, stride = p->stride;          \
        if (w >= h) {                                                                              \
            for (int64_t i = 0; i < h; i++)                                                        \
                for (int64_t j = 0; j < w; j++)                                                    \
                    y[i * w + j] = x[i * row_stride + j * stride];                                 \
        } else {                                                                                   \
            for (int64_t j = 0; j < w; j++)                                                        \
                for (int64_t i = 0; i < h; i++)                                                    \
                    y[i * w + j] = x[i * row_stride + j * stride];                                 \
        }                                                                                          \
    }

OCT_COPY_PLANE(copy_8, uint8_t)
OCT_COPY_PLANE(copy_16, uint16_t)
OCT_COPY_PLANE(copy_32, uint32_t)

/* Rows below this are copied faster by a loop than by a call. */
enum { ROW_BYTES = 16 };

/* Copies a plane of values of `bytes` bytes, which are row_stride and stride values apart in x, to a dense one. */
static void copy_plane(const plane *p, size_t bytes, const uint8_t *x, uint8_t *y)
{
    const int64_t row = p->w * (int64_t)bytes;
    if (p->stride == 1 && row >= ROW_BYTES) {
        for (int64_t i = 0; i < p->h; i++)
            memcpy(y + i * row, x + i * p->row_stride * (int64_t)bytes, (size_t)row);
    } else if (bytes == 1) {
        copy_8(p, x, y);
    } else if (bytes == 2) {
        copy_16(p, (const uint16_t *)(const void *)x, (uint16_t *)(void *)y);
    } else {
        copy_32(p, (const uint32_t *)(const void *)x, (uint32_t *)(void *)y);
    }
}

void oct_move_copy(const oct_move_map *map, size_t bytes, const void *x, void *restrict y)
{
    OCT_ASSERT(bytes == 1 || bytes == 2 || bytes == 4);
    plane_walk w = begin_walk(map);
    const plane p = plane_of(&w);
    const uint8_t *from = x;
    uint8_t *to = y;
    do {
        copy_plane(&p, bytes, from + w.place * (int64_t)bytes, to);
        to += p.h * p.w * (int64_t)bytes;
    } while (next_plane(&w));
}

void oct_move_add_back(const oct_move_map *map, const float *y, float *restrict x)
{
    plane_walk w = begin_walk(map);
    const plane p = plane_of(&w);
    do {
        for (int64_t i = 0; i < p.h; i++, y += p.w)
            for (int64_t j = 0; j < p.w; j++)
                x[w.place + i * p.row_stride + j * p.stride] += y[j];
    } while (next_plane(&w));
}

oct_file_order oct_file_order_of(int64_t dims, const int64_t *size)
{
    oct_file_order order = {.dims = dims};
    int64_t stride = 1;
    for (int64_t i = dims - 1; i >= 0; i--) {
        order.size[i] = size[i];
        order.stride[i] = stride;
        stride *= size[i];
    }
    return order;
}

bool oct_file_order_turn(oct_file_order *order, int64_t rows)
{
    const oct_file_order old = *order;
    int64_t size = 1;
    int64_t split = 0;
    while (size < rows && split < old.dims)
        size *= old.size[split++];
    if (size != rows) return false;
    for (int64_t i = 0; i < old.dims; i++) {
        order->size[i] = old.size[(split + i) % old.dims];
        order->stride[i] = old.stride[(split + i) % old.dims];
    }
    return true;
}

/* Goes on to the next element of the file. */
static void next_element(const oct_file_order *order, int64_t *index, int64_t *place)
{
    for (int64_t i = order->dims - 1; i >= 0; i--) {
        *place += order->stride[i];
        if (++index[i] < order->size[i]) return;
        *place -= order->size[i] * order->stride[i];
        index[i] = 0;
    }
}

void oct_file_order_move(const oct_file_order *from, const float *x, const oct_file_order *to,
                         float *y, bool add)
{
    int64_t i[OCT_FILE_ORDER_DIMS] = {0}, k[OCT_FILE_ORDER_DIMS] = {0}, count = 1;
    int64_t read = from->offset, write = to->offset;
    for (int d = 0; d < to->dims; d++)
        count *= to->size[d];
    for (; count > 0; count--, next_element(from, i, &read), next_element(to, k, &write))
        y[write] = add ? y[write] + x[read] : x[read];
}

void oct_file_order_in(const oct_file_order *order, const float *file, float *value)
{
    const oct_file_order plain = oct_file_order_of(order->dims, order->size);
    oct_file_order_move(&plain, file, order, value, false);
}
