/* SPDX-License-Identifier: Apache-2.0
 *
 * The reward "ffi": scores samples with a function of the user, which runs in
 * other processes.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/services.h"
#include "plugins/reward-ffi/fn.h"

typedef struct reward {
    const xray_host *host;
    const fn_config *config;
    const xray_call_service *calls; /* or NULL */
    xr_scores scores;
    fn_pool *pool;
} reward;

/* Every key of the language must be there, and none of the other one. */
static xray_status check_keys(const fn_config *config, xr_err *err)
{
    int python = config->language == FN_PYTHON;
    const struct {
        const char *key;
        const char *value;
        int python;
        int needed;
    } keys[] = { { "library", config->library, 0, 1 },
                 { "symbol", config->symbol, 0, 1 },
                 { "signature", config->signature, 0, 0 },
                 { "path", config->path, 1, 1 } };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (keys[i].python == python && keys[i].needed && !*keys[i].value)
            return xr_fail_key(err, XRAY_E_CONFIG, NULL, keys[i].key,
                               ": expected a value, because language = %s",
                               python ? "python" : "c");
        if (keys[i].python != python && *keys[i].value)
            return xr_fail_key(err, XRAY_E_CONFIG, NULL, keys[i].key,
                               " is used with language = %s only",
                               python ? "c" : "python");
    }
    return XRAY_OK;
}

static void destroy_reward(void *ptr)
{
    reward *self = ptr;
    if (!self)
        return;
    fn_pool_close(self->pool);
    xr_scores_close(&self->scores);
    free(self);
}

static xray_status create_reward(const xray_host *host, const void *config,
                                 void **out_self)
{
    xr_err err = { "" };
    const fn_config *c = config;
    xray_status status = check_keys(c, &err);
    if (status != XRAY_OK)
        return xr_host_tell(host, status, "create", &err);
    reward *self = xr_calloc(1, sizeof(*self));
    if (!self || xr_scores_open(&self->scores, host, c->on_error == FN_STOP,
                                c->error_score)) {
        free(self);
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    }
    self->host = host;
    self->config = c;
    self->calls = xr_calls_of(host);
    status = fn_pool_open(host, c, &self->scores, &err, &self->pool);
    if (status != XRAY_OK) {
        destroy_reward(self);
        return xr_host_tell(host, status, "create", &err);
    }
    *out_self = self;
    return XRAY_OK;
}

static const xray_sample_in *sample_at(const xray_sample_in *samples,
                                       uint64_t stride, uint64_t i)
{
    return (const void *)((const char *)samples + i * stride);
}

/* Returns the number of samples from `from` on that one call gets: for a form
 * with lists those that answer the same prompt, so that a call has the same
 * samples however many prompts are submitted at once. */
static uint64_t count_call_samples(const reward *self,
                                   const xray_sample_in *samples,
                                   uint64_t count, uint64_t stride,
                                   uint64_t from)
{
    const xray_sample_in *first = sample_at(samples, stride, from);
    uint64_t n = 1;
    if (self->config->language == FN_C || self->config->call == FN_VERL)
        return 1;
    for (; from + n < count; n++) {
        const xray_sample_in *next = sample_at(samples, stride, from + n);
        if (strcmp(first->prompt, next->prompt) != 0 ||
            strcmp(first->fields_json, next->fields_json) != 0)
            break;
    }
    return n;
}

static fn_job *make_job(const reward *self, const xray_sample_in *samples,
                        uint64_t stride, uint64_t from, uint64_t count)
{
    fn_job *job = xr_calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->ids = xr_calloc((size_t)count, sizeof(*job->ids));
    job->count = (size_t)count;
    for (uint64_t i = 0; job->ids && i < count; i++) {
        const xray_sample_in *sample = sample_at(samples, stride, from + i);
        job->ids[i] = sample->id;
        xr_str_puts(&job->line, i ? "," : "[");
        xr_scores_sample(sample, fn_pool_takes_ids(self->pool), &job->line);
    }
    xr_str_puts(&job->line, "]\n");
    if (!job->ids || job->line.failed) {
        fn_job_free(job);
        return NULL;
    }
    return job;
}

static xray_status submit_samples(void *ptr, const xray_sample_in *samples,
                                  uint64_t count, uint64_t stride)
{
    reward *self = ptr;
    for (uint64_t from = 0; from < count;) {
        xr_err err = { "" };
        uint64_t n = count_call_samples(self, samples, count, stride, from);
        xray_status status = xr_stop_check(self->calls, &err);
        if (status != XRAY_OK)
            return xr_host_tell(self->host, status, "submit", &err);
        fn_job *job = make_job(self, samples, stride, from, n);
        if (!job || xr_scores_expect(&self->scores, n)) {
            fn_job_free(job);
            return self->host->fail(self->host, XRAY_E_NOMEM, "submit",
                                    "out of memory");
        }
        fn_pool_submit(self->pool, job);
        from += n;
    }
    return XRAY_OK;
}

static xray_status poll_score(void *ptr, uint64_t wait_ns, xray_score *out)
{
    reward *self = ptr;
    return xr_scores_poll(&self->scores, wait_ns, out);
}

const xray_reward_ops fn_ops = {
    .header = XRAY_HEADER(xray_reward_ops),
    .create = create_reward,
    .destroy = destroy_reward,
    .submit = submit_samples,
    .poll = poll_score,
    .capabilities = XRAY_REWARD_BESIDE,
};
