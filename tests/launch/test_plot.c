/* octet plot: figures of runs in a terminal. */
#include "tests/launch/small_data.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

TestSuite(plot, .init = enter_with_run, .fini = leave_folder, .timeout = 120);

static size_t longest_line(const char *text)
{
    size_t longest = 0;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (strcspn(text, "\n") > longest) longest = strcspn(text, "\n");
    return longest;
}

Test(plot, draws_the_loss_without_being_asked_for_more)
{
    setenv("LC_ALL", "C", 1);
    OCTET("plot", "run");
    oct_check_exit(job, 0);
    cr_assert_eq(strncmp(job.out, "loss\n", 5), 0, "%s", job.out);
    oct_check_said(job, "* training batches");
    oct_check_said(job, "float");
    for (const char *c = job.out; *c; c++)
        cr_assert((unsigned char)*c < 0x80, "%s", job.out);
    cr_assert_leq(longest_line(job.out), 87, "%s", job.out);
}

Test(plot, draws_braille_where_the_locale_says_so_and_ascii_when_asked)
{
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    OCTET("plot", "run", "accuracy", "--width", "60");
    oct_check_exit(job, 0);
    oct_check_said(job, "┤");
    oct_check_said(job, "● evaluation");
    OCTET("plot", "run", "accuracy", "--ascii");
    oct_check_exit(job, 0);
    cr_assert(!oct_process_said(&job, "┤"), "%s", job.out);
}

Test(plot, draws_two_runs_in_one_plot_and_several_figures)
{
    setenv("LC_ALL", "C", 1);
    must("cp -r run other");
    OCTET("plot", "run", "loss", "lr", "other");
    oct_check_exit(job, 0);
    oct_check_said(job, "+ other: training batches");
    cr_assert(strstr(job.out, "\nlr\n"), "%s", job.out);
}

Test(plot, gives_the_numbers_as_json)
{
    OCTET("plot", "run", "accuracy", "--json");
    oct_check_exit(job, 0);
    json_t *root = json_loads(job.out, 0, NULL);
    const json_t *run = json_array_get(json_object_get(root, "runs"), 0);
    const json_t *figure = json_object_get(json_object_get(run, "figures"), "accuracy");
    const json_t *evaluation = json_object_get(figure, "evaluation");
    cr_assert_gt(json_array_size(json_object_get(evaluation, "value")), 0, "%s", job.out);
    cr_assert_eq(json_array_size(json_object_get(evaluation, "value")),
                 json_array_size(json_object_get(evaluation, "step")));
    cr_assert_eq(json_array_size(json_object_get(run, "phases")), 5, "%s", job.out);
    json_decref(root);
}

Test(plot, refuses_with_what_there_is)
{
    static const struct {
        const char *words;
        int exit_code;
        const char *sentence;
    } cases[] = {
        {"run los", 2, "'los' is neither a figure of run nor a second run; did you mean 'loss'?"},
        {"run zzzzz", 2, "there are: loss, accuracy, lr, images_per_s"},
        {"run run run", 2, "two runs at most"},
        {"nowhere", 3, "nowhere: No such file or directory"},
        {"run data", 3, "data: this is not a run folder"},
        {"bare", 3, "bare: no step has been recorded yet"},
        {"run --width 10", 2, "--width"},
    };
    must("mkdir bare && cp run/recipe.yaml bare");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[300];
        snprintf(command, sizeof command, OCT_PROGRAM " plot %s", cases[i].words);
        shell(command);
        oct_check_exit(job, cases[i].exit_code);
        oct_check_said(job, cases[i].sentence);
    }
}

Test(plot, a_damaged_line_is_warned_of_and_what_comes_before_is_drawn)
{
    must("sed -i 4s/.*/oops/ run/metrics.jsonl");
    OCTET("plot", "run");
    oct_check_exit(job, 0);
    oct_check_said(job, "metrics.jsonl: line 4 is not a JSON object");
    oct_check_said(job, "training batches");
}

Test(plot, the_graph_of_recipe_run_and_model_is_written_for_graphviz)
{
    static const char *const files[] = {"r.yaml", "run", "run/model.int8.h5"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        OCTET("inspect", "--graph", "--dot", files[i]);
        oct_check_exit(job, 0);
        cr_assert_eq(strncmp(job.out, "digraph model {\n", 16), 0, "%s", job.out);
        oct_check_said(job, "[label=\"features.3\\n");
        oct_check_said(job, "n1 -> n2 [style=solid];");
        cr_assert_str_eq(job.out + strlen(job.out) - 3, ";\n}\n" + 1, "%s", job.out);
    }
    OCTET("inspect", "--dot", "run");
    oct_check_exit(job, 2);
    oct_check_said(job, "--dot is for --graph");
}
