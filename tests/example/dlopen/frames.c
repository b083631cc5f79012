/* A shared library around an int8 model, such as a plug-in of a media server or a module of Python: it exports one
 * function, and nothing of Octet shows. */
#include "frames.h"

#include <octet/net.h>

#include <stdio.h>

int frames_classify(const char *model, const unsigned char *pixels, int count, int32_t *classes)
{
    oct_net *net;
    const oct_net_options options = {.max_batch = count};
    oct_status status = oct_net_open(&net, model, &options);
    if (status == OCT_OK) status = oct_net_classify(net, count, pixels, NULL, classes, NULL);
    if (status != OCT_OK) fprintf(stderr, "frames: %s\n", oct_error_message(0));
    oct_net_close(&net);
    return status == OCT_OK ? 0 : -1;
}
