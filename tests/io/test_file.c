/* Whole files: written wholly or not at all, read in full, folders made, locked and cleaned. */
#include "io/file/file.h"

#include "core/base/mem.h"
#include "tests/support/check_status.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static oct_tmp tmp;

static void start(void)
{
    oct_tmp_create(&tmp);
}

static void end(void)
{
    oct_tmp_remove(&tmp);
}

TestSuite(file, .init = start, .fini = end);

static void check_content(const char *path, const void *wanted, size_t size)
{
    void *bytes;
    size_t got;
    cr_assert_eq(oct_file_read(path, size, &bytes, &got), OCT_OK, "%s", oct_error_message(0));
    cr_assert_eq(got, size);
    cr_assert_eq(memcmp(bytes, wanted, size), 0);
    cr_assert_eq(((char *)bytes)[size], '\0');
    oct_free(&bytes);
}

static size_t count_files(void)
{
    DIR *dir = opendir(tmp.path);
    size_t count = 0;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

Test(file, gives_back_what_was_written_whatever_the_size)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 65535, 65536, 65537, 300001};
    static char bytes[300001];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    const char *path = oct_tmp_path(&tmp, "a");
    for (size_t i = 0; i < OCT_COUNT(sizes); i++) {
        cr_assert_eq(oct_file_write(path, bytes, sizes[i]), OCT_OK, "%s", oct_error_message(0));
        check_content(path, bytes, sizes[i]);
    }
    cr_assert_eq(count_files(), 1);
    check_nothing_held();
}

Test(file, writes_beside_the_working_folder)
{
    cr_assert_eq(chdir(tmp.path), 0);
    cr_assert_eq(oct_file_write("bare", "x", 1), OCT_OK);
    check_content("bare", "x", 1);
}

Test(file, reads_files_whose_size_is_not_known_before)
{
    void *bytes;
    size_t size;
    cr_assert_eq(oct_file_read("/proc/self/status", 1 << 20, &bytes, &size), OCT_OK);
    cr_assert(size > 100 && strncmp(bytes, "Name:", 5) == 0);
    oct_free(&bytes);
    cr_assert_eq(oct_file_read("/proc/self/status", 10, &bytes, &size), OCT_DATA);
    cr_assert_null(bytes);
}

Test(file, waits_for_no_pipe_and_reads_no_device, .timeout = 30)
{
    void *bytes;
    size_t size;
    const char *fifo = oct_tmp_path(&tmp, "fifo");
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    cr_assert_eq(oct_file_read(fifo, 10, &bytes, &size), OCT_DATA);
    check_said("fifo: is a pipe or a device");
    cr_assert_eq(oct_file_read("/dev/zero", 10, &bytes, &size), OCT_DATA);
    check_said("/dev/zero: is a pipe or a device");
}

Test(file, says_why_a_file_cannot_be_read)
{
    void *bytes;
    size_t size;
    const char *missing = oct_tmp_path(&tmp, "missing");
    cr_assert_eq(oct_file_read(missing, 10, &bytes, &size), OCT_DATA);
    check_said(missing);
    check_said("No such file");
    cr_assert_eq(oct_file_read(tmp.path, 10, &bytes, &size), OCT_DATA);
    check_said("is a folder");
    const char *large = oct_tmp_write_text(&tmp, "large", "12345678901");
    cr_assert_eq(oct_file_read(large, 10, &bytes, &size), OCT_DATA);
    check_said("larger than the 10 bytes");
    cr_assert_eq(oct_file_read(large, 11, &bytes, &size), OCT_OK);
    oct_free(&bytes);
}

Test(file, read_survives_a_lack_of_memory)
{
    void *bytes;
    size_t size;
    const char *path = oct_tmp_write_text(&tmp, "a", "text");
    oct_mem_fail_after(1);
    cr_assert_eq(oct_file_read(path, 10, &bytes, &size), OCT_RESOURCE);
    cr_assert_null(bytes);
    oct_mem_fail_after(0);
    check_nothing_held();
}

Test(file, a_full_disk_leaves_the_old_file_and_nothing_else)
{
    static char bytes[100000];
    struct rlimit limit = {50000, 50000};
    const char *path = oct_tmp_write_text(&tmp, "a", "old");
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(oct_file_write(path, bytes, sizeof bytes), OCT_RESOURCE);
    check_said(path);
    check_said("make room");
    check_content(path, "old", 3);
    cr_assert_eq(count_files(), 1);
    cr_assert_eq(oct_file_write(path, bytes, 50000), OCT_OK);
}

Test(file, refuses_to_replace_what_is_no_plain_file)
{
    cr_assert_eq(oct_file_write("/dev/null", "x", 1), OCT_RESOURCE);
    check_said("not a plain file");
    struct stat info;
    cr_assert(stat("/dev/null", &info) == 0 && S_ISCHR(info.st_mode));
    cr_assert_eq(oct_file_write(tmp.path, "x", 1), OCT_RESOURCE);
    cr_assert_eq(oct_file_write(oct_tmp_path(&tmp, "no/folder"), "x", 1), OCT_RESOURCE);
    check_said("No such file");
    cr_assert_eq(count_files(), 0);
}

Test(file, cleaning_takes_only_what_killed_writers_left)
{
    static const char *const left[] = {"a.h5.123-0.tmp", "manifest.json.1-42.tmp"};
    static const char *const kept[] = {
        "a.tmp",      "a.h5.123.tmp", "a-1.tmp",  "1-2.tmp",  ".1-2.tmp",
        "a.1-2.tmp2", "a.x1-2.tmp",   "a.1-.tmp", "a.-2.tmp", "a"};
    for (size_t i = 0; i < OCT_COUNT(left); i++)
        oct_tmp_write_text(&tmp, left[i], "");
    for (size_t i = 0; i < OCT_COUNT(kept); i++)
        oct_tmp_write_text(&tmp, kept[i], "");
    cr_assert_eq(symlink(".", oct_tmp_path(&tmp, "link")), 0);
    oct_file_clean(oct_tmp_path(&tmp, "link")); /* of somebody else, perhaps */
    for (size_t i = 0; i < OCT_COUNT(left); i++)
        cr_assert(oct_file_exists(oct_tmp_path(&tmp, left[i])), "%s", left[i]);
    oct_file_clean(tmp.path);
    for (size_t i = 0; i < OCT_COUNT(left); i++)
        cr_assert_not(oct_file_exists(oct_tmp_path(&tmp, left[i])), "%s", left[i]);
    for (size_t i = 0; i < OCT_COUNT(kept); i++)
        cr_assert(oct_file_exists(oct_tmp_path(&tmp, kept[i])), "%s", kept[i]);
    oct_file_clean(oct_tmp_path(&tmp, "no folder"));
}

/* Also those of its own number, as of a container that was killed and is started again. */
Test(file, the_next_writer_of_a_file_removes_what_killed_ones_left)
{
    char own[4][64];
    const char *left[] = {"a.html.123-0.tmp", own[0], own[1], own[2], own[3]};
    static const char *const kept[] = {"b.html.1-1.tmp", "a.html.x.1-1.tmp", "x.a.html.1-1.tmp",
                                       "a.html.tmp", "a.html.7-7.tmp"};
    oct_new_file *alive;
    const char *path = oct_tmp_path(&tmp, "a.html");
    for (int i = 0; i < 4; i++)
        snprintf(own[i], sizeof own[i], "a.html.%ld-%d.tmp", (long)getpid(), i + 1);
    cr_assert_eq(oct_new_file_begin(&alive, path, 3), OCT_OK);
    for (size_t i = 0; i < OCT_COUNT(left); i++)
        oct_tmp_write_text(&tmp, left[i], "");
    for (size_t i = 0; i + 1 < OCT_COUNT(kept); i++)
        oct_tmp_write_text(&tmp, kept[i], "");
    cr_assert_eq(symlink("b.html.1-1.tmp", oct_tmp_path(&tmp, kept[4])), 0);
    path = oct_tmp_path(&tmp, "a.html");
    cr_assert_eq(oct_file_write(path, "new", 3), OCT_OK, "%s", oct_error_message(0));
    for (size_t i = 0; i < OCT_COUNT(left); i++)
        cr_assert_not(oct_file_exists(oct_tmp_path(&tmp, left[i])), "%s", left[i]);
    for (size_t i = 0; i < OCT_COUNT(kept); i++)
        cr_assert(oct_file_exists(oct_tmp_path(&tmp, kept[i])), "%s", kept[i]);
    oct_file_clean(tmp.path); /* another writer lives */
    cr_assert_eq(oct_new_file_add(alive, "old", 3), OCT_OK);
    cr_assert_eq(oct_new_file_commit(&alive), OCT_OK, "%s", oct_error_message(0));
    check_content(oct_tmp_path(&tmp, "a.html"), "old", 3);
}

Test(file, a_killed_writer_leaves_a_name_that_cleaning_knows)
{
    static char bytes[1 << 16];
    const char *path = oct_tmp_path(&tmp, "a");
    struct rlimit limit = {1000, 1000};
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_DFL); /* ends the writer in the middle of its file */
        setrlimit(RLIMIT_FSIZE, &limit);
        (void)!oct_file_write(path, bytes, sizeof bytes);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) cr_assert_eq(count_files(), 1);
    oct_file_clean(tmp.path);
    cr_assert_eq(count_files(), 0);
}

Test(file, makes_no_folder_where_a_link_leads_nowhere)
{
    cr_assert_eq(symlink("nowhere", oct_tmp_path(&tmp, "link")), 0);
    cr_assert_eq(oct_make_folders(oct_tmp_path(&tmp, "link")), OCT_RESOURCE);
    check_said("link: is a link to what is not there; make that folder, or choose another place");
}

Test(file, makes_folders_with_their_parents)
{
    struct stat info;
    const char *deep = oct_tmp_path(&tmp, "a//b/c/");
    cr_assert_eq(oct_make_folders(deep), OCT_OK, "%s", oct_error_message(0));
    cr_assert(stat(deep, &info) == 0 && S_ISDIR(info.st_mode));
    cr_assert_eq(oct_make_folders(deep), OCT_OK);
    cr_assert_eq(oct_make_folders("/"), OCT_OK);
    oct_tmp_write_text(&tmp, "file", "");
    cr_assert_eq(oct_make_folders(oct_tmp_path(&tmp, "file/x")), OCT_RESOURCE);
    check_said("is a file where a folder is needed");
    cr_assert_eq(oct_make_folders(oct_tmp_path(&tmp, "file")), OCT_RESOURCE);
    check_nothing_held();
}

Test(file, sha256_has_the_digests_of_fips_180)
{
    uint8_t digest[32], pieces[32];
    char text[65];
    oct_sha256("", 0, digest);
    cr_assert_str_eq(oct_hex(digest, text),
                     "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    oct_sha256("abc", 3, digest);
    cr_assert_str_eq(oct_hex(digest, text),
                     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    oct_sha256_state *state = NULL;
    cr_assert_eq(oct_sha256_begin(&state), OCT_OK);
    oct_sha256_add(state, "a", 1);
    oct_sha256_add(state, "", 0);
    oct_sha256_add(state, "bc", 2);
    oct_sha256_end(&state, pieces);
    cr_assert_null(state);
    cr_assert_eq(memcmp(digest, pieces, 32), 0);
    oct_sha256_end(&state, pieces);
    check_nothing_held();
}

Test(file, a_locked_folder_names_its_holder)
{
    int mine, other;
    char holder[64];
    cr_assert_eq(oct_folder_lock(tmp.path, &mine), OCT_OK, "%s", oct_error_message(0));
    cr_assert_eq(oct_folder_lock(tmp.path, &other), OCT_RESOURCE);
    cr_assert_eq(other, -1);
    snprintf(holder, sizeof holder, "process %ld on host ", (long)getpid());
    check_said(tmp.path);
    check_said(holder);
    oct_folder_unlock(&mine);
    cr_assert_eq(mine, -1);
    cr_assert_eq(oct_folder_lock(tmp.path, &other), OCT_OK);
    oct_folder_unlock(&other);
    oct_folder_unlock(&other);
    check_nothing_held();
}

Test(file, a_lock_ends_with_its_process)
{
    int ready[2], fd;
    char byte;
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int own;
        if (oct_folder_lock(tmp.path, &own) != OCT_OK) _exit(1);
        (void)!write(ready[1], "x", 1);
        pause();
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    cr_assert_eq(oct_folder_lock(tmp.path, &fd), OCT_RESOURCE);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    cr_assert_eq(oct_folder_lock(tmp.path, &fd), OCT_OK);
    oct_folder_unlock(&fd);
}

Test(file, a_lock_file_cannot_send_control_characters_to_the_terminal)
{
    int mine, other;
    cr_assert_eq(oct_folder_lock(tmp.path, &mine), OCT_OK);
    cr_assert_eq(pwrite(mine, "\033[2Jevil\n", 9, 0), 9);
    cr_assert_eq(oct_folder_lock(tmp.path, &other), OCT_RESOURCE);
    check_said("?[2Jevil");
    oct_folder_unlock(&mine);
}

Test(file, a_folder_that_is_not_there_cannot_be_locked)
{
    int fd;
    cr_assert_eq(oct_folder_lock(oct_tmp_path(&tmp, "none"), &fd), OCT_RESOURCE);
    check_said("cannot be locked: No such file");
}
