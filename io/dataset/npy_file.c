/* The header is a dictionary of Python's with three keys, in versions 1 to 3 of the format. */
#include "io/dataset/npy_file.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <string.h>

enum { PREFIX = 8, HEADER_MAX = 1 << 16 };

/* A text that is taken from its begin on. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n'))
        c->at++;
}

static bool skip_word(cursor *c, const char *word)
{
    const size_t length = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

/* A text in quotes of either kind, without the means to write a quote in it. */
static bool take_text(cursor *c, char text[16])
{
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
    const char *begin = c->at + 1, *end = memchr(begin, *c->at, (size_t)(c->end - begin));
    if (!end || end - begin >= 16) return false;
    memcpy(text, begin, (size_t)(end - begin));
    text[end - begin] = '\0';
    c->at = end + 1;
    return true;
}

static bool take_number(cursor *c, int64_t *value)
{
    enum { DIGITS_MAX = 18 };
    const char *begin;
    skip_space(c);
    begin = c->at;
    *value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - begin < DIGITS_MAX; c->at++)
        *value = *value * 10 + (*c->at - '0');
    const bool digits = c->at > begin;
    if (digits) skip_word(c, "L"); /* NumPy under Python 2 wrote such numbers */
    return digits;
}

/* What the header says. */
typedef struct header {
    char type[16];
    bool fortran,
        structures; /* structures: of several fields, which are not looked at, nor is the rest */
    int64_t dim[OCT_MAX_DIMS];
    int ndim;
    bool many; /* more dimensions than are read */
    unsigned seen;
} header;

static bool take_shape(cursor *c, header *h)
{
    if (!skip_word(c, "(")) return false;
    while (!skip_word(c, ")")) {
        int64_t dim;
        if (!take_number(c, &dim)) return false;
        h->many = h->ndim == OCT_MAX_DIMS;
        if (h->many) return true;
        h->dim[h->ndim++] = dim;
        if (!skip_word(c, ",") && (h->ndim < 2 || c->at == c->end || *c->at != ')')) return false;
    }
    return true;
}

static bool take_entry(cursor *c, header *h)
{
    char key[16];
    if (!take_text(c, key) || !skip_word(c, ":")) return false;
    if (strcmp(key, "descr") == 0) {
        h->seen |= 1;
        h->structures = skip_word(c, "[");
        return h->structures || take_text(c, h->type);
    }
    if (strcmp(key, "fortran_order") == 0) {
        h->seen |= 2;
        h->fortran = skip_word(c, "True");
        return h->fortran || skip_word(c, "False");
    }
    h->seen |= 4;
    return strcmp(key, "shape") == 0 && take_shape(c, h);
}

static bool parse_header(cursor c, header *h)
{
    enum { ALL = 7 };
    if (!skip_word(&c, "{")) return false;
    while (!skip_word(&c, "}")) {
        if (!take_entry(&c, h)) return false;
        if (h->many || h->structures) return true;
        if (!skip_word(&c, ",") && (c.at == c.end || *c.at != '}')) return false;
    }
    skip_space(&c);
    return c.at == c.end && h->seen == ALL;
}

static bool is_known_type(const char *type)
{
    const bool known = strlen(type) == 3 && strchr("<|>=", type[0]) && strchr("uifb", type[1]) &&
                       strchr("1248", type[2]);
    return known && !(type[1] == 'f' && type[2] < '2') && !(type[1] == 'b' && type[2] != '1');
}

static oct_status take_header(oct_array *a, const header *h, bool *other)
{
    const char *type = h->type;
    const bool known = is_known_type(type);
    if (other) *other = !known || h->many;
    if (other && *other) return OCT_OK;
    OCT_CHECK(!h->structures, OCT_DATA,
              "%s: holds structures of several fields; save each field as an array of its own: "
              "numpy.ascontiguousarray(array['FIELD'])",
              a->name);
    OCT_CHECK(
        known, OCT_DATA,
        "%s: holds elements of type %s; whole numbers and floats of at most 64 bits are read; "
        "convert them with numpy: array.astype('float32')",
        a->name, oct_show(type, strlen(type)).text);
    OCT_CHECK(!h->fortran || h->ndim < 2, OCT_DATA,
              "%s: is in Fortran's order; convert it with numpy: numpy.ascontiguousarray(array)",
              a->name);
    OCT_CHECK(!h->many, OCT_DATA, "%s: has too many dimensions; 1 to %d dimensions are read",
              a->name, OCT_MAX_DIMS);
    a->kind = type[1] == 'b' ? 'u' : type[1];
    a->bytes = (size_t)(type[2] - '0');
    a->big = type[0] == '>';
    a->shape = oct_shape_of(h->ndim, h->dim);
    return OCT_OK;
}

static oct_status damaged(const oct_array *a)
{
    return oct_fail(OCT_DATA, "%s: is no .npy file, or its header is damaged", a->name);
}

/* Reads the header's text, whose length is in 2 bytes, from version 2 on in 4. */
static oct_status read_header(oct_array *a, char **text, int64_t *begin, size_t *bytes)
{
    uint8_t prefix[PREFIX + 4];
    const size_t most =
        a->span.size < (int64_t)sizeof prefix ? (size_t)a->span.size : sizeof prefix;
    memset(prefix, 0, sizeof prefix);
    OCT_TRY(oct_span_read(&a->span, 0, prefix, most, a->name));
    if (memcmp(prefix, "\x93NUMPY", 6) != 0) return damaged(a);
    const bool wide = prefix[6] > 1;
    OCT_CHECK(prefix[6] >= 1 && prefix[6] <= 3 && prefix[7] == 0, OCT_DATA,
              "%s: is of version %d.%d of the .npy format; 1.0 to 3.0 are read", a->name, prefix[6],
              prefix[7]);
    *begin = PREFIX + (wide ? 4 : 2);
    *bytes = (size_t)prefix[8] | (size_t)prefix[9] << 8;
    if (wide) *bytes |= (size_t)prefix[10] << 16 | (size_t)prefix[11] << 24;
    if (*bytes > HEADER_MAX) return damaged(a);
    OCT_TRY(oct_alloc(text, *bytes, 1));
    return oct_span_read(&a->span, *begin, *text, *bytes, a->name);
}

static oct_status fill_array(oct_array *a, bool *other)
{
    char *text = NULL;
    int64_t begin = 0;
    size_t bytes = 0;
    header h = {0};
    oct_status status = read_header(a, &text, &begin, &bytes);
    if (status == OCT_OK && !parse_header((cursor){text, text + bytes}, &h)) status = damaged(a);
    if (status == OCT_OK) status = take_header(a, &h, other);
    oct_free(&text);
    OCT_TRY(status);
    if (other && *other) return OCT_OK;
    a->span.begin += begin + (int64_t)bytes;
    a->span.size -= begin + (int64_t)bytes;
    return oct_array_check_size(a);
}

oct_status oct_npy_take(oct_array *array, oct_span *span, const char *name, bool *other)
{
    *array = (oct_array){.span = *span};
    *span = OCT_SPAN_NONE;
    oct_status status = oct_strdup(&array->name, name);
    if (status != OCT_OK) {
        oct_span_close(&array->span);
        return status;
    }
    status = fill_array(array, other);
    if (status != OCT_OK) oct_array_close(array);
    return status;
}
