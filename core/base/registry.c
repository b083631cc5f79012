/* Tables of things with names. */
#include "core/base/registry.h"

#include <stdio.h>
#include <string.h>

size_t oct_registry_count(const oct_registry *r)
{
    return r->num_listed + r->num_added;
}

const void *oct_registry_at(const oct_registry *r, size_t i)
{
    OCT_ASSERT(i < oct_registry_count(r));
    return i < r->num_listed ? r->listed[i] : r->added[i - r->num_listed];
}

static const char *item_name(const void *item)
{
    return *(const char *const *)item;
}

const char *oct_registry_name(const oct_registry *r, size_t i)
{
    return item_name(oct_registry_at(r, i));
}

size_t oct_registry_index(const oct_registry *r, const char *name)
{
    size_t i = 0;
    while (i < oct_registry_count(r) && strcmp(oct_registry_name(r, i), name) != 0)
        i++;
    return i;
}

const void *oct_registry_find(const oct_registry *r, const char *name)
{
    size_t i = oct_registry_index(r, name);
    return i < oct_registry_count(r) ? oct_registry_at(r, i) : NULL;
}

const char *oct_registry_nearest(const oct_registry *r, const char *word)
{
    const char *names[2 * OCT_REGISTRY_ADDED_MAX];
    size_t count = oct_registry_count(r);
    if (count > OCT_COUNT(names)) count = OCT_COUNT(names);
    for (size_t i = 0; i < count; i++)
        names[i] = oct_registry_name(r, i);
    return oct_nearest(word, names, count);
}

const char *oct_registry_choice(const oct_registry *r, const char *last,
                                char text[OCT_REGISTRY_CHOICE_BYTES])
{
    size_t used = 0, count = oct_registry_count(r);
    text[0] = '\0';
    for (size_t i = 0; i < count && used < OCT_REGISTRY_CHOICE_BYTES; i++)
        used += (size_t)snprintf(text + used, OCT_REGISTRY_CHOICE_BYTES - used, "%s%s",
                                 i == 0          ? ""
                                 : i + 1 < count ? ", "
                                                 : last,
                                 oct_registry_name(r, i));
    return text;
}

void oct_registry_report_missing(const oct_registry *r, const char *key, const char *wanted,
                                 const char *otherwise)
{
    const char *near = oct_registry_nearest(r, wanted), *article_end = strchr(r->what, ' ');
    (void)oct_fail_add(OCT_USAGE, "%s: there is no%s '%s'; %s%s%s", key, article_end, wanted,
                       near ? "did you mean '" : "", near ? near : otherwise, near ? "'?" : "");
}

oct_status oct_registry_add(oct_registry *r, const void *item)
{
    const void *same_name = oct_registry_find(r, item_name(item));
    if (same_name == item) return OCT_OK;
    OCT_CHECK(!same_name, OCT_USAGE, "there is %s '%s' already; give yours another name", r->what,
              item_name(item));
    OCT_CHECK(r->num_added < OCT_REGISTRY_ADDED_MAX, OCT_USAGE,
              "%s '%s' is one too many; plug-ins can add %d", r->what, item_name(item),
              OCT_REGISTRY_ADDED_MAX);
    r->added[r->num_added++] = item;
    return OCT_OK;
}
