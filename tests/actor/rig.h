/* SPDX-License-Identifier: Apache-2.0
 *
 * A class whose methods do what tests need, served by the test program itself.
 */
#ifndef XR_TEST_ACTOR_RIG_H
#define XR_TEST_ACTOR_RIG_H

#include "core/actor/actor.h"
#include "tests/testing.h"

extern const xr_actor_class rig_class;

#define RIG_EXTRA 48 /* bytes of an actor that the caller reads */

/* Starts the test program as an actor. */
extern const char *const rig_argv[];
/* 1 and the exit code if the command line asks for an actor, or the suite for a
 * library that is not here. */
int rig_child(int argc, char **argv, int *out_code);

/* 1 if the suite runs another time, on the runtime of several hosts:
 * XRAY_TEST_HOSTS is 1, or tls. */
int rig_on_hosts(void);
/* Ends a test about what only the local runtime does. */
#define RIG_LOCAL_ONLY()    \
    do {                    \
        if (rig_on_hosts()) \
            skip();         \
    } while (0)
/* For tests that expect creation to succeed. */
xr_actors *rig_actors(const xr_actors_setup *setup);
xr_actor *rig_spawn(xr_actors *actors, uint32_t index);
void rig_ok(xray_status status, const xr_err *err);
#define RIG_OK(call) rig_ok((call), &err)
/* Fails the test unless the text contains all of the arguments, up to NULL. */
void rig_says(const char *text, ...);
/* Returns the text behind a part that it must contain. */
const char *rig_after(const char *text, const char *part);

uint64_t rig_ms(void);
uint32_t rig_fds(void);  /* open in this process */
uint32_t rig_maps(void); /* memfds of X-ray mapped here */
uint32_t rig_maps_of(uint64_t pid);
int rig_alive(uint64_t pid); /* 0 for a zombie */
/* Waits up to `ms` for the end of the process; 1 if it has ended. */
int rig_gone(uint64_t pid, uint64_t ms);

#endif
