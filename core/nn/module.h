/* Modules form a tree with named children, parameters, buffers, train/eval and hooks, and are called by forwards, and by
 * interceptors for them.
 *
 * A module of ours is a struct whose first member is oct_module; its type is a table of functions. Modules of others have
 * a spec and a struct apart (octet/nn.h); module_type.c makes a type of it. Children are registered with the address
 * of the pointer that the module's own forward uses, so a pass can replace a child and the forward goes on unchanged:
 *
 *     typedef struct block { oct_module base; oct_module *conv, *bn; } block;
 *     OCT_TRY(oct_module_add(&self->base, "conv", &self->conv, oct_conv2d_create(&self->conv, 3, 8, g, true)));
 *     y = oct_call(cx, self->bn, oct_call(cx, self->conv, x));
 */
#pragma once

#include "core/autograd/context.h"
#include "core/nn/param.h"

/* The ops and modules that a hook calls are call sites like those of a forward, so a prepared model computes them in codes,
 * or in float where they have no quantized form. Threads may each have their own networks with hooks. */

enum { OCT_NAME_MAX = 63 }; /* letters of a name of a module's part or type */
bool oct_is_module_name(const char *name);

typedef struct oct_hook oct_hook;
struct oct_hook {
    uint64_t id;
    oct_hook_fn fn;
    void *user;
    oct_hook **list;     /* that it is in */
    oct_hook *next;      /* of the list, in order of registration */
    oct_hook *next_live; /* of the process */
};

/* Appends a hook to a list; handle, which may be NULL, removes it later. */
oct_status oct_hook_add(oct_hook **list, oct_hook_fn fn, void *user, oct_hook_handle *handle);
/* Moves all hooks to the end of another list. Handles stay valid. */
void oct_hooks_move(oct_hook **from, oct_hook **to);
void oct_hooks_free(oct_hook **list);

typedef struct oct_module_type oct_module_type;
struct oct_emitter;
struct oct_quantized_op;

struct oct_module_type {
    const char *name; /* "conv2d"; of an atomic module with a functional form: the op's */
    /* Computes the output of n inputs; sticky errors. Called through oct_module_call only. */
    oct_tensor *(*forward)(oct_context *cx, oct_module *self, oct_tensor *const *x, int n);
    int inputs; /* that a call must have; 0: the forward checks it itself */
    /* Frees what the struct owns beside parameters, buffers and children; may be NULL. */
    void (*destroy)(oct_module *self);
    /* Text for the module table, such as "16 -> 32, 3x3, stride 2"; NULL: what the list of arguments says. */
    void (*describe)(const oct_module *self, char *text, size_t size);
    /* An atomic module is one node of a trace; containers (atomic false) are looked into. */
    bool atomic;
    /* A module as a value: its struct has `size` bytes and, `args_at` bytes from its beginning, the arguments of the
     * list, from which it can be made again (oct_module_make). NULL: it has no such form; then it can neither be
     * generated for a functional op nor stay float in a deployed model. */
    const oct_arg_list *args;
    size_t size, args_at;
    /* Of a spec: where the struct of the module's own data is, up to `size`; 0: a type of ours. */
    size_t data_at;
    /* Completes a module whose arguments are set and each within its bounds: checks them together, adds parameters.
     * NULL: there is nothing to do. */
    oct_status (*init)(oct_module *self);
    /* Writes the step that this module is in an integer program (quant/module/emit.h); NULL: none. */
    oct_status (*emit)(oct_module *self, struct oct_emitter *emitter);
    /* The module quantizes its output: its struct begins with oct_quantized (quant/module/quant_modules.h). */
    bool quantized;
    /* The module is one step of an integer program (quant/module/quantized_impl.h); NULL: it is not. */
    const struct oct_quantized_op *step;
    /* A container may set this: its forward reads tensors by calls of modules and ops alone, never their data, so
     * what no later call reads may be freed while it runs (core/autograd/context.h). Atomic modules read
     * no tensors but the inputs of the call at hand in any case. */
    bool calls_only;
};

/* The members of a type whose struct `self` holds the arguments of the list as its member `args`, or has none. */
#define OCT_MODULE_ARGS(list, self)                                                                \
    .args = &(list), .size = sizeof(self), .args_at = offsetof(self, args)
#define OCT_MODULE_NO_ARGS(self) .args = &oct_no_arg_list, .size = sizeof(self)

/* Finds every type that can be made from arguments, by name: those of module_list.def, then those
 * that plug-ins added, then those of specs. Types live as long as the process. */
const oct_module_type *oct_module_type_find(const char *name); /* NULL */
bool oct_module_type_is_listed(const oct_module_type *type);   /* not added */
/* Adds a type; OCT_USAGE when the name is taken by another one. */
oct_status oct_module_type_register(const oct_module_type *type);

/* Make a module of a type that has a list of arguments: from their struct (NULL where there are none), or from their
 * row of numbers, which may be of any origin. OCT_USAGE: they are not such as it can have. */
oct_status oct_module_make(oct_module **m, const oct_module_type *type, const void *args);
oct_status oct_module_from(oct_module **m, const oct_module_type *type, const oct_op_args *row);
/* The module's arguments as a row; empty where its type has no list. */
void oct_module_args(const oct_module *m, oct_op_args *row);
/* Writes the text for the module table; "": there is nothing to say. */
void oct_module_describe(const oct_module *m, char *text, size_t size);

typedef struct oct_child {
    char *name;
    oct_module **slot;
    uint64_t key; /* of the name */
} oct_child;

/* A buffer is saved with the module but not trained. */
typedef struct oct_buffer {
    char *name;
    oct_tensor tensor; /* owns its data; dtype and shape fixed from creation */
    oct_value_range range;
} oct_buffer;

struct oct_module {
    const oct_module_type *type;
    oct_module *parent; /* NULL for the root */
    char *name;         /* in its parent; "" for the root */
    size_t size;        /* bytes of its struct */
    bool training;      /* set by oct_module_train; new modules train */
    oct_child *children;
    size_t num_children, cap_children;
    oct_param **params; /* owned */
    size_t num_params, cap_params;
    oct_buffer *buffers;
    size_t num_buffers, cap_buffers;
    oct_hook *pre_hooks, *hooks;  /* in order of registration */
    oct_interceptor *interceptor; /* of a prepared root, owned; NULL otherwise */
};

/* Allocates a zeroed struct of `size` bytes (>= sizeof(oct_module)) as a module of this type. */
oct_status oct_module_alloc(oct_module **module, const oct_module_type *type, size_t size);
/* Ends a function that makes a module: destroys it where status says that the rest has failed, and returns
 * status. */
oct_status oct_module_made(oct_module **module, oct_status status);

/* Children are owned by the parent from then on; when the call fails, *slot is destroyed and NULL.
 * Names: [a-z0-9_]+, at most OCT_NAME_MAX letters, unique among children, parameters and buffers. */
oct_status oct_module_add_child(oct_module *self, const char *name, oct_module **slot);
/* The child of this name; NULL: there is none. */
oct_module *oct_module_child(const oct_module *self, const char *name);
/* Whether a parameter is tied to one of another module, so that changing its values changes that one's. */
bool oct_module_is_tied(const oct_module *self);
/* Destroys the child in this slot, which becomes NULL. */
void oct_module_remove_child(oct_module *self, oct_module **slot);
/* Values of this parameter or buffer that come from a file and lie outside are refused. */
void oct_module_limit_state(oct_module *self, const char *name, oct_value_range range);

/* Puts `replacement` where `old` stands, with its name and mode (train or eval); leaves old
 * detached and nameless, not destroyed. Hooks stay with old. */
oct_status oct_module_replace(oct_module **root, oct_module *old, oct_module *replacement);

void oct_module_train(oct_module *module, bool training); /* recursive */
/* True when forwards below root read tensors by calls alone (calls_only of their types), and no hook sees one. */
bool oct_module_calls_only(const oct_module *root);

/* Walks in pre-order, children in order of registration; the callback may stop it with an error. */
oct_status oct_module_walk(oct_module *root, oct_status (*visit)(void *user, oct_module *module),
                           void *user);
typedef struct oct_path_text {
    char text[256];
} oct_path_text;
/* Returns the path, "layers.0.conv"; "" for the root. A longer one is cut. */
oct_path_text oct_module_path(const oct_module *module);

/* Walks over all state of the tree, with names and in pre-order: parameters then buffers of each
 * module, with the full path ("layers.0.conv.weight"). The order and names are the layout of
 * checkpoints. */
typedef struct oct_state_item {
    const char *path;
    oct_tensor *tensor; /* borrowed */
    oct_param *param;   /* NULL for a buffer */
    oct_value_range range;
} oct_state_item;
oct_status oct_module_state(oct_module *root,
                            oct_status (*visit)(void *user, const oct_state_item *item),
                            void *user);

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
