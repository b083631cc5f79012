/* Problems of setters: names and types that the model does not have, and nothing left to
 * quantize. */
#include "quant/prepare/prepare_plan.h"

#include "core/base/mem.h"

static void check_any_qconfig(oct_prepare_plan *plan)
{
    size_t count = plan->graph->num_nodes;
    const oct_prepare_options *o = plan->options;
    const oct_qconfig_setter *given = NULL, *taken = NULL; /* to all, and away again */
    for (size_t i = 0; i < count; i++)
        if (!plan->nodes[i].qconfig.none) return;
    for (size_t i = 0; i < o->num_setters; i++) {
        const oct_qconfig_setter *s = &o->setters[i];
        if (s->qconfig && !s->pattern) given = s;
        if (!s->qconfig && s->pattern) taken = s;
    }
    if (count > 0 && given && taken)
        OCT_PROBLEM(plan, "%s: every module stays float, so nothing would be quantized; name fewer",
                    taken->name);
    else if (count > 0)
        OCT_PROBLEM(plan, "no module has a qconfig, so nothing would be quantized; give one to the "
                          "modules that are to be quantized (oct_setter_default: to all)");
}

static oct_status check_types(oct_prepare_plan *plan)
{
    const char **types;
    size_t count = 0, before = oct_fail_count();
    OCT_TRY(oct_alloc(&types, plan->graph->num_nodes + plan->graph->num_values, sizeof *types));
    for (size_t i = 0; i < plan->graph->num_nodes; i++)
        types[count++] = oct_prepare_type(plan, (int64_t)i);
    for (size_t v = 0; v < plan->graph->num_values; v++)
        if (plan->values[v].quantize) types[count++] = oct_quant_stub_type.name;
    if (oct_qconfig_check_types(plan->options->setters, plan->options->num_setters, types, count) !=
        OCT_OK)
        plan->problems += oct_fail_count() - before;
    oct_free(&types);
    return OCT_OK;
}

/* Every path that a setter may mean: modules of the tree and those that would be generated. */
typedef struct paths {
    char **text;
    size_t count, capacity;
} paths;

static oct_status add_path(paths *all, const char *path)
{
    OCT_TRY(oct_grow(&all->text, &all->capacity, all->count + 1, sizeof *all->text));
    return oct_strdup(&all->text[all->count++], path);
}

static oct_status add_module_path(void *user, oct_module *module)
{
    char path[256];
    return add_path(user, oct_module_path(module, path));
}

static oct_status gather_paths(const oct_prepare_plan *plan, paths *all)
{
    char path[OCT_STUB_PATH_BYTES];
    OCT_TRY(oct_module_walk(*plan->root, add_module_path, all));
    for (size_t i = 0; i < plan->graph->num_nodes; i++)
        OCT_TRY(add_path(all, plan->nodes[i].path));
    for (size_t v = 0; v < plan->graph->num_values; v++)
        if (plan->values[v].quantize)
            OCT_TRY(add_path(all, oct_prepare_stub_path(plan, (int64_t)v, path)));
    return OCT_OK;
}

/* A name that fits nothing is a mistake: of a path, or of a table of another model. */
static oct_status check_paths(oct_prepare_plan *plan)
{
    paths all = {0};
    const oct_prepare_options *o = plan->options;
    size_t before = oct_fail_count();
    oct_status status = gather_paths(plan, &all);
    if (status == OCT_OK &&
        oct_qconfig_check_names(o->setters, o->num_setters, (const char *const *)all.text,
                                all.count) != OCT_OK)
        plan->problems += oct_fail_count() - before;
    for (size_t i = 0; i < all.count; i++)
        oct_free(&all.text[i]);
    oct_free(&all.text);
    return status;
}

oct_status oct_prepare_check_names(oct_prepare_plan *plan)
{
    OCT_TRY(check_paths(plan));
    OCT_TRY(check_types(plan));
    check_any_qconfig(plan);
    return OCT_OK;
}
