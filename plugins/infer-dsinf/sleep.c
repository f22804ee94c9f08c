/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is given back while nobody asks for tokens: keys and values,
 * activations, and weights of the engine's own, which have to come again.
 */
#include <string.h>

#include "plugins/infer-dsinf/dsinf.h"

#define BIT(tag) (1u << (tag))

static xray_status fail(const dsinf *self, xray_status code, const char *where,
                        const char *text)
{
    return self->host->fail(self->host, code, where, text);
}

static xray_status check_tags(const dsinf *self, uint32_t tags,
                              const char *where)
{
    if (tags & ~DSINF_EVICTABLE)
        return fail(self, XRAY_E_UNSUPPORTED, where,
                    "dsinf: the memory of keys and values, activations and own "
                    "weights can be given back, other tags cannot");
    if (tags & ~BIT(XRAY_TAG_KV) &&
        (!XRAY_HAS(xray_device_ops, self->device, evict) ||
         !XRAY_HAS(xray_device_ops, self->device, restore) ||
         !XRAY_HAS(xray_device_ops, self->device, weight_evict)))
        return fail(self, XRAY_E_UNSUPPORTED, where,
                    "dsinf: the device does not take memory back (evict)");
    return XRAY_OK;
}

/* Shared weights are the trainer's matter. */
static uint32_t own_tags(const dsinf *self, uint32_t tags)
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
        return fail(self, XRAY_E_STATE, "sleep",
                    "dsinf: requests run or are held; what they use cannot be "
                    "given back");
    tags = own_tags(self, tags) & ~self->asleep;
    if (tags & BIT(XRAY_TAG_KV))
        dsinf_drop_kv(self);
    if (tags & BIT(XRAY_TAG_ACTIVATIONS))
        status = xm_space_evict(self->space);
    if (status == XRAY_OK && (tags & BIT(XRAY_TAG_WEIGHTS))) {
        self->lost = 1;
        self->updating = 0;
        memset(self->came, 0, self->layout->param_count);
        status = xm_weights_evict(self->own);
    }
    if (status != XRAY_OK)
        return fail(self, status, "sleep",
                    "dsinf: the device kept memory that was given back");
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
        status = dsinf_take_kv(self, &err);
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
                             : dsinf_fail(self->host, status, "wake", &err);
}
