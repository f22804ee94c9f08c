/* SPDX-License-Identifier: Apache-2.0
 *
 * Evicts memory while no request runs, and restores it: keys and values,
 * activations, and the engine's own weights, which a later update must bring
 * again.
 */
#include <string.h>

#include "model/serve/engine_internal.h"

#define BIT(tag) (1u << (tag))

static xray_status check_tags(const xm_engine *self, uint32_t tags,
                              const char *where)
{
    if (tags & ~XM_ENGINE_EVICTABLE)
        return xm_engine_fail(
            self, XRAY_E_UNSUPPORTED, where,
            "keys and values, activations and own weights can be "
            "evicted, but other tags cannot");
    if (tags & ~BIT(XRAY_TAG_KV) &&
        (!XRAY_HAS(xray_device_ops, self->device, evict) ||
         !XRAY_HAS(xray_device_ops, self->device, restore) ||
         !XRAY_HAS(xray_device_ops, self->device, weight_evict)))
        return xm_engine_fail(self, XRAY_E_UNSUPPORTED, where,
                              "the device cannot evict memory");
    return XRAY_OK;
}

/* Shared weights belong to the trainer. */
static uint32_t own_tags_of(const xm_engine *self, uint32_t tags)
{
    return self->own ? tags : tags & ~BIT(XRAY_TAG_WEIGHTS);
}

xray_status xm_engine_sleep(void *ptr, uint32_t tags)
{
    xm_engine *self = ptr;
    xray_status status = check_tags(self, tags, "sleep");
    if (status != XRAY_OK)
        return status;
    if (xm_sched_live(self->sched))
        return xm_engine_fail(
            self, XRAY_E_STATE, "sleep",
            "requests run or are held; the memory that they use "
            "cannot be evicted");
    xm_engine_forget_ahead(self);
    tags = own_tags_of(self, tags) & ~self->asleep;
    if (tags & BIT(XRAY_TAG_KV)) {
        xm_sched_forget(self->sched);
        xm_engine_free_kv(self);
    }
    if (tags & BIT(XRAY_TAG_ACTIVATIONS))
        status = xm_space_evict(self->space);
    if (status == XRAY_OK && (tags & BIT(XRAY_TAG_WEIGHTS))) {
        self->weights_lost = 1;
        self->updating = 0;
        xm_engine_expect_weights(self);
        status = xm_weights_evict(self->own);
    }
    if (status != XRAY_OK)
        return xm_engine_fail(self, status, "sleep",
                              "the device could not evict memory");
    self->asleep |= tags & ~BIT(XRAY_TAG_KV);
    return XRAY_OK;
}

xray_status xm_engine_wake(void *ptr, uint32_t tags)
{
    xm_engine *self = ptr;
    xr_err err = { "" };
    xray_status status = check_tags(self, tags, "wake");
    if (status != XRAY_OK)
        return status;
    if ((tags & BIT(XRAY_TAG_KV)) && !self->kv_memory)
        status = xm_engine_alloc_kv(self, &err);
    if (status == XRAY_OK && (tags & self->asleep & BIT(XRAY_TAG_WEIGHTS)))
        status = xm_weights_restore(self->own);
    if (status == XRAY_OK && (tags & self->asleep & BIT(XRAY_TAG_ACTIVATIONS)))
        status = xm_space_restore(self->space);
    if (status == XRAY_OK)
        self->asleep &= ~tags;
    else if (!err.text[0])
        (void)xr_fail(&err, status,
                      "%s: no device memory for weights or activations",
                      self->name);
    return status == XRAY_OK ? status
                             : xr_host_tell(self->host, status, "wake", &err);
}
