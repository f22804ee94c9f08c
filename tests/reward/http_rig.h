/* SPDX-License-Identifier: Apache-2.0
 *
 * An instance of reward.http and a server that it asks, for suites of it.
 */
#ifndef XR_REWARD_HTTP_RIG_H
#define XR_REWARD_HTTP_RIG_H

#include <xray/reward.h>

#include "tests/algo/fake_host.h"
#include "tests/reward/server.h"
#include "tests/scratch.h"

const xray_plugin *xray_plugin_query_reward_http(uint32_t host_abi);

typedef struct rig {
    fake_host host;
    const xray_reward_ops *ops;
    void *self;
    server server;
    char url[64];
    _Alignas(16) char config[1024];
} rig;

static inline xray_status try_create(rig *r, const char *url,
                                     const char *const *keys)
{
    const char *all[32] = { "url", url };
    size_t n = 2;
    for (; keys && *keys && n < 30; n++)
        all[n] = *keys++;
    const xray_component *c = fake_component(xray_plugin_query_reward_http,
                                             XRAY_IFACE_REWARD, "http");
    fake_host_init(&r->host);
    assert_true(c->config_size <= sizeof(r->config));
    fake_config(c, all, r->config);
    r->ops = c->ops;
    return r->ops->create(&r->host.api, r->config, &r->self);
}

static inline void rig_open(rig *r, const char *path, const char *const *keys)
{
    memset(r, 0, sizeof(*r));
    server_open(&r->server);
    (void)snprintf(r->url, sizeof(r->url), "http://127.0.0.1:%u%s",
                   r->server.port, path);
    if (try_create(r, r->url, keys) != XRAY_OK)
        fail_msg("create failed: %s", r->host.reason);
}

static inline void rig_close(rig *r)
{
    r->ops->destroy(r->self);
    server_close(&r->server);
}

static inline xray_sample_in make_sample(uint64_t id, const char *response)
{
    return (xray_sample_in){ .header = XRAY_HEADER(xray_sample_in),
                             .id = id,
                             .prompt = "",
                             .response = response,
                             .response_size = strlen(response),
                             .ground_truth = "18",
                             .data_source = "",
                             .fields_json = "{}" };
}

static inline void submit(rig *r, const xray_sample_in *samples, uint64_t count)
{
    assert_int_equal(r->ops->submit(r->self, samples, count, sizeof(*samples)),
                     XRAY_OK);
}

/* The status of the next answer, which comes within a minute. */
static inline xray_status next_score(rig *r, xray_score *out)
{
    *out = (xray_score){ .header = XRAY_HEADER(xray_score) };
    xray_status status = r->ops->poll(r->self, 60000000000u, out);
    assert_int_not_equal(status, XRAY_AGAIN);
    return status;
}

static inline double score_text(rig *r, const char *response)
{
    xray_score score;
    xray_sample_in sample = make_sample(3, response);
    submit(r, &sample, 1);
    if (next_score(r, &score) != XRAY_OK)
        fail_msg("%s", r->host.reason);
    assert_int_equal(score.id, 3);
    return score.score;
}

static inline void expect_words(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' does not say '%s'", text, words);
}

/* The sample of this response fails for this reason. */
static inline void expect_failure(rig *r, const char *response,
                                  const char *words)
{
    xray_score score;
    xray_sample_in sample = make_sample(3, response);
    submit(r, &sample, 1);
    assert_int_equal(next_score(r, &score), XRAY_E_IO);
    expect_words(r->host.reason, "poll: sample 3: ");
    expect_words(r->host.reason, words);
}

static inline void check_value(const xray_score *score, const char *name,
                               double value)
{
    for (uint32_t i = 0; i < score->value_count; i++)
        if (strcmp(score->values[i].name, name) == 0) {
            assert_true(score->values[i].value == value);
            return;
        }
    fail_msg("no value %s", name);
}

static inline void expect_refusal(const char *url, const char *const *keys,
                                  const char *words)
{
    rig r;
    memset(&r, 0, sizeof(r));
    if (try_create(&r, url, keys) == XRAY_OK)
        fail_msg("create did not say: %s", words);
    assert_null(r.self);
    expect_words(r.host.reason, words);
}

#define CHAT(template, ...)                                         \
    RIG_KEYS("protocol", "chat", "model", "judge", "template_file", \
             scratch_write("template.txt", template), __VA_ARGS__)

#endif
