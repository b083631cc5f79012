/* Networks as a user writes them, with ops in their forwards, for the tests of prepare. */
#pragma once

#include "tests/requirements/rig.h"

/* stem - block with a functional sum - head. A relu of the block is a module that is called twice. */
typedef struct block {
    oct_module base;
    oct_module *conv1, *bn1, *relu, *conv2, *bn2;
} block;

static oct_tensor *block_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    block *m = (block *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->relu, oct_call(cx, m->bn1, oct_call(cx, m->conv1, in[0])));
    x = oct_call(cx, m->bn2, oct_call(cx, m->conv2, x));
    return oct_call(cx, m->relu, oct_add(cx, x, in[0]));
}

static const oct_module_type block_type = {.name = "block", .forward = block_forward};

static inline oct_module *block_new(int64_t channels)
{
    oct_module *made = NULL;
    OK(oct_module_alloc(&made, &block_type, sizeof(block)));
    block *m = (block *)made;
    CHILD(m, conv1, oct_conv2d_create(&m->conv1, channels, channels, rig_same(3), false));
    CHILD(m, bn1, oct_batch_norm_create(&m->bn1, channels));
    CHILD(m, relu, oct_relu_create(&m->relu));
    CHILD(m, conv2, oct_conv2d_create(&m->conv2, channels, channels, rig_same(3), false));
    CHILD(m, bn2, oct_batch_norm_create(&m->bn2, channels));
    return made;
}

typedef struct user_net {
    oct_module base;
    oct_module *quant, *quant1, *stem, *bn, *conv, *conv2, *block, *head, *dequant;
} user_net;

static inline user_net *user_net_new(const oct_module_type *type)
{
    oct_module *made = NULL;
    OK(oct_module_alloc(&made, type, sizeof(user_net)));
    return (user_net *)made;
}

static inline oct_tensor *stub(oct_context *cx, oct_module *m, oct_tensor *x)
{
    return m ? oct_call(cx, m, x) : x;
}

static inline void add_stubs(user_net *m)
{
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
}

/* residual */
static oct_tensor *residual_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = stub(cx, m->quant, in[0]);
    x = oct_relu(cx, oct_call(cx, m->bn, oct_call(cx, m->stem, x)));
    x = oct_flatten(cx, oct_global_avg_pool(cx, oct_call(cx, m->block, x)));
    return stub(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type residual_type = {.name = "residual", .forward = residual_forward};

static inline user_net *residual_new(bool stubs)
{
    user_net *m = user_net_new(&residual_type);
    if (stubs) add_stubs(m);
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, 8, rig_same(3), false));
    CHILD(m, bn, oct_batch_norm_create(&m->bn, 8));
    m->block = block_new(8);
    OK(oct_module_add_child(&m->base, "block", &m->block));
    CHILD(m, head, oct_linear_create(&m->head, 8, 2, true));
    return m;
}

/* functional: each op of a forward that has a quantized form */
static oct_tensor *functional_forward(oct_context *cx, oct_module *self, oct_tensor *const *in,
                                      int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = oct_silu(cx, oct_call(cx, m->stem, stub(cx, m->quant, in[0])));
    oct_tensor *gate = oct_sigmoid(cx, oct_call(cx, m->conv, x));
    x = oct_mul(cx, x, gate);
    oct_tensor *small = oct_max_pool(cx, oct_hard_swish(cx, x), oct_pool_geometry_of(2, 2, 0));
    oct_tensor *large = oct_interpolate(cx, small, 6, 6, OCT_NEAREST);
    oct_tensor *parts[] = {oct_leaky_relu(cx, x, 0.1), large, gate};
    x = oct_avg_pool(cx, oct_concat(cx, parts, 3), oct_pool_geometry_of(2, 2, 0));
    x = oct_add_scalar(cx, oct_mul_scalar(cx, x, 0.5), 0.25);
    x = oct_reshape(cx, oct_relu6(cx, x), OCT_SHAPE(0, 3 * 3 * 12));
    return stub(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type functional_type = {.name = "functional",
                                                .forward = functional_forward};

static inline user_net *functional_new(bool stubs)
{
    user_net *m = user_net_new(&functional_type);
    if (stubs) add_stubs(m);
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, 4, rig_same(3), true));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 4, 4, rig_same(1), true));
    CHILD(m, head, oct_linear_create(&m->head, 3 * 3 * 12, 2, true));
    return m;
}

/* shared: a convolution with its batch norm that is called twice */
static oct_tensor *shared_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = oct_relu(cx, oct_call(cx, m->stem, stub(cx, m->quant, in[0])));
    oct_tensor *y = oct_relu(cx, oct_call(cx, m->bn, oct_call(cx, m->conv, x)));
    y = oct_call(cx, m->bn, oct_call(cx, m->conv, y));
    y = oct_flatten(cx, oct_global_avg_pool(cx, y));
    return stub(cx, m->dequant, oct_call(cx, m->head, y));
}

static const oct_module_type shared_type = {.name = "shared", .forward = shared_forward};

static inline user_net *shared_new(bool stubs)
{
    user_net *m = user_net_new(&shared_type);
    if (stubs) add_stubs(m);
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, 4, rig_same(3), true));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 4, 4, rig_same(3), false));
    CHILD(m, bn, oct_batch_norm_create(&m->bn, 4));
    CHILD(m, head, oct_linear_create(&m->head, 4, 2, true));
    return m;
}

/* branches: concat, and a lone batch norm after it */
static oct_tensor *branches_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = stub(cx, m->quant, in[0]);
    oct_tensor *parts[] = {oct_relu(cx, oct_call(cx, m->conv, x)), oct_call(cx, m->conv2, x),
                           oct_max_pool(cx, x, oct_pool_geometry_of(3, 1, 1))};
    x = oct_relu(cx, oct_call(cx, m->bn, oct_concat(cx, parts, 3)));
    x = oct_flatten(cx, oct_global_avg_pool(cx, x));
    return stub(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type branches_type = {.name = "branches", .forward = branches_forward};

static inline user_net *branches_new(bool stubs)
{
    user_net *m = user_net_new(&branches_type);
    if (stubs) add_stubs(m);
    CHILD(m, conv, oct_conv2d_create(&m->conv, 3, 4, rig_same(3), true));
    CHILD(m, conv2, oct_conv2d_create(&m->conv2, 3, 2, rig_same(1), true));
    CHILD(m, bn, oct_batch_norm_create(&m->bn, 9));
    CHILD(m, head, oct_linear_create(&m->head, 9, 2, true));
    return m;
}

/* two inputs */
static oct_tensor *pair_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    user_net *m = (user_net *)self;
    (void)n;
    oct_tensor *x = stub(cx, m->quant, in[0]), *y = stub(cx, m->quant1, in[1]);
    x = oct_call(cx, m->conv, x);
    x = oct_add(cx, x, oct_call(cx, m->conv2, y));
    x = oct_flatten(cx, oct_global_avg_pool(cx, oct_relu(cx, x)));
    return stub(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type pair_type = {.name = "pair", .forward = pair_forward};

static inline user_net *pair_new(bool stubs)
{
    user_net *m = user_net_new(&pair_type);
    if (stubs) add_stubs(m);
    if (stubs) CHILD(m, quant1, oct_quant_stub_create(&m->quant1));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 3, 4, rig_same(3), true));
    CHILD(m, conv2, oct_conv2d_create(&m->conv2, 3, 4, rig_same(1), true));
    CHILD(m, head, oct_linear_create(&m->head, 4, 2, true));
    return m;
}

typedef struct net_kind {
    const char *name;
    user_net *(*create)(bool stubs);
    int inputs;
    size_t quantizers; /* with stubs, everything quantized */
} net_kind;

static const net_kind net_kinds[] = {
    {"residual", residual_new, 1, 5}, /* input, stem, conv1, sum, head */
    {"functional", functional_new, 1, 9},
    {"shared", shared_new, 1, 5},     /* input, stem, conv, conv again, head */
    {"branches", branches_new, 1, 3}, /* input, both convs and concat; batch norm; head */
    {"pair", pair_new, 2, 5},         /* both inputs, conv, sum, head */
};

static inline void net_kind_begin(rig *r, const net_kind *kind, bool stubs)
{
    oct_example example = *OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3), OCT_SHAPE(1, 6, 6, 3));
    example.count = kind->inputs;
    rig_begin(r, &kind->create(stubs)->base, &example);
}

static const oct_prepare_method graph_methods[] = {OCT_METHOD_JIT_STRIP, OCT_METHOD_JIT,
                                                   OCT_METHOD_SYMBOLIC};
