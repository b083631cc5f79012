/* Fusing: by name, and by prepare; the model computes in float what it did, and names that are wrong
 * are answered with those that exist. */
#include "core/base/mem.h"
#include "quant/prepare/fusion.h"
#include "tests/quant/graph_nets.h"

#include <math.h>

static oct_module *chain_of(rig *r)
{
    oct_module *root = NULL, *features = NULL;
    OK(oct_sequential_create(&root));
    OK(oct_sequential_create(&features));
    APPEND(root, oct_quant_stub_create(&item));
    APPEND(features, oct_conv2d_create(&item, 3, 4, rig_same(3), false));
    APPEND(features, oct_batch_norm_create(&item, 4));
    APPEND(features, oct_relu_create(&item));
    APPEND(features, oct_conv_transpose2d_create(&item, 4, 4, rig_same(3), true));
    APPEND(features, oct_batch_norm_create(&item, 4));
    APPEND(features, oct_relu6_create(&item));
    OK(oct_sequential_append(root, &features));
    APPEND(root, oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    APPEND(root, oct_batch_norm_create(&item, 4));
    APPEND(root, oct_relu_create(&item));
    APPEND(root, oct_flatten_create(&item));
    APPEND(root, oct_linear_create(&item, 36, 5, true));
    APPEND(root, oct_batch_norm_create(&item, 5));
    APPEND(root, oct_linear_create(&item, 5, 2, true));
    APPEND(root, oct_dequant_stub_create(&item));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    return root;
}

static oct_status randomise(void *user, oct_module *m)
{
    (void)user;
    if (m->type != &oct_batch_norm_type) return OCT_OK;
    oct_batch_norm_module *bn = (oct_batch_norm_module *)m;
    for (int64_t c = 0; c < bn->args.channels; c++) {
        oct_f32(&bn->gamma->value)[c] = c % 2 ? -0.7f : 1.3f;
        oct_f32(&bn->beta->value)[c] = 0.2f * (float)c - 0.3f;
        bn->running_mean[c] = 0.1f * (float)c;
        bn->running_var[c] = 0.5f + 0.3f * (float)c;
    }
    return OCT_OK;
}

/* Outputs of training (batch statistics) and of evaluation. */
static void outputs(rig *r, float out[2][16])
{
    oct_module_train(r->root, false);
    memcpy(out[1], rig_forward(r)->data, sizeof out[1]);
    oct_module_train(r->root, true);
    memcpy(out[0], rig_forward(r)->data, sizeof out[0]);
}

static const char *const by_hand[][4] = {
    {"1.0", "1.1", "1.2"}, {"1.3", "1.4", "1.5"}, {"3", "4"}, {"6", "7"}};

static void fuse_by_hand(rig *r)
{
    const char *const *lists[OCT_COUNT(by_hand) + 1] = {0};
    for (size_t i = 0; i < OCT_COUNT(by_hand); i++)
        lists[i] = by_hand[i];
    OK(oct_fuse_module_lists(&r->root, lists, false));
}

Test(fuse, by_name_is_exact_in_float_in_both_modes)
{
    rig r;
    float before[2][16], after[2][16];
    chain_of(&r);
    OK(oct_module_walk(r.root, randomise, NULL));
    outputs(&r, before);
    OK(oct_module_walk(r.root, randomise, NULL)); /* training moved the running statistics */
    fuse_by_hand(&r);
    outputs(&r, after);
    cr_assert_arr_eq(before, after, sizeof before);
    cr_assert_eq(oct_module_find(r.root, "1.0")->type, &oct_qat_conv_type);
    cr_assert_eq(oct_module_find(r.root, "3")->type, &oct_qat_batch_norm_type);
    static const char *const away[] = {"1.1", "1.2", "1.4", "1.5", "4", "7"};
    for (size_t i = 0; i < OCT_COUNT(away); i++)
        cr_assert_eq(oct_module_find(r.root, away[i])->type, &oct_identity_type, "%s", away[i]);
    cr_assert_eq(oct_module_find(r.root, "1.0")->training, true);
    rig_end(&r);
}

/* What was fused by hand is completed in its place, by eager and by the others, to the same bits as what
 * prepare fuses itself. */
Test(fuse, by_name_and_by_prepare_make_the_same_model)
{
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT, OCT_METHOD_EAGER,
                                                 OCT_METHOD_JIT_STRIP, OCT_METHOD_SYMBOLIC};
    double losses[OCT_COUNT(methods)][3];
    for (size_t i = 0; i < OCT_COUNT(methods); i++) {
        rig r;
        chain_of(&r);
        if (i > 0) fuse_by_hand(&r);
        oct_prepare_options options = rig_options(methods[i]);
        rig_prepare(&r, &options);
        cr_assert_eq(r.quantizers.count, 6, "%zu", r.quantizers.count);
        rig_calibrate(&r);
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        for (int step = 0; step < 3; step++)
            losses[i][step] = rig_step(&r);
        rig_convert(&r);
        cr_assert_arr_eq(losses[i], losses[0], sizeof losses[0], "method %zu", i);
        rig_end(&r);
    }
}

/* The sums of a residual block, in float, in both modes and with folded batch norm. */
Test(fuse, by_prepare_is_exact_in_float)
{
    for (size_t k = 0; k < OCT_COUNT(net_kinds); k++) {
        rig r;
        float before[2][16], after[2][16];
        net_kind_begin(&r, &net_kinds[k], true);
        OK(oct_module_walk(r.root, randomise, NULL));
        outputs(&r, before);
        OK(oct_module_walk(r.root, randomise, NULL));
        oct_prepare_options options = rig_options(OCT_METHOD_JIT);
        rig_prepare(&r, &options);
        OK(oct_set_fake_quant(r.root, OCT_STATE_FLOAT));
        outputs(&r, after);
        cr_assert_arr_eq(before, after, sizeof before, "%s", net_kinds[k].name);
        rig_end(&r);
    }
}

/* The members of one fusion, one after the other. */
typedef struct chain_net {
    oct_module base;
    const oct_fusion *fusion;
    oct_module *pool, *member[OCT_MAX_MEMBERS];
} chain_net;

static oct_tensor *chain_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const chain_net *m = (const chain_net *)self;
    oct_tensor *y = oct_call(cx, m->pool, x[n - 1]);
    if (m->fusion->members[0] == OCT_MEMBER_LINEAR) y = oct_flatten(cx, y);
    oct_tensor *other = oct_fusion_has(m->fusion, OCT_MEMBER_ADD) ? oct_sigmoid(cx, y) : NULL;
    for (int i = 0; i < m->fusion->count; i++)
        y = m->fusion->members[i] == OCT_MEMBER_ADD ? oct_call2(cx, m->member[i], y, other)
                                                    : oct_call(cx, m->member[i], y);
    return y;
}

static oct_status make_member(oct_module **m, oct_member member, int64_t channels)
{
    switch (member) {
    case OCT_MEMBER_CONV:
        return oct_conv2d_create(m, channels, channels, rig_same(3), true);
    case OCT_MEMBER_LINEAR:
        return oct_linear_create(m, channels, channels, true);
    case OCT_MEMBER_BN:
        return oct_batch_norm_create(m, channels);
    case OCT_MEMBER_ADD:
        return oct_add_create(m);
    case OCT_MEMBER_RELU:
        return oct_relu_create(m);
    case OCT_MEMBER_RELU6:
        return oct_relu6_create(m);
    case OCT_MEMBER_CLIP:
        return oct_clip_create(m, -0.25, 0.5);
    case OCT_MEMBER_NONE:
        break;
    }
    return oct_fail(OCT_USAGE, "no member");
}

/* Every line of fusion_list.def makes one module of its members, which deploys. */
Test(fuse, by_prepare_takes_every_line_of_the_list)
{
    static const oct_module_type type = {.name = "chain_net", .forward = chain_forward};
    for (const oct_fusion *fusion = oct_fusions; fusion->name; fusion++) {
        rig r;
        oct_module *root = NULL;
        OK(oct_module_alloc(&root, &type, sizeof(chain_net)));
        chain_net *m = (chain_net *)root;
        m->fusion = fusion;
        CHILD(m, pool, oct_max_pool_create(&m->pool, oct_pool_geometry_of(2, 2, 0)));
        for (int i = 0; i < m->fusion->count; i++) {
            const char name[] = {'m', (char)('0' + i), '\0'};
            OK(make_member(&m->member[i], m->fusion->members[i],
                           m->fusion->members[0] == OCT_MEMBER_LINEAR ? 12 : 3));
            OK(oct_module_add_child(root, name, &m->member[i]));
        }
        rig_begin(&r, root, OCT_EXAMPLE(OCT_SHAPE(1, 4, 4, 3)));
        oct_prepare_options options = rig_options(OCT_METHOD_JIT);
        rig_prepare(&r, &options);
        cr_assert_eq(rig_count(r.root, &oct_identity_type), (size_t)m->fusion->count - 1, "%s",
                     m->fusion->name);
        rig_calibrate(&r);
        rig_convert(&r);
        rig_end(&r);
    }
}

Test(fuse, with_folded_batch_norm_evaluation_stays_to_rounding)
{
    rig r;
    float before[2][16], after[2][16];
    net_kind_begin(&r, &net_kinds[0], true);
    OK(oct_module_walk(r.root, randomise, NULL));
    outputs(&r, before);
    OK(oct_module_walk(r.root, randomise, NULL));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.fold_batch_norm = true;
    rig_prepare(&r, &options);
    cr_assert_eq(rig_count(r.root, &oct_batch_norm_type), 0);
    OK(oct_set_fake_quant(r.root, OCT_STATE_FLOAT));
    outputs(&r, after);
    for (int i = 0; i < 16; i++)
        cr_assert_float_eq(before[1][i], after[1][i], 1e-5f * (1 + fabsf(before[1][i])));
    rig_end(&r);
}

static void refuse(rig *r, const char *const *names, size_t count, const char *sentence)
{
    size_t norms = rig_count(r->root, &oct_batch_norm_type);
    REFUSED(oct_fuse_modules(&r->root, names, count, false), OCT_PREPARE, sentence);
    cr_assert_eq(rig_count(r->root, &oct_batch_norm_type), norms);
    cr_assert_eq(rig_count(r->root, &oct_identity_type), 0, "nothing changed");
}

Test(fuse, an_unknown_name_is_answered_with_those_that_exist)
{
    rig r;
    chain_of(&r);
    refuse(&r, (const char *[]){"1.conv2d", "1.batch_norm"}, 2,
           "1.conv2d: there is no 'conv2d' in 1, which has 0, 1, 2, 3, 4, 5");
    cr_assert_eq(oct_error_count(), 2, "each name that is wrong");
    refuse(&r, (const char *[]){"features.0", "1.1"}, 2,
           "features.0: there is no 'features' in the model, which has 0, 1, 2");
    refuse(&r, (const char *[]){"1.0.weights", "1.1"}, 2,
           "there is no 'weights' in 1.0, which has no children");
    rig_end(&r);

    net_kind_begin(&r, &net_kinds[0], true);
    refuse(&r, (const char *[]){"block.conv", "block.bn1"}, 2, "did you mean 'conv1'?");
    rig_end(&r);
}

Test(fuse,
     a_sequence_that_fits_no_pattern_is_refused_with_its_first_difference_and_the_nearest_pattern)
{
    rig r;
    chain_of(&r);
    refuse(&r, (const char *[]){"1.1", "1.0"}, 2,
           "1.1 (batch_norm), 1.0 (conv2d): no fusion has this order, none goes on with 1.0; the "
           "nearest are conv_bn, conv_bn_add, conv_bn_relu, and quant/prepare/fusion_list.def has "
           "all");
    refuse(
        &r, (const char *[]){"1.0", "1.1", "2"}, 3,
        "2 (max_pool): no fusion has this order, none goes on with 2; the nearest are conv_bn, ");
    refuse(&r, (const char *[]){"2", "1.1"}, 2, "none begins with 2; the nearest are ");
    refuse(&r, (const char *[]){"1.0"}, 1, "1 names are to be fused; give 2 to 4");
    rig_end(&r);
}

Test(fuse, members_that_do_not_agree_are_refused)
{
    rig r;
    chain_of(&r);
    refuse(&r, (const char *[]){"6", "3"}, 2,
           "3 has 4 channels and 6 makes 5; they cannot be fused");
    oct_module_train(oct_module_find(r.root, "1.1"), false);
    refuse(&r, (const char *[]){"1.0", "1.1", "1.2"}, 3,
           "1.0 is in train mode and 1.1 in eval mode");
    rig_end(&r);
}

Test(fuse, a_module_is_fused_once)
{
    rig r;
    chain_of(&r);
    const char *const a[] = {"1.0", "1.1", "1.2", NULL}, *const b[] = {"1.3", "1.1", NULL};
    const char *const *const lists[] = {a, b, NULL};
    REFUSED(oct_fuse_module_lists(&r.root, lists, false), OCT_PREPARE, "1.1 is named twice");
    cr_assert_eq(rig_count(r.root, &oct_identity_type), 0, "all or nothing");
    OK(oct_fuse_modules(&r.root, a, 3, false));
    REFUSED(oct_fuse_modules(&r.root, a, 3, false), OCT_PREPARE, "1.0 is fused already (qat_conv)");
    rig_end(&r);
}

Test(fuse, lists_are_all_or_nothing)
{
    rig r;
    chain_of(&r);
    const char *const a[] = {"1.0", "1.1", NULL}, *const b[] = {"1.3", "1.9", NULL};
    const char *const *const lists[] = {a, b, NULL};
    REFUSED(oct_fuse_module_lists(&r.root, lists, false), OCT_PREPARE, "1.9");
    cr_assert_eq(oct_module_find(r.root, "1.0")->type, &oct_conv2d_type);
    rig_end(&r);
}

/* A sum with its relu, both modules, in eager. */
typedef struct sum_net {
    oct_module base;
    oct_module *quant, *stem, *conv, *add, *relu, *pool, *dequant;
    bool swapped;
} sum_net;

static oct_tensor *sum_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    sum_net *m = (sum_net *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->quant, in[0]), *other = oct_call(cx, m->stem, x);
    x = oct_call(cx, m->conv, x);
    x = m->swapped ? oct_call2(cx, m->add, other, x) : oct_call2(cx, m->add, x, other);
    x = oct_call(cx, m->relu, x);
    return oct_call(cx, m->dequant, oct_call(cx, m->pool, x));
}

static const oct_module_type sum_type = {.name = "sum", .forward = sum_forward};

static sum_net *sum_begin(rig *r)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &sum_type, sizeof(sum_net)));
    sum_net *m = (sum_net *)root;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, 3, rig_same(1), true));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 3, 3, rig_same(3), true));
    CHILD(m, add, oct_add_create(&m->add));
    CHILD(m, relu, oct_relu_create(&m->relu));
    CHILD(m, pool, oct_global_avg_pool_create(&m->pool));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    return m;
}

/* By name and in eager as by the graph: the sum in high precision, at the add's place. */
Test(fuse, a_layer_and_its_sum_by_name)
{
    float before[2][16], after[2][16], bits[2][16];
    for (int by_graph = 0; by_graph < 2; by_graph++) {
        rig r;
        sum_net *m = sum_begin(&r);
        outputs(&r, before);
        if (!by_graph)
            OK(oct_fuse_modules(&r.root, (const char *[]){"conv", "add", "relu"}, 3, false));
        outputs(&r, after);
        cr_assert_arr_eq(before, after, sizeof before, "exact in float");
        oct_prepare_options options =
            rig_options(by_graph ? OCT_METHOD_JIT_STRIP : OCT_METHOD_EAGER);
        rig_prepare(&r, &options);
        cr_assert(m->add->type == &oct_qat_conv_type && ((oct_qat_conv *)m->add)->add);
        cr_assert_eq(m->conv->type, &oct_identity_type);
        rig_calibrate(&r);
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        for (int step = 0; step < 3; step++)
            rig_step(&r);
        rig_convert(&r);
        memcpy(bits[by_graph], rig_forward(&r)->data, sizeof bits[by_graph]);
        rig_end(&r);
    }
    cr_assert_arr_eq(bits[0], bits[1], sizeof bits[0]);
}

Test(fuse, a_sum_with_the_layer_second_is_never_silently_wrong)
{
    rig r;
    sum_begin(&r)->swapped = true;
    OK(oct_fuse_modules(&r.root, (const char *[]){"conv", "add", "relu"}, 3, false));
    rig_call(&r, false);
    REFUSED(oct_context_status(r.cx), OCT_PREPARE, "swap the two inputs of the add");
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "swap the two inputs of the add");
    rig_end(&r);
}

Test(fuse, a_sum_and_its_relu_by_name)
{
    rig r;
    sum_net *m = sum_begin(&r);
    OK(oct_fuse_modules(&r.root, (const char *[]){"add", "relu"}, 2, false));
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    rig_prepare(&r, &options);
    cr_assert(m->add->type == &oct_qat_add_type &&
              ((oct_quantized *)m->add)->activation == OCT_ACT_RELU);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    rig_step(&r);
    rig_convert(&r);
    rig_end(&r);
}

/* Folding what was fused by hand. */
Test(fuse, by_name_then_folded)
{
    rig r;
    chain_of(&r);
    OK(oct_module_walk(r.root, randomise, NULL));
    float before[2][16], after[2][16];
    outputs(&r, before);
    OK(oct_module_walk(r.root, randomise, NULL));
    fuse_by_hand(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    options.fold_batch_norm = true;
    rig_prepare(&r, &options);
    cr_assert_eq(rig_count(r.root, &oct_batch_norm_type), 1, "the lone one, after the pool");
    OK(oct_set_fake_quant(r.root, OCT_STATE_FLOAT));
    outputs(&r, after);
    /* A weight may move to the centre of its code: half of 1/127 of the channel's largest, in each of
     * two layers. */
    for (int i = 0; i < 16; i++)
        cr_assert_float_eq(before[1][i], after[1][i], 0.05f * (1 + fabsf(before[1][i])));
    rig_end(&r);
}

Test(fuse, what_is_fused_by_name_cannot_stay_float)
{
    rig r;
    chain_of(&r);
    fuse_by_hand(&r);
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("1.3", NULL), oct_setter_default(&qconfig)};
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.setters = setters;
    options.num_setters = 2;
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE,
            "1.3: was fused by name but stays float: its qconfig is none (by name '1.3')");
    cr_assert_eq(oct_error_count(), 1);
    rig_end(&r);
}

/* Eager has quantizers of its own for each module; each tensor still has one. */
Test(fuse, eager_gives_each_tensor_one_quantizer)
{
    rig r;
    oct_tensor_quantizer *list = NULL;
    size_t count = 0;
    chain_of(&r);
    fuse_by_hand(&r);
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    rig_prepare(&r, &options);
    OK(oct_graph_quantizers(oct_graph_of(r.root), &list, &count));
    for (size_t a = 0; a < count; a++)
        for (size_t b = 0; b < a; b++)
            cr_assert_neq(list[a].value, list[b].value);
    oct_free(&list);
    rig_end(&r);
}

/* --- random networks, random lists -------------------------------------------------------------- */

enum { WIRED = 7, STEPS = 9 };

/* Steps call any of the modules on any values made so far, the same module several times or none. */
typedef struct wired {
    oct_module base;
    oct_module *quant, *dequant,
        *m[WIRED]; /* conv, batch norm, relu, conv, batch norm, relu, add */
    int steps, call[STEPS], input[STEPS][2];
} wired;

static const char *const wired_names[WIRED] = {"c1", "b1", "r1", "c2", "b2", "r2", "add"};

static oct_tensor *wired_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    wired *w = (wired *)self;
    oct_tensor *value[STEPS + 1] = {oct_call(cx, w->quant, x[n - 1])};
    for (int i = 0; i < w->steps; i++) {
        oct_tensor *two[] = {value[w->input[i][0]], value[w->input[i][1]]};
        value[i + 1] = oct_module_call(cx, w->m[w->call[i]], two, w->call[i] == 6 ? 2 : 1);
    }
    return oct_call(cx, w->dequant, value[w->steps]);
}

static int draw(uint64_t seed, uint32_t *at, int below)
{
    uint32_t x[4];
    oct_philox(seed, OCT_STREAM_TEST, (*at)++, 0, x);
    return (int)(x[0] % (uint32_t)below);
}

/* Seven of eight steps go on as a chain would. */
static oct_module *wire(uint64_t seed, uint32_t *at)
{
    static const oct_module_type type = {.name = "wired", .forward = wired_forward};
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &type, sizeof(wired)));
    wired *w = (wired *)root;
    CHILD(w, quant, oct_quant_stub_create(&w->quant));
    CHILD(w, dequant, oct_dequant_stub_create(&w->dequant));
    for (int i = 0; i < WIRED; i++) {
        if (i == 6)
            OK(oct_add_create(&w->m[i]));
        else if (i % 3 == 0)
            OK(oct_conv2d_create(&w->m[i], 3, 3, rig_same(3), true));
        else if (i % 3 == 1)
            OK(oct_batch_norm_create(&w->m[i], 3));
        else
            OK(oct_relu_create(&w->m[i]));
        OK(oct_module_add_child(root, wired_names[i], &w->m[i]));
    }
    w->steps = 2 + draw(seed, at, STEPS - 1);
    for (int i = 0, next = 0; i < w->steps; i++) {
        const bool chain = draw(seed, at, 8) > 0;
        w->call[i] = chain ? next : draw(seed, at, WIRED);
        w->input[i][0] = chain ? i : draw(seed, at, i + 1);
        w->input[i][1] = draw(seed, at, i + 1);
        next = (w->call[i] + 1) % WIRED;
    }
    return root;
}

/* The lists: one or two chains of patterns over modules of any number. */
static oct_status fuse_some(oct_module **root, uint64_t seed, uint32_t *at)
{
    static const char patterns[][5] = {"cb", "cbr", "cr", "cba", "cbar", "br", "ar", "ca"};
    const char *names[2][5] = {{NULL}};
    const char *const *lists[3] = {NULL};
    const int count = 1 + draw(seed, at, 2), first = draw(seed, at, 2);
    for (int l = 0; l < count; l++) {
        const char *pattern = patterns[draw(seed, at, (int)OCT_COUNT(patterns))];
        const int mine = first ^ l;
        for (int i = 0; pattern[i]; i++) {
            const int other = draw(seed, at, 12) == 0;
            const int which = pattern[i] == 'c' ? 0 : pattern[i] == 'b' ? 1 : 2;
            names[l][i] = wired_names[pattern[i] == 'a' ? 6 : 3 * (mine ^ other) + which];
        }
        lists[l] = names[l];
    }
    return oct_fuse_module_lists(root, lists, false);
}

static float largest_difference(rig *r, const float *before)
{
    const oct_tensor *y = rig_forward(r);
    float most = 0;
    for (int64_t i = 0; i < oct_numel(y); i++)
        most = fmaxf(most, fabsf(oct_f32(y)[i] - before[i]) / (1 + fabsf(before[i])));
    return most;
}

Test(fuse, by_name_keeps_the_float_outputs_or_is_refused_with_the_calls_that_contradict)
{
    int kept = 0, contradicted = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        rig r;
        uint32_t at = 0;
        float before[8 * 4 * 4 * 3];
        rig_begin(&r, wire(seed, &at), OCT_EXAMPLE(OCT_SHAPE(1, 4, 4, 3)));
        OK(oct_module_walk(r.root, randomise, NULL));
        oct_module_train(r.root, false);
        memcpy(before, rig_forward(&r)->data, sizeof before);
        oct_module_train(r.root, true);
        oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
        if (fuse_some(&r.root, seed, &at) == OCT_OK) {
            const oct_status status = rig_try(&r, &options, NULL);
            if (status == OCT_OK) {
                oct_module_train(r.root, false);
                OK(oct_set_fake_quant(r.root, OCT_STATE_FLOAT));
                const float most = largest_difference(&r, before);
                cr_assert_lt(most, 1e-4f, "seed %d: %g", (int)seed, (double)most);
                kept++;
            } else {
                cr_assert_eq(status, OCT_PREPARE);
                contradicted += rig_says("fuse by name only modules");
            }
        }
        rig_end(&r);
    }
    cr_assert(kept >= 10 && contradicted >= 50, "%d kept, %d contradicted", kept, contradicted);
}
