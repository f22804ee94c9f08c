/* SPDX-License-Identifier: Apache-2.0
 *
 * The reward "http": scores samples with a judge or a verifier behind a URL.
 */
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/services.h"
#include "plugins/reward-http/http.h"

typedef struct reward {
    const xray_host *host;
    const http_config *config;
    const xray_call_service *calls; /* or NULL */
    xr_scores scores;
    http_protocol *protocol;
    http_client *client;
} reward;

/* ---- the address -------------------------------------------------------- */

static int is_local(const char *host)
{
    int numeric = host[strspn(host, "0123456789.")] == '\0';
    return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (numeric && strncmp(host, "127.", 4) == 0);
}

static xray_status check_parts(const xray_host *host, CURLU *url,
                               const http_config *config, xr_err *err)
{
    char *scheme = NULL;
    char *name = NULL;
    char *user = NULL;
    char line[512];
    xray_status status = XRAY_OK;
    (void)curl_url_get(url, CURLUPART_SCHEME, &scheme, 0);
    (void)curl_url_get(url, CURLUPART_HOST, &name, 0);
    (void)curl_url_get(url, CURLUPART_USER, &user, 0);
    int secure = scheme && strcmp(scheme, "https") == 0;
    int keyed = *config->key_env || *config->key_file;
    if (user) /* first, as no message may show the password */
        status = xr_fail_key(err, XRAY_E_CONFIG, NULL, "url",
                             " has a user or a password, which the files of a "
                             "run would show; expected key_env or key_file");
    else if (!scheme || (!secure && strcmp(scheme, "http") != 0))
        status =
            xr_fail_key(err, XRAY_E_CONFIG, NULL, "url",
                        " = %s: expected http:// or https://", config->url);
    else if (keyed && !secure && !(name && is_local(name))) {
        (void)snprintf(line, sizeof(line),
                       "the key is sent to %s without encryption; expected an "
                       "https:// url",
                       name ? name : "the server");
        host->log(host, XRAY_LOG_WARN, line);
    }
    curl_free(scheme);
    curl_free(name);
    curl_free(user);
    return status;
}

static xray_status check_url(const xray_host *host, const http_config *config,
                             xr_err *err)
{
    if (!*config->url)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "url",
                           ": expected an address, such as "
                           "http://localhost:8000/score");
    CURLU *url = curl_url();
    if (!url)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    xray_status status = XRAY_OK;
    CURLUcode code = curl_url_set(url, CURLUPART_URL, config->url, 0);
    if (code)
        status = xr_fail_key(err, XRAY_E_CONFIG, NULL, "url", " = %s: %s",
                             strchr(config->url, '@') ? "..." : config->url,
                             curl_url_strerror(code));
    else
        status = check_parts(host, url, config, err);
    curl_url_cleanup(url);
    return status;
}

/* ---- the instance ------------------------------------------------------- */

static void destroy_reward(void *ptr)
{
    reward *self = ptr;
    if (!self)
        return;
    http_client_close(self->client);
    http_protocol_close(self->protocol);
    xr_scores_close(&self->scores);
    free(self);
}

static xray_status open_reward(reward *self, xr_err *err)
{
    char *key = NULL;
    xray_status status = check_url(self->host, self->config, err);
    if (status == XRAY_OK)
        status = http_protocol_open(self->config, err, &self->protocol);
    if (status == XRAY_OK)
        status = http_key_read(self->config, err, &key);
    if (status == XRAY_OK)
        status = http_client_open(self->host, self->config, self->protocol, key,
                                  &self->scores, err, &self->client);
    free(key);
    return status;
}

static xray_status create_reward(const xray_host *host, const void *config,
                                 void **out_self)
{
    xr_err err = { "" };
    const http_config *c = config;
    reward *self = xr_calloc(1, sizeof(*self));
    if (!self || xr_scores_open(&self->scores, host, c->on_error == HTTP_STOP,
                                c->error_score)) {
        free(self);
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    }
    self->host = host;
    self->config = c;
    self->calls = xr_calls_of(host);
    xray_status status = open_reward(self, &err);
    if (status != XRAY_OK) {
        destroy_reward(self);
        return xr_host_tell(host, status, "create", &err);
    }
    *out_self = self;
    return XRAY_OK;
}

/* A sample that cannot be sent has failed; others go on. */
static xray_status submit_one(reward *self, const xray_sample_in *in)
{
    xr_err err = { "" };
    http_sample *sample = xr_calloc(1, sizeof(*sample));
    xray_status status =
        sample ? http_protocol_sample(self->protocol, in, &err, sample)
               : XRAY_E_NOMEM;
    if (status == XRAY_E_NOMEM || xr_scores_expect(&self->scores, 1)) {
        http_sample_free(sample);
        return self->host->fail(self->host, XRAY_E_NOMEM, "submit",
                                "out of memory");
    }
    if (status == XRAY_OK) {
        http_client_submit(self->client, sample);
        return XRAY_OK;
    }
    xr_scores_fail(&self->scores, in->id, "%s", err.text);
    http_sample_free(sample);
    return XRAY_OK;
}

static xray_status submit_samples(void *ptr, const xray_sample_in *samples,
                                  uint64_t count, uint64_t stride)
{
    reward *self = ptr;
    for (uint64_t i = 0; i < count; i++) {
        xr_err err = { "" };
        const char *at = (const char *)samples + i * stride;
        xray_status status = xr_stop_check(self->calls, &err);
        if (status != XRAY_OK)
            return xr_host_tell(self->host, status, "submit", &err);
        status = submit_one(self, (const void *)at);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

static xray_status poll_score(void *ptr, uint64_t wait_ns, xray_score *out)
{
    reward *self = ptr;
    return xr_scores_poll(&self->scores, wait_ns, out);
}

const xray_reward_ops http_ops = {
    .header = XRAY_HEADER(xray_reward_ops),
    .create = create_reward,
    .destroy = destroy_reward,
    .submit = submit_samples,
    .poll = poll_score,
    .capabilities = XRAY_REWARD_BESIDE,
};
