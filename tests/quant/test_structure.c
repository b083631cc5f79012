/* Where prepare puts quantizers and what it fuses, against PyTorch's own prepare on the same networks
 * (tests/golden/make_structure_golden.py). */
#include "tests/golden/structure_golden.h"
#include "tests/requirements/rig.h"

#include "core/base/mem.h"
#include "launch/model/model.h"

#include <stdio.h>

enum { MOST = 256, LINE = 256 };

typedef struct lines {
    char text[MOST][LINE];
    size_t count;
} lines;

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void add_line(lines *l, const char *text)
{
    cr_assert_lt(l->count, (size_t)MOST);
    snprintf(l->text[l->count++], LINE, "%s", text);
}

static void compare(lines *found, const char *const *golden, const char *what)
{
    lines wanted = {0};
    for (; *golden; golden++)
        add_line(&wanted, *golden);
    qsort(found->text, found->count, LINE, by_text);
    qsort(wanted.text, wanted.count, LINE, by_text);
    for (size_t i = 0; i < found->count && i < wanted.count; i++)
        cr_assert_str_eq(found->text[i], wanted.text[i], "%s", what);
    cr_assert_eq(found->count, wanted.count, "%s: %zu lines, PyTorch has %zu", what, found->count,
                 wanted.count);
}

/* Ops that are functions to PyTorch's graph are named after their caller, however they are written
 * here. */
static bool is_function(const char *op)
{
    static const char *const functions[] = {"add", "mul", "concat", "sigmoid"};
    for (size_t i = 0; i < OCT_COUNT(functions); i++)
        if (strcmp(op, functions[i]) == 0) return true;
    return false;
}

static void caller_of(const oct_graph_node *node, char caller[LINE])
{
    snprintf(caller, LINE, "%s", node->path);
    if (!node->called) return;
    char *dot = strrchr(caller, '.');
    *(dot ? dot : caller) = '\0';
}

static void name_of(const oct_graph *graph, const oct_graph_node *node, char name[LINE])
{
    if (!is_function(node->op)) {
        snprintf(name, LINE, "%s", node->path);
        return;
    }
    char caller[LINE], other[LINE];
    int ordinal = 0;
    caller_of(node, caller);
    for (const oct_graph_node *n = graph->nodes; n < node; n++) {
        caller_of(n, other);
        ordinal += strcmp(n->op, node->op) == 0 && strcmp(caller, other) == 0;
    }
    snprintf(name, LINE, "%.200s:%s#%d", caller, node->op, ordinal);
}

static bool is_view(const oct_graph_node *node)
{
    return strcmp(node->op, "flatten") == 0 || strcmp(node->op, "reshape") == 0;
}

/* One line a quantizer: its tensors in order of their names. */
static void quantizer_lines(const oct_graph *graph, lines *l)
{
    oct_tensor_quantizer *list = NULL;
    size_t count = 0;
    OK(oct_graph_quantizers(graph, &list, &count));
    for (size_t i = 0; i < count; i++) {
        lines names = {0};
        bool first = true;
        for (size_t j = 0; j < count; j++) {
            if (list[j].fq != list[i].fq) continue;
            first &= j >= i;
            const oct_graph_node *node = &graph->nodes[graph->values[list[j].value].producer];
            char name[LINE];
            name_of(graph, node, name);
            if (!is_view(node)) add_line(&names, name);
        }
        if (!first) continue;
        qsort(names.text, names.count, LINE, by_text);
        char line[LINE] = "";
        for (size_t k = 0; k < names.count; k++)
            snprintf(line + strlen(line), LINE - strlen(line), "%s%s", k ? " " : "", names.text[k]);
        add_line(l, line);
    }
    oct_free(&list);
}

static void fused_lines(const oct_graph *graph, lines *l)
{
    for (size_t i = 0; i < graph->num_nodes; i++) {
        const oct_graph_node *node = &graph->nodes[i];
        if (!node->fusion) continue;
        char members[LINE], line[2 * LINE], name[LINE], *save = NULL;
        snprintf(members, LINE, "%s", node->fusion);
        name_of(graph, node, name);
        snprintf(line, sizeof line, "%s:", name);
        bool first = true;
        for (char *m = strtok_r(members, "_", &save); m; m = strtok_r(NULL, "_", &save)) {
            const char *type = strcmp(m, "conv") == 0 ? "conv2d"
                               : strcmp(m, "bn") == 0 ? "batch_norm"
                                                      : m;
            snprintf(line + strlen(line), sizeof line - strlen(line), "%s %s", first ? "" : " +",
                     type);
            first = false;
        }
        add_line(l, line);
    }
}

/* x86 without the fusions that PyTorch has not. */
static oct_target without_conv_add(void)
{
    static const char *const no_fusions[] = {"conv_add",         "conv_add_relu",  "conv_bn_add",
                                             "conv_bn_add_relu", "linear_bn_relu", NULL};
    oct_target target = *oct_target_find("x86");
    target.no_fusions = no_fusions;
    return target;
}

static void check_graph(oct_module *root, oct_shape input, const char *const *fused,
                        const char *const *quantizers)
{
    static lines found;
    oct_target target = without_conv_add();
    rig r;
    rig_begin(&r, root, OCT_EXAMPLE(input));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.target = &target;
    OK(rig_try(&r, &options, NULL));
    found.count = 0;
    fused_lines(oct_graph_of(r.root), &found);
    compare(&found, fused, "fused");
    found.count = 0;
    quantizer_lines(oct_graph_of(r.root), &found);
    compare(&found, quantizers, "quantizers");
    rig_end(&r);
}

static oct_module *zoo(const char *name, oct_shape input)
{
    oct_module *root = NULL;
    OK(oct_model_find(name)->build(&root, input.dim[1], input.dim[2], input.dim[3], 10));
    return root;
}

Test(structure, cnn_small)
{
    oct_shape input = OCT_SHAPE(1, 28, 28, 1);
    check_graph(zoo("cnn-small", input), input, cnn_small_fused, cnn_small_quantizers);
}

Test(structure, resnet20)
{
    oct_shape input = OCT_SHAPE(1, 32, 32, 3);
    check_graph(zoo("resnet20", input), input, resnet20_fused, resnet20_quantizers);
}

Test(structure, resnet18c)
{
    oct_shape input = OCT_SHAPE(1, 32, 32, 3);
    check_graph(zoo("resnet18c", input), input, resnet18c_fused, resnet18c_quantizers);
}

Test(structure, mobilenetv2c_relu)
{
    oct_shape input = OCT_SHAPE(1, 32, 32, 3);
    check_graph(zoo("mobilenetv2c-relu", input), input, mobilenetv2c_relu_fused,
                mobilenetv2c_relu_quantizers);
}

Test(structure, vgg11c)
{
    oct_shape input = OCT_SHAPE(1, 32, 32, 3);
    check_graph(zoo("vgg11c", input), input, vgg11c_fused, vgg11c_quantizers);
}

/* A pooled tensor beside itself gated by its sigmoid. */
typedef struct concat_net {
    oct_module base;
    oct_module *quant, *stem, *pool, *gate, *global_pool, *head, *dequant;
} concat_net;

static oct_tensor *concat_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    concat_net *m = (concat_net *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->stem, oct_call(cx, m->quant, in[0]));
    y = oct_call(cx, m->pool, y);
    oct_tensor *z = oct_call(cx, m->gate, y);
    z = oct_mul(cx, z, oct_sigmoid(cx, z));
    oct_tensor *both[] = {y, z};
    y = oct_call(cx, m->global_pool, oct_concat(cx, both, 2));
    return oct_call(cx, m->dequant, oct_call(cx, m->head, y));
}

static const oct_module_type concat_net_type = {.name = "concat_net", .forward = concat_forward};

static oct_module *concat_create(void)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &concat_net_type, sizeof(concat_net)));
    concat_net *m = (concat_net *)root;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, stem, oct_sequential_create(&m->stem));
    APPEND(m->stem, oct_conv2d_create(&item, 3, 16, rig_same(3), false));
    APPEND(m->stem, oct_batch_norm_create(&item, 16));
    APPEND(m->stem, oct_relu_create(&item));
    CHILD(m, pool, oct_max_pool_create(&m->pool, oct_pool_geometry_of(2, 2, 0)));
    CHILD(m, gate, oct_conv2d_create(&m->gate, 16, 8, rig_same(1), true));
    CHILD(m, global_pool, oct_global_avg_pool_create(&m->global_pool));
    CHILD(m, head, oct_linear_create(&m->head, 24, 10, true));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    return root;
}

Test(structure, concat)
{
    check_graph(concat_create(), OCT_SHAPE(1, 16, 16, 3), concat_fused, concat_quantizers);
}

/* A batch norm of its own, linear with batch norm, linear with relu. */
typedef struct linear_norm {
    oct_module base;
    oct_module *quant, *conv, *pool, *bn, *relu, *fc1, *bn1, *fc2, *relu2, *fc3, *dequant;
} linear_norm;

static oct_tensor *linear_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    linear_norm *m = (linear_norm *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->conv, oct_call(cx, m->quant, in[0]));
    x = oct_call(cx, m->relu, oct_call(cx, m->bn, oct_call(cx, m->pool, x)));
    x = oct_call(cx, m->bn1, oct_call(cx, m->fc1, oct_flatten(cx, x)));
    x = oct_call(cx, m->relu2, oct_call(cx, m->fc2, x));
    return oct_call(cx, m->dequant, oct_call(cx, m->fc3, x));
}

static const oct_module_type linear_norm_type = {.name = "linear_norm", .forward = linear_forward};

static oct_module *linear_create(void)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &linear_norm_type, sizeof(linear_norm)));
    linear_norm *m = (linear_norm *)root;
    CHILD(m, quant, oct_quant_stub_create(&m->quant));
    CHILD(m, conv, oct_conv2d_create(&m->conv, 3, 8, rig_same(3), true));
    CHILD(m, pool, oct_max_pool_create(&m->pool, oct_pool_geometry_of(2, 2, 0)));
    CHILD(m, bn, oct_batch_norm_create(&m->bn, 8));
    CHILD(m, relu, oct_relu_create(&m->relu));
    CHILD(m, fc1, oct_linear_create(&m->fc1, 128, 32, true));
    CHILD(m, bn1, oct_batch_norm_create(&m->bn1, 32));
    CHILD(m, fc2, oct_linear_create(&m->fc2, 32, 16, true));
    CHILD(m, relu2, oct_relu_create(&m->relu2));
    CHILD(m, fc3, oct_linear_create(&m->fc3, 16, 10, true));
    CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    return root;
}

Test(structure, linear_norm)
{
    check_graph(linear_create(), OCT_SHAPE(1, 8, 8, 3), linear_norm_fused, linear_norm_quantizers);
}

/* Eager: fused by name, then a quantizer for the output of each module that has one. */

static void walk_quantized(const oct_module *m, lines *l)
{
    if (oct_is_quantized(m) && ((const oct_quantized *)m)->fake_quant)
        add_line(l, oct_module_path(m).text);
    for (size_t i = 0; i < m->num_children; i++)
        walk_quantized(*m->children[i].slot, l);
}

static void check_eager(oct_module *root, oct_shape input, const char *const *const *fuse,
                        const char *const *golden)
{
    static lines found;
    rig r;
    rig_begin(&r, root, OCT_EXAMPLE(input));
    OK(oct_fuse_module_lists(&r.root, fuse, false));
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    OK(rig_try(&r, &options, NULL));
    found.count = 0;
    walk_quantized(r.root, &found);
    compare(&found, golden, "eager");
    rig_end(&r);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(structure, cnn_small_eager)
{
    oct_shape input = OCT_SHAPE(1, 28, 28, 1);
    const char *const *lists[] = {NAMES("features.0", "features.1", "features.2"),
                                  NAMES("features.3", "features.4", "features.5"),
                                  NAMES("features.7", "features.8", "features.9"),
                                  NAMES("features.10", "features.11", "features.12"),
                                  NAMES("head.0", "head.1"),
                                  NULL};
    check_eager(zoo("cnn-small", input), input, lists, cnn_small_eager);
}

Test(structure, resnet20_eager)
{
    enum { LISTS = 40 };
    static char text[LISTS][4][48];
    static const char *names[LISTS][4];
    const char *const *lists[LISTS + 1] = {NULL};
    size_t count = 0;
    for (int i = -1; i < 9; i++) {
        static const struct {
            const char *part[3];
        } fuse[] = {{{"body.0", "body.1", "body.2"}},
                    {{"body.3", "body.4", NULL}},
                    {{"add", "relu", NULL}},
                    {{"shortcut.0", "shortcut.1", NULL}}};
        static const char *const stem[] = {"stem.0", "stem.1", "stem.2"};
        for (size_t f = 0; f < (i < 0 ? 1 : i == 3 || i == 6 ? 4 : 3); f++) {
            for (int j = 0; j < 3; j++) {
                const char *part = i < 0 ? stem[j] : fuse[f].part[j];
                if (!part) continue;
                if (i < 0)
                    snprintf(text[count][j], sizeof text[count][j], "%s", part);
                else
                    snprintf(text[count][j], sizeof text[count][j], "blocks.%d.%s", i, part);
                names[count][j] = text[count][j];
            }
            lists[count] = names[count];
            count++;
        }
    }
    oct_shape input = OCT_SHAPE(1, 32, 32, 3);
    check_eager(zoo("resnet20", input), input, lists, resnet20_eager);
}

Test(structure, linear_norm_eager)
{
    const char *const *lists[] = {NAMES("bn", "relu"), NAMES("fc1", "bn1"), NAMES("fc2", "relu2"),
                                  NULL};
    check_eager(linear_create(), OCT_SHAPE(1, 8, 8, 3), lists, linear_norm_eager);
}

Test(structure, vgg11c_eager)
{
    static const int first[] = {0, 4, 8, 11, 15, 18, 22, 25};
    static char text[OCT_COUNT(first)][3][32];
    static const char *names[OCT_COUNT(first)][4];
    const char *const *lists[OCT_COUNT(first) + 2] = {NULL};
    for (size_t i = 0; i < OCT_COUNT(first); i++) {
        for (int j = 0; j < 3; j++) {
            snprintf(text[i][j], sizeof text[i][j], "features.%d", first[i] + j);
            names[i][j] = text[i][j];
        }
        lists[i] = names[i];
    }
    lists[OCT_COUNT(first)] = NAMES("classifier.0", "classifier.1");
    oct_shape input = OCT_SHAPE(1, 32, 32, 3);
    check_eager(zoo("vgg11c", input), input, lists, vgg11c_eager);
}
