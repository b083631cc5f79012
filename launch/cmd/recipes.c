/* octet recipes lists the shipped recipes, or prints one. */
#include "io/file/file.h"
#include "launch/cmd/command.h"
#include "launch/cmd/recipe_args.h"

enum { RECIPE_BYTES_MAX = 1 << 20 };

static oct_status read_shipped(const oct_shipped *list, size_t i, char **text)
{
    char path[4300];
    void *bytes = NULL;
    size_t size;
    snprintf(path, sizeof(path), "%s/%s.yaml", list->folder, list->name[i]);
    OCT_TRY(oct_file_read(path, RECIPE_BYTES_MAX, &bytes, &size));
    *text = bytes;
    return OCT_OK;
}

/* Reads what a recipe is for: its first line is a comment that says it. */
static oct_status read_summary(const oct_shipped *list, size_t i, char line[200])
{
    OCT_OWNED(oct_free) char *text = NULL;
    OCT_TRY(read_shipped(list, i, &text));
    const char *at = text + strspn(text, "# ");
    snprintf(line, 200, "%.*s", (int)strcspn(at, "\r\n"), at);
    return OCT_OK;
}

static oct_status print_json(const oct_shipped *list)
{
    json_auto_t *array = json_array();
    char line[200];
    for (size_t i = 0; i < list->count; i++) {
        OCT_TRY(read_summary(list, i, line));
        json_array_append_new(array, json_pack("{s:s+, s:s, s:s}", "file", list->name[i], ".yaml",
                                               "folder", list->folder, "summary", line));
    }
    oct_print_json(json_incref(array));
    return OCT_OK;
}

/* Finds a recipe by its name, with or without its ending. */
static oct_status print_shipped(const oct_shipped *list, const char *wanted)
{
    for (size_t i = 0; i < list->count; i++) {
        const size_t length = strlen(list->name[i]);
        OCT_OWNED(oct_free) char *text = NULL;
        if (strncmp(wanted, list->name[i], length) != 0 ||
            (wanted[length] && strcmp(wanted + length, ".yaml") != 0))
            continue;
        OCT_TRY(read_shipped(list, i, &text));
        oct_print("%s", text);
        return OCT_OK;
    }
    const char *near = oct_shipped_nearest(list, wanted);
    OCT_CHECK_ARGS(near, "no recipe '%s'; octet recipes lists them", wanted);
    return oct_fail(OCT_USAGE, "command line: no recipe '%s'; did you mean '%s'?", wanted, near);
}

static oct_status run_recipes(const oct_args *args)
{
    static oct_shipped list;
    OCT_TRY(oct_shipped_list(&list));
    if (args->num_words) return print_shipped(&list, args->word[0]);
    if (args->json) return print_json(&list);
    for (size_t i = 0; i < list.count; i++) {
        char line[200];
        OCT_TRY(read_summary(&list, i, line));
        oct_print("%-24s %s\n", list.name[i], line);
    }
    oct_print("\nIn %s; octet recipes NAME prints one.\n", list.folder);
    return OCT_OK;
}

const oct_command oct_command_recipes = {
    .name = "recipes",
    .usage = "octet recipes [NAME]",
    .summary = "lists the shipped recipes, or prints one to edit",
    .help = "Without NAME: a list. With NAME: the recipe itself, a file to edit and train.\n"
            "\n"
            "    octet recipes fashion-mnist > my.yaml\n",
    .max_words = 1,
    .run = run_recipes,
};
