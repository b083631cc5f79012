#include "core/base/mem.h"
#include "io/file/file.h"

#include <limits.h>
#include <openssl/evp.h>
#include <unistd.h>

struct oct_sha256_state {
    EVP_MD_CTX *context;
};

void oct_sha256(const void *data, size_t size, uint8_t digest[32])
{
    OCT_ASSERT(EVP_Digest(data, size, digest, NULL, EVP_sha256(), NULL) == 1);
}

oct_status oct_sha256_begin(oct_sha256_state **state)
{
    OCT_TRY(oct_alloc(state, 1, sizeof **state));
    (*state)->context = EVP_MD_CTX_new();
    if (!(*state)->context || EVP_DigestInit_ex((*state)->context, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free((*state)->context);
        oct_free(state);
        return oct_fail(OCT_RESOURCE, "SHA-256 cannot be started: out of memory");
    }
    return OCT_OK;
}

void oct_sha256_add(oct_sha256_state *state, const void *data, size_t size)
{
    OCT_ASSERT(EVP_DigestUpdate(state->context, data, size) == 1);
}

oct_status oct_sha256_add_file(oct_sha256_state *state, int fd, uint64_t size)
{
    enum { CHUNK = 1 << 18 };
    oct_status status = OCT_OK;
    uint8_t *chunk = NULL;
    OCT_TRY(oct_alloc(&chunk, CHUNK, 1));
    for (uint64_t at = 0; at < size && status == OCT_OK; at += CHUNK) {
        const size_t bytes = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        status = oct_file_read_at(fd, at, chunk, bytes);
        if (status == OCT_OK) oct_sha256_add(state, chunk, bytes);
    }
    oct_free(&chunk);
    return status;
}

void oct_sha256_end(oct_sha256_state **state, uint8_t digest[32])
{
    if (!*state) return;
    OCT_ASSERT(EVP_DigestFinal_ex((*state)->context, digest, NULL) == 1);
    EVP_MD_CTX_free((*state)->context);
    oct_free(state);
}

oct_status oct_sha256_peek(const oct_sha256_state *state, uint8_t digest[32])
{
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    const bool done = copy && EVP_MD_CTX_copy_ex(copy, state->context) == 1 &&
                      EVP_DigestFinal_ex(copy, digest, NULL) == 1;
    EVP_MD_CTX_free(copy);
    OCT_CHECK(done, OCT_RESOURCE, "cannot compute SHA-256: out of memory");
    return OCT_OK;
}

const char *oct_hex(const uint8_t digest[32], char text[65])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 32; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    text[64] = '\0';
    return text;
}

oct_status oct_file_sha256(const char *path, size_t *size, char hex[65])
{
    oct_sha256_state *state = NULL;
    uint8_t digest[32] = {0};
    int fd;
    OCT_TRY(oct_file_open(path, SIZE_MAX / 2, &fd, size));
    oct_status status = oct_sha256_begin(&state);
    if (status == OCT_OK) status = oct_sha256_add_file(state, fd, *size);
    if (status != OCT_OK) oct_fail_prefix("%s", path);
    oct_sha256_end(&state, digest);
    oct_hex(digest, hex);
    close(fd);
    return status;
}

oct_status oct_base64(const void *bytes, size_t size, char **text)
{
    OCT_ASSERT(size <= INT_MAX / 2);
    OCT_TRY(oct_alloc(text, (size + 2) / 3 * 4 + 1, 1));
    EVP_EncodeBlock((unsigned char *)*text, bytes, (int)size);
    return OCT_OK;
}
