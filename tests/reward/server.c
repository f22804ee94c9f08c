/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP server of the tests of reward.http.
 */
#include "tests/reward/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/testing.h"

typedef struct talk {
    server *s;
    int fd;
    unsigned number; /* of the request, from 0 */
    xr_str in;
    const char *body;
    cJSON *json;
} talk;

static int64_t read_clock(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- one request -------------------------------------------------------- */

static size_t read_length(const char *head)
{
    const char *at = strstr(head, "Content-Length: ");
    return at ? strtoul(at + strlen("Content-Length: "), NULL, 10) : 0;
}

static int read_request(talk *t)
{
    char buffer[4096];
    for (;;) {
        const char *end = t->in.data ? strstr(t->in.data, "\r\n\r\n") : NULL;
        t->body = end ? end + 4 : NULL;
        if (end && t->in.size >=
                       (size_t)(t->body - t->in.data) + read_length(t->in.data))
            return 0;
        ssize_t got = recv(t->fd, buffer, sizeof(buffer), 0);
        if (got <= 0)
            return -1;
        xr_str_append(&t->in, buffer, (size_t)got);
    }
}

static int send_all(talk *t, const char *text, size_t size)
{
    while (size) {
        ssize_t sent = send(t->fd, text, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return -1;
        text += sent;
        size -= (size_t)sent;
    }
    return 0;
}

static void answer(talk *t, const char *status, const char *headers,
                   const char *body)
{
    xr_str out = { 0 };
    xr_str_printf(&out,
                  "HTTP/1.1 %s\r\nConnection: close\r\n"
                  "Content-Type: application/json\r\nContent-Length: %zu\r\n"
                  "%s\r\n%s",
                  status, strlen(body), headers, body);
    (void)send_all(t, out.data, out.size);
    xr_str_free(&out);
}

static void await_end(talk *t)
{
    char byte;
    while (recv(t->fd, &byte, 1, 0) > 0)
        ;
}

/* ---- answers ------------------------------------------------------------ */

/* The response of the first sample, in any protocol. */
static const char *first_text(const talk *t)
{
    const cJSON *rows = xr_json_get(t->json, "samples");
    const cJSON *query = xr_json_get(t->json, "query");
    const cJSON *messages = xr_json_get(t->json, "messages");
    const cJSON *text =
        rows    ? xr_json_get(cJSON_GetArrayItem(rows, 0), "response")
        : query ? cJSON_GetArrayItem(query, 0)
                : xr_json_get(cJSON_GetArrayItem(messages, 0), "content");
    return cJSON_IsString(text) ? text->valuestring : "";
}

static void answer_rows(talk *t)
{
    xr_str out = { 0 };
    const cJSON *rows = xr_json_get(t->json, "samples");
    int count = cJSON_GetArraySize(rows);
    xr_str_puts(&out, "{\"scores\":[");
    for (int i = count - 1; i >= 0; i--) {
        const cJSON *row = cJSON_GetArrayItem(rows, i);
        const cJSON *id = xr_json_get(row, "id");
        const cJSON *text = xr_json_get(row, "response");
        if (cJSON_IsNumber(id) && cJSON_IsString(text))
            xr_str_printf(&out, "%s{\"asked\":%d,\"score\":%zu,\"id\":%.17g}",
                          i == count - 1 ? "" : ",", count,
                          strlen(text->valuestring), id->valuedouble);
    }
    xr_str_puts(&out, "]}");
    answer(t, "200 OK", "", out.data);
    xr_str_free(&out);
}

static void answer_rewards(talk *t)
{
    xr_str out = { 0 };
    const cJSON *query = xr_json_get(t->json, "query");
    const cJSON *prompts = xr_json_get(t->json, "prompts");
    const cJSON *labels = xr_json_get(t->json, "labels");
    int count = cJSON_GetArraySize(query);
    if (count != cJSON_GetArraySize(prompts) ||
        count != cJSON_GetArraySize(labels)) {
        answer(t, "422 Unprocessable Content", "", "lists differ");
        return;
    }
    xr_str_puts(&out, "{\"rewards\":[");
    for (int i = 0; i < count; i++)
        xr_str_printf(&out, i ? ",%zu" : "%zu",
                      strlen(cJSON_GetArrayItem(query, i)->valuestring));
    xr_str_puts(&out, "],\"scores\":[],\"extra_logs\":{\"label\":[");
    for (int i = 0; i < count; i++)
        xr_str_printf(&out, i ? ",%s" : "%s",
                      cJSON_GetArrayItem(labels, i)->valuestring);
    xr_str_puts(&out, "],\"asked\":2}}");
    answer(t, "200 OK", "", out.data);
    xr_str_free(&out);
}

static void answer_quote(talk *t)
{
    xr_str out = { 0 };
    const char *text = first_text(t);
    xr_str_puts(&out, "{\"choices\":[{\"message\":{\"content\":");
    xr_str_json(&out, text, strlen(text));
    xr_str_puts(&out, "}}]}");
    answer(t, "200 OK", "", out.data);
    xr_str_free(&out);
}

static void answer_key(talk *t)
{
    if (strstr(t->in.data, "Authorization: Bearer sesame-1234\r\n"))
        answer_rows(t);
    else
        answer(t, "401 Unauthorized", "", "no key");
}

static void answer_echo(talk *t)
{
    char line[256] = "";
    const char *at = strstr(t->in.data, "Authorization: ");
    if (at)
        (void)snprintf(line, sizeof(line), "you said %.*s.",
                       (int)strcspn(at, "\r"), at);
    answer(t, "400 Bad Request", "", line);
}

static void answer_meeting(talk *t)
{
    (void)pthread_mutex_lock(&t->s->lock);
    while (t->number == 0 && t->s->count < 4)
        (void)pthread_cond_wait(&t->s->changed, &t->s->lock);
    (void)pthread_mutex_unlock(&t->s->lock);
    answer_rows(t);
}

static void answer_flapping(talk *t)
{
    if (t->number == 0)
        answer(t, "503 Service Unavailable", "", "busy");
    else if (t->number > 1)
        answer_rows(t);
}

static void answer_limit(talk *t)
{
    if (t->number == 0)
        answer(t, "429 Too Many Requests", "Retry-After: 1\r\n", "wait");
    else
        answer_rows(t);
}

static void answer_endless(talk *t)
{
    static char bytes[65536];
    static const char head[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    uint64_t sent = 0;
    if (send_all(t, head, sizeof(head) - 1))
        return;
    while (sent < (uint64_t)1 << 30 && !send_all(t, bytes, sizeof(bytes)))
        sent += sizeof(bytes);
    (void)pthread_mutex_lock(&t->s->lock);
    t->s->sent = sent;
    (void)pthread_mutex_unlock(&t->s->lock);
}

static void answer_head(talk *t, uint64_t size)
{
    char head[128];
    (void)snprintf(head, sizeof(head),
                   "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n{\"scores\"",
                   (unsigned long long)size);
    (void)send_all(t, head, strlen(head));
}

static void answer_say(talk *t)
{
    answer(t, "200 OK", "", first_text(t));
}

static void answer_later(talk *t)
{
    answer(t, "429 Too Many Requests", "Retry-After: 100000\r\n", "wait");
}

static void answer_status(talk *t)
{
    answer(t, "500 Internal Server Error", "", "out\nof order");
}

static void answer_code(talk *t)
{
    char status[16];
    const char *text = first_text(t);
    (void)snprintf(status, sizeof(status), "%.3s Said", text);
    answer(t, status, "", strlen(text) > 4 ? text + 4 : "");
}

static void answer_after(talk *t)
{
    char header[64];
    (void)snprintf(header, sizeof(header), "Retry-After: %.16s\r\n",
                   first_text(t));
    answer(t, "429 Too Many Requests", header, "wait");
}

static void answer_crowd(talk *t)
{
    const struct timespec a_while = { .tv_nsec = 10000000 };
    (void)pthread_mutex_lock(&t->s->lock);
    if (++t->s->crowd > t->s->largest_crowd)
        t->s->largest_crowd = t->s->crowd;
    (void)pthread_mutex_unlock(&t->s->lock);
    (void)nanosleep(&a_while, NULL);
    (void)pthread_mutex_lock(&t->s->lock);
    t->s->crowd--;
    (void)pthread_mutex_unlock(&t->s->lock);
    answer_rows(t);
}

static void answer_missing(talk *t)
{
    answer(t, "404 Not Found", "", "");
}

static void answer_redirect(talk *t)
{
    char header[128];
    const char *key = strstr(t->in.data, "Bearer ");
    key = key ? key + strlen("Bearer ") : "";
    (void)snprintf(header, sizeof(header), "Location: /rows%s%.*s\r\n",
                   *key ? "?key=" : "", (int)strcspn(key, "\r"), key);
    answer(t, "302 Found", header, "");
}

static void answer_cut(talk *t)
{
    answer_head(t, 100);
}

static void answer_big(talk *t)
{
    answer_head(t, (uint64_t)1 << 30);
    await_end(t);
}

static void answer_nothing(talk *t)
{
    (void)t;
}

static const struct {
    const char *path;
    void (*answer)(talk *t);
} paths[] = {
    { "/rows", answer_rows },         { "/openrlhf", answer_rewards },
    { "/say", answer_say },           { "/quote", answer_quote },
    { "/key", answer_key },           { "/echo", answer_echo },
    { "/meet", answer_meeting },      { "/flap", answer_flapping },
    { "/limit", answer_limit },       { "/later", answer_later },
    { "/status", answer_status },     { "/missing", answer_missing },
    { "/redirect", answer_redirect }, { "/slow", await_end },
    { "/hangup", answer_nothing },    { "/cut", answer_cut },
    { "/big", answer_big },           { "/endless", answer_endless },
    { "/code", answer_code },         { "/after", answer_after },
    { "/crowd", answer_crowd },
};

/* Keeps the beginning of a request for the test, and returns the path that is
 * asked for; one that comes through a proxy names the host before it. */
static const char *keep_request(talk *t)
{
    static const char post[] = "POST ";
    static const char scheme[] = "http://";
    const char *path = t->in.data;
    (void)pthread_mutex_lock(&t->s->lock);
    (void)snprintf(t->s->last, sizeof(t->s->last), "%s", t->in.data);
    (void)pthread_mutex_unlock(&t->s->lock);
    if (strncmp(path, post, sizeof(post) - 1) != 0)
        return "";
    path += sizeof(post) - 1;
    if (strncmp(path, scheme, sizeof(scheme) - 1) != 0)
        return path;
    path += sizeof(scheme) - 1;
    return path + strcspn(path, "/\r");
}

static void *serve_talk(void *data)
{
    talk *t = data;
    if (!read_request(t)) {
        const char *path = keep_request(t);
        (void)xr_json_parse(t->body, strlen(t->body), "", NULL, &t->json);
        for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
            char line[64];
            (void)snprintf(line, sizeof(line), "%s HTTP/1.1\r\n",
                           paths[i].path);
            if (strncmp(path, line, strlen(line)) == 0)
                paths[i].answer(t);
        }
    }
    cJSON_Delete(t->json);
    xr_str_free(&t->in);
    (void)close(t->fd);
    free(t);
    return NULL;
}

/* ---- the server --------------------------------------------------------- */

static void start_talk(server *s, int fd)
{
    talk *t = xr_calloc(1, sizeof(*t));
    assert_non_null(t);
    (void)pthread_mutex_lock(&s->lock);
    assert_true(s->count < SERVER_REQUESTS);
    *t = (talk){ .s = s, .fd = fd, .number = s->count };
    s->times[s->count] = read_clock();
    assert_int_equal(pthread_create(&s->talks[s->count++], NULL, serve_talk, t),
                     0);
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

static void *serve(void *data)
{
    server *s = data;
    for (;;) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd >= 0)
            start_talk(s, fd);
        else if (errno != EINTR && errno != ECONNABORTED)
            return NULL;
    }
}

void server_open(server *s)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t size = sizeof(at);
    memset(s, 0, sizeof(*s));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(pthread_mutex_init(&s->lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&s->changed, NULL), 0);
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(s->fd >= 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(s->fd, 64), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&at, &size), 0);
    s->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

void server_close(server *s)
{
    (void)shutdown(s->fd, SHUT_RDWR);
    (void)pthread_join(s->thread, NULL);
    (void)close(s->fd);
    for (unsigned i = 0; i < s->count; i++)
        (void)pthread_join(s->talks[i], NULL);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->changed);
}

unsigned server_requests(server *s)
{
    (void)pthread_mutex_lock(&s->lock);
    unsigned count = s->count;
    (void)pthread_mutex_unlock(&s->lock);
    return count;
}
