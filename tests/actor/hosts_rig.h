/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime of actors on other hosts for tests, with this host as the other:
 * one program is the parent, which tests, and each actor.
 */
#ifndef XR_TEST_ACTOR_HOSTS_RIG_H
#define XR_TEST_ACTOR_HOSTS_RIG_H

#include "core/actor/hosts.h"
#include "tests/testing.h"

#define WORDS 1000u /* of a record */
#define PAGE UINT64_C(4096)
#define LARGE (UINT64_C(32) << 20)

extern const xray_runtime_ops *const ops;
extern char said[400];  /* the reason of the last failure */
extern char noted[400]; /* the last line at level info; others fail the test */
extern uint32_t notes;

/* The actor: the exit code of its process. */
int run_actor(const char *address);
extern const char *const argv_of_actor[];

extern void *self;
extern xray_peer *peers[2];
extern xray_runtime_event event; /* the last one */
extern uint32_t fds;             /* files that were open before */
extern uint32_t copies; /* 1: no memory is shared with actors of this host */
extern const char *launch;
extern const xray_launcher_ops *launcher; /* NULL: there is none */
extern void *launcher_self;

/* 1 if the suite runs another time, over TLS. */
uint32_t over_tls(void);
uint32_t count_fds(void);
uint32_t count_maps(void); /* of memory that this process shares */
xray_peer *spawn_program(const char *const *argv, uint32_t index);
void create_with(uint32_t hang_ms, uint32_t start_ms);
/* Set a test up. */
int start_actors(void **state);
int count_files(void **state);
/* No process, no open file and no shared memory is left. */
int end_actors(void **state);

void send_text(xray_peer *peer, const char *text, xray_region *region);
void expect_text(const xray_peer *peer, const char *text);
void expect_loss(const xray_peer *peer, const char *reason, uint32_t clean);
void say_word_of_record(xray_peer *peer, char *text, size_t size);
void *fill_bytes(xray_region *region, int byte);
/* Both actors have started, and share what is created from now on. */
void await_both(void);

#endif
