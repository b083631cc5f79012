/* Lists of names say nothing of calls. What was fused by them is right where in every call each member's output goes to
 * the next member and nowhere else: otherwise a relu that is called elsewhere, too, would be gone there. */
#include "quant/prepare/prepare_plan.h"

static const char *const mode_names[OCT_MODES] = {
    [OCT_MODE_EVALUATION] = "evaluation", [OCT_MODE_TRAINING] = "training"};

/* A member, and the one that follows it. */
typedef struct pair {
    const oct_module *first, *next;
} pair;

static bool check_input(oct_prepare_plan *plan, const pair *p, const oct_graph_node *node,
                        oct_mode mode)
{
    const oct_graph *g = plan->graph;
    char a[256], b[256], maker[OCT_CALL_BYTES];
    const int64_t value = node->called_input[mode][0], producer = g->values[value].producer;
    if (producer >= 0 && g->nodes[producer].called == p->first) return true;
    OCT_PROBLEM(plan,
                "%s: was fused after %s, but a call in %s takes its input from %s; fuse by name "
                "only modules that always get the output of the module before them",
                oct_module_path(p->next, b), oct_module_path(p->first, a), mode_names[mode],
                oct_graph_producer_text(g, value, maker));
    return false;
}

static bool check_output(oct_prepare_plan *plan, const pair *p, const oct_graph_node *node,
                         oct_mode mode)
{
    const oct_graph *g = plan->graph;
    char a[256], b[256], name[OCT_CALL_BYTES];
    const int64_t user = oct_prepare_only_user_in(plan, node->output, mode);
    if (user >= 0 && g->nodes[user].called == p->next) return true;
    OCT_PROBLEM(plan,
                "%s: was fused with %s after it, but in %s its output goes %s%s; fuse by name only "
                "modules that pass their output to the next one and nowhere else",
                oct_module_path(p->first, a), oct_module_path(p->next, b), mode_names[mode],
                user >= 0 ? "to " : "elsewhere, too, or nowhere",
                user >= 0 ? oct_graph_node_text(&g->nodes[user], name) : "");
    return false;
}

static oct_status check_pair(void *user, oct_module *module)
{
    oct_prepare_plan *plan = user;
    const oct_graph *g = plan->graph;
    pair p = {NULL, module};
    if (module->type == &oct_identity_type) p.first = ((oct_identity_module *)module)->follows;
    if (module->type == &oct_qat_conv_type && ((oct_qat_conv *)module)->operand)
        p.first = &((oct_qat_conv *)module)->operand->base;
    for (size_t i = 0; p.first && i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        bool well = true; /* what is wrong in both modes is said once */
        for (int mode = 0; mode < OCT_MODES && well; mode++) {
            if (!node->in[mode]) continue;
            if (node->called == p.next) well = check_input(plan, &p, node, (oct_mode)mode);
            if (node->called == p.first) well = check_output(plan, &p, node, (oct_mode)mode);
        }
    }
    return OCT_OK;
}

oct_status oct_prepare_check_fused(oct_prepare_plan *plan)
{
    return oct_module_walk(*plan->root, check_pair, plan);
}
