/* The check report of prepare, as it stands in the run folder. */
#include "launch/report/part.h"

static void write_run(oct_page *r, const oct_page_run *run)
{
    oct_page_say_why(r, run, OCT_RUN_FILE_CHECK);
    if (run->check) oct_page_file(r, "model_check_result.txt", run->check);
}

static void write(oct_page *r)
{
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_prepare = {
    .id = "prepare",
    .title = "What prepare did",
    .write = write,
};
