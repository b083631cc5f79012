/* Quantization methods of a user's own, built from the installed headers: they train on any number of ranks to the
 * same bytes, resume, convert and verify like built-in ones. */
#include "tests/launch/installed.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>

static const char *const recipe = "schema: 1\n"
                                  "plugins: [plugin/methods.so]\n"
                                  "output: new\n"
                                  "model: {name: cnn-small}\n"
                                  "data: {path: data}\n"
                                  "batch: {size: 32, leaf: 4}\n"
                                  "float: {epochs: 1, lr: 0.01}\n"
                                  "calibrate: {batches: 2}\n"
                                  "qat: {epochs: 3}\n"
                                  "checkpoint: {every: 2}\n";

static void start(void)
{
    enter_folder();
    installed_plugin();
    small_make(16, recipe);
    must("sha256sum plugin/*.so >trusted");
    cr_assert(setenv("OCT_PLUGIN_PATH", "plugin", 1) == 0);
    cr_assert(setenv("OCT_TRUSTED_PLUGINS", "trusted", 1) == 0);
}

TestSuite(plugin_methods, .init = start, .fini = leave_folder, .timeout = 600);

#define PROGRAM "octet/bin/octet"

/* The first of two ranks is killed; one goes on. */
static void check_kill(const char *keys)
{
    char script[2000];
    snprintf(
        script, sizeof(script),
        PROGRAM
        " train r.yaml %s checkpoint.every=1 --ranks 2 & "
        "until [ -e new/checkpoints/manifest.json ]; do kill -0 $! || exit 99; sleep 0.01; done; "
        "read -r m </proc/$!/task/$!/children; "
        "read -r rank more </proc/$m/task/$m/children; kill -KILL $rank; wait $!; "
        "[ $? = 6 ] || exit 98; " PROGRAM " train r.yaml %s checkpoint.every=1 && "
        "cmp new/model.int8.h5 one/model.int8.h5",
        keys, keys);
    shell(script);
    oct_check_exit(job, 0);
}

/* Trains with these keys on 1 and 3 ranks, with OCT_LONG=1 on 2, some once more on 2, killed and resumed on 1, and proves the
 * model. */
static void check_life(const char *keys, bool killed)
{
    char script[2000];
    snprintf(script, sizeof(script),
             "train() { " PROGRAM " train r.yaml %s \"$@\" || exit $?; }; "
             "train output=one; for ranks in 3 ${OCT_LONG:+2}; do "
             "train output=on$ranks --ranks $ranks; "
             "(cd one && for f in checkpoints/*.h5 model.int8.h5 model_check_result.txt; do "
             "cmp $f ../on$ranks/$f || exit 1; done) || exit 1; done",
             keys);
    shell(script);
    oct_check_exit(job, 0);
    oct_check_said(job, "0 of 400");
    if (killed || oct_test_is_long()) check_kill(keys);
    shell("sha256sum one/model.int8.h5; " PROGRAM " convert one -o again.int8.h5 && "
          "cmp again.int8.h5 one/model.int8.h5 && " PROGRAM
          " verify again.int8.h5 --data data && " PROGRAM " eval again.int8.h5 --data data");
    oct_check_exit(job, 0);
    oct_check_said(job, "40 test images");
}

Test(plugin_methods, learned_step_sizes_of_weights_and_activations)
{
    check_life("quant.fake_quant=lsq quant.weight_fake_quant=lsq qat.freeze_scales=0.7", true);
    shell(PROGRAM " inspect --tree one && cat one/model_check_result.txt");
    oct_check_exit(job, 0);
    oct_check_said(job, "kind=lsq, learned, dtype=s8, codes=-127..127, scheme=per_channel");
    oct_check_said(job, "learned, zero_point=");
    oct_check_said(job, "by the fake-quant lsq, which learns its scales");
}

Test(plugin_methods, one_learned_step_size_for_all_weights_of_a_layer_is_folded_into_channels)
{
    check_life("quant.weight_fake_quant=lsq-tensor qat.fold_batch_norm=true "
               "qat.freeze_batch_norm=0.5",
               false);
}

Test(plugin_methods, zero_points_where_the_range_lies)
{
    check_life("quant.fake_quant=lsq-asymmetric quant.observer=common-values", false);
    shell(PROGRAM " inspect --tree one && " PROGRAM " train r.yaml quant.fake_quant=asymmetric "
                  "quant.target=pow2 quant.batch_norm=folded output=shifts");
    oct_check_exit(job, 4);
    oct_check_said(job, "kind=lsq-asymmetric, dtype=u8, codes=[0, 255], scheme=affine");
    oct_check_said(job, "chooses zero points, which target pow2 does not have");
}

Test(plugin_methods, a_kind_in_the_wrong_place_is_refused)
{
    shell(PROGRAM " train r.yaml quant.weight_fake_quant=leaky 'plugins=[plugin/example.so]'");
    oct_check_exit(job, 2);
    oct_check_said(job, "quant.weight_fake_quant: leaky is for activations only");
    shell(PROGRAM " train r.yaml quant.weight_fake_quant=lsg");
    oct_check_exit(job, 2);
    oct_check_said(job, "quant.weight_fake_quant: there is no fake-quant 'lsg'");
}

Test(plugin_methods, an_observer_looks_at_all_values)
{
    check_life("quant.observer=common-values", true);
    shell(PROGRAM " inspect --tree one && " PROGRAM " inspect one/checkpoints");
    oct_check_exit(job, 0);
    oct_check_said(job, "observer=common-values");
    shell(PROGRAM " train r.yaml output=plain && cmp plain/model.int8.h5 one/model.int8.h5");
    oct_check_exit(job, 1);
}
