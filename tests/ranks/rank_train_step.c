/* A network trained by quant/train/train_step.h, float and quantized, each rank on its samples. Rank 0 prints the
 * digest of the trained state, which must not depend on the number of ranks. Any argument: pairs of ranks train it, each
 * pair for itself, in a program that has MPI already and whose other threads use it all the time. */
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/file/file.h"
#include "quant/train/train_step.h"
#include "quant/prepare/prepare.h"
#include "tests/ranks/rank.h"

#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <string.h>

enum { SAMPLES = 22, LEAF = 4, SIDE = 6, IMAGE = SIDE * SIDE, CLASSES = 3 };

static oct_comm *comm;
static float images[SAMPLES * IMAGE];
static int32_t labels[SAMPLES];

static void append(oct_module *root, oct_status made, oct_module **item)
{
    RANK_OK(comm, made);
    RANK_OK(comm, oct_sequential_append(root, item));
}

static oct_module *build(void)
{
    oct_module *root = NULL, *item = NULL;
    const oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 1, 1);
    const oct_conv_geometry uneven = {.kernel_h = 2,
                                      .kernel_w = 3,
                                      .stride_h = 1,
                                      .stride_w = 2,
                                      .pad_left = 2,
                                      .pad_bottom = 1,
                                      .dilation_h = 2,
                                      .dilation_w = 1,
                                      .groups = 2,
                                      .output_padding_w = 1};
    oct_conv_geometry plain = uneven;
    plain.output_padding_w = 0;
    oct_pool_geometry pool = {.kernel_h = 2,
                              .kernel_w = 3,
                              .stride_h = 2,
                              .stride_w = 1,
                              .pad_top = 1,
                              .pad_right = 2,
                              .ceil = true,
                              .count_include_pad = true};
    RANK_OK(comm, oct_sequential_create(&root));
    append(root, oct_conv2d_create(&item, 1, 8, g, false), &item);
    append(root, oct_batch_norm_create(&item, 8), &item);
    append(root, oct_relu_create(&item), &item);
    append(root, oct_conv2d_create(&item, 8, 6, plain, true), &item);
    append(root, oct_avg_pool_create(&item, pool), &item);
    append(root, oct_conv_transpose2d_create(&item, 6, 32, uneven, true), &item);
    append(root, oct_max_pool_create(&item, pool), &item);
    append(root, oct_linear_create(&item, 32, 8, false), &item); /* at each pixel */
    append(root, oct_global_avg_pool_create(&item), &item);
    append(root, oct_linear_create(&item, 8, CLASSES, true), &item);
    RANK_OK(comm, oct_init_parameters(root, 5));
    return root;
}

static oct_status add_state(void *user, const oct_state_item *item)
{
    oct_sha256_add(user, item->path, strlen(item->path));
    oct_sha256_add(user, item->tensor->data,
                   (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype));
    return OCT_OK;
}

static int64_t one(int64_t n)
{
    (void)n;
    return 1;
}

static void add_square(const oct_output_row *row, double *numbers)
{
    numbers[0] += (double)row->y[0] * (double)row->y[0];
}

/* A sum that rounds: leaf by leaf and along the tree. */
static const oct_metric squares = {.name = "squares", .numbers = one, .add = add_square};

static double value_of(const oct_metric *metric, const oct_collective *group,
                       const oct_leaves *leaves, const oct_output_rows *rows)
{
    double *numbers;
    RANK_OK(comm, oct_metric_sum(metric, group, leaves, rows, &numbers));
    const double value = metric->value(numbers, rows->n);
    RANK_CHECK(comm, value > 0, "%s %g", metric->name, value);
    oct_free(&numbers);
    return value;
}

enum { SUMS = 5 };

/* Its sum over the images (these are this rank's), the hits of a metric that counts, and the figures of
 * two that sort. */
static void measure(const oct_collective *group, const oct_leaves *leaves, int64_t first,
                    double sums[SUMS])
{
    const oct_output_rows rows = {images + first * IMAGE, IMAGE, {.labels = labels + first}};
    double *square, *hits;
    RANK_OK(comm, oct_metric_sum(&squares, group, leaves, &rows, &square));
    RANK_OK(comm, oct_metric_sum(&oct_metric_top5, group, leaves, &rows, &hits));
    sums[0] = square[0];
    memcpy(sums + 1, hits, 2 * sizeof *hits);
    oct_free(&square);
    oct_free(&hits);
    sums[3] = value_of(&oct_metric_auc, group, leaves, &rows);
    sums[4] = value_of(&oct_metric_mean_ap, group, leaves, &rows);
}

static void print_digest(oct_module *root, const oct_step_result *result, const double sums[SUMS],
                         uint64_t gates)
{
    uint8_t digest[32];
    char hex[65];
    oct_sha256_state *state;
    RANK_OK(comm, oct_sha256_begin(&state));
    RANK_OK(comm, oct_module_state(root, add_state, state));
    oct_sha256_add(state, &result->loss, sizeof result->loss);
    oct_sha256_add(state, &result->metric, sizeof result->metric);
    oct_sha256_add(state, sums, SUMS * sizeof *sums);
    oct_sha256_add(state, &gates, sizeof gates);
    oct_sha256_end(&state, digest);
    if (oct_comm_rank(comm) == 0) printf("digest %s\n", oct_hex(digest, hex));
}

static oct_batch batch_from(int64_t first)
{
    return (oct_batch){
        1, {OCT_SHAPE(SAMPLES, SIDE, SIDE, 1)}, {images + first * IMAGE}, .labels = labels + first};
}

/* The words that a rank gives the step come back as the largest of all ranks. */
static oct_step_result train(oct_train_step *step, int steps, int64_t first)
{
    const oct_batch batch = batch_from(first);
    oct_step_result result = {0};
    for (int i = 0; i < steps; i++) {
        step->flag[1] = oct_comm_rank(comm);
        step->flag[2] = -i;
        RANK_OK(comm, oct_train_step_run(step, &batch, 0.05f, &result));
        RANK_CHECK(comm, step->flag[1] == step->group->size - 1 && step->flag[2] == -i,
                   "words %d and %d", (int)step->flag[1], (int)step->flag[2]);
    }
    return result;
}

/* A digest of the totals as they are read. */
static uint64_t totals_of(const oct_params *params)
{
    uint64_t all = 0;
    for (size_t i = 0; i < params->count; i++) {
        const oct_param *param = params->items[i];
        const size_t bytes = (size_t)oct_numel(&param->value) * sizeof(float);
        all = all * 31 + oct_digest(param->grad, bytes);
    }
    return all;
}

/* A digest of what the gates of int8 gradients have summed over all ranks. */
static uint64_t gates_of(const oct_grad_gates *gates)
{
    uint64_t all = 0;
    int measured = 0;
    for (size_t i = 0; i < gates->count; i++) {
        all = all * 31 + oct_digest(gates->items[i].sums, sizeof gates->items[i].sums);
        measured += gates->items[i].sums[OCT_GATE_WEIGHT][OCT_GATE_SIGNAL] > 0;
    }
    RANK_CHECK(comm, measured > 0, "no layer has int8 gradients");
    return all;
}

/* While some ranks compute a leaf of the step again, others may still read its gradients. */
static void audit_one(oct_train_step *step, int64_t first)
{
    const oct_collective *group = step->group;
    oct_batch leaf = batch_from(0);
    uint64_t digest;
    int64_t met = 0;
    step->audit.on = true;
    step->audit.batch = step->audit.leaf = 0;
    train(step, 1, first);
    const uint64_t before = totals_of(&step->params);
    RANK_OK(comm, group->max_i64(group, &met, 1));
    RANK_OK(comm, oct_train_step_replay_leaf(step, &leaf, &digest));
    RANK_OK(comm, group->max_i64(group, &met, 1));
    RANK_CHECK(comm, group->size == 1 || totals_of(&step->params) == before,
               "an audit has changed gradients that others read");
    step->audit.on = false;
}

/* A sample of the last rank is NaN: all ranks undo the step, and the words come through all the same. */
static void skip_one(oct_train_step *step, int64_t first)
{
    const oct_batch batch = batch_from(first);
    const oct_param *param = step->params.items[0];
    const float before = oct_f32(&param->value)[0], value = images[SAMPLES * IMAGE - 1];
    oct_step_result result = {0};
    step->nonfinite = OCT_NONFINITE_SKIP;
    step->flag[1] = oct_comm_rank(comm);
    images[SAMPLES * IMAGE - 1] = NAN;
    RANK_OK(comm, oct_train_step_run(step, &batch, 0.05f, &result));
    images[SAMPLES * IMAGE - 1] = value;
    RANK_CHECK(comm,
               result.skipped && step->why[0] && step->flag[1] == step->group->size - 1 &&
                   oct_f32(&param->value)[0] == before,
               "skipped %d, word %d", (int)result.skipped, (int)step->flag[1]);
}

/* A loss whose derivative is what the targets say. */
static double no_value(const oct_output_row *row, const oct_loss_options *options)
{
    (void)row, (void)options;
    return 0;
}

static void target_grad(const oct_output_row *row, const oct_loss_options *options,
                        oct_loss_scale scale, float *grad)
{
    (void)options;
    for (int64_t i = 0; i < row->n; i++)
        grad[i] = oct_loss_scaled(scale, (double)row->goal[i]);
}

/* What is not finite in a gradient is said as with other numerics. */
static void check_bad_gradient(oct_train_step *step, const oct_batch *batch, float *value)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const oct_numerics numerics[] = {OCT_NUMERICS_BF16, OCT_NUMERICS_INT8};
    oct_step_result result;
    char said[2][256];
    for (size_t i = 0; i < 3 * 2; i++) {
        const float before = *value;
        *value = bad[i / 2];
        step->numerics = numerics[i % 2];
        const oct_status status = oct_train_step_run(step, batch, 0.0f, &result);
        *value = before;
        RANK_CHECK(comm, status == OCT_NUMERIC, "status %d", (int)status);
        snprintf(said[i % 2], sizeof said[0], "%s", oct_error_message(0));
        oct_fail_clear();
        RANK_CHECK(comm, i % 2 == 0 || strcmp(said[0], said[1]) == 0, "'%s' and '%s'", said[0],
                   said[1]);
    }
}

/* A layer of 64 x 64 planes whose gradient has a value 1,000 times the others in each sample and channel fails at 8 bits:
 * on all ranks it has two digits after the same update, and 8 bits again where there are no such values. */
static void check_gate(const oct_collective *group)
{
    enum { IMAGES = 3, PLANE = 64 * 64, CHANNELS = 4, NUMEL = IMAGES * PLANE * CHANNELS };
    static float x[NUMEL], spiked[NUMEL], flat[NUMEL];
    static const oct_loss_kind kind = {
        .name = "target", .takes = OCT_LOSS_OF_VALUES, .value = no_value, .grad = target_grad};
    const oct_qconfig qconfig = oct_qconfig_default();
    const oct_qconfig_setter setters[] = {oct_setter_float_output(), oct_setter_default(&qconfig)};
    const oct_prepare_options options = {.method = OCT_METHOD_JIT,
                                         .target = oct_target_find("x86"),
                                         .setters = setters,
                                         .num_setters = 2};
    const oct_optim_config sgd = {.kind = OCT_SGD};
    const oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 1, 1);
    const oct_leaves leaves = oct_leaves_split(IMAGES, 1, group->rank, group->size);
    const int64_t first = oct_leaves_first_sample(&leaves) * PLANE * CHANNELS;
    const struct {
        const float *targets;
        uint64_t update;
        int64_t left;
        int digits;
    } steps[] = {{spiked, OCT_GATE_EVERY - 1, 0, 1},     {spiked, 2 * OCT_GATE_EVERY - 2, 0, 1},
                 {spiked, 2 * OCT_GATE_EVERY - 1, 0, 2}, {spiked, 3 * OCT_GATE_EVERY - 1, 2, 2},
                 {flat, 3 * OCT_GATE_EVERY, 1, 1},       {flat, 4 * OCT_GATE_EVERY - 1, 0, 1},
                 {flat, 5 * OCT_GATE_EVERY - 1, 0, 1}};
    oct_fill_uniform(x, NUMEL, 1, OCT_STREAM_TEST, 0, 0.0f, 1.0f);
    for (int i = 0; i < NUMEL; i++) {
        flat[i] = i % 3 == 0 ? 1e-3f : -1e-3f;
        spiked[i] = i % (PLANE * CHANNELS) < CHANNELS ? 1.0f : flat[i];
    }
    oct_module *root = NULL, *item = NULL;
    oct_train_step step;
    oct_step_result result;
    RANK_OK(comm, oct_sequential_create(&root));
    append(root, oct_conv2d_create(&item, CHANNELS, CHANNELS, g, false), &item);
    RANK_OK(comm, oct_init_parameters(root, 5));
    RANK_OK(comm, oct_prepare(&root, OCT_EXAMPLE(OCT_SHAPE(1, 64, 64, CHANNELS)), &options, NULL));
    RANK_OK(comm, oct_train_step_create(&step, root, &sgd, IMAGES, 1, group));
    step.numerics = OCT_NUMERICS_INT8;
    step.loss = (oct_loss_spec){.kind = &kind};
    RANK_OK(comm, oct_train_step_rebind(&step, root));
    oct_batch batch = {1, {OCT_SHAPE(IMAGES, 64, 64, CHANNELS)}, {x + first}, .rows = PLANE};
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_CALIBRATION));
    RANK_OK(comm, oct_train_step_forward(&step, &batch, NULL));
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_QAT));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int64_t *left = step.gates.state + OCT_GATE_WEIGHT * OCT_GATE_STATES + OCT_GATE_LEFT;
        batch.targets = steps[i].targets + first;
        step.update = steps[i].update;
        if (steps[i].left > 0) *left = steps[i].left;
        RANK_OK(comm, oct_train_step_run(&step, &batch, 0.0f, &result));
        RANK_CHECK(comm, oct_grad_gate_digits(&step.gates, 1, OCT_GATE_WEIGHT) == steps[i].digits,
                   "%d digits after step %d", 3 - steps[i].digits, (int)i);
    }
    check_bad_gradient(&step, &batch, &flat[NUMEL - 1]);
    oct_train_step_destroy(&step);
    oct_module_destroy(&root);
}

static MPI_Comm pair_comm, thread_comm;
static _Atomic bool trained;
static int messages;

/* Sums over all ranks, which have all trained when the sum is their number. */
static void *exchange(void *user)
{
    int size, done = 0;
    MPI_Comm_size(thread_comm, &size);
    for (; done < size; messages++) {
        int mine = trained;
        MPI_Allreduce(&mine, &done, 1, MPI_INT, MPI_SUM, thread_comm);
    }
    return user;
}

static void open_pair(pthread_t *thread)
{
    int rank, level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &pair_comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &thread_comm);
    RANK_CHECK(NULL, level == MPI_THREAD_MULTIPLE, "MPI has no threads");
    RANK_CHECK(NULL, pthread_create(thread, NULL, exchange, NULL) == 0, "no thread");
    RANK_OK(NULL, oct_comm_open_mpi(&comm, (int)MPI_Comm_c2f(pair_comm), 60));
    MPI_Comm_free(&pair_comm);
}

static void end_pair(pthread_t thread)
{
    int over;
    trained = true;
    pthread_join(thread, NULL);
    RANK_CHECK(NULL, messages > 10, "the other thread exchanged %d messages", messages);
    MPI_Finalized(&over);
    RANK_CHECK(NULL, !over, "MPI is over");
    MPI_Comm_free(&thread_comm);
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    pthread_t thread;
    (void)argv;
    if (argc > 1)
        open_pair(&thread);
    else
        comm = rank_open(60);
    const oct_collective *group = oct_comm_collective(comm);
    const oct_qconfig qconfig = oct_qconfig_default();
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    const oct_prepare_options options = {.method = OCT_METHOD_JIT,
                                         .target = oct_target_find("x86"),
                                         .setters = &setter,
                                         .num_setters = 1};
    const oct_optim_config adamw = {
        .kind = OCT_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f};
    oct_leaves leaves = oct_leaves_split(SAMPLES, LEAF, group->rank, group->size);
    int64_t first = oct_leaves_first_sample(&leaves);
    const oct_batch batch = batch_from(first);
    oct_train_step step;
    double sums[SUMS];
    oct_fill_normal(images, SAMPLES * IMAGE, 1, OCT_STREAM_TEST, 0, 0.0f, 1.0f);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % CLASSES;

    oct_module *root = build();
    RANK_OK(comm, oct_train_step_create(&step, root, &adamw, SAMPLES, LEAF, group));
    train(&step, 2, first);
    skip_one(&step, first);
    audit_one(&step, first);
    RANK_OK(comm, oct_prepare(&root, OCT_EXAMPLE(batch.shape[0]), &options, NULL));
    step.numerics = OCT_NUMERICS_INT8;
    RANK_OK(comm, oct_train_step_rebind(&step, root));
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_CALIBRATION));
    RANK_OK(comm, oct_train_step_forward(&step, &batch, NULL));
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_QAT));
    step.update = OCT_GATE_EVERY - 3;
    const oct_step_result result = train(&step, 3, first); /* the last is judged by the gates */
    const uint64_t gates = gates_of(&step.gates);
    oct_train_step_destroy(&step);
    measure(group, &leaves, first, sums);
    print_digest(root, &result, sums, gates);
    oct_module_destroy(&root);
    check_gate(group);
    oct_comm_close(&comm);
    if (argc > 1) end_pair(thread);
    return 0;
}
