/* int8 models with a good checksum: read and checked; an accepted one computes its golden inputs and is
 * saved as the model that it was read as. Without a good checksum nothing is accepted. */
#include "io/file/file.h"
#include "tests/fuzz/models.h"
#include "tests/fuzz/net.h"

const char *const fuzz_name = "model";

/* Saved again and read again: the same file. */
static void check_saved(const oct_model *m)
{
    oct_model again;
    char first[512], second[512];
    void *a, *b;
    size_t size_a, size_b;
    snprintf(first, sizeof first, "%s/first.int8.h5", fuzz_folder());
    snprintf(second, sizeof second, "%s/second.int8.h5", fuzz_folder());
    MAKE(oct_model_write(first, m));
    MAKE(oct_model_load(&again, first, false));
    MAKE(oct_model_write(second, &again));
    MAKE(oct_file_read(first, SIZE_MAX / 2, &a, &size_a));
    MAKE(oct_file_read(second, SIZE_MAX / 2, &b, &size_b));
    FUZZ_REQUIRE(size_a == size_b && memcmp(a, b, size_a) == 0, "saved otherwise than it was read");
    oct_free(&a);
    oct_free(&b);
    oct_model_free(&again);
}

static void check_golden(const oct_model *m)
{
    uint8_t *here = NULL;
    const int64_t count = m->certificate.golden_count < 2 ? m->certificate.golden_count : 2;
    MAKE(oct_alloc(&here, (size_t)(count * m->program.num_values), DIGEST));
    oct_status status = oct_golden_digests(&m->program, m->golden_input, count, here);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA) | FUZZ_BIT(OCT_RESOURCE), NULL);
    oct_free(&here);
}

static void open_net(const oct_model *m)
{
    oct_net *net;
    const oct_status status = oct_net_of_model(&net, m, NULL);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA) | FUZZ_BIT(OCT_PREPARE), NULL);
    if (status == OCT_OK) run_net(net);
}

static void load(const uint8_t *file, size_t size, bool good_checksum)
{
    oct_model m;
    unsigned allowed = FUZZ_BIT(OCT_DATA) | (good_checksum ? FUZZ_BIT(OCT_OK) : 0);
    const char *path = fuzz_file("input.int8.h5", file, size);
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_model_load(&m, path, false);
    fuzz_said(status, allowed, path);
    if (status == OCT_OK) check_golden(&m);
    if (status == OCT_OK) open_net(&m);
    if (status == OCT_OK) check_saved(&m);
    oct_model_free(&m);
    fuzz_end(&call, 64, (size_t)256 << 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    oct_log_setup(OCT_LOG_ERROR, false);
    uint8_t *bytes = fuzz_checksummed(data, size);
    load(bytes, size + OCT_CHECKSUM_BYTES, true);
    if (size > 0 && data[size / 2] % 16 == 0) { /* one bit changes and the checksum does not */
        bytes[(size_t)data[size / 3] * size / 256] ^= 4;
        load(bytes, size + OCT_CHECKSUM_BYTES, false);
    }
    oct_free(&bytes);
    return 0;
}
