/* What the parts of the check report share: questions about one node of a prepared graph. */
#pragma once

#include "quant/graph/graph.h"

/* The anchor of a line: "layer1.conv", or "layer1.add()" of an op. Returns text. */
enum { OCT_ANCHOR_BYTES = 320 };
const char *oct_report_anchor(const oct_graph_node *node, char text[OCT_ANCHOR_BYTES]);

const oct_graph_value *oct_report_output(const oct_graph *g, const oct_graph_node *node);
/* Whether the node reads or makes codes. */
bool oct_report_in_integers(const oct_graph *g, const oct_graph_node *node);
bool oct_report_makes_class_numbers(const oct_graph_node *node);
bool oct_report_is_stub(const oct_graph_node *node);
/* Whether the node computes nothing: it was fused into another one, or its module is an
 * identity. */
bool oct_report_is_identity(const oct_graph_node *node);
/* Whether the node is a float operation in the middle of integers. */
bool oct_report_is_fallback(const oct_graph *g, const oct_graph_node *node);

/* The two large parts of the report. */
oct_status oct_report_table(oct_text *text, const oct_graph *g) OCT_NODISCARD;
oct_status oct_report_findings(oct_text *text, const oct_graph *g) OCT_NODISCARD;
