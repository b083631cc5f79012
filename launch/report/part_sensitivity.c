/* Which layers lose most by their quantizers: the table of octet sensitivity. */
#include "launch/report/part.h"

#include <math.h>

static void write_row(oct_page *r, const oct_sensitivity_row *row)
{
    const double share = isfinite(row->sqnr) ? fmax(0, fmin(1, row->sqnr / 60)) : 1;
    oct_html_put(&r->html, "<tr><th scope=\"row\">");
    oct_html_cut(&r->html, row->path, 64);
    oct_html_put(&r->html,
                 "</th><td>%s</td><td class=\"n bar-cell\"><span class=\"meter%s\" "
                 "style=\"width:%.0fpx\"></span>",
                 row->tensor, row->sqnr < 20 ? " low" : "", 60 * share);
    oct_html_number(&r->html, row->sqnr);
    oct_html_put(&r->html, "</td>");
    oct_page_cell(r, row->cosine);
    oct_page_cell(r, row->loss_change);
    oct_html_put(&r->html, "</tr>\n");
}

static void write_run(oct_page *r, const oct_page_run *run)
{
    const oct_sensitivity *table = &run->sensitivity;
    oct_page_say_why(r, run, OCT_RUN_FILE_SENSITIVITY);
    if (!table->count) return;
    oct_page_table(r, "Each quantizer alone, the most sensitive first",
                   "layer|tensor|SQNR, dB#|cosine#|change of the loss#");
    for (size_t i = 0; i < table->count && i < r->limits.rows; i++)
        write_row(r, &table->rows[i]);
    oct_page_table_end(r);
    if (table->count > r->limits.rows)
        oct_html_put(&r->html, "<p class=\"note\">The first %zu of %zu.</p>\n", r->limits.rows,
                     table->count);
}

static void write(oct_page *r)
{
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_sensitivity = {
    .id = "sensitivity",
    .title = "Sensitivity",
    .write = write,
};
