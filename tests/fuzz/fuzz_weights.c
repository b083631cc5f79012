/* Files of weights from other frameworks: safetensors, and NumPy's archives. */
#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/weights/weights.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const fuzz_name = "weights";
static const char *const words[] = {
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
    "\"data_offsets\":[",
    "\"shape\":[",
    "9223372036854775807",
    "F16",
    "BF16",
    "F64",
    "I64",
    "__metadata__",
    "\\u0000",
    "PK\1\2",
    "PK\3\4",
    "PK\5\6",
    "<f2",
    "<f8",
    NULL};
const char *const *const fuzz_words = words;

static void seed_file(const char *name)
{
    char path[600];
    void *bytes = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/tests/golden/weights/%s", OCT_SOURCE_DIR, name);
    MAKE(oct_file_read(path, 1 << 20, &bytes, &size));
    fuzz_seed(bytes, size);
    oct_free(&bytes);
}

void fuzz_seeds(void)
{
    static const char small[] = "\x3a\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F16\",\"shape\":[2,1],"
                                "\"data_offsets\":[0,4]}}\0\x3c\0\xbc";
    seed_file("net.safetensors");
    seed_file("net.npz");
    fuzz_seed(small, sizeof small - 1);
}

/* By the name of either format, whatever the bytes are. */
static void read_as(const char *name, const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(name, data, size);
    oct_weights w;
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_weights_read(&w, path);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA), path);
    if (status == OCT_OK) {
        FUZZ_REQUIRE(w.count > 0, "a file without arrays");
        for (int64_t i = 0; i < w.num_values; i++)
            FUZZ_REQUIRE(isfinite(w.values[i]), "value %lld", (long long)i);
    }
    oct_weights_free(&w);
    fuzz_end(&call, 8 * 1032, (size_t)4 << 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bool archive = size >= 2 && memcmp(data, "PK", 2) == 0;
    read_as(archive ? "a.npz" : "a.safetensors", data, size);
    return 0;
}
