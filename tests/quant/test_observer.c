/* Observers against PyTorch's own sequences (tests/golden/make_quant_golden.py), keys. */
#include "quant/observer/observer.h"

#include "tests/golden/quant_golden.h"
#include "tests/support/float_bits.h"

#include <criterion/criterion.h>
#include <math.h>

static const oct_range unseen = {.min = INFINITY, .max = -INFINITY};

static void follow(const char *name, float averaging, const uint32_t *states)
{
    const oct_observer *observer = oct_observer_find(name);
    cr_assert_not_null(observer);
    oct_range state = unseen;
    for (size_t i = 0; i < OCT_COUNT(golden_batches) / 2; i++) {
        observer->update(&state, as_float(golden_batches[2 * i]),
                         as_float(golden_batches[2 * i + 1]), averaging);
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

Test(observer, of_every_kind_ignores_a_batch_that_was_not_seen)
{
    for (size_t i = 0; i < oct_registry_count(&oct_observer_table); i++) {
        const oct_observer *observer = oct_registry_at(&oct_observer_table, i);
        oct_range state = unseen;
        observer->update(&state, INFINITY, -INFINITY, 0.5f);
        cr_assert(state.min == INFINITY && state.max == -INFINITY && state.updates == 0);
        observer->update(&state, -1.0f, 2.0f, 0.5f);
        cr_assert(state.min == -1.0f && state.max == 2.0f && state.updates == 1);
        observer->update(&state, INFINITY, -INFINITY, 0.5f);
        cr_assert(state.min == -1.0f && state.max == 2.0f && state.updates == 1);
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
        cr_assert_eq(as_bits(oct_float_of_key(oct_float_key(ascending[i]))), as_bits(ascending[i]));
        if (i > 0) cr_assert_lt(oct_float_key(ascending[i - 1]), oct_float_key(ascending[i]));
    }
    cr_assert_eq(oct_float_key(-0.0f), oct_float_key(0.0f));
    cr_assert_eq(oct_float_key(NAN), INT32_MAX);
    cr_assert_eq(oct_float_key(-NAN), INT32_MAX);
    cr_assert(isnan(oct_float_of_key(INT32_MAX)));
    cr_assert_lt(oct_float_key(INFINITY), INT32_MAX);
}
