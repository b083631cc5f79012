/* The tape: order, accumulation, leaf-wise parameter gradients, and failures that stick.
 *
 * Two ops of the test's own: scale (y = x * w per column, a parameter) and add (y = a + b).
 */
#include "core/autograd/tape.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/nn/module.h"
#include "core/nn/params.h"

#include <criterion/criterion.h>
#include <string.h>

enum { COLUMNS = 3, SAMPLES = 29, LEAF = 4 };

typedef struct scale_saved {
    oct_param *w;
} scale_saved;

static void scale_backward(oct_context *cx, oct_node *node)
{
    const scale_saved *saved = node->saved;
    oct_tensor *x = node->input[0];
    const float *grad_y = node->output->grad, *w = oct_f32(&saved->w->value);
    float *rows = oct_leaf_grads_begin(cx, saved->w);
    if (!rows) return;
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i);
        for (int64_t s = begin; s < begin + oct_leaf_size(&cx->leaves, i); s++) {
            for (int c = 0; c < COLUMNS; c++)
                rows[i * COLUMNS + c] += grad_y[s * COLUMNS + c] * oct_f32(x)[s * COLUMNS + c];
        }
    }
    oct_leaf_grads_end(cx, saved->w);
    if (!x->needs_grad) return;
    float *grad_x = oct_scratch(cx, (size_t)oct_numel(x) * sizeof(float));
    if (!grad_x) return;
    for (int64_t i = 0; i < oct_numel(x); i++)
        grad_x[i] = grad_y[i] * w[i % COLUMNS];
    oct_add_grad(cx, x, grad_x);
}

static oct_tensor *scale(oct_context *cx, oct_tensor *x, oct_param *w)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    for (int64_t i = 0; i < oct_numel(x); i++)
        oct_f32(y)[i] = oct_f32(x)[i] * oct_f32(&w->value)[i % COLUMNS];
    oct_node *node = oct_record(cx, "scale", scale_backward, &x, 1, true, y);
    if (!node) return y;
    scale_saved *saved = node->saved = oct_save(cx, sizeof *saved);
    if (!saved) return NULL;
    saved->w = w;
    oct_param_used(cx, w);
    return y;
}

static void add_backward(oct_context *cx, oct_node *node)
{
    size_t bytes = (size_t)oct_numel(node->output) * sizeof(float);
    for (int i = 0; i < 2; i++) {
        float *grad = oct_scratch(cx, bytes);
        if (!grad) return;
        memcpy(grad, node->output->grad, bytes);
        oct_add_grad(cx, node->input[i], grad);
    }
}

static oct_tensor *add_op(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    oct_tensor *inputs[] = {a, b};
    if (!oct_inputs_ok(cx, inputs, 2)) return NULL;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, a->shape);
    if (!y) return NULL;
    for (int64_t i = 0; i < oct_numel(a); i++)
        oct_f32(y)[i] = oct_f32(a)[i] + oct_f32(b)[i];
    oct_record(cx, "add", add_backward, inputs, 2, false, y);
    return y;
}

static oct_tensor *weightless_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                      int n)
{
    (void)cx, (void)self, (void)n;
    return x[0];
}

static const oct_module_type holder_type = {.name = "holder", .forward = weightless_forward};

typedef struct fixture {
    oct_module *holder;
    oct_param *u, *v;
    oct_params params;
    oct_context *cx;
    float x[SAMPLES * COLUMNS], g[SAMPLES * COLUMNS];
} fixture;

static fixture f;

static oct_leaves whole(void)
{
    return oct_leaves_split(SAMPLES, LEAF, 0, 1);
}

static void set_up(void)
{
    oct_leaves leaves = whole();
    cr_assert_eq(oct_module_alloc(&f.holder, &holder_type, sizeof *f.holder), OCT_OK);
    cr_assert_eq(oct_module_add_param(f.holder, "u", OCT_SHAPE(COLUMNS), true, &f.u), OCT_OK);
    cr_assert_eq(oct_module_add_param(f.holder, "v", OCT_SHAPE(COLUMNS), true, &f.v), OCT_OK);
    oct_fill_normal(oct_f32(&f.u->value), COLUMNS, 1, OCT_STREAM_TEST, 0, 0, 1);
    oct_fill_normal(oct_f32(&f.v->value), COLUMNS, 1, OCT_STREAM_TEST, 1, 0, 1);
    oct_fill_normal(f.x, SAMPLES * COLUMNS, 1, OCT_STREAM_TEST, 2, 0, 1);
    oct_fill_normal(f.g, SAMPLES * COLUMNS, 1, OCT_STREAM_TEST, 3, 0, 1);
    cr_assert_eq(oct_params_bind(&f.params, f.holder, &leaves), OCT_OK);
    cr_assert_eq(oct_context_create(&f.cx, &oct_collective_one), OCT_OK);
}

static void tear_down(void)
{
    oct_context_destroy(&f.cx);
    oct_params_unbind(&f.params);
    oct_module_destroy(&f.holder);
    OCT_ASSERT(oct_mem_live() == 0); /* Criterion does not count cr_assert in a teardown */
}

static oct_tensor *begin_forward(oct_leaves leaves, bool record)
{
    oct_params_zero(&f.params);
    oct_context_begin(f.cx, leaves, record);
    int64_t samples = oct_leaves_local_samples(&leaves);
    return oct_tensor_view(f.cx, OCT_F32, OCT_SHAPE(samples, COLUMNS),
                           f.x + oct_leaves_first_sample(&leaves) * COLUMNS);
}

static void give_g(oct_tensor *y)
{
    size_t bytes = (size_t)oct_numel(y) * sizeof(float);
    float *grad = oct_scratch(f.cx, bytes);
    cr_assert_not_null(grad);
    memcpy(grad, f.g + oct_leaves_first_sample(&f.cx->leaves) * COLUMNS, bytes);
    oct_add_grad(f.cx, y, grad);
}

static oct_status backward(oct_tensor *y)
{
    give_g(y);
    return oct_backward(f.cx, y);
}

/* The sum over samples of term by its definition: in the leaf in order, then the tree. */
static float leaf_sum(const float *term, int64_t leaf, int column)
{
    float sum = 0;
    for (int64_t s = leaf * LEAF; s < (leaf + 1) * LEAF && s < SAMPLES; s++)
        sum += term[s * COLUMNS + column];
    return sum;
}

static float tree_sum(const float *term, int64_t lo, int64_t span, int column)
{
    if (span == 1) return leaf_sum(term, lo, column);
    float left = tree_sum(term, lo, span / 2, column);
    if ((lo + span / 2) * LEAF >= SAMPLES) return left;
    return left + tree_sum(term, lo + span / 2, span / 2, column);
}

/* After a backward through scale(x, u): the tree's sum, bit for bit. */
static void check_only_u_has_a_gradient(void)
{
    oct_leaves leaves = whole();
    cr_assert_eq(oct_params_reduce(&f.params, &oct_collective_one, &leaves), OCT_OK);
    float term[SAMPLES * COLUMNS];
    for (int i = 0; i < SAMPLES * COLUMNS; i++)
        term[i] = f.g[i] * f.x[i];
    for (int c = 0; c < COLUMNS; c++) {
        cr_assert_eq(f.u->grad[c], tree_sum(term, 0, 8, c));
        cr_assert_eq(f.v->grad[c], 0, "an unused parameter has gradient 0");
    }
}

TestSuite(tape, .init = set_up, .fini = tear_down);

Test(tape, a_gradient_is_the_tree_sum_bit_for_bit)
{
    oct_tensor *y = scale(f.cx, begin_forward(whole(), true), f.u);
    cr_assert_eq(f.u->uses, 1);
    cr_assert_eq(backward(y), OCT_OK);
    check_only_u_has_a_gradient();
    cr_assert_null(y->grad);
    cr_assert_null(f.u->rows);
    cr_assert_eq(f.u->uses, 0);
}

Test(tape, a_chain_multiplies_and_a_fork_adds)
{
    oct_tensor *x = begin_forward(whole(), true);
    x->needs_grad = true;
    oct_tensor *a = scale(f.cx, x, f.u), *y = add_op(f.cx, scale(f.cx, a, f.v), a);
    cr_assert(y->needs_grad && a->needs_grad);
    cr_assert_eq(backward(y), OCT_OK);
    const float *u = oct_f32(&f.u->value), *v = oct_f32(&f.v->value);
    for (int i = 0; i < SAMPLES * COLUMNS; i++) {
        float grad_a = f.g[i] + f.g[i] * v[i % COLUMNS];
        cr_assert_eq(x->grad[i], grad_a * u[i % COLUMNS]);
    }
    cr_assert_null(a->grad);
}

Test(tape, a_gradient_can_be_worked_into_where_it_lies)
{
    bool add;
    oct_tensor *x = begin_forward(whole(), true);
    cr_assert_null(oct_grad_buffer(f.cx, x, &add), "it needs none");
    x->needs_grad = true;
    float *grad = oct_grad_buffer(f.cx, x, &add);
    cr_assert(grad && grad == x->grad && !add);
    memcpy(grad, f.g, sizeof f.g);
    cr_assert_eq(oct_grad_buffer(f.cx, x, &add), grad);
    cr_assert(add);
    float *more = oct_grad_new(f.cx, x);
    memcpy(more, f.g, sizeof f.g);
    oct_add_grad(f.cx, x, more);
    cr_assert_eq(x->grad, grad);
    cr_assert_eq(grad[1], 2 * f.g[1]);
    oct_context_fail(f.cx, OCT_NUMERIC, "no more");
    cr_assert_null(oct_grad_buffer(f.cx, x, &add));
}

Test(tape, a_parameter_used_twice_folds_once)
{
    oct_tensor *x = begin_forward(whole(), true);
    oct_tensor *a = scale(f.cx, x, f.u), *y = scale(f.cx, a, f.u);
    cr_assert_eq(f.u->uses, 2);
    cr_assert_eq(backward(y), OCT_OK);
    oct_leaves leaves = whole();
    cr_assert_eq(oct_params_reduce(&f.params, &oct_collective_one, &leaves), OCT_OK);
    const float *u = oct_f32(&f.u->value);
    for (int c = 0; c < COLUMNS; c++) {
        double want = 0;
        for (int s = 0; s < SAMPLES; s++)
            want += 2.0 * (double)f.g[s * COLUMNS + c] * (double)(u[c] * f.x[s * COLUMNS + c]);
        cr_assert_float_eq(f.u->grad[c], want, 1e-4);
    }
}

Test(tape, a_branch_that_leads_nowhere_does_not_keep_a_fold_open)
{
    oct_tensor *x = begin_forward(whole(), true);
    oct_tensor *dead = scale(f.cx, scale(f.cx, x, f.v), f.u);
    oct_tensor *y = scale(f.cx, x, f.u);
    cr_assert_not_null(dead);
    cr_assert_eq(backward(y), OCT_OK);
    cr_assert_null(f.u->rows);
    check_only_u_has_a_gradient();
    oct_tensor *again = scale(f.cx, begin_forward(whole(), true), f.u);
    cr_assert_eq(f.u->uses, 1);
    cr_assert_eq(backward(again), OCT_OK);
}

Test(tape, the_number_of_ranks_changes_no_bit)
{
    oct_leaves one = whole();
    cr_assert_eq(backward(scale(f.cx, scale(f.cx, begin_forward(one, true), f.v), f.u)), OCT_OK);
    cr_assert_eq(oct_params_reduce(&f.params, &oct_collective_one, &one), OCT_OK);
    float want[2 * COLUMNS];
    memcpy(want, f.params.grads, sizeof want);
    for (int size = 2; size <= 11; size++) {
        oct_subtree parts[64 + OCT_MAX_PARTS];
        float block[64][2 * COLUMNS];
        void *vectors[64];
        int num_parts = 0;
        for (int rank = 0; rank < size; rank++) {
            oct_leaves mine = oct_leaves_split(SAMPLES, LEAF, rank, size);
            oct_params_unbind(&f.params);
            cr_assert_eq(oct_params_bind(&f.params, f.holder, &mine), OCT_OK);
            cr_assert_eq(backward(scale(f.cx, scale(f.cx, begin_forward(mine, true), f.v), f.u)),
                         OCT_OK);
            int n = oct_leaves_parts(&mine, parts + num_parts);
            for (int p = 0; p < n; p++) {
                vectors[num_parts + p] = block[num_parts + p];
                memcpy(block[num_parts + p], f.params.parts + p * f.params.numel, sizeof block[0]);
            }
            num_parts += n;
        }
        cr_assert_eq(oct_tree_merge(&one, parts, vectors, num_parts, 2 * COLUMNS, sizeof(float)),
                     1);
        cr_assert_arr_eq(vectors[0], want, sizeof want, "%d ranks", size);
    }
}

Test(tape, a_steady_step_allocates_nothing)
{
    for (int step = 0; step < 10; step++) {
        if (step == 2) oct_mem_fail_after(1);
        oct_tensor *x = begin_forward(whole(), true);
        x->needs_grad = true;
        oct_tensor *a = scale(f.cx, x, f.u);
        cr_assert_eq(backward(add_op(f.cx, a, scale(f.cx, a, f.v))), OCT_OK);
    }
    oct_mem_fail_after(0);
}

Test(tape, a_backward_that_spends_gives_the_forward_back)
{
    float want[2 * COLUMNS];
    oct_leaves leaves = whole();
    for (int release_on_backward = 0; release_on_backward < 2; release_on_backward++) {
        oct_context_destroy(&f.cx);
        cr_assert_eq(oct_context_create(&f.cx, &oct_collective_one), OCT_OK);
        f.cx->release_on_backward = release_on_backward;
        for (int step = 0; step < 5; step++) {
            if (step == 3) oct_mem_fail_after(1);
            oct_tensor *y = scale(f.cx, begin_forward(leaves, true), f.u);
            for (int i = 0; i < 4; i++)
                y = add_op(f.cx, scale(f.cx, y, f.v), y);
            cr_assert_eq(backward(y), OCT_OK);
            cr_assert_eq(oct_params_reduce(&f.params, &oct_collective_one, &leaves), OCT_OK);
            if (step + release_on_backward == 0) memcpy(want, f.params.grads, sizeof want);
            cr_assert_arr_eq(f.params.grads, want, sizeof want);
            size_t kept = oct_arena_mark(f.cx->arena);
            cr_assert(release_on_backward ? kept < 2 * sizeof f.x : kept > 9 * sizeof f.x);
        }
        oct_mem_fail_after(0);
    }
}

Test(tape, a_loss_without_parameters_has_nothing_to_learn)
{
    oct_tensor *y = begin_forward(whole(), true);
    cr_assert_eq(oct_backward(f.cx, y), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "depends on no parameter"));
}

Test(tape, nothing_is_recorded_without_record)
{
    oct_tensor *y = scale(f.cx, begin_forward(whole(), false), f.u);
    cr_assert_not(y->needs_grad);
    cr_assert_null(y->node);
    cr_assert_eq(f.u->uses, 0);
    cr_assert_eq(oct_backward(f.cx, y), OCT_DEFECT);
    cr_assert(strstr(oct_error_message(0), "not on the tape"));
}

Test(tape, ops_of_inputs_without_gradient_are_not_recorded)
{
    oct_tensor *x = begin_forward(whole(), true), *y = add_op(f.cx, x, x);
    cr_assert_not(y->needs_grad);
    cr_assert_null(f.cx->last);
    cr_assert_eq(oct_context_status(f.cx), OCT_OK);
}

Test(tape, the_first_failure_sticks)
{
    oct_tensor *x = begin_forward(whole(), true);
    cr_assert_null(oct_context_fail(f.cx, OCT_NUMERIC, "loss is %s", "nan"));
    cr_assert_null(oct_context_fail(f.cx, OCT_DATA, "later"));
    cr_assert_eq(oct_context_status(f.cx), OCT_NUMERIC);
    cr_assert_str_eq(oct_error_message(0), "loss is nan");
    cr_assert_null(scale(f.cx, x, f.u));
    cr_assert_null(oct_tensor_new(f.cx, OCT_F32, x->shape));
    cr_assert_null(oct_tensor_view(f.cx, OCT_F32, x->shape, f.x));
    cr_assert_null(oct_scratch(f.cx, 8));
    cr_assert_null(oct_save(f.cx, 8));
    cr_assert_null(oct_leaf_grads_begin(f.cx, f.u));
    cr_assert_eq(oct_backward(f.cx, x), OCT_NUMERIC);
    cr_assert_eq(oct_error_count(), 1);
    x = begin_forward(whole(), true);
    cr_assert_not_null(scale(f.cx, x, f.u));
}

Test(tape, a_null_input_gives_null)
{
    oct_tensor *x = begin_forward(whole(), true);
    cr_assert_null(scale(f.cx, NULL, f.u));
    cr_assert_null(add_op(f.cx, x, NULL));
    cr_assert_eq(oct_context_status(f.cx), OCT_OK);
}

Test(tape, an_adopted_failure_keeps_its_record)
{
    begin_forward(whole(), true);
    cr_assert_null(oct_context_adopt(f.cx, OCT_OK));
    cr_assert_eq(oct_context_status(f.cx), OCT_OK);
    cr_assert_null(oct_context_adopt(f.cx, oct_fail(OCT_LOST, "rank 2 is gone")));
    cr_assert_eq(oct_context_status(f.cx), OCT_LOST);
    cr_assert_str_eq(oct_error_message(0), "rank 2 is gone");
}

Test(tape, memory_failures_stick_at_every_allocation)
{
    int failures = 0;
    for (int64_t n = 1; n < 40; n++) {
        oct_context_destroy(&f.cx);
        cr_assert_eq(oct_context_create(&f.cx, &oct_collective_one), OCT_OK);
        oct_mem_fail_after(n);
        oct_tensor *x = begin_forward(whole(), true), *y = scale(f.cx, scale(f.cx, x, f.u), f.v);
        float *grad = y ? oct_scratch(f.cx, sizeof f.g) : NULL;
        if (grad) {
            memcpy(grad, f.g, sizeof f.g);
            oct_add_grad(f.cx, y, grad);
        }
        oct_status status = oct_backward(f.cx, y);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
        failures += status == OCT_RESOURCE;
        cr_assert_null(f.u->rows);
        cr_assert_null(f.v->rows);
    }
    cr_assert_gt(failures, 3);
    cr_assert_lt(failures, 39);
}

Test(tape, context_creation_fails_cleanly)
{
    for (int64_t n = 1; n <= 2; n++) {
        oct_context *cx;
        size_t live = oct_mem_live();
        oct_mem_fail_after(n);
        cr_assert_eq(oct_context_create(&cx, &oct_collective_one), OCT_RESOURCE);
        cr_assert_null(cx);
        cr_assert_eq(oct_mem_live(), live);
    }
}

Test(tape, a_tensor_too_big_to_count_is_a_sentence)
{
    begin_forward(whole(), true);
    cr_assert_null(oct_tensor_new(f.cx, OCT_F32, OCT_SHAPE(INT64_MAX, 2)));
    cr_assert_eq(oct_context_status(f.cx), OCT_RESOURCE);
    cr_assert(strstr(oct_error_message(0), "(9223372036854775807, 2) does not fit"));
}

Test(tape, an_unbound_parameter_is_a_defect_with_its_name)
{
    oct_params_unbind(&f.params);
    cr_assert_eq(backward(scale(f.cx, begin_forward(whole(), true), f.u)), OCT_DEFECT);
    cr_assert_str_eq(oct_error_message(0), "parameter u is not bound (oct_params_bind)");
}

Test(tape, a_second_backward_without_zero_is_a_defect)
{
    oct_tensor *x = begin_forward(whole(), true);
    cr_assert_eq(backward(scale(f.cx, x, f.u)), OCT_OK);
    cr_assert_eq(backward(scale(f.cx, x, f.u)), OCT_DEFECT);
    cr_assert(strstr(oct_error_message(0), "oct_params_zero"));
}

Test(tape, more_ends_than_uses_are_refused)
{
    oct_tensor *y = scale(f.cx, begin_forward(whole(), true), f.u);
    cr_assert_not_null(y);
    f.u->uses = 0;
    cr_assert_eq(backward(y), OCT_USAGE);
    cr_assert(strstr(oct_error_message(0), "more gradients than uses"));
}

Test(tape, an_op_without_backward_may_not_cut_a_gradient)
{
    oct_tensor *x = begin_forward(whole(), true);
    oct_tensor *y = oct_tensor_new(f.cx, OCT_F32, x->shape);
    cr_assert_null(oct_record(f.cx, "round", NULL, &x, 1, false, y));
    cr_assert_eq(oct_context_status(f.cx), OCT_OK);
    x->needs_grad = true;
    cr_assert_null(oct_record(f.cx, "round", NULL, &x, 1, false, y));
    cr_assert_eq(oct_context_status(f.cx), OCT_USAGE);
}

Test(tape, an_op_has_at_most_so_many_inputs)
{
    oct_tensor *x = begin_forward(whole(), true), *many[OCT_MAX_INPUTS + 1];
    for (size_t i = 0; i < OCT_COUNT(many); i++)
        many[i] = x;
    cr_assert_null(oct_record(f.cx, "concat", add_backward, many, OCT_MAX_INPUTS + 1, true, x));
    cr_assert_eq(oct_context_status(f.cx), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0),
                     "concat has 65 inputs; an operation has a name and at most 64");
}

Test(tape, a_rank_without_leaves_goes_through_with_no_parts)
{
    oct_leaves none = oct_leaves_split(4, LEAF, 0, 2);
    cr_assert_eq(none.local, 0);
    oct_tensor *x = begin_forward(none, true);
    x->needs_grad = true;
    oct_tensor *y = scale(f.cx, x, f.u);
    cr_assert_eq(backward(y), OCT_OK);
    cr_assert(f.u->folded);
}

/* Answers every call site with its first input. */
typedef struct echo {
    oct_interceptor base;
    int calls;
    const oct_module *caller;
    oct_op_args args;
} echo;

static bool echo_call(oct_interceptor *self, oct_context *cx, oct_module *module, const char *op,
                      const oct_op_args *args, oct_tensor *const *x, int n, oct_tensor **y)
{
    echo *me = (echo *)self;
    cr_assert(!module && n == 2);
    cr_assert_null(*y);
    me->calls++;
    me->caller = cx->module;
    me->args = *args;
    if (strcmp(op, "known") != 0) return false;
    *y = x[0];
    return true;
}

Test(tape, a_call_site_is_asked_of_the_interceptor_outside_of_leaves_only)
{
    echo e = {.base = {.call = echo_call}};
    oct_tensor *x = begin_forward(whole(), false), *inputs[] = {x, x}, *y;
    cr_assert_not(oct_op_intercepted(f.cx, "known", OCT_NO_ARGS, inputs, 2, &y));
    f.cx->interceptor = &e.base;
    f.cx->module = f.holder;
    cr_assert(oct_op_intercepted(f.cx, "known", OCT_OP_ARGS(3, 0.5), inputs, 2, &y));
    cr_assert_eq(y, x);
    cr_assert_eq(e.caller, f.holder);
    cr_assert_eq(e.args.count, 2);
    cr_assert_eq(e.args.value[1], 0.5);
    cr_assert_not(oct_op_intercepted(f.cx, "unknown", OCT_NO_ARGS, inputs, 2, &y));
    cr_assert_eq(e.calls, 2);
    f.cx->atomic_depth = 1;
    cr_assert_not(oct_op_intercepted(f.cx, "known", OCT_NO_ARGS, inputs, 2, &y));
    f.cx->atomic_depth = 0;
    inputs[1] = NULL;
    cr_assert_not(oct_op_intercepted(f.cx, "known", OCT_NO_ARGS, inputs, 2, &y));
    inputs[1] = x;
    oct_context_fail(f.cx, OCT_NUMERIC, "failed before");
    cr_assert_not(oct_op_intercepted(f.cx, "known", OCT_NO_ARGS, inputs, 2, &y));
    cr_assert_eq(e.calls, 2);
}

Test(tape, a_new_step_has_no_interceptor_and_tensors_have_no_place)
{
    f.cx->interceptor = &(oct_interceptor){.call = echo_call};
    const oct_tensor *x = begin_forward(whole(), true);
    cr_assert_null(f.cx->interceptor);
    cr_assert_eq(x->graph_value, -1);
    cr_assert_eq(oct_tensor_new(f.cx, OCT_U16, OCT_SHAPE(2))->graph_value, -1);
    cr_assert_eq(f.u->value.graph_value, -1);
}
