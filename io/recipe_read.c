/* A recipe from YAML and the command line, with all mistakes of one reading in one record.
 *
 * libyaml gives events with positions; the walk below knows one level of sections. A mistake is
 * reported and walked past; only YAML that cannot be parsed ends the walk, and then nothing is said
 * about what may stand behind that place (keys that are missing, keys that do not go together).
 *
 * Inside the walk a status other than OCT_OK means "stop": OCT_USAGE when the mistake is on record,
 * anything else for a failure that is not the user's.
 */
#include "io/recipe.h"

#include "core/base/mem.h"
#include "io/file.h"
#include "io/recipe_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { FILE_LIMIT = 1 << 20, PROBLEMS_MAX = 50, DEPTH_MAX = 16, EXCERPT_CHARS = 80 };

/* Where a key was given, for messages. Lines and columns count from 1. */
typedef struct place {
    enum { STANDARD, FILE_LINE, COMMAND_LINE } kind;
    size_t line, column, width;
    const char *override;
} place;

typedef struct oct_recipe_reader {
    const char *file;       /* for messages */
    const char *text, *end; /* of the file */
    oct_recipe *recipe;
    yaml_parser_t yaml;
    yaml_event_t event;
    int depth; /* of lists and mappings that are open */
    place given[OCT_KEYS];
    bool bad[OCT_KEYS];            /* its value was refused, so nothing follows from it */
    size_t section_line[OCT_KEYS]; /* by the first key of the section; 0: not met */
    bool complete;                 /* the file was understood to its end */
} reader;

static size_t break_bytes(const char *at, const char *end)
{
    size_t bytes;
    int32_t code = oct_utf8(at, end, &bytes);
    if (code == '\r') return at + 1 < end && at[1] == '\n' ? 2 : 1;
    return code == '\n' || code == 0x85 || code == 0x2028 || code == 0x2029 ? bytes : 0;
}

static const char *find_line(const reader *r, size_t line)
{
    const char *at = r->text;
    for (size_t bytes; line > 1 && at < r->end; at += bytes) {
        bytes = break_bytes(at, r->end);
        if (bytes)
            line--;
        else
            oct_utf8(at, r->end, &bytes);
    }
    return at;
}

/* "\n14 |   lr_shedule: cosine\n   |   ^~~~~~~~~~"; of a long line the part around the column. */
static void excerpt(const reader *r, const place *p, char *out, size_t room)
{
    char shown[4 * EXCERPT_CHARS + 1];
    size_t skip = p->column > EXCERPT_CHARS / 2 + 20 ? p->column - EXCERPT_CHARS / 2 : 0;
    size_t used = 0, column = 0, bytes;
    const char *at = find_line(r, p->line);
    for (; at < r->end && !break_bytes(at, r->end) && column < skip + EXCERPT_CHARS; column++) {
        int32_t code = oct_utf8(at, r->end, &bytes);
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

/* One problem: where, what and the remedy; below it the line of the file and `more`, when given. */
static void OCT_PRINTF(4, 5)
    report(const reader *r, const place *p, const char *more, const char *format, ...)
{
    char sentence[1500], where[5 * EXCERPT_CHARS + 200] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    const char *line = more && *more ? "\n" : "";
    if (!more) more = "";
    if (p->kind == COMMAND_LINE) {
        oct_shown word = oct_show(p->override, strlen(p->override));
        oct_fail_add(OCT_USAGE, "command line: '%s': %s%s%s", word.text, sentence, line, more);
    } else if (p->kind == FILE_LINE) {
        excerpt(r, p, where, sizeof where);
        oct_fail_add(OCT_USAGE, "%s:%zu:%zu: %s%s%s%s", r->file, p->line, p->column, sentence,
                     where, line, more);
    } else {
        oct_fail_add(OCT_USAGE, "%s: %s%s%s", r->file, sentence, line, more);
    }
}

static place place_of_marks(const yaml_mark_t *begin, const yaml_mark_t *end)
{
    bool one_line = end->line == begin->line && end->column > begin->column;
    return (place){
        .kind = FILE_LINE,
        .line = begin->line + 1,
        .column = begin->column + 1,
        .width = one_line ? end->column - begin->column : 1,
    };
}

static place here(const reader *r)
{
    return place_of_marks(&r->event.start_mark, &r->event.end_mark);
}

static const char *yaml_remedy(const reader *r, const place *p, const char *problem)
{
    const char *at = find_line(r, p->line);
    for (size_t column = 1, bytes; column < p->column && at < r->end; column++, at += bytes)
        oct_utf8(at, r->end, &bytes);
    if (at < r->end && *at == '\t') return "indent with spaces, not with tabs";
    if (strstr(problem, "cannot start any token")) return "put the text in quotes";
    if (strstr(problem, "mapping values"))
        return "see the indentation; a text with ': ' in it needs quotes";
    return "see indentation, colons, brackets and quotes from here upwards";
}

static oct_status yaml_failed(const reader *r)
{
    const yaml_parser_t *y = &r->yaml;
    if (y->error == YAML_MEMORY_ERROR) return oct_fail(OCT_RESOURCE, "%s: out of memory", r->file);
    place p = place_of_marks(&y->problem_mark, &y->problem_mark);
    report(r, &p, NULL, "not valid YAML: %s%s%s%s; %s", y->problem, y->context ? " (" : "",
           y->context ? y->context : "", y->context ? ")" : "", yaml_remedy(r, &p, y->problem));
    return OCT_USAGE;
}

/* What YAML has and recipes do not: one look at an event says what it means. */
static void refuse_extras(const reader *r)
{
    const yaml_event_t *e = &r->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    place p = here(r);
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
        report(r, &p, NULL,
               "an alias (*...); recipes have none: write the value out, or put a text that "
               "begins with * in quotes");
    }
    if (anchor) report(r, &p, NULL, "an anchor (&...); recipes have none: leave it out");
    if (tag) report(r, &p, NULL, "a tag (!...); recipes have none: leave it out");
}

static bool opens(yaml_event_type_t type)
{
    return type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT;
}

static bool closes(yaml_event_type_t type)
{
    return type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT;
}

/* Depth is bounded since libyaml's time goes with its square. */
static oct_status next(reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->yaml, &r->event)) return yaml_failed(r);
    refuse_extras(r);
    r->depth += opens(r->event.type) - closes(r->event.type);
    place p = here(r);
    if (r->depth > DEPTH_MAX)
        report(r, &p, NULL, "lists or mappings nested deeper than %d; is it a recipe?", DEPTH_MAX);
    else if (oct_fail_count() >= PROBLEMS_MAX)
        report(r, &p, NULL, "the rest was not read: too many problems; correct those first");
    else
        return OCT_OK;
    return OCT_USAGE;
}

/* The event at hand begins a node: goes on to the event that ends it. */
static oct_status skip_node(reader *r)
{
    int outside = r->depth - opens(r->event.type);
    while (r->depth > outside)
        OCT_TRY(next(r));
    return OCT_OK;
}

static const oct_key *find_key(const char *name)
{
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (strcmp(oct_keys[i].name, name) == 0) return &oct_keys[i];
    return NULL;
}

/* Is the key in the section of this name (length 0: outside of sections)? */
static bool in_section(const oct_key *key, const char *name, size_t length)
{
    return oct_key_section(key) == length && strncmp(key->name, name, length) == 0;
}

/* The first key of the section, or NULL when there is no such section. */
static const oct_key *find_section(const char *name, size_t length)
{
    for (size_t i = 0; length > 0 && i < OCT_KEYS; i++)
        if (in_section(&oct_keys[i], name, length)) return &oct_keys[i];
    return NULL;
}

static bool opens_section(const oct_key *key)
{
    size_t length = oct_key_section(key);
    return length > 0 && find_section(key->name, length) == key;
}

/* "; did you mean ...?" for an unknown name: near names of the same section first, then the same
 * word in other sections, then near names anywhere. Empty when nothing is near. */
static void suggest(const char *name, oct_flaw *out)
{
    oct_shown sections[OCT_KEYS];
    const char *names[2 * OCT_KEYS], *near = NULL;
    const char *dot = strchr(name, '.'), *word = dot ? dot + 1 : name;
    size_t length = dot ? (size_t)(dot - name) : 0, count = 0, used = 0;
    out->text[0] = '\0';

    for (size_t i = 0; i < OCT_KEYS; i++)
        if (in_section(&oct_keys[i], name, length)) names[count++] = oct_key_word(&oct_keys[i]);
    for (size_t i = 0; length == 0 && i < OCT_KEYS; i++)
        if (opens_section(&oct_keys[i])) {
            sections[i] = oct_show(oct_keys[i].name, oct_key_section(&oct_keys[i]));
            names[count++] = sections[i].text;
        }
    near = oct_nearest(word, names, count);
    if (near) {
        snprintf(out->text, sizeof out->text, "; did you mean '%.*s%s'?",
                 (int)(length ? length + 1 : 0), name, near);
        return;
    }
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (strcmp(oct_key_word(&oct_keys[i]), word) == 0)
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s'%s'",
                                     used ? " or " : "; did you mean ", oct_keys[i].name);
    if (used) {
        snprintf(out->text + used, sizeof out->text - used, "?");
        return;
    }
    for (size_t i = 0; i < OCT_KEYS; i++)
        names[i] = oct_keys[i].name;
    near = oct_nearest(name, names, OCT_KEYS);
    if (near) snprintf(out->text, sizeof out->text, "; did you mean '%s'?", near);
}

/* "allowed in data: format, path", or nothing when there is no such section. */
static void list_section(const char *name, size_t length, oct_flaw *out)
{
    size_t used = 0;
    out->text[0] = '\0';
    if (!find_section(name, length)) return;
    used = (size_t)snprintf(out->text, sizeof out->text, "allowed in '%.*s':", (int)length, name);
    const char *between = " ";
    for (size_t i = 0; i < OCT_KEYS && used < sizeof out->text; i++)
        if (in_section(&oct_keys[i], name, length)) {
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%s", between,
                                     oct_key_word(&oct_keys[i]));
            between = ", ";
        }
}

static void report_unknown(const reader *r, const place *p, const char *name)
{
    oct_flaw near, list;
    size_t length = strcspn(name, ".");
    suggest(name, &near);
    list_section(name, name[length] ? length : 0, &list);
    bool silent = near.text[0] == '\0' && list.text[0] == '\0';
    report(r, p, list.text, "unknown key '%s'%s%s", name, near.text,
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

static void refuse_value(reader *r, const oct_key *key, const place *p, const char *what)
{
    r->bad[key - oct_keys] = true;
    report(r, p, NULL, "%s: %s", key->name, what);
}

static oct_status take_scalar(reader *r, const oct_key *key, const place *p,
                              const oct_scalar *value)
{
    oct_flaw flaw;
    OCT_TRY(oct_key_parse(key, r->recipe, value, &flaw));
    if (flaw.text[0] == '\0') return OCT_OK;
    r->bad[key - oct_keys] = true;
    if (p->kind == COMMAND_LINE)
        report(r, p, NULL, "%s", flaw.text);
    else
        report(r, p, NULL, "%s: %s", key->name, flaw.text);
    return OCT_OK;
}

static oct_status read_item(reader *r, const oct_key *key, oct_list *list, oct_flaw *flaw)
{
    const char *what = key->kind == OCT_KEY_REALS ? "number" : "text";
    if (r->event.type == YAML_SCALAR_EVENT) {
        oct_scalar value = event_scalar(&r->event);
        return oct_key_parse_item(key, list, &value, flaw);
    }
    snprintf(flaw->text, sizeof flaw->text, "item %d is not a %s; write %ss only", list->count + 1,
             what, what);
    return skip_node(r);
}

/* One problem a list is enough. */
static oct_status read_list(reader *r, const oct_key *key)
{
    bool *bad = &r->bad[key - oct_keys];
    oct_list list = {0};
    oct_status status = OCT_OK;
    for (;;) {
        oct_flaw flaw = {""};
        OCT_TRY_OUT(next(r));
        place p = here(r);
        if (r->event.type == YAML_SEQUENCE_END_EVENT) break;
        OCT_TRY_OUT(read_item(r, key, &list, &flaw));
        if (flaw.text[0] && !*bad) refuse_value(r, key, &p, flaw.text);
    }
    if (!*bad) oct_key_take_list(key, r->recipe, &list);
out:
    oct_list_free(&list);
    return status;
}

static oct_status read_value(reader *r, const oct_key *key)
{
    oct_flaw expects, what;
    place p = here(r);
    bool list = r->event.type == YAML_SEQUENCE_START_EVENT;
    if (r->event.type == YAML_SCALAR_EVENT) {
        oct_scalar value = event_scalar(&r->event);
        return take_scalar(r, key, &p, &value);
    }
    if (list && oct_key_is_list(key)) return read_list(r, key);
    r->bad[key - oct_keys] = true;
    if (r->event.type == YAML_ALIAS_EVENT) return OCT_OK; /* is on record */
    snprintf(what.text, sizeof what.text, "a %s where a single value is expected; write %.500s",
             list ? "list" : "mapping", oct_key_expects(key, &expects));
    refuse_value(r, key, &p, what.text);
    return skip_node(r);
}

static oct_status walk_mapping(reader *r, const char *section);

static oct_status walk_section(reader *r, const oct_key *first, const place *p)
{
    size_t length = oct_key_section(first), *line = &r->section_line[first - oct_keys];
    oct_shown name = oct_show(first->name, length);
    oct_flaw list;
    list_section(first->name, length, &list);
    if (*line)
        report(r, p, NULL, "section '%s' is already given in line %zu; join the two", name.text,
               *line);
    *line = p->line;
    if (r->event.type == YAML_MAPPING_START_EVENT) return walk_mapping(r, name.text);
    report(r, p, list.text, "'%s' is a section; write its keys below it, indented", name.text);
    return skip_node(r);
}

/* The value of a key is the event at hand. */
static oct_status walk_entry(reader *r, const char *section, const char *name, const place *p)
{
    const oct_key *key = find_key(name);
    const oct_key *first = section ? NULL : find_section(name, strlen(name));
    if (first) return walk_section(r, first, p);
    if (!key) {
        report_unknown(r, p, name);
        return skip_node(r);
    }
    place *given = &r->given[key - oct_keys];
    if (given->kind == FILE_LINE) {
        report(r, p, NULL, "key '%s' is already given in line %zu; keep one of them", key->name,
               given->line);
        return skip_node(r);
    }
    *given = *p;
    return read_value(r, key);
}

static oct_status walk_mapping(reader *r, const char *section)
{
    for (;;) {
        OCT_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return OCT_OK;
        place p = here(r);
        char name[160];
        bool is_word = r->event.type == YAML_SCALAR_EVENT;
        if (is_word) {
            oct_scalar word = event_scalar(&r->event);
            oct_shown shown = oct_show(word.text, word.length);
            snprintf(name, sizeof name, "%s%s%s", section ? section : "", section ? "." : "",
                     shown.text);
        } else if (r->event.type != YAML_ALIAS_EVENT) {
            report(r, &p, NULL, "a key is a word, not a list or a mapping; write key: value");
        }
        if (!is_word) OCT_TRY(skip_node(r));
        OCT_TRY(next(r));
        OCT_TRY(is_word ? walk_entry(r, section, name, &p) : skip_node(r));
    }
}

/* A document that says nothing is a recipe of defaults. */
static oct_status walk_root(reader *r)
{
    place p = here(r);
    if (r->event.type == YAML_MAPPING_START_EVENT) return walk_mapping(r, NULL);
    if (r->event.type == YAML_SCALAR_EVENT) {
        oct_scalar value = event_scalar(&r->event);
        if (value.plain && value.length == 0) return OCT_OK;
    }
    report(r, &p, NULL, "a recipe is a mapping; write lines such as seed: 1");
    return OCT_USAGE;
}

static oct_status walk_stream(reader *r)
{
    OCT_TRY(next(r)); /* start of the stream */
    OCT_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return OCT_OK;
    place p = here(r);
    if (r->event.data.document_start.version_directive ||
        r->event.data.document_start.tag_directives.start !=
            r->event.data.document_start.tag_directives.end)
        report(r, &p, NULL, "a directive (%%...); recipes have none: leave it out");
    OCT_TRY(next(r));
    OCT_TRY(walk_root(r));
    OCT_TRY(next(r)); /* end of the document */
    OCT_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return OCT_OK;
    p = here(r);
    report(r, &p, NULL, "a second document begins; a recipe is one document: leave out this '---'");
    return OCT_USAGE;
}

/* Nothing but characters that YAML allows, so that every later position is right. */
static oct_status check_characters(const reader *r)
{
    place p = {.kind = FILE_LINE, .line = 1, .column = 1, .width = 1};
    for (const char *at = r->text; at < r->end;) {
        size_t bytes, line_break = break_bytes(at, r->end);
        int32_t code = oct_utf8(at, r->end, &bytes);
        bool allowed = code == '\t' || line_break > 0 || (code >= 0x20 && code < 0x7f) ||
                       (code >= 0xa0 && code != 0xfeff && code != 0xfffe && code != 0xffff);
        if (code < 0)
            report(r, &p, NULL, "byte 0x%02x is not UTF-8; save the recipe as UTF-8 text",
                   (unsigned char)*at);
        else if (!allowed)
            report(r, &p, NULL, "character U+%04X is not allowed; leave it out", (unsigned)code);
        if (code < 0 || !allowed) return OCT_USAGE;
        p.line += line_break > 0;
        p.column = line_break ? 1 : p.column + 1;
        at += line_break ? line_break : bytes;
    }
    return OCT_OK;
}

static oct_status read_yaml(reader *r)
{
    if (r->end - r->text > FILE_LIMIT) {
        report(r, &(place){0}, NULL, "the recipe is larger than %d bytes; is it another file?",
               FILE_LIMIT);
        return OCT_USAGE;
    }
    if (r->end - r->text >= 3 && memcmp(r->text, "\xef\xbb\xbf", 3) == 0) r->text += 3;
    OCT_TRY(check_characters(r));
    if (!yaml_parser_initialize(&r->yaml))
        return oct_fail(OCT_RESOURCE, "%s: out of memory", r->file);
    yaml_parser_set_encoding(&r->yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->yaml, (const unsigned char *)r->text,
                                 (size_t)(r->end - r->text));
    oct_status status = walk_stream(r);
    r->complete = status == OCT_OK;
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->yaml);
    return status;
}

static void refuse_name(const reader *r, const place *p, const char *name, bool has_value)
{
    const oct_key *key = find_key(name), *first = find_section(name, strlen(name));
    oct_flaw expects, list;
    if (key && !has_value) {
        report(r, p, NULL, "no '='; write %s=%s", name,
               key->standard && *key->standard ? key->standard : "VALUE");
    } else if (first) {
        list_section(name, strlen(name), &list);
        report(r, p, list.text, "'%s' is a section; write one of its keys, such as %s=VALUE", name,
               first->name);
    } else if (!has_value && !strchr(name, '.')) {
        suggest(name, &expects);
        report(r, p, NULL, "this is not key=value; `octet help recipe` lists the keys%s",
               expects.text);
    } else {
        report_unknown(r, p, name);
    }
}

/* "batch.size 64": a key and its value as two words, where one with = belongs. */
static bool report_two_words(const reader *r, const char *word, const char *after)
{
    const oct_key *key = find_key(word);
    if (!key || !after || strchr(after, '=') || find_key(after)) return false;
    place p = {.kind = COMMAND_LINE, .override = word};
    oct_shown value = oct_show(after, strlen(after));
    report(r, &p, NULL, "a key and its value are one word; write %s=%s", key->name, value.text);
    return true;
}

static oct_status read_override(reader *r, const char *override)
{
    place p = {.kind = COMMAND_LINE, .override = override};
    size_t length = strcspn(override, "=");
    bool has_value = override[length] == '=';
    oct_shown name = oct_show(override, length);
    const oct_key *key = find_key(name.text);
    if (!key || !has_value) {
        refuse_name(r, &p, name.text, has_value);
        return OCT_OK;
    }
    place *given = &r->given[key - oct_keys];
    if (given->kind == COMMAND_LINE) {
        oct_shown before = oct_show(given->override, strlen(given->override));
        report(r, &p, NULL, "%s was given before, as '%s'; keep one of them", key->name,
               before.text);
        return OCT_OK;
    }
    *given = p;
    const char *value = override + length + 1;
    return take_scalar(r, key, &p, &(oct_scalar){value, strlen(value), true});
}

bool oct_key_bad(const oct_recipe_reader *r, size_t key)
{
    return r->bad[key];
}

bool oct_key_given(const oct_recipe_reader *r, size_t key)
{
    return r->given[key].kind != STANDARD;
}

/* Points to the one that was given, the command line first. */
void oct_keys_report(const oct_recipe_reader *r, size_t a, size_t b, const char *format, ...)
{
    char sentence[1500];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    const place *p = r->given[b].kind > r->given[a].kind ? &r->given[b] : &r->given[a];
    report(r, p, NULL, "%s", sentence);
}

static void check_missing(const reader *r)
{
    for (size_t i = 0; i < OCT_KEYS; i++) {
        const oct_key *key = &oct_keys[i];
        if (key->standard || r->bad[i] || *(char **)oct_key_field(key, r->recipe)) continue;
        report(
            r, &(place){0}, NULL,
            "key '%s' is missing (%s); add it to the recipe, or write %s=VALUE on the command line",
            key->name, key->help, key->name);
    }
}

static oct_status read_all(reader *r, const char *const *overrides, size_t num_overrides)
{
    for (size_t i = 0; i < OCT_KEYS; i++)
        OCT_TRY(oct_key_reset(&oct_keys[i], r->recipe));
    oct_status status = read_yaml(r);
    if (status != OCT_OK && status != OCT_USAGE) return status;
    for (size_t i = 0; i < num_overrides; i++) {
        if (report_two_words(r, overrides[i], i + 1 < num_overrides ? overrides[i + 1] : NULL))
            i++;
        else
            OCT_TRY(read_override(r, overrides[i]));
    }
    if (r->complete) {
        check_missing(r);
        OCT_TRY(oct_recipe_check_keys(r, r->recipe));
    }
    return oct_fail_count() > 0 ? OCT_USAGE : OCT_OK;
}

oct_status oct_recipe_read(oct_recipe *recipe, const char *path, const char *text,
                           const char *const *overrides, size_t num_overrides)
{
    void *bytes = NULL;
    reader *r = NULL;
    size_t size = text ? strlen(text) : 0;
    *recipe = (oct_recipe){0};
    oct_fail_clear();
    oct_status status = OCT_OK;
    if (!text) OCT_TRY_OUT(oct_file_read(path, FILE_LIMIT, &bytes, &size));
    if (!text) text = bytes;
    OCT_TRY_OUT(oct_alloc(&r, 1, sizeof *r));
    *r = (reader){.file = path, .text = text, .end = text + size, .recipe = recipe};
    status = read_all(r, overrides, num_overrides);
out:
    oct_free(&r);
    oct_free(&bytes);
    if (status != OCT_OK) oct_recipe_free(recipe);
    return status;
}
