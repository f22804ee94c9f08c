/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/launcher.h - interface "xray.launcher/0": a launcher, which asks an
 * engine that others run (Ray, MPI, Slurm) for places of Workhorses and starts
 * their processes there.
 *
 * A launcher carries no messages. A process that it starts connects to the run
 * over TCP, and from then on the two talk directly; the run itself watches that
 * it is alive. So a launcher places, starts, reports ends and kills:
 *
 *     create(&setup, config, &self);          the places are reserved now
 *     host_of(self, 0);                       "node1"
 *     start(self, &launch);                   for every Workhorse
 *     while (next(self, &event) == XRAY_OK)   whenever events(self) is readable
 *         ...
 *     stop(self, 0);
 *     destroy(self);
 *
 * Whatever starts a process has three duties. It gives the process the line
 * `token` on its standard input, which then stays open, and ends the process
 * once the launcher or the run is gone. It brings what the process writes to
 * standard error back as events. It reports how the process ended.
 *
 * Some engines start every process of a job at once, with the user's own
 * command line; then `enter` says what the calling process is.
 */
#ifndef XRAY_LAUNCHER_H
#define XRAY_LAUNCHER_H

#include <xray/abi.h>
#include <xray/host.h>

#define XRAY_IFACE_LAUNCHER "xray.launcher/0"

#define XRAY_LAUNCH_HOST_MOST 63u   /* characters of a host's name */
#define XRAY_LAUNCH_TOKEN_MOST 127u /* characters of a token's line */

/* The needs of one Workhorse. */
typedef struct xray_launch_place {
    const char *name; /* its roles, "actor+rollout", for an engine's lists */
    uint32_t devices; /* accelerators that it alone uses; 0: it computes on the
                       * CPU */
    uint32_t threads; /* cores that it uses; 0: it shares those of its host with
                       * the others there */
    uint64_t memory; /* bytes of host memory that the plan counts; 0: unknown */
} xray_launch_place;

/* Everything that a launcher is created with, valid during the call. */
typedef struct xray_launch_setup {
    xray_header header;
    const xray_host *host;
    const xray_launch_place *places; /* [count], by the Workhorse's rank */
    uint64_t place_stride;           /* sizeof(xray_launch_place) */
    uint32_t count;
    uint32_t path_count;
    const char *run;     /* the file of the run's configuration, for messages */
    const char *program; /* path of the running program */
    const char *build;   /* id of the program's build, which a Workhorse's must
                          * equal; `PROGRAM --build` prints it */
    const char *folder;  /* working directory of the run */
    /* Files and folders that every host must see, as absolute paths. */
    const char *const *paths;
    /* How often this run has lost a Workhorse and begun again. Above 0 the
     * engine once had all places, so it waits for what it lacks now. */
    uint32_t restarts;
    uint32_t reserved;
} xray_launch_setup;

/* The start of one Workhorse. All of it is copied. */
typedef struct xray_launch {
    xray_header header;
    const char *const *argv; /* ends with NULL; the address of the run is in it
                              */
    const char *token;       /* the first line of its standard input, without
                              * the newline; it is a secret, so it goes into no
                              * command line, environment or log */
    uint32_t index;          /* the Workhorse's rank */
    uint32_t reserved;
} xray_launch;

#define XRAY_LAUNCH_SAYS 1u  /* text from its standard error */
#define XRAY_LAUNCH_ENDED 2u /* its process ended; the last event of it */

typedef struct xray_launch_event {
    xray_header header;
    uint32_t kind;  /* XRAY_LAUNCH_* */
    uint32_t index; /* the Workhorse's rank */
    uint32_t clean; /* ENDED: 1: by itself, with status 0 */
    uint32_t reserved;
    /* SAYS: the bytes. ENDED: what completes "workhorse 1 ...": "was killed by
     * signal 9 (Killed)", "exited with status 1", "is gone: its node died".
     * Both are valid until the next call. */
    const char *text;
    uint64_t size; /* without a NUL, which follows */
} xray_launch_event;

#define XRAY_ENTRY_DRIVER 1u    /* the process drives the run */
#define XRAY_ENTRY_WORKHORSE 2u /* it becomes a Workhorse */

/* The part in the run of a process that the engine started. */
typedef struct xray_launch_entry {
    xray_header header;
    uint32_t kind; /* XRAY_ENTRY_* */
    uint32_t reserved;
    char address[128]; /* WORKHORSE: of the run */
    char token[XRAY_LAUNCH_TOKEN_MOST + 1u];
} xray_launch_entry;

typedef struct xray_launcher_ops {
    xray_header header;

    /* Reserves a place for every Workhorse and waits until the engine has them
     * all. While it waits it logs what is missing at level `warn`, at first
     * after 5 s and then every 30 s, and returns XRAY_E_CANCELED within 0.1 s
     * once the host stops (xray/services.h). What the engine can never give is
     * an error at once. `config` is the filled struct of options, valid as long
     * as the instance. Places of one host are neighbours, hosts in an order
     * that depends on the set of hosts only, so that a resumed run finds its
     * ranks where they were. On failure *out_self is not written. [control]
     * [may-block] */
    xray_status (*create)(const xray_launch_setup *setup, const void *config,
                          void **out_self);
    /* Kills what is left, gives the places back and frees the instance. Accepts
     * NULL. [control] [may-block] */
    void (*destroy)(void *self);

    /* The name of the host of a place; the same text for all places of a host,
     * at most XRAY_LAUNCH_HOST_MOST characters. It lives as long as the
     * instance. [control] */
    const char *(*host_of)(void *self, uint32_t index);

    /* Starts a process at the launch's place, in the working directory of the
     * set-up if that exists there, and does not wait for it. [control] */
    xray_status (*start)(void *self, const xray_launch *launch);
    /* Kills the process of a place, if there is one, and forgets its events:
     * the place may be started again. Waits up to 10 s until it has ended.
     * [control] [may-block] */
    void (*stop)(void *self, uint32_t index);

    /* A file descriptor that is readable while `next` has something; -1: `next`
     * never has. It stays the launcher's. [control] */
    int32_t (*events)(void *self);
    /* Takes the next event; XRAY_AGAIN if there is none. Does not wait.
     * [control] */
    xray_status (*next)(void *self, xray_launch_event *out_event);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* Finds out whether the engine could give what `setup` asks for, and
     * reserves nothing; for `xray check`: enough nodes, cores, accelerators and
     * memory, the same program, the paths visible. Everything that is missing
     * is in one message. [control] [may-block] */
    xray_status (*check)(const xray_launch_setup *setup, const void *config);

    /* For engines that start all processes of a job at once: called before
     * anything else is created, by each of them. A Workhorse waits here until
     * the run has told it where to connect. `address` is NULL in a process that
     * a user's command line began, and the last word of the command line in one
     * that `start` began as "PROGRAM workhorse NAME FOLDERS ADDRESS". [control]
     * [may-block] */
    xray_status (*enter)(const xray_host *host, const void *config,
                         const char *address, xray_launch_entry *out_entry);

    /* Has the engine run this command line as a job of its own, shows what it
     * writes, and returns when it has ended; *out_exit is its exit status. When
     * the host stops, the job is asked to stop, too. [control] [may-block] */
    xray_status (*submit)(const xray_launch_setup *setup, const void *config,
                          const char *const *argv, int32_t *out_exit);

    /* Finds an extension by its id; NULL if there is none. [any] */
    const void *(*extension)(void *self, const char *id);
} xray_launcher_ops;

#endif
