/* What a plug-in may have wrong is a sentence, and nothing of it is there afterwards. */
#include "launch/model/model.h"
#include "launch/session/plugin_load.h"
#include "quant/module/qconfig.h"

#include <criterion/criterion.h>
#include <string.h>

static void update(oct_range *range, const oct_observation *seen)
{
    (void)range, (void)seen;
}
static void count(oct_range *range, int64_t *histogram, const oct_observation *seen)
{
    (void)range, (void)histogram, (void)seen;
}
static float scale(float min, float max, oct_qparams q)
{
    return (max - min) / (float)(q.qmax - q.qmin);
}
static int32_t zero_point(float min, float max, float at, oct_qparams q)
{
    (void)min, (void)max, (void)at;
    return q.qmin;
}
static float weight_scale(const float *weight, int64_t n)
{
    return (float)n * weight[0];
}
static float factor(int64_t n, oct_qparams q)
{
    return (float)n * q.scale;
}
static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w, (void)classes;
    return oct_linear_create(root, c, 1, false);
}
static double loss_value(const oct_output_row *row, const oct_loss_options *options)
{
    return options->smoothing + (double)row->y[0];
}
static void loss_grad(const oct_output_row *row, const oct_loss_options *options, oct_loss_scale by,
                      float *grad)
{
    (void)row, (void)options;
    grad[0] = oct_loss_scaled(by, 1);
}
static int64_t numbers(int64_t n)
{
    return n;
}
static void add(const oct_output_row *row, double *sums)
{
    sums[0] += (double)row->y[0];
}
static double metric_value(const double *sums, int64_t n)
{
    return sums[0] / (double)n;
}

#define ONE(type, ...) ((const type *const[]){&(const type){__VA_ARGS__}, NULL})
#define MODEL(...)                                                                                 \
    .models = ONE(oct_model_spec, .name = "x", .help = "x", .build = build, __VA_ARGS__)
#define LOSS(...)                                                                                  \
    .losses = ONE(oct_loss_kind, .name = "x", .value = loss_value, .grad = loss_grad, __VA_ARGS__)
#define METRIC(...)                                                                                \
    .metrics = ONE(oct_metric, .name = "x", .title = "x", .brief = "x", .unit = "",                \
                   .numbers = numbers, .value = metric_value, __VA_ARGS__)

static const struct {
    oct_plugin plugin;
    const char *sentence;
} faults[] = {
    {{.abi = 1}, "was built for version 0 of the plug-in interface, this program has "},
    {{.abi = OCT_PLUGIN_ABI + ((uint64_t)1 << 48)}, "was built for version "},
    {{.abi = OCT_PLUGIN_ABI ^ 8},
     "was built for version 9 of the plug-in interface with structs of other sizes, this "},
    {{.abi = OCT_PLUGIN_ABI}, "the plug-in's own name is missing or no name"},
    {{.abi = OCT_PLUGIN_ABI, .name = "My Parts"}, "the plug-in's own name is missing or no name"},
#define FAULT(text, ...)                                                                           \
    {                                                                                              \
        {.abi = OCT_PLUGIN_ABI, .name = "p", __VA_ARGS__}, text                                    \
    }
    FAULT("the name of an observer is missing", .observers = ONE(oct_observer, .update = update)),
    FAULT("the name of a loss is 'a b'; use up to 40", .losses = ONE(oct_loss_kind, .name = "a b")),
    FAULT("observer x needs update or count, and not both",
          .observers = ONE(oct_observer, .name = "x")),
    FAULT("observer x needs update or count", .observers = ONE(oct_observer, "x", update, count)),
    FAULT("fake-quant x needs scale or weight_scale",
          .fake_quants = ONE(oct_fake_quant_kind, .name = "x")),
    FAULT("fake-quant x needs scale or weight_scale",
          .fake_quants = ONE(oct_fake_quant_kind, .name = "x", .weight_scale = weight_scale,
                             .zero_point = zero_point)),
    FAULT("fake-quant x needs scale or weight_scale",
          .fake_quants = ONE(oct_fake_quant_kind, .name = "x", .scale = scale, .per_tensor = true)),
    FAULT("fake-quant x needs scale or weight_scale",
          .fake_quants = ONE(oct_fake_quant_kind, .name = "x", .scale = scale, .factor = factor)),
    FAULT("model x needs build, a line", .models = ONE(oct_model_spec, .name = "x", .help = "x")),
    FAULT("model x needs build, a line",
          .models = ONE(oct_model_spec, .name = "x", .build = build)),
    FAULT("model x needs build, a line",
          .models = ONE(oct_model_spec, .name = "x", .help = "a\nb", .build = build)),
    FAULT("model x needs build, a line", MODEL(.min_size = -1)),
    FAULT("model x needs build, a line", MODEL(.num_inputs = 9)),
    FAULT("loss x needs value, grad, takes", .losses = ONE(oct_loss_kind, .name = "x", .takes = 1)),
    FAULT("loss x needs value", LOSS(.takes = 0)),
    FAULT("loss x needs value", LOSS(.takes = 8)),
    FAULT("loss x needs value", LOSS(.takes = 1, .uses = 32)),
    FAULT("loss x needs value", LOSS(.takes = 1, .outputs = (oct_output_kind)3)),
    FAULT("loss x needs value", LOSS(.takes = 1, .keys = "delta")),
    FAULT("loss x needs value", LOSS(.takes = 1, .keys = " delta")),
    FAULT("metric x needs title", .metrics = ONE(oct_metric, .name = "x")),
    FAULT("metric x needs numbers", .metrics = ONE(oct_metric, .name = "x", .title = "x",
                                                   .brief = "x", .unit = "", .add = add)),
    FAULT("metric x needs numbers", METRIC(.add = NULL)),
    FAULT("metric x needs numbers", METRIC(.order = &(const oct_metric_order){NULL})),
    FAULT("metric x needs numbers", METRIC(.add = add, .of = (oct_metric_of)3)),
    FAULT("metric x needs numbers", METRIC(.add = add, .most = -1)),
    FAULT("metric x needs numbers", METRIC(.add = add, .details = &(const oct_metric_details){0})),
    FAULT("module type 'x' needs atomic", .modules = ONE(oct_module_spec, .name = "x")),
    FAULT("module type 'x' needs a forward",
          .modules = ONE(oct_module_spec, .name = "x", .atomic = true, .lists_args = true)),
    FAULT("there is an observer 'min_max' already; give yours another name",
          .fake_quants = ONE(oct_fake_quant_kind, .name = "x", .scale = scale),
          .observers = ONE(oct_observer, .name = "min_max", .update = update)),
};

Test(plugin_parts, each_fault_is_a_sentence_and_leaves_nothing)
{
    for (size_t i = 0; i < OCT_COUNT(faults); i++) {
        cr_assert_eq(oct_plugin_register(&faults[i].plugin), OCT_USAGE, "%s", faults[i].sentence);
        cr_assert(strstr(oct_error_message(0), faults[i].sentence), "%s\n%s", faults[i].sentence,
                  oct_error_message(0));
        cr_assert(!oct_observer_find("x") && !oct_fake_quant_kind_find("x") &&
                  !oct_model_find("x") && !oct_loss_find("x") && !oct_metric_find("x"));
    }
    cr_assert_eq(oct_plugin_register(NULL), OCT_USAGE);
    cr_assert_eq(oct_plugin_load(NULL), OCT_USAGE);
    cr_assert_eq(oct_plugin_load("/nowhere.so"), OCT_USAGE);
    cr_assert_eq(strncmp(oct_error_message(0), "/nowhere.so: there is no such file", 34), 0, "%s",
                 oct_error_message(0));
}

static const oct_plugin own = {.abi = OCT_PLUGIN_ABI,
                               .name = "own",
                               .observers = ONE(oct_observer, .name = "x", .count = count),
                               LOSS(.takes = OCT_LOSS_OF_LABELS, .keys = " delta "),
                               METRIC(.add = add)};

Test(plugin_parts, of_a_program_are_found_and_may_be_given_twice)
{
    for (int i = 0; i < 2; i++)
        cr_assert_eq(oct_plugin_register(&own), OCT_OK, "%s", oct_error_message(0));
    cr_assert_eq(oct_observer_find("x"), own.observers[0]);
    cr_assert_eq(oct_loss_find("x"), own.losses[0]);
    cr_assert_eq(oct_metric_find("x"), own.metrics[0]);
    cr_assert(!oct_observer_find(NULL) && !oct_fake_quant_kind_find(NULL));
}
