/* OpenSSL's functions that keep their state where the caller says: those that came later allocate, so that a digest could
 * fail. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "core/base/mem.h"
#include "io/file/file.h"

#include <limits.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <unistd.h>

struct oct_sha256_state {
    SHA256_CTX context;
};

void oct_sha256(const void *data, size_t size, uint8_t digest[32])
{
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, data, size);
    SHA256_Final(digest, &context);
}

oct_status oct_sha256_begin(oct_sha256_state **state)
{
    OCT_TRY(oct_alloc(state, 1, sizeof **state));
    SHA256_Init(&(*state)->context);
    return OCT_OK;
}

void oct_sha256_add(oct_sha256_state *state, const void *data, size_t size)
{
    SHA256_Update(&state->context, data, size);
}

oct_status oct_sha256_add_file(oct_sha256_state *state, int fd, uint64_t size)
{
    enum { CHUNK = 1 << 18 };
    OCT_OWNED(oct_free) uint8_t *chunk = NULL;
    OCT_TRY(oct_alloc(&chunk, CHUNK, 1));
    for (uint64_t at = 0; at < size; at += CHUNK) {
        const size_t bytes = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        OCT_TRY(oct_file_read_at(fd, at, chunk, bytes));
        oct_sha256_add(state, chunk, bytes);
    }
    return OCT_OK;
}

void oct_sha256_end(oct_sha256_state **state, uint8_t digest[32])
{
    if (!*state) return;
    SHA256_Final(digest, &(*state)->context);
    oct_free(state);
}

void oct_sha256_peek(const oct_sha256_state *state, uint8_t digest[32])
{
    SHA256_CTX copy = state->context;
    SHA256_Final(digest, &copy);
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

oct_status oct_file_sha256_with(const char *path, const void *more, size_t more_bytes, size_t *size,
                                char hex[65])
{
    oct_sha256_state *state = NULL;
    uint8_t digest[32] = {0};
    int fd;
    OCT_TRY(oct_file_open(path, SIZE_MAX / 2, &fd, size));
    oct_status status = oct_sha256_begin(&state);
    if (status == OCT_OK) status = oct_sha256_add_file(state, fd, *size);
    if (status != OCT_OK) (void)oct_fail_prefix("%s", path);
    if (status == OCT_OK) oct_sha256_add(state, more, more_bytes);
    oct_sha256_end(&state, digest);
    oct_hex(digest, hex);
    close(fd);
    return status;
}

oct_status oct_file_sha256(const char *path, size_t *size, char hex[65])
{
    return oct_file_sha256_with(path, NULL, 0, size, hex);
}

oct_status oct_base64(const void *bytes, size_t size, char **text)
{
    OCT_ASSERT(size <= INT_MAX / 2);
    OCT_TRY(oct_alloc(text, (size + 2) / 3 * 4 + 1, 1));
    EVP_EncodeBlock((unsigned char *)*text, bytes, (int)size);
    return OCT_OK;
}
