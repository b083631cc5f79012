/* A histogram with the grid of its codes: which numbers have codes, and what lies outside. */
#pragma once

#include "launch/report/html.h"
#include "launch/report/layers.h"

/* Codes from low to high in steps of `step`; step not positive: no grid. */
typedef struct oct_code_grid {
    double low, high, step;
    double low_code, high_code; /* their numbers */
} oct_code_grid;

/* Draws it as a figure; heights are square roots of counts, so that tails can be seen. Nothing when there
 * is no histogram. */
void oct_page_histogram_draw(oct_html *html, const char *title, const oct_page_histogram *histogram,
                             const oct_code_grid *grid);
