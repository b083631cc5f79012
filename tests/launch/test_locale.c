/* A process whose locale has a decimal comma, by a library that calls setlocale as plug-ins, Python and user interfaces
 * do, reads and writes the same numbers. */
#include "tests/launch/small_data.h"

#include <criterion/criterion.h>

TestSuite(locale, .fini = leave_folder, .timeout = 300);

static const char *const setter = "#include <locale.h>\n"
                                  "#include <stdlib.h>\n"
                                  "__attribute__((constructor)) static void set(void)\n"
                                  "{\n"
                                  "    setlocale(LC_ALL, \"\");\n"
                                  "    if (*localeconv()->decimal_point != ',') abort();\n"
                                  "}\n";

/* What a run writes but for times, and what is made of it. */
#define FILES                                                                                      \
    "recipe.yaml model_check_result.txt model.int8.h5 of_c.c of_c.h of_onnx.onnx "                 \
    "of_tflite.tflite "                                                                            \
    "help.txt "                                                                                    \
    "checked.txt"
#define COMMANDS                                                                                   \
    "$octet train r.yaml output=$1 qat.lr=0.0125 data.mean=[0.25] -q >/dev/null && "               \
    "for f in c onnx tflite; do $octet export $1/model.int8.h5 --format $f -o $1/of_$f.$f -q "     \
    ">/dev/null || exit 1; done && $octet help recipe >$1/help.txt && "                            \
    "$octet verify $1/model.int8.h5 >$1/checked.txt && "                                           \
    "$octet inspect $1/model.int8.h5 >>$1/checked.txt"

Test(locale, with_a_decimal_comma_changes_no_number)
{
    enter_with_data();
    oct_tmp_write_text(&tmp, "set.c", setter);
    must("mkdir locales && localedef -i de_DE -f UTF-8 locales/de_DE.UTF-8 || "
         "{ echo 'Debian: install the package locales' >&2; exit 1; }");
    must("cc -shared -fPIC -o set.so set.c");
    oct_tmp_write_text(&tmp, "commands", "octet=" OCT_PROGRAM "\n" COMMANDS "\n");
    must("sh commands plain");
    must("LOCPATH=$PWD/locales LC_ALL=de_DE.UTF-8 LD_PRELOAD=$PWD/set.so sh commands comma");
    must("for f in " FILES "; do sed 's/comma/plain/g' comma/$f | cmp - plain/$f || exit 1; done");
    must("cmp plain/checkpoints/step-00000007.h5 comma/checkpoints/step-00000007.h5");
    must("grep -q 'lr: 0.0125' comma/recipe.yaml && grep -q '0x1\\.' comma/of_c.c");
}
