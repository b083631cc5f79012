/* Softmax in whole numbers: exponentials by table, then one rounded quotient a code. */
#include "core/base/int_math.h"
#include "quant/rounding/bits.h"
#include "quant/kernel/qcodes.h"

#include <math.h>

void oct_qsoftmax_exponential(oct_qparams x, int32_t *exponential)
{
    for (int64_t d = 0, size = oct_qtable_size(x); d < size; d++)
        exponential[d] = (int32_t)nearbyint(OCT_QSOFTMAX_ONE * exp(-(double)d * (double)x.scale));
}

bool oct_qsoftmax_fits(oct_qparams y)
{
    int exponent;
    return y.scale >= 0x1p-16f && y.scale <= 1.0f && frexpf(y.scale, &exponent) == 0.5f;
}

/* One row at a time, whose codes come in blocks. */
typedef struct row {
    oct_qcodes x;
    int64_t first, k;
    int32_t largest;
    int64_t sum;
    int32_t logical[OCT_FLAG_BLOCK];
} row;

static int64_t load_block(row *r, int64_t at)
{
    const int64_t count = oct_min_i64(r->k - at, OCT_FLAG_BLOCK);
    oct_qcodes_load(r->x, r->first + at, count, r->logical);
    return count;
}

static void sum_up(row *r, const int32_t *exponential)
{
    r->largest = INT32_MIN;
    for (int64_t at = 0; at < r->k; at += OCT_FLAG_BLOCK)
        for (int64_t i = 0, count = load_block(r, at); i < count; i++)
            r->largest = r->logical[i] > r->largest ? r->logical[i] : r->largest;
    r->sum = 0;
    for (int64_t at = 0; at < r->k; at += OCT_FLAG_BLOCK)
        for (int64_t i = 0, count = load_block(r, at); i < count; i++)
            r->sum += exponential[r->largest - r->logical[i]];
}

/* Flags go into bits one by one, because rows end anywhere. */
typedef struct output {
    oct_qparams q;
    void *codes;
    int64_t one; /* 1 / scale */
    oct_bit_writer *bits;
} output;

/* Nothing overflows: an exponential is at most 2^30 and `one` at most 2^16, so twice their product is at
 * most 2^47; a sum has at most 2^16 terms, so it is at most 2^46. It is at least 2^30, the largest code's
 * own term. */
static void write_quotients(row *r, const int32_t *exponential, const output *y)
{
    const int64_t most = y->q.qmax - y->q.zero_point;
    for (int64_t at = 0; at < r->k; at += OCT_FLAG_BLOCK) {
        const int64_t count = load_block(r, at);
        for (int64_t i = 0; i < count; i++) {
            const int64_t e = exponential[r->largest - r->logical[i]];
            const int64_t code = (2 * e * y->one + r->sum) / (2 * r->sum);
            r->logical[i] = (int32_t)oct_min_i64(code, most);
            if (y->bits) oct_bits_put(y->bits, code <= most, 1);
        }
        oct_qcodes_store(r->logical, count, y->q, y->codes, r->first + at);
    }
}

void oct_qsoftmax_forward(int64_t rows, int64_t k, oct_qcodes x, const int32_t *exponential,
                          const oct_qoutput *y)
{
    oct_bit_writer bits = {.out = y->mask};
    const output out = {.q = y->q,
                        .codes = y->data,
                        .one = (int64_t)(1.0f / y->q.scale),
                        .bits = y->mask ? &bits : NULL};
    row r = {.x = x, .k = k};
    for (int64_t i = 0; i < rows; i++) {
        r.first = i * k;
        sum_up(&r, exponential);
        write_quotients(&r, exponential, &out);
    }
    if (y->mask) oct_bits_end(&bits);
}
