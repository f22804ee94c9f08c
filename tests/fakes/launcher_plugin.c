/* SPDX-License-Identifier: Apache-2.0
 *
 * A launcher as a plugin: its hosts fake1, fake2, ... are this one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <xray/plugin.h>
#include <xray/services.h>

#include "tests/fakes/launcher.h"

typedef struct options {
    int64_t per_host;
    const char *fault; /* what goes wrong; "": nothing */
    const char *notes; /* a file that is told what was asked for */
} options;

static xray_status refuse(const xray_host *host, const char *where,
                          const char *text)
{
    return host->fail(host, XRAY_E_UNSUPPORTED, where, text);
}

static void note_setup(const xray_launch_setup *setup, const options *opt,
                       const char *call)
{
    FILE *file = *opt->notes ? fopen(opt->notes, "a") : NULL;
    if (!file)
        return;
    (void)fprintf(file, "%s %s build %s\nrestarts %u\n", call, setup->run,
                  setup->build, setup->restarts);
    for (uint32_t i = 0; i < setup->count; i++) {
        const xray_launch_place *place =
            (const xray_launch_place *)(const void *)((const char *)
                                                          setup->places +
                                                      i * setup->place_stride);
        (void)fprintf(file, "place %u %s devices %u threads %u memory %s\n", i,
                      place->name, place->devices, place->threads,
                      place->memory ? "known" : "unknown");
    }
    for (uint32_t i = 0; i < setup->path_count; i++)
        (void)fprintf(file, "path %s\n", setup->paths[i]);
    (void)fclose(file);
}

static void wait_for_stop(const xray_host *host)
{
    const struct timespec pause = { 0, 20000000 };
    const xray_call_service *calls = host->service(host, XRAY_SERVICE_CALLS);
    while (!calls->stopping(calls))
        (void)nanosleep(&pause, NULL);
}

/* Waits for a place that never comes. */
static xray_status wait_in_vain(const xray_host *host)
{
    wait_for_stop(host);
    return host->fail(host, XRAY_E_CANCELED, "create",
                      "the wait for places was canceled");
}

static xray_status create_launcher(const xray_launch_setup *setup,
                                   const void *config, void **out_self)
{
    const options *opt = config;
    const xray_host *host = setup->host;
    note_setup(setup, opt, "create");
    if (strcmp(opt->fault, "places") == 0)
        return refuse(host, "create", "there are no places of this size");
    if (strcmp(opt->fault, "wait") == 0) {
        host->log(host, XRAY_LOG_WARN, "waiting for places");
        return wait_in_vain(host);
    }
    fake_launcher *self = malloc(sizeof(*self));
    if (!self || setup->count > FAKE_PLACES || fake_launcher_open(self, host)) {
        free(self);
        return refuse(host, "create", "out of memory");
    }
    self->per_host = (uint32_t)opt->per_host;
    self->refuses = strcmp(opt->fault, "start") == 0;
    self->mute = strcmp(opt->fault, "mute") == 0;
    if (strcmp(opt->fault, "name") == 0)
        self->prefix = "fake host ";
    *out_self = self;
    return XRAY_OK;
}

static void destroy_launcher(void *self)
{
    if (self)
        fake_launcher_close(self);
    free(self);
}

static xray_status check_launcher(const xray_launch_setup *setup,
                                  const void *config)
{
    const options *opt = config;
    const xray_location location = { .header = XRAY_HEADER(xray_location),
                                     .key = "per_host" };
    note_setup(setup, opt, "check");
    if (strcmp(opt->fault, "key") == 0)
        return setup->host->fail_at(setup->host, XRAY_E_CONFIG, "check",
                                    &location, ": the hosts are smaller");
    if (strcmp(opt->fault, "check") != 0)
        return XRAY_OK;
    return refuse(setup->host, "check",
                  "the engine has 1 of 2 nodes, and no accelerators");
}

static xray_status submit_job(const xray_launch_setup *setup,
                              const void *config, const char *const *argv,
                              int32_t *out_exit)
{
    const options *opt = config;
    if (strcmp(opt->fault, "submit") == 0)
        return refuse(setup->host, "submit", "the engine takes no jobs");
    (void)printf("job:");
    for (size_t i = 1; argv[i]; i++)
        (void)printf(" %s", argv[i]);
    (void)printf("\n");
    *out_exit = 7;
    if (strcmp(opt->fault, "long") != 0)
        return XRAY_OK;
    (void)fflush(stdout);
    wait_for_stop(setup->host);
    *out_exit = 9;
    return XRAY_OK;
}

static const xray_launcher_ops ops = {
    .header = XRAY_HEADER(xray_launcher_ops),
    .create = create_launcher,
    .destroy = destroy_launcher,
    .host_of = fake_host_of,
    .start = fake_start,
    .stop = fake_stop,
    .events = fake_events,
    .next = fake_next,
    .check = check_launcher,
    .submit = submit_job,
};

static const xray_option fake_options[] = {
    XRAY_INT(options, per_host, "2", 0, 16, "", 0u, "0.1",
             "Places of each host."),
    XRAY_STRING(options, fault, "", 0u, "0.1", "What goes wrong."),
    XRAY_STRING(options, notes, "", 0u, "0.1", "File of what was asked for."),
};

static const xray_component launcher = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_LAUNCHER,
    .name = "fake",
    .summary = "An engine that is this host",
    .ops = &ops,
    .options = fake_options,
    .option_count = sizeof(fake_options) / sizeof(fake_options[0]),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(options),
};

static const xray_component *const components[] = { &launcher };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI,
    .component_count = sizeof(components) / sizeof(components[0]),
    .name = "fake-launcher",
    .version = "1.0",
    .vendor = "tests",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(fake_launcher, plugin, "fake-launcher", "1.0",
                   "xray.launcher/0:fake")
XRAY_PLUGIN_ENTRY(fake_launcher)
