/* Questions that the steps of prepare ask about the plan. */
#include "quant/prepare/prepare_plan.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

oct_call_name oct_prepare_site_text(const oct_prepare_plan *plan, int64_t node)
{
    const oct_graph_node *n = &plan->graph->nodes[node];
    oct_call_name name = oct_graph_node_text(n);
    const size_t used = strlen(name.text);
    if (strcmp(plan->nodes[node].path, n->path) != 0)
        snprintf(name.text + used, sizeof name.text - used, " (%s)", plan->nodes[node].path);
    return name;
}

oct_call_name oct_prepare_input_text(const oct_prepare_plan *plan, int64_t node, int k)
{
    return oct_graph_producer_text(plan->graph, oct_prepare_input(plan, node, k));
}

int64_t oct_prepare_only_user_in(const oct_prepare_plan *plan, int64_t value, oct_mode mode)
{
    const oct_graph *g = plan->graph;
    int64_t user = OCT_NO_INDEX;
    if (value == g->output[mode]) return OCT_NO_INDEX;
    for (size_t r = 0; r < g->num_carried; r++) /* the next run of a block reads it, too */
        if (g->carried[r].value == value) return OCT_NO_INDEX;
    for (size_t i = 0; i < g->num_nodes; i++) {
        if (!oct_graph_reads(&g->nodes[i], value, mode)) continue;
        if (user >= 0) return OCT_NO_INDEX;
        user = (int64_t)i;
    }
    return user;
}

bool oct_prepare_is_read_in(const oct_prepare_plan *plan, int64_t value, oct_mode mode)
{
    for (size_t i = 0; i < plan->graph->num_nodes; i++)
        if (oct_graph_reads(&plan->graph->nodes[i], value, mode)) return true;
    return false;
}

/* In a mode in which nothing reads the value, nothing is asked of the node. */
int64_t oct_prepare_only_user(const oct_prepare_plan *plan, int64_t value)
{
    const oct_graph *g = plan->graph;
    int64_t user = OCT_NO_INDEX;
    for (int mode = 0; mode < OCT_MODES; mode++) {
        int64_t one = oct_prepare_only_user_in(plan, value, mode);
        bool any = value == g->output[mode] || oct_prepare_is_read_in(plan, value, mode);
        if (any && (one < 0 || (user >= 0 && user != one))) return OCT_NO_INDEX;
        if (any) user = one;
    }
    for (int mode = 0; user >= 0 && mode < OCT_MODES; mode++)
        if (g->nodes[user].in[mode] && !oct_graph_reads(&g->nodes[user], value, mode))
            return OCT_NO_INDEX;
    return user;
}

bool oct_prepare_reads_codes(const oct_prepare_plan *plan, int64_t node, int inputs)
{
    const oct_graph_node *n = &plan->graph->nodes[node];
    for (int mode = 0; mode < OCT_MODES; mode++)
        for (int k = 0; n->in[mode] && k < inputs; k++)
            if (plan->values[oct_graph_input(plan->graph, n, k, mode)].codes) return true;
    return false;
}

/* A module is the same where it is called; an op is, in the same forward or hook. */
bool oct_prepare_called_in(const oct_prepare_plan *plan, int64_t node, oct_mode mode)
{
    const oct_graph_node *n = &plan->graph->nodes[node];
    for (size_t i = 0; i < plan->graph->num_nodes; i++) {
        const oct_graph_node *other = &plan->graph->nodes[i];
        bool same = !other->called && n->caller == other->caller && n->hook == other->hook;
        if (other->in[mode] &&
            (n->called ? n->called == other->called : same && strcmp(n->op, other->op) == 0))
            return true;
    }
    return false;
}

bool oct_prepare_ran_once(const oct_prepare_plan *plan, int block)
{
    const oct_graph *g = plan->graph;
    for (size_t r = 0; r < g->num_carried; r++)
        if (g->nodes[g->carried[r].node].block == block) return false;
    return true;
}

int64_t oct_prepare_member(const oct_prepare_plan *plan, int64_t at, oct_member kind)
{
    const oct_prepare_node *p = &plan->nodes[at];
    for (int i = 0; i < p->num_members; i++)
        if (oct_member_of(plan->nodes[p->member[i]].type) == kind) return p->member[i];
    return OCT_NO_INDEX;
}

bool oct_prepare_is_first_call(const oct_prepare_plan *plan, int64_t node)
{
    const oct_graph_node *nodes = plan->graph->nodes;
    for (int64_t i = 0; i < node; i++)
        if (nodes[i].called == nodes[node].called) return false;
    return true;
}

int64_t oct_prepare_num_calls(const oct_prepare_plan *plan, const oct_module *module)
{
    int64_t calls = 0;
    for (size_t i = 0; i < plan->graph->num_nodes; i++)
        calls += plan->graph->nodes[i].called == module;
    return calls;
}

bool oct_prepare_has_role(const oct_prepare_plan *plan, oct_role role)
{
    for (size_t i = 0; i < plan->graph->num_nodes; i++)
        if (plan->nodes[i].role == role) return true;
    return false;
}

/* Of a fusion only the output of its last member is a value that others can see. */
int64_t oct_prepare_fused_away_in(const oct_prepare_plan *plan, int64_t value)
{
    int64_t producer = value < 0 ? -1 : plan->graph->values[value].producer;
    if (producer < 0) return OCT_NO_INDEX;
    int64_t at = plan->nodes[producer].runs_at;
    return oct_prepare_last_member(plan, at) == producer ? OCT_NO_INDEX : at;
}

const char *oct_prepare_type(const oct_prepare_plan *plan, int64_t node)
{
    const oct_module *called = plan->graph->nodes[node].called;
    if (plan->nodes[node].role != OCT_ROLE_FUSED) return plan->graph->nodes[node].op;
    if (called->type == &oct_qat_conv_type)
        return ((const oct_qat_conv *)called)->layer->type->name;
    return called->type == &oct_qat_batch_norm_type ? oct_batch_norm_type.name : oct_add_type.name;
}

/* A batch norm has nothing that a second module could borrow. */
bool oct_prepare_one_module(const oct_prepare_plan *plan, int64_t at)
{
    const oct_module_type *type = plan->nodes[plan->nodes[at].member[0]].type;
    if (plan->options->method == OCT_METHOD_EAGER) return true;
    return type == &oct_batch_norm_type || type == &oct_qat_batch_norm_type;
}

oct_status oct_prepare_note(oct_prepare_node *node, const char *format, ...)
{
    if (node->note) return OCT_OK;
    char text[512];
    OCT_PRINT_ARGS(text, format);
    return oct_strdup(&node->note, text);
}
