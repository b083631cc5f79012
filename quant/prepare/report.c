/* The check report: what was prepared, a table of what became of each call site, and findings. It
 * holds nothing that moves (no date, no range), so the same model gives the same bytes. */
#include "quant/prepare/report.h"

#include "quant/prepare/report_impl.h"

static const char *const method_words[OCT_METHODS] = {
    [OCT_METHOD_JIT_STRIP] = "your forward runs; what lies between QuantStubs and DeQuantStubs is "
                             "quantized",
    [OCT_METHOD_JIT] = "your forward runs; whatever can be quantized is quantized",
    [OCT_METHOD_SYMBOLIC] = "the recorded graph runs in place of your forward",
    [OCT_METHOD_EAGER] = "your forward runs; stubs and fusions are those that you placed",
};

static oct_status add_weights(oct_text *text, const oct_graph *g)
{
    size_t own = 0, by_target = 0;
    const oct_weight_fake_quant *last = NULL;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_module *m = g->nodes[i].module;
        if (g->nodes[i].action != OCT_NODE_RUN || m->type != &oct_qat_conv_type) continue;
        const oct_weight_fake_quant *wq =
            (const oct_weight_fake_quant *)((const oct_qat_conv *)m)->weight_fake_quant;
        by_target += wq && wq->by_target;
        if (!wq || wq->kind == &oct_fake_quant_affine) continue;
        last = wq;
        own++;
    }
    OCT_TRY(oct_text_add(text, "  %-10s s8, ", "weights"));
    if (own > 0)
        OCT_TRY(oct_text_add(text, "those of %zu layers by the fake-quant %s%s; otherwise ", own,
                             last->kind->name, last->scale ? ", which learns its scales" : ""));
    if (by_target > 0)
        OCT_TRY(oct_text_add(
            text, "in %zu layers one scale for all, as the target wants; otherwise ", by_target));
    return oct_text_add(text, "one scale for each output channel, from the weights of each step\n");
}

static oct_status add_head(oct_text *text, const oct_graph *g)
{
    size_t nodes = 0, integers = 0, for_training = 0;
    for (size_t i = 0; i < g->num_nodes; i++) {
        const oct_graph_node *node = &g->nodes[i];
        if (oct_report_is_identity(node) || oct_report_is_stub(node)) continue;
        for_training += !node->in[OCT_MODE_EVALUATION];
        nodes += node->in[OCT_MODE_EVALUATION];
        integers += node->in[OCT_MODE_EVALUATION] && oct_report_in_integers(g, node);
    }
    OCT_TRY(oct_text_add(text,
                         "Check report of prepare\n\n  %-10s %s\n  %-10s %s: %s\n  %-10s %s: %s\n",
                         "model", g->root->type->name, "target", g->target->name, g->target->help,
                         "method", oct_method_name(g->method), method_words[g->method]));
    OCT_TRY(oct_text_add(text, "  %-10s %zu operations, %zu in integers, %zu in float\n", "outcome",
                         nodes, integers, nodes - integers));
    if (for_training > 0)
        OCT_TRY(oct_text_add(text, "  %-10s %zu more operations, which are not deployed\n",
                             "training", for_training));
    return add_weights(text, g);
}

static const char words[] =
    "\nWords\n\n"
    "  u8, u16      numbers kept as codes of 8 or 16 bits: real value = scale * (code - "
    "zero_point)\n"
    "  own range    the scale follows from the smallest and largest values that training sees "
    "here\n"
    "  shared with  tensors with one scale, so that numbers pass between them unchanged\n"
    "  part of      computed inside of the module that is named, without rounding in between\n";

oct_status oct_report_write(oct_text *text, const oct_module *root)
{
    const oct_graph *graph = oct_graph_of(root);
    OCT_CHECK(graph, OCT_USAGE, "the model is not prepared, so there is nothing to report");
    OCT_TRY(add_head(text, graph));
    OCT_TRY(oct_report_table(text, graph));
    OCT_TRY(oct_report_findings(text, graph));
    return oct_text_add(text, "%s", words);
}
