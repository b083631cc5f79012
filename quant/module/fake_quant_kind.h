/* What can be put in place of a fake-quant's own rules, by name: a custom fake-quant. */
#pragma once

#include "quant/qparams.h"

typedef struct oct_fake_quant_kind {
    const char *name; /* "affine" is the built-in one */
    /* The scale for a range that was observed: values lie in [min, max] and become codes in
     * [q.qmin, q.qmax] around q.zero_point. Must return a positive finite number. The target may
     * round it up to a power of two. */
    float (*scale)(float min, float max, oct_qparams q);
    /* The gradient through the quantizer, in place; mask: 1 bit an element, 0 where the value was
     * beyond the codes. NULL: cleared where the mask is 0 (straight-through, clipped). */
    void (*backward)(int64_t n, const uint8_t *mask, float *grad);
} oct_fake_quant_kind;

#define OCT_FAKE_QUANT_KIND(id, file) extern const oct_fake_quant_kind oct_fake_quant_##file;
#include "quant/module/fake_quant_kind_list.def"
#undef OCT_FAKE_QUANT_KIND

/* Those of the list, then those that plug-ins added. */
const oct_fake_quant_kind *oct_fake_quant_kind_find(const char *name); /* NULL */
size_t oct_fake_quant_kind_count(void);
const oct_fake_quant_kind *oct_fake_quant_kind_at(size_t i);
/* For plug-ins; kinds live as long as the process. OCT_USAGE when the name is taken by another
 * one. */
oct_status oct_fake_quant_kind_register(const oct_fake_quant_kind *kind) OCT_NODISCARD;
