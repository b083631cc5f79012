/* All figures of batches are one object of the same members, or one line. */
#include "launch/bench/figure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static json_t *object_of(const oct_bench *bench, const oct_figure *t, const oct_timings *timings,
                         const oct_timing *each)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:i, s:I, s:s, s:i, s:I, s:f, s:f, s:f, s:f}",
                     "bench", t->bench, "model", t->model, "mode", t->mode, "numerics", t->numerics,
                     "batch", (json_int_t)bench->batch, "ranks", bench->session->group->size,
                     "threads", (json_int_t)bench->threads, "isa", oct_isa_best(), "warm_up",
                     OCT_BENCH_WARM_UP, "steps", (json_int_t)timings->count, "images_per_s",
                     (double)bench->batch / each->seconds, "step_ms", 1e3 * each->seconds,
                     "step_ms_least", 1e3 * each->least, "step_cpu_ms", 1e3 * each->cpu);
}

static json_t *memory_of(const oct_figure *t)
{
    const oct_memory_growth *memory = &t->memory;
    return json_pack("{s:I, s:I, s:I, s:s?}", "peak_bytes_above_start", (json_int_t)memory->larger,
                     "peak_bytes_allocated", (json_int_t)memory->allocated, "peak_bytes_resident",
                     (json_int_t)memory->resident, "peak_phase", t->memory_phase);
}

static json_t *syncs_of(const oct_figure *t)
{
    return t->syncs > 0 ? json_pack("{s:f}", "syncs", t->syncs) : json_object();
}

static json_t *speed_of(const oct_figure *t, double gops, double peak)
{
    return json_pack("{s:I, s:f, s:f, s:f}", "multiply_adds", (json_int_t)(t->operations / 2),
                     "gops", gops, "gops_peak", peak, "percent_of_peak", 100.0 * gops / peak);
}

/* Merges two objects. NULL, for want of memory, is left to the caller. */
static json_t *merged(json_t *object, json_t *more)
{
    if (!object || !more || json_object_update(object, more) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(more);
    return object;
}

oct_status oct_figure_print(oct_bench *bench, const oct_figure *t, oct_timings *timings)
{
    const int ranks = bench->session->group->size;
    const oct_timing each = oct_timings_median(timings);
    const double gops = 1e-9 * t->operations / each.seconds;
    const double peak = t->peak * (double)(bench->threads * ranks);
    const bool choice = strcmp(t->mode, t->numerics) != 0;
    char syncs[32] = "";
    if (t->syncs > 0 && ranks > 1) oct_snprintf(syncs, sizeof syncs, ", %g syncs", t->syncs);
    json_t *object = merged(merged(object_of(bench, t, timings, &each), memory_of(t)), syncs_of(t));
    return oct_bench_print(
        bench, merged(object, speed_of(t, gops, peak)),
        "%s %s %s%s%s, batch %" PRId64 ", %d rank%s of %" PRId64 " thread%s, %s: %.2f ms, "
        "%.0f images/s%s, %s%s%s, %.1f Gop/s of %.1f (%.0f %%)",
        t->bench, t->model, t->mode, choice ? " " : "", choice ? t->numerics : "", bench->batch,
        ranks, ranks > 1 ? "s" : "", bench->threads, bench->threads > 1 ? "s" : "", oct_isa_best(),
        1e3 * each.seconds, (double)bench->batch / each.seconds, syncs,
        oct_text_size((int64_t)t->memory.larger).text, t->memory_phase ? " in " : "",
        t->memory_phase ? t->memory_phase : "", gops, peak, 100.0 * gops / peak);
}
