/* The table of fake-quant kinds, from its list and from plug-ins. */
#include "quant/module/fake_quant_kind.h"

static const void *const listed[] = {
#define OCT_FAKE_QUANT_KIND(file) &oct_fake_quant_##file,
#include "quant/module/fake_quant_kind_list.def"
#undef OCT_FAKE_QUANT_KIND
};
oct_registry oct_fake_quant_kind_table = OCT_REGISTRY("a fake-quant", listed);

const oct_fake_quant_kind *oct_fake_quant_kind_find(const char *name)
{
    return oct_registry_find(&oct_fake_quant_kind_table, name);
}

oct_status oct_fake_quant_kind_register(const oct_fake_quant_kind *kind)
{
    return oct_registry_add(&oct_fake_quant_kind_table, kind);
}
