#define FORMAT "onnx"
#include "tests/fuzz/export.h"
