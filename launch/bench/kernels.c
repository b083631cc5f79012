/* octet bench kernels: how near are the products of a training step to what the processor can do?
 *
 * Each kind of product, through the function that training calls, on the layers of residual networks for
 * 32x32 images, with each instruction set of this machine. The scalar reference is left out unless
 * OCT_ISA asks for nothing else.
 */
#include "launch/bench/bench.h"
#include "launch/bench/laps.h"
#include "launch/bench/product.h"
#include "launch/bench/work.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>

enum { ROUNDS = 7 };
static const double ROUND_SECONDS = 0.01;

static const struct {
    int64_t channels, side;
} layers[] = {{16, 32}, {32, 16}, {64, 32}, {128, 16}, {256, 8}, {512, 4}};

static oct_conv_shape shape_of(size_t layer, bool depthwise)
{
    const int64_t c = layers[layer].channels, side = layers[layer].side;
    const int groups = depthwise ? (int)c : 1;
    return (oct_conv_shape){side, side, c, side, side, c, 3, 3, 1, 1, groups};
}

/* Median seconds of a call, of the processor's time: nothing here waits. */
static oct_status time_calls(const oct_bench *bench, const oct_product_kind *kind,
                             oct_layer_product *p, double *each)
{
    const int64_t rounds = bench->repetitions > 0 ? bench->repetitions : ROUNDS;
    double *seconds = NULL;
    OCT_TRY(oct_alloc(&seconds, (size_t)rounds, sizeof(double)));
    kind->call(p);
    for (int64_t i = 0; i < rounds; i++) {
        double begin = oct_cpu_seconds(), passed = 0;
        int64_t calls = 0;
        for (; passed < ROUND_SECONDS; passed = oct_cpu_seconds() - begin, calls++)
            kind->call(p);
        seconds[i] = passed / (double)calls;
    }
    *each = oct_median(seconds, rounds);
    oct_free(&seconds);
    return OCT_OK;
}

static oct_status tell(oct_bench *bench, const oct_product_kind *kind, const oct_layer_product *p,
                       double seconds)
{
    const oct_conv_shape *s = &p->shape;
    const bool depthwise = oct_conv_is_depthwise(s);
    const double work = (double)(OCT_PRODUCT_SAMPLES * oct_conv_work(s, 1));
    const double gops = 2e-9 * work / seconds;
    char layer[64];
    snprintf(layer, sizeof layer, "%s 3x3, %" PRId64 " channels, %" PRId64 "x%" PRId64,
             depthwise ? "depthwise" : "conv", s->in_c, s->in_h, s->in_w);
    return oct_bench_give(
        bench,
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:i, s:f, s:f}", "bench", "kernels", "isa",
                  p->integers->name, "product", kind->name, "layer", layer, "channels",
                  (json_int_t)s->in_c, "side", (json_int_t)s->in_h, "depthwise", depthwise,
                  "samples", OCT_PRODUCT_SAMPLES, "step_ms", 1e3 * seconds, "gops", gops),
        "%-12s %-22s %-34s %8.1f Gop/s", p->integers->name, kind->name, layer, gops);
}

static oct_status bench_layer(oct_bench *bench, const oct_product_kind *kind,
                              const oct_kernel *kernel, oct_conv_shape shape)
{
    oct_layer_product p = {.shape = shape, .integers = kernel};
    oct_status status = OCT_OK;
    double seconds;
    OCT_TRY_OUT(kind->make(&p));
    OCT_TRY_OUT(time_calls(bench, kind, &p, &seconds));
    OCT_TRY_OUT(tell(bench, kind, &p, seconds));
out:
    oct_product_free(&p);
    return status;
}

/* What there is up to this instruction set, when it brings anything new. */
static oct_status bench_isa(oct_bench *bench, oct_isa_set have)
{
    const oct_kernel *kernel = oct_kernel_select(have);
    if (have >> kernel->isa > 1) return OCT_OK;
    for (int depthwise = 0; depthwise < 2; depthwise++)
        for (size_t kind = 0; kind < oct_product_kinds(); kind++)
            for (size_t layer = 0; layer < OCT_COUNT(layers); layer++)
                OCT_TRY(bench_layer(bench, oct_product_kind_at(kind), kernel,
                                    shape_of(layer, depthwise)));
    return OCT_OK;
}

oct_status oct_bench_kernels(oct_bench *bench)
{
    const oct_isa_set have = oct_cpu_isa(), only_reference = 1U << OCT_ISA_REF;
    if (have == only_reference) return bench_isa(bench, have);
    for (unsigned isa = OCT_ISA_REF + 1; have >> isa; isa++)
        if (oct_isa_has(have, (oct_isa)isa)) OCT_TRY(bench_isa(bench, have & ((2U << isa) - 1)));
    return OCT_OK;
}
