/* The program of the int8 model, drawn in layers. */
#include "launch/report/diagram.h"
#include "launch/report/part.h"

static void write_run(oct_page *r, const oct_page_run *run)
{
    oct_diagram diagram = {0};
    oct_html *h = &r->html;
    oct_page_say_why(r, run, OCT_RUN_FILE_MODEL);
    if (!run->has_model || h->status != OCT_OK) return;
    h->status = oct_diagram_of_program(&diagram, &run->model.program, r->limits.steps);
    oct_html_put(h, "<p class=\"note\">The program of the int8 model: <span class=\"key k0\">has "
                    "weights</span> <span class=\"key k2\">codes begin and end</span> <span "
                    "class=\"key k1 dashed\">stays float</span></p>\n<div class=\"box graph\" "
                    "tabindex=\"0\">");
    oct_diagram_draw(&diagram, "Program of the int8 model", h);
    oct_html_put(h, "</div>\n");
    if (diagram.left_out)
        oct_html_put(h, "<p class=\"note\">%zu later steps are not drawn.</p>\n", diagram.left_out);
    oct_diagram_free(&diagram);
}

static void write(oct_page *r)
{
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_graph = {
    .id = "graph",
    .title = "Graph",
    .write = write,
};
