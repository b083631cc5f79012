/* octet convert makes an int8 model of a checkpoint, with the certificate that both compute the
 * same. */
#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/session/build.h"
#include "launch/deploy/certificate.h"
#include "launch/deploy/device.h"
#include "launch/cmd/command.h"
#include "launch/session/file_kind.h"
#include "launch/session/job.h"
#include "launch/base/output.h"
#include "launch/base/meter.h"
#include "launch/runfolder/run_folder.h"

#include <string.h>

enum { OUTPUT, DATA, TARGET, RANKS };

typedef struct conversion {
    oct_session *session;
    const oct_args *args;
    oct_checkpoint checkpoint;
    char *output;
    oct_recipe recipe;
    oct_dataset data;
    oct_module *root;
    oct_model model;
    const oct_target *target; /* NULL: what the checkpoint was prepared for */
} conversion;

/* Without -o the model goes where the run itself puts it. */
static oct_status find_output(conversion *c)
{
    char *folder = NULL;
    if (c->args->option[OUTPUT].given) {
        const char *path = c->args->option[OUTPUT].text;
        bool replaces = false;
        OCT_TRY(oct_model_is(path, &replaces));
        OCT_CHECK(!oct_file_exists(path) || replaces, OCT_USAGE,
                  "command line: -o %s: already exists and is not an int8 model; choose another "
                  "file name",
                  path);
        return oct_strdup(&c->output, path);
    }
    OCT_TRY(oct_run_folder_of(c->checkpoint.path, &folder));
    OCT_CHECK(folder, OCT_USAGE,
              "command line: this checkpoint is not in a run folder; name the output with -o "
              "MODEL.int8.h5");
    oct_status status = oct_run_path(folder, "model.int8.h5", &c->output);
    oct_free(&folder);
    return status;
}

static oct_status open_all(conversion *c)
{
    const char *path = c->args->word[0], *target = c->args->option[TARGET].text;
    oct_file_kind kind;
    oct_phase phase;
    c->target = target ? oct_target_find(target) : NULL;
    if (target && !c->target) {
        oct_fail_clear();
        oct_registry_report_missing(&oct_target_id_table, "command line: --target", target,
                                    "see `octet targets`");
        return OCT_USAGE;
    }
    OCT_TRY(oct_file_take(path, OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                          "convert takes a checkpoint or a run folder", &kind));
    OCT_TRY(oct_job_checkpoint(&c->checkpoint, path, kind));
    OCT_TRY(oct_checkpoint_phase(&c->checkpoint, &phase));
    OCT_CHECK(phase == OCT_PHASE_QAT_SCALES_FROZEN, OCT_PREPARE,
              "%s: its scales are not frozen yet (phase %s, step %lld); repeat the `octet train` "
              "command until the run reaches the phase %s, then convert that checkpoint",
              c->checkpoint.path, c->checkpoint.info.phase, (long long)c->checkpoint.info.step,
              oct_phase_name(OCT_PHASE_QAT_SCALES_FROZEN));
    OCT_TRY(find_output(c));
    if (c->session->group->rank == 0) OCT_TRY(oct_file_check_place(c->output));
    return oct_job_checkpoint_recipe(&c->recipe, &c->checkpoint, c->args->option[DATA].text);
}

static oct_status print_conversion(const conversion *c)
{
    const oct_certificate *proof = &c->model.certificate;
    const bool classes = proof->qat_accuracy >= 0;
    double accuracy = proof->rows ? 100.0 * (double)proof->correct / (double)proof->rows : 0;
    if (!classes) accuracy = -1;
    int64_t float_bytes = oct_float_bytes(c->root), int8_bytes = oct_int8_bytes(&c->model.program);
    char images[32], logits[32];
    if (c->args->json)
        return oct_print_json(json_pack(
            "{s:i, s:s, s:s, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "schema_version",
            1, "checkpoint", c->checkpoint.path, "model", c->output, "target",
            c->model.program.target, "qat_accuracy", proof->qat_accuracy, "int8_accuracy", accuracy,
            "images", (json_int_t)proof->images, "logits",
            (json_int_t)(proof->images * oct_model_outputs(&c->model)), "logits_differ",
            (json_int_t)proof->logits_differ, "float_bytes", (json_int_t)float_bytes, "int8_bytes",
            (json_int_t)int8_bytes, "float_layers", (json_int_t)proof->num_fallbacks,
            "float_fallbacks", proof->fallbacks ? proof->fallbacks : ""));
    if (classes)
        OCT_TRY(oct_print("%-20s %.2f %% (QAT evaluation %.2f %%)\n", "int8 accuracy", accuracy,
                          proof->qat_accuracy));
    OCT_TRY(oct_print("%-20s 0 of %s (%s images)\n", "logits that differ",
                      oct_text_count(proof->images * oct_model_outputs(&c->model), logits),
                      oct_text_count(proof->images, images)));
    OCT_TRY(oct_print("%-20s %s to %s\n", "parameters", oct_text_size(float_bytes).text,
                      oct_text_size(int8_bytes).text));
    const char *line = proof->fallbacks; /* each layer that stays float, and what was unrolled */
    if (line) OCT_TRY(oct_print("%-20s %lld\n", "float layers", (long long)proof->num_fallbacks));
    for (const char *end; line && (end = strchr(line, '\n')); line = end + 1)
        OCT_TRY(oct_print("%20s %.*s\n", "", (int)(end - line), line));
    OCT_TRY(oct_print("%-20s %s\n", "target", c->model.program.target));
    return oct_print("%-20s %s\n", "int8 model", c->output);
}

static oct_status convert_in_session(conversion *c)
{
    OCT_TRY(oct_session_agree(c->session, open_all(c)));
    c->recipe.threads = oct_job_share_of_cores();
    oct_job_threads(c->session, c->recipe.threads);
    OCT_TRY(oct_job_data(c->session, &c->recipe, OCT_TEST, &c->data));
    oct_conversion work = {.recipe = &c->recipe, .test_data = &c->data, .target = c->target};
    bool prepared;
    oct_sha256(c->checkpoint.bytes, c->checkpoint.size, work.checkpoint_digest);
    oct_status status =
        oct_build_from_checkpoint(&c->root, &c->checkpoint, &c->recipe, &c->data, &prepared);
    OCT_TRY(oct_session_agree(c->session, status));
    work.root = c->root;
    OCT_TRY(oct_certify(&c->model, &work, c->session->group));
    bool first = c->session->group->rank == 0;
    status = first ? oct_model_save(c->output, &c->model) : OCT_OK;
    OCT_TRY(oct_session_agree(c->session, status));
    return first ? print_conversion(c) : OCT_OK;
}

static oct_status run_convert(const oct_args *args)
{
    oct_session session;
    conversion c = {.session = &session, .args = args};
    OCT_TRY(oct_session_open(&session, args, OCT_DEADLINE_S));
    oct_status status = oct_session_end(&session, convert_in_session(&c));
    oct_checkpoint_close(&c.checkpoint);
    oct_model_free(&c.model);
    oct_module_destroy(&c.root);
    oct_recipe_free(&c.recipe);
    oct_dataset_close(&c.data);
    oct_free(&c.output);
    return status;
}

static const oct_option options[] = {
    [OUTPUT] = {"--output", 'o', OCT_OPT_TEXT, "MODEL",
                "file to write; default: model.int8.h5 in the run folder", 0, 0},
    [DATA] = {"--data", 0, OCT_OPT_TEXT, "FOLDER",
              "folder of the data set, if it is not where the run had it", 0, 0},
    [TARGET] = {"--target", 0, OCT_OPT_TEXT, "NAME",
                "what the model will run on; refused when it was trained for another target", 0, 0},
    [RANKS] = {"--ranks", 0, OCT_OPT_COUNT, "N", "run on N ranks, started with mpirun", 1, 4096},
    {0},
};

const oct_command oct_command_convert = {
    .name = "convert",
    .usage = "octet convert CHECKPOINT|RUN-FOLDER [-o MODEL] [--data FOLDER] [--target NAME]",
    .summary = "turns a checkpoint into an int8 model, with the proof that both compute the same",
    .help =
        "Takes a checkpoint whose scales are frozen (the end of a run) and writes the integer "
        "model.\n"
        "Before it is saved, QAT evaluation and integer model are compared on the whole test set, "
        "bit\n"
        "for bit; the outcome is the certificate inside the file, which `octet verify` repeats.\n"
        "`octet train` does this automatically at the end of a run.\n"
        "\n"
        "    octet convert runs/a -o a.int8.h5\n",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .parallel = true,
    .run = run_convert,
};
