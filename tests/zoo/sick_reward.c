/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements faults of a reward.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "tests/zoo/sick.h"

static const xray_reward_ops *base;
static const xray_host *host;

static void spoil_score(xray_score *out)
{
    static const float bad[64] = { 0, NAN };
    static const float huge[64] = { 0, 3e38f };
    if (sick_now("reward-nan"))
        out->score = NAN;
    if (sick_now("reward-inf"))
        out->score = -INFINITY;
    if (sick_now("reward-unknown"))
        out->id += 1000;
    if (sick_now("reward-tokens"))
        out->token_scores = bad;
    if (sick_now("reward-huge"))
        out->score = 1e300;
    if (sick_now("reward-huge-tokens"))
        out->token_scores = huge;
    if (sick_now("reward-many")) {
        static const xray_named_value one = { "x", 1 };
        out->values = &one;
        out->value_count = 1u << 31;
        out->value_stride = sizeof(one);
    }
    if (sick_is("reward-names")) {
        static const xray_named_value odd[] = { { "score", 0.5 },
                                                { NULL, 1 },
                                                { "scores", 2 } };
        out->values = odd;
        out->value_count = 3;
        out->value_stride = sizeof(odd[0]);
    }
    if (sick_now("reward-values")) {
        out->values = NULL;
        out->value_count = 3;
    }
}

static xray_status reward_poll(void *self, uint64_t wait_ns, xray_score *out)
{
    static xray_score before;
    static int any;
    if (sick_is("reward-silent"))
        return XRAY_AGAIN;
    if (any && sick_now("reward-twice")) {
        *out = before;
        return XRAY_OK;
    }
    if (any && sick_now("reward-few"))
        return XRAY_END;
    if (sick_now("reward-wait"))
        sick_wait();
    xray_status held = sick_hold(host, "reward-hold");
    if (held != XRAY_OK)
        return held;
    if (sick_now("reward-stops"))
        (void)raise(SIGTERM);
    xray_status status = base->poll(self, wait_ns, out);
    if (status == XRAY_END && sick_now("reward-more")) {
        *out = before;
        return XRAY_OK;
    }
    if (status == XRAY_OK) {
        spoil_score(out);
        before = *out;
        any = 1;
    }
    return status;
}

/* Prints the fields of a sample that a grader receives to standard error. */
static void print_sample(const xray_sample_in *s)
{
    (void)fprintf(stderr, "prompt '%s' %llu, response '%s' %llu, truth '%s'\n",
                  s->prompt, (unsigned long long)s->prompt_size, s->response,
                  (unsigned long long)s->response_size, s->ground_truth);
    (void)fprintf(stderr, "  source '%s', fields %s, finish %u, ids",
                  s->data_source, s->fields_json, (unsigned)s->finish);
    for (uint32_t i = 0; i < s->id_count; i++)
        (void)fprintf(stderr, " %d", (int)s->ids[i]);
    (void)fputs("\n", stderr);
}

static xray_status reward_create(const xray_host *given, const void *config,
                                 void **out_self)
{
    host = given;
    return base->create(given, config, out_self);
}

static xray_status reward_submit(void *self, const xray_sample_in *samples,
                                 uint64_t count, uint64_t stride)
{
    const unsigned char *at = (const unsigned char *)samples;
    for (uint64_t i = 0; i < count && sick_is("reward-tells"); i++)
        print_sample((const xray_sample_in *)(const void *)(at + i * stride));
    return base->submit(self, samples, count, stride);
}

const xray_component *sick_reward(void)
{
    static xray_reward_ops ops;
    static xray_component component;
    if (!sick_wrapped("reward-rule", &component))
        return NULL;
    base = component.ops;
    ops = *base;
    ops.create = reward_create;
    ops.submit = reward_submit;
    ops.poll = reward_poll;
    component.name = "sick";
    component.ops = &ops;
    return &component;
}
