/* The context keeps the status of a step, its memory and its tensors. */
#include "core/autograd/context.h"

#include "core/autograd/lifetimes.h"
#include "core/base/mem.h"
#include "core/nn/module.h"

#include <stdarg.h>
#include <stdio.h>

oct_status oct_context_create(oct_context **cx, const oct_collective *group)
{
    oct_status status = oct_alloc(cx, 1, sizeof **cx);
    if (status != OCT_OK) return status;
    (*cx)->group = group;
    (*cx)->numerics = OCT_NUMERICS_BF16;
    OCT_TRY_OUT(oct_arena_create(&(*cx)->arena));
out:
    if (status != OCT_OK) oct_context_destroy(cx);
    return status;
}

void oct_context_destroy(oct_context **cx)
{
    if (!*cx) return;
    oct_arena_destroy(&(*cx)->arena);
    oct_free(cx);
}

void oct_context_begin(oct_context *cx, oct_leaves leaves, bool record)
{
    oct_arena_reset(cx->arena);
    cx->status = OCT_OK;
    cx->leaves = leaves;
    cx->record = record;
    cx->draws = (oct_draws){0};
    cx->watch = (oct_leaf_watch){0};
    cx->met = false;
    cx->last = NULL;
    cx->atomic_depth = 0;
    cx->hook = NULL;
    cx->interceptor = NULL;
    cx->args = (oct_op_args){0};
    cx->module = NULL;
    cx->open_params = NULL;
    cx->norm_notes = NULL;
    cx->meanwhile = NULL;
    if (cx->lifetimes) oct_lifetimes_begin(cx->lifetimes, cx->arena);
}

oct_status oct_context_status(const oct_context *cx)
{
    return cx->status;
}

void *oct_context_adopt(oct_context *cx, oct_status status)
{
    if (status == OCT_OK || cx->status != OCT_OK) return NULL;
    cx->status = status;
    char path[256];
    if (cx->module && *oct_module_path(cx->module, path)) oct_fail_prefix("%s", path);
    return NULL;
}

void *oct_context_fail(oct_context *cx, oct_status code, const char *format, ...)
{
    if (cx->status != OCT_OK) return NULL;
    char text[4096];
    va_list args;
    va_start(args, format);
    int written = oct_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return oct_context_adopt(cx, oct_fail(code, "%s", written < 0 ? format : text));
}

bool oct_inputs_present(const oct_context *cx, oct_tensor *const *inputs, int n)
{
    if (cx->status != OCT_OK) return false;
    for (int i = 0; i < n; i++) {
        if (!inputs[i]) return false;
    }
    return true;
}

bool oct_inputs_ok(oct_context *cx, oct_tensor *const *inputs, int n)
{
    if (!oct_inputs_present(cx, inputs, n)) return false;
    for (int i = 0; i < n && oct_context_frees(cx); i++)
        if (!oct_lifetimes_readable(cx->lifetimes, inputs[i]))
            oct_context_fail(cx, OCT_DEFECT,
                             "a value was read that no operation was known to read");
    return cx->status == OCT_OK;
}

void *oct_save(oct_context *cx, size_t bytes)
{
    if (cx->status != OCT_OK) return NULL;
    void *memory = oct_arena_take(cx->arena, bytes);
    return memory ? memory : oct_context_adopt(cx, oct_fail_code());
}

static oct_tensor *tensor_over(oct_context *cx, oct_dtype dtype, oct_shape shape, void *data,
                               int64_t trace_value)
{
    oct_tensor *tensor = oct_save(cx, sizeof *tensor);
    if (tensor)
        *tensor = (oct_tensor){.dtype = dtype,
                               .shape = shape,
                               .data = data,
                               .trace_value = trace_value,
                               .graph_value = -1};
    return tensor;
}

oct_tensor *oct_tensor_view(oct_context *cx, oct_dtype dtype, oct_shape shape, void *data)
{
    int64_t trace_value = oct_context_frees(cx) ? oct_lifetimes_number(cx->lifetimes, data) : -1;
    return tensor_over(cx, dtype, shape, data, trace_value);
}

/* Takes memory that is freed after its last reader. */
static void *take_block(oct_context *cx, size_t bytes, int64_t *number)
{
    if (cx->status != OCT_OK) return NULL;
    void *block = oct_lifetimes_take(cx->lifetimes, bytes, cx->atomic_depth > 0, number);
    return block ? block : oct_context_adopt(cx, oct_fail_code());
}

oct_tensor *oct_tensor_new(oct_context *cx, oct_dtype dtype, oct_shape shape)
{
    int64_t numel = oct_shape_numel(&shape);
    size_t bytes;
    char text[96];
    if (cx->max_numel > 0 && (numel < 0 || numel > cx->max_numel))
        return oct_context_fail(cx, OCT_DATA,
                                "it makes a tensor of shape %s, more than %lld numbers",
                                oct_shape_text(&shape, text), (long long)cx->max_numel);
    if (numel < 0 || __builtin_mul_overflow((size_t)numel, oct_dtype_bytes(dtype), &bytes))
        return oct_context_fail(cx, OCT_RESOURCE, "a tensor of shape %s does not fit into memory",
                                oct_shape_text(&shape, text));
    int64_t trace_value = -1;
    void *data = oct_context_frees(cx) ? take_block(cx, bytes, &trace_value) : oct_save(cx, bytes);
    return data ? tensor_over(cx, dtype, shape, data, trace_value) : NULL;
}

void *oct_scratch(oct_context *cx, size_t bytes)
{
    if (cx->status != OCT_OK) return NULL;
    void *block = oct_arena_borrow(cx->arena, bytes);
    return block ? block : oct_context_adopt(cx, oct_fail_code());
}

void oct_scratch_end(oct_context *cx, void *block)
{
    oct_arena_give(cx->arena, block);
}
