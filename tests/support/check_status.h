/* What a call returned, said and left over. */
#pragma once

#include "core/base/mem.h"
#include "core/base/status.h"

#include <criterion/criterion.h>
#include <string.h>

#define MUST(call) cr_assert_eq((call), OCT_OK, "%s", oct_error_message(0))

static inline void check_said(const char *text)
{
    cr_assert(strstr(oct_error_message(0), text), "'%s' does not say '%s'", oct_error_message(0),
              text);
}

/* The last line of a test: what fails after a test does not count. */
static inline void check_nothing_held(void)
{
    cr_assert_eq(oct_mem_live(), 0, "%zu bytes are still held", oct_mem_live());
}
