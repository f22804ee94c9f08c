/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes new weights: checks the version of shared ones, or imports them into
 * the engine's own copy, all at once or in parts.
 */
#include <inttypes.h>
#include <string.h>

#include "plugins/infer-dsinf/dsinf.h"

xray_status dsinf_check_weights(dsinf *self, const char *where)
{
    if (self->weights_lost)
        return self->host->fail(self->host, XRAY_E_STATE, where,
                                "dsinf: sleep has evicted the weights: an "
                                "update must bring all of them again");
    if (self->updating != DSINF_UPDATE_PART)
        return XRAY_OK;
    return self->host->fail(self->host, XRAY_E_STATE, where,
                            "dsinf: an update has brought some new weights and "
                            "has not ended yet");
}

static int has_all_tensors(const dsinf *self)
{
    for (uint32_t i = 0; i < self->layout->param_count; i++)
        if (self->arrived[i] < self->layout->params[i].count)
            return 0;
    return 1;
}

void dsinf_expect_weights(dsinf *self)
{
    memset(self->arrived, 0,
           self->layout->param_count * sizeof(*self->arrived));
}

static void end_update(dsinf *self, uint64_t version, uint32_t state)
{
    dsinf_expect_weights(self);
    self->weights_lost = 0;
    self->own->version = version;
    self->version = version;
    self->updating = state;
}

/* Consecutive parts form an update. It ends with the last tensor or with a call
 * without `from`, so tensors that did not change may be left out. */
static xray_status update_own_weights(dsinf *self, const xray_weights *from,
                                      uint64_t version, xr_err *err)
{
    if (self->asleep & 1u << XRAY_TAG_WEIGHTS)
        return xr_fail(
            err, XRAY_E_STATE,
            "dsinf: the weights are asleep; wake them before an update");
    if (!from && self->updating == DSINF_UPDATE_PART && self->weights_lost)
        return xr_fail(err, XRAY_E_STATE,
                       "dsinf: after sleep an update must bring all weights, "
                       "but some are missing");
    if (!from && self->updating) {
        end_update(self, version, 0);
        return XRAY_OK;
    }
    if (!from)
        from = self->shared;
    if (!from)
        return xr_fail(err, XRAY_E_ARG,
                       "dsinf: the engine has weights of its own: `from` must "
                       "name the new ones");
    xray_status status =
        xm_weights_import_part(self->own, from, self->arrived, err);
    if (status != XRAY_OK)
        return status;
    self->updating = DSINF_UPDATE_PART;
    if (has_all_tensors(self))
        end_update(self, version, DSINF_UPDATE_ALL);
    return XRAY_OK;
}

static xray_status update_weights(dsinf *self, const xray_weights *from,
                                  uint64_t version, xr_err *err)
{
    if (self->own)
        return update_own_weights(self, from, version, err);
    if (from && from != self->shared)
        return xr_fail(err, XRAY_E_ARG,
                       "dsinf: the weights are shared with another owner than "
                       "`from`");
    uint64_t now = dsinf_version(self);
    if (now != version)
        return xr_fail(err, XRAY_E_ARG,
                       "dsinf: the shared weights are at version %" PRIu64
                       ", %" PRIu64 " was expected",
                       now, version);
    return XRAY_OK;
}

xray_status dsinf_update(void *ptr, const xray_weights *from, uint64_t version)
{
    dsinf *self = ptr;
    xr_err err = { "" };
    dsinf_forget_ahead(self);
    xray_status status = update_weights(self, from, version, &err);
    return status == XRAY_OK ? status
                             : dsinf_report(self->host, status, "update", &err);
}

const xray_weights *dsinf_weights(void *ptr)
{
    const dsinf *self = ptr;
    return self->own ? &self->own->table : NULL;
}
