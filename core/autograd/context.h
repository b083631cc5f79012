/* A context carries one forward and backward: sticky status, memory of the step, tape, leaves,
 * ranks.
 *
 * In a module's forward, ops take the context and return a tensor; the first error sticks in
 * cx->status, after which every op returns NULL at once, and every op accepts NULL inputs by
 * returning NULL. So model code has no error plumbing; whoever started the forward asks
 * oct_context_status once.
 */
#pragma once

#include "core/base/arena.h"
#include "core/base/collective.h"
#include "core/base/leaves.h"
#include "core/kernel/float_kernel.h"
#include "core/tensor/op_args.h"
#include "core/tensor/tensor.h"

#include <omp.h>

/* Call sites are what a model's forward calls, one after another: the call of an atomic module, or of an op outside of
 * atomic modules (a functional op). The trace writes them down; an interceptor, which a prepared model has, may answer
 * them in place of what the forward names: so a user's forward stays as it is while its operations change. */

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

typedef struct oct_trace oct_trace;
typedef struct oct_lifetimes oct_lifetimes;

/* Whether the leaves of a step are the whole batch. What sums over the batch refuses a part of it; whoever
 * runs a forward part by part (calibration) sees that it was asked to, and runs the batch whole. */
typedef enum oct_batch_part {
    OCT_BATCH_WHOLE,
    OCT_BATCH_PART,
    OCT_BATCH_PART_REFUSED,
} oct_batch_part;

/* What a forward draws at random, the same on all ranks, is a function of these and of the place of a value in the global
 * batch. Whoever begins a step that learns sets them after oct_context_begin, which clears them: nothing is drawn
 * without. */
typedef struct oct_draws {
    bool active;
    uint64_t seed, update;
    int64_t first_sample; /* of the update: where the batch begins that is at hand, of several */
    uint32_t calls;       /* of what draws, in this forward */
    uint32_t roundings;   /* calls of layers whose gradients are rounded at random */
} oct_draws;

/* One leaf of a batch can be watched: what it alone adds to every sum over the batch (loss, statistics, the gradient of
 * each parameter) goes into a digest, in the order of the forward and the backward. Set after
 * oct_context_begin, which clears it. */
typedef struct oct_leaf_watch {
    bool active;
    int64_t leaf; /* of this rank's */
    uint64_t digest;
} oct_leaf_watch;

struct oct_context {
    oct_status status; /* sticky */
    oct_arena *arena;
    oct_leaves leaves;           /* of this step; leaves.local covers the batch at hand */
    const oct_collective *group; /* never NULL; a forward sums by oct_sum_over_ranks alone, since */
                                 /* others may not be there while it runs part by part */
    oct_draws draws;             /* of this step */
    oct_leaf_watch watch;
    bool met;                     /* all ranks have synchronized for a sum of this step */
    oct_batch_part part;          /* set by who begins forwards, kept over them */
    bool record;                  /* keep a tape */
    bool release_on_backward;     /* backward gives back what the forward made as it runs, so   */
                                  /* tensors that ops made may not be read after it; set by who */
                                  /* begins steps, kept over them */
    oct_numerics numerics;        /* of the backward of quantized layers */
    bool float_bf16;              /* float convolutions and linear layers that learn multiply in */
                                  /* bfloat16; set by who begins steps, kept over them */
    struct oct_grad_gates *gates; /* where those are int8 (quant/module/quant_modules.h); or NULL */
    oct_node *last;               /* tape */
    oct_trace *trace;             /* records the graph while not NULL */
    oct_lifetimes *lifetimes;     /* without a tape: frees what is read no more; or NULL */
    oct_op_args args;             /* of the functional op at hand, for the trace */
    oct_interceptor *interceptor; /* of the prepared root that runs, or NULL */
    int atomic_depth;             /* > 0 inside an atomic module: what it calls is no call site */
    oct_module *module;           /* innermost module being called; messages name it */
    oct_module *hook;             /* whose hooks run, or NULL: what they call are call sites too */
    struct oct_param *open_params; /* parameters whose leaf gradients await their fold */
    /* Leaves of a norm group, a power of two, or 0: the whole batch; set by who begins steps, who then sums the notes
     * too (op/norm_groups.h). */
    int64_t norm_group;
    bool norm_share_all; /* all ranks get the sums of all groups, as one of them may compute */
                         /* another's leaf again; set by who begins steps */
    struct oct_norm_note *norm_notes; /* what batch norms have seen in this step, call by call */
    /* What the main thread does besides, during a backward: set by who begins one after the forward. */
    void (*meanwhile)(oct_context *cx, void *user);
    void *meanwhile_user;
    int64_t max_numel; /* that a new tensor may have; 0: as many as there is room for */
};

/* Creates a context with an empty arena for a rank of `group`; oct_context_begin comes before a forward. */
oct_status oct_context_create(oct_context **cx, const oct_collective *group);
void oct_context_destroy(oct_context **cx);

/* Starts a step: clears tape and status, resets the arena, sets the leaves. Tensors of the last
 * step are gone, and all borrowed buffers go back, gradients of inputs among them. record: a backward
 * will follow. */
void oct_context_begin(oct_context *cx, oct_leaves leaves, bool record);

/* Returns the sticky status, whose record is the thread's. */
oct_status oct_context_status(const oct_context *cx);

/* Fails the context with a failure that a call has already recorded; OCT_OK changes nothing. Returns
 * NULL. */
void *oct_context_adopt(oct_context *cx, oct_status status);

/* Called by ops between the tiles of what takes long, from any thread. */
static inline void oct_meanwhile(oct_context *cx)
{
    if (cx->meanwhile && omp_get_thread_num() == 0) cx->meanwhile(cx, cx->meanwhile_user);
}

/* True when the context's lifetimes free what this forward reads no more. */
static inline bool oct_context_frees(const oct_context *cx)
{
    return cx->lifetimes && !cx->record && !cx->trace;
}

/* Computes the values of a deferred tensor. Without memory for them its data stay NULL, with its context failed. */
void oct_tensor_settle(const oct_tensor *t);
/* As oct_inputs_ok, but leaves deferred values as they are: for a caller that reads none. */
bool oct_inputs_alive(oct_context *cx, oct_tensor *const *inputs, int n);
/* A weaker check, for a caller that hands the inputs on and reads none of them itself: they may have been freed
 * already. */
bool oct_inputs_present(oct_context *cx, oct_tensor *const *inputs, int n);

/* Makes a tensor over memory of the caller, which operations only read. */
oct_tensor *oct_tensor_view(oct_context *cx, oct_dtype dtype, oct_shape shape, const void *data);
void *oct_save(oct_context *cx, size_t bytes); /* arena memory for node->saved; NULL sticky */

/* Borrows scratch for the time of one op; NULL on failure (sticky). */
void *oct_scratch(oct_context *cx, size_t bytes);
void oct_scratch_end(oct_context *cx, void *block);

/* Lifetimes free the activations of a forward without a tape when no later call site reads them.
 *
 * Who reads what last is learned. The first forward keeps the output of every call site and writes down
 * which call site read which; later ones that take the same way give each block of memory back after
 * its last reader. A forward that takes another way keeps what it has from there on. Should it read
 * what has gone already, it fails, and oct_lifetimes_end says that the failure is only this: let
 * the same forward run again without lifetimes.
 *
 * That holds for forwards that read tensors by modules and ops alone, since nothing else is seen:
 * oct_module_calls_only (core/nn/module.h).
 *
 * A tensor's id is here the number of its block, and views have that of what they look at.
 */
/* The caller sets them as cx->lifetimes before oct_context_begin; it serves forwards of one module
 * tree in one mode (training or evaluation) by one context. */
oct_status oct_lifetimes_create(oct_lifetimes **lifetimes);
void oct_lifetimes_destroy(oct_lifetimes **lifetimes);

/* Ends a forward with its result y, which stays until the next oct_context_begin; y NULL: the forward has failed.
 * Returns the peak of bytes that the learned forward needs when each activation is freed after its last reader, 0 while
 * none is learned; -1: the forward has failed because it read an activation that was freed. */
int64_t oct_lifetimes_end(oct_lifetimes *lifetimes, const oct_tensor *y);
/* Called after each call site while the lifetimes apply (oct_context_frees): the first forward learns what it reads; in
 * later ones, if they are the same, it frees the activations that no call site after it reads. */
void oct_lifetimes_done(oct_lifetimes *lifetimes, const oct_site *executed);
