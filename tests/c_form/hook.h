/* Included in front of a model's C file, so that compare.c sees every layer. */
#include <stdint.h>

void after_layer(int32_t number, const void *values, int32_t bytes);
#define MODEL_AFTER_LAYER(number, values, bytes) after_layer(number, values, bytes)
