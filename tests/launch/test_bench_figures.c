/* What figures are made of: work, memory, medians and peaks are what their headers say. */
#include "core/base/mem.h"
#include "launch/base/machine.h"
#include "launch/bench/bench.h"
#include "launch/deploy/device.h"
#include "tests/support/check_status.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(figures, .timeout = 60);

/* Work. */

Test(figures, work_is_what_a_convolution_multiplies)
{
    const oct_conv_shape inside =
        oct_conv_shape_of(6, 6, 3, 8, oct_conv_geometry_of(3, 3, 1, 0, 1));
    cr_assert_eq(oct_conv_multiply_adds(&inside, 1, 1), 4 * 4 * 8 * 3 * 3 * 3);
    const oct_conv_shape grouped =
        oct_conv_shape_of(6, 6, 8, 8, oct_conv_geometry_of(3, 3, 1, 0, 4));
    cr_assert_eq(oct_conv_multiply_adds(&grouped, 1, 1), 4 * 4 * 8 * 3 * 3 * 2);
    const oct_conv_shape linear =
        oct_conv_shape_of(1, 1, 20, 10, oct_conv_geometry_of(1, 1, 1, 0, 1));
    cr_assert_eq(oct_conv_multiply_adds(&linear, 1, 1), 200);
}

/* A line of 4 with 1 of padding: 2, 3, 3 and 2 taps are inside; every second one of a dilated line of 7 is
 * a number, and 4 of its outputs see 2, the others 1. */
Test(figures, work_leaves_zeros_out)
{
    const oct_conv_shape padded =
        oct_conv_shape_of(4, 4, 1, 1, oct_conv_geometry_of(3, 3, 1, 1, 1));
    cr_assert_eq(oct_conv_multiply_adds(&padded, 1, 1), 10 * 10);
    const oct_conv_shape strided =
        oct_conv_shape_of(4, 4, 1, 1, oct_conv_geometry_of(3, 3, 2, 1, 1));
    cr_assert_eq(oct_conv_multiply_adds(&strided, 1, 1), 5 * 5);
    const oct_conv_shape dilated =
        oct_conv_shape_of(7, 7, 1, 1, oct_conv_geometry_of(4, 4, 1, 2, 1));
    cr_assert_eq(oct_conv_multiply_adds(&dilated, 2, 2), 14 * 14);
    cr_assert_eq(oct_conv_multiply_adds(&dilated, 2, 1), 14 * 26);
    /* Of taps two apart each output of a line of 7 sees 3 but the first and the last. */
    oct_conv_geometry g = oct_conv_geometry_of(1, 3, 1, 0, 1);
    g.pad_left = g.pad_right = 1;
    g.dilation_w = 2;
    const oct_conv_shape apart = oct_conv_shape_of(1, 7, 1, 1, g);
    cr_assert_eq(oct_conv_multiply_adds(&apart, 1, 1), 2 + 3 + 3 + 3 + 2);
}

/* Two convolutions read the image, one of them with a addend that a gradient goes to; only the third
 * has an input that wants one. */
Test(figures, work_of_a_program_knows_whose_input_needs_a_gradient)
{
    oct_step steps[] = {
        {.kind = OCT_STEP_QUANTIZE, .num_inputs = 1, .input = {0}, .output = 1},
        {.kind = OCT_STEP_CONV,
         .num_inputs = 1,
         .input = {1},
         .output = 2,
         .conv = {.input_step_h = 1, .input_step_w = 1}},
        {.kind = OCT_STEP_CONV,
         .num_inputs = 2,
         .input = {1, 2},
         .output = 3,
         .conv = {.input_step_h = 1, .input_step_w = 1}},
        {.kind = OCT_STEP_MAX_POOL, .num_inputs = 1, .input = {3}, .output = 4},
        {.kind = OCT_STEP_CONV_FLOAT,
         .num_inputs = 1,
         .input = {4},
         .output = 5,
         .conv = {.input_step_h = 1, .input_step_w = 1}},
    };
    for (size_t i = 0; i < OCT_COUNT(steps); i++)
        steps[i].conv.shape = oct_conv_shape_of(1, 1, 10, 10, oct_conv_geometry_of(1, 1, 1, 0, 1));
    const oct_program program = {.num_steps = OCT_COUNT(steps), .steps = steps, .num_values = 6};
    oct_multiply_adds work;
    cr_assert_eq(oct_program_multiply_adds(&program, &work), OCT_OK);
    cr_assert_eq(work.forward, 300);
    cr_assert_eq(work.grad_weight, 300);
    cr_assert_eq(work.grad_input, 100);
}

/* Each sum adds the one before to itself, so there are 2^100 ways from the convolution to the input. */
Test(figures, operations_are_counted_in_one_pass)
{
    enum { SUMS = 100 };
    oct_step steps[SUMS + 1] = {{0}};
    for (int i = 0; i < SUMS; i++)
        steps[i] =
            (oct_step){.kind = OCT_STEP_ADD, .num_inputs = 2, .input = {i, i}, .output = i + 1};
    steps[SUMS] =
        (oct_step){.kind = OCT_STEP_CONV, .num_inputs = 1, .input = {SUMS}, .output = SUMS + 1};
    steps[SUMS].conv.shape = oct_conv_shape_of(1, 1, 10, 10, oct_conv_geometry_of(1, 1, 1, 0, 1));
    const oct_program program = {.num_steps = SUMS + 1, .steps = steps, .num_values = SUMS + 2};
    oct_multiply_adds work;
    cr_assert_eq(oct_program_multiply_adds(&program, &work), OCT_OK);
    cr_assert(work.forward == 100 && work.grad_weight == 100 && work.grad_input == 0);
}

/* The meter. */

Test(figures, the_meter_sees_a_peak_that_is_gone_again)
{
    enum { BYTES = 64 << 20 };
    char *before = NULL, *block = NULL;
    MUST(oct_alloc(&before, 1, 1 << 20));
    oct_memory_meter meter = oct_memory_meter_begin();
    MUST(oct_alloc(&block, 1, BYTES));
    memset(block, 1, BYTES);
    oct_free(&block);
    oct_memory_growth peak = oct_memory_meter_read(&meter);
    cr_assert_eq(peak.allocated, BYTES);
    cr_assert_geq(peak.resident, BYTES / 2);
    cr_assert_geq(peak.larger, BYTES);
    oct_memory_reset_peak();
    cr_assert_eq(oct_memory_meter_read(&meter).allocated, 0);
    oct_free(&before);
}

Test(figures, the_median_is_a_value_in_the_middle)
{
    double values[] = {3, 1, 2, 9, 5};
    cr_assert_eq(oct_median(values, 5), 3);
    cr_assert_eq(values[0], 1, "sorted");
}

Test(figures, laps_have_a_median_and_a_least)
{
    oct_timings laps;
    MUST(oct_timings_create(&laps, 3));
    for (int i = 0; i < 3; i++) {
        oct_timing_begin(&laps);
        oct_timing_end(&laps);
    }
    oct_timing lap = oct_timings_median(&laps);
    cr_assert_eq(laps.count, 3);
    cr_assert(lap.least >= 0 && lap.least <= lap.seconds && lap.cpu >= 0);
    oct_timings_free(&laps);
    check_nothing_held();
}

Test(figures, a_peak_is_above_that_of_the_reference)
{
    oct_peak reference, best;
    const oct_isa_set have = oct_cpu_isa();
    MUST(oct_peak_measure(1U << OCT_ISA_REF, &reference));
    MUST(oct_peak_measure(have, &best));
    for (int roof = 0; roof < OCT_ROOFS; roof++) {
        cr_assert_gt(reference.gops[roof], 0);
        if (have != 1U << OCT_ISA_REF) cr_assert_gt(best.gops[roof], reference.gops[roof]);
    }
    check_nothing_held();
}
