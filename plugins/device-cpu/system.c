/* SPDX-License-Identifier: Apache-2.0
 *
 * What the standard does not say about memory: large pages, how much there is.
 */
#define _DEFAULT_SOURCE
#include "plugins/device-cpu/instance.h"

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

static uint64_t pages(int what)
{
    long count = sysconf(what);
    long size = sysconf(_SC_PAGESIZE);
    return count > 0 && size > 0 ? (uint64_t)count * (uint64_t)size : 0;
}

uint64_t cpu_memory_bytes(void)
{
#ifdef _SC_PHYS_PAGES
    return pages(_SC_PHYS_PAGES);
#else
    return 0;
#endif
}

uint64_t cpu_memory_free(void)
{
#ifdef _SC_AVPHYS_PAGES
    return pages(_SC_AVPHYS_PAGES);
#else
    return 0;
#endif
}
