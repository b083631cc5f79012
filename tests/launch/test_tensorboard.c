/* Event files, read by a decoder of this test's own: whole frames with right checksums, and what they say is
 * what metrics.jsonl says, through a resume too. */
#include "tests/launch/small_data.h"

#include "core/base/mem.h"
#include "core/base/status.h"
#include "io/tensorboard/event_file.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

TestSuite(tensorboard, .init = enter_with_data, .fini = leave_folder, .timeout = 300);

enum { FILES = 8, SCALARS = 4096, TAG = 200 };

typedef struct scalar {
    char tag[TAG];
    int64_t step;
    float value;
} scalar;

/* What a reader knows after all files. */
static struct {
    scalar scalar[SCALARS];
    size_t scalars;
    int files, images, histograms, keys, ends, starts;
    bool has_learning_rate;
} seen;

typedef struct bytes {
    const uint8_t *at;
    size_t left;
} bytes;

typedef struct field {
    int number;
    uint64_t integer; /* of kind 0; the bits of kinds 1 and 5 */
    bytes inside;     /* of kind 2 */
} field;

static const uint8_t *take_bytes(bytes *from, size_t count)
{
    cr_assert_leq(count, from->left, "a message ends early");
    from->at += count;
    from->left -= count;
    return from->at - count;
}

static uint64_t little(const uint8_t *at, int count)
{
    uint64_t value = 0;
    while (count-- > 0)
        value = value * 256 + at[count];
    return value;
}

static uint64_t varint(bytes *from)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = *take_bytes(from, 1);
        value |= (uint64_t)(byte % 128) << shift;
        if (byte < 128) return value;
    }
    cr_assert_fail("a number has no end");
    return 0;
}

static bool next_field(bytes *from, field *f)
{
    if (from->left == 0) return false;
    uint64_t key = varint(from);
    *f = (field){.number = (int)(key / 8)};
    if (key % 8 == 0)
        f->integer = varint(from);
    else if (key % 8 == 1)
        f->integer = little(take_bytes(from, 8), 8);
    else if (key % 8 == 5)
        f->integer = little(take_bytes(from, 4), 4);
    else {
        cr_assert_eq(key % 8, 2U);
        f->inside.left = (size_t)varint(from);
        f->inside.at = take_bytes(from, f->inside.left);
    }
    return true;
}

static double real(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static float real32(uint64_t bits)
{
    uint32_t half = (uint32_t)bits;
    float value;
    memcpy(&value, &half, 4);
    return value;
}

/* HistogramProto: num is the sum of the counts, limits rise. */
static void read_histogram(bytes m)
{
    double num = -1, sum = 0, last = -INFINITY;
    size_t limits = 0, counts = 0;
    for (field f; next_field(&m, &f);) {
        if (f.number == 3) num = real(f.integer);
        for (; f.number == 6 && f.inside.left; limits++) {
            double limit = real(little(take_bytes(&f.inside, 8), 8));
            cr_assert_geq(limit, last);
            last = limit;
        }
        for (; f.number == 7 && f.inside.left; counts++)
            sum += real(little(take_bytes(&f.inside, 8), 8));
    }
    cr_assert(num > 0 && num == sum && limits == counts, "%g of %g in %zu bins", sum, num, limits);
    seen.histograms++;
}

/* Summary.Image: a grey PNG of 12x12 pixels, whose own head says the same. */
static void read_image(bytes m)
{
    uint64_t said[5] = {0};
    for (field f; next_field(&m, &f);) {
        cr_assert(f.number >= 1 && f.number <= 4);
        said[f.number] = f.integer;
        if (f.number != 4) continue;
        const uint8_t *png = take_bytes(&f.inside, 26);
        cr_assert_eq(memcmp(png, "\x89PNG\r\n\x1a\n", 8), 0);
        cr_assert(png[19] == 12 && png[23] == 12 && png[24] == 8 && png[25] == 0);
        seen.images++;
    }
    cr_assert(said[1] == 12 && said[2] == 12 && said[3] == 1);
}

/* A name and a value of the recipe. */
static void read_hyperparameter(bytes entry)
{
    bytes key = {0};
    double number = NAN;
    for (field f; next_field(&entry, &f);) {
        if (f.number == 1) key = f.inside;
        for (field v; f.number == 2 && next_field(&f.inside, &v);)
            if (v.number == 2) number = real(v.integer);
    }
    seen.keys++;
    if (key.left == 8 && memcmp(key.at, "float.lr", 8) == 0)
        seen.has_learning_rate = number == 0.01;
}

/* SummaryMetadata of the plug-in hparams. */
static void read_metadata(bytes m)
{
    field plugin, name, content, info;
    cr_assert(next_field(&m, &plugin) && plugin.number == 1);
    cr_assert(next_field(&plugin.inside, &name) && name.number == 1);
    cr_assert(name.inside.left == 7 && memcmp(name.inside.at, "hparams", 7) == 0);
    cr_assert(next_field(&plugin.inside, &content) && content.number == 2);
    cr_assert(next_field(&content.inside, &info));
    for (field f; next_field(&info.inside, &f);) {
        if (info.number == 3 && f.number == 1) read_hyperparameter(f.inside);
        if (info.number == 4 && f.number == 1) {
            cr_assert_eq(f.integer, 1U, "a run that ended well");
            seen.ends++;
        }
    }
}

static void read_value(bytes m, int64_t step)
{
    bytes tag = {0};
    for (field f; next_field(&m, &f);) {
        if (f.number == 1) tag = f.inside;
        if (f.number == 4) read_image(f.inside);
        if (f.number == 5) read_histogram(f.inside);
        if (f.number == 9) read_metadata(f.inside);
        if (f.number != 2) continue;
        cr_assert(seen.scalars < SCALARS && tag.left < TAG);
        scalar *s = &seen.scalar[seen.scalars++];
        snprintf(s->tag, TAG, "%.*s", (int)tag.left, (const char *)tag.at);
        s->step = step;
        s->value = real32(f.integer);
    }
}

/* As TensorBoard does: points at the step where a session begins, or after it, are dropped. */
static void forget_from(int64_t step)
{
    size_t kept = 0;
    for (size_t i = 0; i < seen.scalars; i++)
        if (seen.scalar[i].step < step) seen.scalar[kept++] = seen.scalar[i];
    seen.scalars = kept;
}

static void read_event(bytes m, bool first)
{
    int64_t step = 0;
    for (field f; next_field(&m, &f);) {
        if (f.number == 1) cr_assert_gt(real(f.integer), 1.7e9, "seconds since 1970");
        if (f.number == 2) step = (int64_t)f.integer;
        cr_assert_eq(first, f.number == 3 || (first && f.number < 3), "the version comes first");
        if (f.number == 3) cr_assert_eq(memcmp(f.inside.at, "brain.Event:2", 13), 0);
        for (field v; f.number == 5 && next_field(&f.inside, &v);)
            if (v.number == 1) read_value(v.inside, step);
        for (field s; f.number == 7 && next_field(&f.inside, &s);) {
            cr_assert(s.number == 1 && s.integer == 1);
            seen.starts++;
            forget_from(step);
        }
    }
}

static uint32_t crc_table[256];

static uint32_t masked(const uint8_t *at, size_t count)
{
    uint32_t crc = ~0U;
    for (size_t i = 0; i < count; i++)
        crc = crc_table[(crc ^ at[i]) & 0xFF] ^ crc >> 8;
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

static void make_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = (c & 1) ? (c >> 1) ^ 0x82F63B78U : c >> 1;
        crc_table[i] = c;
    }
    /* The check value of CRC-32C, E3069283, masked. */
    cr_assert_eq(masked((const uint8_t *)"123456789", 9), 0xC78AB0E5U, "%08X",
                 masked((const uint8_t *)"123456789", 9));
}

static void read_file(const char *path)
{
    static uint8_t content[1 << 22];
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s", path);
    bytes left = {content, fread(content, 1, sizeof content, file)};
    fclose(file);
    for (bool first = true; left.left > 0; first = false) {
        const uint8_t *head = take_bytes(&left, 12);
        bytes event = {NULL, (size_t)little(head, 8)};
        cr_assert_eq(masked(head, 8), little(head + 8, 4), "checksum of a length");
        event.at = take_bytes(&left, event.left);
        cr_assert_eq(masked(event.at, event.left), little(take_bytes(&left, 4), 4), "checksum");
        read_event(event, first);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void read_folder(const char *path)
{
    static char names[FILES][600];
    memset(&seen, 0, sizeof seen);
    make_crc_table();
    DIR *folder = opendir(path);
    cr_assert(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (oct_event_file_named(entry->d_name)) {
            cr_assert_lt(seen.files, FILES);
            snprintf(names[seen.files++], 600, "%s/%s", path, entry->d_name);
        }
    closedir(folder);
    qsort(names, (size_t)seen.files, sizeof *names, by_name);
    for (int i = 0; i < seen.files; i++)
        read_file(names[i]);
}

static size_t checked;

/* A number of a record is at its place among the scalars. */
static void check_number(const char *tag, int64_t step, double value)
{
    const scalar *s = &seen.scalar[checked++];
    cr_assert_leq(checked, seen.scalars, "no scalar is left for %s of step %lld", tag,
                  (long long)step);
    cr_assert_str_eq(s->tag, tag);
    cr_assert_eq(s->step, step, "%s of step %lld: %lld", tag, (long long)step, (long long)s->step);
    /* metrics.jsonl has 9 digits, a scalar 24 bits. */
    cr_assert_float_eq((double)s->value, value, 1e-7 * fabs(value),
                       "%s of step %lld: %.9g, not %.9g", tag, (long long)step, (double)s->value,
                       value);
}

static const char *folder_of(const char *kind)
{
    if (strcmp(kind, "step") == 0) return "train";
    if (strcmp(kind, "eval") == 0) return "test";
    return strcmp(kind, "scales") == 0 ? "scale" : NULL;
}

static void check_record(json_t *record)
{
    const char *folder = folder_of(json_string_value(json_object_get(record, "kind"))), *name;
    int64_t step = json_integer_value(json_object_get(record, "step"));
    json_t *value;
    char tag[TAG];
    if (!folder) return;
    json_object_foreach(record, name, value)
    {
        const char *inside;
        json_t *number;
        bool place = !strcmp(name, "step") || !strcmp(name, "epoch") || !strcmp(name, "images");
        snprintf(tag, sizeof tag, "%s/%s", folder, name);
        if (json_is_number(value) && !place) check_number(tag, step, json_number_value(value));
        json_object_foreach(value, inside, number)
        {
            snprintf(tag, sizeof tag, "%s/%s", folder, inside);
            check_number(tag, step, json_number_value(number));
        }
    }
}

/* Every number of metrics.jsonl, in its order, and nothing else. */
static void check_against_records(const char *path)
{
    char line[4096];
    FILE *file = fopen(path, "r");
    cr_assert(file);
    checked = 0;
    while (fgets(line, sizeof line, file)) {
        json_t *record = json_loads(line, 0, NULL);
        cr_assert(record, "%s", line);
        check_record(record);
        json_decref(record);
    }
    fclose(file);
    cr_assert_eq(checked, seen.scalars, "%zu scalars, %zu in metrics.jsonl", seen.scalars, checked);
    cr_assert_gt(checked, 20);
}

static void train(void)
{
    OCTET("train", "r.yaml", "log.tensorboard=true", "metrics=[top1, top5]");
    oct_check_exit(job, 0);
}

Test(tensorboard, events_say_what_metrics_say)
{
    train();
    read_folder("new");
    cr_assert_eq(seen.files, 1);
    cr_assert_eq(seen.starts, 1);
    cr_assert_eq(seen.ends, 1);
    cr_assert(seen.keys > 40 && seen.has_learning_rate, "%d keys", seen.keys);
    cr_assert_eq(seen.images, 8);
    cr_assert(seen.histograms > 0 && seen.histograms % 6 == 0, "%d histograms", seen.histograms);
    check_against_records("new/metrics.jsonl");
}

Test(tensorboard, a_resumed_run_takes_over_at_its_step)
{
    train();
    must("rm new/checkpoints/step-0000000[67].h5 new/model.int8.h5");
    train();
    oct_check_said(job, "resuming new from step 5 of 7");
    read_folder("new");
    cr_assert_eq(seen.files, 2);
    cr_assert_eq(seen.starts, 2);
    check_against_records("new/metrics.jsonl");
}

Test(tensorboard, is_off_where_nobody_asks)
{
    OCTET("train", "r.yaml");
    oct_check_exit(job, 0);
    read_folder("new");
    cr_assert_eq(seen.files, 0);
}

Test(tensorboard, changes_no_bit)
{
    train();
    OCTET("train", "r.yaml", "output=plain", "metrics=[top1, top5]");
    oct_check_exit(job, 0);
    must("cmp new/model.int8.h5 plain/model.int8.h5 && "
         "cmp new/checkpoints/step-00000007.h5 plain/checkpoints/step-00000007.h5");
}

static void add_text(oct_event_file *file, char *text)
{
    OctEvent__Summary__Value value = OCT_EVENT__SUMMARY__VALUE__INIT, *values[] = {&value};
    OctEvent__Summary summary = OCT_EVENT__SUMMARY__INIT;
    value.tag = text;
    summary.n_value = 1;
    summary.value = values;
    oct_event_file_add(file, 1, &summary);
}

Test(tensorboard, a_full_disk_costs_events_and_leaves_whole_ones)
{
    oct_event_file file;
    char text[200];
    must("mkdir full");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(oct_event_file_create(&file, "full", 1), OCT_OK);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){500, 500}), 0);
    for (int i = 0; i < 4; i++)
        add_text(&file, text);
    cr_assert(file.lost);
    oct_event_file_close(&file);
    read_folder("full");
    cr_assert_eq(seen.files, 1);
}

Test(tensorboard, files_of_one_second_stand_in_order)
{
    oct_event_file file;
    char before[600] = "";
    must("mkdir order");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(oct_event_file_create(&file, "order", 1), OCT_OK);
        cr_assert_lt(strcmp(before, file.path), 0, "%s before %s", before, file.path);
        snprintf(before, sizeof before, "%s", file.path);
        oct_event_file_close(&file);
    }
    cr_assert_eq(oct_event_file_create(&file, "missing", 1), OCT_RESOURCE);
    oct_event_file_close(&file);
}

Test(tensorboard, no_memory_costs_events_only)
{
    must("mkdir full");
    for (int64_t n = 1; n < 40; n++) {
        oct_event_file file;
        char text[] = "text";
        oct_mem_fail_after(n);
        oct_status status = oct_event_file_create(&file, "full", 1);
        if (status == OCT_OK) add_text(&file, text);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
        oct_event_file_close(&file);
        cr_assert_eq(oct_mem_live(), 0, "failure %lld leaks", (long long)n);
        must("rm -f full/*");
    }
}
