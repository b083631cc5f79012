/* Every op with a module form: announced to the interceptor with its arguments, and the module made
 * from those computes the same bits. */
#include "core/graph/trace.h"
#include "tests/core/op_rig.h"

#include <math.h>

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n);

typedef oct_tensor *(*call_fn)(oct_context *cx, oct_tensor *const *x);

static oct_tensor *relu(oct_context *cx, oct_tensor *const *x)
{
    return oct_relu(cx, x[0]);
}
static oct_tensor *relu6(oct_context *cx, oct_tensor *const *x)
{
    return oct_relu6(cx, x[0]);
}
static oct_tensor *add_op(oct_context *cx, oct_tensor *const *x)
{
    return oct_add(cx, x[0], x[1]);
}
static oct_tensor *mul(oct_context *cx, oct_tensor *const *x)
{
    return oct_mul(cx, x[0], x[1]);
}
static oct_tensor *add_scalar(oct_context *cx, oct_tensor *const *x)
{
    return oct_add_scalar(cx, x[0], -0.75);
}
static oct_tensor *mul_scalar(oct_context *cx, oct_tensor *const *x)
{
    return oct_mul_scalar(cx, x[0], 1.1);
}
static oct_tensor *concat(oct_context *cx, oct_tensor *const *x)
{
    return oct_concat(cx, x, 2);
}
static oct_tensor *mean(oct_context *cx, oct_tensor *const *x)
{
    return oct_mean(cx, x[0], 2, true);
}
static oct_tensor *max_pool(oct_context *cx, oct_tensor *const *x)
{
    return oct_max_pool(cx, x[0], oct_pool_geometry_of(3, 2, 1));
}
static oct_tensor *avg_pool(oct_context *cx, oct_tensor *const *x)
{
    return oct_avg_pool(cx, x[0], oct_pool_geometry_of(3, 1, 0));
}
static oct_tensor *global_avg_pool(oct_context *cx, oct_tensor *const *x)
{
    return oct_global_avg_pool(cx, x[0]);
}
static oct_tensor *flatten(oct_context *cx, oct_tensor *const *x)
{
    return oct_flatten(cx, x[0]);
}
static oct_tensor *reshape(oct_context *cx, oct_tensor *const *x)
{
    return oct_reshape(cx, x[0], OCT_SHAPE(0, 10, 6));
}
static oct_tensor *move(oct_context *cx, oct_tensor *const *x)
{
    return oct_slice(cx, x[0], 2, 4, -2, 3);
}
static oct_tensor *pad(oct_context *cx, oct_tensor *const *x)
{
    return oct_pad(cx, x[0], &(oct_padding){1, 0, 2, 1, 0, 3, -0.5, OCT_PAD_CONSTANT});
}
static oct_tensor *interpolate(oct_context *cx, oct_tensor *const *x)
{
    return oct_interpolate(cx, x[0], 7, 3, OCT_BILINEAR);
}
static oct_tensor *softmax(oct_context *cx, oct_tensor *const *x)
{
    return oct_softmax(cx, x[0]);
}
static oct_tensor *sigmoid(oct_context *cx, oct_tensor *const *x)
{
    return oct_sigmoid(cx, x[0]);
}
static oct_tensor *silu(oct_context *cx, oct_tensor *const *x)
{
    return oct_silu(cx, x[0]);
}
static oct_tensor *hard_swish(oct_context *cx, oct_tensor *const *x)
{
    return oct_hard_swish(cx, x[0]);
}
static oct_tensor *leaky_relu(oct_context *cx, oct_tensor *const *x)
{
    return oct_leaky_relu(cx, x[0], 0.3);
}

static oct_tensor *hard_sigmoid(oct_context *cx, oct_tensor *const *x)
{
    return oct_hard_sigmoid(cx, x[0], 0.2, 0.4);
}
static oct_tensor *clip(oct_context *cx, oct_tensor *const *x)
{
    return oct_clip(cx, x[0], -HUGE_VAL, 0.7);
}
static oct_tensor *sub(oct_context *cx, oct_tensor *const *x)
{
    return oct_sub(cx, x[0], x[1]);
}
static oct_tensor *divide(oct_context *cx, oct_tensor *const *x)
{
    return oct_div(cx, x[0], x[1]);
}
static oct_tensor *squeeze(oct_context *cx, oct_tensor *const *x)
{
    return oct_squeeze(cx, x[0]);
}
static oct_tensor *squeeze_dim(oct_context *cx, oct_tensor *const *x)
{
    return oct_squeeze_dim(cx, x[0], 2);
}
static oct_tensor *argmax(oct_context *cx, oct_tensor *const *x)
{
    return oct_argmax(cx, x[0]);
}

static const struct {
    const char *name;
    call_fn call;
    int inputs, args;
} ops[] = {
    {"relu", relu, 1, 0},
    {"relu6", relu6, 1, 0},
    {"add", add_op, 2, 0},
    {"mul", mul, 2, 0},
    {"add_scalar", add_scalar, 1, 1},
    {"mul_scalar", mul_scalar, 1, 1},
    {"concat", concat, 2, 0},
    {"mean", mean, 1, 2},
    {"max_pool", max_pool, 1, 9},
    {"avg_pool", avg_pool, 1, 10},
    {"global_avg_pool", global_avg_pool, 1, 0},
    {"flatten", flatten, 1, 0},
    {"reshape", reshape, 1, 2},
    {"move", move, 1, 12},
    {"pad", pad, 1, 8},
    {"interpolate", interpolate, 1, 3},
    {"softmax", softmax, 1, 0},
    {"squeeze", squeeze, 1, 1},
    {"squeeze", squeeze_dim, 1, 1},
    {"argmax", argmax, 1, 0},
    {"sigmoid", sigmoid, 1, 0},
    {"silu", silu, 1, 0},
    {"hard_swish", hard_swish, 1, 0},
    {"leaky_relu", leaky_relu, 1, 1},
    {"hard_sigmoid", hard_sigmoid, 1, 2},
    {"clip", clip, 1, 2},
    {"sub", sub, 2, 0},
    {"div", divide, 2, 0},
};

/* Keeps what was announced last, and answers with the input when asked to. */
typedef struct listener {
    oct_interceptor base;
    const char *op;
    oct_op_args args;
    int calls, inputs;
    bool answer;
} listener;

static bool heard(oct_interceptor *self, oct_context *cx, oct_module *module, const char *op,
                  const oct_op_args *args, oct_tensor *const *x, int n, oct_tensor **y)
{
    listener *l = (listener *)self;
    (void)cx;
    cr_assert_null(module);
    l->op = op;
    l->args = *args;
    l->inputs = n;
    l->calls++;
    *y = x[0];
    return l->answer;
}

typedef struct site_rig {
    oct_context *cx;
    float *data[2];
    oct_tensor x[2], *in[2];
} site_rig;

static void begin_rig(site_rig *r)
{
    RIG_OK(oct_context_create(&r->cx, &oct_collective_one));
    for (int i = 0; i < 2; i++) {
        r->data[i] = rig_take(120, sizeof(float));
        rig_fill(r->data[i], 120, 0.05F, (uint64_t)i + 1);
        r->x[i] = (oct_tensor){.shape = OCT_SHAPE(2, 4, 5, 3),
                               .data = r->data[i],
                               .trace_value = -1,
                               .graph_value = -1};
        r->in[i] = &r->x[i];
    }
    oct_context_begin(r->cx, oct_leaves_split(2, 8, 0, 1), false);
}

static void end_rig(site_rig *r)
{
    oct_context_destroy(&r->cx);
    oct_free(&r->data[0]);
    oct_free(&r->data[1]);
}

Test(call_sites, each_op_is_announced_and_its_module_computes_the_same, .timeout = 60)
{
    site_rig r;
    begin_rig(&r);
    for (size_t i = 0; i < OCT_COUNT(ops); i++) {
        listener l = {.base = {.call = heard}};
        r.cx->interceptor = &l.base;
        const oct_tensor *y = ops[i].call(r.cx, r.in);
        r.cx->interceptor = NULL;
        cr_assert(y, "%s: %s", ops[i].name, oct_error_message(0));
        cr_assert_eq(l.calls, 1, "%s was announced %d times", ops[i].name, l.calls);
        cr_assert_str_eq(l.op, ops[i].name);
        cr_assert_eq(l.inputs, ops[i].inputs);
        cr_assert_eq(l.args.count, ops[i].args, "%s has %d arguments", ops[i].name, l.args.count);

        const oct_module_type *type = oct_module_type_find(ops[i].name);
        cr_assert(type, "there is no module type %s", ops[i].name);
        oct_module *m;
        RIG_OK(oct_module_from(&m, type, &l.args));
        oct_check_tensor(oct_module_call(r.cx, m, r.in, ops[i].inputs), y, ops[i].name);
        oct_module_destroy(&m);
    }
    end_rig(&r);
}

/* Of other shapes than the rest. */
Test(call_sites, a_loss_is_one, .timeout = 60)
{
    site_rig r;
    begin_rig(&r);
    for (int i = 0; i < 2; i++)
        r.x[i].shape = OCT_SHAPE(2, 60);
    listener l = {.base = {.call = heard}};
    r.cx->interceptor = &l.base;
    const oct_tensor *y = oct_cross_entropy_loss(r.cx, r.in[0], r.in[1], 0.25);
    r.cx->interceptor = NULL;
    cr_assert(y, "%s", oct_error_message(0));
    cr_assert(l.calls == 1 && l.inputs == 2 && l.args.count == 1 && l.args.value[0] == 0.25);
    cr_assert_str_eq(l.op, "cross_entropy_loss");
    oct_module *m;
    RIG_OK(oct_module_from(&m, oct_module_type_find(l.op), &l.args));
    oct_check_tensor(oct_module_call(r.cx, m, r.in, 2), y, l.op);
    oct_module_destroy(&m);
    end_rig(&r);
}

Test(call_sites, a_product_of_matrices_is_one, .timeout = 60)
{
    site_rig r;
    begin_rig(&r);
    r.x[1].shape = OCT_SHAPE(2, 4, 3, 5);
    listener l = {.base = {.call = heard}};
    r.cx->interceptor = &l.base;
    const oct_tensor *y = oct_matmul(r.cx, r.in[0], r.in[1]);
    r.cx->interceptor = NULL;
    cr_assert(y, "%s", oct_error_message(0));
    cr_assert(l.calls == 1 && l.inputs == 2 && l.args.count == 0);
    oct_module *m;
    RIG_OK(oct_module_from(&m, oct_module_type_find(l.op), &l.args));
    oct_check_tensor(oct_module_call(r.cx, m, r.in, 2), y, l.op);
    oct_module_destroy(&m);
    end_rig(&r);
}

Test(call_sites, an_answer_takes_the_place_of_the_op, .timeout = 60)
{
    site_rig r;
    begin_rig(&r);
    for (size_t i = 0; i < OCT_COUNT(ops); i++) {
        listener l = {.base = {.call = heard}, .answer = true};
        r.cx->interceptor = &l.base;
        cr_assert_eq(ops[i].call(r.cx, r.in), r.in[0], "%s went on", ops[i].name);
    }
    end_rig(&r);
}

Test(call_sites, an_op_inside_a_leaf_module_is_none, .timeout = 60)
{
    site_rig r;
    begin_rig(&r);
    for (size_t i = 0; i < OCT_COUNT(ops); i++) {
        listener l = {.base = {.call = heard}};
        r.cx->interceptor = &l.base;
        r.cx->atomic_depth = 1;
        cr_assert(ops[i].call(r.cx, r.in), "%s: %s", ops[i].name, oct_error_message(0));
        r.cx->atomic_depth = 0;
        cr_assert_eq(l.calls, 0, "%s was announced", ops[i].name);
    }
    end_rig(&r);
}

Test(call_sites, the_trace_has_the_arguments, .timeout = 60)
{
    static const oct_module_type type = {.name = "net", .forward = forward};
    oct_module *net;
    RIG_OK(oct_module_alloc(&net, &type, sizeof *net));
    oct_trace trace;
    RIG_OK(oct_trace_run(&trace, net, OCT_EXAMPLE(OCT_SHAPE(1, 4, 5, 3), OCT_SHAPE(1, 4, 5, 3))));
    cr_assert_eq(trace.num_nodes, OCT_COUNT(ops));
    for (size_t i = 0; i < OCT_COUNT(ops); i++) {
        cr_assert_str_eq(trace.nodes[i].op, ops[i].name);
        cr_assert_eq(trace.nodes[i].args.count, ops[i].args, "%s", ops[i].name);
    }
    oct_trace_free(&trace);
    oct_module_destroy(&net);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_tensor *y = NULL;
    (void)self, (void)n;
    for (size_t i = 0; i < OCT_COUNT(ops); i++)
        y = ops[i].call(cx, x);
    return y;
}
