/* octet sensitivity through the real program: the same table on any number of ranks, its use in a
 * recipe, and what it refuses. */
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"
#include "tests/support/tmp.h"

#include <string.h>
#include <unistd.h>

static oct_tmp tmp;

static oct_process shell(const char *command)
{
    return oct_process_run(60, "/bin/bash", "-c", command, NULL);
}

/* A folder with data and a finished run of it, new/, with all its checkpoints. */
static void set_up(void)
{
    oct_tmp_create(&tmp);
    cr_assert_eq(chdir(tmp.path), 0);
    small_start(tmp.path);
    oct_process job = oct_process_run(60, OCT_PROGRAM, "train", "r.yaml", "checkpoint.every=1",
                                      "checkpoint.keep=9", NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
}

static void tear_down(void)
{
    cr_assert_eq(chdir("/"), 0);
    oct_tmp_remove(&tmp);
}

TestSuite(sensitivity, .init = set_up, .fini = tear_down, .timeout = 200);

static void must(const char *command)
{
    oct_process job = shell(command);
    oct_check_exit(job, 0);
    oct_process_free(&job);
}

Test(sensitivity, gives_the_same_table_on_1_2_and_3_ranks)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        char file[32], printed[96];
        snprintf(file, sizeof file, "table%d", ranks);
        oct_process job = oct_mpirun(ranks, 60, OCT_PROGRAM, "sensitivity", "new", "--batches", "2",
                                     "-o", file, NULL);
        oct_check_exit(job, 0);
        cr_assert_str_empty(job.out);
        oct_process_free(&job);
        job = oct_mpirun(ranks, 60, OCT_PROGRAM, "sensitivity", "new", "--batches", "2", NULL);
        oct_check_exit(job, 0);
        oct_tmp_write_text(&tmp, "printed", job.out);
        oct_process_free(&job);
        snprintf(printed, sizeof printed, "cmp table1 %s && cmp table1 printed", file);
        must(printed);
    }
    must("head -n 1 table1 | grep -qx '# octet sensitivity 1'");
    must("grep -Eq '^features.0 +activation +[0-9.]+ +[0-9.]+ +[-0-9.e]+$' table1");
    must("grep -Eq '^head.2 +weight +' table1");
}

Test(sensitivity, is_json_on_request_with_the_same_rows)
{
    oct_process job =
        oct_process_run(60, OCT_PROGRAM, "sensitivity", "new", "--json", "-o", "table", NULL);
    oct_check_exit(job, 0);
    oct_tmp_write_text(&tmp, "json", job.out);
    oct_process_free(&job);
    must("diff <(grep -v '^#' table | awk '{print $1, $2}') <(/usr/bin/python3 -c 'import json\n"
         "for r in json.load(open(\"json\"))[\"rows\"]: print(r[\"path\"], r[\"tensor\"])')");
}

Test(sensitivity, of_a_recipe_makes_layers_of_16_bits_and_a_certified_model)
{
    oct_process job = oct_process_run(60, OCT_PROGRAM, "sensitivity", "new", "-o", "table", NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    job = oct_process_run(60, OCT_PROGRAM, "train", "r.yaml", "output=wide",
                          "quant.sensitivity=table", "quant.sensitivity_topk=4", NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    must("for p in $(grep -v '^#' table | head -n 4 | awk '$2 == \"activation\" {print $1}'); do "
         "grep -q \"int16_layers:.*$p\" wide/recipe.yaml || exit 1; done");
    /* The checkpoint knows its layers; the table may go. */
    must("rm table");
    job = oct_process_run(60, OCT_PROGRAM, "verify", "wide/model.int8.h5", NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    job = oct_process_run(60, OCT_PROGRAM, "convert", "wide", "-o", "again.int8.h5", NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    must("cmp again.int8.h5 wide/model.int8.h5");
    job = oct_process_run(60, OCT_PROGRAM, "inspect", "--tree", "wide", NULL);
    oct_check_exit(job, 0);
    oct_check_said(job, "dtype=u16");
    oct_process_free(&job);
}

Test(sensitivity, wants_a_calibrated_checkpoint)
{
    oct_process job =
        oct_process_run(20, OCT_PROGRAM, "sensitivity", "new/checkpoints/step-00000001.h5", NULL);
    oct_check_exit(job, 4);
    oct_check_said(job, "is from the float phase and has no quantizers yet; take a checkpoint of "
                        "the phase calibrate or later");
    oct_process_free(&job);
    job = oct_process_run(20, OCT_PROGRAM, "sensitivity", "new/model.int8.h5", NULL);
    oct_check_exit(job, 3);
    oct_check_said(job, "sensitivity takes a checkpoint or a run folder");
    oct_process_free(&job);
}
