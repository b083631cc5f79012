/* Structs of arguments become rows of numbers and the other way round, by their list. */
#include "core/tensor/op_args.h"

#include "core/base/c_locale.h"

#include <stdio.h>

static bool is_real(const oct_arg *arg)
{
    return arg->type == OCT_ARG_FLOAT || arg->type == OCT_ARG_DOUBLE;
}

/* Reads the member of the struct `args` that `arg` describes, of any type, as a number. */
static double read_member(const oct_arg *arg, const void *args)
{
    const void *member = (const char *)args + arg->offset;
    switch (arg->type) {
    case OCT_ARG_BOOL:
        return *(const bool *)member;
    case OCT_ARG_INT:
        return *(const int *)member;
    case OCT_ARG_INT64:
        return (double)*(const int64_t *)member;
    case OCT_ARG_FLOAT:
        return (double)*(const float *)member;
    case OCT_ARG_DOUBLE:
        break;
    }
    return *(const double *)member;
}

/* Sets the member of the struct `args` that `arg` describes, of any type, from a number. */
static void write_member(const oct_arg *arg, double value, void *args)
{
    void *member = (char *)args + arg->offset;
    switch (arg->type) {
    case OCT_ARG_BOOL:
        *(bool *)member = value != 0;
        break;
    case OCT_ARG_INT:
        *(int *)member = (int)value;
        break;
    case OCT_ARG_INT64:
        *(int64_t *)member = (int64_t)value;
        break;
    case OCT_ARG_FLOAT:
        *(float *)member = (float)value;
        break;
    case OCT_ARG_DOUBLE:
        *(double *)member = value;
    }
}

const oct_op_args *oct_args_write(const oct_arg_list *list, const void *args, oct_op_args *row)
{
    *row = (oct_op_args){.count = list->count};
    if (list->write) list->write(args, row);
    for (int i = 0; i < list->count; i++)
        row->value[i] = read_member(&list->arg[i], args);
    return row;
}

void oct_args_get(const oct_arg_list *list, const oct_op_args *row, void *args)
{
    memset(args, 0, list->bytes);
    if (list->read) {
        const oct_status status = list->read("checked", row, args);
        OCT_ASSERT(status == OCT_OK);
    }
    for (int i = 0; i < list->count && i < row->count; i++)
        write_member(&list->arg[i], row->value[i], args);
}

/* Writes what an argument must be: "from 0 to 16384". */
static void write_rule(const oct_arg *arg, char *text, size_t size)
{
    char most[32];
    oct_snprintf(most, sizeof most, arg->most == OCT_BELOW_1 ? "below 1" : "%g", arg->most);
    if (arg->type == OCT_ARG_BOOL)
        snprintf(text, size, "0 or 1");
    else if (isinf(arg->least) && isinf(arg->most))
        snprintf(text, size, "a number");
    else if (arg->least == OCT_ABOVE_0)
        snprintf(text, size, "a finite number above 0");
    else if (arg->least <= -(double)FLT_MAX)
        snprintf(text, size, "a finite number");
    else if (!is_real(arg) && arg->most == INT32_MAX)
        oct_snprintf(text, size, "at least %g", arg->least);
    else
        oct_snprintf(text, size, "from %g to %s", arg->least, most);
}

static oct_status check_bounds(const oct_arg *arg, const char *type, double value)
{
    char rule[96];
    oct_arg bounds = *arg;
    if (!is_real(arg)) { /* as a file has it */
        bounds.least = fmax(arg->least, -(double)INT32_MAX);
        bounds.most = fmin(arg->type == OCT_ARG_BOOL ? 1 : arg->most, INT32_MAX);
    }
    if (value >= bounds.least && value <= bounds.most) return OCT_OK;
    write_rule(&bounds, rule, sizeof rule);
    return oct_fail(OCT_USAGE, "%s cannot have %s %g; it must be %s", type, arg->name, value, rule);
}

oct_status oct_args_check(const oct_arg_list *list, const char *type, const void *args)
{
    for (int i = 0; i < list->count; i++)
        OCT_TRY(check_bounds(&list->arg[i], type, read_member(&list->arg[i], args)));
    return OCT_OK;
}

oct_status oct_args_read(const oct_arg_list *list, const char *type, const oct_op_args *row,
                         void *args)
{
    memset(args, 0, list->bytes);
    if (list->read) return list->read(type, row, args);
    OCT_CHECK(row->count == list->count, OCT_USAGE, "a %s is made from %d argument%s, but has %d",
              type, list->count, list->count == 1 ? "" : "s", row->count);
    for (int i = 0; i < list->count; i++) {
        const oct_arg *arg = &list->arg[i];
        const double value = row->value[i];
        OCT_CHECK(is_real(arg) || (value == rint(value) && fabs(value) <= (double)INT32_MAX),
                  OCT_USAGE,
                  "argument %d of a %s, %s, is %g, but must be a whole number of at most 32 bits",
                  i + 1, type, arg->name, value);
        if (arg->type == OCT_ARG_BOOL) OCT_TRY(check_bounds(arg, type, value));
        write_member(arg, value, args);
    }
    return oct_args_check(list, type, args);
}

void oct_args_describe(const oct_arg_list *list, const void *args, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < list->count && used < size; i++) {
        const oct_arg *arg = &list->arg[i];
        const double value = read_member(arg, args);
        const char *mark = arg->text ? strchr(arg->text, '#') : NULL;
        if (!arg->text || (arg->brief && value == 0)) continue;
        char number[32];
        oct_snprintf(number, sizeof number, is_real(arg) ? "%g" : "%.0f", value);
        used += (size_t)(mark ? snprintf(text + used, size - used, "%.*s%s%s",
                                         (int)(mark - arg->text), arg->text, number, mark + 1)
                              : snprintf(text + used, size - used, "%s", arg->text));
    }
}
