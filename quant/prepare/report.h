/* Says what prepare did, for people. */
#pragma once

#include "quant/graph/graph.h"

/* Writes the check report (model_check_result.txt): what was prepared and for what target, a line
 * for each call site with its module, fusion and quantizer, then findings, each in words that a
 * newcomer understands: unfused batch norm, float fallbacks and why, shared modules, modules never
 * called, hooks dropped, ranges fixed. */
oct_status oct_report_write(oct_text *text, const oct_module *root) OCT_NODISCARD;
/* Writes the module tree with its fake-quants: state, observer, type, scheme, range, scale,
 * zero_point. */
oct_status oct_tree_write(oct_text *text, const oct_module *root) OCT_NODISCARD;
