/* The tree of modules, with their parameters and hooks, belongs to the main thread.
 *
 * Live hooks form one list of the process beside the lists of their modules, so a handle is looked
 * up by its number and never follows a pointer to a module that may be gone. Networks of two threads
 * have that list in common, so it is locked.
 */
#include "core/nn/module.h"

#include "core/base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of live_hooks and last_id */
static oct_hook *live_hooks;
static uint64_t last_id;

oct_status oct_hook_add(oct_hook **list, oct_hook_fn fn, void *user, oct_hook_handle *handle)
{
    oct_hook *hook, **end = list;
    OCT_TRY(oct_alloc(&hook, 1, sizeof *hook));
    *hook = (oct_hook){.fn = fn, .user = user, .list = list};
    pthread_mutex_lock(&lock);
    hook->id = ++last_id;
    hook->next_live = live_hooks;
    live_hooks = hook;
    pthread_mutex_unlock(&lock);
    while (*end)
        end = &(*end)->next;
    *end = hook;
    if (handle) *handle = (oct_hook_handle){hook->id};
    return OCT_OK;
}

/* Frees a hook and unlinks it from its module's list and from the list of all live hooks, in which handles find it. */
static void free_hook(oct_hook *hook)
{
    oct_hook **in_list = hook->list, **live = &live_hooks;
    while (*in_list != hook)
        in_list = &(*in_list)->next;
    *in_list = hook->next;
    pthread_mutex_lock(&lock);
    while (*live != hook)
        live = &(*live)->next_live;
    *live = hook->next_live;
    pthread_mutex_unlock(&lock);
    oct_free(&hook);
}

oct_status oct_module_pre_hook(oct_module *module, oct_hook_fn fn, void *user,
                               oct_hook_handle *handle)
{
    OCT_CHECK(module && fn, OCT_USAGE, "a hook needs a module and a function; one of them is NULL");
    return oct_hook_add(&module->pre_hooks, fn, user, handle);
}

oct_status oct_module_hook(oct_module *module, oct_hook_fn fn, void *user, oct_hook_handle *handle)
{
    OCT_CHECK(module && fn, OCT_USAGE, "a hook needs a module and a function; one of them is NULL");
    return oct_hook_add(&module->hooks, fn, user, handle);
}

void oct_hook_remove(oct_hook_handle *handle)
{
    if (!handle) return;
    pthread_mutex_lock(&lock);
    oct_hook *hook = live_hooks;
    while (hook && hook->id != handle->id)
        hook = hook->next_live;
    pthread_mutex_unlock(&lock);
    *handle = (oct_hook_handle){0};
    if (hook) free_hook(hook);
}

void oct_hooks_move(oct_hook **from, oct_hook **to)
{
    if (from == to) return;
    for (oct_hook *hook = *from; hook; hook = hook->next)
        hook->list = to;
    while (*to)
        to = &(*to)->next;
    *to = *from;
    *from = NULL;
}

void oct_hooks_free(oct_hook **list)
{
    while (*list)
        free_hook(*list);
}

oct_status oct_module_alloc(oct_module **module, const oct_module_type *type, size_t size)
{
    OCT_CHECK(module, OCT_USAGE,
              "%s: there is no place for the new module; the pointer to it is NULL", type->name);
    *module = NULL;
    OCT_ASSERT(size >= sizeof **module);
    oct_module *created;
    OCT_TRY(oct_alloc(&created, 1, size));
    created->type = type;
    created->size = size;
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
    oct_module *self = module ? *module : NULL;
    if (!self) return;
    if (self->type->destroy) self->type->destroy(self);
    for (size_t i = 0; i < self->num_children; i++) {
        oct_module_destroy(self->children[i].slot);
        oct_free(&self->children[i].name);
    }
    /* After the children: their slots may be in it. */
    if (self->interceptor) self->interceptor->destroy(self->interceptor);
    for (size_t i = 0; i < self->num_params; i++)
        oct_param_release(&self->params[i]);
    for (size_t i = 0; i < self->num_buffers; i++) {
        oct_free(&self->buffers[i].name);
        oct_free(&self->buffers[i].tensor.data);
    }
    oct_hooks_free(&self->pre_hooks);
    oct_hooks_free(&self->hooks);
    OCT_FREE_ALL(&self->children, &self->params, &self->buffers, &self->name, module);
}

oct_status oct_module_made(oct_module **module, oct_status status)
{
    if (status != OCT_OK) oct_module_destroy(module);
    return status;
}

/* A hash of a name: most names differ in it, so that few are compared letter by letter. */
static uint64_t name_key(const char *name)
{
    uint64_t key = 0;
    for (; *name; name++)
        key = key * 31 + (unsigned char)*name;
    return key;
}

oct_module *oct_module_child(const oct_module *self, const char *name)
{
    const uint64_t key = name_key(name);
    for (size_t i = 0; i < self->num_children; i++)
        if (self->children[i].key == key && strcmp(self->children[i].name, name) == 0)
            return *self->children[i].slot;
    return NULL;
}

oct_param *oct_module_param(const oct_module *self, const char *name)
{
    for (size_t i = 0; self && name && i < self->num_params; i++)
        if (strcmp(self->params[i]->name, name) == 0) return self->params[i];
    return NULL;
}

bool oct_module_is_tied(const oct_module *self)
{
    for (size_t i = 0; i < self->num_params; i++)
        if (self->params[i]->tied) return true;
    return false;
}

static oct_buffer *find_buffer(const oct_module *self, const char *name)
{
    for (size_t i = 0; i < self->num_buffers; i++)
        if (strcmp(self->buffers[i].name, name) == 0) return &self->buffers[i];
    return NULL;
}

bool oct_is_module_name(const char *name)
{
    const size_t length = strlen(name);
    return length > 0 && length <= OCT_NAME_MAX &&
           length == strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
}

static oct_status check_name(const oct_module *self, const char *name)
{
    OCT_CHECK(self && name, OCT_USAGE, "a module gets a part, but %s is NULL",
              self ? "the part's name" : "the module");
    OCT_CHECK(oct_is_module_name(name), OCT_USAGE,
              "\"%s\" is no name for a part of a %s; use 1 to %d of a-z, 0-9 and _", name,
              self->type->name, OCT_NAME_MAX);
    OCT_CHECK(!oct_module_child(self, name) && !oct_module_param(self, name) &&
                  !find_buffer(self, name),
              OCT_USAGE, "a %s has two parts named \"%s\"; rename one", self->type->name, name);
    return OCT_OK;
}

/* Has m a parent, or is it the module itself or above it? */
static bool has_place(const oct_module *m, const oct_module *self)
{
    while (self && self != m)
        self = self->parent;
    return m->parent || self == m;
}

oct_status oct_module_add_child(oct_module *self, const char *name, oct_module **slot)
{
    char *in_list = NULL, *in_child = NULL;
    oct_status status;
    OCT_CHECK(*slot, OCT_USAGE, "child \"%s\" of a %s is NULL", name, self->type->name);
    if (has_place(*slot, self)) {
        *slot = NULL; /* the other parent goes on owning it */
        return oct_fail(OCT_USAGE, "child \"%s\" of a %s has a place in a tree already", name,
                        self->type->name);
    }
    OCT_TRY_OUT(check_name(self, name));
    OCT_TRY_OUT(oct_grow(&self->children, &self->cap_children, self->num_children + 1,
                         sizeof *self->children));
    OCT_TRY_OUT(oct_strdup(&in_list, name));
    OCT_TRY_OUT(oct_strdup(&in_child, name));
    oct_free(&(*slot)->name);
    (*slot)->name = in_child;
    (*slot)->parent = self;
    self->children[self->num_children++] = (oct_child){in_list, slot, name_key(name)};
out:
    if (status != OCT_OK) oct_free(&in_list);
    return oct_module_made(slot, status);
}

oct_status oct_module_add(oct_module *self, const char *name, oct_module **slot, oct_status created)
{
    oct_status status = created;
    OCT_CHECK(slot, OCT_USAGE, "the pointer to a child is at NULL");
    if (created != OCT_OK) goto out;
    OCT_CHECK_OUT(self && name, OCT_USAGE, "a module gets a child, but %s is NULL",
                  self ? "the child's name" : "the module");
    /* A prepare puts other modules there, as long as this one lives. */
    const size_t at = (size_t)((uintptr_t)slot - (uintptr_t)self);
    OCT_CHECK_OUT(at >= sizeof *self && at <= self->size - sizeof *slot, OCT_USAGE,
                  "the pointer to child \"%s\" of a %s is not in the module's data", name,
                  self->type->name);
    for (size_t i = 0; i < self->num_children; i++)
        OCT_CHECK_OUT(self->children[i].slot != slot, OCT_USAGE,
                      "children \"%s\" and \"%s\" of a %s have one pointer", self->children[i].name,
                      name, self->type->name);
    return oct_module_add_child(self, name, slot);
out:
    if (*slot && has_place(*slot, self)) *slot = NULL;
    return oct_module_made(slot, status);
}

void oct_module_remove_child(oct_module *self, oct_module **slot)
{
    size_t i = self->num_children;
    while (i > 0 && self->children[i - 1].slot != slot)
        i--;
    OCT_ASSERT(i > 0);
    i--;
    oct_module_destroy(slot);
    oct_free(&self->children[i].name);
    self->num_children--;
    memmove(&self->children[i], &self->children[i + 1],
            (self->num_children - i) * sizeof *self->children);
}

oct_status oct_module_add_param(oct_module *self, const char *name, oct_shape shape, bool decay,
                                oct_param **param)
{
    OCT_CHECK(param, OCT_USAGE, "the pointer to a parameter is at NULL");
    *param = NULL;
    OCT_TRY(check_name(self, name));
    OCT_TRY(oct_grow(&self->params, &self->cap_params, self->num_params + 1, sizeof *self->params));
    int64_t numel = oct_shape_numel(&shape);
    OCT_CHECK(numel > 0, OCT_USAGE, "parameter %s cannot have the shape %s", name,
              oct_text_shape(&shape).text);
    oct_param *created;
    oct_status status = oct_alloc(&created, 1, sizeof *created);
    if (status != OCT_OK) return status;
    created->value = (oct_tensor){
        .dtype = OCT_F32, .shape = shape, .needs_grad = true, .trace_value = -1, .graph_value = -1};
    created->decay = decay;
    created->references = 1;
    OCT_TRY_OUT(oct_strdup(&created->name, name));
    OCT_TRY_OUT(oct_alloc(&created->value.data, (size_t)numel, sizeof(float)));
    self->params[self->num_params++] = *param = created;
out:
    if (status != OCT_OK) oct_param_release(&created);
    return status;
}

oct_status oct_module_add_buffer(oct_module *self, const char *name, oct_dtype dtype,
                                 oct_shape shape, void *data)
{
    OCT_CHECK(data && oct_dtype_is_known(dtype), OCT_USAGE,
              "a buffer has a pointer to its memory at NULL, or no type");
    OCT_TRY(check_name(self, name));
    int64_t numel = oct_shape_numel(&shape);
    OCT_CHECK(numel >= 0, OCT_USAGE, "buffer %s cannot have the shape %s", name,
              oct_text_shape(&shape).text);
    OCT_TRY(
        oct_grow(&self->buffers, &self->cap_buffers, self->num_buffers + 1, sizeof *self->buffers));
    oct_buffer buffer = {
        .tensor = {.dtype = dtype, .shape = shape, .trace_value = -1, .graph_value = -1}};
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
    oct_param *param = oct_module_param(self, name);
    oct_buffer *buffer = find_buffer(self, name);
    OCT_ASSERT(param || buffer);
    if (param) param->range = range;
    if (buffer) buffer->range = range;
}

oct_status oct_module_replace(oct_module **root, oct_module *old, oct_module *replacement)
{
    oct_module **slot = *root == old ? root : NULL;
    for (size_t i = 0; !slot && old->parent && i < old->parent->num_children; i++)
        if (*old->parent->children[i].slot == old) slot = old->parent->children[i].slot;
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

bool oct_module_calls_only(const oct_module *root)
{
    bool all = (root->type->atomic || root->type->calls_only) && !root->pre_hooks && !root->hooks;
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

oct_path_text oct_module_path(const oct_module *module)
{
    if (!module->parent) return (oct_path_text){""};
    oct_path_text t = oct_module_path(module->parent);
    const size_t used = strlen(t.text);
    snprintf(t.text + used, sizeof t.text - used, "%s%s", used ? "." : "", module->name);
    return t;
}

oct_module *oct_module_find(oct_module *root, const char *path)
{
    if (!path) return NULL;
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

bool oct_module_is_training(const oct_module *m)
{
    return m && m->training;
}

typedef struct state_walk {
    oct_status (*visit)(void *user, const oct_state_item *item);
    void *user;
} state_walk;

/* Calls the visitor for each parameter and buffer of a module, with its full path. */
static oct_status visit_state(void *user, oct_module *module)
{
    const state_walk *walk = user;
    char full[256 + 1 + OCT_NAME_MAX + 1];
    const oct_path_text path = oct_module_path(module);
    OCT_CHECK(strlen(path.text) + 1 < sizeof path.text, OCT_PREPARE,
              "%s: the path of this module is too long; use shorter names or fewer levels",
              path.text);
    const char *dot = *path.text ? "." : "";
    for (size_t i = 0; i < module->num_params; i++) {
        oct_param *param = module->params[i];
        snprintf(full, sizeof full, "%s%s%s", path.text, dot, param->name);
        OCT_TRY(
            walk->visit(walk->user, &(oct_state_item){full, &param->value, param, param->range}));
    }
    for (size_t i = 0; i < module->num_buffers; i++) {
        oct_buffer *buffer = &module->buffers[i];
        snprintf(full, sizeof full, "%s%s%s", path.text, dot, buffer->name);
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
