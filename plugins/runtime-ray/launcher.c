/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher "ray": has the bridge reserve places and start Workhorses, and
 * passes on what it reports about them.
 */
#define _GNU_SOURCE /* explicit_bzero */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/file.h"
#include "plugins/runtime-ray/ray.h"

#define CLOSE_MS 8000u /* in which Ray takes the places back */
#define STOP_S 10.0    /* in which a process has ended */
#define WAIT_MS 50

/* A report is kept until the host takes it. */
typedef struct report {
    struct report *next;
    uint32_t kind;
    uint32_t index;
    uint32_t clean;
    char text[]; /* ends with NUL */
} report;

typedef struct place {
    char host[XRAY_LAUNCH_HOST_MOST + 1];
    uint64_t turn; /* of its last start; what is older is forgotten */
    int runs;
} place;

typedef struct launcher {
    const xray_host *host;
    ray_bridge bridge;
    uint32_t count;
    place *places;
    report *first;
    report **last;   /* where the next one goes */
    report *current; /* that the host has taken */
    int events;      /* epoll of the channel, and of `waiting` */
    int waiting;     /* an eventfd that is readable while there are reports */
} launcher;

static const char *text_of(const cJSON *message, const char *key)
{
    const char *text = "";
    (void)xr_json_string_or(message, key, "", "", NULL, &text);
    return text;
}

/* ---- reports ------------------------------------------------------------ */

static void add_report(launcher *self, const report *head, const char *text)
{
    size_t size = strlen(text) + 1;
    report *r = xr_calloc(1, sizeof(*r) + size);
    if (!r)
        return;
    *r = *head;
    r->next = NULL;
    memcpy(r->text, text, size);
    *self->last = r;
    self->last = &r->next;
}

static void free_reports(report *r)
{
    while (r) {
        report *next = r->next;
        free(r);
        r = next;
    }
}

static void forget_reports(launcher *self, uint32_t index)
{
    report **at = &self->first;
    while (*at) {
        report *r = *at;
        if (r->index == index) {
            *at = r->next;
            free(r);
        } else {
            at = &r->next;
        }
    }
    self->last = at;
}

/* Makes `events` readable while there is a report, or a line that may be
 * one. */
static void show_reports(const launcher *self)
{
    uint64_t number = 1;
    ssize_t n = read(self->waiting, &number, sizeof(number));
    number = 1;
    if (self->first || ray_bridge_has_line(&self->bridge))
        n = write(self->waiting, &number, sizeof(number));
    (void)n;
}

/* ---- messages ----------------------------------------------------------- */

static int read_place(const launcher *self, const cJSON *message,
                      uint32_t *out_index, uint64_t *out_turn)
{
    int64_t index = -1;
    int64_t turn = -1;
    (void)xr_json_int_or(message, "index", -1, "", NULL, &index);
    (void)xr_json_int_or(message, "turn", -1, "", NULL, &turn);
    *out_index = (uint32_t)index;
    *out_turn = (uint64_t)turn;
    return index >= 0 && index < (int64_t)self->count;
}

static void take_message(launcher *self, const cJSON *message)
{
    uint32_t index = 0;
    uint64_t turn = 0;
    int clean = 0;
    const char *is = text_of(message, "is");
    if (ray_log_message(self->host, message))
        return;
    if (!read_place(self, message, &index, &turn))
        return;
    place *p = &self->places[index];
    if (!p->runs || turn != p->turn)
        return;
    report r = { .kind = XRAY_LAUNCH_SAYS, .index = index };
    if (strcmp(is, "ended") == 0) {
        (void)xr_json_bool_or(message, "clean", 0, "", NULL, &clean);
        r.kind = XRAY_LAUNCH_ENDED;
        r.clean = clean ? 1 : 0;
        p->runs = 0;
    } else if (strcmp(is, "says") != 0) {
        return;
    }
    add_report(self, &r, text_of(message, "text"));
}

/* Without the bridge nothing is known about its Workhorses, and their launchers
 * end with it. */
static void end_all(launcher *self)
{
    char text[600];
    (void)snprintf(text, sizeof(text), "is gone: %s", self->bridge.why);
    for (uint32_t i = 0; i < self->count; i++) {
        const report r = { .kind = XRAY_LAUNCH_ENDED, .index = i };
        if (self->places[i].runs)
            add_report(self, &r, text);
        self->places[i].runs = 0;
    }
}

/* Receives one message, waits up to `ms` for it, and returns RAY_* of it. Of an
 * answer "stopped" to this turn *out_stopped becomes 1. */
static int hear_bridge(launcher *self, int ms, uint64_t turn, int *out_stopped)
{
    cJSON *message = NULL;
    int found = ray_bridge_receive(&self->bridge, ms, &message);
    if (found == RAY_ENDED)
        end_all(self);
    if (found != RAY_MESSAGE)
        return found;
    uint32_t index = 0;
    uint64_t number = 0;
    if (strcmp(text_of(message, "is"), "stopped") == 0)
        *out_stopped |=
            read_place(self, message, &index, &number) && number == turn;
    else
        take_message(self, message);
    cJSON_Delete(message);
    return found;
}

/* ---- creation ----------------------------------------------------------- */

static xray_status open_events(launcher *self, xr_err *err)
{
    struct epoll_event readable = { .events = EPOLLIN };
    self->events = epoll_create1(EPOLL_CLOEXEC);
    self->waiting = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->events < 0 || self->waiting < 0 ||
        epoll_ctl(self->events, EPOLL_CTL_ADD, self->waiting, &readable) ||
        epoll_ctl(self->events, EPOLL_CTL_ADD, self->bridge.fd, &readable))
        return xr_fail(err, XRAY_E_IO, "no descriptor for events of Ray");
    return XRAY_OK;
}

static xray_status read_hosts(launcher *self, const cJSON *answer, xr_err *err)
{
    const cJSON *hosts = xr_json_get(answer, "hosts");
    if (!cJSON_IsArray(hosts) || cJSON_GetArraySize(hosts) != (int)self->count)
        return xr_fail(err, XRAY_E_IO, "the bridge to Ray names no hosts");
    const cJSON *item = hosts->child;
    for (uint32_t i = 0; i < self->count; i++, item = item->next)
        (void)snprintf(self->places[i].host, sizeof(self->places[i].host), "%s",
                       cJSON_IsString(item) ? item->valuestring : "");
    return XRAY_OK;
}

static xray_status reserve_places(launcher *self,
                                  const xray_launch_setup *setup,
                                  const ray_config *config, xr_err *err)
{
    const ray_wait wait = { .host = setup->host,
                            .calls = xr_calls_of(setup->host),
                            .is = "hosts",
                            .out = -1 };
    xr_str line = { 0 };
    cJSON *answer = NULL;
    xray_status status = XRAY_OK;
    ray_request_open("run", setup, config, NULL, &line);
    if (line.failed)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory");
    if (status == XRAY_OK) {
        ray_bridge_send(&self->bridge, &line);
        status = ray_wait_answer(&wait, &self->bridge, err, &answer);
    }
    if (status == XRAY_OK)
        status = read_hosts(self, answer, err);
    cJSON_Delete(answer);
    xr_str_free(&line);
    return status;
}

static void free_launcher(launcher *self, uint64_t ms)
{
    ray_bridge_close(&self->bridge, ms);
    if (self->events >= 0)
        (void)close(self->events);
    if (self->waiting >= 0)
        (void)close(self->waiting);
    free_reports(self->first);
    free(self->current);
    free(self->places);
    free(self);
}

static void destroy_launcher(void *ptr)
{
    if (ptr)
        free_launcher(ptr, CLOSE_MS);
}

static xray_status create_launcher(const xray_launch_setup *setup,
                                   const void *config, void **out_self)
{
    const xray_host *host = setup->host;
    xr_err err = { "" };
    launcher *self = xr_calloc(1, sizeof(*self));
    if (!self)
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    *self = (launcher){ .host = host,
                        .count = setup->count,
                        .places = xr_calloc(setup->count, sizeof(place)),
                        .last = &self->first,
                        .bridge = { .fd = -1, .errors = -1 },
                        .events = -1,
                        .waiting = -1 };
    xray_status status = self->places
                             ? ray_bridge_open(config, &err, &self->bridge)
                             : xr_fail(&err, XRAY_E_NOMEM, "out of memory");
    if (status == XRAY_OK)
        status = open_events(self, &err);
    if (status == XRAY_OK)
        status = reserve_places(self, setup, config, &err);
    if (status == XRAY_OK) {
        *out_self = self;
        return XRAY_OK;
    }
    /* A host that stops waits for nothing. */
    free_launcher(self, status == XRAY_E_CANCELED ? 0 : CLOSE_MS);
    return xr_host_tell(host, status, "create", &err);
}

/* ---- Workhorses --------------------------------------------------------- */

static const char *host_of_place(void *ptr, uint32_t index)
{
    const launcher *self = ptr;
    return index < self->count ? self->places[index].host : "";
}

static xray_status start_place(void *ptr, const xray_launch *launch)
{
    launcher *self = ptr;
    const xray_host *host = self->host;
    xr_str line = { 0 };
    if (launch->index >= self->count || self->places[launch->index].runs)
        return xr_host_fail(host, XRAY_E_ARG, "start",
                            "place %u of %u is taken or too large",
                            launch->index, self->count);
    if (self->bridge.fd < 0)
        return xr_host_fail(host, XRAY_E_IO, "start", "%s", self->bridge.why);
    place *p = &self->places[launch->index];
    ray_request_start(launch, p->turn + 1, &line);
    if (!line.failed) {
        ray_bridge_send(&self->bridge, &line);
        p->turn++;
        p->runs = 1;
    }
    int failed = line.failed;
    if (line.data)
        explicit_bzero(line.data, line.size);
    xr_str_free(&line);
    return failed ? host->fail(host, XRAY_E_NOMEM, "start", "out of memory")
                  : XRAY_OK;
}

static void stop_place(void *ptr, uint32_t index)
{
    launcher *self = ptr;
    if (index >= self->count)
        return;
    place *p = &self->places[index];
    if (p->runs && self->bridge.fd >= 0) {
        const double until = xr_now() + STOP_S;
        int stopped = 0;
        xr_str line = { 0 };
        p->runs = 0;
        ray_request_stop(index, p->turn, &line);
        ray_bridge_send(&self->bridge, &line);
        xr_str_free(&line);
        while (!stopped && xr_now() < until &&
               hear_bridge(self, WAIT_MS, p->turn, &stopped) != RAY_ENDED)
            ;
    }
    p->runs = 0;
    forget_reports(self, index);
    show_reports(self);
}

static int32_t get_events(void *ptr)
{
    const launcher *self = ptr;
    return self->events;
}

static xray_status take_report(void *ptr, xray_launch_event *out)
{
    launcher *self = ptr;
    int stopped = 0;
    while (!self->first && hear_bridge(self, 0, 0, &stopped) == RAY_MESSAGE)
        ;
    report *r = self->first;
    free(self->current);
    self->current = r;
    if (r) {
        self->first = r->next;
        if (!self->first)
            self->last = &self->first;
        out->kind = r->kind;
        out->index = r->index;
        out->clean = r->clean;
        out->text = r->text;
        out->size = strlen(r->text);
    }
    show_reports(self);
    return r ? XRAY_OK : XRAY_AGAIN;
}

const xray_launcher_ops ray_ops = {
    .header = XRAY_HEADER(xray_launcher_ops),
    .create = create_launcher,
    .destroy = destroy_launcher,
    .host_of = host_of_place,
    .start = start_place,
    .stop = stop_place,
    .events = get_events,
    .next = take_report,
    .check = ray_check,
    .submit = ray_submit,
};
