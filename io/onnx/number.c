/* Numbers that depend on the batch size N (operator.h). They are linear in N, so that what holds for the smallest and for
 * the largest batch holds for all between.
 */
#include "io/onnx/operator.h"

#include <math.h>
#include <string.h>

enum { BATCH_MIN = 2, BATCH_MAX = 4096 };
static const double exact_max = 0x1p53, dim_max = INT32_MAX;

oct_onnx_affine oct_onnx_affine_unknown(void)
{
    return (oct_onnx_affine){0, NAN};
}

/* The number is positive or zero, whatever the batch. */
static bool is_never_negative(oct_onnx_affine n)
{
    return n.fixed + BATCH_MIN * n.times >= 0 && n.fixed + BATCH_MAX * n.times >= 0;
}

oct_onnx_affine oct_onnx_affine_add(oct_onnx_affine a, oct_onnx_affine b)
{
    return (oct_onnx_affine){a.fixed + b.fixed, a.times + b.times};
}

oct_onnx_affine oct_onnx_affine_sub(oct_onnx_affine a, oct_onnx_affine b)
{
    return (oct_onnx_affine){a.fixed - b.fixed, a.times - b.times};
}

oct_onnx_affine oct_onnx_affine_mul(oct_onnx_affine a, oct_onnx_affine b)
{
    if (a.times != 0 && b.times != 0) return oct_onnx_affine_unknown();
    return (oct_onnx_affine){a.fixed * b.fixed, a.times * b.fixed + a.fixed * b.times};
}

oct_onnx_affine oct_onnx_affine_max(oct_onnx_affine a, oct_onnx_affine b)
{
    if (is_never_negative(oct_onnx_affine_sub(a, b))) return a;
    return is_never_negative(oct_onnx_affine_sub(b, a)) ? b : oct_onnx_affine_unknown();
}

oct_onnx_affine oct_onnx_affine_min(oct_onnx_affine a, oct_onnx_affine b)
{
    if (is_never_negative(oct_onnx_affine_sub(b, a))) return a;
    return is_never_negative(oct_onnx_affine_sub(a, b)) ? b : oct_onnx_affine_unknown();
}

oct_onnx_affine oct_onnx_affine_less(oct_onnx_affine a, oct_onnx_affine b)
{
    const oct_onnx_affine more = oct_onnx_affine_sub(b, a);
    if (is_never_negative(oct_onnx_affine_sub(a, b))) return oct_onnx_plain(0);
    const bool always = more.fixed + BATCH_MIN * more.times > 0 && //
                        more.fixed + BATCH_MAX * more.times > 0;
    return always ? oct_onnx_plain(1) : oct_onnx_affine_unknown();
}

/* a / b where that is affine: b is constant, or a is a multiple of it; else unknown. */
oct_onnx_affine oct_onnx_affine_div(oct_onnx_affine a, oct_onnx_affine b)
{
    const double left = a.fixed * b.times, right = a.times * b.fixed;
    if (b.times == 0) return (oct_onnx_affine){a.fixed / b.fixed, a.times / b.fixed};
    return left == right && fabs(left) <= exact_max /* one is a multiple of the other */
               ? oct_onnx_plain(a.times / b.times)
               : oct_onnx_affine_unknown();
}

oct_onnx_affine oct_onnx_affine_truncate(oct_onnx_affine n)
{
    const oct_onnx_affine minus = {-n.fixed, -n.times};
    const bool positive = is_never_negative(n);
    if (positive && oct_onnx_affine_less(n, oct_onnx_plain(1)).fixed == 1) return oct_onnx_plain(0);
    if (n.times != trunc(n.times)) return oct_onnx_affine_unknown();
    if (n.fixed == trunc(n.fixed)) return n;
    if (positive) return (oct_onnx_affine){floor(n.fixed), n.times};
    return is_never_negative(minus) ? (oct_onnx_affine){ceil(n.fixed), n.times}
                                    : oct_onnx_affine_unknown();
}

oct_status oct_onnx_set_dim(const oct_onnx_call *c, oct_onnx_affine n, int64_t *dim)
{
    if (n.times == 0 && n.fixed < 0)
        return oct_onnx_problem(c, "its output would have a size of %.0f", n.fixed);
    if ((n.times != 0 && n.fixed != 0) || !(n.times >= 0) || n.times != trunc(n.times))
        return oct_onnx_problem(c, "the size of its output is no multiple of the batch size");
    if (n.fixed > dim_max || n.times > dim_max)
        return oct_onnx_problem(c, "its output is too large");
    *dim = n.times > 0 ? -(int64_t)n.times : (int64_t)n.fixed;
    return OCT_OK;
}

oct_onnx_affine oct_onnx_affine_of(const oct_onnx_value *v, int64_t i)
{
    return (oct_onnx_affine){v->dtype == OCT_F32 ? (double)oct_onnx_reals(v)[i]
                                                 : (double)oct_onnx_get_int(v, i),
                             v->times ? v->times[i] : 0};
}

oct_status oct_onnx_put_affine(const oct_onnx_call *c, oct_onnx_value *v, int64_t i,
                               oct_onnx_affine n)
{
    const bool real = v->dtype == OCT_F32;
    const bool whole = n.fixed == trunc(n.fixed) && n.times == trunc(n.times);
    if (isnan(n.times) ||
        (!real && (!whole || fabs(n.fixed) > exact_max || fabs(n.times) > exact_max)))
        n = oct_onnx_affine_unknown();
    if (v->times) v->times[i] = real ? (double)(float)n.times : n.times;
    if (!real) return oct_onnx_put_int(c, v, i, (int64_t)n.fixed);
    oct_onnx_reals(v)[i] = (float)n.fixed;
    return OCT_OK;
}

void oct_onnx_copy_element(oct_onnx_value *y, int64_t to, const oct_onnx_value *x, int64_t from)
{
    const size_t bytes = oct_dtype_bytes(y->dtype);
    memcpy((uint8_t *)y->data + (size_t)to * bytes, (const uint8_t *)x->data + (size_t)from * bytes,
           bytes);
    if (y->times) y->times[to] = x->times ? x->times[from] : 0;
}
