/* What the sources of the recipe share: the table of keys, and one key's value as text.
 *
 * recipe.c        the table, writing, comparing, help
 * recipe_value.c  one value: from text, to text
 * recipe_read.c   YAML and command line, with all their mistakes
 * recipe_keys.c   keys that do not go together, and what follows from several keys
 */
#pragma once

#include "io/recipe.h"

typedef struct oct_key {
    const char *name; /* "seed", "data.path": at most one dot */
    oct_key_kind kind;
    size_t offset;        /* of its field */
    const char *standard; /* the default, as in a recipe; NULL: must be given */
    double min, max;
    const char *allowed;
    int identity; /* see recipe_list.def */
    const char *help;
} oct_key;

enum {
#define OCT_KEY(key, field, kind, def, min, max, allowed, same, help) OCT_KEY_AT_##field,
#include "io/recipe_list.def"
#undef OCT_KEY
    OCT_KEYS
};

extern const oct_key oct_keys[OCT_KEYS];

/* Length of "data" in "data.path"; 0 for a key outside of sections. */
size_t oct_key_section(const oct_key *key);
/* "path" of "data.path". */
const char *oct_key_word(const oct_key *key);

/* A value as it stands in a file or on the command line. plain: without quotes. */
typedef struct oct_scalar {
    const char *text; /* NUL behind */
    size_t length;
    bool plain;
} oct_scalar;

/* What is wrong with a value, and the remedy; empty when nothing is. */
typedef struct oct_flaw {
    char text[640];
} oct_flaw;

/* Sets the field from the text, or fills the flaw and leaves the field. Fails on memory only. */
oct_status oct_key_parse(const oct_key *key, oct_recipe *recipe, const oct_scalar *value,
                         oct_flaw *flaw) OCT_NODISCARD;
/* A list while it is read: of numbers or of texts, as the key's kind says. */
typedef struct oct_list {
    int count;
    oct_reals reals;
    oct_texts texts;
} oct_list;
bool oct_key_is_list(const oct_key *key);
/* Adds one item to a list of the key's kind, or fills the flaw. Fails on memory only. */
oct_status oct_key_parse_item(const oct_key *key, oct_list *list, const oct_scalar *item,
                              oct_flaw *flaw) OCT_NODISCARD;
/* Hands the list over to the field. */
void oct_key_take_list(const oct_key *key, oct_recipe *recipe, oct_list *list);
void oct_list_free(oct_list *list);
oct_status oct_key_reset(const oct_key *key, oct_recipe *recipe) OCT_NODISCARD; /* the default */
bool oct_scalar_is_null(const oct_scalar *value);

void *oct_key_field(const oct_key *key, oct_recipe *recipe);
/* The value as it would stand in a recipe; reading that text gives the same value. */
oct_status oct_key_print(const oct_key *key, const oct_recipe *recipe, oct_text *out) OCT_NODISCARD;
/* "a whole number from 1 to 256", "true or false". */
const char *oct_key_expects(const oct_key *key, oct_flaw *text);

/* Keys together, after all of them were read: reports what does not go together, and adds what follows
 * from several. Fails on memory only. */
typedef struct oct_recipe_reader oct_recipe_reader;
oct_status oct_recipe_check_keys(const oct_recipe_reader *r, oct_recipe *recipe) OCT_NODISCARD;
bool oct_key_bad(const oct_recipe_reader *r, size_t key);   /* its value was refused */
bool oct_key_given(const oct_recipe_reader *r, size_t key); /* not left to its default */
/* A problem of one key (a == b) or of two, at the place where they were given. */
void oct_keys_report(const oct_recipe_reader *r, size_t a, size_t b, const char *format, ...)
    OCT_PRINTF(4, 5);

/* The character at `text` (below `end`) and its bytes, or -1 when it is not UTF-8. */
int32_t oct_utf8(const char *text, const char *end, size_t *bytes);
/* A word of the user's for a message: control characters masked, cut to a readable length. */
typedef struct oct_shown {
    char text[72];
} oct_shown;
oct_shown oct_show(const char *text, size_t length);
