/* octet convert makes an int8 model of a checkpoint, with the certificate that both compute the
 * same. */
#include "io/file/file.h"
#include "launch/deploy/certificate.h"
#include "launch/deploy/device.h"
#include "launch/cmd/command.h"
#include "launch/cmd/subject.h"
#include "launch/runfolder/run_folder.h"

enum { OUTPUT, DATA, TARGET, RANKS };

typedef struct conversion {
    oct_session *session;
    const oct_args *args;
    oct_subject subject; /* a checkpoint */
    char *output;
    oct_model model;
    const oct_target *target; /* NULL: what the checkpoint was prepared for */
} conversion;

/* Finds the path to write: that of -o, or model.int8.h5 in the checkpoint's run folder. */
static oct_status find_output(conversion *c)
{
    OCT_OWNED(oct_free) char *folder = NULL;
    if (c->args->option[OUTPUT].given) {
        const char *path = c->args->option[OUTPUT].text;
        bool replaces = false;
        OCT_TRY(oct_model_probe(path, &replaces));
        OCT_CHECK_ARGS(!oct_file_exists(path) || replaces,
                       "-o %s: already exists and is not an int8 model; choose another file name",
                       path);
        return oct_strdup(&c->output, path);
    }
    OCT_TRY(oct_run_folder_of(c->subject.checkpoint.path, &folder));
    OCT_CHECK_ARGS(folder,
                   "this checkpoint is not in a run folder; name the output with -o MODEL.int8.h5");
    return oct_run_path(folder, "model.int8.h5", &c->output);
}

static oct_status open_checkpoint(conversion *c)
{
    const char *target = c->args->option[TARGET].text;
    oct_phase phase;
    c->target = target ? oct_target_find(target) : NULL;
    if (target && !c->target) {
        oct_fail_clear();
        oct_registry_report_missing(&oct_target_id_table, "command line: --target", target,
                                    "see `octet targets`");
        return OCT_USAGE;
    }
    OCT_TRY(oct_subject_open(&c->subject, c->args->word[0],
                             OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                             "convert takes a checkpoint or a run folder"));
    OCT_TRY(oct_checkpoint_phase(&c->subject.checkpoint, &phase));
    OCT_CHECK(phase == OCT_PHASE_QAT_SCALES_FROZEN, OCT_PREPARE,
              "%s: its scales are not frozen yet (phase %s, step %lld); repeat the `octet train` "
              "command until the run reaches the phase %s, then convert that checkpoint",
              c->subject.checkpoint.path, c->subject.checkpoint.info.phase,
              (long long)c->subject.checkpoint.info.step,
              oct_phase_name(OCT_PHASE_QAT_SCALES_FROZEN));
    OCT_TRY(find_output(c));
    if (c->session->group->rank == 0) OCT_TRY(oct_file_check_place(c->output));
    return oct_subject_read_recipe(&c->subject, c->args->option[DATA].text);
}

static void print_conversion(const conversion *c)
{
    const oct_certificate *proof = &c->model.certificate;
    const bool classes = proof->qat_accuracy >= 0;
    double accuracy = proof->rows ? 100.0 * (double)proof->correct / (double)proof->rows : 0;
    if (!classes) accuracy = -1;
    int64_t float_bytes = oct_float_bytes(c->subject.root),
            int8_bytes = oct_int8_bytes(&c->model.program);
    if (c->args->json) {
        oct_print_json(json_pack(
            "{s:i, s:o, s:o, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "schema_version",
            1, "checkpoint", oct_json_string(c->subject.checkpoint.path), "model",
            oct_json_string(c->output), "target", c->model.program.target, "qat_accuracy",
            proof->qat_accuracy, "int8_accuracy", accuracy, "images", (json_int_t)proof->images,
            "logits", (json_int_t)(proof->images * oct_model_outputs(&c->model)), "logits_differ",
            (json_int_t)proof->logits_differ, "float_bytes", (json_int_t)float_bytes, "int8_bytes",
            (json_int_t)int8_bytes, "float_layers", (json_int_t)proof->num_fallbacks,
            "float_fallbacks", proof->fallbacks ? proof->fallbacks : ""));
        return;
    }
    if (classes)
        oct_print("%-20s %.2f %% (QAT evaluation %.2f %%)\n", "int8 accuracy", accuracy,
                  proof->qat_accuracy);
    oct_print("%-20s 0 of %s (%s images)\n", "logits that differ",
              oct_text_count(proof->images * oct_model_outputs(&c->model)).text,
              oct_text_count(proof->images).text);
    oct_print("%-20s %s to %s\n", "parameters", oct_text_size(float_bytes).text,
              oct_text_size(int8_bytes).text);
    const char *line = proof->fallbacks; /* each layer that stays float, and what was unrolled */
    if (line) oct_print("%-20s %lld\n", "float layers", (long long)proof->num_fallbacks);
    for (const char *end; line && (end = strchr(line, '\n')); line = end + 1)
        oct_print("%20s %.*s\n", "", (int)(end - line), line);
    oct_print("%-20s %s\n", "target", c->model.program.target);
    oct_print("%-20s %s\n", "int8 model", c->output);
}

static oct_status convert_in_session(conversion *c)
{
    oct_subject *s = &c->subject;
    OCT_TRY(oct_session_agree(c->session, open_checkpoint(c)));
    OCT_TRY(oct_subject_load_data(s, c->session, OCT_TEST));
    OCT_TRY(oct_subject_build(s, c->session));
    oct_conversion work = {
        .root = s->root, .recipe = &s->recipe, .test_data = &s->data, .target = c->target};
    oct_sha256(s->checkpoint.bytes, s->checkpoint.size, work.checkpoint_digest);
    OCT_TRY(oct_certify(&c->model, &work, c->session->group));
    const bool first = c->session->group->rank == 0;
    OCT_TRY(oct_session_agree(c->session, first ? oct_model_write(c->output, &c->model) : OCT_OK));
    if (first) print_conversion(c);
    return OCT_OK;
}

static oct_status run_convert(const oct_args *args)
{
    oct_session session;
    conversion c = {.session = &session, .args = args};
    OCT_TRY(oct_session_open(&session, args, OCT_DEADLINE_S));
    oct_status status = oct_session_end(&session, convert_in_session(&c));
    oct_subject_close(&c.subject);
    oct_model_free(&c.model);
    oct_free(&c.output);
    return status;
}

static const oct_option options[] = {
    [OUTPUT] = OCT_TEXT('o', "--output", "MODEL",
                        "file to write; default: model.int8.h5 in the run folder"),
    [DATA] = OCT_OPTION_DATA,
    [TARGET] =
        OCT_TEXT(0, "--target", "NAME",
                 "what the model will run on; refused when it was trained for another target"),
    [RANKS] = OCT_OPTION_RANKS,
    {0},
};

const oct_command oct_command_convert = {
    .name = "convert",
    .usage = "octet convert CHECKPOINT|RUN-FOLDER [-o MODEL] [--data FOLDER] [--target NAME]",
    .summary = "turns a checkpoint into an int8 model, with the proof that both compute the same",
    .help =
        "Takes a checkpoint whose scales are frozen (the end of a run) and writes the integer\n"
        "model. Before it is saved, QAT evaluation and integer model are compared on the whole\n"
        "test set, bit for bit; the outcome is the certificate inside the file, which `octet\n"
        "verify` repeats. `octet train` does this automatically at the end of a run.\n"
        "\n"
        "    octet convert runs/a -o a.int8.h5\n",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .parallel = true,
    .run = run_convert,
};
