/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig of the suites of tests/ray.
 */
#include "tests/ray/launcher_rig.h"

#include <poll.h>

const xray_plugin *xray_plugin_query_runtime_ray(uint32_t host_abi);

static launcher_rig *current; /* whose service and log the host has */
static void *opened[2];       /* instances */

static const void *find_service(const xray_host *api, const char *id)
{
    (void)api;
    return strcmp(id, XRAY_SERVICE_CALLS) == 0 ? &current->stop.service : NULL;
}

static void log_line(const xray_host *api, uint32_t level, const char *text)
{
    fake_log(api, level, text);
    if (current->stop_on && strcmp(current->stop_on, text) == 0)
        current->stop.stop_at = 1;
}

void rig_prepare(launcher_rig *rig, uint32_t count, const char *python,
                 const char *address)
{
    const char *const keys[] = { "python", python, "address", address, NULL };
    memset(rig, 0, sizeof(*rig));
    current = rig;
    fake_host_init(&rig->host);
    rig->host.api.service = find_service;
    rig->host.api.log = log_line;
    stopper_begin(&rig->stop, 0);
    fake_config(fake_component(xray_plugin_query_runtime_ray,
                               XRAY_IFACE_LAUNCHER, "ray"),
                keys, &rig->config);
    for (uint32_t i = 0; i < count; i++)
        rig->places[i] =
            (xray_launch_place){ .name = "actor+rollout", .threads = 1 };
    rig->paths[0] = "/";
    rig->setup = (xray_launch_setup){ .header = XRAY_HEADER(xray_launch_setup),
                                      .host = &rig->host.api,
                                      .places = rig->places,
                                      .place_stride = sizeof(rig->places[0]),
                                      .count = count,
                                      .path_count = 1,
                                      .run = "run.ini",
                                      .program = "/bin/true",
                                      .build = "build 1",
                                      .folder = "/",
                                      .paths = rig->paths };
}

void rig_create(launcher_rig *rig)
{
    if (ray_ops.create(&rig->setup, &rig->config, &rig->self) != XRAY_OK)
        fail_msg("create: %s", rig->host.reason);
    for (size_t i = 0; i < sizeof(opened) / sizeof(opened[0]); i++)
        if (!opened[i]) {
            opened[i] = rig->self;
            return;
        }
}

void rig_expect_refused(launcher_rig *rig, xray_status status, const char *text)
{
    assert_int_equal(ray_ops.create(&rig->setup, &rig->config, &rig->self),
                     status);
    assert_null(rig->self);
    if (!strstr(rig->host.reason, text))
        fail_msg("the reason is: %s", rig->host.reason);
    assert_null(strchr(rig->host.reason, '\n'));
    assert_null(strstr(rig->host.reason, "Traceback"));
}

void rig_start(launcher_rig *rig, uint32_t index, const char *script)
{
    const char *const argv[] = { "/bin/sh", "-c", script, NULL };
    const xray_launch launch = { .header = XRAY_HEADER(xray_launch),
                                 .argv = argv,
                                 .token = "a secret",
                                 .index = index };
    if (ray_ops.start(rig->self, &launch) != XRAY_OK)
        fail_msg("start: %s", rig->host.reason);
}

void rig_wait(launcher_rig *rig)
{
    struct pollfd wait = { .fd = ray_ops.events(rig->self), .events = POLLIN };
    for (;;) {
        if (poll(&wait, 1, 180000) != 1)
            fail_msg("no event came within three minutes");
        xray_status status = ray_ops.next(rig->self, &rig->event);
        if (status == XRAY_OK)
            return;
        assert_int_equal(status, XRAY_AGAIN);
    }
}

void rig_expect(launcher_rig *rig, uint32_t index, const char *said,
                const char *ended)
{
    xr_str all = { 0 };
    for (;;) {
        rig_wait(rig);
        assert_int_equal(rig->event.index, index);
        assert_int_equal(rig->event.size, strlen(rig->event.text));
        if (rig->event.kind == XRAY_LAUNCH_ENDED)
            break;
        xr_str_append(&all, rig->event.text, (size_t)rig->event.size);
    }
    assert_string_equal(xr_str_text(&all), said);
    if (strncmp(rig->event.text, ended, strlen(ended)) != 0)
        fail_msg("the end is told as: %s", rig->event.text);
    assert_int_equal(rig->event.clean,
                     strcmp(ended, "exited with status 0") == 0);
    xr_str_free(&all);
}

void rig_close(launcher_rig *rig)
{
    for (size_t i = 0; i < sizeof(opened) / sizeof(opened[0]); i++)
        if (opened[i] == rig->self)
            opened[i] = NULL;
    ray_ops.destroy(rig->self);
    rig->self = NULL;
}

int rig_drop(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(opened) / sizeof(opened[0]); i++) {
        ray_ops.destroy(opened[i]);
        opened[i] = NULL;
    }
    return 0;
}
