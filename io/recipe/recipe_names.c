/* Names of keys and of their sections are found here, or what may have been meant. */
#include "io/recipe/recipe_impl.h"

#include <stdio.h>
#include <string.h>

const oct_key *oct_key_find(const char *name)
{
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (strcmp(oct_keys[i].name, name) == 0) return &oct_keys[i];
    return NULL;
}

bool oct_key_in_section(const oct_key *key, const char *name, size_t length)
{
    return oct_key_section(key) == length && strncmp(key->name, name, length) == 0;
}

const oct_key *oct_section_find(const char *name, size_t length)
{
    for (size_t i = 0; length > 0 && i < OCT_KEYS; i++)
        if (oct_key_in_section(&oct_keys[i], name, length)) return &oct_keys[i];
    return NULL;
}

static bool opens_section(const oct_key *key)
{
    size_t length = oct_key_section(key);
    return length > 0 && oct_section_find(key->name, length) == key;
}

void oct_key_suggest(const char *name, oct_flaw *out)
{
    oct_shown sections[OCT_KEYS];
    const char *names[2 * OCT_KEYS], *near = NULL;
    const char *dot = strchr(name, '.'), *word = dot ? dot + 1 : name;
    size_t length = dot ? (size_t)(dot - name) : 0, count = 0, used = 0;
    out->text[0] = '\0';

    for (size_t i = 0; i < OCT_KEYS; i++)
        if (oct_key_in_section(&oct_keys[i], name, length))
            names[count++] = oct_key_short_name(&oct_keys[i]);
    for (size_t i = 0; length == 0 && i < OCT_KEYS; i++)
        if (opens_section(&oct_keys[i])) {
            sections[i] = oct_show(oct_keys[i].name, oct_key_section(&oct_keys[i]));
            names[count++] = sections[i].text;
        }
    near = oct_nearest(word, names, count);
    if (near) {
        snprintf(out->text, sizeof out->text, "; did you mean '%.*s%s'?",
                 (int)(length ? length + 1 : 0), name, near);
        return;
    }
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (strcmp(oct_key_short_name(&oct_keys[i]), word) == 0)
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s'%s'",
                                     used ? " or " : "; did you mean ", oct_keys[i].name);
    if (used) {
        snprintf(out->text + used, sizeof out->text - used, "?");
        return;
    }
    for (size_t i = 0; i < OCT_KEYS; i++)
        names[i] = oct_keys[i].name;
    near = oct_nearest(name, names, OCT_KEYS);
    if (near) snprintf(out->text, sizeof out->text, "; did you mean '%s'?", near);
}

void oct_recipe_suggest(const char *name, char text[OCT_HINT_BYTES])
{
    oct_flaw near;
    oct_key_suggest(name, &near);
    snprintf(text, OCT_HINT_BYTES, "%.*s", OCT_HINT_BYTES - 1, near.text);
}

void oct_section_list(const char *name, size_t length, oct_flaw *out)
{
    size_t used = 0;
    out->text[0] = '\0';
    if (!oct_section_find(name, length)) return;
    used = (size_t)snprintf(out->text, sizeof out->text, "allowed in '%.*s':", (int)length, name);
    const char *between = " ";
    for (size_t i = 0; i < OCT_KEYS && used < sizeof out->text; i++)
        if (oct_key_in_section(&oct_keys[i], name, length)) {
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%s", between,
                                     oct_key_short_name(&oct_keys[i]));
            between = ", ";
        }
}
