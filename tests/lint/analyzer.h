/* tests/lint/tidy includes this before each source: the analyzer cannot see that no failure is OCT_OK. */
#pragma once

#include "core/base/status.h"

#define oct_fail(code, ...) ((void)(oct_fail)((code), __VA_ARGS__), (code))
