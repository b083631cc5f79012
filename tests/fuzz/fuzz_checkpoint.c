/* Checkpoints with a good checksum: read, and loaded into a model with its optimizer. A refused file has
 * changed nothing. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "core/optim/optim.h"
#include "io/checkpoint/checkpoint.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"
#include "tests/fuzz/image.h"

#include <stdio.h>
#include <string.h>

const char *const fuzz_name = "checkpoint";
const char *const *const fuzz_words = NULL;

/* A model of each process, as a run has it. */
static oct_module *root;
static oct_params params;
static oct_optim optim;

static void append(oct_status made, oct_module **item)
{
    MAKE(made);
    MAKE(oct_sequential_append(root, item));
}

static void build(void)
{
    const oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 1, 1);
    const oct_optim_config adamw = {
        .kind = OCT_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
    const oct_leaves all = oct_leaves_split(8, 8, 0, 1);
    oct_module *item = NULL;
    if (root) return;
    oct_log_setup(OCT_LOG_ERROR, false);
    MAKE(oct_sequential_create(&root));
    append(oct_conv2d_create(&item, 2, 3, g, true), &item);
    append(oct_batch_norm_create(&item, 3), &item);
    append(oct_relu_create(&item), &item);
    append(oct_linear_create(&item, 3, 2, true), &item);
    MAKE(oct_init_parameters(root, 5));
    MAKE(oct_params_bind(&params, root, &all));
    MAKE(oct_optim_create(&optim, &adamw, &params));
}

static void seed_at(int64_t step, const char *phase, bool with_optim)
{
    oct_checkpoint_file file;
    static char recipe[] = "schema: 1\n";
    oct_checkpoint_info info = {.step = step, .updates = step, .recipe = recipe};
    snprintf(info.phase, sizeof info.phase, "%s", phase);
    MAKE(oct_checkpoint_save(fuzz_folder(), &info, root, with_optim ? &optim : NULL,
                             (oct_keep){.newest = 9}, &file));
    fuzz_seed_image(file.path);
    oct_free(&file.path);
}

void fuzz_seeds(void)
{
    build();
    seed_at(7, "float", true);
    seed_at(8, "calibrate", false);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    return fuzz_mutate_image(data, size, max, seed);
}

static oct_status add_state(void *user, const oct_state_item *item)
{
    oct_sha256_add(user, item->tensor->data,
                   (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype));
    return OCT_OK;
}

static void digest_of_state(uint8_t digest[32])
{
    oct_sha256_state *state;
    MAKE(oct_sha256_begin(&state));
    MAKE(oct_module_state(root, add_state, state));
    for (int i = 0; i < optim.num_slots; i++)
        oct_sha256_add(state, optim.slot[i], (size_t)optim.numel * sizeof(float));
    oct_sha256_add(state, &optim.updates, sizeof optim.updates);
    oct_sha256_end(&state, digest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { OK_OR_DATA = FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA) };
    static const char name[] = "input.h5";
    uint8_t before[32], after[32];
    oct_checkpoint checkpoint;
    build();
    digest_of_state(before);
    fuzz_call call = fuzz_begin(size);
    void *bytes = fuzz_checksummed(data, size);
    oct_status status =
        oct_checkpoint_from_bytes(&checkpoint, name, bytes, size + OCT_CHECKSUM_BYTES);
    fuzz_said(status, OK_OR_DATA, name);
    if (status == OCT_OK) {
        status = oct_checkpoint_load(&checkpoint, root, checkpoint.info.step % 2 ? &optim : NULL);
        fuzz_said(status, OK_OR_DATA, name);
    }
    digest_of_state(after);
    FUZZ_REQUIRE(status == OCT_OK || memcmp(before, after, sizeof before) == 0,
                 "refused, but the model has changed");
    oct_checkpoint_close(&checkpoint);
    fuzz_end(&call, 64, (size_t)16 << 20);
    return 0;
}
