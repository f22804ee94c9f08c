/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/runtime.h - interface "xray.runtime/0": a runtime of actors. It starts
 * their processes, carries messages and bulk memory between them and the
 * process that started them, and notices when one is gone.
 *
 * A runtime knows nothing about methods or signatures: messages are bytes. Both
 * sides use one table. The parent creates an instance and spawns actors; the
 * process of an actor attaches to the address that its command line ends with,
 * and has one peer, the parent:
 *
 *     parent                           actor
 *     create(&setup, NULL, &self);
 *     spawn(self, &spec, &peer);       attach(host, addr, &self, &up);
 *     send(self, peer, "a", 1, 0, 0);  poll(self, -1, &event);
 *     poll(self, 1000, &event);        send(self, up, "b", 1, 0, 0);
 *
 * Messages between two peers keep their order, and arrive complete or not at
 * all.
 */
#ifndef XRAY_RUNTIME_H
#define XRAY_RUNTIME_H

#include <xray/abi.h>
#include <xray/host.h>

#define XRAY_IFACE_RUNTIME "xray.runtime/0"

typedef struct xray_peer xray_peer; /* the runtime's own */

/* Bulk memory of two peers: the receiver of a message that was sent with a
 * region sees in it what the sender wrote before. The runtime owns it.
 *
 * Peers that share no memory have a copy each, and a message carries the bytes
 * `first` to `first + count` of the sender's copy. The receiver's other bytes
 * stay as they are, zero at first. The sender sets the two members, which mean
 * nothing to a runtime whose peers share memory. */
typedef struct xray_region {
    xray_header header;
    uint64_t id;     /* unique among the regions of this side */
    uint64_t size;   /* bytes, as asked for */
    void *data;      /* mapped here, aligned to a page */
    xray_peer *peer; /* the peer that created it; NULL: created here */
    uint64_t first;
    uint64_t count; /* 0: all bytes from `first` on */
} xray_region;

/* Everything that the parent's instance is created with. */
typedef struct xray_runtime_setup {
    xray_header header;
    const xray_host *host; /* NULL: the built-in runtime needs none */
    uint64_t record_size;  /* bytes of each actor's record; 0: none */
    uint32_t actors;       /* the most actors at a time */
    uint32_t hang_ms;      /* an actor silent for this long is lost; 0: never */
    uint32_t start_ms; /* the longest from spawn to the first sign of life */
    uint32_t reserved;
} xray_runtime_setup;

/* Everything that an actor is spawned with. All of it is copied. */
typedef struct xray_actor_spec {
    xray_header header;
    const char *name;        /* "workhorse 1", for messages */
    const char *const *argv; /* ends with NULL; the address is appended */
    /* The name of the host that it runs on, XRAY_E_UNSUPPORTED if the runtime
     * cannot start it there; NULL: a host of the runtime's choice. */
    const char *host;
    uint32_t index;   /* 0 to actors - 1; free again after `kill` */
    uint32_t devices; /* accelerators that it uses, which its host must have */
} xray_actor_spec;

#define XRAY_RUNTIME_MESSAGE 1u
#define XRAY_RUNTIME_LOST 2u /* the last event of a peer */

/* A message, or the loss of a peer. */
typedef struct xray_runtime_event {
    xray_header header;
    uint32_t kind;  /* XRAY_RUNTIME_* */
    uint32_t clean; /* LOST: 1: the process ended by itself, with status 0 */
    xray_peer *peer;
    const void
        *data; /* MESSAGE: its bytes, valid until the next poll or send */
    uint64_t size;
    const char *reason; /* LOST: "was killed by signal 9 (Killed)", valid until
                         * the next poll or send */
} xray_runtime_event;

typedef struct xray_runtime_ops {
    xray_header header;

    /* Creates the parent's instance. On failure *out_self is not written.
     * [control] */
    xray_status (*create)(const xray_runtime_setup *setup, const void *config,
                          void **out_self);
    /* Creates the instance of an actor's process. `address` is the last
     * argument of its command line. *out_parent lives as long as the instance.
     * From here on the process ends when its parent does. [control] [may-block]
     */
    xray_status (*attach)(const xray_host *host, const char *address,
                          void **out_self, xray_peer **out_parent);
    /* Kills all spawned actors, waits until they have ended, and unmaps every
     * region. Accepts NULL. [control] [may-block] */
    void (*destroy)(void *self);

    /* Starts an actor and returns without waiting for it. Messages may be sent
     * at once; the actor receives them when it has started. The calling thread
     * must live longer than the actor, because some systems tie a process to
     * the thread that started it. [control] */
    xray_status (*spawn)(void *self, const xray_actor_spec *spec,
                         xray_peer **out_peer);
    /* Kills an actor whatever it is doing, waits until it has ended, and frees
     * the peer and its regions. No event follows. [control] [may-block] */
    void (*kill)(void *self, xray_peer *peer);
    /* The actor's process id; 0 if it has none on this host. [control] */
    uint64_t (*pid)(void *self, xray_peer *peer);

    /* Sends `size` bytes; the caller may reuse `data` and `regions` afterwards.
     * The receiver can find the regions, which were created here or came from
     * this peer, from then on. Waits while the peer is slow to read, and
     * receives its messages meanwhile. A lost peer is XRAY_E_PEER. [control]
     * [may-block] */
    xray_status (*send)(void *self, xray_peer *peer, const void *data,
                        uint64_t size, xray_region *const *regions,
                        uint32_t region_count);
    /* Takes the next event. Waits up to timeout_ms, without end if that is
     * negative, and returns XRAY_AGAIN if no event came. For an actor the loss
     * of the parent is an event, too. [control] [may-block] */
    xray_status (*poll)(void *self, int64_t timeout_ms,
                        xray_runtime_event *out_event);

    /* Creates a region of `size` bytes, all zero. [control] */
    xray_status (*region_create)(void *self, uint64_t size,
                                 xray_region **out_region);
    /* Unmaps a region created here, and in its receivers as well. [control] */
    void (*region_destroy)(void *self, xray_region *region);
    /* Finds the region with this id that `peer` created and sent, or that was
     * created here if `peer` is NULL; NULL if there is none. [control] */
    xray_region *(*region_find)(void *self, xray_peer *peer, uint64_t id);

    /* An actor's record: record_size bytes, aligned to 64 and zero when it
     * starts, which the actor writes at any time and its parent reads; NULL if
     * the size is 0. An actor passes NULL for its own. The parent sees what
     * was written up to 0.5 s before its last `poll` or `send`, also after the
     * actor's loss, until `kill`.
     * Without shared memory the runtime carries it in words of 8 bytes, beside
     * the messages and whatever the actor is doing. [any] */
    void *(*record)(void *self, xray_peer *peer);
    /* For an actor: the records of all actors, if they are on one host and
     * share them; that of actor i is i * *out_stride bytes after the first.
     * NULL if they do not. [any] */
    void *(*records)(void *self, uint64_t *out_stride);
    /* Gives an actor a word, which it sees within 0.1 s whatever it is doing.
     * [control] [no-alloc] */
    void (*notify)(void *self, xray_peer *peer, uint32_t word);
    /* For an actor: where the runtime writes the word, atomically; 0 until
     * `notify`. It lives as long as the instance. [any] */
    const uint32_t *(*notice)(void *self);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* Finds an extension by its id; NULL if there is none. [any] */
    const void *(*extension)(void *self, const char *id);
} xray_runtime_ops;

#endif
