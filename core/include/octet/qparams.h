/* How small integers, codes, stand for real numbers. */
#ifndef OCTET_QPARAMS_H
#define OCTET_QPARAMS_H

#include <stdint.h>

/* A code in [qmin, qmax] stands for scale * (code - zero_point). zero_point is 0 (values after ReLU) or the middle (signed
 * values: 128, of 16-bit codes 32768), unless a fake-quant chooses another one of the codes. */
typedef struct oct_qparams {
    float scale;
    int32_t zero_point;
    int32_t qmin, qmax;
} oct_qparams;

#endif
