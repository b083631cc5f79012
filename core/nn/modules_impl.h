/* What the float modules share. */
#pragma once

#include "core/nn/module.h"

/* Fails the context unless the module was called with `wanted` inputs. */
bool oct_needs_inputs(oct_context *cx, const oct_module *self, int n, int wanted);

/* Creates a module that has no state of its own. */
oct_status oct_plain_create(oct_module **m, const oct_module_type *type) OCT_NODISCARD;
