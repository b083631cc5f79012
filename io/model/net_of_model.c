/* Nets of models that are HDF5 files, or that are in memory. */
#include "core/base/mem.h"
#include "core/base/cpu.h"
#include "io/file/file.h"
#include "io/model/model_file.h"
#include "quant/program/net_model.h"

#include <string.h>

/* A model that nets run. */
typedef struct owned_model {
    oct_model model;
    float *pixels;
} owned_model;

static void free_owned(void *owner)
{
    owned_model *m = owner;
    oct_model_free(&m->model);
    oct_free(&m->pixels);
    oct_free(&m);
}

/* The model has digests of what comes of its golden inputs. */
static bool is_golden(const void *owner, int64_t n, const void *output)
{
    const oct_model *m = &((const owned_model *)owner)->model;
    const oct_program *p = &m->program;
    uint8_t digest[32];
    oct_sha256(output, oct_value_bytes(&p->values[p->output]), digest);
    return memcmp(digest, m->golden_digest + (n * p->num_values + p->output) * 32, 32) == 0;
}

static size_t length(const char *text)
{
    return text ? strlen(text) : 0;
}

/* Makes a net of a model, which is freed with the last net that shares it, or here on failure. made: how making the model
 * ended. */
static oct_status open_owned(oct_net **net, owned_model *m, oct_status made,
                             const oct_net_options *options)
{
    const oct_model *model = &m->model;
    fenv_t rounding;
    oct_status status;
    oct_round_to_nearest(&rounding);
    OCT_TRY_OUT(made);
    const int64_t tables = oct_model_pixel_tables(model);
    OCT_TRY_OUT(oct_alloc(&m->pixels, (size_t)(tables * OCT_PIXEL_VALUES), sizeof *m->pixels));
    for (int64_t k = 0; k < tables; k++)
        oct_model_pixels(model, k, m->pixels + k * OCT_PIXEL_VALUES);
    OCT_CHECK_OUT(oct_all_finite(m->pixels, tables * OCT_PIXEL_VALUES), OCT_DATA,
                  "its mean and standard deviation make no finite numbers of pixels");
    const oct_net_source source = {.program = &model->program,
                                   .classes = model->classes,
                                   .class_names = model->class_names,
                                   .class_names_bytes = length(model->class_names),
                                   .port_names = model->port_names,
                                   .port_names_bytes = length(model->port_names),
                                   .pixels = m->pixels,
                                   .pixel_tables = tables,
                                   .golden_count = model->certificate.golden_count,
                                   .golden_input = model->golden_input,
                                   .is_golden = is_golden,
                                   .owner = m,
                                   .release = free_owned};
    status = oct_net_create(net, &source, options);
    m = NULL;
out:
    if (m) free_owned(m);
    oct_round_as_before(&rounding);
    return status;
}

oct_status oct_net_open_hdf5(oct_net **net, const char *path, const oct_net_options *options)
{
    owned_model *m = NULL;
    OCT_TRY(oct_alloc(&m, 1, sizeof *m));
    const oct_status read = oct_model_read(&m->model, path);
    const oct_status status = open_owned(net, m, read, options);
    return status != OCT_OK && read == OCT_OK ? oct_fail_prefix("%s", path) : status;
}

/* Copies what nets need of a model. */
static oct_status copy_model(oct_model *copy, const oct_model *model)
{
    const int64_t golden = model->certificate.golden_count;
    const oct_program *p = &model->program;
    const size_t inputs = (size_t)(golden * oct_inputs_numel(p)),
                 digests = (size_t)(golden * p->num_values) * 32;
    copy->classes = model->classes;
    copy->certificate.golden_count = golden;
    memcpy(copy->mean, model->mean, sizeof copy->mean);
    memcpy(copy->std, model->std, sizeof copy->std);
    OCT_TRY(oct_program_copy(&copy->program, p));
    if (model->class_names) OCT_TRY(oct_strdup(&copy->class_names, model->class_names));
    if (model->port_names) OCT_TRY(oct_strdup(&copy->port_names, model->port_names));
    if (golden == 0) return OCT_OK;
    OCT_TRY(oct_alloc(&copy->golden_input, inputs, sizeof *copy->golden_input));
    OCT_TRY(oct_alloc(&copy->golden_digest, digests, 1));
    memcpy(copy->golden_input, model->golden_input, inputs * sizeof *copy->golden_input);
    memcpy(copy->golden_digest, model->golden_digest, digests);
    return OCT_OK;
}

oct_status oct_net_of_model(oct_net **net, const oct_model *model, const oct_net_options *options)
{
    owned_model *m = NULL;
    OCT_CHECK(net, OCT_USAGE, "there is no place for the net: NULL");
    *net = NULL;
    OCT_CHECK(model, OCT_USAGE, "there is no model to make a net of: NULL");
    OCT_TRY(oct_alloc(&m, 1, sizeof *m));
    return open_owned(net, m, copy_model(&m->model, model), options);
}
