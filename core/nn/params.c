/* One block holds all gradients of the parameters of a module tree.
 *
 * How many parts a run of leaves can have: a run of 2^(k+1) - 2 leaves in the worst place is cut
 * into 1, 2, ..., 2^(k-1), 2^(k-1), ..., 2, 1 leaves, 2k parts; a run in between has one more than
 * the next shorter of these at most. Only the rows that a batch really has are ever touched.
 */
#include "core/nn/params.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <string.h>

/* Returns the most parts (maximal aligned subtrees) of this rank's leaves in a batch up to `full`: see above. */
static int most_parts(const oct_leaves *full)
{
    if (full->local == full->count) return 1;
    int64_t longest = full->local + 1; /* a smaller batch may be split one leaf more unevenly */
    int log2 = 0;
    while ((longest + 2) >> (log2 + 1))
        log2++;
    return 2 * log2 - 1;
}

static oct_status collect_params(void *user, oct_module *module)
{
    oct_params *params = user;
    OCT_TRY(oct_grow(&params->items, &params->capacity, params->count + module->num_params,
                     sizeof *params->items));
    for (size_t i = 0; i < module->num_params; i++) {
        oct_param *param = module->params[i];
        param->references++;
        params->items[params->count++] = param;
        param->offset = params->numel;
        params->numel += oct_numel(&param->value);
    }
    return OCT_OK;
}

/* The least numbers of a bucket; the last one, which holds the first parameters, may have fewer. */
enum { BUCKET_NUMEL = 1 << 20 };

/* Cuts the parameters into buckets from the last one on, whose gradient a backward has first. */
static oct_status make_buckets(oct_params *params)
{
    OCT_TRY(oct_alloc(&params->buckets, params->count, sizeof *params->buckets));
    for (size_t end = params->count, first = end; end > 0; end = first) {
        int64_t numel = 0;
        while (first > 0 && numel < BUCKET_NUMEL)
            numel += oct_numel(&params->items[--first]->value);
        params->buckets[params->num_buckets++] =
            (oct_bucket){first, end, params->items[first]->offset, numel};
    }
    return OCT_OK;
}

/* Points each parameter to its total gradient (to be read only), and to this rank's memory for a copy to change. */
static void point_grads(oct_params *params, const float *totals, float *own)
{
    params->grads = own;
    for (size_t i = 0; i < params->count; i++) {
        oct_param *param = params->items[i];
        param->grad = totals + param->offset;
        param->own_grad = own + param->offset;
    }
}

oct_status oct_params_bind(oct_params *params, oct_module *root, const oct_leaves *full)
{
    return oct_params_bind_on(params, root, full, &oct_collective_one);
}

static bool is_bound_here(const oct_params *params, const oct_param *param)
{
    return param->parts && param->parts == params->parts + param->offset;
}

oct_status oct_params_bind_on(oct_params *params, oct_module *root, const oct_leaves *full,
                              const oct_collective *group)
{
    *params = (oct_params){.group = group, .max_parts = most_parts(full)};
    oct_status status;
    OCT_TRY_OUT(oct_module_walk(root, collect_params, params));
    size_t numel = (size_t)params->numel;
    OCT_TRY_OUT(group->rows_alloc(group, &params->parts,
                                  (size_t)params->max_parts + (group->size > 1),
                                  numel * sizeof(float)));
    OCT_TRY_OUT(make_buckets(params));
    for (size_t i = 0; i < params->count; i++) {
        oct_param *param = params->items[i];
        param->parts = params->parts + param->offset;
        param->stride = params->numel;
        param->max_parts = params->max_parts;
    }
    for (size_t i = 0; i < params->count; i++) { /* what it was tied to may have left the tree */
        oct_param *param = params->items[i];
        if (param->tie && !is_bound_here(params, param->tie->first)) oct_param_untie(param);
    }
    point_grads(params, params->parts, params->parts);
    oct_params_zero(params);
out:
    if (status != OCT_OK) oct_params_unbind(params);
    return status;
}

bool oct_params_are_bound(const oct_params *params)
{
    for (size_t i = 0; i < params->count; i++)
        if (!is_bound_here(params, params->items[i])) return false;
    return true;
}

void oct_params_unbind(oct_params *params)
{
    for (size_t i = 0; i < params->count; i++) {
        oct_param *param = params->items[i];
        if (is_bound_here(params, param)) {
            param->parts = NULL;
            param->grad = param->own_grad = NULL;
            param->stride = 0;
            param->max_parts = 0;
        }
        oct_param_release(&params->items[i]);
    }
    oct_free(&params->items);
    if (params->parts) params->group->rows_free(params->group, &params->parts);
    oct_free(&params->buckets);
    *params = (oct_params){0};
}

typedef struct comparison {
    const oct_params *bound;
    size_t seen;
    bool same;
} comparison;

static oct_status compare_params(void *user, oct_module *module)
{
    comparison *c = user;
    for (size_t i = 0; i < module->num_params; i++, c->seen++)
        c->same &= c->seen < c->bound->count && c->bound->items[c->seen] == module->params[i];
    return OCT_OK;
}

bool oct_params_are_of(const oct_params *params, oct_module *root)
{
    comparison c = {.bound = params, .same = true};
    return oct_module_walk(root, compare_params, &c) == OCT_OK && c.same && c.seen == params->count;
}

static oct_status begin_next_sum(oct_params *params, const oct_collective *group,
                                 const oct_leaves *leaves)
{
    const oct_bucket *bucket = &params->buckets[params->begun++];
    return group->sum_begin(group, leaves, params->parts + bucket->offset, params->numel,
                            bucket->numel);
}

static bool has_all_grads(const oct_params *params, const oct_bucket *bucket)
{
    for (size_t i = bucket->first; i < bucket->end; i++)
        if (!params->items[i]->folded) return false;
    return true;
}

/* Counts this rank's parts of the batch. */
static oct_status count_parts(const oct_params *params, const oct_leaves *leaves, int *count)
{
    oct_subtree parts[OCT_MAX_PARTS];
    *count = oct_leaves_parts(leaves, parts);
    OCT_CHECK(*count <= params->max_parts, OCT_DEFECT,
              "a batch of %lld leaves is larger than the one the parameters were bound for",
              (long long)leaves->count);
    return OCT_OK;
}

oct_status oct_params_begin_allreduce(oct_params *params, const oct_collective *group,
                                      const oct_leaves *leaves)
{
    int num_parts;
    OCT_TRY(count_parts(params, leaves, &num_parts));
    while (params->begun < params->num_buckets &&
           has_all_grads(params, &params->buckets[params->begun]))
        OCT_TRY(begin_next_sum(params, group, leaves));
    return OCT_OK;
}

oct_status oct_params_reduce(oct_params *params, const oct_collective *group,
                             const oct_leaves *leaves)
{
    int num_parts;
    OCT_TRY(count_parts(params, leaves, &num_parts));
    for (size_t i = 0; i < params->count; i++) {
        const oct_param *param = params->items[i];
        if (param->folded) continue;
        for (int p = 0; p < num_parts; p++)
            memset(param->parts + p * param->stride, 0,
                   (size_t)oct_numel(&param->value) * sizeof(float));
    }
    while (params->begun < params->num_buckets)
        OCT_TRY(begin_next_sum(params, group, leaves));
    OCT_TRY(group->sums_finish(group));
    /* Totals are in the place of the first parts, here or in another rank's memory. If others read them here, this
     * rank's own are in a row after the parts; until then no page of that row is touched. */
    bool lent;
    const oct_collective *owner = params->group;
    const float *totals = owner->rows_total(owner, leaves, params->parts, &lent);
    point_grads(params, totals,
                lent ? params->parts + params->max_parts * params->numel : params->parts);
    for (size_t i = 0; i < params->count; i++) { /* tied ones add theirs to those that learn */
        const oct_tie *tie = params->items[i]->tie;
        if (tie)
            oct_file_order_move(&tie->order, params->items[i]->grad, &tie->first_order,
                                oct_param_own_grad(tie->first), true);
    }
    return OCT_OK;
}

void oct_params_zero(oct_params *params)
{
    params->begun = 0;
    for (size_t i = 0; i < params->count; i++) {
        oct_param *param = params->items[i];
        param->uses = 0;
        param->rows = NULL;
        param->row_layout = (oct_leaf_layout){0};
        param->folded = false;
    }
}

float *oct_params_own_grads(oct_params *params)
{
    for (size_t i = 0; i < params->count; i++)
        oct_param_own_grad(params->items[i]);
    return params->grads;
}

void oct_params_put_parts(oct_params *params, bool aside)
{
    float *parts = aside ? params->grads : params->parts;
    for (size_t i = 0; i < params->count; i++)
        params->items[i]->parts = parts + params->items[i]->offset;
}

void oct_params_scale_grads(oct_params *params, float factor)
{
    oct_scale_values(params->numel, factor, oct_params_own_grads(params));
}

int64_t oct_params_find_bad(const oct_params *params, bool grads)
{
    enum { BLOCK = 1 << 16 }; /* what a thread looks at */
    for (size_t i = 0; i < params->count; i++) {
        const oct_param *param = params->items[i];
        const float *numbers = grads ? param->grad : oct_f32(&param->value);
        const int64_t n = oct_numel(&param->value);
        bool finite = true;
#pragma omp parallel for schedule(static) reduction(&& : finite) if (n > BLOCK)
        for (int64_t first = 0; first < n; first += BLOCK)
            finite = finite && oct_all_finite(numbers + first, oct_min_i64(BLOCK, n - first));
        if (!finite) return (int64_t)i;
    }
    return -1;
}

/* A parameter with a number that is not finite: of its gradient, or of its value. */
typedef struct bad_param {
    const oct_param *param;
    bool grad;
} bad_param;

static oct_status fail_at_param(void *user, const oct_state_item *item)
{
    const bad_param *bad = user;
    if (item->param != bad->param) return OCT_OK;
    return oct_fail(OCT_NUMERIC,
                    bad->grad ? "the gradient of the parameter %s is infinite or NaN"
                              : "the update made a value of the parameter %s infinite or NaN",
                    item->path);
}

oct_status oct_params_fail(const oct_params *params, int64_t place, bool grads, oct_module *root)
{
    bad_param bad = {params->items[place], grads};
    const oct_status status = oct_module_state(root, fail_at_param, &bad);
    OCT_ASSERT(status != OCT_OK);
    return status;
}
