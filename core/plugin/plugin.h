/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds, loads and checks plugins, and provides the host that they talk to.
 * Search path: --plugin-path and XRAY_PLUGIN_PATH (folders separated by ':'),
 * then <folder of the program>/plugins and <folder of the
 * program>/../lib/xray/plugins (also lib/<triplet>). A plugin hides those of
 * the same name in later folders; a name found twice in one folder is an error
 * that names both files. Listing reads ELF notes and runs no plugin code.
 */
#ifndef XR_PLUGIN_H
#define XR_PLUGIN_H

#include <stddef.h>

#include <xray/algo.h>
#include <xray/infer.h>
#include <xray/launcher.h>
#include <xray/plugin.h>
#include <xray/reward.h>
#include <xray/runtime.h>
#include <xray/tracker.h>
#include <xray/train.h>

#include "core/base/err.h"
#include "core/config/config.h"

#define XR_VERSION "0.1.0"

/* ---- the host ----------------------------------------------------------- */

/* One host per plugin instance: log lines carry its name, and it keeps the
 * reason of a failed call in a slot of the calling thread. The thread that
 * creates it must be the one that makes the [control] calls. */
typedef struct xr_host xr_host;
typedef struct xr_log_sink {
    void *ctx;
    void (*write)(void *ctx, uint32_t level, const char *instance,
                  const char *text);
    uint32_t level; /* XRAY_LOG_*: lines above it are dropped */
    uint32_t reserved;
} xr_log_sink;
xr_host *xr_host_new(const char *instance, const xr_log_sink *sink);
void xr_host_free(xr_host *host);
const xray_host *xr_host_api(const xr_host *host);
const char *xr_host_instance(const xr_host *host);
/* Sets the section of an instance's options if it differs from the instance's
 * name; `section` is borrowed. */
void xr_host_section(xr_host *host, const char *section);
/* Names the host of an instance that this one calls, as the collectives are;
 * `below` is borrowed. */
void xr_host_stand_on(xr_host *host, xr_host *below);
/* Moves the reason of a failed call into `err` ("instance: where: text") and
 * returns `status`. Without a reason, the error has that of the instance below,
 * or else names the returned status. */
xray_status xr_host_error(xr_host *host, xray_status status, const char *call,
                          xr_err *err);
/* Appends the reason of a failed call to `err` after ": " and returns 1;
 * returns 0 without a reason. For an instance that another one called. */
int xr_host_append(xr_host *host, xr_err *err);

/* Hands the metrics that the instance has put since the last call, under their
 * names in the line of a step, to `put`, in the order of their first values. */
void xr_host_metrics(xr_host *host,
                     void (*put)(void *ctx, const char *name, double value),
                     void *ctx);

/* ---- finding and loading ------------------------------------------------ */

typedef struct xr_plugins xr_plugins;

/* One file of the search path, as its note describes it. */
typedef struct xr_plugin_file {
    const char *path;
    const char *name; /* "" when refused */
    const char *version;
    const char *provides; /* "xray.algo/0:NAME ..." */
    const char *refused;  /* one sentence, or NULL */
    int hidden;           /* refused only because an earlier file has its
                           * name */
} xr_plugin_file;

/* `path`: folders separated by ':' that are searched first, or NULL. */
xray_status xr_plugins_open(const char *path, xr_err *err, xr_plugins **out);
void xr_plugins_close(xr_plugins *plugins); /* shared objects stay loaded */
size_t xr_plugins_count(const xr_plugins *plugins);
const xr_plugin_file *xr_plugins_at(const xr_plugins *plugins, size_t i);

/* Loads the plugin that provides `iface`:`name` and returns its component. The
 * error lists the available names of the interface. */
xray_status xr_plugins_find(xr_plugins *plugins, const char *iface,
                            const char *name, xr_err *err,
                            const xray_component **out);

/* Loads and checks one file; for `plugin inspect`. */
xray_status xr_plugin_load(const char *path, xr_err *err,
                           const xray_plugin **out);
/* After this call, a file outside the program's own plugin folders is first
 * loaded and queried in a short-lived child process ("PROGRAM XR_TRIAL_COMMAND
 * FILE"), so that its crash or hang is an error of this process. This costs one
 * start of the program, a few milliseconds, per such file. */
void xr_trial_enable(void);
#define XR_TRIAL_COMMAND "plugin-trial"
/* Does the work of the child process; returns its exit code. */
int xr_trial_child(const char *path);

/* Checks a descriptor: headers, ABI, interfaces, required callbacks. */
xray_status xr_plugin_check(const xray_plugin *plugin, const char *from,
                            xr_err *err);

/* Writes the component's section, "train.NAME" for xray.train/0:NAME and
 * "runtime.NAME" for a launcher, into `buffer` and returns it. */
#define XR_SECTION_CAP 256u
const char *xr_component_section(const xray_component *component,
                                 char buffer[XR_SECTION_CAP]);
/* Decodes section [kind.name] (or `section` if not NULL) by the component's
 * table into new memory of config_size, which the caller frees with free().
 * Returns NULL after adding to `errors`. */
void *xr_component_config(xr_config *config, const xray_component *component,
                          const char *section, xr_errors *errors);

/* Does the same for options of which `section` may set some, over those of the
 * component's own section. *out is NULL if it sets none, or after adding to
 * `errors`. */
void xr_component_config_over(xr_config *config,
                              const xray_component *component,
                              const char *section, xr_errors *errors,
                              void **out);

/* Copies the manifest, the JSON of the xray note, from an ELF image. The bytes
 * are untrusted: it runs no code and reads nothing out of bounds. */
xray_status xr_note_find(const void *data, size_t size, char *out, size_t cap);

#endif
