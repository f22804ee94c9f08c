/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/zoo/sick.h"

static const xray_infer_ops *base;

/* Tells a test that sampling is under way and gives it time for a signal. */
static void pause_here(void)
{
    const char *flag = getenv("SICK_FLAG");
    struct timespec pause = { 0, 400000000 };
    int fd = flag ? open(flag, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (fd < 0)
        return;
    (void)!write(fd, "here\n", 5);
    (void)close(fd);
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
        ;
}

static xray_status step(void *self)
{
    if (sick_now("infer-idle"))
        return XRAY_OK;
    if (sick_now("infer-pause"))
        pause_here();
    return base->step(self);
}

static void spoil(xray_sample_out *out)
{
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
    if (sick_now("infer-null"))
        out->logp = NULL;
}

static xray_status poll(void *self, xray_sample_out *out)
{
    static xray_sample_out before;
    if (before.token_count && sick_now("infer-twice")) {
        *out = before;
        return XRAY_OK;
    }
    xray_status status = base->poll(self, out);
    if (status == XRAY_OK) {
        spoil(out);
        before = *out;
    }
    return status;
}

const xray_component *sick_infer(void)
{
    static xray_infer_ops ops;
    static xray_component component;
    if (!sick_wrapped("infer-dsinf", &component))
        return NULL;
    base = component.ops;
    ops = *base;
    ops.step = step;
    ops.poll = poll;
    component.name = "sick";
    component.ops = &ops;
    return &component;
}
