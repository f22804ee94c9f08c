/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes new weights: checks the version of shared ones, or imports them into
 * the engine's own copy, all at once or in parts.
 */
#include <inttypes.h>
#include <string.h>

#include "model/serve/engine_internal.h"

xray_status xm_engine_check_weights(xm_engine *self, const char *where)
{
    if (self->weights_lost)
        return xm_engine_fail(self, XRAY_E_STATE, where,
                              "sleep has evicted the weights: an "
                              "update must bring all of them again");
    if (self->updating != XM_ENGINE_UPDATE_PART)
        return XRAY_OK;
    return xm_engine_fail(self, XRAY_E_STATE, where,
                          "an update has brought some new weights and "
                          "has not ended yet");
}

static int has_all_tensors(const xm_engine *self)
{
    for (uint32_t i = 0; i < self->layout->param_count; i++)
        if (self->arrived[i] < self->layout->params[i].count)
            return 0;
    return 1;
}

void xm_engine_expect_weights(xm_engine *self)
{
    memset(self->arrived, 0,
           self->layout->param_count * sizeof(*self->arrived));
}

static void end_update(xm_engine *self, uint64_t version, uint32_t state)
{
    xm_engine_expect_weights(self);
    self->weights_lost = 0;
    self->own->version = version;
    self->version = version;
    self->updating = state;
}

/* Consecutive parts form an update. It ends with the last tensor or with a call
 * without `from`, so tensors that did not change may be left out. */
static xray_status update_own_weights(xm_engine *self, const xray_weights *from,
                                      uint64_t version, xr_err *err)
{
    if (self->asleep & 1u << XRAY_TAG_WEIGHTS)
        return xr_fail(err, XRAY_E_STATE,
                       "%s: the weights are asleep; wake them before an update",
                       self->name);
    if (!from && self->updating == XM_ENGINE_UPDATE_PART && self->weights_lost)
        return xr_fail(err, XRAY_E_STATE,
                       "%s: after sleep an update must bring all weights, "
                       "but some are missing",
                       self->name);
    if (!from && self->updating) {
        end_update(self, version, 0);
        return XRAY_OK;
    }
    if (!from)
        from = self->shared;
    if (!from)
        return xr_fail(err, XRAY_E_ARG,
                       "%s: the engine has weights of its own: `from` must "
                       "name the new ones",
                       self->name);
    xray_status status =
        xm_weights_import_part(self->own, from, self->arrived, err);
    if (status != XRAY_OK)
        return status;
    self->updating = XM_ENGINE_UPDATE_PART;
    if (has_all_tensors(self))
        end_update(self, version, XM_ENGINE_UPDATE_ALL);
    return XRAY_OK;
}

static xray_status update_weights(xm_engine *self, const xray_weights *from,
                                  uint64_t version, xr_err *err)
{
    if (self->own)
        return update_own_weights(self, from, version, err);
    if (from && from != self->shared)
        return xr_fail(err, XRAY_E_ARG,
                       "%s: the weights are shared with another owner than "
                       "`from`",
                       self->name);
    uint64_t now = xm_engine_version(self);
    if (now != version)
        return xr_fail(err, XRAY_E_ARG,
                       "%s: the shared weights are at version %" PRIu64
                       ", %" PRIu64 " was expected",
                       self->name, now, version);
    return XRAY_OK;
}

xray_status xm_engine_update(void *ptr, const xray_weights *from,
                             uint64_t version)
{
    xm_engine *self = ptr;
    xr_err err = { "" };
    xm_sched_forget(self->sched);
    xm_engine_forget_ahead(self);
    xray_status status = update_weights(self, from, version, &err);
    return status == XRAY_OK ? status
                             : xr_host_tell(self->host, status, "update", &err);
}

const xray_weights *xm_engine_weights(void *ptr)
{
    const xm_engine *self = ptr;
    return self->own ? &self->own->table : NULL;
}
