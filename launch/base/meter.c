/* Under Open MPI a rank's stdout is always a terminal and its stderr never is, wherever mpirun's own
 * output goes; so the link of the parent's stderr decides there. Elsewhere under a launcher (srun, or
 * a host without mpirun's process) lines are right.
 */
#include "launch/base/meter.h"

#include "core/base/log.h"
#include "core/base/text.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const double bar_every_s = 0.25, line_every_s = 10;

/* As the command line asks: seconds between lines, and whether they are one bar. */
static bool bar;
static double every = HUGE_VAL;

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

static bool parent_has_terminal(void)
{
    char link[64], target[256];
    snprintf(link, sizeof(link), "/proc/%ld/fd/2", (long)getppid());
    ssize_t length = readlink(link, target, sizeof(target) - 1);
    if (length <= 0) return false;
    target[length] = '\0';
    return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0;
}

bool oct_progress_terminal(void)
{
    const char *term = getenv("TERM");
    if (term && strcmp(term, "dumb") == 0) return false;
    if (is_set("OMPI_COMM_WORLD_SIZE")) return parent_has_terminal();
    if (is_set("PMI_RANK") || is_set("PMIX_RANK") || is_set("SLURM_PROCID")) return false;
    return isatty(STDERR_FILENO) == 1;
}

oct_short_text oct_text_count(int64_t value)
{
    oct_short_text out = {""};
    char digits[32], *to = out.text;
    int length = snprintf(digits, sizeof(digits), "%lld", (long long)value);
    for (int i = 0; i < length; i++) {
        if (i > 0 && digits[i - 1] != '-' && (length - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    return out;
}

oct_short_text oct_text_time(double seconds)
{
    oct_short_text out;
    long long all = seconds > 0 ? llrint(fmin(seconds, 1e9)) : 0;
    long long hours = all / 3600, minutes = all / 60 % 60;
    if (hours > 0)
        snprintf(out.text, sizeof out.text, "%lld:%02lld:%02lld", hours, minutes, all % 60);
    else
        snprintf(out.text, sizeof out.text, "%lld:%02lld", minutes, all % 60);
    return out;
}

bool oct_progress_bar(const char *choice)
{
    return choice ? strcmp(choice, "bar") == 0 : oct_progress_terminal();
}

double oct_progress_every(const char *choice, double lines_s)
{
    if (choice && strcmp(choice, "none") == 0) return HUGE_VAL;
    return oct_progress_bar(choice) ? bar_every_s : lines_s;
}

void oct_meter_choose(const char *choice)
{
    bar = oct_progress_bar(choice);
    every = oct_progress_every(choice, line_every_s);
}

void oct_meter_begin(oct_meter *meter, const char *work, const char *unit, int64_t total)
{
    const double now = oct_seconds();
    *meter = (oct_meter){.work = work, .unit = unit, .total = total, .begin = now, .shown = now};
}

/* The stderr of a rank is a pipe, but its terminal is that of the process that started it. */
static int terminal_columns(void)
{
    enum { USUAL = 80 };
    struct winsize size = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) {
        const int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
        if (terminal >= 0) {
            ioctl(terminal, TIOCGWINSZ, &size);
            close(terminal);
        }
    }
    return size.ws_col > 0 ? size.ws_col : USUAL;
}

/* "[####------]  42 %  left 0:21  qat  epoch 2/3  step 512/938": in a narrow terminal the last words go first, so that
 * it stays one line, and then the bar. */
void oct_meter_line(bool drawn, double share, double seconds_left, const char *text)
{
    enum { NARROW = 40, SHORTEST = 10, LONGEST = 40, EDGES = 3 };
    static const char done[LONGEST + 1] = "########################################",
                                     open[LONGEST + 1] = "----------------------------------------";
    char words[512], bar_text[LONGEST + EDGES + 1] = "";
    const oct_short_text left = oct_text_time(seconds_left);
    if (!drawn) {
        oct_log(OCT_LOG_INFO, "%s  left %s", text, left.text);
        return;
    }
    share = fmin(share, 1);
    int room = terminal_columns() - 1;
    const int length =
        snprintf(words, sizeof words, "%3d %%  left %s  %s", (int)(100 * share), left.text, text);
    if (room >= NARROW) {
        const int width = (int)fmin(fmax(room - EDGES - length, SHORTEST), LONGEST);
        const int full = (int)(share * width);
        room -= snprintf(bar_text, sizeof bar_text, "[%.*s%.*s] ", full, done, width - full, open);
    }
    if (length > room) {
        int end = room;
        while (end > 0 && strncmp(words + end, "  ", 2) != 0)
            end--;
        words[end > 0 ? end : room] = '\0';
    }
    oct_log_bar("%s%s", bar_text, words);
}

/* "evaluate  3,200/10,000 images  32 %  3,900 images/s  left 0:02" */
void oct_meter_show(oct_meter *meter, int64_t done)
{
    const double now = oct_seconds(), spent = now - meter->begin;
    char percent[16] = "", text[256];
    if (now - meter->shown < every || done <= 0 || meter->total <= 0) return;
    const double each = spent / (double)done, share = (double)done / (double)meter->total;
    if (!bar) snprintf(percent, sizeof percent, "  %d %%", (int)(100 * share));
    snprintf(text, sizeof text, "%s  %s/%s %s%s  %s %s/s", meter->work, oct_text_count(done).text,
             oct_text_count(meter->total).text, meter->unit, percent,
             each > 1 ? "less than 1" : oct_text_count((int64_t)(1 / each)).text, meter->unit);
    oct_meter_line(bar, share, each * (double)(meter->total - done), text);
    meter->shown = now;
}

void oct_meter_end(const oct_meter *meter)
{
    if (bar && meter->shown > meter->begin) oct_log_bar_end();
}
