/* The table of fake-quant kinds, from its list and from plug-ins. */
#include "quant/module/fake_quant_kind.h"

#include <string.h>

static const oct_fake_quant_kind *const kinds[] = {
#define OCT_FAKE_QUANT_KIND(id, file) &oct_fake_quant_##file,
#include "quant/module/fake_quant_kind_list.def"
#undef OCT_FAKE_QUANT_KIND
};

enum { ADDED_MAX = 64 };
static const oct_fake_quant_kind *added[ADDED_MAX];
static size_t num_added;

size_t oct_fake_quant_kind_count(void)
{
    return OCT_COUNT(kinds) + num_added;
}

const oct_fake_quant_kind *oct_fake_quant_kind_at(size_t i)
{
    OCT_ASSERT(i < oct_fake_quant_kind_count());
    return i < OCT_COUNT(kinds) ? kinds[i] : added[i - OCT_COUNT(kinds)];
}

const oct_fake_quant_kind *oct_fake_quant_kind_find(const char *name)
{
    for (size_t i = 0; i < oct_fake_quant_kind_count(); i++)
        if (strcmp(oct_fake_quant_kind_at(i)->name, name) == 0) return oct_fake_quant_kind_at(i);
    return NULL;
}

oct_status oct_fake_quant_kind_register(const oct_fake_quant_kind *kind)
{
    const oct_fake_quant_kind *there = oct_fake_quant_kind_find(kind->name);
    if (there == kind) return OCT_OK;
    OCT_CHECK(!there, OCT_USAGE, "there is a fake-quant '%s' already; give yours another name",
              kind->name);
    OCT_CHECK(num_added < ADDED_MAX, OCT_USAGE, "fake-quant '%s': plug-ins can add %d at most",
              kind->name, ADDED_MAX);
    added[num_added++] = kind;
    return OCT_OK;
}
