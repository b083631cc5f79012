/* Hooks are functions that a module calls around its forward.
 *
 * A forward-pre hook sees (and may replace) the inputs, a forward hook the output. The ops and modules
 * that a hook calls are call sites like those of a forward, so a prepared model computes them in codes,
 * or in float where they have no quantized form; modules must be part of the model. The hooks of the
 * root see what goes into the model and what comes out, and belong to no graph. Threads may each have
 * their own networks with hooks; one network belongs to one thread at a time.
 */
#pragma once

#include "core/autograd/call.h"

/* A pre hook is called for input 0. Returning NULL keeps the value. */
typedef oct_tensor *(*oct_hook_fn)(oct_context *cx, oct_module *module, oct_tensor *value,
                                   void *user);

typedef struct oct_hook oct_hook;
struct oct_hook {
    uint64_t id;
    oct_hook_fn fn;
    void *user;
    oct_hook **list;     /* that it is in */
    oct_hook *next;      /* of the list, in order of registration */
    oct_hook *next_live; /* of the process */
};

typedef struct oct_hook_handle {
    uint64_t id;
} oct_hook_handle;

oct_status oct_hook_add(oct_hook **list, oct_hook_fn fn, void *user,
                        oct_hook_handle *handle) OCT_NODISCARD;
/* Removing twice, or after the module's end, is harmless. A hook may remove itself while it runs, but no
 * other hook of its module. */
void oct_hook_remove(oct_hook_handle *handle);
/* Moves all hooks to the end of another list. Handles stay valid. */
void oct_hooks_move(oct_hook **from, oct_hook **to);
void oct_hooks_free(oct_hook **list);
