/* SPDX-License-Identifier: Apache-2.0
 *
 * A launcher of an engine that starts all processes of a job at once, with the
 * user's command line: FAKE_RANK is the number of a process, and the folder
 * FAKE_JOB is how they find each other. It reports no ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <xray/plugin.h>

#include "tests/fakes/launcher.h"

static const char *get_folder(void)
{
    const char *folder = getenv("FAKE_JOB");
    return folder ? folder : ".";
}

static xray_status create_job(const xray_launch_setup *setup,
                              const void *config, void **out_self)
{
    (void)config;
    fake_launcher *self = malloc(sizeof(*self));
    if (!self || fake_launcher_open(self, setup->host)) {
        free(self);
        return setup->host->fail(setup->host, XRAY_E_NOMEM, "create",
                                 "out of memory");
    }
    self->per_host = 1;
    self->mute = 1;
    *out_self = self;
    return XRAY_OK;
}

static void destroy_job(void *self)
{
    if (self)
        fake_launcher_close(self);
    free(self);
}

static const char *find_address(const char *const *argv)
{
    while (argv[1])
        argv++;
    return argv[0];
}

/* The process of rank 0 drives the run, and its Workhorse is another one. */
static xray_status start_rank(void *self, const xray_launch *launch)
{
    fake_launcher *at = self;
    char path[512];
    char done[512];
    (void)snprintf(done, sizeof(done), "%s/%u", get_folder(), launch->index);
    (void)snprintf(path, sizeof(path), "%s/.%u", get_folder(), launch->index);
    FILE *file = fopen(path, "w");
    if (!file)
        return at->host->fail(at->host, XRAY_E_IO, "start", path);
    (void)fprintf(file, "%s %s\n", find_address(launch->argv), launch->token);
    (void)fclose(file);
    if (rename(path, done) != 0)
        return at->host->fail(at->host, XRAY_E_IO, "start", done);
    return launch->index ? XRAY_OK : fake_start(self, launch);
}

/* Reads the lines that `start` has written for this rank. */
static void await_address(const char *rank, xray_launch_entry *out)
{
    const struct timespec pause = { 0, 10000000 };
    char path[512];
    FILE *file = NULL;
    (void)snprintf(path, sizeof(path), "%s/%s", get_folder(), rank);
    while (!(file = fopen(path, "r")))
        (void)nanosleep(&pause, NULL);
    if (fscanf(file, "%127s %127s", out->address, out->token) == 2)
        out->kind = XRAY_ENTRY_WORKHORSE;
    (void)fclose(file);
}

static xray_status enter_job(const xray_host *host, const void *config,
                             const char *address, xray_launch_entry *out)
{
    const char *rank = getenv("FAKE_RANK");
    xray_launch_entry own = { .header = XRAY_HEADER(xray_launch_entry),
                              .kind = XRAY_ENTRY_DRIVER };
    (void)config;
    if (!rank)
        return host->fail(host, XRAY_E_CONFIG, "enter",
                          "no job runs this process; start it with mpirun");
    if (address)
        await_address(strrchr(address, ':') + 1, &own);
    else if (strcmp(rank, "0") != 0)
        await_address(rank, &own);
    xray_fill(out, &own);
    return XRAY_OK;
}

static const xray_launcher_ops ops = {
    .header = XRAY_HEADER(xray_launcher_ops),
    .create = create_job,
    .destroy = destroy_job,
    .host_of = fake_host_of,
    .start = start_rank,
    .stop = fake_stop,
    .events = fake_events,
    .next = fake_next,
    .enter = enter_job,
};

/* Its name begins another one, and it stands between others. */
static const xray_component launcher = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_LAUNCHER,
    .name = "job",
    .summary = "Processes that were started before",
    .ops = &ops,
};
static const xray_component before = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_LAUNCHER,
    .name = "job-before",
    .summary = "One whose name begins alike",
    .ops = &ops,
};
static const xray_component behind = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_LAUNCHER,
    .name = "behind",
    .summary = "Another one",
    .ops = &ops,
};

static const xray_component *const components[] = { &before, &launcher,
                                                    &behind };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI,
    .component_count = sizeof(components) / sizeof(components[0]),
    .name = "fake-job",
    .version = "1.0",
    .vendor = "tests",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(fake_job, plugin, "fake-job", "1.0",
                   "xray.launcher/0:job-before xray.launcher/0:job "
                   "xray.launcher/0:behind")
XRAY_PLUGIN_ENTRY(fake_job)
