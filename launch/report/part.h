/* A part of a report, and what parts share. */
#pragma once

#include "launch/report/html.h"
#include "launch/report/page_run.h"

enum { OCT_PAGE_RUNS = 2 };

/* How much is drawn at most; a report that would be too large is written again with half of it. */
typedef struct oct_page_limits {
    size_t layers; /* with histograms */
    size_t steps;  /* of the graph */
    size_t rows;   /* of a table */
    size_t images;
    size_t text; /* bytes of a file that is shown as it is */
} oct_page_limits;

typedef struct oct_page {
    oct_html html;
    oct_page_run run[OCT_PAGE_RUNS];
    int runs;
    oct_page_limits limits;
} oct_page;

typedef struct oct_page_part {
    const char *id, *title;
    void (*write)(oct_page *r);
    int least_runs; /* what compares runs needs two */
} oct_page_part;

#define OCT_PAGE_PART(name) extern const oct_page_part oct_page_part_##name;
#include "launch/report/part_list.def"
#undef OCT_PAGE_PART

/* The run's name; of two runs with the same name their folders. */
const char *oct_page_title(const oct_page *r, const oct_page_run *run);
/* "A" or "B". */
const char *oct_page_letter(int run);
/* Calls `write` for each run, below a heading of its own where there are two. */
void oct_page_each(oct_page *r, void (*write)(oct_page *r, const oct_page_run *run));
/* Says in a line why a file has nothing to show, or is damaged; nothing when it is whole. */
void oct_page_say_why(oct_page *r, const oct_page_run *run, oct_run_file file);
/* Writes a line about something that is not there. */
void oct_page_missing(oct_page *r, const char *sentence);

/* Opens a table in a box of its own, in which a narrow page scrolls it. `columns`: "phase|images#": a # at
 * the end is for numbers, which stand right. Close it with oct_page_table_end. */
void oct_page_table(oct_page *r, const char *caption, const char *columns);
void oct_page_table_end(oct_page *r);
/* Cells of numbers; not a number is a dash. */
void oct_page_cell(oct_page *r, double value);
void oct_page_count_cell(oct_page *r, double value); /* with commas */
/* Shows a text as it is, closed at first, and cut to limits.text. */
void oct_page_file(oct_page *r, const char *summary, const char *text);
/* The number at a key of a record; NAN: there is none. */
double oct_page_number(const json_t *record, const char *key);
/* A value of a JSON document as text: words of lists one behind the other. */
void oct_page_json(oct_page *r, const json_t *value);
