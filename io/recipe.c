/* The table of keys made from the list file, and all that is only a walk over it. */
#include "io/recipe.h"

#include "core/base/mem.h"
#include "io/recipe_impl.h"

#include <inttypes.h>
#include <string.h>

const oct_key oct_keys[OCT_KEYS] = {
#define OCT_KEY(key, field, kind, def, min, max, allowed, same, help)                              \
    {key, OCT_KEY_##kind, offsetof(oct_recipe, field), def, min, max, allowed, same, help},
#include "io/recipe_list.def"
#undef OCT_KEY
};

size_t oct_key_section(const oct_key *key)
{
    const char *dot = strchr(key->name, '.');
    return dot ? (size_t)(dot - key->name) : 0;
}

const char *oct_key_word(const oct_key *key)
{
    const char *dot = strchr(key->name, '.');
    return dot ? dot + 1 : key->name;
}

void *oct_key_field(const oct_key *key, oct_recipe *recipe)
{
    return (char *)recipe + key->offset;
}

void oct_recipe_free(oct_recipe *recipe)
{
    for (size_t i = 0; i < OCT_KEYS; i++) {
        void *field = oct_key_field(&oct_keys[i], recipe);
        oct_list nothing = {0};
        if (oct_keys[i].kind == OCT_KEY_WORD || oct_keys[i].kind == OCT_KEY_TEXT) oct_free(field);
        if (oct_keys[i].kind == OCT_KEY_TEXTS) oct_key_take_list(&oct_keys[i], recipe, &nothing);
    }
    *recipe = (oct_recipe){0};
}

const char *oct_recipe_wide_key(const oct_recipe *recipe, int layer)
{
    bool by_table = layer >= recipe->quant_int16_layers.count - recipe->table_layers;
    return by_table ? "quant.sensitivity" : "quant.int16_layers";
}

static bool same_section(const oct_key *a, const oct_key *b)
{
    size_t length = oct_key_section(a);
    return length == oct_key_section(b) && strncmp(a->name, b->name, length) == 0;
}

/* "a, b" from "a|b". */
static oct_status add_words(oct_text *out, const char *allowed, const char *between)
{
    for (;;) {
        size_t length = strcspn(allowed, "|");
        OCT_TRY(oct_text_add(out, "%.*s", (int)length, allowed));
        if (allowed[length] == '\0') return OCT_OK;
        OCT_TRY(oct_text_add(out, "%s", between));
        allowed += length + 1;
    }
}

static oct_status add_padding(oct_text *out, size_t begin, size_t width)
{
    size_t used = out->length - begin;
    return oct_text_add(out, "%*s", used < width ? (int)(width - used) : 1, "");
}

static oct_status write_line(const oct_key *key, const oct_recipe *recipe, bool comment,
                             oct_text *out)
{
    enum { COMMENT_COLUMN = 36 };
    size_t begin = out->length;
    OCT_TRY(oct_text_add(out, "%s%s: ", oct_key_section(key) ? "  " : "", oct_key_word(key)));
    OCT_TRY(oct_key_print(key, recipe, out));
    if (comment) {
        OCT_TRY(add_padding(out, begin, COMMENT_COLUMN));
        OCT_TRY(oct_text_add(out, "# %s", key->help));
        if (key->allowed && strchr(key->allowed, '|')) {
            OCT_TRY(oct_text_add(out, " ("));
            OCT_TRY(add_words(out, key->allowed, ", "));
            OCT_TRY(oct_text_add(out, ")"));
        }
    }
    return oct_text_add(out, "\n");
}

/* Adds a line to `out` when the key's values differ: "optimizer.lr: 0.1 there, 0.2 here". */
static oct_status compare_key(const oct_key *key, const oct_recipe *there, const oct_recipe *here,
                              oct_text *out)
{
    oct_text a = {0}, b = {0};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_key_print(key, there, &a));
    OCT_TRY_OUT(oct_key_print(key, here, &b));
    if (strcmp(a.data, b.data) != 0)
        status = oct_text_add(out, "%s: %s there, %s here\n", key->name, a.data, b.data);
out:
    oct_text_free(&a);
    oct_text_free(&b);
    return status;
}

static oct_status has_default(const oct_key *key, const oct_recipe *recipe, bool *same)
{
    oct_recipe plain = {0};
    oct_text differs = {0};
    oct_status status = oct_key_reset(key, &plain);
    if (status == OCT_OK) status = compare_key(key, &plain, recipe, &differs);
    *same = differs.length == 0;
    oct_text_free(&differs);
    oct_recipe_free(&plain);
    return status;
}

/* Whether a key stands in the identity of this recipe. */
static oct_status in_identity(const oct_key *key, const oct_recipe *recipe, bool *in)
{
    *in = key->identity != 0;
    if (key->identity != 2) return OCT_OK;
    OCT_TRY(has_default(key, recipe, in));
    *in = !*in;
    return OCT_OK;
}

oct_status oct_recipe_write(const oct_recipe *recipe, bool only_identity, oct_text *out)
{
    const oct_key *before = &oct_keys[0];
    for (const oct_key *key = oct_keys; key < oct_keys + OCT_KEYS; key++) {
        bool wanted = true;
        if (only_identity) OCT_TRY(in_identity(key, recipe, &wanted));
        if (!wanted) continue;
        if (!same_section(before, key))
            OCT_TRY(oct_text_add(out, "%s%.*s:\n", only_identity ? "" : "\n",
                                 (int)oct_key_section(key), key->name));
        OCT_TRY(write_line(key, recipe, !only_identity, out));
        before = key;
    }
    return OCT_OK;
}

oct_status oct_recipe_list(const oct_recipe *recipe, oct_text *out)
{
    for (const oct_key *key = oct_keys; key < oct_keys + OCT_KEYS; key++) {
        OCT_TRY(oct_text_add(out, "%s: ", key->name));
        OCT_TRY(oct_key_print(key, recipe, out));
        OCT_TRY(oct_text_add(out, "\n"));
    }
    return OCT_OK;
}

oct_status oct_recipe_compare(const oct_recipe *there, const oct_recipe *here, oct_text *out)
{
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (oct_keys[i].identity) OCT_TRY(compare_key(&oct_keys[i], there, here, out));
    return OCT_OK;
}

static oct_status add_range(oct_text *out, const oct_key *key)
{
    switch (key->kind) {
    case OCT_KEY_COUNT:
        if ((int64_t)key->min == (int64_t)key->max)
            return oct_text_add(out, "%" PRId64, (int64_t)key->min);
        return oct_text_add(out, "%" PRId64 " to %" PRId64, (int64_t)key->min, (int64_t)key->max);
    case OCT_KEY_REAL:
        return oct_text_add(out, "%.15g to %.15g, real", key->min, key->max);
    case OCT_KEY_REALS:
        return oct_text_add(out, "list of %.15g to %.15g", key->min, key->max);
    case OCT_KEY_BOOL:
        return oct_text_add(out, "true, false");
    case OCT_KEY_WORD:
        return add_words(out, key->allowed, ", ");
    case OCT_KEY_TEXT:
        return oct_text_add(out, "text");
    case OCT_KEY_TEXTS:
        return oct_text_add(out, "list of texts");
    }
    return OCT_OK;
}

static oct_status help_line(oct_text *out, const oct_key *key)
{
    enum { RANGE = 28, DEFAULT = RANGE + 34, HELP = DEFAULT + 16 };
    size_t begin = out->length;
    const char *standard = !key->standard   ? "must be given"
                           : *key->standard ? key->standard
                                            : "\"\"";
    OCT_TRY(oct_text_add(out, "%s", key->name));
    OCT_TRY(add_padding(out, begin, RANGE));
    OCT_TRY(add_range(out, key));
    OCT_TRY(add_padding(out, begin, DEFAULT));
    OCT_TRY(oct_text_add(out, "%s", standard));
    OCT_TRY(add_padding(out, begin, HELP));
    return oct_text_add(out, "%s\n", key->help);
}

oct_status oct_recipe_help(oct_text *out)
{
    OCT_TRY(oct_text_add(out, "%-27s %-33s %-15s %s\n", "KEY", "VALUE", "DEFAULT", "MEANING"));
    for (size_t i = 0; i < OCT_KEYS; i++)
        OCT_TRY(help_line(out, &oct_keys[i]));
    return OCT_OK;
}
