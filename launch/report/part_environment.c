/* Where the run was made: run.json, a table for each session. */
#include "launch/report/part.h"

static void write_member(oct_page *r, const char *before, const char *key, json_t *value)
{
    const char *name;
    json_t *inner;
    if (json_is_object(value)) {
        json_object_foreach(value, name, inner) if (!before) write_member(r, key, name, inner);
        return;
    }
    oct_html_put(&r->html, "<tr><th scope=\"row\">");
    if (before) {
        oct_html_cut(&r->html, before, 40);
        oct_html_put(&r->html, ": ");
    }
    oct_html_cut(&r->html, key, 60);
    oct_html_put(&r->html, "</th><td class=\"code\">");
    oct_page_json(r, value);
    oct_html_put(&r->html, "</td></tr>\n");
}

static void write_session(oct_page *r, json_t *session)
{
    const char *key;
    json_t *value;
    oct_page_table(r, "Session", "what|value");
    json_object_foreach(session, key, value) write_member(r, NULL, key, value);
    oct_page_table_end(r);
}

/* Of many sessions the first ones and the last one tell enough. */
static void write_run(oct_page *r, const oct_page_run *run)
{
    enum { SESSIONS = 8 };
    size_t i;
    json_t *session, *sessions = json_object_get(run->sessions, "sessions");
    size_t count = json_array_size(sessions);
    oct_page_say_why(r, run, OCT_RUN_FILE_SESSIONS);
    json_array_foreach(sessions, i,
                       session) if (json_is_object(session) && (i < SESSIONS - 1 || i + 1 == count))
        write_session(r, session);
    if (count > SESSIONS)
        oct_html_put(&r->html, "<p class=\"note\">%zu sessions in all.</p>\n", count);
}

static void write(oct_page *r)
{
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_environment = {
    .id = "environment",
    .title = "Environment",
    .write = write,
};
