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

static oct_status wrong_type(const oct_onnx_call *c)
{
    return oct_onnx_problem(c, "it is not defined for elements of this type");
}

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
    OCT_TRY(oct_onnx_take(c, 0));
    for (int64_t i = 0; i < numel; i++) {
        int64_t value;
        if (x->dtype == OCT_F32)
            oct_onnx_reals(y)[i] = (float)u->real((double)oct_onnx_reals(x)[i]);
        else if (!u->integer(oct_onnx_get(x, i), &value))
            return oct_onnx_problem(c, "an integer overflows");
        else
            OCT_TRY(oct_onnx_put(c, y, i, value));
    }
    return OCT_OK;
}

/* Functions of two numbers. */
typedef struct binary {
    const char *type;
    double (*real)(double a, double b);
    bool (*integer)(int64_t a, int64_t b, int64_t *y);
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
/* With the sign of the divisor, as Python does it. */
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

static const binary binaries[] = {
    {"Add", real_add, add},
    {"Sum", real_add, add},
    {"Sub", real_sub, sub},
    {"Mul", real_mul, mul},
    {"Div", real_div, divide},
    {"Pow", pow, power},
    {"Mod", fmod, modulo},
    {"Max", real_max, larger},
    {"Min", real_min, smaller},
    {"And", NULL, both},
    {"Or", NULL, either},
    {"Xor", NULL, one},
    {"Equal", real_equal, equal},
    {"Greater", real_greater, greater},
    {"GreaterOrEqual", real_greater_equal, greater_equal},
    {"Less", real_less, less},
    {"LessOrEqual", real_less_equal, less_equal},
};

static double real_of(const oct_onnx_value *v, int64_t i)
{
    return v->dtype == OCT_F32 ? (double)oct_onnx_reals(v)[i] : (double)oct_onnx_get(v, i);
}

static oct_status pair(const oct_onnx_call *c, const binary *b, const oct_onnx_value *const x[2],
                       const oct_onnx_walk *w, int64_t i)
{
    oct_onnx_value *y = oct_onnx_result(c, 0);
    int64_t value;
    if (x[0]->dtype == OCT_F32) {
        const double real = b->real(real_of(x[0], w->at[0]), real_of(x[1], w->at[1]));
        if (y->dtype != OCT_F32) return oct_onnx_put(c, y, i, real != 0);
        oct_onnx_reals(y)[i] = (float)real;
        return OCT_OK;
    }
    if (!b->integer(oct_onnx_get(x[0], w->at[0]), oct_onnx_get(x[1], w->at[1]), &value))
        return oct_onnx_problem(c, "an integer overflows, or is divided by 0");
    return oct_onnx_put(c, y, i, value);
}

static const binary *find_binary(const oct_onnx_call *c)
{
    for (size_t i = 0; i < OCT_COUNT(binaries); i++)
        if (strcmp(binaries[i].type, c->node->type) == 0) return &binaries[i];
    OCT_ASSERT(false && "in the list");
    return NULL;
}

/* Exponents may be of another type than what is raised. */
oct_status oct_onnx_evaluate_binary(oct_onnx_call *c)
{
    const oct_onnx_value *const x[] = {oct_onnx_in(c, 0), oct_onnx_in(c, 1)};
    const oct_onnx_value *y = oct_onnx_result(c, 0);
    const binary *b = find_binary(c);
    const bool real = x[0]->dtype == OCT_F32;
    oct_onnx_walk w = {.shape = y};
    if (real ? !b->real : x[1]->dtype == OCT_F32) return wrong_type(c);
    OCT_TRY(oct_onnx_take(c, 0));
    const int64_t numel = oct_onnx_numel(y);
    for (int k = 0; k < 2; k++)
        oct_onnx_strides(x[k], y, w.stride[k]);
    for (int64_t i = 0; i < numel; i++, oct_onnx_step(&w))
        OCT_TRY(pair(c, b, x, &w, i));
    return OCT_OK;
}

/* Puts one input after the other to what is there. */
oct_status oct_onnx_evaluate_variadic(oct_onnx_call *c)
{
    const oct_onnx_value *y = oct_onnx_result(c, 0);
    const binary *b = find_binary(c);
    OCT_TRY(oct_onnx_take(c, 0));
    const int64_t numel = oct_onnx_numel(y);
    for (int k = 0; k < c->node->inputs; k++) {
        const oct_onnx_value *next = oct_onnx_in(c, k);
        const oct_onnx_value *const x[] = {k ? y : next, next};
        oct_onnx_walk w = {.shape = y};
        if (next->dtype != y->dtype) return wrong_type(c);
        OCT_TRY(oct_onnx_work(c, numel));
        for (int side = 0; side < 2; side++)
            oct_onnx_strides(x[side], y, w.stride[side]);
        for (int64_t i = 0; i < numel; i++, oct_onnx_step(&w)) {
            if (k > 0)
                OCT_TRY(pair(c, b, x, &w, i));
            else if (y->dtype == OCT_F32)
                oct_onnx_reals(y)[i] = oct_onnx_reals(next)[w.at[0]];
            else
                OCT_TRY(oct_onnx_put(c, oct_onnx_result(c, 0), i, oct_onnx_get(next, w.at[0])));
        }
    }
    return OCT_OK;
}

oct_status oct_onnx_evaluate_where(oct_onnx_call *c)
{
    oct_onnx_value *y = oct_onnx_result(c, 0);
    oct_onnx_walk w = {.shape = y};
    if (oct_onnx_in(c, 0)->dtype == OCT_F32 || oct_onnx_in(c, 1)->dtype != oct_onnx_in(c, 2)->dtype)
        return wrong_type(c);
    OCT_TRY(oct_onnx_take(c, 0));
    const int64_t numel = oct_onnx_numel(y);
    for (int k = 0; k < 3; k++)
        oct_onnx_strides(oct_onnx_in(c, k), y, w.stride[k]);
    for (int64_t i = 0; i < numel; i++, oct_onnx_step(&w)) {
        const int from = oct_onnx_get(oct_onnx_in(c, 0), w.at[0]) ? 1 : 2;
        const oct_onnx_value *x = oct_onnx_in(c, from);
        if (y->dtype == OCT_F32)
            oct_onnx_reals(y)[i] = oct_onnx_reals(x)[w.at[from]];
        else
            OCT_TRY(oct_onnx_put(c, y, i, oct_onnx_get(x, w.at[from])));
    }
    return OCT_OK;
}

/* A truth value is 1 for all but 0; a real number becomes the integer in front of its point. */
oct_status oct_onnx_evaluate_cast(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    const int64_t numel = oct_onnx_numel(x);
    const bool truth = oct_onnx_int(c->node, "to", 0) == 9, real = x->dtype == OCT_F32;
    OCT_TRY(oct_onnx_take(c, 0));
    for (int64_t i = 0; i < numel; i++) {
        const double from = real_of(x, i);
        if (y->dtype == OCT_F32)
            oct_onnx_reals(y)[i] = (float)from;
        else if (truth)
            OCT_TRY(oct_onnx_put(c, y, i, from != 0));
        else if (real && !(from > -0x1p63 && from < 0x1p63))
            return oct_onnx_problem(c, "an integer overflows");
        else
            OCT_TRY(oct_onnx_put(c, y, i, real ? (int64_t)from : oct_onnx_get(x, i)));
    }
    return OCT_OK;
}

typedef enum reduction { SUM, MEAN, MAX, MIN, PROD, L1, L2, SQUARES, REDUCTIONS } reduction;

static reduction find_reduction(const oct_onnx_call *c)
{
    static const char *const types[REDUCTIONS] = {
        [SUM] = "ReduceSum", [MEAN] = "ReduceMean",        [MAX] = "ReduceMax",
        [MIN] = "ReduceMin", [PROD] = "ReduceProd",        [L1] = "ReduceL1",
        [L2] = "ReduceL2",   [SQUARES] = "ReduceSumSquare"};
    int kind = 0;
    while (kind < REDUCTIONS && strcmp(types[kind], c->node->type) != 0)
        kind++;
    OCT_ASSERT(kind < REDUCTIONS);
    return (reduction)kind;
}

static double reduce_real(reduction kind, double so_far, double x, bool first)
{
    switch (kind) {
    case MAX:
        return first ? x : real_max(so_far, x);
    case MIN:
        return first ? x : real_min(so_far, x);
    case PROD:
        return first ? x : so_far * x;
    case L1:
        return so_far + fabs(x);
    case L2:
    case SQUARES:
        return so_far + x * x;
    case SUM:
    case MEAN:
    case REDUCTIONS:
        break;
    }
    return so_far + x;
}

static bool reduce_integer(reduction kind, int64_t *so_far, int64_t x, bool first)
{
    if (kind == SQUARES && __builtin_mul_overflow(x, x, &x)) return false;
    if (first) {
        *so_far = x;
        return true;
    }
    if (kind == MAX || kind == MIN)
        return kind == MAX ? larger(*so_far, x, so_far) : smaller(*so_far, x, so_far);
    return kind == PROD ? mul(*so_far, x, so_far) : add(*so_far, x, so_far);
}

/* A walk over the result, then over what makes one number of it: two shapes, each with 1 where the other has the
 * input's size. */
typedef struct reducing {
    oct_onnx_value outer, inner;
    oct_onnx_walk out;
    int64_t stride[OCT_ONNX_DIMS];
} reducing;

static oct_status reduce_one(const oct_onnx_call *c, const reducing *r, reduction kind, int64_t i)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value *y = oct_onnx_result(c, 0);
    const int64_t count = oct_onnx_numel(&r->inner);
    oct_onnx_walk w = {.shape = &r->inner, .at = {r->out.at[0]}};
    double real = 0;
    int64_t integer = kind == PROD;
    memcpy(w.stride[0], r->stride, sizeof r->stride);
    for (int64_t k = 0; k < count; k++, oct_onnx_step(&w)) {
        if (x->dtype == OCT_F32)
            real = reduce_real(kind, real, (double)oct_onnx_reals(x)[w.at[0]], k == 0);
        else if (!reduce_integer(kind, &integer, oct_onnx_get(x, w.at[0]), k == 0))
            return oct_onnx_problem(c, "an integer overflows");
    }
    if (x->dtype != OCT_F32) return oct_onnx_put(c, y, i, integer);
    if (kind == MEAN) real /= (double)count;
    if (kind == L2) real = sqrt(real);
    oct_onnx_reals(y)[i] = (float)real;
    return OCT_OK;
}

oct_status oct_onnx_evaluate_reduce(oct_onnx_call *c)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    const reduction kind = find_reduction(c);
    reducing r = {.outer = {.ndim = x->ndim}, .inner = {.ndim = x->ndim}};
    for (int i = 0; i < x->ndim; i++) {
        r.outer.dim[i] = c->node->args.over[i] ? 1 : x->dim[i];
        r.inner.dim[i] = c->node->args.over[i] ? x->dim[i] : 1;
    }
    oct_onnx_strides(x, x, r.stride);
    r.out.shape = &r.outer;
    memcpy(r.out.stride[0], r.stride, sizeof r.stride);
    const int64_t numel = oct_onnx_numel(&r.outer);
    if (oct_onnx_numel(&r.inner) == 0) return oct_onnx_problem(c, "it reduces no numbers");
    if (x->dtype != OCT_F32 && (kind == MEAN || kind == L1 || kind == L2)) return wrong_type(c);
    OCT_TRY(oct_onnx_work(c, oct_onnx_numel(x)));
    OCT_TRY(oct_onnx_take(c, 0));
    for (int64_t i = 0; i < numel; i++, oct_onnx_step(&r.out))
        OCT_TRY(reduce_one(c, &r, kind, i));
    return OCT_OK;
}
