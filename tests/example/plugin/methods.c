/* What the plug-in brings, and the one function that says so. */
#include "methods.h"

static const oct_plugin plugin = {
    .abi = OCT_PLUGIN_ABI,
    .name = "methods",
    .observers = (const oct_observer *[]){&common_values_observer, NULL},
    .fake_quants = (const oct_fake_quant_kind *[]){&lsq_fake_quant, &lsq_tensor_fake_quant,
                                                   &lsq_asymmetric_fake_quant, NULL},
};

const oct_plugin *oct_plugin_entry(void)
{
    return &plugin;
}
