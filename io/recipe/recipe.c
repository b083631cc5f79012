/* This file holds the table of keys, made from the list file, finds keys and sections by name, makes of several keys
 * what the floors below understand, reports mistakes with their place, and writes, compares and explains recipes. */
#include "io/recipe/recipe_impl.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

static const oct_registry oct_none_table; /* of keys that choose from no table */

const oct_key oct_keys[OCT_KEYS] = {
#define OCT_KEY(key, field, kind, def, min, max, table, same, help)                                \
    {key, OCT_KEY_##kind, offsetof(oct_recipe, field), def, min, max, &oct_##table##_table, same,  \
     help},
#include "io/recipe/recipe_list.def"
#undef OCT_KEY
};

size_t oct_key_section(const oct_key *key)
{
    const char *dot = strchr(key->name, '.');
    return dot ? (size_t)(dot - key->name) : 0;
}

const char *oct_key_short_name(const oct_key *key)
{
    const char *dot = strchr(key->name, '.');
    return dot ? dot + 1 : key->name;
}

const oct_key *oct_key_find(const char *name)
{
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (strcmp(oct_keys[i].name, name) == 0) return &oct_keys[i];
    return NULL;
}

bool oct_key_in_section(const oct_key *key, const char *name, size_t length)
{
    return oct_key_section(key) == length && strncmp(key->name, name, length) == 0;
}

const oct_key *oct_section_find(const char *name, size_t length)
{
    for (size_t i = 0; length > 0 && i < OCT_KEYS; i++)
        if (oct_key_in_section(&oct_keys[i], name, length)) return &oct_keys[i];
    return NULL;
}

void oct_recipe_suggest(const char *name, char text[OCT_RECIPE_HINT_BYTES])
{
    oct_shown sections[OCT_KEYS];
    const char *names[2 * OCT_KEYS], *near = NULL;
    const char *dot = strchr(name, '.'), *word = dot ? dot + 1 : name;
    size_t length = dot ? (size_t)(dot - name) : 0, count = 0, used = 0;
    text[0] = '\0';
    /* Keys of the section, or keys outside of sections and the sections themselves. */
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (oct_key_in_section(&oct_keys[i], name, length))
            names[count++] = oct_key_short_name(&oct_keys[i]);
    for (size_t i = 0; length == 0 && i < OCT_KEYS; i++)
        if (oct_section_find(oct_keys[i].name, oct_key_section(&oct_keys[i])) == &oct_keys[i]) {
            sections[i] = oct_show(oct_keys[i].name, oct_key_section(&oct_keys[i]));
            names[count++] = sections[i].text;
        }
    near = oct_nearest(word, names, count);
    if (near) {
        snprintf(text, OCT_RECIPE_HINT_BYTES, "; did you mean '%.*s%s'?",
                 (int)(length ? length + 1 : 0), name, near);
        return;
    }
    /* The same word in other sections. */
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (strcmp(oct_key_short_name(&oct_keys[i]), word) == 0)
            used += (size_t)snprintf(text + used, OCT_RECIPE_HINT_BYTES - used, "%s'%s'",
                                     used ? " or " : "; did you mean ", oct_keys[i].name);
    if (used) {
        snprintf(text + used, OCT_RECIPE_HINT_BYTES - used, "?");
        return;
    }
    for (size_t i = 0; i < OCT_KEYS; i++)
        names[i] = oct_keys[i].name;
    near = oct_nearest(name, names, OCT_KEYS);
    if (near) snprintf(text, OCT_RECIPE_HINT_BYTES, "; did you mean '%s'?", near);
}

void oct_section_list(const char *name, size_t length, oct_flaw *out)
{
    size_t used = 0;
    out->text[0] = '\0';
    if (!oct_section_find(name, length)) return;
    used = (size_t)snprintf(out->text, sizeof out->text, "allowed in '%.*s':", (int)length, name);
    const char *between = " ";
    for (size_t i = 0; i < OCT_KEYS && used < sizeof out->text; i++)
        if (oct_key_in_section(&oct_keys[i], name, length)) {
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%s", between,
                                     oct_key_short_name(&oct_keys[i]));
            between = ", ";
        }
}

void oct_recipe_free(oct_recipe *recipe)
{
    for (size_t i = 0; i < OCT_KEYS; i++) {
        const oct_key *key = &oct_keys[i];
        void *field = oct_key_field(key, recipe);
        if (key->kind == OCT_KEY_NAME || key->kind == OCT_KEY_TEXT) oct_free(field);
        if (key->kind == OCT_KEY_TEXTS) oct_texts_free(field);
    }
    oct_free(&recipe->onnx);
    *recipe = (oct_recipe){0};
}

const char *oct_recipe_model(const oct_recipe *recipe)
{
    const char *slash = strrchr(recipe->model_onnx, '/');
    if (recipe->model_name[0]) return recipe->model_name;
    if (!recipe->model_onnx[0]) return "model.onnx";
    return slash ? slash + 1 : recipe->model_onnx;
}

const char *oct_recipe_wide_key(const oct_recipe *recipe, int layer)
{
    bool by_table = layer >= recipe->quant_int16_layers.count - recipe->table_layers;
    return by_table ? "quant.sensitivity" : "quant.int16_layers";
}

oct_optim_config oct_recipe_optim(const oct_recipe *recipe)
{
    return (oct_optim_config){
#define OCT_OPTIM_KEY(name, kind, def, min, max, table, same, help)                                \
    .name = (OCT_OPTIM_FIELD_##kind)recipe->optimizer_##name,
#include "core/optim/optim_list.def"
    };
}

oct_schedule oct_recipe_float_schedule(const oct_recipe *recipe)
{
    return (oct_schedule){
        .lr = recipe->float_lr,
#define OCT_SCHEDULE_KEY(name, kind, def, min, max, table, same, help) .name = recipe->float_##name,
#include "core/optim/schedule_list.def"
    };
}

oct_schedule oct_recipe_qat_schedule(const oct_recipe *recipe)
{
    return (oct_schedule){
        .lr = recipe->qat_lr,
#define OCT_SCHEDULE_KEY(name, kind, def, min, max, table, same, help) .name = recipe->qat_##name,
#include "core/optim/schedule_list.def"
    };
}

int64_t oct_recipe_norm_group(const oct_recipe *recipe)
{
    if (strcmp(recipe->batch_norm_group, "batch") == 0) return 0;
    if (strcmp(recipe->batch_norm_group, "leaf") == 0) return 1;
    int64_t samples;
    OCT_ASSERT(oct_parse_i64(recipe->batch_norm_group, &samples));
    return samples / recipe->batch_leaf;
}

void oct_recipe_augment(const oct_recipe *recipe, oct_split split, oct_augment *augment)
{
    const oct_texts *list = split == OCT_TRAIN ? &recipe->data_train : &recipe->data_test;
    char flaw[OCT_AUGMENT_FLAW];
    *augment = (oct_augment){.mean = recipe->data_mean};
    if (recipe->data_size[0])
        OCT_ASSERT(oct_augment_size(recipe->data_size, &augment->h, &augment->w));
    for (int i = 0; i < list->count; i++) {
        oct_augment_add(augment, list->value[i], split == OCT_TRAIN, flaw);
        OCT_ASSERT(!flaw[0]);
    }
}

/* A mistake is reported with its place: file, line and column, the line with a caret, or the argument of the command. */

enum { EXCERPT_CHARS = 80 };

size_t oct_recipe_break_bytes(const char *at, const char *end)
{
    if (at == end || (*at != '\r' && *at != '\n')) return 0;
    return *at == '\r' && at + 1 < end && at[1] == '\n' ? 2 : 1;
}

const char *oct_recipe_line(const oct_recipe_source *s, size_t line)
{
    const char *at = s->text;
    for (size_t bytes; line > 1 && at < s->end; at += bytes) {
        bytes = oct_recipe_break_bytes(at, s->end);
        if (bytes)
            line--;
        else
            oct_utf8(at, s->end, &bytes);
    }
    return at;
}

/* Writes "\n14 |   lr_shedule: cosine\n   |   ^~~~~~~~~~"; of a long line the part around the column. */
static void write_excerpt(const oct_recipe_source *s, const oct_recipe_position *p, char *out,
                          size_t room)
{
    char shown[4 * EXCERPT_CHARS + 1];
    size_t skip = p->column > EXCERPT_CHARS / 2 + 20 ? p->column - EXCERPT_CHARS / 2 : 0;
    size_t used = 0, column = 0, bytes;
    const char *at = oct_recipe_line(s, p->line);
    for (; at < s->end && !oct_recipe_break_bytes(at, s->end) && column < skip + EXCERPT_CHARS;
         column++) {
        int32_t code = oct_utf8(at, s->end, &bytes);
        bool mask = code < 0x20 || (code >= 0x7f && code < 0xa0);
        if (column >= skip) {
            memcpy(shown + used, mask ? (code == '\t' ? " " : "?") : at, mask ? 1 : bytes);
            used += mask ? 1 : bytes;
        }
        at += bytes;
    }
    shown[used] = '\0';
    size_t before = p->column - 1 - skip, width = p->width ? p->width : 1;
    if (p->column - 1 + width > column) width = column + 1 > p->column ? column + 1 - p->column : 1;
    char marks[EXCERPT_CHARS + 2];
    memset(marks, '~', sizeof marks);
    marks[0] = '^';
    int gutter = snprintf(NULL, 0, "%zu", p->line);
    snprintf(out, room, "\n%zu | %s%s\n%*s | %*s%.*s", p->line, skip ? "..." : "", shown, gutter,
             "", (int)(before + (skip ? 3 : 0)), "", (int)width, marks);
}

void oct_recipe_report(const oct_recipe_source *s, const oct_recipe_position *p, const char *more,
                       const char *format, ...)
{
    char sentence[1500], where[5 * EXCERPT_CHARS + 200] = "";
    OCT_PRINT_ARGS(sentence, format);
    const char *line = more && *more ? "\n" : "";
    if (!more) more = "";
    if (p->kind == OCT_GIVEN_IN_COMMAND) {
        oct_shown word = oct_show(p->override, strlen(p->override));
        (void)oct_fail_add(OCT_USAGE, "command line: '%s': %s%s%s", word.text, sentence, line,
                           more);
    } else if (p->kind == OCT_GIVEN_IN_FILE) {
        write_excerpt(s, p, where, sizeof where);
        (void)oct_fail_add(OCT_USAGE, "%s:%zu:%zu: %s%s%s%s", s->file, p->line, p->column, sentence,
                           where, line, more);
    } else {
        (void)oct_fail_add(OCT_USAGE, "%s: %s%s%s", s->file, sentence, line, more);
    }
}

void oct_recipe_report_keys(const oct_recipe_source *s, size_t a, size_t b, const char *format, ...)
{
    char sentence[1500];
    if (s->bad[a] || s->bad[b]) return;
    OCT_PRINT_ARGS(sentence, format);
    const oct_recipe_position *p =
        s->given[b].kind > s->given[a].kind ? &s->given[b] : &s->given[a];
    oct_recipe_report(s, p, NULL, "%s", sentence);
}

/* Recipes as text. */

/* Adds blanks up to the width of a column that began at `begin`, one at least. */
static oct_status add_padding(oct_text *out, size_t begin, size_t width)
{
    size_t used = out->length - begin;
    return oct_text_add(out, "%*s", used < width ? (int)(width - used) : 1, "");
}

/* Adds the help text of a key; for a key of kind NAME also the built-in names. */
static oct_status add_key_help(oct_text *out, const oct_key *key)
{
    OCT_TRY(oct_text_add(out, "%s", key->help));
    if (key->kind != OCT_KEY_NAME) return OCT_OK;
    for (size_t i = 0; i < key->table->num_listed; i++)
        OCT_TRY(oct_text_add(out, "%s%s", i ? ", " : ": ", oct_registry_name(key->table, i)));
    return oct_text_add(out, ", or a plug-in's");
}

static oct_status write_key(const oct_key *key, const oct_recipe *recipe, bool comment,
                            oct_text *out)
{
    enum { COMMENT_COLUMN = 36 };
    size_t begin = out->length;
    char words[OCT_REGISTRY_CHOICE_BYTES];
    OCT_TRY(oct_text_add(out, "%s%s: ", oct_key_section(key) ? "  " : "", oct_key_short_name(key)));
    OCT_TRY(oct_key_print(key, recipe, out));
    if (comment) {
        OCT_TRY(add_padding(out, begin, COMMENT_COLUMN));
        OCT_TRY(oct_text_add(out, "# "));
        OCT_TRY(add_key_help(out, key));
        if (key->kind == OCT_KEY_WORD)
            OCT_TRY(oct_text_add(out, " (%s)", oct_registry_choice(key->table, ", ", words)));
    }
    return oct_text_add(out, "\n");
}

/* Adds a line to `out` when the key's values differ: "optimizer.lr: 0.1 there, 0.2 here". */
static oct_status compare_key(const oct_key *key, const oct_recipe *saved, const oct_recipe *given,
                              oct_text *out)
{
    OCT_OWNED(oct_text_free) oct_text a = {0}, b = {0};
    OCT_TRY(oct_key_print(key, saved, &a));
    OCT_TRY(oct_key_print(key, given, &b));
    if (strcmp(a.data, b.data) != 0)
        return oct_text_add(out, "%s: %s there, %s here\n", key->name, a.data, b.data);
    return OCT_OK;
}

oct_status oct_key_has_default(const oct_key *key, const oct_recipe *recipe, bool *same)
{
    OCT_OWNED(oct_recipe_free) oct_recipe plain = {0};
    OCT_OWNED(oct_text_free) oct_text differs = {0};
    OCT_TRY(oct_key_reset(key, &plain));
    OCT_TRY(compare_key(key, &plain, recipe, &differs));
    *same = differs.length == 0;
    return OCT_OK;
}

/* Whether a key can change a bit of what this recipe gives. Evaluations decide where there is a best one. */
static bool is_compared(const oct_key *key, const oct_recipe *recipe)
{
    if (key == &oct_keys[OCT_KEY_AT_evaluate_every]) return recipe->evaluate_best[0] != '\0';
    return key->identity != 0;
}

oct_status oct_recipe_write(const oct_recipe *recipe, bool only_identity, oct_text *out)
{
    const oct_key *before = &oct_keys[0];
    for (const oct_key *key = oct_keys; key < oct_keys + OCT_KEYS; key++) {
        bool is_default = false;
        if (only_identity && !is_compared(key, recipe)) continue;
        if (only_identity && key->identity == 2)
            OCT_TRY(oct_key_has_default(key, recipe, &is_default));
        if (is_default) continue;
        if (!oct_key_in_section(key, before->name, oct_key_section(before)))
            OCT_TRY(oct_text_add(out, "%s%.*s:\n", only_identity ? "" : "\n",
                                 (int)oct_key_section(key), key->name));
        OCT_TRY(write_key(key, recipe, !only_identity, out));
        before = key;
    }
    return OCT_OK;
}

oct_status oct_recipe_list(const oct_recipe *recipe, oct_text *out)
{
    for (const oct_key *key = oct_keys; key < oct_keys + OCT_KEYS; key++) {
        OCT_TRY(oct_text_add(out, "%s: ", key->name));
        OCT_TRY(oct_key_print(key, recipe, out));
        OCT_TRY(oct_text_add(out, "\n"));
    }
    return OCT_OK;
}

oct_status oct_recipe_compare(const oct_recipe *saved, const oct_recipe *given, oct_text *out)
{
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (is_compared(&oct_keys[i], given)) OCT_TRY(compare_key(&oct_keys[i], saved, given, out));
    return OCT_OK;
}

static oct_status write_key_help(oct_text *out, const oct_key *key)
{
    enum { RANGE = 28, DEFAULT = RANGE + 34, HELP = DEFAULT + 16 };
    size_t begin = out->length;
    oct_flaw values;
    const char *shown_default = !key->default_text   ? "must be given"
                                : *key->default_text ? key->default_text
                                                     : "\"\"";
    OCT_TRY(oct_text_add(out, "%s", key->name));
    OCT_TRY(add_padding(out, begin, RANGE));
    OCT_TRY(oct_text_add(out, "%s", oct_key_expects(key, true, &values)));
    OCT_TRY(add_padding(out, begin, DEFAULT));
    OCT_TRY(oct_text_add(out, "%s", shown_default));
    OCT_TRY(add_padding(out, begin, HELP));
    OCT_TRY(add_key_help(out, key));
    return oct_text_add(out, "\n");
}

oct_status oct_recipe_help(const char *name, oct_text *out)
{
    const bool known = !name || oct_key_find(name) || oct_section_find(name, strlen(name));
    if (!known) return OCT_OK;
    OCT_TRY(oct_text_add(out, "%-27s %-33s %-15s %s\n", "KEY", "VALUE", "DEFAULT", "MEANING"));
    for (const oct_key *key = oct_keys; key < oct_keys + OCT_KEYS; key++)
        if (!name || strcmp(key->name, name) == 0 || oct_key_in_section(key, name, strlen(name)))
            OCT_TRY(write_key_help(out, key));
    return name ? OCT_OK : oct_augment_help(out);
}
