/* Questions that all parts of the check report ask about a node. */
#include "quant/module/rule.h"
#include "quant/prepare/report_impl.h"

#include <stdio.h>

const char *oct_report_anchor(const oct_graph_node *node, char text[OCT_ANCHOR_BYTES])
{
    char path[256];
    if (node->module)
        snprintf(text, OCT_ANCHOR_BYTES, "%s", oct_module_path(node->module, path));
    else if (node->called)
        snprintf(text, OCT_ANCHOR_BYTES, "%s", node->path);
    else
        snprintf(text, OCT_ANCHOR_BYTES, "%s%s%s()", node->path, node->path[0] ? "." : "",
                 node->op);
    return text;
}

const oct_graph_value *oct_report_output(const oct_graph *g, const oct_graph_node *node)
{
    return &g->values[node->output];
}

bool oct_report_in_integers(const oct_graph *g, const oct_graph_node *node)
{
    return node->action == OCT_NODE_RUN &&
           (node->wants == OCT_WANTS_CODES || oct_report_output(g, node)->codes);
}

bool oct_report_makes_class_numbers(const oct_graph_node *node)
{
    const oct_module_type *type = oct_module_type_find(node->op);
    const oct_quant_rule *rule = type ? oct_quant_rule_find(type) : NULL;
    return rule && rule->scale == OCT_SCALE_NONE;
}

bool oct_report_is_stub(const oct_graph_node *node)
{
    const oct_module_type *type = node->module ? node->module->type : NULL;
    return type == &oct_quant_stub_type || type == &oct_dequant_stub_type;
}

bool oct_report_is_identity(const oct_graph_node *node)
{
    return node->action == OCT_NODE_ALIAS ||
           (node->module && node->module->type == &oct_identity_type);
}

bool oct_report_is_fallback(const oct_graph *g, const oct_graph_node *node)
{
    if (node->action == OCT_NODE_ALIAS || oct_report_in_integers(g, node) ||
        oct_report_is_stub(node))
        return false;
    if (oct_report_output(g, node)->quantize || node->note) return true;
    for (int i = 0; i < node->num_inputs; i++)
        if (g->values[oct_graph_input(g, node, i, oct_graph_mode_of(node))].dequantize) return true;
    return false;
}
