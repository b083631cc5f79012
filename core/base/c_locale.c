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
    const int length = vsnprintf(text, size, format, values);
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
