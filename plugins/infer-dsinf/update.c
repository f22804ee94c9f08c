/* SPDX-License-Identifier: Apache-2.0
 *
 * New weights: behind shared handles, or into the engine's own copy, whole or
 * in parts.
 */
#include <inttypes.h>
#include <string.h>

#include "plugins/infer-dsinf/dsinf.h"

xray_status dsinf_check_whole(dsinf *self, const char *where)
{
    if (self->lost)
        return self->host->fail(self->host, XRAY_E_STATE, where,
                                "dsinf: the weights were given back (sleep): "
                                "an update has to bring all of them again");
    if (self->updating != DSINF_PART)
        return XRAY_OK;
    return self->host->fail(self->host, XRAY_E_STATE, where,
                            "dsinf: some of the new weights have come, the end "
                            "of the update has not");
}

static int all_came(const dsinf *self)
{
    return memchr(self->came, 0, self->layout->param_count) == NULL;
}

static void end_update(dsinf *self, uint64_t version, uint32_t state)
{
    memset(self->came, 0, self->layout->param_count);
    self->lost = 0;
    self->own->version = version;
    self->version = version;
    self->updating = state;
}

/* Parts behind one another make an update, which the last tensor or a call
 * without `from` ends: tensors that do not change need not come. */
static xray_status update_own(dsinf *self, const xray_weights *from,
                              uint64_t version, xr_err *err)
{
    if (self->asleep & 1u << XRAY_TAG_WEIGHTS)
        return xr_fail(err, XRAY_E_STATE,
                       "dsinf: the weights sleep; wake them before an update");
    if (!from && self->updating == DSINF_PART && self->lost)
        return xr_fail(err, XRAY_E_STATE,
                       "dsinf: after sleep all weights have to come, some did "
                       "not");
    if (!from && self->updating) {
        end_update(self, version, 0);
        return XRAY_OK;
    }
    if (!from)
        from = self->shared;
    if (!from)
        return xr_fail(err, XRAY_E_ARG,
                       "dsinf: the engine has weights of its own: `from` must "
                       "say where new ones are");
    xray_status status =
        xm_weights_import_part(self->own, from, self->came, err);
    if (status != XRAY_OK)
        return status;
    self->updating = DSINF_PART;
    if (all_came(self))
        end_update(self, version, DSINF_ALL);
    return XRAY_OK;
}

static xray_status update(dsinf *self, const xray_weights *from,
                          uint64_t version, xr_err *err)
{
    uint32_t live = xm_sched_live(self->sched);
    if (live)
        return xr_fail(err, XRAY_E_STATE,
                       "dsinf: weights cannot change while %" PRIu32
                       " requests run or are held",
                       live);
    if (self->own)
        return update_own(self, from, version, err);
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
    xray_status status = update(self, from, version, &err);
    return status == XRAY_OK ? status
                             : dsinf_fail(self->host, status, "update", &err);
}

const xray_weights *dsinf_weights(void *ptr)
{
    const dsinf *self = ptr;
    return self->own ? &self->own->table : NULL;
}
