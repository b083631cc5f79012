/* Networks inside of a network: functions are expanded where they are called, branches of an If where the condition
 * is known, loops round by round; the size that an untrusted file can reach is bounded. The values are checked by the
 * cases of tests/golden/make_onnx_torch2.py. */
#include "io/onnx/fold.h"
#include "tests/io/onnx_model.h"
#include "tests/support/check_status.h"

TestSuite(onnx_nested, .timeout = 60);

enum { GRAPH_NODE = 1, FUNCTION_NODE = 7 };

/* A node of a function (or, with GRAPH_NODE, of a branch); "lib" is the domain of functions. */
static oct_proto plain_node(const char *type, const char *inputs, const char *outputs)
{
    oct_proto n = {0};
    onnx_words(&n, 1, inputs);
    onnx_words(&n, 2, outputs);
    oct_proto_text(&n, 4, type);
    if (type[0] >= 'a') oct_proto_text(&n, 7, "lib"); /* functions here are in small letters */
    return n;
}

static void add_node(oct_proto *to, int field, const char *type, const char *inputs,
                     const char *outputs)
{
    oct_proto n = plain_node(type, inputs, outputs);
    oct_proto_message(to, field, &n);
}

static oct_proto function(const char *name, const char *inputs, const char *outputs)
{
    oct_proto f = {0};
    oct_proto_text(&f, 1, name);
    onnx_words(&f, 4, inputs);
    onnx_words(&f, 5, outputs);
    oct_proto_text(&f, 10, "lib");
    return f;
}

static void add_function(onnx_model *m, oct_proto f)
{
    oct_proto_message(&m->more, 25, &f);
}

/* The model's node that calls it. */
static void call(onnx_model *m, const char *name, const char *inputs, const char *outputs)
{
    onnx_node(m, name, inputs, outputs);
    oct_proto_text(&m->node, 7, "lib");
}

static void add_ports(onnx_model *m)
{
    onnx_in(m, "x", -1, 3, 8, 8);
    onnx_out(m, "y");
}

static oct_status read_model(oct_onnx_graph *g, onnx_model *m)
{
    oct_proto file = onnx_file(m);
    const oct_onnx_source source = {file.data, file.length, "net.onnx"};
    const oct_status status = oct_onnx_read_bytes(g, &source);
    oct_proto_free(&file);
    return status;
}

static void check_refused(onnx_model *m, const char *why)
{
    oct_onnx_graph g;
    oct_status status = read_model(&g, m);
    if (status == OCT_OK) {
        status = oct_onnx_fold(&g, 8, 8, 3);
        oct_onnx_free(&g);
    }
    cr_assert_eq(status, OCT_DATA, "%s", why);
    check_said("net.onnx: ");
    check_said(why);
    check_nothing_held();
}

/* The nodes that are left, in their order. */
static void check_nodes(onnx_model *m, const char *wanted)
{
    oct_onnx_graph g;
    char text[256] = "";
    MUST(read_model(&g, m));
    MUST(oct_onnx_fold(&g, 8, 8, 3));
    for (int64_t i = 0; i < g.num_nodes; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "", g.nodes[i].type);
    }
    cr_assert_str_eq(text, wanted);
    oct_onnx_free(&g);
    check_nothing_held();
}

Test(onnx_nested, functions_call_functions)
{
    onnx_model m = {0};
    add_ports(&m);
    oct_proto inner = function("inner", "a", "b"), outer = function("outer", "a missing", "c d");
    add_node(&inner, FUNCTION_NODE, "Relu", "a", "b");
    add_node(&outer, FUNCTION_NODE, "inner", "a", "r");
    add_node(&outer, FUNCTION_NODE, "Neg", "r", "c");
    add_node(&outer, FUNCTION_NODE, "Clip", "r missing", "d");
    add_function(&m, inner);
    add_function(&m, outer);
    call(&m, "outer", "x", "u v");
    call(&m, "outer", "v", "y");
    check_nodes(&m, "Relu Clip Relu Neg");
}

/* A function "leak" whose LeakyRelu has its alpha from the attribute `wanted` of a call. */
static oct_proto leak(const char *wanted)
{
    oct_proto f = function("leak", "a", "b"), n = plain_node("LeakyRelu", "a", "b"), a = {0};
    oct_proto_text(&a, 1, "alpha");
    oct_proto_text(&a, 21, wanted);
    oct_proto_integer(&a, 20, 1);
    oct_proto_message(&n, 5, &a);
    oct_proto_message(&f, FUNCTION_NODE, &n);
    return f;
}

/* "slope" has a default; a call may leave "other" out, and then the operator has its own. */
static void declare_slope(oct_proto *f, bool with_value)
{
    oct_proto a = {0};
    oct_proto_text(&a, 1, "slope");
    if (with_value) oct_proto_float(&a, 2, 0.5f);
    if (with_value) oct_proto_integer(&a, 20, 1);
    oct_proto_message(f, 11, &a);
    oct_proto_text(f, 6, "other");
}

/* Alpha of node i as the reader hands it on; -1: it has none. */
static float alpha_of(const oct_onnx_graph *g, int i)
{
    cr_assert_str_eq(g->nodes[i].type, "LeakyRelu");
    if (g->nodes[i].num_attributes == 0) return -1;
    cr_assert_eq(g->nodes[i].attributes[0].kind, OCT_ONNX_FLOAT);
    return g->nodes[i].attributes[0].f;
}

/* The rules of the format for FunctionProto.attribute and attribute_proto. */
Test(onnx_nested, attributes_of_functions_have_the_value_of_the_call_or_their_default)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    add_ports(&m);
    oct_proto f = leak("slope"), other = leak("other");
    declare_slope(&f, true);
    declare_slope(&other, true);
    oct_proto_text(&other, 13, "second"); /* an overload of the same name */
    add_function(&m, f);
    add_function(&m, other);
    call(&m, "leak", "x", "u");
    call(&m, "leak", "u", "v");
    onnx_float(&m, "slope", 0.25f);
    call(&m, "leak", "v", "w");
    oct_proto_text(&m.node, 8, "second");
    call(&m, "leak", "w", "y");
    oct_proto_text(&m.node, 8, "second");
    onnx_float(&m, "other", 0.125f);
    MUST(read_model(&g, &m));
    cr_assert_eq(alpha_of(&g, 0), 0.5f);
    cr_assert_eq(alpha_of(&g, 2), 0.25f);
    cr_assert_eq(alpha_of(&g, 4), -1);
    cr_assert_eq(alpha_of(&g, 6), 0.125f);
    oct_onnx_free(&g);
    check_nothing_held();
}

Test(onnx_nested, attributes_of_functions_without_a_value_are_refused)
{
    for (int i = 0; i < 2; i++) {
        onnx_model m = {0};
        add_ports(&m);
        oct_proto f = leak(i == 0 ? "slope" : "unknown");
        declare_slope(&f, i == 1);
        add_function(&m, f);
        call(&m, "leak", "x", "y");
        check_refused(&m, i == 0 ? "wants the attribute 'slope' of the function that it is in"
                                 : "wants the attribute 'unknown' of the function that it is in");
    }
}

Test(onnx_nested, functions_that_cannot_be_written_out)
{
    onnx_model m = {0};
    add_ports(&m);
    oct_proto f = function("again", "a", "b");
    add_node(&f, FUNCTION_NODE, "again", "a", "b");
    add_function(&m, f);
    call(&m, "again", "x", "y");
    check_refused(&m, "call each other more than 32 deep");

    m = (onnx_model){0};
    add_ports(&m);
    add_function(&m, function("f", "a", "b"));
    add_function(&m, function("f", "a", "b"));
    call(&m, "f", "x", "y");
    check_refused(&m, "has two functions 'f'");

    m = (onnx_model){0};
    add_ports(&m);
    add_function(&m, function("f", "a", "b"));
    call(&m, "f", "x", "y");
    check_refused(&m, "the result 'b' is made by nothing");

    m = (onnx_model){0};
    add_ports(&m);
    add_function(&m, function("f", "a", "b"));
    call(&m, "f", "x x", "y");
    check_refused(&m, "have different inputs or outputs");

    m = (onnx_model){0};
    add_ports(&m);
    f = function("f", "a", "b");
    oct_proto set = {0};
    oct_proto_text(&set, 1, "");
    oct_proto_integer(&set, 2, 20);
    oct_proto_message(&f, 9, &set);
    add_function(&m, f);
    call(&m, "f", "x", "y");
    check_refused(&m, "'f' is written for opset 20 and the network for 13");

    m = (onnx_model){0};
    add_ports(&m);
    f = function("f", "a", "b");
    add_node(&f, FUNCTION_NODE, "Relu", "y",
             "b"); /* a value of the network, which a function does not see */
    add_function(&m, f);
    onnx_node(&m, "Relu", "x", "z");
    call(&m, "f", "z", "y");
    check_refused(&m, "wants 'y', which nothing makes");
}

/* Each calls the one before it twice: 2^30 nodes from a small file. */
Test(onnx_nested, functions_that_double_are_bounded)
{
    onnx_model m = {0};
    char name[8] = "f0", before[8];
    add_ports(&m);
    oct_proto f = function(name, "a", "b");
    add_node(&f, FUNCTION_NODE, "Relu", "a", "b");
    add_function(&m, f);
    for (int i = 1; i <= 30; i++) {
        memcpy(before, name, sizeof before);
        snprintf(name, sizeof name, "f%d", i);
        f = function(name, "a", "b");
        add_node(&f, FUNCTION_NODE, before, "a", "c");
        add_node(&f, FUNCTION_NODE, before, "c", "b");
        add_function(&m, f);
    }
    call(&m, name, "x", "y");
    check_refused(&m, "grows too large when its functions and loops are written out");
}

/* A graph with one node, as the attribute of the model's last node. */
static void add_graph(onnx_model *m, const char *attribute, oct_proto graph)
{
    oct_proto a = {0};
    oct_proto_text(&a, 1, attribute);
    oct_proto_message(&a, 6, &graph);
    oct_proto_integer(&a, 20, 5);
    oct_proto_message(&m->node, 5, &a);
}

static void add_port(oct_proto *graph, int field, const char *name)
{
    oct_proto port = {0};
    oct_proto_text(&port, 1, name);
    oct_proto_message(graph, field, &port);
}

static oct_proto branch(const char *type, const char *result)
{
    oct_proto graph = {0};
    add_node(&graph, GRAPH_NODE, type, "x", result);
    add_port(&graph, 12, result);
    return graph;
}

static void add_truth(onnx_model *m, const char *name, uint8_t value)
{
    const int64_t one[] = {1};
    onnx_initializer(m, onnx_tensor(name, ONNX_BOOL, one, 0, &value, 1));
}

static void add_if(onnx_model *m, const char *condition, const char *other)
{
    onnx_node(m, "If", condition, "y");
    add_graph(m, "then_branch", branch("Relu", "a"));
    add_graph(m, "else_branch", branch(other, "b"));
}

Test(onnx_nested, a_branch_counts_where_the_condition_is_known)
{
    onnx_model m = {0};
    add_ports(&m);
    add_truth(&m, "c", 1);
    add_if(&m, "c", "NonZero"); /* whatever the other one is */
    check_nodes(&m, "Relu");

    m = (onnx_model){0};
    add_ports(&m);
    add_truth(&m, "c", 1);
    onnx_node(&m, "Not", "c", "d");
    add_if(&m, "d", "Neg");
    check_nodes(&m, "Neg");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_longs(&m, "all", -1);
    onnx_node(&m, "ReduceMax", "x", "most");
    onnx_int(&m, "keepdims", 0);
    onnx_node(&m, "Cast", "most", "d");
    onnx_int(&m, "to", 9);
    add_if(&m, "d", "Neg");
    check_refused(&m, "whether it runs one network or the other is computed from images");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_node(&m, "If", "x", "y");
    add_graph(&m, "then_branch", branch("Relu", "a"));
    check_refused(&m, "have different inputs or outputs");
}

static oct_proto loop_body(bool ends)
{
    oct_proto body = {0};
    add_node(&body, GRAPH_NODE, ends ? "Not" : "Identity", "go", "on");
    add_node(&body, GRAPH_NODE, "Relu", "v", "w");
    add_port(&body, 11, "i");
    add_port(&body, 11, "go");
    add_port(&body, 11, "v");
    add_port(&body, 12, "on");
    add_port(&body, 12, "w");
    return body;
}

static void add_loop(onnx_model *m, const char *inputs, bool ends)
{
    onnx_longs(m, "three", 3);
    onnx_longs(m, "huge", (int64_t)1 << 40);
    onnx_node(m, "Loop", inputs, "y");
    add_graph(m, "body", loop_body(ends));
}

Test(onnx_nested, a_loop_of_known_length_is_written_out)
{
    onnx_model m = {0};
    add_ports(&m);
    add_loop(&m, "three - x", false);
    check_nodes(&m, "Relu Relu Relu");

    static const char *const inputs[] = {"three - x", "huge - x", "- - x"};
    for (size_t i = 0; i < OCT_COUNT(inputs); i++) {
        m = (onnx_model){0};
        add_ports(&m);
        add_loop(&m, inputs[i], i == 0);
        check_refused(&m, "it holds a network of its own that cannot be written out");
    }
}
