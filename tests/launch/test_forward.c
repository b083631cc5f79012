/* Evaluation and calibration by inference: the same bits however many samples go together, and memory that
 * is bounded by a rank's share of a training step. */
#include "core/nn/modules.h"
#include "core/op/ops.h"
#include "launch/evaluate/evaluate.h"
#include "tests/launch/train_rig.h"

TestSuite(forward, .init = set_up, .fini = tear_down, .timeout = 300);

static void evaluate(oct_trainer *trainer, int64_t batch, float *logits)
{
    const oct_recipe *recipe = trainer->recipe;
    oct_outputs outputs;
    oct_status status = oct_outputs_create(&outputs, recipe, &test_data, &oct_collective_one);
    if (status == OCT_OK)
        status = oct_evaluate_local(trainer->model, recipe, &test_data, batch, &outputs);
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
    memcpy(logits, outputs.y, TEST * CLASSES * sizeof(float));
    oct_outputs_free(&outputs);
}

static void check_batches(oct_trainer *trainer)
{
    static float wanted[TEST * CLASSES], logits[TEST * CLASSES];
    omp_set_num_threads(1);
    evaluate(trainer, 1, wanted);
    for (int64_t batch = 3; batch <= 32; batch = 3 * batch + 2) {
        for (int threads = 1; threads <= 2; threads++) {
            omp_set_num_threads(threads);
            memset(logits, 0, sizeof logits);
            evaluate(trainer, batch, logits);
            cr_assert(memcmp(logits, wanted, sizeof logits) == 0,
                      "%s, phase %s, batch %d, %d threads", trainer->recipe->model_name,
                      oct_phase_name(trainer->phase), (int)batch, threads);
        }
    }
    omp_set_num_threads(1);
}

Test(forward, no_logit_depends_on_the_batch)
{
    static const char *const keys[] = {"model.name=cnn-small", "model.name=resnet20",
                                       "model.name=mobilenetv2c quant.method=symbolic",
                                       "model.name=cnn-small quant.float_layers=[features.3]"};
    for (size_t i = 0; i < OCT_COUNT(keys); i++) {
        oct_recipe recipe = make_recipe(keys[i]);
        oct_trainer trainer;
        start(&trainer, &recipe);
        run_to(&trainer, 2);
        check_batches(&trainer);
        run_to(&trainer, 6);
        check_batches(&trainer);
        run_to(&trainer, STEPS);
        check_batches(&trainer);
        oct_trainer_destroy(&trainer);
    }
}

Test(forward, a_batch_of_evaluation_is_at_most_the_share_of_a_step)
{
    oct_recipe recipe = make_recipe("batch.size=256 batch.leaf=8");
    cr_assert_eq(oct_evaluation_batch(&recipe, 1), 64);
    cr_assert_eq(oct_evaluation_batch(&recipe, 4), 64);
    cr_assert_eq(oct_evaluation_batch(&recipe, 16), 16);
    cr_assert_eq(oct_evaluation_batch(&recipe, 32), 8);
    recipe.batch_size = 12;
    cr_assert_eq(oct_evaluation_batch(&recipe, 1), 16, "whole leaves");
    recipe.threads = 4;
    cr_assert_eq(oct_evaluation_batch(&recipe, 1), 16);
    recipe.batch_size = 4096;
    recipe.threads = 32;
    cr_assert_eq(oct_evaluation_batch(&recipe, 1), 256, "a leaf for each thread");
}

/* Ten layers of one size, so that who frees nothing needs ten times as much. */
typedef struct tower {
    oct_module base;
    oct_module *layers;
    int calls;
    bool looks_back;
} tower;

enum { FLOORS = 10, WIDTH = 1 << 16 };

static oct_tensor *tower_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    tower *m = (tower *)self;
    (void)n;
    oct_tensor *first = oct_add_scalar(cx, x[0], 1.0);
    oct_tensor *y = oct_call(cx, m->layers, first);
    return m->looks_back && ++m->calls == 3 ? oct_add(cx, y, first) : oct_add(cx, y, y);
}

static const oct_module_type tower_type = {
    .name = "tower", .forward = tower_forward, .calls_only = true};
static const oct_module_type silent_type = {.name = "silent", .forward = tower_forward};

static oct_module *make_tower(const oct_module_type *type)
{
    oct_module *root, *item;
    cr_assert_eq(oct_module_alloc(&root, type, sizeof(tower)), OCT_OK);
    tower *m = (tower *)root;
    cr_assert_eq(oct_sequential_create(&m->layers), OCT_OK);
    for (int i = 0; i < FLOORS; i++) {
        cr_assert_eq(oct_relu_create(&item), OCT_OK);
        cr_assert_eq(oct_sequential_append(m->layers, &item), OCT_OK);
    }
    cr_assert_eq(oct_module_add_child(root, "layers", &m->layers), OCT_OK);
    return root;
}

static float pixel(int64_t i)
{
    return (float)(i % 11) - 5.0F;
}

static const oct_example *tower_input(int64_t samples, const float *x)
{
    static oct_example example;
    example = *OCT_EXAMPLE(OCT_SHAPE(samples, WIDTH));
    example.data[0] = x;
    return &example;
}

/* Runs `samples` through and says how much memory that took beyond what was there. */
static size_t run_tower(oct_module *root, int64_t samples, int64_t at_a_time)
{
    oct_context *cx;
    oct_forwards f;
    float *x;
    cr_assert_eq(oct_alloc(&x, (size_t)(at_a_time * WIDTH), sizeof *x), OCT_OK);
    cr_assert_eq(oct_context_create(&cx, &oct_collective_one), OCT_OK);
    cr_assert_eq(oct_forward_begin(&f, cx, root), OCT_OK);
    const size_t before = oct_mem_live();
    oct_mem_peak_reset();
    for (int64_t at = 0, n; at < samples; at += n) {
        const oct_tensor *y;
        n = oct_forward_samples(&f, at_a_time < samples - at ? at_a_time : samples - at);
        cr_assert(at > 0 || n == 1);
        for (int64_t i = 0; i < n * WIDTH; i++)
            x[i] = pixel(i);
        oct_status status =
            oct_forward_run(&f, oct_leaves_split(n, 1, 0, 1), tower_input(n, x), &y);
        cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
        for (int64_t i = 0; i < n * WIDTH; i++) {
            const float first = pixel(i) + 1.0F, top = first > 0 ? first : 0;
            cr_assert_float_eq(oct_f32(y)[i], 2 * top, 0);
        }
    }
    const size_t most = oct_mem_peak() - before;
    oct_forward_end(&f);
    oct_context_destroy(&cx);
    oct_free(&x);
    return most;
}

Test(forward, what_is_read_no_more_is_freed)
{
    const size_t value = WIDTH * sizeof(float);
    oct_module *root = make_tower(&tower_type), *silent = make_tower(&silent_type);
    const size_t most = run_tower(root, 50, 16), all = run_tower(silent, 50, 16);
    /* Two values of 16 samples, beside the one sample that was learned from. */
    cr_assert_lt(most, 2 * 16 * value + (FLOORS + 3) * value + (1 << 20), "%zu", most);
    cr_assert_gt(all, FLOORS * 16 * value, "%zu", all);
    oct_module_destroy(&root);
    oct_module_destroy(&silent);
}

/* A module without a word about itself may look at what would have been freed, so samples are few. */
Test(forward, samples_that_take_much_go_by_a_few_at_a_time)
{
    const size_t value = WIDTH * sizeof(float);
    oct_module *silent = make_tower(&silent_type);
    const size_t most = run_tower(silent, 200, 200);
    cr_assert_lt(most, (size_t)(128 << 20) + (FLOORS + 3) * value + (1 << 20), "%zu", most);
    oct_module_destroy(&silent);
}

Test(forward, another_way_than_the_learned_one_is_run_again_keeping_all)
{
    oct_module *root = make_tower(&tower_type);
    ((tower *)root)->looks_back = true;
    /* The third forward reads what the second has learned to free; its second run is the fourth. */
    oct_context *cx;
    oct_forwards f;
    const oct_tensor *y;
    static float x[2 * WIDTH];
    cr_assert_eq(oct_context_create(&cx, &oct_collective_one), OCT_OK);
    cr_assert_eq(oct_forward_begin(&f, cx, root), OCT_OK);
    for (int i = 0; i < 5; i++) {
        for (int64_t k = 0; k < 2 * WIDTH; k++)
            x[k] = pixel(k);
        cr_assert_eq(oct_forward_run(&f, oct_leaves_split(2, 1, 0, 1), tower_input(2, x), &y),
                     OCT_OK);
        for (int64_t k = 0; k < 2 * WIDTH; k++) {
            const float first = pixel(k) + 1.0F, top = first > 0 ? first : 0;
            cr_assert_float_eq(oct_f32(y)[k], 2 * top, 0, "forward %d", i);
        }
    }
    cr_assert_null(f.lifetimes, "given up after it strayed");
    cr_assert_eq(((tower *)root)->calls, 6, "one forward ran twice");
    oct_forward_end(&f);
    oct_context_destroy(&cx);
    oct_module_destroy(&root);
}

/* Calibration takes the batch in pieces; ranges are those of the batch in one piece. */
Test(forward, calibration_sees_the_same_ranges_in_any_pieces)
{
    state_digest first;
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        oct_recipe recipe = make_recipe("model.name=resnet20 batch.leaf=4");
        oct_trainer trainer;
        start(&trainer, &recipe);
        run_to(&trainer, 5);
        state_digest digest = digest_of(&trainer);
        if (threads == 1) first = digest;
        cr_assert(same(digest, first), "%d threads", threads);
        oct_trainer_destroy(&trainer);
    }
}
