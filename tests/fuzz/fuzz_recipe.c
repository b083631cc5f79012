/* Recipes: read, and what is read is what is written, as a whole and as an identity. */
#include "core/base/text.h"
#include "io/recipe/recipe.h"
#include "io/recipe/recipe_impl.h"
#include "tests/fuzz/fuzz.h"

#include "core/base/log.h"
#include "core/base/mem.h"

#include <string.h>

const char *const fuzz_name = "recipe";
static const char *const words[] = {
#define OCT_KEY(key, field, kind, def, min, max, table, same, help) key,
#include "io/recipe/recipe_list.def"
#undef OCT_KEY
    ": ",          "\n",    "\n  ",     "- ",    "[",        "]",
    "{",           "}",     ", ",       "'",     "\"",       "#",
    "null",        "~",     "true",     "1e308", "-1",       ".nan",
    "0x10",        "1_000", "*a",       "&a",    "!!int",    "---\n",
    "%YAML 1.1\n", "\\e",   "\xc3\xa4", "\xff",  "\x1b[31m", "99999999999999999999",
    "|\n",         ">\n",   "? ",       NULL};
const char *const *const fuzz_words = words;

void fuzz_seeds(void)
{
    static const char small[] = "schema: 1\nmodel: {name: cnn-small}\n";
    static const char lists[] = "schema: 1\nplugins: [a.so, 'b.so']\nmodel:\n  name: cnn-small\n"
                                "data:\n  mean: [0.5, 1e-3]\n  std:\n  - 1\n  - 2\n"
                                "quant.float_layers: [\"head*\", 'a.b']\n";
    oct_recipe recipe;
    oct_text text = {0};
    fuzz_seed(small, strlen(small));
    fuzz_seed(lists, strlen(lists));
    MAKE(oct_recipe_read(&recipe, "seed", small, NULL, 0));
    MAKE(oct_recipe_write(&recipe, false, &text));
    fuzz_seed(text.data, text.length);
    oct_text_free(&text);
    oct_recipe_free(&recipe);
}

typedef struct written {
    const oct_recipe *recipe;
    bool identity;
} written;

static oct_status print(const void *thing, oct_text *text)
{
    const written *w = thing;
    return oct_recipe_write(w->recipe, w->identity, text);
}

static oct_status reprint(const void *thing, const oct_text *first, oct_text *second)
{
    const written *w = thing;
    oct_recipe again;
    OCT_TRY(oct_recipe_read(&again, "again", first->data, NULL, 0));
    oct_status status = oct_recipe_write(&again, w->identity, second);
    oct_recipe_free(&again);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    oct_recipe recipe;
    oct_log_setup(OCT_LOG_ERROR, false);
    const char *path = fuzz_file("input.yaml", data, size);
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_recipe_read(&recipe, path, NULL, NULL, 0);
    /* A table that the recipe names is another file. */
    static const char table[] = "quant.sensitivity: ";
    bool elsewhere =
        status == OCT_DATA && strncmp(oct_error_message(0), table, sizeof table - 1) == 0;
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_USAGE) | FUZZ_BIT(OCT_DATA),
              elsewhere ? NULL : path);
    if (status == OCT_OK) {
        fuzz_round_trip(&(written){&recipe, false}, print, reprint);
        fuzz_round_trip(&(written){&recipe, true}, print, reprint);
        oct_recipe_free(&recipe);
    }
    fuzz_end(&call, 1024, (size_t)4 << 20);
    return 0;
}
