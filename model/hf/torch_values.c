/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of a pickle: growing arrays of them, their names in sentences, and
 * the sentence of a refusal.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/hf/torch_internal.h"

void *xm_pool_add(xm_pool *pool, size_t size)
{
    if (pool->count == pool->cap) {
        size_t cap = pool->cap ? pool->cap * 2 : 64;
        void *data = realloc(pool->data, cap * size);
        if (!data)
            return NULL;
        pool->data = data;
        pool->cap = cap;
    }
    return memset((char *)pool->data + pool->count++ * size, 0, size);
}

xray_status xm_pickle_fail(xm_pickle *p, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return xr_fail(p->err, XRAY_E_CONFIG, "%s: byte %zu: %s", p->where,
                   (size_t)(p->at - p->start), text);
}

const char *xm_pickle_kind(uint32_t kind)
{
    static const char *const names[] = {
        "None",   "a bool", "an integer", "a float",   "a text",   "a tuple",
        "a list", "a dict", "a global",   "a storage", "a tensor", "a mark",
    };
    return names[kind];
}

int xm_pickle_is(const xm_pickle_value *value, const char *text)
{
    return value->kind == XM_PICKLE_TEXT && value->size == strlen(text) &&
           memcmp(value->is.text, text, value->size) == 0;
}
