/* SPDX-License-Identifier: Apache-2.0
 *
 * An instance of the launcher "ray" with a host that can stop, for the suites
 * of tests/ray.
 */
#ifndef TEST_RAY_LAUNCHER_RIG_H
#define TEST_RAY_LAUNCHER_RIG_H

#include "plugins/runtime-ray/ray.h"
#include "tests/algo/fake_host.h"
#include "tests/stopper.h"

typedef struct launcher_rig {
    fake_host host;
    stopper stop;
    const char *stop_on; /* the host stops when this line is logged */
    ray_config config;
    xray_launch_place places[4];
    const char *paths[2];
    xray_launch_setup setup;
    void *self;
    xray_launch_event event;
} launcher_rig;

/* Prepares a set-up of `count` places with a core each; nothing is started. */
void rig_prepare(launcher_rig *rig, uint32_t count, const char *python,
                 const char *address);
/* Creates the instance, which must succeed. */
void rig_create(launcher_rig *rig);
/* Expects that this call fails with a reason that contains `text`. */
void rig_expect_refused(launcher_rig *rig, xray_status status,
                        const char *text);
/* Has a shell run `script` at a place. */
void rig_start(launcher_rig *rig, uint32_t index, const char *script);
/* Waits up to three minutes, by the descriptor, for the next event, into
 * rig->event. */
void rig_wait(launcher_rig *rig);
/* Expects that the next events of a place are texts, together `said`, and then
 * its end with `ended`. Events of other places fail. */
void rig_expect(launcher_rig *rig, uint32_t index, const char *said,
                const char *ended);
void rig_close(launcher_rig *rig);
/* For a teardown: closes what a test that failed has left. */
int rig_drop(void **state);

#endif
