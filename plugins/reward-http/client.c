/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that serves the connections: it makes requests of the samples that
 * wait, repeats those that failed for a while, and passes answers on.
 */
#include <curl/curl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/hash.h"
#include "plugins/reward-http/http.h"

#define ANSWER_CAP ((size_t)16 << 20) /* most bytes of an answer */
#define QUOTE 200                     /* bytes of an answer in a message */
#define SECOND INT64_C(1000000000)
#define LONGEST_BACKOFF (60 * SECOND)
#define LONGEST_WAIT 600 /* seconds of Retry-After that are waited for */

typedef struct http_request {
    struct http_request *next;
    http_sample *samples;
    xr_str body;
    uint64_t number;
    int64_t failures;
    int64_t due; /* when it may be sent again */
} http_request;

/* One connection. */
typedef struct http_slot {
    CURL *curl;
    http_request *request; /* NULL: idle */
    xr_str answer;
    char error[CURL_ERROR_SIZE];
} http_slot;

struct http_client {
    const xray_host *host;
    const http_config *config;
    const http_protocol *protocol;
    xr_scores *scores;
    char *key; /* or NULL */
    struct curl_slist *headers;
    CURLM *multi;
    http_slot *slots;
    http_request *again; /* those that failed for a while */
    int64_t paused;      /* nothing is sent before, as the server asks */
    uint64_t requests;
    int initialised;
    int threaded;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    http_sample *first;
    http_sample **end;
    int closing;
};

static int64_t read_clock(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec;
}

static void free_samples(http_sample *samples)
{
    while (samples) {
        http_sample *next = samples->next;
        http_sample_free(samples);
        samples = next;
    }
}

static void free_request(http_request *request)
{
    if (!request)
        return;
    free_samples(request->samples);
    xr_str_free(&request->body);
    free(request);
}

/* ---- requests ----------------------------------------------------------- */

/* Takes as many samples that wait as a request may have. */
static http_sample *take_samples(http_client *client)
{
    size_t most = http_protocol_batch(client->protocol);
    (void)pthread_mutex_lock(&client->lock);
    http_sample *taken = client->first;
    http_sample **at = &client->first;
    for (size_t n = 0; *at && n < most; n++)
        at = &(*at)->next;
    http_sample *rest = *at;
    *at = NULL;
    client->first = rest;
    if (!rest)
        client->end = &client->first;
    (void)pthread_mutex_unlock(&client->lock);
    return taken;
}

static void fail_samples(const http_client *client, http_sample *samples,
                         const char *reason)
{
    for (const http_sample *s = samples; s; s = s->next)
        xr_scores_fail(client->scores, s->id, "%s", reason);
    free_samples(samples);
}

static http_request *make_request(http_client *client)
{
    http_sample *samples = take_samples(client);
    if (!samples)
        return NULL;
    http_request *request = xr_calloc(1, sizeof(*request));
    if (request)
        http_protocol_body(client->protocol, samples, &request->body);
    if (!request || request->body.failed) {
        fail_samples(client, samples, "out of memory");
        free_request(request);
        return NULL;
    }
    request->samples = samples;
    request->number = client->requests++;
    return request;
}

/* Takes a failed request whose time has come, or NULL. */
static http_request *take_again(http_client *client, int64_t now)
{
    for (http_request **at = &client->again; *at; at = &(*at)->next)
        if ((*at)->due <= now) {
            http_request *request = *at;
            *at = request->next;
            return request;
        }
    return NULL;
}

static void end_request(http_client *client, http_request *request,
                        const char *reason)
{
    char whole[700];
    if (request->failures > 1)
        (void)snprintf(whole, sizeof(whole),
                       "%.600s, in the last of %" PRId64 " attempts", reason,
                       request->failures);
    else
        (void)snprintf(whole, sizeof(whole), "%s", reason);
    fail_samples(client, request->samples, whole);
    request->samples = NULL;
    free_request(request);
}

/* ---- failures ----------------------------------------------------------- */

/* The time before the next attempt: twice as long after each, and spread, so
 * that requests which failed together do not come together again. */
static int64_t choose_backoff(const http_client *client,
                              const http_request *request)
{
    uint64_t draw[2] = { request->number, (uint64_t)request->failures };
    double spread = (double)(xr_hash64(draw, sizeof(draw), 0) >> 11) * 0x1p-53;
    int64_t backoff = client->config->backoff;
    for (int64_t i = 1; i < request->failures && backoff < LONGEST_BACKOFF; i++)
        backoff *= 2;
    if (backoff > LONGEST_BACKOFF)
        backoff = LONGEST_BACKOFF;
    return (int64_t)((double)backoff * (0.5 + 0.5 * spread));
}

/* Sends the request once more later, or gives it up. `pause` is the server's
 * wish in seconds. */
static void try_again(http_client *client, http_request *request,
                      const char *reason, int64_t pause)
{
    char line[512];
    int64_t wait = choose_backoff(client, request);
    if (request->failures > client->config->retries) {
        end_request(client, request, reason);
        return;
    }
    if (pause > LONGEST_WAIT) {
        (void)snprintf(line, sizeof(line),
                       "%.300s, and wants %" PRId64
                       " s without requests, more than %d s",
                       reason, pause, LONGEST_WAIT);
        end_request(client, request, line);
        return;
    }
    if (pause > 0 && read_clock() + pause * SECOND > client->paused)
        client->paused = read_clock() + pause * SECOND;
    if (wait < pause * SECOND)
        wait = pause * SECOND;
    request->due = read_clock() + wait;
    request->next = client->again;
    client->again = request;
    (void)snprintf(line, sizeof(line), "%.400s; it is asked again in %.3g s",
                   reason, 1e-9 * (double)wait);
    client->host->log(client->host, XRAY_LOG_INFO, line);
}

static int is_for_a_while(CURLcode code, long status)
{
    static const long passing[] = { 408, 425, 429, 500, 502, 503, 504 };
    static const CURLcode lasting[] = { CURLE_UNSUPPORTED_PROTOCOL,
                                        CURLE_URL_MALFORMAT,
                                        CURLE_WRITE_ERROR,
                                        CURLE_FILESIZE_EXCEEDED,
                                        CURLE_OUT_OF_MEMORY,
                                        CURLE_SSL_CACERT_BADFILE,
                                        CURLE_PEER_FAILED_VERIFICATION };
    for (size_t i = 0; code && i < sizeof(lasting) / sizeof(lasting[0]); i++)
        if (code == lasting[i])
            return 0;
    for (size_t i = 0; !code && i < sizeof(passing) / sizeof(passing[0]); i++)
        if (status == passing[i])
            return 1;
    return code != CURLE_OK;
}

static void describe_failure(const http_client *client, const http_slot *slot,
                             CURLcode code, long status, xr_err *err)
{
    const char *text = xr_str_text(&slot->answer);
    const char *place = NULL;
    if (code == CURLE_WRITE_ERROR || code == CURLE_FILESIZE_EXCEEDED) {
        (void)xr_fail(err, XRAY_E_IO,
                      slot->answer.failed
                          ? "out of memory"
                          : "the server's answer has more than %zu bytes",
                      ANSWER_CAP);
    } else if (code == CURLE_OPERATION_TIMEDOUT) {
        (void)xr_fail(err, XRAY_E_IO,
                      "the server did not answer within %g s (timeout)",
                      1e-9 * (double)client->config->timeout);
    } else if (code) {
        (void)xr_fail(err, XRAY_E_IO, "the server gave no answer: %s",
                      *slot->error ? slot->error : curl_easy_strerror(code));
    } else if (status >= 300 && status < 400) {
        (void)curl_easy_getinfo(slot->curl, CURLINFO_REDIRECT_URL, &place);
        char *shown = xr_strdup(place ? place : "another address");
        http_key_cover(client->key, shown, shown ? strlen(shown) : 0);
        (void)xr_fail(err, XRAY_E_IO,
                      "the server says %ld and leads to %.300s, which is not "
                      "followed",
                      status, shown ? shown : "another address");
        free(shown);
    } else {
        (void)xr_fail(err, XRAY_E_IO, "the server says %ld: %.*s%s", status,
                      QUOTE, *text ? text : "no reason",
                      strlen(text) > QUOTE ? "..." : "");
    }
}

/* ---- connections -------------------------------------------------------- */

static size_t take_bytes(char *bytes, size_t size, size_t count, void *data)
{
    http_slot *slot = data;
    size *= count;
    if (slot->answer.size + size > ANSWER_CAP)
        return 0;
    xr_str_append(&slot->answer, bytes, size);
    return slot->answer.failed ? 0 : size;
}

static void finish_request(http_client *client, http_slot *slot, CURLcode code)
{
    xr_err err = { "" };
    long status = 0;
    curl_off_t pause = 0;
    http_request *request = slot->request;
    slot->request = NULL;
    (void)curl_easy_getinfo(slot->curl, CURLINFO_RESPONSE_CODE, &status);
    http_key_cover(client->key, slot->answer.data, slot->answer.size);
    if (!code && status >= 200 && status < 300) {
        http_protocol_answer(client->protocol, request->samples,
                             xr_str_text(&slot->answer), slot->answer.size,
                             client->scores);
        free_request(request);
        return;
    }
    request->failures++;
    describe_failure(client, slot, code, status, &err);
    if (is_for_a_while(code, status)) {
        (void)curl_easy_getinfo(slot->curl, CURLINFO_RETRY_AFTER, &pause);
        try_again(client, request, err.text, (int64_t)pause);
    } else {
        end_request(client, request, err.text);
    }
}

static void send_request(http_client *client, http_slot *slot,
                         http_request *request)
{
    CURL *curl = slot->curl;
    xr_str_clear(&slot->answer);
    slot->answer.failed = 0;
    *slot->error = '\0';
    slot->request = request;
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                           (curl_off_t)request->body.size);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body.data);
    if (curl_multi_add_handle(client->multi, curl))
        finish_request(client, slot, CURLE_OUT_OF_MEMORY);
}

/* Gives each idle connection a request. */
static void send_requests(http_client *client)
{
    int64_t now = read_clock();
    if (now < client->paused)
        return;
    for (int64_t i = 0; i < client->config->concurrency; i++) {
        http_slot *slot = &client->slots[i];
        if (slot->request)
            continue;
        http_request *request = take_again(client, now);
        request = request ? request : make_request(client);
        if (!request)
            return;
        send_request(client, slot, request);
    }
}

static void take_answers(http_client *client)
{
    int left = 0;
    const CURLMsg *message;
    while ((message = curl_multi_info_read(client->multi, &left))) {
        void *data = NULL;
        CURLcode code = message->data.result;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE,
                                (char **)&data);
        http_slot *slot = data;
        (void)curl_multi_remove_handle(client->multi, slot->curl);
        finish_request(client, slot, code);
    }
}

/* Returns the milliseconds until a failed request is due. */
static int find_wait(const http_client *client)
{
    int64_t now = read_clock();
    int64_t least = 60 * SECOND;
    for (const http_request *r = client->again; r; r = r->next) {
        int64_t due = r->due > client->paused ? r->due : client->paused;
        if (due - now < least)
            least = due > now ? due - now : 0;
    }
    if (client->paused > now && client->paused - now < least)
        least = client->paused - now;
    return (int)(least / 1000000 + 1);
}

static int read_closing(http_client *client)
{
    (void)pthread_mutex_lock(&client->lock);
    int closing = client->closing;
    (void)pthread_mutex_unlock(&client->lock);
    return closing;
}

static void *serve_client(void *data)
{
    http_client *client = data;
    int running = 0;
    while (!read_closing(client)) {
        send_requests(client);
        (void)curl_multi_perform(client->multi, &running);
        take_answers(client);
        send_requests(client);
        (void)curl_multi_poll(client->multi, NULL, 0, find_wait(client), NULL);
    }
    return NULL;
}

/* ---- the control thread ------------------------------------------------- */

static xray_status set_text(CURL *curl, CURLoption option, const char *key,
                            const char *value, xr_err *err)
{
    CURLcode code = *value ? curl_easy_setopt(curl, option, value) : CURLE_OK;
    return code ? xr_fail_key(err, XRAY_E_CONFIG, NULL, key, " = %s: %s", value,
                              curl_easy_strerror(code))
                : XRAY_OK;
}

static xray_status open_slot(http_client *client, http_slot *slot, xr_err *err)
{
    const http_config *config = client->config;
    CURL *curl = slot->curl = curl_easy_init();
    if (!curl)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    long milliseconds = (long)(config->timeout / 1000000);
    (void)curl_easy_setopt(curl, CURLOPT_PRIVATE, slot);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, slot->error);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, client->headers);
    (void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "xray");
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, milliseconds);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, milliseconds);
    (void)curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE,
                           (curl_off_t)ANSWER_CAP);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, slot);
    xray_status status = set_text(curl, CURLOPT_URL, "url", config->url, err);
    if (status == XRAY_OK)
        status = set_text(curl, CURLOPT_PROXY, "proxy", config->proxy, err);
    if (status == XRAY_OK)
        status =
            set_text(curl, CURLOPT_CAINFO, "ca_file", config->ca_file, err);
    return status;
}

static int add_header(http_client *client, const char *header)
{
    struct curl_slist *more = curl_slist_append(client->headers, header);
    if (!more)
        return -1;
    client->headers = more;
    return 0;
}

/* The key is in no other memory of the client than its own copy and here. */
static int add_headers(http_client *client)
{
    xr_str line = { 0 };
    int bad = add_header(client, "Content-Type: application/json") ||
              add_header(client, "Expect:");
    if (!bad && client->key) {
        xr_str_printf(&line, "Authorization: Bearer %s", client->key);
        bad = line.failed || add_header(client, line.data);
        xr_str_free(&line);
    }
    return bad;
}

static int start_thread(http_client *client)
{
    sigset_t all;
    sigset_t old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad = pthread_create(&client->thread, NULL, serve_client, client);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    client->threaded = !bad;
    return bad;
}

static xray_status prepare_client(http_client *client, const char *key,
                                  xr_err *err)
{
    size_t count = (size_t)client->config->concurrency;
    client->initialised = !curl_global_init(CURL_GLOBAL_DEFAULT);
    client->multi = client->initialised ? curl_multi_init() : NULL;
    client->slots = xr_calloc(count, sizeof(*client->slots));
    client->key = key ? xr_strdup(key) : NULL;
    if (!client->multi || !client->slots || (key && !client->key) ||
        add_headers(client))
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        xray_status status = open_slot(client, &client->slots[i], err);
        if (status != XRAY_OK)
            return status;
    }
    return start_thread(client)
               ? xr_fail(err, XRAY_E_NOMEM,
                         "the thread of the requests cannot be started")
               : XRAY_OK;
}

xray_status http_client_open(const xray_host *host, const http_config *config,
                             const http_protocol *protocol, const char *key,
                             xr_scores *scores, xr_err *err, http_client **out)
{
    http_client *client = xr_calloc(1, sizeof(*client));
    if (!client)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    *client = (http_client){ .host = host,
                             .config = config,
                             .protocol = protocol,
                             .scores = scores,
                             .lock = PTHREAD_MUTEX_INITIALIZER };
    client->end = &client->first;
    xray_status status = prepare_client(client, key, err);
    if (status == XRAY_OK)
        *out = client;
    else
        http_client_close(client);
    return status;
}

static void close_slots(http_client *client)
{
    for (int64_t i = 0; client->slots && i < client->config->concurrency; i++) {
        http_slot *slot = &client->slots[i];
        if (slot->request)
            (void)curl_multi_remove_handle(client->multi, slot->curl);
        curl_easy_cleanup(slot->curl);
        free_request(slot->request);
        xr_str_free(&slot->answer);
    }
    free(client->slots);
}

void http_client_close(http_client *client)
{
    if (!client)
        return;
    if (client->threaded) {
        (void)pthread_mutex_lock(&client->lock);
        client->closing = 1;
        (void)pthread_mutex_unlock(&client->lock);
        (void)curl_multi_wakeup(client->multi);
        (void)pthread_join(client->thread, NULL);
    }
    close_slots(client);
    while (client->again) {
        http_request *next = client->again->next;
        free_request(client->again);
        client->again = next;
    }
    free_samples(client->first);
    if (client->multi)
        (void)curl_multi_cleanup(client->multi);
    curl_slist_free_all(client->headers);
    if (client->initialised)
        curl_global_cleanup();
    (void)pthread_mutex_destroy(&client->lock);
    free(client->key);
    free(client);
}

void http_client_submit(http_client *client, http_sample *sample)
{
    (void)pthread_mutex_lock(&client->lock);
    sample->next = NULL;
    *client->end = sample;
    client->end = &sample->next;
    (void)pthread_mutex_unlock(&client->lock);
    (void)curl_multi_wakeup(client->multi);
}
