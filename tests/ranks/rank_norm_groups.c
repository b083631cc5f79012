/* A network with live batch norms in groups, float and quantized, each rank on its samples. For groups of 0 (the
 * batch), 1, 2 and 4 leaves rank 0 prints the digest of the trained state, which must not depend on the number
 * of ranks or threads, and how often the ranks have synchronized in a step. */
#include "core/base/rng.h"
#include "io/file/file.h"
#include "quant/prepare/prepare.h"
#include "quant/train/train_step.h"
#include "tests/ranks/rank.h"

#include <omp.h>
#include <string.h>

enum { SAMPLES = 43, LEAF = 4, SIDE = 5, IMAGE = SIDE * SIDE, CLASSES = 3 };

static oct_comm *comm;
static float images[SAMPLES * IMAGE];
static int32_t labels[SAMPLES];

/* The ranks, and how often they wait for each other. */
static int synchronizations;

#define OCT_SYNCHRONIZE(name, params, args)                                                        \
    static oct_status name params                                                                  \
    {                                                                                              \
        const oct_collective *ranks = oct_comm_collective(comm);                                   \
        (void)self;                                                                                \
        synchronizations++;                                                                        \
        return ranks->name args;                                                                   \
    }
OCT_SYNCHRONIZE(tree_sum,
                (const oct_collective *self, const oct_leaves *leaves, void *parts, int64_t n,
                 size_t width, void *out),
                (ranks, leaves, parts, n, width, out))
OCT_SYNCHRONIZE(max_i64, (const oct_collective *self, int64_t *values, int64_t n),
                (ranks, values, n))
OCT_SYNCHRONIZE(sums_finish, (const oct_collective *self), (ranks))

static oct_status sum_begin(const oct_collective *self, const oct_leaves *leaves, float *parts,
                            int64_t stride, int64_t n)
{
    const oct_collective *ranks = oct_comm_collective(comm);
    (void)self;
    return ranks->sum_begin(ranks, leaves, parts, stride, n);
}

static oct_status sums_move(const oct_collective *self)
{
    const oct_collective *ranks = oct_comm_collective(comm);
    (void)self;
    return ranks->sums_move(ranks);
}

static oct_status rows_alloc(const oct_collective *self, void *rows, size_t count, size_t size)
{
    const oct_collective *ranks = oct_comm_collective(comm);
    (void)self;
    return ranks->rows_alloc(ranks, rows, count, size);
}

static void rows_free(const oct_collective *self, void *rows)
{
    const oct_collective *ranks = oct_comm_collective(comm);
    (void)self;
    ranks->rows_free(ranks, rows);
}

static const float *rows_total(const oct_collective *self, const oct_leaves *leaves,
                               const float *parts, bool *lent)
{
    const oct_collective *ranks = oct_comm_collective(comm);
    (void)self;
    return ranks->rows_total(ranks, leaves, parts, lent);
}

static void append(oct_module *root, oct_status made, oct_module **item)
{
    RANK_OK(comm, made);
    RANK_OK(comm, oct_sequential_append(root, item));
}

/* Batch norms after a convolution, a depthwise one and a linear layer; on their own in QAT: after a relu. */
static oct_module *build(void)
{
    oct_module *root = NULL, *item = NULL;
    RANK_OK(comm, oct_sequential_create(&root));
    append(root, oct_conv2d_create(&item, 1, 8, oct_conv_geometry_of(3, 3, 1, 1, 1), false), &item);
    append(root, oct_batch_norm_create(&item, 8), &item);
    append(root, oct_relu_create(&item), &item);
    append(root, oct_batch_norm_create(&item, 8), &item);
    append(root, oct_conv2d_create(&item, 8, 8, oct_conv_geometry_of(3, 3, 2, 1, 8), true), &item);
    append(root, oct_batch_norm_create(&item, 8), &item);
    append(root, oct_global_avg_pool_create(&item), &item);
    append(root, oct_linear_create(&item, 8, 6, true), &item);
    append(root, oct_batch_norm_create(&item, 6), &item);
    append(root, oct_relu_create(&item), &item);
    append(root, oct_linear_create(&item, 6, CLASSES, true), &item);
    RANK_OK(comm, oct_init_parameters(root, 5));
    return root;
}

static oct_status add_state(void *user, const oct_state_item *item)
{
    oct_sha256_add(user, item->tensor->data,
                   (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype));
    return OCT_OK;
}

static void digest_of(oct_module *root, const oct_step_result *result, char hex[65])
{
    uint8_t digest[32];
    oct_sha256_state *state;
    RANK_OK(comm, oct_sha256_begin(&state));
    RANK_OK(comm, oct_module_state(root, add_state, state));
    oct_sha256_add(state, &result->loss, sizeof result->loss);
    oct_sha256_end(&state, digest);
    oct_hex(digest, hex);
}

/* Two updates of two batches each; the second batch is short: its last group has fewer leaves, and the last
 * leaf fewer samples. */
static void train(oct_train_step *step, oct_step_result *result)
{
    static const int64_t sizes[] = {SAMPLES - 3, SAMPLES};
    for (int update = 0; update < 2; update++) {
        RANK_OK(comm, oct_train_step_begin(step, 2, sizes[0] + sizes[1], 0.05f));
        for (int i = 0; i < 2; i++) {
            const oct_leaves leaves =
                oct_leaves_split(sizes[i], LEAF, step->group->rank, step->group->size);
            const int64_t first = oct_leaves_first_sample(&leaves);
            const oct_batch batch = {1,
                                     {OCT_SHAPE(sizes[i], SIDE, SIDE, 1)},
                                     {images + first * IMAGE},
                                     .labels = labels + first};
            RANK_OK(comm, oct_train_step_accumulate(step, &batch));
        }
        RANK_OK(comm, oct_train_step_update(step, result));
    }
}

static int synchronizations_of(oct_train_step *step, const oct_batch *batch)
{
    oct_step_result result;
    synchronizations = 0;
    RANK_OK(comm, oct_train_step_run(step, batch, 0.05f, &result));
    return synchronizations;
}

static void live(const oct_collective *group, int64_t norm_group, int threads)
{
    const oct_qconfig qconfig = oct_qconfig_default();
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    const oct_prepare_options options = {.method = OCT_METHOD_JIT,
                                         .target = oct_target_find("x86"),
                                         .setters = &setter,
                                         .num_setters = 1};
    const oct_optim_config sgd = {.kind = OCT_SGD, .momentum = 0.9f};
    const oct_leaves leaves = oct_leaves_split(SAMPLES, LEAF, group->rank, group->size);
    const int64_t first = oct_leaves_first_sample(&leaves);
    const oct_batch batch = {
        1, {OCT_SHAPE(SAMPLES, SIDE, SIDE, 1)}, {images + first * IMAGE}, .labels = labels + first};
    oct_train_step step;
    oct_step_result result;
    char hex[65];
    omp_set_num_threads(threads);
    oct_module *root = build();
    RANK_OK(comm, oct_train_step_create(&step, root, &sgd, SAMPLES, LEAF, group));
    step.norm_group = norm_group;
    oct_module_train(root, true);
    RANK_OK(comm, oct_train_step_forward(&step, &batch, NULL)); /* running values move here too */
    train(&step, &result);
    const int in_float = synchronizations_of(&step, &batch);
    RANK_OK(comm, oct_prepare(&root, OCT_EXAMPLE(batch.shape[0]), &options, NULL));
    RANK_OK(comm, oct_train_step_rebind(&step, root));
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_CALIBRATION));
    RANK_OK(comm, oct_train_step_forward(&step, &batch, NULL));
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_QAT));
    train(&step, &result);
    const int in_qat = synchronizations_of(&step, &batch);
    digest_of(root, &result, hex);
    oct_train_step_destroy(&step);
    oct_module_destroy(&root);
    if (group->rank == 0) printf("group %d %s %d %d\n", (int)norm_group, hex, in_float, in_qat);
}

int main(void)
{
    comm = rank_open(60);
    const oct_collective *ranks = oct_comm_collective(comm);
    oct_collective group = *ranks;
    group.tree_sum = tree_sum;
    group.max_i64 = max_i64;
    group.sums_finish = sums_finish;
    group.sum_begin = sum_begin;
    group.sums_move = sums_move;
    group.rows_alloc = rows_alloc;
    group.rows_free = rows_free;
    group.rows_total = rows_total;
    oct_fill_normal(images, SAMPLES * IMAGE, 1, OCT_STREAM_TEST, 0, 0.0f, 1.0f);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % CLASSES;
    for (int norm_group = 0; norm_group <= 4; norm_group += norm_group > 1 ? 2 : 1)
        live(&group, norm_group, 1);
    live(&group, 2, 2);
    live(&group, 2, 4);
    oct_comm_close(&comm);
    return 0;
}
