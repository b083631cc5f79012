/* Classes of a camera's frames: ./frames MODEL FRAMES, the frames as raw bytes, one after another, rows of RGB pixels. */
#include <octet/net.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    oct_net *net = NULL;
    FILE *file = argc == 3 ? fopen(argv[2], "rb") : NULL;
    oct_status status = file ? oct_net_open(&net, argv[1], NULL) : oct_fail(OCT_DATA, "no frames");
    const size_t bytes = oct_net_pixels(net), rows = (size_t)oct_net_num_rows(net);
    uint8_t *frame = calloc(bytes, 1);
    int32_t *classes = calloc(rows, sizeof *classes); /* one, or a class for each pixel */
    float *scores = calloc(rows, sizeof *scores);
    if (!frame || !classes || !scores) status = oct_fail(OCT_RESOURCE, "out of memory");
    while (status == OCT_OK && fread(frame, 1, bytes, file) == bytes) {
        status = oct_net_classify(net, 1, frame, NULL, classes, scores);
        for (size_t r = 0; status == OCT_OK && r < rows; r++) {
            const char *name = oct_net_class_name(net, classes[r]);
            printf("class %d, %s, %.1f %%\n", classes[r], name ? name : "-", 100.0 * scores[r]);
        }
    }
    if (status != OCT_OK) fprintf(stderr, "frames: %s\n", oct_error_message(0));
    oct_net_close(&net), free(frame), free(classes), free(scores);
    return status;
}
