/* What the sources of the recipe share. Each calls only those above it here:
 *
 * recipe_value.c   one value: from text, to text
 * recipe.c         the table of keys, their names and sections; a mistake with its place; the recipe as text, its help
 * recipe_keys.c    keys that do not go together, and what follows from several keys
 * recipe_read.c    YAML and command line
 */
#pragma once

#include "io/recipe/recipe.h"

typedef struct oct_key {
    const char *name; /* "seed", "data.path": at most one dot */
    oct_key_kind kind;
    size_t offset;            /* of its field */
    const char *default_text; /* the default, as in a recipe; NULL: must be given */
    double min, max;
    const oct_registry *table; /* of WORD and NAME */
    int identity;              /* see recipe_list.def */
    const char *help;
} oct_key;

enum {
#define OCT_KEY(key, field, kind, def, min, max, table, same, help) OCT_KEY_AT_##field,
#include "io/recipe/recipe_list.def"
#undef OCT_KEY
    OCT_KEYS
};

extern const oct_key oct_keys[OCT_KEYS];

/* Returns the length of "data" in "data.path"; 0 for a key outside of sections. */
size_t oct_key_section(const oct_key *key);
/* Returns "path" of "data.path". */
const char *oct_key_short_name(const oct_key *key);
/* Is the key in the section of this name (length 0: outside of sections)? */
bool oct_key_in_section(const oct_key *key, const char *name, size_t length);
const oct_key *oct_key_find(const char *name); /* NULL */
/* Finds the first key of the section, or NULL when there is no such section. */
const oct_key *oct_section_find(const char *name, size_t length);

/* A value as it is written in a file or on the command line. plain: without quotes. */
typedef struct oct_scalar {
    const char *text; /* NUL after */
    size_t length;
    bool plain;
} oct_scalar;

/* What is wrong with a value, and the remedy; empty when nothing is. */
typedef struct oct_flaw {
    char text[OCT_RECIPE_HINT_BYTES];
} oct_flaw;

/* Writes "allowed in 'data': format, path", or nothing when there is no such section. */
void oct_section_list(const char *name, size_t length, oct_flaw *out);

/* Sets the field from the text, or fills the flaw and leaves the field. Fails on memory only. */
oct_status oct_key_parse(const oct_key *key, oct_recipe *recipe, const oct_scalar *value,
                         oct_flaw *flaw);
/* A list while it is read: of numbers or of texts, as the key's kind says. */
typedef struct oct_list {
    int count;
    oct_reals reals;
    oct_texts texts;
} oct_list;
/* Adds one item to a list of the key's kind, or fills the flaw. Fails on memory only. */
oct_status oct_key_parse_item(const oct_key *key, oct_list *list, const oct_scalar *item,
                              oct_flaw *flaw);
/* Hands the list over to the field. */
void oct_key_take_list(const oct_key *key, oct_recipe *recipe, oct_list *list);
void oct_texts_free(oct_texts *list);
oct_status oct_key_reset(const oct_key *key, oct_recipe *recipe); /* the default */
oct_status oct_key_has_default(const oct_key *key, const oct_recipe *recipe, bool *same);

static inline void *oct_key_field(const oct_key *key, oct_recipe *recipe)
{
    return (char *)recipe + key->offset;
}
/* Prints the value as a recipe would have it; reading that text gives the same value. */
oct_status oct_key_print(const oct_key *key, const oct_recipe *recipe, oct_text *out);
/* Says what a value must be: "a whole number from 1 to 256", "true or false"; in short, for help:
 * "1 to 256", "true, false". */
const char *oct_key_expects(const oct_key *key, bool short_form, oct_flaw *text);

/* Where something was given, for messages. Lines and columns count from 1. */
typedef struct oct_recipe_position {
    enum { OCT_GIVEN_NOWHERE, OCT_GIVEN_IN_FILE, OCT_GIVEN_IN_COMMAND } kind;
    size_t line, column, width;
    const char *override; /* the argument */
} oct_recipe_position;

/* What a recipe is read from, and what became of each key. */
typedef struct oct_recipe_source {
    const char *file;       /* its name, for messages */
    const char *text, *end; /* of the file */
    oct_recipe_position given[OCT_KEYS];
    bool bad[OCT_KEYS]; /* its value was refused, so nothing follows from it */
} oct_recipe_source;

/* Adds a problem: where, what and the remedy; below it the line of the file and `more` (may be NULL). */
void oct_recipe_report(const oct_recipe_source *s, const oct_recipe_position *p, const char *more,
                       const char *format, ...) OCT_PRINTF(4, 5);
/* Adds a problem of one key (a == b) or of two, where they were given: the command line counts first. Adds nothing
 * where the value of one of them was refused. */
void oct_recipe_report_keys(const oct_recipe_source *s, size_t a, size_t b, const char *format, ...)
    OCT_PRINTF(4, 5);
/* Finds where a line of the file begins. */
const char *oct_recipe_line(const oct_recipe_source *s, size_t line);
/* Returns the bytes of the line break at `at`, of any kind that YAML knows; 0: there is none. */
size_t oct_recipe_break_bytes(const char *at, const char *end);

/* Judges keys together, after all of them were read: reports what does not go together, and adds what follows
 * from several. Fails on memory and files only. */
oct_status oct_recipe_check_keys(oct_recipe_source *s, oct_recipe *recipe);
