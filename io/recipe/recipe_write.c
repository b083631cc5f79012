/* A recipe is written, listed, compared and explained as text. */
#include "io/recipe/recipe.h"

#include "io/recipe/recipe_impl.h"

#include <string.h>

static oct_status add_padding(oct_text *out, size_t begin, size_t width)
{
    size_t used = out->length - begin;
    return oct_text_add(out, "%*s", used < width ? (int)(width - used) : 1, "");
}

/* Adds the meaning of a key; of a NAME with the names that need no plug-in. */
static oct_status add_help(oct_text *out, const oct_key *key)
{
    OCT_TRY(oct_text_add(out, "%s", key->help));
    if (key->kind != OCT_KEY_NAME) return OCT_OK;
    for (size_t i = 0; i < key->table->num_listed; i++)
        OCT_TRY(oct_text_add(out, "%s%s", i ? ", " : ": ", oct_registry_name(key->table, i)));
    return oct_text_add(out, ", or a plug-in's");
}

static oct_status write_line(const oct_key *key, const oct_recipe *recipe, bool comment,
                             oct_text *out)
{
    enum { COMMENT_COLUMN = 36 };
    size_t begin = out->length;
    char words[OCT_REGISTRY_CHOICE_BYTES];
    OCT_TRY(oct_text_add(out, "%s%s: ", oct_key_section(key) ? "  " : "", oct_key_short_name(key)));
    OCT_TRY(oct_key_print(key, recipe, out));
    if (comment) {
        OCT_TRY(add_padding(out, begin, COMMENT_COLUMN));
        OCT_TRY(oct_text_add(out, "# "));
        OCT_TRY(add_help(out, key));
        if (key->kind == OCT_KEY_WORD)
            OCT_TRY(oct_text_add(out, " (%s)", oct_registry_choice(key->table, ", ", words)));
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

oct_status oct_key_has_default(const oct_key *key, const oct_recipe *recipe, bool *same)
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

/* Whether a key can change a bit of what this recipe gives. Evaluations decide where there is a best one. */
static bool is_compared(const oct_key *key, const oct_recipe *recipe)
{
    if (key == &oct_keys[OCT_KEY_AT_evaluate_every]) return recipe->evaluate_best[0] != '\0';
    return key->identity != 0;
}

oct_status oct_recipe_write(const oct_recipe *recipe, bool only_identity, oct_text *out)
{
    const oct_key *before = &oct_keys[0];
    for (const oct_key *key = oct_keys; key < oct_keys + OCT_KEYS; key++) {
        bool is_default = false;
        if (only_identity && !is_compared(key, recipe)) continue;
        if (only_identity && key->identity == 2)
            OCT_TRY(oct_key_has_default(key, recipe, &is_default));
        if (is_default) continue;
        if (!oct_key_in_section(key, before->name, oct_key_section(before)))
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
        if (is_compared(&oct_keys[i], here)) OCT_TRY(compare_key(&oct_keys[i], there, here, out));
    return OCT_OK;
}

static oct_status help_line(oct_text *out, const oct_key *key)
{
    enum { RANGE = 28, DEFAULT = RANGE + 34, HELP = DEFAULT + 16 };
    size_t begin = out->length;
    oct_flaw values;
    const char *standard = !key->standard   ? "must be given"
                           : *key->standard ? key->standard
                                            : "\"\"";
    OCT_TRY(oct_text_add(out, "%s", key->name));
    OCT_TRY(add_padding(out, begin, RANGE));
    OCT_TRY(oct_text_add(out, "%s", oct_key_expects(key, true, &values)));
    OCT_TRY(add_padding(out, begin, DEFAULT));
    OCT_TRY(oct_text_add(out, "%s", standard));
    OCT_TRY(add_padding(out, begin, HELP));
    OCT_TRY(add_help(out, key));
    return oct_text_add(out, "\n");
}

oct_status oct_recipe_help(const char *name, oct_text *out)
{
    const bool known = !name || oct_key_find(name) || oct_section_find(name, strlen(name));
    if (!known) return OCT_OK;
    OCT_TRY(oct_text_add(out, "%-27s %-33s %-15s %s\n", "KEY", "VALUE", "DEFAULT", "MEANING"));
    for (const oct_key *key = oct_keys; key < oct_keys + OCT_KEYS; key++)
        if (!name || strcmp(key->name, name) == 0 || oct_key_in_section(key, name, strlen(name)))
            OCT_TRY(help_line(out, key));
    return name ? OCT_OK : oct_augment_help(out);
}
