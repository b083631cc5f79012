/* A recipe is read from YAML and the command line, with all mistakes of one reading in one record.
 *
 * libyaml gives events with positions; the walk below knows one level of sections. A mistake is
 * reported and walked past; only YAML that cannot be parsed ends the walk, and then nothing is said
 * about what may come after that place (keys that are missing, keys that do not go together).
 *
 * Inside the walk a status other than OCT_OK means "stop": OCT_USAGE when the mistake is on record,
 * anything else for a failure that is not the user's.
 */
#include "io/recipe/recipe.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/recipe/recipe_impl.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { FILE_LIMIT = 1 << 20, PROBLEMS_MAX = 50, DEPTH_MAX = 16 };

typedef struct reader {
    oct_recipe_source source;
    oct_recipe *recipe;
    yaml_parser_t yaml;
    yaml_event_t event;
    int depth;                     /* of lists and mappings that are open */
    size_t section_line[OCT_KEYS]; /* by the first key of the section; 0: not met */
    bool parsed;                   /* the whole file was valid YAML of a mapping */
} reader;

#define REPORT(r, position, ...) oct_recipe_report(&(r)->source, (position), NULL, __VA_ARGS__)

static oct_recipe_position position_of(const yaml_mark_t *begin, const yaml_mark_t *end)
{
    bool one_line = end->line == begin->line && end->column > begin->column;
    return (oct_recipe_position){
        .kind = OCT_GIVEN_IN_FILE,
        .line = begin->line + 1,
        .column = begin->column + 1,
        .width = one_line ? end->column - begin->column : 1,
    };
}

static oct_recipe_position event_position(const reader *r)
{
    return position_of(&r->event.start_mark, &r->event.end_mark);
}

static const char *yaml_remedy(const reader *r, const oct_recipe_position *p, const char *problem)
{
    const char *at = oct_recipe_line(&r->source, p->line);
    for (size_t column = 1, bytes; column < p->column && at < r->source.end; column++, at += bytes)
        oct_utf8(at, r->source.end, &bytes);
    if (at < r->source.end && *at == '\t') return "indent with spaces, not with tabs";
    if (strstr(problem, "cannot start any token")) return "put the text in quotes";
    if (strstr(problem, "mapping values"))
        return "see the indentation; a text with ': ' in it needs quotes";
    return "see indentation, colons, brackets and quotes from here upwards";
}

/* Refuses what YAML has and recipes do not: aliases, anchors and tags. */
static void refuse_extras(const reader *r)
{
    const yaml_event_t *e = &r->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    oct_recipe_position p = event_position(r);
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    } else if (e->type == YAML_ALIAS_EVENT) {
        REPORT(r, &p,
               "an alias (*...); recipes have none: write the value out, or put a text that "
               "begins with * in quotes");
    }
    if (anchor) REPORT(r, &p, "an anchor (&...); recipes have none: leave it out");
    if (tag) REPORT(r, &p, "a tag (!...); recipes have none: leave it out");
}

static bool opens_node(yaml_event_type_t type)
{
    return type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT;
}

/* Reads the next event of the YAML parser. Depth is bounded since its time grows with the square of the depth. */
static oct_status next_event(reader *r)
{
    yaml_event_delete(&r->event);
    const yaml_parser_t *y = &r->yaml;
    if (!yaml_parser_parse(&r->yaml, &r->event)) {
        if (y->error == YAML_MEMORY_ERROR)
            return oct_fail(OCT_RESOURCE, "%s: out of memory", r->source.file);
        oct_recipe_position at = position_of(&y->problem_mark, &y->problem_mark);
        REPORT(r, &at, "not valid YAML: %s%s%s%s; %s", y->problem, y->context ? " (" : "",
               y->context ? y->context : "", y->context ? ")" : "",
               yaml_remedy(r, &at, y->problem));
        return OCT_USAGE;
    }
    refuse_extras(r);
    const yaml_event_type_t type = r->event.type;
    r->depth += opens_node(type);
    r->depth -= type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT;
    oct_recipe_position p = event_position(r);
    if (r->depth > DEPTH_MAX)
        REPORT(r, &p, "lists or mappings nested deeper than %d; is it a recipe?", DEPTH_MAX);
    else if (oct_error_count() >= PROBLEMS_MAX)
        REPORT(r, &p, "the rest was not read: too many problems; correct those first");
    else
        return OCT_OK;
    return OCT_USAGE;
}

/* Skips the node that the event at hand begins: reads on to the event that ends it. */
static oct_status skip_node(reader *r)
{
    int outside = r->depth - opens_node(r->event.type);
    while (r->depth > outside)
        OCT_TRY(next_event(r));
    return OCT_OK;
}

static void report_unknown(const reader *r, const oct_recipe_position *p, const char *name)
{
    oct_flaw near, list;
    size_t length = strcspn(name, ".");
    oct_recipe_suggest(name, near.text);
    oct_section_list(name, name[length] ? length : 0, &list);
    bool silent = near.text[0] == '\0' && list.text[0] == '\0';
    oct_recipe_report(&r->source, p, list.text, "unknown key '%s'%s%s", name, near.text,
                      silent ? "; octet help recipe lists all keys" : "");
}

static oct_scalar event_scalar(const yaml_event_t *e)
{
    return (oct_scalar){
        .text = (const char *)e->data.scalar.value,
        .length = e->data.scalar.length,
        .plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE,
    };
}

static void refuse_value(reader *r, const oct_key *key, const oct_recipe_position *p,
                         const char *what)
{
    r->source.bad[key - oct_keys] = true;
    if (p->kind == OCT_GIVEN_IN_COMMAND) /* which names the key itself */
        REPORT(r, p, "%s", what);
    else
        REPORT(r, p, "%s: %s", key->name, what);
}

static oct_status set_scalar(reader *r, const oct_key *key, const oct_recipe_position *p,
                             const oct_scalar *value)
{
    oct_flaw flaw;
    OCT_TRY(oct_key_parse(key, r->recipe, value, &flaw));
    if (flaw.text[0]) refuse_value(r, key, p, flaw.text);
    return OCT_OK;
}

/* Reads a list and reports its first problem. */
static oct_status read_list(reader *r, const oct_key *key)
{
    bool *bad = &r->source.bad[key - oct_keys];
    const char *what = key->kind == OCT_KEY_REALS ? "number" : "text";
    oct_list list = {0};
    oct_status status = OCT_OK;
    for (;;) {
        oct_flaw flaw = {""};
        OCT_TRY_OUT(next_event(r));
        oct_recipe_position p = event_position(r);
        if (r->event.type == YAML_SEQUENCE_END_EVENT) break;
        if (r->event.type == YAML_SCALAR_EVENT) {
            oct_scalar value = event_scalar(&r->event);
            OCT_TRY_OUT(oct_key_parse_item(key, &list, &value, &flaw));
        } else {
            snprintf(flaw.text, sizeof flaw.text, "item %d is not a %s; write %ss only",
                     list.count + 1, what, what);
            OCT_TRY_OUT(skip_node(r));
        }
        if (flaw.text[0] && !*bad) refuse_value(r, key, &p, flaw.text);
    }
    if (!*bad) oct_key_take_list(key, r->recipe, &list);
out:
    oct_texts_free(&list.texts);
    return status;
}

/* Sets a key to the value that the event at hand begins, a scalar or a list; reports any other one. */
static oct_status read_value(reader *r, const oct_key *key)
{
    oct_flaw expects, what;
    oct_recipe_position p = event_position(r);
    bool list = r->event.type == YAML_SEQUENCE_START_EVENT;
    if (r->event.type == YAML_SCALAR_EVENT) {
        oct_scalar value = event_scalar(&r->event);
        return set_scalar(r, key, &p, &value);
    }
    if (list && (key->kind == OCT_KEY_REALS || key->kind == OCT_KEY_TEXTS))
        return read_list(r, key);
    r->source.bad[key - oct_keys] = true;
    if (r->event.type == YAML_ALIAS_EVENT) return OCT_OK; /* is on record */
    snprintf(what.text, sizeof what.text, "a %s where a single value is expected; write %.500s",
             list ? "list" : "mapping", oct_key_expects(key, false, &expects));
    refuse_value(r, key, &p, what.text);
    return skip_node(r);
}

static oct_status walk_mapping(reader *r, const char *section);

/* Reads the keys of a section, whose first key is `first`; reports one that is given twice. */
static oct_status walk_section(reader *r, const oct_key *first, const oct_recipe_position *p)
{
    size_t length = oct_key_section(first), *line = &r->section_line[first - oct_keys];
    oct_shown name = oct_show(first->name, length);
    oct_flaw list;
    oct_section_list(first->name, length, &list);
    if (*line)
        REPORT(r, p, "section '%s' is already given in line %zu; merge the two", name.text, *line);
    *line = p->line;
    if (r->event.type == YAML_MAPPING_START_EVENT) return walk_mapping(r, name.text);
    oct_recipe_report(&r->source, p, list.text,
                      "'%s' is a section; write its keys below it, indented", name.text);
    return skip_node(r);
}

/* Reads the section or key of this name, whose value the event at hand begins; reports unknown and repeated ones. */
static oct_status walk_entry(reader *r, const char *section, const char *name,
                             const oct_recipe_position *p)
{
    const oct_key *key = oct_key_find(name);
    const oct_key *first = section ? NULL : oct_section_find(name, strlen(name));
    if (first) return walk_section(r, first, p);
    if (!key) {
        report_unknown(r, p, name);
        return skip_node(r);
    }
    oct_recipe_position *given = &r->source.given[key - oct_keys];
    if (given->kind == OCT_GIVEN_IN_FILE) {
        REPORT(r, p, "key '%s' is already given in line %zu; keep one of them", key->name,
               given->line);
        return skip_node(r);
    }
    *given = *p;
    return read_value(r, key);
}

/* Reads all keys of a section, or of the recipe (NULL), with their values. */
static oct_status walk_mapping(reader *r, const char *section)
{
    for (;;) {
        OCT_TRY(next_event(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return OCT_OK;
        oct_recipe_position p = event_position(r);
        char name[160];
        bool is_word = r->event.type == YAML_SCALAR_EVENT;
        if (is_word) {
            oct_scalar word = event_scalar(&r->event);
            oct_shown shown = oct_show(word.text, word.length);
            snprintf(name, sizeof name, "%s%s%s", section ? section : "", section ? "." : "",
                     shown.text);
        } else if (r->event.type != YAML_ALIAS_EVENT) {
            REPORT(r, &p, "a key is a word, not a list or a mapping; write key: value");
        }
        if (!is_word) OCT_TRY(skip_node(r));
        OCT_TRY(next_event(r));
        OCT_TRY(is_word ? walk_entry(r, section, name, &p) : skip_node(r));
    }
}

/* Reads the events of a recipe: one document, which is a mapping or empty. */
static oct_status walk_stream(reader *r)
{
    OCT_TRY(next_event(r)); /* start of the stream */
    OCT_TRY(next_event(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return OCT_OK;
    oct_recipe_position p = event_position(r);
    if (r->event.data.document_start.version_directive ||
        r->event.data.document_start.tag_directives.start !=
            r->event.data.document_start.tag_directives.end)
        REPORT(r, &p, "a directive (%%...); recipes have none: leave it out");
    OCT_TRY(next_event(r));
    p = event_position(r);
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        OCT_TRY(walk_mapping(r, NULL));
    } else if (r->event.type != YAML_SCALAR_EVENT || r->event.data.scalar.length > 0 ||
               !event_scalar(&r->event).plain) { /* one that says nothing: a recipe of defaults */
        REPORT(r, &p, "a recipe is a mapping; write lines such as seed: 1");
        return OCT_USAGE;
    }
    OCT_TRY(next_event(r)); /* end of the document */
    OCT_TRY(next_event(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return OCT_OK;
    p = event_position(r);
    REPORT(r, &p, "a second document begins; a recipe is one document: leave out this '---'");
    return OCT_USAGE;
}

/* Allows only characters that YAML allows and editors show: for it U+0085, U+2028 and U+2029 end lines, which editors
 * do not show. So every later position is right. */
static oct_status check_characters(const reader *r)
{
    oct_recipe_position p = {.kind = OCT_GIVEN_IN_FILE, .line = 1, .column = 1, .width = 1};
    for (const char *at = r->source.text; at < r->source.end;) {
        size_t bytes, line_break = oct_recipe_break_bytes(at, r->source.end);
        int32_t code = oct_utf8(at, r->source.end, &bytes);
        bool allowed = code == '\t' || line_break > 0 || (code >= 0x20 && code < 0x7f) ||
                       (code >= 0xa0 && code != 0xfeff && code != 0xfffe && code != 0xffff &&
                        code != 0x2028 && code != 0x2029);
        if (code < 0)
            REPORT(r, &p, "byte 0x%02x is not UTF-8; save the recipe as UTF-8 text",
                   (unsigned char)*at);
        else if (!allowed)
            REPORT(r, &p, "character U+%04X is not allowed; leave it out", (unsigned)code);
        if (code < 0 || !allowed) return OCT_USAGE;
        p.line += line_break > 0;
        p.column = line_break ? 1 : p.column + 1;
        at += line_break ? line_break : bytes;
    }
    return OCT_OK;
}

static oct_status read_yaml(reader *r)
{
    if (r->source.end - r->source.text > FILE_LIMIT) {
        REPORT(r, &(oct_recipe_position){0},
               "the recipe is larger than %d bytes; is it another file?", FILE_LIMIT);
        return OCT_USAGE;
    }
    if (r->source.end - r->source.text >= 3 && memcmp(r->source.text, "\xef\xbb\xbf", 3) == 0)
        r->source.text += 3;
    OCT_TRY(check_characters(r));
    if (!yaml_parser_initialize(&r->yaml))
        return oct_fail(OCT_RESOURCE, "%s: out of memory", r->source.file);
    yaml_parser_set_encoding(&r->yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->yaml, (const unsigned char *)r->source.text,
                                 (size_t)(r->source.end - r->source.text));
    oct_status status = walk_stream(r);
    r->parsed = status == OCT_OK;
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->yaml);
    return status;
}

/* Reports an argument of the command line that is not KEY=VALUE. */
static void refuse_name(const reader *r, const oct_recipe_position *p, const char *name,
                        bool has_value)
{
    const oct_key *key = oct_key_find(name), *first = oct_section_find(name, strlen(name));
    oct_flaw expects, list;
    if (key && !has_value) {
        REPORT(r, p, "no '='; write %s=%s", name,
               key->default_text && *key->default_text ? key->default_text : "VALUE");
    } else if (first) {
        oct_section_list(name, strlen(name), &list);
        oct_recipe_report(&r->source, p, list.text,
                          "'%s' is a section; write one of its keys, such as %s=VALUE", name,
                          first->name);
    } else if (!has_value && !strchr(name, '.')) {
        oct_recipe_suggest(name, expects.text);
        REPORT(r, p, "this is not key=value; `octet help recipe` lists the keys%s", expects.text);
    } else {
        report_unknown(r, p, name);
    }
}

/* Reports a key and its value as two words, such as "batch.size 64", where key=value belongs; false: it is none. */
static bool report_missing_equals(const reader *r, const char *word, const char *after)
{
    const oct_key *key = oct_key_find(word);
    if (!key || !after || strchr(after, '=') || oct_key_find(after)) return false;
    oct_recipe_position p = {.kind = OCT_GIVEN_IN_COMMAND, .override = word};
    oct_shown value = oct_show(after, strlen(after));
    REPORT(r, &p, "a key and its value are one word; write %s=%s", key->name, value.text);
    return true;
}

/* Sets a key by an argument KEY=VALUE, which replaces the value in the file. */
static oct_status read_override(reader *r, const char *override)
{
    oct_recipe_position p = {.kind = OCT_GIVEN_IN_COMMAND, .override = override};
    size_t length = strcspn(override, "=");
    bool has_value = override[length] == '=';
    oct_shown name = oct_show(override, length);
    const oct_key *key = oct_key_find(name.text);
    if (!key || !has_value) {
        refuse_name(r, &p, name.text, has_value);
        return OCT_OK;
    }
    oct_recipe_position *given = &r->source.given[key - oct_keys];
    if (given->kind == OCT_GIVEN_IN_COMMAND) {
        oct_shown before = oct_show(given->override, strlen(given->override));
        REPORT(r, &p, "%s was given before, as '%s'; keep one of them", key->name, before.text);
        return OCT_OK;
    }
    *given = p;
    const char *value = override + length + 1;
    return set_scalar(r, key, &p, &(oct_scalar){value, strlen(value), true});
}

oct_status oct_recipe_read(oct_recipe *recipe, const char *path, const char *text,
                           const char *const *overrides, size_t num_overrides)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    OCT_OWNED(oct_free) reader *r = NULL;
    size_t size = text ? strlen(text) : 0;
    *recipe = (oct_recipe){0};
    oct_fail_clear();
    oct_status status = OCT_OK;
    if (!text) OCT_TRY_OUT(oct_file_read(path, FILE_LIMIT, &bytes, &size));
    if (!text) text = bytes;
    OCT_TRY_OUT(oct_alloc(&r, 1, sizeof *r));
    *r = (reader){.source = {.file = path, .text = text, .end = text + size}, .recipe = recipe};
    for (size_t i = 0; i < OCT_KEYS; i++)
        OCT_TRY_OUT(oct_key_reset(&oct_keys[i], recipe));
    status = read_yaml(r);
    if (status != OCT_OK && status != OCT_USAGE) goto out;
    for (size_t i = 0; i < num_overrides; i++) {
        if (report_missing_equals(r, overrides[i], i + 1 < num_overrides ? overrides[i + 1] : NULL))
            i++;
        else
            OCT_TRY_OUT(read_override(r, overrides[i]));
    }
    for (size_t i = 0; i < OCT_KEYS && r->parsed; i++) {
        const oct_key *key = &oct_keys[i];
        /* A key without a default must be given. */
        if (key->default_text || r->source.bad[i] || *(char **)oct_key_field(key, recipe)) continue;
        REPORT(
            r, &(oct_recipe_position){0},
            "key '%s' is missing (%s); add it to the recipe, or write %s=VALUE on the command line",
            key->name, key->help, key->name);
    }
    if (r->parsed) OCT_TRY_OUT(oct_recipe_check_keys(&r->source, recipe));
    status = oct_error_count() > 0 ? OCT_USAGE : OCT_OK;
out:
    if (status != OCT_OK) oct_recipe_free(recipe);
    return status;
}
