/* Flat files after a good digest: read, checked, and what is accepted computes its golden inputs; then as the
 * commands read them. */
#include "core/base/mem.h"
#include "io/export/format.h"
#include "io/model/model_file.h"
#include "launch/deploy/certificate.h"
#include "quant/program/flat.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/net.h"
#include "tests/quant/program_maker.h"

#include <stdlib.h>
#include <string.h>

const char *const fuzz_name = "flat";
const char *const *const fuzz_words = NULL;

static void seed_of(void (*maker)(oct_program *))
{
    static float golden[4096];
    oct_model m = {.certificate = {.golden_count = 1}, .golden_input = golden};
    oct_exported out = {0};
    maker(&m.program);
    const oct_program *p = &m.program;
    m.classes = (int)oct_value_numel(&p->values[p->output]);
    for (int i = 0; i < OCT_REALS_MAX; i++)
        m.std[i] = 0.5f;
    FUZZ_REQUIRE(oct_inputs_numel(p) <= (int64_t)OCT_COUNT(golden), "a larger input");
    MAKE(oct_strdup(&m.recipe, "schema: 1\nmodel:\n  name: cnn-small\n"));
    MAKE(oct_alloc(&m.golden_digest, (size_t)p->num_values, OCT_FLAT_DIGEST));
    MAKE(oct_golden_digests(p, golden, 1, m.golden_digest));
    MAKE(oct_export_format_flat.write_model(&(oct_export){.model = &m, .version = "fuzz"}, &out));
    fuzz_seed(out.bytes, out.size);
    oct_exported_free(&out);
    m.golden_input = NULL;
    oct_model_free(&m);
}

void fuzz_seeds(void)
{
    seed_of(program_small);
    seed_of(program_of_other_kinds);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size = fuzz_mutate(data, size, max, seed);
    if (size < sizeof(oct_flat_header)) return size;
    oct_flat_header h;
    memcpy(&h, data, sizeof h);
    h.bytes = size;
    memcpy(data, &h, sizeof h);
    h.digest = oct_flat_digest(data, size);
    memcpy(data, &h, sizeof h);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    oct_flat *flat = NULL;
    uint8_t *copy = NULL; /* where it ends, memory ends */
    MAKE(oct_alloc(&copy, size, 1));
    memcpy(copy, data, size);
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_flat_take(&flat, copy, size);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA), NULL);
    oct_program_cost cost;
    if (status == OCT_OK && oct_program_costs(oct_flat_program(flat), &cost) == OCT_OK &&
        cost.work < 0x1p24 && cost.bytes < 1 << 20) {
        oct_net *net;
        status = oct_net_open_bytes(&net, copy, size, NULL);
        fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA), NULL);
        if (status == OCT_OK) run_net(net);
    }
    oct_flat_close(&flat);
    oct_model model;
    status = oct_model_read_flat(&model, copy, size);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA), NULL);
    oct_model_free(&model);
    fuzz_end(&call, 64, (size_t)64 << 20);
    oct_free(&copy);
    return 0;
}
