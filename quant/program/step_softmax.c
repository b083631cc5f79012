/* The step softmax runs over the channels. */
#include "core/base/int_math.h"
#include "quant/program/step.h"
#include "quant/rounding/bits.h"

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

/* Loads the codes of the row from number `at` on, and returns how many these are. */
static int64_t load_block(row *r, int64_t at)
{
    const int64_t count = oct_min_i64(r->k - at, OCT_FLAG_BLOCK);
    oct_qcodes_load(r->x, r->first + at, count, r->logical);
    return count;
}

/* Finds the largest code of a row, and the sum of the exponentials of the distances to it. */
static void sum_exponentials(row *r, const int32_t *exponential)
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

/* Writes a row's codes: exponential / sum, in units of the output's scale, halves up, cut to qmax.
 * Nothing overflows: an exponential is at most 2^30 and `one` at most 2^16, so twice their product is at
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
        sum_exponentials(&r, exponential);
        write_quotients(&r, exponential, &out);
    }
    if (y->mask) oct_bits_end(&bits);
}

static oct_status check_softmax(const oct_program *program, const oct_step *step)
{
    const oct_value *y = oct_step_output(program, step);
    OCT_TRY(oct_check_same_shape(program, step, 0));
    OCT_CHECK(y->c <= OCT_QSOFTMAX_MAX, OCT_DATA, "it has more than %d channels", OCT_QSOFTMAX_MAX);
    OCT_CHECK(oct_qsoftmax_fits(y->q), OCT_DATA,
              "the scale of value %d is not a power of two from 2^-16 to 1", step->output);
    OCT_TRY(oct_check_table(program, step, step->softmax.exponential, step->softmax.size));
    /* The term of the largest code is 1, so that no sum is 0, and terms only fall from there. */
    const int32_t *e = step->softmax.exponential;
    OCT_CHECK(e[0] == OCT_QSOFTMAX_ONE, OCT_DATA, "its exponentials do not begin with %d",
              OCT_QSOFTMAX_ONE);
    for (int64_t d = 1; d < step->softmax.size; d++)
        OCT_CHECK(e[d] >= 0 && e[d] <= e[d - 1], OCT_DATA,
                  "exponential %lld is below 0 or above the one before", (long long)d);
    return OCT_OK;
}

static void run_softmax(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    oct_qsoftmax_forward(r->samples * y->h * y->w, y->c, oct_step_codes(r, 0),
                         r->step->softmax.exponential,
                         &(oct_qoutput){.q = y->q, .data = r->output, .mask = r->mask});
}

static oct_status table_shape(const oct_step *step, oct_shape *shape)
{
    *shape = OCT_SHAPE(step->softmax.size);
    return OCT_OK;
}

static const oct_field fields[] = {OCT_FIELD(softmax, size, 0, OCT_TABLE_MAX)};
static const oct_step_array arrays[] = {{.group = "tables",
                                         .name = "exponential",
                                         .dtype = OCT_S32,
                                         .offset = offsetof(oct_step, softmax.exponential),
                                         .shape = table_shape}};

const oct_step_type oct_step_softmax = {.name = "softmax",
                                        .inputs = {1, 1},
                                        OCT_STEP_FIELDS(fields),
                                        OCT_STEP_ARRAYS(arrays),
                                        .check = check_softmax,
                                        .run = run_softmax};
