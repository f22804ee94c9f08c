/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker of the plugin reward-ffi: limits its own memory, sees to it that it
 * ends with its parent, and then either becomes an interpreter or calls a C
 * function. Descriptor 3 carries requests and answers as lines of JSON.
 *
 *     reward-ffi-worker PARENT MEMORY exec PROGRAM ARGUMENTS
 *     reward-ffi-worker PARENT MEMORY call LIBRARY SYMBOL SIGNATURE
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/system_error.h"
#include "plugins/reward-ffi/worker/call.h"

#define CHANNEL 3

static int write_line(xr_str *line)
{
    xr_str_append(line, "\n", 1);
    for (size_t at = 0; !line->failed && at < line->size;) {
        ssize_t n = write(CHANNEL, line->data + at, line->size - at);
        if (n < 0 && errno != EINTR)
            return -1;
        at += n > 0 ? (size_t)n : 0;
    }
    return line->failed ? -1 : 0;
}

static int report_error(const char *text)
{
    xr_str line = { 0 };
    xr_str_puts(&line, "{\"error\":");
    xr_str_json(&line, text, strlen(text));
    xr_str_puts(&line, "}");
    (void)write_line(&line);
    xr_str_free(&line);
    return 1;
}

/* Bytes of private memory that can be written, which RLIMIT_DATA counts: a
 * sanitizer has reserved most of them before main. */
static uint64_t count_own_memory(void)
{
    char line[256] = "";
    const char *at = line;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    if (!fgets(line, sizeof(line), file))
        line[0] = '\0';
    (void)fclose(file);
    for (int i = 0; i < 5; i++) { /* the sixth number */
        const char *space = strchr(at, ' ');
        at = space ? space + 1 : "";
    }
    return strtoull(at, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* 0: no limit of its own. */
static void limit_memory(uint64_t most)
{
    struct rlimit data;
    if (getrlimit(RLIMIT_DATA, &data))
        return;
    data.rlim_cur = most && most < data.rlim_max ? most : data.rlim_max;
    (void)setrlimit(RLIMIT_DATA, &data);
}

static int answer_requests(fn_call *call)
{
    FILE *in = fdopen(CHANNEL, "r");
    char *text = NULL;
    size_t cap = 0;
    ssize_t size;
    int bad = !in;
    while (!bad && (size = getline(&text, &cap, in)) > 0) {
        xr_err err = { "" };
        xr_str line = { 0 };
        cJSON *samples = NULL;
        double score = 0;
        xray_status status =
            xr_json_parse(text, (size_t)size, "request", &err, &samples);
        if (status == XRAY_OK)
            status = fn_call_score(call, cJSON_GetArrayItem(samples, 0), &err,
                                   &score);
        (void)fflush(stdout);
        if (status == XRAY_OK) {
            xr_str_puts(&line, "[");
            xr_str_number(&line, score);
            xr_str_puts(&line, "]");
            bad = write_line(&line);
        } else {
            (void)report_error(err.text);
        }
        xr_str_free(&line);
        cJSON_Delete(samples);
    }
    free(text);
    return bad ? 1 : 0;
}

static int serve_function(char **argv)
{
    fn_call call = { .function = NULL };
    xr_err err = { "" };
    xr_str ready = { 0 };
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (fn_call_open(argv[0], argv[1], argv[2], &err, &call) != XRAY_OK)
        return report_error(err.text);
    xr_str_printf(&ready, "{\"ready\":1,\"ids\":%d}", fn_call_takes_ids(&call));
    int bad = write_line(&ready);
    xr_str_free(&ready);
    return bad ? 1 : answer_requests(&call);
}

static int become_program(char **argv)
{
    xr_str text = { 0 };
    (void)execvp(argv[0], argv);
    int bad = errno;
    limit_memory(0); /* a sanitizer may already have more than the limit */
    xr_str_printf(&text, "%s cannot be started: %s", argv[0],
                  XR_SYSTEM_ERROR(bad));
    (void)report_error(xr_str_text(&text));
    xr_str_free(&text);
    return 1;
}

int main(int argc, char **argv)
{
    int64_t parent = 0;
    int64_t memory = 0;
    int call = argc == 7 && strcmp(argv[3], "call") == 0;
    if (argc < 5 || xr_parse_int(argv[1], &parent) ||
        xr_parse_int(argv[2], &memory) || fcntl(CHANNEL, F_GETFD) < 0) {
        (void)fprintf(stderr, "%s: only the plugin reward-ffi runs this\n",
                      argv[0]);
        return 2;
    }
    const struct rlimit none = { 0, 0 };
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)parent) /* it died before prctl */
        return 1;
    limit_memory(memory ? (uint64_t)memory + (call ? count_own_memory() : 0)
                        : 0);
    if (!call)
        return become_program(argv + 4);
    (void)fcntl(CHANNEL, F_SETFD, FD_CLOEXEC);
    return serve_function(argv + 4);
}
