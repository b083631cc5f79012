/* Tables of things with names. */
#include "core/base/registry.h"
#include "tests/support/check_status.h"

#include <stdio.h>

TestSuite(registry, .timeout = 60);

typedef struct thing {
    const char *name;
    int value;
} thing;

static const thing one = {"one", 1}, two = {"two", 2};
static const void *const listed[] = {&one, &two};

static oct_registry things_new(void)
{
    return (oct_registry){.what = "a thing", .listed = listed, .num_listed = OCT_COUNT(listed)};
}

Test(registry, has_the_list_and_then_what_was_added)
{
    static const thing three = {"three", 3};
    oct_registry things = things_new();
    cr_assert_null(oct_registry_find(&things, "three"));
    MUST(oct_registry_add(&things, &three));
    MUST(oct_registry_add(&things, &three));
    MUST(oct_registry_add(&things, &one));
    cr_assert_eq(oct_registry_count(&things), 3);
    cr_assert_eq(oct_registry_at(&things, 1), &two);
    cr_assert_eq(oct_registry_at(&things, 2), &three);
    cr_assert_eq(((const thing *)oct_registry_find(&things, "three"))->value, 3);
}

Test(registry, says_what_there_is)
{
    char text[OCT_REGISTRY_CHOICE_BYTES];
    oct_registry things = things_new();
    cr_assert_str_eq(oct_registry_choice(&things, " or ", text), "one or two");
    cr_assert_eq(oct_registry_index(&things, "two"), 1);
    cr_assert_eq(oct_registry_index(&things, "three"), 2);
    oct_fail_clear();
    oct_registry_report_missing(&things, "key", "onee", "look");
    oct_registry_report_missing(&things, "key", "other", "look");
    cr_assert_str_eq(oct_error_message(0), "key: there is no thing 'onee'; did you mean 'one'?");
    cr_assert_str_eq(oct_error_message(1), "key: there is no thing 'other'; look");
}

Test(registry, refuses_a_second_thing_of_one_name_and_one_too_many)
{
    static char names[OCT_REGISTRY_ADDED_MAX + 1][8];
    static thing many[OCT_REGISTRY_ADDED_MAX + 1];
    const thing other = {"two", 4};
    oct_registry things = things_new();
    cr_assert_eq(oct_registry_add(&things, &other), OCT_USAGE);
    check_said("there is a thing 'two' already; give yours another name");
    for (int i = 0; i <= OCT_REGISTRY_ADDED_MAX; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        many[i].name = names[i];
        cr_assert_eq(oct_registry_add(&things, &many[i]),
                     i < OCT_REGISTRY_ADDED_MAX ? OCT_OK : OCT_USAGE);
    }
    check_said("a thing 'n64' is one too many; plug-ins can add 64");
}
