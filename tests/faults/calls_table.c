/* SPDX-License-Identifier: Apache-2.0
 *
 * calls-table FILE sites      a line per site and way to fail, with tabs
 * between: key, calls, kind, reason, command, function, frames calls-table FILE
 * ends       what the processes of a run have left: "fired" if the failure has
 * happened, a line per thread and open descriptor at the end of a process, and
 *                             per process that is still there after 5 s
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/calls.h"

static const char *name_kind(int kind)
{
    return kind == CALLS_SHORT     ? "short"
           : kind == CALLS_MISSING ? "missing"
                                   : strerror(kind);
}

static void print_site(const calls_site *site)
{
    for (int k = 0; k < CALLS_KINDS && site->kinds[k]; k++) {
        int kind = site->kinds[k];
        (void)printf("%" PRIx64 "\t%lu\t%d\t%s\t%s\t%s\t",
                     atomic_load(&site->key), atomic_load(&site->count), kind,
                     name_kind(kind), site->command, site->function);
        for (int f = 0; f < site->frame_count; f++)
            (void)printf("%s+0x%" PRIx64 " ", site->frames[f].module,
                         site->frames[f].offset);
        (void)printf("\n");
    }
}

/* A zombie that nobody waits for has ended, too. */
static int is_alive(int pid)
{
    char path[64];
    char text[256] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[n] = '\0';
    const char *state = strrchr(text, ')');
    return state && state[1] && state[2] != 'Z' && state[2] != 'X';
}

static void print_end(calls_process *p)
{
    const struct timespec pause = { 0, 10000000 };
    int pid = atomic_load(&p->pid);
    for (int i = 0; i < 500 && is_alive(pid); i++)
        (void)nanosleep(&pause, NULL);
    if (is_alive(pid)) {
        (void)printf("left: %s\n", p->command);
        (void)kill(pid, SIGKILL);
    }
    if (!atomic_load(&p->ended))
        return;
    for (int i = 0; i < p->threads; i++)
        (void)printf("thread of %s\n", p->command);
    char *rest = NULL;
    for (char *line = strtok_r(p->files, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest))
        (void)printf("file of %s: %s\n", p->command, line);
}

int main(int argc, char **argv)
{
    int fd = argc == 3 ? open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof(calls_table)))
        return 1;
    calls_table *table = mmap(NULL, sizeof(calls_table), PROT_READ | PROT_WRITE,
                              MAP_SHARED, fd, 0);
    if (table == MAP_FAILED)
        return 1;
    if (strcmp(argv[2], "sites") == 0)
        for (int i = 0; i < CALLS_SITES; i++)
            print_site(&table->sites[i]);
    if (strcmp(argv[2], "ends") == 0) {
        if (atomic_load(&table->fired))
            (void)printf("fired\n");
        int count = atomic_load(&table->process_count);
        for (int i = 0; i < count && i < CALLS_PROCESSES; i++)
            print_end(&table->processes[i]);
    }
    return 0;
}
