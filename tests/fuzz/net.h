/* A net of what was accepted, as programs of users run it: its golden inputs, and a black image. Closes it. */
#pragma once

#include "core/base/mem.h"
#include "tests/fuzz/fuzz.h"

#include <octet/net.h>

static void run_net(oct_net *net)
{
    uint8_t *image = NULL;
    int32_t *classes = NULL;
    MAKE(oct_alloc(&image, oct_net_pixels(net), 1));
    MAKE(oct_alloc(&classes, (size_t)oct_net_num_rows(net), sizeof *classes));
    fuzz_said(oct_net_verify(net), FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_MISMATCH) | FUZZ_BIT(OCT_USAGE),
              NULL);
    fuzz_said(oct_net_classify(net, 1, image, NULL, classes, NULL),
              FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_USAGE), NULL);
    oct_free(&image);
    oct_free(&classes);
    oct_net_close(&net);
}
