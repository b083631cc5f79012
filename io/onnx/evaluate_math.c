/* Constants that are computed. Integers are exact or refused; real numbers are computed in 64 bits and rounded once. */
#include "io/onnx/operator.h"

#include <math.h>
#include <string.h>

/* Functions of one number; integer: NULL when it takes real numbers only. */
typedef struct unary {
    const char *type;
    double (*real)(double x);
    bool (*integer)(int64_t x, int64_t *y); /* false: it overflows */
} unary;

#define REAL(name, expression)                                                                     \
    static double name(double x)                                                                   \
    {                                                                                              \
        return expression;                                                                         \
    }
REAL(neg, -x)
REAL(reciprocal, 1 / x)
REAL(relu, x > 0 ? x : 0 * x) /* keeps a NaN */
REAL(sigmoid, 1 / (1 + exp(-x)))
REAL(sign, (x > 0) - (x < 0))
#undef REAL
static bool integer_neg(int64_t x, int64_t *y)
{
    return !__builtin_sub_overflow(0, x, y);
}
static bool integer_abs(int64_t x, int64_t *y)
{
    *y = x;
    return x >= 0 || integer_neg(x, y);
}
#define INTEGER(name, expression)                                                                  \
    static bool integer_##name(int64_t x, int64_t *y)                                              \
    {                                                                                              \
        *y = expression;                                                                           \
        return true;                                                                               \
    }
INTEGER(not, !x)
INTEGER(relu, x > 0 ? x : 0)
INTEGER(sign, (x > 0) - (x < 0))
#undef INTEGER

static const unary unaries[] = {
    {"Abs", fabs, integer_abs},   {"Ceil", ceil, NULL},
    {"Cos", cos, NULL},           {"Erf", erf, NULL},
    {"Exp", exp, NULL},           {"Floor", floor, NULL},
    {"Log", log, NULL},           {"Neg", neg, integer_neg},
    {"Not", NULL, integer_not},   {"Reciprocal", reciprocal, NULL},
    {"Relu", relu, integer_relu}, {"Round", rint, NULL}, /* half to even */
    {"Sigmoid", sigmoid, NULL},   {"Sign", sign, integer_sign},
    {"Sin", sin, NULL},           {"Sqrt", sqrt, NULL},
    {"Tanh", tanh, NULL},
};

/* f(fixed + times N), where that is affine too for every batch size N; else unknown. */
static oct_onnx_affine apply_to_affine(const unary *u, oct_onnx_affine x)
{
    const oct_onnx_affine zero = {0, 0}, less = oct_onnx_affine_less(x, zero);
    const oct_onnx_affine minus = oct_onnx_affine_sub(zero, x);
    const bool rounds = u->real == ceil || u->real == floor || u->real == rint;
    if (u->real == neg) return minus;
    if (u->real == fabs) return oct_onnx_affine_max(x, minus);
    if (u->real == relu) return oct_onnx_affine_max(x, zero);
    if (u->real == sign) return oct_onnx_affine_sub(oct_onnx_affine_less(zero, x), less);
    /* Half to even: which one is even depends on the batch. */
    if (rounds && x.times == trunc(x.times) &&
        (u->real != rint || fabs(x.fixed - trunc(x.fixed)) != 0.5))
        return (oct_onnx_affine){u->real(x.fixed), x.times};
    return oct_onnx_affine_unknown();
}

static oct_status wrong_type(const oct_onnx_call *c)
{
    return oct_onnx_problem(c, "it is not defined for elements of this type");
}

/* y = f(x) for each element of a constant: real, integer, or affine in the batch size N. */
oct_status oct_onnx_evaluate_unary(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    const int64_t numel = oct_onnx_numel(x);
    const unary *u = NULL;
    for (size_t i = 0; i < OCT_COUNT(unaries); i++)
        if (strcmp(unaries[i].type, c->node->type) == 0) u = &unaries[i];
    OCT_ASSERT(u);
    if (x->dtype == OCT_F32 ? !u->real : !u->integer) return wrong_type(c);
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    for (int64_t i = 0; i < numel; i++) {
        int64_t value;
        if (oct_onnx_varies(x, i))
            OCT_TRY(oct_onnx_put_affine(c, y, i, apply_to_affine(u, oct_onnx_affine_of(x, i))));
        else if (x->dtype == OCT_F32)
            oct_onnx_reals(y)[i] = (float)u->real((double)oct_onnx_reals(x)[i]);
        else if (!u->integer(oct_onnx_get_int(x, i), &value))
            return oct_onnx_problem(c, "an integer overflows");
        else
            OCT_TRY(oct_onnx_put_int(c, y, i, value));
    }
    return OCT_OK;
}

/* Functions of two numbers. */
typedef struct binary {
    const char *type;
    double (*real)(double a, double b);
    bool (*integer)(int64_t a, int64_t b, int64_t *y);
    /* Of numbers that depend on the batch; NULL: it is unknown. */
    oct_onnx_affine (*affine)(oct_onnx_affine a, oct_onnx_affine b);
} binary;

#define REAL(name, expression)                                                                     \
    static double real_##name(double a, double b)                                                  \
    {                                                                                              \
        return expression;                                                                         \
    }
REAL(add, a + b)
REAL(sub, a - b)
REAL(mul, a *b)
REAL(div, a / b)
REAL(max, a > b || isnan(a) ? a : b)
REAL(min, a < b || isnan(a) ? a : b)
REAL(equal, !(a < b) && !(a > b) && !isnan(a) && !isnan(b))
REAL(greater, a > b)
REAL(greater_equal, a >= b)
REAL(less, a < b)
REAL(less_equal, a <= b)
#define EXACT(name)                                                                                \
    static bool name(int64_t a, int64_t b, int64_t *y)                                             \
    {                                                                                              \
        return !__builtin_##name##_overflow(a, b, y);                                              \
    }
EXACT(add)
EXACT(sub)
EXACT(mul)
/* Towards zero, as C does it. */
static bool divide(int64_t a, int64_t b, int64_t *y)
{
    if (b == 0 || (a == INT64_MIN && b == -1)) return false;
    *y = a / b;
    return true;
}
/* a mod b with the sign of b, as Python does it; false: b is 0. */
static bool modulo(int64_t a, int64_t b, int64_t *y)
{
    if (b == 0 || b == -1) {
        *y = 0;
        return b != 0;
    }
    *y = a % b;
    if (*y != 0 && (*y < 0) != (b < 0)) *y += b;
    return true;
}
static bool power(int64_t a, int64_t b, int64_t *y)
{
    *y = 1;
    if (b < 0) return false;
    if (a == 0 || a == 1 || a == -1) {
        *y = a == 0 ? b == 0 : a == 1 || b % 2 == 0 ? 1 : -1;
        return true;
    }
    for (; b > 0; b--)
        if (__builtin_mul_overflow(*y, a, y)) return false;
    return true;
}
#define INTEGER(name, expression)                                                                  \
    static bool name(int64_t a, int64_t b, int64_t *y)                                             \
    {                                                                                              \
        *y = expression;                                                                           \
        return true;                                                                               \
    }
INTEGER(larger, a > b ? a : b)
INTEGER(smaller, a < b ? a : b)
INTEGER(both, a &&b)
INTEGER(either, a || b)
INTEGER(one, !a != !b)
INTEGER(equal, a == b)
INTEGER(greater, a > b)
INTEGER(greater_equal, a >= b)
INTEGER(less, a < b)
INTEGER(less_equal, a <= b)

/* 1 - truth; of an unknown one `fixed` stays 0, since callers take 1 there for true. */
static oct_onnx_affine affine_not(oct_onnx_affine truth)
{
    return truth.times == 0 ? oct_onnx_plain(1 - truth.fixed) : truth;
}
static oct_onnx_affine affine_greater(oct_onnx_affine a, oct_onnx_affine b)
{
    return oct_onnx_affine_less(b, a);
}
static oct_onnx_affine affine_less_equal(oct_onnx_affine a, oct_onnx_affine b)
{
    return affine_not(oct_onnx_affine_less(b, a));
}
static oct_onnx_affine affine_greater_equal(oct_onnx_affine a, oct_onnx_affine b)
{
    return affine_not(oct_onnx_affine_less(a, b));
}
/* 1 where both are equal, 0 where they differ for every batch size; else unknown. */
static oct_onnx_affine affine_equal(oct_onnx_affine a, oct_onnx_affine b)
{
    if (a.fixed == b.fixed && a.times == b.times) return oct_onnx_plain(1);
    const bool differ =
        oct_onnx_affine_less(a, b).fixed == 1 || oct_onnx_affine_less(b, a).fixed == 1;
    return differ ? oct_onnx_plain(0) : oct_onnx_affine_unknown();
}
/* a mod b for a >= 0 and b > 0, where that is affine; else unknown. */
static oct_onnx_affine affine_mod(oct_onnx_affine a, oct_onnx_affine b)
{
    const oct_onnx_affine zero = {0, 0};
    const bool positive =
        affine_greater_equal(a, zero).fixed == 1 && oct_onnx_affine_less(zero, b).fixed == 1;
    if (!positive) return oct_onnx_affine_unknown();
    if (b.times == 0 && fmod(a.times, b.fixed) == 0 && a.fixed >= 0)
        return oct_onnx_plain(fmod(a.fixed, b.fixed));
    if (a.fixed == 0 && b.fixed == 0) return (oct_onnx_affine){0, fmod(a.times, b.times)};
    return oct_onnx_affine_less(a, b).fixed == 1 ? a : oct_onnx_affine_unknown();
}

static const binary binaries[] = {
    {"Add", real_add, add, oct_onnx_affine_add},
    {"Sum", real_add, add, oct_onnx_affine_add},
    {"Sub", real_sub, sub, oct_onnx_affine_sub},
    {"Mul", real_mul, mul, oct_onnx_affine_mul},
    {"Div", real_div, divide, oct_onnx_affine_div},
    {"Pow", pow, power, NULL},
    {"Mod", fmod, modulo, affine_mod},
    {"Max", real_max, larger, oct_onnx_affine_max},
    {"Min", real_min, smaller, oct_onnx_affine_min},
    {"And", NULL, both, NULL},
    {"Or", NULL, either, NULL},
    {"Xor", NULL, one, NULL},
    {"Equal", real_equal, equal, affine_equal},
    {"Greater", real_greater, greater, affine_greater},
    {"GreaterOrEqual", real_greater_equal, greater_equal, affine_greater_equal},
    {"Less", real_less, less, oct_onnx_affine_less},
    {"LessOrEqual", real_less_equal, less_equal, affine_less_equal},
};

/* Element i of the result: y = f(x[0], x[1]), with the walk's offsets of both operands. */
static oct_status apply_binary(const oct_onnx_call *c, const binary *b,
                               const oct_onnx_value *const x[2], const oct_onnx_walk *w, int64_t i)
{
    oct_onnx_value *y = oct_onnx_result(c, 0);
    int64_t value;
    const oct_onnx_affine left = oct_onnx_affine_of(x[0], w->offset[0]);
    const oct_onnx_affine right = oct_onnx_affine_of(x[1], w->offset[1]);
    if (left.times != 0 || right.times != 0) {
        oct_onnx_affine n = b->affine ? b->affine(left, right) : oct_onnx_affine_unknown();
        if (x[0]->dtype != OCT_F32) n = oct_onnx_affine_truncate(n);
        return oct_onnx_put_affine(c, y, i, n);
    }
    if (x[0]->dtype == OCT_F32) {
        const double real = b->real(left.fixed, right.fixed);
        if (y->dtype != OCT_F32) return oct_onnx_put_int(c, y, i, real != 0);
        oct_onnx_reals(y)[i] = (float)real;
        return OCT_OK;
    }
    if (!b->integer(oct_onnx_get_int(x[0], w->offset[0]), oct_onnx_get_int(x[1], w->offset[1]),
                    &value))
        return oct_onnx_problem(c, "an integer overflows, or is divided by 0");
    return oct_onnx_put_int(c, y, i, value);
}

static const binary *find_binary(const char *type)
{
    const binary *b = binaries;
    while (strcmp(b->type, type) != 0)
        b++;
    return b;
}

/* y = f(x[0], x[1]), broadcast. The exponents of Pow may be of another type than what is raised. */
oct_status oct_onnx_evaluate_binary(oct_onnx_call *c)
{
    const oct_onnx_value *const x[] = {oct_onnx_in(c, 0), oct_onnx_in(c, 1)};
    const oct_onnx_value *y = oct_onnx_result(c, 0);
    const binary *b = find_binary(c->node->type);
    const bool real = x[0]->dtype == OCT_F32;
    oct_onnx_walk w = {.shape = y};
    if (real ? !b->real : x[1]->dtype == OCT_F32) return wrong_type(c);
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    const int64_t numel = oct_onnx_numel(y);
    for (int k = 0; k < 2; k++)
        oct_onnx_broadcast_strides(x[k], y, w.stride[k]);
    for (int64_t i = 0; i < numel; i++, oct_onnx_walk_step(&w))
        OCT_TRY(apply_binary(c, b, x, &w, i));
    return OCT_OK;
}

/* Sum, Max or Min of any number of constants: y is the first one, broadcast, and then f(y, x) for each next one x. */
oct_status oct_onnx_evaluate_variadic(oct_onnx_call *c)
{
    const oct_onnx_value *y = oct_onnx_result(c, 0);
    const binary *b = find_binary(c->node->type);
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    const int64_t numel = oct_onnx_numel(y);
    for (int k = 0; k < c->node->inputs; k++) {
        const oct_onnx_value *next = oct_onnx_in(c, k);
        const oct_onnx_value *const x[] = {k ? y : next, next};
        oct_onnx_walk w = {.shape = y};
        if (next->dtype != y->dtype) return wrong_type(c);
        OCT_TRY(oct_onnx_charge_work(c, numel));
        for (int side = 0; side < 2; side++)
            oct_onnx_broadcast_strides(x[side], y, w.stride[side]);
        for (int64_t i = 0; i < numel; i++, oct_onnx_walk_step(&w)) {
            if (k > 0)
                OCT_TRY(apply_binary(c, b, x, &w, i));
            else
                oct_onnx_copy_element(oct_onnx_result(c, 0), i, next, w.offset[0]);
        }
    }
    return OCT_OK;
}

/* y = condition ? a : b for each element; unknown where the condition depends on the batch and a differs from b. */
oct_status oct_onnx_evaluate_where(oct_onnx_call *c)
{
    oct_onnx_value *y = oct_onnx_result(c, 0);
    oct_onnx_walk w = {.shape = y};
    if (oct_onnx_in(c, 0)->dtype == OCT_F32 || oct_onnx_in(c, 1)->dtype != oct_onnx_in(c, 2)->dtype)
        return wrong_type(c);
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    const int64_t numel = oct_onnx_numel(y);
    for (int k = 0; k < 3; k++)
        oct_onnx_broadcast_strides(oct_onnx_in(c, k), y, w.stride[k]);
    for (int64_t i = 0; i < numel; i++, oct_onnx_walk_step(&w)) {
        const int from = oct_onnx_get_int(oct_onnx_in(c, 0), w.offset[0]) ? 1 : 2;
        oct_onnx_copy_element(y, i, oct_onnx_in(c, from), w.offset[from]);
        const oct_onnx_affine chosen = oct_onnx_affine_of(y, i);
        const oct_onnx_affine other =
            oct_onnx_affine_of(oct_onnx_in(c, 3 - from), w.offset[3 - from]);
        if (oct_onnx_varies(oct_onnx_in(c, 0), w.offset[0]) &&
            (chosen.fixed != other.fixed || chosen.times != other.times))
            OCT_TRY(oct_onnx_put_affine(c, y, i, oct_onnx_affine_unknown()));
    }
    return OCT_OK;
}

/* Cast of constants: to bool (ONNX type 9) all but 0 is 1; real numbers are truncated to integers. */
oct_status oct_onnx_evaluate_cast(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    const int64_t numel = oct_onnx_numel(x);
    const bool truth = oct_onnx_int(c->node, "to", 0) == 9, real = x->dtype == OCT_F32;
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    for (int64_t i = 0; i < numel; i++) {
        const oct_onnx_affine n = oct_onnx_affine_of(x, i), zero = {0, 0};
        const double from = n.fixed;
        if (oct_onnx_varies(x, i)) {
            oct_onnx_affine cast = n;
            if (truth)
                cast = affine_not(affine_equal(n, zero));
            else if (y->dtype != OCT_F32)
                cast = oct_onnx_affine_truncate(n);
            OCT_TRY(oct_onnx_put_affine(c, y, i, cast));
        } else if (y->dtype == OCT_F32)
            oct_onnx_reals(y)[i] = (float)from;
        else if (truth)
            OCT_TRY(oct_onnx_put_int(c, y, i, from != 0));
        else if (real && !(from > -0x1p63 && from < 0x1p63))
            return oct_onnx_problem(c, "an integer overflows");
        else
            OCT_TRY(oct_onnx_put_int(c, y, i, real ? (int64_t)from : oct_onnx_get_int(x, i)));
    }
    return OCT_OK;
}

/* A reduction combines the numbers, or their magnitudes or squares, by a function of two. */
typedef struct reduction {
    const char *type, *combined_by;
    bool magnitude, square, mean, root;
} reduction;

static const reduction reductions[] = {
    {.type = "ReduceSum", .combined_by = "Add"},
    {.type = "ReduceMean", .combined_by = "Add", .mean = true},
    {.type = "ReduceMax", .combined_by = "Max"},
    {.type = "ReduceMin", .combined_by = "Min"},
    {.type = "ReduceProd", .combined_by = "Mul"},
    {.type = "ReduceL1", .combined_by = "Add", .magnitude = true},
    {.type = "ReduceL2", .combined_by = "Add", .square = true, .root = true},
    {.type = "ReduceSumSquare", .combined_by = "Add", .square = true},
};

/* A walk over the result, then over what makes one number of it: two shapes, each with 1 where the other has the
 * input's size. */
typedef struct reduction_walk {
    const reduction *kind;
    const binary *combine;
    oct_onnx_value outer, inner;
    oct_onnx_walk out;
    int64_t stride[OCT_ONNX_DIMS];
} reduction_walk;

/* Element i of the result: combines the elements of x that the inner walk visits (their sum, maximum, ...). */
static oct_status reduce_element(const oct_onnx_call *c, const reduction_walk *r, int64_t i)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    const reduction *kind = r->kind;
    const int64_t count = oct_onnx_numel(&r->inner);
    oct_onnx_walk w = {.shape = &r->inner, .offset = {r->out.offset[0]}};
    double real = 0;
    int64_t integer = 0;
    oct_onnx_affine affine = {0, 0};
    memcpy(w.stride[0], r->stride, sizeof r->stride);
    for (int64_t k = 0; k < count; k++, oct_onnx_walk_step(&w)) {
        if (x->times) {
            const oct_onnx_affine next = kind->magnitude || kind->square
                                             ? oct_onnx_affine_unknown()
                                             : oct_onnx_affine_of(x, w.offset[0]);
            affine = k == 0 ? next : r->combine->affine(affine, next);
        } else if (x->dtype == OCT_F32) {
            double next = (double)oct_onnx_reals(x)[w.offset[0]];
            if (kind->magnitude) next = fabs(next);
            if (kind->square) next *= next;
            real = k == 0 && r->combine->real != real_add ? next : r->combine->real(real, next);
        } else {
            int64_t next = oct_onnx_get_int(x, w.offset[0]);
            const bool fits = !kind->square || mul(next, next, &next);
            if (k == 0) integer = next;
            if (!fits || (k > 0 && !r->combine->integer(integer, next, &integer)))
                return oct_onnx_problem(c, "an integer overflows");
        }
    }
    if (x->times && kind->mean) affine = oct_onnx_affine_div(affine, oct_onnx_plain((double)count));
    if (x->times) return oct_onnx_put_affine(c, y, i, affine);
    if (x->dtype != OCT_F32) return oct_onnx_put_int(c, y, i, integer);
    if (kind->mean) real /= (double)count;
    if (kind->root) real = sqrt(real);
    oct_onnx_reals(y)[i] = (float)real;
    return OCT_OK;
}

/* ReduceSum, ReduceMax, ...: `outer` walks over the results, `inner` over the elements of x for one of them. */
oct_status oct_onnx_evaluate_reduce(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    reduction_walk r = {.kind = reductions, .outer = {.ndim = x->ndim}, .inner = {.ndim = x->ndim}};
    while (strcmp(r.kind->type, c->node->type) != 0)
        r.kind++;
    r.combine = find_binary(r.kind->combined_by);
    for (int i = 0; i < x->ndim; i++) {
        r.outer.dim[i] = c->node->args.reduced[i] ? 1 : x->dim[i];
        r.inner.dim[i] = c->node->args.reduced[i] ? x->dim[i] : 1;
    }
    oct_onnx_broadcast_strides(x, x, r.stride);
    r.out.shape = &r.outer;
    memcpy(r.out.stride[0], r.stride, sizeof r.stride);
    const int64_t numel = oct_onnx_numel(&r.outer);
    if (oct_onnx_numel(&r.inner) == 0) return oct_onnx_problem(c, "it reduces no numbers");
    if (x->dtype != OCT_F32 && (r.kind->mean || r.kind->magnitude || r.kind->root))
        return wrong_type(c);
    OCT_TRY(oct_onnx_charge_work(c, oct_onnx_numel(x)));
    OCT_TRY(oct_onnx_allocate_result(c, 0));
    for (int64_t i = 0; i < numel; i++, oct_onnx_walk_step(&r.out))
        OCT_TRY(reduce_element(c, &r, i));
    return OCT_OK;
}
