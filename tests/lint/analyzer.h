/* tests/lint/tidy includes this before each source: the analyzer looks into one source at a time, and would take a failure
 * of another for OCT_OK. A function named here is defined with its name in parentheses. */
#pragma once

#include "core/autograd/context.h"
#include "io/onnx/operator.h"

#define oct_fail(code, ...) ((void)(oct_fail)((code), __VA_ARGS__), (code))
#define oct_fail_add(code, ...) ((void)(oct_fail_add)((code), __VA_ARGS__), (code))
#define oct_fail_prefix(...) ((void)(oct_fail_prefix)(__VA_ARGS__), OCT_DATA)
#define oct_onnx_problem(...) ((void)(oct_onnx_problem)(__VA_ARGS__), OCT_DATA)
#define oct_context_fail(cx, code, ...)                                                            \
    ((oct_context_fail)((cx), (code), __VA_ARGS__),                                                \
     (cx) ? (void)((cx)->status = (code)) : (void)0, NULL)
