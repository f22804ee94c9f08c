/* SPDX-License-Identifier: Apache-2.0
 *
 * Page-locked memory of the host in large blocks. The system zeroes its pages
 * in several threads and, if it can, as large pages, so that locking them is
 * quick; cudaMallocHost takes several times as long.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS and madvise */

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugins/device-cuda/instance.h"

#define LARGE_PAGE ((uint64_t)2 << 20)
#define MAX_THREADS 16

/* Pages [at, end), which a thread makes exist. */
typedef struct page_range {
    char *at;
    uint64_t bytes;
    uint64_t page;
} page_range;

static void *touch_pages(void *arg)
{
    const page_range *r = (const page_range *)arg;
    for (uint64_t i = 0; i < r->bytes; i += r->page)
        *(volatile char *)(r->at + i) = 0;
    return NULL;
}

static int count_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1)
        return 1;
    return cores < MAX_THREADS ? (int)cores : MAX_THREADS;
}

/* Touches every page. A range whose thread cannot be created is touched here.
 */
static void touch_all(char *at, uint64_t mapped)
{
    page_range ranges[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    int created[MAX_THREADS] = { 0 };
    long page = sysconf(_SC_PAGESIZE);
    int count = count_threads();
    uint64_t each = (mapped / LARGE_PAGE / (uint64_t)count + 1) * LARGE_PAGE;
    for (int i = 0; i < count; i++) {
        uint64_t first = (uint64_t)i * each;
        uint64_t left = first < mapped ? mapped - first : 0;
        ranges[i] =
            (page_range){ at + (left ? first : 0), left < each ? left : each,
                          page > 0 ? (uint64_t)page : 4096 };
        created[i] = i > 0 && pthread_create(&threads[i], NULL, touch_pages,
                                             &ranges[i]) == 0;
    }
    for (int i = 0; i < count; i++)
        if (!created[i])
            (void)touch_pages(&ranges[i]);
    for (int i = 0; i < count; i++)
        if (created[i])
            (void)pthread_join(threads[i], NULL);
}

/* Gives back what lies before and after the block [at, at + bytes). */
static void trim_mapping(char *all, uint64_t all_bytes, char *at,
                         uint64_t bytes)
{
    uint64_t before = (uint64_t)(at - all);
    uint64_t after = all_bytes - before - bytes;
    if (before)
        (void)munmap(all, before);
    if (after)
        (void)munmap(at + bytes, after);
}

/* A child of fork does not get the pages: the system would copy all that are
 * locked. */
static void advise_kernel(char *at, uint64_t mapped)
{
#ifdef MADV_HUGEPAGE
    (void)madvise(at, mapped, MADV_HUGEPAGE);
#endif
#ifdef MADV_DONTFORK
    (void)madvise(at, mapped, MADV_DONTFORK);
#endif
}

void *cuda_host_map(uint64_t bytes, uint64_t *out_mapped)
{
    if (bytes > UINT64_MAX / 4)
        return NULL;
    uint64_t mapped = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    uint64_t all_bytes = mapped + LARGE_PAGE;
    char *all = (char *)mmap(NULL, all_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == (char *)MAP_FAILED)
        return NULL;
    char *at = all + (LARGE_PAGE - (uintptr_t)all % LARGE_PAGE) % LARGE_PAGE;
    trim_mapping(all, all_bytes, at, mapped);
    advise_kernel(at, mapped);
    touch_all(at, mapped);
    if (cudaHostRegister(at, mapped, cudaHostRegisterPortable) != cudaSuccess) {
        (void)cudaGetLastError();
        (void)munmap(at, mapped);
        return NULL;
    }
    *out_mapped = mapped;
    return at;
}

void cuda_host_unmap(void *at, uint64_t mapped)
{
    (void)cudaHostUnregister(at);
    (void)munmap(at, mapped);
}
