/* Traces of small models made of the test's own modules: a leaf (twice), functional ops, a
 * container. */
#include "core/autograd/tape.h"
#include "core/base/mem.h"
#include "core/graph/trace.h"
#include "core/nn/module.h"

#include <criterion/criterion.h>
#include <string.h>

/* A functional op: y = x + z. */
static oct_tensor *plus(oct_context *cx, oct_tensor *x, oct_tensor *z)
{
    oct_tensor *inputs[] = {x, z};
    if (!oct_inputs_ok(cx, inputs, 2)) return NULL;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (y) oct_record(cx, "plus", NULL, inputs, 2, false, y);
    return y;
}

/* A leaf whose own ops must not show. */
static oct_tensor *twice_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)self, (void)n;
    return plus(cx, x[0], x[0]);
}
static const oct_module_type twice_type = {
    .name = "twice", .forward = twice_forward, .atomic = true};

static oct_tensor *same_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)cx, (void)self, (void)n;
    return x[0];
}
static const oct_module_type same_type = {.name = "same", .forward = same_forward, .atomic = true};

typedef struct net {
    oct_module base;
    oct_module *a, *b;
    oct_tensor *(*body)(oct_context *cx, struct net *self, oct_tensor *x);
} net;

static oct_tensor *net_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    return ((net *)self)->body(cx, (net *)self, x[0]);
}
static const oct_module_type net_type = {.name = "net", .forward = net_forward};

typedef oct_tensor *body_fn(oct_context *cx, net *self, oct_tensor *x);

static oct_module *root;
static oct_trace trace;

static net *make_net(oct_module **module, body_fn *body, const oct_module_type *a,
                     const oct_module_type *b)
{
    cr_assert_eq(oct_module_alloc(module, &net_type, sizeof(net)), OCT_OK);
    net *self = (net *)*module;
    self->body = body;
    cr_assert_eq(oct_module_alloc(&self->a, a, sizeof(net)), OCT_OK);
    cr_assert_eq(oct_module_alloc(&self->b, b, sizeof(net)), OCT_OK);
    cr_assert_eq(oct_module_add_child(*module, "a", &self->a), OCT_OK);
    cr_assert_eq(oct_module_add_child(*module, "b", &self->b), OCT_OK);
    return self;
}

static oct_status run_trace(void)
{
    return oct_trace_run(&trace, root, OCT_EXAMPLE(OCT_SHAPE(1, 4, 4, 3)));
}

static void tear_down(void)
{
    oct_trace_free(&trace);
    oct_module_destroy(&root);
    OCT_ASSERT(oct_mem_live() == 0); /* Criterion does not count cr_assert in a teardown */
}

static void check_node(int64_t number, const char *op, const char *path, int64_t in0, int64_t in1,
                       int64_t output)
{
    const oct_trace_node *node = &trace.nodes[number];
    cr_assert_str_eq(node->op, op);
    cr_assert_str_eq(node->path, path);
    cr_assert_eq(node->num_inputs, in1 < 0 ? 1 : 2);
    cr_assert_eq(node->input[0], in0);
    if (in1 >= 0) cr_assert_eq(node->input[1], in1);
    cr_assert_eq(node->output, output);
    cr_assert_eq(trace.values[output].producer, number);
}

TestSuite(trace, .fini = tear_down);

/* b(a(x)) + x, with b used once more on top. */
static oct_tensor *residual(oct_context *cx, net *self, oct_tensor *x)
{
    oct_tensor *y = plus(cx, oct_call(cx, self->b, oct_call(cx, self->a, x)), x);
    return oct_call(cx, self->b, y);
}

Test(trace, records_modules_and_functional_ops_in_order)
{
    make_net(&root, residual, &twice_type, &twice_type);
    cr_assert_eq(run_trace(), OCT_OK);
    cr_assert_eq(trace.num_nodes, 4);
    cr_assert_eq(trace.num_values, 5);
    check_node(0, "twice", "a", 0, -1, 1);
    check_node(1, "twice", "b", 1, -1, 2);
    check_node(2, "plus", "", 2, 0, 3);
    check_node(3, "twice", "b", 3, -1, 4);
    cr_assert_eq(trace.nodes[0].module, ((net *)root)->a);
    cr_assert_null(trace.nodes[2].module);
    cr_assert_eq(trace.inputs[0], 0);
    cr_assert_eq(trace.output, 4);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(trace.values[i].dtype, OCT_F32);
        oct_shape shape = OCT_SHAPE(1, 4, 4, 3);
        cr_assert(oct_shape_equal(&trace.values[i].shape, &shape));
    }
    cr_assert_eq(trace.values[0].producer, -1);
}

Test(trace, a_second_trace_starts_anew)
{
    make_net(&root, residual, &twice_type, &twice_type);
    cr_assert_eq(run_trace(), OCT_OK);
    oct_trace_free(&trace);
    cr_assert_eq(run_trace(), OCT_OK);
    cr_assert_eq(trace.num_nodes, 4);
    check_node(2, "plus", "", 2, 0, 3);
}

static oct_tensor *nested(oct_context *cx, net *self, oct_tensor *x)
{
    return oct_call(cx, self->b, x);
}

static oct_tensor *functional(oct_context *cx, net *self, oct_tensor *x)
{
    return plus(cx, oct_call(cx, self->a, x), x);
}

Test(trace, an_op_carries_the_path_of_the_module_that_called_it)
{
    make_net(&root, nested, &same_type, &same_type);
    oct_module *inner, *old = ((net *)root)->b;
    make_net(&inner, functional, &twice_type, &twice_type);
    cr_assert_eq(oct_module_replace(&root, old, inner), OCT_OK);
    oct_module_destroy(&old);
    cr_assert_eq(run_trace(), OCT_OK);
    cr_assert_eq(trace.num_nodes, 2);
    check_node(0, "twice", "b.a", 0, -1, 1);
    check_node(1, "plus", "b", 1, 0, 2);
}

static oct_tensor *both(oct_context *cx, net *self, oct_tensor *x)
{
    return plus(cx, oct_call(cx, self->a, x), x);
}

Test(trace, a_module_that_returns_its_input_has_an_output_of_its_own)
{
    make_net(&root, both, &same_type, &same_type);
    cr_assert_eq(run_trace(), OCT_OK);
    check_node(0, "same", "a", 0, -1, 1);
    check_node(1, "plus", "", 1, 0, 2);
}

static oct_tensor *squared(oct_context *cx, net *self, oct_tensor *x)
{
    (void)self;
    return plus(cx, x, x);
}

Test(trace, a_node_may_read_a_value_twice)
{
    make_net(&root, squared, &same_type, &same_type);
    cr_assert_eq(run_trace(), OCT_OK);
    check_node(0, "plus", "", 0, 0, 1);
}

static oct_tensor *nothing(oct_context *cx, net *self, oct_tensor *x)
{
    (void)cx, (void)self;
    return x;
}

Test(trace, the_output_may_be_the_input)
{
    make_net(&root, nothing, &same_type, &same_type);
    cr_assert_eq(run_trace(), OCT_OK);
    cr_assert_eq(trace.num_nodes, 0);
    cr_assert_eq(trace.output, trace.inputs[0]);
}

static oct_tensor *output_and_more(oct_context *cx, net *self, oct_tensor *x)
{
    oct_tensor *y = oct_call(cx, self->a, x);
    oct_call(cx, self->b, y);
    return y;
}

Test(trace, the_output_may_be_read_too)
{
    make_net(&root, output_and_more, &twice_type, &twice_type);
    cr_assert_eq(run_trace(), OCT_OK);
    cr_assert_eq(trace.output, 1);
}

static oct_tensor *constant(oct_context *cx, net *self, oct_tensor *x)
{
    (void)self;
    return plus(cx, x, oct_tensor_new(cx, OCT_F32, x->shape));
}

static oct_tensor *only_constant(oct_context *cx, net *self, oct_tensor *x)
{
    (void)self;
    return oct_tensor_new(cx, OCT_F32, x->shape);
}

Test(trace, tensors_from_elsewhere_are_an_error_that_names_the_reader)
{
    net *self = make_net(&root, constant, &same_type, &same_type);
    cr_assert_eq(run_trace(), OCT_PREPARE);
    cr_assert(
        strstr(oct_error_message(0), "input 1 of plus is not computed from the model's input"));
    cr_assert_eq(trace.num_nodes, 0);
    cr_assert_null(trace.values);
    self->body = only_constant;
    cr_assert_eq(run_trace(), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "the model's output is not computed from its input"));
}

static oct_tensor *change(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)module, (void)user;
    return plus(cx, value, value);
}

/* An op of a hook is a node of the container that holds the leaf, with the leaf's name. */
Test(trace, calls_by_the_hooks_of_a_leaf_are_nodes_around_its_own)
{
    net *self = make_net(&root, residual, &twice_type, &twice_type);
    cr_assert_eq(oct_module_pre_hook(self->a, change, NULL, NULL), OCT_OK);
    cr_assert_eq(oct_module_hook(self->a, change, NULL, NULL), OCT_OK);
    cr_assert_eq(run_trace(), OCT_OK);
    cr_assert_eq(trace.num_nodes, 6);
    check_node(0, "plus", "a", 0, 0, 1);
    check_node(1, "twice", "a", 1, -1, 2);
    check_node(2, "plus", "a", 2, 2, 3);
    check_node(3, "twice", "b", 3, -1, 4);
    check_node(4, "plus", "", 4, 0, 5);
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(trace.nodes[i].hook, i == 0 || i == 2 ? self->a : NULL);
        cr_assert_eq(trace.nodes[i].caller, root);
    }
    cr_assert_eq(trace.nodes[1].given, 0, "what the caller passed");
    cr_assert_eq(trace.nodes[3].given, 3);
}

static oct_tensor *copy(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)module, (void)user;
    return oct_tensor_new(cx, OCT_F32, value->shape);
}

Test(trace, a_hooks_tensor_from_nowhere_is_an_error_that_names_the_module)
{
    net *self = make_net(&root, residual, &twice_type, &twice_type);
    cr_assert_eq(oct_module_hook(self->b, copy, NULL, NULL), OCT_OK);
    cr_assert_eq(run_trace(), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "b: a hook puts a tensor in place of another that no "
                                           "operation of the model has computed"),
              "%s", oct_error_message(0));
}

/* Hooks of the root see the model's inputs and outputs. */
Test(trace, the_roots_hooks_are_outside_and_may_not_change_its_values)
{
    make_net(&root, residual, &twice_type, &twice_type);
    cr_assert_eq(oct_module_hook(root, change, NULL, NULL), OCT_OK);
    cr_assert_eq(run_trace(), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "a hook of the model itself puts another tensor"), "%s",
              oct_error_message(0));
}

static oct_tensor *call_outsider(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)module;
    return oct_call(cx, user, value);
}

Test(trace, a_module_outside_of_the_tree_is_an_error)
{
    oct_module *outsider;
    net *self = make_net(&root, residual, &twice_type, &twice_type);
    cr_assert_eq(oct_module_alloc(&outsider, &twice_type, sizeof(net)), OCT_OK);
    cr_assert_eq(oct_module_hook(self->b, call_outsider, outsider, NULL), OCT_OK);
    cr_assert_eq(run_trace(), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "a twice is called that is no part of the model"), "%s",
              oct_error_message(0));
    oct_module_destroy(&outsider);
}

/* A functional op with a module form: a number is added. */
static oct_tensor *raise_by(oct_context *cx, oct_tensor *x, double a, double b)
{
    oct_tensor *y;
    if (oct_op_intercepted(cx, "raise", OCT_OP_ARGS(a, b), &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (y) oct_record(cx, "raise", NULL, &x, 1, false, y);
    return y;
}

static oct_tensor *raise_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)self, (void)n;
    return raise_by(cx, x[0], 8, 8);
}
typedef struct raise_module {
    oct_module base;
    oct_squeeze_args args;
} raise_module;
static const oct_arg raise_arg[] = {OCT_ARG(oct_squeeze_args, dim, .least = 7, .most = 7)};
static const oct_arg_list raise_list = OCT_ARG_LIST(raise_arg, oct_squeeze_args);
static const oct_module_type raise_type = {.name = "raise",
                                           .forward = raise_forward,
                                           .atomic = true,
                                           OCT_MODULE_ARGS(raise_list, raise_module)};

static oct_tensor *with_numbers(oct_context *cx, net *self, oct_tensor *x)
{
    oct_tensor *y = raise_by(cx, oct_call(cx, self->a, x), 1, 2.5);
    return plus(cx, y, y);
}

Test(trace, records_the_arguments_of_ops_and_of_modules_that_have_them)
{
    net *self = make_net(&root, with_numbers, &raise_type, &same_type);
    ((raise_module *)self->a)->args.dim = 7;
    cr_assert_eq(run_trace(), OCT_OK);
    cr_assert_eq(trace.num_nodes, 3);
    cr_assert_eq(trace.nodes[0].args.count, 1);
    cr_assert_eq(trace.nodes[0].args.value[0], 7);
    cr_assert_eq(trace.nodes[1].args.count, 2);
    cr_assert_eq(trace.nodes[1].args.value[0], 1);
    cr_assert_eq(trace.nodes[1].args.value[1], 2.5);
    cr_assert_eq(trace.nodes[2].args.count, 0);
}

static void check_scope(size_t number, const oct_module *module, size_t begin, size_t end,
                        int64_t parent, int64_t input, int64_t output)
{
    const oct_trace_scope *scope = &trace.scopes[number];
    cr_assert_eq(scope->module, module);
    cr_assert_eq(scope->begin, begin);
    cr_assert_eq(scope->end, end);
    cr_assert_eq(scope->parent, parent);
    cr_assert_eq(scope->input, input);
    cr_assert_eq(scope->output, output);
}

/* a, then the container b, then an op */
static oct_tensor *around(oct_context *cx, net *self, oct_tensor *x)
{
    oct_tensor *y = oct_call(cx, self->b, oct_call(cx, self->a, x));
    return plus(cx, y, x);
}

static oct_module *add_inner(body_fn *body)
{
    oct_module *inner, *old = ((net *)root)->b;
    make_net(&inner, body, &twice_type, &twice_type);
    cr_assert_eq(oct_module_replace(&root, old, inner), OCT_OK);
    oct_module_destroy(&old);
    return inner;
}

Test(trace, the_calls_of_containers_are_nested_scopes)
{
    make_net(&root, around, &twice_type, &same_type);
    oct_module *inner = add_inner(functional);
    cr_assert_eq(run_trace(), OCT_OK);
    cr_assert_eq(trace.num_scopes, 2);
    check_scope(0, root, 0, 4, -1, 0, 4);
    check_scope(1, inner, 1, 3, 0, 1, 3);
    cr_assert_null(trace.scopes[1].name);
    static const int64_t scopes[] = {0, 1, 1, 0};
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(trace.nodes[i].scope, scopes[i]);
        cr_assert_eq(trace.nodes[i].caller, scopes[i] ? inner : root);
    }
}

Test(trace, what_a_containers_hook_computes_stands_after_its_scope)
{
    make_net(&root, around, &twice_type, &same_type);
    oct_module *inner = add_inner(functional);
    cr_assert_eq(oct_module_hook(inner, change, NULL, NULL), OCT_OK);
    cr_assert_eq(run_trace(), OCT_OK);
    check_scope(1, inner, 1, 3, 0, 1, 3);
    check_node(3, "plus", "b", 3, 3, 4);
    cr_assert_eq(trace.nodes[3].caller, inner);
    cr_assert_eq(trace.nodes[3].scope, 0);
    check_node(4, "plus", "", 4, 0, 5);
}

static int loop_count;

static oct_tensor *loop(oct_context *cx, net *self, oct_tensor *x)
{
    oct_tensor *y = x;
    for (int i = 0; i < loop_count; i++) {
        oct_dynamic_block_begin(cx, &self->base, "step");
        y = plus(cx, oct_call(cx, self->a, y), x);
        oct_dynamic_block_end(cx);
    }
    return oct_call(cx, self->b, y);
}

Test(trace, each_run_of_a_dynamic_block_is_a_scope)
{
    make_net(&root, loop, &twice_type, &twice_type);
    loop_count = 2;
    cr_assert_eq(run_trace(), OCT_OK);
    cr_assert_eq(trace.num_nodes, 5);
    cr_assert_eq(trace.num_scopes, 3);
    check_scope(0, root, 0, 5, -1, 0, 5);
    check_scope(1, root, 0, 2, 0, -1, -1);
    check_scope(2, root, 2, 4, 0, -1, -1);
    cr_assert_str_eq(trace.scopes[2].name, "step");
    cr_assert_eq(trace.nodes[2].scope, 2);
    cr_assert_eq(trace.nodes[2].caller, root);
    cr_assert_eq(trace.nodes[4].scope, 0);
}

static oct_tensor *nested_blocks(oct_context *cx, net *self, oct_tensor *x)
{
    oct_dynamic_block_begin(cx, &self->base, "outer");
    oct_dynamic_block_begin(cx, &self->base, "inner");
    return oct_call(cx, self->a, x);
}

static oct_tensor *open_block(oct_context *cx, net *self, oct_tensor *x)
{
    oct_dynamic_block_begin(cx, &self->base, "outer");
    return oct_call(cx, self->a, x);
}

static oct_tensor *no_block(oct_context *cx, net *self, oct_tensor *x)
{
    oct_dynamic_block_end(cx);
    return oct_call(cx, self->a, x);
}

Test(trace, blocks_neither_nest_nor_stay_open)
{
    net *self = make_net(&root, nested_blocks, &twice_type, &twice_type);
    cr_assert_eq(run_trace(), OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0),
                     "dynamic block \"inner\" begins inside of another one; blocks do not nest");
    self->body = open_block;
    cr_assert_eq(run_trace(), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "dynamic block \"outer\" was not ended"));
    self->body = no_block;
    cr_assert_eq(run_trace(), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "ends no block that this module has begun"));
}

static oct_tensor *two_inputs(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    cr_assert_eq(n, 2);
    return plus(cx, oct_call(cx, ((net *)self)->a, x[1]), x[0]);
}

Test(trace, a_model_may_have_several_inputs)
{
    static const oct_module_type type = {.name = "two", .forward = two_inputs};
    make_net(&root, nothing, &twice_type, &twice_type);
    root->type = &type;
    cr_assert_eq(
        oct_trace_run(&trace, root, OCT_EXAMPLE(OCT_SHAPE(3, 2, 2, 1), OCT_SHAPE(3, 2, 2, 1))),
        OCT_OK);
    cr_assert_eq(trace.num_inputs, 2);
    cr_assert_eq(trace.inputs[1], 1);
    check_node(0, "twice", "a", 1, -1, 2);
    check_node(1, "plus", "", 2, 0, 3);
    oct_trace_free(&trace);
    cr_assert_eq(oct_trace_run(&trace, root, &(oct_example){0}), OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0), "a model cannot be traced on 0 inputs; give 1 to 8");
}

typedef struct seen {
    int count;
    float first[8];
} seen;

static void see(void *user, int64_t value, const oct_tensor *tensor)
{
    seen *s = user;
    cr_assert_eq(value, s->count);
    s->first[s->count++] = oct_f32(tensor)[0];
}

Test(trace, runs_on_data_when_some_is_given_and_shows_each_value)
{
    static const float sample[2] = {3, 4};
    seen s = {0};
    oct_example example = {.count = 1, .shape = {OCT_SHAPE(5, 2)}, .data = {sample}};
    make_net(&root, residual, &same_type, &same_type);
    root->training = false;
    cr_assert_eq(oct_trace_watch(&trace, NULL, root, &example, see, &s), OCT_OK);
    cr_assert_eq(s.count, 5);
    cr_assert_eq(s.first[0], 3);
    cr_assert_eq(s.first[2], 3);
}

static oct_tensor *zero_input(oct_context *cx, net *self, oct_tensor *x)
{
    (void)cx;
    cr_assert_eq(oct_dim(x, 0), 1);
    for (int64_t i = 0; i < oct_numel(x); i++)
        cr_assert_eq(oct_f32(x)[i], 0);
    cr_assert_not(self->base.training);
    cr_assert_not(self->a->training);
    return x;
}

Test(trace, runs_in_eval_mode_on_one_sample_of_zeros_and_restores_every_mode)
{
    net *self = make_net(&root, zero_input, &same_type, &same_type);
    self->b->training = false;
    cr_assert_eq(oct_trace_run(&trace, root, OCT_EXAMPLE(OCT_SHAPE(7, 2, 2, 1))), OCT_OK);
    cr_assert_eq(trace.values[0].shape.dim[0], 1);
    cr_assert(self->base.training && self->a->training && !self->b->training);
    oct_trace_free(&trace);
    cr_assert_eq(oct_trace_run(&trace, root, OCT_EXAMPLE(OCT_SHAPE(1, -2))), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "input of shape (1, -2)"));
}

Test(trace, fails_cleanly_at_every_allocation)
{
    make_net(&root, residual, &twice_type, &twice_type);
    size_t live = oct_mem_live();
    int failures = 0;
    for (int64_t n = 1; n < 30; n++) {
        oct_mem_fail_after(n);
        oct_status status = run_trace();
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
        failures += status == OCT_RESOURCE;
        oct_trace_free(&trace);
        cr_assert_eq(oct_mem_live(), live);
        cr_assert(root->training);
    }
    cr_assert(failures > 8 && failures < 29);
}
