/* The module tree: names, ownership, paths, state, replacement, calls and hooks. */
#include "core/autograd/context.h"
#include "core/base/mem.h"
#include "core/nn/module.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* y = factor * x, element by element; has one parameter and one buffer for the walks. */
typedef struct times {
    oct_module base;
    float factor;
    oct_param *weight;
    float *seen;
} times;

static int destroyed;

static oct_tensor *times_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x[0]->shape);
    if (!y) return NULL;
    for (int64_t i = 0; i < oct_numel(y); i++)
        oct_f32(y)[i] = ((times *)self)->factor * oct_f32(x[0])[i];
    return y;
}

static void times_destroy(oct_module *self)
{
    destroyed += (int)((times *)self)->factor;
}

static const oct_module_type times_type = {
    .name = "times", .forward = times_forward, .destroy = times_destroy, .atomic = true};

static oct_status times_create(oct_module **module, float factor)
{
    oct_status status;
    OCT_TRY(oct_module_alloc(module, &times_type, sizeof(times)));
    times *self = (times *)*module;
    self->factor = factor;
    OCT_TRY_OUT(oct_module_add_param(*module, "weight", OCT_SHAPE(2, 3), true, &self->weight));
    OCT_TRY_OUT(oct_module_add_buffer(*module, "seen", OCT_S64, OCT_SHAPE(4), &self->seen));
out:
    if (status != OCT_OK) oct_module_destroy(module);
    return status;
}

/* x -> b(a(x)) */
typedef struct pair {
    oct_module base;
    oct_module *a, *b;
} pair;

static oct_tensor *pair_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    pair *p = (pair *)self;
    return oct_call(cx, p->b, oct_call(cx, p->a, x[0]));
}

static const oct_module_type pair_type = {.name = "pair", .forward = pair_forward};

/* Takes a and b over, also on failure. */
static oct_status pair_create(oct_module **module, oct_module *a, oct_module *b)
{
    oct_status status = oct_module_alloc(module, &pair_type, sizeof(pair));
    if (status != OCT_OK) {
        oct_module_destroy(&a);
        oct_module_destroy(&b);
        return status;
    }
    pair *self = (pair *)*module;
    self->a = a;
    self->b = b;
    OCT_TRY_OUT(oct_module_add_child(*module, "a", &self->a));
    OCT_TRY_OUT(oct_module_add_child(*module, "b", &self->b));
out:
    if (status != OCT_OK) {
        if (self->b && !self->b->parent) oct_module_destroy(&self->b);
        oct_module_destroy(module);
    }
    return status;
}

/* pair(a = times 2, b = pair(a = times 3, b = times 5)) */
static oct_status tree_create(oct_module **root)
{
    oct_module *m[3] = {NULL}, *inner = NULL;
    oct_status status;
    *root = NULL;
    OCT_TRY_OUT(times_create(&m[0], 2));
    OCT_TRY_OUT(times_create(&m[1], 3));
    OCT_TRY_OUT(times_create(&m[2], 5));
    status = pair_create(&inner, m[1], m[2]);
    m[1] = m[2] = NULL;
    if (status != OCT_OK) goto out;
    status = pair_create(root, m[0], inner);
    m[0] = NULL;
out:
    for (int i = 0; i < 3; i++)
        oct_module_destroy(&m[i]);
    return status;
}

static oct_module *root;
static oct_context *cx;
static float one = 1;

static void set_up(void)
{
    cr_assert_eq(tree_create(&root), OCT_OK);
    cr_assert_eq(oct_context_create(&cx, &oct_collective_one), OCT_OK);
}

static void tear_down(void)
{
    oct_context_destroy(&cx);
    oct_module_destroy(&root);
    OCT_ASSERT(oct_mem_live() == 0); /* Criterion does not count cr_assert in a teardown */
}

static oct_tensor *call_root(void)
{
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
    return oct_call(cx, root, oct_tensor_view(cx, OCT_F32, OCT_SHAPE(1), &one));
}

static float value_of_root(void)
{
    const oct_tensor *y = call_root();
    cr_assert_not_null(y);
    return *oct_f32(y);
}

TestSuite(module, .init = set_up, .fini = tear_down);

Test(module, a_call_goes_through_the_tree)
{
    cr_assert_eq(value_of_root(), 30);
    cr_assert_null(cx->module);
}

Test(module, destroying_runs_every_destructor_once)
{
    oct_module_destroy(&root);
    cr_assert_eq(destroyed, 10);
    oct_module_destroy(&root);
    cr_assert_eq(destroyed, 10);
}

Test(module, paths_lead_there_and_back)
{
    cr_assert_str_eq(oct_module_path(root).text, "");
    oct_module *deep = oct_module_find(root, "b.a");
    cr_assert_not_null(deep);
    cr_assert_eq(((times *)deep)->factor, 3);
    cr_assert_str_eq(oct_module_path(deep).text, "b.a");
    cr_assert_eq(oct_module_find(root, ""), root);
    cr_assert_eq(oct_module_find(deep->parent, "b"), ((pair *)((pair *)root)->b)->b);
    static const char *const missing[] = {"c", "b.c", "b.a.a", "b.", ".b", "b..a", "aa", "weight"};
    for (size_t i = 0; i < OCT_COUNT(missing); i++)
        cr_assert_null(oct_module_find(root, missing[i]), "%s", missing[i]);
}

Test(module, mode_is_set_below)
{
    cr_assert(root->training);
    oct_module_train(((pair *)root)->b, false);
    cr_assert(root->training && oct_module_find(root, "a")->training);
    cr_assert_not(oct_module_find(root, "b")->training);
    cr_assert_not(oct_module_find(root, "b.b")->training);
    oct_module_train(root, true);
    cr_assert(oct_module_find(root, "b.b")->training);
}

static oct_status note_path(void *user, oct_module *module)
{
    const oct_path_text path = oct_module_path(module);
    char *text = user;
    snprintf(text + strlen(text), 200 - strlen(text), "[%s]", path.text);
    if (strcmp(path.text, "b.a") == 0) return oct_fail(OCT_MISMATCH, "enough");
    return OCT_OK;
}

Test(module, a_walk_is_in_pre_order_and_stops_with_an_error)
{
    char text[200] = "";
    cr_assert_eq(oct_module_walk(root, note_path, text), OCT_MISMATCH);
    cr_assert_str_eq(text, "[][a][b][b.a]");
}

static oct_status note_item(void *user, const oct_state_item *item)
{
    char *text = user;
    snprintf(text + strlen(text), 500 - strlen(text), "%s%c ", item->path, item->param ? '*' : '-');
    if (item->param) cr_assert_eq(item->tensor, &item->param->value);
    return strcmp(item->path, "b.b.weight") == 0 ? OCT_MISMATCH : OCT_OK;
}

Test(module, state_is_parameters_then_buffers_of_each_module)
{
    char text[500] = "";
    cr_assert_eq(oct_module_state(root, note_item, text), OCT_MISMATCH);
    cr_assert_str_eq(text, "a.weight* a.seen- b.a.weight* b.a.seen- b.b.weight* ");
}

Test(module, parameters_and_buffers_start_at_zero)
{
    const times *a = (times *)((pair *)root)->a;
    cr_assert_eq(a->weight->value.dtype, OCT_F32);
    cr_assert(a->weight->value.needs_grad && a->weight->decay);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(oct_f32(&a->weight->value)[i], 0);
    const oct_tensor *seen = &a->base.buffers[0].tensor;
    cr_assert_eq(seen->data, a->seen);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(((int64_t *)seen->data)[i], 0);
}

Test(module, names_are_checked)
{
    oct_param *param;
    void *data;
    static const char *const bad[] = {
        "",    "A", "a.b",
        "a b", "ä", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz0123456789_x"};
    for (size_t i = 0; i < OCT_COUNT(bad); i++) {
        cr_assert_eq(oct_module_add_param(root, bad[i], OCT_SHAPE(1), true, &param), OCT_USAGE);
        cr_assert(strstr(oct_error_message(0), "is no name for a part of a pair"));
        cr_assert_null(param);
    }
    cr_assert_eq(oct_module_add_param(root, "a", OCT_SHAPE(1), true, &param), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0), "a pair has two parts named \"a\"; rename one");
    cr_assert_eq(oct_module_add_buffer(((pair *)root)->a, "weight", OCT_F32, OCT_SHAPE(1), &data),
                 OCT_USAGE);
    cr_assert_eq(oct_module_add_param(((pair *)root)->a, "seen", OCT_SHAPE(1), true, &param),
                 OCT_USAGE);
    cr_assert_eq(oct_module_add_param(root, "w", OCT_SHAPE(0, 2), true, &param), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0), "parameter w cannot have the shape (0, 2)");
    cr_assert_eq(oct_module_add_buffer(root, "w", OCT_F32, OCT_SHAPE(-1), &data), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0), "buffer w cannot have the shape (-1)");
}

Test(module, a_child_that_cannot_be_added_is_destroyed)
{
    oct_module *extra, *stolen = ((pair *)root)->a, *none = NULL;
    cr_assert_eq(times_create(&extra, 7), OCT_OK);
    cr_assert_eq(oct_module_add_child(root, "b", &extra), OCT_USAGE);
    cr_assert_null(extra);
    cr_assert_eq(destroyed, 7);
    cr_assert_eq(oct_module_add_child(root, "c", &stolen), OCT_USAGE);
    cr_assert_null(stolen);
    cr_assert(strstr(oct_error_message(0), "has a place in a tree already"));
    cr_assert_eq(oct_module_add_child(root, "c", &none), OCT_USAGE);
    cr_assert_eq(value_of_root(), 30);
}

Test(module, creation_fails_cleanly_at_every_allocation)
{
    oct_module *tree;
    size_t live = oct_mem_live();
    int failures = 0;
    for (int64_t n = 1; n < 80; n++) {
        oct_mem_fail_after(n);
        oct_status status = tree_create(&tree);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
        failures += status == OCT_RESOURCE;
        if (status == OCT_OK) oct_module_destroy(&tree);
        cr_assert_eq(oct_mem_live(), live, "allocation %d", (int)n);
    }
    cr_assert(failures > 20 && failures < 79, "%d", failures);
}

Test(module, replacing_keeps_place_name_and_mode)
{
    oct_module *old = oct_module_find(root, "b.a"), *new, *again;
    cr_assert_eq(times_create(&new, 7), OCT_OK);
    oct_module_train(root, false);
    cr_assert_eq(oct_module_replace(&root, old, new), OCT_OK);
    cr_assert_eq(value_of_root(), 70);
    cr_assert_eq(oct_module_find(root, "b.a"), new);
    cr_assert_str_eq(new->name, "a");
    cr_assert_not(new->training);
    cr_assert_null(old->parent);
    cr_assert_str_eq(old->name, "");
    cr_assert_eq(oct_module_replace(&root, old, new), OCT_DEFECT);
    cr_assert_str_eq(oct_error_message(0), "the times to replace is not in this tree");
    again = oct_module_find(root, "a");
    cr_assert_eq(oct_module_replace(&root, new, again), OCT_DEFECT);
    cr_assert_str_eq(oct_error_message(0),
                     "the times to put in place of \"a\" has a place already");
    oct_module_destroy(&old);
}

Test(module, the_root_can_be_replaced_and_the_old_one_wrapped)
{
    oct_module *old = root, *scale, *outer;
    cr_assert_eq(times_create(&scale, 10), OCT_OK);
    cr_assert_eq(oct_module_alloc(&outer, &pair_type, sizeof(pair)), OCT_OK);
    cr_assert_eq(oct_module_replace(&root, old, outer), OCT_OK);
    cr_assert_eq(root, outer);
    ((pair *)outer)->a = old;
    ((pair *)outer)->b = scale;
    cr_assert_eq(oct_module_add_child(outer, "inner", &((pair *)outer)->a), OCT_OK);
    cr_assert_eq(oct_module_add_child(outer, "scale", &((pair *)outer)->b), OCT_OK);
    cr_assert_eq(value_of_root(), 300);
    cr_assert_str_eq(oct_module_path(oct_module_find(root, "inner.b.b")).text, "inner.b.b");
}

static oct_tensor *fail_forward(oct_context *context, oct_module *self, oct_tensor *const *x, int n)
{
    (void)self, (void)n;
    return oct_context_fail(context, OCT_PREPARE, "needs 4 dimensions, got %s",
                            oct_text_shape(&x[0]->shape).text);
}

static oct_tensor *null_forward(oct_context *context, oct_module *self, oct_tensor *const *x, int n)
{
    (void)context, (void)self, (void)x, (void)n;
    return NULL;
}

static void replace_by(const char *path, const oct_module_type *type)
{
    oct_module *old = oct_module_find(root, path), *new;
    cr_assert_eq(oct_module_alloc(&new, type, sizeof *new), OCT_OK);
    cr_assert_eq(oct_module_replace(&root, old, new), OCT_OK);
    oct_module_destroy(&old);
}

Test(module, a_failure_names_the_module)
{
    static const oct_module_type type = {.name = "fail", .forward = fail_forward, .atomic = true};
    replace_by("b.a", &type);
    cr_assert_null(call_root());
    cr_assert_eq(oct_context_status(cx), OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0), "b.a: needs 4 dimensions, got (1)");
}

Test(module, a_forward_without_output_is_refused)
{
    static const oct_module_type type = {.name = "empty", .forward = null_forward, .atomic = true};
    replace_by("b.b", &type);
    cr_assert_null(call_root());
    cr_assert_eq(oct_context_status(cx), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0), "b.b: the forward of this empty gave no output");
}

Test(module, a_module_takes_at_most_so_many_inputs)
{
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
    oct_tensor *x = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(1), &one);
    oct_tensor *many[OCT_MAX_INPUTS + 1];
    for (size_t i = 0; i < OCT_COUNT(many); i++)
        many[i] = x;
    cr_assert_null(oct_module_call(cx, oct_module_find(root, "a"), many, OCT_MAX_INPUTS + 1));
    cr_assert_str_eq(oct_error_message(0), "a: called with 65 inputs; a module takes at most 64");
    cr_assert_null(cx->module);
}

/* Hooks write their letter into a log. */
static char hook_log[64];
static char letter[7][2] = {"0", "1", "2", "3", "4", "5", "6"};

static oct_tensor *log_hook(oct_context *context, oct_module *module, oct_tensor *value, void *user)
{
    (void)context, (void)module, (void)value;
    strncat(hook_log, user, sizeof hook_log - strlen(hook_log) - 1);
    return NULL;
}

static oct_tensor *double_hook(oct_context *context, oct_module *module, oct_tensor *value,
                               void *user)
{
    (void)module, (void)user;
    oct_tensor *y = oct_tensor_new(context, OCT_F32, value->shape);
    if (y) *oct_f32(y) = 2 * *oct_f32(value);
    return y;
}

static const char *log_of_call(void)
{
    hook_log[0] = '\0';
    value_of_root();
    return hook_log;
}

Test(hooks, run_in_order_of_registration_around_the_forward, .init = set_up, .fini = tear_down)
{
    oct_module *a = oct_module_find(root, "a"), *b = oct_module_find(root, "b.b");
    cr_assert_eq(oct_module_hook(a, log_hook, letter[3], NULL), OCT_OK);
    cr_assert_eq(oct_module_pre_hook(a, log_hook, letter[1], NULL), OCT_OK);
    cr_assert_eq(oct_module_hook(a, log_hook, letter[4], NULL), OCT_OK);
    cr_assert_eq(oct_module_pre_hook(a, log_hook, letter[2], NULL), OCT_OK);
    cr_assert_eq(oct_module_pre_hook(b, log_hook, letter[5], NULL), OCT_OK);
    cr_assert_eq(oct_module_hook(root, log_hook, letter[6], NULL), OCT_OK);
    cr_assert_str_eq(log_of_call(), "123456");
}

Test(hooks, may_replace_input_and_output, .init = set_up, .fini = tear_down)
{
    oct_module *a = oct_module_find(root, "a");
    cr_assert_eq(oct_module_pre_hook(a, double_hook, NULL, NULL), OCT_OK);
    cr_assert_eq(value_of_root(), 60);
    cr_assert_eq(oct_module_hook(root, double_hook, NULL, NULL), OCT_OK);
    cr_assert_eq(oct_module_hook(root, double_hook, NULL, NULL), OCT_OK);
    cr_assert_eq(value_of_root(), 240);
}

Test(hooks, are_removed_by_handle_once, .init = set_up, .fini = tear_down)
{
    oct_module *a = oct_module_find(root, "a");
    oct_hook_handle h[3], copy;
    cr_assert_eq(oct_module_hook(a, log_hook, letter[1], &h[0]), OCT_OK);
    cr_assert_eq(oct_module_hook(a, log_hook, letter[2], &h[1]), OCT_OK);
    cr_assert_eq(oct_module_pre_hook(a, log_hook, letter[3], &h[2]), OCT_OK);
    copy = h[0];
    oct_hook_remove(&h[0]);
    cr_assert_str_eq(log_of_call(), "32");
    oct_hook_remove(&h[0]);
    oct_hook_remove(&copy);
    cr_assert_str_eq(log_of_call(), "32");
    oct_hook_remove(&h[2]);
    cr_assert_str_eq(log_of_call(), "2");
    oct_module_destroy(&root);
    oct_hook_remove(&h[1]);
}

static oct_tensor *once_hook(oct_context *context, oct_module *module, oct_tensor *value,
                             void *user)
{
    (void)context, (void)module, (void)value;
    strcat(hook_log, "o");
    oct_hook_remove(user);
    return NULL;
}

Test(hooks, may_remove_themselves_while_they_run, .init = set_up, .fini = tear_down)
{
    oct_hook_handle handle;
    cr_assert_eq(oct_module_hook(root, log_hook, letter[1], NULL), OCT_OK);
    cr_assert_eq(oct_module_hook(root, once_hook, &handle, &handle), OCT_OK);
    cr_assert_eq(oct_module_hook(root, log_hook, letter[2], NULL), OCT_OK);
    cr_assert_str_eq(log_of_call(), "1o2");
    cr_assert_str_eq(log_of_call(), "12");
}

Test(hooks, move_to_another_module_with_their_handles, .init = set_up, .fini = tear_down)
{
    oct_module *a = oct_module_find(root, "a"), *b = oct_module_find(root, "b.b");
    oct_hook_handle handle, pre;
    cr_assert_eq(oct_module_pre_hook(a, log_hook, letter[1], &pre), OCT_OK);
    cr_assert_eq(oct_module_hook(a, log_hook, letter[2], &handle), OCT_OK);
    cr_assert_eq(oct_module_hook(b, log_hook, letter[3], NULL), OCT_OK);
    cr_assert_eq(oct_module_pre_hook(b, log_hook, letter[4], NULL), OCT_OK);
    cr_assert_str_eq(log_of_call(), "1243");
    oct_hooks_move(&a->hooks, &b->hooks);
    cr_assert_str_eq(log_of_call(), "1432");
    oct_hooks_move(&b->hooks, &b->hooks);
    cr_assert_str_eq(log_of_call(), "1432");
    oct_hooks_move(&a->pre_hooks, &b->pre_hooks);
    cr_assert_str_eq(log_of_call(), "4132");
    replace_by("a", oct_module_find(root, "a")->type);
    oct_hook_remove(&handle);
    cr_assert_str_eq(log_of_call(), "413");
    oct_hook_remove(&pre);
    cr_assert_str_eq(log_of_call(), "43");
}

/* Adds and removes hooks all the time, by handle and by the end of their list. */
static void *come_and_go(void *user)
{
    bool *well = user;
    for (int round = 0; round < 2000 && *well; round++) {
        oct_hook *list = NULL;
        oct_hook_handle handle[8];
        for (size_t i = 0; i < OCT_COUNT(handle); i++)
            *well = *well && oct_hook_add(&list, log_hook, NULL, &handle[i]) == OCT_OK;
        for (size_t i = 0; i < OCT_COUNT(handle); i += 2)
            oct_hook_remove(&handle[i]);
        size_t left = 0;
        for (const oct_hook *hook = list; hook; hook = hook->next)
            *well = *well && left < OCT_COUNT(handle) / 2 && hook->id == handle[1 + 2 * left++].id;
        *well = *well && left == OCT_COUNT(handle) / 2;
        oct_hooks_free(&list);
    }
    return NULL;
}

Test(hooks, come_and_go_on_two_threads)
{
    bool well[2] = {true, true};
    pthread_t thread[OCT_COUNT(well)];
    for (size_t i = 0; i < OCT_COUNT(well); i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, come_and_go, &well[i]), 0);
    for (size_t i = 0; i < OCT_COUNT(well); i++) {
        pthread_join(thread[i], NULL);
        cr_assert(well[i]);
    }
}

Test(hooks, stay_with_a_replaced_module, .init = set_up, .fini = tear_down)
{
    oct_module *a = oct_module_find(root, "a"), *new;
    cr_assert_eq(oct_module_hook(a, log_hook, letter[1], NULL), OCT_OK);
    cr_assert_eq(times_create(&new, 2), OCT_OK);
    cr_assert_eq(oct_module_replace(&root, a, new), OCT_OK);
    cr_assert_str_eq(log_of_call(), "");
    cr_assert_not_null(a->hooks);
    oct_module_destroy(&a);
}

static oct_tensor *failing_hook(oct_context *context, oct_module *module, oct_tensor *value,
                                void *user)
{
    (void)module, (void)value, (void)user;
    return oct_context_fail(context, OCT_NUMERIC, "not a number");
}

Test(hooks, that_fail_end_the_forward, .init = set_up, .fini = tear_down)
{
    oct_module *b = oct_module_find(root, "b");
    cr_assert_eq(oct_module_pre_hook(b, failing_hook, NULL, NULL), OCT_OK);
    cr_assert_eq(oct_module_pre_hook(b, log_hook, letter[1], NULL), OCT_OK);
    cr_assert_eq(oct_module_hook(root, log_hook, letter[2], NULL), OCT_OK);
    hook_log[0] = '\0';
    cr_assert_null(call_root());
    cr_assert_str_eq(hook_log, "");
    cr_assert_str_eq(oct_error_message(0), "b: not a number");
}

/* An interceptor that answers calls of one module with tenfold values, and logs the calls that it sees. */
typedef struct tenfold {
    oct_interceptor base;
    const oct_module *answered;
    char log[200];
    oct_module **slot; /* read when it is destroyed */
} tenfold;

static oct_tensor *tenfold_run(oct_interceptor *self, oct_context *context, oct_module *module,
                               oct_tensor *const *x, int n)
{
    strcat(((tenfold *)self)->log, "run ");
    context->interceptor = self;
    oct_tensor *y = module->type->forward(context, module, x, n);
    context->interceptor = NULL;
    return y;
}

static bool tenfold_call(oct_interceptor *self, oct_context *context, oct_module *module,
                         const char *op, const oct_op_args *args, oct_tensor *const *x, int n,
                         oct_tensor **y)
{
    tenfold *me = (tenfold *)self;
    cr_assert_eq(args->count, 0);
    cr_assert_eq(context->atomic_depth, 0);
    strcat(me->log, module ? module->name : op);
    strcat(me->log, " ");
    if (module != me->answered) return false;
    *y = oct_module_execute(context, module, x, n);
    if (*y) *oct_f32(*y) *= 10;
    return true;
}

static void tenfold_block(oct_interceptor *self, oct_context *context, oct_module *module,
                          const char *name)
{
    (void)context;
    cr_assert(!module == !name);
    strcat(((tenfold *)self)->log, name ? name : "end");
    strcat(((tenfold *)self)->log, " ");
}

static bool slot_was_empty;

static void tenfold_destroy(oct_interceptor *self)
{
    slot_was_empty = !*((tenfold *)self)->slot;
}

static tenfold *intercept(oct_module *module, const oct_module *answered)
{
    static tenfold t;
    t = (tenfold){.base = {tenfold_run, tenfold_call, tenfold_block, tenfold_destroy},
                  .answered = answered,
                  .slot = &((pair *)root)->a};
    module->interceptor = &t.base;
    return &t;
}

Test(interceptor, answers_or_declines_each_leaf, .init = set_up, .fini = tear_down)
{
    const tenfold *t = intercept(root, oct_module_find(root, "b.a"));
    cr_assert_eq(value_of_root(), 300);
    cr_assert_str_eq(t->log, "run a a b ");
    cr_assert_null(cx->interceptor);
    cr_assert_null(cx->module);
}

Test(interceptor, without_functions_changes_nothing, .init = set_up, .fini = tear_down)
{
    tenfold *t = intercept(root, oct_module_find(root, "a"));
    t->base.run = NULL;
    cr_assert_eq(value_of_root(), 30);
}

Test(interceptor, of_a_part_does_not_run_inside_of_another, .init = set_up, .fini = tear_down)
{
    oct_module *inner = oct_module_find(root, "b");
    const tenfold *t = intercept(root, NULL);
    inner->interceptor = root->interceptor;
    cr_assert_eq(value_of_root(), 30);
    cr_assert_str_eq(t->log, "run a a b ");
    root->interceptor = NULL;
    cr_assert_eq(value_of_root(), 30);
    cr_assert_str_eq(t->log, "run a a b run a b ");
    inner->interceptor = NULL;
}

Test(interceptor, sees_inputs_after_pre_hooks_and_hooks_see_its_answer, .init = set_up,
     .fini = tear_down)
{
    oct_module *a = oct_module_find(root, "a");
    intercept(root, a);
    cr_assert_eq(oct_module_pre_hook(a, double_hook, NULL, NULL), OCT_OK);
    cr_assert_eq(oct_module_hook(a, log_hook, letter[1], NULL), OCT_OK);
    cr_assert_str_eq(log_of_call(), "1");
    cr_assert_eq(value_of_root(), 600);
}

Test(interceptor, goes_with_its_module_after_the_children, .init = set_up, .fini = tear_down)
{
    intercept(root, NULL);
    oct_module_destroy(&root);
    cr_assert(slot_was_empty);
}

static oct_tensor *in_blocks(oct_context *context, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    oct_tensor *y = x[0];
    for (int i = 0; i < 2; i++) {
        oct_dynamic_block_begin(context, self, "twice");
        y = oct_call(context, ((pair *)self)->a, y);
        oct_dynamic_block_end(context);
    }
    return y;
}

Test(interceptor, hears_of_dynamic_blocks, .init = set_up, .fini = tear_down)
{
    static const oct_module_type looping = {.name = "looping", .forward = in_blocks};
    root->type = &looping;
    cr_assert_eq(value_of_root(), 4);
    const tenfold *t = intercept(root, NULL);
    cr_assert_eq(value_of_root(), 4);
    cr_assert_str_eq(t->log, "run twice a end twice a end ");
}

Test(hooks, give_their_tensor_the_place_of_what_it_replaces, .init = set_up, .fini = tear_down)
{
    oct_module *a = oct_module_find(root, "a");
    cr_assert_eq(oct_module_pre_hook(a, double_hook, NULL, NULL), OCT_OK);
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
    oct_tensor *x = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(1), &one);
    x->graph_value = 4;
    const oct_tensor *y = oct_module_run_hooks(cx, a, a->pre_hooks, x);
    cr_assert_neq(y, x);
    cr_assert_eq(y->graph_value, 4);
    cr_assert_eq(*oct_f32(y), 2);
    cr_assert_eq(oct_module_run_hooks(cx, a, a->hooks, x), x);
}

Test(module, executing_a_leaf_leaves_its_hooks_alone)
{
    oct_module *a = oct_module_find(root, "a");
    cr_assert_eq(oct_module_pre_hook(a, double_hook, NULL, NULL), OCT_OK);
    cr_assert_eq(oct_module_hook(a, double_hook, NULL, NULL), OCT_OK);
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
    oct_tensor *x = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(1), &one);
    const oct_tensor *y = oct_module_execute(cx, a, &x, 1);
    cr_assert_eq(*oct_f32(y), 2);
    cr_assert_eq(cx->atomic_depth, 0);
    cr_assert_null(oct_module_execute(cx, a, &(oct_tensor *){NULL}, 1));
}
