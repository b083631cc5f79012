/* A small transformer is trained in float and quantized, each rank on its samples, and converted; on each rank
 * the program computes what evaluation does. Rank 0 prints the digest of the trained state, which must not
 * depend on the number of ranks or threads. */
#include "core/base/rng.h"
#include "io/file/file.h"
#include "quant/convert/convert.h"
#include "quant/train/train_step.h"
#include "tests/quant/token_net.h"
#include "tests/ranks/rank.h"

#include <string.h>

enum { SAMPLES = 22, LEAF = 4, STEPS = 4 };

static oct_comm *comm;
static float images[SAMPLES * TOKEN_IMAGE];
static float evaluated[SAMPLES * TOKEN_CLASSES], integer[SAMPLES * TOKEN_CLASSES];
static int32_t labels[SAMPLES];

static oct_status add_state(void *user, const oct_state_item *item)
{
    oct_sha256_add(user, item->path, strlen(item->path));
    oct_sha256_add(user, item->tensor->data,
                   (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype));
    return OCT_OK;
}

static void print_digest(oct_module *root, const oct_step_result *result)
{
    uint8_t digest[32];
    char hex[65];
    oct_sha256_state *state;
    RANK_OK(comm, oct_sha256_begin(&state));
    RANK_OK(comm, oct_module_state(root, add_state, state));
    oct_sha256_add(state, &result->loss, sizeof result->loss);
    oct_sha256_end(&state, digest);
    if (oct_comm_rank(comm) == 0) printf("digest %s\n", oct_hex(digest, hex));
}

static oct_step_result train(oct_train_step *step, const oct_batch *batch)
{
    oct_step_result result = {0};
    double first = 0;
    for (int i = 0; i < STEPS; i++) {
        RANK_OK(comm, oct_train_step_run(step, batch, 0.01f, &result));
        if (i == 0) first = result.loss;
    }
    RANK_CHECK(comm, result.loss < first, "the loss went from %g to %g", first, result.loss);
    return result;
}

static void check_program(oct_module *root, const oct_shape *sample, const float *x, int64_t count)
{
    oct_program program = {0};
    oct_runtime *runtime;
    RANK_OK(comm, oct_convert(&program, root, OCT_EXAMPLE(*sample), oct_target_find("x86"), NULL));
    RANK_OK(comm, oct_runtime_create(
                      &runtime, &program,
                      &(oct_runtime_options){.max_batch = SAMPLES, .host = &oct_module_fallbacks}));
    RANK_OK(comm, oct_runtime_run(runtime, count, (const float *[]){x}, integer));
    RANK_CHECK(comm,
               memcmp(integer, evaluated, (size_t)count * TOKEN_CLASSES * sizeof *integer) == 0,
               "the program's outputs are not those of evaluation");
    oct_runtime_destroy(&runtime);
    oct_program_free(&program);
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
    const oct_leaves leaves = oct_leaves_split(SAMPLES, LEAF, group->rank, group->size);
    const int64_t first = oct_leaves_first_sample(&leaves);
    const oct_shape shape = OCT_SHAPE(SAMPLES, TOKEN_SIDE, TOKEN_SIDE, 3);
    const oct_batch batch = {1, {shape}, {images + first * TOKEN_IMAGE}, .labels = labels + first};
    oct_train_step step;
    oct_module *root = NULL;
    oct_fill_normal(images, SAMPLES * TOKEN_IMAGE, 1, OCT_STREAM_TEST, 0, 0.0f, 1.0f);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % TOKEN_CLASSES;

    RANK_OK(comm, token_net_create(&root));
    RANK_OK(comm, oct_init_parameters(root, 5));
    RANK_OK(comm, oct_train_step_create(&step, root, &adamw, SAMPLES, LEAF, group));
    train(&step, &batch);
    RANK_OK(comm, oct_prepare(&root, OCT_EXAMPLE(shape), &options, NULL));
    RANK_OK(comm, oct_train_step_rebind(&step, root));
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_CALIBRATION));
    RANK_OK(comm, oct_train_step_forward(&step, &batch, NULL));
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_QAT));
    const oct_step_result result = train(&step, &batch);
    print_digest(root, &result);
    oct_module_train(root, false);
    RANK_OK(comm, oct_set_fake_quant(root, OCT_STATE_VALIDATION));
    RANK_OK(comm, oct_train_step_forward(&step, &batch, evaluated));
    check_program(root, &shape, batch.input[0], oct_leaves_local_samples(&leaves));
    oct_train_step_destroy(&step);
    oct_module_destroy(&root);
    oct_comm_close(&comm);
    return 0;
}
