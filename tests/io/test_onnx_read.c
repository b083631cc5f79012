/* ONNX files: what is in one is what is read, and what no network would have is refused in a sentence. */
#include "io/file/file.h"
#include "io/onnx/graph.h"
#include "io/onnx/read_impl.h"
#include "tests/io/onnx_model.h"
#include "tests/support/check_status.h"
#include "tests/support/tmp.h"

#include <math.h>
#include <unistd.h>

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
    cr_assert_eq(read_model(&g, m), OCT_DATA, "%s", why);
    check_said("net.onnx: ");
    check_said(why);
    check_nothing_held();
}

static void add_ports(onnx_model *m)
{
    onnx_in(m, "x", -1, 3, 8, 8);
    onnx_out(m, "y");
}

static const oct_onnx_value *value_named(const oct_onnx_graph *g, const char *name)
{
    for (int64_t i = 0; i < g->num_values; i++)
        if (strcmp(g->values[i].name, name) == 0) return &g->values[i];
    cr_assert(false, "no value %s", name);
    return NULL;
}

Test(onnx_read, what_is_in_a_file_is_read)
{
    onnx_model m = {.opset = 17};
    oct_onnx_graph g;
    char text[OCT_ONNX_SHAPE_BYTES];
    int64_t count;
    add_ports(&m);
    onnx_weights(&m, "conv1.weight", 4, 3, 3, 3);
    onnx_longs(&m, "axes", -1, INT64_MIN, INT64_MAX);
    onnx_node(&m, "Conv", "x conv1.weight -", "c");
    onnx_ints(&m, "pads", 1, 0, 1, 0);
    onnx_text(&m, "auto_pad", "NOTSET");
    onnx_int(&m, "group", -2);
    onnx_float(&m, "alpha", 0.25F);
    onnx_node(&m, "Relu", "c", "y");
    MUST(read_model(&g, &m));

    cr_assert(g.opset == 17 && g.ir_version == 8 && strcmp(g.producer, "test") == 0);
    cr_assert(g.num_nodes == 2 && g.num_inputs == 1 && g.num_outputs == 1 && g.fixed_batch == 0);
    const oct_onnx_node *n = &g.nodes[0];
    cr_assert(strcmp(n->type, "Conv") == 0 && strcmp(n->name, "c") == 0 && n->domain[0] == '\0');
    cr_assert(n->inputs == 3 && n->input[2] == -1 && !oct_onnx_input(&g, n, 2));
    cr_assert(oct_onnx_ints(n, "pads", &count)[2] == 1 && count == 4);
    cr_assert(!oct_onnx_ints(n, "group", &count) && count == 0, "it is of another kind");
    cr_assert(oct_onnx_int(n, "group", 1) == -2 && oct_onnx_int(n, "none", 7) == 7);
    cr_assert(oct_onnx_float(n, "alpha", 1) == 0.25F);
    cr_assert_str_eq(oct_onnx_string(n, "auto_pad", ""), "NOTSET");
    const oct_onnx_value *w = oct_onnx_input(&g, n, 1);
    cr_assert(w->parameter && w->known && w->dtype == OCT_F32 && oct_onnx_numel(w) == 108);
    cr_assert(((const float *)w->data)[107] == 107.5F);
    const oct_onnx_value *axes = value_named(&g, "axes");
    cr_assert(!axes->parameter && axes->dtype == OCT_S64);
    cr_assert(((const int64_t *)axes->data)[1] == INT64_MIN);
    cr_assert_str_eq(oct_onnx_shape_text(&g.values[g.inputs[0]], text), "(N, 3, 8, 8)");
    oct_onnx_free(&g);
    check_nothing_held();
}

/* Each type in raw bytes and in fields of its own. */
Test(onnx_read, elements_of_every_type)
{
    static const uint8_t half[] = {0x00, 0x3c, 0x01, 0x80, 0x00, 0xfc, 0xff, 0x7b};
    static const uint8_t brain[] = {0x80, 0x3f, 0x20, 0xc0};
    static const double wide[] = {0.1, -1e300};
    static const int8_t bytes[] = {-128, 127};
    static const uint8_t truth[] = {0, 2};
    const int64_t two[] = {2}, four[] = {4};
    onnx_model m = {0};
    oct_onnx_graph g;
    add_ports(&m);
    onnx_initializer(&m, onnx_tensor("half", ONNX_FLOAT16, four, 1, half, sizeof half));
    onnx_initializer(&m, onnx_tensor("brain", ONNX_BFLOAT16, two, 1, brain, sizeof brain));
    onnx_initializer(&m, onnx_tensor("wide", ONNX_DOUBLE, two, 1, wide, sizeof wide));
    onnx_initializer(&m, onnx_tensor("bytes", ONNX_INT8, two, 1, bytes, sizeof bytes));
    onnx_initializer(&m, onnx_tensor("truth", ONNX_BOOL, two, 1, truth, sizeof truth));
    oct_proto typed = onnx_tensor("typed", ONNX_FLOAT16, two, 1, NULL, 0);
    oct_proto_integer(&typed, 5, 0x3c00);
    oct_proto_integer(&typed, 5, 0xc000);
    onnx_initializer(&m, typed);
    oct_proto doubles = onnx_tensor("doubles", ONNX_DOUBLE, two, 1, NULL, 0);
    oct_proto_bytes(&doubles, 10, wide, sizeof wide);
    onnx_initializer(&m, doubles);
    onnx_node(&m, "Relu", "x", "y");
    MUST(read_model(&g, &m));

    const float *h = value_named(&g, "half")->data;
    cr_assert(h[0] == 1 && h[1] == -0x1p-24F && isinf(h[2]) && h[2] < 0 && h[3] == 65504);
    const float *b = value_named(&g, "brain")->data;
    cr_assert(b[0] == 1 && b[1] == -2.5F);
    cr_assert(((const float *)value_named(&g, "wide")->data)[0] == 0.1F);
    cr_assert(value_named(&g, "bytes")->dtype == OCT_S8);
    cr_assert(((const int8_t *)value_named(&g, "bytes")->data)[0] == -128);
    cr_assert(value_named(&g, "truth")->dtype == OCT_U8);
    cr_assert(((const uint8_t *)value_named(&g, "truth")->data)[1] == 1);
    cr_assert(((const float *)value_named(&g, "typed")->data)[1] == -2);
    cr_assert(isinf(((const float *)value_named(&g, "doubles")->data)[1]));
    cr_assert(value_named(&g, "doubles")->parameter);
    oct_onnx_free(&g);
    check_nothing_held();
}

Test(onnx_read, constants_are_values_and_not_nodes)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    add_ports(&m);
    onnx_node(&m, "Constant", "", "shape");
    onnx_ints(&m, "value_ints", 0, -1);
    onnx_node(&m, "Constant", "", "half");
    onnx_float(&m, "value_float", 0.5F);
    onnx_node(&m, "Mul", "x half", "z");
    onnx_node(&m, "Reshape", "z shape", "y");
    MUST(read_model(&g, &m));
    cr_assert_eq(g.num_nodes, 2);
    cr_assert(((const int64_t *)value_named(&g, "shape")->data)[1] == -1);
    const oct_onnx_value *half = value_named(&g, "half");
    cr_assert(half->ndim == 0 && *(const float *)half->data == 0.5F && !half->parameter);
    oct_onnx_free(&g);
    check_nothing_held();
}

Test(onnx_read, nodes_are_put_in_order)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    add_ports(&m);
    onnx_node(&m, "Add", "b a", "y");
    onnx_node(&m, "Relu", "a", "b");
    onnx_node(&m, "Sigmoid", "x", "a");
    MUST(read_model(&g, &m));
    cr_assert_str_eq(g.nodes[0].type, "Sigmoid");
    cr_assert_str_eq(g.nodes[1].type, "Relu");
    cr_assert_str_eq(g.nodes[2].type, "Add");
    oct_onnx_free(&g);
}

Test(onnx_read, initializers_among_the_inputs_are_no_inputs)
{
    onnx_model m = {.ir = 3, .opset = 9};
    oct_onnx_graph g;
    onnx_in(&m, "w", 4);
    onnx_in(&m, "x", 2, 4);
    onnx_weights(&m, "w", 4);
    onnx_node(&m, "Add", "x w", "y");
    onnx_out(&m, "y");
    MUST(read_model(&g, &m));
    cr_assert(g.num_inputs == 1 && strcmp(g.values[g.inputs[0]].name, "x") == 0);
    cr_assert_eq(g.fixed_batch, 2);
    oct_onnx_free(&g);
}

Test(onnx_read, broken_networks)
{
    const int64_t two[] = {2}, minus[] = {-2}, huge[] = {1 << 20, 1 << 20, 1 << 20, 1 << 20};
    static const float values[] = {1, 2};
    onnx_model m = {0};

    add_ports(&m);
    onnx_node(&m, "Relu", "x", "y");
    onnx_node(&m, "Relu", "x", "y");
    check_refused(&m, "'y' is defined twice");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_node(&m, "Add", "x b", "a");
    onnx_node(&m, "Relu", "a", "b");
    onnx_node(&m, "Relu", "b", "y");
    check_refused(&m, "needs its own result");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_node(&m, "Add", "x lost", "y");
    check_refused(&m, "wants 'lost', which nothing makes");

    m = (onnx_model){0};
    onnx_in(&m, "x", 1, 2);
    onnx_out(&m, "z");
    onnx_node(&m, "Relu", "x", "y");
    check_refused(&m, "the output 'z' is made by nothing");

    m = (onnx_model){.opset = 8};
    add_ports(&m);
    onnx_node(&m, "Relu", "x", "y");
    check_refused(&m, "is written for opset 8; 9 to 27 are read");

    m = (onnx_model){.ir = 99};
    add_ports(&m);
    onnx_node(&m, "Relu", "x", "y");
    check_refused(&m, "is of version 99");

    m = (onnx_model){0};
    add_ports(&m);
    check_refused(&m, "holds no network");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_node(&m, "Relu", "x", "y");
    onnx_initializer(&m, onnx_tensor("w", ONNX_FLOAT, two, 1, values, 7));
    check_refused(&m, "'w' has 2 elements of type float, but 7 bytes of data");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_node(&m, "Relu", "x", "y");
    onnx_initializer(&m, onnx_tensor("w", ONNX_FLOAT, two, 1, NULL, 0));
    check_refused(&m, "'w' has 2 elements, but 0 numbers of data");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_node(&m, "Relu", "x", "y");
    onnx_initializer(&m, onnx_tensor("w", ONNX_FLOAT, minus, 1, values, 8));
    check_refused(&m, "'w' has a dimension of -2");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_node(&m, "Relu", "x", "y");
    onnx_initializer(&m, onnx_tensor("w", ONNX_FLOAT, huge, 4, values, 8));
    check_refused(&m, "'w' has more than 2147483647 elements");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_node(&m, "Relu", "x", "y");
    onnx_initializer(&m, onnx_tensor("w", ONNX_STRING, two, 1, values, 8));
    check_refused(&m, "'w' has elements of type string, which is not read");

    m = (onnx_model){0};
    add_ports(&m);
    onnx_node(&m, "Relu", "x", "y");
    oct_proto big = onnx_tensor("w", ONNX_UINT64, (const int64_t[]){1}, 1, NULL, 0);
    oct_proto_integer(&big, 11, -1);
    onnx_initializer(&m, big);
    check_refused(&m, "has an element that");
}

/* Lengths, nesting and counts are looked at before the library sees them. */
Test(onnx_read, hostile_bytes)
{
    enum { DEEP = 1000000 };
    oct_onnx_graph g;
    oct_proto deep = {0}, many = {0};
    oct_onnx_source source = {.path = "net.onnx"};

    /* graph, node, attribute, graph ...: each a length and one inside it */
    uint8_t *bytes = NULL;
    size_t at = (size_t)DEEP * 6;
    cr_assert(oct_alloc(&bytes, at, 1) == OCT_OK);
    static const uint8_t keys[] = {7 << 3 | 2, 1 << 3 | 2, 5 << 3 | 2, 6 << 3 | 2};
    for (int i = DEEP - 1; i >= 0; i--) {
        size_t length = (size_t)DEEP * 6 - at;
        for (int k = 4; k >= 0; k--)
            bytes[--at] = (uint8_t)(length >> 7 * k & 0x7f) | (k < 4 ? 0x80 : 0);
        bytes[--at] = keys[i == 0 ? 0 : 1 + (i - 1) % 3];
    }
    source.bytes = bytes;
    source.size = (size_t)DEEP * 6;
    cr_assert_eq(oct_onnx_read_bytes(&g, &source), OCT_DATA);
    check_said("more than 64 deep");
    oct_free(&bytes);

    for (int i = 0; i <= 1 << 20; i++)
        oct_proto_integer(&many, 1, 1);
    oct_proto_message(&deep, 7, &many);
    source.bytes = deep.data;
    source.size = deep.length;
    cr_assert_eq(oct_onnx_read_bytes(&g, &source), OCT_DATA);
    check_said("more than 1048576 fields");
    oct_proto_free(&deep);

    static const uint8_t long_length[] = {7 << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0x7f};
    static const uint8_t group[] = {7 << 3 | 3};
    static const uint8_t zero[] = {0, 0};
    static const uint8_t twice[] = {7 << 3 | 2, 0, 7 << 3 | 2, 0};
    static const struct {
        const void *bytes;
        size_t size;
    } cases[] = {{long_length, sizeof long_length},
                 {group, sizeof group},
                 {zero, sizeof zero},
                 {twice, sizeof twice},
                 {"hello, world", 12}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        source.bytes = cases[i].bytes;
        source.size = cases[i].size;
        cr_assert_eq(oct_onnx_read_bytes(&g, &source), OCT_DATA, "case %zu", i);
        check_said("is no ONNX file, or it is damaged");
    }
    check_nothing_held();
}

/* Every cut and every changed byte of a good file ends in a graph or a sentence. */
Test(onnx_read, damaged_files)
{
    onnx_model m = {0};
    oct_onnx_graph g;
    add_ports(&m);
    onnx_weights(&m, "w", 4, 3, 1, 1);
    onnx_node(&m, "Conv", "x w", "c");
    onnx_ints(&m, "pads", 1, 0, 1, 0);
    onnx_node(&m, "Relu", "c", "y");
    oct_proto file = onnx_file(&m);
    for (size_t cut = 0; cut < file.length; cut++) {
        const oct_onnx_source source = {file.data, cut, "net.onnx"};
        cr_assert_eq(oct_onnx_read_bytes(&g, &source), OCT_DATA, "cut at %zu", cut);
    }
    for (size_t i = 0; i < file.length; i++)
        for (int bit = 0; bit < 8; bit++) {
            file.data[i] ^= (uint8_t)(1 << bit);
            const oct_onnx_source source = {file.data, file.length, "net.onnx"};
            const oct_status status = oct_onnx_read_bytes(&g, &source);
            cr_assert(status == OCT_OK || status == OCT_DATA);
            if (status == OCT_OK) oct_onnx_free(&g);
            file.data[i] ^= (uint8_t)(1 << bit);
        }
    oct_proto_free(&file);
    check_nothing_held();
}

static void add_entry(oct_proto *t, const char *key, const char *value)
{
    oct_proto entry = {0};
    oct_proto_text(&entry, 1, key);
    oct_proto_text(&entry, 2, value);
    oct_proto_message(t, 13, &entry);
}

static void add_external(onnx_model *m, const char *name, const char *location, const char *offset)
{
    oct_proto t = onnx_tensor(name, ONNX_FLOAT, (const int64_t[]){2}, 1, NULL, 0);
    oct_proto_integer(&t, 14, 1);
    add_entry(&t, "location", location);
    add_entry(&t, "offset", offset);
    add_entry(&t, "length", "8");
    onnx_initializer(m, t);
}

static oct_proto external_file(const char *location, const char *offset)
{
    onnx_model m = {0};
    add_ports(&m);
    add_external(&m, "v", "data/w.bin", "0");
    add_external(&m, "w", location, offset);
    onnx_node(&m, "Relu", "x", "y");
    return onnx_file(&m);
}

static oct_status read_external(oct_onnx_graph *g, const char *folder, const char *location,
                                const char *offset)
{
    char path[300];
    oct_proto file = external_file(location, offset);
    snprintf(path, sizeof path, "%s/net.onnx", folder);
    MUST(oct_file_write(path, file.data, file.length));
    oct_proto_free(&file);
    return oct_onnx_read(g, path);
}

/* The bytes alone say where their data are, and have them when they were loaded. */
static void check_whole(const char *folder)
{
    char path[300];
    void *whole = NULL, *again = NULL;
    size_t size, same;
    oct_onnx_graph g;
    oct_proto file = external_file("data/w.bin", "8");
    const oct_onnx_source cut = {file.data, file.length, "net.onnx"};
    cr_assert_eq(oct_onnx_read_bytes(&g, &cut), OCT_DATA);
    check_said("net.onnx: the data of 'v' are in another file; save the network as one file");
    oct_proto_free(&file);
    snprintf(path, sizeof path, "%s/net.onnx", folder);
    MUST(oct_onnx_load(path, &whole, &size));
    const oct_onnx_source source = {whole, size, "net.onnx"};
    MUST(oct_onnx_read_bytes(&g, &source));
    cr_assert(((const float *)value_named(&g, "w")->data)[1] == 4);
    oct_onnx_free(&g);
    snprintf(path, sizeof path, "%s/whole.onnx", folder);
    MUST(oct_file_write(path, whole, size));
    MUST(oct_onnx_load(path, &again, &same)); /* is whole already: not a byte changes */
    cr_assert(same == size && memcmp(whole, again, size) == 0);
    oct_free(&whole);
    oct_free(&again);
}

Test(onnx_read, external_data_lie_below_the_networks_folder)
{
    static const float values[] = {1, 2, 3, 4};
    oct_tmp tmp;
    oct_onnx_graph g;
    char link[300];
    oct_tmp_create(&tmp);
    oct_tmp_write(&tmp, "outside.bin", values, sizeof values);
    oct_tmp_write(&tmp, "net/data/w.bin", values, sizeof values);
    const char *folder = oct_tmp_path(&tmp, "net");
    snprintf(link, sizeof link, "%s/link.bin", folder);
    cr_assert(symlink("../outside.bin", link) == 0);
    snprintf(link, sizeof link, "%s/again.bin", folder);
    cr_assert(symlink("data/w.bin", link) == 0);

    MUST(read_external(&g, folder, "data/w.bin", "8"));
    cr_assert(((const float *)value_named(&g, "w")->data)[1] == 4);
    oct_onnx_free(&g);
    check_whole(folder);

    const char *const outside[] = {"../outside.bin", "/etc/passwd", "data/../../outside.bin",
                                   "link.bin", ""};
    for (size_t i = 0; i < OCT_COUNT(outside); i++) {
        cr_assert_eq(read_external(&g, folder, outside[i], "0"), OCT_DATA, "%s", outside[i]);
        check_said("which is no file below the network's folder");
    }
    cr_assert_eq(read_external(&g, folder, "data/none.bin", "0"), OCT_DATA);
    check_said("are missing");
    cr_assert_eq(read_external(&g, folder, "data/w.bin", "4"), OCT_DATA);
    check_said("the data of 'v' and 'w' overlap");
    cr_assert_eq(read_external(&g, folder, "again.bin", "4"), OCT_DATA);
    check_said("overlap");
    cr_assert_eq(read_external(&g, folder, "data/w.bin", "12"), OCT_DATA);
    check_said("are 8 bytes at 12");
    cr_assert_eq(read_external(&g, folder, "data/w.bin", "-8"), OCT_DATA);
    check_said("have the offset '-8'");
    cr_assert_eq(read_external(&g, folder, "data", "0"), OCT_DATA);
    oct_tmp_remove(&tmp);
    check_nothing_held();
}

Test(onnx_read, memory_that_runs_out)
{
    for (int64_t n = 1;; n++) {
        onnx_model m = {0};
        oct_onnx_graph g;
        add_ports(&m);
        onnx_weights(&m, "w", 4, 3, 1, 1);
        onnx_node(&m, "Conv", "x w", "c");
        onnx_ints(&m, "pads", 1, 0, 1, 0);
        onnx_node(&m, "Relu", "c", "y");
        oct_proto file = onnx_file(&m);
        const oct_onnx_source source = {file.data, file.length, "net.onnx"};
        oct_mem_fail_after(n);
        const oct_status status = oct_onnx_read_bytes(&g, &source);
        oct_mem_fail_after(0);
        if (status == OCT_OK) oct_onnx_free(&g);
        oct_proto_free(&file);
        check_nothing_held();
        if (status == OCT_OK) break;
        cr_assert_eq(status, OCT_RESOURCE, "allocation %d", (int)n);
    }
}
