/* Says what prepare did, for people. */
#pragma once

#include "quant/graph/graph.h"

/* Writes the check report (model_check_result.txt): what was prepared and for what target, a line
 * for each call site with its module, fusion and quantizer, then findings, each in words that a
 * newcomer understands: unfused batch norm, float fallbacks and why, shared modules, modules never
 * called, hooks dropped, ranges fixed. */
oct_status oct_report_write(oct_text *text, const oct_module *root);
/* Writes the module tree with its fake-quants: state, observer, type, scheme, range, scale,
 * zero_point. */
oct_status oct_tree_write(oct_text *text, const oct_module *root);

/* For the parts of the check report: questions about one node of a prepared graph. */

/* The anchor of a line: "layer1.conv", or "layer1.add()" of an op. */
oct_call_name oct_report_anchor(const oct_graph_node *node);

/* Whether the node reads or makes codes. */
bool oct_report_in_integers(const oct_graph *g, const oct_graph_node *node);
bool oct_report_makes_class_numbers(const oct_graph_node *node);
bool oct_report_is_stub(const oct_graph_node *node);
/* Whether the node computes nothing: it was fused into another one, or its module is an
 * identity. */
bool oct_report_is_identity(const oct_graph_node *node);

/* Writes the findings of the check report, a numbered sentence each (report_findings.c). */
oct_status oct_report_findings(oct_text *text, const oct_graph *g);
