#include "io/export/tflite_tflm.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "io/export/tflite_writer_impl.h"
#include "quant/program/planner.h"

#include <string.h>

static const struct {
    const char *name, *types;
} kinds[OCT_TFLITE_KINDS] = {
#define X(name, number, version, options, tflm) {#name, tflm},
    OCT_TFLITE_OPERATORS(X)
#undef X
};

static const tensor *tensor_at(const oct_to_tflite_writer *w, int32_t number)
{
    return w->tensors.item[number];
}

static const char letters[] = {
    [OCT_TFLITE_FLOAT] = 'f', [OCT_TFLITE_S32] = 'i', [OCT_TFLITE_U8] = 'u', [OCT_TFLITE_S8] = 'b'};

/* Inputs that are whole numbers may be indices; every kernel takes such ones. */
static bool takes(const oct_to_tflite_writer *w, const operator* o)
{
    const char *types = kinds[o->kind].types;
    bool all = o->kind != OCT_TFLITE_CONCATENATION || o->inputs <= OCT_TFLM_CONCATENATED;
    for (int i = 0; i < o->inputs; i++) {
        const oct_tflite_type type = tensor_at(w, o->input[i])->type;
        all = all && (type == OCT_TFLITE_S32 || strchr(types, letters[type]));
    }
    for (int i = 0; i < o->outputs; i++)
        all = all && strchr(types, letters[tensor_at(w, o->output[i])->type]);
    return all;
}

void oct_tflm_check(oct_to_tflite_writer *w)
{
    const size_t count = oct_to_tflite_status(w) == OCT_OK ? w->operators.count : 0;
    for (size_t i = 0; i < count; i++) {
        const operator* o = w->operators.item[i];
        if (!takes(w, o))
            (void)oct_to_tflite_fail(
                w, OCT_PREPARE,
                "%s: is written with %s of a type that TFLM's kernel does not take; "
                "--format c has a form for it",
                o->layer, kinds[o->kind].name);
    }
}

static void extend_interval(oct_interval *x, int64_t at)
{
    if (x->first < 0) x->first = at;
    x->last = at;
}

/* When each tensor is in use, counted in operators; -1: never, or it is a constant. */
static void find_uses(const oct_to_tflite_writer *w, oct_interval *x)
{
    for (size_t i = 0; i < w->tensors.count; i++) {
        const tensor *t = tensor_at(w, (int32_t)i);
        int64_t bytes = t->type == OCT_TFLITE_S8 || t->type == OCT_TFLITE_U8 ? 1 : 4;
        for (int d = 0; d < t->ndim; d++)
            bytes *= t->dims[d];
        x[i] = (oct_interval){.first = -1, .bytes = oct_round_up(bytes, 16)};
        for (size_t k = 0; k < w->inputs.count; k++)
            if (w->inputs.item[k] == t) extend_interval(&x[i], 0);
    }
    for (size_t i = 0; i < w->operators.count; i++) {
        const operator* o = w->operators.item[i];
        for (int k = 0; k < o->outputs; k++)
            extend_interval(&x[o->output[k]], (int64_t)i + 1);
        for (int k = 0; k < o->inputs; k++)
            if (!tensor_at(w, o->input[k])->data) extend_interval(&x[o->input[k]], (int64_t)i + 1);
    }
    for (size_t i = 0; i < w->tensors.count; i++)
        for (size_t k = 0; k < w->outputs.count; k++)
            if (w->outputs.item[k] == tensor_at(w, (int32_t)i))
                extend_interval(&x[i], (int64_t)w->operators.count);
}

/* The largest first, of equal ones the last. */
static int64_t assign_places(oct_interval *x, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t n = 0; n < count; n++) {
        int64_t most = n;
        for (int64_t i = n; i < count; i++)
            if (x[i].bytes >= x[most].bytes) most = i;
        const oct_interval next = x[most];
        memmove(x + n + 1, x + n, (size_t)(most - n) * sizeof *x);
        x[n] = next;
        x[n].offset = oct_lowest_fit(x, n, &x[n]);
        bytes = oct_max_i64(bytes, x[n].offset + x[n].bytes);
    }
    return bytes;
}

oct_status oct_tflm_needs(const oct_to_tflite_writer *w, oct_text *operators, int64_t *arena)
{
    bool seen[OCT_TFLITE_KINDS] = {false};
    oct_interval *x = NULL;
    int64_t count = 0;
    for (size_t i = 0; i < w->operators.count; i++) {
        const oct_tflite_operator kind = ((const operator*)w->operators.item[i])->kind;
        if (!seen[kind])
            OCT_TRY(
                oct_text_add(operators, "%s%s", operators->length ? " " : "", kinds[kind].name));
        seen[kind] = true;
    }
    OCT_TRY(oct_alloc(&x, w->tensors.count, sizeof *x));
    find_uses(w, x);
    for (size_t i = 0; i < w->tensors.count; i++)
        if (x[i].first >= 0) x[count++] = x[i];
    *arena = assign_places(x, count);
    oct_free(&x);
    return OCT_OK;
}
