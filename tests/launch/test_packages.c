/* launch/packages.sh waits for the process that holds apt's locks, names it, and gives up in time. The
 * folders of apt are the test's, without any source, so nothing is downloaded or installed. */
#include "tests/support/program.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static const char configuration[] = "Dir::State \".\";\n"
                                    "Dir::State::lists \"lists\";\n"
                                    "Dir::State::status \"dpkg/status\";\n"
                                    "Dir::Cache \"cache\";\n"
                                    "Dir::Etc::sourcelist \"/dev/null\";\n"
                                    "Dir::Etc::sourceparts \"/dev/null\";\n";
static pid_t holder = -1;

static void start(void)
{
    if (system("command -v apt-get dpkg-query >/dev/null") != 0)
        cr_skip_test("apt-get is not installed");
    enter_folder();
    oct_tmp_write_text(&tmp, "lists/partial/none", "");
    oct_tmp_write_text(&tmp, "cache/archives/partial/none", "");
    oct_tmp_write_text(&tmp, "dpkg/status", "");
    oct_tmp_write_text(&tmp, "apt.conf", configuration);
    cr_assert(setenv("APT_CONFIG", "apt.conf", 1) == 0);
}

static void clean_up(void)
{
    if (holder > 0) {
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
    }
    leave_folder();
}

TestSuite(packages, .init = start, .fini = clean_up, .timeout = 60);

/* Another process holds the lock, as apt would, when this returns. */
static void hold_lock(const char *file, unsigned seconds)
{
    int ready[2];
    char byte = 0;
    cr_assert(pipe(ready) == 0);
    holder = fork();
    if (holder == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
        if (fcntl(fd, F_SETLK, &lock) == 0 && write(ready[1], &byte, 1) == 1) sleep(seconds);
        _exit(0);
    }
    close(ready[1]);
    cr_assert(holder > 0 && read(ready[0], &byte, 1) == 1, "%s cannot be locked", file);
    close(ready[0]);
}

static void install(const char *wait)
{
    cr_assert(setenv("OCT_APT_WAIT", wait, 1) == 0);
    job = oct_process_run(40, "bash", "-c",
                          "set -euo pipefail; sudo() { \"$@\"; }; source " OCT_SOURCE_DIR
                          "/launch/packages.sh; oct_install_packages octet-no-such-package",
                          NULL);
    oct_check_exit(job, 1); /* at best the package does not exist */
}

static void check_named(const char *lock)
{
    char words[200];
    snprintf(words, sizeof words, "%s. It is held by process %d (test_packages); waiting for it",
             lock, (int)holder);
    oct_check_said(job, words);
    cr_assert_eq(oct_process_said_times(&job, "; waiting for it"), 1);
}

Test(packages, a_lock_of_the_lists_is_waited_for)
{
    hold_lock("lists/lock", 3);
    install("30");
    check_named("lists/lock");
    oct_check_said(job, "Unable to locate package octet-no-such-package");
}

Test(packages, a_lock_of_dpkg_is_waited_for)
{
    hold_lock("dpkg/lock-frontend", 3);
    install("30");
    check_named("dpkg/lock-frontend");
    oct_check_said(job, "Unable to locate package octet-no-such-package");
}

Test(packages, the_wait_has_an_end_that_names_the_holder)
{
    hold_lock("lists/lock", 30);
    install("2");
    check_named("lists/lock");
    oct_check_said(job, "octet: error: packages cannot be installed: Could not get lock");
    oct_check_said(job, "; waited 2 s (OCT_APT_WAIT)");
    cr_assert(!oct_process_said(&job, "Unable to locate"), "%s", job.err);
}

Test(packages, without_a_lock_nobody_waits)
{
    install("30");
    oct_check_said(job, "octet: error: apt-get could not install octet-no-such-package");
    cr_assert(!oct_process_said(&job, "waiting"), "%s", job.err);
}

/* The list for containers has the package of each library that the program is linked with; libraries of the same name for
 * other processors do not count. */
Test(packages, what_runs_elsewhere_has_its_libraries)
{
    job = oct_process_run(
        40, "bash", "-c",
        "set -euo pipefail; source " OCT_SOURCE_DIR "/launch/packages.sh\n"
        "[[ $OCT_RELEASE != *'; tested are'* ]] || { echo not tested; exit 0; }\n"
        "for file in $(objdump -p " OCT_BINARY_DIR
        "/octet | awk '$1 == \"NEEDED\" {print $2}'); do\n"
        "    package=$(dpkg -S \"*/$(cc -print-multiarch)/*$file\" | sed -n '1s/:.*//p')\n"
        "    [[ \" libc6 $OCT_PACKAGES_RUN \" == *\" $package \"* ]] || "
        "echo \"$file: $package\"\ndone; echo looked",
        NULL);
    oct_check_exit(job, 0);
    if (oct_process_said(&job, "not tested")) cr_skip_test("packages have other names here");
    cr_assert_str_eq(job.out, "looked\n");
}
