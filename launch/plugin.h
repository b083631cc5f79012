/* Plug-ins: a user's own layers, observers, fake-quants and models in a shared library that a recipe
 * names (`plugins: [path, ...]`).
 *
 * The library is built against the installed headers and links nothing of Octet: it uses whatever
 * of it is wanted through the program that loads it.
 *
 *     cc -shared -fPIC -o mine.so mine.c $(pkg-config --cflags octet)
 *
 * It exports one function, oct_plugin_entry, that says what it brings. Everything that it points to
 * lives as long as the process. tests/example/plugin/ has an example of each part.
 *
 * A layer that trains needs `forward` with a backward (oct_record, as the files of core/op do). One
 * that has no integer form stays float in a prepared model, with a line in the check report; it can
 * be converted when its type has `args`, the list of what it is made from (core/tensor/op_args.h).
 *
 * An observer gets the range of each step's values, or their histogram (quant/observer/observer.h). A
 * fake-quant is of activations, of weights, or of both, and may learn its scales and choose zero points
 * (quant/module/fake_quant_kind.h). A loss is a function of one row of outputs (core/op/loss.h), and so is what a metric
 * adds up (core/metric/metric.h).
 */
#pragma once

#include "core/op/loss.h"
#include "launch/model/model.h"
#include "quant/module/fake_quant_kind.h"
#include "quant/observer/observer.h"

/* What program and plug-in must agree on: the number of this interface, which changes with the
 * meaning of what they share, and the sizes of the structs after it. */
#define OCT_PLUGIN_ABI                                                                             \
    ((uint64_t)8 << 48 | (uint64_t)sizeof(oct_module) << 32 |                                      \
     (uint64_t)sizeof(oct_context) << 16 |                                                         \
     (uint64_t)(sizeof(oct_tensor) + sizeof(oct_module_type)))

/* Each list ends with NULL; a list itself may be NULL. */
typedef struct oct_plugin {
    uint64_t abi;                               /* OCT_PLUGIN_ABI; always the first member */
    const char *name;                           /* [a-z0-9_-]+: for messages and run.json */
    const oct_module_type *const *module_types; /* those that have `args`, to be found by name */
    const oct_observer *const *observers;       /* quant.observer */
    /* quant.fake_quant, quant.weight_fake_quant */
    const oct_fake_quant_kind *const *fake_quants;
    const oct_model_spec *const *models; /* model.name */
    const oct_loss_kind *const *losses;  /* loss.kind */
    const oct_metric *const *metrics;    /* metrics */
} oct_plugin;

__attribute__((visibility("default"))) const oct_plugin *oct_plugin_entry(void);
