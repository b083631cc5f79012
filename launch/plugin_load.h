/* Loading of plug-ins (plugin.h). They stay for the rest of the process. */
#pragma once

#include "io/recipe.h"
#include "launch/session.h"

#include <jansson.h>
#include <stdint.h>

/* Loads the libraries that are not there yet and registers what they bring, before any name of a
 * recipe is looked up. A relative path begins at the current folder; where no such file is, the
 * folders of OCT_PLUGIN_PATH are searched for its name. OCT_USAGE with one sentence when one is
 * missing, no plug-in, of another version, or a name of its parts is taken. */
oct_status oct_plugins_load(const oct_texts *paths) OCT_NODISCARD;

/* Collective: the same code on all ranks? OCT_LOST naming the first rank that differs. */
oct_status oct_plugins_same(oct_session *session) OCT_NODISCARD;

/* What is loaded, for run.json: an array of {name, path, sha256}. */
json_t *oct_plugins_json(void);
