/* The methods that know the graph make the same model of a network: the same tree, the same training,
 * bit for bit, and the same deployed program; each tensor has one quantizer. */
#include "core/base/mem.h"
#include "tests/quant/graph_nets.h"

/* Names and bytes of all state, one after another. */
typedef struct state {
    char *bytes;
    size_t length;
} state;

static oct_status keep_item(void *user, const oct_state_item *item)
{
    state *s = user;
    size_t name = strlen(item->path) + 1;
    size_t bytes = (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype);
    s->bytes = realloc(s->bytes, s->length + name + bytes);
    memcpy(s->bytes + s->length, item->path, name);
    memcpy(s->bytes + s->length + name, item->tensor->data, bytes);
    s->length += name + bytes;
    return OCT_OK;
}

typedef struct outcome {
    state state;
    double loss[4];
    float logits[16], off[16];
} outcome;

static outcome train(const net_kind *kind, bool stubs, const oct_prepare_options *options)
{
    rig r;
    outcome o = {0};
    net_kind_begin(&r, kind, stubs);
    rig_prepare(&r, options);
    memcpy(o.off, rig_forward(&r)->data, sizeof o.off);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    for (size_t step = 0; step < OCT_COUNT(o.loss); step++)
        o.loss[step] = rig_step(&r);
    rig_convert(&r);
    oct_module_train(r.root, false);
    memcpy(o.logits, rig_forward(&r)->data, sizeof o.logits);
    OK(oct_module_state(r.root, keep_item, &o.state));
    rig_end(&r);
    return o;
}

static void check_same(const outcome *a, const outcome *b, const char *name)
{
    cr_assert_arr_eq(a->off, b->off, sizeof a->off, "%s in float", name);
    cr_assert_arr_eq(a->loss, b->loss, sizeof a->loss, "%s: losses", name);
    cr_assert_arr_eq(a->logits, b->logits, sizeof a->logits, "%s: evaluation", name);
    cr_assert_eq(a->state.length, b->state.length, "%s: other names", name);
    cr_assert(memcmp(a->state.bytes, b->state.bytes, a->state.length) == 0, "%s: state", name);
}

static void check_methods(const net_kind *kind, bool stubs, oct_prepare_options options)
{
    outcome first = {0};
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        options.method = graph_methods[i];
        outcome o = train(kind, stubs, &options);
        if (i == 0) first = o;
        check_same(&first, &o, kind->name);
        if (i > 0) free(o.state.bytes);
    }
    free(first.state.bytes);
}

Test(methods, give_the_same_bits_on_every_network_with_stubs_and_without)
{
    for (size_t k = 0; k < OCT_COUNT(net_kinds); k++) {
        check_methods(&net_kinds[k], true, rig_options(OCT_METHOD_JIT));
        check_methods(&net_kinds[k], false, rig_options(OCT_METHOD_JIT));
    }
}

Test(methods, give_the_same_bits_with_folded_batch_norm_and_shared_ranges)
{
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.fold_batch_norm = true;
    options.shared_range = true;
    for (size_t k = 0; k < OCT_COUNT(net_kinds); k++)
        check_methods(&net_kinds[k], true, options);
}

/* A module of a residual block without a qconfig: a float fallback in the middle of quantized values. */
Test(methods, leave_the_same_part_in_float)
{
    static const char *const parts[] = {"block.conv2", "block.conv1", "block._generated_add_0",
                                        "block.bn1",   "stem",        "head"};
    for (size_t i = 0; i < OCT_COUNT(parts); i++) {
        oct_qconfig qconfig = oct_qconfig_default();
        oct_qconfig_setter setters[] = {oct_setter_by_name(parts[i], NULL),
                                        oct_setter_default(&qconfig)};
        oct_prepare_options options = rig_options(OCT_METHOD_JIT);
        options.setters = setters;
        options.num_setters = 2;
        check_methods(&net_kinds[0], true, options);
    }
}

Test(methods, give_the_same_bits_with_sixteen_bits_in_between)
{
    oct_qconfig wide = oct_qconfig_default(), qconfig = oct_qconfig_default();
    wide.bits = 16;
    oct_qconfig_setter setters[] = {oct_setter_by_name("block.conv1", &wide),
                                    oct_setter_by_name("block._generated_add_0", &wide),
                                    oct_setter_default(&qconfig)};
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.setters = setters;
    options.num_setters = 3;
    check_methods(&net_kinds[0], true, options);
}

Test(methods, do_the_same_for_a_target_that_shifts)
{
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.target = oct_target_find("pow2");
    options.fold_batch_norm = true;
    check_methods(&net_kinds[0], true, options);
    check_methods(&net_kinds[2], true, options);
    check_methods(&net_kinds[4], true, options);
}

Test(methods, give_each_tensor_one_quantizer)
{
    for (size_t k = 0; k < OCT_COUNT(net_kinds); k++)
        for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
            rig r;
            oct_tensor_quantizer *list = NULL;
            size_t count = 0;
            net_kind_begin(&r, &net_kinds[k], true);
            oct_prepare_options options = rig_options(graph_methods[i]);
            rig_prepare(&r, &options);
            OK(oct_graph_quantizers(oct_graph_of(r.root), &list, &count));
            cr_assert_eq(r.quantizers.count, net_kinds[k].quantizers, "%s: %zu", net_kinds[k].name,
                         r.quantizers.count);
            cr_assert_eq(rig_count(r.root, &oct_fake_quant_type), net_kinds[k].quantizers);
            for (size_t a = 0; a < count; a++) {
                cr_assert_not_null(list[a].fq);
                for (size_t b = 0; b < a; b++)
                    cr_assert_neq(list[a].value, list[b].value);
            }
            oct_free(&list);
            rig_end(&r);
        }
}

static oct_fake_quant *quantizer_of(const rig *r, const char *path)
{
    oct_module *m = oct_module_find(r->root, path);
    cr_assert(m && oct_is_quantized(m), "no quantized module %s", path);
    return (oct_fake_quant *)((oct_quantized *)m)->fake_quant;
}

Test(methods, a_shared_module_has_a_range_for_each_call_and_one_on_request)
{
    rig r;
    net_kind_begin(&r, &net_kinds[2], true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_prepare(&r, &options);
    oct_qat_conv *again = (oct_qat_conv *)oct_module_find(r.root, "_generated_conv2d_0");
    cr_assert(again && again->borrows);
    cr_assert_neq(quantizer_of(&r, "conv"), quantizer_of(&r, "_generated_conv2d_0"));
    cr_assert_not(quantizer_of(&r, "conv")->is_signed, "the first call is followed by a relu");
    cr_assert(quantizer_of(&r, "_generated_conv2d_0")->is_signed);
    rig_end(&r);

    net_kind_begin(&r, &net_kinds[2], true);
    options.shared_range = true;
    rig_prepare(&r, &options);
    cr_assert_eq(quantizer_of(&r, "conv"), quantizer_of(&r, "_generated_conv2d_0"));
    cr_assert(quantizer_of(&r, "conv")->is_signed, "since one of the two values is");
    rig_end(&r);
}

Test(methods, a_concat_shares_one_quantizer_with_its_inputs)
{
    rig r;
    net_kind_begin(&r, &net_kinds[3], true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_prepare(&r, &options);
    oct_fake_quant *one = quantizer_of(&r, "quant");
    cr_assert_eq(quantizer_of(&r, "conv"), one, "through the max pool");
    cr_assert_eq(quantizer_of(&r, "conv2"), one);
    cr_assert_eq(quantizer_of(&r, "_generated_concat_0"), one);
    cr_assert_eq(one->base.parent, oct_module_find(r.root, "quant"), "the first one's own");
    rig_end(&r);
}

/* Disagreeing bits in a group: the larger. */
Test(methods, a_group_has_the_bits_of_its_widest_member)
{
    rig r;
    oct_qconfig wide = oct_qconfig_default(), qconfig = oct_qconfig_default();
    wide.bits = 16;
    oct_qconfig_setter setters[] = {oct_setter_by_name("conv2", &wide),
                                    oct_setter_default(&qconfig)};
    net_kind_begin(&r, &net_kinds[3], true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.setters = setters;
    options.num_setters = 2;
    rig_prepare(&r, &options);
    cr_assert_eq(quantizer_of(&r, "quant")->qconfig.bits, 16);
    rig_end(&r);
}

static const oct_graph_node *node_at(const rig *r, const char *path, const char *op)
{
    const oct_graph *g = oct_graph_of(r->root);
    for (size_t i = 0; i < g->num_nodes; i++)
        if (strcmp(g->nodes[i].path, path) == 0 && strcmp(g->nodes[i].op, op) == 0)
            return &g->nodes[i];
    cr_assert(false, "no node %s %s", path, op);
    return NULL;
}

Test(methods, a_residual_block_is_fused_into_its_sum)
{
    rig r;
    net_kind_begin(&r, &net_kinds[0], true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_prepare(&r, &options);
    oct_module *made = oct_module_find(r.root, "block._generated_add_0");
    cr_assert(made && made->type == &oct_qat_conv_type && ((oct_qat_conv *)made)->add);
    cr_assert_eq(((oct_quantized *)made)->activation, OCT_ACT_RELU);
    cr_assert_str_eq(node_at(&r, "block", "add")->fusion, "conv_bn_add_relu");
    cr_assert_str_eq(node_at(&r, "block.conv1", "conv2d")->fusion, "conv_bn_relu");
    static const char *const away[] = {"block.conv2", "block.bn2", "block.relu", "block.bn1", "bn"};
    for (size_t i = 0; i < OCT_COUNT(away); i++)
        cr_assert_eq(oct_module_find(r.root, away[i])->type, &oct_identity_type, "%s", away[i]);
    rig_end(&r);
}

/* Of two branches that end in a sum, the later one takes it. */
Test(methods, of_two_branches_the_later_one_takes_the_sum)
{
    rig r;
    net_kind_begin(&r, &net_kinds[4], true);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_prepare(&r, &options);
    cr_assert_eq(oct_module_find(r.root, "conv")->type, &oct_qat_conv_type);
    cr_assert_eq(oct_module_find(r.root, "conv2")->type, &oct_identity_type);
    cr_assert_str_eq(node_at(&r, "", "add")->fusion, "conv_add_relu");
    rig_end(&r);
}

Test(methods, what_stays_float_says_why)
{
    rig r;
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("stem", NULL), oct_setter_default(&qconfig)};
    net_kind_begin(&r, &net_kinds[0], false);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.setters = setters;
    options.num_setters = 2;
    rig_prepare(&r, &options);
    cr_assert(strstr(node_at(&r, "stem", "conv2d")->note, "none"));
    cr_assert_eq(oct_module_find(r.root, "bn")->type, &oct_qat_batch_norm_type,
                 "alone now, in codes");
    cr_assert_eq(rig_count(r.root, &oct_quant_stub_type), 1, "after the stem, not before it");
    rig_end(&r);
}

/* Nothing is quantized for the sake of a node that only moves values. */
static oct_tensor *moving_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = oct_relu(cx, oct_max_pool(cx, in[0], oct_pool_geometry_of(2, 2, 0)));
    x = oct_flatten(cx, oct_call(cx, m->conv, x));
    return oct_call(cx, m->head, oct_relu(cx, x));
}

static const oct_module_type moving_type = {.name = "moving", .forward = moving_forward};

Test(methods, what_only_moves_values_follows_its_input)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        rig r;
        oct_qconfig qconfig = oct_qconfig_default();
        oct_qconfig_setter setters[] = {oct_setter_by_name("head", NULL),
                                        oct_setter_default(&qconfig)};
        user_net *m = user_net_new(&moving_type);
        CHILD(m, conv, oct_conv2d_create(&m->conv, 3, 4, rig_same(3), true));
        CHILD(m, head, oct_linear_create(&m->head, 36, 2, true));
        rig_begin(&r, &m->base, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
        oct_prepare_options options = rig_options(graph_methods[i]);
        options.setters = setters;
        options.num_setters = 2;
        rig_prepare(&r, &options);
        cr_assert_eq(r.quantizers.count, 2, "the conv's input, after pool and relu; its output");
        cr_assert_eq(rig_count_named(r.root, "qat_relu"), 1, "the relu after the flatten");
        const oct_graph *g = oct_graph_of(r.root);
        cr_assert_null(g->values[g->inputs[0]].quantize);
        rig_calibrate(&r);
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        rig_step(&r);
        rig_convert(&r);
        rig_end(&r);
    }
}

/* A loop in a dynamic block: conv, batch norm and a sum, any number of times. */
typedef struct loop_net {
    oct_module base;
    oct_module *quant0, *quant1, *conv, *bn, *head, *dequant;
    int turns;
} loop_net;

static oct_tensor *loop_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    loop_net *m = (loop_net *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->quant0, in[0]), *y = oct_call(cx, m->quant1, in[1]);
    for (int i = 0; i < m->turns; i++) {
        oct_dynamic_block_begin(cx, self, "conv_bn_add");
        x = oct_add(cx, oct_call(cx, m->bn, oct_call(cx, m->conv, x)), y);
        oct_dynamic_block_end(cx);
    }
    x = oct_flatten(cx, oct_global_avg_pool(cx, oct_relu(cx, x)));
    return oct_call(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type loop_type = {.name = "loop", .forward = loop_forward};

static loop_net *loop_begin(rig *r, int turns)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &loop_type, sizeof(loop_net)));
    loop_net *m = (loop_net *)root;
    m->turns = turns;
    CHILD(m, quant0, oct_quant_stub_create(&m->quant0));
    CHILD(m, quant1, oct_quant_stub_create(&m->quant1));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 3, 3, rig_same(3), true));
    CHILD(m, bn, oct_batch_norm_create(&m->bn, 3));
    CHILD(m, head, oct_linear_create(&m->head, 3, 2, true));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3), OCT_SHAPE(1, 6, 6, 3)));
    return m;
}

/* Traced with one turn or with several, prepared for the whole model or from stub to stub, with the conv
 * quantized or a float fallback in each turn: the same loop, trained with another count at each step. */
static void train_loop(oct_prepare_method method, int traced, bool fallback, double losses[6])
{
    rig r;
    loop_net *m = loop_begin(&r, traced);
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setters[] = {oct_setter_by_name("conv", NULL), oct_setter_default(&qconfig)};
    oct_prepare_options options = rig_options(method);
    options.setters = fallback ? setters : &setters[1];
    options.num_setters = fallback ? 2 : 1;
    rig_prepare(&r, &options);
    cr_assert_null(oct_module_find(r.root, "_generated_add_1"));
    m->turns = 2;
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    for (int step = 0; step < 6; step++) {
        m->turns = step % 4;
        losses[step] = rig_step(&r);
    }
    for (m->turns = 0; m->turns < 4; m->turns++)
        rig_convert(&r);
    rig_end(&r);
}

Test(methods, keep_a_loop_that_runs_any_number_of_times)
{
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT, OCT_METHOD_JIT_STRIP};
    for (int fallback = 0; fallback < 2; fallback++) {
        double first[6], losses[6];
        train_loop(OCT_METHOD_JIT, 2, fallback, first);
        for (size_t i = 0; i < OCT_COUNT(methods); i++)
            for (int traced = 1; traced < 4; traced++) {
                train_loop(methods[i], traced, fallback, losses);
                cr_assert_arr_eq(losses, first, sizeof first, "%s traced with %d turns",
                                 oct_method_name(methods[i]), traced);
            }
    }
}

/* A QuantStub without a qconfig quantizes nothing: what needs codes gets a stub of its own. */
Test(methods, a_stub_may_have_no_qconfig)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        rig r;
        oct_qconfig qconfig = oct_qconfig_default();
        oct_qconfig_setter setters[] = {oct_setter_by_name("quant", NULL),
                                        oct_setter_default(&qconfig)};
        net_kind_begin(&r, &net_kinds[0], true);
        oct_prepare_options options = rig_options(graph_methods[i]);
        options.setters = setters;
        options.num_setters = 2;
        rig_prepare(&r, &options);
        cr_assert_null(((oct_quantized *)oct_module_find(r.root, "quant"))->fake_quant);
        cr_assert_not_null(oct_module_find(r.root, "_generated_quant_stub_0"));
        rig_calibrate(&r);
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        rig_step(&r);
        rig_convert(&r);
        rig_end(&r);
    }
}

/* One relu for everything, some of it after the stubs: its slot serves the float calls. */
typedef struct relu_net {
    oct_module base;
    oct_module *quant, *conv, *pool, *relu, *head, *dequant;
} relu_net;

static oct_tensor *relu_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    relu_net *m = (relu_net *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->quant, oct_call(cx, m->relu, in[0]));
    x = oct_call(cx, m->relu, oct_call(cx, m->conv, x));
    x = oct_call(cx, m->relu, oct_call(cx, m->pool, x));
    x = oct_call(cx, m->relu, x);
    x = oct_call(cx, m->dequant, oct_call(cx, m->head, x));
    return oct_call(cx, m->relu, x);
}

static const oct_module_type relu_net_type = {.name = "relus", .forward = relu_forward};

static void relu_begin(rig *r)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &relu_net_type, sizeof(relu_net)));
    relu_net *m = (relu_net *)root;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 3, 4, rig_same(3), true));
    CHILD(m, pool, oct_global_avg_pool_create(&m->pool));
    CHILD(m, relu, oct_relu_create(&m->relu));
    CHILD(m, head, oct_linear_create(&m->head, 4, 2, true));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
}

Test(methods, a_stateless_module_may_be_called_anywhere)
{
    double losses[OCT_COUNT(graph_methods)][3];
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        rig r;
        relu_begin(&r);
        oct_prepare_options options = rig_options(graph_methods[i]);
        rig_prepare(&r, &options);
        cr_assert_eq(oct_module_find(r.root, "relu")->type, &oct_relu_type, "for the first call");
        cr_assert_eq(rig_count_named(r.root, "qat_relu"), 2, "after the pool, twice");
        rig_calibrate(&r);
        OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        for (int step = 0; step < 3; step++)
            losses[i][step] = rig_step(&r);
        cr_assert_arr_eq(losses[i], losses[0], sizeof losses[0]);
        rig_convert(&r);
        rig_end(&r);
    }
}
