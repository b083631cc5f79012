/* What the plug-in brings, and the one function that says so. */
#include "tasks.h"

static const oct_plugin plugin = {
    .abi = OCT_PLUGIN_ABI,
    .name = "tasks",
    .losses = (const oct_loss_kind *[]){&log_cosh_loss, NULL},
    .metrics = (const oct_metric *[]){&mean_error_metric, NULL},
};

const oct_plugin *oct_plugin_entry(void)
{
    return &plugin;
}
