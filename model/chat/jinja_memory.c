/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates the memory of a compilation or rendering, enforces its limits and
 * keeps its message.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja.h"

#define CHUNK ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)1 << 20)
#define ALIGN 16u

struct xm_jchunk {
    struct xm_jchunk *next;
    size_t size;
    size_t used;
    size_t pad; /* keeps the memory after the header aligned */
};

void *xm_jarena_alloc(xm_jarena *arena, size_t size)
{
    if (size > arena->limit)
        return NULL;
    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    struct xm_jchunk *newest = arena->newest;
    if (!newest || newest->size - newest->used < size) {
        size_t want = newest ? 2 * newest->size : CHUNK;
        if (want > CHUNK_MAX)
            want = CHUNK_MAX;
        if (want < size)
            want = size;
        if (want > arena->limit - arena->used)
            want = size;
        if (want > arena->limit - arena->used)
            return NULL;
        struct xm_jchunk *chunk = malloc(sizeof *chunk + want);
        if (!chunk)
            return NULL;
        *chunk = (struct xm_jchunk){ .next = newest, .size = want };
        arena->newest = chunk;
        arena->used += want;
        newest = chunk;
    }
    char *at = (char *)(newest + 1) + newest->used;
    newest->used += size;
    return at;
}

void xm_jarena_free(xm_jarena *arena)
{
    for (struct xm_jchunk *chunk = arena->newest; chunk;) {
        struct xm_jchunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *arena = (xm_jarena){ .limit = arena->limit };
}

int xm_jfail(xm_jinterp *interp, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(interp->text, sizeof interp->text, fmt, args);
    va_end(args);
    return -1;
}

int xm_jcount_work(xm_jinterp *interp, size_t units)
{
    interp->steps += units;
    if (interp->steps <= XM_CHAT_MAX_STEPS)
        return 0;
    return xm_jfail(interp, "the template takes more than %llu steps",
                    (unsigned long long)XM_CHAT_MAX_STEPS);
}

int xm_jenter_level(xm_jinterp *interp)
{
    if (interp->depth >= XM_CHAT_MAX_DEPTH)
        return xm_jfail(interp, "the template nests more than %u levels deep",
                        XM_CHAT_MAX_DEPTH);
    interp->depth++;
    return 0;
}

void *xm_jalloc(xm_jinterp *interp, size_t count, size_t size)
{
    if (size && count > interp->arena->limit / size)
        count = interp->arena->limit, size = 2;
    void *at = xm_jarena_alloc(interp->arena, count * size);
    if (!at) {
        if (count * size + ALIGN <= interp->arena->limit - interp->arena->used)
            (void)xm_jfail(interp, "out of memory");
        else
            (void)xm_jfail(interp,
                           "the template needs more than %zu MiB of memory",
                           interp->arena->limit >> 20);
        return NULL;
    }
    memset(at, 0, count * size);
    return at;
}
