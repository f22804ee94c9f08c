/* SPDX-License-Identifier: Apache-2.0
 *
 * Evicts memory while no request runs, and restores it: keys and values,
 * activations, and the engine's own weights, which a later update must bring
 * again.
 */
#include <string.h>

#include "plugins/infer-dsinf/dsinf.h"

#define BIT(tag) (1u << (tag))

static xray_status fail_call(const dsinf *self, xray_status code,
                             const char *where, const char *text)
{
    return self->host->fail(self->host, code, where, text);
}

static xray_status check_tags(const dsinf *self, uint32_t tags,
                              const char *where)
{
    if (tags & ~DSINF_EVICTABLE)
        return fail_call(
            self, XRAY_E_UNSUPPORTED, where,
            "dsinf: keys and values, activations and own weights can be "
            "evicted, but other tags cannot");
    if (tags & ~BIT(XRAY_TAG_KV) &&
        (!XRAY_HAS(xray_device_ops, self->device, evict) ||
         !XRAY_HAS(xray_device_ops, self->device, restore) ||
         !XRAY_HAS(xray_device_ops, self->device, weight_evict)))
        return fail_call(self, XRAY_E_UNSUPPORTED, where,
                         "dsinf: the device cannot evict memory");
    return XRAY_OK;
}

/* Shared weights belong to the trainer. */
static uint32_t own_tags_of(const dsinf *self, uint32_t tags)
{
    return self->own ? tags : tags & ~BIT(XRAY_TAG_WEIGHTS);
}

xray_status dsinf_sleep(void *ptr, uint32_t tags)
{
    dsinf *self = ptr;
    xray_status status = check_tags(self, tags, "sleep");
    if (status != XRAY_OK)
        return status;
    if (xm_sched_live(self->sched))
        return fail_call(
            self, XRAY_E_STATE, "sleep",
            "dsinf: requests run or are held; the memory that they use "
            "cannot be evicted");
    dsinf_forget_ahead(self);
    tags = own_tags_of(self, tags) & ~self->asleep;
    if (tags & BIT(XRAY_TAG_KV))
        dsinf_free_kv(self);
    if (tags & BIT(XRAY_TAG_ACTIVATIONS))
        status = xm_space_evict(self->space);
    if (status == XRAY_OK && (tags & BIT(XRAY_TAG_WEIGHTS))) {
        self->weights_lost = 1;
        self->updating = 0;
        dsinf_expect_weights(self);
        status = xm_weights_evict(self->own);
    }
    if (status != XRAY_OK)
        return fail_call(self, status, "sleep",
                         "dsinf: the device could not evict memory");
    self->asleep |= tags & ~BIT(XRAY_TAG_KV);
    return XRAY_OK;
}

xray_status dsinf_wake(void *ptr, uint32_t tags)
{
    dsinf *self = ptr;
    xr_err err = { "" };
    xray_status status = check_tags(self, tags, "wake");
    if (status != XRAY_OK)
        return status;
    if ((tags & BIT(XRAY_TAG_KV)) && !self->kv_memory)
        status = dsinf_alloc_kv(self, &err);
    if (status == XRAY_OK && (tags & self->asleep & BIT(XRAY_TAG_WEIGHTS)))
        status = xm_weights_restore(self->own);
    if (status == XRAY_OK && (tags & self->asleep & BIT(XRAY_TAG_ACTIVATIONS)))
        status = xm_space_restore(self->space);
    if (status == XRAY_OK)
        self->asleep &= ~tags;
    else if (!err.text[0])
        (void)xr_fail(&err, status,
                      "dsinf: no device memory for weights or activations");
    return status == XRAY_OK ? status
                             : dsinf_report(self->host, status, "wake", &err);
}
