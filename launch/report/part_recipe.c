/* The recipe with every key. */
#include "launch/report/part.h"

static void write_run(oct_page *r, const oct_page_run *run)
{
    oct_page_say_why(r, run, OCT_RUN_FILE_RECIPE);
    if (run->recipe_text.data) oct_page_file(r, "Every key with its value", run->recipe_text.data);
}

static void write(oct_page *r)
{
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_recipe = {
    .id = "recipe",
    .title = "Recipe",
    .write = write,
};
