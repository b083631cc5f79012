/* The calling thread alone has the C locale, and only during the call. */
#include "core/base/c_locale.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* Of this one glibc hands out a constant: nothing is allocated, nothing can fail. */
static locale_t enter_c_locale(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

int oct_vsnprintf(char *text, size_t size, const char *format, va_list values)
{
    const locale_t before = enter_c_locale();
    const int length = vsnprintf(text, size, format ? format : "(no text)", values);
    uselocale(before);
    return length;
}

int oct_snprintf(char *text, size_t size, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int length = oct_vsnprintf(text, size, format, values);
    va_end(values);
    return length;
}

double oct_strtod(const char *text, char **end)
{
    const locale_t before = enter_c_locale();
    const double value = strtod(text, end);
    uselocale(before);
    return value;
}

oct_size_text oct_text_size(int64_t bytes)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", NULL};
    oct_size_text size;
    double value = (double)bytes;
    size_t unit = 0;
    /* From 999.5, 99.95 and 9.995 on, rounding gives a digit more. */
    for (; value >= 999.5 && units[unit + 1]; unit++)
        value /= 1000;
    const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    oct_snprintf(size.text, sizeof size.text, "%.*f %s", digits, value, units[unit]);
    return size;
}
