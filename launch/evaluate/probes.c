#include "launch/evaluate/probes.h"

#include "core/base/int_math.h"
#include "launch/evaluate/evaluate.h"

oct_status oct_probes_create(oct_probes *p, const oct_recipe *recipe, const oct_dataset *data,
                             int64_t most)
{
    *p = (oct_probes){.data = data, .count = oct_min_i64(data->count, most)};
    return oct_evaluation_loader(&p->loader, recipe, data);
}

void oct_probes_free(oct_probes *p)
{
    oct_loader_deinit(&p->loader);
    *p = (oct_probes){0};
}

int64_t oct_probe_number(const oct_probes *p, int64_t i)
{
    return i * p->data->count / p->count;
}

oct_status oct_probe_read(oct_probes *p, int64_t i, float *input)
{
    oct_goals goals;
    return oct_loader_read(&p->loader, oct_probe_number(p, i), 1, input, &goals);
}
