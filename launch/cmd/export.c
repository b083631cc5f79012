/* octet export writes an int8 model or a checkpoint in a format of other programs, and beside it inputs with their
 * outputs by which a reader of the file can be checked. */
#include "core/base/cpu.h"
#include "core/nn/network.h"
#include "io/export/format.h"
#include "io/file/file.h"
#include "io/batch/normalise.h"
#include "launch/cmd/command.h"
#include "launch/cmd/subject.h"
#include "launch/deploy/certificate.h"
#include "launch/deploy/golden.h"
#include <octet/version.h>

#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT, OUTPUT, DATA, ALL_VALUES, PIXELS, CODES, PROCESSOR, FORCE };

/* An export from file to file. */
typedef struct exporting {
    const oct_args *args;
    const oct_export_format *format;
    oct_subject subject;
    char *path;        /* of the file */
    char *beside_path; /* of a second one; NULL: there is none */
    char *golden_path; /* NULL: no golden samples are written beside it */
    char *name;        /* of the file, without folder and suffix */
    oct_float_network network;
    float mean[OCT_REALS_MAX], std[OCT_REALS_MAX]; /* of a checkpoint */
    char sha256[65];                               /* of an int8 model's file */
    oct_export job;
    oct_exported made;
    int64_t golden_samples;
} exporting;

/* Checks before any work that a file can be written: an existing one is replaced only with --force, and never the one
 * that is exported. beside: the file accompanies the one that the command line names. */
static oct_status check_place(const exporting *e, const char *path, bool beside)
{
    const bool allowed = e->args->option[FORCE].given || !oct_file_exists(path);
    struct stat file, output;
    OCT_CHECK_ARGS(
        allowed, "-o %s: %s%salready exists; choose another file name, or --force to overwrite it",
        e->args->option[OUTPUT].text, beside ? path : "", beside ? ", which goes with it, " : "");
    OCT_CHECK_ARGS(stat(e->args->word[0], &file) != 0 || stat(path, &output) != 0 ||
                       file.st_dev != output.st_dev || file.st_ino != output.st_ino,
                   "-o %s: is the file that is exported; choose another file name", path);
    return oct_file_check_place(path);
}

/* Chooses all paths: "NAME.onnx.golden.npz" beside "NAME.onnx"; "NAME.h" beside "NAME.c", which may be called NAME. */
static oct_status choose_paths(exporting *e)
{
    OCT_CHECK_ARGS(e->args->option[OUTPUT].given,
                   "-o is missing; name the file to write, such as -o model%s", e->format->suffix);
    const char *path = e->args->option[OUTPUT].text, *suffix = e->format->suffix;
    size_t length = strlen(path);
    if (length > strlen(suffix) && strcmp(path + length - strlen(suffix), suffix) == 0)
        length -= strlen(suffix);
    size_t folder = length;
    while (folder > 0 && path[folder - 1] != '/')
        folder--;
    OCT_TRY(oct_format(&e->name, "%.*s", (int)(length - folder), path + folder));
    if (e->format->beside_suffix) {
        OCT_TRY(oct_format(&e->path, "%.*s%s", (int)length, path, suffix));
        OCT_TRY(oct_format(&e->beside_path, "%.*s%s", (int)length, path, e->format->beside_suffix));
        OCT_TRY(check_place(e, e->beside_path, true));
    } else {
        OCT_TRY(oct_strdup(&e->path, path));
    }
    OCT_TRY(check_place(e, e->path, false));
    if (!e->format->golden) return OCT_OK;
    OCT_TRY(oct_format(&e->golden_path, "%s.golden.npz", path));
    return check_place(e, e->golden_path, true);
}

static oct_status check_kind(exporting *e)
{
    const char *path = e->args->word[0];
    OCT_TRY(oct_file_take(path, OCT_FILE_MODEL | OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                          "export takes an int8 model, a checkpoint or a run folder",
                          &e->subject.kind));
    const bool model = e->subject.kind == OCT_FILE_MODEL;
    const bool fits = model ? e->format->write_model != NULL : e->format->write_network != NULL;
    OCT_CHECK_ARGS(fits, "--format %s: is for %s, but %s is %s", e->format->name,
                   model ? "checkpoints and run folders" : "int8 models", path,
                   model ? "an int8 model"
                         : "a checkpoint or a run folder; give the model.int8.h5 of its run");
    OCT_CHECK_ARGS(model || !e->args->option[ALL_VALUES].given,
                   "--all-values is for int8 models, whose codes it shows; %s is none", path);
    OCT_CHECK_ARGS(e->format->choices || !e->args->option[ALL_VALUES].given,
                   "--all-values is for --format onnx and tflite");
    OCT_CHECK_ARGS((model && e->format->processors) || !e->args->option[PROCESSOR].given,
                   "--processor is for --format onnx of int8 models; leave it out");
    OCT_CHECK_ARGS(!e->args->option[CODES].given || e->format->hands_over_codes,
                   "--codes is for formats whose inputs and outputs may be codes, as tflite's; "
                   "--format %s has floats",
                   e->format->name);
    OCT_CHECK_ARGS(!e->args->option[PIXELS].given || e->format->runs,
                   "--pixels is for --format onnx, tflite and c; leave it out for %s",
                   e->format->name);
    return OCT_OK;
}

/* Weights are signed for processors with VNNI alone: VNNI sums products of unsigned and signed bytes; without it and
 * with AVX2 such sums saturate. */
static oct_status choose_weights(exporting *e)
{
    const char *name = e->args->option[PROCESSOR].given ? e->args->option[PROCESSOR].text : "any";
    const oct_isa_set isa = oct_cpu_isa();
    const bool here = strcmp(name, "here") == 0;
    e->job.signed_weights =
        here ? oct_isa_has(isa, OCT_ISA_AVXVNNI) || oct_isa_has(isa, OCT_ISA_AVX512VNNI)
             : strcmp(name, "vnni") == 0;
    OCT_CHECK_ARGS(here || e->job.signed_weights || strcmp(name, "any") == 0,
                   "--processor %s: is none; it is any, vnni or here",
                   oct_show(name, strlen(name)).text);
    return OCT_OK;
}

static oct_status open_model(exporting *e)
{
    const char *path = e->args->word[0];
    oct_model *model = &e->subject.model;
    size_t size;
    OCT_TRY(oct_model_load(model, path, e->args->allow_large));
    OCT_TRY(oct_model_check_recipe(model, path));
    OCT_TRY(oct_file_sha256(path, &size, e->sha256));
    if (oct_count_fallbacks(&model->program) > 0) /* loads its plug-ins */
        OCT_TRY(oct_job_model_recipe(&e->subject.recipe, path, model, NULL));
    oct_export *job = &e->job;
    if (!oct_model_has_recipe(model) && e->format->runs) oct_golden_round_to_pixels(model);
    job->no_bytes = !oct_golden_are_pixels(model);
    OCT_CHECK(!job->pixels || !job->no_bytes, OCT_PREPARE, OCT_NO_PIXELS);
    job->model_sha256 = e->sha256;
    job->model = model;
    job->class_names = model->class_names;
    job->port_names = model->port_names;
    job->mean = model->mean;
    job->std = model->std;
    return OCT_OK;
}

static oct_status open_checkpoint(exporting *e)
{
    oct_subject *s = &e->subject;
    oct_phase phase;
    OCT_TRY(oct_job_open_checkpoint(&s->checkpoint, e->args->word[0], s->kind));
    OCT_TRY(oct_subject_read_recipe(s, e->args->option[DATA].text));
    OCT_TRY(oct_load_data(&s->recipe, OCT_TEST, NULL, &s->data));
    OCT_TRY(oct_build_model(&s->root, &s->recipe, &s->data));
    /* The network is looked at before prepare changes it. */
    OCT_TRY(oct_float_network_open(&e->network, s->root,
                                   OCT_EXAMPLE(OCT_SHAPE(1, s->data.h, s->data.w, s->data.c))));
    OCT_TRY(oct_bring_to_phase(&s->root, &s->checkpoint, &s->recipe, &s->data, &phase));
    OCT_TRY(oct_checkpoint_load(&s->checkpoint, s->root, NULL));
    if (phase != OCT_PHASE_FLOAT) OCT_TRY(oct_switch_quantizers_off(s->root));
    OCT_TRY(oct_float_network_find(&e->network, s->root));
    const oct_normaliser n = oct_normaliser_of(&s->recipe.data_mean, &s->recipe.data_std);
    oct_normaliser_spread(&n, s->data.c, e->mean, e->std);
    e->job.mean = e->mean;
    e->job.std = e->std;
    e->job.network = &e->network;
    e->job.class_names = s->checkpoint.info.class_names;
    e->job.port_names = oct_network_port_names(s->root);
    return OCT_OK;
}

/* Writes golden samples, the accompanying file and, last, the file of -o, which so never exists without the others. */
static oct_status write_files(exporting *e)
{
    oct_status status = OCT_OK;
    const oct_golden_source source = {.model = e->job.model,
                                      .root = e->subject.root,
                                      .recipe = &e->subject.recipe,
                                      .data = &e->subject.data,
                                      .pixels = e->job.pixels,
                                      .codes = e->job.codes,
                                      .channels_last = e->format->channels_last};
    const bool golden = !e->job.model || e->job.model->certificate.golden_count > 0;
    if (e->golden_path && !golden) {
        unlink(e->golden_path); /* of an earlier export, which this one replaces */
        oct_free(&e->golden_path);
    }
    if (e->golden_path) OCT_TRY(oct_golden_write(&source, e->golden_path, &e->golden_samples));
    if (e->beside_path)
        status = oct_file_write(e->beside_path, e->made.beside, e->made.beside_size);
    const bool beside = e->beside_path && status == OCT_OK;
    if (status == OCT_OK) status = oct_file_write(e->path, e->made.bytes, e->made.size);
    if (status != OCT_OK && beside) unlink(e->beside_path);
    if (status != OCT_OK && e->golden_path) unlink(e->golden_path);
    return status;
}

static void print_export(const exporting *e)
{
    const char *of = e->job.model ? "int8 model" : "float network";
    const char *notices = e->made.notices.data;
    json_t *lines = e->args->json ? json_array() : NULL;
    for (const char *at = notices; lines && at && *at; at += strcspn(at, "\n") + 1)
        json_array_append_new(lines, json_stringn(at, strcspn(at, "\n")));
    if (e->args->json) {
        oct_print_json(json_pack("{s:s, s:s, s:o, s:o*, s:I, s:o*, s:I, s:s*, s:s*, s:I, s:o}",
                                 "format", e->format->name, "of", of, "file",
                                 oct_json_string(e->path), "beside",
                                 oct_json_string(e->beside_path), "bytes", (json_int_t)e->made.size,
                                 "golden", oct_json_string(e->golden_path), "golden_samples",
                                 (json_int_t)e->golden_samples, "weights",
                                 !e->job.model || !e->format->processors ? NULL
                                 : e->job.signed_weights                 ? "s8"
                                                                         : "u8",
                                 "operators", e->made.operators.data, "arena",
                                 (json_int_t)e->made.arena, "notices", lines));
        return;
    }
    oct_print("%-14s %s (%s, %s)\n", e->format->name, e->path, of,
              oct_text_size((int64_t)e->made.size).text);
    if (e->beside_path)
        oct_print("%-14s %s (%s)\n", "with", e->beside_path,
                  oct_text_size((int64_t)e->made.beside_size).text);
    if (e->golden_path)
        oct_print("%-14s %s (%lld inputs and outputs)\n", "golden samples", e->golden_path,
                  (long long)e->golden_samples);
    if (e->job.model && e->format->processors)
        oct_print("%-14s %s\n", "weights",
                  e->job.signed_weights
                      ? "s8, for processors with VNNI alone"
                      : "u8, for any processor; with VNNI --processor vnni is 2 to 4 "
                        "times as fast in ONNX Runtime");
    if (e->made.operators.data)
        oct_print("%-14s %s\n%-14s %s bytes of tensors in TFLM's arena, beside its own\n",
                  "operators", e->made.operators.data, "memory",
                  oct_text_count(e->made.arena).text);
    for (const char *at = notices; at && *at; at += strcspn(at, "\n") + 1)
        oct_print("%-14s %.*s\n", "notice", (int)strcspn(at, "\n"), at);
}

static oct_status export_subject(exporting *e)
{
    const char *format = e->args->option[FORMAT].text;
    char names[OCT_REGISTRY_CHOICE_BYTES];
    oct_registry_choice(&oct_export_format_table, " or ", names);
    OCT_CHECK_ARGS(format, "--format is missing; write --format NAME, where NAME is %s", names);
    e->format = oct_registry_find(&oct_export_format_table, format);
    if (!e->format) {
        oct_fail_clear();
        oct_registry_report_missing(&oct_export_format_table, "command line: --format", format,
                                    names);
        return OCT_USAGE;
    }
    OCT_TRY(check_kind(e));
    OCT_TRY(choose_paths(e));
    e->job.version = OCT_VERSION;
    e->job.name = e->name;
    e->job.all_values = e->args->option[ALL_VALUES].given;
    e->job.pixels = e->args->option[PIXELS].given;
    e->job.codes = e->args->option[CODES].given;
    OCT_TRY(choose_weights(e));
    OCT_TRY(e->subject.kind == OCT_FILE_MODEL ? open_model(e) : open_checkpoint(e));
    const oct_status status = e->job.model ? e->format->write_model(&e->job, &e->made)
                                           : e->format->write_network(&e->job, &e->made);
    if (status == OCT_USAGE) return status; /* the command line, not the file */
    if (status != OCT_OK) return oct_fail_prefix("%s", e->args->word[0]);
    if (e->network.folded > 0)
        OCT_TRY(oct_text_add(&e->made.notices,
                             "%lld batch norms are folded into their layers in this checkpoint; "
                             "one of the float phase has them\n",
                             (long long)e->network.folded));
    if (e->job.model && e->job.model->certificate.golden_count == 0)
        OCT_TRY(oct_text_add(&e->made.notices,
                             "the model holds no golden inputs, so nothing goes with the file by "
                             "which its outputs can be checked; the program that made the model "
                             "adds them with oct_model_set_golden\n"));
    OCT_TRY(write_files(e));
    print_export(e);
    return OCT_OK;
}

static oct_status run_export(const oct_args *args)
{
    OCT_OWNED(oct_free) exporting *e = NULL;
    OCT_TRY(oct_alloc(&e, 1, sizeof *e));
    e->args = args;
    const oct_status status = export_subject(e);
    oct_exported_free(&e->made);
    oct_float_network_close(&e->network);
    oct_subject_close(&e->subject);
    OCT_FREE_ALL(&e->path, &e->beside_path, &e->golden_path, &e->name);
    return status;
}

static const oct_option options[] = {
    [FORMAT] = OCT_TEXT('f', "--format", "NAME",
                        "onnx; tflite, c or flat of an int8 model; safetensors of a checkpoint"),
    [OUTPUT] = OCT_TEXT('o', "--output", "OUT", "file to write"),
    [DATA] = OCT_TEXT(0, "--data", "FOLDER",
                      "of a checkpoint: folder of the data set, if it is not where the run had it"),
    [ALL_VALUES] =
        OCT_SWITCH(0, "--all-values", "of an int8 model: each tensor of codes is an output too"),
    [PIXELS] =
        OCT_SWITCH(0, "--pixels",
                   "inputs are pixels from 0 to 255 (c: also); normalising is part of the network"),
    [CODES] =
        OCT_SWITCH(0, "--codes",
                   "tflite: input and output are codes, whose scale and zero point the file has"),
    [PROCESSOR] =
        OCT_TEXT(0, "--processor", "NAME",
                 "onnx of an int8 model: it is for any, for those with vnni, or as here (above)"),
    [FORCE] = OCT_SWITCH(0, "--force", "overwrite files that are there"),
    {0},
};

const oct_command oct_command_export = {
    .name = "export",
    .usage = "octet export FILE --format NAME -o OUT [--all-values] [--pixels] [--codes] "
             "[--processor NAME] [--data FOLDER] [--force]",
    .summary = "writes a model or checkpoint for other programs: ONNX, TFLite, C, safetensors",
    .help =
        "FILE is an int8 model (*.int8.h5), a checkpoint or a run folder (its newest\n"
        "checkpoint).\n"
        "\n"
        "    octet export runs/a/model.int8.h5 --format onnx -o a.onnx     the int8 model\n"
        "    octet export runs/a/model.int8.h5 --format tflite -o b.tflite the same for TFLite\n"
        "    octet export runs/a/model.int8.h5 --format c -o kws           kws.c and kws.h\n"
        "    octet export runs/a/model.int8.h5 --format flat -o a.flat     for C programs without "
        "HDF5\n"
        "    octet export runs/a --format onnx -o float.onnx               the float network\n"
        "    octet export runs/a --format safetensors -o a.safetensors     its parameters\n"
        "\n"
        "onnx: opset 13 (21 with codes of 16 bits), images (N, C, H, W), any N. The input is\n"
        "float, normalised as in training (the properties octet.mean and octet.std of the file\n"
        "say how), or with --pixels bytes as they are. Of an int8 model QuantizeLinear and\n"
        "DequantizeLinear are around each layer that computes. A model that was trained for\n"
        "quant.target: onnxruntime gives the same codes there; for others a notice says what may\n"
        "differ.\n"
        "--processor any: weights are unsigned bytes around 128, which are exact everywhere.\n"
        "--processor vnni: signed ones, with which ONNX Runtime is 2 to 4 times as fast where\n"
        "the processor has VNNI (`grep vnni /proc/cpuinfo` prints something); with AVX2 and no\n"
        "VNNI they give wrong sums without a word, unless the session sets\n"
        "session.x64quantprecision to 1.\n"
        "--processor here: vnni where this machine has it, otherwise any.\n"
        "tflite: images (1, H, W, C), input and output as for onnx, or with --codes the signed\n"
        "bytes that TFLite computes with. A model that was trained for quant.target: tflite\n"
        "gives the same codes in TFLite with its XNNPACK delegate; for others a notice says what\n"
        "may differ.\n"
        "c: C99 for microcontrollers, and the model's specification to read: no allocation,\n"
        "nothing but <stdint.h>, values between layers in static memory, weights const;\n"
        "kws_run() and, with --pixels, kws_run_pixels() give every code that Octet computes, bit\n"
        "for bit. Compiled with KWS_SELF_TEST defined, kws_self_test() counts the outputs of\n"
        "golden inputs that differ.\n"
        "flat: the program as one file that is mapped into memory (quant/program/flat.h,\n"
        "pkg-config octet-flat): no HDF5, and the bits of the model; commands take it as they\n"
        "take a model.\n"
        "safetensors: names and layouts as PyTorch has them.\n"
        "\n"
        "Beside ONNX and TFLite files is OUT.golden.npz: inputs, and the outputs that Octet\n"
        "computes of them; with --codes both are codes.\n",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .run = run_export,
};
