/* Numbers as text have a decimal point, whatever locale the process has: plug-ins, Python and user interfaces call
 * setlocale. These are vsnprintf, snprintf and strtod in the C locale; texts without %e, %f, %g and %a may be written by
 * the plain ones. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

int oct_vsnprintf(char *text, size_t size, const char *format, va_list values)
    __attribute__((format(printf, 3, 0)));
int oct_snprintf(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints the variable arguments of the function that it stands in, those after `format`, into an array of chars; the
 * format itself where that fails. */
#define OCT_PRINT_ARGS(array, format)                                                              \
    do {                                                                                           \
        va_list oct_args_;                                                                         \
        va_start(oct_args_, format);                                                               \
        if (oct_vsnprintf(array, sizeof(array), format, oct_args_) < 0)                            \
            oct_snprintf(array, sizeof(array), "%s", format);                                      \
        va_end(oct_args_);                                                                         \
    } while (0)
double oct_strtod(const char *text, char **end);

typedef struct oct_size_text {
    char text[32];
} oct_size_text;
/* Sizes as people read them: "999 bytes", "1.23 MB". Sizes that must agree to the byte are printed as numbers. */
oct_size_text oct_text_size(int64_t bytes);
