/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls xray_train_ops.forward with one micro-batch, and implements it by a
 * function of one micro-batch.
 */
#ifndef TESTS_FORWARD_H
#define TESTS_FORWARD_H

#include <xray/train.h>

typedef xray_status (*forward_fn)(void *self, const xray_batch *batch,
                                  uint32_t outputs, xray_outputs *out);

static inline xray_status forward_one(const xray_train_ops *ops, void *self,
                                      const xray_batch *batch, uint32_t outputs,
                                      xray_outputs *out)
{
    return ops->forward(self, &batch, 1, outputs, out);
}

static inline xray_status forward_each(forward_fn forward, void *self,
                                       const xray_batch *const *batches,
                                       uint32_t count, uint32_t outputs,
                                       xray_outputs *out)
{
    xray_outputs part = *out;
    for (uint32_t i = 0; i < count; i++) {
        xray_status status = forward(self, batches[i], outputs, &part);
        if (status != XRAY_OK)
            return status;
        part.logp = part.logp ? part.logp + batches[i]->tokens : NULL;
        part.entropy = part.entropy ? part.entropy + batches[i]->tokens : NULL;
        part.value = part.value ? part.value + batches[i]->tokens : NULL;
    }
    return XRAY_OK;
}

/* Defines `name`, the callback, by `one`. */
#define FORWARD_EACH(name, one)                                           \
    static xray_status name(void *self, const xray_batch *const *batches, \
                            uint32_t count, uint32_t outputs,             \
                            xray_outputs *out)                            \
    {                                                                     \
        return forward_each(one, self, batches, count, outputs, out);     \
    }

#endif
