/* Each kind of product makes its operands and calls what training calls. */
#include "launch/bench/product.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/kernel/blas.h"
#include "launch/bench/bench.h"
#include "launch/evaluate/multiply_adds.h"

static const oct_qparams after_relu = {.scale = 0.05F, .zero_point = 0, .qmin = 0, .qmax = 255};

static oct_status random_codes(void *block, int64_t n, uint32_t sub)
{
    OCT_TRY(oct_alloc(block, (size_t)n, 1));
    oct_bench_fill(*(uint8_t **)block, n, sub);
    return OCT_OK;
}

static int64_t outputs(const oct_layer_product *p)
{
    return p->samples * oct_conv_out_numel(&p->shape);
}

/* An int8 product has codes, weights, packed weights, accumulators, scratch and the plan's tables. */

enum { CODES, WEIGHTS, PACKED, RESULT, SCRATCH, TABLES };

static oct_status make_integers(oct_layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    oct_qconv_plan *plan = &p->integer_plan;
    const int64_t weights = s->out_c * oct_conv_depth(s);
    oct_qconv_plan_init(plan, p->integers, s, after_relu);
    OCT_TRY(random_codes(&p->operand[CODES], p->samples * oct_conv_in_numel(s), 0));
    OCT_TRY(random_codes(&p->operand[WEIGHTS], weights, 1));
    int8_t *codes = p->operand[WEIGHTS];
    for (int64_t i = 0; i < weights; i++)
        if (codes[i] == INT8_MIN) codes[i] = -INT8_MAX;
    OCT_TRY(oct_alloc(&p->operand[PACKED], (size_t)plan->packed_bytes, 1));
    OCT_TRY(oct_alloc(&p->operand[RESULT], (size_t)outputs(p), sizeof(int32_t)));
    OCT_TRY(oct_alloc(&p->operand[SCRATCH], (size_t)plan->scratch_bytes, 1));
    OCT_TRY(oct_alloc(&p->operand[TABLES], (size_t)plan->table_bytes, 1));
    oct_qconv_plan_tables(plan, p->operand[TABLES]);
    oct_qconv_pack(plan, codes, p->operand[PACKED]);
    return OCT_OK;
}

static void multiply_integers(oct_layer_product *p)
{
    const oct_qconv_pass pass = {.samples = p->samples,
                                 .x = p->operand[CODES],
                                 .packed = p->operand[PACKED],
                                 .y = p->operand[RESULT]};
    oct_qconv_accumulate(&p->integer_plan, &pass, NULL, NULL, p->operand[SCRATCH]);
}

/* A float product has x or a gradient, weights, packed weights, result and scratch. The gradient is in
 * rows as both products of a backward take it. */

enum { VALUES = CODES };

static oct_status random_floats(void *block, int64_t n, uint32_t sub)
{
    OCT_TRY(oct_alloc(block, (size_t)n, sizeof(float)));
    oct_fill_uniform(*(float **)block, n, OCT_BENCH_SEED, OCT_STREAM_TEST, sub, -1.0F, 1.0F);
    return OCT_OK;
}

static oct_numerics numerics_of(const oct_layer_product *p)
{
    return p->kind->roof == OCT_ROOF_BF16 ? OCT_NUMERICS_BF16 : OCT_NUMERICS_F32;
}

/* Plans the product and allocates tables, result and scratch; one of the kinds has sizes. */
static oct_status make_plan(oct_layer_product *p, unsigned product, int64_t results)
{
    const oct_conv_config config = {.shape = p->shape,
                                    .kernel = p->floats,
                                    .numerics = numerics_of(p),
                                    .input = numerics_of(p) == OCT_NUMERICS_BF16 ? OCT_U8 : OCT_F32,
                                    .leaf = OCT_PRODUCT_LEAF,
                                    .max_leaves = OCT_CONV_MAX_LEAVES,
                                    .products = product};
    oct_conv_plan *plan = &p->plan;
    oct_conv_plan_init(plan, &config);
    const size_t scratch = plan->forward.scratch_bytes + plan->data.scratch_bytes;
    OCT_TRY(oct_alloc(&p->operand[TABLES], plan->table_bytes, 1));
    OCT_TRY(
        oct_alloc(&p->operand[PACKED], plan->forward.packed_bytes + plan->data.packed_bytes, 1));
    OCT_TRY(oct_alloc(&p->operand[RESULT], (size_t)results, sizeof(float)));
    OCT_TRY(oct_alloc(&p->operand[SCRATCH], scratch + plan->weight.scratch_bytes, 1));
    oct_conv_plan_tables(plan, p->operand[TABLES]);
    return OCT_OK;
}

static oct_conv_pass pass_of(const oct_layer_product *p)
{
    return (oct_conv_pass){.samples = p->samples,
                           .x = p->operand[VALUES],
                           .packed = p->operand[PACKED],
                           .y = p->operand[RESULT]};
}

static oct_status make_forward(oct_layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    OCT_TRY(make_plan(p, OCT_CONV_FORWARD, outputs(p)));
    OCT_TRY(random_floats(&p->operand[VALUES], p->samples * oct_conv_in_numel(s), 0));
    OCT_TRY(random_floats(&p->operand[WEIGHTS], s->out_c * oct_conv_depth(s), 1));
    oct_conv_forward_pack(&p->plan, p->operand[WEIGHTS], p->operand[PACKED]);
    return OCT_OK;
}

static void forward(oct_layer_product *p)
{
    const oct_conv_pass pass = pass_of(p);
    oct_conv_forward(&p->plan, &pass, p->operand[SCRATCH]);
}

static oct_status random_gradient(oct_layer_product *p, void *block)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t rows = p->samples * s->out_h * s->out_w;
    float *grad_y = NULL;
    OCT_TRY(oct_alloc(block, (size_t)rows, p->plan.grad_row_bytes));
    OCT_TRY(random_floats(&grad_y, outputs(p), 2));
    oct_conv_grad_rows(&p->plan, rows, grad_y, NULL, *(void **)block);
    oct_free(&grad_y);
    return OCT_OK;
}

static oct_status make_grad_input(oct_layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    OCT_TRY(make_plan(p, OCT_CONV_BACKWARD_DATA, p->samples * oct_conv_in_numel(s)));
    OCT_TRY(random_gradient(p, &p->operand[VALUES]));
    OCT_TRY(random_floats(&p->operand[WEIGHTS], s->out_c * oct_conv_depth(s), 1));
    oct_conv_backward_data_pack(&p->plan, p->operand[WEIGHTS], NULL, p->operand[PACKED]);
    return OCT_OK;
}

static void grad_input(oct_layer_product *p)
{
    const oct_conv_pass pass = pass_of(p);
    oct_conv_backward_data(&p->plan, &pass, p->operand[SCRATCH]);
}

/* The input takes the weights' operand: codes where QAT has them, floats in float training. */
static oct_status make_grad_weight(oct_layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    OCT_TRY(make_plan(p, OCT_CONV_BACKWARD_WEIGHT, s->out_c * oct_conv_depth(s)));
    p->samples = p->plan.weight.leaves * OCT_PRODUCT_LEAF;
    const int64_t inputs = p->samples * oct_conv_in_numel(s);
    OCT_TRY(random_gradient(p, &p->operand[VALUES]));
    return p->plan.config.input == OCT_U8 ? random_codes(&p->operand[WEIGHTS], inputs, 0)
                                          : random_floats(&p->operand[WEIGHTS], inputs, 0);
}

static void grad_weight(oct_layer_product *p)
{
    oct_conv_weight_pass pass = {
        .samples = p->samples, .grad = p->operand[VALUES], .sums = p->operand[RESULT]};
    if (p->plan.config.input == OCT_U8)
        pass.x.codes = p->operand[WEIGHTS];
    else
        pass.x.values = p->operand[WEIGHTS];
    oct_conv_backward_weight(&p->plan, &pass, p->operand[SCRATCH]);
}

/* OpenBLAS computes the same product, as if the windows of the input had been gathered before. */

static oct_status make_blas(oct_layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t rows = p->samples * s->out_h * s->out_w, depth = oct_conv_depth(s);
    OCT_TRY(oct_blas_init());
    OCT_TRY(random_floats(&p->operand[VALUES], rows * depth, 0));
    OCT_TRY(random_floats(&p->operand[WEIGHTS], s->out_c * depth, 1));
    return oct_alloc(&p->operand[RESULT], (size_t)outputs(p), sizeof(float));
}

static void blas(oct_layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t rows = p->samples * s->out_h * s->out_w, depth = oct_conv_depth(s);
    oct_sgemm(&(oct_sgemm_call){.trans_b = true,
                                .m = rows,
                                .n = s->out_c,
                                .k = depth,
                                .alpha = 1.0F,
                                .a = p->operand[VALUES],
                                .lda = depth,
                                .b = p->operand[WEIGHTS],
                                .ldb = depth,
                                .c = p->operand[RESULT],
                                .ldc = s->out_c});
}

static const oct_product_kind kinds[] = {
    {"int8 forward", OCT_ROOF_INT8, false, make_integers, multiply_integers},
    {"bf16 input gradient", OCT_ROOF_BF16, false, make_grad_input, grad_input},
    {"bf16 weight gradient", OCT_ROOF_BF16, false, make_grad_weight, grad_weight},
    {"f32 forward", OCT_ROOF_F32, false, make_forward, forward},
    {"f32 input gradient", OCT_ROOF_F32, false, make_grad_input, grad_input},
    {"f32 weight gradient", OCT_ROOF_F32, false, make_grad_weight, grad_weight},
    {"OpenBLAS sgemm", OCT_ROOF_F32, true, make_blas, blas},
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

int64_t oct_product_multiply_adds(const oct_layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    return p->kind->openblas ? outputs(p) * oct_conv_depth(s)
                             : p->samples * oct_conv_multiply_adds(s, 1, 1);
}
