/* The step concat puts channels side by side and requantizes them where scales differ. */
#include "core/base/int_math.h"
#include "quant/program/step.h"
#include "quant/rounding/bits.h"

#include <math.h>
#include <string.h>

/* Where an input's columns lie in the output's rows. */
typedef struct columns {
    int64_t first, count, stride;
} columns;

static void copy_rows(int64_t rows, const columns *to, oct_qcodes x, void *codes)
{
    const size_t bytes = oct_dtype_bytes(oct_codes_dtype(x.q));
    for (int64_t i = 0; i < rows; i++)
        memcpy(oct_qcodes_place(codes, x.q, i * to->stride + to->first),
               oct_qcodes_from(x, i * to->count).data, (size_t)to->count * bytes);
}

/* Stores n numbers of an input, from its element `at` on, into its columns of the output, wherever rows end. */
static void store_columns(const columns *to, int64_t at, int64_t n, const int32_t *logical,
                          oct_qparams y, void *codes)
{
    for (int64_t i = 0; i < n;) {
        const int64_t row = (at + i) / to->count, column = (at + i) % to->count;
        const int64_t count = oct_min_i64(to->count - column, n - i);
        oct_qcodes_store(logical + i, count, y, codes, row * to->stride + to->first + column);
        i += count;
    }
}

/* Requantizes an input by scale_x / scale_y into its columns, in blocks; makes its clip mask where it has one. */
static void requantize_rows(int64_t rows, const columns *to, const oct_qconcat_input *input,
                            oct_requantizer r, oct_qparams y, void *codes)
{
    const double ratio = (double)input->x.q.scale / (double)y.scale;
    const oct_code_ratio scales = {.factor = (float)fmin(fmax(ratio, 0x1p-60), 0x1p60),
                                   .fixed = oct_fixed_of(r, ratio)};
    int32_t logical[OCT_FLAG_BLOCK];
    uint8_t flags[OCT_FLAG_BLOCK];
    oct_code_block k = {.a = logical,
                        .flags = flags,
                        .lo = y.qmin - y.zero_point,
                        .hi = y.qmax - y.zero_point,
                        .wide_output = oct_codes_dtype(y) == OCT_U16};
    for (int64_t at = 0, n = rows * to->count; at < n; at += OCT_FLAG_BLOCK) {
        k.n = oct_min_i64(n - at, OCT_FLAG_BLOCK);
        oct_qcodes_load(input->x, at, k.n, logical);
        oct_rounding_of(r)->rescale(&k, &scales);
        store_columns(to, at, k.n, logical, y, codes);
        if (input->mask) oct_bits_pack(flags, k.n, input->mask + at / 8);
    }
}

/* Puts n inputs of (rows, c) side by side: (rows, sum of c) codes. */
void oct_qconcat_forward(int64_t rows, int n, const oct_qconcat_input *input, oct_requantizer r,
                         oct_qparams y, void *codes)
{
    columns to = {0};
    for (int i = 0; i < n; i++)
        to.stride += input[i].c;
    for (int i = 0; i < n; i++) {
        to.count = input[i].c;
        if (oct_qparams_equal(input[i].x.q, y))
            copy_rows(rows, &to, input[i].x, codes);
        else
            requantize_rows(rows, &to, &input[i], r, y, codes);
        to.first += to.count;
    }
}

static oct_status check_concat(const oct_program *program, const oct_step *step)
{
    const oct_value *y = oct_step_output(program, step);
    int64_t channels = 0;
    for (int i = 0; i < step->num_inputs; i++) {
        const oct_value *x = oct_step_input(program, step, i);
        OCT_CHECK(x->h == y->h && x->w == y->w, OCT_DATA, "its input %d has another plane", i);
        channels += x->c;
    }
    OCT_CHECK(channels == y->c, OCT_DATA, "its inputs have %lld channels together, its output %lld",
              (long long)channels, (long long)y->c);
    return OCT_OK;
}

static void run_concat(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    oct_qconcat_input input[OCT_STEP_INPUTS];
    for (int i = 0; i < r->step->num_inputs; i++)
        input[i] = (oct_qconcat_input){.x = oct_step_codes(r, i),
                                       .c = oct_step_input(r->program, r->step, i)->c};
    oct_qconcat_forward(r->samples * y->h * y->w, r->step->num_inputs, input,
                        r->program->requantizer, y->q, r->output);
}

const oct_step_type oct_step_concat = {
    .name = "concat", .inputs = {1, OCT_STEP_INPUTS}, .check = check_concat, .run = run_concat};
