/* octet sensitivity through the real program: the same table on any number of ranks, its use in a
 * recipe, and what it refuses. */
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

#include <string.h>

/* Beside run/ also new/, a finished run with all its checkpoints. */
static void set_up(void)
{
    enter_with_run();
    OCTET("train", "r.yaml", "checkpoint.every=1", "checkpoint.keep=9");
    oct_check_exit(job, 0);
}

TestSuite(sensitivity, .init = set_up, .fini = leave_folder, .timeout = 200);

#define SURVEY(...)                                                                                \
    (oct_process_free(&job),                                                                       \
     job = oct_mpirun(ranks, 60, OCT_PROGRAM, "sensitivity", __VA_ARGS__, NULL))

Test(sensitivity, gives_the_same_table_on_1_2_and_3_ranks)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        char file[32], printed[96];
        snprintf(file, sizeof file, "table%d", ranks);
        SURVEY("new", "--batches", "2", "-o", file);
        oct_check_exit(job, 0);
        cr_assert_str_empty(job.out);
        SURVEY("new", "--batches", "2");
        oct_check_exit(job, 0);
        oct_tmp_write_text(&tmp, "printed", job.out);
        snprintf(printed, sizeof printed, "cmp table1 %s && cmp table1 printed", file);
        must(printed);
    }
    must("head -n 1 table1 | grep -qx '# octet sensitivity 1'");
    must("grep -Eq '^features.0 +activation +[0-9.]+ +[0-9.]+ +[-0-9.e]+$' table1");
    must("grep -Eq '^head.2 +weight +' table1");
}

Test(sensitivity, is_json_on_request_with_the_same_rows)
{
    OCTET("sensitivity", "new", "--json", "-o", "table");
    oct_check_exit(job, 0);
    oct_tmp_write_text(&tmp, "json", job.out);
    shell("diff <(grep -v '^#' table | awk '{print $1, $2}') <(/usr/bin/python3 -c 'import json\n"
          "for r in json.load(open(\"json\"))[\"rows\"]: print(r[\"path\"], r[\"tensor\"])')");
    oct_check_exit(job, 0);
}

Test(sensitivity, of_a_recipe_makes_layers_of_16_bits_and_a_certified_model)
{
    OCTET("sensitivity", "new", "-o", "table");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "output=wide", "quant.sensitivity=table", "quant.sensitivity_topk=4");
    oct_check_exit(job, 0);
    must("for p in $(grep -v '^#' table | head -n 4 | awk '$2 == \"activation\" {print $1}'); do "
         "grep -q \"int16_layers:.*$p\" wide/recipe.yaml || exit 1; done");
    /* The checkpoint knows its layers; the table may go. */
    must("rm table");
    OCTET("verify", "wide/model.int8.h5");
    oct_check_exit(job, 0);
    OCTET("convert", "wide", "-o", "again.int8.h5");
    oct_check_exit(job, 0);
    must("cmp again.int8.h5 wide/model.int8.h5");
    OCTET("inspect", "--tree", "wide");
    oct_check_exit(job, 0);
    oct_check_said(job, "dtype=u16");
}

Test(sensitivity, wants_a_calibrated_checkpoint)
{
    OCTET("sensitivity", "new/checkpoints/step-00000001.h5");
    oct_check_exit(job, 4);
    oct_check_said(job, "is from the float phase and has no quantizers yet; take a checkpoint of "
                        "the phase calibrate or later");
    OCTET("sensitivity", "new/model.int8.h5");
    oct_check_exit(job, 3);
    oct_check_said(job, "sensitivity takes a checkpoint or a run folder");
}
