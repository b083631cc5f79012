/* octet bench kernels: how near are the products of a training step to what the processor can do?
 *
 * Each kind of product, through the function that training calls, on the layers of residual networks for
 * 32x32 images, with each instruction set of this machine. The scalar reference is left out unless
 * OCT_ISA asks for nothing else.
 */
#include "launch/bench/bench.h"
#include "launch/bench/timing.h"
#include "launch/bench/product.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/kernel/blas.h"

#include <inttypes.h>

enum { ROUNDS = 7 };
static const double ROUND_SECONDS = 0.01;

static const struct {
    int64_t channels, side;
} layers[] = {{16, 32}, {32, 16}, {64, 32}, {128, 16}, {256, 8}, {512, 4}};

static oct_conv_shape shape_of(size_t layer, bool depthwise)
{
    const int64_t c = layers[layer].channels, side = layers[layer].side;
    const int groups = depthwise ? (int)c : 1;
    return oct_conv_shape_of(side, side, c, c, oct_conv_geometry_of(3, 3, 1, 1, groups));
}

static void call_product(void *user)
{
    oct_layer_product *p = user;
    p->kind->call(p);
}

/* Measures the median seconds of a call, in the processor's time: nothing here waits. */
static oct_status time_calls(const oct_bench *bench, oct_layer_product *p, double *each)
{
    const int64_t rounds = bench->repetitions > 0 ? bench->repetitions : ROUNDS;
    double *seconds = NULL;
    OCT_TRY(oct_alloc(&seconds, (size_t)rounds, sizeof(double)));
    p->kind->call(p);
    for (int64_t i = 0; i < rounds; i++)
        seconds[i] = oct_time_call(call_product, p, ROUND_SECONDS);
    *each = oct_median(seconds, rounds);
    oct_free(&seconds);
    return OCT_OK;
}

static oct_status print_product(oct_bench *bench, const char *isa, const oct_layer_product *p,
                                double seconds, const oct_peak *peak)
{
    const oct_conv_shape *s = &p->shape;
    const char *layer = oct_conv_is_depthwise(s) ? "depthwise 3x3" : "conv 3x3";
    const double gops = 2e-9 * (double)oct_product_multiply_adds(p) / seconds;
    const double most = peak->gops[p->kind->roof], percent = 100.0 * gops / most;
    return oct_bench_print(
        bench,
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:f, s:f, s:f, s:f}", "bench",
                  "kernels", "isa", isa, "product", p->kind->name, "layer", layer, "channels",
                  (json_int_t)s->in_c, "side", (json_int_t)s->in_h, "batch", (json_int_t)p->samples,
                  "threads", 1, "step_ms", 1e3 * seconds, "gops", gops, "gops_peak", most,
                  "percent_of_peak", percent),
        "%-12s %-21s %-14s %3" PRId64 " channels %2" PRId64 "x%-2" PRId64
        " %7.1f Gop/s of %5.1f (%2.0f %%)",
        isa, p->kind->name, layer, s->in_c, s->in_h, s->in_w, gops, most, percent);
}

/* This is what there is with one set of instructions. */
typedef struct bench_set {
    const char *isa;
    const oct_kernel *integers;
    const oct_float_kernel *floats;
    bool own_integers, own_floats; /* not those of a lesser set */
    bool last;     /* the best set of this machine: what knows no sets is timed beside it, once */
    bool openblas; /* it is the last one, and OpenBLAS is installed */
    oct_peak peak;
} bench_set;

/* Depthwise products of floats are the same for all sets and numerics; OpenBLAS has none. */
static bool has_product(const bench_set *set, const oct_product_kind *kind, bool depthwise)
{
    if (kind->roof == OCT_ROOF_INT8) return set->own_integers;
    if (depthwise) return set->last && kind->roof == OCT_ROOF_F32 && !kind->openblas;
    return kind->openblas ? set->openblas : set->own_floats;
}

static oct_status bench_layer(oct_bench *bench, const bench_set *set, const oct_product_kind *kind,
                              oct_conv_shape shape)
{
    oct_layer_product p = {
        .kind = kind,
        .shape = shape,
        .samples = OCT_PRODUCT_LEAF,
        .integers = set->integers,
        .floats = set->floats,
    };
    oct_status status = OCT_OK;
    double seconds;
    OCT_TRY_OUT(kind->make(&p));
    OCT_TRY_OUT(time_calls(bench, &p, &seconds));
    OCT_TRY_OUT(print_product(bench, set->isa, &p, seconds, &set->peak));
out:
    oct_product_free(&p);
    return status;
}

static bool has_openblas(void)
{
    if (oct_blas_init() == OCT_OK) return true;
    oct_log(OCT_LOG_WARN, "%s; its lines are left out", oct_fail_text(0));
    oct_fail_clear();
    return false;
}

static oct_status bench_set_of(oct_bench *bench, oct_isa isa)
{
    const oct_isa_set have = oct_cpu_isa() & ((2U << isa) - 1);
    bench_set set = {
        .isa = oct_isa_name(isa),
        .integers = oct_kernel_select(have),
        .floats = oct_float_kernel_select(have),
        .last = have == oct_cpu_isa() && isa != OCT_ISA_REF,
    };
    set.openblas = set.last && has_openblas();
    set.own_integers = set.integers->isa == isa;
    set.own_floats = set.floats->isa == isa;
    OCT_TRY(oct_peak_measure(have, &set.peak));
    for (int depthwise = 0; depthwise < 2; depthwise++)
        for (size_t i = 0; i < oct_product_kinds(); i++)
            for (size_t layer = 0; layer < OCT_COUNT(layers); layer++)
                if (has_product(&set, oct_product_kind_at(i), depthwise))
                    OCT_TRY(bench_layer(bench, &set, oct_product_kind_at(i),
                                        shape_of(layer, depthwise)));
    return OCT_OK;
}

oct_status oct_bench_kernels(oct_bench *bench)
{
    const oct_isa_set have = oct_cpu_isa();
    if (have == 1U << OCT_ISA_REF) return bench_set_of(bench, OCT_ISA_REF);
    for (unsigned isa = OCT_ISA_REF + 1; have >> isa; isa++)
        if (oct_isa_has(have, (oct_isa)isa)) OCT_TRY(bench_set_of(bench, (oct_isa)isa));
    return OCT_OK;
}
