/* manifest.json of a folder of checkpoints: read, and what is read is what is written. */
#include "core/base/log.h"
#include "io/file/file.h"
#include "io/checkpoint/manifest.h"
#include "tests/fuzz/fuzz.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const fuzz_name = "manifest";
static const char *const words[] = {"\"schema\"",
                                    "\"checkpoints\"",
                                    "\"file\"",
                                    "\"step\"",
                                    "\"bytes\"",
                                    "\"sha256\"",
                                    "step-00000400.h5",
                                    "../step-1.h5",
                                    "{",
                                    "}",
                                    "[",
                                    "]",
                                    ":",
                                    ",",
                                    "1e99",
                                    "-1",
                                    "null",
                                    "true",
                                    "\\u0000",
                                    "\\u001b",
                                    "99999999999999999999",
                                    "[[[[[[[[",
                                    NULL};
const char *const *const fuzz_words = words;

void fuzz_seeds(void)
{
    static const char good[] =
        "{\"schema\": 1, \"checkpoints\": [\n"
        "  {\"file\": \"step-00000400.h5\", \"step\": 400, \"bytes\": 23456, \"sha256\": "
        "\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"},\n"
        "  {\"file\": \"step-00000200.h5\", \"step\": 200, \"bytes\": 23456, \"sha256\": "
        "\"ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100\"}\n]}\n";
    static const char none[] = "{\"schema\": 1, \"checkpoints\": []}\n";
    fuzz_seed(good, strlen(good));
    fuzz_seed(none, strlen(none));
}

static bool same(const oct_manifest *a, const oct_manifest *b)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (a->entries[i].step != b->entries[i].step ||
            a->entries[i].bytes != b->entries[i].bytes ||
            memcmp(a->entries[i].digest, b->entries[i].digest, sizeof b->entries[i].digest) != 0)
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    oct_manifest manifest = {0}, again = {0};
    oct_log_setup(OCT_LOG_ERROR, false);
    const char *path = fuzz_file("manifest.json", data, size);
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_manifest_read(&manifest, fuzz_folder(), false);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA), path);
    if (status == OCT_OK && manifest.count > 0) {
        MAKE(oct_manifest_write(&manifest, fuzz_folder()));
        MAKE(oct_manifest_read(&again, fuzz_folder(), false));
        FUZZ_REQUIRE(same(&manifest, &again), "read otherwise than it was written");
    }
    oct_manifest_free(&manifest);
    oct_manifest_free(&again);
    fuzz_end(&call, 64, (size_t)1 << 20);
    return 0;
}
