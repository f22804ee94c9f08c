/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements faults of an inference engine.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/zoo/sick.h"

static const xray_infer_ops *base;

static const xray_host *host;

static xray_status infer_create(const xray_setup *setup, const void *config,
                                const xray_workload *load, void **out_self)
{
    host = setup->host;
    return base->create(setup, config, load, out_self);
}

/* Calls of `step`, and what the last one returned. */
static unsigned steps;
static xray_status stepped;

static xray_status infer_step(void *self)
{
    xray_status held = sick_hold(host, "infer-hold");
    if (held != XRAY_OK)
        return held;
    if (sick_now("infer-idle"))
        return XRAY_END;
    if (sick_now("infer-more"))
        return XRAY_OK;
    if (sick_now("infer-breaks"))
        return host->fail(host, XRAY_E_IO, "step", "the device is lost");
    if (sick_now("infer-wait"))
        sick_wait();
    steps++;
    stepped = base->step(self);
    return stepped;
}

static void spoil_sample(xray_sample_out *out)
{
    static xray_span span;
    static float logp[4096];
    static int32_t tokens[4096];
    uint32_t n = out->token_count;
    memcpy(logp, out->logp, n * sizeof(*logp));
    memcpy(tokens, out->tokens, n * sizeof(*tokens));
    out->logp = logp;
    out->tokens = tokens;
    if (sick_now("infer-logp"))
        logp[n - 1] = NAN;
    if (sick_now("infer-id"))
        tokens[n - 1] = 1 << 20;
    if (sick_now("infer-negative"))
        tokens[n - 1] = -1;
    if (sick_now("infer-long"))
        out->token_count = 100;
    if (sick_now("infer-other"))
        out->sample = 77;
    if (out->span_count && sick_now("infer-span")) {
        span = out->spans[0];
        span.version += 7;
        out->spans = &span;
    }
    if (sick_now("infer-spans")) {
        out->spans = NULL;
        out->span_count = 1u << 30;
    }
    if (sick_now("infer-wraps")) /* times 4 samples it overflows to 0 */
        out->id += UINT64_C(1) << 62;
    if (sick_now("infer-finish"))
        out->finish = 9;
    if (sick_now("infer-first"))
        out->first++;
    if (sick_now("infer-empty"))
        out->token_count = 0;
    if (sick_now("infer-raw"))
        out->raw_logp = NULL;
    if (sick_now("infer-null"))
        out->logp = NULL;
    if (sick_now("infer-top"))
        out->top_logp = NULL;
    if (sick_now("infer-picked"))
        out->logp_of_ids = NULL;
    if (sick_now("infer-prompt"))
        out->prompt_logp = NULL;
}

static xray_status infer_submit(void *self, const xray_request *request)
{
    return sick_now("infer-refuses") ? XRAY_E_ARG : base->submit(self, request);
}

static xray_status infer_abort(void *self, uint64_t id, uint32_t sample)
{
    return sick_now("infer-abort") ? XRAY_E_ARG : base->abort(self, id, sample);
}

/* Gives the tokens of three steps at once, the first of them by itself, so that
 * tokens of a sample come after its abort. */
static xray_status poll_pieces(void *self, xray_sample_out *out)
{
    static xray_sample_out rest;
    if (rest.token_count) {
        *out = rest;
        rest.token_count = 0;
        return XRAY_OK;
    }
    if (steps % 3 != 0 && stepped == XRAY_OK)
        return XRAY_AGAIN;
    xray_status status = base->poll(self, out);
    if (status != XRAY_OK || out->token_count < 2)
        return status;
    rest = *out;
    rest.first++;
    rest.tokens++;
    rest.raw_logp++;
    rest.logp++;
    rest.token_count--;
    out->token_count = 1;
    out->finish = XRAY_FINISH_NONE;
    return XRAY_OK;
}

static xray_status infer_poll(void *self, xray_sample_out *out)
{
    static xray_sample_out before;
    if (sick_is("infer-pieces"))
        return poll_pieces(self, out);
    if (before.token_count && sick_now("infer-twice")) {
        *out = before;
        return XRAY_OK;
    }
    if (sick_now("infer-lost"))
        return host->fail(host, XRAY_E_IO, "poll", "the samples are lost");
    xray_status status = base->poll(self, out);
    if (status == XRAY_OK) {
        spoil_sample(out);
        before = *out;
    }
    return status;
}

/* Flips one bit of one value after the last part, as if in transit. */
static void flip_bit(void *self)
{
    const xray_weights *own = base->weights(self);
    if (own && own->tensor_count)
        *(unsigned char *)own->tensors[own->tensor_count / 2].data ^= 1;
}

static xray_status infer_update(void *self, const xray_weights *from,
                                uint64_t version)
{
    xray_status status = base->update(self, from, version);
    if (!from && sick_now("infer-bit"))
        flip_bit(self);
    return status;
}

static uint64_t shifted_version(void *owner)
{
    const xray_weights *own = owner;
    return own->version(own->owner) + (uint64_t)sick_now("infer-version");
}

static const xray_weights *infer_weights(void *self)
{
    static xray_tensor tensor;
    static xray_weights own;
    static xray_weights other;
    const xray_weights *table = base->weights(self);
    if (!table)
        return NULL;
    own = other = *table;
    other.owner = &own;
    other.version = shifted_version;
    sick_table("infer", &other, &tensor);
    return &other;
}

const xray_component *sick_infer(void)
{
    static xray_infer_ops ops;
    static xray_component component;
    if (!sick_wrapped("infer-dsinf", &component))
        return NULL;
    base = component.ops;
    ops = *base;
    ops.create = infer_create;
    ops.step = infer_step;
    ops.submit = infer_submit;
    ops.poll = infer_poll;
    ops.abort = infer_abort;
    ops.update = infer_update;
    ops.weights = infer_weights;
    if (sick_is("infer-no-abort"))
        ops.capabilities &= ~(uint64_t)XRAY_INFER_ABORT_SAMPLE;
    component.name = "sick";
    component.ops = &ops;
    return &component;
}
