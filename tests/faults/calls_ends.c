/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists what a process has left at its end, for calls.c: open descriptors and
 * threads.
 */
#include "tests/faults/calls.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXITING 4ul /* PF_EXITING of Linux */

/* Numbers of pipes and sockets differ from run to run. */
static void list_files(DIR *dir, calls_process *self)
{
    size_t used = 0;
    for (struct dirent *e; (e = readdir(dir)) && used < CALLS_ENDS;) {
        char link[300];
        char to[600];
        if (e->d_name[0] == '.' || strtol(e->d_name, NULL, 10) == dirfd(dir))
            continue;
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(link, to, sizeof(to) - 1);
        to[n > 0 ? n : 0] = '\0';
        char *bracket = strstr(to, ":[");
        if (bracket)
            *bracket = '\0';
        int more = snprintf(self->files + used, CALLS_ENDS - used, "%s\n",
                            strtol(e->d_name, NULL, 10) < 3 ? "standard" : to);
        used += more > 0 ? (size_t)more : 0;
    }
}

/* A thread that was joined stays listed until the kernel has removed it. */
static int is_running(const char *task)
{
    char path[300];
    char text[512];
    unsigned long flags = 0;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat", task);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[n] = '\0';
    if (file)
        (void)fclose(file);
    /* "PID (NAME) STATE PARENT GROUP SESSION TERMINAL GROUP FLAGS ..." */
    const char *at = strrchr(text, ')');
    for (int words = 0; at && words < 7; words++)
        at = (at = strchr(at, ' ')) ? at + 1 : NULL;
    if (at)
        flags = strtoul(at, NULL, 10);
    return at && !(flags & EXITING);
}

void calls_list_ends(calls_process *self)
{
    DIR *dir = opendir("/proc/self/fd");
    if (dir) {
        list_files(dir, self);
        (void)closedir(dir);
    }
    dir = opendir("/proc/self/task");
    for (struct dirent *e; dir && (e = readdir(dir));)
        self->threads += e->d_name[0] != '.' && is_running(e->d_name);
    if (dir)
        (void)closedir(dir);
    atomic_store(&self->ended, 1);
}
