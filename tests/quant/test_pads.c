/* Padding of codes in networks: the padding has the scale of the values inside, and the range includes it; and the pads
 * and sizes that are refused in a file. */
#include "tests/quant/moving_rig.h"

TestSuite(pads, .timeout = 240);

static oct_padding padding;

static oct_tensor *pad_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = oct_relu(cx, oct_call(cx, m->stem, stub(cx, m->quant, in[0])));
    x = oct_relu(cx, oct_call(cx, m->conv, oct_pad(cx, x, &padding)));
    x = oct_interpolate(cx, x, 9, 4, OCT_BILINEAR_ASYMMETRIC);
    x = oct_flatten(cx, oct_global_avg_pool(cx, oct_pad(cx, x, &(oct_padding){.top = 1})));
    return stub(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type pad_type = {.name = "padded", .forward = pad_forward};

static oct_module *padded_new(bool stubs)
{
    user_net *m = user_net_new(&pad_type);
    if (stubs) add_stubs(m);
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, 4, rig_same(3), true));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 7, 4, oct_conv_geometry_of(3, 3, 2, 0, 1), true));
    CHILD(m, head, oct_linear_create(&m->head, 4, 2, true));
    return &m->base;
}

static const oct_padding paddings[] = {
    {1, 2, 0, 3, 2, 1, 0, OCT_PAD_CONSTANT},   {2, 1, 1, 0, 0, 3, 0, OCT_PAD_REFLECT},
    {1, 1, 2, 2, 3, 0, 0, OCT_PAD_EDGE},       {1, 2, 0, 3, 2, 1, -0.75, OCT_PAD_CONSTANT},
    {0, 1, 0, 1, 1, 2, 5.5, OCT_PAD_CONSTANT},
};

Test(pads, train_and_convert_to_the_same_bits)
{
    const oct_example *example = OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3));
    for (size_t i = 0; i < OCT_COUNT(paddings); i++) {
        const oct_prepare_method method = graph_methods[i % OCT_COUNT(graph_methods)];
        padding = paddings[i];
        check_learns(padded_new(i % 2 == 0), example, method, "x86");
        check_learns(padded_new(i % 2 != 0), example, method, "pow2");
    }
}

/* The constant is one of the codes' values, to half a step. */
Test(pads, include_their_constant_in_the_range)
{
    for (size_t i = 0; i < OCT_COUNT(paddings); i++) {
        deployment d;
        const oct_prepare_options options = rig_options(OCT_METHOD_JIT);
        padding = paddings[i];
        deploy_begin(&d, padded_new(true), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
        deploy(&d, &options);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_PAD), 2);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 0);
        cr_assert_eq(d.quantizers.count, 4); /* input, two layers, head */
        const oct_step *step = step_of_kind(&d.program, OCT_STEP_PAD);
        const oct_qparams q = oct_step_output(&d.program, step)->q;
        const double value = (step->pad.fill - q.zero_point) * (double)q.scale;
        cr_assert_float_eq(value, padding.value, 0.5 * (double)q.scale);
        cr_assert_eq(q.zero_point, padding.value < 0 ? 128 : 0);
        deploy_end(&d);
    }
}

Test(pads, of_files_are_what_their_values_are)
{
    deployment d;
    const oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    padding = paddings[1];
    deploy_begin(&d, padded_new(true), OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy(&d, &options);
    oct_program *p = &d.program;
    oct_step *step = step_of_kind(p, OCT_STEP_PAD);
    REFUSED_WITH(p, step, step->pad.shape.in[1]++, "its input shape is not that of value");
    REFUSED_WITH(p, step, step->pad.shape.out[2]--, "its output shape is not that of value");
    REFUSED_WITH(p, step, step->pad.shape.before[0] = 4, "does not lie in");
    REFUSED_WITH(p, step, step->pad.shape.before[0] = -1, "does not lie in");
    REFUSED_WITH(p, step, step->pad.shape.before[0] = INT64_MAX, "does not lie in");
    REFUSED_WITH(p, step, step->pad.shape.before[0] = INT64_MIN, "does not lie in");
    REFUSED_WITH(p, step, step->pad.shape.mode = 3, "its mode is 3");
    REFUSED_WITH(p, step, step->pad.shape.mode = -1, "its mode is -1");
    REFUSED_WITH(p, step, step->pad.fill = 256, "256, is no code");
    REFUSED_WITH(p, step, step->pad.fill = -1, "-1, is no code");
    oct_value *y = &p->values[step->output];
    const oct_value value = *y;
    y->q.scale *= 2;
    check_step_refused(p, step, "quantized otherwise");
    *y = value;
    step = step_of_kind(p, OCT_STEP_INTERPOLATE);
    REFUSED_WITH(p, step, step->interpolate.mode = OCT_INTERPOLATIONS,
                 "its interpolation 6 does not exist");
    REFUSED_WITH(p, step, step->interpolate.mode = -1, "its interpolation -1 does not exist");
    OK(oct_program_check(p));
    deploy_end(&d);
}

/* A mirror of what is too small to be seen in it. */
Test(pads, of_files_show_no_more_than_a_mirror_does)
{
    oct_value values[] = {{.dtype = OCT_F32, .h = 3, .w = 1, .c = 1},
                          {.dtype = OCT_U8, .h = 3, .w = 1, .c = 1, .q = {1, 0, 0, 255}},
                          {.dtype = OCT_U8, .h = 6, .w = 1, .c = 1, .q = {1, 0, 0, 255}},
                          {.dtype = OCT_F32, .h = 6, .w = 1, .c = 1}};
    oct_step steps[] = {
        {.kind = OCT_STEP_QUANTIZE, .name = "in", .num_inputs = 1, .output = 1},
        {.kind = OCT_STEP_PAD,
         .name = "mirror",
         .num_inputs = 1,
         .input = {1},
         .output = 2,
         .pad = {{{3, 1, 1}, {6, 1, 1}, {1, 0, 0}, OCT_PAD_REFLECT}, 0}},
        {.kind = OCT_STEP_DEQUANTIZE, .name = "out", .num_inputs = 1, .input = {2}, .output = 3}};
    oct_program p = {.target = "x86",
                     .num_steps = 3,
                     .num_values = 4,
                     .steps = steps,
                     .values = values,
                     .num_inputs = 1,
                     .output = 3};
    OK(oct_program_check(&p));
    steps[1].pad.shape.before[0] = 3;
    check_step_refused(&p, &steps[1],
                       "a mirror of height 3 cannot show 3 before it and 0 after it");
    steps[1].pad.shape.before[0] = 0;
    check_step_refused(&p, &steps[1],
                       "a mirror of height 3 cannot show 0 before it and 3 after it");
}
