/* What long commands show: a bar on a terminal (a pseudo terminal, by script of util-linux), and elsewhere lines
 * without a control character. */
#include "tests/launch/small_data.h"

#include <string.h>

/* Long trainings take small steps, and enough of them that a bar, which begins after a quarter of a second, is seen on a
 * fast machine too. */
#define SMALL_STEPS " batch.size=8 data.train_limit=24 "

TestSuite(terminal, .init = enter_with_data, .fini = leave_folder, .timeout = 200);

/* Everything that a terminal gets to see of a command is in the file "seen". */
static void on_terminal(const char *command)
{
    char line[512];
    snprintf(line, sizeof line, "TERM=xterm script -qefc '%s' seen >/dev/null", command);
    shell(line);
    oct_check_exit(job, 0);
}

static void redirected(const char *command)
{
    char line[512];
    snprintf(line, sizeof line, "TERM=xterm %s >out 2>err", command);
    shell(line);
    oct_check_exit(job, 0);
    must("! grep -q \"$(printf '[\\r\\033]')\" out err");
}

Test(terminal, shows_a_bar_for_training_and_takes_it_away)
{
    on_terminal(OCT_PROGRAM " train r.yaml output=seen-run " SMALL_STEPS "qat.epochs=400");
    must("grep -q \"$(printf '\\r\\033.K')\" seen");
    must(
        "grep -aoE '\\[#+-+\\] +[0-9]+ %  left [0-9:]+  qat  epoch [0-9]+/400  step [0-9]+/[0-9]+  "
        "loss "
        "[0-9.]+' seen | head -n 1 | grep -q qat");
}

Test(terminal, that_is_narrow_gets_one_line_of_whole_words)
{
    on_terminal(
        "stty cols 50; " OCT_PROGRAM " train r.yaml output=narrow " SMALL_STEPS "qat.epochs=400; "
        "stty cols 20; " OCT_PROGRAM " train r.yaml output=tiny " SMALL_STEPS "qat.epochs=400");
    must("tr '\\r' '\\n' <seen | sed 's/\033.K//' | grep -a '%  left' >bars");
    must("grep -qE '^.[#-]+. .{25}' bars && grep -q '^ ' bars && ! grep -E '^.{50}|^ .{19}' bars");
    must("! grep -vE '([0-9]|[a-z])$' bars && ! grep -E '(epoch|step)$' bars");
}

/* Waits for the bar of a run, does something to a process, and shows what the terminal has got by then. */
static void disturb(const char *words, const char *action)
{
    char line[700];
    snprintf(line, sizeof line,
             "TERM=xterm script -qefc '" OCT_PROGRAM
             " train r.yaml output=bar float.epochs=10000" SMALL_STEPS "%s' seen >/dev/null & "
             "until grep -qa left seen; do kill -0 $! || exit 99; sleep 0.05; done; %s; wait $!",
             words, action);
    must("rm -rf bar seen");
    shell(line);
}

Test(terminal, has_no_bar_before_what_ended_a_run)
{
    disturb("", "read -r _ pid _ <bar/lock; kill -INT $pid");
    oct_check_exit(job, 75);
    must("grep -qaE '(\033.K|^)octet: stopped' seen && ! grep -qaE '[0-9]octet: ' seen");
    disturb("--ranks 2", "read -r _ pid _ <bar/lock; kill -KILL $pid");
    oct_check_exit(job, 6);
    must("grep -qaE '(\033.K|^)octet: error: rank 0' seen && ! grep -qaE '[0-9]octet: ' seen");
}

Test(terminal, shows_a_bar_for_sensitivity)
{
    must(OCT_PROGRAM " train r.yaml output=deep model.name=resnet20 2>err || { cat err; exit 1; }");
    on_terminal(OCT_PROGRAM " sensitivity deep -o table");
    must("grep -qaE '%  left [0-9:]+  sensitivity  [0-9]+/[0-9]+ forwards  [a-z0-9 ,]+ forwards/s' "
         "seen");
}

Test(terminal, that_is_none_gets_no_control_character)
{
    redirected(OCT_PROGRAM " train r.yaml output=plain " SMALL_STEPS "qat.epochs=400");
    redirected(OCT_PROGRAM " sensitivity plain");
    redirected(OCT_PROGRAM " eval plain/model.int8.h5");
    redirected(OCT_PROGRAM " convert plain -o again.int8.h5");
    redirected(OCT_PROGRAM " verify again.int8.h5 --golden-only");
    redirected(OCT_PROGRAM " compare plain again.int8.h5");
}

Test(terminal, is_quiet_on_request)
{
    on_terminal(OCT_PROGRAM " train r.yaml output=none --progress none -q --json " SMALL_STEPS
                            "qat.epochs=400");
    must("! grep -q \"$(printf '\\033')\" seen");
    on_terminal(OCT_PROGRAM " train r.yaml output=lines --progress lines " SMALL_STEPS
                            "qat.epochs=400");
    must("! grep -q \"$(printf '\\033')\" seen");
}
