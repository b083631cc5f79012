/* The table of fake-quant kinds, from its list and from plug-ins. */
#include "quant/module/fake_quant_kind.h"

#include "core/base/registry.h"

static const void *const listed[] = {
#define OCT_FAKE_QUANT_KIND(id, file) &oct_fake_quant_##file,
#include "quant/module/fake_quant_kind_list.def"
#undef OCT_FAKE_QUANT_KIND
};
static oct_registry kinds = {
    .what = "a fake-quant", .listed = listed, .num_listed = OCT_COUNT(listed)};

size_t oct_fake_quant_kind_count(void)
{
    return oct_registry_count(&kinds);
}

const oct_fake_quant_kind *oct_fake_quant_kind_at(size_t i)
{
    return oct_registry_at(&kinds, i);
}

const oct_fake_quant_kind *oct_fake_quant_kind_find(const char *name)
{
    return oct_registry_find(&kinds, name);
}

oct_status oct_fake_quant_kind_register(const oct_fake_quant_kind *kind)
{
    return oct_registry_add(&kinds, kind);
}
