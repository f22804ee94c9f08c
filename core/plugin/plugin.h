/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding, loading and checking plugins, and the host they talk to.
 *
 * Search path: --plugin-path and XRAY_PLUGIN_PATH (folders between ':'), then
 * <folder of the program>/plugins, <folder of the program>/../lib/xray/plugins
 * (also lib/<triplet>). A plugin hides those of its name in later folders; a
 * name found twice in one folder is an error that names both files. Listing
 * reads ELF notes and runs no plugin code.
 */
#ifndef XR_PLUGIN_H
#define XR_PLUGIN_H

#include <stddef.h>

#include <xray/algo.h>
#include <xray/infer.h>
#include <xray/plugin.h>
#include <xray/reward.h>
#include <xray/runtime.h>
#include <xray/train.h>

#include "core/base/err.h"
#include "core/config/config.h"

#define XR_VERSION "0.1.0"

/* ---- the host ----------------------------------------------------------- */

/* One host a plugin instance: log lines carry its name, and the reason of a
 * failed call is kept here, on the calling thread's slot. */
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
/* Where the options of an instance stand that has another name than their
 * section; `section` is borrowed. */
void xr_host_section(xr_host *host, const char *section);
/* Moves the reason of a failed call into `err` ("instance: where: text") and
 * returns `status`; without a reason it says which status came back. */
xray_status xr_host_error(xr_host *host, xray_status status, const char *call,
                          xr_err *err);
/* Moves the reason of a failed call behind what `err` holds, after ": "; 0
 * without one. For an instance that another one called. */
int xr_host_append(xr_host *host, xr_err *err);

/* ---- finding and loading ------------------------------------------------ */

typedef struct xr_plugins xr_plugins;

/* One file of the search path, read from its note. */
typedef struct xr_plugin_file {
    const char *path;
    const char *name; /* "" when refused */
    const char *version;
    const char *provides; /* "xray.algo/0:NAME ..." */
    const char *refused;  /* one sentence, or NULL */
    int hidden;           /* refused only because another comes before it */
} xr_plugin_file;

/* `path`: folders between ':' that come first, or NULL. */
xray_status xr_plugins_open(const char *path, xr_err *err, xr_plugins **out);
void xr_plugins_close(xr_plugins *plugins); /* objects stay loaded */
size_t xr_plugins_count(const xr_plugins *plugins);
const xr_plugin_file *xr_plugins_at(const xr_plugins *plugins, size_t i);

/* Loads what provides `iface`:`name` and gives its component. The error lists
 * the names there are for the interface. */
xray_status xr_plugins_find(xr_plugins *plugins, const char *iface,
                            const char *name, xr_err *err,
                            const xray_component **out);

/* Loads one file and checks it; for `plugin inspect`. */
xray_status xr_plugin_load(const char *path, xr_err *err,
                           const xray_plugin **out);
/* From now on a file outside of the program's own plugin folders is loaded and
 * queried in a short-lived child of the program first ("PROGRAM
 * XR_TRIAL_COMMAND FILE"), so that a crash or a hang in it is an error of this
 * process. Costs a start of the program, a few milliseconds, per such file. */
void xr_trial_enable(void);
#define XR_TRIAL_COMMAND "plugin-trial"
/* The child's whole work; gives its exit code. */
int xr_trial_child(const char *path);

/* Checks a descriptor: headers, ABI, interfaces, required callbacks. */
xray_status xr_plugin_check(const xray_plugin *plugin, const char *from,
                            xr_err *err);

/* "train.NAME" of xray.train/0:NAME, into `buffer`; gives `buffer`. */
#define XR_SECTION_CAP 256u
const char *xr_component_section(const xray_component *component,
                                 char buffer[XR_SECTION_CAP]);
/* Decodes section [kind.name] (or `section` if not NULL) by the component's
 * table into fresh memory of config_size; owned by the caller, free(). NULL
 * after adding to `errors`. */
void *xr_component_config(xr_config *config, const xray_component *component,
                          const char *section, xr_errors *errors);

/* The manifest of an ELF image: copies the note's JSON. Reads untrusted bytes:
 * never runs code, never reads out of bounds. */
xray_status xr_note_find(const void *data, size_t size, char *out, size_t cap);

#endif
