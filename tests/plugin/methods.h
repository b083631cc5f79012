/* A second plug-in: methods of quantization. An observer that looks at all values.
 * Each is independent of the others; to make your own, copy one. */
#pragma once

#include "launch/plugin.h"

extern const oct_observer percentile_observer;
