/* A registry is a table of things with names: those of this program's list, then those that plug-ins add
 * at the start of the process. Whatever they are, their structs begin with the name, a const char *.
 * A table that nothing is added to has an enum beside it, made from the same list: thing i belongs to
 * value i. */
#pragma once

#include "core/base/text.h"

enum { OCT_REGISTRY_ADDED_MAX = 64, OCT_REGISTRY_CHOICE_BYTES = 256 };

typedef struct oct_registry {
    const char *what; /* "a model": for messages */
    const void *const *listed;
    size_t num_listed, num_added;
    const void *added[OCT_REGISTRY_ADDED_MAX];
} oct_registry;

/* The initializer of a registry over an array of pointers. */
#define OCT_REGISTRY(about, things)                                                                \
    {                                                                                              \
        .what = (about), .listed = (things), .num_listed = OCT_COUNT(things)                       \
    }
/* Values that have nothing but a name come from a list macro of X(id, word), which these two make into
 * the enum's constants and into such an array. */
#define OCT_WORD_ID(id, word) id,
#define OCT_WORD_ITEM(id, word) (&(const char *const){word}),

size_t oct_registry_count(const oct_registry *r);
const void *oct_registry_at(const oct_registry *r, size_t i);
const char *oct_registry_name(const oct_registry *r, size_t i);
const void *oct_registry_find(const oct_registry *r, const char *name); /* NULL */
/* Returns the index of the thing of this name; the count when there is none. */
size_t oct_registry_index(const oct_registry *r, const char *name);
/* The name that is nearest to a word (oct_nearest); NULL when none is near. */
const char *oct_registry_nearest(const oct_registry *r, const char *word);
/* All names into text: "a, b or c" with `last` " or ". Returns text. */
const char *oct_registry_choice(const oct_registry *r, const char *last,
                                char text[OCT_REGISTRY_CHOICE_BYTES]);
/* Adds a problem to the record (OCT_USAGE): "KEY: there is no model 'x'; did you mean 'y'?", or `otherwise`
 * in place of the question where no name is near. */
void oct_registry_report_missing(const oct_registry *r, const char *key, const char *wanted,
                                 const char *otherwise);
/* `item` lives as long as the process; adding it twice is fine. OCT_USAGE when another one has its name
 * or the table is full. */
oct_status oct_registry_add(oct_registry *r, const void *item);
