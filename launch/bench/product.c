/* Operands and calls of each kind of product. */
#include "launch/bench/product.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "launch/bench/bench.h"

static const oct_qparams after_relu = {.scale = 0.05F, .zero_point = 0, .qmin = 0, .qmax = 255};

/* Any codes from `least` on. */
static oct_status random_codes(void *block, int64_t n, uint32_t sub, uint8_t least)
{
    OCT_TRY(oct_alloc(block, (size_t)n, 1));
    uint8_t *codes = *(uint8_t **)block;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits[4];
        if (i % 16 == 0) oct_philox(OCT_BENCH_SEED, OCT_STREAM_TEST, (uint64_t)i / 16, sub, bits);
        uint8_t code = (uint8_t)(bits[i % 16 / 4] >> (8 * (i % 4)));
        codes[i] = code < least ? least : code;
    }
    return OCT_OK;
}

static int64_t outputs(const oct_conv_shape *s)
{
    return OCT_PRODUCT_SAMPLES * oct_conv_out_numel(s);
}

/* int8: codes, weights, ready, accumulators, scratch. */

enum { CODES, WEIGHTS, READY, RESULT, SCRATCH };

static oct_status make_integers(oct_layer_product *p)
{
    const oct_kernel *k = p->integers;
    const oct_conv_shape *s = &p->shape;
    const int64_t weights = s->out_c * oct_conv_depth(s);
    OCT_TRY(random_codes(&p->operand[CODES], OCT_PRODUCT_SAMPLES * oct_conv_in_numel(s), 0, 0));
    OCT_TRY(random_codes(&p->operand[WEIGHTS], weights, 1, 0));
    int8_t *codes = p->operand[WEIGHTS];
    for (int64_t i = 0; i < weights; i++)
        if (codes[i] == INT8_MIN) codes[i] = -INT8_MAX;
    OCT_TRY(oct_alloc(&p->operand[READY], (size_t)oct_qconv_ready_bytes(k, s, after_relu), 1));
    OCT_TRY(oct_alloc(&p->operand[RESULT], (size_t)outputs(s), sizeof(int32_t)));
    OCT_TRY(oct_alloc(&p->operand[SCRATCH], (size_t)oct_qconv_scratch_bytes(k, s, after_relu), 1));
    oct_qconv_ready(k, s, after_relu, codes, p->operand[READY]);
    return OCT_OK;
}

static void multiply_integers(oct_layer_product *p)
{
    const oct_qcodes x = {.q = after_relu, .data = p->operand[CODES]};
    oct_qconv_accumulate(p->integers, &p->shape, OCT_PRODUCT_SAMPLES, x, p->operand[READY],
                         p->operand[RESULT], p->operand[SCRATCH]);
}

static const oct_product_kind kinds[] = {
    {"int8 forward", make_integers, multiply_integers},
};

size_t oct_product_kinds(void)
{
    return OCT_COUNT(kinds);
}

const oct_product_kind *oct_product_kind_at(size_t i)
{
    return &kinds[i];
}

void oct_product_free(oct_layer_product *p)
{
    for (int i = 0; i < OCT_PRODUCT_OPERANDS; i++)
        oct_free(&p->operand[i]);
}
