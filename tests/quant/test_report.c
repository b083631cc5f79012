/* The check report and the printed tree: what they say of networks whose prepared form is known. */
#include "core/base/mem.h"
#include "tests/quant/graph_nets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(report, .timeout = 60);

static const net_kind *kind_of(const char *name)
{
    for (size_t i = 0; i < OCT_COUNT(net_kinds); i++)
        if (strcmp(net_kinds[i].name, name) == 0) return &net_kinds[i];
    cr_assert_fail("%s", name);
    return NULL;
}

static oct_text report_of(const char *name, const oct_prepare_options *options)
{
    rig r;
    oct_text report = {0};
    net_kind_begin(&r, kind_of(name), true);
    OK(rig_try(&r, options, &report));
    rig_end(&r);
    return report;
}

static void check_says(const oct_text *text, const char *words)
{
    cr_assert(strstr(text->data, words), "nothing says '%s' in\n%s", words, text->data);
}

/* Column widths follow the longest cells, and lines end with their last word. */
static const char shared_report[] =
    "Check report of prepare\n"
    "\n"
    "  model      shared\n"
    "  target     x86: %s\n"
    "  method     jit_strip: your forward runs; what lies between QuantStubs and DeQuantStubs is "
    "quantized\n"
    "  outcome    6 operations, 6 in integers, 0 in float\n"
    "  weights    s8, one scale for each output channel, from the weights of each step\n"
    "\n"
    "Modules, in the order in which they run\n"
    "\n"
    "  module                        becomes       fused from        codes of its output           "
    "       computes in\n"
    "  quant                         quant_stub                      u8, own range (min_max)       "
    "       quantizes\n"
    "  stem                          qat_conv      conv + relu       u8, own range (min_max)       "
    "       integers\n"
    "  relu()                        part of stem\n"
    "  conv                          qat_conv      conv + bn + relu  u8, own range (min_max)       "
    "       integers\n"
    "  bn                            part of conv\n"
    "  relu()                        part of conv\n"
    "  _generated_conv2d_0           qat_conv      conv + bn         u8, own range (min_max)       "
    "       integers\n"
    "  bn                            part of _generated_conv2d_0\n"
    "  _generated_global_avg_pool_0  qat_avg_pool                    u8, shared with "
    "_generated_conv2d_0  integers\n"
    "  _generated_flatten_0          flatten                         u8, shared with "
    "_generated_conv2d_0  integers\n"
    "  head                          qat_conv                        u8, own range (min_max)       "
    "       integers\n"
    "  dequant                       dequant_stub                    float                         "
    "       to float\n"
    "\n"
    "Findings\n"
    "\n"
    "  1. conv: is called 2 times, with one set of weights if it has any; the calls are computed "
    "at "
    "conv, _generated_conv2d_0, each with a range of its own.\n"
    "  2. bn: is called 2 times, with one set of weights if it has any; the calls are computed at "
    "conv, _generated_conv2d_0, each with a range of its own.\n"
    "\n"
    "Words\n";

Test(report, is_this_for_a_network_with_a_shared_layer)
{
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    oct_qconfig qconfig = oct_qconfig_default();
    oct_qconfig_setter setter = oct_setter_default(&qconfig);
    qconfig.observer = oct_observer_find("min_max");
    options.setters = &setter;
    oct_text report = report_of("shared", &options), again = report_of("shared", &options);
    char want[4096];
    snprintf(want, sizeof(want), shared_report, options.target->help);
    cr_assert(strncmp(report.data, want, strlen(want)) == 0, "%s\n--- wanted\n%s", report.data,
              want);
    cr_assert_str_eq(report.data, again.data); /* same model, same bytes */
    oct_text_free(&report);
    oct_text_free(&again);
}

Test(report, says_when_calls_share_a_range)
{
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.shared_range = true;
    oct_text report = report_of("shared", &options);
    check_says(&report, "conv: is called 2 times");
    check_says(&report, "all with one range");
    check_says(&report,
               "method     jit: your forward runs; whatever can be quantized is quantized");
    oct_text_free(&report);
}

Test(report, says_nothing_where_there_is_nothing_to_say)
{
    oct_prepare_options options = rig_options(OCT_METHOD_SYMBOLIC);
    oct_text report = report_of("functional", &options);
    check_says(&report, "Findings\n\n  None: every operation computes in "
                        "integers.\n");
    check_says(&report, "16 operations, 16 in integers, 0 in float");
    oct_text_free(&report);
}

Test(report, names_members_before_an_add_as_part_of_it)
{
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    oct_text report = report_of("residual", &options);
    check_says(&report, "  block.conv2                   part of block._generated_add_0\n"
                        "  block.bn2                     part of block._generated_add_0\n"
                        "  block._generated_add_0        qat_conv      conv + bn + add + relu  ");
    oct_text_free(&report);
}

Test(report, finds_an_unfused_batch_norm_and_what_it_costs)
{
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    oct_text report = report_of("branches", &options);
    check_says(&report, "1. bn: this batch norm follows no convolution or linear layer");
    check_says(&report, "u8, shared with quant");
    oct_text_free(&report);
}

Test(report, finds_float_fallbacks_with_reason_and_cost)
{
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    oct_qconfig_setter setters[] = {oct_setter_by_name("conv2", NULL), *options.setters};
    options.setters = setters;
    options.num_setters = 2;
    oct_text report = report_of("pair", &options);
    check_says(&report,
               "conv2: stays float: its qconfig is none (by name 'conv2'); for each sample, "
               "108 codes are turned into floats before it and 144 floats are quantized after it.");
    check_says(&report, "_generated_dequant_stub_0");
    check_says(&report, "_generated_quant_stub_0");
    oct_text_free(&report);
}

/* Where setters differ, the table has a column of who gave each module its qconfig. */
Test(report, says_who_decided_for_each_module)
{
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    oct_text report = report_of("pair", &options);
    cr_assert_not(strstr(report.data, "qconfig from"), "one setter for all");
    oct_text_free(&report);
    oct_qconfig sixteen = oct_qconfig_default();
    sixteen.bits = 16;
    oct_qconfig_setter setters[] = {oct_setter_by_name("conv2", NULL),
                                    oct_setter_by_type("conv2d", &sixteen), *options.setters};
    options.setters = setters;
    options.num_setters = 3;
    report = report_of("pair", &options);
    check_says(&report, "qconfig from");
    check_says(&report, "by name 'conv2'");
    check_says(&report, "by type 'type:conv2d'");
    check_says(&report, "default");
    oct_text_free(&report);
}

Test(report, says_what_setters_decided)
{
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    oct_qconfig wide = oct_qconfig_default();
    wide.bits = 16;
    wide.fixed_scale = true;
    oct_qconfig_setter setters[] = {oct_setter_float_output(), oct_setter_by_name("stem", &wide),
                                    *options.setters};
    options.setters = setters;
    options.num_setters = 3;
    oct_text report = report_of("shared", &options);
    check_says(&report, "stem: its scale stays as calibration left it");
    check_says(&report, "stem: its output has 16-bit codes");
    check_says(&report, "u16, own range (moving_average), stays as calibrated");
    check_says(&report, "head: returns its result unquantized, in full precision");
    oct_text_free(&report);
}

static oct_status add_uncalled(rig *r, oct_module **slot)
{
    OCT_TRY(oct_conv2d_create(slot, 3, 4, rig_same(1), true));
    return oct_module_add_child(r->root, "spare", slot);
}

Test(report, finds_modules_that_are_never_called)
{
    rig r;
    oct_text report = {0};
    oct_module *spare = NULL;
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    net_kind_begin(&r, kind_of("shared"), true);
    OK(add_uncalled(&r, &spare));
    OK(rig_try(&r, &options, &report));
    check_says(&report, "spare: is never called by the forward on the example");
    oct_text_free(&report);
    rig_end(&r);
}

Test(report, is_refused_for_a_model_that_is_not_prepared)
{
    rig r;
    oct_text report = {0};
    net_kind_begin(&r, kind_of("shared"), true);
    REFUSED(oct_report_write(&report, r.root), OCT_USAGE, "the model is not prepared");
    rig_end(&r);
}

Test(report, tree_shows_each_quantizer_where_it_belongs)
{
    rig r;
    oct_text tree = {0};
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    net_kind_begin(&r, kind_of("shared"), true);
    rig_prepare(&r, &options);
    OK(oct_tree_write(&tree, r.root));
    check_says(&tree, "shared(\n"
                      "  (quant): quant_stub(\n"
                      "    (fake_quant): fake_quant(state=off, kind=affine, dtype=u8, ");
    check_says(&tree, "  (conv): qat_conv(conv2d + batch_norm + relu\n"
                      "    (conv): conv2d(4 -> 4, 3x3, padding 1)\n"
                      "    (bn): batch_norm(4 channels)\n"
                      "    (fake_quant): fake_quant(");
    check_says(&tree, "    (weight_fake_quant): fake_quant(dtype=s8, codes=-127..127, "
                      "scheme=per_channel_symmetric, ch_axis=0, channels=4, scale=");
    check_says(&tree, "  (bn): identity()\n");
    check_says(&tree, "    (weights): those of conv\n");
    check_says(&tree, "range=not seen");
    oct_text_free(&tree);
    rig_calibrate(&r);
    OK(oct_tree_write(&tree, r.root));
    check_says(&tree, "state=calibrate");
    cr_assert(!strstr(tree.data, "range=not seen"), "%s", tree.data);
    oct_text_free(&tree);
    rig_end(&r);
}

/* As the layer itself takes them: powers of two where the target shifts. */
Test(report, tree_shows_the_scales_that_the_target_has)
{
    rig r;
    oct_text tree = {0};
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    options.target = oct_target_find("pow2");
    options.fold_batch_norm = true;
    net_kind_begin(&r, kind_of("shared"), true);
    rig_prepare(&r, &options);
    OK(oct_tree_write(&tree, r.root));
    for (const char *at = tree.data; (at = strstr(at, "channels=4, scale=")); at++) {
        double least = 0, most = 0;
        cr_assert_eq(sscanf(at, "channels=4, scale=%lf..%lf", &least, &most), 2);
        cr_assert(log2(least) == rint(log2(least)) && log2(most) == rint(log2(most)), "%.40s", at);
    }
    oct_text_free(&tree);
    rig_end(&r);
}

Test(report, tree_names_the_owner_of_a_shared_quantizer)
{
    rig r;
    oct_text tree = {0};
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    net_kind_begin(&r, kind_of("branches"), true);
    rig_prepare(&r, &options);
    OK(oct_tree_write(&tree, r.root));
    check_says(&tree, "    (fake_quant): shared with quant\n");
    oct_text_free(&tree);
    rig_end(&r);
}

Test(report, tree_of_a_float_model_has_no_quantizers)
{
    rig r;
    oct_text tree = {0};
    net_kind_begin(&r, kind_of("residual"), true);
    OK(oct_tree_write(&tree, r.root));
    check_says(&tree, "  (block): block(\n    (conv1): conv2d(8 -> 8, 3x3, padding 1)\n");
    cr_assert(!strstr(tree.data, "fake_quant"), "%s", tree.data);
    oct_text_free(&tree);
    rig_end(&r);
}

/* The network of quant/prepare/README.md. */
typedef struct pictured {
    oct_module base;
    oct_module *conv1, *bn1, *conv2, *bn2;
} pictured;

static oct_tensor *pictured_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    pictured *m = (pictured *)self;
    (void)n;
    oct_tensor *x = oct_relu(cx, oct_call(cx, m->bn1, oct_call(cx, m->conv1, in[0])));
    oct_tensor *y = oct_call(cx, m->bn2, oct_call(cx, m->conv2, x));
    y = oct_relu(cx, oct_add(cx, y, x));
    return oct_concat(cx, (oct_tensor *[]){x, y}, 2);
}

static const oct_module_type pictured_type = {.name = "pictured", .forward = pictured_forward};

static void pictured_begin(rig *r)
{
    oct_module *root = NULL;
    OK(oct_module_alloc(&root, &pictured_type, sizeof(pictured)));
    pictured *m = (pictured *)root;
    CHILD(m, conv1, oct_conv2d_create(&m->conv1, 3, 4, rig_same(3), false));
    CHILD(m, bn1, oct_batch_norm_create(&m->bn1, 4));
    CHILD(m, conv2, oct_conv2d_create(&m->conv2, 4, 4, rig_same(3), false));
    CHILD(m, bn2, oct_batch_norm_create(&m->bn2, 4));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
}

static void check_shown(const char *page, const char *text, const char *begin, const char *end)
{
    const char *from = strstr(text, begin);
    cr_assert(from, "%s", text);
    size_t length = *end ? (size_t)(strstr(from, end) - from) : strlen(from);
    char *part = strndup(from, length);
    cr_assert(strstr(page, part), "the page does not show\n%s", part);
    free(part);
}

Test(report, the_page_on_prepare_shows_what_is_printed)
{
    static char page[1 << 16];
    rig r;
    oct_text report = {0}, table = {0};
    FILE *file = fopen(OCT_SOURCE_DIR "/quant/prepare/README.md", "r");
    cr_assert(file && fread(page, 1, sizeof page - 1, file) > 0);
    fclose(file);
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    pictured_begin(&r);
    OK(rig_try(&r, &options, &report));
    OK(oct_graph_table(oct_graph_of(r.root), &table));
    check_shown(page, report.data, "  outcome", "  weights");
    check_shown(page, report.data, "  module ", "\n\nFindings");
    check_shown(page, table.data, "opcode", "");
    oct_text_free(&report);
    oct_text_free(&table);
    rig_end(&r);
}

/* Whatever allocation fails, the call says so and nothing is kept. */
Test(report, survives_every_failed_allocation)
{
    rig r;
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    net_kind_begin(&r, kind_of("shared"), true);
    rig_prepare(&r, &options);
    size_t held = oct_mem_live();
    oct_status status = OCT_RESOURCE;
    for (int64_t n = 1; status != OCT_OK; n++) {
        oct_text text = {0};
        oct_mem_fail_after(n);
        status = oct_report_write(&text, r.root);
        if (status == OCT_OK) status = oct_tree_write(&text, r.root);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
        oct_text_free(&text);
        cr_assert_eq(oct_mem_live(), held);
    }
    rig_end(&r);
}
