/* Losses and metrics, built-in ones and a plug-in's, named by a recipe: the same bytes and the same figures on any
 * number of ranks, and of a checkpoint as of the int8 model made from it. */
#include "tests/launch/installed.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>

static const char *const recipe = "schema: 1\n"
                                  "plugins: [plugin/tasks.so]\n"
                                  "model: {name: cnn-small}\n"
                                  "data: {path: data}\n"
                                  "batch: {size: 32, leaf: 4}\n"
                                  "float: {epochs: 1, lr: 0.01}\n"
                                  "calibrate: {batches: 2}\n"
                                  "qat: {epochs: 2}\n";

static void start(void)
{
    enter_folder();
    installed_plugin();
    small_make(16, recipe);
    must("sha256sum plugin/*.so >trusted");
    cr_assert(setenv("OCT_PLUGIN_PATH", "plugin", 1) == 0);
    cr_assert(setenv("OCT_TRUSTED_PLUGINS", "trusted", 1) == 0);
}

TestSuite(plugin_tasks, .init = start, .fini = leave_folder, .timeout = 600);

#define PROGRAM "octet/bin/octet"

/* The figures of all evaluations and steps, without what a machine and its ranks decide. */
#define FIGURES                                                                                    \
    "grep -E '\"kind\":\"(eval|step|result)\"' $1/metrics.jsonl | grep -oE "                       \
    "'\"(step|loss|accuracy|correct|top5|mean_error|metrics)\":[^,}]*'"

static void check_ranks(const char *keys, const char *shows)
{
    char script[2000];
    snprintf(script, sizeof(script),
             "train() { " PROGRAM " train r.yaml %s \"$@\" || exit $?; }; figures() { " FIGURES
             "; }; "
             "train output=one; for ranks in 3 ${OCT_LONG:+2}; do "
             "train output=on$ranks --ranks $ranks; (cd one && for f in checkpoints/*.h5 "
             "model.int8.h5; do "
             "cmp $f ../on$ranks/$f || exit 1; done) || exit 1; "
             "cmp <(figures one) <(figures on$ranks) || exit 2; done; "
             "figures one; cat one/log.txt",
             keys);
    shell(script);
    oct_check_exit(job, 0);
    oct_check_said(job, shows);
}

/* A checkpoint with frozen scales and its int8 model have the same figures, on any number of ranks. */
static void check_evaluation(const char *options, const char *shows)
{
    char script[2000];
    snprintf(script, sizeof(script),
             "show() { " PROGRAM " eval \"$@\" %s --json | "
             "grep -vE '\"(file|kind|phase|images_per_s)\"'; }; "
             "show one >a && show one/model.int8.h5 >b && show one --ranks 3 >c && "
             "show one/model.int8.h5 --ranks 2 >d && cmp a b && cmp a c && cmp a d && cat a",
             options);
    shell(script);
    oct_check_exit(job, 0);
    oct_check_said(job, shows);
}

Test(plugin_tasks, a_loss_and_a_metric_of_ones_own_are_trained_and_measured)
{
    check_ranks("loss.kind=log_cosh metrics='[mean_error, top5]'", "\"mean_error\":");
    oct_check_said(job, "  test accuracy ");
    oct_check_said(job, ", mean_error ");
    check_evaluation("", "\"mean_error\"");
    shell(PROGRAM " eval one");
    oct_check_exit(job, 0);
    oct_check_said(job, "mean_error   ");
    oct_check_said(job, "top5 ");
}

Test(plugin_tasks, the_built_in_ones_need_no_plug_in)
{
    check_ranks("plugins='[]' loss.kind=mse metrics='[top1, top5]'", "\"top5\":");
    check_evaluation("--metrics top5", "\"top5\"");
    shell("cp one/model.int8.h5 moved.int8.h5 && " PROGRAM
          " eval moved.int8.h5 --data data && " PROGRAM
          " train r.yaml plugins='[]' output=one loss.kind=mse metrics='[]'");
    oct_check_exit(job, 0);
    cr_assert(!strstr(job.out, "mean_error"), "%s", job.out);
    shell(PROGRAM " train r.yaml plugins='[]' output=one");
    oct_check_exit(job, 2);
    oct_check_said(job, "loss.kind: mse there, cross_entropy here");
}

Test(plugin_tasks, names_that_are_none_are_refused_at_once)
{
    shell(PROGRAM " check r.yaml loss.kind=log_cos metrics='[top1, top6]'");
    oct_check_exit(job, 2);
    oct_check_said(job, "loss.kind: there is no loss 'log_cos'; did you mean 'log_cosh'?");
    oct_check_said(job, "metrics: there is no metric 'top6'; did you mean 'top1'?");
    shell(PROGRAM " check r.yaml loss.kind=mse loss.label_smoothing=0.1");
    oct_check_exit(job, 2);
    oct_check_said(job, "loss.label_smoothing: mse smooths no labels; leave the key out");
    shell(PROGRAM " train r.yaml && " PROGRAM " eval runs/run --metrics top1,nope");
    oct_check_exit(job, 2);
    oct_check_said(job, "metrics: there is no metric 'nope'; use top1");
}
