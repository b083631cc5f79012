/* A file of its own, so that programs that only load models are linked without libhdf5. */
#include "io/model/model_file.h"

#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "io/file/file.h"

/* Makes the bytes of a file. */
static oct_status make_image(oct_model *model, void **bytes, size_t *size)
{
    OCT_OWNED(oct_h5_close) oct_h5 *h5 = NULL;
    OCT_TRY(oct_model_check(model));
    OCT_CHECK(model->certificate.golden_count == 0 || (model->golden_input && model->golden_digest),
              OCT_DATA, "golden inputs or their digests are missing");
    OCT_TRY(oct_h5_create(&h5, 0));
    OCT_TRY(oct_model_transfer(h5, true, model));
    return oct_h5_finish(&h5, true, bytes, size);
}

oct_status oct_model_write(const char *path, const oct_model *model)
{
    fenv_t rounding;
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size;
    OCT_CHECK(path && model, OCT_USAGE, "a model is written to a path; one of the two is NULL");
    oct_model written = *model;
    oct_round_to_nearest(&rounding);
    oct_status status = model->overflow_bound ? OCT_OK : oct_model_find_bounds(&written);
    if (status == OCT_OK) status = make_image(&written, &bytes, &size);
    oct_round_as_before(&rounding);
    if (!model->overflow_bound) oct_free(&written.overflow_bound);
    if (status == OCT_OK) return oct_file_write(path, bytes, size);
    (void)oct_fail_prefix("%s", path);
    return status;
}
