/* A list of numbers, as a recipe has them. */
#pragma once

enum { OCT_REALS_MAX = 1024 };

typedef struct oct_reals {
    int count;
    double value[OCT_REALS_MAX];
} oct_reals;
