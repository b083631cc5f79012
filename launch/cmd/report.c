/* octet report writes the HTML report of a run, or of two side by side. */
#include "io/file/file.h"
#include "launch/cmd/command.h"
#include "launch/report/page.h"

enum { OUTPUT };

static oct_status run_report(const oct_args *args)
{
    const char *first = args->word[0], *second = args->num_words > 1 ? args->word[1] : NULL;
    const char *path = args->option[OUTPUT].given ? args->option[OUTPUT].text : "report.html";
    OCT_OWNED(oct_text_free) oct_text text = {0};
    /* A report replaces a page, and nothing else: a mistyped name must not cost a file. */
    OCT_CHECK_ARGS(!oct_file_exists(path) || oct_page_is_name(path),
                   "-o %s: already exists and does not end in .html; choose another file name",
                   path);
    OCT_TRY(oct_page_text(&text, first, second, args->allow_large));
    OCT_TRY(oct_file_write(path, text.data, text.length));
    if (args->json)
        oct_print_json(json_pack("{s:i, s:s, s:o, s:I}", "schema_version", 1, "kind", "report",
                                 "file", oct_json_string(path), "bytes", (json_int_t)text.length));
    else
        oct_print("the report is in %s\n", path);
    return OCT_OK;
}

static const oct_option options[] = {
    [OUTPUT] = OCT_TEXT('o', "--output", "FILE", "file to write (default report.html)"),
    {0},
};

const oct_command oct_command_report = {
    .name = "report",
    .usage = "octet report RUN [RUN2] [-o report.html]",
    .summary = "draws a run, or two side by side, as one HTML page",
    .help =
        "One file that works by itself, without a network: curves with the phases, throughput\n"
        "and memory, the graph, each layer with its codes and histograms, confusion matrix,\n"
        "worst images, certificate, environment and recipe. What a run does not hold is a line\n"
        "that says why. octet train writes the report of its run at the end: report.html in the\n"
        "run folder, the same bytes.\n"
        "\n"
        "    octet report runs/a -o a.html\n"
        "    octet report runs/a runs/b -o ab.html\n",
    .options = options,
    .min_words = 1,
    .max_words = 2,
    .run = run_report,
};
