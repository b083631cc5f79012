/* What a transposed convolution does to codes before it convolves. */
#include "quant/kernel/qconv.h"

#include <string.h>

static void fill(oct_qparams q, int64_t n, void *y)
{
    if (oct_codes_dtype(q) == OCT_U8) {
        memset(y, q.zero_point, (size_t)n);
        return;
    }
    uint16_t *words = y;
    for (int64_t i = 0; i < n; i++)
        words[i] = (uint16_t)q.zero_point;
}

void oct_qdilate(int64_t h, int64_t w, int64_t c, int spread, oct_qcodes x, void *y)
{
    const int64_t pixel = c * (int64_t)oct_dtype_bytes(oct_codes_dtype(x.q));
    const int64_t out_w = (w - 1) * spread + 1, out_h = (h - 1) * spread + 1;
    const char *from = x.data;
    char *to = y;
    fill(x.q, out_h * out_w * c, y);
    for (int64_t i = 0; i < h; i++)
        for (int64_t j = 0; j < w; j++, from += pixel)
            memcpy(to + (i * out_w + j) * spread * pixel, from, (size_t)pixel);
}
