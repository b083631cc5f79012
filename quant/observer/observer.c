/* The table of observers, and the keys that ranks exchange. */
#include "quant/observer/observer.h"

#include "quant/rounding/qparams.h"

#include <math.h>

static const void *const listed[] = {
#define OCT_OBSERVER(file) &oct_observer_##file,
#include "quant/observer/observer_list.def"
#undef OCT_OBSERVER
};
oct_registry oct_observer_table = OCT_REGISTRY("an observer", listed);

const oct_observer *oct_observer_find(const char *name)
{
    return name ? oct_registry_find(&oct_observer_table, name) : NULL;
}

void oct_observer_cut(oct_range *range, const int64_t *histogram, float most)
{
    range->min = fmaxf(oct_histogram_quantile(histogram, 0), -most);
    range->max = fminf(oct_histogram_quantile(histogram, 1), most);
}

int32_t oct_float_key(float x)
{
    return isnan(x) ? INT32_MAX : oct_order_key(x + 0.0f); /* -0 becomes +0 */
}
