/* A mistake in a recipe is reported with its place: file, line and column, the line with a caret, or
 * the argument of the command. */
#include "io/recipe/recipe_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    va_list args;
    va_start(args, format);
    oct_vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    const char *line = more && *more ? "\n" : "";
    if (!more) more = "";
    if (p->kind == OCT_GIVEN_IN_COMMAND) {
        oct_shown word = oct_show(p->override, strlen(p->override));
        oct_fail_add(OCT_USAGE, "command line: '%s': %s%s%s", word.text, sentence, line, more);
    } else if (p->kind == OCT_GIVEN_IN_FILE) {
        write_excerpt(s, p, where, sizeof where);
        oct_fail_add(OCT_USAGE, "%s:%zu:%zu: %s%s%s%s", s->file, p->line, p->column, sentence,
                     where, line, more);
    } else {
        oct_fail_add(OCT_USAGE, "%s: %s%s%s", s->file, sentence, line, more);
    }
}

void oct_recipe_report_keys(const oct_recipe_source *s, size_t a, size_t b, const char *format, ...)
{
    char sentence[1500];
    va_list args;
    if (s->bad[a] || s->bad[b]) return;
    va_start(args, format);
    oct_vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    const oct_recipe_position *p =
        s->given[b].kind > s->given[a].kind ? &s->given[b] : &s->given[a];
    oct_recipe_report(s, p, NULL, "%s", sentence);
}
