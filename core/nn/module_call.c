/* A call of a module runs its hooks and its forward, and reports to the trace and the lifetimes. */
#include "core/nn/module.h"

#include "core/autograd/context.h"
#include "core/graph/trace.h"

/* Fails the context unless what a hook puts in place of another tensor is, in a trace, a value of the graph. */
static bool replacement_is_traced(oct_context *cx, const oct_tensor *changed)
{
    if (!cx->trace || cx->atomic_depth > 0 || changed->trace_value >= 0) return true;
    return oct_context_fail(
        cx, OCT_PREPARE,
        "a hook puts a tensor in place of another that no operation of the model has "
        "computed; compute it by operations (octet/nn.h) or modules, or let the hook "
        "return NULL");
}

/* Runs the hooks; what a hook returns takes the place of value, and, in a prepared graph, its value number. The next
 * hook is read before a call, since a hook may remove itself. */
static oct_tensor *run_hooks(oct_context *cx, oct_hook *hook, oct_module *module, oct_tensor *value)
{
    oct_module *outer = cx->hook;
    const bool mode = module->training;
    cx->hook = module;
    module->training |=
        cx->trace && cx->trace->training; /* an atomic module that is traced is in eval mode */
    while (hook && value && cx->status == OCT_OK) {
        oct_hook *next = hook->next;
        oct_tensor *changed = hook->fn(cx, module, value, hook->user);
        if (changed && changed != value && changed->graph_value < 0)
            changed->graph_value = value->graph_value;
        if (changed && changed != value && replacement_is_traced(cx, changed)) value = changed;
        hook = next;
    }
    module->training = mode;
    cx->hook = outer;
    return value;
}

oct_tensor *oct_module_run_hooks(oct_context *cx, oct_module *module, oct_hook *list,
                                 oct_tensor *value)
{
    oct_module *caller = cx->module;
    cx->module = module;
    value = run_hooks(cx, list, module, value);
    cx->module = caller;
    return value;
}

/* Runs the forward, or, of a prepared root, what its interceptor has in place of it. */
static oct_tensor *run_forward(oct_context *cx, oct_module *module, oct_tensor *const *x, int n)
{
    oct_interceptor *prepared = cx->interceptor ? NULL : module->interceptor;
    oct_tensor *y = prepared && prepared->run ? prepared->run(prepared, cx, module, x, n)
                                              : module->type->forward(cx, module, x, n);
    if (!y)
        oct_context_fail(cx, OCT_USAGE, "the forward of this %s gave no output",
                         module->type->name);
    return y;
}

/* Reports an executed call to the lifetimes (which free what no later call reads) and the trace. Returns y, or, where a
 * traced module returns its input, a copy of the tensor, so that readers read it from the module. unhooked: x[0] before
 * pre hooks. */
static oct_tensor *report_call(oct_context *cx, oct_module *module, oct_tensor *const *x, int n,
                               oct_tensor *y, const oct_tensor *unhooked)
{
    if (!y || cx->atomic_depth > 0) return y; /* a call inside an atomic module is part of it */
    oct_site executed = {module, module->type->name, x, n, y, unhooked};
    if (cx->status == OCT_OK && oct_context_frees(cx)) oct_lifetimes_done(cx->lifetimes, &executed);
    if (!cx->trace) return y;
    bool returns_input = false;
    for (int i = 0; i < n; i++)
        returns_input |= x[i] == y;
    if (returns_input) {
        executed.output = oct_save(cx, sizeof *y);
        if (!executed.output) return NULL;
        *executed.output = *y;
    }
    oct_module_args(module, &cx->args);
    oct_trace_add(cx, &executed);
    return executed.output;
}

/* Fails the context unless the module can be called with n inputs. */
static bool takes_inputs(oct_context *cx, const oct_module *module, int n)
{
    const int wanted = module->type->inputs;
    if (n > OCT_MAX_INPUTS)
        oct_context_fail(cx, OCT_USAGE, "called with %d inputs; a module takes at most %d", n,
                         OCT_MAX_INPUTS);
    else if (wanted > 0 && n != wanted)
        oct_context_fail(cx, OCT_USAGE, "%s takes %d input%s, but was called with %d",
                         module->type->name, wanted, wanted == 1 ? "" : "s", n);
    return cx->status == OCT_OK;
}

oct_tensor *oct_module_execute(oct_context *cx, oct_module *module, oct_tensor *const *x, int n)
{
    if (!oct_inputs_alive(cx, x, n)) return NULL;
    oct_module *caller = cx->module;
    cx->module = module;
    cx->atomic_depth++;
    oct_tensor *y = takes_inputs(cx, module, n) ? run_forward(cx, module, x, n) : NULL;
    cx->atomic_depth--;
    y = report_call(cx, module, x, n, y, NULL);
    cx->module = caller;
    return cx->status == OCT_OK ? y : NULL;
}

/* Calls an atomic module between its hooks: the interceptor of a prepared model computes y and reports what it runs
 * instead, or the forward does. What the forward calls belongs to the module, what hooks call does not. */
static oct_tensor *call_atomic(oct_context *cx, oct_module *module, oct_tensor *const *x, int n)
{
    oct_tensor *input[OCT_MAX_INPUTS], *y = NULL;
    for (int i = 0; i < n; i++)
        input[i] = x[i];
    if (n > 0) input[0] = run_hooks(cx, module->pre_hooks, module, input[0]);
    if (!oct_inputs_present(cx, input, n)) return NULL;
    oct_interceptor *prepared = cx->atomic_depth == 0 ? cx->interceptor : NULL;
    bool answered = prepared && prepared->call(prepared, cx, module, module->type->name,
                                               OCT_NO_ARGS, input, n, &y);
    cx->atomic_depth++;
    if (!answered && oct_inputs_alive(cx, input, n)) y = run_forward(cx, module, input, n);
    cx->atomic_depth--;
    if (!answered) y = report_call(cx, module, input, n, y, n > 0 ? x[0] : NULL);
    return run_hooks(cx, module->hooks, module, y);
}

/* The root's hooks see what goes into the model and what comes out, both float, and belong to no graph:
 * a tensor of theirs would be missing in the deployed model. */
static oct_tensor *run_root_hooks(oct_context *cx, oct_hook *list, oct_module *root,
                                  oct_tensor *value)
{
    oct_trace *trace = cx->trace;
    cx->trace = NULL;
    oct_tensor *changed = run_hooks(cx, list, root, value);
    cx->trace = trace;
    if (trace && changed != value && cx->status == OCT_OK)
        return oct_context_fail(cx, OCT_PREPARE,
                                "a hook of the model itself puts another tensor in place of its "
                                "input or output, which the deployed model cannot do; compute it "
                                "in the model's forward, or by a hook of a module inside of it");
    return changed;
}

/* Calls a container's forward between its hooks, in a scope of the trace; the root's hooks are no part of the trace. */
static oct_tensor *call_container(oct_context *cx, oct_module *module, oct_tensor *const *x, int n)
{
    oct_tensor *input[OCT_MAX_INPUTS];
    bool scope = cx->trace && cx->atomic_depth == 0;
    oct_tensor *(*run)(oct_context *, oct_hook *, oct_module *, oct_tensor *) =
        scope && cx->trace->scope < 0 ? run_root_hooks : run_hooks;
    for (int i = 0; i < n; i++)
        input[i] = x[i];
    if (n > 0) input[0] = run(cx, module->pre_hooks, module, input[0]);
    if (!oct_inputs_present(cx, input, n)) return NULL;
    if (scope) oct_trace_enter(cx, module, NULL, input[0], x[0]);
    oct_tensor *y = run_forward(cx, module, input, n);
    if (scope) oct_trace_leave(cx, false, y);
    return run(cx, module->hooks, module, y);
}

oct_tensor *oct_module_call(oct_context *cx, oct_module *module, oct_tensor *const *x, int n)
{
    if (!oct_inputs_present(cx, x, n)) return NULL;
    if (!module) return oct_context_fail(cx, OCT_USAGE, "a module that is called is NULL");
    oct_module *caller = cx->module;
    cx->module = module;
    oct_tensor *y = NULL;
    if (takes_inputs(cx, module, n))
        y = module->type->atomic ? call_atomic(cx, module, x, n) : call_container(cx, module, x, n);
    cx->module = caller;
    return cx->status == OCT_OK ? y : NULL;
}

oct_tensor *oct_call(oct_context *cx, oct_module *module, oct_tensor *x)
{
    return oct_module_call(cx, module, &x, 1);
}

void oct_dynamic_block_begin(oct_context *cx, oct_module *self, const char *name)
{
    if (!self || !name) oct_context_fail(cx, OCT_USAGE, "a dynamic block has no module or no name");
    if (!cx || cx->status != OCT_OK || cx->atomic_depth > 0) return;
    if (cx->interceptor) cx->interceptor->block(cx->interceptor, cx, self, name);
    if (cx->trace) oct_trace_enter(cx, self, name, NULL, NULL);
}

void oct_dynamic_block_end(oct_context *cx)
{
    if (!cx || cx->status != OCT_OK || cx->atomic_depth > 0) return;
    if (cx->trace) oct_trace_leave(cx, true, NULL);
    if (cx->interceptor) cx->interceptor->block(cx->interceptor, cx, NULL, NULL);
}
