/* The prepared graph on models of the test's own: workers that compute factor * (sum of the inputs),
 * on float or on codes (scale 1), and write their names into a log. Plans are made by hand. */
#include "core/base/mem.h"
#include "quant/graph/graph.h"
#include "tests/support/check_status.h"
#include "tests/support/check_tensor.h"

#include <stdio.h>
#include <stdlib.h>

static char call_log[512];

static void note(const char *text)
{
    cr_assert(strlen(call_log) + strlen(text) + 2 < sizeof call_log);
    strcat(strcat(call_log, text), " ");
}

/* kind 'f': float to float, 'q': codes to codes, 'e': float to codes, 'd': codes to float, 'i': hands
 * its input on. */
typedef struct worker {
    oct_module base;
    char kind;
    float factor;
} worker;

static float value_at(const oct_tensor *x, int64_t i)
{
    return oct_is_codes(x) ? (float)oct_u8(x)[i] : oct_f32(x)[i];
}

static oct_tensor *work(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const worker *w = (worker *)self;
    bool codes_in = w->kind == 'q' || w->kind == 'd', codes_out = w->kind == 'q' || w->kind == 'e';
    note(self->name);
    if (w->kind == 'i') return x[0];
    oct_tensor *y = oct_tensor_new(cx, codes_out ? OCT_U8 : OCT_F32, x[0]->shape);
    if (!y) return NULL;
    if (codes_out) y->q = (oct_qparams){.scale = 1, .qmax = 255};
    for (int64_t i = 0; i < oct_numel(y); i++) {
        float sum = 0;
        for (int k = 0; k < n; k++) {
            cr_assert_eq(oct_is_codes(x[k]), codes_in, "%s (%c), input %d", self->name, w->kind, k);
            sum += w->factor * value_at(x[k], i);
        }
        if (codes_out)
            oct_u8(y)[i] = (uint8_t)sum;
        else
            oct_f32(y)[i] = sum;
    }
    return y;
}

static const oct_module_type worker_type = {.name = "worker", .forward = work, .atomic = true};

static oct_module *new_worker(char kind, float factor)
{
    oct_module *m;
    MUST(oct_module_alloc(&m, &worker_type, sizeof(worker)));
    ((worker *)m)->kind = kind;
    ((worker *)m)->factor = factor;
    return m;
}

/* A functional op with a module form: a + b, + number. */
static oct_tensor *plus(oct_context *cx, oct_tensor *a, oct_tensor *b, double number)
{
    oct_tensor *x[] = {a, b}, *y;
    if (oct_op_intercepted(cx, "plus", OCT_OP_ARGS(number), x, 2, &y)) return y;
    if (!oct_inputs_ok(cx, x, 2)) return NULL;
    if (oct_is_codes(a) || oct_is_codes(b))
        return oct_context_fail(cx, OCT_USAGE, "plus takes float values");
    y = oct_tensor_new(cx, OCT_F32, a->shape);
    if (!y) return NULL;
    for (int64_t i = 0; i < oct_numel(y); i++)
        oct_f32(y)[i] = oct_f32(a)[i] + oct_f32(b)[i] + (float)number;
    note("plus");
    oct_record(cx, "plus", NULL, x, 2, false, y);
    return y;
}

/* A container with up to six parts, a to f. */
typedef struct net net;
typedef oct_tensor *body_fn(oct_context *cx, net *self, oct_tensor *const *x);
struct net {
    oct_module base;
    oct_module *part[6];
    body_fn *body;
};

static oct_tensor *net_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    note("forward");
    return ((net *)self)->body(cx, (net *)self, x);
}
static const oct_module_type net_type = {.name = "net", .forward = net_forward};

static net *new_net(body_fn *body)
{
    oct_module *m;
    MUST(oct_module_alloc(&m, &net_type, sizeof(net)));
    ((net *)m)->body = body;
    return (net *)m;
}

static void add_part(net *self, int i, oct_module *part)
{
    char name[2] = {(char)('a' + i), 0};
    self->part[i] = part;
    MUST(oct_module_add_child(&self->base, name, &self->part[i]));
}

/* A net of float workers: part i multiplies by i + 2. */
static net *float_net(body_fn *body, int parts)
{
    net *self = new_net(body);
    for (int i = 0; i < parts; i++)
        add_part(self, i, new_worker('f', (float)(i + 2)));
    return self;
}

static net *model;
static oct_graph *graph;
static oct_context *cx;
static float data[2] = {1, 2}, other_data[2] = {10, 20};

static void tear_down(void)
{
    oct_module *root = &model->base;
    if (!root->interceptor) oct_graph_destroy(&graph);
    oct_module_destroy(&root);
    oct_context_destroy(&cx);
    OCT_ASSERT(oct_mem_live() == 0); /* Criterion does not count cr_assert in a teardown */
}

TestSuite(graph, .fini = tear_down);

static oct_status trace_model(int inputs)
{
    oct_trace trace;
    oct_example example = {.count = inputs, .shape = {OCT_SHAPE(1, 1), OCT_SHAPE(1, 1)}};
    OCT_TRY(oct_trace_run(&trace, &model->base, &example));
    oct_status status = oct_graph_create(&graph, &trace, &model->base);
    oct_trace_free(&trace);
    return status;
}

/* Makes the graph of `model` and attaches it. */
static void begin(net *made, oct_prepare_method method, int inputs)
{
    model = made;
    MUST(oct_context_create(&cx, &oct_collective_one));
    MUST(trace_model(inputs));
    graph->method = method;
    oct_graph_attach(graph, &model->base);
    call_log[0] = '\0';
}

static oct_tensor *try_forward(int inputs)
{
    call_log[0] = '\0';
    oct_context_begin(cx, oct_leaves_split(2, 1, 0, 1), false);
    oct_tensor *x[] = {oct_tensor_view(cx, OCT_F32, OCT_SHAPE(2, 1), data),
                       oct_tensor_view(cx, OCT_F32, OCT_SHAPE(2, 1), other_data)};
    return oct_module_call(cx, &model->base, x, inputs);
}

/* The output for input 1 (and 10); the log is `log`. */
static void check_forward(int inputs, float first, const char *log)
{
    const oct_tensor *y = try_forward(inputs);
    cr_assert_not_null(y, "%s", oct_error_message(0));
    cr_assert_eq(y->dtype, OCT_F32);
    cr_assert_float_eq(oct_f32(y)[0], first, 0);
    cr_assert_float_eq(oct_f32(y)[1], 2 * first, 0);
    cr_assert_str_eq(call_log, log);
    cr_assert_null(cx->interceptor);
    cr_assert_null(graph->run);
}

static void check_refused(int inputs, const char *text)
{
    cr_assert_null(try_forward(inputs));
    cr_assert_eq(oct_context_status(cx), OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0), text);
    cr_assert_null(cx->interceptor);
    cr_assert_null(graph->run);
}

/* Plans. */

static oct_graph_node *touch(size_t i, oct_node_action action)
{
    cr_assert_lt(i, graph->num_nodes);
    graph->nodes[i].action = action;
    if (action == OCT_NODE_ALIAS)
        graph->values[graph->nodes[i].output].alias = graph->nodes[i].called_input[0][0];
    return &graph->nodes[i];
}

/* Adds a module to the model as "_generated_<op>_<n>", n counting from 0. */
static oct_status add_generated(const char *op, oct_module **module)
{
    char name[64];
    int number = 0;
    do {
        snprintf(name, sizeof name, "_generated_%s_%d", op, number++);
    } while (oct_module_find(&model->base, name));
    return oct_graph_add_module(graph, &model->base, name, module);
}

static oct_module *generate(const char *op, char kind, float factor)
{
    oct_module *made = new_worker(kind, factor), *kept = made;
    MUST(add_generated(op, &made));
    cr_assert_null(made);
    return kept;
}

/* The part works on codes from now on, and so does its node. */
static void quantize(size_t i, oct_module *part)
{
    oct_graph_node *node = touch(i, OCT_NODE_RUN);
    ((worker *)part)->kind = 'q';
    node->module = part;
    node->wants = OCT_WANTS_CODES;
    graph->values[node->output].codes = true;
}

static void quantize_input(int64_t value)
{
    graph->values[value].quantize = generate("quantize", 'e', 1);
}

static void dequantize_output(int64_t value)
{
    graph->values[value].dequantize = generate("dequantize", 'd', 1);
}

/* c(b(a(x)) + x) */
static oct_tensor *residual(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(context, self->part[1], oct_call(context, self->part[0], x[0]));
    return oct_call(context, self->part[2], plus(context, y, x[0], 0));
}

Test(graph, of_a_trace_is_all_float_and_free)
{
    begin(float_net(residual, 3), OCT_METHOD_JIT, 1);
    cr_assert_eq(oct_graph_of(&model->base), graph);
    cr_assert_eq(graph->num_nodes, 4);
    cr_assert_eq(graph->num_values, 5);
    const oct_graph_node *sum = &graph->nodes[2];
    cr_assert_str_eq(sum->op, "plus");
    cr_assert_str_eq(sum->path, "");
    cr_assert_eq(sum->caller, &model->base);
    cr_assert(!sum->called && !sum->module);
    cr_assert_eq(sum->args.count, 1);
    cr_assert(sum->called_input[0][0] == 2 && sum->called_input[0][1] == 0 && sum->output == 3);
    cr_assert(sum->num_inputs == 2 && sum->operand[0] == 0 && sum->operand[1] == 1);
    cr_assert_str_eq(graph->nodes[3].path, "c");
    cr_assert_eq(graph->nodes[3].called, model->part[2]);
    cr_assert_eq(graph->nodes[3].module, model->part[2]);
    for (int64_t i = 0; i < 5; i++)
        cr_assert(graph->values[i].alias == i && graph->values[i].producer == i - 1);
    for (int i = 0; i < 4; i++)
        cr_assert(graph->nodes[i].action == OCT_NODE_UNTOUCHED && graph->nodes[i].block == -1);
    cr_assert_eq(graph->output[0], 4);
    cr_assert(graph->num_scopes[0] == 1 && graph->num_blocks == 0);
    check_forward(1, 28, "forward a b plus c ");
}

Test(graph, of_a_single_leaf_is_refused)
{
    oct_trace trace;
    oct_module *leaf = new_worker('f', 1);
    begin(float_net(residual, 3), OCT_METHOD_JIT, 1);
    oct_graph *none;
    MUST(oct_trace_run(&trace, leaf, OCT_EXAMPLE(OCT_SHAPE(1, 1))));
    cr_assert_eq(oct_graph_create(&none, &trace, leaf), OCT_PREPARE);
    check_said("the model is a single worker");
    cr_assert_null(none);
    cr_assert_null(oct_graph_of(leaf));
    oct_trace_free(&trace);
    oct_module_destroy(&leaf);
}

Test(graph, is_made_cleanly_at_every_allocation)
{
    model = float_net(residual, 3);
    size_t live = oct_mem_live();
    int failures = 0;
    for (int64_t n = 1; n < 90; n++) {
        call_log[0] = '\0';
        oct_mem_fail_after(n);
        oct_status status = trace_model(1);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
        failures += status == OCT_RESOURCE;
        oct_graph_destroy(&graph);
        cr_assert_eq(oct_mem_live(), live);
    }
    cr_assert(failures > 20 && failures < 89, "%d", failures);
}

Test(graph, generated_modules_get_free_names_and_slots_that_stay)
{
    begin(float_net(residual, 3), OCT_METHOD_JIT, 1);
    model->base.training = false;
    char name[64];
    oct_module *made[100];
    for (int i = 0; i < 100; i++) {
        made[i] = generate("plus", 'f', 1);
        snprintf(name, sizeof name, "_generated_plus_%d", i);
        cr_assert_str_eq(made[i]->name, name);
        cr_assert_not(made[i]->training);
    }
    for (int i = 0; i < 100; i++)
        cr_assert_eq(*model->base.children[3 + i].slot, made[i]);
    oct_module *bad = new_worker('f', 1);
    cr_assert_eq(add_generated("Plus", &bad), OCT_USAGE);
    cr_assert_null(bad);
}

Test(graph, a_generated_module_answers_a_functional_op_with_its_hooks)
{
    begin(float_net(residual, 3), OCT_METHOD_JIT, 1);
    touch(2, OCT_NODE_RUN)->module = generate("plus", 'f', 100);
    check_forward(1, 2800, "forward a b _generated_plus_0 c ");
    check_forward(1, 2800, "forward a b _generated_plus_0 c ");
}

Test(graph, eager_answers_nothing)
{
    begin(float_net(residual, 3), OCT_METHOD_EAGER, 1);
    touch(2, OCT_NODE_RUN)->module = generate("plus", 'f', 100);
    cr_assert_eq(oct_graph_of(&model->base), graph);
    check_forward(1, 28, "forward a b plus c ");
}

/* All of residual in codes, the sum by a generated module. */
static void quantize_residual(oct_prepare_method method)
{
    begin(float_net(residual, 3), method, 1);
    quantize_input(0);
    quantize(0, model->part[0]);
    quantize(1, model->part[1]);
    quantize(2, generate("plus", 'q', 1));
    quantize(3, model->part[2]);
    dequantize_output(4);
}

#define IN_CODES                                                                                   \
    "_generated_quantize_0 a b _generated_plus_0 c _generated_dequantize_0 " /* codes made once */

Test(graph, a_value_is_quantized_once_and_the_output_is_float)
{
    quantize_residual(OCT_METHOD_JIT);
    check_forward(1, 28, "forward " IN_CODES);
    oct_module_train(&model->base, false);
    check_forward(1, 28, "forward " IN_CODES);
}

Test(graph, symbolic_runs_the_nodes_and_not_the_forward)
{
    quantize_residual(OCT_METHOD_SYMBOLIC);
    check_forward(1, 28, IN_CODES);
    check_forward(1, 28, IN_CODES);
}

Test(graph, a_steady_step_allocates_nothing)
{
    quantize_residual(OCT_METHOD_JIT);
    cr_assert_not_null(try_forward(1));
    cr_assert_not_null(try_forward(1));
    oct_mem_fail_after(1);
    check_forward(1, 28, "forward " IN_CODES);
    oct_mem_fail_after(0);
}

Test(graph, a_trace_shows_what_is_executed)
{
    quantize_residual(OCT_METHOD_JIT);
    static const char *const wanted[] = {"_generated_quantize_0", "a", "b",
                                         "_generated_plus_0",     "c", "_generated_dequantize_0"};
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT, OCT_METHOD_SYMBOLIC};
    for (size_t m = 0; m < OCT_COUNT(methods); m++) {
        oct_trace trace;
        graph->method = methods[m];
        MUST(oct_trace_run(&trace, &model->base, OCT_EXAMPLE(OCT_SHAPE(1, 1))));
        cr_assert_eq(trace.num_nodes, OCT_COUNT(wanted));
        for (size_t i = 0; i < OCT_COUNT(wanted); i++)
            cr_assert_str_eq(trace.nodes[i].path, wanted[i]);
        cr_assert_eq(trace.nodes[3].input[1], trace.nodes[0].output);
        cr_assert_eq(trace.values[trace.nodes[3].output].dtype, OCT_U8);
        oct_trace_free(&trace);
    }
}

/* a and b are fused into the sum: they hand x on, and a generated module gets x twice. */
static void fuse_residual(oct_prepare_method method)
{
    begin(float_net(residual, 3), method, 1);
    touch(0, OCT_NODE_ALIAS);
    touch(1, OCT_NODE_ALIAS);
    oct_graph_node *sum = touch(2, OCT_NODE_RUN);
    sum->module = generate("plus", 'q', 5);
    sum->wants = OCT_WANTS_CODES;
    graph->values[sum->output].codes = true;
    quantize_input(0);
    touch(3, OCT_NODE_RUN)->wants = OCT_WANTS_FLOAT;
    dequantize_output(3);
}

Test(graph, fused_members_hand_their_input_on)
{
    fuse_residual(OCT_METHOD_JIT);
    check_forward(1, 40,
                  "forward _generated_quantize_0 _generated_plus_0 _generated_dequantize_0 c ");
    graph->method = OCT_METHOD_SYMBOLIC;
    check_forward(1, 40, "_generated_quantize_0 _generated_plus_0 _generated_dequantize_0 c ");
}

/* a(x) - b(x), in this order: the fused module gets its inputs the other way round. */
static oct_tensor *two_ways(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(context, self->part[0], x[0]);
    return plus(context, y, oct_call(context, self->part[1], x[1]), 0);
}

static oct_tensor *first_minus_ten_times_second(oct_context *context, oct_module *self,
                                                oct_tensor *const *x, int n)
{
    cr_assert_eq(n, 2);
    note(self->name);
    oct_tensor *y = oct_tensor_new(context, OCT_F32, x[0]->shape);
    for (int64_t i = 0; y && i < oct_numel(y); i++)
        oct_f32(y)[i] = oct_f32(x[0])[i] - 10 * oct_f32(x[1])[i];
    return y;
}
static const oct_module_type ordered_type = {
    .name = "ordered", .forward = first_minus_ten_times_second, .atomic = true};

Test(graph, a_fused_module_gets_its_own_inputs_in_its_own_order)
{
    oct_module *ordered;
    begin(float_net(two_ways, 2), OCT_METHOD_JIT, 2);
    touch(0, OCT_NODE_RUN);
    touch(1, OCT_NODE_ALIAS);
    MUST(oct_module_alloc(&ordered, &ordered_type, sizeof *ordered));
    oct_graph_node *sum = touch(2, OCT_NODE_RUN);
    sum->module = ordered;
    MUST(add_generated("plus", &ordered));
    sum->operand[0] = 1; /* b's input */
    sum->operand[1] = 0;
    check_forward(2, 10 - 10 * 2, "forward a _generated_plus_0 ");
    graph->method = OCT_METHOD_SYMBOLIC;
    check_forward(2, 10 - 10 * 2, "a _generated_plus_0 ");
}

/* Forwards that change. */

static int times = 1;

static oct_tensor *unmarked_loop(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *y = x[0];
    for (int i = 0; i < times; i++)
        y = plus(context, oct_call(context, self->part[0], y), x[0], 0);
    return oct_call(context, self->part[1], y);
}

static void quantize_unmarked_loop(void)
{
    begin(float_net(unmarked_loop, 2), OCT_METHOD_JIT, 1);
    quantize_input(0);
    quantize(0, model->part[0]);
    quantize(1, generate("plus", 'q', 1));
    quantize(2, model->part[1]);
    dequantize_output(3);
}

Test(graph, a_loop_that_is_not_marked_is_refused_with_its_call_site)
{
    quantize_unmarked_loop();
    const char *log = "forward _generated_quantize_0 a _generated_plus_0 b "
                      "_generated_dequantize_0 ";
    check_forward(1, 9, log);
    times = 2;
    check_refused(1, "a is called where b was recorded; control flow that "
                     "changes from step to step must be in a dynamic block "
                     "(oct_dynamic_block_begin)");
    times = 0;
    check_refused(1, "b is called where a was recorded; control flow that "
                     "changes from step to step must be in a dynamic block "
                     "(oct_dynamic_block_begin)");
    times = 1;
    check_forward(1, 9, log);
}

static bool swap, short_cut, extra, scaled;

static oct_tensor *changing(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *a = oct_call(context, self->part[0], x[0]);
    if (short_cut) return x[0];
    oct_tensor *b = oct_call(context, self->part[1], x[0]);
    oct_tensor *y = oct_call(context, self->part[2], swap ? a : b);
    y = plus(context, y, a, scaled ? 1 : 0);
    return extra ? oct_call(context, self->part[2], y) : y;
}

static void quantize_changing(void)
{
    begin(float_net(changing, 3), OCT_METHOD_JIT, 1);
    quantize_input(0);
    for (size_t i = 0; i < 3; i++)
        quantize(i, model->part[i]);
    quantize(3, generate("plus", 'q', 1));
    dequantize_output(4);
}

#define CHANGING                                                                                   \
    "; control flow that changes from step to step must be in a dynamic block "                    \
    "(oct_dynamic_block_begin)"

Test(graph, another_wiring_is_refused)
{
    quantize_changing();
    check_forward(1, 14,
                  "forward _generated_quantize_0 a b c _generated_plus_0 "
                  "_generated_dequantize_0 ");
    swap = true;
    check_refused(1, "input 0 of c is not the value that was recorded, which comes from "
                     "b" CHANGING);
}

Test(graph, another_number_of_an_op_is_refused)
{
    quantize_changing();
    scaled = true;
    check_refused(1, "the op 'plus' is called with other numbers (sizes, "
                     "strides, ...) than were recorded; its quantized form has those of the "
                     "example");
}

Test(graph, a_forward_that_ends_early_is_refused)
{
    quantize_changing();
    short_cut = true;
    check_refused(1, "the forward ended before b, which was recorded" CHANGING);
}

Test(graph, a_call_after_the_last_one_is_refused)
{
    quantize_changing();
    extra = true;
    check_refused(1, "c is called where no further operation was recorded" CHANGING);
    extra = false;
    check_forward(1, 14,
                  "forward _generated_quantize_0 a b c _generated_plus_0 "
                  "_generated_dequantize_0 ");
}

static oct_tensor *other_output(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *a = oct_call(context, self->part[0], x[0]);
    oct_tensor *b = oct_call(context, self->part[1], a);
    return swap ? a : b;
}

Test(graph, another_output_is_refused)
{
    begin(float_net(other_output, 2), OCT_METHOD_JIT, 1);
    quantize_input(0);
    quantize(0, model->part[0]);
    quantize(1, model->part[1]);
    dequantize_output(2);
    swap = true;
    check_refused(1, "the forward returns another value than was recorded, which comes from "
                     "b" CHANGING);
}

/* Float parts around the quantized one: x + 1 (and perhaps + 1 again), a and the sum quantized, then
 * whatever the mode asks for. */
static oct_tensor *around(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *y = plus(context, x[0], x[0], 0);
    for (int i = 1; i < times; i++)
        y = plus(context, y, x[0], 0);
    oct_tensor *z = oct_call(context, self->part[1], oct_call(context, self->part[0], y));
    z = oct_call(context, self->part[2], plus(context, z, z, 0));
    return extra ? oct_call(context, self->part[3], plus(context, z, y, 0)) : z;
}

Test(graph, what_is_float_around_the_quantized_part_may_change)
{
    times = 1;
    begin(float_net(around, 4), OCT_METHOD_JIT_STRIP, 1);
    ((worker *)model->part[0])->kind = 'e'; /* a QuantStub */
    touch(1, OCT_NODE_RUN);
    graph->values[graph->nodes[1].output].codes = true;
    quantize(2, model->part[1]);
    quantize(3, generate("plus", 'q', 1));
    ((worker *)model->part[2])->kind = 'd';
    touch(4, OCT_NODE_RUN)->wants = OCT_WANTS_CODES;
    check_forward(1, 2 * 2 * 3 * 2 * 4, "forward plus a b _generated_plus_0 c ");
    times = 3;
    check_forward(1, 4 * 2 * 3 * 2 * 4, "forward plus plus plus a b _generated_plus_0 c ");
    extra = true;
    check_forward(1, (4 * 2 * 3 * 2 * 4 + 4) * 5,
                  "forward plus plus plus a b _generated_plus_0 c plus d ");
}

static oct_tensor *new_branch(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(context, self->part[0], x[0]);
    if (extra) oct_call(context, self->part[2], y);
    return oct_call(context, self->part[1], y);
}

Test(graph, a_new_call_on_a_quantized_value_is_refused)
{
    extra = false;
    begin(float_net(new_branch, 3), OCT_METHOD_JIT, 1);
    quantize_input(0);
    quantize(0, model->part[0]);
    quantize(1, model->part[1]);
    dequantize_output(2);
    extra = true;
    check_refused(1, "c is called where b was recorded" CHANGING);
}

/* Dynamic blocks: the seed's loop. x = b(a(x)) + y, n times, then c. */
static bool stop_inside, skip_in_block, second_block;

static oct_tensor *blocks(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *y = x[0];
    for (int i = 0; i < times; i++) {
        oct_dynamic_block_begin(context, &self->base, second_block ? "other" : "step");
        y = oct_call(context, self->part[0], y);
        if (stop_inside) break;
        if (!skip_in_block) y = oct_call(context, self->part[1], y);
        y = plus(context, y, x[1], 0);
        oct_dynamic_block_end(context);
    }
    return oct_call(context, self->part[2], y);
}

/* a and b fused into the sum, which runs at its place. */
static void quantize_blocks(int traced)
{
    times = traced;
    begin(float_net(blocks, 3), OCT_METHOD_JIT, 2);
    quantize_input(0);
    quantize_input(1);
    touch(0, OCT_NODE_ALIAS);
    touch(1, OCT_NODE_ALIAS);
    quantize(2, generate("plus", 'q', 2));
    quantize(3, model->part[2]);
    dequantize_output(graph->output[0]);
    ((worker *)model->part[2])->factor = 1;
}

Test(graph, the_runs_of_a_block_are_one)
{
    quantize_blocks(3);
    cr_assert_eq(graph->num_nodes, 4);
    cr_assert_eq(graph->num_blocks, 1);
    cr_assert_str_eq(graph->blocks[0].name, "step");
    cr_assert(graph->blocks[0].begin == 0 && graph->blocks[0].end == 3);
    cr_assert_eq(graph->blocks[0].module, &model->base);
    static const int block_of[] = {0, 0, 0, -1};
    for (int i = 0; i < 4; i++)
        cr_assert_eq(graph->nodes[i].block, block_of[i]);
    /* what was made in later runs is what the first run made */
    int64_t sum = graph->nodes[2].output;
    cr_assert_eq(graph->nodes[3].called_input[0][0], sum);
    cr_assert_eq(graph->num_carried, 1);
    cr_assert(graph->carried[0].node == 0 && graph->carried[0].input == 0 &&
              graph->carried[0].value == sum);
}

Test(graph, a_block_runs_any_number_of_times)
{
    quantize_blocks(2);
    times = 2;
    check_forward(2, 64,
                  "forward _generated_quantize_0 _generated_quantize_1 _generated_plus_0 "
                  "_generated_plus_0 c _generated_dequantize_0 ");
    times = 1;
    check_forward(2, 22,
                  "forward _generated_quantize_0 _generated_quantize_1 _generated_plus_0 c "
                  "_generated_dequantize_0 ");
    times = 0;
    check_forward(2, 1, "forward _generated_quantize_0 c _generated_dequantize_0 ");
    times = 3;
    cr_assert_not_null(try_forward(2));
}

Test(graph, a_block_that_was_traced_once_may_repeat_when_its_result_is_codes)
{
    quantize_blocks(1);
    cr_assert_eq(graph->num_carried, 0);
    times = 2;
    check_forward(2, 64,
                  "forward _generated_quantize_0 _generated_quantize_1 _generated_plus_0 "
                  "_generated_plus_0 c _generated_dequantize_0 ");
}

Test(graph, a_float_result_that_comes_back_into_a_block_is_refused)
{
    times = 1;
    begin(float_net(blocks, 3), OCT_METHOD_JIT, 2);
    quantize_input(0);
    quantize(0, model->part[0]);
    oct_graph_node *b = touch(1, OCT_NODE_RUN);
    ((worker *)model->part[1])->kind = 'd';
    b->wants = OCT_WANTS_CODES;
    touch(2, OCT_NODE_RUN)->module = generate("plus", 'f', 1);
    cr_assert_not_null(try_forward(2));
    times = 2;
    check_refused(2, "a: an input comes as float and was recorded as codes; let the example's "
                     "forward run each dynamic block at least twice");
}

Test(graph, a_block_must_do_the_same_each_time)
{
    quantize_blocks(2);
    times = 1;
    skip_in_block = true;
    check_refused(2, "the op 'plus' is called where b was "
                     "recorded" CHANGING);
    stop_inside = true;
    check_refused(2, "c is called where b was recorded" CHANGING);
    times = 0;
    cr_assert_not_null(try_forward(2));
}

Test(graph, a_block_that_the_example_did_not_run_is_refused_when_it_is_quantized)
{
    quantize_blocks(1);
    second_block = true;
    check_refused(2, "a is called in a dynamic block that did not run when the graph was "
                     "recorded; let the example's forward run each block at least once");
}

static oct_tensor *uneven_blocks(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *y = x[0];
    for (int i = 0; i < 2; i++) {
        oct_dynamic_block_begin(context, &self->base, "step");
        oct_tensor *z = oct_call(context, self->part[extra && i ? 1 : 0], y);
        y = plus(context, swap && i ? y : z, x[0], scaled && i ? 2 : 1);
        if (short_cut && i) y = plus(context, y, x[0], 1);
        oct_dynamic_block_end(context);
    }
    return y;
}

Test(graph, runs_of_a_block_that_differ_in_the_trace_are_refused_by_name)
{
    model = float_net(uneven_blocks, 2);
    extra = swap = scaled = short_cut = false;
    MUST(trace_model(1));
    oct_graph_destroy(&graph);
    extra = true;
    cr_assert_eq(trace_model(1), OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0),
                     "dynamic block 'step' does not do the same each time it runs: b is "
                     "called (a in the first run); make two blocks of it");
    extra = false, swap = true;
    cr_assert_eq(trace_model(1), OCT_PREPARE);
    check_said("the op 'plus' reads another value");
    swap = false, scaled = true;
    cr_assert_eq(trace_model(1), OCT_PREPARE);
    check_said("the op 'plus' has other arguments");
    scaled = false, short_cut = true;
    cr_assert_eq(trace_model(1), OCT_PREPARE);
    check_said("3 operations, and 2 in the first run");
}

static oct_tensor *bad_blocks(oct_context *context, net *self, oct_tensor *const *x)
{
    if (extra) oct_dynamic_block_begin(context, &self->base, "outer");
    oct_dynamic_block_begin(context, &self->base, "step");
    oct_tensor *y = oct_call(context, self->part[0], x[0]);
    if (short_cut) return y;
    oct_dynamic_block_end(context);
    if (swap) oct_dynamic_block_end(context);
    return y;
}

Test(graph, blocks_neither_nest_nor_stay_open)
{
    extra = short_cut = swap = false;
    begin(float_net(bad_blocks, 1), OCT_METHOD_JIT, 1);
    check_forward(1, 2, "forward a ");
    extra = true;
    check_refused(1, "dynamic block 'step' begins before another one has ended; blocks do not "
                     "nest, and oct_dynamic_block_end belongs on every way out");
    extra = false, short_cut = true;
    check_refused(1,
                  "a dynamic block was not ended; call oct_dynamic_block_end on every way out of "
                  "it");
    short_cut = false, swap = true;
    check_refused(1, "oct_dynamic_block_end ends no block");
}

/* Several inputs. */

Test(graph, inputs_are_values_of_their_own_even_when_one_tensor_is_passed_twice)
{
    begin(float_net(two_ways, 2), OCT_METHOD_JIT, 2);
    touch(0, OCT_NODE_RUN);
    touch(1, OCT_NODE_RUN);
    touch(2, OCT_NODE_RUN)->module = generate("plus", 'f', 1);
    check_forward(2, 32, "forward a b _generated_plus_0 ");
    oct_context_begin(cx, oct_leaves_split(2, 1, 0, 1), false);
    oct_tensor *x = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(2, 1), data);
    const oct_tensor *y = oct_call2(cx, &model->base, x, x);
    cr_assert_not_null(y);
    cr_assert_eq(oct_f32(y)[0], 5);
    cr_assert_eq(x->graph_value, -1);
    cr_assert_null(try_forward(1));
    cr_assert_eq(oct_context_status(cx), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0),
                     "the model was prepared with 2 inputs, but called with 1");
}

static oct_tensor *crossed(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(context, self->part[0], x[swap]);
    return plus(context, y, oct_call(context, self->part[1], x[!swap]), 0);
}

Test(graph, crossed_inputs_are_refused)
{
    swap = false;
    begin(float_net(crossed, 2), OCT_METHOD_JIT, 2);
    quantize_input(0);
    quantize(0, model->part[0]);
    touch(1, OCT_NODE_RUN);
    dequantize_output(graph->nodes[0].output);
    oct_graph_node *sum = touch(2, OCT_NODE_RUN);
    sum->module = generate("plus", 'f', 1);
    sum->wants = OCT_WANTS_FLOAT;
    check_forward(2, 32,
                  "forward _generated_quantize_0 a b _generated_dequantize_0 "
                  "_generated_plus_0 ");
    swap = true;
    check_refused(2, "input 0 of a is not the value that was recorded, which comes from "
                     "the model's input 0" CHANGING);
}

/* Shared modules. */

static oct_tensor *shared(oct_context *context, net *self, oct_tensor *const *x)
{
    return oct_call(context, self->part[0], oct_call(context, self->part[0], x[0]));
}

Test(graph, a_module_that_is_called_twice_may_have_a_module_a_call)
{
    begin(float_net(shared, 1), OCT_METHOD_JIT, 1);
    quantize_input(0);
    quantize(0, model->part[0]);
    quantize(1, generate("worker", 'q', 7));
    dequantize_output(2);
    check_forward(1, 14,
                  "forward _generated_quantize_0 a _generated_worker_0 "
                  "_generated_dequantize_0 ");
    graph->method = OCT_METHOD_SYMBOLIC;
    check_forward(1, 14, "_generated_quantize_0 a _generated_worker_0 _generated_dequantize_0 ");
}

/* Hooks. */

static oct_tensor *log_hook(oct_context *context, oct_module *module, oct_tensor *value, void *user)
{
    char text[32];
    (void)context, (void)module;
    snprintf(text, sizeof text, "%s=%g%s", (const char *)user, (double)value_at(value, 0),
             oct_is_codes(value) ? "q" : "");
    note(text);
    return NULL;
}

static oct_tensor *triple_hook(oct_context *context, oct_module *module, oct_tensor *value,
                               void *user)
{
    (void)module, (void)user;
    oct_tensor *y = oct_tensor_new(context, value->dtype, value->shape);
    if (!y) return NULL;
    y->q = value->q;
    for (int64_t i = 0; i < oct_numel(y); i++) {
        if (oct_is_codes(y))
            oct_u8(y)[i] = (uint8_t)(3 * oct_u8(value)[i]);
        else
            oct_f32(y)[i] = 3 * oct_f32(value)[i];
    }
    return y;
}

static char names[8][8] = {"pre_a", "a", "pre_b", "b", "pre_g", "g", "pre_n", "n"};

static void log_around(oct_module *m, int i)
{
    MUST(oct_module_pre_hook(m, log_hook, names[2 * i], NULL));
    MUST(oct_module_hook(m, log_hook, names[2 * i + 1], NULL));
}

Test(graph, hooks_see_the_same_quantized_values_in_jit_and_symbolic)
{
    quantize_residual(OCT_METHOD_JIT);
    log_around(model->part[0], 0);
    log_around(model->part[1], 1);
    log_around(oct_module_find(&model->base, "_generated_plus_0"), 2);
    log_around(&model->base, 3);
    const char *around_all = "_generated_quantize_0 a a=2q pre_b=2q b b=6q pre_g=6q "
                             "_generated_plus_0 g=7q c _generated_dequantize_0 n=28 ";
    char wanted[256];
    snprintf(wanted, sizeof wanted, "pre_n=1 forward pre_a=1 %s", around_all);
    check_forward(1, 28, wanted);
    graph->method = OCT_METHOD_SYMBOLIC;
    snprintf(wanted, sizeof wanted, "pre_n=1 pre_a=1 %s", around_all);
    check_forward(1, 28, wanted);
}

Test(graph, what_a_hook_puts_in_place_is_used_further)
{
    quantize_residual(OCT_METHOD_JIT);
    oct_hook_handle handle;
    MUST(oct_module_hook(model->part[1], triple_hook, NULL, &handle));
    check_forward(1, 4 * (18 + 1), "forward " IN_CODES);
    graph->method = OCT_METHOD_SYMBOLIC;
    check_forward(1, 4 * (18 + 1), IN_CODES);
    oct_hook_remove(&handle);
    MUST(oct_module_pre_hook(model->part[1], triple_hook, NULL, NULL));
    check_forward(1, 4 * (18 + 1), IN_CODES);
    graph->method = OCT_METHOD_JIT;
    check_forward(1, 4 * (18 + 1), "forward " IN_CODES);
}

Test(graph, what_a_hook_changes_cannot_be_deployed)
{
    oct_trace trace;
    quantize_residual(OCT_METHOD_JIT);
    MUST(oct_module_hook(model->part[1], triple_hook, NULL, NULL));
    cr_assert_eq(oct_trace_run(&trace, &model->base, OCT_EXAMPLE(OCT_SHAPE(1, 1))), OCT_PREPARE);
    check_said("b: a hook puts a tensor in place of another that no operation of the model has");
}

Test(graph, hooks_of_fused_members_see_the_aliased_value)
{
    fuse_residual(OCT_METHOD_JIT);
    log_around(model->part[0], 0);
    check_forward(1, 40,
                  "forward pre_a=1 a=1 _generated_quantize_0 _generated_plus_0 "
                  "_generated_dequantize_0 c ");
    graph->method = OCT_METHOD_SYMBOLIC;
    check_forward(1, 40,
                  "pre_a=1 a=1 _generated_quantize_0 _generated_plus_0 "
                  "_generated_dequantize_0 c ");
}

/* A container inside of the root: the root calls it and then its part b. */
static oct_tensor *outer(oct_context *context, net *self, oct_tensor *const *x)
{
    return oct_call(context, self->part[1], oct_call(context, self->part[0], x[0]));
}

static net *nested_net(void)
{
    net *self = new_net(outer);
    add_part(self, 0, &float_net(residual, 3)->base);
    add_part(self, 1, new_worker('f', 10));
    return self;
}

static void quantize_nested(oct_prepare_method method)
{
    begin(nested_net(), method, 1);
    const net *inner = (net *)model->part[0];
    quantize_input(0);
    quantize(0, inner->part[0]);
    quantize(1, inner->part[1]);
    quantize(2, generate("plus", 'q', 1));
    quantize(3, inner->part[2]);
    dequantize_output(4);
    touch(4, OCT_NODE_RUN)->wants = OCT_WANTS_FLOAT;
}

Test(graph, symbolic_runs_the_hooks_of_containers)
{
    quantize_nested(OCT_METHOD_JIT);
    cr_assert_eq(graph->num_scopes[0], 2);
    log_around(model->part[0], 3);
    log_around(((net *)model->part[0])->part[2], 1);
    check_forward(1, 280,
                  "forward pre_n=1 forward _generated_quantize_0 a b _generated_plus_0 pre_b=7q c "
                  "b=28q n=28q _generated_dequantize_0 b ");
    graph->method = OCT_METHOD_SYMBOLIC;
    check_forward(1, 280,
                  "pre_n=1 _generated_quantize_0 a b _generated_plus_0 pre_b=7q c b=28q n=28q "
                  "_generated_dequantize_0 b ");
}

Test(graph, a_containers_hook_may_not_change_values_in_symbolic)
{
    quantize_nested(OCT_METHOD_SYMBOLIC);
    MUST(oct_module_hook(model->part[0], triple_hook, NULL, NULL));
    cr_assert_null(try_forward(1));
    cr_assert_eq(oct_context_status(cx), OCT_PREPARE);
    check_said("a: a hook returns another tensor than it was given; in method symbolic");
    graph->method = OCT_METHOD_JIT;
    check_forward(1, 840,
                  "forward forward _generated_quantize_0 a b _generated_plus_0 c "
                  "_generated_dequantize_0 b ");
}

/* Modules that hand their input on: a stub while quantization is off. */

Test(graph, a_module_may_return_its_input)
{
    begin(float_net(residual, 3), OCT_METHOD_JIT, 1);
    for (int i = 0; i < 2; i++) {
        ((worker *)model->part[i])->kind = 'i';
        touch((size_t)i, OCT_NODE_RUN);
    }
    touch(2, OCT_NODE_RUN)->module = generate("plus", 'f', 1);
    check_forward(1, 8, "forward a b _generated_plus_0 c ");
}

static oct_tensor *trained(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *y = oct_call(context, self->part[0], x[0]);
    return oct_add(context, oct_relu(context, y), y);
}

static void gradient_of_input(float *grad)
{
    oct_context_begin(cx, oct_leaves_split(2, 1, 0, 1), true);
    oct_tensor *x = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(2, 1), data);
    x->needs_grad = true;
    oct_tensor *y = oct_call(cx, &model->base, x);
    cr_assert_not_null(y, "%s", oct_error_message(0));
    float *seed = oct_scratch(cx, 2 * sizeof *seed);
    seed[0] = 5, seed[1] = 7;
    oct_add_grad(cx, y, seed);
    MUST(oct_backward(cx, y));
    memcpy(grad, x->grad, 2 * sizeof *grad);
}

Test(graph, gradients_flow_through_what_hands_its_input_on)
{
    float wanted[2], grad[2];
    data[0] = -1;
    begin(float_net(trained, 1), OCT_METHOD_JIT, 1);
    ((worker *)model->part[0])->kind = 'i';
    gradient_of_input(wanted);
    cr_assert_eq(wanted[0], 5);
    cr_assert_eq(wanted[1], 14);
    static const oct_prepare_method methods[] = {OCT_METHOD_JIT, OCT_METHOD_SYMBOLIC};
    touch(0, OCT_NODE_RUN);
    oct_module *relu;
    MUST(oct_relu_create(&relu));
    touch(1, OCT_NODE_RUN)->module = relu;
    MUST(add_generated("relu", &relu));
    oct_module *add;
    MUST(oct_add_create(&add));
    graph->nodes[2].module = add;
    MUST(add_generated("add", &add));
    for (size_t m = 0; m < OCT_COUNT(methods); m++) {
        graph->method = methods[m];
        gradient_of_input(grad);
        oct_check_bits_f32(grad, wanted, 2, "gradient");
    }
}

/* Failures in the middle. */

static oct_tensor *failing_hook(oct_context *context, oct_module *module, oct_tensor *value,
                                void *user)
{
    (void)module, (void)value, (void)user;
    return oct_context_fail(context, OCT_NUMERIC, "not a number");
}

Test(graph, a_forward_that_failed_leaves_nothing_after)
{
    oct_hook_handle handle;
    quantize_residual(OCT_METHOD_JIT);
    MUST(oct_module_hook(model->part[1], failing_hook, NULL, &handle));
    cr_assert_null(try_forward(1));
    cr_assert_str_eq(oct_error_message(0), "b: not a number");
    graph->method = OCT_METHOD_SYMBOLIC;
    cr_assert_null(try_forward(1));
    cr_assert_str_eq(oct_error_message(0), "b: not a number");
    cr_assert_null(graph->run);
    oct_hook_remove(&handle);
    check_forward(1, 28, IN_CODES);
    graph->method = OCT_METHOD_JIT;
    check_forward(1, 28, "forward " IN_CODES);
}

/* A hook that runs the whole model in another context. */
static oct_context *inner_context;

static oct_tensor *reentering_hook(oct_context *context, oct_module *module, oct_tensor *value,
                                   void *user)
{
    (void)context, (void)value;
    oct_hook_remove(user);
    oct_context_begin(inner_context, oct_leaves_split(2, 1, 0, 1), false);
    oct_tensor *x = oct_tensor_view(inner_context, OCT_F32, OCT_SHAPE(2, 1), other_data);
    const oct_tensor *y = oct_call(inner_context, module->parent, x);
    cr_assert_not_null(y, "%s", oct_error_message(0));
    cr_assert_eq(oct_f32(y)[0], 28);
    return NULL;
}

Test(graph, a_forward_may_run_while_another_one_does)
{
    oct_hook_handle handle;
    quantize_residual(OCT_METHOD_JIT);
    other_data[0] = 1;
    MUST(oct_context_create(&inner_context, &oct_collective_one));
    MUST(oct_module_hook(model->part[1], reentering_hook, &handle, &handle));
    const oct_tensor *y = try_forward(1);
    cr_assert_not_null(y, "%s", oct_error_message(0));
    cr_assert_eq(oct_f32(y)[0], 28);
    oct_context_destroy(&inner_context);
}

/* Quantizers. */

static oct_module *new_stub(void)
{
    oct_module *stub;
    MUST(oct_quant_stub_create(&stub));
    return stub;
}

static oct_fake_quant *adopt_new(oct_module *stub)
{
    oct_fake_quant *fq, *kept;
    const oct_qconfig qconfig = oct_qconfig_default();
    MUST(oct_fake_quant_create(&fq, &qconfig, oct_target_find("x86"), true));
    kept = fq;
    MUST(oct_quantized_adopt(stub, &fq));
    return kept;
}

static oct_tensor *three_stubs(oct_context *context, net *self, oct_tensor *const *x)
{
    oct_tensor *a = oct_call(context, self->part[0], x[0]);
    oct_tensor *b = oct_call(context, self->part[1], x[1]);
    return plus(context, oct_call(context, self->part[2], a), b, 0);
}

/* a and b quantize the inputs with one quantizer, c keeps a's scale, the sum has one of its own. */
static oct_fake_quant *begin_stubs(void)
{
    net *self = new_net(three_stubs);
    add_part(self, 0, new_stub());
    add_part(self, 1, new_stub());
    add_part(self, 2, new_worker('f', 1));
    begin(self, OCT_METHOD_JIT, 2);
    oct_fake_quant *fq = adopt_new(self->part[0]);
    oct_quantized_borrow(self->part[1], fq);
    for (size_t i = 0; i < 3; i++) {
        int64_t made = touch(i, OCT_NODE_RUN)->output;
        graph->values[made].codes = true;
        graph->values[made].fq = fq;
    }
    oct_graph_node *sum = touch(3, OCT_NODE_RUN);
    sum->module = new_stub();
    oct_fake_quant *own = adopt_new(sum->module);
    graph->values[sum->output].codes = true;
    graph->values[sum->output].fq = own;
    oct_module *generated = sum->module;
    MUST(add_generated("plus", &generated));
    return fq;
}

static void check_unproved(const char *text)
{
    oct_tensor_quantizer *list;
    size_t count;
    cr_assert_eq(oct_graph_quantizers(graph, &list, &count), OCT_DEFECT);
    cr_assert_str_eq(oct_error_message(0), text);
    cr_assert_null(list);
}

Test(graph, every_tensor_has_one_quantizer)
{
    const oct_fake_quant *fq = begin_stubs();
    oct_tensor_quantizer *list;
    size_t count;
    MUST(oct_graph_quantizers(graph, &list, &count));
    static const char *const paths[] = {"a", "b", "c", ""};
    cr_assert_eq(count, 4);
    for (size_t i = 0; i < count; i++) {
        bool of_sum = strcmp(list[i].path, "") == 0;
        bool known = false;
        for (size_t k = 0; k < OCT_COUNT(paths); k++)
            known |= strcmp(list[i].path, paths[k]) == 0;
        cr_assert(known);
        cr_assert_eq(list[i].fq == fq, !of_sum);
        cr_assert_eq(list[i].shared, !of_sum);
    }
    oct_free(&list);
}

Test(graph, an_input_may_be_quantized_by_a_generated_stub)
{
    begin_stubs();
    oct_module *stub = new_stub(), *kept = stub;
    graph->values[1].fq = adopt_new(stub);
    graph->values[1].quantize = stub;
    MUST(add_generated("quant_stub", &stub));
    cr_assert_eq(graph->values[1].quantize, kept);
    oct_tensor_quantizer *list;
    size_t count;
    MUST(oct_graph_quantizers(graph, &list, &count));
    cr_assert_eq(count, 5);
    cr_assert_str_eq(list[0].path, "input_1");
    cr_assert_not(list[0].shared);
    oct_free(&list);
}

Test(graph, a_tensor_with_two_quantizers_is_a_defect)
{
    oct_fake_quant *fq = begin_stubs();
    int64_t made = graph->nodes[0].output;
    oct_module *stub = new_stub();
    adopt_new(stub);
    graph->values[made].quantize = stub;
    check_unproved("the output of \"a\" is quantized twice");
    graph->values[made].quantize = NULL;
    oct_module_destroy(&stub);
    graph->values[made].fq = graph->values[graph->output[0]].fq;
    check_unproved("the output of \"a\" has another quantizer than the one that makes its codes");
    graph->values[made].fq = fq;
    graph->values[graph->nodes[2].output].fq = NULL;
    check_unproved("the output of \"c\" has another quantizer than the one that makes its codes");
}

Test(graph, a_quantizer_without_a_tensor_is_a_defect)
{
    begin_stubs();
    oct_module *stub = new_stub();
    adopt_new(stub);
    MUST(add_generated("quant_stub", &stub));
    check_unproved("the quantizer \"_generated_quant_stub_0.fake_quant\" belongs to no tensor");
}

/* The table. */

static void check_table(const char *wanted)
{
    oct_text text = {0};
    MUST(oct_graph_table(graph, &text));
    cr_assert_str_eq(text.data, wanted);
    oct_text_free(&text);
}

Test(graph, the_table_shows_the_graph_as_recorded)
{
    begin(nested_net(), OCT_METHOD_JIT, 1);
    check_table("opcode         name         target     args\n"
                "-------------  -----------  ---------  -----------------\n"
                "placeholder    input_0      input_0    ()\n"
                "call_module    a_a          a.a        (input_0,)\n"
                "call_module    a_b          a.b        (a_a,)\n"
                "call_function  plus         plus       (a_b, input_0, 0)\n"
                "call_module    a_c          a.c        (plus,)\n"
                "call_function  scope_end    scope_end  ('a',)\n"
                "call_module    b            b          (a_c,)\n"
                "call_function  scope_end_1  scope_end  ('',)\n"
                "output         output       output     (b,)\n");
}

Test(graph, the_table_shows_generated_modules_and_conversions)
{
    quantize_residual(OCT_METHOD_JIT);
    check_table(
        "opcode         name                     target                   args\n"
        "-------------  -----------------------  -----------------------  "
        "--------------------------------\n"
        "placeholder    input_0                  input_0                  ()\n"
        "get_attr       _generated_quantize_0    _generated_quantize_0    ()\n"
        "call_method    worker                   worker                   "
        "(_generated_quantize_0, input_0)\n"
        "call_module    a                        a                        (worker,)\n"
        "call_module    b                        b                        (a,)\n"
        "get_attr       _generated_plus_0        _generated_plus_0        ()\n"
        "call_method    plus                     plus                     (_generated_plus_0, b, "
        "worker)\n"
        "call_module    c                        c                        (plus,)\n"
        "call_function  scope_end                scope_end                ('',)\n"
        "get_attr       _generated_dequantize_0  _generated_dequantize_0  ()\n"
        "call_method    worker_1                 worker                   "
        "(_generated_dequantize_0, c)\n"
        "output         output                   output                   (worker_1,)\n");
}

Test(graph, the_table_ends_blocks_and_survives_any_allocation)
{
    quantize_blocks(2);
    check_table("opcode         name                     target                   args\n"
                "-------------  -----------------------  -----------------------  "
                "-------------------------------------\n"
                "placeholder    input_0                  input_0                  ()\n"
                "placeholder    input_1                  input_1                  ()\n"
                "call_module    a                        a                        (input_0,)\n"
                "call_module    b                        b                        (a,)\n"
                "get_attr       _generated_quantize_0    _generated_quantize_0    ()\n"
                "call_method    worker                   worker                   "
                "(_generated_quantize_0, input_0)\n"
                "get_attr       _generated_quantize_1    _generated_quantize_1    ()\n"
                "call_method    worker_1                 worker                   "
                "(_generated_quantize_1, input_1)\n"
                "get_attr       _generated_plus_0        _generated_plus_0        ()\n"
                "call_method    plus                     plus                     "
                "(_generated_plus_0, worker, worker_1)\n"
                "call_function  scope_end                scope_end                "
                "('_dynamic_block_step',)\n"
                "call_module    c                        c                        (plus,)\n"
                "call_function  scope_end_1              scope_end                ('',)\n"
                "get_attr       _generated_dequantize_0  _generated_dequantize_0  ()\n"
                "call_method    worker_2                 worker                   "
                "(_generated_dequantize_0, c)\n"
                "output         output                   output                   (worker_2,)\n");
    size_t live = oct_mem_live();
    oct_status status = OCT_RESOURCE;
    for (int64_t n = 1; status != OCT_OK; n++) {
        oct_text text = {0};
        oct_mem_fail_after(n);
        status = oct_graph_table(graph, &text);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
        oct_text_free(&text);
        cr_assert_eq(oct_mem_live(), live);
    }
}
