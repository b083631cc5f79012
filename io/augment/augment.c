/* Lists of transforms are read, fitted to the samples, run and explained here, by what each transform says
 * of itself. */
#include "io/augment/augment.h"

#include "io/augment/geometry.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const void *const listed[] = {
#define OCT_TRANSFORM(file) &oct_transform_##file,
#include "io/augment/augment_list.def"
#undef OCT_TRANSFORM
};
const oct_registry oct_transform_table = OCT_REGISTRY("a transform", listed);

enum { ITEM_BYTES = 256, WORDS_MAX = 16 };

static void OCT_PRINTF(2, 3) set_flaw(char flaw[OCT_AUGMENT_FLAW], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    oct_vsnprintf(flaw, OCT_AUGMENT_FLAW, format, args);
    va_end(args);
}

static bool is_side(const char *text, int64_t *side)
{
    return strspn(text, "0123456789") == strlen(text) && oct_parse_i64(text, side) && *side >= 1 &&
           *side <= OCT_IMAGE_SIDE_MAX;
}

bool oct_augment_size(const char *text, int64_t *h, int64_t *w)
{
    char height[16];
    const char *x = strchr(text, 'x');
    if (!x) return is_side(text, h) && is_side(text, w);
    const size_t length = (size_t)(x - text);
    if (length >= sizeof height) return false;
    memcpy(height, text, length);
    height[length] = '\0';
    return is_side(height, h) && is_side(x + 1, w);
}

/* Says what the value of a parameter looks like, for messages. */
static const char *describe_value(const oct_transform_param *param, char text[96])
{
    switch (param->kind) {
    case OCT_PARAM_SIZE:
        return "a size such as 224 or, height first, 224x160";
    case OCT_PARAM_RANGE:
        oct_snprintf(text, 96, "a range FROM..TO within %g to %g", param->min, param->max);
        return text;
    case OCT_PARAM_COUNT:
        oct_snprintf(text, 96, "a whole number from %g to %g", param->min, param->max);
        return text;
    case OCT_PARAM_REAL:
        break;
    }
    oct_snprintf(text, 96, "a number from %g to %g", param->min, param->max);
    return text;
}

static bool is_in_range(const oct_transform_param *param, double value)
{
    return value >= param->min && value <= param->max;
}

/* Reads the text of a value: FROM..TO as from and to, a size as height and width (0: not given), others as both. */
static bool read_value(const oct_transform_param *param, const char *text, oct_param_value *value)
{
    char from[64]; /* of FROM..TO */
    const char *dots;
    int64_t count, h, w;
    double number;
    switch (param->kind) {
    case OCT_PARAM_SIZE:
        if (!oct_augment_size(text, &h, &w)) return false;
        *value = (oct_param_value){(double)h, strchr(text, 'x') ? (double)w : 0};
        return true;
    case OCT_PARAM_RANGE:
        dots = strstr(text, "..");
        if (!dots || (size_t)(dots - text) >= sizeof from) return false;
        memcpy(from, text, (size_t)(dots - text));
        from[dots - text] = '\0';
        return oct_parse_f64(from, &value->from) && oct_parse_f64(dots + 2, &value->to) &&
               is_in_range(param, value->from) && is_in_range(param, value->to) &&
               value->from <= value->to;
    case OCT_PARAM_COUNT:
        if (!oct_parse_i64(text, &count)) return false;
        number = (double)count;
        break;
    case OCT_PARAM_REAL:
    default:
        if (!oct_parse_f64(text, &number)) return false;
    }
    *value = (oct_param_value){number, number};
    return is_in_range(param, number);
}

static size_t count_params(const oct_transform *t)
{
    size_t count = 0;
    while (t->param[count].name)
        count++;
    return count;
}

/* An item of data.train or data.test while it is read. */
typedef struct item_reader {
    const oct_transform *transform;
    oct_param_value value[OCT_PARAMS_MAX];
    bool given[OCT_PARAMS_MAX];
    bool named; /* a name=value has been read */
    char *flaw;
} item_reader;

static const char *list_params(const oct_transform *t, char text[160])
{
    text[0] = '\0';
    for (const oct_transform_param *p = t->param; p->name; p++) {
        const size_t used = strlen(text);
        snprintf(text + used, 160 - used, "%s%s", p == t->param ? "" : ", ", p->name);
    }
    return text;
}

/* Returns the index of the parameter of this name; without one the number of parameters, and a flaw. */
static size_t find_param(const item_reader *r, const char *name)
{
    const oct_transform *t = r->transform;
    const size_t count = count_params(t);
    const char *names[OCT_PARAMS_MAX];
    char hint[OCT_HINT_BYTES], all[160], use[192];
    for (size_t i = 0; i < count; i++) {
        names[i] = t->param[i].name;
        if (strcmp(names[i], name) == 0) return i;
    }
    snprintf(use, sizeof use, "it has %s", list_params(t, all));
    const oct_shown shown = oct_show(name, strlen(name));
    set_flaw(r->flaw, "%s has no '%s'; %s", t->name, shown.text,
             oct_did_you_mean(hint, name, names, count, use));
    return count;
}

/* Returns the index of the first parameter without a value, for a word without NAME=; else a flaw and their number. */
static size_t next_param(const item_reader *r, const char *word)
{
    const size_t count = count_params(r->transform);
    const oct_shown shown = oct_show(word, strlen(word));
    size_t at = 0;
    char all[160];
    while (at < count && r->given[at])
        at++;
    if (r->named)
        set_flaw(r->flaw, "'%s' has no name, but comes after one that has; write NAME=%s",
                 shown.text, shown.text);
    else if (count == 0)
        set_flaw(r->flaw, "'%s': %s takes no values; leave it out", shown.text, r->transform->name);
    else if (at == count)
        set_flaw(r->flaw, "'%s' is one value too many; %s has %s", shown.text, r->transform->name,
                 list_params(r->transform, all));
    return r->flaw[0] ? count : at;
}

/* Reads one word of an item, VALUE or NAME=VALUE, into the parameter that it sets. */
static void read_argument(item_reader *r, char *word)
{
    const oct_transform *t = r->transform;
    char *equals = strchr(word, '='), form[96];
    const char *text = equals ? equals + 1 : word;
    if (equals) *equals = '\0';
    const size_t at = equals ? find_param(r, word) : next_param(r, word);
    const oct_shown shown = oct_show(text, strlen(text));
    if (r->flaw[0]) return;
    if (r->given[at])
        set_flaw(r->flaw, "%s of %s is given twice; keep one of them", t->param[at].name, t->name);
    else if (!read_value(&t->param[at], text, &r->value[at]))
        set_flaw(r->flaw, "%s of %s is '%s'; write %s", t->param[at].name, t->name, shown.text,
                 describe_value(&t->param[at], form));
    r->given[at] = true;
    r->named |= equals != NULL;
}

/* Gives each parameter that the item leaves out its default; that of a SIZE is data.size. */
static void fill_defaults(item_reader *r, const oct_augment *a)
{
    const oct_transform *t = r->transform;
    char form[96];
    for (size_t i = 0; t->param[i].name && !r->flaw[0]; i++) {
        const oct_transform_param *p = &t->param[i];
        if (r->given[i]) continue;
        if (p->kind == OCT_PARAM_SIZE && a->h > 0)
            r->value[i] = (oct_param_value){(double)a->h, (double)a->w};
        else if (p->kind == OCT_PARAM_SIZE)
            set_flaw(r->flaw, "%s has no size; write one, such as %s 224, or data.size", t->name,
                     t->name);
        else if (!p->standard)
            set_flaw(r->flaw, "%s needs %s; write %s=VALUE, %s", t->name, p->name, p->name,
                     describe_value(p, form));
        else
            OCT_ASSERT(read_value(p, p->standard, &r->value[i]));
    }
}

/* Says why a word names no transform, with the nearest name and the allowed ones: for data.test without random ones. */
static void report_unknown(const char *word, bool training, char flaw[OCT_AUGMENT_FLAW])
{
    const size_t name_bytes = strcspn(word, "(");
    const oct_shown shown = oct_show(word, strlen(word));
    char name[64], all[OCT_AUGMENT_FLAW] = "";
    snprintf(name, sizeof name, "%.*s", (int)(name_bytes < 63 ? name_bytes : 63), word);
    const char *near = oct_registry_nearest(&oct_transform_table, name);
    if (oct_registry_find(&oct_transform_table, name)) {
        set_flaw(flaw,
                 "'%s': values come after a space, without brackets; write %s VALUE NAME=VALUE",
                 shown.text, name);
        return;
    }
    for (size_t i = 0; i < oct_registry_count(&oct_transform_table); i++) {
        const oct_transform *t = oct_registry_at(&oct_transform_table, i);
        const size_t used = strlen(all);
        if (training || !t->random)
            snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", t->name);
    }
    set_flaw(flaw, "there is no transform '%s'; %s%s%sallowed: %.350s", shown.text,
             near ? "did you mean '" : "", near ? near : "", near ? "'? " : "", all);
}

void oct_augment_add(oct_augment *a, const char *text, bool training, char flaw[OCT_AUGMENT_FLAW])
{
    char item[ITEM_BYTES], *rest = NULL;
    item_reader r = {.flaw = flaw};
    flaw[0] = '\0';
    if (strlen(text) >= sizeof item) {
        set_flaw(flaw, "a transform of %zu characters; at most %d are allowed", strlen(text),
                 ITEM_BYTES - 1);
        return;
    }
    if (a->count == OCT_AUGMENT_MAX) {
        set_flaw(flaw, "more than %d transforms; leave some out", OCT_AUGMENT_MAX);
        return;
    }
    snprintf(item, sizeof item, "%s", text);
    const char *name = strtok_r(item, " ", &rest);
    r.transform = name ? oct_registry_find(&oct_transform_table, name) : NULL;
    if (!r.transform) {
        report_unknown(name ? name : "", training, flaw);
        return;
    }
    if (r.transform->random && !training) {
        set_flaw(flaw,
                 "%s is random, and evaluation must see the same every time; leave it to "
                 "data.train",
                 name);
        return;
    }
    for (char *word; !flaw[0] && (word = strtok_r(NULL, " ", &rest));)
        read_argument(&r, word);
    if (!flaw[0]) fill_defaults(&r, a);
    if (flaw[0]) return;
    a->item[a->count].transform = r.transform;
    memcpy(a->item[a->count].value, r.value, sizeof r.value);
    a->count++;
}

bool oct_augment_is_empty(const oct_augment *a)
{
    return a->count == 0 && a->h == 0;
}

/* Refuses samples above OCT_IMAGE_BYTES_MAX. Sides are at most OCT_IMAGE_SIDE_MAX, so nothing overflows. */
static void check_bytes(const oct_image *shape, char flaw[OCT_AUGMENT_FLAW])
{
    const int64_t value = (int64_t)oct_dtype_bytes(shape->dtype);
    if (shape->h * shape->w > OCT_IMAGE_BYTES_MAX / value / shape->c)
        set_flaw(flaw, "a sample of %lldx%lldx%lld is too large; at most %s are taken",
                 (long long)shape->h, (long long)shape->w, (long long)shape->c,
                 oct_text_size(OCT_IMAGE_BYTES_MAX).text);
}

oct_status oct_augment_fit(const oct_augment *a, const char *key, oct_image *shape)
{
    char flaw[OCT_AUGMENT_FLAW] = "";
    for (int i = 0; i < a->count; i++) {
        const oct_transform *t = a->item[i].transform;
        if (t->bytes && shape->dtype != OCT_U8)
            set_flaw(flaw, "it works on bytes, but the samples are %s",
                     oct_dtype_name(shape->dtype));
        else if (t->fit)
            t->fit(a->item[i].value, shape, flaw);
        if (!flaw[0]) check_bytes(shape, flaw);
        OCT_CHECK(!flaw[0], OCT_USAGE, "%s: item %d, %s: %s", key, i + 1, t->name, flaw);
    }
    if (a->h > 0) {
        shape->h = a->h;
        shape->w = a->w;
    }
    check_bytes(shape, flaw);
    OCT_CHECK(!flaw[0], OCT_USAGE, "data.size: %s", flaw);
    OCT_CHECK(shape->h > 0 && shape->w > 0, OCT_USAGE,
              "%s: the samples differ in size, and the model wants one; write data.size, such as "
              "data.size: 224",
              key);
    return OCT_OK;
}

oct_status oct_augment_run(const oct_augment *a, const oct_draw *draw, oct_image *image,
                           oct_image *map)
{
    OCT_OWNED(oct_image_free) oct_image spare = {0};
    for (int i = 0; i < a->count; i++) {
        oct_dice dice = oct_dice_of(draw, i);
        const oct_transform_call call = {a->item[i].value, &dice, &a->mean, &spare};
        OCT_TRY(a->item[i].transform->run(&call, image, map));
    }
    if (a->h == 0 || (image->h == a->h && image->w == a->w)) return OCT_OK;
    return oct_geometry_resize(image, map, &spare, a->h, a->w);
}

oct_status oct_augment_help(oct_text *out)
{
    OCT_TRY(oct_text_add(
        out, "\nTransforms for data.train; those with * for data.test too. An item is a name, then "
             "values in this order\nor as NAME=VALUE: data.train: [random_resized_crop 224 "
             "scale=0.25..1, flip, color_jitter 0.4 0.4 0.4]\n\n"));
    for (size_t i = 0; i < oct_registry_count(&oct_transform_table); i++) {
        const oct_transform *t = oct_registry_at(&oct_transform_table, i);
        OCT_TRY(oct_text_add(out, "%s ", t->random ? " " : "*"));
        OCT_TRY(oct_text_add(out, "%s", t->name));
        for (const oct_transform_param *p = t->param; p->name; p++) {
            const char *shown = p->standard                 ? p->standard
                                : p->kind == OCT_PARAM_SIZE ? "data.size"
                                                            : "VALUE";
            OCT_TRY(oct_text_add(out, " %s=%s", p->name, shown));
        }
        OCT_TRY(oct_text_add(out, "\n"));
        OCT_TRY(oct_text_add(out, "      %s\n", t->help));
    }
    return OCT_OK;
}
