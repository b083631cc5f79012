/* Tables that name a picture in each row and say what it is: `path,label`, `path,number,number,...` or
 * `path,map`.
 *
 * The order of the rows is the order of the samples. A first row is one of names when it says so by a word such as
 * `path` or `image`, or when it names no picture and the next one does. Labels are names as soon as one of them, in
 * either split, is no whole number (7.0 is one).
 */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/dataset/csv_file.h"
#include "io/dataset/picture_list.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILES                                                                                      \
    "expected: train.csv and test.csv (or val.csv) in the folder, or data.path=TABLE.csv, and "    \
    "data.split says the share for the test; each row is path,label"

/* One split: some rows of a table. */
typedef struct split_rows {
    const oct_csv *csv;
    int64_t *rows; /* oct_alloc'ed */
    int64_t count;
} split_rows;

/* A split that is being opened. */
typedef struct reading {
    oct_dataset *data;
    const oct_dataset_source *source;
    oct_path root;        /* the folder of the tables */
    oct_csv tables[2];    /* of each split; only the first when the test is drawn */
    split_rows splits[2]; /* of each split */
    char **names;         /* of classes, sorted, borrowed of a table; NULL: numbers */
    int64_t num_names;
    oct_path folder; /* the last one that was found to lie inside of root */
} reading;

static void free_reading(reading *r)
{
    for (int i = 0; i < 2; i++) {
        oct_csv_free(&r->tables[i]);
        oct_free(&r->splits[i].rows);
    }
    oct_free(&r->names);
}

/* Is the text a whole number of 32 bits, as 7 or 7.0? */
static bool is_label(const char *text, int64_t *label)
{
    double value;
    if (!oct_parse_i64(text, label)) {
        if (!oct_parse_f64(text, &value) || !(fabs(value) <= -(double)INT32_MIN)) return false;
        *label = (int64_t)value;
        if ((double)*label != value) return false;
    }
    return *label >= INT32_MIN && *label <= INT32_MAX;
}

/* Whether the first row names columns: its first field is a usual word for a path, or no path while the next row's
 * is a picture, and its second is neither a number nor a class that occurs again. */
static bool has_heading(const oct_csv *csv)
{
    static const char *const words[] = {"path", "file", "filename", "image", "image_path", "name"};
    const char *first = oct_csv_field(csv, 0, 0);
    for (size_t i = 0; i < OCT_COUNT(words); i++)
        if (strcasecmp(first, words[i]) == 0) return true;
    if (!*first || strpbrk(first, "./") || csv->rows < 2 ||
        !oct_is_picture_name(oct_csv_field(csv, 1, 0)))
        return false;
    /* The second field is no heading where it is a number, or a class that is named again. */
    int64_t label;
    const char *second = csv->columns > 1 ? oct_csv_field(csv, 0, 1) : "";
    bool heading = !is_label(second, &label);
    for (int64_t i = 1; i < csv->rows && *second && heading; i++)
        heading = strcmp(oct_csv_field(csv, i, 1), second) != 0;
    return heading;
}

static oct_status keep_all_rows(split_rows *p, const oct_csv *csv)
{
    const int64_t first = has_heading(csv);
    p->csv = csv;
    p->count = csv->rows - first;
    OCT_CHECK(p->count > 0, OCT_DATA, "%s: holds no rows but its names", csv->path);
    OCT_TRY(oct_alloc(&p->rows, (size_t)p->count, sizeof *p->rows));
    for (int64_t i = 0; i < p->count; i++)
        p->rows[i] = i + first;
    return OCT_OK;
}

static oct_status draw_rows(reading *r, const oct_csv *csv)
{
    const int64_t first = has_heading(csv), count = csv->rows - first;
    const oct_split_draw d = {count, r->source->split, r->source->seed, 0};
    OCT_CHECK(count > 1 || (count == 1 && d.share >= 1), OCT_DATA,
              "%s: holds %s; two are needed, since a share of them is kept for the test", csv->path,
              count == 1 ? "one sample" : "no samples");
    for (int i = 0; i < 2; i++) {
        split_rows *p = &r->splits[i];
        p->csv = csv;
        OCT_TRY(oct_split_choose(&d, i == 0 ? OCT_TRAIN : OCT_TEST, &p->rows, &p->count));
        for (int64_t k = 0; k < p->count; k++)
            p->rows[k] += first;
    }
    return OCT_OK;
}

/* Reads the table of each split, or the one whose rows are drawn into both. root: the folder that paths in the
 * tables begin from, without links. */
static oct_status read_tables(reading *r)
{
    const char *path = r->source->folder, *slash = strrchr(path, '/');
    struct stat info;
    const bool file = stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
    bool drawn = file;
    oct_path folder;
    OCT_TRY(!file   ? oct_path_make(&folder, "%s", path)
            : slash ? oct_path_make(&folder, "%.*s", (int)(slash - path) + 1, path)
                    : oct_path_make(&folder, "."));
    OCT_CHECK(realpath(folder.text, r->root.text), OCT_DATA, "%s: %s", folder.text,
              strerror(errno));
    if (file) OCT_TRY(oct_csv_read(&r->tables[0], path));
    for (int i = 0; i < 2 && !drawn; i++) {
        oct_path table;
        OCT_TRY(oct_split_file(path, ".csv", FILES, (oct_split)i, &drawn, &table));
        OCT_TRY(oct_csv_read(&r->tables[i], table.text));
    }
    if (drawn) return draw_rows(r, &r->tables[0]);
    for (int i = 0; i < 2; i++)
        OCT_TRY(keep_all_rows(&r->splits[i], &r->tables[i]));
    return OCT_OK;
}

static oct_status check_columns(const reading *r)
{
    const bool one = r->source->goal == OCT_GOAL_CLASS || r->source->goal == OCT_GOAL_MAP;
    for (int i = 0; i < 2; i++) {
        const oct_csv *csv = r->splits[i].csv;
        OCT_CHECK(csv->columns > 1 || r->source->goal == OCT_GOAL_INPUT ||
                      r->source->goal == OCT_GOAL_NONE,
                  OCT_DATA, "%s: has one column; each row is path,label", csv->path);
        OCT_CHECK(
            csv->columns == 2 || !one, OCT_DATA,
            "%s: has %" PRId64
            " columns, but each row is path,%s; data.goal=values takes several numbers, and a "
            "table of numbers alone is given as arrays (.npz)",
            csv->path, csv->columns, r->source->goal == OCT_GOAL_MAP ? "map" : "label");
        OCT_CHECK(csv->columns == r->splits[0].csv->columns, OCT_DATA,
                  "%s: has %" PRId64 " columns, but %s has %" PRId64, csv->path, csv->columns,
                  r->splits[0].csv->path, r->splits[0].csv->columns);
    }
    return OCT_OK;
}

static const char *field_at(const split_rows *p, int64_t i, int64_t column)
{
    return oct_csv_field(p->csv, p->rows[i], column);
}

static int64_t line_at(const split_rows *p, int64_t i)
{
    return p->csv->line[p->rows[i]];
}

/* Counts labels that are no whole numbers; *first: the row of the first of them. */
static int64_t count_names(const split_rows *p, int64_t *first)
{
    int64_t label, names = 0;
    for (int64_t i = 0; i < p->count; i++)
        if (!is_label(field_at(p, i, 1), &label) && names++ == 0) *first = i;
    return names;
}

/* Most labels are whole numbers and some are not: a slip of the pen, or signs such as 30, 50 and stop. */
static void warn_of_mixture(const split_rows *p)
{
    int64_t first = 0;
    const int64_t names = count_names(p, &first);
    if (names == 0 || 2 * names >= p->count) return;
    const char *text = field_at(p, first, 1);
    oct_log(OCT_LOG_WARN,
            "%s:%" PRId64 ": the label '%s' is no whole number, as %" PRId64 " of %" PRId64
            " are, so all labels are names of classes, sorted by their bytes; correct it if "
            "numbers are meant",
            p->csv->path, line_at(p, first), oct_show(text, strlen(text)).text, p->count - names,
            p->count);
}

/* Collects the names of classes where some label is no number: those of the training labels, sorted by their bytes. */
static oct_status find_names(reading *r)
{
    const split_rows *p = &r->splits[0];
    int64_t first = 0;
    if (count_names(p, &first) + count_names(&r->splits[1], &first) == 0) return OCT_OK;
    OCT_TRY(oct_alloc(&r->names, (size_t)p->count, sizeof *r->names));
    for (int64_t i = 0; i < p->count; i++) {
        r->names[i] = p->csv->field[p->rows[i] * p->csv->columns + 1];
        OCT_CHECK(*r->names[i], OCT_DATA, "%s:%" PRId64 ": the label is empty", p->csv->path,
                  line_at(p, i));
    }
    qsort(r->names, (size_t)p->count, sizeof *r->names, oct_compare_names);
    for (int64_t i = 0; i < p->count; i++)
        if (i == 0 || strcmp(r->names[i], r->names[r->num_names - 1]) != 0)
            r->names[r->num_names++] = r->names[i];
    OCT_CHECK(r->num_names > 1 && r->num_names <= OCT_CLASSES_MAX, OCT_DATA,
              "%s: the labels are %" PRId64 " different names, such as %s; 2 to %d are possible",
              p->csv->path, r->num_names, oct_show(r->names[0], strlen(r->names[0])).text,
              OCT_CLASSES_MAX);
    OCT_CHECK(r->source->classes == 0 || r->source->classes == r->num_names, OCT_USAGE,
              "data.classes: %" PRId64 ", but %s names %" PRId64
              " classes; take data of as many, or leave the key out",
              r->source->classes, p->csv->path, r->num_names);
    return OCT_OK;
}

/* Makes the labels of a split: numbers as they are written, or numbers of the names. */
static oct_status make_labels(const reading *r, const split_rows *p, int32_t **labels)
{
    OCT_TRY(oct_alloc(labels, (size_t)p->count, sizeof **labels));
    for (int64_t i = 0; i < p->count; i++) {
        const char *text = field_at(p, i, 1);
        int64_t label = 0;
        if (r->names) {
            char *const *found =
                bsearch(&text, r->names, (size_t)r->num_names, sizeof *r->names, oct_compare_names);
            OCT_CHECK(found, OCT_DATA,
                      "%s:%" PRId64 ": the class %s is not in the training samples", p->csv->path,
                      line_at(p, i), oct_show(text, strlen(text)).text);
            label = found - r->names;
        } else {
            OCT_ASSERT(is_label(text, &label));
        }
        (*labels)[i] = (int32_t)label;
    }
    return OCT_OK;
}

static oct_status read_values(reading *r, const split_rows *p)
{
    const int64_t columns = p->csv->columns - 1;
    r->data->classes = columns;
    OCT_TRY(oct_alloc(&r->data->values, (size_t)(p->count * columns), sizeof *r->data->values));
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = 0; k < columns; k++) {
            const char *text = field_at(p, i, k + 1);
            double value = 0;
            OCT_CHECK(oct_parse_f64(text, &value) && fabs(value) <= (double)FLT_MAX, OCT_DATA,
                      "%s:%" PRId64 ": '%s' is no number; data.goal=values takes numbers",
                      p->csv->path, line_at(p, i), oct_show(text, strlen(text)).text);
            r->data->values[i * columns + k] = (float)value;
        }
    return OCT_OK;
}

/* Names stay below the table's folder: no "..", no begin at the root; and they can be shown. */
static oct_status check_name(const split_rows *p, int64_t i, const char *name)
{
    bool up = *name == '/' || *name == '\0' || strlen(name) >= PATH_MAX;
    for (const char *at = name; !up && *at; at++)
        up = (unsigned char)*at < ' ' || *at == 0x7f;
    for (const char *at = name; !up && at; at = strchr(at, '/')) {
        at += *at == '/';
        up = strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0');
    }
    OCT_CHECK(!up, OCT_DATA,
              "%s:%" PRId64
              ": '%s' is no path below the table's folder; write paths relative to it, and put the "
              "table beside the pictures or above them",
              p->csv->path, line_at(p, i), oct_show(name, strlen(name)).text);
    return OCT_OK;
}

/* Checks the file that a row names. Folders are checked once for rows of one folder that follow each other. */
static oct_status check_file(reading *r, const split_rows *p, int64_t i, int64_t column,
                             int64_t *bytes)
{
    const char *name = field_at(p, i, column);
    oct_path path, folder;
    OCT_TRY(check_name(p, i, name));
    OCT_TRY(oct_path_make(&path, "%s/%s", r->root.text, name));
    OCT_TRY(oct_path_make(&folder, "%.*s", (int)(strrchr(path.text, '/') - path.text), path.text));
    oct_status status = OCT_OK;
    if (strcmp(folder.text, r->folder.text) != 0)
        status = oct_check_inside(r->root.text, folder.text);
    if (status == OCT_OK) r->folder = folder;
    if (status == OCT_OK) status = oct_picture_check(r->root.text, path.text, bytes);
    if (status != OCT_OK) return oct_fail_prefix("%s:%" PRId64, p->csv->path, line_at(p, i));
    return OCT_OK;
}

static oct_status add_pictures(reading *r, const split_rows *p)
{
    const bool maps = r->source->goal == OCT_GOAL_MAP;
    OCT_TRY(oct_pictures_begin(r->data, r->source, r->root.text));
    for (int64_t i = 0; i < p->count; i++) {
        int64_t bytes = 0, map_bytes = 0;
        OCT_TRY(check_file(r, p, i, 0, &bytes));
        if (maps) OCT_TRY(check_file(r, p, i, 1, &map_bytes));
        OCT_TRY(oct_pictures_add(r->data->store, field_at(p, i, 0), maps ? field_at(p, i, 1) : NULL,
                                 bytes));
    }
    return OCT_OK;
}

/* Fills the labels or values of the split, as the goal of the data asks. */
static oct_status make_goals(reading *r, const split_rows *p)
{
    switch (r->source->goal) {
    case OCT_GOAL_CLASS:
        OCT_TRY(find_names(r));
        if (r->names) OCT_TRY(oct_dataset_name_classes(r->data, r->names, r->num_names));
        return make_labels(r, p, &r->data->labels);
    case OCT_GOAL_VALUES:
        return read_values(r, p);
    case OCT_GOAL_MAP:
        OCT_CHECK(r->source->classes > 1, OCT_USAGE,
                  "data.classes: say how many classes the maps have, for data.goal=map");
        r->data->classes = r->source->classes;
        return OCT_OK;
    case OCT_GOAL_INPUT:
    case OCT_GOAL_NONE:
        break;
    }
    return OCT_OK;
}

static oct_status open_split(oct_dataset *data, const oct_dataset_source *source, oct_split split)
{
    OCT_OWNED(free_reading) reading r = {.data = data, .source = source};
    const split_rows *p = &r.splits[split == OCT_TEST];
    OCT_TRY(read_tables(&r));
    OCT_TRY(check_columns(&r));
    OCT_TRY(make_goals(&r, p));
    data->count = p->count;
    if (source->labels_only) return OCT_OK;
    OCT_TRY(add_pictures(&r, p));
    for (int i = 0; split == OCT_TRAIN && r.names && i < 2; i++)
        warn_of_mixture(&r.splits[i]);
    if (split == OCT_TRAIN && r.splits[1].csv == p->csv)
        oct_log(OCT_LOG_INFO, "%s: no table for the test; %g of its rows are kept for it",
                p->csv->path, source->split);
    return OCT_OK;
}

const oct_dataset_format oct_dataset_csv = {
    .name = "csv",
    .files = FILES,
    .label_file = {"the training labels", "the test labels"},
    .takes_file = true,
    .goals = 1U << OCT_GOAL_CLASS | 1U << OCT_GOAL_VALUES | 1U << OCT_GOAL_MAP,
    .open = open_split,
    OCT_PICTURES_MEMBERS,
};
