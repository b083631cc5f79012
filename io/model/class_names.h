/* Names of classes as a text, one line each: what checkpoints and models keep of a data set's names. */
#pragma once

#include "io/dataset/dataset.h"

enum { OCT_CLASS_NAMES_BYTES_MAX = 1 << 20 };

/* Makes the text of a data set's class names, a line each; NULL: none. OCT_DATA for names that are no plain lines. */
oct_status oct_class_names_make(char **text, const oct_dataset *data);
/* Whether text has no control characters but those of plain lines, since it is shown on terminals. */
bool oct_is_plain_text(const char *text);
/* Is it a text of `count` plain lines? */
bool oct_class_names_fit(const char *text, int64_t count);
/* What to call a class: its name, or "class 3" where there is none (text may be NULL). */
oct_shown oct_class_name(const char *text, int64_t number);
/* Refuses a data set whose class names are not those of a model or checkpoint (text; file: its path): OCT_DATA with the
 * first that differs. Either may have no names. */
oct_status oct_class_names_check(const char *text, const oct_dataset *data, const char *file);
