/* Finds which call sites run together as one module: the patterns of fusion_list.def over
 * neighbours in the graph. */
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

static bool same_shape(const oct_prepare_plan *plan, int64_t a, int64_t b)
{
    return oct_shape_equal(&plan->graph->values[a].shape, &plan->graph->values[b].shape);
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
    return in[0] != in[1] && same_shape(plan, in[0], in[1]);
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

static void take_fusion(oct_prepare_plan *plan, const oct_fusion *fusion, const match *m)
{
    int64_t at = m->member[oct_fusion_runs_at(fusion)];
    oct_prepare_node *p = &plan->nodes[at];
    p->fusion = fusion;
    p->num_members = fusion->count;
    for (int k = 0; k < fusion->count; k++) {
        p->member[k] = m->member[k];
        plan->nodes[m->member[k]].runs_at = at;
    }
    if (at == m->member[0]) return;
    plan->graph->nodes[at].operand[0] =
        m->operand; /* the input of the chain, which its members alias */
    plan->graph->nodes[at].operand[1] = 1 - m->operand;
}

static void try_fusion(oct_prepare_plan *plan, const oct_fusion *fusion, int64_t head)
{
    match m;
    if (!fits(plan, fusion, head, &m)) return;
    int64_t at = m.member[oct_fusion_runs_at(fusion)];
    if (at != head && other_branch_is_later(plan, at, m.operand, head)) return;
    take_fusion(plan, fusion, &m);
}

/* Makes the outputs of nodes that are fused away aliases of their first inputs. */
static void set_aliases(oct_prepare_plan *plan)
{
    oct_graph *g = plan->graph;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        if (!oct_prepare_runs_here(plan, (int64_t)i))
            g->values[node->output].alias = node->called_input[oct_graph_mode_of(node)][0];
    }
}

oct_status oct_prepare_fuse(oct_prepare_plan *plan)
{
    bool automatic = plan->options->method != OCT_METHOD_EAGER;
    for (size_t f = 0; automatic && f < oct_fusion_count(); f++)
        for (size_t i = 0; i < plan->graph->num_nodes; i++)
            try_fusion(plan, oct_fusion_at(f), (int64_t)i);
    set_aliases(plan);
    return OCT_OK;
}
