/* The table of data set formats, and what all formats have in common: the default folder, the cut to
 * a limit, the digest.
 *
 * A format's load may leave *data half-filled when it fails; releasing it happens here, once.
 */
#include "io/dataset/dataset.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file.h"

#include <string.h>
#include <sys/stat.h>

static const oct_dataset_format *const formats[] = {
#define OCT_DATASET(id, file) &oct_dataset_##file,
#include "io/dataset/dataset_list.def"
#undef OCT_DATASET
};

const oct_dataset_format *oct_dataset_find(const char *name)
{
    for (size_t i = 0; i < OCT_COUNT(formats); i++)
        if (strcmp(formats[i]->name, name) == 0) return formats[i];
    return NULL;
}

size_t oct_dataset_formats(void)
{
    return OCT_COUNT(formats);
}

const oct_dataset_format *oct_dataset_at(size_t i)
{
    return formats[i];
}

static oct_status unknown_format(const char *name)
{
    const char *names[OCT_COUNT(formats)];
    for (size_t i = 0; i < OCT_COUNT(formats); i++)
        names[i] = formats[i]->name;
    char hint[OCT_HINT_BYTES];
    return oct_fail(OCT_USAGE, "data.format: there is no format '%s'; %s", name,
                    oct_did_you_mean(hint, name, names, OCT_COUNT(formats), "see octet help data"));
}

static oct_status check_folder(const oct_dataset_format *format, const char *folder)
{
    struct stat info;
    bool there = stat(folder, &info) == 0;
    OCT_CHECK(there, OCT_DATA,
              "%s: there is no such folder; %s; say data.path=FOLDER for another place", folder,
              format->files);
    OCT_CHECK(S_ISDIR(info.st_mode), OCT_DATA,
              "%s: is a file, not a folder; say data.path=FOLDER, the folder that holds the files",
              folder);
    return OCT_OK;
}

static void take_digest(oct_dataset *data, oct_sha256_state *state)
{
    size_t count = (size_t)data->count;
    oct_sha256_add(state, data->images, count * (size_t)(data->h * data->w * data->c));
    oct_sha256_add(state, data->labels, count);
    oct_sha256_end(&state, data->digest);
}

oct_status oct_dataset_load(oct_dataset *data, const char *format, const char *folder,
                            oct_split split, int64_t limit)
{
    oct_sha256_state *state = NULL;
    oct_status status = OCT_OK;
    *data = (oct_dataset){0};
    const oct_dataset_format *loader = oct_dataset_find(format);
    if (!loader) return unknown_format(format);
    if (!folder || !*folder) folder = loader->default_path;
    OCT_CHECK(folder, OCT_USAGE,
              "data.path: the format %s has no folder of its own; say data.path=FOLDER; %s", format,
              loader->files);
    OCT_TRY(check_folder(loader, folder));
    OCT_TRY_OUT(loader->load(data, folder, split));
    if (limit > 0 && limit < data->count) data->count = limit;
    OCT_TRY_OUT(oct_sha256_begin(&state));
    take_digest(data, state);
out:
    if (status != OCT_OK) oct_dataset_free(data);
    return status;
}

void oct_dataset_free(oct_dataset *data)
{
    oct_free(&data->images);
    oct_free(&data->labels);
    *data = (oct_dataset){0};
}
