/* The proof that the int8 model computes what QAT evaluation computed. */
#include "launch/report/part.h"

#include "io/file/file.h"
#include "launch/session/progress.h"

static void row(oct_page *r, const char *name, const char *value)
{
    oct_html_put(&r->html, "<tr><th scope=\"row\">%s</th><td class=\"code\">", name);
    oct_html_cut(&r->html, value, 128);
    oct_html_put(&r->html, "</td></tr>\n");
}

static void count_row(oct_page *r, const char *name, int64_t value)
{
    char text[32];
    row(r, name, oct_text_count(value, text));
}

static void write_run(oct_page *r, const oct_page_run *run)
{
    char hex[65];
    if (!run->has_model) {
        oct_page_say_why(r, run, OCT_RUN_FILE_MODEL);
        return;
    }
    const oct_certificate *c = &run->model.certificate;
    oct_page_table(r, "Certificate in the model file", "what|value");
    count_row(r, "test images compared", c->images);
    count_row(r, "logits that differ in any bit", c->logits_differ);
    if (c->qat_accuracy >= 0) {
        count_row(r, "images that the int8 model classifies right", c->correct);
        oct_html_put(&r->html,
                     "<tr><th scope=\"row\">accuracy of QAT evaluation</th><td "
                     "class=\"code\">%.2f %%</td></tr>\n",
                     c->qat_accuracy);
    }
    count_row(r, "golden inputs, every layer bit for bit", c->golden_count);
    count_row(r, "layers in float", c->num_islands);
    row(r, "SHA-256 of the logits", oct_hex(c->logits_digest, hex));
    row(r, "SHA-256 of the test data", oct_hex(c->data_digest, hex));
    row(r, "SHA-256 of the checkpoint", oct_hex(run->model.checkpoint_digest, hex));
    const char *model = json_string_value(json_object_get(run->result, "model_sha256"));
    if (model) row(r, "SHA-256 of the model file", model);
    oct_page_table_end(r);
    if (c->islands) {
        oct_html_put(&r->html, "<pre class=\"box\" tabindex=\"0\">");
        oct_html_cut(&r->html, c->islands, 500);
        oct_html_put(&r->html, "</pre>\n");
    }
}

static void write(oct_page *r)
{
    oct_html_put(&r->html, "<p class=\"note\">octet verify checks all of it again, on any "
                           "machine.</p>\n");
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_certificate = {
    .id = "certificate",
    .title = "Certificate",
    .write = write,
};
