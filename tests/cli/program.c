/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the program, feeds it, sends it signals, and keeps its output.
 */
#include "tests/cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "core/base/json.h"
#include "core/base/str.h"

extern char **environ;

static program_result last;

static void free_last_result(void)
{
    free(last.out);
    free(last.err);
    last = (program_result){ 0 };
}

int program_done(void **state)
{
    free_last_result();
    return scratch_drop(state);
}

static const char *program_path(void)
{
    const char *path = getenv("XRAY_BIN");
    if (!path)
        fail_msg("XRAY_BIN is not set");
    return path;
}

static char *read_entire_file(const char *path)
{
    char *text = NULL;
    size_t size;
    xr_err err = { "" };
    if (xr_file_read(path, (size_t)1 << 30, &err, &text, &size) != XRAY_OK)
        fail_msg("%s", err.text);
    return text;
}

/* When to send signals to a running program. */
typedef struct program_poke {
    char file[300]; /* once this holds something */
    int signal;
    int times;
} program_poke;

/* Waits until a file holds a text, for at most 40 s. */
static void wait_for_text(const char *path, const char *text)
{
    struct stat info;
    const struct timespec pause = { 0, 2000000 };
    int found = 0;
    for (int i = 0; i < 20000 && !found; i++) {
        if (stat(path, &info) == 0 && info.st_size > 0) {
            char *held = read_entire_file(path);
            found = strstr(held, text) != NULL;
            free(held);
        }
        if (!found)
            (void)nanosleep(&pause, NULL);
    }
}

/* A signal is sent only after the program has reported the one before, because
 * two that are pending at the same time arrive as one. The engine of
 * tests/zoo/sick.c resumes after a single signal, but not between two. */
static void wait_and_kill(pid_t pid, const program_poke *poke)
{
    char go[4096];
    xr_err err = { "" };
    const char *flag = getenv("SICK_FLAG");
    wait_for_text(poke->file, "");
    for (int i = 0; i < poke->times; i++) {
        (void)kill(pid, poke->signal);
        if (i == 0)
            wait_for_text(scratch_path("stderr"),
                          "a second signal stops at once");
    }
    if (poke->times > 1 || !flag)
        return;
    (void)snprintf(go, sizeof go, "%s.go", flag);
    if (xr_file_write(go, "", 0, &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* SIGINT is not ignored, even where this test is run in the background. */
static int start_program(pid_t *pid, const char *file,
                         const posix_spawn_file_actions_t *actions,
                         char *const *argv)
{
    posix_spawnattr_t attributes;
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    assert_int_equal(posix_spawnattr_init(&attributes), 0);
    (void)posix_spawnattr_setsigdefault(&attributes, &signals);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    int failed = posix_spawn(pid, file, actions, &attributes, argv, environ);
    (void)posix_spawnattr_destroy(&attributes);
    return failed;
}

static void run_program(const char *file, char *const *argv, const char *input,
                        const program_poke *poke)
{
    char out[300];
    char err[300];
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    (void)snprintf(out, sizeof out, "%s", scratch_path("stdout"));
    (void)snprintf(err, sizeof err, "%s", scratch_path("stderr"));
    const char *in = scratch_write("stdin", input ? input : "");
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    (void)posix_spawn_file_actions_addopen(&actions, 0, in, O_RDONLY, 0);
    (void)posix_spawn_file_actions_addopen(&actions, 1, out,
                                           O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)posix_spawn_file_actions_addopen(&actions, 2, err,
                                           O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int failed = start_program(&pid, file, &actions, argv);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (failed)
        fail_msg("%s: %s", file, strerror(failed));
    if (poke)
        wait_and_kill(pid, poke);
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    free_last_result();
    last.code =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    last.out = read_entire_file(out);
    last.err = read_entire_file(err);
}

static const program_result *run_with_input(const char *input,
                                            const char *const *args,
                                            const program_poke *poke)
{
    char *argv[64];
    size_t count = 0;
    argv[count++] = xr_strdup(program_path());
    for (; *args; args++) {
        assert_true(count < 63);
        argv[count++] = xr_strdup(*args);
    }
    argv[count] = NULL;
    run_program(argv[0], argv, input, poke);
    for (size_t i = 0; i < count; i++)
        free(argv[i]);
    return &last;
}

const program_result *program_run(const char *input, const char *const *args)
{
    return run_with_input(input, args, NULL);
}

const program_result *program_kill(const char *const *args, const char *file,
                                   int signal, int times)
{
    program_poke poke = { "", signal, times };
    (void)snprintf(poke.file, sizeof poke.file, "%s", file);
    return run_with_input(NULL, args, &poke);
}

const program_result *program_shell(const char *command)
{
    char shell[] = "/bin/sh";
    char option[] = "-c";
    char *text = xr_strdup(command);
    char *argv[] = { shell, option, text, NULL };
    (void)program_path();
    run_program(shell, argv, NULL, NULL);
    free(text);
    return &last;
}

void expect_code(const program_result *result, int code)
{
    if (result->code != code)
        fail_msg("exit code %d, not %d\nstdout: %.2000s\nstderr: %.2000s",
                 result->code, code, result->out, result->err);
}

void expect_text(const char *where, const char *text)
{
    if (!strstr(where, text))
        fail_msg("'%s' is not in: %.2000s", text, where);
}

size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

cJSON *output_line(const program_result *result, size_t i)
{
    const char *line = result->out;
    for (; i > 0 && line; i--) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    if (!line || !*line)
        fail_msg("too few lines: %.2000s\nstderr: %.2000s", result->out,
                 result->err);
    cJSON *json = NULL;
    xr_err err = { "" };
    if (xr_json_parse(line, strcspn(line, "\n"), "stdout", &err, &json) !=
        XRAY_OK)
        fail_msg("%s: %.500s", err.text, line);
    return json;
}
