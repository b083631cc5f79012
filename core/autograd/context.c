/* The context keeps the status of a step, its memory and its tensors; the lifetimes of a forward without a tape
 * come first. */
#include "core/autograd/context.h"

#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "core/nn/module.h"

#include <string.h>

/* The lifetimes of activations are learned from a first forward.
 *
 * Blocks are numbered in the order in which a forward makes them, call sites in the order in which they
 * end. What an atomic module makes beside its output has its last reader in that module's own call.
 */
static const int64_t forever = INT64_MAX;

typedef struct held_block {
    char *memory; /* NULL: given back */
    size_t bytes;
    int64_t first_site, last_site; /* call site in which it is made, and after which it is freed */
    bool in_atomic;                /* made inside of an atomic module */
} held_block;

/* A call site, as it was learned, is compared with the one that runs. */
typedef struct call_site {
    const oct_module *module;
    const char *op;
    int num_inputs;
    int64_t input[OCT_MAX_INPUTS], output; /* blocks, -1: memory of others */
} call_site;

struct oct_lifetimes {
    oct_arena *arena;
    held_block *blocks;
    size_t num_blocks, cap_blocks; /* of the forward at hand */
    size_t first_alive;            /* all blocks before it are gone */
    int64_t *last_use;             /* last reader of each block */
    size_t num_last_use, cap_last_use;
    call_site *sites;
    size_t num_sites, cap_sites;
    size_t num_ended;   /* call sites that have ended in this forward */
    int64_t peak_bytes; /* of the learned forward */
    bool learned;       /* a forward has been learned */
    bool keeps_all; /* this one takes another way, or is not recorded: nothing is freed any more */
    bool diverged;  /* it has read what was freed */
};

oct_status oct_lifetimes_create(oct_lifetimes **lifetimes)
{
    return oct_alloc(lifetimes, 1, sizeof **lifetimes);
}

void oct_lifetimes_destroy(oct_lifetimes **lifetimes)
{
    if (!*lifetimes) return;
    OCT_FREE_ALL(&(*lifetimes)->blocks, &(*lifetimes)->last_use, &(*lifetimes)->sites, lifetimes);
}

/* Keeps what the first forward has shown: the call site that reads each block last, and the peak of the bytes alive. */
static oct_status keep_last_uses(oct_lifetimes *l)
{
    OCT_TRY(oct_grow(&l->last_use, &l->cap_last_use, l->num_blocks, sizeof *l->last_use));
    l->num_last_use = l->num_blocks;
    l->peak_bytes = 0;
    for (size_t i = 0; i < l->num_blocks; i++)
        l->last_use[i] = l->blocks[i].last_site;
    for (int64_t k = 0; k <= (int64_t)l->num_sites; k++) { /* the blocks that live at call site k */
        int64_t alive = 0;
        for (size_t i = 0; i < l->num_blocks; i++)
            if (l->blocks[i].first_site <= k && l->blocks[i].last_site >= k)
                alive += (int64_t)l->blocks[i].bytes;
        if (alive > l->peak_bytes) l->peak_bytes = alive;
    }
    l->learned = true;
    return OCT_OK;
}

int64_t oct_lifetimes_end(oct_lifetimes *l, const oct_tensor *y)
{
    if (!y && l->diverged) return -1;
    if (!y || l->learned || l->keeps_all) return l->peak_bytes;
    if (y->trace_value >= 0) l->blocks[y->trace_value].last_site = forever; /* y stays */
    if (keep_last_uses(l) != OCT_OK) oct_fail_clear(); /* the next forward learns */
    return l->peak_bytes;
}

/* Borrows arena memory for a tensor's data and gives its block number; NULL with a record on failure. in_atomic: the
 * tensor is made inside an atomic module (one operation of the graph). */
static void *borrow_block(oct_lifetimes *l, size_t bytes, bool in_atomic, int64_t *number)
{
    if (oct_grow(&l->blocks, &l->cap_blocks, l->num_blocks + 1, sizeof *l->blocks) != OCT_OK)
        return NULL;
    char *memory = oct_arena_borrow(l->arena, bytes);
    if (!memory) return NULL;
    *number = (int64_t)l->num_blocks;
    l->blocks[l->num_blocks++] = (held_block){.memory = memory,
                                              .bytes = bytes,
                                              .first_site = (int64_t)l->num_ended,
                                              .last_site = forever,
                                              .in_atomic = in_atomic};
    return memory;
}

/* Returns the block in which data is, or -1. */
static int64_t find_block(const oct_lifetimes *l, const void *data)
{
    for (size_t i = l->first_alive; i < l->num_blocks; i++) {
        const held_block *b = &l->blocks[i];
        const uintptr_t at = (uintptr_t)data, first = (uintptr_t)b->memory;
        if (b->memory && at >= first && at < first + b->bytes) return (int64_t)i;
    }
    return -1;
}

static void free_block(const oct_lifetimes *l, held_block *b)
{
    oct_arena_give(l->arena, b->memory);
    b->memory = NULL;
}

/* Keeps the call site of the forward that is learned; so far it is the last reader of its inputs' blocks. */
static void record_site(oct_lifetimes *l, const call_site *s)
{
    if (oct_grow(&l->sites, &l->cap_sites, l->num_sites + 1, sizeof *l->sites) != OCT_OK) {
        oct_fail_clear();
        l->keeps_all = true; /* nothing is given back for want of memory to remember it */
        return;
    }
    for (int i = 0; i < s->num_inputs; i++)
        if (s->input[i] >= 0) l->blocks[s->input[i]].last_site = (int64_t)l->num_sites;
    l->sites[l->num_sites++] = *s;
}

/* Frees what an atomic module made beside its output, the newest blocks, at once: no other call site has seen them. */
static void free_inner_blocks(oct_lifetimes *l, int64_t output)
{
    for (size_t i = l->num_blocks; i-- > l->first_alive && l->blocks[i].in_atomic;) {
        held_block *b = &l->blocks[i];
        b->in_atomic = false;
        if (!b->memory || (int64_t)i == output) continue;
        free_block(l, b);
        b->last_site = (int64_t)l->num_ended;
    }
}

void oct_lifetimes_done(oct_lifetimes *l, const oct_site *executed)
{
    if (l->keeps_all) return;
    call_site s = {.module = executed->module,
                   .op = executed->op,
                   .num_inputs = executed->num_inputs,
                   .output = executed->output->trace_value};
    for (int i = 0; i < s.num_inputs; i++)
        s.input[i] = executed->input[i]->trace_value;
    if (l->learned) { /* the same call site as in the learned forward? */
        const call_site *known = &l->sites[l->num_ended];
        l->keeps_all = l->num_ended >= l->num_sites || s.module != known->module ||
                       strcmp(s.op, known->op) != 0 || s.num_inputs != known->num_inputs ||
                       s.output != known->output ||
                       memcmp(s.input, known->input, (size_t)s.num_inputs * sizeof s.input[0]) != 0;
    }
    if (l->keeps_all) return;
    if (!l->learned) record_site(l, &s);
    free_inner_blocks(l, s.output);
    for (size_t i = l->first_alive; l->learned && i < l->num_blocks && i < l->num_last_use; i++)
        if (l->blocks[i].memory && l->last_use[i] <= (int64_t)l->num_ended)
            free_block(l, &l->blocks[i]);
    while (l->learned && l->first_alive < l->num_blocks && !l->blocks[l->first_alive].memory)
        l->first_alive++;
    l->num_ended++;
}

oct_status oct_context_create(oct_context **cx, const oct_collective *group)
{
    OCT_TRY(oct_alloc(cx, 1, sizeof **cx));
    (*cx)->group = group;
    (*cx)->numerics = OCT_NUMERICS_BF16;
    const oct_status status = oct_arena_create(&(*cx)->arena);
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
    if (oct_is_forked()) omp_set_num_threads(1); /* it would wait for threads of its parent */
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
    oct_lifetimes *l = cx->lifetimes;
    if (!l) return;
    l->arena = cx->arena;
    l->num_blocks = l->first_alive = l->num_ended = 0;
    l->keeps_all = l->diverged = false;
    if (!l->learned) l->num_sites = 0;
}

oct_status oct_context_status(const oct_context *cx)
{
    return cx->status;
}

void *oct_context_adopt(oct_context *cx, oct_status status)
{
    if (!cx || status == OCT_OK || cx->status != OCT_OK) return NULL;
    cx->status = status;
    if (cx->module && cx->module->parent)
        (void)oct_fail_prefix("%s", oct_module_path(cx->module).text);
    return NULL;
}

void *(oct_context_fail)(oct_context *cx, oct_status code, const char *format, ...)
{
    if (cx && cx->status != OCT_OK) return NULL;
    char text[4096];
    OCT_PRINT_ARGS(text, format);
    (void)oct_fail(code == OCT_OK ? OCT_USAGE : code, "%s", text);
    return oct_context_adopt(cx, oct_fail_code());
}

bool oct_inputs_present(oct_context *cx, oct_tensor *const *inputs, int n)
{
    if (!cx) (void)oct_fail(OCT_USAGE, "an operation is called with a context that is NULL");
    if (!cx || cx->status != OCT_OK) return false;
    if (n < 0 || (n > 0 && !inputs))
        oct_context_fail(cx, OCT_USAGE, "an operation is called with %d inputs%s", n,
                         inputs ? "" : ", whose array is NULL");
    for (int i = 0; i < n && cx->status == OCT_OK; i++)
        if (!inputs[i]) return false;
    return cx->status == OCT_OK;
}

bool oct_inputs_ok(oct_context *cx, oct_tensor *const *inputs, int n)
{
    if (!oct_inputs_alive(cx, inputs, n)) return false;
    for (int i = 0; i < n; i++)
        if (inputs[i]->deferred) oct_tensor_settle(inputs[i]);
    return cx->status == OCT_OK;
}

bool oct_inputs_alive(oct_context *cx, oct_tensor *const *inputs, int n)
{
    if (!oct_inputs_present(cx, inputs, n)) return false;
    oct_lifetimes *l = cx->lifetimes;
    for (int i = 0; i < n && oct_context_frees(cx); i++) {
        const int64_t block = inputs[i]->trace_value;
        if (block < 0 || (block < (int64_t)l->num_blocks && l->blocks[block].memory)) continue;
        l->diverged = true;
        oct_context_fail(cx, OCT_DEFECT,
                         "an operation reads a value that was not planned to live until it");
    }
    return cx->status == OCT_OK;
}

/* Threads of a parallel loop may find out together that nobody has computed the values yet. */
void oct_tensor_settle(const oct_tensor *t)
{
    oct_tensor *settled = (oct_tensor *)(uintptr_t)t;
#pragma omp critical(oct_tensor_settle)
    if (t->deferred) {
        settled->data = oct_save(t->deferred->cx, (size_t)oct_numel(t) * sizeof(float));
        if (t->data) t->deferred->write(t->deferred, OCT_BOUND_NONE, NULL, t->data);
        settled->deferred = NULL;
    }
}

void *oct_save(oct_context *cx, size_t bytes)
{
    if (cx->status != OCT_OK) return NULL;
    void *memory = oct_arena_take(cx->arena, bytes);
    return memory ? memory : oct_context_adopt(cx, oct_fail_code());
}

static oct_tensor *make_tensor_over(oct_context *cx, oct_dtype dtype, oct_shape shape, void *data,
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

oct_tensor *oct_tensor_view(oct_context *cx, oct_dtype dtype, oct_shape shape, const void *data)
{
    int64_t trace_value = oct_context_frees(cx) ? find_block(cx->lifetimes, data) : -1;
    /* A tensor's data are not const. */
    return make_tensor_over(cx, dtype, shape, (void *)(uintptr_t)data, trace_value);
}

oct_tensor *oct_tensor_new(oct_context *cx, oct_dtype dtype, oct_shape shape)
{
    int64_t numel = oct_shape_numel(&shape);
    size_t bytes;
    if (!cx || shape.ndim < 0 || shape.ndim > OCT_MAX_DIMS || !oct_dtype_is_known(dtype))
        return oct_context_fail(cx, OCT_USAGE,
                                "a tensor cannot have %d dimensions of type %d; it has at most %d",
                                shape.ndim, (int)dtype, OCT_MAX_DIMS);
    if (cx->max_numel > 0 && (numel < 0 || numel > cx->max_numel))
        return oct_context_fail(cx, OCT_DATA,
                                "it makes a tensor of shape %s, more than %lld numbers",
                                oct_text_shape(&shape).text, (long long)cx->max_numel);
    if (numel < 0 || __builtin_mul_overflow((size_t)numel, oct_dtype_bytes(dtype), &bytes))
        return oct_context_fail(cx, OCT_RESOURCE, "a tensor of shape %s does not fit into memory",
                                oct_text_shape(&shape).text);
    int64_t trace_value = -1;
    void *data = NULL;
    if (!oct_context_frees(cx))
        data = oct_save(cx, bytes);
    else if (cx->status == OCT_OK) {
        data = borrow_block(cx->lifetimes, bytes, cx->atomic_depth > 0, &trace_value);
        if (!data) oct_context_adopt(cx, oct_fail_code());
    }
    return data ? make_tensor_over(cx, dtype, shape, data, trace_value) : NULL;
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
