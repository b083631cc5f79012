/* Which call sites run together as one module: those that were fused by name, which are checked against the calls, and
 * the patterns of fusion_list.def over neighbours in the graph. */
#include "quant/prepare/prepare_plan.h"

#include <string.h>

typedef struct match {
    int64_t member[OCT_MAX_MEMBERS];
    int operand; /* of its add: which input the chain is */
} match;

static bool may_fuse_as(const oct_prepare_plan *plan, int64_t node, oct_member kind)
{
    const oct_prepare_node *p = &plan->nodes[node];
    return p->eligible && !plan->graph->nodes[node].hook && p->role != OCT_ROLE_FUSED &&
           !p->fusion && p->runs_at == node && oct_member_of(p->type) == kind;
}

/* Whether two nodes are called together: in one block or outside of all, and in the same modes. */
static bool belong_together(const oct_prepare_plan *plan, int64_t a, int64_t b)
{
    const oct_graph_node *x = &plan->graph->nodes[a], *y = &plan->graph->nodes[b];
    return x->block == y->block && memcmp(x->in, y->in, sizeof x->in) == 0;
}

/* Whether an add has the chain's value and another one of the same shape; finds which of the
 * two. */
static bool takes_operand(const oct_prepare_plan *plan, int64_t add, int64_t value, int *operand)
{
    const oct_graph_node *node = &plan->graph->nodes[add];
    if (node->num_inputs != 2) return false;
    const int64_t *in = node->called_input[oct_graph_mode_of(node)];
    *operand = in[1] == value;
    for (int mode = 0; mode < OCT_MODES; mode++)
        if (node->in[mode] && node->called_input[mode][*operand] != value) return false;
    return in[0] != in[1] &&
           oct_shape_equal(&plan->graph->values[in[0]].shape, &plan->graph->values[in[1]].shape);
}

/* Whether a layer may be fused with this batch norm: where the layer is called several times, each
 * call must be followed by that batch norm, since the calls share both. */
static bool norm_belongs(const oct_prepare_plan *plan, int64_t layer, int64_t norm)
{
    const oct_graph *g = plan->graph;
    const oct_module *a = g->nodes[layer].called, *b = g->nodes[norm].called;
    if (!a || !b || oct_prepare_num_calls(plan, a) != oct_prepare_num_calls(plan, b)) return false;
    for (size_t i = 0; i < g->num_nodes; i++) {
        if (g->nodes[i].called != a) continue;
        int64_t next = oct_prepare_only_user(plan, g->nodes[i].output);
        if (next < 0 || g->nodes[next].called != b || !plan->nodes[next].eligible ||
            !belong_together(plan, (int64_t)i, next))
            return false;
    }
    return true;
}

static bool fits(const oct_prepare_plan *plan, const oct_fusion *fusion, int64_t head, match *m)
{
    *m = (match){.member = {head}};
    bool shifts = oct_requantizer_shifts(plan->target->requantizer); /* see leave_lone_norm */
    if (!oct_target_fuses(plan->target, fusion->name)) return false;
    if (shifts && fusion->members[0] == OCT_MEMBER_BN) return false;
    if (!may_fuse_as(plan, head, fusion->members[0])) return false;
    for (int k = 1; k < fusion->count; k++) {
        int64_t from = m->member[k - 1], value = plan->graph->nodes[from].output;
        int64_t next = oct_prepare_only_user(plan, value);
        if (next < 0 || !may_fuse_as(plan, next, fusion->members[k]) ||
            !belong_together(plan, from, next))
            return false;
        if (fusion->members[k] == OCT_MEMBER_ADD && !takes_operand(plan, next, value, &m->operand))
            return false;
        if (fusion->members[k] == OCT_MEMBER_BN && !norm_belongs(plan, from, next)) return false;
        m->member[k] = next;
    }
    return true;
}

/* Finds the layer at the beginning of a chain that ends in this value, or OCT_NO_INDEX. */
static int64_t layer_before(const oct_prepare_plan *plan, int64_t value)
{
    const oct_graph *g = plan->graph;
    int64_t node = g->values[value].producer;
    if (node >= 0 && plan->nodes[node].role == OCT_ROLE_BATCH_NORM)
        node =
            g->values[g->nodes[node].called_input[oct_graph_mode_of(&g->nodes[node])][0]].producer;
    return node >= 0 && plan->nodes[node].role == OCT_ROLE_LAYER ? node : OCT_NO_INDEX;
}

/* Whether the add's other operand could take the add in, too, and comes later: then it does. */
static bool other_branch_is_later(const oct_prepare_plan *plan, int64_t add, int operand,
                                  int64_t head)
{
    match m;
    const oct_graph_node *node = &plan->graph->nodes[add];
    int64_t rival = layer_before(plan, node->called_input[oct_graph_mode_of(node)][1 - operand]);
    if (rival <= head) return false;
    for (size_t f = 0; f < oct_fusion_count(); f++) {
        const oct_fusion *fusion = oct_fusion_at(f);
        if (oct_fusion_has(fusion, OCT_MEMBER_ADD) && fits(plan, fusion, rival, &m) &&
            m.member[oct_fusion_runs_at(fusion)] == add)
            return true;
    }
    return false;
}

/* Fuses what begins at this node, if the fusion fits there. */
static void try_fusion(oct_prepare_plan *plan, const oct_fusion *fusion, int64_t head)
{
    match m;
    if (!fits(plan, fusion, head, &m)) return;
    int64_t at = m.member[oct_fusion_runs_at(fusion)];
    if (at != head && other_branch_is_later(plan, at, m.operand, head)) return;
    oct_prepare_node *p = &plan->nodes[at];
    p->fusion = fusion;
    p->num_members = fusion->count;
    for (int k = 0; k < fusion->count; k++) {
        p->member[k] = m.member[k];
        plan->nodes[m.member[k]].runs_at = at;
    }
    if (at == head) return;
    /* The input of the chain, which its members alias. */
    plan->graph->nodes[at].operand[0] = m.operand;
    plan->graph->nodes[at].operand[1] = 1 - m.operand;
}

/* What was fused by name is right where in every call each member's output goes to the next member and nowhere else:
 * otherwise a relu that is called elsewhere, too, would be gone there. */

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

oct_status oct_prepare_fuse(oct_prepare_plan *plan)
{
    oct_graph *g = plan->graph;
    bool automatic = plan->options->method != OCT_METHOD_EAGER;
    OCT_TRY(oct_module_walk(*plan->root, check_pair, plan));
    if (plan->problems > 0) return OCT_PREPARE;
    for (size_t f = 0; automatic && f < oct_fusion_count(); f++)
        for (size_t i = 0; i < g->num_nodes; i++)
            try_fusion(plan, oct_fusion_at(f), (int64_t)i);
    for (size_t i = 0; i < g->num_nodes; i++) { /* outputs that are fused away alias first inputs */
        const oct_graph_node *node = &g->nodes[i];
        if (!oct_prepare_runs_here(plan, (int64_t)i))
            g->values[node->output].alias = node->called_input[oct_graph_mode_of(node)][0];
    }
    return OCT_OK;
}
