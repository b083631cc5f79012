/* A diagram is boxes and arrows: the program of an int8 model, or the graph of a prepared one. */
#pragma once

#include "launch/report/html.h"
#include "quant/graph/graph.h"
#include "quant/program/program.h"

enum { OCT_BOX_LINES = 3 };

typedef enum oct_box_kind {
    OCT_BOX_PLAIN,
    OCT_BOX_WEIGHTS, /* it has weights */
    OCT_BOX_BORDER,  /* where codes begin and end; inputs and outputs */
    OCT_BOX_ISLAND,  /* it stays float between integers */
} oct_box_kind;

typedef struct oct_diagram_box {
    oct_box_kind kind;
    char *line[OCT_BOX_LINES]; /* name, what it is, its codes; owned, NULL at the end */
} oct_diagram_box;

typedef struct oct_diagram_arrow {
    size_t from, to;
    bool codes;       /* codes go along it, not floats */
    const char *note; /* "quantize": what happens on the way; static, or NULL */
} oct_diagram_arrow;

/* Arrows lead from an earlier box to a later one, but for those of loops. */
typedef struct oct_diagram {
    oct_diagram_box *box;
    size_t boxes, box_capacity;
    oct_diagram_arrow *arrow;
    size_t arrows, arrow_capacity;
    size_t left_out; /* boxes beyond the limit */
} oct_diagram;

/* The program of a model that has passed its check; at most `limit` steps of it. */
oct_status oct_diagram_of_program(oct_diagram *diagram, const oct_program *program,
                                  size_t limit) OCT_NODISCARD;
/* The prepared graph: what runs, with what was fused into it. */
oct_status oct_diagram_of_graph(oct_diagram *diagram, const oct_graph *graph) OCT_NODISCARD;
void oct_diagram_free(oct_diagram *diagram);

/* Draws it in layers from top to bottom, as one SVG. */
void oct_diagram_draw(const oct_diagram *diagram, const char *title, oct_html *html);
/* Writes it in the language of Graphviz. */
oct_status oct_diagram_dot(const oct_diagram *diagram, oct_text *text) OCT_NODISCARD;
