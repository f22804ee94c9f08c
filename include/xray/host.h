/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/host.h - the services that the host offers to a plugin.
 *
 * A plugin is handed an xray_host when an instance of it is planned or created,
 * and keeps the pointer for as long as that instance lives. A call that fails
 * explains itself before it returns:
 *
 *     if (options->lr <= 0)
 *         return host->fail(host, XRAY_E_CONFIG, "create",
 *                           "the learning rate must be above 0");
 *
 * The host adds the rank, the instance and, for fail_at, the file and line in
 * which the setting was made.
 */
#ifndef XRAY_HOST_H
#define XRAY_HOST_H

#include <xray/abi.h>

#define XRAY_LOG_ERROR 1u
#define XRAY_LOG_WARN 2u
#define XRAY_LOG_INFO 3u
#define XRAY_LOG_DEBUG 4u
#define XRAY_LOG_TRACE 5u

/* The setting or file that an error is about. The host looks up where it was
 * set and says so in the message. */
typedef struct xray_location {
    xray_header header;
    const char *section; /* of the configuration; NULL: the instance's own */
    const char *key;     /* in that section; NULL: the error is about `file` */
    const char *file;    /* the name that messages show, or NULL */
} xray_location;

typedef struct xray_host {
    xray_header header;
    void *host_data;     /* the host's own */
    const char *version; /* of the host program, "0.4.0" */

    /* Writes one log line; the host adds the instance. `level` is one of
     * XRAY_LOG_*. `msg` is read during the call only. [any] [no-alloc] */
    void (*log)(const struct xray_host *host, uint32_t level, const char *msg);

    /* Records, for the calling thread, why the current call fails, and returns
     * `code`, which the plugin then returns in turn. `where` names the
     * operation in progress, or is NULL. `msg` is copied. A second call before
     * returning puts an outer reason in front of the first. [any] [no-alloc] */
    xray_status (*fail)(const struct xray_host *host, xray_status code,
                        const char *where, const char *msg);

    /* Finds a further service by its id: XRAY_SERVICE_* of xray/services.h.
     * Returns NULL if the host does not offer it; the result lives as long as
     * `host`. [any] [no-alloc] */
    const void *(*service)(const struct xray_host *host, const char *id);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* Like `fail`, for an error about one key or one file. The host writes the
     * name and `msg` directly after it, so `msg` begins with what follows a
     * name: ": expected a number above 0", " = 3 needs threads". All arguments
     * are copied. A later `fail` in the same call drops the location.
     * [any] [no-alloc] */
    xray_status (*fail_at)(const struct xray_host *host, xray_status code,
                           const char *where, const xray_location *location,
                           const char *msg);
} xray_host;

#endif
