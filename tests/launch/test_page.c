/* The report of a run: its facts, what its script draws of them, harmless, the same bytes twice, and of any run
 * folder. */
#define SMALL_RUN_ONCE
#include "tests/launch/small_data.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(page, .init = enter_with_run, .fini = leave_folder, .timeout = 300);

/* Texts that must stand in the page, each in quotes for the shell; not those that begin with !. */
static void check_page(const char *page, const char *texts)
{
    char command[2048];
    snprintf(command, sizeof command, "/usr/bin/python3 %s/tests/launch/check_page.py %s %s",
             OCT_SOURCE_DIR, page, texts);
    must(command);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

Test(page, of_a_run_is_whole_and_the_run_wrote_the_same_bytes)
{
    OCTET("report", "run", "-o", "a.html");
    oct_check_exit(job, 0);
    oct_check_said(job, "the report is in a.html");
    check_page("a.html", "'int8 accuracy' 'logits that differ' 'learning rate' 'features.0' "
                         "'Certificate' 'SHA-256 of the model file' 'conv 3x3'");
    must("cmp a.html run/report.html");
    must("test $(grep -o '\"kind\":\"eval\",\"step\":[0-9]*,\"phase\":\"float\"' a.html | wc -l) = "
         "$(grep -c '\"eval\".*\"float\"' run/metrics.jsonl)");
    must("cd run && " OCT_PROGRAM " report . -o ../b.html");
    must("cmp a.html b.html");
    must(OCT_PROGRAM " report run/checkpoints -o b.html && cmp a.html b.html");
}

Test(page, of_a_finished_run_that_is_started_again_is_not_touched_but_comes_back_when_it_is_gone)
{
    must("touch -d 2001-01-01 run/report.html && " OCT_PROGRAM " train r.yaml output=run");
    must("find run/report.html -newermt 2001-01-02 | wc -l | grep -q '^0$'");
    must("rm run/report.html; " OCT_PROGRAM " train r.yaml output=run && test -s run/report.html");
}

Test(page, of_an_unfinished_run_says_what_is_missing)
{
    must("cp -r run half && rm half/model.int8.h5 half/report.html && "
         "grep -v '\"kind\":\"result\"' run/metrics.jsonl > half/metrics.jsonl");
    OCTET("report", "half", "-o", "half.html");
    oct_check_exit(job, 0);
    check_page("half.html",
               "'not finished' 'there is no int8 model yet' '!Certificate in the model file'");
    must("mkdir bare && cp run/recipe.yaml bare");
    OCTET("report", "bare", "-o", "bare.html");
    oct_check_exit(job, 0);
    check_page("bare.html", "'No steps have been recorded yet.' 'Nothing has been evaluated yet.'");
}

/* The records of a phase that was stopped in its middle are those of both sessions. */
Test(page, counts_the_steps_of_a_stopped_run_in_full)
{
    must(OCT_PROGRAM " train r.yaml output=part float.epochs=60 batch.size=8 data.train_limit=24 "
                     "checkpoint.every=50 >log 2>&1 & p=$!; "
                     "until grep -qs '\"kind\":\"step\"' part/metrics.jsonl; do "
                     "kill -0 $p || exit 9; sleep 0.02; done; "
                     "kill -USR1 $p; wait $p; test $? = 75 && cat log");
    must(OCT_PROGRAM " train r.yaml output=part float.epochs=60 batch.size=8 data.train_limit=24 "
                     "checkpoint.every=50 && /usr/bin/python3 -c '\n"
                     "import json\n"
                     "records = [json.loads(line) for line in open(\"part/metrics.jsonl\")]\n"
                     "phases = [r for r in records if r[\"kind\"] == \"phase\"]\n"
                     "steps = [r for r in phases if r[\"phase\"] == \"float\"]\n"
                     "assert len(steps) == 2 and steps[0][\"steps\"] > 0, steps\n"
                     "assert sum(r[\"steps\"] for r in phases) == records[-1][\"step\"], phases\n"
                     "'");
}

Test(page, says_which_phase_made_the_network_worse)
{
    must(OCT_PROGRAM " train r.yaml output=worse float.epochs=20 batch.size=8 data.train_limit=24 "
                     "qat.epochs=4 qat.lr=3 2>log; cat log; "
                     "grep -q 'warning: qat: the mean loss rose from .*; lower qat.lr' log");
    check_page("worse/report.html", "'QAT does not hold what the float phase has learned'");
}

Test(page, of_a_run_without_qat_has_its_curves)
{
    must(OCT_PROGRAM " train r.yaml output=ptq qat.epochs=0");
    check_page("ptq/report.html", "'calibrate' 'Certificate'");
}

Test(page, shows_the_metrics_of_the_recipe_and_no_accuracy_that_it_does_not_measure)
{
    must(OCT_PROGRAM " train r.yaml output=five metrics=[top5]");
    check_page("five/report.html",
               "'int8 top5' 'Rows are true classes' 'taken for' '!int8 accuracy'");
    must("grep -q '\"classifies\":false' five/report.html");
}

Test(page, of_two_runs_shows_what_differs)
{
    must(OCT_PROGRAM " train r.yaml output=other float.lr=0.02 quant.bits=16");
    OCTET("report", "run", "other", "-o", "two.html");
    oct_check_exit(job, 0);
    check_page("two.html", "'What differs' float.lr 0.01 0.02 quant.bits 'Change of layers that "
                           "both runs have'");
    OCTET("report", "run", "run", "-o", "same.html");
    oct_check_exit(job, 0);
    check_page("same.html", "'Both runs have the same recipe.'");
}

/* A name that would be a script, an attribute or the end of a script, if it were not escaped. */
#define HOSTILE "</style><script>alert(1)</script>\\\"' onload='x'&amp;<!--"
#define HOSTILE_SHELL "'</style><script>alert(1)</script>\"'\"'\"' onload='\"'\"'x'\"'\"'&amp;<!--'"

Test(page, shows_hostile_names_as_text)
{
    write_file("run/layers.json",
               "{\"schema_version\":1,\"images\":4,\"reference\":\"" HOSTILE "\",\"layers\":["
               "{\"path\":\"" HOSTILE "\",\"type\":\"" HOSTILE "\",\"shape\":[1,2,3],"
               "\"output\":{\"bits\":8,\"scale\":0.1,\"zero_point\":3,\"qmin\":0,\"qmax\":255}}]}");
    write_file("run/worst.json", "{\"schema_version\":1,\"samples\":[{\"index\":1,\"label_name\":"
                                 "\"" HOSTILE "\",\"predicted_name\":\"" HOSTILE "\","
                                 "\"png\":\"iVBORw0KGgo\\\" onload=x\"}]}");
    must("sed -i 's/^name: .*/name: \"<b>bold<\\/b>\"/' run/recipe.yaml");
    write_file("more", "{\"kind\":\"phase\",\"step\":99,\"phase\":\"<i>\",\"steps\":1}\n"
                       "{\"kind\":\"confusion\",\"step\":99,\"classes\":2,\"counts\":[[1,2],[3,4]],"
                       "\"names\":[\"<u>\",\"&\"]}\n");
    must("cat more >> run/metrics.jsonl");
    OCTET("report", "run", "-o", "h.html");
    oct_check_exit(job, 0);
    check_page("h.html", HOSTILE_SHELL " '<b>bold</b>' '<i>' '<u>' 'no image'");
}

Test(page, says_which_files_are_damaged_and_shows_the_others)
{
    static const struct {
        const char *damage, *texts; /* those are in the page */
    } cases[] = {
        {"echo '{\"layers\":' >copy/layers.json; echo '{\"schema_version\":7}' >copy/worst.json; "
         "printf 'a\\0b' >copy/model_check_result.txt; echo 5 >copy/run.sensitivity",
         "'layers.json: line 2: not JSON' 'worst.json: has version 7' "
         "'model_check_result.txt: is not a text' run.sensitivity"},
        {"echo '[]' >copy/layers.json; sed -i 3s/.*/oops/ copy/metrics.jsonl; rm copy/run.json; "
         "mkdir copy/run.json",
         "'layers.json: is not a file of a run' 'metrics.jsonl: line 3 is not a JSON object' "
         "'run.json: '"},
        {"echo '{\"schema_version\":1,\"layers\":[1,null,{}]}' >copy/layers.json; "
         "echo nonsense: 1 >copy/recipe.yaml; truncate -s -100 copy/model.int8.h5",
         "Layers 'recipe.yaml:1:1: unknown key' 'model.int8.h5: '"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char texts[400];
        must("rm -rf copy; cp -r run copy");
        must(cases[i].damage);
        OCTET("report", "copy", "-o", "c.html");
        oct_check_exit(job, 0);
        snprintf(texts, sizeof texts, "%s Environment", cases[i].texts);
        check_page("c.html", texts);
    }
}

Test(page, refuses_what_is_no_run_with_a_sentence)
{
    static const struct {
        const char *command;
        int exit_code;
        const char *sentence;
    } cases[] = {
        {"report nowhere", 3, "nowhere: No such file or directory"},
        {"report data", 3, "data: this is not a run folder"},
        {"report r.yaml", 3, "r.yaml: is a recipe; give the run folder"},
        {"report run/model.int8.h5", 3, "is an int8 model; give the run folder"},
        {"report run -o r.yaml", 2, "-o r.yaml: already exists and does not end in .html"},
        {"report run -o nowhere/a.html", 7, "nowhere/a.html: "},
        {"report", 2, "octet report RUN"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[300];
        snprintf(command, sizeof command, OCT_PROGRAM " %s", cases[i].command);
        shell(command);
        oct_check_exit(job, cases[i].exit_code);
        oct_check_said(job, cases[i].sentence);
    }
    must("! test -e report.html");
}

/* A run of many epochs, layers and classes; all that may be long is. */
static const char large[] =
    "import json\n"
    "name = 'a_long_name_of_a_block.' * 5\n"
    "h = {'from': -1.25, 'to': 3.75, 'counts': [i * i + 1 for i in range(64)]}\n"
    "layers = [{'path': name + str(i), 'type': 'conv2d', 'shape': [56, 56, 256],\n"
    "  'output': {'bits': 8, 'scale': 0.01, 'zero_point': 3, 'qmin': 0, 'qmax': 255, 'min': -1,\n"
    "    'max': 3, 'clipped': 0.001, 'histogram': h, 'sqnr_db': 31.5, 'cosine': 0.99},\n"
    "  'weight': {'bits': 8, 'scale_min': 0.001, 'scale_max': 0.02, 'min': -1, 'max': 1,\n"
    "    'clipped': 0, 'histogram': h, 'sqnr_db': 40}, 'operations': 10 ** 9,\n"
    "  'weight_bytes': 10 ** 6, 'output_bytes': 10 ** 5} for i in range(1000)]\n"
    "json.dump({'schema_version': 1, 'images': 8, 'layers': layers}, open('run/layers.json', "
    "'w'))\n"
    "json.dump({'schema_version': 1, 'samples': [{'index': i, 'label': 1, 'predicted': 2,\n"
    "  'png': 'iVBORw0KGgo' + 'A' * 39000} for i in range(24)]}, open('run/worst.json', 'w'))\n"
    "f = open('run/metrics.jsonl', 'a')\n"
    "for s in range(30000):\n"
    "  print(json.dumps({'kind': 'step', 'step': 100 + s, 'phase': 'qat', 'loss': 1 / (s + 1),\n"
    "    'accuracy': s % 97, 'lr': 0.1, 'images_per_s': 5}), file=f)\n"
    "for s in range(1000):\n"
    "  print(json.dumps({'kind': 'eval', 'step': 100 + s, 'phase': 'qat', 'accuracy': s % 89,\n"
    "    'metrics': {'m%d' % i: i for i in range(40)}}), file=f)\n"
    "for s in range(30):\n"
    "  print(json.dumps({'kind': 'scales', 'step': 100 + s,\n"
    "    'scales': {name + str(i): 0.1 for i in range(1000)}}), file=f)\n"
    "print(json.dumps({'kind': 'confusion', 'step': 9, 'classes': 100,\n"
    "  'counts': [[i + j for i in range(100)] for j in range(100)]}), file=f)\n";

Test(page, of_a_large_run_stays_below_two_megabytes)
{
    write_file("large.py", large);
    must("/usr/bin/python3 large.py");
    OCTET("report", "run", "run", "-o", "large.html");
    oct_check_exit(job, 0);
    check_page("large.html", "'Confusion matrix of 100 classes' 'Most frequent mistakes'");
}

Test(page, names_the_file_and_its_size_as_json)
{
    OCTET("report", "run", "-o", "j.html", "--json");
    oct_check_exit(job, 0);
    cr_assert(strstr(job.out, "\"file\": \"j.html\""), "%s", job.out);
}
