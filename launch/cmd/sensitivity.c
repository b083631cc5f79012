/* octet sensitivity measures which layers of a checkpoint lose most by their quantizers. */
#include "io/file/file.h"
#include "io/recipe/sensitivity_file.h"
#include "launch/session/build.h"
#include "launch/cmd/command.h"
#include "launch/session/file_kind.h"
#include "launch/session/job.h"
#include "launch/evaluate/sensitivity_run.h"
#include "launch/base/output.h"

#include <inttypes.h>
#include <jansson.h>

enum { BATCHES, OUTPUT, DATA, RANKS };
enum { STANDARD_BATCHES = 8 };

typedef struct survey {
    oct_session *session;
    const oct_args *args;
    oct_checkpoint checkpoint;
    oct_recipe recipe;
    oct_dataset data;
    oct_module *model;
    oct_sensitivity table;
} survey;

/* Only a table is replaced: a mistyped name must not cost a file, nor may it be found after the
 * measurement. */
static oct_status check_output(const oct_args *args)
{
    if (!args->option[OUTPUT].given) return OCT_OK;
    const char *path = args->option[OUTPUT].text;
    bool is_table;
    if (!oct_file_exists(path)) return OCT_OK;
    OCT_TRY(oct_sensitivity_is(path, &is_table));
    OCT_CHECK(is_table, OCT_USAGE,
              "command line: -o %s: already exists and is not a sensitivity table; choose another "
              "file name",
              path);
    return OCT_OK;
}

static oct_status open_all(survey *s)
{
    oct_phase phase;
    const char *path = s->args->word[0];
    oct_file_kind kind;
    OCT_TRY(check_output(s->args));
    OCT_TRY(oct_file_take(path, OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                          "sensitivity takes a checkpoint or a run folder", &kind));
    OCT_TRY(oct_job_checkpoint(&s->checkpoint, path, kind));
    OCT_TRY(oct_checkpoint_phase(&s->checkpoint, &phase));
    OCT_CHECK(phase != OCT_PHASE_FLOAT, OCT_PREPARE,
              "%s: is from the float phase and has no quantizers yet; take a checkpoint of the "
              "phase calibrate or later",
              s->checkpoint.path);
    return oct_job_checkpoint_recipe(&s->recipe, &s->checkpoint, s->args->option[DATA].text);
}

static oct_status print_json(const survey *s)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < s->table.count; i++) {
        const oct_sensitivity_row *row = &s->table.rows[i];
        json_array_append_new(rows,
                              json_pack("{s:s, s:s, s:o, s:f, s:f}", "path", row->path, "tensor",
                                        row->tensor, "sqnr_db", oct_json_number(row->sqnr),
                                        "cosine", row->cosine, "loss_change", row->loss_change));
    }
    return oct_print_json(json_pack("{s:i, s:s, s:o}", "schema_version", 1, "checkpoint",
                                    s->checkpoint.path, "rows", rows));
}

static oct_status deliver_sensitivity(const survey *s)
{
    oct_text text = {0}, comment = {0};
    oct_status status = OCT_OK;
    /* The table depends on neither ranks nor place, so that equal measurements give equal files. */
    OCT_TRY_OUT(oct_text_add(&comment,
                             "%s, step %" PRId64 ", phase %s\n"
                             "each quantizer alone, against the float model; most sensitive first",
                             oct_recipe_model(&s->recipe), s->checkpoint.info.step,
                             s->checkpoint.info.phase));
    OCT_TRY_OUT(oct_sensitivity_print(&s->table, comment.data, &text));
    if (s->args->option[OUTPUT].given)
        OCT_TRY_OUT(oct_file_write(s->args->option[OUTPUT].text, text.data, text.length));
    if (s->args->json)
        status = print_json(s);
    else if (!s->args->option[OUTPUT].given)
        status = oct_print("%s", text.data);
out:
    oct_text_free(&comment);
    oct_text_free(&text);
    return status;
}

/* Measures on the first batches of the training data, without augmentation. */
static oct_status sensitivity_in_session(survey *s)
{
    bool prepared;
    OCT_TRY(oct_session_agree(s->session, open_all(s)));
    s->recipe.threads = oct_job_share_of_cores();
    oct_job_threads(s->session, s->recipe.threads);
    OCT_TRY(oct_job_data(s->session, &s->recipe, OCT_TRAIN, &s->data));
    oct_status status =
        oct_build_from_checkpoint(&s->model, &s->checkpoint, &s->recipe, &s->data, &prepared);
    OCT_TRY(oct_session_agree(s->session, status));
    const oct_sensitivity_run run = {s->model, &s->recipe, &s->data,
                                     oct_option_count(s->args, BATCHES, STANDARD_BATCHES)};
    OCT_TRY(oct_sensitivity_run_it(&run, s->session, &s->table));
    status = s->session->group->rank == 0 ? deliver_sensitivity(s) : OCT_OK;
    return oct_session_agree(s->session, status);
}

static oct_status run_sensitivity(const oct_args *args)
{
    oct_session session;
    survey s = {.session = &session, .args = args};
    OCT_TRY(oct_session_open(&session, args, OCT_DEADLINE_S));
    oct_status status = oct_session_end(&session, sensitivity_in_session(&s));
    oct_checkpoint_close(&s.checkpoint);
    oct_sensitivity_free(&s.table);
    oct_module_destroy(&s.model);
    oct_recipe_free(&s.recipe);
    oct_dataset_close(&s.data);
    return status;
}

static const oct_option options[] = {
    [BATCHES] = {"--batches", 0, OCT_OPT_COUNT, "N",
                 "batches of training data to measure on, without augmentation (default 8)", 1,
                 1000000},
    [OUTPUT] = {"--output", 'o', OCT_OPT_TEXT, "FILE", "file to write, for quant.sensitivity", 0,
                0},
    [DATA] = {"--data", 0, OCT_OPT_TEXT, "FOLDER",
              "folder of the data set, if it is not where the run had it", 0, 0},
    [RANKS] = {"--ranks", 0, OCT_OPT_COUNT, "N",
               "run on N ranks, started with mpirun; the same table", 1, 4096},
    {0},
};

const oct_command oct_command_sensitivity = {
    .name = "sensitivity",
    .usage = "octet sensitivity CHECKPOINT|RUN-FOLDER [--batches N] [-o FILE]",
    .summary = "finds the layers that lose most by quantization: a table for 16-bit activations",
    .help =
        "Switches on one quantizer at a time, everything else in float, and compares the output\n"
        "with the float one: SQNR in dB (low is sensitive), cosine, change of the loss. The rows\n"
        "of activations name layers that 16 bits would help; those of weights are information "
        "only.\n"
        "The checkpoint must be calibrated.\n"
        "\n"
        "    octet sensitivity runs/a -o a.sensitivity\n"
        "    octet train my.yaml output=runs/b init=runs/a float.epochs=0 \\\n"
        "        quant.sensitivity=a.sensitivity quant.sensitivity_topk=3\n",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .parallel = true,
    .run = run_sensitivity,
};
