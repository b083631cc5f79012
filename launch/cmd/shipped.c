/* These recipes come with the program. */
#include "launch/cmd/shipped.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm.h"
#include "dist/rank_table.h"
#include "launch/cmd/data_recipe.h"
#include "launch/session/file_kind.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char ending[] = ".yaml";

/* Finds <folder of the program>/../share/octet/recipes, or the source folder that this was built
 * from. */
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

/* The length of a file's name without its ending; 0: it is no recipe's. */
static size_t stem_length(const char *file)
{
    const size_t length = strlen(file), end = strlen(ending);
    const bool fits = length > end && length - end < OCT_SHIPPED_NAME;
    return fits && strcmp(file + length - end, ending) == 0 ? length - end : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

oct_status oct_shipped_list(oct_shipped *list)
{
    list->count = 0;
    recipes_folder(list->folder);
    DIR *folder = opendir(list->folder);
    OCT_CHECK(folder, OCT_DATA, "%s: the shipped recipes are not there: %s", list->folder,
              strerror(errno));
    for (struct dirent *e = readdir(folder); e && list->count < OCT_SHIPPED_MAX;
         e = readdir(folder))
        if (stem_length(e->d_name) > 0)
            snprintf(list->name[list->count++], OCT_SHIPPED_NAME, "%.*s",
                     (int)stem_length(e->d_name), e->d_name);
    closedir(folder);
    qsort(list->name, list->count, OCT_SHIPPED_NAME, by_name);
    return OCT_OK;
}

const char *oct_shipped_nearest(const oct_shipped *list, const char *word)
{
    const char *names[OCT_SHIPPED_MAX];
    char stem[OCT_SHIPPED_NAME];
    for (size_t i = 0; i < list->count; i++)
        names[i] = list->name[i];
    snprintf(stem, sizeof stem, "%.*s", (int)stem_length(word), word);
    return oct_nearest(*stem ? stem : word, names, list->count);
}

oct_status oct_shipped_hint(const char *path)
{
    static oct_shipped list;
    const char *slash = strrchr(path, '/');
    if (access(path, F_OK) == 0 || errno != ENOENT) return OCT_OK;
    if (oct_shipped_list(&list) != OCT_OK) oct_fail_clear();
    const char *near = oct_shipped_nearest(&list, slash ? slash + 1 : path);
    OCT_CHECK(near, OCT_DATA,
              "%s: there is no such file; `octet recipes` lists recipes to begin with", path);
    return oct_fail(OCT_DATA,
                    "%s: there is no such file; did you mean the shipped recipe %s? `octet recipes "
                    "%s > my.yaml` writes it to my.yaml",
                    path, near, near);
}

/* Octet's own files are named; of anything else the reader says where it is no recipe. */
static oct_status check_kind(const char *path)
{
    oct_file_kind kind = OCT_FILE_RECIPE;
    if (oct_file_kind_of(path, &kind) != OCT_OK) oct_fail_clear();
    OCT_CHECK(kind == OCT_FILE_RECIPE, OCT_DATA,
              "%s: is %s %s, not a recipe; the recipe of its run is recipe.yaml in the run folder",
              path, kind == OCT_FILE_MODEL ? "an" : "a", oct_file_kind_name(kind));
    return OCT_OK;
}

/* Opening data of many files takes its time, so the processes that this one starts get what it has found. */
static oct_status begin_recipe(const char *path, oct_text *text)
{
    static const char variable[] =
        "OCTET_BEGUN_RECIPE"; /* the path, and in a new line the recipe */
    const char *begun = getenv(variable);
    const size_t length = strlen(path);
    char *value = NULL;
    int rank, ranks;
    if (begun && strncmp(begun, path, length) == 0 && begun[length] == '\n')
        return oct_text_add(text, "%s", begun + length + 1);
    OCT_TRY(oct_data_recipe(path, text));
    OCT_TRY(oct_format(&value, "%s\n%s", path, text->data));
    if (!oct_launched(&rank, &ranks)) setenv(variable, value, 1);
    oct_free(&value);
    return OCT_OK;
}

/* Data in place of a recipe begin one; what was chosen is said once, by the process that started the ranks. */
static oct_status read_of_data(oct_recipe *recipe, const char *path, const char *const *overrides,
                               size_t count)
{
    static bool said;
    oct_text text = {0};
    oct_status status = begin_recipe(path, &text);
    if (status == OCT_OK) status = oct_recipe_read(recipe, path, text.data, overrides, count);
    oct_text_free(&text);
    OCT_TRY(status);
    if (!said && !getenv(OCT_RANK_TABLE_VARIABLE))
        oct_log(OCT_LOG_INFO,
                "%s: data of the format %s; a recipe begins with model.name=%s data.goal=%s%s%s "
                "float.epochs=%lld output=%s; change any key as key=value",
                path, oct_registry_name(&oct_dataset_id_table, recipe->data_format),
                oct_recipe_model(recipe),
                oct_registry_name(&oct_goal_kind_table, recipe->data_goal),
                recipe->data_size[0] ? " data.size=" : "", recipe->data_size,
                (long long)recipe->float_epochs, recipe->output);
    said = true;
    return OCT_OK;
}

oct_status oct_recipe_of_words(oct_recipe *recipe, const char *path, const char *const *overrides,
                               size_t count)
{
    char inside[4200];
    struct stat info;
    OCT_TRY(oct_shipped_hint(path));
    snprintf(inside, sizeof inside, "%s/recipe.yaml", path);
    if (oct_data_is(path)) return read_of_data(recipe, path, overrides, count);
    OCT_CHECK(access(inside, F_OK) != 0, OCT_DATA,
              "%s: is a run folder, not a recipe; its recipe is %s", path, inside);
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) OCT_TRY(check_kind(path));
    return oct_recipe_read(recipe, path, NULL, overrides, count);
}

oct_status oct_recipe_of_args(oct_recipe *recipe, const oct_args *args)
{
    return oct_recipe_of_words(recipe, args->word[0], args->word + 1, args->num_words - 1);
}
