/* Sensitivity tables of models with several inputs, and of models that return class numbers: each row is
 * what switching that one quantizer on does, measured here by hand. */
#include "core/tensor/tensor.h"
#include "quant/layers/sensitivity.h"
#include "tests/quant/deploy.h"
#include "tests/support/check_status.h"

#include <math.h>

TestSuite(sensitivity, .timeout = 120);

enum { CLASSES = 4 };
static bool numbers; /* the forward ends in argmax */

/* A plane and a row: conv a, linear b, linear c. */
static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *y = oct_global_avg_pool(cx, oct_relu(cx, oct_call(cx, p->m[0], x[0])));
    y = oct_call(cx, p->m[2], oct_add(cx, y, oct_call(cx, p->m[1], x[1])));
    return numbers ? oct_argmax(cx, y) : y;
}
static const oct_module_type type = {.name = "couple", .forward = forward};

static void begin_deployment(deployment *d)
{
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 2, 6, deploy_conv(3, 1), true));
    PART(root, 1, oct_linear_create(&item, 5, 6, true));
    PART(root, 2, oct_linear_create(&item, 6, CLASSES, true));
    deploy_begin(d, root, OCT_EXAMPLE(OCT_SHAPE(1, 4, 4, 2), OCT_SHAPE(1, 5)));
    deploy_train(d, &options);
}

static oct_status fetch(void *user, int64_t first, int64_t n, float *const *input)
{
    const deployment *d = user;
    for (int i = 0; i < d->example.count; i++) {
        const int64_t numel = oct_shape_numel(&d->example.shape[i]);
        memcpy(input[i], d->x[i] + first * numel, (size_t)(n * numel) * sizeof(float));
    }
    return OCT_OK;
}

static oct_sensitivity_data data_of(deployment *d, const int32_t *labels)
{
    return (oct_sensitivity_data){.samples = DEPLOY_SAMPLES,
                                  .batch = 6,
                                  .leaf = 4,
                                  .example = d->example,
                                  .outputs = CLASSES,
                                  .labels = labels,
                                  .fetch = fetch,
                                  .user = d};
}

/* As real numbers: logits, or 1 at the class. */
static void outputs_of(deployment *d, float y[DEPLOY_SAMPLES * CLASSES])
{
    OK(oct_class_rows(deploy_forward(d), DEPLOY_SAMPLES, CLASSES, y));
}

static double sqnr(const float *exact, const float *y)
{
    double signal = 0, noise = 0;
    for (int i = 0; i < DEPLOY_SAMPLES * CLASSES; i++) {
        signal += (double)exact[i] * (double)exact[i];
        noise += ((double)exact[i] - (double)y[i]) * ((double)exact[i] - (double)y[i]);
    }
    return noise > 0 ? 10 * log10(signal / noise) : HUGE_VAL;
}

static const oct_sensitivity_row *row_of(const oct_sensitivity *table, const oct_fake_quant *fq)
{
    const oct_path_text path = oct_module_path(fq->base.parent);
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].path, path.text) == 0 &&
            strcmp(table->rows[i].tensor, "activation") == 0)
            return &table->rows[i];
    cr_assert_fail("no row of %s", path.text);
    return NULL;
}

static void check_table(bool ends_in_numbers)
{
    deployment d;
    oct_sensitivity table;
    float exact[DEPLOY_SAMPLES * CLASSES], y[DEPLOY_SAMPLES * CLASSES];
    numbers = ends_in_numbers;
    begin_deployment(&d);
    const oct_sensitivity_data data = data_of(&d, NULL);
    OK(oct_sensitivity_measure(&table, d.root, &data, &oct_collective_one));
    cr_assert_eq(table.count, d.quantizers.count + 3, "three layers have weights");
    oct_module_train(d.root, false);
    outputs_of(&d, exact);
    int moved = 0;
    for (size_t i = 0; i < d.quantizers.count; i++) {
        oct_fake_quant *fq = d.quantizers.items[i];
        const oct_sensitivity_row *row = row_of(&table, fq);
        fq->state = OCT_QUANT_SIMULATE;
        outputs_of(&d, y);
        fq->state = OCT_QUANT_OFF;
        const double wanted = sqnr(exact, y);
        moved += isfinite(wanted);
        cr_assert(row->sqnr == wanted || fabs(row->sqnr - wanted) < 1e-9, "%s: %g and %g",
                  row->path, row->sqnr, wanted);
        cr_assert_eq(row->loss_change, 0, "there are no labels");
    }
    if (!numbers) cr_assert_eq(moved, (int)d.quantizers.count, "inputs 0 and 1 among them");
    oct_free(&table.rows);
    deploy_end(&d);
}

Test(sensitivity, of_several_inputs)
{
    check_table(false);
}

Test(sensitivity, of_class_numbers)
{
    check_table(true);
}

Test(sensitivity, with_labels_reports_the_change_of_the_loss)
{
    deployment d;
    oct_sensitivity table;
    const int32_t labels[DEPLOY_SAMPLES] = {0, 1, 2, 3, 0, 1, 2, 3};
    double changed = 0;
    numbers = false;
    begin_deployment(&d);
    const oct_sensitivity_data data = data_of(&d, labels);
    OK(oct_sensitivity_measure(&table, d.root, &data, &oct_collective_one));
    for (size_t i = 0; i < table.count; i++)
        changed += fabs(table.rows[i].loss_change);
    cr_assert(changed > 0 && changed < 1, "%g", changed);
    oct_free(&table.rows);
    deploy_end(&d);
}

Test(sensitivity, says_what_does_not_fit_the_model)
{
    deployment d;
    oct_sensitivity table;
    numbers = false;
    begin_deployment(&d);
    oct_sensitivity_data data = data_of(&d, NULL);
    data.outputs = CLASSES + 1;
    cr_assert_eq(oct_sensitivity_measure(&table, d.root, &data, &oct_collective_one), OCT_PREPARE);
    check_said("the model returns f32 (6, 4) for 6 samples of 5 classes");
    data.outputs = CLASSES;
    data.example.count = d.example.count = 1;
    cr_assert_eq(oct_sensitivity_measure(&table, d.root, &data, &oct_collective_one), OCT_USAGE);
    check_said("the model was prepared with 2 inputs, but called with 1");
    data.example.count = 0;
    cr_assert_eq(oct_sensitivity_measure(&table, d.root, &data, &oct_collective_one), OCT_USAGE);
    check_said("a model has 1 to 8 inputs, but 0 are given");
    deploy_end(&d);
}
