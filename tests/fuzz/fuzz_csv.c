/* Tables of pictures. One picture is beside them. */
#include "tests/fuzz/dataset.h"
#include "tests/golden/image_golden.h"

#include <string.h>

const char *const fuzz_name = "csv";
static const char *const words[] = {"a.png", "path,label\n", "\"",    "\"\"", ",", "\r\n",
                                    "/",     "../",          "1e999", "-1",   "é", "a.png,a.png\n",
                                    NULL};
const char *const *const fuzz_words = words;

void fuzz_seeds(void)
{
    static const char *const tables[] = {
        "path,label\na.png,0\na.png,1\n\"a.png\",1\n",
        "a.png,cat\r\na.png,\"dog, big\"\r\na.png,cat\r\n",
        "a.png,0.5,1\n./a.png,2,3\na.png,-1e3,4\n",
        "a.png,a.png\na.png,a.png\n",
    };
    for (size_t i = 0; i < OCT_COUNT(tables); i++)
        fuzz_seed(tables[i], strlen(tables[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const oct_goal_kind goals[] = {OCT_GOAL_CLASS, OCT_GOAL_VALUES, OCT_GOAL_MAP};
    fuzz_file("a.png", png_grey, sizeof png_grey);
    const char *path = fuzz_file("a.csv", data, size);
    for (size_t i = 0; i < OCT_COUNT(goals); i++) {
        const oct_dataset_source source = {.format = &oct_dataset_csv,
                                           .folder = path,
                                           .split = 0.4,
                                           .channels = 1,
                                           .classes = goals[i] == OCT_GOAL_MAP ? 255 : 0,
                                           .goal = goals[i]};
        fuzz_source(&source, size, 64, fuzz_folder());
    }
    return 0;
}
