/* A temporary folder for one test. */
#pragma once

#include <stddef.h>

typedef struct oct_tmp {
    char path[256];
    char names[8][512]; /* what oct_tmp_path returned last */
    unsigned next;
} oct_tmp;

/* Made under $TMPDIR or /tmp; a test that cannot have one fails. */
void oct_tmp_create(oct_tmp *tmp);
void oct_tmp_remove(oct_tmp *tmp); /* with everything in it */

/* "folder/name"; valid for the next seven calls. */
const char *oct_tmp_path(oct_tmp *tmp, const char *name);

/* Writes a whole file, making the folders of its path; returns the path as above. */
const char *oct_tmp_write(oct_tmp *tmp, const char *name, const void *data, size_t bytes);
const char *oct_tmp_write_text(oct_tmp *tmp, const char *name, const char *text);
