/* Call sites are what a model's forward calls, one after another.
 *
 * A call site is the call of an atomic module, or of an op outside of atomic modules (a functional op).
 * The trace writes them down; an interceptor, which a prepared model has, may answer them in place
 * of what the forward names: so a user's forward stays as it is while its operations change.
 */
#pragma once

#include "core/tensor/op_args.h"
#include "core/tensor/tensor.h"

typedef struct oct_context oct_context;
typedef struct oct_module oct_module;

/* Of a call, of a model. */
enum { OCT_MAX_INPUTS = 64, OCT_MODEL_INPUTS = 8 };

/* The trace and the lifetimes hear of each call site that has been executed. */
typedef struct oct_site {
    oct_module *module; /* NULL: a functional op */
    const char *op;     /* its name, or that of the module's type; NULL: an input of the model */
    oct_tensor *const *input;
    int num_inputs;
    oct_tensor *output;
    const oct_tensor *unhooked; /* of a module: input 0 before its pre hooks; NULL: as input[0] */
} oct_site;

typedef struct oct_interceptor oct_interceptor;
struct oct_interceptor {
    /* Runs the root that it belongs to, in place of the root's forward. */
    oct_tensor *(*run)(oct_interceptor *self, oct_context *cx, oct_module *root,
                       oct_tensor *const *x, int n);
    /* A call site, its module's pre hooks done; module NULL: a functional op. True: answered, with
     * *y or the context failed. False: the forward's own operation runs. */
    bool (*call)(oct_interceptor *self, oct_context *cx, oct_module *module, const char *op,
                 const oct_op_args *args, oct_tensor *const *x, int n, oct_tensor **y);
    /* A dynamic block begins (name), or the innermost one ends (NULL). */
    void (*block)(oct_interceptor *self, oct_context *cx, oct_module *module, const char *name);
    void (*destroy)(oct_interceptor *self);
};
