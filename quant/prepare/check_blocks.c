/* Problems of dynamic blocks: every run must find what the first one found, codes or float. */
#include "quant/prepare/prepare_plan.h"

static void check_carried(oct_prepare_plan *plan, const oct_graph_carried_use *use, oct_mode mode)
{
    const oct_graph *g = plan->graph;
    const oct_graph_node *node = &g->nodes[use->node];
    int64_t first = oct_graph_resolve(g, node->called_input[mode][use->input], mode);
    int64_t later = oct_graph_resolve(g, use->value, mode);
    char maker[OCT_CALL_BYTES], name[OCT_CALL_BYTES];
    if (node->block < 0 || plan->values[first].codes == plan->values[later].codes) return;
    OCT_PROBLEM(plan,
                "dynamic block '%s': %s gets %s values from %s in its first run and others later; "
                "quantize all that enters the block (with a QuantStub before it) or nothing of it",
                g->blocks[node->block].name, oct_graph_node_text(node, name),
                plan->values[first].codes ? "quantized" : "float",
                oct_graph_producer_text(g, first, maker));
}

/* Finds whether floats and whether codes come into a block at one of its nodes. */
static void find_entered(const oct_prepare_plan *plan, const oct_graph_node *node, oct_mode mode,
                         bool entered[2])
{
    const oct_graph *g = plan->graph;
    for (int k = 0; k < node->num_inputs; k++) {
        int64_t value = oct_graph_resolve(g, node->called_input[mode][k], mode);
        int64_t producer = g->values[value].producer;
        bool outside = producer < 0 || g->nodes[producer].block != node->block;
        if (outside) entered[plan->values[value].codes] = true;
    }
}

/* Notes a block that ran once: it is unknown which of its inputs is its own result later. */
static void check_block(oct_prepare_plan *plan, int block)
{
    const oct_graph *g = plan->graph;
    bool entered[2] = {false}, made[2] = {false};
    if (!oct_prepare_ran_once(plan, block)) return;
    for (size_t i = g->blocks[block].begin; i < g->blocks[block].end; i++) {
        oct_mode mode = oct_graph_mode_of(&g->nodes[i]);
        find_entered(plan, &g->nodes[i], OCT_MODE_EVALUATION, entered);
        find_entered(plan, &g->nodes[i], OCT_MODE_TRAINING, entered);
        if (i + 1 == g->blocks[block].end)
            made[plan->values[oct_graph_resolve(g, g->nodes[i].output, mode)].codes] = true;
    }
    if ((entered[0] && made[1]) || (entered[1] && made[0]))
        OCT_PROBLEM(plan,
                    "dynamic block '%s': what enters it and what it makes are not both quantized "
                    "or both float, so it could not run a second time; quantize all that enters it "
                    "(with a QuantStub before it) or nothing of it",
                    g->blocks[block].name);
}

void oct_prepare_check_blocks(oct_prepare_plan *plan)
{
    const oct_graph *g = plan->graph;
    for (size_t i = 0; i < g->num_carried; i++) {
        size_t before = plan->problems;
        for (int mode = 0; mode < OCT_MODES && plan->problems == before; mode++)
            check_carried(plan, &g->carried[i], (oct_mode)mode);
    }
    for (size_t i = 0; i < g->num_blocks; i++)
        check_block(plan, (int)i);
}
