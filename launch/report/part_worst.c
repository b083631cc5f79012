/* The images that the model is most wrong about. */
#include "launch/report/part.h"

#include <string.h>

enum { PNG_TEXT_MAX = 40000 };

/* Base64 of a PNG file, and nothing else: the text goes into an address. */
static bool is_png(const char *text)
{
    static const char begin[] = "iVBORw0KGgo";
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    return text && strncmp(text, begin, sizeof begin - 1) == 0 && strlen(text) <= PNG_TEXT_MAX &&
           text[strspn(text, letters)] == '\0';
}

static void write_class(oct_page *r, const json_t *sample, const char *name, const char *number)
{
    const char *text = json_string_value(json_object_get(sample, name));
    const json_t *class = json_object_get(sample, number);
    if (text)
        oct_html_cut(&r->html, text, 24);
    else if (json_is_integer(class))
        oct_html_put(&r->html, "class %lld", (long long)json_integer_value(class));
    else
        oct_html_put(&r->html, "?");
}

static void write_sample(oct_page *r, const json_t *sample)
{
    oct_html *h = &r->html;
    const char *png = json_string_value(json_object_get(sample, "png"));
    long long index = json_integer_value(json_object_get(sample, "index"));
    oct_html_put(h, "<figure class=\"sample\">");
    if (is_png(png))
        oct_html_put(h, "<img alt=\"image %lld of the test set\" src=\"data:image/png;base64,%s\">",
                     index, png);
    else
        oct_html_put(h, "<span class=\"no-image\">no image</span>");
    oct_html_put(h, "<figcaption>");
    write_class(r, sample, "label_name", "label");
    oct_html_put(h, "<br>taken for <b>");
    write_class(r, sample, "predicted_name", "predicted");
    oct_html_put(h, "</b><br>%.1f %%, loss %.3g<br>image %lld</figcaption></figure>\n",
                 100 * json_number_value(json_object_get(sample, "probability")),
                 json_number_value(json_object_get(sample, "loss")), index);
}

static void write_run(oct_page *r, const oct_page_run *run)
{
    size_t i;
    const json_t *sample, *samples = json_object_get(run->worst, "samples");
    oct_page_say_why(r, run, OCT_RUN_FILE_WORST);
    if (!run->worst) return;
    if (!json_array_size(samples)) {
        oct_page_missing(r, "The int8 model classifies every test image right.");
        return;
    }
    oct_html_put(&r->html, "<div class=\"samples\">\n");
    json_array_foreach(samples, i, sample) if (i < r->limits.images) write_sample(r, sample);
    oct_html_put(&r->html, "</div>\n");
}

static void write(oct_page *r)
{
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_worst = {
    .id = "worst",
    .title = "Worst-classified images",
    .write = write,
};
