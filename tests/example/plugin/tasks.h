/* A third plug-in: what training makes small, and what is measured. To make your own, copy one of them. */
#pragma once

#include <octet/plugin.h>

extern const oct_loss_kind log_cosh_loss;
extern const oct_metric mean_error_metric;
