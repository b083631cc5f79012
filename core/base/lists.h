/* Lists of numbers and of texts, as a recipe has them. */
#pragma once

enum { OCT_REALS_MAX = 1024, OCT_TEXTS_MAX = 256 };

typedef struct oct_reals {
    int count;
    double value[OCT_REALS_MAX];
} oct_reals;

typedef struct oct_texts {
    int count;
    char *value[OCT_TEXTS_MAX]; /* owned */
} oct_texts;
