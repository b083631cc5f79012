/* Binding, the bound on parts, zeroing and reduction. */
#include "core/base/mem.h"
#include "core/nn/module.h"
#include "core/nn/params.h"

#include <criterion/criterion.h>
#include <string.h>

static const oct_module_type plain_type = {.name = "plain"};

typedef struct plain {
    oct_module base;
    oct_module *child;
} plain;

static oct_module *root;
static oct_param *p[3];
static oct_params params;

/* Parameters of 4, 6 and 1 numbers; the last in a child. */
static void set_up(void)
{
    cr_assert_eq(oct_module_alloc(&root, &plain_type, sizeof(plain)), OCT_OK);
    oct_module **child = &((plain *)root)->child;
    cr_assert_eq(oct_module_alloc(child, &plain_type, sizeof(plain)), OCT_OK);
    cr_assert_eq(oct_module_add_param(*child, "w", OCT_SHAPE(1), false, &p[2]), OCT_OK);
    cr_assert_eq(oct_module_add_child(root, "child", child), OCT_OK);
    cr_assert_eq(oct_module_add_param(root, "w", OCT_SHAPE(4), true, &p[0]), OCT_OK);
    cr_assert_eq(oct_module_add_param(root, "v", OCT_SHAPE(2, 3), true, &p[1]), OCT_OK);
}

static void tear_down(void)
{
    oct_params_unbind(&params);
    oct_module_destroy(&root);
    OCT_ASSERT(oct_mem_live() == 0); /* Criterion does not count cr_assert in a teardown */
}

TestSuite(param, .init = set_up, .fini = tear_down);

Test(param, binding_lays_all_out_in_pre_order)
{
    oct_leaves full = oct_leaves_split(64, 8, 1, 3);
    cr_assert_eq(oct_params_bind(&params, root, &full), OCT_OK);
    cr_assert_eq(params.count, 3);
    cr_assert_eq(params.numel, 11);
    static const int64_t offset[] = {0, 4, 10};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(params.items[i], p[i]);
        cr_assert_eq(p[i]->offset, offset[i]);
        cr_assert_eq(p[i]->stride, 11);
        cr_assert_eq(p[i]->parts, params.parts + offset[i]);
        cr_assert_eq(p[i]->grad, params.grads + offset[i]);
    }
    oct_params_unbind(&params);
    for (int i = 0; i < 3; i++)
        cr_assert(!p[i]->parts && !p[i]->grad);
    oct_params_unbind(&params);
}

Test(param, the_bound_holds_for_every_smaller_batch)
{
    for (int size = 1; size <= 9; size++) {
        for (int64_t count = 1; count <= 70; count++) {
            for (int rank = 0; rank < size; rank++) {
                oct_leaves full = oct_leaves_split(count, 1, rank, size);
                cr_assert_eq(oct_params_bind(&params, root, &full), OCT_OK);
                for (int64_t smaller = 1; smaller <= count; smaller++) {
                    oct_leaves l = oct_leaves_split(smaller, 1, rank, size);
                    oct_subtree parts[OCT_MAX_PARTS];
                    int n = oct_leaves_parts(&l, parts);
                    cr_assert_leq(n, params.max_parts, "%d of %d, rank %d of %d", (int)smaller,
                                  (int)count, rank, size);
                }
                oct_params_unbind(&params);
            }
        }
    }
}

Test(param, one_process_needs_one_part)
{
    oct_leaves full = oct_leaves_split(1000, 8, 0, 1);
    cr_assert_eq(oct_params_bind(&params, root, &full), OCT_OK);
    cr_assert_eq(params.max_parts, 1);
}

Test(param, reducing_gives_parts_and_zero_for_the_unused)
{
    oct_leaves full = oct_leaves_split(24, 8, 0, 1);
    cr_assert_eq(oct_params_bind(&params, root, &full), OCT_OK);
    for (int i = 0; i < 11; i++)
        params.parts[i] = (float)i;
    p[1]->folded = true;
    cr_assert_eq(oct_params_reduce(&params, &oct_collective_one, &full), OCT_OK);
    for (int i = 0; i < 11; i++)
        cr_assert_eq(params.grads[i], i >= 4 && i < 10 ? (float)i : 0);
    oct_params_zero(&params);
    cr_assert_not(p[1]->folded);
    cr_assert_eq(oct_params_reduce(&params, &oct_collective_one, &full), OCT_OK);
    for (int i = 0; i < 11; i++)
        cr_assert_eq(params.grads[i], 0);
}

/* A group that notes which columns began, and in what order. */
typedef struct beginnings {
    oct_collective group;
    int64_t first[4], numel[4];
    int count;
    bool finished;
} beginnings;

static oct_status note_begin(const oct_collective *self, const oct_leaves *leaves, float *parts,
                             int64_t stride, int64_t n)
{
    beginnings *b = (beginnings *)(uintptr_t)self;
    cr_assert(b->count < 4 && leaves->count == 8);
    cr_assert_eq(stride, params.numel);
    b->first[b->count] = parts - params.parts;
    b->numel[b->count++] = n;
    return OCT_OK;
}

static oct_status note_end(const oct_collective *self)
{
    ((beginnings *)(uintptr_t)self)->finished = true;
    return OCT_OK;
}

/* The last parameters are one bucket, of a million numbers at least, and the first the rest. */
Test(param, sums_begin_bucket_by_bucket_from_the_last_parameter_on)
{
    oct_module *large;
    oct_param *w[4];
    const oct_leaves full = oct_leaves_split(64, 8, 0, 1);
    beginnings b = {.group = {.size = 1, .sum_begin = note_begin, .sums_finish = note_end}};
    const int64_t size[] = {5, 1 << 20, (1 << 20) - 3, 3};
    cr_assert_eq(oct_module_alloc(&large, &plain_type, sizeof(plain)), OCT_OK);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(oct_module_add_param(large, (char[]){(char)('a' + i), 0}, OCT_SHAPE(size[i]),
                                          false, &w[i]),
                     OCT_OK);
    cr_assert_eq(oct_params_bind(&params, large, &full), OCT_OK);
    cr_assert_eq(params.num_buckets, 3);
    w[1]->folded = true; /* of another bucket than the first */
    w[3]->folded = true; /* not the whole of the first */
    cr_assert_eq(oct_params_begin_allreduce(&params, &b.group, &full), OCT_OK);
    cr_assert_eq(b.count, 0);
    w[2]->folded = true;
    cr_assert_eq(oct_params_begin_allreduce(&params, &b.group, &full), OCT_OK);
    cr_assert_eq(b.count, 2);
    cr_assert(b.first[0] == w[2]->offset && b.numel[0] == 1 << 20);
    cr_assert(b.first[1] == w[1]->offset && b.numel[1] == 1 << 20);
    cr_assert_not(b.finished);
    cr_assert_eq(oct_params_reduce(&params, &b.group, &full), OCT_OK);
    cr_assert(b.count == 3 && b.first[2] == 0 && b.numel[2] == 5 && b.finished);
    oct_params_zero(&params);
    cr_assert_eq(params.begun, 0);
    oct_params_unbind(&params);
    oct_module_destroy(&large);
}

Test(param, a_batch_beyond_the_bound_is_a_defect)
{
    oct_leaves full = oct_leaves_split(3, 1, 0, 1), more = {9, 1, 9, 1, 7};
    cr_assert_eq(oct_params_bind(&params, root, &full), OCT_OK);
    cr_assert_eq(oct_params_reduce(&params, &oct_collective_one, &more), OCT_DEFECT);
    cr_assert(strstr(oct_error_message(0), "9 leaves is larger than the one"));
}

Test(param, a_module_without_parameters_binds)
{
    oct_module *empty;
    oct_leaves full = oct_leaves_split(3, 1, 0, 1);
    cr_assert_eq(oct_module_alloc(&empty, &plain_type, sizeof(plain)), OCT_OK);
    cr_assert_eq(oct_params_bind(&params, empty, &full), OCT_OK);
    cr_assert_eq(oct_params_reduce(&params, &oct_collective_one, &full), OCT_OK);
    oct_module_destroy(&empty);
}

Test(param, binding_fails_cleanly_at_every_allocation)
{
    oct_leaves full = oct_leaves_split(64, 8, 0, 1);
    size_t live = oct_mem_live();
    for (int64_t n = 1; n <= 2; n++) {
        oct_mem_fail_after(n);
        cr_assert_eq(oct_params_bind(&params, root, &full), OCT_RESOURCE);
        cr_assert_eq(oct_mem_live(), live);
        cr_assert_null(p[0]->parts);
    }
}

Test(param, what_leaves_the_tree_lives_until_it_is_unbound)
{
    oct_leaves full = oct_leaves_split(8, 8, 0, 1);
    cr_assert_eq(oct_params_bind(&params, root, &full), OCT_OK);
    cr_assert(oct_params_are_of(&params, root));
    oct_module_remove_child(root, &((plain *)root)->child);
    cr_assert_not(oct_params_are_of(&params, root));
    oct_f32(&params.items[2]->value)[0] = 1.0f; /* under sanitizers: it is there */
    oct_params_unbind(&params);
    cr_assert_eq(oct_params_bind(&params, root, &full), OCT_OK);
    cr_assert_eq(params.count, 2);
    cr_assert(oct_params_are_of(&params, root));
}

/* The last one to bind a parameter has it; an earlier one lets go of what is not its own any more. */
Test(param, may_be_bound_twice)
{
    oct_params second = {0};
    oct_leaves full = oct_leaves_split(8, 8, 0, 1);
    cr_assert_eq(oct_params_bind(&params, root, &full), OCT_OK);
    cr_assert_eq(oct_params_bind(&second, root, &full), OCT_OK);
    oct_params_unbind(&params);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(p[i]->grad, second.grads + p[i]->offset);
    oct_params_unbind(&second);
    for (int i = 0; i < 3; i++)
        cr_assert(!p[i]->parts && !p[i]->grad);
}
