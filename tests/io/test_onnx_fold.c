/* Folding: shapes and constants as ONNX Runtime finds them, for a free batch; and what it says of networks for which
 * that cannot be. */
#include "io/onnx/fold.h"
#include "tests/golden/onnx_golden.h"
#include "tests/io/onnx_model.h"
#include "tests/support/check_status.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <zlib.h>

static oct_status read_model(oct_onnx_graph *g, onnx_model *m)
{
    oct_proto file = onnx_file(m);
    const oct_onnx_source source = {file.data, file.length, "net.onnx"};
    const oct_status status = oct_onnx_read_bytes(g, &source);
    oct_proto_free(&file);
    return status;
}

static double element(const oct_onnx_value *v, int64_t i)
{
    switch (v->dtype) {
    case OCT_F32:
        return (double)((const float *)v->data)[i];
    case OCT_S64:
        return (double)((const int64_t *)v->data)[i];
    case OCT_S32:
        return (double)((const int32_t *)v->data)[i];
    case OCT_U8:
        return (double)((const uint8_t *)v->data)[i];
    case OCT_U16:
    case OCT_S8:
    case OCT_S16:
    case OCT_F64:
        break;
    }
    cr_assert(false, "no such type in the golden file");
    return 0;
}

static void check_output(const char *name, int number, const oct_onnx_value *v,
                         const onnx_golden_output *wanted)
{
    char shape[OCT_ONNX_SHAPE_BYTES], text[OCT_ONNX_SHAPE_BYTES + 8];
    cr_assert(v->known, "%s, output %d", name, number);
    snprintf(text, sizeof text, "%s %s", oct_dtype_name(v->dtype), oct_onnx_shape_text(v, shape));
    cr_assert_str_eq(text, wanted->shape, "%s, output %d: %s in place of %s", name, number, text,
                     wanted->shape);
    if (wanted->count == 0) return;
    cr_assert(v->data && !v->times, "%s, output %d is a constant", name, number);
    cr_assert_eq(oct_onnx_numel(v), wanted->count);
    for (int i = 0; i < wanted->count; i++) {
        const double got = element(v, i), apart = fabs(got - wanted->value[i]);
        cr_assert(apart <= (v->dtype == OCT_F32 ? 2e-6 * (1 + fabs(got)) : 0),
                  "%s, output %d, element %d: %g in place of %g", name, number, i, got,
                  wanted->value[i]);
    }
}

static void check_case(const onnx_golden_case *c, const uint8_t *bytes)
{
    oct_onnx_graph g;
    const oct_onnx_source source = {bytes + c->at, c->size, c->name};
    MUST(oct_onnx_read_bytes(&g, &source));
    MUST(oct_onnx_fold(&g, 0, 0, 0));
    cr_assert_eq(g.num_outputs, c->outputs, "%s", c->name);
    for (int i = 0; i < c->outputs; i++)
        check_output(c->name, i, &g.values[g.outputs[i]], &onnx_golden_outputs[c->first + i]);
    for (int64_t i = 0; i < g.num_nodes; i++)
        for (int k = 0; k < g.nodes[i].outputs; k++) {
            const int32_t value = g.nodes[i].output[k];
            cr_assert(value < 0 || !g.values[value].data, "%s: a constant is no node", c->name);
        }
    oct_onnx_free(&g);
}

Test(onnx_fold, shapes_and_constants_are_those_of_onnx_runtime)
{
    uint8_t *bytes = NULL;
    uLongf size = ONNX_GOLDEN_BYTES;
    MUST(oct_alloc(&bytes, size, 1));
    cr_assert(uncompress(bytes, &size, onnx_golden_bytes, sizeof onnx_golden_bytes) == Z_OK);
    for (size_t i = 0; i < OCT_COUNT(onnx_golden); i++)
        check_case(&onnx_golden[i], bytes);
    oct_free(&bytes);
    check_nothing_held();
}

/* Networks of torchvision and others, as PyTorch exports them. */
Test(onnx_fold, the_zoo)
{
    static const char folder[] = OCT_SOURCE_DIR "/tests/golden/onnx";
    char path[512];
    int count = 0;
    DIR *stream = opendir(folder);
    cr_assert(stream, "%s", folder);
    for (struct dirent *e; (e = readdir(stream));) {
        oct_onnx_graph g;
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".onnx") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        MUST(oct_onnx_read(&g, path));
        MUST(oct_onnx_fold(&g, 0, 0, 0));
        const oct_onnx_value *out = &g.values[g.outputs[0]];
        cr_assert(out->known && out->dim[0] == OCT_ONNX_BATCH, "%s", e->d_name);
        for (int64_t i = 0; i < g.num_nodes; i++)
            for (int k = 0; k < g.nodes[i].inputs; k++) {
                const oct_onnx_value *v = oct_onnx_input(&g, &g.nodes[i], k);
                cr_assert(!v || v->known, "%s", e->d_name);
                cr_assert(!v || v->dtype == OCT_F32 || v->data, "%s: shape arithmetic is left",
                          e->d_name);
            }
        oct_onnx_free(&g);
        count++;
    }
    closedir(stream);
    cr_assert(count >= 16);
    check_nothing_held();
}

static void check_shape(const oct_onnx_value *v, const char *wanted)
{
    char text[OCT_ONNX_SHAPE_BYTES];
    cr_assert_str_eq(oct_onnx_shape_text(v, text), wanted);
}

Test(onnx_fold, another_size_of_image)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", -1, 3, -1, -1);
    onnx_out(&m, "y");
    onnx_weights(&m, "w", 4, 3, 3, 3);
    onnx_node(&m, "Conv", "x w", "y");
    MUST(read_model(&g, &m));
    MUST(oct_onnx_fold(&g, 20, 10, 3));
    check_shape(&g.values[g.outputs[0]], "(N, 4, 18, 8)");
    oct_onnx_free(&g);

    onnx_in(&m, "x", -1, 3, -1, -1);
    onnx_out(&m, "y");
    onnx_node(&m, "Relu", "x", "y");
    MUST(read_model(&g, &m));
    cr_assert_eq(oct_onnx_fold(&g, 0, 0, 3), OCT_DATA);
    check_said("is written for any size; say which");
    cr_assert_eq(oct_onnx_fold(&g, 8, 8, 1), OCT_DATA);
    check_said("has 3 channels, and the images have 1");
    oct_onnx_free(&g);
}

/* Files that were exported for one image have its batch of 1 all over. */
Test(onnx_fold, a_fixed_batch_is_freed)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", 1, 4, 6, 6);
    onnx_out(&m, "y");
    onnx_out(&m, "z");
    onnx_out(&m, "h");
    onnx_longs(&m, "tokens", 1, 4, 36);
    onnx_longs(&m, "heads", 4, 12, 3);
    onnx_longs(&m, "flat", 1, -1);
    onnx_weights(&m, "class", 1, 1, 36);
    onnx_node(&m, "Reshape", "x tokens", "t");
    onnx_node(&m, "Concat", "class t", "y");
    onnx_int(&m, "axis", 1);
    onnx_node(&m, "Reshape", "t flat", "z");
    onnx_node(&m, "Transpose", "t", "turned");
    onnx_ints(&m, "perm", 1, 0, 2);
    onnx_node(&m, "Reshape", "turned heads", "h");
    MUST(read_model(&g, &m));
    cr_assert_eq(g.fixed_batch, 1);
    MUST(oct_onnx_fold(&g, 6, 6, 4));
    check_shape(&g.values[g.outputs[0]], "(N, 5, 36)");
    check_shape(&g.values[g.outputs[1]], "(N, 144)");
    check_shape(&g.values[g.outputs[2]], "(4, 12 N, 3)");
    oct_onnx_free(&g);
    check_nothing_held();
}

/* PyTorch's attention, exported for one image: samples are in the middle, then with the rows, then in the middle. */
Test(onnx_fold, a_fixed_batch_in_the_middle)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", 1, 17, 24);
    onnx_out(&m, "h");
    onnx_out(&m, "rows");
    onnx_out(&m, "y");
    onnx_longs(&m, "heads", 17, 3, 8);
    onnx_longs(&m, "flat", 17, 24);
    onnx_longs(&m, "back", 17, 1, 24);
    onnx_node(&m, "Transpose", "x", "t");
    onnx_ints(&m, "perm", 1, 0, 2);
    onnx_node(&m, "Reshape", "t heads", "h");
    onnx_node(&m, "Reshape", "h flat", "rows");
    onnx_node(&m, "Reshape", "rows back", "y");
    MUST(read_model(&g, &m));
    MUST(oct_onnx_fold(&g, 0, 0, 0));
    check_shape(&g.values[g.outputs[0]], "(17, 3 N, 8)");
    check_shape(&g.values[g.outputs[1]], "(17 N, 24)");
    check_shape(&g.values[g.outputs[2]], "(17, N, 24)");
    oct_onnx_free(&g);
}

Test(onnx_fold, images_of_keras_have_their_channels_last)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", -1, 8, 6, 3);
    onnx_out(&m, "y");
    onnx_node(&m, "Transpose", "x", "t");
    onnx_ints(&m, "perm", 0, 3, 1, 2);
    onnx_node(&m, "Relu", "t", "y");
    MUST(read_model(&g, &m));
    MUST(oct_onnx_fold(&g, 16, 12, 3));
    cr_assert(g.channels_last);
    check_shape(&g.values[g.outputs[0]], "(N, 3, 16, 12)");
    oct_onnx_free(&g);
}

Test(onnx_fold, a_transposed_parameter_knows_where_it_comes_from)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", -1, 3);
    onnx_out(&m, "y");
    onnx_weights(&m, "fc.weight", 5, 3);
    onnx_node(&m, "Identity", "fc.weight", "same");
    onnx_node(&m, "Transpose", "same", "turned");
    onnx_node(&m, "MatMul", "x turned", "z");
    onnx_node(&m, "Identity", "z", "y");
    MUST(read_model(&g, &m));
    MUST(oct_onnx_fold(&g, 0, 0, 0));
    cr_assert(g.num_nodes == 1 && strcmp(g.output_names[0], "y") == 0);
    const oct_onnx_value *w = oct_onnx_input(&g, &g.nodes[0], 1);
    check_shape(w, "(3, 5)");
    cr_assert(!w->parameter && w->origin >= 0);
    cr_assert_str_eq(g.values[w->origin].name, "fc.weight");
    cr_assert(((const float *)w->data)[1] == 3.5F && !g.values[w->origin].data);
    oct_onnx_free(&g);
    check_nothing_held();
}

Test(onnx_fold, integers_that_depend_on_the_batch)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", -1, 4, 6);
    onnx_out(&m, "y");
    onnx_longs(&m, "rest", 2, 12);
    onnx_longs(&m, "zero", 0);
    onnx_node(&m, "Shape", "x", "s");
    onnx_node(&m, "Gather", "s zero", "n");
    onnx_node(&m, "Concat", "n rest", "target");
    onnx_int(&m, "axis", 0);
    onnx_node(&m, "Reshape", "x target", "y");
    MUST(read_model(&g, &m));
    MUST(oct_onnx_fold(&g, 0, 0, 0));
    const oct_onnx_value *target = oct_onnx_input(&g, &g.nodes[0], 1);
    cr_assert(g.num_nodes == 1 && target->times);
    cr_assert(target->times[0] == 1 && ((const int64_t *)target->data)[0] == 0);
    cr_assert(target->times[1] == 0 && ((const int64_t *)target->data)[1] == 2);
    check_shape(&g.values[g.outputs[0]], "(N, 2, 12)");
    oct_onnx_free(&g);
    check_nothing_held();
}

/* A network on `x` of (N, 12) that has the number of samples in `n`; its last node makes `y`, which has the shape
 * `wanted`, or is refused with that sentence. */
static void begin_by_batch(onnx_model *m)
{
    onnx_in(m, "x", -1, 12);
    onnx_out(m, "y");
    onnx_longs(m, "zero", 0);
    onnx_longs(m, "one", 1);
    onnx_longs(m, "two", 2);
    onnx_longs(m, "three", 3);
    onnx_longs(m, "rest", -1);
    onnx_node(m, "Shape", "x", "s");
    onnx_node(m, "Gather", "s zero", "n");
}

static void end_by_batch(onnx_model *m, const char *type, const char *inputs, const char *wanted)
{
    char text[OCT_ONNX_SHAPE_BYTES];
    oct_onnx_graph g;
    onnx_node(m, type, inputs, "y");
    MUST(read_model(&g, m));
    const oct_status status = oct_onnx_fold(&g, 0, 0, 0);
    if (wanted[0] == '(') {
        MUST(status);
        cr_assert_str_eq(oct_onnx_shape_text(&g.values[g.outputs[0]], text), wanted);
    } else {
        cr_assert_eq(status, OCT_DATA, "%s", wanted);
        check_said(wanted);
    }
    oct_onnx_free(&g);
    check_nothing_held();
}

/* What holds for every batch is found, and what does not is no number, whatever single sizes would say. */
Test(onnx_fold, sizes_that_follow_from_the_batch)
{
    static const struct {
        const char *type, *inputs; /* of the node that makes `size` */
        const char *wanted;        /* of Expand (1, 1) to (size, 12) */
    } cases[] = {
        {"Mul", "n two", "(2 N, 12)"},
        {"Mod", "n two", "number 0 of its input 1 depends on the batch, and is no multiple of"},
        {"Div", "n two", "number 0 of its input 1 depends on the batch, and is no multiple of"},
        {"Max", "n two", "(N, 12)"},
        {"Max", "n three", "number 0 of its input 1 depends on the batch, and is no multiple of"},
        {"Sub", "n n", "(0, 12)"},
        {"Div", "n n", "(1, 12)"},
        {"Mul", "n n", "number 0 of its input 1 depends on the batch, and is no multiple of"},
        {"Sub", "n two", "the size of its output is no multiple of the batch size"},
    };
    onnx_model m = {0};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        begin_by_batch(&m);
        onnx_longs(&m, "twelve", 12);
        onnx_weights(&m, "w", 1, 1);
        onnx_node(&m, cases[i].type, cases[i].inputs, "size");
        onnx_node(&m, "Concat", "size twelve", "to");
        onnx_int(&m, "axis", 0);
        end_by_batch(&m, "Expand", "w to", cases[i].wanted);
    }
    /* An odd number of samples is one of the two. */
    begin_by_batch(&m);
    onnx_node(&m, "Mod", "n two", "odd");
    onnx_node(&m, "Mul", "n three", "n3");
    onnx_node(&m, "Mod", "n3 three", "none");
    onnx_node(&m, "Where", "odd none none", "same");
    onnx_node(&m, "Concat", "n same rest", "to");
    onnx_int(&m, "axis", 0);
    end_by_batch(&m, "Reshape", "x to", "(N, 12, 1)");
    /* (3 - N) mod 5 is 3 - N of few samples alone: the sum would be 3. */
    begin_by_batch(&m);
    onnx_longs(&m, "five", 5);
    onnx_weights(&m, "w", 1);
    onnx_node(&m, "Sub", "three n", "less");
    onnx_node(&m, "Mod", "less five", "rest5");
    onnx_node(&m, "Add", "rest5 n", "to");
    end_by_batch(&m, "Expand", "w to", "number 0 of its input 1 depends on the batch");
}

Test(onnx_fold, slices_that_follow_from_the_batch)
{
    onnx_model m = {0};
    begin_by_batch(&m); /* samples 0 to N, and numbers 2 to 5 N / N of each */
    onnx_longs(&m, "five", 5);
    onnx_node(&m, "Mul", "n five", "n5");
    onnx_node(&m, "Div", "n5 n", "end");
    onnx_node(&m, "Concat", "zero two", "starts");
    onnx_int(&m, "axis", 0);
    onnx_node(&m, "Concat", "n end", "ends");
    onnx_int(&m, "axis", 0);
    end_by_batch(&m, "Slice", "x starts ends", "(N, 3)");
    begin_by_batch(&m);
    end_by_batch(&m, "Slice", "x zero n one", "where it cuts dimension 1 follows from the number");
    begin_by_batch(&m);
    onnx_node(&m, "Sub", "n one", "last");
    end_by_batch(&m, "Slice", "x last n zero", "it takes samples out of the batch");
}

Test(onnx_fold, dropout_of_training_stays_and_other_nothings_go)
{
    static const uint8_t yes = 1;
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", -1, 4);
    onnx_out(&m, "y");
    onnx_weights(&m, "ratio", 1);
    onnx_longs(&m, "none", 0, 0, 0, 0);
    onnx_initializer(&m, onnx_tensor("yes", ONNX_BOOL, NULL, 0, &yes, 1));
    onnx_node(&m, "Dropout", "x", "a");
    onnx_node(&m, "Pad", "a none", "b");
    onnx_node(&m, "Cast", "b", "c");
    onnx_int(&m, "to", ONNX_FLOAT16);
    onnx_node(&m, "Concat", "c", "d");
    onnx_int(&m, "axis", 1);
    onnx_node(&m, "Dropout", "d ratio yes", "y");
    onnx_node(&m, "Relu", "x", "unused");
    MUST(read_model(&g, &m));
    MUST(oct_onnx_fold(&g, 0, 0, 0));
    cr_assert_eq(g.num_nodes, 1);
    cr_assert_str_eq(g.nodes[0].type, "Dropout");
    cr_assert_eq(g.nodes[0].input[0], g.inputs[0]);
    oct_onnx_free(&g);
}

/* All problems are reported at once, each under its node's name, without those that only follow from another. */
Test(onnx_fold, every_problem_is_reported)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", -1, 3, 8, 8);
    onnx_out(&m, "y");
    onnx_weights(&m, "w", 4, 5, 3, 3);
    onnx_node(&m, "Conv", "x w", "channels");
    onnx_node(&m, "Relu", "channels", "follows");
    onnx_node(&m, "Gelu", "x", "later");
    onnx_node(&m, "FlyToTheMoon", "x", "unheard");
    onnx_node(&m, "FlyToTheMoon", "x", "again");
    onnx_node(&m, "MaxPool", "x", "wide");
    onnx_ints(&m, "kernel_shape", 9, 1);
    onnx_node(&m, "Transpose", "x", "turned");
    onnx_ints(&m, "perm", 0, 1, 1, 2);
    onnx_node(&m, "ReduceSum", "x", "number");
    onnx_node(&m, "Expand", "x number", "data");
    onnx_node(&m, "Sum", "follows later unheard again wide turned data", "y");
    MUST(read_model(&g, &m));
    cr_assert_eq(oct_onnx_fold(&g, 0, 0, 0), OCT_DATA);
    static const char *const said[] = {
        "net.onnx: node 'channels' (Conv): it takes 5 channels and gets 3",
        "net.onnx: node 'later' (Gelu): opset 13 has no such operator, but opset 20 has",
        "net.onnx: node 'unheard' (FlyToTheMoon): Octet does not have this operator; express "
        "it by others (and 1 more such nodes: 'again')",
        "net.onnx: node 'wide' (MaxPool): its window of 9 does not fit into 8",
        "net.onnx: node 'turned' (Transpose): perm is no permutation",
        "net.onnx: node 'data' (Expand): its input 1 must be known when the network is read"};
    cr_assert_eq(oct_error_count(), OCT_COUNT(said));
    for (size_t i = 0; i < OCT_COUNT(said); i++)
        cr_assert(strstr(oct_error_message(i), said[i]), "%s", oct_error_message(i));
    cr_assert_eq(g.num_nodes, 10, "the network is still whole");
    oct_onnx_free(&g);
    check_nothing_held();
}

static void check_refused(onnx_model *m, const char *why)
{
    oct_onnx_graph g;
    MUST(read_model(&g, m));
    cr_assert_eq(oct_onnx_fold(&g, 0, 0, 0), OCT_DATA, "%s", why);
    check_said(why);
    oct_onnx_free(&g);
    check_nothing_held();
}

/* Each refusal says its own reason. */
Test(onnx_fold, reasons)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", 4, 3);
    onnx_out(&m, "y");
    onnx_longs(&m, "n", 2, 2);
    onnx_node(&m, "Split", "x n", "y z");
    check_refused(&m, "node 'y' (Split): it splits the batch; split parts of a sample only");

    onnx_in(&m, "x", -1, 6);
    onnx_out(&m, "y");
    onnx_longs(&m, "n", 2, 2, 2);
    onnx_node(&m, "Split", "x n", "z - y");
    onnx_int(&m, "axis", 1);
    check_refused(&m, "node 'z' (Split): its output 1 has no name; give each part one");

    onnx_in(&m, "x", -1, 2, 4, 4);
    onnx_out(&m, "y");
    onnx_weights(&m, "w", 2, 2, 1, 1);
    onnx_longs(&m, "from", 4);
    onnx_longs(&m, "to", 4);
    onnx_longs(&m, "axis", 2);
    onnx_node(&m, "Slice", "x from to axis", "none");
    onnx_node(&m, "ConvTranspose", "none w", "y");
    onnx_ints(&m, "strides", 9, 9);
    onnx_ints(&m, "output_shape", INT64_MAX, 9); /* more than a size in bits, less the input's */
    check_refused(&m, "node 'y' (ConvTranspose): output_shape has a 9223372036854775807");

    onnx_in(&m, "x", -1, 1, 3);
    onnx_out(&m, "y");
    onnx_node(&m, "RNN", "x", "y");
    onnx_ints(&m, "layout", 1, 1);
    check_refused(&m, "node 'y' (RNN): Octet does not have this operator; express it by others");

    onnx_in(&m, "x", -1, 2);
    onnx_out(&m, "y");
    onnx_longs(&m, "to", INT64_MIN, 2);
    onnx_node(&m, "Expand", "x to", "y");
    check_refused(&m, "its target shape has a -9223372036854775808 in dimension 0");

    onnx_in(&m, "x", -1, 1, 4, 4);
    onnx_out(&m, "y");
    onnx_longs(&m, "p", 0, 0, -2, 0, 0, 0, -2, 0);
    onnx_node(&m, "Pad", "x p", "y");
    check_refused(&m, "node 'y' (Pad): its result has no numbers; use larger images");

    static const char *const said[] = {"the input 'x' has no dimension but the batch",
                                       "it has 2 inputs, and a data set gives one"};
    for (int inputs = 1; inputs <= 2; inputs++) {
        onnx_in(&m, "x", -1);
        if (inputs == 2) onnx_in(&m, "z", -1, -1);
        onnx_out(&m, "y");
        onnx_node(&m, "Add", inputs == 2 ? "x z" : "x x", "y");
        MUST(read_model(&g, &m));
        cr_assert_eq(oct_onnx_fold(&g, 0, 0, 0), OCT_PREPARE);
        check_said(said[inputs - 1]);
        oct_onnx_free(&g);
    }
    onnx_in(&m, "x", -1, 6);
    onnx_out(&m, "y");
    onnx_node(&m, "Relu", "x", "y");
    MUST(read_model(&g, &m));
    cr_assert_eq(oct_onnx_fold(&g, 8, 8, 0), OCT_USAGE);
    check_said("the input 'x' is no image, so that it has no height and width to set");
    oct_onnx_free(&g);
    check_nothing_held();
}

/* Few bytes that ask for much. */
Test(onnx_fold, bombs)
{
    onnx_model m = {0};
    onnx_in(&m, "x", -1, 4);
    onnx_out(&m, "y");
    onnx_longs(&m, "huge", 1 << 30, 1 << 30);
    onnx_node(&m, "ConstantOfShape", "huge", "c");
    onnx_node(&m, "Add", "x c", "y");
    check_refused(&m, "its output is too large");

    onnx_in(&m, "x", -1, 4);
    onnx_out(&m, "y");
    onnx_longs(&m, "large", 1 << 15, 1 << 12);
    onnx_node(&m, "ConstantOfShape", "large", "c");
    onnx_node(&m, "Add", "x c", "y");
    check_refused(&m, "take too much memory");

    onnx_in(&m, "x", -1, 4);
    onnx_out(&m, "y");
    onnx_longs(&m, "many", 1 << 11, 1 << 10);
    onnx_node(&m, "ConstantOfShape", "many", "c");
    onnx_node(&m, "ReduceSum", "c", "a0");
    for (int i = 1; i < 80; i++) {
        char sum[16], pair[32], to[16];
        snprintf(sum, sizeof sum, "s%d", i);
        snprintf(pair, sizeof pair, "s%d a%d", i, i - 1);
        snprintf(to, sizeof to, "a%d", i);
        onnx_node(&m, "ReduceSum", "c", sum);
        onnx_node(&m, "Add", pair, to);
    }
    onnx_node(&m, "Add", "x a79", "y");
    check_refused(&m, "take too much work");

    onnx_in(&m, "x", -1, 4);
    onnx_out(&m, "y");
    onnx_longs(&m, "a", INT64_MAX, 3);
    onnx_node(&m, "Add", "a a", "b");
    onnx_node(&m, "Reshape", "x b", "y");
    check_refused(&m, "an integer overflows");

    onnx_in(&m, "x", -1, 4);
    onnx_out(&m, "y");
    onnx_longs(&m, "a", 5, 3);
    onnx_longs(&m, "z", 0);
    onnx_node(&m, "Div", "a z", "b");
    onnx_node(&m, "Reshape", "x b", "y");
    check_refused(&m, "is divided by 0");

    onnx_in(&m, "x", -1, 4);
    onnx_out(&m, "y");
    onnx_longs(&m, "zero", 0);
    onnx_node(&m, "Shape", "x", "s");
    onnx_node(&m, "Gather", "s zero", "n");
    onnx_node(&m, "Mul", "n n", "nn");
    onnx_node(&m, "ConstantOfShape", "nn", "y");
    check_refused(&m, "is no multiple of the batch size");
}

/* Sizes near the end of the integers, in the input or in a tensor without elements. */
Test(onnx_fold, sizes_that_would_overflow)
{
    const int64_t empty[] = {0, INT64_MAX, 2};
    onnx_model m = {0};
    oct_onnx_graph g;
    onnx_in(&m, "x", -1, 3, INT64_MAX, 8);
    onnx_out(&m, "y");
    onnx_node(&m, "SpaceToDepth", "x", "y");
    onnx_int(&m, "blocksize", 2);
    check_refused(&m, "the input 'x' is too large");

    onnx_in(&m, "x", -1, 1 << 20, 1 << 20);
    onnx_out(&m, "y");
    onnx_node(&m, "Relu", "x", "y");
    check_refused(&m, "the input 'x' is too large");

    onnx_in(&m, "x", -1, 3);
    onnx_out(&m, "y");
    onnx_initializer(&m, onnx_tensor("w", ONNX_FLOAT, empty, 3, "", 0));
    onnx_node(&m, "Concat", "w w", "c");
    onnx_int(&m, "axis", 1);
    onnx_node(&m, "Add", "x c", "y");
    cr_assert_eq(read_model(&g, &m), OCT_DATA);
    check_said("'w' has a dimension of 9223372036854775807");
    check_nothing_held();
}

Test(onnx_fold, memory_that_runs_out)
{
    for (int64_t n = 1;; n++) {
        onnx_model m = {0};
        oct_onnx_graph g;
        onnx_in(&m, "x", -1, 4, 6);
        onnx_out(&m, "y");
        onnx_longs(&m, "rest", 2, 12);
        onnx_longs(&m, "zero", 0);
        onnx_node(&m, "Shape", "x", "s");
        onnx_node(&m, "Gather", "s zero", "n");
        onnx_node(&m, "Concat", "n rest", "target");
        onnx_int(&m, "axis", 0);
        onnx_node(&m, "Reshape", "x target", "y");
        MUST(read_model(&g, &m));
        oct_mem_fail_after(n);
        const oct_status status = oct_onnx_fold(&g, 0, 0, 0);
        oct_mem_fail_after(0);
        oct_onnx_free(&g);
        check_nothing_held();
        if (status == OCT_OK) break;
        cr_assert_eq(status, OCT_RESOURCE, "allocation %d", (int)n);
    }
}
