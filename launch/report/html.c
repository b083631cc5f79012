/* The formats are taken apart here, so that the strings in them can be escaped. */
#include "launch/report/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void keep(oct_html *html, oct_status status)
{
    if (html->status == OCT_OK) html->status = status;
}

static void add_bytes(oct_html *html, const char *bytes, size_t length)
{
    if (html->status == OCT_OK && length)
        keep(html, oct_text_add(&html->text, "%.*s", (int)length, bytes));
}

static const char *entity_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

static void add_escaped(oct_html *html, const char *text, size_t length)
{
    const char *end = text + length, *plain = text;
    for (; text < end; text++) {
        const char *entity = entity_of(*text);
        if (!entity) continue;
        add_bytes(html, plain, (size_t)(text - plain));
        add_bytes(html, entity, strlen(entity));
        plain = text + 1;
    }
    add_bytes(html, plain, (size_t)(end - plain));
}

static void add_text(oct_html *html, const char *text)
{
    add_escaped(html, text, strlen(text));
}

/* A conversion: "%.3g" has precision 3, no length and the letter g. */
typedef struct conversion {
    int precision, length;
    char letter;
} conversion;

static const char *parse(const char *at, conversion *c)
{
    *c = (conversion){.precision = 6};
    if (*at == '.') {
        OCT_ASSERT(at[1] >= '0' && at[1] <= '9');
        c->precision = at[1] - '0';
        at += 2;
    }
    for (; *at == 'l' || *at == 'z'; at++)
        c->length++;
    c->letter = *at;
    return at + 1;
}

static void add_whole(oct_html *html, const conversion *c, va_list *values)
{
    int64_t value = c->letter == 'u' ? (int64_t)va_arg(*values, size_t)
                    : c->length == 0 ? va_arg(*values, int)
                    : c->length == 1 ? va_arg(*values, long)
                                     : va_arg(*values, long long);
    keep(html, oct_text_add(&html->text, "%" PRId64, value));
}

static void add_value(oct_html *html, const conversion *c, va_list *values)
{
    switch (c->letter) {
    case 's':
        add_text(html, va_arg(*values, const char *));
        return;
    case 'd':
    case 'u':
        add_whole(html, c, values);
        return;
    case 'f':
        keep(html, oct_text_add(&html->text, "%.*f", c->precision, va_arg(*values, double)));
        return;
    case 'g':
        keep(html, oct_text_add(&html->text, "%.*g", c->precision, va_arg(*values, double)));
        return;
    default:
        OCT_ASSERT(c->letter == '%');
        add_bytes(html, "%", 1);
    }
}

void oct_html_put(oct_html *html, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    while (html->status == OCT_OK && *format) {
        size_t plain = strcspn(format, "%");
        conversion c;
        add_bytes(html, format, plain);
        format += plain;
        if (!*format) break;
        format = parse(format + 1, &c);
        add_value(html, &c, &values);
    }
    va_end(values);
}

void oct_html_number(oct_html *html, double value)
{
    if (!isfinite(value))
        oct_html_put(html, "%s", isnan(value) ? "not a number" : value > 0 ? "∞" : "−∞");
    else if (fabs(value) >= 1e4 && fabs(value) < 1e7)
        oct_html_put(html, "%.0f", value);
    else
        oct_html_put(html, "%.4g", value);
}

void oct_html_cut(oct_html *html, const char *text, size_t characters)
{
    const char *at = text, *end = text + strlen(text);
    size_t bytes;
    for (size_t i = 0; i < characters && at < end; i++, at += bytes)
        oct_utf8(at, end, &bytes);
    add_escaped(html, text, (size_t)(at - text));
    if (at < end) oct_html_put(html, "…");
}
