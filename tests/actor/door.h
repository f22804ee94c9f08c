/* SPDX-License-Identifier: Apache-2.0
 *
 * A run that awaits an actor of another host, for tests about who connects: its
 * launcher writes down what it is given, and never connects.
 */
#ifndef XR_TEST_ACTOR_DOOR_H
#define XR_TEST_ACTOR_DOOR_H

#include "core/actor/actor.h"
#include "core/actor/tcp_hello.h"
#include "tests/testing.h"

typedef struct door_run {
    const xray_runtime_ops *ops;
    void *self;
    xray_peer *peer;
    xray_runtime_event event;
    uint32_t tls;   /* before it is opened: 1 for a run over TLS */
    char said[400]; /* the reason of what failed */
    char lines[16][400];
    uint32_t line_count; /* of its log */
    uint32_t expected;   /* of them */
    char noted[400];     /* its last line at level info */
    int actor_fd;        /* of an actor that was let in, or -1 */
    unsigned char token[XR_TCP_TOKEN];
    unsigned char build[XR_TCP_TOKEN];
} door_run;

extern door_run door;
extern const xray_host door_host;

void door_open(const char *launch, uint32_t start_ms);
xray_status door_spawn(const char *host);
void door_poll(void);
/* The next event is the loss of the actor, with this reason. */
void door_expect_loss(const char *reason);

int door_connect(void);
void door_send(int fd, const void *bytes, size_t size);
/* The run ends the connection, and the next line of its log says why. */
void door_expect_refusal(int fd, const char *why);
void door_open_hello(xr_tcp_hello *hello, uint32_t purpose, uint32_t index);

/* Of groups and tests; a run that awaits actor 0 is opened and ended. */
int door_make_folder(void **state);
int door_remove_folder(void **state);
int door_await_actor(void **state);
int door_end(void **state);

#endif
