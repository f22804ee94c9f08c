/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the lines that a plugin logs.
 */
#ifndef XR_REWARD_LOG_LINES_H
#define XR_REWARD_LOG_LINES_H

#include <pthread.h>

#include "tests/algo/fake_host.h"
#include "tests/testing.h"

#define LINES 16 /* further ones are not kept */

/* Lines that were logged, for suites that read them. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char line[LINES][1100];
    unsigned count;
} logged = { .lock = PTHREAD_MUTEX_INITIALIZER,
             .changed = PTHREAD_COND_INITIALIZER };

/* Takes the place of a host's log; any thread may call it. */
static inline void keep_line(const xray_host *host, uint32_t level,
                             const char *text)
{
    (void)host;
    assert_int_equal(level, XRAY_LOG_INFO);
    (void)pthread_mutex_lock(&logged.lock);
    if (logged.count < LINES)
        (void)snprintf(logged.line[logged.count++], sizeof(logged.line[0]),
                       "%s", text);
    (void)pthread_cond_broadcast(&logged.changed);
    (void)pthread_mutex_unlock(&logged.lock);
}

#endif
