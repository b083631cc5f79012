/* octet sensitivity measures which layers of a checkpoint lose most by their quantizers. */
#include "io/file/file.h"
#include "io/recipe/sensitivity_file.h"
#include "launch/cmd/command.h"
#include "launch/cmd/subject.h"
#include "launch/evaluate/evaluate.h"

enum { BATCHES, OUTPUT, DATA, RANKS };
enum { STANDARD_BATCHES = 8 };

typedef struct survey {
    oct_session *session;
    const oct_args *args;
    oct_subject subject; /* a checkpoint */
    oct_sensitivity table;
} survey;

static oct_status open_checkpoint(survey *s)
{
    const char *output = s->args->option[OUTPUT].text;
    bool is_table;
    oct_phase phase;
    /* Only a table is replaced: a mistyped name must not cost a file, nor may it be found after the measurement. */
    if (output && oct_file_exists(output)) {
        OCT_TRY(oct_sensitivity_is(output, &is_table));
        OCT_CHECK_ARGS(
            is_table,
            "-o %s: already exists and is not a sensitivity table; choose another file name",
            output);
    }
    OCT_TRY(oct_subject_open(&s->subject, s->args->word[0],
                             OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                             "sensitivity takes a checkpoint or a run folder"));
    OCT_TRY(oct_checkpoint_phase(&s->subject.checkpoint, &phase));
    OCT_CHECK(phase != OCT_PHASE_FLOAT, OCT_PREPARE,
              "%s: is from the float phase and has no quantizers yet; take a checkpoint of the "
              "phase calibrate or later",
              s->subject.checkpoint.path);
    return oct_subject_read_recipe(&s->subject, s->args->option[DATA].text);
}

static void print_json(const survey *s)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < s->table.count; i++) {
        const oct_sensitivity_row *row = &s->table.rows[i];
        json_array_append_new(rows,
                              json_pack("{s:s, s:s, s:o, s:f, s:f}", "path", row->path, "tensor",
                                        row->tensor, "sqnr_db", oct_json_number(row->sqnr),
                                        "cosine", row->cosine, "loss_change", row->loss_change));
    }
    oct_print_json(json_pack("{s:i, s:o, s:o}", "schema_version", 1, "checkpoint",
                             oct_json_string(s->subject.checkpoint.path), "rows", rows));
}

static oct_status deliver_table(const survey *s)
{
    OCT_OWNED(oct_text_free) oct_text text = {0}, comment = {0};
    /* The table depends on neither ranks nor place, so that equal measurements give equal files. */
    OCT_TRY(oct_text_add(&comment,
                         "%s, step %" PRId64 ", phase %s\n"
                         "each quantizer alone, against the float model; most sensitive first",
                         oct_recipe_model(&s->subject.recipe), s->subject.checkpoint.info.step,
                         s->subject.checkpoint.info.phase));
    OCT_TRY(oct_sensitivity_print(&s->table, comment.data, &text));
    if (s->args->option[OUTPUT].given)
        OCT_TRY(oct_file_write(s->args->option[OUTPUT].text, text.data, text.length));
    if (s->args->json)
        print_json(s);
    else if (!s->args->option[OUTPUT].given)
        oct_print("%s", text.data);
    return OCT_OK;
}

/* Measures on the first batches of the training data, without augmentation. */
static oct_status sensitivity_in_session(survey *s)
{
    oct_subject *subject = &s->subject;
    OCT_TRY(oct_session_agree(s->session, open_checkpoint(s)));
    OCT_TRY(oct_subject_load_data(subject, s->session, OCT_TRAIN));
    OCT_TRY(oct_subject_build(subject, s->session));
    OCT_TRY(
        oct_evaluate_sensitivity(subject->root, s->session->group, &subject->recipe, &subject->data,
                                 oct_option_count(s->args, BATCHES, STANDARD_BATCHES), &s->table));
    return oct_session_agree(s->session, s->session->group->rank == 0 ? deliver_table(s) : OCT_OK);
}

static oct_status run_sensitivity(const oct_args *args)
{
    oct_session session;
    survey s = {.session = &session, .args = args};
    OCT_TRY(oct_session_open(&session, args, OCT_DEADLINE_S));
    oct_status status = oct_session_end(&session, sensitivity_in_session(&s));
    oct_subject_close(&s.subject);
    oct_sensitivity_free(&s.table);
    return status;
}

static const oct_option options[] = {
    [BATCHES] =
        OCT_NUMBER(0, "--batches", "N", 1, 1000000,
                   "batches of training data to measure on, without augmentation (default 8)"),
    [OUTPUT] = OCT_TEXT('o', "--output", "FILE", "file to write, for quant.sensitivity"),
    [DATA] = OCT_OPTION_DATA,
    [RANKS] = OCT_OPTION_RANKS,
    {0},
};

const oct_command oct_command_sensitivity = {
    .name = "sensitivity",
    .usage = "octet sensitivity CHECKPOINT|RUN-FOLDER [--batches N] [-o FILE]",
    .summary = "finds the layers that lose most by quantization: a table for 16-bit activations",
    .help =
        "Switches on one quantizer at a time, everything else in float, and compares the output\n"
        "with the float one: SQNR in dB (low is sensitive), cosine, change of the loss. The rows\n"
        "of activations name layers that 16 bits would help; those of weights are information\n"
        "only. The checkpoint must be calibrated.\n"
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
