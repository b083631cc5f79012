/* What becomes of constants that are no parameters, and of the last layer for other classes. */
#include "core/nn/modules.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"
#include "tests/io/onnx_model.h"
#include "tests/support/check_status.h"

TestSuite(onnx_build, .timeout = 60);

typedef struct built {
    oct_module *network;
    oct_onnx_graph graph;
    oct_onnx_built of;
} built;

static built build(onnx_model *m, int64_t h, int64_t w, int64_t c)
{
    built b = {0};
    const oct_onnx_build_options options = {.h = h, .w = w, .c = c};
    oct_proto file = onnx_file(m);
    const oct_onnx_source source = {file.data, file.length, "net.onnx"};
    MUST(oct_onnx_read_bytes(&b.graph, &source));
    oct_proto_free(&file);
    MUST(oct_onnx_fold(&b.graph, h, w, c));
    MUST(oct_onnx_build(&b.network, &b.graph, &options, &b.of));
    return b;
}

static void end(built *b)
{
    oct_module_destroy(&b->network);
    oct_onnx_free(&b->graph);
    check_nothing_held();
}

/* "path.name ..." of what training leaves as it is, or of all others. */
static void check_params(const built *b, bool frozen, const char *wanted)
{
    char text[512] = "";
    for (int32_t value = 1; oct_network_module(b->network, value); value++) {
        const oct_module *m = oct_network_module(b->network, value);
        for (size_t i = 0; i < m->num_params; i++) {
            if (m->params[i]->frozen != frozen) continue;
            const size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%s.%s", used ? " " : "",
                     oct_module_path(m).text, m->params[i]->name);
        }
        if (value == b->of.last) break;
    }
    cr_assert_str_eq(text, wanted);
}

static void add_ports(onnx_model *m)
{
    onnx_in(m, "x", -1, 3, 4, 4);
    onnx_out(m, "y");
}

/* A Constant node with real numbers 0.5, 1.5 ... of a shape. */
static void constant(onnx_model *m, const char *name, const int64_t *dims, size_t ndim)
{
    float values[64];
    int64_t n = 1;
    for (size_t i = 0; i < ndim; i++)
        n *= dims[i];
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)i + 0.5F;
    oct_proto t = onnx_tensor("", ONNX_FLOAT, dims, ndim, values, (size_t)n * sizeof *values);
    oct_proto a = {0};
    onnx_node(m, "Constant", "", name);
    oct_proto_text(&a, 1, "value");
    oct_proto_message(&a, 5, &t);
    oct_proto_integer(&a, 20, 4);
    oct_proto_message(&m->node, 5, &a);
}

/* Which row is taken must be known: an embedding is refused by the node, its input and what to do. */
Test(onnx_build, an_embedding_is_refused_by_its_input)
{
    static const int64_t table[] = {5, 4};
    onnx_model m = {0};
    oct_onnx_graph g;
    oct_onnx_built of;
    oct_module *network = NULL;
    onnx_in(&m, "x", -1, 3, 1, 1);
    onnx_out(&m, "y");
    constant(&m, "rows", table, 2);
    onnx_node(&m, "Gather", "rows x", "y");
    oct_proto file = onnx_file(&m);
    const oct_onnx_source source = {file.data, file.length, "net.onnx"};
    MUST(oct_onnx_read_bytes(&g, &source));
    MUST(oct_onnx_fold(&g, 1, 1, 3));
    const oct_onnx_build_options options = {.h = 1, .w = 1, .c = 3};
    cr_assert_eq(oct_onnx_build(&network, &g, &options, &of), OCT_PREPARE);
    bool found = false;
    for (size_t i = 0; i < oct_error_count(); i++)
        found |=
            strstr(oct_error_message(i), "Gather: its second input, the indices, is computed by "
                                         "the network, so that it is an embedding") != NULL;
    cr_assert(found, "%s", oct_error_message(0));
    oct_onnx_free(&g);
    oct_proto_free(&file);
    check_nothing_held();
}

/* The number of samples is no constant, though its shape arithmetic is. */
Test(onnx_build, an_exponent_that_is_the_batch_is_refused)
{
    static const oct_onnx_build_options options = {.h = 1, .w = 1, .c = 3};
    onnx_model m = {0};
    oct_onnx_graph g;
    oct_onnx_built of;
    oct_module *network = NULL;
    onnx_in(&m, "x", -1, 3);
    onnx_out(&m, "y");
    onnx_longs(&m, "zero", 0);
    onnx_node(&m, "Shape", "x", "s");
    onnx_node(&m, "Gather", "s zero", "n");
    onnx_node(&m, "Pow", "x n", "y");
    oct_proto file = onnx_file(&m);
    const oct_onnx_source source = {file.data, file.length, "net.onnx"};
    MUST(oct_onnx_read_bytes(&g, &source));
    MUST(oct_onnx_fold(&g, 1, 1, 3));
    cr_assert_eq(oct_onnx_build(&network, &g, &options, &of), OCT_PREPARE);
    check_said("its exponent is not one number");
    oct_onnx_free(&g);
    oct_proto_free(&file);
    check_nothing_held();
}

/* What ONNX says, its reference and ONNX Runtime make three different averages of it. */
Test(onnx_build, an_average_with_dilations_and_auto_pad_is_refused)
{
    static const oct_onnx_build_options options = {.h = 7, .w = 6, .c = 3};
    onnx_model m = {.opset = 19};
    oct_onnx_graph g;
    oct_onnx_built of;
    oct_module *network = NULL;
    onnx_in(&m, "x", -1, 3, 7, 6);
    onnx_out(&m, "y");
    onnx_node(&m, "AveragePool", "x", "y");
    onnx_ints(&m, "kernel_shape", 2, 2);
    onnx_ints(&m, "dilations", 2, 2);
    onnx_int(&m, "count_include_pad", 1);
    onnx_text(&m, "auto_pad", "SAME_UPPER");
    oct_proto file = onnx_file(&m);
    const oct_onnx_source source = {file.data, file.length, "net.onnx"};
    MUST(oct_onnx_read_bytes(&g, &source));
    MUST(oct_onnx_fold(&g, 7, 6, 3));
    cr_assert_eq(oct_onnx_build(&network, &g, &options, &of), OCT_PREPARE);
    check_said("it has dilations and auto_pad, where runtimes differ; export it with pads");
    oct_onnx_free(&g);
    oct_proto_free(&file);
    check_nothing_held();
}

/* A view has at most 16 atoms: the batch and 15 factors of 2, none beside its neighbour in memory, leave none for outputs. */
Test(onnx_build, a_linear_layer_after_too_many_rearrangements_is_refused)
{
    static const oct_onnx_build_options options = {.h = 256, .w = 128, .c = 1};
    onnx_model m = {0};
    oct_onnx_graph g;
    oct_onnx_built of;
    oct_module *network = NULL;
    onnx_in(&m, "x", -1, 1, 256, 128);
    onnx_out(&m, "y");
    onnx_longs(&m, "twos", 0, 2, 2, 2, 2, 2, 2, 512);
    onnx_longs(&m, "last", 0, 2, 2, 2, 4096);
    onnx_longs(&m, "rows", -1, 1);
    onnx_weights(&m, "w", 1, 4);
    onnx_node(&m, "Reshape", "x twos", "a");
    onnx_node(&m, "Transpose", "a", "b");
    onnx_ints(&m, "perm", 0, 7, 6, 5, 4, 3, 2, 1);
    onnx_node(&m, "Reshape", "b twos", "c");
    onnx_node(&m, "Transpose", "c", "d");
    onnx_ints(&m, "perm", 0, 7, 6, 5, 4, 3, 2, 1);
    onnx_node(&m, "Reshape", "d last", "e");
    onnx_node(&m, "Transpose", "e", "f");
    onnx_ints(&m, "perm", 0, 3, 2, 1, 4);
    onnx_node(&m, "Reshape", "f rows", "g");
    onnx_node(&m, "MatMul", "g w", "y");
    oct_proto file = onnx_file(&m);
    const oct_onnx_source source = {file.data, file.length, "net.onnx"};
    MUST(oct_onnx_read_bytes(&g, &source));
    MUST(oct_onnx_fold(&g, 256, 128, 1));
    cr_assert_eq(oct_onnx_build(&network, &g, &options, &of), OCT_PREPARE);
    check_said("MatMul: its input is too much rearranged; write it in steps");
    oct_onnx_free(&g);
    oct_proto_free(&file);
    check_nothing_held();
}

Test(onnx_build, normalization_of_images_stays_as_it_is)
{
    onnx_model m = {0};
    add_ports(&m);
    onnx_weights(&m, "mean", 1, 3, 1, 1);
    onnx_weights(&m, "std", 3, 1, 1);
    onnx_weights(&m, "conv.weight", 3, 3, 1, 1);
    onnx_weights(&m, "scale", 3, 1, 1);
    onnx_node(&m, "Sub", "x mean", "a");
    onnx_node(&m, "Div", "a std", "b");
    onnx_node(&m, "Conv", "b conv.weight", "c");
    onnx_node(&m, "Mul", "c scale", "y");
    built b = build(&m, 4, 4, 3);
    check_params(&b, true, "a.weight a.bias b.weight");
    check_params(&b, false, "conv.weight y.weight");
    end(&b);
}

Test(onnx_build, constants_that_no_parameter_makes_stay_as_they_are)
{
    onnx_model m = {0};
    add_ports(&m);
    onnx_weights(&m, "conv.weight", 3, 3, 1, 1);
    onnx_weights(&m, "log_scale", 3, 1, 1);
    constant(&m, "shift", ONNX_LIST(3, 1, 1));
    constant(&m, "place", ONNX_LIST(1, 3, 4, 4));
    constant(&m, "blur", ONNX_LIST(3, 1, 2, 2));
    onnx_node(&m, "Conv", "x conv.weight", "c");
    onnx_node(&m, "Exp", "log_scale", "scale"); /* folded, and learned in its place */
    onnx_node(&m, "Mul", "c scale", "s");
    onnx_node(&m, "Relu", "s", "r");
    onnx_node(&m, "Add", "r shift", "t");
    onnx_node(&m, "Relu", "t", "u");
    onnx_node(&m, "Add", "u place", "p");
    onnx_node(&m, "Conv", "p blur", "y");
    onnx_int(&m, "group", 3);
    built b = build(&m, 4, 4, 3);
    check_params(&b, true, "t.weight t.bias p.weight y.weight");
    check_params(&b, false, "conv.weight s.weight");
    end(&b);
}

Test(onnx_build, constants_are_the_parameters_of_a_file_that_has_no_others)
{
    onnx_model m = {0};
    add_ports(&m);
    constant(&m, "weight", ONNX_LIST(3, 3, 1, 1));
    onnx_node(&m, "Conv", "x weight", "y");
    built b = build(&m, 4, 4, 3);
    check_params(&b, true, "");
    check_params(&b, false, "y.weight");
    end(&b);
}

/* What an exporter wrote twice is called twice; what shares a matrix alone is not, nor is what scales it. */
Test(onnx_build, layers_are_one_only_where_all_of_them_is)
{
    onnx_model m = {0};
    onnx_in(&m, "x", -1, 1, 1, 4);
    onnx_out(&m, "y");
    onnx_weights(&m, "w", 4, 4);
    onnx_weights(&m, "b", 4);
    onnx_weights(&m, "c", 4);
    onnx_node(&m, "Flatten", "x", "f");
    onnx_node(&m, "Gemm", "f w b", "g1");
    onnx_node(&m, "Gemm", "g1 w b", "g2");
    onnx_node(&m, "Gemm", "g2 w c", "g3");
    onnx_node(&m, "Gemm", "g3 w b", "y");
    onnx_float(&m, "alpha", 0.5F);
    built b = build(&m, 1, 4, 1);
    const oct_param *weight[5] = {0};
    for (int32_t value = 1; value < 5; value++)
        weight[value] = oct_network_module(b.network, value + 1)->params[0];
    cr_assert(weight[1] == weight[2] && weight[3] != weight[2] && weight[4] != weight[3]);
    cr_assert(weight[3]->tie && weight[3]->tie->first == weight[1] && !weight[4]->tie);
    cr_assert_eq(oct_f32(&weight[4]->value)[3], 0.5F * oct_f32(&weight[1]->value)[3]);
    cr_assert(strstr(oct_network_notes(b.network), "its parameter w is used in different ways"));
    end(&b);
}

/* Layer norm written as single nodes over the last `count` dimensions, and a factor of a shape. */
static void add_layer_norm(onnx_model *m, int count)
{
    static const int64_t axes[] = {-2, -1};
    onnx_node(m, "ReduceMean", "x", "mean");
    onnx_ints_of(m, "axes", axes + 2 - count, (size_t)count);
    onnx_node(m, "Sub", "x mean", "d");
    onnx_node(m, "Mul", "d d", "square");
    onnx_node(m, "ReduceMean", "square", "variance");
    onnx_ints_of(m, "axes", axes + 2 - count, (size_t)count);
    onnx_node(m, "Add", "variance eps", "v");
    onnx_node(m, "Sqrt", "v", "std");
    onnx_node(m, "Div", "d std", "n");
    onnx_node(m, "Mul", "n factor", "y");
}

static void check_layer_norm(int count, int64_t rows, int64_t columns, const char *wanted)
{
    char types[256] = "";
    onnx_model m = {0};
    const int64_t dims[] = {rows, columns};
    onnx_in(&m, "x", -1, 4, 2, 2);
    onnx_out(&m, "y");
    onnx_weights_of(&m, "eps", NULL, 0);
    onnx_weights_of(&m, "factor", dims, 2);
    add_layer_norm(&m, count);
    built b = build(&m, 2, 2, 4);
    for (int32_t value = 1; value <= b.of.last; value++) {
        const size_t used = strlen(types);
        snprintf(types + used, sizeof types - used, "%s ",
                 oct_network_module(b.network, value)->type->name);
    }
    cr_assert_str_eq(types, wanted);
    end(&b);
}

/* A factor is the norm's own where it has one number for each of the values that are normalized together. */
Test(onnx_build, a_factor_of_other_dimensions_is_no_part_of_a_layer_norm)
{
    check_layer_norm(1, 1, 2, "move layer_norm move ");
    check_layer_norm(1, 2, 1, "move layer_norm reshape mul_parameter move ");
    check_layer_norm(2, 2, 2, "move layer_norm move ");
}

/* A convolution, a bias and a factor apart, a pool, and a shape given back. */
static void add_head(onnx_model *m)
{
    add_ports(m);
    onnx_weights(m, "conv.weight", 5, 3, 1, 1);
    onnx_weights(m, "bias", 5, 1, 1);
    onnx_weights(m, "fc.bias", 1, 5);
    onnx_longs(m, "shape", -1, 5);
    onnx_node(m, "Conv", "x conv.weight", "c");
    onnx_node(m, "Add", "c bias", "b");
    onnx_node(m, "Relu", "b", "r");
    onnx_node(m, "GlobalAveragePool", "r", "g");
    onnx_node(m, "Reshape", "g shape", "f");
    onnx_node(m, "Add", "f fc.bias", "a");
    onnx_node(m, "Softmax", "a", "y");
}

Test(onnx_build, a_new_head_takes_along_what_follows_it)
{
    onnx_model m = {0};
    add_head(&m);
    built b = build(&m, 4, 4, 3);
    MUST(oct_onnx_new_head(b.network, &b.of, 7, 1));
    cr_assert_eq(b.of.output.dim[1], 7);
    for (int32_t value = 1; value <= b.of.last; value++) {
        const oct_module *module = oct_network_module(b.network, value);
        for (size_t i = 0; i < module->num_params; i++) {
            const oct_tensor *p = &module->params[i]->value;
            cr_assert(
                oct_dim(p, strcmp(module->type->name, "conv2d") == 0 ? 0 : p->shape.ndim - 1) == 7);
            if (strcmp(module->params[i]->name, "bias") == 0) cr_assert_eq(oct_f32(p)[6], 0);
        }
    }
    oct_context *cx;
    float x[2 * 48] = {1};
    MUST(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(2, 8, 0, 1), false);
    const oct_tensor *y =
        oct_call(cx, b.network, oct_tensor_view(cx, OCT_F32, OCT_SHAPE(2, 4, 4, 3), x));
    MUST(oct_context_status(cx));
    cr_assert(oct_dim(y, 1) == 7);
    oct_context_destroy(&cx);
    end(&b);
}

Test(onnx_build, a_last_layer_that_others_need_is_not_made_anew)
{
    onnx_model m = {0};
    add_ports(&m);
    onnx_weights(&m, "conv.weight", 3, 3, 1, 1);
    onnx_node(&m, "Conv", "x conv.weight", "c");
    onnx_node(&m, "Conv", "c conv.weight", "y");
    built b = build(&m, 4, 4, 3);
    cr_assert_eq(oct_onnx_new_head(b.network, &b.of, 7, 1), OCT_PREPARE);
    check_said("by no way back to a linear layer or a convolution of its own");
    end(&b);
}
