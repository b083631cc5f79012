/* Observers against PyTorch's own sequences (tests/golden/make_quant_golden.py), those that count against other ways
 * to the same ranges (tests/golden/make_observer_golden.py); keys. */
#include "quant/observer/observer.h"
#include "quant/rounding/qparams.h"

#include "tests/golden/observer_golden.h"
#include "tests/golden/quant_golden.h"
#include "tests/support/float_bits.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const oct_range unseen = {.min = INFINITY, .max = -INFINITY};

static void follow(const char *name, float averaging, const uint32_t *states)
{
    const oct_observer *observer = oct_observer_find(name);
    cr_assert_not_null(observer);
    oct_range state = unseen;
    for (size_t i = 0; i < OCT_COUNT(golden_batches) / 2; i++) {
        observer->update(&state, &(oct_observation){.min = as_float(golden_batches[2 * i]),
                                                    .max = as_float(golden_batches[2 * i + 1]),
                                                    .averaging = averaging});
        cr_assert(as_bits(state.min) == states[2 * i] && as_bits(state.max) == states[2 * i + 1],
                  "%s, batch %zu: [%a, %a], PyTorch [%a, %a]", name, i, (double)state.min,
                  (double)state.max, (double)as_float(states[2 * i]),
                  (double)as_float(states[2 * i + 1]));
        cr_assert_eq(state.updates, (int64_t)i + 1);
    }
}

Test(observer, min_max_follows_pytorch)
{
    follow("min_max", 0.01f, golden_min_max);
}

Test(observer, moving_average_follows_pytorch)
{
    follow("moving_average", 0.01f, golden_average_01);
    follow("moving_average", 0.3f, golden_average_3);
    follow("moving_average", 1.0f, golden_average_1);
}

/* One that counts is asked only where something was seen. */
Test(observer, of_every_kind_ignores_a_batch_that_was_not_seen)
{
    for (size_t i = 0; i < oct_registry_count(&oct_observer_table); i++) {
        const oct_observer *observer = oct_registry_at(&oct_observer_table, i);
        const oct_observation nothing = {.min = INFINITY, .max = -INFINITY, .averaging = 0.5f};
        oct_range state = unseen;
        cr_assert_neq(observer->update == NULL, observer->count == NULL, "%s", observer->name);
        if (observer->count) continue;
        observer->update(&state, &nothing);
        cr_assert(state.min == INFINITY && state.max == -INFINITY && state.updates == 0);
        observer->update(&state, &(oct_observation){.min = -1, .max = 2, .averaging = 0.5f});
        cr_assert(state.min == -1.0f && state.max == 2.0f && state.updates == 1);
        observer->update(&state, &nothing);
        cr_assert(state.min == -1.0f && state.max == 2.0f && state.updates == 1);
    }
}

/* As the fake-quants do: user is the case's kind. */
static oct_qparams qparams(const void *user, float min, float max)
{
    const char kind = *(const char *)user;
    oct_qparams q = {.zero_point = 0, .qmin = 0, .qmax = 255};
    if (kind == 's') return oct_qparams_of_range(min, max, OCT_SYMMETRIC, 0, 255);
    if (kind == 'a') return oct_qparams_of_range(min, max, OCT_AFFINE, 0, 255);
    q.scale = fmaxf(max, 0.0f) / 255.0f;
    return q;
}

typedef struct counting {
    const golden_choice *golden;
    int64_t seen[OCT_HISTOGRAM_BINS], kept[OCT_HISTOGRAM_BINS];
    oct_observation batch;
    oct_range state;
} counting;

static void begin_counting(counting *c, const golden_choice *golden, bool calibrating)
{
    *c = (counting){.golden = golden, .state = unseen};
    for (int i = 0; i < golden->bins; i++)
        c->seen[golden->counts[i][0]] = golden->counts[i][1];
    c->batch = (oct_observation){.count = c->seen,
                                 .calibrating = calibrating,
                                 .percentile = 99.9,
                                 .qparams = qparams,
                                 .fake_quant = &golden->kind};
}

static void observe(counting *c, const char *name, float averaging)
{
    c->batch.averaging = averaging;
    oct_observer_find(name)->count(&c->state, c->kept, &c->batch);
}

static double error_of(const counting *c, float min, float max)
{
    return oct_histogram_error(c->seen, qparams(&c->golden->kind, min, max));
}

Test(observer, that_counts_finds_percentile_and_least_error)
{
    static counting c;
    for (size_t i = 0; i < OCT_COUNT(golden_choices); i++) {
        const golden_choice *g = &golden_choices[i];
        begin_counting(&c, g, true);
        observe(&c, "percentile", 0.01f);
        cr_assert(as_bits(c.state.min) == g->percentile[0] &&
                      as_bits(c.state.max) == g->percentile[1],
                  "%s: [%a, %a]", g->name, (double)c.state.min, (double)c.state.max);
        begin_counting(&c, g, true);
        observe(&c, "mse", 0.01f);
        cr_assert(as_bits(c.state.min) == g->least[0] && as_bits(c.state.max) == g->least[1],
                  "%s: [%a, %a]", g->name, (double)c.state.min, (double)c.state.max);
        const double error = error_of(&c, c.state.min, c.state.max);
        cr_assert_leq(fabs(error - g->error), 1e-3 * g->error, "%s: %g, PyTorch's codes %g",
                      g->name, error, g->error);
    }
}

/* Where PyTorch's search stops at once it is far after, so only one side is a bound. */
Test(observer, histogram_has_no_larger_error_than_pytorchs)
{
    static counting c;
    int better = 0;
    for (size_t i = 0; i < OCT_COUNT(golden_choices); i++) {
        const golden_choice *g = &golden_choices[i];
        begin_counting(&c, g, true);
        observe(&c, "histogram", 0.01f);
        const double own = error_of(&c, c.state.min, c.state.max);
        const double torch = error_of(&c, as_float(g->pytorch[0]), as_float(g->pytorch[1]));
        const double all =
            error_of(&c, oct_histogram_quantile(c.seen, 0), oct_histogram_quantile(c.seen, 1));
        cr_assert_leq(own, 1.001 * torch, "%s: %g, PyTorch %g", g->name, own, torch);
        cr_assert_leq(own, all);
        better += own < 0.99 * all;
        cr_assert_geq(own, 0.999 * g->error * (g->kind == 'a' ? 0.9 : 1), "%s", g->name);
    }
    cr_assert_geq(better, 3, "something is cut off");
}

Test(observer, that_counts_keeps_all_of_calibration_and_fades_after_it)
{
    static const char *const names[] = {"percentile", "mse", "histogram"};
    static counting c;
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        begin_counting(&c, &golden_choices[0], true);
        const int64_t total = oct_histogram_total(c.seen);
        for (int k = 0; k < 10; k++)
            observe(&c, names[i], 0.25f);
        cr_assert_eq(oct_histogram_total(c.kept), 10 * total);
        const oct_range calibrated = c.state;
        c.batch.calibrating = false;
        observe(&c, names[i], 0.25f);
        cr_assert_eq(oct_histogram_total(c.kept), 11 * total);
        memset(c.seen, 0, sizeof c.seen);
        c.seen[OCT_HISTOGRAM_ZERO] = 1;
        for (int k = 11; k < 150; k++)
            observe(&c, names[i], 0.25f);
        cr_assert_lt(oct_histogram_total(c.kept), 20, "what was counted 25 halvings ago is gone");
        cr_assert_eq(c.state.updates, 150);
        cr_assert(c.state.min == 0.0f && c.state.max == 0.0f && calibrated.max > 1.0f);
    }
}

Test(observer, is_found_by_its_name_only)
{
    for (size_t i = 0; i < oct_registry_count(&oct_observer_table); i++)
        cr_assert_eq(oct_observer_find(oct_registry_name(&oct_observer_table, i)),
                     oct_registry_at(&oct_observer_table, i));
    cr_assert_null(oct_observer_find("minmax"));
    cr_assert_null(oct_observer_find(""));
}

Test(float_key, keeps_the_order_of_floats_and_comes_back)
{
    const float ascending[] = {-INFINITY, -3e38f, -1.5f, -1.0f, -1e-38f, -1e-45f, 0.0f,
                               1e-45f,    1e-38f, 1.0f,  1.5f,  3e38f,   INFINITY};
    for (size_t i = 0; i < OCT_COUNT(ascending); i++) {
        cr_assert_eq(as_bits(oct_float_of_order(oct_float_key(ascending[i]))),
                     as_bits(ascending[i]));
        if (i > 0) cr_assert_lt(oct_float_key(ascending[i - 1]), oct_float_key(ascending[i]));
    }
    cr_assert_eq(oct_float_key(-0.0f), oct_float_key(0.0f));
    cr_assert_eq(oct_float_key(NAN), INT32_MAX);
    cr_assert_eq(oct_float_key(-NAN), INT32_MAX);
    cr_assert(isnan(oct_float_of_order(INT32_MAX)));
    cr_assert_lt(oct_float_key(INFINITY), INT32_MAX);
}
