/* octet bench kernels: how near are the products of a training step to what the processor can do?
 *
 * Each kind of product, through the function that training calls, on the layers of residual networks for
 * 32x32 images, with each instruction set of this machine. The scalar reference is left out unless
 * OCT_ISA asks for nothing else.
 */
#include "launch/bench/bench.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/kernel/blas.h"
#include "core/kernel/conv.h"
#include "launch/deploy/device.h"
#include "quant/kernel/qconv.h"

#include <inttypes.h>

enum { ROUNDS = 7 };
static const double ROUND_SECONDS = 0.01;

static const struct {
    int64_t channels, side;
} layers[] = {{16, 32}, {32, 16}, {64, 32}, {128, 16}, {256, 8}, {512, 4}};

/* The products of a layer as training calls them, each on a leaf of random numbers (weight gradients on as many as are
 * summed together). */

enum { LEAF = 8 };

/* A kind of product, of one layer, on one instruction set. */
enum { OPERANDS = 7 };
typedef struct layer_product {
    const struct product_kind *kind;
    oct_conv_shape shape;
    int64_t samples; /* of a call: a leaf, unless make says more */
    const oct_kernel *integers;
    oct_qconv_plan integer_plan;
    const oct_float_kernel *floats;
    oct_conv_plan plan;      /* of the product of floats */
    void *operand[OPERANDS]; /* owned; the kind knows what they are */
} layer_product;

typedef struct product_kind {
    const char *name;
    oct_roof roof;
    bool
        openblas; /* the same on every instruction set; its input is gathered, so padding is multiplied too */
    /* Allocates and fills the operands; bench_layer frees what a failure left. */
    oct_status (*make)(layer_product *p);
    void (*call)(layer_product *p);
} product_kind;

static const oct_qparams after_relu = {.scale = 0.05F, .zero_point = 0, .qmin = 0, .qmax = 255};

static oct_status random_codes(void *block, int64_t n, uint32_t sub)
{
    OCT_TRY(oct_alloc(block, (size_t)n, 1));
    oct_bench_fill(*(uint8_t **)block, n, sub);
    return OCT_OK;
}

static int64_t count_outputs(const layer_product *p)
{
    return p->samples * oct_conv_out_numel(&p->shape);
}

/* An int8 product has codes, weights, packed weights, accumulators, scratch and the plan's tables. */

enum { CODES, WEIGHTS, PACKED, RESULT, SCRATCH, TABLES, SCALES };

/* Plans the int8 convolution of a layer and fills its operands with random codes; weights are from -127 to 127. */
static oct_status make_int8_forward(layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    oct_qconv_plan *plan = &p->integer_plan;
    const int64_t weights = s->out_c * oct_conv_depth(s);
    oct_qconv_plan_init(plan, p->integers, s, after_relu, p->samples);
    OCT_TRY(random_codes(&p->operand[CODES], p->samples * oct_conv_in_numel(s), 0));
    OCT_TRY(random_codes(&p->operand[WEIGHTS], weights, 1));
    int8_t *weight = p->operand[WEIGHTS];
    for (int64_t i = 0; i < weights; i++)
        if (weight[i] == INT8_MIN) weight[i] = -INT8_MAX;
    OCT_TRY(oct_alloc(&p->operand[PACKED], (size_t)plan->packed_bytes, 1));
    OCT_TRY(oct_alloc(&p->operand[RESULT], (size_t)count_outputs(p), sizeof(int32_t)));
    OCT_TRY(oct_alloc(&p->operand[SCRATCH], (size_t)plan->scratch_bytes, 1));
    OCT_TRY(oct_alloc(&p->operand[TABLES], (size_t)plan->table_bytes, 1));
    oct_qconv_plan_tables(plan, p->operand[TABLES]);
    oct_qconv_pack(plan, weight, p->operand[PACKED]);
    return OCT_OK;
}

static void multiply_int8_forward(layer_product *p)
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

static oct_numerics numerics_of(const layer_product *p)
{
    if (p->kind->roof == OCT_ROOF_INT8) return OCT_NUMERICS_INT8;
    return p->kind->roof == OCT_ROOF_BF16 ? OCT_NUMERICS_BF16 : OCT_NUMERICS_F32;
}

/* Plans one product of a float convolution and allocates its buffers; only the planned one needs any bytes. */
static oct_status make_plan(layer_product *p, unsigned product, int64_t results)
{
    const oct_conv_config config = {.shape = p->shape,
                                    .kernel = p->floats,
                                    .numerics = numerics_of(p),
                                    .input = numerics_of(p) == OCT_NUMERICS_F32 ? OCT_F32 : OCT_U8,
                                    .bytes = &p->integers->bytes,
                                    .data_digits = 1,
                                    .weight_digits = 1,
                                    .leaf = LEAF,
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

static oct_conv_pass operands_of_call(const layer_product *p)
{
    return (oct_conv_pass){.samples = p->samples,
                           .x = p->operand[VALUES],
                           .packed = p->operand[PACKED],
                           .y = p->operand[RESULT],
                           .scale = p->operand[SCALES]};
}

static oct_status make_forward(layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    OCT_TRY(make_plan(p, OCT_CONV_FORWARD, count_outputs(p)));
    OCT_TRY(random_floats(&p->operand[VALUES], p->samples * oct_conv_in_numel(s), 0));
    OCT_TRY(random_floats(&p->operand[WEIGHTS], s->out_c * oct_conv_depth(s), 1));
    oct_conv_forward_pack(&p->plan, p->operand[WEIGHTS], p->operand[PACKED]);
    return OCT_OK;
}

static void multiply_forward(layer_product *p)
{
    const oct_conv_pass pass = operands_of_call(p);
    oct_conv_forward(&p->plan, &pass, p->operand[SCRATCH]);
}

/* Makes a random gradient of the output, in the format of rows that both backward products read. */
static oct_status random_gradient(layer_product *p, uint8_t flip, void *block)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t rows = p->samples * s->out_h * s->out_w;
    OCT_OWNED(oct_free) float *grad_y = NULL;
    OCT_TRY(oct_alloc(block, (size_t)rows, p->plan.grad_row_bytes));
    OCT_TRY(random_floats(&grad_y, count_outputs(p), 2));
    if (numerics_of(p) != OCT_NUMERICS_INT8) {
        oct_conv_grad_rows(&p->plan, rows, grad_y, NULL, *(void **)block);
        return OCT_OK;
    }
    /* More scales than samples or segments and their outputs; as factors they make codes from -126 to 126. */
    const int64_t scales = p->samples * s->out_c;
    OCT_TRY(oct_alloc(&p->operand[SCALES], (size_t)scales, sizeof(float)));
    for (int64_t i = 0; i < scales; i++)
        ((float *)p->operand[SCALES])[i] = 32000.0F;
    oct_conv_grad_codes(&p->plan, &(oct_grad_codes){.rows = rows,
                                                    .grad = grad_y,
                                                    .factor = p->operand[SCALES],
                                                    .flip = flip,
                                                    .codes = *(void **)block});
    return OCT_OK;
}

static oct_status make_grad_input(layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    OCT_TRY(make_plan(p, OCT_CONV_BACKWARD_DATA, p->samples * oct_conv_in_numel(s)));
    OCT_TRY(random_gradient(p, OCT_GRAD_FLIP, &p->operand[VALUES]));
    if (numerics_of(p) == OCT_NUMERICS_INT8) {
        OCT_TRY(random_codes(&p->operand[WEIGHTS], s->out_c * oct_conv_depth(s), 1));
        oct_conv_backward_data_pack(&p->plan, NULL, p->operand[WEIGHTS], p->operand[PACKED]);
        return OCT_OK;
    }
    OCT_TRY(random_floats(&p->operand[WEIGHTS], s->out_c * oct_conv_depth(s), 1));
    oct_conv_backward_data_pack(&p->plan, p->operand[WEIGHTS], NULL, p->operand[PACKED]);
    return OCT_OK;
}

static void multiply_grad_input(layer_product *p)
{
    const oct_conv_pass pass = operands_of_call(p);
    oct_conv_backward_data(&p->plan, &pass, p->operand[SCRATCH]);
}

/* Makes gradient and input; the input, codes in QAT and floats in float training, is in the place of the weights. */
static oct_status make_grad_weight(layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    OCT_TRY(make_plan(p, OCT_CONV_BACKWARD_WEIGHT, s->out_c * oct_conv_depth(s)));
    p->samples = p->plan.weight.leaves * LEAF;
    const int64_t inputs = p->samples * oct_conv_in_numel(s);
    OCT_TRY(random_gradient(p, 0, &p->operand[VALUES]));
    return p->plan.config.input == OCT_U8 ? random_codes(&p->operand[WEIGHTS], inputs, 0)
                                          : random_floats(&p->operand[WEIGHTS], inputs, 0);
}

static void multiply_grad_weight(layer_product *p)
{
    oct_conv_weight_pass pass = {.samples = p->samples,
                                 .grad = p->operand[VALUES],
                                 .scale = p->operand[SCALES],
                                 .sums = p->operand[RESULT]};
    if (p->plan.config.input == OCT_U8)
        pass.x.codes = p->operand[WEIGHTS];
    else
        pass.x.values = p->operand[WEIGHTS];
    oct_conv_backward_weight(&p->plan, &pass, p->operand[SCRATCH]);
}

/* OpenBLAS computes the same product, as if the windows of the input had been gathered before. */

static oct_status make_blas(layer_product *p)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t rows = p->samples * s->out_h * s->out_w, depth = oct_conv_depth(s);
    OCT_TRY(oct_blas_init());
    OCT_TRY(random_floats(&p->operand[VALUES], rows * depth, 0));
    OCT_TRY(random_floats(&p->operand[WEIGHTS], s->out_c * depth, 1));
    return oct_alloc(&p->operand[RESULT], (size_t)count_outputs(p), sizeof(float));
}

static void multiply_blas(layer_product *p)
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

static const product_kind kinds[] = {
    {"int8 forward", OCT_ROOF_INT8, false, make_int8_forward, multiply_int8_forward},
    {"int8 input gradient", OCT_ROOF_INT8, false, make_grad_input, multiply_grad_input},
    {"int8 weight gradient", OCT_ROOF_INT8, false, make_grad_weight, multiply_grad_weight},
    {"bf16 input gradient", OCT_ROOF_BF16, false, make_grad_input, multiply_grad_input},
    {"bf16 weight gradient", OCT_ROOF_BF16, false, make_grad_weight, multiply_grad_weight},
    {"f32 forward", OCT_ROOF_F32, false, make_forward, multiply_forward},
    {"f32 input gradient", OCT_ROOF_F32, false, make_grad_input, multiply_grad_input},
    {"f32 weight gradient", OCT_ROOF_F32, false, make_grad_weight, multiply_grad_weight},
    {"OpenBLAS sgemm", OCT_ROOF_F32, true, make_blas, multiply_blas},
};

/* Their times. */

static void call_product(void *user)
{
    layer_product *p = user;
    p->kind->call(p);
}

/* Measures the median seconds of a call, in the processor's time: nothing here waits. */
static oct_status time_calls(const oct_bench *bench, layer_product *p, double *each)
{
    const int64_t rounds = bench->repetitions > 0 ? bench->repetitions : ROUNDS;
    OCT_OWNED(oct_free) double *seconds = NULL;
    OCT_TRY(oct_alloc(&seconds, (size_t)rounds, sizeof(double)));
    p->kind->call(p);
    for (int64_t i = 0; i < rounds; i++)
        seconds[i] = oct_time_call(call_product, p, ROUND_SECONDS);
    *each = oct_median(seconds, rounds);
    return OCT_OK;
}

static void print_product(oct_bench *bench, const char *isa, const layer_product *p, double seconds,
                          const oct_peak *peak)
{
    const oct_conv_shape *s = &p->shape;
    const char *layer = oct_conv_is_depthwise(s) ? "depthwise 3x3" : "conv 3x3";
    const int64_t multiply_adds = p->kind->openblas ? count_outputs(p) * oct_conv_depth(s)
                                                    : p->samples * oct_conv_multiply_adds(s, 1, 1);
    const double gops = 2e-9 * (double)multiply_adds / seconds;
    const double most = peak->gops[p->kind->roof], percent = 100.0 * gops / most;
    oct_bench_print(bench,
                    json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:f, s:f, s:f, s:f}",
                              "bench", "kernels", "isa", isa, "product", p->kind->name, "layer",
                              layer, "channels", (json_int_t)s->in_c, "side", (json_int_t)s->in_h,
                              "batch", (json_int_t)p->samples, "threads", 1, "step_ms",
                              1e3 * seconds, "gops", gops, "gops_peak", most, "percent_of_peak",
                              percent),
                    "%-12s %-21s %-14s %3" PRId64 " channels %2" PRId64 "x%-2" PRId64
                    " %7.1f Gop/s of %5.1f (%2.0f %%)",
                    isa, p->kind->name, layer, s->in_c, s->in_h, s->in_w, gops, most, percent);
}

/* This is what there is with one set of instructions. */
typedef struct bench_set {
    const char *isa;
    const oct_kernel *integers;
    const oct_float_kernel *floats;
    bool has_integers, has_floats; /* not those of a lesser set */
    bool last;     /* the best set of this machine: what knows no sets is timed beside it, once */
    bool openblas; /* it is the last one, and OpenBLAS is installed */
    oct_peak peak;
} bench_set;

/* Depthwise products of floats are the same for all sets and numerics; OpenBLAS has none. */
static bool has_product(const bench_set *set, const product_kind *kind, bool depthwise)
{
    if (kind->roof == OCT_ROOF_INT8)
        return set->has_integers && (!depthwise || kind->make == make_int8_forward);
    if (depthwise) return set->last && kind->roof == OCT_ROOF_F32 && !kind->openblas;
    return kind->openblas ? set->openblas : set->has_floats;
}

static oct_status bench_layer(oct_bench *bench, const bench_set *set, const product_kind *kind,
                              oct_conv_shape shape)
{
    layer_product p = {
        .kind = kind,
        .shape = shape,
        .samples = LEAF,
        .integers = set->integers,
        .floats = set->floats,
    };
    oct_status status = OCT_OK;
    double seconds;
    OCT_TRY_OUT(kind->make(&p));
    OCT_TRY_OUT(time_calls(bench, &p, &seconds));
    print_product(bench, set->isa, &p, seconds, &set->peak);
out:
    for (int i = 0; i < OPERANDS; i++)
        oct_free(&p.operand[i]);
    return status;
}

/* Times each product on each layer with the kernels for one instruction set (and those below it). */
static oct_status bench_instruction_set(oct_bench *bench, oct_isa isa)
{
    const oct_isa_set have = oct_cpu_isa() & ((2U << isa) - 1);
    bench_set set = {
        .isa = oct_isa_name(isa),
        .integers = oct_kernel_select(have),
        .floats = oct_float_kernel_select(have),
        .last = have == oct_cpu_isa() && isa != OCT_ISA_REF,
    };
    set.openblas = set.last && oct_blas_init() == OCT_OK;
    if (set.last && !set.openblas) {
        oct_log(OCT_LOG_WARN, "%s; its lines are left out", oct_error_message(0));
        oct_fail_clear();
    }
    set.has_integers = set.integers->isa == isa;
    set.has_floats = set.floats->isa == isa;
    OCT_TRY(oct_peak_measure(have, &set.peak));
    for (int depthwise = 0; depthwise < 2; depthwise++)
        for (size_t i = 0; i < OCT_COUNT(kinds); i++)
            for (size_t layer = 0; layer < OCT_COUNT(layers); layer++)
                if (has_product(&set, &kinds[i], depthwise)) {
                    const int64_t c = layers[layer].channels, side = layers[layer].side;
                    const oct_conv_geometry geometry =
                        oct_conv_geometry_of(3, 3, 1, 1, depthwise ? (int)c : 1);
                    OCT_TRY(bench_layer(bench, &set, &kinds[i],
                                        oct_conv_shape_of(side, side, c, c, geometry)));
                }
    return OCT_OK;
}

static oct_status bench_kernels(oct_bench *bench)
{
    const oct_isa_set have = oct_cpu_isa();
    if (have == 1U << OCT_ISA_REF) return bench_instruction_set(bench, OCT_ISA_REF);
    for (unsigned isa = OCT_ISA_REF + 1; have >> isa; isa++)
        if (oct_isa_has(have, (oct_isa)isa)) OCT_TRY(bench_instruction_set(bench, (oct_isa)isa));
    return OCT_OK;
}

const oct_bench_figure oct_bench_kernels = {"kernels", bench_kernels, false, true};
