/* Runs that start from the weights of another run: which weights those are, on how many ranks ever, what
 * a resume notices, and that the end of a float phase is there for it. */
#include "tests/launch/checkpoint_items.h"
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>
#include <string.h>

/* The run that small_start makes: float to step 3, calibration at step 4, QAT to step 7. */
#define FLOAT_END "run/checkpoints/step-00000003.h5"

TestSuite(init, .init = enter_with_run, .fini = leave_folder);

Test(init, the_end_of_the_float_phase_is_kept_beside_the_newest)
{
    OCTET("train", "r.yaml", "output=long", "checkpoint.every=1", "checkpoint.keep=2",
          "qat.epochs=2", "-q");
    oct_check_exit(job, 0);
    cr_assert(system("test \"$(ls long/checkpoints | tr '\\n' ' ')\" = 'manifest.json "
                     "step-00000003.h5 step-00000009.h5 step-00000010.h5 '") == 0);
    cr_assert(system("test $(grep -c sha256 long/checkpoints/manifest.json) = 3") == 0);
}

Test(init, with_no_float_phase_calibration_sees_the_weights_of_the_other_run)
{
    OCTET("train", "r.yaml", "output=new", "init=run", "float.epochs=0", "checkpoint.every=1",
          "checkpoint.keep=9");
    oct_check_exit(job, 0);
    oct_check_said(job, "weights of " FLOAT_END " (step 3, phase float)");
    const char *first = "new/checkpoints/step-00000001.h5";
    check_same_item(FLOAT_END, "state/features/0/weight", first, "state/features/0/conv/weight");
    check_same_item(FLOAT_END, "state/head/2/bias", first, "state/head/2/linear/bias");
    check_same_item(FLOAT_END, "state/features/1/running_var", first,
                    "state/features/0/bn/running_var");
    OCTET("verify", "new/model.int8.h5");
    oct_check_exit(job, 0);
}

Test(init, a_run_folder_and_its_checkpoint_give_the_same_run_on_any_number_of_ranks)
{
    OCTET("train", "r.yaml", "output=a", "init=run", "-q");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "output=b", "init=" FLOAT_END, "--ranks", "2", "-q");
    oct_check_exit(job, 0);
    check_same_file("a/model.int8.h5", "b/model.int8.h5");
    check_same_file("a/checkpoints/step-00000007.h5", "b/checkpoints/step-00000007.h5");
    cr_assert(system("cmp -s a/model.int8.h5 run/model.int8.h5") != 0);
}

Test(init, another_file_is_another_recipe_and_a_moved_one_is_not)
{
    OCTET("train", "r.yaml", "output=a", "init=run", "-q");
    oct_check_exit(job, 0);
    cr_assert(system("mv run moved") == 0);
    OCTET("train", "r.yaml", "output=a", "init=moved");
    oct_check_exit(job, 0);
    oct_check_said(job, "a is finished");
    OCTET("train", "r.yaml", "output=other", "seed=2", "-q");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "output=a", "init=other");
    oct_check_exit(job, 2);
    oct_check_said(job, "init_sha256: ");
    OCTET("train", "r.yaml", "output=a");
    oct_check_exit(job, 2);
    oct_check_said(job, "init_sha256: ");
}

Test(init, a_stopped_run_goes_on_to_the_same_bytes)
{
    OCTET("train", "r.yaml", "output=a", "init=run", "-q");
    oct_check_exit(job, 0);
    /* A stop after step 2 leaves just this. */
    cr_assert(system("cp -r a b && rm -r b/model.int8.h5 b/checkpoints && mkdir b/checkpoints") ==
              0);
    OCTET("train", "r.yaml", "output=c", "init=run", "checkpoint.every=2", "checkpoint.keep=9",
          "-q");
    oct_check_exit(job, 0);
    cr_assert(system("cp c/checkpoints/step-00000002.h5 b/checkpoints") == 0);
    OCTET("train", "r.yaml", "output=b", "init=run");
    oct_check_exit(job, 0);
    oct_check_said(job, "from step 2 of 7");
    check_same_file("a/model.int8.h5", "b/model.int8.h5");
}

Test(init, observers_are_taken_when_asked_for)
{
    int64_t before = 0, after = 0;
    OCTET("train", "r.yaml", "output=new", "init=run", "init_observers=true", "float.epochs=0",
          "checkpoint.every=1", "checkpoint.keep=9");
    oct_check_exit(job, 0);
    oct_check_said(job, "(step 7, phase qat-scales-frozen)");
    const char *item = "state/features/0/fake_quant/updates";
    read_item("run/checkpoints/step-00000007.h5", item, &before, sizeof before);
    read_item("new/checkpoints/step-00000001.h5", item, &after, sizeof after);
    cr_assert(before > 1 && after == before + 1, "%lld, then %lld", (long long)before,
              (long long)after);
    check_same_item("run/checkpoints/step-00000007.h5", "state/features/0/conv/weight",
                    "new/checkpoints/step-00000001.h5", "state/features/0/conv/weight");
}

Test(init, a_float_model_is_quantized_without_training)
{
    OCTET("train", "r.yaml", "output=new", "init=run", "float.epochs=0", "qat.epochs=0",
          "calibrate.batches=3");
    oct_check_exit(job, 0);
    OCTET("verify", "new/model.int8.h5");
    oct_check_exit(job, 0);
    OCTET("eval", "new/checkpoints/step-00000003.h5");
    oct_check_exit(job, 0);
}

Test(init, is_checked_before_a_run)
{
    OCTET("check", "r.yaml", "init=run", "float.epochs=0");
    oct_check_exit(job, 0);
    oct_check_said(job, "init        " FLOAT_END ": step 3, phase float");
}
