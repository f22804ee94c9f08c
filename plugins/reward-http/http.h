/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of the reward "http", its protocols, and the client that sends
 * the requests.
 */
#ifndef REWARD_HTTP_HTTP_H
#define REWARD_HTTP_HTTP_H

#include <xray/plugin.h>
#include <xray/reward.h>

#include "core/base/err.h"
#include "core/base/scores.h"

enum { HTTP_ROWS, HTTP_OPENRLHF, HTTP_CHAT };
enum { HTTP_STOP, HTTP_SCORE };

typedef struct http_config {
    const char *url;
    int64_t protocol; /* HTTP_ROWS, HTTP_OPENRLHF or HTTP_CHAT */
    const char *key_env;
    const char *key_file;
    int64_t batch;
    int64_t concurrency;
    int64_t timeout; /* nanoseconds of one attempt */
    int64_t retries;
    int64_t backoff; /* nanoseconds before the second attempt */
    const char *proxy;
    const char *ca_file;
    const char *model;
    const char *template_file;
    double temperature;
    int64_t max_tokens;
    const char *pattern;
    const char *score_path;
    int64_t on_error;
    double error_score;
} http_config;

extern const xray_reward_ops http_ops;

/* ---- key.c -------------------------------------------------------------- */

/* Reads the key from the environment or its file; *out is NULL if none is
 * configured, and free() releases it. */
xray_status http_key_read(const http_config *config, xr_err *err, char **out);
/* Overwrites every occurrence of the key in a text of a server, which may end
 * up in messages. `key` may be NULL. */
void http_key_cover(const char *key, char *text, size_t size);

/* ---- protocol.c --------------------------------------------------------- */

#define HTTP_PARTS 3 /* pieces of a sample in a request */

/* What a request needs of a sample: literals of JSON. */
typedef struct http_sample {
    struct http_sample *next;
    uint64_t id;
    xr_str parts[HTTP_PARTS];
} http_sample;

void http_sample_free(http_sample *sample);

/* The form of requests and answers, with the template and the pattern of a
 * judge. Many threads may use one at a time. */
typedef struct http_protocol http_protocol;

xray_status http_protocol_open(const http_config *config, xr_err *err,
                               http_protocol **out);
void http_protocol_close(http_protocol *protocol); /* accepts NULL */
/* Returns how many samples a request may have. */
size_t http_protocol_batch(const http_protocol *protocol);
/* Fills the parts. XRAY_E_IO: the sample cannot be sent, and `err` says
 * why. */
xray_status http_protocol_sample(const http_protocol *protocol,
                                 const xray_sample_in *in, xr_err *err,
                                 http_sample *out);
/* Appends the body of the request for a list of samples. */
void http_protocol_body(const http_protocol *protocol,
                        const http_sample *samples, xr_str *out);
/* Gives each sample of the request its score, or the reason why the answer has
 * none. */
void http_protocol_answer(const http_protocol *protocol,
                          const http_sample *samples, const char *text,
                          size_t size, xr_scores *scores);

/* ---- judge.c ------------------------------------------------------------ */

/* Finds the score in a judge's words. */
typedef struct http_judge http_judge;

xray_status http_judge_open(const http_config *config, xr_err *err,
                            http_judge **out);
void http_judge_close(http_judge *judge); /* accepts NULL */
/* XRAY_E_IO: there is none, and `err` says why. */
xray_status http_judge_score(const http_judge *judge, const char *words,
                             xr_err *err, double *out);
/* Appends the template with the parts of the sample. XRAY_E_IO: it names
 * a part that the sample lacks. */
xray_status http_judge_ask(const http_judge *judge, const cJSON *sample,
                           xr_err *err, xr_str *out);

/* ---- client.c ----------------------------------------------------------- */

/* The connections, which a thread of their own serves. */
typedef struct http_client http_client;

/* Sends nothing yet. The key is copied. */
xray_status http_client_open(const xray_host *host, const http_config *config,
                             const http_protocol *protocol, const char *key,
                             xr_scores *scores, xr_err *err, http_client **out);
/* Ends the requests under way. Accepts NULL. */
void http_client_close(http_client *client);
/* Takes the sample, which was announced to the scores. */
void http_client_submit(http_client *client, http_sample *sample);

#endif
