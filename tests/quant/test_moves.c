/* Networks that split, shuffle and concatenate channels: values keep their scale, train, and convert to a program
 * of the same bits; and what a file may not say about a move. */
#include "tests/quant/moving_rig.h"

TestSuite(moves, .timeout = 120);

static oct_tensor *half(oct_context *cx, oct_tensor *x, int which)
{
    const int64_t c = oct_dim(x, 3) / 2;
    return oct_slice(cx, x, 3, which * c, 1, c);
}

/* YOLO's C2f: a split into halves, two residual bottlenecks after the second half, everything concatenated. */
static oct_tensor *c2f_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = stub(cx, m->quant, in[0]), *part[4];
    x = oct_silu(cx, oct_call(cx, m->bn, oct_call(cx, m->stem, x)));
    part[0] = half(cx, x, 0);
    part[1] = half(cx, x, 1);
    part[2] = oct_add(cx, part[1], oct_silu(cx, oct_call(cx, m->conv, part[1])));
    part[3] = oct_add(cx, part[2], oct_silu(cx, oct_call(cx, m->conv2, part[2])));
    x = oct_call(cx, m->block, oct_concat(cx, part, 4));
    x = oct_flatten(cx, oct_global_avg_pool(cx, oct_silu(cx, x)));
    return stub(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type c2f_type = {.name = "c2f", .forward = c2f_forward};

static user_net *c2f_new(bool stubs)
{
    user_net *m = user_net_new(&c2f_type);
    if (stubs) add_stubs(m);
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, 8, rig_same(3), false));
    CHILD(m, bn, oct_batch_norm_create(&m->bn, 8));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 4, 4, rig_same(3), true));
    CHILD(m, conv2, oct_conv2d_create(&m->conv2, 4, 4, rig_same(3), true));
    CHILD(m, block, oct_conv2d_create(&m->block, 16, 8, rig_same(1), true));
    CHILD(m, head, oct_linear_create(&m->head, 8, 2, true));
    return m;
}

/* ShuffleNet's unit, twice: half of the channels go by, the other half through layers, then all are shuffled. */
static oct_tensor *shuffle_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = oct_relu(cx, oct_call(cx, m->stem, stub(cx, m->quant, in[0])));
    for (int turn = 0; turn < 2; turn++) {
        oct_tensor *y = oct_relu(cx, oct_call(cx, m->conv, half(cx, x, 1)));
        y = oct_relu(cx, oct_call(cx, m->bn, oct_call(cx, m->conv2, y)));
        x = oct_concat(cx, (oct_tensor *[]){half(cx, x, 0), y}, 2);
        x = oct_channel_shuffle(cx, x, 2);
    }
    x = oct_flatten(cx, oct_global_avg_pool(cx, x));
    return stub(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type shuffle_type = {.name = "shuffle", .forward = shuffle_forward};

static user_net *shuffle_new(bool stubs)
{
    user_net *m = user_net_new(&shuffle_type);
    if (stubs) add_stubs(m);
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, 12, rig_same(3), true));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 6, 6, rig_same(1), true));
    CHILD(m, conv2, oct_conv2d_create(&m->conv2, 6, 6, oct_conv_geometry_of(3, 3, 1, 1, 6), false));
    CHILD(m, bn, oct_batch_norm_create(&m->bn, 6));
    CHILD(m, head, oct_linear_create(&m->head, 12, 2, true));
    return m;
}

/* Pixels into channels and back, and a head that reads channels first. */
static oct_tensor *blocks_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = oct_space_to_depth(cx, stub(cx, m->quant, in[0]), 2, OCT_DEPTH_DCR);
    x = oct_depth_to_space(cx, oct_relu(cx, oct_call(cx, m->stem, x)), 2, OCT_DEPTH_CRD);
    x = oct_slice(cx, oct_call(cx, m->conv, x), 1, 5, -1, 6);
    x = oct_flatten(cx, oct_transpose(cx, x, (int[]){3, 1, 2}));
    return stub(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type blocks_type = {.name = "blocks", .forward = blocks_forward};

static user_net *blocks_new(bool stubs)
{
    user_net *m = user_net_new(&blocks_type);
    if (stubs) add_stubs(m);
    CHILD(m, stem, oct_conv2d_create(&m->stem, 12, 8, rig_same(1), true));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 2, 3, rig_same(3), true));
    CHILD(m, head, oct_linear_create(&m->head, 108, 2, true));
    return m;
}

static const struct {
    const char *name;
    user_net *(*create)(bool stubs);
    int moves;
    size_t quantizers; /* with stubs, everything quantized */
} nets[] = {
    {"c2f", c2f_new, 2, 10},        /* the values of the concat share one, as in the next */
    {"shuffle", shuffle_new, 6, 5}, /* input, the values of the concat, two layers, head */
    {"blocks", blocks_new, 4, 4},
};

Test(moves, in_networks_train_and_convert_to_the_same_bits)
{
    const oct_example *example = OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3));
    for (size_t net = 0; net < OCT_COUNT(nets); net++)
        for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
            check_learns(&nets[net].create(i % 2 == 0)->base, example, graph_methods[i], "x86");
            check_learns(&nets[net].create(i % 2 != 0)->base, example, graph_methods[i], "pow2");
        }
}

/* Every value of the program, and what the report and the steps say about what was moved. */
Test(moves, keep_the_scale_of_what_they_move)
{
    for (size_t net = 0; net < OCT_COUNT(nets); net++) {
        deployment d;
        const oct_prepare_options options = rig_options(OCT_METHOD_JIT);
        deploy_begin(&d, &nets[net].create(true)->base, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
        deploy(&d, &options);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_MOVE), nets[net].moves);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 0);
        cr_assert_eq(d.quantizers.count, nets[net].quantizers, "%s: %zu", nets[net].name,
                     d.quantizers.count);
        for (int64_t i = 0; i < d.program.num_steps; i++) {
            const oct_step *step = &d.program.steps[i];
            if (step->kind != OCT_STEP_CONCAT) continue;
            for (int k = 0; k < step->num_inputs; k++)
                cr_assert(oct_qparams_equal(oct_step_input(&d.program, step, k)->q,
                                            oct_step_output(&d.program, step)->q),
                          "%s concatenates values of another scale", nets[net].name);
        }
        deploy_end(&d);
    }
}

/* What is moved before a layer that stays float, and after it, is float, and no float fallback. */
static oct_tensor *float_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->stem, oct_channel_shuffle(cx, in[0], 3));
    x = oct_call(cx, m->conv, oct_slice(cx, x, 2, 0, 2, 3));
    return oct_transpose(cx, x, (int[]){2, 3, 1});
}
static const oct_module_type float_type = {.name = "float_moves", .forward = float_forward};

Test(moves, of_float_values_are_no_fallbacks)
{
    deployment d;
    user_net *m = user_net_new(&float_type);
    const oct_qconfig_setter none = oct_setter_by_name("stem", NULL);
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, &none);
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, 4, rig_same(3), true));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 4, 4, rig_same(3), true));
    deploy_begin(&d, &m->base, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy(&d, &options);
    static const oct_dtype moved[] = {OCT_F32, OCT_F32, OCT_U8};
    int moves = 0;
    for (int64_t i = 0; i < d.program.num_steps; i++) {
        const oct_step *step = &d.program.steps[i];
        if (step->kind != OCT_STEP_MOVE) continue;
        cr_assert(moves < 3 && oct_step_output(&d.program, step)->dtype == moved[moves]);
        moves++;
    }
    cr_assert_eq(moves, 3);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 1);
    deploy_end(&d);
}

/* In eager the user's stubs decide, and a move works on the codes that it gets. */
static oct_tensor *eager_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->quant, oct_channel_shuffle(cx, in[0], 3));
    x = oct_transpose(cx, oct_call(cx, m->stem, x), (int[]){2, 1, 3});
    x = oct_call(cx, m->dequant, oct_slice(cx, x, 3, 3, -1, 4));
    return oct_flatten(cx, oct_slice(cx, x, 1, 0, 2, 3));
}
static const oct_module_type eager_type = {.name = "eager_moves", .forward = eager_forward};

Test(moves, in_eager_work_on_what_the_stubs_leave)
{
    deployment d;
    user_net *m = user_net_new(&eager_type);
    const oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    add_stubs(m);
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, 4, rig_same(3), true));
    deploy_begin(&d, &m->base, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy(&d, &options);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_MOVE), 4);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 0);
    deploy_end(&d);
}

/* What a file might hold. */
Test(moves, of_files_stay_inside_their_samples)
{
    deployment d;
    const oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    deploy_begin(&d, &blocks_new(true)->base, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    deploy(&d, &options);
    oct_program *p = &d.program;
    oct_step *step = step_of_kind(p, OCT_STEP_MOVE);
    oct_move_map *map = &step->move;
    REFUSED_WITH(p, step, map->offset = 1,
                 "reads value 108 of a sample, whose values are 0 to 107");
    REFUSED_WITH(p, step, map->stride[0] = -1, "of a sample");
    REFUSED_WITH(p, step, map->size[1]++, "of a sample");
    REFUSED_WITH(p, step, map->size[1] = 1, "its loops read 36 numbers, its output has 108");
    REFUSED_WITH(p, step, map->size[0] = INT64_MAX, "can be counted");
    REFUSED_WITH(p, step, map->stride[2] = INT64_MIN, "of a sample");
    REFUSED_WITH(p, step, map->dims = 7, "7 loops; 0 to 6 are allowed");
    REFUSED_WITH(p, step, map->dims = -1, "-1 loops");
    REFUSED_WITH(p, step, map->size[5] = 1, "it has a loop 5, but 5 loops");
    REFUSED_WITH(p, step, map->stride[5] = 1, "it has a loop 5, but 5 loops");
    oct_value *y = &p->values[step->output];
    const oct_value value = *y;
    y->q.scale *= 2;
    check_step_refused(p, step, "quantized otherwise");
    *y = value;
    y->dtype = OCT_F32;
    check_step_refused(p, step, "its input is u8, its output f32");
    *y = value;
    OK(oct_program_check(p));
    deploy_end(&d);
}
