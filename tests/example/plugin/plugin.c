/* What the plug-in brings, and the one function that says so. */
#include "example.h"

static const oct_plugin plugin = {
    .abi = OCT_PLUGIN_ABI,
    .name = "example",
    .modules = (const oct_module_spec *[]){&channel_gate, NULL},
    .observers = (const oct_observer *[]){&shrunk_observer, NULL},
    .fake_quants = (const oct_fake_quant_kind *[]){&leaky_fake_quant, NULL},
    .models =
        (const oct_model_spec *[]){&gated_net_model, &numbered_net_model, &paired_net_model, NULL},
};

const oct_plugin *oct_plugin_entry(void)
{
    return &plugin;
}
