#include "launch/ranks/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

bool oct_spawn(const char *const *argv, int out, pid_t *pid)
{
    posix_spawn_file_actions_t streams;
    posix_spawnattr_t group;
    posix_spawn_file_actions_init(&streams);
    posix_spawnattr_init(&group);
    posix_spawn_file_actions_addopen(&streams, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (out >= 0)
            posix_spawn_file_actions_adddup2(&streams, out, fd);
        else
            posix_spawn_file_actions_addopen(&streams, fd, "/dev/null", O_WRONLY, 0);
    }
    posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&group, 0);
    const int error =
        posix_spawnp(pid, argv[0], &streams, &group, (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&group);
    posix_spawn_file_actions_destroy(&streams);
    errno = error;
    return error == 0;
}

bool oct_spawn_over(pid_t pid, bool *well)
{
    int ended = 0;
    if (waitpid(pid, &ended, WNOHANG) != pid) return false;
    *well = WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
    return true;
}

void oct_spawn_end(pid_t pid)
{
    kill(-pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}
