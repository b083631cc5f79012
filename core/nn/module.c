/* Modules: the tree, calls, names, hooks.
 *
 * Live hooks form one list of the process beside the lists of their modules, so a handle is looked
 * up by its number and never follows a pointer to a module that may be gone. Module trees belong to
 * the main thread.
 */
#include "core/nn/module.h"

#include "core/autograd/lifetimes.h"
#include "core/base/mem.h"
#include "core/graph/trace.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_NAME = 63 };

struct oct_hook {
    uint64_t id;
    oct_hook_fn fn;
    void *user;
    oct_module *module;
    oct_hook *next;      /* of the module, in order of registration */
    oct_hook *next_live; /* of the process */
};

static oct_hook *live_hooks;
static uint64_t last_hook_id;

static void unlink_live(const oct_hook *hook)
{
    oct_hook **place = &live_hooks;
    while (*place != hook)
        place = &(*place)->next_live;
    *place = hook->next_live;
}

static void free_hooks(oct_hook **list)
{
    while (*list) {
        oct_hook *head = *list;
        *list = head->next;
        unlink_live(head);
        oct_free(&head);
    }
}

oct_status oct_module_create(oct_module **module, const oct_module_type *type, size_t size)
{
    *module = NULL;
    OCT_ASSERT(size >= sizeof **module);
    oct_module *created;
    OCT_TRY(oct_alloc(&created, 1, size));
    created->type = type;
    created->training = true;
    oct_status status = oct_strdup(&created->name, "");
    if (status != OCT_OK) {
        oct_free(&created);
        return status;
    }
    *module = created;
    return OCT_OK;
}

void oct_module_destroy(oct_module **module)
{
    oct_module *self = *module;
    if (!self) return;
    if (self->type->destroy) self->type->destroy(self);
    for (size_t i = 0; i < self->num_children; i++) {
        oct_module_destroy(self->children[i].slot);
        oct_free(&self->children[i].name);
    }
    /* Behind the children: their slots may be in it. */
    if (self->interceptor) self->interceptor->destroy(self->interceptor);
    for (size_t i = 0; i < self->num_params; i++)
        oct_param_release(&self->params[i]);
    for (size_t i = 0; i < self->num_buffers; i++) {
        oct_free(&self->buffers[i].name);
        oct_free(&self->buffers[i].tensor.data);
    }
    free_hooks(&self->pre_hooks);
    free_hooks(&self->hooks);
    oct_free(&self->children);
    oct_free(&self->params);
    oct_free(&self->buffers);
    oct_free(&self->name);
    oct_free(module);
}

static bool has_name(const oct_module *self, const char *name)
{
    for (size_t i = 0; i < self->num_children; i++) {
        if (strcmp(self->children[i].name, name) == 0) return true;
    }
    for (size_t i = 0; i < self->num_params; i++) {
        if (strcmp(self->params[i]->name, name) == 0) return true;
    }
    for (size_t i = 0; i < self->num_buffers; i++) {
        if (strcmp(self->buffers[i].name, name) == 0) return true;
    }
    return false;
}

static oct_status check_name(const oct_module *self, const char *name)
{
    size_t length = strlen(name), good = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    OCT_CHECK(length > 0 && length == good && length <= LONGEST_NAME, OCT_DEFECT,
              "\"%s\" is no name for a part of a %s; use 1 to %d of a-z, 0-9 and _", name,
              self->type->name, LONGEST_NAME);
    OCT_CHECK(!has_name(self, name), OCT_DEFECT, "a %s has two parts named \"%s\"; rename one",
              self->type->name, name);
    return OCT_OK;
}

static oct_status attach_child(oct_module *self, const char *name, oct_module **slot)
{
    OCT_TRY(check_name(self, name));
    OCT_TRY(oct_grow(&self->children, &self->cap_children, self->num_children + 1,
                     sizeof *self->children));
    char *in_list = NULL, *in_child = NULL;
    oct_status status = oct_strdup(&in_list, name);
    if (status == OCT_OK) status = oct_strdup(&in_child, name);
    if (status != OCT_OK) {
        oct_free(&in_list);
        return status;
    }
    oct_free(&(*slot)->name);
    (*slot)->name = in_child;
    (*slot)->parent = self;
    self->children[self->num_children++] = (oct_child){.name = in_list, .slot = slot};
    return OCT_OK;
}

oct_status oct_module_add_child(oct_module *self, const char *name, oct_module **slot)
{
    OCT_CHECK(*slot, OCT_DEFECT, "child \"%s\" of a %s is NULL", name, self->type->name);
    if ((*slot)->parent) {
        *slot = NULL; /* the other parent goes on owning it */
        return oct_fail(OCT_DEFECT, "child \"%s\" of a %s is a child of another module already",
                        name, self->type->name);
    }
    oct_status status = attach_child(self, name, slot);
    if (status != OCT_OK) oct_module_destroy(slot);
    return status;
}

void oct_module_remove_child(oct_module *self, oct_module **slot)
{
    size_t i = 0;
    while (i < self->num_children && self->children[i].slot != slot)
        i++;
    OCT_ASSERT(i < self->num_children);
    oct_module_destroy(slot);
    oct_free(&self->children[i].name);
    self->num_children--;
    memmove(&self->children[i], &self->children[i + 1],
            (self->num_children - i) * sizeof *self->children);
}

oct_status oct_module_add_param(oct_module *self, const char *name, oct_shape shape, bool decay,
                                oct_param **param)
{
    *param = NULL;
    OCT_TRY(check_name(self, name));
    OCT_TRY(oct_grow(&self->params, &self->cap_params, self->num_params + 1, sizeof *self->params));
    OCT_TRY(oct_param_create(param, name, shape, decay));
    self->params[self->num_params++] = *param;
    return OCT_OK;
}

oct_status oct_module_add_buffer(oct_module *self, const char *name, oct_dtype dtype,
                                 oct_shape shape, void *data)
{
    OCT_TRY(check_name(self, name));
    int64_t numel = oct_shape_numel(&shape);
    char text[96];
    OCT_CHECK(numel >= 0, OCT_DEFECT, "buffer %s cannot have the shape %s", name,
              oct_shape_text(&shape, text));
    OCT_TRY(
        oct_grow(&self->buffers, &self->cap_buffers, self->num_buffers + 1, sizeof *self->buffers));
    oct_buffer buffer = {.tensor = {.dtype = dtype, .shape = shape, .id = -1, .place = -1}};
    OCT_TRY(oct_strdup(&buffer.name, name));
    oct_status status = oct_alloc(&buffer.tensor.data, (size_t)numel, oct_dtype_bytes(dtype));
    if (status != OCT_OK) {
        oct_free(&buffer.name);
        return status;
    }
    memcpy(data, &buffer.tensor.data, sizeof buffer.tensor.data);
    self->buffers[self->num_buffers++] = buffer;
    return OCT_OK;
}

void oct_module_limit_state(oct_module *self, const char *name, oct_value_range range)
{
    oct_value_range *found = NULL;
    for (size_t i = 0; i < self->num_params; i++)
        if (strcmp(self->params[i]->name, name) == 0) found = &self->params[i]->range;
    for (size_t i = 0; i < self->num_buffers; i++)
        if (strcmp(self->buffers[i].name, name) == 0) found = &self->buffers[i].range;
    OCT_ASSERT(found);
    *found = range;
}

static oct_module **slot_of(oct_module **root, const oct_module *module)
{
    if (*root == module) return root;
    const oct_module *parent = module->parent;
    for (size_t i = 0; parent && i < parent->num_children; i++) {
        if (*parent->children[i].slot == module) return parent->children[i].slot;
    }
    return NULL;
}

oct_status oct_module_replace(oct_module **root, oct_module *old, oct_module *replacement)
{
    oct_module **slot = slot_of(root, old);
    OCT_CHECK(slot, OCT_DEFECT, "the %s to replace is not in this tree", old->type->name);
    OCT_CHECK(!replacement->parent && replacement != old, OCT_DEFECT,
              "the %s to put in place of \"%s\" has a place already", replacement->type->name,
              old->name);
    char *name = replacement->name;
    replacement->name = old->name;
    replacement->parent = old->parent;
    oct_module_train(replacement, old->training);
    name[0] = '\0';
    old->name = name;
    old->parent = NULL;
    *slot = replacement;
    return OCT_OK;
}

/* In a trace, what a hook puts in place of another tensor is a value of the graph. */
static bool is_traced(oct_context *cx, const oct_tensor *changed)
{
    if (!cx->trace || cx->atomic_depth > 0 || changed->id >= 0) return true;
    oct_context_fail(cx, OCT_PREPARE,
                     "a hook puts a tensor in place of another that no operation of the model has "
                     "computed; compute it by ops (core/op/ops.h) or modules, or let the hook "
                     "return NULL");
    return false;
}

/* The next is read before the call, since a hook may remove itself. A tensor that no interceptor knows
 * stands for the value that it takes the place of. */
static oct_tensor *run_hooks(oct_context *cx, oct_hook *hook, oct_module *module, oct_tensor *value)
{
    oct_module *outer = cx->hook;
    const bool mode = module->training;
    cx->hook = module;
    module->training |=
        cx->trace && cx->trace->training; /* a leaf that is traced is in eval mode */
    while (hook && value && cx->status == OCT_OK) {
        oct_hook *next = hook->next;
        oct_tensor *changed = hook->fn(cx, module, value, hook->user);
        if (changed && changed != value && changed->place < 0) changed->place = value->place;
        if (changed && changed != value && is_traced(cx, changed)) value = changed;
        hook = next;
    }
    module->training = mode;
    cx->hook = outer;
    return value;
}

/* As in a call of the module. */
static oct_tensor *run_hooks_alone(oct_context *cx, oct_hook *list, oct_module *module,
                                   oct_tensor *value)
{
    oct_module *caller = cx->module;
    cx->module = module;
    value = run_hooks(cx, list, module, value);
    cx->module = caller;
    return value;
}

oct_tensor *oct_module_run_pre_hooks(oct_context *cx, oct_module *module, oct_tensor *value)
{
    return run_hooks_alone(cx, module->pre_hooks, module, value);
}

oct_tensor *oct_module_run_hooks(oct_context *cx, oct_module *module, oct_tensor *value)
{
    return run_hooks_alone(cx, module->hooks, module, value);
}

static oct_tensor *checked_forward(oct_context *cx, oct_module *module, oct_tensor *const *x, int n)
{
    oct_interceptor *own = cx->interceptor ? NULL : module->interceptor;
    oct_tensor *y =
        own && own->run ? own->run(own, cx, module, x, n) : module->type->forward(cx, module, x, n);
    if (!y)
        oct_context_fail(cx, OCT_DEFECT, "the forward of this %s gave no output",
                         module->type->name);
    return y;
}

/* A module that returns its input makes a value of its own in a trace, so that what reads the
 * output reads it from the module. */
static oct_tensor *own_value(oct_context *cx, oct_tensor *const *x, int n, oct_tensor *y)
{
    for (int i = 0; i < n; i++) {
        if (x[i] != y) continue;
        oct_tensor *view = oct_save(cx, sizeof *view);
        if (view) *view = *y;
        return view;
    }
    return y;
}

static oct_tensor *traced(oct_context *cx, oct_module *leaf, oct_tensor *const *x, int n,
                          oct_tensor *y, const oct_tensor *given)
{
    if (!y || cx->atomic_depth > 0) return y;
    if (oct_lifetimes_apply(cx)) oct_lifetimes_done(cx, leaf, leaf->type->name, x, n, y);
    if (!cx->trace) return y;
    y = own_value(cx, x, n, y);
    if (!y) return NULL;
    cx->args = (oct_op_args){0};
    if (leaf->type->args) leaf->type->args(leaf, &cx->args);
    oct_trace_add(cx, leaf, leaf->type->name, x, n, y, given);
    return y;
}

oct_tensor *oct_module_execute(oct_context *cx, oct_module *leaf, oct_tensor *const *x, int n)
{
    if (!oct_inputs_ok(cx, x, n)) return NULL;
    oct_module *caller = cx->module;
    cx->module = leaf;
    cx->atomic_depth++;
    oct_tensor *y = checked_forward(cx, leaf, x, n);
    cx->atomic_depth--;
    y = traced(cx, leaf, x, n, y, NULL);
    cx->module = caller;
    return cx->status == OCT_OK ? y : NULL;
}

/* What the leaf's forward computes belongs to it; what its hooks call is called around it. An answered
 * call is no node of a trace: what the interceptor executes is. */
static oct_tensor *call_leaf(oct_context *cx, oct_module *leaf, oct_tensor *const *x, int n)
{
    oct_tensor *input[OCT_MAX_INPUTS], *made = NULL;
    for (int i = 0; i < n; i++)
        input[i] = x[i];
    if (n > 0) input[0] = run_hooks(cx, leaf->pre_hooks, leaf, input[0]);
    if (!oct_inputs_present(cx, input, n)) return NULL;
    oct_interceptor *root = cx->atomic_depth == 0 ? cx->interceptor : NULL;
    bool answered =
        root && root->call(root, cx, leaf, leaf->type->name, OCT_NO_ARGS, input, n, &made);
    cx->atomic_depth++;
    if (!answered && oct_inputs_ok(cx, input, n)) made = checked_forward(cx, leaf, input, n);
    cx->atomic_depth--;
    if (!answered) made = traced(cx, leaf, input, n, made, n > 0 ? x[0] : NULL);
    return run_hooks(cx, leaf->hooks, leaf, made);
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

static oct_tensor *call_container(oct_context *cx, oct_module *module, oct_tensor *const *x, int n)
{
    oct_tensor *input[OCT_MAX_INPUTS];
    bool scope = cx->trace && cx->atomic_depth == 0;
    oct_tensor *(*hooks)(oct_context *, oct_hook *, oct_module *, oct_tensor *) =
        scope && cx->trace->scope < 0 ? run_root_hooks : run_hooks;
    for (int i = 0; i < n; i++)
        input[i] = x[i];
    if (n > 0) input[0] = hooks(cx, module->pre_hooks, module, input[0]);
    if (!oct_inputs_present(cx, input, n)) return NULL;
    if (scope) oct_trace_enter(cx, module, NULL, input[0], x[0]);
    oct_tensor *y = checked_forward(cx, module, input, n);
    if (scope) oct_trace_leave(cx, y);
    return hooks(cx, module->hooks, module, y);
}

oct_tensor *oct_module_call(oct_context *cx, oct_module *module, oct_tensor *const *x, int n)
{
    if (!oct_inputs_present(cx, x, n)) return NULL;
    oct_module *caller = cx->module;
    cx->module = module;
    oct_tensor *y = NULL;
    if (n > OCT_MAX_INPUTS)
        oct_context_fail(cx, OCT_DEFECT, "called with %d inputs; a module takes at most %d", n,
                         OCT_MAX_INPUTS);
    else
        y = module->type->leaf ? call_leaf(cx, module, x, n) : call_container(cx, module, x, n);
    cx->module = caller;
    return cx->status == OCT_OK ? y : NULL;
}

void oct_dynamic_block_begin(oct_context *cx, oct_module *self, const char *name)
{
    if (cx->status != OCT_OK || cx->atomic_depth > 0) return;
    if (cx->interceptor) cx->interceptor->block(cx->interceptor, cx, self, name);
    if (cx->trace) oct_trace_enter(cx, self, name, NULL, NULL);
}

void oct_dynamic_block_end(oct_context *cx)
{
    if (cx->status != OCT_OK || cx->atomic_depth > 0) return;
    if (cx->trace) oct_trace_leave_block(cx);
    if (cx->interceptor) cx->interceptor->block(cx->interceptor, cx, NULL, NULL);
}

bool oct_module_calls_only(const oct_module *root)
{
    bool all = (root->type->leaf || root->type->calls_only) && !root->pre_hooks && !root->hooks;
    for (size_t i = 0; all && i < root->num_children; i++)
        all = oct_module_calls_only(*root->children[i].slot);
    return all;
}

void oct_module_train(oct_module *module, bool training)
{
    module->training = training;
    for (size_t i = 0; i < module->num_children; i++)
        oct_module_train(*module->children[i].slot, training);
}

oct_status oct_module_walk(oct_module *root, oct_status (*visit)(void *user, oct_module *module),
                           void *user)
{
    OCT_TRY(visit(user, root));
    for (size_t i = 0; i < root->num_children; i++)
        OCT_TRY(oct_module_walk(*root->children[i].slot, visit, user));
    return OCT_OK;
}

const char *oct_module_path(const oct_module *module, char text[256])
{
    const size_t size = 256;
    if (!module->parent) {
        text[0] = '\0';
        return text;
    }
    oct_module_path(module->parent, text);
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used ? "." : "", module->name);
    return text;
}

oct_module *oct_module_find(oct_module *root, const char *path)
{
    while (root && *path) {
        size_t length = strcspn(path, ".");
        oct_module *found = NULL;
        for (size_t i = 0; i < root->num_children && !found; i++) {
            const char *name = root->children[i].name;
            if (strlen(name) == length && memcmp(name, path, length) == 0)
                found = *root->children[i].slot;
        }
        root = found;
        path += length;
        if (*path == '.' && *++path == '\0') return NULL;
    }
    return root;
}

typedef struct state_walk {
    oct_status (*visit)(void *user, const oct_state_item *item);
    void *user;
} state_walk;

static oct_status visit_state(void *user, oct_module *module)
{
    const state_walk *walk = user;
    char path[256], full[256 + 1 + LONGEST_NAME + 1];
    oct_module_path(module, path);
    OCT_CHECK(strlen(path) + 1 < sizeof path, OCT_PREPARE,
              "%s: the path of this module is too long; use shorter names or fewer levels", path);
    const char *dot = *path ? "." : "";
    for (size_t i = 0; i < module->num_params; i++) {
        oct_param *param = module->params[i];
        snprintf(full, sizeof full, "%s%s%s", path, dot, param->name);
        OCT_TRY(
            walk->visit(walk->user, &(oct_state_item){full, &param->value, param, param->range}));
    }
    for (size_t i = 0; i < module->num_buffers; i++) {
        oct_buffer *buffer = &module->buffers[i];
        snprintf(full, sizeof full, "%s%s%s", path, dot, buffer->name);
        OCT_TRY(
            walk->visit(walk->user, &(oct_state_item){full, &buffer->tensor, NULL, buffer->range}));
    }
    return OCT_OK;
}

oct_status oct_module_state(oct_module *root,
                            oct_status (*visit)(void *user, const oct_state_item *item), void *user)
{
    return oct_module_walk(root, visit_state, &(state_walk){visit, user});
}

static oct_hook **end_of(oct_hook **list)
{
    while (*list)
        list = &(*list)->next;
    return list;
}

static oct_status add_hook(oct_module *module, oct_hook **list, oct_hook_fn fn, void *user,
                           oct_hook_handle *handle)
{
    oct_hook *hook;
    OCT_TRY(oct_alloc(&hook, 1, sizeof *hook));
    *hook = (oct_hook){
        .id = ++last_hook_id, .fn = fn, .user = user, .module = module, .next_live = live_hooks};
    live_hooks = hook;
    *end_of(list) = hook;
    if (handle) *handle = (oct_hook_handle){.module = module, .id = hook->id};
    return OCT_OK;
}

oct_status oct_module_pre_hook(oct_module *module, oct_hook_fn fn, void *user,
                               oct_hook_handle *handle)
{
    return add_hook(module, &module->pre_hooks, fn, user, handle);
}

oct_status oct_module_hook(oct_module *module, oct_hook_fn fn, void *user, oct_hook_handle *handle)
{
    return add_hook(module, &module->hooks, fn, user, handle);
}

static bool take_out(oct_hook **list, const oct_hook *hook)
{
    while (*list && *list != hook)
        list = &(*list)->next;
    if (!*list) return false;
    *list = hook->next;
    return true;
}

void oct_hook_remove(oct_hook_handle *handle)
{
    oct_hook *hook = live_hooks;
    while (hook && hook->id != handle->id)
        hook = hook->next_live;
    *handle = (oct_hook_handle){0};
    if (!hook) return;
    if (!take_out(&hook->module->pre_hooks, hook)) take_out(&hook->module->hooks, hook);
    unlink_live(hook);
    oct_free(&hook);
}

static void move_hooks(oct_hook **from, oct_hook **list, oct_module *to)
{
    for (oct_hook *hook = *from; hook; hook = hook->next)
        hook->module = to;
    *end_of(list) = *from;
    *from = NULL;
}

void oct_module_move_pre_hooks(oct_module *from, oct_module *to)
{
    if (from != to) move_hooks(&from->pre_hooks, &to->pre_hooks, to);
}

void oct_module_move_hooks(oct_module *from, oct_module *to)
{
    if (from != to) move_hooks(&from->hooks, &to->hooks, to);
}
