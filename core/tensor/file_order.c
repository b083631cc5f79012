/* Two orders of one tensor are walked along at once, element by element of the file. */
#include "core/tensor/file_order.h"

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
