/* A plug-in with one part of each sort: a layer of its own, an observer, a fake-quant, and models, one of
 * which uses the layer. To make your own, copy this folder. */
#pragma once

#include <octet/plugin.h>

/* y = x * (1 + gain[c]) for each channel c. */
extern const oct_module_spec channel_gate;
oct_status channel_gate_create(oct_module **m, int64_t channels);

extern const oct_observer shrunk_observer;
extern const oct_fake_quant_kind leaky_fake_quant;
extern const oct_model_spec gated_net_model, numbered_net_model, paired_net_model;
