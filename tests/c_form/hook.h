/* Included in front of a model's C file, so that compare.c sees every layer. */
#include <stdint.h>

/* width: bytes of one value. */
void after_layer(int32_t number, const void *values, int32_t bytes, int32_t width);
#define MODEL_AFTER_LAYER(number, values, bytes)                                                   \
    after_layer(number, values, bytes, (int32_t)sizeof *(values))
