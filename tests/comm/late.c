/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps copies until they are waited for, so that whoever does not wait reads
 * what was there before.
 */
#include "tests/comm/late.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOST 64

typedef struct late_copy {
    void *to;
    const void *from;
    uint64_t bytes;
} late_copy;

static _Thread_local late_copy kept[MOST];
static _Thread_local uint32_t count;
static xray_status (*sync_ops)(void *self, xray_stream *stream);

static xray_status keep_copy(void *self, xray_stream *stream, void *to,
                             const void *from, uint64_t bytes, uint32_t kind)
{
    (void)self;
    (void)stream;
    (void)kind;
    if (count == MOST) {
        (void)fprintf(stderr, "%u copies wait for a sync\n", count);
        _exit(3);
    }
    if (bytes) /* or both may be NULL */
        kept[count++] = (late_copy){ to, from, bytes };
    return XRAY_OK;
}

static xray_status make_copies(void *self, xray_stream *stream)
{
    for (uint32_t i = 0; i < count; i++)
        memmove(kept[i].to, kept[i].from, kept[i].bytes);
    count = 0;
    return sync_ops(self, stream);
}

void late_copies(xray_device_ops *ops)
{
    sync_ops = ops->sync;
    ops->copy = keep_copy;
    ops->sync = make_copies;
}
