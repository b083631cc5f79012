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

/* Of numbers that depend on the batch. */
static oct_onnx_number compute_number(const unary *u, oct_onnx_number x)
{
    const oct_onnx_number zero = {0, 0}, less = oct_onnx_number_less(x, zero);
    const oct_onnx_number minus = oct_onnx_number_sub(zero, x);
    const bool rounds = u->real == ceil || u->real == floor || u->real == rint;
    if (u->real == neg) return minus;
    if (u->real == fabs) return oct_onnx_number_max(x, minus);
    if (u->real == relu) return oct_onnx_number_max(x, zero);
    if (u->real == sign) return oct_onnx_number_sub(oct_onnx_number_less(zero, x), less);
    /* Half to even: which one is even depends on the batch. */
    if (rounds && x.times == trunc(x.times) &&
        (u->real != rint || fabs(x.fixed - trunc(x.fixed)) != 0.5))
        return (oct_onnx_number){u->real(x.fixed), x.times};
    return oct_onnx_number_unknown();
}

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
        if (oct_onnx_depends(x, i))
            OCT_TRY(oct_onnx_put_number(c, y, i, compute_number(u, oct_onnx_number_of(x, i))));
        else if (x->dtype == OCT_F32)
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
    /* Of numbers that depend on the batch; NULL: it is unknown. */
    oct_onnx_number (*number)(oct_onnx_number a, oct_onnx_number b, bool integer);
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

#define NUMBER(name, expression)                                                                   \
    static oct_onnx_number number_##name(oct_onnx_number a, oct_onnx_number b, bool integer)       \
    {                                                                                              \
        (void)integer;                                                                             \
        return expression;                                                                         \
    }
NUMBER(add, oct_onnx_number_add(a, b))
NUMBER(sub, oct_onnx_number_sub(a, b))
NUMBER(mul, oct_onnx_number_mul(a, b))
NUMBER(max, oct_onnx_number_max(a, b))
NUMBER(min, oct_onnx_number_min(a, b))
NUMBER(less, oct_onnx_number_less(a, b))
NUMBER(greater, oct_onnx_number_less(b, a))
NUMBER(less_equal, oct_onnx_number_sub(oct_onnx_plain(1), oct_onnx_number_less(b, a)))
NUMBER(greater_equal, oct_onnx_number_sub(oct_onnx_plain(1), oct_onnx_number_less(a, b)))
static oct_onnx_number number_equal(oct_onnx_number a, oct_onnx_number b, bool integer)
{
    (void)integer;
    if (a.fixed == b.fixed && a.times == b.times) return oct_onnx_plain(1);
    const bool differ =
        oct_onnx_number_less(a, b).fixed == 1 || oct_onnx_number_less(b, a).fixed == 1;
    return differ ? oct_onnx_plain(0) : oct_onnx_number_unknown();
}
static double modulo_double(double a, double b)
{
    const double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
static oct_onnx_number number_mod(oct_onnx_number a, oct_onnx_number b, bool integer)
{
    const oct_onnx_number zero = {0, 0};
    if (!integer) return oct_onnx_number_unknown();
    if (b.times == 0 && fmod(a.times, b.fixed) == 0)
        return oct_onnx_plain(modulo_double(a.fixed, b.fixed));
    if (a.fixed == 0 && b.fixed == 0) return (oct_onnx_number){0, modulo_double(a.times, b.times)};
    const bool smaller = oct_onnx_number_less(a, zero).times == 0 &&
                         oct_onnx_number_less(a, zero).fixed == 0 &&
                         oct_onnx_number_less(a, b).fixed == 1;
    return smaller ? a : oct_onnx_number_unknown();
}

static const binary binaries[] = {
    {"Add", real_add, add, number_add},
    {"Sum", real_add, add, number_add},
    {"Sub", real_sub, sub, number_sub},
    {"Mul", real_mul, mul, number_mul},
    {"Div", real_div, divide, oct_onnx_number_div},
    {"Pow", pow, power, NULL},
    {"Mod", fmod, modulo, number_mod},
    {"Max", real_max, larger, number_max},
    {"Min", real_min, smaller, number_min},
    {"And", NULL, both, NULL},
    {"Or", NULL, either, NULL},
    {"Xor", NULL, one, NULL},
    {"Equal", real_equal, equal, number_equal},
    {"Greater", real_greater, greater, number_greater},
    {"GreaterOrEqual", real_greater_equal, greater_equal, number_greater_equal},
    {"Less", real_less, less, number_less},
    {"LessOrEqual", real_less_equal, less_equal, number_less_equal},
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
    if (oct_onnx_depends(x[0], w->at[0]) || oct_onnx_depends(x[1], w->at[1])) {
        oct_onnx_number n = oct_onnx_number_unknown();
        if (b->number)
            n = b->number(oct_onnx_number_of(x[0], w->at[0]), oct_onnx_number_of(x[1], w->at[1]),
                          x[0]->dtype != OCT_F32);
        return oct_onnx_put_number(c, y, i, n);
    }
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
            else
                oct_onnx_copy(oct_onnx_result(c, 0), i, next, w.at[0]);
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
        oct_onnx_copy(y, i, oct_onnx_in(c, from), w.at[from]);
        const oct_onnx_number chosen = oct_onnx_number_of(y, i);
        const oct_onnx_number other = oct_onnx_number_of(oct_onnx_in(c, 3 - from), w.at[3 - from]);
        if (oct_onnx_depends(oct_onnx_in(c, 0), w.at[0]) &&
            (chosen.fixed != other.fixed || chosen.times != other.times))
            OCT_TRY(oct_onnx_put_number(c, y, i, oct_onnx_number_unknown()));
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
        const oct_onnx_number n = oct_onnx_number_of(x, i), zero = {0, 0};
        if (oct_onnx_depends(x, i)) {
            oct_onnx_number made = n;
            if (truth)
                made = oct_onnx_number_sub(oct_onnx_plain(1), number_equal(n, zero, true));
            else if (y->dtype != OCT_F32)
                made = oct_onnx_number_div(n, oct_onnx_plain(1), true);
            OCT_TRY(oct_onnx_put_number(c, y, i, made));
        } else if (y->dtype == OCT_F32)
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

/* The same of numbers that depend on the batch. */
static oct_onnx_number reduce_number(reduction kind, oct_onnx_number so_far, oct_onnx_number x,
                                     bool first)
{
    if (kind == L1 || kind == L2 || kind == SQUARES) return oct_onnx_number_unknown();
    if (first) return x;
    if (kind == MAX) return oct_onnx_number_max(so_far, x);
    if (kind == MIN) return oct_onnx_number_min(so_far, x);
    return kind == PROD ? oct_onnx_number_mul(so_far, x) : oct_onnx_number_add(so_far, x);
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
    oct_onnx_number number = {0, 0};
    memcpy(w.stride[0], r->stride, sizeof r->stride);
    for (int64_t k = 0; k < count; k++, oct_onnx_step(&w)) {
        if (x->times)
            number = reduce_number(kind, number, oct_onnx_number_of(x, w.at[0]), k == 0);
        else if (x->dtype == OCT_F32)
            real = reduce_real(kind, real, (double)oct_onnx_reals(x)[w.at[0]], k == 0);
        else if (!reduce_integer(kind, &integer, oct_onnx_get(x, w.at[0]), k == 0))
            return oct_onnx_problem(c, "an integer overflows");
    }
    if (x->times && kind == MEAN)
        number = oct_onnx_number_div(number, oct_onnx_plain((double)count), false);
    if (x->times) return oct_onnx_put_number(c, y, i, number);
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
