/* Losses of the list: values, gradients against numeric ones, weights, and the metric beside them. */
#include "core/op/loss.h"
#include "tests/core/op_rig.h"
#include "tests/golden/task_golden.h"

#include <math.h>
#include <omp.h>

/* Thousands of tiny batches: threads would only wait for each other. */
static void use_one_thread(void)
{
    omp_set_num_threads(1);
}

TestSuite(loss, .init = use_one_thread, .timeout = 60);

enum { ROWS = 5, OUTPUTS = 4 };

static const int32_t labels[ROWS] = {3, 0, 2, 3, 1};
static float values[ROWS * OUTPUTS];
static oct_loss_spec spec;
static oct_goals goals;
static oct_loss result;

RIG_FORWARD(loss_of, oct_loss_apply(cx, &spec, x[0], &goals, &result))

static double loss_at(rig *r)
{
    cr_assert(rig_run(r, false), "%s: %s", spec.kind->name, oct_error_message(0));
    return result.loss_sum / result.weight;
}

/* The gradient of the batch's mean with respect to every output. */
static void check_gradient(void)
{
    const double step = 0.0078125;
    rig r = rig_of(NULL, loss_of, ROWS, 2);
    rig_input(&r, OCT_SHAPE(ROWS, OUTPUTS), 0.3F);
    float grad[ROWS * OUTPUTS];
    oct_tensor *y = rig_run(&r, true);
    cr_assert_float_eq((double)oct_f32(y)[0], result.loss_sum / result.weight, 1e-6);
    rig_backward(&r, y, NULL);
    memcpy(grad, r.input[0].grad, sizeof grad);
    for (int i = 0; i < ROWS * OUTPUTS; i++) {
        float *x = oct_f32(&r.input[0]) + i, old = *x;
        *x = old + (float)step;
        const double high = loss_at(&r);
        *x = old - (float)step;
        const double want = (high - loss_at(&r)) / (2 * step);
        *x = old;
        cr_assert_float_eq((double)grad[i], want, 2e-5, "%s, output %d: %g, wanted %g",
                           spec.kind->name, i, (double)grad[i], want);
    }
    rig_end(&r);
}

/* What the loss does not use is left out, or would not show. */
static oct_loss_options options_of(const oct_loss_kind *kind)
{
    static const double class_weights[OUTPUTS] = {1, 0.5, 2, 3};
    static const double positive_weights[OUTPUTS] = {1, 4, 0.25, 2};
    oct_loss_options o = {0};
    if (kind->uses & OCT_LOSS_USES_SMOOTHING) o.smoothing = 0.1;
    if (kind->uses & OCT_LOSS_USES_CLASS_WEIGHTS) o.class_weights = class_weights;
    if (kind->uses & OCT_LOSS_USES_POSITIVE_WEIGHTS) o.positive_weights = positive_weights;
    if (kind->keys && strstr(kind->keys, " delta ")) o.delta = 0.4;
    if (kind->uses & OCT_LOSS_USES_TEACHER) {
        o.teacher_share = 0.7;
        o.temperature = 2.5;
    }
    return o;
}

static void check_goals(const float *teacher)
{
    goals = (oct_goals){.labels = labels, .teacher = teacher};
    if (spec.kind->takes & OCT_LOSS_OF_LABELS) check_gradient();
    goals.ignores = true;
    goals.ignored = 3;
    if (spec.kind->takes & OCT_LOSS_OF_LABELS) check_gradient();
    goals = (oct_goals){.values = values, .teacher = teacher};
    if (spec.kind->takes & OCT_LOSS_OF_VALUES) check_gradient();
    goals.labels = labels;
    if (spec.kind->takes & OCT_LOSS_OF_BOTH) check_gradient();
}

Test(loss, every_gradient_is_that_of_the_value)
{
    for (int i = 0; i < ROWS * OUTPUTS; i++)
        values[i] = (float)(i % OUTPUTS) / 6; /* rows that add up to 1 */
    for (size_t i = 0; i < oct_registry_count(&oct_loss_table); i++) {
        spec = (oct_loss_spec){.kind = oct_registry_at(&oct_loss_table, i)};
        check_goals(NULL);
        spec.options = options_of(spec.kind);
        check_goals(NULL);
        if (spec.kind->uses & OCT_LOSS_USES_TEACHER) check_goals(golden_teacher);
    }
}

static void set_input(rig *r, oct_shape shape, const float *x)
{
    rig_input(r, shape, 1);
    memcpy(oct_f32(&r->input[0]), x, (size_t)oct_shape_numel(&shape) * sizeof *x);
}

/* torch.nn.functional.mse_loss([[1, 2], [3, 4]], [[0, 1], [1, 0]]) = (1 + 1 + 4 + 16) / 4 */
Test(loss, mse_is_the_mean_over_all_outputs)
{
    static const float x[] = {1, 2, 3, 4}, wanted[] = {0, 1, 1, 0};
    static const float grad[] = {0.5F, 0.5F, 1, 2};
    static const int32_t classes[] = {1, 0};
    const oct_goals both[] = {{.labels = classes}, {.values = wanted}};
    spec = (oct_loss_spec){.kind = oct_loss_find("mse")};
    cr_assert_not_null(spec.kind);
    for (int i = 0; i < 2; i++) {
        rig r = rig_of(NULL, loss_of, 2, 1);
        set_input(&r, OCT_SHAPE(2, 2), x);
        goals = both[i];
        oct_tensor *y = rig_run(&r, true);
        cr_assert_eq((double)oct_f32(y)[0], 5.5);
        cr_assert(isnan(result.metric));
        rig_backward(&r, y, NULL);
        for (int k = 0; k < 4; k++)
            cr_assert_eq(r.input[0].grad[k], grad[k]);
        rig_end(&r);
    }
}

/* PyTorch computes in float. */
static const double near = 3e-6;

static void check_golden(const char *kind, oct_loss_options options, const float *value,
                         const float *grad)
{
    enum { GOLDEN = OCT_COUNT(golden_labels), K = OCT_COUNT(golden_weights) };
    spec = (oct_loss_spec){.kind = oct_loss_find(kind), .options = options};
    rig r = rig_of(NULL, loss_of, GOLDEN, 2);
    set_input(&r, OCT_SHAPE(GOLDEN, K), golden_y);
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s", oct_error_message(0));
    oct_check_near_f32(oct_f32(y), value, 1, near, near, kind);
    rig_backward(&r, y, NULL);
    oct_check_near_f32(r.input[0].grad, grad, (int64_t)GOLDEN * K, near, near, kind);
    rig_end(&r);
}
#define CHECK_GOLDEN(kind, name, ...)                                                              \
    check_golden(kind, (oct_loss_options){__VA_ARGS__}, golden_##name##_value, golden_##name##_grad)

#define AS_DOUBLES(to, from)                                                                       \
    double to[OCT_COUNT(from)];                                                                    \
    for (size_t k = 0; k < OCT_COUNT(from); k++)                                                   \
    to[k] = (double)(from)[k]

Test(loss, values_and_gradients_are_pytorch_s)
{
    int32_t classes[OCT_COUNT(golden_labels)];
    AS_DOUBLES(weights, golden_weights);
    AS_DOUBLES(positive, golden_positive);
    for (size_t i = 0; i < OCT_COUNT(classes); i++)
        classes[i] = (int32_t)golden_labels[i];
    goals = (oct_goals){.labels = classes};
    CHECK_GOLDEN("cross_entropy", ce_weights, .class_weights = weights);
    CHECK_GOLDEN("cross_entropy", ce_weights_smooth, .class_weights = weights, .smoothing = 0.2);
    goals.teacher = golden_teacher;
    CHECK_GOLDEN("distillation", distill, .teacher_share = 0.6, .temperature = 3);
    CHECK_GOLDEN("distillation", distill_alone, .teacher_share = 1, .temperature = 3);
    goals = (oct_goals){.values = golden_soft, .teacher = golden_teacher};
    CHECK_GOLDEN("distillation", distill_soft, .teacher_share = 0.6, .temperature = 2,
                 .smoothing = 0.1);
    goals.teacher = NULL;
    CHECK_GOLDEN("cross_entropy", ce_weights_soft, .class_weights = weights, .smoothing = 0.2);
    goals.values = golden_hard;
    CHECK_GOLDEN("bce", bce, .delta = 0);
    CHECK_GOLDEN("bce", bce_positive, .positive_weights = positive);
    goals.values = golden_wanted;
    CHECK_GOLDEN("mae", mae, .delta = 0);
    CHECK_GOLDEN("huber", huber, .delta = 0.7);
}

Test(loss, a_map_has_a_row_for_each_pixel_and_may_ignore_some)
{
    enum { SAMPLES = 2, H = 2, W = 3, K = OCT_COUNT(golden_weights) };
    int32_t classes[OCT_COUNT(golden_map_labels)];
    AS_DOUBLES(weights, golden_weights);
    for (size_t i = 0; i < OCT_COUNT(classes); i++)
        classes[i] = (int32_t)golden_map_labels[i];
    spec = (oct_loss_spec){.kind = oct_loss_find("cross_entropy"),
                           .options.class_weights = weights,
                           .metric = oct_metric_find("top1")};
    goals = (oct_goals){.labels = classes, .rows = H * W, .ignores = true, .ignored = 255};
    rig r = rig_of(NULL, loss_of, SAMPLES, 1);
    set_input(&r, OCT_SHAPE(SAMPLES, H, W, K), golden_maps);
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s", oct_error_message(0));
    oct_check_near_f32(oct_f32(y), golden_ce_map_value, 1, near, near, "value");
    rig_backward(&r, y, NULL);
    oct_check_near_f32(r.input[0].grad, golden_ce_map_grad, OCT_COUNT(golden_ce_map_grad), near,
                       near, "gradient");
    cr_assert(fmod(result.metric * 9 / 100, 1) < 1e-9, "a share of 9 pixels, not %g %%",
              result.metric);
    goals.ignores = false;
    cr_assert_null(rig_run(&r, false));
    cr_assert_str_eq(oct_error_message(0),
                     "sample 0 of the batch has label 255 at row 1, but the model "
                     "has 5 classes; labels must be 0 to 4");
    goals.rows = 1;
    cr_assert_null(rig_run(&r, false));
    cr_assert_str_eq(oct_error_message(0),
                     "cross_entropy takes logits (N, K), but its input is (2, 2, 3, 5)");
    goals.rows = 5;
    cr_assert_null(rig_run(&r, false));
    cr_assert_str_eq(oct_error_message(0),
                     "cross_entropy takes a row of outputs for each of 5 places "
                     "of a sample, (N, h, w, K), but its input is (2, 2, 3, 5)");
    rig_end(&r);
}

Test(loss, a_sample_of_any_shape_is_one_row_of_values)
{
    spec = (oct_loss_spec){.kind = oct_loss_find("mae")};
    goals = (oct_goals){.values = golden_maps};
    rig r = rig_of(NULL, loss_of, 2, 1);
    set_input(&r, OCT_SHAPE(2, 2, 3, 5), golden_maps);
    cr_assert_eq(loss_at(&r), 0.0);
    oct_f32(&r.input[0])[7] += 3;
    cr_assert_float_eq(loss_at(&r), 3.0 / 60, 1e-6);
    rig_end(&r);
}

/* A row of class k counts k times. */
static double weigh_by_class(const oct_output_row *row, const oct_loss_options *options)
{
    (void)options;
    return (double)row->label;
}

Test(loss, rows_count_by_their_weights)
{
    static const float x[] = {1, 2, 3, 4};
    static const int32_t classes[] = {1, 0}, none[] = {0, 0};
    oct_loss_kind weighted = *oct_loss_find("mse");
    weighted.weight = weigh_by_class;
    spec = (oct_loss_spec){.kind = &weighted};
    goals = (oct_goals){.labels = classes};
    rig r = rig_of(NULL, loss_of, 2, 1);
    set_input(&r, OCT_SHAPE(2, 2), x);
    oct_tensor *y = rig_run(&r, true);
    cr_assert_eq(result.weight, 1.0);
    cr_assert_eq((double)oct_f32(y)[0], 1.0, "the second row counts nothing");
    rig_backward(&r, y, NULL);
    static const float grad[] = {1, 1, 0, 0};
    for (int k = 0; k < 4; k++)
        cr_assert_eq(r.input[0].grad[k], grad[k]);
    goals.labels = none;
    cr_assert_eq(loss_at(&r), 0.0, "nor does a batch whose rows all count nothing");
    rig_end(&r);
}

Test(loss, a_metric_is_measured_in_the_same_pass)
{
    static const float x[] = {0, 1, 1, 0, 0, 1, 2, 1};
    static const int32_t classes[] = {1, 1, 1, 0};
    spec =
        (oct_loss_spec){.kind = oct_loss_find("cross_entropy"), .metric = oct_metric_find("top1")};
    goals = (oct_goals){.labels = classes};
    rig r = rig_of(NULL, loss_of, 4, 2);
    set_input(&r, OCT_SHAPE(4, 2), x);
    rig_run(&r, false);
    cr_assert_eq(result.metric, 75.0);
    rig_end(&r);
}

Test(loss, a_plug_in_adds_to_the_list_under_a_name_of_its_own)
{
    static oct_loss_kind other;
    other = *oct_loss_find("mse");
    cr_assert_eq(oct_registry_add(&oct_loss_table, &other), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0),
                     "there is a loss 'mse' already; give yours another name");
    other.name = "mse2";
    cr_assert_eq(oct_registry_add(&oct_loss_table, &other), OCT_OK);
    cr_assert_eq(oct_loss_find("mse2"), &other);
}
