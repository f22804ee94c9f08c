/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of the launcher "ray", and the bridge to Ray: a process of Python
 * with which it exchanges lines of JSON.
 */
#ifndef RUNTIME_RAY_RAY_H
#define RUNTIME_RAY_RAY_H

#include <sys/types.h>
#include <xray/launcher.h>
#include <xray/plugin.h>

#include "core/base/json.h"
#include "core/base/services.h"
#include "core/base/str.h"

enum { RAY_PACK, RAY_SPREAD, RAY_STRICT_PACK };

typedef struct ray_config {
    const char *address;
    int64_t placement; /* RAY_PACK, RAY_SPREAD or RAY_STRICT_PACK */
    xray_list resources;
    const char *namespace;
    const char *runtime_env;
    uint32_t autoscale;
    const char *python;
} ray_config;

extern const xray_launcher_ops ray_ops;

/* ---- bridge.c ----------------------------------------------------------- */

extern const char ray_script[]; /* cluster.py, nodes.py, bridge.py */

/* The process, whose end ends all that it has started in Ray. */
typedef struct ray_bridge {
    pid_t pid;        /* 0: none */
    int fd;           /* the channel; -1 once it has ended */
    int errors;       /* file that takes its standard error */
    xr_str in;        /* what was received */
    size_t taken;     /* bytes of it that were lines already taken */
    char why[512];    /* how it ended, once it has */
    const char *name; /* the interpreter, for messages */
} ray_bridge;

enum {
    RAY_NOTHING, /* so far */
    RAY_MESSAGE, /* there is one */
    RAY_ENDED    /* `why` says how the bridge ended */
};

xray_status ray_bridge_open(const ray_config *config, xr_err *err,
                            ray_bridge *out);
/* Sends a line. A bridge that ended meanwhile is noticed by the next receive.
 */
void ray_bridge_send(ray_bridge *bridge, const xr_str *line);
/* Takes the next message, which cJSON_Delete releases, and waits up to `ms` for
 * it. Returns one of the above. */
int ray_bridge_receive(ray_bridge *bridge, int ms, cJSON **out);
/* 1 if a message can be received without a wait. */
int ray_bridge_has_line(const ray_bridge *bridge);
/* Has it let go of Ray, for up to `ms`, and kills it then. */
void ray_bridge_close(ray_bridge *bridge, uint64_t ms);

/* ---- request.c ---------------------------------------------------------- */

/* Appends the request `what` for places, with the options, as a line. */
void ray_request_open(const char *what, const xray_launch_setup *setup,
                      const ray_config *config, const char *const *argv,
                      xr_str *out);
void ray_request_start(const xray_launch *launch, uint64_t turn, xr_str *out);
void ray_request_stop(uint32_t index, uint64_t turn, xr_str *out);

/* Waits for the answer `is` to a request of ray_request_open, and logs what
 * arrives before. What `bridge` writes for the user, with `out` other than -1,
 * goes to that descriptor. The host's wish to stop ends it, or, with `asks`, is
 * passed on once. */
typedef struct ray_wait {
    const xray_host *host;
    const xray_call_service *calls; /* or NULL */
    const char *is;
    int out;
    int asks;
} ray_wait;

xray_status ray_wait_answer(const ray_wait *wait, ray_bridge *bridge,
                            xr_err *err, cJSON **out);
/* Logs a message that is a line of the log; 0 if it is none. */
int ray_log_message(const xray_host *host, const cJSON *message);

/* ---- job.c -------------------------------------------------------------- */

xray_status ray_check(const xray_launch_setup *setup, const void *config);
xray_status ray_submit(const xray_launch_setup *setup, const void *config,
                       const char *const *argv, int32_t *out_exit);

#endif
