/* The table of roundings, made from its list. */
#include "quant/rounding/rounding.h"

static const oct_rounding_row *const rows[OCT_REQUANTIZERS] = {
#define OCT_ROUNDING(id, file) [OCT_REQUANT_##id] = &oct_rounding_##file,
#include "quant/rounding/rounding_list.def"
#undef OCT_ROUNDING
};

const oct_rounding_row *oct_rounding_of(oct_requantizer r)
{
    return rows[r];
}

oct_fixed oct_fixed_of(oct_requantizer r, double ratio)
{
    return rows[r]->constants_of ? rows[r]->constants_of(ratio) : (oct_fixed){0};
}

oct_fixed oct_fixed_of_layer(oct_requantizer r, float a_scale, float b_scale, float y_scale,
                             float multiplier)
{
    return oct_fixed_of(r, rows[r]->shifts ? (double)multiplier
                                           : (double)a_scale * (double)b_scale / (double)y_scale);
}
