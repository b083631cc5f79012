/* A network trained by quant/train_step.h, float and quantized, each rank on its samples. Rank 0 prints the
 * digest of the trained state, which must not depend on the number of ranks. */
#include "core/base/rng.h"
#include "io/file.h"
#include "quant/train_step.h"
#include "quant/pass/prepare/prepare.h"
#include "tests/ranks/rank.h"

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
    oct_conv_geometry g = {.kernel_h = 3, .kernel_w = 3, .stride = 1, .padding = 1, .groups = 1};
    RANK_OK(comm, oct_sequential_create(&root));
    append(root, oct_conv2d_create(&item, 1, 8, g, false), &item);
    append(root, oct_batch_norm_create(&item, 8), &item);
    append(root, oct_relu_create(&item), &item);
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

static void print_digest(oct_module *root)
{
    uint8_t digest[32];
    char hex[65];
    oct_sha256_state *state;
    RANK_OK(comm, oct_sha256_begin(&state));
    RANK_OK(comm, oct_module_state(root, add_state, state));
    oct_sha256_end(&state, digest);
    if (oct_comm_rank(comm) == 0) printf("digest %s\n", oct_hex(digest, hex));
}

static oct_batch batch_from(int64_t first)
{
    return (oct_batch){
        1, {OCT_SHAPE(SAMPLES, SIDE, SIDE, 1)}, {images + first * IMAGE}, .labels = labels + first};
}

static void train(oct_train_step *learner, int steps, int64_t first)
{
    const oct_batch batch = batch_from(first);
    for (int step = 0; step < steps; step++) {
        oct_loss loss;
        RANK_OK(comm, oct_train_step_run(learner, &batch, 0.05f, &loss));
    }
}

int main(void)
{
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
    oct_train_step learner;
    oct_fill_normal(images, SAMPLES * IMAGE, 1, OCT_STREAM_TEST, 0, 0.0f, 1.0f);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % CLASSES;

    oct_module *root = build();
    RANK_OK(comm, oct_train_step_create(&learner, root, &adamw, SAMPLES, LEAF, group));
    train(&learner, 3, first);
    RANK_OK(comm, oct_prepare(&root, OCT_EXAMPLE(batch.shape[0]), &options, NULL));
    RANK_OK(comm, oct_train_step_rebind(&learner, root));
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_CALIBRATION));
    RANK_OK(comm, oct_train_step_forward(&learner, &batch, NULL));
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_QAT));
    train(&learner, 3, first);
    oct_train_step_destroy(&learner);
    print_digest(root);
    oct_module_destroy(&root);
    oct_comm_close(&comm);
    return 0;
}
