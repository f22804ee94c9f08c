/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory as Linux offers it beyond the C standard: large pages, returning
 * pages to the system, and the amount that the machine and its control
 * groups allow.
 */
#define _DEFAULT_SOURCE
#include "plugins/device-cpu/instance.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void cpu_advise_huge(void *ptr, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    if (bytes > 0)
        (void)madvise(ptr, bytes, MADV_HUGEPAGE);
#else
    (void)ptr;
    (void)bytes;
#endif
}

#define HUGE_PAGE ((size_t)2 << 20)

/* Rounds a length up to full large pages, so that the last page is large
 * too. */
static size_t round_to_huge(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void *cpu_map_pages(size_t bytes)
{
    size_t complete = round_to_huge(bytes);
    char *at = mmap(NULL, complete + HUGE_PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    size_t lead = (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE;
    if (lead)
        (void)munmap(at, lead);
    if (lead < HUGE_PAGE)
        (void)munmap(at + lead + complete, HUGE_PAGE - lead);
    cpu_advise_huge(at + lead, complete);
    return at + lead;
}

void cpu_unmap_pages(void *ptr, size_t bytes)
{
    (void)munmap(ptr, round_to_huge(bytes));
}

void cpu_drop_pages(void *ptr, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *end = (char *)ptr + bytes;
    size_t head = (page - (uintptr_t)ptr % page) % page;
    size_t tail = (uintptr_t)end % page;
    if (head + tail >= bytes ||
        madvise((char *)ptr + head, bytes - head - tail, MADV_DONTNEED) != 0) {
        memset(ptr, 0, bytes);
        return;
    }
    memset(ptr, 0, head);
    memset(end - tail, 0, tail);
}

static uint64_t count_pages(int what)
{
    long count = sysconf(what);
    long size = sysconf(_SC_PAGESIZE);
    return count > 0 && size > 0 ? (uint64_t)count * (uint64_t)size : 0;
}

uint64_t cpu_memory_bytes(void)
{
#ifdef _SC_PHYS_PAGES
    return count_pages(_SC_PHYS_PAGES);
#else
    return 0;
#endif
}

uint64_t cpu_memory_free(void)
{
#ifdef _SC_AVPHYS_PAGES
    return count_pages(_SC_AVPHYS_PAGES);
#else
    return 0;
#endif
}

/* The file of a limit holds a number or "max". Returns the lower of that
 * number and `most`. */
static uint64_t read_limit(const char *path, uint64_t most)
{
    char text[32] = "";
    FILE *file = fopen(path, "re");
    if (!file)
        return most;
    if (fgets(text, sizeof(text), file) && *text >= '0' && *text <= '9') {
        uint64_t limit = strtoull(text, NULL, 10);
        if (limit && (!most || limit < most))
            most = limit;
    }
    (void)fclose(file);
    return most;
}

/* Applies the limits of a control group and of all its parents. Inside a
 * container the root of the hierarchy may differ from the one that the path was
 * written for; the loop ends at the root that the process sees. */
static uint64_t read_group_limits(const char *root, const char *group,
                                  const char *name, uint64_t most)
{
    char path[PATH_MAX];
    size_t size = strcspn(group, "\n");
    for (;;) {
        while (size && group[size - 1] == '/')
            size--;
        int used = snprintf(path, sizeof(path), "%s%.*s/%s", root, (int)size,
                            group, name);
        if (used > 0 && (size_t)used < sizeof(path))
            most = read_limit(path, most);
        if (!size)
            return most;
        while (size && group[size - 1] != '/')
            size--;
    }
}

/* Returns 1 if `word` is one of the words in `list`, which are separated by
 * commas and end at ':'. */
static int list_has(const char *list, const char *word)
{
    size_t want = strlen(word);
    for (;;) {
        size_t size = strcspn(list, ",:");
        if (size == want && memcmp(list, word, size) == 0)
            return 1;
        if (list[size] != ',')
            return 0;
        list += size + 1;
    }
}

uint64_t cpu_memory_limit(const char *groups, const char *mount, uint64_t most)
{
    char line[PATH_MAX];
    char root[PATH_MAX];
    FILE *file = fopen(groups, "re");
    if (!file)
        return most;
    /* A line is "number:controllers:/path"; in version 2 `controllers` is
     * empty. */
    while (fgets(line, sizeof(line), file)) {
        const char *controllers = strchr(line, ':');
        const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        int version2 = path == controllers + 1;
        if (!version2 && !list_has(controllers + 1, "memory"))
            continue;
        (void)snprintf(root, sizeof(root), "%s%s", mount,
                       version2 ? "" : "/memory");
        most = read_group_limits(
            root, path + 1, version2 ? "memory.max" : "memory.limit_in_bytes",
            most);
    }
    (void)fclose(file);
    return most;
}
