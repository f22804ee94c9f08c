/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of comm-tcp: two connections between any two ranks, and memory that
 * ranks of one host share. What goes over them is that of
 * plugins/mesh/mesh.h.
 */
#ifndef TCP_TCP_H
#define TCP_TCP_H

#include "plugins/comm-tcp/hello.h"
#include "plugins/mesh/mesh.h"

typedef struct tcp_config {
    const char *interface;
    int64_t heartbeat; /* ns */
} tcp_config;

/* The memory that a rank of the same host writes to this one by, or reads from
 * it (ring.c). */
typedef struct tcp_ring tcp_ring;

/* The lines to one rank. */
typedef struct tcp_line {
    tcp_ring *ring_out; /* NULL: bytes of calls go through the system */
    tcp_ring *ring_in;
    uint32_t hung; /* 1: no more bytes come to ring_in */
    int calls;
    int notes; /* under the lock of the instance */
    uint8_t note[sizeof(mesh_note)];
    uint32_t note_used;
} tcp_line;

/* Those of an instance. */
typedef struct tcp_lines {
    tcp_line *of; /* [size] */
    char *rings;  /* memory that ranks of this host share, or NULL */
    int rings_fd; /* until they have found it */
} tcp_lines;

static inline tcp_lines *tcp_lines_of(const mesh_comm *comm)
{
    return comm->lines;
}

static inline tcp_line *tcp_line_of(const mesh_peer *peer)
{
    return peer->line;
}

extern const mesh_transport tcp_transport;
void tcp_read_notes(mesh_comm *comm, uint32_t rank);

/* ---- addresses and connections ------------------------------------------ */

/* A rank tells the others this when they connect. */
typedef struct tcp_card {
    mesh_card rank;
    uint32_t port;
    uint32_t family;
    uint32_t scope;
    uint8_t address[16];
    uint8_t key[TCP_KEY];
    uint32_t maps;    /* 1: the rank has found those of its host */
    uint64_t rings;   /* proves which memory file is meant */
    int32_t rings_fd; /* -1: none */
    uint32_t unused;
} tcp_card;

/* Chooses the address of this host by the option `interface`; "" is that of the
 * default route, or without one the first that is not the loopback's. Writes
 * its interface's name. Returns NULL, or a sentence about why there is none. */
const char *tcp_choose_address(const char *interface, tcp_card *card,
                               char *out_name, uint32_t cap);
void tcp_loopback_address(tcp_card *card);
void tcp_print_address(const tcp_card *card, char *out, uint32_t cap);

/* Connects all ranks. Every rank takes part in each gather. */
xray_status tcp_connect(mesh_comm *comm, const xray_comm_setup *setup,
                        const tcp_config *config, xray_status ready);
/* The port of a rank while the others connect. */
typedef struct tcp_doors {
    mesh_comm *comm;
    int listener;
    const uint8_t *key;
    uint64_t until;   /* mesh_clock() */
    uint32_t refused; /* connections */
    uint32_t missing; /* rank that did not come, or `size` */
} tcp_doors;

/* Accepts connections until every rank above this one has both of its lines,
 * and refuses all that cannot prove that they are of this run. Returns 1, or 0
 * if a rank is missing. */
int tcp_accept_ranks(tcp_doors *doors);
/* Makes a connection a line of the instance. */
void tcp_keep_line(mesh_comm *comm, uint32_t rank, uint32_t line, int fd);

/* ---- memory of ranks of one host ------------------------------------------
 */

/* Makes the memory by which the ranks of this host write to this one, and puts
 * it on the card. Where it cannot the card has none, and lines are used. */
void tcp_rings_make(mesh_comm *comm, tcp_card *card);
/* Finds those of the other ranks of this host. Returns 1 if all were found. */
int tcp_rings_find(mesh_comm *comm, const tcp_card *all);
/* Keeps those that both ranks have found, once all have tried. */
void tcp_rings_keep(mesh_comm *comm, const tcp_card *all);
void tcp_rings_free(mesh_comm *comm);
/* Writes bytes to the peer, as many as there is room for, or reads what is
 * there. Returns how many; the peer is woken if it waits for them. */
uint64_t tcp_ring_write(tcp_line *line, const struct iovec *parts,
                        size_t count);
uint64_t tcp_ring_read(tcp_line *line, const struct iovec *parts, size_t count);
/* Has the peer wake this rank. Returns 0 if it can go on already. */
int tcp_ring_may_sleep(const tcp_line *line, int reads, int writes);
/* The line of the peer woke this rank, or has ended. */
void tcp_ring_wake(mesh_peer *peer);

#endif
