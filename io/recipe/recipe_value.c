/* One value of a recipe is made from text by strict rules, and back to text that gives the same value.
 *
 * A number has no quotes and is decimal; nothing is guessed. What is not accepted but has an
 * obvious meaning (1e3 for a count, yes for true) is refused with the text to write instead.
 */
#include "io/recipe/recipe_impl.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static void OCT_PRINTF(2, 3) set_flaw(oct_flaw *flaw, const char *format, ...)
{
    OCT_PRINT_ARGS(flaw->text, format);
}

/* Writes "1 to 256", or the only number that is allowed. */
static const char *write_bounds(const oct_key *key, oct_shown *text)
{
    if (key->min >= key->max)
        oct_snprintf(text->text, sizeof text->text, "%.15g", key->min);
    else if (key->kind == OCT_KEY_COUNT)
        snprintf(text->text, sizeof text->text, "%" PRId64 " to %" PRId64, (int64_t)key->min,
                 (int64_t)key->max);
    else
        oct_snprintf(text->text, sizeof text->text, "%.15g to %.15g", key->min, key->max);
    return text->text;
}

/* Writes "allowed: 1 to 256", or the only number. */
static const char *write_range(const oct_key *key, oct_shown *text)
{
    oct_shown limits;
    const bool one = key->min >= key->max;
    snprintf(text->text, sizeof text->text, one ? "only %s is allowed" : "allowed: %s",
             write_bounds(key, &limits));
    return text->text;
}

const char *oct_key_expects(const oct_key *key, bool short_form, oct_flaw *text)
{
    static const char *const before[][2] = {
        [OCT_KEY_COUNT] = {"a whole number from ", ""},
        [OCT_KEY_REAL] = {"a number from ", ""},
        [OCT_KEY_BOOL] = {"true or false", "true, false"},
        [OCT_KEY_WORD] = {"one of ", ""},
        [OCT_KEY_NAME] = {"a text", "text"},
        [OCT_KEY_TEXT] = {"a text", "text"},
        [OCT_KEY_REALS] = {"a list of numbers such as ", "list of "},
        [OCT_KEY_TEXTS] = {"a list of texts such as [one, two]", "list of texts"},
    };
    char words[OCT_REGISTRY_CHOICE_BYTES];
    oct_shown limits;
    const char *what = "";
    if (key->kind == OCT_KEY_WORD)
        what = oct_registry_choice(key->table, ", ", words);
    else if (key->kind == OCT_KEY_REALS && !short_form)
        what = strcmp(key->default_text, "[]") == 0 ? "[1, 2]" : key->default_text;
    else if (key->min < key->max || key->kind == OCT_KEY_COUNT)
        what = write_bounds(key, &limits);
    set_flaw(text, "%s%s%s", before[key->kind][short_form], what,
             short_form && key->kind == OCT_KEY_REAL ? ", real" : "");
    return text->text;
}

/* Says of a number in quotes or with underscores what to write instead; false for anything else. */
static bool has_obvious_number(const oct_scalar *value, oct_flaw *flaw, const char *what)
{
    oct_shown shown = oct_show(value->text, value->length), bare;
    double number;
    size_t used = 0;
    for (size_t i = 0; i < value->length && used + 1 < sizeof bare.text; i++)
        if (value->text[i] != '_') bare.text[used++] = value->text[i];
    bare.text[used] = '\0';
    bool obvious = oct_parse_f64(bare.text, &number);
    if (!value->plain && obvious)
        set_flaw(flaw, "\"%s\" is text, not %s; write it without quotes", shown.text, what);
    else if (obvious && strchr(value->text, '_'))
        set_flaw(flaw, "'%s' is not %s; write %s", shown.text, what, bare.text);
    return flaw->text[0] != '\0';
}

static void parse_count(const oct_key *key, const oct_scalar *value, int64_t *field, oct_flaw *flaw)
{
    const char *what = "a whole number";
    oct_shown shown = oct_show(value->text, value->length), allowed;
    int64_t number;
    double real;
    if (value->plain && oct_parse_i64(value->text, &number)) {
        if ((double)number >= key->min && (double)number <= key->max)
            *field = number;
        else
            set_flaw(flaw, "%s is out of range; %s", shown.text, write_range(key, &allowed));
        return;
    }
    if (has_obvious_number(value, flaw, what)) return;
    bool digits = value->text[strspn(value->text, "+-0123456789")] == '\0';
    bool is_real = value->plain && oct_parse_f64(value->text, &real);
    if (is_real && digits)
        set_flaw(flaw, "%s is out of range; %s", shown.text, write_range(key, &allowed));
    else if (is_real && real >= key->min && real <= key->max && floor(real) >= real)
        set_flaw(flaw, "'%s' is not %s; write %" PRId64, shown.text, what, (int64_t)real);
    else
        set_flaw(flaw, "'%s' is not %s; %s", shown.text, what, write_range(key, &allowed));
}

static void parse_real(const oct_key *key, const oct_scalar *value, double *field, oct_flaw *flaw)
{
    const char *what = "a finite number";
    oct_shown shown = oct_show(value->text, value->length), allowed;
    double number;
    if (value->plain && oct_parse_f64(value->text, &number)) {
        if (number >= key->min && number <= key->max)
            *field = number + 0.0; /* -0 becomes 0 */
        else
            set_flaw(flaw, "%s is out of range; %s", shown.text, write_range(key, &allowed));
    } else if (!has_obvious_number(value, flaw, what)) {
        set_flaw(flaw, "'%s' is not %s; %s", shown.text, what, write_range(key, &allowed));
    }
}

/* In letters of any case. */
static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++)
        if (strcasecmp(text, *list) == 0) return true;
    return false;
}

static void parse_bool(const oct_scalar *value, bool *field, oct_flaw *flaw)
{
    static const char *const yes[] = {"yes", "on", "true", "y", "1", NULL};
    static const char *const no[] = {"no", "off", "false", "n", "0", NULL};
    oct_shown shown = oct_show(value->text, value->length);
    bool parsed;
    bool fits = oct_parse_bool(value->text, &parsed);
    if (fits && value->plain)
        *field = parsed;
    else if (fits)
        set_flaw(flaw, "\"%s\" is text, not true or false; write it without quotes", shown.text);
    else
        set_flaw(flaw, "'%s' is not true or false; write %s", shown.text,
                 is_one_of(value->text, yes)  ? "true"
                 : is_one_of(value->text, no) ? "false"
                                              : "true or false");
}

static void parse_word(const oct_key *key, const oct_scalar *value, unsigned *field, oct_flaw *flaw)
{
    oct_shown shown = oct_show(value->text, value->length);
    char words[OCT_REGISTRY_CHOICE_BYTES];
    const char *near = oct_registry_nearest(key->table, value->text);
    size_t index = oct_registry_index(key->table, value->text);
    if (index < oct_registry_count(key->table))
        *field = (unsigned)index;
    else
        set_flaw(flaw, "'%s' is not known; %s%s%sallowed: %s", shown.text,
                 near ? "did you mean '" : "", near ? near : "", near ? "'? " : "",
                 oct_registry_choice(key->table, ", ", words));
}

/* A text is shown on terminals and written to files of lines: no control characters. */
static bool is_good_text(const oct_scalar *value, oct_flaw *flaw)
{
    const char *end = value->text + value->length;
    size_t bytes;
    if (value->length > OCT_RECIPE_TEXT_MAX) {
        set_flaw(flaw, "a text of %zu bytes; at most %d are allowed", value->length,
                 OCT_RECIPE_TEXT_MAX);
        return false;
    }
    for (const char *at = value->text; at < end; at += bytes) {
        int32_t code = oct_utf8(at, end, &bytes);
        if (code < 0) {
            set_flaw(flaw, "byte 0x%02x is not UTF-8; write the text in UTF-8", (unsigned char)*at);
            return false;
        }
        if (code < 0x20 || (code >= 0x7f && code < 0xa0)) {
            set_flaw(flaw, "a control character (U+%04X) in a text; leave it out", (unsigned)code);
            return false;
        }
    }
    return true;
}

static bool is_null(const oct_scalar *value)
{
    return value->plain && (strcmp(value->text, "null") == 0 || strcmp(value->text, "~") == 0);
}

/* Adds a text to the list. A bad one is described in flaw; the status is that of the memory. */
static oct_status parse_text_item(oct_texts *list, const oct_scalar *item, oct_flaw *flaw)
{
    oct_shown shown = oct_show(item->text, item->length);
    if (item->length == 0 && item->plain)
        set_flaw(flaw, "an empty value; leave out the comma or write a text");
    else if (item->length == 0)
        set_flaw(flaw, "an empty text; write at least one character");
    else if (strlen(item->text) != item->length)
        set_flaw(flaw, "a NUL character in the text; leave it out");
    else if (is_null(item))
        set_flaw(flaw, "'%s' is not a text; leave it out", shown.text);
    else if (is_good_text(item, flaw))
        for (int i = 0; i < list->count && flaw->text[0] == '\0'; i++)
            if (strcmp(list->value[i], item->text) == 0)
                set_flaw(flaw, "'%s' is in the list twice; keep one of them", shown.text);
    if (flaw->text[0]) return OCT_OK;
    OCT_TRY(oct_strdup(&list->value[list->count], item->text));
    list->count++;
    return OCT_OK;
}

oct_status oct_key_parse_item(const oct_key *key, oct_list *list, const oct_scalar *item,
                              oct_flaw *flaw)
{
    int most = key->kind == OCT_KEY_REALS ? OCT_REALS_MAX : OCT_TEXTS_MAX;
    oct_flaw item_flaw = {""};
    if (list->count == most) {
        set_flaw(flaw, "more than %d values; a list holds at most %d", most, most);
        return OCT_OK;
    }
    if (key->kind == OCT_KEY_TEXTS)
        OCT_TRY(parse_text_item(&list->texts, item, &item_flaw));
    else if (item->length == 0 && item->plain)
        set_flaw(&item_flaw, "an empty value; leave out the comma or write a number");
    else
        parse_real(key, item, &list->reals.value[list->count], &item_flaw);
    if (key->kind == OCT_KEY_REALS && !item_flaw.text[0]) list->reals.count++;
    if (item_flaw.text[0])
        set_flaw(flaw, "item %d: %.600s", list->count + 1, item_flaw.text);
    else
        list->count++;
    return OCT_OK;
}

void oct_texts_free(oct_texts *list)
{
    for (int i = 0; i < list->count; i++)
        oct_free(&list->value[i]);
    list->count = 0;
}

void oct_key_take_list(const oct_key *key, oct_recipe *recipe, oct_list *list)
{
    void *field = oct_key_field(key, recipe);
    if (key->kind == OCT_KEY_REALS) {
        *(oct_reals *)field = list->reals;
    } else {
        oct_texts_free(field);
        *(oct_texts *)field = list->texts;
    }
    *list = (oct_list){0};
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " ");
}

/* Finds the item at `text`, which ends before `end`, and returns its length. A text may be in double quotes, and may
 * then hold commas and brackets. */
static size_t find_item(const oct_key *key, const char *text, const char *end, oct_scalar *item)
{
    const char *close = text[0] == '"' ? memchr(text + 1, '"', (size_t)(end - text - 1)) : NULL;
    if (key->kind == OCT_KEY_TEXTS && close) {
        *item = (oct_scalar){text + 1, (size_t)(close - text - 1), false};
        close = skip_blanks(close + 1);
        if (*close == ',' || *close == ']') return (size_t)(close - text);
    }
    size_t length = strcspn(text, ",]"), kept = length;
    while (kept > 0 && text[kept - 1] == ' ')
        kept--;
    *item = (oct_scalar){text, kept, true};
    return length;
}

static void report_no_list(const oct_key *key, const oct_scalar *value, oct_flaw *flaw)
{
    oct_shown shown = oct_show(value->text, value->length);
    oct_flaw expects;
    double number;
    bool bracketed = value->length > 0 && strpbrk(value->text, "[]");
    bool one = key->kind == OCT_KEY_REALS ? oct_parse_f64(value->text, &number) : !bracketed;
    if (value->plain && one)
        set_flaw(flaw,
                 key->kind == OCT_KEY_REALS ? "%s is not a list; write [%s]"
                                            : "'%s' is not a list; write [%s]",
                 shown.text, shown.text);
    else
        set_flaw(flaw, "'%s' is not a list; write %.500s", shown.text,
                 oct_key_expects(key, false, &expects));
}

/* Reads "[0.1, 0.2]", as it stands on the command line. */
static oct_status parse_list(const oct_key *key, const oct_scalar *value, oct_recipe *recipe,
                             oct_flaw *flaw)
{
    oct_list list = {0};
    oct_status status = OCT_OK;
    oct_shown shown = oct_show(value->text, value->length);
    const char *text = value->text, *end = text + value->length;
    bool brackets = value->length >= 2 && text[0] == '[' && end[-1] == ']';
    if (!value->plain || !brackets) {
        report_no_list(key, value, flaw);
        return OCT_OK;
    }
    end--;
    text = skip_blanks(text + 1);
    while (text < end && flaw->text[0] == '\0') {
        oct_scalar item;
        char one[OCT_RECIPE_TEXT_MAX + 2]; /* longer ones are refused by their length */
        size_t length = find_item(key, text, end, &item);
        if (item.length >= sizeof one) item.length = sizeof one - 1;
        memcpy(one, item.text, item.length);
        one[item.length] = '\0';
        item.text = one;
        OCT_TRY_OUT(oct_key_parse_item(key, &list, &item, flaw));
        if (text + length < end && text[length] == ']' && !flaw->text[0])
            set_flaw(flaw, "'%s' has text after its first ]; write one list", shown.text);
        text = skip_blanks(text + length + 1);
    }
    if (flaw->text[0] == '\0') oct_key_take_list(key, recipe, &list);
out:
    oct_texts_free(&list.texts);
    return status;
}

oct_status oct_key_parse(const oct_key *key, oct_recipe *recipe, const oct_scalar *value,
                         oct_flaw *flaw)
{
    void *field = oct_key_field(key, recipe);
    const char *default_text = key->default_text;
    char *copy;
    oct_flaw expects;
    flaw->text[0] = '\0';
    if (is_null(value)) return oct_key_reset(key, recipe);
    bool is_text = key->kind == OCT_KEY_TEXT || key->kind == OCT_KEY_NAME;
    if (value->length == 0 && (value->plain || !is_text)) {
        oct_key_expects(key, false, &expects);
        if (!default_text)
            set_flaw(flaw, "empty value; write %.500s", expects.text);
        else
            set_flaw(flaw, "empty value; write %.500s, or null for the default (%s)", expects.text,
                     *default_text ? default_text : "\"\"");
        return OCT_OK;
    }
    if (strlen(value->text) != value->length) {
        set_flaw(flaw, "a NUL character in the value; leave it out");
        return OCT_OK;
    }
    switch (key->kind) {
    case OCT_KEY_COUNT:
        parse_count(key, value, field, flaw);
        return OCT_OK;
    case OCT_KEY_REAL:
        parse_real(key, value, field, flaw);
        return OCT_OK;
    case OCT_KEY_BOOL:
        parse_bool(value, field, flaw);
        return OCT_OK;
    case OCT_KEY_REALS:
    case OCT_KEY_TEXTS:
        return parse_list(key, value, recipe, flaw);
    case OCT_KEY_WORD:
        parse_word(key, value, field, flaw);
        return OCT_OK;
    case OCT_KEY_NAME:
    case OCT_KEY_TEXT:
        if (value->length == 0 && !(default_text && *default_text == '\0'))
            set_flaw(flaw, "an empty text; write at least one character");
        else if (is_good_text(value, flaw)) {
            OCT_TRY(oct_strdup(&copy, value->text));
            oct_free(field);
            *(char **)field = copy;
        }
        return OCT_OK;
    }
    return OCT_OK;
}

oct_status oct_key_reset(const oct_key *key, oct_recipe *recipe)
{
    oct_flaw flaw;
    if (!key->default_text) {
        oct_free(oct_key_field(key, recipe));
        return OCT_OK;
    }
    bool plain = key->default_text[0] != '\0';
    OCT_TRY(oct_key_parse(
        key, recipe, &(oct_scalar){key->default_text, strlen(key->default_text), plain}, &flaw));
    OCT_CHECK(flaw.text[0] == '\0', OCT_DEFECT, "the default of %s: %s", key->name, flaw.text);
    return OCT_OK;
}

/* Prints the fewest digits, from 15 on, that give the same double. */
static oct_status print_real(double value, oct_text *out)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        oct_snprintf(text, sizeof text, "%.*g", digits, value);
        double back = oct_strtod(text, NULL);
        if (memcmp(&back, &value, sizeof value) == 0) break;
    }
    return oct_text_add(out, "%s", text);
}

/* May the text have no quotes, for any YAML reader? */
static bool is_plain(const char *text)
{
    static const char *const taken[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n",   NULL};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char more[] = "0123456789_./-";
    if (!text[0] || (!strchr(letters, text[0]) && text[0] != '/')) return false;
    for (const char *c = text; *c; c++)
        if (!strchr(letters, *c) && !strchr(more, *c)) return false;
    return !is_one_of(text, taken);
}

/* Prints a text in double quotes. Line and paragraph separators and the like would not come back as they are. */
static oct_status print_quoted(const char *text, oct_text *out)
{
    const char *end = text + strlen(text);
    size_t bytes;
    OCT_TRY(oct_text_add(out, "\""));
    for (; text < end; text += bytes) {
        int32_t code = oct_utf8(text, end, &bytes);
        bool escape =
            code == 0x2028 || code == 0x2029 || code == 0xfeff || code == 0xfffe || code == 0xffff;
        if (escape)
            OCT_TRY(oct_text_add(out, "\\u%04X", (unsigned)code));
        else if (code == '"' || code == '\\')
            OCT_TRY(oct_text_add(out, "\\%c", (char)code));
        else
            OCT_TRY(oct_text_add(out, "%.*s", (int)bytes, text));
    }
    return oct_text_add(out, "\"");
}

static oct_status print_text(const char *text, oct_text *out)
{
    return is_plain(text) ? oct_text_add(out, "%s", text) : print_quoted(text, out);
}

static oct_status print_list(int count, const oct_reals *reals, const oct_texts *texts,
                             oct_text *out)
{
    OCT_ASSERT(reals || texts);
    OCT_TRY(oct_text_add(out, "["));
    for (int i = 0; i < count; i++) {
        if (i > 0) OCT_TRY(oct_text_add(out, ", "));
        OCT_TRY(reals ? print_real(reals->value[i], out) : print_text(texts->value[i], out));
    }
    return oct_text_add(out, "]");
}

oct_status oct_key_print(const oct_key *key, const oct_recipe *recipe, oct_text *out)
{
    const void *field = (const char *)recipe + key->offset;
    const char *text;
    switch (key->kind) {
    case OCT_KEY_COUNT:
        return oct_text_add(out, "%" PRId64, *(const int64_t *)field);
    case OCT_KEY_REAL:
        return print_real(*(const double *)field, out);
    case OCT_KEY_BOOL:
        return oct_text_add(out, "%s", *(const bool *)field ? "true" : "false");
    case OCT_KEY_REALS:
        return print_list(((const oct_reals *)field)->count, field, NULL, out);
    case OCT_KEY_TEXTS:
        return print_list(((const oct_texts *)field)->count, NULL, field, out);
    case OCT_KEY_WORD:
        return print_text(oct_registry_name(key->table, *(const unsigned *)field), out);
    case OCT_KEY_NAME:
    case OCT_KEY_TEXT:
        text = *(char *const *)field;
        if (!text) return oct_text_add(out, "null");
        return print_text(text, out);
    }
    return OCT_OK;
}
