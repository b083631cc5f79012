/* Losses of the list: values, gradients against numeric ones, weights, and the metric beside them. */
#include "core/op/loss.h"
#include "tests/core/op_rig.h"

#include <math.h>

TestSuite(loss, .timeout = 60);

enum { ROWS = 5, OUTPUTS = 4 };

static const int32_t labels[ROWS] = {3, 0, 2, 3, 1};
static float values[ROWS * OUTPUTS];
static oct_loss_spec spec;
static oct_goals goals;
static oct_loss result;

RIG_FORWARD(loss_of, oct_loss_apply(cx, &spec, x[0], &goals, &result))

static double loss_at(rig *r)
{
    cr_assert(rig_run(r, false), "%s: %s", spec.kind->name, oct_fail_text(0));
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

Test(loss, every_gradient_is_that_of_the_value)
{
    for (int i = 0; i < ROWS * OUTPUTS; i++)
        values[i] = (float)(i % OUTPUTS) / 6; /* rows that add up to 1 */
    for (size_t i = 0; i < oct_registry_count(&oct_loss_table); i++) {
        spec = (oct_loss_spec){.kind = oct_registry_at(&oct_loss_table, i)};
        for (int smoothing = 0; smoothing <= spec.kind->smooths; smoothing++) {
            spec.options.smoothing = 0.1 * smoothing;
            goals = (oct_goals){.labels = labels};
            if (spec.kind->takes & OCT_LOSS_OF_LABELS) check_gradient();
            goals = (oct_goals){.values = values};
            if (spec.kind->takes & OCT_LOSS_OF_VALUES) check_gradient();
            goals.labels = labels;
            if (spec.kind->takes & OCT_LOSS_OF_BOTH) check_gradient();
        }
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
    cr_assert_eq(oct_loss_register(&other), OCT_USAGE);
    cr_assert_str_eq(oct_fail_text(0), "there is a loss 'mse' already; give yours another name");
    other.name = "mse2";
    cr_assert_eq(oct_loss_register(&other), OCT_OK);
    cr_assert_eq(oct_loss_find("mse2"), &other);
}
