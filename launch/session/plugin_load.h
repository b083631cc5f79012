/* Plug-ins (octet/plugin.h) are loaded here, and stay for the rest of the process. */
#pragma once

#include "core/base/text.h"
#include "io/recipe/recipe.h"

#include <jansson.h>
#include <octet/plugin.h>

/* Loads the libraries that are not there yet and registers what they bring, before any name of a
 * recipe is looked up. A relative path begins at the current folder; where no such file is, the
 * folders of OCT_PLUGIN_PATH are searched for its name. OCT_USAGE with one sentence when one is
 * missing, no plug-in, of another version, or a name of its parts is taken.
 *
 * of_file: a checkpoint or model names the plug-ins, which may come from anywhere: nothing of theirs runs unless the
 * user allows it (oct_plugins_allow, or the SHA-256 in the list of trusted ones: $OCT_TRUSTED_PLUGINS, else
 * octet/trusted-plugins in $XDG_CONFIG_HOME or ~/.config, lines as sha256sum prints them), and a relative path is
 * searched in OCT_PLUGIN_PATH only. recorded (may be NULL): what oct_plugins_record gave when the file was made;
 * another library is refused unless all are allowed. OCT_DATA when it may not be loaded. */
oct_status oct_plugins_load(const oct_texts *paths, bool of_file, const char *recorded);
void oct_plugins_allow(void); /* --allow-plugins: those of files too */
/* Adds a line for each loaded plug-in: its SHA-256 and, with_paths, two blanks and its path as the recipe names it. */
oct_status oct_plugins_record(oct_text *out, bool with_paths);

/* Makes what run.json says of the loaded ones: an array of {name, path, sha256}. */
json_t *oct_plugins_json(void);
