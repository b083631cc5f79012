/* A meter shows people how far a long command is: one bar on a terminal, a plain line now and then elsewhere.
 * What is done before the first line is due shows nothing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct oct_meter {
    const char *work, *unit; /* "evaluate", "images"; borrowed */
    int64_t total;
    double begin, shown;
} oct_meter;

/* Sets what --progress asks for: bar, lines, none; NULL: a bar on a terminal. */
void oct_meter_choose(const char *choice);
void oct_meter_begin(oct_meter *meter, const char *work, const char *unit, int64_t total);
/* Shows the line of progress, `done` of the total; calls that come too soon after the last line do nothing. */
void oct_meter_show(oct_meter *meter, int64_t done);
/* Takes the bar away, before results are printed. */
void oct_meter_end(const oct_meter *meter);

/* Shows one line of progress: drawn over one line of the terminal that the next one replaces, or else as a line of the
 * log. share: what is done, from 0 to 1. */
void oct_meter_line(bool drawn, double share, double seconds_left, const char *text);

/* Whether a person watches: true for a terminal at stderr. Under mpirun a rank's own streams do not show that, so
 * its parent's stderr is looked at, when the parent is on this host. */
bool oct_progress_terminal(void);
/* Whether progress is a bar by this choice. */
bool oct_progress_bar(const char *choice);
/* The seconds between two looks at it: those that lines have, or fewer. */
double oct_progress_every(const char *choice, double lines_s);

typedef struct oct_short_text {
    char text[32];
} oct_short_text;
oct_short_text oct_text_count(int64_t value); /* 1234567 -> "1,234,567" */
oct_short_text oct_text_time(double seconds); /* 75 seconds -> "1:15", 3675 -> "1:01:15" */
