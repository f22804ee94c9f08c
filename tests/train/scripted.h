/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0 of a world in which the other rank is scripted, on a device that can
 * be made to fail and that counts what is created on it.
 */
#ifndef TEST_TRAIN_SCRIPTED_H
#define TEST_TRAIN_SCRIPTED_H

#include "model/train/trainer.h"
#include "tests/train/rig.h"

#define SCRIPTED_NEVER UINT32_MAX

/* The other rank: it has the weights of this one and no gradients. */
typedef struct scripted_rank {
    uint32_t fails; /* XRAY_COMM_* of the calls that fail, or SCRIPTED_NEVER */
    uint32_t left;  /* number of these calls that succeed before */
    uint32_t calls; /* number of all_reduce and reduce_scatter calls */
    uint32_t gathers;    /* number of all_gather calls of weights */
    uint32_t negative;   /* 1: every sum is -0 */
    uint32_t bad_record; /* 1: it counts an entry that is not finite */
    uint32_t first;      /* index of its first gradient that is not finite */
} scripted_rank;
extern scripted_rank scripted_other;

/* Opens rank 0 of `ranks` ranks, and resets the other one; scripted_open
 * expects that to succeed. With spec->tensor they are one replica. */
xray_status scripted_try(const rig_device *device, const rig_spec *spec,
                         uint32_t ranks, rig *out);
rig scripted_open(const rig_device *device, const rig_spec *spec,
                  uint32_t ranks);

typedef struct scripted_device {
    uint64_t to_host;      /* bytes copied to host memory */
    uint32_t fail_alloc;   /* the alloc that fails, counted from 1; 0: none */
    uint32_t fail_adds;    /* 1: axpby fails */
    uint32_t fail_copy;    /* kind of the copies that fail + 1; 0: none */
    uint32_t fail_restore; /* 1: restore fails */
    uint32_t fail_changed; /* 1: weight_changed fails */
    uint32_t fail_updates; /* 1: adamw fails */
    int32_t events;        /* created and not destroyed */
    int32_t handles;
} scripted_device;
extern scripted_device scripted_watched;

/* The same device with the operators that scripted_watched is about. */
rig_device scripted_watch(const rig_device *device);

/* The rows of the calls, and calls on them. */
extern rows scripted_rows;
xray_status scripted_add_gradients(const rig *r);
xray_status scripted_step(const rig *r, xray_step_result *out);

#endif
