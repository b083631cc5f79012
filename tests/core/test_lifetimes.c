/* Activations that are freed after their last reader: which are freed and when, which stay, and what happens to
 * a forward that takes another path than the recorded one. */
#include "core/autograd/context.h"
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "core/op/ops.h"

#include <criterion/criterion.h>
#include <string.h>

enum { NUMEL = 1 << 16, LAYERS = 10 };

typedef struct net {
    oct_module base;
    oct_module *relu;
    oct_tensor *(*body)(oct_context *cx, struct net *self, oct_tensor *x);
    int turns; /* for bodies that change */
} net;

static oct_tensor *net_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    return ((net *)self)->body(cx, (net *)self, x[0]);
}
static const oct_module_type net_type = {.name = "net", .forward = net_forward, .calls_only = true};

static oct_module *root;
static oct_context *cx;
static oct_lifetimes *lifetimes;
static int64_t needed; /* what the last forward with lifetimes has returned */
static float *input;

static net *set_up(oct_tensor *(*body)(oct_context *, net *, oct_tensor *))
{
    cr_assert_eq(oct_module_alloc(&root, &net_type, sizeof(net)), OCT_OK);
    net *self = (net *)root;
    self->body = body;
    cr_assert_eq(oct_relu_create(&self->relu), OCT_OK);
    cr_assert_eq(oct_module_add_child(root, "relu", &self->relu), OCT_OK);
    cr_assert_eq(oct_context_create(&cx, &oct_collective_one), OCT_OK);
    cr_assert_eq(oct_lifetimes_create(&lifetimes), OCT_OK);
    cr_assert_eq(oct_alloc(&input, NUMEL, sizeof *input), OCT_OK);
    for (int i = 0; i < NUMEL; i++)
        input[i] = (float)(i % 7) - 3.0F;
    return self;
}

static void tear_down(void)
{
    oct_free(&input);
    oct_lifetimes_destroy(&lifetimes);
    oct_context_destroy(&cx);
    oct_module_destroy(&root);
    OCT_ASSERT(oct_mem_live() == 0);
}

TestSuite(lifetimes, .fini = tear_down, .timeout = 60);

static const oct_tensor *forward(oct_lifetimes *with, int64_t samples)
{
    cx->lifetimes = with;
    oct_context_begin(cx, oct_leaves_split(samples, 4, 0, 1), false);
    oct_tensor *x = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(samples, NUMEL / samples), input);
    const oct_tensor *y = oct_call(cx, root, x);
    if (with) needed = oct_lifetimes_end(with, y);
    cx->lifetimes = NULL;
    return y;
}

/* The same numbers as a forward that keeps everything. */
static void check_same(int64_t samples)
{
    static float wanted[NUMEL];
    const oct_tensor *y = forward(NULL, samples);
    cr_assert_eq(oct_numel(y), NUMEL);
    memcpy(wanted, y->data, sizeof wanted);
    for (int i = 0; i < 3; i++) {
        y = forward(lifetimes, samples);
        cr_assert(y, "%s", oct_error_message(0));
        cr_assert(memcmp(y->data, wanted, sizeof wanted) == 0, "forward %d", i);
    }
}

static oct_tensor *chain(oct_context *at, net *self, oct_tensor *x)
{
    for (int i = 0; i < LAYERS; i++)
        x = oct_add_scalar(at, oct_call(at, self->relu, x), 0.5);
    return x;
}

/* Bytes of the context's memory that a forward needs, from its start on. */
static size_t peak_of(bool freeing)
{
    oct_context_destroy(&cx);
    cr_assert_eq(oct_context_create(&cx, &oct_collective_one), OCT_OK);
    forward(freeing ? lifetimes : NULL, 16);
    return oct_arena_peak(cx->arena);
}

Test(lifetimes, a_chain_needs_two_of_its_values_at_a_time)
{
    const size_t value = NUMEL * sizeof(float), slack = 64 << 10;
    set_up(chain);
    check_same(16);
    cr_assert_eq(needed, 2 * (int64_t)value);
    cr_assert_gt(peak_of(false), 2 * LAYERS * value);
    cr_assert_lt(peak_of(true), 2 * value + slack);
}

Test(lifetimes, what_one_sample_taught_serves_any_batch)
{
    set_up(chain);
    cr_assert_not_null(forward(lifetimes, 1));
    check_same(16);
    check_same(64);
}

static oct_tensor *shortcut(oct_context *at, net *self, oct_tensor *x)
{
    oct_tensor *first = oct_add_scalar(at, x, 1.0);
    return oct_add(at, chain(at, self, first), first);
}

Test(lifetimes, a_value_that_is_read_late_stays)
{
    set_up(shortcut);
    check_same(16);
    cr_assert_eq(needed, 3 * NUMEL * (int64_t)sizeof(float));
}

static oct_tensor *views(oct_context *at, net *self, oct_tensor *x)
{
    oct_tensor *y = oct_add_scalar(at, x, 1.0);
    oct_tensor *view = oct_reshape(at, y, OCT_SHAPE(1, 1, oct_dim(x, 1), 1));
    oct_tensor *flat = oct_flatten(at, view); /* reads what y made, through two views */
    return oct_add(at, chain(at, self, y), flat);
}

Test(lifetimes, a_view_keeps_what_it_looks_at)
{
    set_up(views);
    check_same(16);
}

static oct_tensor *looks_back(oct_context *at, net *self, oct_tensor *x)
{
    oct_tensor *first = oct_add_scalar(at, x, 1.0);
    oct_tensor *y = chain(at, self, first);
    return self->turns > 0 ? oct_add(at, y, first) : oct_add(at, y, y);
}

Test(lifetimes, reading_a_value_after_its_life_is_reported)
{
    net *self = set_up(looks_back);
    check_same(16);
    self->turns = 1;
    cr_assert_null(forward(lifetimes, 16));
    cr_assert_eq(needed, -1);
    cr_assert_not_null(forward(NULL, 16), "without lifetimes it runs");
    self->turns = 0;
    check_same(16);
}

static oct_tensor *turns(oct_context *at, net *self, oct_tensor *x)
{
    for (int i = 0; i <= self->turns; i++)
        x = oct_call(at, self->relu, oct_add_scalar(at, x, -0.25));
    return x;
}

Test(lifetimes, a_loop_that_turns_more_or_less_often_keeps_what_it_has)
{
    net *self = set_up(turns);
    self->turns = 4;
    check_same(16);
    self->turns = 9;
    check_same(16);
    self->turns = 1;
    check_same(16);
    self->turns = 4;
    check_same(16);
}

static oct_tensor *fails(oct_context *at, net *self, oct_tensor *x)
{
    (void)self;
    return oct_add(at, x, oct_flatten(at, oct_add_scalar(at, x, 1.0))) ? NULL : NULL;
}

Test(lifetimes, a_failure_of_another_kind_is_no_straying)
{
    set_up(fails);
    cr_assert_null(forward(lifetimes, 16));
    cr_assert_neq(needed, -1);
}

static oct_tensor *do_nothing(oct_context *at, oct_module *module, oct_tensor *value, void *user)
{
    (void)at, (void)module, (void)value, (void)user;
    return NULL;
}

Test(lifetimes, a_hook_or_a_container_that_says_nothing_is_reason_to_keep_all)
{
    static const oct_module_type silent = {.name = "silent", .forward = net_forward};
    net *self = set_up(chain);
    cr_assert(oct_module_calls_only(root));
    oct_hook_handle hook;
    cr_assert_eq(oct_module_hook(self->relu, do_nothing, NULL, &hook), OCT_OK);
    cr_assert(!oct_module_calls_only(root));
    oct_hook_remove(&hook);
    cr_assert(oct_module_calls_only(root));
    root->type = &silent;
    cr_assert(!oct_module_calls_only(root));
}

Test(lifetimes, a_failed_allocation_changes_nothing)
{
    set_up(chain);
    for (int64_t n = 1; n < 40; n++) {
        oct_mem_fail_after(n);
        const oct_tensor *y = forward(lifetimes, 16);
        oct_mem_fail_after(0);
        if (!y) cr_assert_eq(oct_context_status(cx), OCT_RESOURCE);
        if (!y) oct_fail_clear();
    }
    check_same(16);
}
