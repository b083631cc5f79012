#include "launch/evaluate/sample_subset.h"

#include "core/base/int_math.h"
#include "launch/evaluate/evaluate.h"

oct_status oct_sample_subset_create(oct_sample_subset *p, const oct_recipe *recipe,
                                    const oct_dataset *data, int64_t most)
{
    *p = (oct_sample_subset){.data = data, .count = oct_min_i64(data->count, most)};
    return oct_evaluation_loader(&p->loader, recipe, data);
}

void oct_sample_subset_free(oct_sample_subset *p)
{
    oct_loader_deinit(&p->loader);
    *p = (oct_sample_subset){0};
}

int64_t oct_sample_subset_number(const oct_sample_subset *p, int64_t i)
{
    return i * p->data->count / p->count;
}

oct_status oct_sample_subset_read(oct_sample_subset *p, int64_t i, float *input)
{
    oct_goals goals;
    return oct_loader_read(&p->loader, oct_sample_subset_number(p, i), 1, input, &goals);
}
