/* The check of integer programs: what it refuses, and with which sentence. */
#include "quant/runtime/program.h"

#include "tests/quant/program_maker.h"

#include <math.h>

enum { QUANT, STEM, DEEP, ADD, POOL, MEAN, CLASSIFIER };

static oct_program p;

static void make(void)
{
    program_of_every_kind(&p);
}

static void release(void)
{
    oct_program_free(&p);
    cr_assert_eq(oct_mem_live(), 0);
}

TestSuite(program_check, .init = make, .fini = release);

static void refused(const char *sentence)
{
    cr_assert_eq(oct_program_check(&p), OCT_DATA);
    cr_assert_eq(oct_fail_count(), 1);
    cr_assert_str_eq(oct_fail_text(0), sentence);
}

Test(program_check, accepts_a_program_of_every_kind_of_step)
{
    cr_assert_eq(oct_program_check(&p), OCT_OK);
}

Test(program_check, refuses_an_empty_program)
{
    const int64_t steps = p.num_steps;
    p.num_steps = 0;
    refused("the program has no steps, or more than 65536");
    p.num_steps = INT64_MAX;
    refused("the program has no steps, or more than 65536");
    p.num_steps = steps;
}

Test(program_check, refuses_values_that_are_not_what_they_should_be)
{
    const oct_value good = p.values[2];
    p.values[2].dtype = OCT_S8;
    refused("value 2: its type is neither u8 nor f32");
    p.values[2] = good;
    p.values[2].w = 0;
    refused("value 2: its shape (9, 0, 7) is not within 1 to 65536");
    p.values[2].w = 65537;
    refused("value 2: its shape (9, 65537, 7) is not within 1 to 65536");
    p.values[2] = good;
    p.values[2].h = p.values[2].w = p.values[2].c = 65536;
    refused("value 2: one sample takes more than 1 GiB");
    const float scales[] = {0.0f, -1.0f, INFINITY, NAN};
    for (size_t i = 0; i < OCT_COUNT(scales); i++) {
        p.values[2] = good;
        p.values[2].q.scale = scales[i];
        refused("value 2: its scale is not a positive finite number");
    }
    p.values[2] = good;
    p.values[2].q.zero_point = 256;
    refused("value 2: its codes 0 to 255 with zero point 256 are not a range of unsigned bytes");
    p.values[2] = good;
    p.values[2].q.qmin = -128;
    refused("value 2: its codes -128 to 255 with zero point 0 are not a range of unsigned bytes");
}

Test(program_check, refuses_input_and_output_that_are_not_two_float_values)
{
    const int32_t input = p.input;
    p.input = 99;
    refused("the program's input 99 and output 7 are not two of its values");
    p.input = p.output;
    refused("the program's input 7 and output 7 are not two of its values");
    p.input = 1;
    refused("the program's input and output are not f32");
    p.input = input;
}

Test(program_check, refuses_values_used_before_made_made_twice_or_never)
{
    p.steps[STEM].input[0] = 4;
    refused("step 1 (conv \"stem\"): value 4 is used before it is made");
    p.steps[STEM].input[0] = -1;
    refused("step 1 (conv \"stem\"): input value -1 does not exist");
    p.steps[STEM].input[0] = 0;
    refused("step 1 (conv \"stem\"): input value 0 is not u8");
    p.steps[STEM].input[0] = 1;
    p.steps[STEM].output = 1;
    refused("step 1 (conv \"stem\"): value 1 is made a second time");
    p.steps[STEM].output = 8;
    refused("step 1 (conv \"stem\"): output value 8 does not exist");
    p.steps[STEM].output = 7;
    refused("step 1 (conv \"stem\"): output value 7 is not u8");
    p.steps[STEM].output = 2;
    p.steps[ADD].input[1] = 5;
    refused("step 3 (add \"block.add\"): value 5 is used before it is made");
    p.steps[ADD].input[1] = 3;
    program_value(&p, OCT_U8, 1, 1, 1, 1.0f, 0);
    refused("value 8 is never made");
}

Test(program_check, refuses_unknown_kinds_and_names_without_an_end)
{
    p.steps[POOL].kind = (oct_step_kind)77;
    refused("step 4: kind 77 does not exist");
    p.steps[POOL].kind = OCT_STEP_MAX_POOL;
    memset(p.steps[POOL].name, 'x', sizeof p.steps[POOL].name);
    refused("step 4: its name is empty or does not end");
}

Test(program_check, refuses_convolutions_whose_sizes_do_not_fit)
{
    oct_conv_shape *s = &p.steps[STEM].conv;
    const oct_conv_shape good = *s;
    s->out_h = 8;
    refused("step 1 (conv \"stem\"): output plane 8 x 8 does not follow from its input, kernel, "
            "stride and padding");
    *s = good;
    s->kernel_h = 0;
    refused("step 1 (conv \"stem\"): its kernel and stride are not within 1 to 1024");
    *s = good;
    s->stride = -1;
    refused("step 1 (conv \"stem\"): its kernel and stride are not within 1 to 1024");
    *s = good;
    s->padding = 2000;
    refused("step 1 (conv \"stem\"): padding 2000 is not within 0 to 1024");
    *s = good;
    s->in_c = 65537;
    refused("step 1 (conv \"stem\"): its sizes are not within 1 to 65536");
    *s = good;
    s->kernel_w = 20;
    refused("step 1 (conv \"stem\"): its kernel is larger than its input");
    *s = good;
    s->groups = 2;
    refused("step 1 (conv \"stem\"): 2 groups do not divide 3 input and 7 output channels");
    *s = good;
    s->in_c = 4;
    refused("step 1 (conv \"stem\"): its input shape is not that of value 1");
    *s = good;
    s->out_c = 6;
    refused("step 1 (conv \"stem\"): its output shape is not that of value 2");
    *s = good;
}

Test(program_check, refuses_weights_too_large_to_be_true_before_reading_them)
{
    /* The arrays are far too small for these sizes: reading them would be a fault. */
    oct_step *step = &p.steps[STEM];
    p.values[0].h = p.values[1].h = p.values[0].w = p.values[1].w = 1;
    p.values[0].c = p.values[1].c = 65536;
    p.values[2] = (oct_value){.dtype = OCT_U8, .h = 1, .w = 1, .c = 65536, .q = {1.0f, 0, 0, 255}};
    step->conv = program_shape(1, 1, 65536, 65536, 1, 1, 0, 1);
    refused("step 1 (conv \"stem\"): its weights take more than 2 GiB");
}

Test(program_check, refuses_missing_or_impossible_constants)
{
    oct_step *step = &p.steps[CLASSIFIER];
    int32_t *bias = step->bias;
    step->bias = NULL;
    refused("step 6 (conv_float \"classifier\"): weights, biases, multipliers or weight scales are "
            "missing");
    step->bias = bias;
    step->multiplier[3] = INFINITY;
    refused("step 6 (conv_float \"classifier\"): multiplier 3 is not finite");
    step->multiplier[3] = -0.5f;
    cr_assert_eq(oct_program_check(&p), OCT_OK);
    step->weight_scale[9] = 0.0f;
    refused("step 6 (conv_float \"classifier\"): weight scale 9 is not a positive finite number");
    step->weight_scale[9] = 1.0f;
    step->bias[4] = INT32_MAX;
    refused("step 6 (conv_float \"classifier\"): the sums of channel 4 can leave 32 bits");
    step->bias[4] = INT32_MIN;
    refused("step 6 (conv_float \"classifier\"): the sums of channel 4 can leave 32 bits");
}

Test(program_check, refuses_bounds_outside_the_codes)
{
    p.steps[DEEP].hi = 128;
    refused("step 2 (conv \"block.deep\"): bounds -128 to 128 are not within the codes of value 3");
    p.steps[DEEP].hi = 127;
    p.steps[DEEP].lo = -129;
    refused("step 2 (conv \"block.deep\"): bounds -129 to 127 are not within the codes of value 3");
    p.steps[DEEP].lo = 100;
    p.steps[DEEP].hi = 99;
    refused("step 2 (conv \"block.deep\"): bounds 100 to 99 are not within the codes of value 3");
}

Test(program_check, refuses_adds_that_could_overflow_or_do_not_fit_their_values)
{
    oct_qadd *add = &p.steps[ADD].add;
    const oct_qadd good = *add;
    add->ma = (1 << 21) + 1;
    cr_assert_eq(oct_program_check(&p), OCT_DATA);
    cr_assert_not_null(
        strstr(oct_fail_text(0), "step 3 (add \"block.add\"): its multipliers 2097153, "));
    *add = good;
    add->shift = 31;
    cr_assert_eq(oct_program_check(&p), OCT_DATA);
    *add = good;
    int32_t *const zero_points[] = {&add->za, &add->zb, &add->zero_point};
    for (size_t i = 0; i < OCT_COUNT(zero_points); i++) {
        *zero_points[i] = 64;
        refused("step 3 (add \"block.add\"): its zero points are not those of its values");
        *add = good;
    }
    *add = good;
    add->hi = 256;
    refused("step 3 (add \"block.add\"): bounds 0 to 256 are not within the codes of value 4");
    *add = good;
    p.values[3].c = 6;
    p.steps[DEEP].conv.out_c = 6;
    cr_assert_eq(oct_program_check(&p), OCT_DATA);
    p.steps[DEEP].conv.out_c = 7;
    p.values[3].c = 7;
    p.steps[ADD].input[1] = 1;
    refused("step 3 (add \"block.add\"): its inputs and output differ in shape");
}

Test(program_check, refuses_pools_that_requantize_or_have_empty_windows)
{
    oct_conv_shape *s = &p.steps[POOL].conv;
    const oct_conv_shape good = *s;
    p.values[5].q.scale = 0.05f;
    refused("step 4 (max_pool \"pool\"): its output is quantized otherwise than its input");
    p.values[5].q.scale = 0.04f;
    s->padding = 2;
    refused("step 4 (max_pool \"pool\"): padding 2 is not within 0 to 1");
    *s = good;
    s->kernel_w = 3;
    s->out_w = 3;
    refused("step 4 (max_pool \"pool\"): its kernel is not square");
    *s = good;
    s->out_c = 3;
    refused("step 4 (max_pool \"pool\"): its output shape is not that of value 5");
    *s = good;
    p.steps[MEAN].conv.padding = 1;
    refused("step 5 (avg_pool \"mean\"): padding 1 is not within 0 to 0");
}

Test(program_check, refuses_a_boundary_that_changes_the_shape)
{
    p.values[0].w = 7;
    refused("step 0 (quantize \"quant\"): its input and output differ in shape");
}

Test(program_free, of_nothing_does_nothing)
{
    oct_program none = {0};
    oct_program_free(&none);
}
