/* SPDX-License-Identifier: Apache-2.0
 *
 * Hosts for tests of comm-tcp: network namespaces of this machine that are
 * joined by pairs of virtual interfaces, as root and where `ip` is there.
 */
#ifndef TEST_TCP_HOSTS_H
#define TEST_TCP_HOSTS_H

#include "tests/comm/ranks.h"

/* Makes two hosts with the addresses 10.77.0.1 and 10.77.0.2 on a line between
 * them. Returns NULL, or why it cannot. */
const char *hosts_make(void);
/* Removes them. */
void hosts_remove(void);
/* 1 while they are there. */
int hosts_are_there(void);

/* Says on which host each rank of the runs that follow is: a letter per rank,
 * 'a' or 'b'; NULL: all are in the namespace of the test. */
void hosts_place(const char *placement);
/* A rank goes to its host. */
void hosts_enter(ranks_env *e);
/* The same for the test's own process and threads of it. */
int hosts_enter_by_letter(char letter);

/* Runs `ip ARGUMENTS` on a host. Returns 1 if it went well. A rank may call it,
 * too. */
int hosts_ip(char letter, const char *arguments);

/* Puts a cable (tests/fakes/cable.c) in place of the line between the hosts:
 * "SEED DELAY JITTER LOSS". Returns 0 where the system has none, which the
 * cable says; anything else that goes wrong fails the test. */
int hosts_cable(const char *arguments);
/* 1 while there is a cable. */
int hosts_have_cable(void);
/* Cuts the line between the hosts, and mends it. Whoever is on it learns
 * nothing of that if it is a cable; otherwise the interfaces of both hosts are
 * down. Returns 1 if it went well. A rank may call them, too. */
int hosts_cut(void);
int hosts_mend(void);

#endif
