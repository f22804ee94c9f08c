/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the program as a user starts it: the time to the first sampled token
 * and to the end of the first step, the time of a step, and peak memory.
 *
 *   bench-train XRAY METRICS_FILE train INI [--set section.key=value ...]
 *
 * Runs XRAY with the arguments after METRICS_FILE, which is the metrics.jsonl
 * that this run writes.
 */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"

extern char **environ;

static const char *const parts[] = { "step",         "gen", "reward",
                                     "old_log_prob", "adv", "update_actor" };
#define PARTS (sizeof(parts) / sizeof(parts[0]))

/* Returns the seconds from the start to the first line on stderr that begins
 * with "step ". The rest is read as well, so that the program never blocks on
 * the pipe. */
static double wait_for_first_step(int fd, double start)
{
    char line[4096];
    double first = -1;
    FILE *in = fdopen(fd, "r");
    if (!in)
        return -1;
    while (fgets(line, sizeof(line), in)) {
        if (first < 0 && strncmp(line, "step ", 5) == 0)
            first = xr_now() - start;
        if (strncmp(line, "step ", 5) != 0)
            (void)fputs(line, stderr);
    }
    (void)fclose(in);
    return first;
}

static int start_program(char **argv, int write_end, int read_end, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    int bad =
        posix_spawn_file_actions_adddup2(&actions, write_end, STDERR_FILENO) ||
        posix_spawn_file_actions_addclose(&actions, read_end) ||
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                         1, 0) ||
        posix_spawn(pid, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return bad ? -1 : 0;
}

/* Returns the smallest timing_s/<part> over the steps. The first step is a
 * warm-up unless it is the only one. */
static double find_best_time(const char *text, const char *part)
{
    char key[64];
    double best = -1;
    int step = 0;
    (void)snprintf(key, sizeof(key), "\"timing_s/%s\":", part);
    for (const char *at = strstr(text, key); at; at = strstr(at + 1, key)) {
        double value = strtod(at + strlen(key), NULL);
        if (best < 0 || step == 1 || value < best)
            best = value;
        step++;
    }
    return best;
}

static void print_steps(const char *path)
{
    xr_err err = { "" };
    char *text = NULL;
    size_t size = 0;
    if (xr_file_read(path, 1u << 24, &err, &text, &size) != XRAY_OK) {
        (void)fprintf(stderr, "bench-train: %s\n", err.text);
        return;
    }
    double token = find_best_time(text, "first_token");
    if (token >= 0)
        printf("first token after %.3f s\n", token);
    for (size_t i = 0; i < PARTS; i++)
        printf("%s%s %.1f ms", i ? ", " : "best: ", parts[i],
               find_best_time(text, parts[i]) * 1e3);
    printf("\n");
    free(text);
}

int main(int argc, char **argv)
{
    int ends[2];
    int state = 0;
    pid_t pid = 0;
    struct rusage use;
    if (argc < 4) {
        (void)fputs("usage: bench-train XRAY METRICS_FILE train INI "
                    "[--set section.key=value ...]\n",
                    stderr);
        return 2;
    }
    const char *metrics = argv[2];
    argv[2] = argv[1];
    double start = xr_now();
    if (pipe(ends) != 0 ||
        start_program(argv + 2, ends[1], ends[0], &pid) != 0) {
        (void)fprintf(stderr, "bench-train: cannot start %s\n", argv[1]);
        return 1;
    }
    (void)close(ends[1]);
    double first = wait_for_first_step(ends[0], start);
    if (waitpid(pid, &state, 0) != pid || state != 0 || first < 0) {
        (void)fprintf(stderr, "bench-train: %s failed\n", argv[1]);
        return 1;
    }
    printf("first step after %.3f s\n", first);
    print_steps(metrics);
    if (getrusage(RUSAGE_CHILDREN, &use) == 0)
        printf("memory: %.0f MB at most\n", (double)use.ru_maxrss / 1024);
    return 0;
}
