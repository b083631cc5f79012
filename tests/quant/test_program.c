/* The check of integer programs: what it refuses, and with which sentence. */
#include "quant/program/program.h"

#include "tests/quant/program_maker.h"

#include <math.h>

enum { QUANT, STEM, DEEP, ADD, POOL, MEAN, CLASSIFIER };

static oct_program p;

static void make_program(void)
{
    program_small(&p);
}

static void release(void)
{
    oct_program_free(&p);
    cr_assert_eq(oct_mem_live(), 0);
}

TestSuite(program_check, .init = make_program, .fini = release);

static void refused(const char *sentence)
{
    cr_assert_eq(oct_program_check(&p), OCT_DATA);
    cr_assert_eq(oct_error_count(), 1);
    cr_assert_str_eq(oct_error_message(0), sentence);
}

Test(program_check, accepts_a_program_small_of_step)
{
    cr_assert_eq(oct_program_check(&p), OCT_OK);
}

static void put_number(oct_step *step, const oct_field *field, int32_t number)
{
    char *at = (char *)step + field->offset;
    if (field->type == OCT_FIELD_BOOL)
        memcpy(at, &(bool){number != 0}, sizeof(bool));
    else if (field->type == OCT_FIELD_S64)
        memcpy(at, &(int64_t){number}, sizeof(int64_t));
    else if (field->type == OCT_FIELD_F32)
        memcpy(at, &(float){(float)number}, sizeof(float));
    else
        memcpy(at, &number, sizeof number);
}

/* A program of one step of the kind, each of whose numbers is another one. */
static void one_of_kind(oct_program *one, oct_step_kind kind)
{
    program_begin(one);
    program_value(one, OCT_U8, 1, 1, 3, 0x1.234p-5f, 7);
    program_value(one, OCT_F32, 2, 3, 4, 0, 0);
    oct_step *step = program_step(one, kind, "layer 1.\ta", 0, NONE, 1);
    const oct_step_type *type = oct_step_type_of(kind);
    for (int i = 0; i < type->num_fields; i++) {
        const oct_field *f = &type->fields[i];
        put_number(step, f, f->type == OCT_FIELD_F32 || f->max > 40 ? 11 + i : 1);
    }
    if (kind != OCT_STEP_FLOAT) return;
    oct_fallback *fallback = program_fallback(step, "linear", 2, 1);
    fallback->args.count = 2;
    fallback->args.value[0] = -INFINITY;
    fallback->args.value[1] = 0.1;
    program_array(fallback, 0, "weight", OCT_SHAPE(3, 2), 1);
}

static oct_status read_back(oct_program *read, const char *text)
{
    return oct_program_read_text(read, text, strlen(text));
}

/* What is written is read as it was, in any order of its fields; without one of them, or with one twice, it is refused by
 * the field's name. */
Test(program_text, every_kind_is_read_as_it_was_written)
{
    for (int kind = 0; kind < OCT_STEP_KINDS; kind++) {
        oct_program one, read;
        oct_text text = {0}, again = {0};
        one_of_kind(&one, (oct_step_kind)kind); /* whose name has a space and a tab */
        cr_assert_eq(oct_program_write_text(&one, &text), OCT_OK);
        cr_assert_eq(read_back(&read, text.data), OCT_OK, "%s", oct_error_message(0));
        cr_assert_eq(oct_program_write_text(&read, &again), OCT_OK);
        cr_assert_str_eq(again.data, text.data);
        const oct_step_type *type = oct_step_type_of((oct_step_kind)kind);
        for (int i = 0; i < type->num_fields; i++) {
            const oct_field *f = &type->fields[i];
            const size_t bytes = f->type == OCT_FIELD_BOOL  ? sizeof(bool)
                                 : f->type == OCT_FIELD_S64 ? sizeof(int64_t)
                                                            : sizeof(int32_t);
            cr_assert_arr_eq((char *)read.steps + f->offset, (char *)one.steps + f->offset, bytes,
                             "%s %s", type->name, f->name);
        }
        if (kind == OCT_STEP_FLOAT)
            cr_assert_arr_eq(read.steps->fallback->args.value, one.steps->fallback->args.value,
                             sizeof one.steps->fallback->args.value);
        oct_text_free(&text);
        oct_text_free(&again);
        oct_program_free(&read);
        oct_program_free(&one);
    }
}

Test(program_text, what_is_no_program_is_refused_by_line_and_field)
{
#define HEAD "program float target=x86 inputs=0 output=1\n"
#define VALUES                                                                                     \
    "value f32 h=1 w=1 c=3\nvalue u8 h=1 w=1 c=3 scale=0x1p-4 zero_point=0 qmin=0 qmax=255\n"
#define STEP "step quantize quotient=0 inputs=0 output=1 name=a b\n"
#define FLOAT(rest) HEAD VALUES "step float type=t dims=2 args= inputs=0 output=1 name=a\n" rest
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "the program has no steps"},
        {HEAD VALUES, "the program has no steps"},
        {VALUES STEP, "line 1 of the program is none that can be there"},
        {HEAD HEAD VALUES STEP, "line 2 of the program is none that can be there"},
        {HEAD VALUES STEP "stop\n", "line 5 of the program is none that can be there"},
        {"program up target=x86 inputs=0 output=1\n" VALUES STEP, "rounding 'up'"},
        {"program float target=x86 inputs=0\n" VALUES STEP, "the program: its output is missing"},
        {"program float\n" VALUES STEP, "the program: its target is missing"},
        {"program float target=x86 inputs=0,1,2,3,4,5,6,7,8 output=1\n" VALUES STEP,
         "its inputs are more than 8"},
        {"program float target=x86 inputs=0,,1 output=1\n" VALUES STEP, "inputs have the number"},
        {"program float target=x86 inputs=2147483648 output=1\n" VALUES STEP,
         "its inputs have the number 2147483648"},
        {"program float target=a-name-that-is-longer-than-the-room inputs=0 output=1\n" VALUES STEP,
         "its target is longer than 31 bytes"},
        {HEAD "value f16 h=1 w=1 c=3\n" VALUES STEP, "value 0: it is of a type 'f16'"},
        {HEAD VALUES "value f32 h=1 w=1 c=65537\n" STEP, "value 2: its c is 65537"},
        {HEAD VALUES "value f32 h=1 w=1 c=1 scale=0x1p0\n" STEP, "it has no field 'scale'"},
        {HEAD VALUES "value u8 h=1 w=1 c=1 scale=nan zero_point=0 qmin=0 qmax=9\n" STEP,
         "value 2: its scale is nan"},
        {HEAD VALUES "value u8 h=1 w=1 c=1 scale=0.1 zero_point=0 qmin=0 qmax=9\n" STEP,
         "value 2: its scale is 0.1"},
        {HEAD VALUES STEP "step lutt inputs=0 output=1 name=a\n", "step 1: it is of a kind 'lutt'"},
        {HEAD VALUES STEP "step relu lo=0 lo=0 hi=1 inputs=0 output=1 name=a\n",
         "step 1: its lo is there twice"},
        {HEAD VALUES STEP "step relu lo=0 inputs=0 output=1 name=a\n", "step 1: its hi is missing"},
        {HEAD VALUES STEP "step relu lo=0 hi= inputs=0 output=1 name=a\n", "step 1: its hi is "},
        {HEAD VALUES STEP "step relu lo=0 hi inputs=0 output=1 name=a\n",
         "it has no field 'hi inputs'"},
        {HEAD VALUES STEP "step quantize quotient=2 inputs=0 output=1 name=a\n",
         "step 1: its quotient is 2"},
        {HEAD VALUES STEP "step reshape inputs=0 output=1 name=a\033[2J\n",
         "of the program is a control character"},
        {HEAD VALUES STEP "array f32 shape=1 name=weight\n", "follows no step that stays float"},
        {FLOAT("array f32 shape=1,1,1,1,1 name=weight\n"), "its shape are more than 4"},
        {FLOAT("array f32 name=weight\n"), "an array of step 0: its shape is missing"},
        {HEAD VALUES "step float type=t dims=2,2 args= inputs=0 output=1 name=a\n",
         "step 0: it has 1 inputs and 2 dims"},
    };
    oct_program read;
    cr_assert_eq(read_back(&read, HEAD VALUES STEP), OCT_OK, "%s", oct_error_message(0));
    cr_assert_str_eq(read.steps[0].name, "a b");
    oct_program_free(&read);
    cr_assert_eq(read_back(&read, HEAD VALUES "step relu hi=1 output=1 lo=0 inputs=0 name=a\n"),
                 OCT_OK, "%s", oct_error_message(0));
    oct_program_free(&read);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        cr_assert_eq(read_back(&read, cases[i].text), OCT_DATA, "case %zu: %s", i, cases[i].said);
        cr_assert(strstr(oct_error_message(0), cases[i].said), "case %zu: %s", i,
                  oct_error_message(0));
        oct_program_free(&read);
    }
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
    refused("value 2: its type is none of u8, u16, f32 and s32");
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
    refused("value 2: its codes 0 to 255 with zero point 256 are not a range of u8");
    p.values[2] = good;
    p.values[2].q.qmin = -128;
    refused("value 2: its codes -128 to 255 with zero point 0 are not a range of u8");
}

Test(program_check, knows_codes_by_their_range)
{
    p.values[2].dtype = OCT_U16;
    refused("value 2: its codes 0 to 255 with zero point 0 are not a range of u16");
    p.values[2].dtype = OCT_U8;
    p.values[2].q.qmax = 256;
    refused("value 2: its codes 0 to 256 with zero point 0 are not a range of u8");
    p.values[2].dtype = OCT_U16;
    p.values[2].q.qmax = 65536;
    refused("value 2: its codes 0 to 65536 with zero point 0 are not a range of u16");
}

Test(program_check, refuses_inputs_and_output_that_are_no_float_values_of_their_own)
{
    const int32_t input = p.inputs[0];
    p.inputs[0] = 99;
    refused("the program's input 99 is not one of its f32 values");
    p.inputs[0] = -1;
    refused("the program's input -1 is not one of its f32 values");
    p.inputs[0] = p.output;
    refused("value 7 is both an input and the output of the program");
    p.inputs[0] = 1;
    refused("the program's input 1 is not one of its f32 values");
    p.inputs[0] = input;
    p.output = 3;
    refused("the program's output 3 is not one of its f32 or s32 values");
    p.output = 7;
    p.num_inputs = 2;
    p.inputs[1] = input;
    refused("value 0 is an input of the program twice");
    p.num_inputs = 0;
    refused("the program has 0 inputs; 1 to 8 are allowed");
    p.num_inputs = 9;
    refused("the program has 9 inputs; 1 to 8 are allowed");
}

Test(program_check, refuses_a_target_without_an_end)
{
    memset(p.target, 'x', sizeof p.target);
    refused("the name of the program's target does not end");
}

Test(program_check, refuses_the_wrong_number_of_inputs)
{
    p.steps[ADD].num_inputs = 1;
    refused("step 3 (add \"block.add\"): 1 inputs; it takes 2 to 2");
    p.steps[ADD].num_inputs = 9;
    refused("step 3 (add \"block.add\"): 9 inputs; it takes 2 to 2");
    p.steps[ADD].num_inputs = 2;
    p.steps[QUANT].num_inputs = 0;
    refused("step 0 (quantize \"quant\"): 0 inputs; it takes 1 to 1");
    p.steps[QUANT].num_inputs = -1;
    refused("step 0 (quantize \"quant\"): -1 inputs; it takes 1 to 1");
}

Test(program_check, refuses_values_used_before_made_made_twice_or_never)
{
    p.steps[STEM].input[0] = 4;
    refused("step 1 (conv \"stem\"): value 4 is used before it is made");
    p.steps[STEM].input[0] = -1;
    refused("step 1 (conv \"stem\"): input value -1 does not exist");
    p.steps[STEM].input[0] = 0;
    refused("step 1 (conv \"stem\"): input value 0 is not codes");
    p.steps[STEM].input[0] = 1;
    p.steps[STEM].output = 1;
    refused("step 1 (conv \"stem\"): value 1 is made a second time");
    p.steps[STEM].output = 8;
    refused("step 1 (conv \"stem\"): output value 8 does not exist");
    p.steps[STEM].output = 7;
    refused("step 1 (conv \"stem\"): output value 7 is not codes");
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
    oct_conv_shape *s = &p.steps[STEM].conv.shape;
    const oct_conv_shape good = *s;
    s->out_h = 8;
    refused("step 1 (conv \"stem\"): output plane 8 x 8 does not follow from its input, kernel, "
            "stride and padding");
    *s = good;
    s->kernel_h = 0;
    refused("step 1 (conv \"stem\"): its kernel, stride and dilation are not within 1 to "
            "1024");
    *s = good;
    s->stride_w = -1;
    refused("step 1 (conv \"stem\"): its kernel, stride and dilation are not within 1 to 1024");
    *s = good;
    s->dilation_h = 0;
    refused("step 1 (conv \"stem\"): its kernel, stride and dilation are not within 1 to 1024");
    *s = good;
    s->pad_right = 2000;
    refused("step 1 (conv \"stem\"): padding 1 above, 1 left, 1 below, 2000 right is not within 0 "
            "to 1024");
    *s = good;
    s->dilation_w = 3; /* believed, it would let windows reach after the lines of the input */
    cr_assert_eq(oct_program_check(&p), OCT_DATA);
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
    step->conv.shape = program_shape(1, 1, 65536, 65536, 1, 1, 0, 1);
    refused("step 1 (conv \"stem\"): its weights take more than 2 GiB");
}

Test(program_check, refuses_missing_or_impossible_constants)
{
    oct_step *step = &p.steps[CLASSIFIER];
    int64_t *bias = step->conv.bias;
    step->conv.bias = NULL;
    refused("step 6 (conv_float \"classifier\"): weights, biases, multipliers or weight scales are "
            "missing");
    step->conv.bias = bias;
    step->conv.multiplier[3] = INFINITY;
    refused("step 6 (conv_float \"classifier\"): the multiplier of channel 3 is not finite");
    step->conv.multiplier[3] = -0.5f;
    cr_assert_eq(oct_program_check(&p), OCT_OK);
    step->conv.weight_scale[9] = 0.0f;
    refused("step 6 (conv_float \"classifier\"): the weight scale of channel 9 is not a positive "
            "finite number");
    step->conv.weight_scale[9] = 1.0f;
    step->conv.bias[4] = INT32_MAX;
    refused("step 6 (conv_float \"classifier\"): the sums of channel 4 can leave 32 bits");
    step->conv.bias[4] = INT32_MIN;
    refused("step 6 (conv_float \"classifier\"): the sums of channel 4 can leave 32 bits");
}

Test(program_check, refuses_bounds_outside_the_codes)
{
    p.steps[DEEP].conv.hi = 128;
    refused("step 2 (conv \"block.deep\"): bounds -128 to 128 are not within the codes of value 3");
    p.steps[DEEP].conv.hi = 127;
    p.steps[DEEP].conv.lo = -129;
    refused("step 2 (conv \"block.deep\"): bounds -129 to 127 are not within the codes of value 3");
    p.steps[DEEP].conv.lo = 100;
    p.steps[DEEP].conv.hi = 99;
    refused("step 2 (conv \"block.deep\"): bounds 100 to 99 are not within the codes of value 3");
}

Test(program_check, refuses_adds_that_could_overflow_or_do_not_fit_their_values)
{
    oct_qadd *add = &p.steps[ADD].add;
    const oct_qadd good = *add;
    add->ma = (1 << 21) + 1;
    cr_assert_eq(oct_program_check(&p), OCT_DATA);
    cr_assert_not_null(
        strstr(oct_error_message(0), "step 3 (add \"block.add\"): its multipliers 2097153, "));
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
    p.steps[DEEP].conv.shape.out_c = 6;
    cr_assert_eq(oct_program_check(&p), OCT_DATA);
    p.steps[DEEP].conv.shape.out_c = 7;
    p.values[3].c = 7;
    p.steps[ADD].input[1] = 1;
    refused("step 3 (add \"block.add\"): its input 1 and output differ in shape");
}

Test(program_check, refuses_pools_that_requantize_or_have_empty_windows)
{
    oct_conv_shape *s = &p.steps[POOL].pool.shape;
    const oct_conv_shape good = *s;
    p.values[5].q.scale = 0.05f;
    refused("step 4 (max_pool \"pool\"): its output is quantized otherwise than its input");
    p.values[5].q.scale = 0.04f;
    s->pad_top = 2;
    s->in_h -= 2;
    refused("step 4 (max_pool \"pool\"): its input shape is not that of value 4");
    *s = good;
    s->out_c = 3;
    refused("step 4 (max_pool \"pool\"): its output shape is not that of value 5");
    *s = good;
    s->pad_left = -1;
    refused(
        "step 4 (max_pool \"pool\"): padding 0 above, -1 left, 0 below, 0 right is not within 0 "
        "to 1024");
    *s = good;
}

Test(program_check, refuses_a_boundary_that_changes_the_shape)
{
    p.values[0].w = 7;
    refused("step 0 (quantize \"quant\"): its input 0 and output differ in shape");
}

Test(program_free, of_nothing_does_nothing)
{
    oct_program none = {0};
    oct_program_free(&none);
}

/* Float fallbacks. */

enum { FALLBACK = 3, FLAT = 6 };

static void make_fallback(void)
{
    program_with_fallback(&p);
}

TestSuite(fallback_check, .init = make_fallback, .fini = release);

Test(fallback_check, accepts_two_inputs_an_fallback_and_a_reshape)
{
    cr_assert_eq(oct_program_check(&p), OCT_OK, "%s", oct_error_message(0));
}

Test(fallback_check, refuses_fallbacks_that_cannot_be_made)
{
    oct_fallback *fallback = p.steps[FALLBACK].fallback;
    p.steps[FALLBACK].fallback = NULL;
    refused("step 3 (float \"fallback\"): what computes it is missing");
    p.steps[FALLBACK].fallback = fallback;
    memset(fallback->type, 'x', sizeof fallback->type);
    refused("step 3 (float \"fallback\"): the type of its module is not a name");
    memset(fallback->type, 0, sizeof fallback->type);
    refused("step 3 (float \"fallback\"): the type of its module is not a name");
    snprintf(fallback->type, sizeof fallback->type, "Conv 2d");
    refused("step 3 (float \"fallback\"): the type of its module is not a name");
    snprintf(fallback->type, sizeof fallback->type, "conv2d");
    fallback->args.count = 25;
    refused("step 3 (float \"fallback\"): 25 arguments; 0 to 24 are allowed");
    fallback->args.count = -1;
    refused("step 3 (float \"fallback\"): -1 arguments; 0 to 24 are allowed");
    fallback->args.count = 8;
    fallback->args.value[2] = (double)NAN;
    refused("step 3 (float \"fallback\"): its argument 2 is not a number");
    fallback->args.value[2] = 3;
    const int dims[] = {-1, 0, 2, 3, 5};
    for (size_t i = 0; i < OCT_COUNT(dims); i++) {
        char said[96];
        fallback->dims[0] = dims[i];
        snprintf(said, sizeof said,
                 "step 3 (float \"fallback\"): its input 0 cannot have %d dimensions", dims[i]);
        refused(said);
    }
}

Test(fallback_check, refuses_arrays_that_are_none)
{
    oct_fallback *fallback = p.steps[FALLBACK].fallback;
    oct_fallback_array *weight = &fallback->arrays[0], good = *weight;
    fallback->num_arrays = 65;
    refused("step 3 (float \"fallback\"): 65 arrays; 0 to 64 are allowed");
    fallback->num_arrays = -1;
    refused("step 3 (float \"fallback\"): -1 arrays; 0 to 64 are allowed");
    fallback->num_arrays = 2;
    weight->name = NULL;
    refused("step 3 (float \"fallback\"): the name of its array 0 is not a name");
    weight->name = (char[]){"we\033ight"};
    refused("step 3 (float \"fallback\"): the name of its array 0 is not a name");
    *weight = good;
    weight->dtype = (oct_dtype)99;
    refused("step 3 (float \"fallback\"): its array weight is of a type that does not exist");
    *weight = good;
    weight->shape.ndim = 5;
    refused(
        "step 3 (float \"fallback\"): its array weight has a shape that cannot be or takes more "
        "than 2 GiB");
    *weight = good;
    weight->shape.dim[0] = INT64_MAX;
    refused(
        "step 3 (float \"fallback\"): its array weight has a shape that cannot be or takes more "
        "than 2 GiB");
    *weight = good;
    weight->data = NULL;
    refused("step 3 (float \"fallback\"): its array weight is missing");
    *weight = good;
}

Test(fallback_check, refuses_codes_where_fallbacks_want_float)
{
    p.steps[FALLBACK].input[0] = 2;
    refused("step 3 (float \"fallback\"): input value 2 is not f32");
}

Test(fallback_check, refuses_a_reshape_that_changes_more_than_the_shape)
{
    p.values[8].c = 59;
    refused("step 6 (reshape \"flat\"): its input has 60 numbers, its output 59");
    p.values[8].c = 60;
    p.values[8].q.scale = 0.5f;
    refused("step 6 (reshape \"flat\"): its output is quantized otherwise than its input");
    p.values[8].dtype = OCT_F32;
    refused("step 6 (reshape \"flat\"): its input is u8, its output f32");
}

/* The kinds beyond those of the main job; step v - 1 makes value v. */

enum { CONV16 = 1, RESIDUAL, MUL, LUT, RELU, CONCAT, INTERPOLATE, AFFINE, TRANSPOSED, SOFTMAX };

static void make_others(void)
{
    program_of_other_kinds(&p);
}

TestSuite(other_kinds, .init = make_others, .fini = release, .timeout = 60);

Test(other_kinds, are_accepted)
{
    cr_assert_eq(oct_program_check(&p), OCT_OK, "%s", oct_error_message(0));
}

Test(other_kinds, refuses_sums_over_16_bit_codes_that_leave_their_bounds)
{
    p.steps[CONV16].conv.bias[2] = INT64_C(1) << 47;
    refused("step 1 (conv \"conv16\"): the sums of channel 2 can leave 48 bits");
    p.steps[CONV16].conv.bias[2] = INT64_MIN;
    refused("step 1 (conv \"conv16\"): the sums of channel 2 can leave 48 bits");
    p.steps[CONV16].conv.bias[2] = INT64_C(1) << 40;
    cr_assert_eq(oct_program_check(&p), OCT_OK);
    p.steps[RESIDUAL].conv.bias[1] = INT64_C(1) << 40;
    refused("step 2 (conv \"residual\"): the sums of channel 1 can leave 32 bits");
}

Test(other_kinds, refuses_second_summands_that_cannot_be)
{
    p.steps[RESIDUAL].conv.addend_multiplier = -1.0f;
    refused("step 2 (conv \"residual\"): the multiplier of its second addend is not a positive "
            "finite number");
    p.steps[RESIDUAL].conv.addend_multiplier = NAN;
    refused("step 2 (conv \"residual\"): the multiplier of its second addend is not a positive "
            "finite number");
    p.steps[RESIDUAL].conv.addend_multiplier = 1.0f;
    p.steps[RESIDUAL].input[1] = 1;
    refused("step 2 (conv \"residual\"): its input 1 and output differ in shape");
}

Test(other_kinds, refuses_multipliers_that_are_no_shifts_where_the_program_shifts)
{
    p.requantizer = OCT_REQUANT_SHIFT;
    refused("step 1 (conv \"conv16\"): multiplier 0 is not a power of two, but the program "
            "requantizes by shifts");
}

Test(other_kinds, refuses_tables_that_lack_entries_or_leave_the_codes)
{
    oct_step *lut = &p.steps[LUT], *softmax = &p.steps[SOFTMAX];
    lut->lut.size = 255;
    refused("step 4 (lut \"lut\"): its table is missing or has not 256 entries");
    lut->lut.size = 65536;
    refused("step 4 (lut \"lut\"): its tables are missing or do not have 256 entries for each of 4 "
            "channels");
    lut->lut.size = 256;
    uint16_t *table = lut->lut.table;
    lut->lut.table = NULL;
    refused("step 4 (lut \"lut\"): its table is missing or has not 256 entries");
    lut->lut.table = table;
    lut->lut.table[17] = 256;
    refused("step 4 (lut \"lut\"): entry 17 of its table, 256, is no code of value 5");
    lut->lut.table[17] = 255;
    softmax->softmax.size = 1;
    refused("step 10 (softmax \"softmax\"): its table is missing or has not 256 entries");
    softmax->softmax.size = 256;
    softmax->softmax.exponential[0] = 0;
    refused("step 10 (softmax \"softmax\"): its exponentials do not begin with 1073741824");
    softmax->softmax.exponential[0] = 1 << 30;
    softmax->softmax.exponential[9] = -1;
    refused("step 10 (softmax \"softmax\"): exponential 9 is below 0 or above the one before");
}

Test(other_kinds, refuses_shapes_that_do_not_fit)
{
    p.steps[CONCAT].num_inputs = 2;
    refused("step 6 (concat \"concat\"): its inputs have 8 channels together, its output 12");
    p.steps[CONCAT].num_inputs = 3;
    p.steps[CONCAT].input[1] = 1;
    refused("step 6 (concat \"concat\"): its inputs have 10 channels together, its output 12");
    p.steps[CONCAT].input[1] = 6;
    p.steps[INTERPOLATE].interpolate.shape.in_h = 60;
    refused("step 7 (interpolate \"interpolate\"): its input shape is not that of value 7");
    p.steps[INTERPOLATE].interpolate.shape.in_h = 6;
    p.steps[MUL].input[0] = 1;
    refused("step 3 (mul \"mul\"): its input 0 and output differ in shape");
    p.steps[MUL].input[0] = 2;
    p.steps[AFFINE].conv.weight[4] = 2;
    refused("step 8 (affine \"affine\"): weight 4 is not -1, 0 or 1");
}

/* A dilation that is believed without a look would let kernels read and write after their memory. */
Test(other_kinds, refuses_dilations_that_do_not_follow_from_the_input)
{
    oct_step *step = &p.steps[TRANSPOSED];
    step->conv.input_step_w = 3;
    refused(
        "step 9 (conv \"transposed\"): its input shape is not that of value 9 dilated by 2 x 3");
    step->conv.input_step_h = step->conv.input_step_w = 1;
    refused("step 9 (conv \"transposed\"): its input shape is not that of value 9");
    step->conv.input_step_h = 2000;
    refused("step 9 (conv \"transposed\"): its input cannot be dilated by 2000 x 1");
    const oct_conv_shape good = step->conv.shape;
    step->conv.input_step_h = step->conv.input_step_w = 2;
    step->conv.shape = program_shape(1, 1, 7 * 9 * 12, 3, 1, 1, 0, 1); /* flattened and dilated */
    refused(
        "step 9 (conv \"transposed\"): its input shape is not that of value 9 dilated by 2 x 2");
    step->conv.shape = good;
    p.steps[AFFINE].conv.input_step_w = 2;
    refused("step 8 (affine \"affine\"): its input cannot be dilated by 0 x 2");
}

Test(other_kinds, refuses_factors_out_of_range)
{
    const float factors[] = {0.0f, -1.0f, INFINITY, NAN, 1e30f};
    for (size_t i = 0; i < OCT_COUNT(factors); i++) {
        p.steps[MUL].mul.factor = factors[i];
        cr_assert_eq(oct_program_check(&p), OCT_DATA);
        cr_assert_not_null(strstr(oct_error_message(0), "step 3 (mul \"mul\"): its factor"));
    }
}

/* A program with any numbers is refused, or it runs without harm (sanitizers watch). */
Test(other_kinds, any_number_in_any_field_is_refused_or_harmless)
{
    static const int32_t odd[] = {INT32_MIN, -1, 0, 1, 2, 3, 7, 255, 256, 65535, INT32_MAX};
    int refusals = 0, runs = 0;
    static float x[6 * 5 * 2], y[3];
    for (int64_t i = 0; i < p.num_steps; i++) {
        const oct_step_type *type = oct_step_type_of(p.steps[i].kind);
        for (int field = 0; field < type->num_fields + 4; field++) {
            for (size_t k = 0; k < OCT_COUNT(odd); k++) {
                oct_step *step = &p.steps[i], good = *step;
                int32_t *const common[] = {&step->num_inputs, &step->input[0], &step->input[1],
                                           &step->output};
                if (field < 4)
                    *common[field] = odd[k];
                else
                    put_number(step, &type->fields[field - 4], odd[k]);
                oct_runtime *rt;
                const oct_status status = oct_runtime_create(&rt, &p, NULL);
                cr_assert(status == OCT_OK || status == OCT_DATA, "%s", oct_error_message(0));
                if (status == OCT_OK)
                    cr_assert_eq(oct_runtime_run(rt, 1, (const float *[]){x}, y), OCT_OK);
                *(status == OCT_OK ? &runs : &refusals) += 1;
                oct_runtime_destroy(&rt);
                *step = good;
            }
        }
    }
    cr_assert(refusals > 300 && runs > 300, "%d refused, %d ran", refusals, runs);
}
