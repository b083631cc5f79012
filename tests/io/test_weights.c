/* Weights of PyTorch's from files of each format compute in Octet what they compute there; weights that do not fit are
 * reported; other files are refused. */
#include "core/nn/modules.h"
#include "io/file/file.h"
#include "io/weights/fit.h"
#include "tests/golden/weights_golden.h"
#include "tests/io/onnx_model.h"
#include "tests/support/check_status.h"
#include "tests/support/check_tensor.h"
#include "tests/support/tmp.h"

#include <stdio.h>
#include <stdlib.h>

TestSuite(weights, .timeout = 60);

/* The same network as in tests/golden/make_weights_golden.py. */
typedef struct net {
    oct_module base;
    oct_module *conv1, *bn1, *up, *fc1, *bn2, *fc2, *last;
} net;

static oct_tensor *net_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    net *m = (net *)self;
    (void)n;
    oct_tensor *y = oct_relu(cx, oct_call(cx, m->bn1, oct_call(cx, m->conv1, x[0])));
    y = oct_flatten(cx, oct_call(cx, m->up, y));
    y = oct_relu(cx, oct_call(cx, m->bn2, oct_call(cx, m->fc1, y)));
    y = oct_relu(cx, oct_call(cx, m->fc2, y));
    return oct_call(cx, m->last, oct_reshape(cx, y, OCT_SHAPE(0, 2, 2, 3)));
}
static const oct_module_type net_type = {.name = "net", .forward = net_forward};

#define PART(part, create)                                                                         \
    MUST(create);                                                                                  \
    MUST(oct_module_add_child(root, #part, &m->part))

static oct_module *build(int64_t classes)
{
    oct_module *root;
    MUST(oct_module_alloc(&root, &net_type, sizeof(net)));
    net *m = (net *)root;
    PART(conv1, oct_conv2d_create(&m->conv1, 2, 4, oct_conv_geometry_of(3, 3, 1, 1, 2), false));
    PART(bn1, oct_batch_norm_create(&m->bn1, 4));
    PART(up, oct_conv_transpose2d_create(&m->up, 4, 6, oct_conv_geometry_of(2, 3, 2, 0, 2), true));
    PART(fc1, oct_linear_create(&m->fc1, 336, 6, true));
    PART(bn2, oct_batch_norm_create(&m->bn2, 6));
    PART(fc2, oct_linear_create(&m->fc2, 6, 12, true));
    PART(last, oct_conv2d_create(&m->last, 3, classes, oct_conv_geometry_of(1, 1, 1, 0, 1), true));
    MUST(oct_init_parameters(root, 1));
    return root;
}

static const oct_texts none;

static oct_status load(const oct_weights *w, oct_module *root, const oct_texts *map,
                       const oct_texts *skip, oct_weight_report *report)
{
    const oct_weight_rules rules = {map ? map : &none, skip ? skip : &none};
    return oct_weights_load(w, root, OCT_EXAMPLE(OCT_SHAPE(1, 4, 3, 2)), &rules, report);
}

static oct_weights golden(const char *name)
{
    char path[600];
    oct_weights w;
    snprintf(path, sizeof path, "%s/tests/golden/weights/%s", OCT_SOURCE_DIR, name);
    MUST(oct_weights_read(&w, path));
    return w;
}

static void check_outputs(oct_module *root)
{
    oct_context *cx;
    static float x[OCT_COUNT(golden_weights_x)];
    memcpy(x, golden_weights_x, sizeof x);
    MUST(oct_context_create(&cx, &oct_collective_one));
    oct_module_train(root, false);
    oct_context_begin(cx, oct_leaves_split(2, 1, 0, 1), false);
    const oct_tensor *y =
        oct_call(cx, root, oct_tensor_view(cx, OCT_F32, OCT_SHAPE(2, 4, 3, 2), x));
    MUST(oct_context_status(cx));
    cr_assert_eq(oct_numel(y), (int64_t)OCT_COUNT(golden_weights_y));
    oct_check_near_f32(oct_f32(y), golden_weights_y, oct_numel(y), 2e-5, 2e-5, "y");
    oct_context_destroy(&cx);
}

static void check_golden(const char *name, int64_t others)
{
    oct_weights w = golden(name);
    oct_module *root = build(5);
    oct_weight_report report;
    cr_assert_eq(w.others, others, "%s: %lld others", name, (long long)w.others);
    MUST(load(&w, root, NULL, NULL, &report));
    cr_assert(report.wanted == 17 && report.taken == 17 && report.kept == 0 && report.unused == 0,
              "%s: %lld of %lld", name, (long long)report.taken, (long long)report.wanted);
    check_outputs(root);
    oct_weight_report_free(&report);
    oct_module_destroy(&root);
    oct_weights_free(&w);
    check_nothing_held();
}

Test(weights, of_each_format_compute_what_pytorch_computes)
{
    check_golden("net.safetensors", 2);
    check_golden("net.npz", 2);
    check_golden("net.onnx", 0);
}

/* A matrix that the file reads as (in, out) alone is given as (out, in); one that it reads in both ways, as stored. */
Test(weights, of_an_onnx_file_that_are_read_in_two_ways_are_given_as_stored)
{
    static const float stored[] = {0.5F, 1.5F, 2.5F, 3.5F}, transposed[] = {0.5F, 2.5F, 1.5F, 3.5F};
    static const char *const readers[] = {"Gemm", "Gather"};
    for (size_t i = 0; i < OCT_COUNT(readers); i++) {
        onnx_model m = {0};
        oct_tmp tmp;
        oct_weights w;
        onnx_in(&m, "x", -1, 2);
        onnx_out(&m, "y");
        onnx_weights(&m, "both", 2, 2);
        onnx_weights(&m, "one", 2, 2);
        onnx_longs(&m, "index", 1);
        onnx_node(&m, "MatMul", "x both", "a");
        onnx_node(&m, "MatMul", "a one", "b");
        onnx_node(&m, readers[i], i == 0 ? "b both" : "both index", "y");
        if (i == 0) onnx_int(&m, "transB", 1);
        oct_proto file = onnx_file(&m);
        oct_tmp_create(&tmp);
        MUST(oct_weights_read(&w, oct_tmp_write(&tmp, "tied.onnx", file.data, file.length)));
        cr_assert_eq(w.count, 2);
        for (int64_t k = 0; k < w.count; k++) {
            const bool both = strcmp(oct_weight_name(&w, &w.arrays[k]), "both") == 0;
            cr_assert_eq(w.arrays[k].transposed, !both, "%s", readers[i]);
            cr_assert_arr_eq(w.values + w.arrays[k].data_begin, both ? stored : transposed,
                             sizeof stored);
        }
        oct_weights_free(&w);
        oct_proto_free(&file);
        oct_tmp_remove(&tmp);
    }
    check_nothing_held();
}

/* Digests are those of sha256sum, except for ONNX files, whose values may be in another file. */
Test(weights, have_the_digest_of_the_file)
{
    char path[600];
    void *bytes;
    size_t size;
    uint8_t digest[32];
    char hex[65];
    oct_weights w = golden("net.safetensors");
    snprintf(path, sizeof path, "%s/tests/golden/weights/net.safetensors", OCT_SOURCE_DIR);
    MUST(oct_file_read(path, 1 << 20, &bytes, &size));
    oct_sha256(bytes, size, digest);
    cr_assert_str_eq(w.digest, oct_hex(digest, hex));
    oct_free(&bytes);
    oct_weights_free(&w);
}

static bool is_initial(const oct_module *a, const oct_module *b)
{
    return memcmp(a->params[0]->value.data, b->params[0]->value.data,
                  (size_t)oct_numel(&a->params[0]->value) * sizeof(float)) == 0;
}

Test(weights, of_another_class_count_keep_all_but_the_last_layer)
{
    oct_weights w = golden("net.safetensors");
    oct_module *root = build(7), *fresh = build(7);
    oct_weight_report report;
    MUST(load(&w, root, NULL, NULL, &report));
    cr_assert(report.taken == 15 && report.kept == 0 && report.unused == 0);
    cr_assert_str_eq(report.classifier.data,
                     "last.weight is (5, 3, 1, 1) in the file and (7, 3, 1, "
                     "1) here, last.bias is (5,) in the file and (7,) here");
    cr_assert(is_initial(((net *)root)->last, ((net *)fresh)->last));
    cr_assert(!is_initial(((net *)root)->fc1, ((net *)fresh)->fc1));
    oct_weight_report_free(&report);
    oct_module_destroy(&root);
    oct_module_destroy(&fresh);
    oct_weights_free(&w);
    check_nothing_held();
}

Test(weights, are_renamed_and_skipped)
{
    static char rules[2][32] = {"bn1.*=bn9.*", "conv1.weight=fc9.w"};
    static char pattern[] = "fc*";
    const oct_texts map = {2, {rules[0], rules[1]}}, skip = {1, {pattern}};
    oct_weights w = golden("net.npz");
    oct_module *root = build(5), *fresh = build(5);
    oct_weight_report report;
    MUST(load(&w, root, &map, &skip, &report));
    cr_assert_eq(report.taken, 8);
    cr_assert_eq(report.kept, 9);
    cr_assert_str_eq(report.kept_names.data,
                     "conv1.weight, bn1.weight, bn1.bias, bn1.running_mean, "
                     "bn1.running_var, fc1.weight, ...");
    cr_assert_eq(report.unused, 5);
    cr_assert(is_initial(((net *)root)->fc2, ((net *)fresh)->fc2));
    cr_assert(!is_initial(((net *)root)->up, ((net *)fresh)->up));
    oct_weight_report_free(&report);
    oct_module_destroy(&root);
    oct_module_destroy(&fresh);
    oct_weights_free(&w);
    check_nothing_held();
}

/* A refused file has changed nothing. */
static void check_misfit(const oct_weights *w, const oct_texts *map, const oct_texts *skip,
                         const char *said)
{
    oct_module *root = build(5), *fresh = build(5);
    oct_weight_report report;
    cr_assert_eq(load(w, root, map, skip, &report), OCT_USAGE);
    check_said(said);
    oct_fail_clear();
    cr_assert(is_initial(((net *)root)->conv1, ((net *)fresh)->conv1));
    oct_weight_report_free(&report);
    oct_module_destroy(&root);
    oct_module_destroy(&fresh);
}

#define RULE(text) (&(oct_texts){1, {(char[]){text}}})

Test(weights, that_do_not_fit_are_reported)
{
    oct_weights w = golden("net.safetensors");
    check_misfit(&w, RULE("*=net.*"), NULL, "init: no name of ");
    check_misfit(&w, RULE("module.*=*"), NULL, "init_map: 'module.*=*' fits no name of ");
    check_misfit(&w, RULE("fc1.bias=fc2.bias"), NULL, "init: both fc1.bias and fc2.bias of ");
    check_misfit(&w, NULL, RULE("head.weight"), "init_skip: 'head.weight' fits no parameter");
    check_misfit(&w, RULE("bn1.weight=bn2.weight"), NULL, "init: both");
    w.arrays[0].dim[0] = 3; /* of bn1.bias or what stands first: a shape of another model */
    check_misfit(&w, NULL, NULL, "in this model; to keep its initial values name it in init_skip");
    oct_weights_free(&w);
    check_nothing_held();
}

Test(weights, rules_of_names)
{
    oct_weight_rename r;
    cr_assert(oct_weight_rename_of("a.b=c", &r) && !r.prefix && r.from_length == 3);
    cr_assert(oct_weight_rename_of("module.*=*", &r) && r.prefix && r.to_length == 0);
    cr_assert(!oct_weight_rename_of("a", &r));
    cr_assert(!oct_weight_rename_of("a=", &r));
    cr_assert(!oct_weight_rename_of("=a", &r));
    cr_assert(!oct_weight_rename_of("a.*=b", &r));
    cr_assert(!oct_weight_rename_of("a=b.*", &r));
    cr_assert(!oct_weight_rename_of("*a*=b*", &r));
}

/* A safetensors file of this header without padding, and `bytes` zero bytes. */
static const char *craft(oct_tmp *tmp, const char *header, size_t bytes)
{
    static uint8_t file[1 << 12];
    const uint64_t length = strlen(header);
    memset(file, 0, sizeof file);
    memcpy(file, &length, sizeof length);
    memcpy(file + 8, header, length);
    return oct_tmp_write(tmp, "a.safetensors", file, 8 + length + bytes);
}

static void check_refused(const char *path, const char *said)
{
    oct_weights w;
    cr_assert_eq(oct_weights_read(&w, path), OCT_DATA, "%s", said);
    check_said(said);
    oct_fail_clear();
    check_nothing_held();
}

Test(weights, that_are_no_safetensors_are_refused)
{
    static const struct {
        const char *header;
        size_t bytes;
        const char *said;
    } odd[] = {
        {"", 0, "its header is empty"},
        {"{", 0, "its header is not JSON: byte 1: string or '}' expected near end of file"},
        {"[1]", 0, "its header is not an object"},
        {"{}", 0, "holds no arrays of floating-point numbers"},
        {"{}", 4, "do not fill the 4 bytes"},
        {"{\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, "only others"},
        {"{\"a\":1}", 0, "a has a dtype that is not known"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,8],\"data_offsets\":[0,4]}}", 4,
         "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
         "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "do not fill"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "do not fill"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "do not fill"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, "without gaps or overlaps"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "its header is not JSON"},
        {"{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a name of 0"},
    };
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    for (size_t i = 0; i < OCT_COUNT(odd); i++)
        check_refused(craft(&tmp, odd[i].header, odd[i].bytes), odd[i].said);
    oct_tmp_remove(&tmp);
}

Test(weights, that_are_cut_short_or_of_another_kind_are_refused)
{
    static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, '{', '}'};
    static const uint8_t nan_array[] = "a\0\0\0\xc0\x7f";
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    check_refused(oct_tmp_write(&tmp, "a.safetensors", huge, sizeof huge), "would have");
    check_refused(oct_tmp_write(&tmp, "a.safetensors", huge, 5), "less than 8 bytes");
    check_refused(oct_tmp_write(&tmp, "a.safetensors", huge, 0), "less than 8 bytes");
    check_refused(oct_tmp_write_text(&tmp, "a.npz", "no archive"), "a.npz: is no .npz file");
    check_refused(oct_tmp_write_text(&tmp, "net.pt", "PK\3\4archive/data.pkl"),
                  "looks like a file of torch.save");
    check_refused(oct_tmp_write_text(&tmp, "net.bin", "whatever"), "is no safetensors, .npz or");
    check_refused(oct_tmp_path(&tmp, "missing.safetensors"), "cannot be read");
    char *path = NULL;
    MUST(oct_strdup(&path, craft(&tmp,
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":"
                                 "[0,4]}}",
                                 4)));
    FILE *file = fopen(path, "r+b");
    fseek(file, -4, SEEK_END);
    fwrite(nan_array + 2, 1, 4, file);
    fclose(file);
    oct_weights w;
    cr_assert_eq(oct_weights_read(&w, path), OCT_DATA);
    check_said("element 0 of a is not a finite float");
    oct_free(&path);
    oct_tmp_remove(&tmp);
}

/* Every allocation that fails is reported, and nothing leaks. */
Test(weights, survive_when_memory_runs_out)
{
    for (int64_t n = 1;; n++) {
        char path[600];
        oct_weights w;
        oct_weight_report report = {0};
        oct_module *root = build(5);
        snprintf(path, sizeof path, "%s/tests/golden/weights/net.safetensors", OCT_SOURCE_DIR);
        oct_mem_fail_after(n);
        oct_status status = oct_weights_read(&w, path);
        if (status == OCT_OK) status = load(&w, root, NULL, NULL, &report);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE, "%d: %s", status,
                  oct_error_message(0));
        oct_fail_clear();
        oct_weight_report_free(&report);
        oct_weights_free(&w);
        oct_module_destroy(&root);
        check_nothing_held();
        if (status == OCT_OK) break;
    }
}
