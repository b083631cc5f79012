/* The training step (quant/train/train_step.h): it learns, what is not finite changes nothing, and a changed tree is taken
 * up. That no bit depends on ranks is judged in tests/dist. */
#include "core/base/mem.h"
#include "quant/train/train_step.h"
#include "tests/quant/graph_nets.h"
#include "tests/support/check_status.h"

#include <fenv.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(train_step, .timeout = 60);

static const oct_optim_config sgd = {.kind = OCT_SGD, .momentum = 0.9f};

static void begin_training(rig *r, oct_train_step *step)
{
    net_kind_begin(r, &net_kinds[0], true);
    MUST(oct_train_step_create(step, r->root, &sgd, 8, 4, &oct_collective_one));
}

static const oct_batch *batch_of(const rig *r)
{
    static oct_batch batch;
    batch = (oct_batch){1, {r->example.shape[0]}, {r->x[0]}, .labels = r->labels};
    batch.shape[0].dim[0] = 8;
    return &batch;
}

static double run_steps(rig *r, oct_train_step *step, int count)
{
    oct_step_result result = {0};
    for (int i = 0; i < count; i++)
        MUST(oct_train_step_run(step, batch_of(r), 0.02f, &result));
    return result.loss;
}

Test(train_step, learns_in_float_and_quantized)
{
    rig r;
    oct_train_step step;
    float y[8 * 2];
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    begin_training(&r, &step);
    double before = run_steps(&r, &step, 1), after = run_steps(&r, &step, 20);
    cr_assert_lt(after, 0.8 * before);
    int status;
    const pid_t child = fork(); /* which has none of OpenMP's threads */
    if (child == 0) {
        alarm(20);
        _exit(run_steps(&r, &step, 1) < before ? 0 : 1);
    }
    cr_assert(waitpid(child, &status, 0) == child && status == 0, "the child ended with %d",
              status);
    MUST(oct_prepare(&r.root, &r.example, &options, NULL));
    REFUSED(oct_train_step_forward(&step, batch_of(&r), y), OCT_USAGE,
            "the model has changed since its parameters were bound (prepare, folding); call "
            "oct_train_step_rebind first");
    MUST(oct_train_step_rebind(&step, r.root));
    MUST(oct_set_fake_quant(r.root, OCT_STATE_CALIBRATION));
    MUST(oct_train_step_forward(&step, batch_of(&r), y));
    MUST(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    before = run_steps(&r, &step, 1), after = run_steps(&r, &step, 20);
    cr_assert_lt(after, before);
    cr_assert(isfinite((double)y[0]));
    oct_train_step_destroy(&step);
    rig_end(&r);
    check_nothing_held();
}

Test(train_step, a_loss_that_is_not_finite_changes_nothing)
{
    rig r;
    oct_train_step step;
    oct_step_result result;
    begin_training(&r, &step);
    oct_f32(&step.params.items[step.params.count - 1]->value)[0] = INFINITY;
    const oct_param *param = step.params.items[0];
    float before = oct_f32(&param->value)[0];
    cr_assert_eq(oct_train_step_run(&step, batch_of(&r), 0.02f, &result), OCT_NUMERIC);
    check_said("the loss is not finite; lower the learning rate (now 0.02)");
    cr_assert_eq(oct_f32(&param->value)[0], before);
    oct_train_step_destroy(&step);
    rig_end(&r);
    check_nothing_held();
}

/* Two layers without bias one after another, the first of zeros: the loss is log 2 whatever the second
 * one's weights are, and the gradient of the first is made of them. */
static oct_module *two_layers(float second)
{
    oct_module *root = NULL, *layer[2];
    MUST(oct_sequential_create(&root));
    for (int i = 0; i < 2; i++) {
        MUST(oct_linear_create(&layer[i], 2, 2, false));
        float *w = oct_f32(&layer[i]->params[0]->value);
        for (int k = 0; k < 4; k++)
            w[k] = i == 1 && k == 0 ? second : 0.0f;
        MUST(oct_sequential_append(root, &layer[i]));
    }
    return root;
}

/* A step that is undone leaves the state as if it had never run. */
static void check_skipped(oct_train_step *step, const oct_batch *batch, float lr,
                          const char *sentence)
{
    oct_step_result result;
    const oct_params *params = &step->params;
    float before[2], state = step->optim.slot[0][0];
    step->nonfinite = OCT_NONFINITE_SKIP;
    for (int i = 0; i < 2; i++)
        before[i] = oct_f32(&params->items[i]->value)[0];
    MUST(oct_train_step_run(step, batch, lr, &result));
    cr_assert(result.skipped && isnan(result.loss) && result.samples == 2);
    cr_assert(strncmp(step->why, sentence, strlen(sentence)) == 0, "%s", step->why);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(oct_f32(&params->items[i]->value)[0], before[i]);
    cr_assert(step->optim.slot[0][0] == state && step->optim.updates == 0);
    step->nonfinite = OCT_NONFINITE_STOP;
}

static void check_step_refused(float second, float lr, const char *sentence)
{
    oct_train_step step;
    oct_step_result result;
    float x[4] = {100, 100, 100, 100};
    const int32_t labels[2] = {0, 0};
    const oct_batch batch = {1, {OCT_SHAPE(2, 2)}, {x}, .labels = labels};
    oct_module *root = two_layers(second);
    MUST(oct_train_step_create(&step, root, &sgd, 2, 2, &oct_collective_one));
    check_skipped(&step, &batch, lr, sentence);
    oct_status status = oct_train_step_run(&step, &batch, lr, &result);
    cr_assert_eq(status, OCT_NUMERIC);
    cr_assert_float_eq(result.loss, log(2), 1e-6);
    check_said(sentence);
    oct_train_step_destroy(&step);
    oct_module_destroy(&root);
    check_nothing_held();
}

Test(train_step, a_gradient_or_a_parameter_that_is_not_finite_is_said)
{
    check_step_refused(1e38f, 0.02f,
                       "the gradient of the parameter 0.weight is infinite or NaN; lower the "
                       "learning rate (now 0.02)");
    check_step_refused(1.0f, 3e38f,
                       "the update made a value of the parameter 0.weight infinite or NaN");
}

Test(train_step, one_at_a_time_takes_steps)
{
    rig r;
    oct_train_step step, other;
    oct_step_result result;
    begin_training(&r, &step);
    MUST(oct_train_step_create(&other, r.root, &sgd, 8, 4, &oct_collective_one));
    for (int ended = 0; ended < 2; ended++) {
        REFUSED(oct_train_step_run(&step, batch_of(&r), 0.02f, &result), OCT_USAGE,
                "another training step has taken the model's parameters since");
        MUST(oct_train_step_forward(&step, batch_of(&r), NULL));
        if (!ended) run_steps(&r, &other, 1);
        if (!ended) oct_train_step_destroy(&other);
    }
    MUST(oct_train_step_rebind(&step, r.root));
    run_steps(&r, &step, 1);
    oct_train_step_destroy(&step);
    rig_end(&r);
    check_nothing_held();
}

/* A sample with NaN fails only its own step: later steps run as if it had not been there. */
Test(train_step, a_batch_that_is_not_finite_leaves_nothing_after)
{
    double end[2];
    for (int with_nan = 0; with_nan < 2; with_nan++) {
        rig r;
        oct_train_step step;
        oct_step_result result;
        oct_prepare_options options = rig_options(OCT_METHOD_JIT);
        begin_training(&r, &step);
        float *first = &r.x[0][0];
        const float value = *first;
        for (int phase = 0; phase < 2; phase++) {
            run_steps(&r, &step, 2);
            *first = NAN;
            if (with_nan)
                cr_assert_eq(oct_train_step_run(&step, batch_of(&r), 0.02f, &result), OCT_NUMERIC);
            *first = value;
            run_steps(&r, &step, 2);
            if (phase == 1) break;
            MUST(oct_prepare(&r.root, &r.example, &options, NULL));
            MUST(oct_train_step_rebind(&step, r.root));
            MUST(oct_set_fake_quant(r.root, OCT_STATE_CALIBRATION));
            *first = INFINITY;
            if (with_nan)
                cr_assert_eq(oct_train_step_forward(&step, batch_of(&r), NULL), OCT_NUMERIC);
            *first = value;
            MUST(oct_train_step_forward(&step, batch_of(&r), NULL));
            MUST(oct_set_fake_quant(r.root, OCT_STATE_QAT));
        }
        end[with_nan] = run_steps(&r, &step, 1);
        oct_train_step_destroy(&step);
        rig_end(&r);
    }
    cr_assert_eq(end[0], end[1]);
    check_nothing_held();
}

/* Prepare and folding destroy batch norms whose parameters are bound; nothing of them may be touched
 * after that, in any order of calls. */
static void check_change(bool fold_at_prepare, bool root_first)
{
    rig r;
    oct_train_step step;
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    options.fold_batch_norm = fold_at_prepare;
    begin_training(&r, &step);
    run_steps(&r, &step, 2);
    MUST(oct_prepare(&r.root, &r.example, &options, NULL));
    MUST(oct_train_step_rebind(&step, r.root));
    MUST(oct_set_fake_quant(r.root, OCT_STATE_CALIBRATION));
    MUST(oct_train_step_forward(&step, batch_of(&r), NULL));
    MUST(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    run_steps(&r, &step, 2);
    if (!fold_at_prepare) {
        oct_step_result result;
        MUST(oct_fold_batch_norm(r.root));
        REFUSED(oct_train_step_run(&step, batch_of(&r), 0.02f, &result), OCT_USAGE,
                "the model has changed since its parameters were bound");
        MUST(oct_train_step_rebind(&step, r.root));
        run_steps(&r, &step, 2);
    }
    if (!root_first) oct_train_step_destroy(&step);
    rig_end(&r);
    if (root_first) oct_train_step_destroy(&step);
    check_nothing_held();
}

Test(train_step, the_tree_may_change_and_end_while_it_is_bound)
{
    for (int i = 0; i < 4; i++)
        check_change(i % 2, i / 2);
}

/* Two inputs of different shapes; the forward ends in logits or, when it is given the target, in its loss. */
typedef struct couple {
    oct_module base;
    oct_module *plane, *row, *head;
} couple;

static oct_tensor *couple_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    couple *m = (couple *)self;
    oct_tensor *a = oct_global_avg_pool(cx, oct_relu(cx, oct_call(cx, m->plane, x[0])));
    oct_tensor *y = oct_call(cx, m->head, oct_add(cx, a, oct_call(cx, m->row, x[1])));
    return n < 3 ? y : oct_cross_entropy_loss(cx, y, x[2], 0);
}

static oct_module *couple_create(void)
{
    static const oct_module_type type = {.name = "couple", .forward = couple_forward};
    oct_module *root;
    MUST(oct_module_alloc(&root, &type, sizeof(couple)));
    couple *m = (couple *)root;
    MUST(oct_conv2d_create(&m->plane, 2, 6, oct_conv_geometry_of(3, 3, 1, 1, 1), true));
    MUST(oct_module_add_child(root, "plane", &m->plane));
    MUST(oct_linear_create(&m->row, 5, 6, true));
    MUST(oct_module_add_child(root, "row", &m->row));
    MUST(oct_linear_create(&m->head, 6, 3, true));
    MUST(oct_module_add_child(root, "head", &m->head));
    MUST(oct_init_parameters(root, 4));
    return root;
}

enum { PAIRS = 11 };
static float planes[PAIRS * 4 * 4 * 2], rows[PAIRS * 5], goals[PAIRS * 3];
static int32_t numbers[PAIRS];

static void fill_pairs(void)
{
    oct_fill_normal(planes, OCT_COUNT(planes), 1, OCT_STREAM_TEST, 0, 0, 1);
    oct_fill_normal(rows, OCT_COUNT(rows), 2, OCT_STREAM_TEST, 0, 0, 1);
    memset(goals, 0, sizeof goals);
    for (int i = 0; i < PAIRS; i++) {
        numbers[i] = planes[32 * i] > 0 ? 0 : rows[5 * i] > 0 ? 1 : 2;
        goals[3 * i + numbers[i]] = 1;
    }
}

static oct_batch pairs(void)
{
    return (oct_batch){.num_inputs = 2,
                       .shape = {OCT_SHAPE(PAIRS, 4, 4, 2), OCT_SHAPE(PAIRS, 5)},
                       .input = {planes, rows}};
}

/* A model's life: in float, prepared, calibrated, quantized. Its last loss and its evaluation. */
static double live(const oct_batch *learned, float *y, oct_step_result *result)
{
    oct_module *root = couple_create();
    oct_train_step step;
    oct_batch seen = pairs();
    oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    oct_example example = {.count = 2, .shape = {learned->shape[0], learned->shape[1]}};
    MUST(oct_train_step_create(&step, root, &sgd, PAIRS, 4, &oct_collective_one));
    MUST(oct_train_step_run(&step, learned, 0.05f, result));
    double first = result->loss;
    for (int i = 0; i < 60; i++)
        MUST(oct_train_step_run(&step, learned, 0.05f, result));
    cr_assert_lt(result->loss, 0.5 * first);
    if (learned->num_inputs ==
        2) { /* a forward that also takes its target is no graph of two inputs */
        MUST(oct_prepare(&root, &example, &options, NULL));
        MUST(oct_train_step_rebind(&step, root));
        MUST(oct_set_fake_quant(root, OCT_STATE_CALIBRATION));
        MUST(oct_train_step_forward(&step, &seen, NULL));
        MUST(oct_set_fake_quant(root, OCT_STATE_QAT));
        for (int i = 0; i < 20; i++)
            MUST(oct_train_step_run(&step, learned, 0.01f, result));
    }
    double last = result->loss;
    oct_module_train(root, false);
    if (learned->num_inputs == 2) MUST(oct_set_fake_quant(root, OCT_STATE_VALIDATION));
    MUST(oct_train_step_forward(&step, &seen, y));
    oct_train_step_destroy(&step);
    oct_module_destroy(&root);
    return last;
}

Test(train_step, takes_several_inputs_and_probabilities)
{
    float hard[PAIRS * 3], soft[PAIRS * 3];
    oct_step_result of_labels, of_goals;
    fill_pairs();
    oct_batch batch = pairs();
    batch.labels = numbers;
    double a = live(&batch, hard, &of_labels);
    batch.labels = NULL;
    batch.targets = goals; /* all on the label: the same sums of the same numbers */
    double b = live(&batch, soft, &of_goals);
    cr_assert_eq(a, b);
    cr_assert_eq(of_labels.metric, of_goals.metric);
    cr_assert_gt(of_labels.metric, 50);
    cr_assert(memcmp(hard, soft, sizeof hard) == 0, "other bits");
    check_nothing_held();
}

Test(train_step, takes_a_forward_that_returns_its_loss)
{
    float y[PAIRS * 3], z[PAIRS * 3];
    oct_step_result own, given;
    fill_pairs();
    oct_batch batch = pairs();
    batch.num_inputs = 3;
    batch.shape[2] = OCT_SHAPE(PAIRS, 3);
    batch.input[2] = goals;
    live(&batch, y, &own);
    cr_assert(isnan(own.metric));

    /* The same as with the loss outside of it. */
    oct_module *root = couple_create();
    oct_train_step step;
    oct_batch outside = pairs();
    outside.targets = goals;
    MUST(oct_train_step_create(&step, root, &sgd, PAIRS, 4, &oct_collective_one));
    for (int i = 0; i < 61; i++)
        MUST(oct_train_step_run(&step, &outside, 0.05f, &given));
    oct_module_train(root, false);
    MUST(oct_train_step_forward(&step, &outside, z));
    cr_assert(memcmp(y, z, sizeof y) == 0, "other bits");
    cr_assert_float_eq(own.loss, given.loss, 1e-6);
    oct_train_step_destroy(&step);
    oct_module_destroy(&root);
    check_nothing_held();
}

/* A penalty of its own that no sum over the batch is in. */
static void penalty_backward(oct_context *cx, oct_node *node)
{
    float *grad = oct_grad_new(cx, node->input[0]);
    for (int64_t i = 0; grad && i < oct_numel(node->input[0]); i++)
        grad[i] = 1;
    if (grad) oct_add_grad(cx, node->input[0], grad);
}

static oct_tensor *penalty_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    oct_tensor *x = oct_call(cx, ((couple *)self)->row, in[0]);
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, (oct_shape){.ndim = 0});
    (void)n;
    if (!x || !y) return NULL;
    oct_f32(y)[0] = 1;
    oct_record(cx, "penalty", penalty_backward, &x, 1, false, y);
    return y;
}

static const oct_module_type penalty_type = {.name = "penalty", .forward = penalty_forward};

static int reductions;

static oct_status count_max(const oct_collective *self, int64_t *values, int64_t n)
{
    (void)self, (void)values, (void)n;
    reductions++;
    return OCT_OK;
}

/* Ranks write their gradients again when they know that all others have read the last ones. */
Test(train_step, ranks_synchronize_before_a_backward_even_if_the_loss_is_not_summed_over_them)
{
    oct_collective group = oct_collective_one;
    oct_train_step step;
    oct_step_result result;
    oct_module *root = NULL;
    oct_batch batch = {.num_inputs = 1, .shape = {OCT_SHAPE(PAIRS, 5)}, .input = {rows}};
    group.max_i64 = count_max;
    fill_pairs();
    MUST(oct_module_alloc(&root, &penalty_type, sizeof(couple)));
    couple *m = (couple *)root;
    MUST(oct_linear_create(&m->row, 5, 6, true));
    MUST(oct_module_add_child(root, "row", &m->row));
    MUST(oct_train_step_create(&step, root, &sgd, PAIRS, 4, &group));
    MUST(oct_train_step_run(&step, &batch, 0.1f, &result));
    cr_assert_eq(reductions, 2); /* and in the control reduction */
    oct_train_step_destroy(&step);
    oct_module_destroy(&root);

    root = couple_create();
    batch = pairs();
    batch.labels = numbers;
    MUST(oct_train_step_create(&step, root, &sgd, PAIRS, 4, &group));
    MUST(oct_train_step_run(&step, &batch, 0.1f, &result));
    cr_assert_eq(reductions, 3);
    oct_train_step_destroy(&step);
    oct_module_destroy(&root);
    check_nothing_held();
}

Test(train_step, refuses_batches_that_make_no_step)
{
    oct_train_step step;
    oct_step_result result;
    fill_pairs();
    oct_module *root = couple_create();
    fesetround(FE_DOWNWARD);
    REFUSED(oct_train_step_create(&step, root, &sgd, PAIRS, 4, &oct_collective_one), OCT_USAGE,
            "this thread does not round to nearest, so training would have other bits; call "
            "fesetround(FE_TONEAREST) first");
    fesetround(FE_TONEAREST);
    MUST(oct_train_step_create(&step, root, &sgd, PAIRS, 4, &oct_collective_one));
    oct_batch batch = pairs();
    fesetround(FE_UPWARD);
    REFUSED(oct_train_step_run(&step, &batch, 0.1f, &result), OCT_USAGE, "round to nearest");
    fesetround(FE_TONEAREST);
    REFUSED(oct_train_step_run(&step, &batch, 0.1f, &result), OCT_USAGE,
            "the batch has neither labels nor targets, so the forward must return its loss, "
            "one number, but it returns f32 (11, 3)");
    batch.labels = numbers;
    batch.targets = goals;
    REFUSED(oct_train_step_run(&step, &batch, 0.1f, &result), OCT_USAGE, "but this one has both");
    batch.targets = NULL;
    batch.num_inputs = 3;
    batch.shape[2] = OCT_SHAPE(PAIRS, 3);
    batch.input[2] = goals;
    REFUSED(oct_train_step_run(&step, &batch, 0.1f, &result), OCT_USAGE,
            "the forward returns its loss already");
    batch.shape[1].dim[0] = 10;
    REFUSED(oct_train_step_run(&step, &batch, 0.1f, &result), OCT_USAGE,
            "have its samples in front, but input 0 is (11, 4, 4, 2) and input 1 is (10, 5)");
    batch.num_inputs = 0;
    REFUSED(oct_train_step_forward(&step, &batch, NULL), OCT_USAGE,
            "a batch has 1 to 8 inputs, but this one has 0");
    batch = pairs();
    batch.labels = numbers;
    for (int i = 0; i < 2; i++)
        batch.shape[i].dim[0] = PAIRS + 1;
    REFUSED(oct_train_step_run(&step, &batch, 0.1f, &result), OCT_USAGE,
            "a batch of 12 samples, but the training step was made for at most 11; give "
            "oct_train_step_create the largest batch");
    batch = pairs();
    batch.input[1] = NULL;
    REFUSED(oct_train_step_forward(&step, &batch, NULL), OCT_USAGE,
            "the array of the batch's input 1 is missing");
    oct_train_step_destroy(&step);
    oct_module_destroy(&root);
    check_nothing_held();
}

Test(train_step, survives_every_failed_allocation)
{
    rig r;
    oct_train_step step;
    net_kind_begin(&r, &net_kinds[0], true);
    size_t held = oct_mem_live();
    oct_status status = OCT_RESOURCE;
    for (int64_t n = 1; status != OCT_OK; n++) {
        oct_mem_fail_after(n);
        status = oct_train_step_create(&step, r.root, &sgd, 8, 4, &oct_collective_one);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
        if (status == OCT_OK) oct_train_step_destroy(&step);
        cr_assert_eq(oct_mem_live(), held);
    }
    cr_assert_eq(oct_train_step_create(&step, r.root, &sgd, 0, 4, &oct_collective_one), OCT_USAGE);
    check_said("both must be at least 1");
    rig_end(&r);
    check_nothing_held();
}
