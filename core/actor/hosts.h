/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime of actors on other hosts: a command line or the launcher of an
 * engine starts each process, which connects to the parent over TCP. Each side
 * has a copy of a region, and each message carries the bytes of those that it
 * names. An actor that turns out to be on the parent's host shares memory with
 * it instead: it connects over a Unix socket, which passes regions on
 * (hosts_near.c).
 *
 * The parent never waits for a peer without reading from all of them, and the
 * actor has a thread that always reads, so no two sides wait for each other.
 */
#ifndef XR_ACTOR_HOSTS_H
#define XR_ACTOR_HOSTS_H

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <xray/launcher.h>
#include <xray/runtime.h>

#include "core/actor/actor.h"
#include "core/actor/tcp_conn.h"
#include "core/actor/tcp_hello.h"

#define XR_HOSTS_BEAT_MS 100u
#define XR_HOSTS_HELLO_MS 10000u /* the longest that a guest may take */
/* The longest that an actor waits for its parent, which may be at work. It is
 * killed, or its connection ends, long before. */
#define XR_HOSTS_JOIN_MS 600000

/* How a peer knows a region that was created here. */
enum { XR_HOSTS_UNKNOWN, XR_HOSTS_COPIED, XR_HOSTS_SHARED };

/* Whether an engine started the process of a peer, and whether it runs. */
enum {
    XR_HOSTS_OWN, /* it is a child of this process */
    XR_HOSTS_ENGINE_RUNS,
    XR_HOSTS_ENGINE_ENDED /* the launcher has said so */
};

typedef struct xr_hosts_region {
    xray_region pub;
    struct xr_hosts_region *next;
    int fd;              /* its memory can be passed on; -1: it cannot */
    uint32_t shared;     /* its creator, another process, has passed it on */
    unsigned char *sent; /* [peer_count]: how each peer knows it; NULL: created
                          * by another process */
} xr_hosts_region;

struct xray_peer {
    xr_tcp_conn conn; /* first: a connection is found in its peer */
    struct xr_hosts *self;
    xr_hosts_region *regions; /* that it created */
    /* The parent's peers only. */
    uint32_t index;
    uint32_t used;
    uint32_t launched; /* by the launcher's command line, on `host` */
    uint32_t engine;   /* XR_HOSTS_OWN, XR_HOSTS_ENGINE_* */
    uint32_t greeted;  /* frames may be sent */
    uint32_t writing;  /* a frame is half written */
    uint32_t wants_out;
    uint32_t leaving;
    uint32_t lost; /* 1: to be reported, 2: reported */
    uint32_t clean;
    pid_t pid; /* of the actor or its launcher; 0: reaped */
    int leash; /* its standard input, whose end ends it; -1: closed */
    int says;  /* what it writes to standard error; -1: not read */
    int pulse; /* a connection that only shows this host alive, or -1 */
    unsigned char token[XR_TCP_TOKEN];
    char name[64];
    char host[64];
    char reason[400];
    char line[200]; /* the last one of standard error */
    uint64_t line_size;
    uint64_t spawned_ms;
    uint64_t quiet_ms;    /* time observed without a sign of life */
    uint64_t quiet_at;    /* conn.total then */
    unsigned char *early; /* what was sent before it had started */
    size_t early_at, early_size, early_cap;
    uint32_t word;
    uint32_t word_due; /* the word waits until the socket takes it */
    _Atomic uint64_t *record;
    uint64_t page;   /* the first word of the page that it was offered */
    uint32_t shares; /* it maps the memory of this process */
};

/* A connection that has not proved whose it is. */
typedef struct xr_hosts_guest {
    int fd;          /* -1: none */
    uint32_t near;   /* over the Unix socket */
    uint32_t secure; /* 1: the handshake of TLS has succeeded */
    uint32_t reserved;
    xr_tls *tls; /* NULL: it has none, or not begun */
    struct xr_hosts *self;
    uint32_t named; /* XR_HOSTS_NAMED_* */
    uint32_t index; /* of the Workhorse that it named in the handshake */
    uint64_t since_ms;
    xr_tcp_hello hello;
    char from[64]; /* its address */
} xr_hosts_guest;

enum {
    XR_HOSTS_NAMED_NONE,
    XR_HOSTS_NAMED_STRANGER, /* whom the run does not await */
    XR_HOSTS_NAMED_AWAITED
};

#define XR_HOSTS_GUESTS 64u

/* Where the parent is reached. */
typedef struct xr_hosts_door {
    int fd;
    int near;      /* the Unix socket for actors of this host, or -1 */
    uint32_t told; /* refusals that were logged */
    uint32_t port;
    char address[64];
    xr_hosts_guest guests[XR_HOSTS_GUESTS];
} xr_hosts_door;

/* Belongs to an actor's process, besides its peer. */
typedef struct xr_hosts_own {
    pthread_mutex_t lock; /* of what is written to the socket */
    pthread_t thread;
    int stop;  /* an eventfd */
    int pulse; /* the connection that shows the parent's host alive */
    uint32_t running;
    uint32_t welcome;            /* WELCOME has come */
    uint32_t word;               /* of `notify`, written atomically */
    uint32_t offered;            /* the parent has passed a page on */
    uint64_t page;               /* its first word; 0: it cannot be mapped */
    uint64_t next_ms;            /* when a sign of life is due */
    uint64_t *sent;              /* the record as it was sent last */
    xr_tcp_frame beat;           /* the sign of life that is being written */
    uint64_t beat_at, beat_size; /* bytes written, and all */
} xr_hosts_own;

typedef struct xr_hosts {
    const xray_host *host;
    xray_peer *peers; /* [peer_count]; in an actor's process one, the parent */
    uint32_t peer_count;
    uint32_t next_peer;
    uint32_t hang_ms;
    uint32_t start_ms;
    int epoll;       /* the parent's; -1 in an actor */
    uint32_t shares; /* what is created here can be passed on */
    uint32_t tls;
    uint32_t reserved;
    char *launch;                      /* the launcher's command line */
    const xray_launcher_ops *launcher; /* of an engine; NULL: there is none */
    void *launcher_self;
    unsigned char build[XR_TCP_TOKEN];
    uint64_t checked_ms;
    uint64_t record_bytes;     /* of a record: a multiple of 64 */
    _Atomic uint64_t *records; /* of all peers, or the actor's own */
    pthread_mutex_t lock;      /* of the lists of regions, and held while one is
                                * received */
    xr_hosts_region *regions;  /* created here */
    uint64_t next_region;
    xr_tcp_item *current; /* the message that `poll` returned */
    xr_hosts_door door;
    xr_hosts_own *own; /* NULL in the parent */
} xr_hosts;

/* Reports the reason and returns `status`. */
XRAY_PRINTF(3, 4)
xray_status xr_hosts_fail(const xray_host *host, xray_status status,
                          const char *fmt, ...);
uint64_t xr_hosts_now_ms(void);
/* An instance with that many peers, none of them in use. */
xray_status xr_hosts_new(const xray_host *host, uint32_t peers,
                         uint64_t record_size, xr_hosts **out_self);
/* Ends the processes and frees everything. */
void xr_hosts_free(xr_hosts *self);
/* Makes the peer one in use, without a connection: 0 or an errno. */
int xr_hosts_open_peer(xr_hosts *self, xray_peer *peer,
                       const xr_tcp_owner *owner);

/* ---- messages and regions ---- */

xray_status xr_hosts_region_create(void *self, uint64_t size,
                                   xray_region **out_region);
xray_region *xr_hosts_region_find(void *self, xray_peer *peer, uint64_t id);
/* Adds one that the peer created: its copy, or the memory `fd`, which stays the
 * caller's. 0 or an errno. */
int xr_hosts_region_add(xray_peer *peer, uint64_t id, uint64_t size, int fd);
void xr_hosts_region_remove(xr_hosts *self, xr_hosts_region **list,
                            uint64_t id);
xray_status xr_hosts_send(void *self, xray_peer *peer, const void *data,
                          uint64_t size, xray_region *const *regions,
                          uint32_t region_count);
/* The peer's next message: 1, or 0 if none has arrived. */
int xr_hosts_next(xr_hosts *self, xray_peer *peer, xray_runtime_event *out);
/* Implement xr_tcp_owner. */
int xr_hosts_expect(xr_tcp_conn *conn, const xr_tcp_part *part);
unsigned char *xr_hosts_hold(xr_tcp_conn *conn, const xr_tcp_part *part);
void xr_hosts_release(xr_tcp_conn *conn);
/* Writes a frame, and on the parent's side keeps it until the actor is there.
 * 0 or an errno. */
int xr_hosts_put(xray_peer *peer, xr_tcp_frame *frame, const void *data);
int xr_hosts_put_early(xray_peer *peer, xr_tcp_frame *frame, const void *data);

/* ---- the actor's side ---- */

xray_status xr_hosts_attach(const xray_host *host, const char *address,
                            void **out_self, xray_peer **out_parent);
/* Ends the thread and tells the parent. */
void xr_hosts_detach(xr_hosts *self);
/* Waits up to timeout_ms until something has arrived. */
xray_status xr_hosts_poll_parent(xr_hosts *self, int64_t timeout_ms,
                                 xray_runtime_event *out);
int xr_hosts_put_up(xray_peer *peer, xr_tcp_frame *frame, const void *data);

/* ---- the parent's door ---- */

/* An event of epoll is about one of these, which has an index; a door with
 * index 1 is the Unix socket. */
enum {
    XR_HOSTS_DOOR,
    XR_HOSTS_GUEST,
    XR_HOSTS_PEER,
    XR_HOSTS_SAYS,
    XR_HOSTS_ENGINE
};
/* Watches a descriptor, or changes for what; 0 or an errno. */
int xr_hosts_watch(const xr_hosts *self, int fd, uint32_t kind, uint32_t index,
                   uint32_t events, int again);
xray_status xr_hosts_open_door(xr_hosts *self, const char *interface);
void xr_hosts_close_door(xr_hosts *self);
void xr_hosts_accept(xr_hosts *self, int near);
/* Goes on with the greeting of a guest. Once it has succeeded, the connection
 * is the peer's. */
void xr_hosts_serve_guest(xr_hosts *self, uint32_t index);
/* Refuses guests that take too long. */
void xr_hosts_check_guests(xr_hosts *self, uint64_t now);

/* ---- memory of this host ---- */

/* Listens for actors of this host. Without it there is only TCP, which a line
 * at level info says. */
void xr_hosts_open_near(xr_hosts *self);
/* Connects to the Unix socket of the parent at this address: a descriptor, or
 * -1 if it is not on this host. */
int xr_hosts_reach_near(const char *address);
/* Offers the actor that has just come memory to map. */
void xr_hosts_offer(xray_peer *peer);
/* Says at level info that an actor of this host cannot share its memory. */
void xr_hosts_note_copies(const xray_peer *peer, const char *why);
/* 1 if both ends of a TCP connection have one address. */
int xr_hosts_is_here(int fd);
/* Handle MEMORY: 0 or an errno. */
int xr_hosts_take_page(xray_peer *peer);
int xr_hosts_take_region(xray_peer *peer, const xr_tcp_frame *frame);
/* Whether the bytes of the region are in the peer's process as well, which is
 * given its memory first if need be: 0 or an errno. */
int xr_hosts_share(xray_peer *peer, xray_region *region, int *out_shared);

/* ---- the parent's processes ---- */

/* Starts the process of the peer: 0 or an errno. */
int xr_hosts_start(xray_peer *peer, const char *const *argv);
/* Writes the token as hexadecimal digits, XR_HOSTS_LINE bytes with the NUL. */
#define XR_HOSTS_LINE (2 * XR_TCP_TOKEN + 1)
void xr_hosts_write_token(const xray_peer *peer, char *out);
/* Writes the peer's address, where its process connects to. */
void xr_hosts_name_door(const xray_peer *peer, char *out, size_t size);
/* Passes on what the process writes to standard error. */
void xr_hosts_read_says(xray_peer *peer);
/* Passes on this piece of it, and keeps the beginning of its last line. */
void xr_hosts_say(xray_peer *peer, const char *text, size_t size);
/* Ends the process: kills it if a reason is given or it does not exit by
 * itself. What it sent before is received, and how it ended is noted. */
void xr_hosts_end(xray_peer *peer, const char *reason);
/* Ends the process and forgets everything about the peer. */
void xr_hosts_kill(void *self, xray_peer *peer);
/* Ends the peers that are gone or hang. */
void xr_hosts_check(xr_hosts *self);
/* Kills the process without waiting for its end. */
void xr_hosts_strike(xray_peer *peer);

/* ---- processes that an engine starts ---- */

/* Has epoll say when the launcher knows something; 0 or an errno. */
int xr_hosts_engine_open(xr_hosts *self);
/* Starts the process of the peer, which has its token. */
xray_status xr_hosts_engine_start(xray_peer *peer, const char *const *argv);
/* Takes what the launcher has to say, about any peer. */
void xr_hosts_engine_serve(xr_hosts *self);
/* Returns 1 once the launcher has said that the process ended, for which it
 * waits up to `ms`. */
int xr_hosts_engine_await(xray_peer *peer, uint64_t ms);
/* Kills the process and waits for its end. */
void xr_hosts_engine_stop(xray_peer *peer);

#endif
