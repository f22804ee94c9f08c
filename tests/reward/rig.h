/* SPDX-License-Identifier: Apache-2.0
 *
 * An instance of the reward "rule" with a fake host, for the tests of its
 * graders.
 */
#ifndef XR_REWARD_RIG_H
#define XR_REWARD_RIG_H

#include <xray/reward.h>

#include "tests/algo/fake_host.h"
#include "tests/reward/fence.h"

const xray_plugin *xray_plugin_query_reward_rule(uint32_t host_abi);

typedef struct rig {
    fake_host host;
    const xray_reward_ops *ops;
    void *self;
    _Alignas(16) char config[1024];
} rig;

static inline xray_status rig_try(rig *r, const char *const *keys)
{
    memset(r, 0, sizeof(*r));
    fake_host_init(&r->host);
    const xray_component *c = fake_component(xray_plugin_query_reward_rule,
                                             XRAY_IFACE_REWARD, "rule");
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

static inline void rig_close(rig *r)
{
    r->ops->destroy(r->self);
}

static inline xray_sample_in rig_sample(uint64_t id, const char *response,
                                        size_t size, const char *truth)
{
    return (xray_sample_in){ .header = XRAY_HEADER(xray_sample_in),
                             .id = id,
                             .prompt = "",
                             .response = response,
                             .response_size = size,
                             .ground_truth = truth,
                             .data_source = "",
                             .fields_json = "{}" };
}

/* Polls the next score, which must be ready. */
static inline xray_score rig_next_score(rig *r)
{
    xray_score score = { .header = XRAY_HEADER(xray_score) };
    assert_int_equal(r->ops->poll(r->self, 0, &score), XRAY_OK);
    assert_null(score.token_scores);
    assert_true(score.value_count >= 2);
    assert_string_equal(score.values[0].name, "acc");
    assert_string_equal(score.values[1].name, "answered");
    return score;
}

static inline void rig_is_empty(rig *r)
{
    xray_score score = { .header = XRAY_HEADER(xray_score) };
    assert_int_equal(r->ops->poll(r->self, 1000, &score), XRAY_END);
}

/* Submits one sample, whose response a grader may read to its size only. */
static inline void rig_submit(rig *r, const xray_sample_in *sample)
{
    xray_sample_in fenced = *sample;
    fenced.response =
        fence_text(sample->response, (size_t)sample->response_size);
    assert_int_equal(r->ops->submit(r->self, &fenced, 1, sizeof(fenced)),
                     XRAY_OK);
}

/* Submits one sample and returns its score. */
static inline xray_score rig_score(rig *r, const xray_sample_in *sample)
{
    rig_submit(r, sample);
    xray_score score = rig_next_score(r);
    rig_is_empty(r);
    return score;
}

/* Returns the score of a text without token ids. */
static inline double rig_text_score(rig *r, const char *response,
                                    const char *truth)
{
    xray_sample_in sample = rig_sample(1, response, strlen(response), truth);
    return rig_score(r, &sample).score;
}

/* Returns a named value of a score, which must exist. */
static inline double rig_value(const xray_score *score, const char *name)
{
    for (uint32_t i = 0; i < score->value_count; i++)
        if (strcmp(score->values[i].name, name) == 0)
            return score->values[i].value;
    fail_msg("no value %s", name);
    return 0;
}

/* Checks that `create` refuses the keys with a sentence that holds `words`. */
static inline void rig_refuse(const char *const *keys, const char *words)
{
    rig r;
    assert_int_equal(rig_try(&r, keys), XRAY_E_CONFIG);
    assert_null(r.self);
    if (!strstr(r.host.reason, words))
        fail_msg("'%s' does not say %s", r.host.reason, words);
}

static inline void rig_near(double got, double want, const char *what)
{
    if (!(got - want < 1e-12 && want - got < 1e-12))
        fail_msg("%s: got %.17g, want %.17g", what, got, want);
}

/* Grades one sample: returns 'R'ight, 'W'rong or 'N'o answer. */
static inline char rig_judge(rig *r, const char *response, size_t size,
                             const char *truth)
{
    xray_sample_in sample = rig_sample(77, response, size, truth);
    rig_submit(r, &sample);
    xray_score score = rig_next_score(r);
    assert_int_equal(score.id, 77);
    rig_is_empty(r);
    if (score.values[0].value > 0)
        return 'R';
    return score.values[1].value > 0 ? 'W' : 'N';
}

/* One row of a table of verdicts that ends with a NULL response. */
typedef struct rig_case {
    const char *response;
    const char *truth;
    char verdict; /* the result of rig_judge */
} rig_case;

static inline void rig_run(const char *const *keys, const rig_case *cases)
{
    rig r;
    int bad = 0;
    rig_open(&r, keys);
    for (; cases->response; cases++) {
        char got = rig_judge(&r, cases->response, strlen(cases->response),
                             cases->truth);
        if (got != cases->verdict)
            print_error("'%s' against '%s': %c, not %c\n", cases->response,
                        cases->truth, got, cases->verdict);
        bad += got != cases->verdict;
    }
    rig_close(&r);
    assert_int_equal(bad, 0);
}

#define RIG_RUN(keys, ...) \
    rig_run(keys, (const rig_case[]){ __VA_ARGS__, { NULL, NULL, 0 } })

#endif
