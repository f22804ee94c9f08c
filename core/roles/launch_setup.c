/* SPDX-License-Identifier: Apache-2.0
 *
 * Says what a run needs of an engine, from its placement, its device and the
 * files that its configuration names.
 */
#define _GNU_SOURCE /* realpath */
#include "core/roles/launch_setup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/actor/tcp_hello.h"
#include "core/base/str.h"
#include "core/base/system_error.h"
#include "core/roles/roles.h"

/* ---- places -------------------------------------------------------------- */

static void add_role(const xr_run *run, uint32_t role, const char *name,
                     xr_launch_setup *out)
{
    if (!xr_run_has_role(run, role))
        return;
    const xr_ranks *ranks = xr_run_ranks(run, role);
    for (uint32_t i = 0; i < ranks->count; i++) {
        char *text = out->names[ranks->rank[i]];
        const size_t used = strlen(text);
        (void)snprintf(text + used, sizeof(*out->names) - used, "%s%s",
                       used ? "+" : "", name);
    }
}

/* A device that computes in host memory is no accelerator. */
static uint32_t count_devices(const xr_run *run)
{
    xray_device_plan plan = { .header = XRAY_HEADER(xray_device_plan) };
    const xray_device_ops *ops = (const xray_device_ops *)run->device.ops;
    if (!run->device.component || !run->device.config)
        return 0;
    xray_status status = XR_CALL_TIMED(
        &run->device, "plan",
        ops->plan(xr_host_api(run->device.host), run->device.config, &plan));
    return status == XRAY_OK && !plan.host_memory;
}

static void fill_places(const xr_run *run, xr_launch_setup *out)
{
    static const struct {
        uint32_t role;
        const char *name;
    } roles[] = {
        { XRAY_ROLE_ACTOR, "actor" },         { XRAY_ROLE_ROLLOUT, "rollout" },
        { XRAY_ROLE_REFERENCE, "reference" }, { XRAY_ROLE_CRITIC, "critic" },
        { XRAY_ROLE_REWARD, "reward" },
    };
    const char *threads = xr_config_get(run->config, "run", "threads");
    const uint32_t devices = count_devices(run);
    int64_t cores = 0;
    if (!threads || xr_parse_int(threads, &cores) || cores < 0)
        cores = 0;
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        add_role(run, roles[i].role, roles[i].name, out);
    for (uint32_t r = 0; r < run->placement.size; r++)
        out->places[r] = (xray_launch_place){ .name = out->names[r],
                                              .devices = devices,
                                              .threads = (uint32_t)cores,
                                              .memory = run->place_memory };
}

/* ---- paths --------------------------------------------------------------- */

static int is_listed(const xr_launch_setup *out, const char *path)
{
    for (uint32_t i = 0; i < out->given.path_count; i++)
        if (strcmp(out->paths[i], path) == 0)
            return 1;
    return 0;
}

/* Takes the path over, which is absolute. */
static void keep_path(xr_launch_setup *out, char *path)
{
    if (out->given.path_count == out->path_cap) {
        const uint32_t cap = out->path_cap ? out->path_cap * 2 : 16;
        char **grown = realloc(out->paths, cap * sizeof(*grown));
        if (!grown) {
            out->failed = 1;
            free(path);
            return;
        }
        out->paths = grown;
        out->path_cap = cap;
    }
    out->paths[out->given.path_count++] = path;
}

/* Adds what exists of a path: a folder that the run will make is in one that
 * every host must see. */
static void add_path(xr_launch_setup *out, const char *path)
{
    char *at = path && *path ? xr_strdup(path) : NULL;
    char *whole = NULL;
    while (at && !(whole = realpath(at, NULL))) {
        char *parent = xr_path_parent(at);
        const int ends = !parent || strcmp(parent, at) == 0;
        free(at);
        at = parent;
        if (ends)
            break;
    }
    free(at);
    if (whole && !is_listed(out, whole))
        keep_path(out, whole);
    else
        free(whole);
}

static void add_list(xr_launch_setup *out, const xray_list *list)
{
    for (uint64_t i = 0; i < list->count; i++)
        add_path(out, list->items[i]);
}

static void add_folders(xr_launch_setup *out, const char *folders)
{
    char name[XR_PATH_CAP];
    while (folders && *folders) {
        const size_t size = strcspn(folders, ":");
        if (size < sizeof(name)) {
            (void)snprintf(name, sizeof(name), "%.*s", (int)size, folders);
            add_path(out, name);
        }
        folders += size + (folders[size] == ':');
    }
}

static void add_paths(const xr_run *run, xr_launch_setup *out)
{
    add_path(out, out->folder);
    add_path(out, run->actor.path);
    add_path(out, run->critic.path);
    add_path(out, run->reward_model.path);
    add_path(out, run->ini.model.tokenizer_path);
    add_list(out, &run->ini.data.train_files);
    add_list(out, &run->ini.data.val_files);
    if (run->with & XR_TRAINABLE)
        add_path(out, run->ini.trainer.default_local_dir);
    add_folders(out, run->plugin_path);
}

/* ---- the set-up ---------------------------------------------------------- */

xray_status xr_launch_build(char *out, xr_err *err)
{
    unsigned char id[XR_TCP_TOKEN];
    const int bad = xr_tcp_build_id(id);
    if (bad)
        return xr_fail(err, XRAY_E_IO, "the program's file cannot be read: %s",
                       XR_SYSTEM_ERROR(bad));
    xr_tcp_build_text(id, out);
    return XRAY_OK;
}

static xray_status find_program(xr_launch_setup *out, xr_err *err)
{
    const ssize_t n =
        readlink("/proc/self/exe", out->program, sizeof(out->program) - 1);
    if (n <= 0 || !getcwd(out->folder, sizeof(out->folder)))
        return xr_fail(err, XRAY_E_IO,
                       "the paths of the program and of the working directory "
                       "cannot be read");
    out->program[n] = '\0';
    return XRAY_OK;
}

static xray_status fill_setup(const xr_run *run, xr_err *err,
                              xr_launch_setup *out)
{
    const uint32_t count = run->placement.size;
    out->places = xr_calloc(count, sizeof(*out->places));
    out->names = xr_calloc(count, sizeof(*out->names));
    if (!out->places || !out->names)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the places");
    xray_status status = find_program(out, err);
    if (status == XRAY_OK)
        status = xr_launch_build(out->build, err);
    if (status != XRAY_OK)
        return status;
    fill_places(run, out);
    add_paths(run, out);
    if (out->failed)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the paths");
    out->given.host = xr_host_api(run->launcher.host);
    out->given.places = out->places;
    out->given.place_stride = sizeof(*out->places);
    out->given.count = count;
    out->given.run = xr_config_path(run->config);
    out->given.program = out->program;
    out->given.build = out->build;
    out->given.folder = out->folder;
    out->given.paths = (const char *const *)out->paths;
    out->given.restarts = run->restarts;
    return XRAY_OK;
}

xray_status xr_launch_setup_fill(const xr_run *run, xr_err *err,
                                 xr_launch_setup *out)
{
    *out = (xr_launch_setup){ .given = { .header =
                                             XRAY_HEADER(xray_launch_setup) } };
    xray_status status = fill_setup(run, err, out);
    if (status != XRAY_OK)
        xr_launch_setup_free(out);
    return status;
}

void xr_launch_setup_free(xr_launch_setup *setup)
{
    for (uint32_t i = 0; i < setup->given.path_count; i++)
        free(setup->paths[i]);
    free(setup->paths);
    free(setup->places);
    free(setup->names);
    *setup = (xr_launch_setup){ .path_cap = 0 };
}
