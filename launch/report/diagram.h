/* A diagram is boxes and arrows: the program of an int8 model, or the graph of a prepared one, as JSON:
 *
 *     {"boxes": [{"kind": "weights", "lines": ["conv1", "conv 3x3 → 28×28×32", "u8, scale 0.03, zero 0"]}, ...],
 *      "arrows": [{"from": 0, "to": 1, "codes": true, "note": "quantize"}, ...], "left_out": 0}
 *
 * Boxes are in the order in which they run. Kinds: "weights" (it has some), "border" (where codes begin and end;
 * inputs), "float" (it stays float between integers), "plain". An arrow of codes, not of floats, has `codes`; `note`
 * is what happens on the way. Arrows lead from an earlier box to a later one. */
#pragma once

#include "core/base/text.h"
#include "quant/graph/graph.h"
#include "quant/program/program.h"

#include <jansson.h>

/* Draws at most `limit` steps of a program that has passed its check. */
oct_status oct_diagram_of_program(const oct_program *program, size_t limit, json_t **diagram);
/* Writes the diagram of a prepared graph (what runs, with what was fused into it) or, where it is NULL, of a program in
 * the language of Graphviz. */
oct_status oct_diagram_write_dot(const oct_graph *graph, const oct_program *program,
                                 oct_text *text);
