/* SPDX-License-Identifier: Apache-2.0
 *
 * An instance of reward.ffi with its workers, for suites of it.
 */
#ifndef XR_REWARD_FFI_RIG_H
#define XR_REWARD_FFI_RIG_H

#include <dlfcn.h>

#include <xray/reward.h>

#include "tests/algo/fake_host.h"
#include "tests/scratch.h"

typedef struct rig {
    fake_host host;
    const xray_reward_ops *ops;
    void *self;
    _Alignas(16) char config[1024];
} rig;

/* Loads the module, because its worker lies beside it. */
static inline const xray_component *load_component(void)
{
    char path[512];
    const char *build = getenv("XRAY_BUILD");
    assert_non_null(build);
    (void)snprintf(path, sizeof(path), "%s/plugins/reward-ffi.so", build);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        fail_msg("%s", dlerror());
    const xray_plugin *(*query)(uint32_t);
    void *symbol = dlsym(module, "xray_plugin_query");
    assert_non_null(symbol);
    memcpy(&query, &symbol, sizeof(query));
    return fake_component(query, XRAY_IFACE_REWARD, "ffi");
}

static inline xray_status rig_try(rig *r, const char *const *keys)
{
    const xray_component *c = load_component();
    memset(r, 0, sizeof(*r));
    fake_host_init(&r->host);
    assert_true(c->config_size <= sizeof(r->config));
    fake_config(c, keys, r->config);
    r->ops = c->ops;
    return r->ops->create(&r->host.api, r->config, &r->self);
}

static inline void rig_open(rig *r, const char *const *keys)
{
    if (rig_try(r, keys) != XRAY_OK)
        fail_msg("create failed: %s", r->host.reason);
}

static inline void expect_words(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' does not say '%s'", text, words);
}

static inline void expect_refusal(const char *const *keys, const char *words)
{
    rig r;
    assert_int_equal(rig_try(&r, keys), XRAY_E_CONFIG);
    expect_words(r.host.reason, words);
}

static inline const char *library(void)
{
    static char path[512];
    (void)snprintf(path, sizeof(path), "%s/tests/reward-functions.so",
                   getenv("XRAY_BUILD"));
    return path;
}

#define C_KEYS(...) RIG_KEYS("library", library(), __VA_ARGS__)
#define PYTHON_KEYS(path, ...) \
    RIG_KEYS("language", "python", "path", path, __VA_ARGS__)

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

static inline double score_one(rig *r, const xray_sample_in *sample)
{
    xray_score score;
    submit(r, sample, 1);
    if (next_score(r, &score) != XRAY_OK)
        fail_msg("%s", r->host.reason);
    assert_int_equal(score.id, sample->id);
    return score.score;
}

static inline double score_text(rig *r, const char *response)
{
    xray_sample_in sample = make_sample(3, response);
    return score_one(r, &sample);
}

/* The sample fails for this reason. */
static inline void expect_failure(rig *r, const xray_sample_in *sample,
                                  const char *words)
{
    xray_score score;
    submit(r, sample, 1);
    assert_int_equal(next_score(r, &score), XRAY_E_IO);
    expect_words(r->host.reason, words);
}

#endif
