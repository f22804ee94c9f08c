/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that files are written completely or not at all, and that only regular
 * files are read.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "core/base/file.h"
#include "tests/scratch.h"

static size_t count_entries(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count - 2;
}

/* Memory that the process has of mapped files, in bytes. */
static size_t mapped_memory(void)
{
    char line[256];
    size_t kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    assert_non_null(status);
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "RssFile:", 8) == 0)
            kilobytes = strtoul(line + 8, NULL, 10);
    assert_int_equal(fclose(status), 0);
    return kilobytes * 1024;
}

static void a_part_that_is_released_takes_no_memory(void **state)
{
    enum { SIZE = 16 << 20, PART = 12 << 20 };
    (void)state;
    xr_err err = { "" };
    xr_map_file map;
    size_t sums[2] = { 0, 0 };
    char *data = calloc(SIZE, 1);
    assert_non_null(data);
    for (size_t i = 0; i < SIZE; i += 4096)
        data[i + 1] = (char)(i >> 12);
    const char *path = scratch_path("wide");
    assert_int_equal(xr_file_write(path, data, SIZE, &err), XRAY_OK);
    free(data);
    assert_int_equal(xr_file_map(path, &err, &map), XRAY_OK);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < SIZE; i++)
            sums[turn] += map.data[i];
        size_t before = mapped_memory();
        xr_file_release(map.data + 100, PART);
        xr_file_release(map.data, 0);
        assert_true(mapped_memory() + PART / 2 < before);
    }
    assert_true(sums[0] > 0 && sums[0] == sums[1]);
    xr_file_unmap(&map);
}

static void written_file_reads_back(void **state)
{
    (void)state;
    xr_err err = { "" };
    char *data;
    size_t size;
    xr_map_file map;
    assert_int_equal(xr_dir_make(scratch_path("w/x/y"), &err), XRAY_OK);
    assert_int_equal(xr_dir_make(scratch_path("w/x/y"), &err), XRAY_OK);
    assert_int_equal(xr_file_write(scratch_path("w/f"), "old", 3, &err),
                     XRAY_OK);
    assert_int_equal(xr_file_write(scratch_path("w/f"), "hello", 5, &err),
                     XRAY_OK);
    assert_int_equal(count_entries(scratch_path("w")),
                     2); /* no temporary is left */
    assert_int_equal(xr_file_read(scratch_path("w/f"), 5, &err, &data, &size),
                     XRAY_OK);
    assert_int_equal(size, 5);
    assert_string_equal(data, "hello");
    free(data);
    assert_int_equal(xr_file_read(scratch_path("w/f"), 4, &err, &data, &size),
                     XRAY_E_RANGE);
    assert_non_null(strstr(err.text, "limit of 4 bytes"));
    assert_int_equal(xr_file_map(scratch_path("w/f"), &err, &map), XRAY_OK);
    assert_memory_equal(map.data, "hello", 5);
    xr_file_unmap(&map);
    assert_int_equal(xr_file_read(scratch_path("no"), 9, &err, &data, &size),
                     XRAY_E_IO);
    assert_non_null(strstr(err.text, "/no: cannot open"));
    assert_int_equal(xr_file_read(scratch_path("w"), 9, &err, &data, &size),
                     XRAY_E_IO);
    assert_int_equal(xr_file_map(scratch_path("w"), &err, &map), XRAY_E_IO);
    assert_int_equal(xr_dir_make(scratch_path("w/f/g"), &err), XRAY_E_IO);
}

static void large_file_is_copied(void **state)
{
    (void)state;
    size_t size = 300001;
    char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 7 & 127);
    char from[XR_PATH_CAP];
    char *again;
    size_t got;
    (void)snprintf(from, sizeof from, "%s", scratch_path("large"));
    assert_int_equal(xr_file_write(from, bytes, size, NULL), XRAY_OK);
    assert_int_equal(xr_file_copy(from, scratch_path("copy"), NULL), XRAY_OK);
    assert_int_equal(
        xr_file_read(scratch_path("copy"), size, NULL, &again, &got), XRAY_OK);
    assert_int_equal(got, size);
    assert_memory_equal(bytes, again, size);
    free(again);
    free(bytes);
}

static void dropped_write_leaves_the_old_file(void **state)
{
    (void)state;
    xr_file_out file;
    char path[XR_PATH_CAP];
    char *data;
    size_t size;
    assert_int_equal(xr_dir_make(scratch_path("drop"), NULL), XRAY_OK);
    (void)snprintf(path, sizeof path, "%s", scratch_path("drop/f"));
    assert_int_equal(xr_file_write(path, "old", 3, NULL), XRAY_OK);
    assert_int_equal(xr_file_begin(path, NULL, &file), XRAY_OK);
    assert_int_equal(xr_file_append(&file, "new", 3, NULL), XRAY_OK);
    xr_file_drop(&file);
    assert_int_equal(xr_file_read(path, 9, NULL, &data, &size), XRAY_OK);
    assert_string_equal(data, "old");
    free(data);
    assert_int_equal(count_entries(scratch_path("drop")), 1);
    if (access("/dev/full", W_OK) == 0)
        assert_int_equal(xr_file_write("/dev/full", "x", 1, NULL), XRAY_E_IO);
}

static void folder_is_committed_and_removed(void **state)
{
    (void)state;
    char from[XR_PATH_CAP];
    char to[XR_PATH_CAP];
    xr_err err = { "" };
    (void)snprintf(from, sizeof from, "%s", scratch_path("new"));
    (void)snprintf(to, sizeof to, "%s", scratch_path("kept"));
    assert_int_equal(xr_dir_make(scratch_path("new/sub"), &err), XRAY_OK);
    assert_int_equal(xr_file_write(scratch_path("outside"), "x", 1, &err),
                     XRAY_OK);
    assert_int_equal(symlink("../../outside", scratch_path("new/sub/link")), 0);
    assert_int_equal(xr_dir_commit(from, to, &err), XRAY_OK);
    assert_int_equal(xr_path_is_dir(to), 1);
    assert_int_equal(xr_dir_make(from, &err), XRAY_OK);
    assert_int_equal(xr_dir_commit(from, to, &err), XRAY_E_IO);
    assert_int_equal(xr_dir_remove(to, &err), XRAY_OK);
    assert_int_equal(xr_path_exists(to), 0);
    assert_int_equal(xr_path_exists(scratch_path("outside")), 1);
    assert_int_equal(xr_dir_remove(to, &err), XRAY_OK);
}

/* Expects that each reader refuses `path` and names its kind. */
static void expect_refused(const char *path, const char *kind)
{
    char said[512];
    char *data;
    size_t size;
    xr_map_file map;
    xr_err err = { "" };
    (void)snprintf(said, sizeof said,
                   "%s: this is %s, but a regular file is expected", path,
                   kind);
    assert_int_equal(xr_file_read(path, 9, &err, &data, &size), XRAY_E_IO);
    assert_string_equal(err.text, said);
    err.text[0] = '\0';
    assert_int_equal(xr_file_map(path, &err, &map), XRAY_E_IO);
    assert_string_equal(err.text, said);
    err.text[0] = '\0';
    assert_int_equal(xr_file_copy(path, scratch_path("to"), &err), XRAY_E_IO);
    assert_string_equal(err.text, said);
    assert_false(xr_path_exists(scratch_path("to")));
}

/* A pipe without a writer could block a reader forever, and one without a
 * reader a writer; the alarm ends a suite that waits. */
static void only_regular_files_are_opened(void **state)
{
    (void)state;
    char path[200];
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    (void)alarm(60);
    assert_int_equal(xr_dir_make(scratch_path("odd"), NULL), XRAY_OK);
    (void)snprintf(path, sizeof path, "%s", scratch_path("odd/pipe"));
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(path, "a pipe");
    assert_int_equal(xr_file_write(path, "x", 1, NULL), XRAY_E_IO);
    (void)snprintf(path, sizeof path, "%s", scratch_path("odd/link"));
    assert_int_equal(symlink("pipe", path), 0);
    expect_refused(path, "a pipe");
    (void)snprintf(name.sun_path, sizeof name.sun_path, "%s",
                   scratch_path("odd/s"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const void *)&name, sizeof name), 0);
    expect_refused(name.sun_path, "a socket");
    (void)close(fd);
    expect_refused("/dev/zero", "a device");
    expect_refused(scratch_dir(), "a folder");
    (void)alarm(0);
}

static void paths_are_joined_and_tested(void **state)
{
    (void)state;
    char small[8];
    assert_int_equal(xr_path_join("ab", "cde", small, sizeof small, NULL),
                     XRAY_OK);
    assert_string_equal(small, "ab/cde");
    assert_int_equal(xr_path_join("ab/", "cdefg", small, sizeof small, NULL),
                     XRAY_E_RANGE);
}

static void parents_are_folders_above(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "a/b", "a" },    { "/a/b/c", "/a/b" }, { "a", "." },
        { "/a", "/" },     { "/", "/" },         { "a//b", "a" },
        { "a/b//", "a" },  { "a/", "." },        { "//a", "/" },
        { "/a//b", "/a" }, { "", "." },          { "../a", ".." },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *got = xr_path_parent(cases[i][0]);
        assert_non_null(got);
        assert_string_equal(got, cases[i][1]);
        free(got);
    }
}

/* A link that takes the place of a folder does not lead a removal away. */
static void link_to_a_folder_is_not_followed(void **state)
{
    (void)state;
    char link[XR_PATH_CAP];
    xr_err err = { "" };
    assert_int_equal(xr_dir_make(scratch_path("target"), &err), XRAY_OK);
    assert_int_equal(xr_file_write(scratch_path("target/kept"), "x", 1, &err),
                     XRAY_OK);
    (void)snprintf(link, sizeof link, "%s", scratch_path("way"));
    assert_int_equal(symlink("target", link), 0);
    assert_int_equal(xr_dir_remove(link, &err), XRAY_E_IO);
    assert_int_equal(xr_path_exists(scratch_path("target/kept")), 1);
    assert_int_equal(remove(link), 0);
}

/* Every call closes what it opened, whether it succeeds or fails. */
static void calls_leave_no_file_open(void **state)
{
    (void)state;
    static const char descriptors[] = "/proc/self/fd";
    char folder[XR_PATH_CAP];
    char from[XR_PATH_CAP];
    char to[XR_PATH_CAP];
    char *data = NULL;
    size_t size = 0;
    xr_map_file map;
    (void)snprintf(folder, sizeof folder, "%s", scratch_path("closed"));
    (void)snprintf(from, sizeof from, "%s", scratch_path("closed/from"));
    (void)snprintf(to, sizeof to, "%s", scratch_path("closed/to"));
    size_t before = count_entries(descriptors);
    assert_int_equal(xr_dir_make(scratch_path("closed/sub/deep"), NULL),
                     XRAY_OK);
    assert_int_equal(xr_file_write(from, "text", 4, NULL), XRAY_OK);
    assert_int_equal(xr_file_write(folder, "text", 4, NULL), XRAY_E_IO);
    assert_int_equal(xr_file_copy(from, to, NULL), XRAY_OK);
    assert_int_equal(xr_file_copy(from, folder, NULL), XRAY_E_IO);
    assert_int_equal(xr_file_copy(folder, to, NULL), XRAY_E_IO);
    assert_int_equal(xr_file_read(to, 4, NULL, &data, &size), XRAY_OK);
    free(data);
    assert_int_equal(xr_file_read(to, 3, NULL, &data, &size), XRAY_E_RANGE);
    assert_int_equal(xr_file_read(folder, 4, NULL, &data, &size), XRAY_E_IO);
    assert_int_equal(xr_file_map(to, NULL, &map), XRAY_OK);
    xr_file_unmap(&map);
    assert_int_equal(xr_dir_sync(folder, NULL), XRAY_OK);
    assert_int_equal(xr_dir_sync_parent(to, NULL), XRAY_OK);
    assert_int_equal(xr_dir_sync(to, NULL), XRAY_E_IO);
    assert_int_equal(xr_dir_remove(folder, NULL), XRAY_OK);
    assert_int_equal(count_entries(descriptors), before);
}

/* Files of /proc say that they have no bytes. This one has a line for each of
 * many mappings. */
static void files_of_unknown_size_are_read_whole(void **state)
{
    (void)state;
    enum { PAGES = 600 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *data = NULL;
    size_t size = 0;
    size_t lines = 0;
    xr_err err = { .text = "" };
    char *map =
        mmap(NULL, PAGES * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    for (size_t i = 0; i < PAGES; i += 2)
        assert_int_equal(mprotect(map + i * page, page, PROT_NONE), 0);
    assert_int_equal(
        xr_file_read("/proc/self/maps", 1 << 24, &err, &data, &size), XRAY_OK);
    assert_true(size > PAGES * 20 && data[size - 1] == '\n');
    assert_int_equal(strlen(data), size);
    for (const char *at = data; *at; at = strchr(at, '\n') + 1, lines++)
        if (at[strspn(at, "0123456789abcdef")] != '-')
            fail_msg("no line of mappings: %.60s", at);
    assert_true(lines > PAGES);
    free(data);
    assert_int_equal(xr_file_read("/proc/self/maps", 6000, &err, &data, &size),
                     XRAY_E_RANGE);
    assert_int_equal(munmap(map, PAGES * page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_file_reads_back),
        cmocka_unit_test(files_of_unknown_size_are_read_whole),
        cmocka_unit_test(large_file_is_copied),
        cmocka_unit_test(dropped_write_leaves_the_old_file),
        cmocka_unit_test(folder_is_committed_and_removed),
        cmocka_unit_test(only_regular_files_are_opened),
        cmocka_unit_test(paths_are_joined_and_tested),
        cmocka_unit_test(parents_are_folders_above),
        cmocka_unit_test(link_to_a_folder_is_not_followed),
        cmocka_unit_test(a_part_that_is_released_takes_no_memory),
        cmocka_unit_test(calls_leave_no_file_open),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
