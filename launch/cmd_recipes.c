/* octet recipes: the shipped recipes. They lie beside the sources, or beside an installed program. */
#include "core/base/mem.h"
#include "io/file.h"
#include "launch/command.h"
#include "launch/output.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECIPES_MAX = 128, NAME_BYTES = 64, RECIPE_BYTES_MAX = 1 << 20 };

/* <folder of the program>/../share/octet/recipes, or the source folder that this was built from. */
static const char *recipes_folder(char folder[4200])
{
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length > 0) {
        program[length] = '\0';
        char *slash = strrchr(program, '/');
        if (slash) *slash = '\0';
        snprintf(folder, 4200, "%s/../share/octet/recipes", program);
        if (access(folder, R_OK) == 0) return folder;
    }
    snprintf(folder, 4200, "%s", OCT_RECIPES_DIR);
    return folder;
}

typedef struct recipe_list {
    char folder[4200];
    char file[RECIPES_MAX][NAME_BYTES]; /* "fashion-mnist.yaml" */
    size_t count;
} recipe_list;

static size_t stem_length(const char *file)
{
    return strlen(file) - strlen(".yaml");
}

static bool is_recipe(const char *file)
{
    size_t length = strlen(file);
    return length > 5 && length < NAME_BYTES && strcmp(file + length - 5, ".yaml") == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static oct_status list_read(recipe_list *list)
{
    recipes_folder(list->folder);
    DIR *folder = opendir(list->folder);
    OCT_CHECK(folder, OCT_DATA, "%s: the shipped recipes are not there: %s", list->folder,
              strerror(errno));
    for (struct dirent *e = readdir(folder); e && list->count < RECIPES_MAX; e = readdir(folder))
        if (is_recipe(e->d_name))
            memcpy(list->file[list->count++], e->d_name, strlen(e->d_name) + 1);
    closedir(folder);
    qsort(list->file, list->count, NAME_BYTES, by_name);
    return OCT_OK;
}

static oct_status read_one(const recipe_list *list, size_t i, char **text)
{
    char path[4300];
    void *bytes = NULL;
    size_t size;
    snprintf(path, sizeof(path), "%s/%s", list->folder, list->file[i]);
    OCT_TRY(oct_file_read(path, RECIPE_BYTES_MAX, &bytes, &size));
    *text = bytes;
    return OCT_OK;
}

/* What a recipe is for: its first line, a comment. */
static void first_comment(const char *text, char line[200])
{
    while (*text == '#' || *text == ' ')
        text++;
    snprintf(line, 200, "%.*s", (int)strcspn(text, "\r\n"), text);
}

static oct_status print_list(const recipe_list *list)
{
    char *text = NULL, line[200];
    for (size_t i = 0; i < list->count; i++) {
        OCT_TRY(read_one(list, i, &text));
        first_comment(text, line);
        oct_free(&text);
        OCT_TRY(oct_print("%-24.*s %s\n", (int)stem_length(list->file[i]), list->file[i], line));
    }
    return oct_print("\nIn %s; octet recipes NAME prints one.\n", list->folder);
}

static oct_status print_json(const recipe_list *list)
{
    json_t *array = json_array();
    oct_status status = OCT_OK;
    char *text = NULL, line[200];
    for (size_t i = 0; i < list->count; i++) {
        OCT_TRY_OUT(read_one(list, i, &text));
        first_comment(text, line);
        oct_free(&text);
        json_array_append_new(array, json_pack("{s:s, s:s, s:s}", "file", list->file[i], "folder",
                                               list->folder, "summary", line));
    }
    return oct_print_json(array);
out:
    json_decref(array);
    return status;
}

/* By name, with or without its ending. */
static oct_status print_one(const recipe_list *list, const char *wanted)
{
    const char *names[RECIPES_MAX];
    char stems[RECIPES_MAX][NAME_BYTES];
    for (size_t i = 0; i < list->count; i++) {
        snprintf(stems[i], NAME_BYTES, "%.*s", (int)stem_length(list->file[i]), list->file[i]);
        names[i] = stems[i];
        if (strcmp(wanted, list->file[i]) == 0 || strcmp(wanted, stems[i]) == 0) {
            char *text = NULL;
            OCT_TRY(read_one(list, i, &text));
            oct_status status = oct_print("%s", text);
            oct_free(&text);
            return status;
        }
    }
    char hint[OCT_HINT_BYTES];
    return oct_fail(OCT_USAGE, "command line: no recipe '%s'; %s", wanted,
                    oct_did_you_mean(hint, wanted, names, list->count, "octet recipes lists them"));
}

static oct_status run(const oct_args *args)
{
    static recipe_list list;
    list.count = 0;
    OCT_TRY(list_read(&list));
    if (args->num_words) return print_one(&list, args->word[0]);
    return args->json ? print_json(&list) : print_list(&list);
}

const oct_command oct_command_recipes = {
    .name = "recipes",
    .usage = "octet recipes [NAME]",
    .summary = "lists the shipped recipes, or prints one to edit",
    .help = "octet recipes fashion-mnist > my.yaml writes one to start from.",
    .max_words = 1,
    .run = run,
};
