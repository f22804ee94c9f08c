/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/host.h - what the host gives a plugin.
 */
#ifndef XRAY_HOST_H
#define XRAY_HOST_H

#include <xray/abi.h>

#define XRAY_LOG_ERROR 1u
#define XRAY_LOG_WARN 2u
#define XRAY_LOG_INFO 3u
#define XRAY_LOG_DEBUG 4u
#define XRAY_LOG_TRACE 5u

/* What an error is about, so that the host can say where that was set. */
typedef struct xray_location {
    xray_header header;
    const char *section; /* of the configuration; NULL: the instance's own */
    const char *key;     /* of that section; NULL: `file` */
    const char *file;    /* as messages name it, or NULL */
} xray_location;

typedef struct xray_host {
    xray_header header;
    void *host_data;
    const char *version;

    /* Writes one log line, tagged with rank and instance. `msg` is borrowed.
     * [any] [no-alloc] */
    void (*log)(const struct xray_host *host, uint32_t level, const char *msg);

    /* Records why the current call fails, on this thread, and returns `code`.
     * `msg` is copied. Calling it again adds an outer reason.
     * [any] [no-alloc] */
    xray_status (*fail)(const struct xray_host *host, xray_status code,
                        const char *where, const char *msg);

    /* Finds a service by id, "xray.host.memory/0". NULL if not offered. The
     * result lives as long as `host`. [any] */
    const void *(*service)(const struct xray_host *host, const char *id);

    /* Optional from here on. */

    /* `fail` of a key or a file. The host writes its name and `msg` right
     * behind it: ": expected a number above 0", " = 3 needs threads". All is
     * copied. Calling `fail` on top gives a sentence without a place.
     * [any] [no-alloc] */
    xray_status (*fail_at)(const struct xray_host *host, xray_status code,
                           const char *where, const xray_location *place,
                           const char *msg);
} xray_host;

#endif
