/* Models that are to be run here: within limits of what that takes, and with modules for layers that stay float. */
#include "io/model/model_file.h"

#include "quant/convert/convert.h"

oct_status oct_model_check_work(const oct_model *model, int64_t samples, bool large,
                                const char *path)
{
    oct_program_cost cost;
    OCT_TRY(oct_program_costs(&model->program, &cost));
    const double all = cost.work * (double)samples;
    OCT_CHECK(large || all <= OCT_MODEL_SET_WORK, OCT_DATA,
              "%s: %lld samples take as long as %.3g multiply-adds, more than %.3g" OCT_ALLOW_LARGE,
              path, (long long)samples, all, OCT_MODEL_SET_WORK);
    return OCT_OK;
}

oct_status oct_model_load(oct_model *model, const char *path, bool large)
{
    oct_status status = OCT_OK;
    OCT_TRY(oct_model_read(model, path));
    if (!large) status = oct_program_check_costs(&model->program, model->certificate.golden_count);
    if (status == OCT_OK) status = oct_fallbacks_check(&model->program, false);
    if (status != OCT_OK) {
        (void)oct_fail_prefix("%s", path);
        oct_model_free(model);
    }
    return status;
}
