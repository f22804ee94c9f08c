/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/runtime.h - interface "xray.runtime/0": starts actors, carries messages
 * and bulk memory between them and the process that started them, and notices
 * when one is gone.
 *
 * A runtime knows nothing of methods or signatures: messages are bytes. It has
 * two sides with one table: the parent creates an instance and spawns actors;
 * an actor's process attaches to the address its command line ends with, and
 * has one peer, the parent. Messages between two peers keep their order, and
 * arrive whole or not at all.
 *
 * One thread drives an instance, but for what is tagged [any].
 */
#ifndef XRAY_RUNTIME_H
#define XRAY_RUNTIME_H

#include <xray/abi.h>
#include <xray/host.h>

#define XRAY_IFACE_RUNTIME "xray.runtime/0"

typedef struct xray_peer xray_peer; /* the runtime's own */

/* Bulk memory. Peers see the same bytes: a message sent along with a region
 * finds in it what the sender wrote before. Owned by the runtime. */
typedef struct xray_region {
    xray_header header;
    uint64_t id;     /* unique among the regions of this side */
    uint64_t size;   /* bytes, as asked for */
    void *data;      /* mapped here, aligned to a page */
    xray_peer *peer; /* whose it is, NULL: created here */
} xray_region;

/* What an instance is created with. */
typedef struct xray_runtime_setup {
    xray_header header;
    const xray_host *host; /* NULL: the built-in runtime needs none */
    uint64_t board_size;   /* bytes that parent and all actors share; 0: none */
    uint32_t actors;       /* at most so many at a time */
    uint32_t hang_ms;      /* no sign of life for so long is a loss; 0: never */
    uint32_t start_ms;     /* from spawn to the first sign of life */
    uint32_t reserved;
} xray_runtime_setup;

/* What an actor is spawned with. All is copied. */
typedef struct xray_actor_spec {
    xray_header header;
    const char *name;        /* "workhorse 1", for messages */
    const char *const *argv; /* ends with NULL; the address is appended */
    uint32_t index;          /* 0 .. actors - 1, free again after a kill */
    uint32_t reserved;
} xray_actor_spec;

#define XRAY_RUNTIME_MESSAGE 1u
#define XRAY_RUNTIME_LOST 2u /* comes once; nothing of this peer after it */

typedef struct xray_runtime_event {
    xray_header header;
    uint32_t kind;  /* XRAY_RUNTIME_* */
    uint32_t clean; /* LOST: 1: it ended by itself and in order */
    xray_peer *peer;
    const void *data; /* MESSAGE: its bytes, until the next poll or send */
    uint64_t size;
    const char *reason; /* LOST: "was killed by signal 9 (Killed)", until the
                         * next poll or send */
} xray_runtime_event;

typedef struct xray_runtime_ops {
    xray_header header;

    /* The parent's side. On failure *out_self is untouched. [control] */
    xray_status (*create)(const xray_runtime_setup *setup, const void *config,
                          void **out_self);
    /* The actor's side: `address` is the last argument of its command line.
     * *out_parent lives as long as the instance. From here on the process ends
     * when its parent does. [control] [may-block] */
    xray_status (*attach)(const xray_host *host, const char *address,
                          void **out_self, xray_peer **out_parent);
    /* Kills what was spawned, waits for its end, unmaps every region. Accepts
     * NULL. [control] [may-block] */
    void (*destroy)(void *self);

    /* Starts an actor and returns without waiting for it. Messages sent at once
     * reach it when it is up. The calling thread must outlive the actor: some
     * systems tie a process to the thread that started it. [control] */
    xray_status (*spawn)(void *self, const xray_actor_spec *spec,
                         xray_peer **out_peer);
    /* Ends an actor whatever it does, waits for its end, frees the peer and its
     * regions; no event follows. [control] [may-block] */
    void (*kill)(void *self, xray_peer *peer);
    /* The process id, 0 where there is none here. [control] */
    uint64_t (*pid)(void *self, xray_peer *peer);

    /* Sends `size` bytes; both are free again on return. `regions`, created
     * here or received from this peer, can be found by the receiver from then
     * on. Waits where the peer is slow to read, receiving meanwhile. A lost
     * peer is XRAY_E_PEER. [control] [may-block] */
    xray_status (*send)(void *self, xray_peer *peer, const void *data,
                        uint64_t size, xray_region *const *regions,
                        uint32_t region_count);
    /* The next event, waiting up to timeout_ms (negative: without end);
     * XRAY_AGAIN if none came. At the actor's side the parent's loss is an
     * event, too. [control] [may-block] */
    xray_status (*poll)(void *self, int64_t timeout_ms,
                        xray_runtime_event *out_event);

    /* New memory, zeroed. [control] */
    xray_status (*region_create)(void *self, uint64_t size,
                                 xray_region **out_region);
    /* Unmaps a region created here, in its receivers as well. [control] */
    void (*region_destroy)(void *self, xray_region *region);
    /* The region that `peer` created and sent as `id`, or NULL. `peer` NULL:
     * created here. [control] */
    xray_region *(*region_find)(void *self, xray_peer *peer, uint64_t id);

    /* The board: board_size bytes, zero at first, the same memory in the parent
     * and all actors, aligned to a page. NULL where they do not share a host or
     * the size is 0. [any] */
    void *(*board)(void *self, uint64_t *out_size);
    /* At the actor's side: says in up to 63 bytes what it is doing, for the
     * message about its end. [any] [no-alloc] */
    void (*phase_set)(void *self, const char *text);
    /* What the actor said last, "" if nothing; kept after its loss. `size` of
     * `out` includes the NUL. [any] [no-alloc] */
    void (*phase)(void *self, xray_peer *peer, char *out, uint64_t size);

    /* Optional from here on. */

    /* Finds an extension by id. NULL if none. [any] */
    const void *(*extension)(void *self, const char *id);
} xray_runtime_ops;

#endif
