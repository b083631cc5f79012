/* Modules are called by forwards, and by interceptors for them. */
#pragma once

#include "core/autograd/context.h"
#include "core/nn/module.h"

/* Runs pre hooks, forward, hooks. The only way a forward is called. In a trace, an atomic module is one
 * node, and what its hooks call are nodes around it. */
oct_tensor *oct_module_call(oct_context *cx, oct_module *module, oct_tensor *const *x, int n);
static inline oct_tensor *oct_call(oct_context *cx, oct_module *module, oct_tensor *x)
{
    return oct_module_call(cx, module, &x, 1);
}
static inline oct_tensor *oct_call2(oct_context *cx, oct_module *module, oct_tensor *a,
                                    oct_tensor *b)
{
    return oct_module_call(cx, module, (oct_tensor *[]){a, b}, 2);
}

/* Serves interceptors: runs an atomic module's forward alone, without hooks and without asking the
 * interceptor; a node of the trace, if one is taken. */
oct_tensor *oct_module_execute(oct_context *cx, oct_module *module, oct_tensor *const *x, int n);
/* Runs hooks of the module alone (its pre_hooks or hooks); returns value or what they put in its place. */
oct_tensor *oct_module_run_hooks(oct_context *cx, oct_module *module, oct_hook *list,
                                 oct_tensor *value);

/* A dynamic block is a part of a forward that runs a changing number of times, or not at all. The body
 * must call the same operations each time it runs. Blocks do not nest. Any forward may mark one; it costs
 * nothing where no graph is kept:
 *     for (int i = 0; i < n; i++) {
 *         oct_dynamic_block_begin(cx, self, "conv_bn_add");
 *         x = oct_add(cx, oct_call(cx, m->bn, oct_call(cx, m->conv, x)), y);
 *         oct_dynamic_block_end(cx);
 *     } */
void oct_dynamic_block_begin(oct_context *cx, oct_module *self, const char *name);
void oct_dynamic_block_end(oct_context *cx);
