/* Hooks stand in lists.
 *
 * Live hooks form one list of the process beside the lists of their modules, so a handle is looked
 * up by its number and never follows a pointer to a module that may be gone. Networks of two threads
 * have that list in common, so it is locked.
 */
#include "core/nn/module.h"

#include "core/base/mem.h"

#include <pthread.h>

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

void oct_hook_remove(oct_hook_handle *handle)
{
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
