/* What prepare did, for people. */
#pragma once

#include "quant/pass/graph/graph.h"

/* The check report (model_check_result.txt): what was prepared and for what target, a line a module
 * with its fusion, quantizers, type and target support, then findings, each in words a newcomer
 * understands: unfused batch norm, float islands and why, shared modules, modules never called,
 * hooks moved or dropped, ranges fixed. */
oct_status oct_report_write(oct_text *text, const oct_module *root) OCT_NODISCARD;
/* The module tree with its fake-quants: state, observer, type, scheme, range, scale, zero_point. */
oct_status oct_tree_write(oct_text *text, const oct_module *root) OCT_NODISCARD;
