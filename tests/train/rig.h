/* SPDX-License-Identifier: Apache-2.0
 *
 * The fixtures that the suites of tests/train share: a host that keeps
 * messages, a device, and instances of backend-zero3 and backend-megatron.
 */
#ifndef TEST_TRAIN_RIG_H
#define TEST_TRAIN_RIG_H

#include <xray/plugin.h>
#include <xray/services.h>
#include <xray/train.h>

#include "tests/forward.h"
#include "tests/testing.h"
#include "tests/train/rows.h"

/* The only host of a suite. rig_error() is the text of the last failure, and
 * rig_where() the name of the call that failed. */
const xray_host *rig_host(void);
/* The service by which the host stops calls; NULL: it has none. */
extern const xray_call_service *rig_calls;
const char *rig_error(void);
const char *rig_where(void);
const char *rig_log(void); /* the last line logged */
void rig_clear(void);

typedef struct rig_device {
    const xray_device_ops *ops;
    void *self;
    void *config;
} rig_device;
/* Opens device-cpu with the given number of threads. */
rig_device rig_device_open(uint32_t threads);
void rig_device_close(rig_device *device);

/* A device whose memory the host may not read, and with only the operators that
 * the optimizer needs, for the code paths that copy. */
rig_device plain_device_open(void);

/* How to create an instance; zero means the default in brackets. */
typedef struct rig_spec {
    const char *path;        /* model directory [random weights] */
    const char *config_json; /* [rig_tiny] */
    uint64_t tokens;         /* [256] */
    uint64_t rows;           /* [32] */
    uint64_t row_tokens;     /* [48] */
    uint64_t seed;
    uint32_t outputs; /* [logp, entropy] */
    uint32_t frozen;
    uint32_t checkpointing; /* of megatron XM_TRAINER_RECOMPUTE_* */
    uint32_t stage_1;       /* stage + 1 [3 + 1] */
    uint32_t offload_optimizer;
    uint32_t offload_param;
    uint32_t from_layer; /* trainable_from_layer */
    uint32_t no_prefetch;
    uint32_t head_logits;    /* 0 auto, 1 keep, 2 recompute */
    const char *offload_dir; /* [the temporary folder] */
    double weight_decay;     /* [0.01]; < 0: none */
    double beta1;            /* those of the option */
    double beta2;
    double eps;
    /* megatron with so many tensor-parallel ranks; 0: zero3. Options of the
     * other backend are left out. */
    uint32_t tensor;
    uint32_t all_moments; /* megatron: every rank has all moments */
    uint32_t no_overlap;
    uint32_t dtype;        /* [XRAY_F32] */
    uint32_t sequence;     /* megatron: sequence_parallel */
    uint32_t context;      /* megatron: ranks that divide rows [1] */
    uint32_t stages;       /* megatron: of the pipeline [1] */
    uint32_t chunks;       /* and the chunks of each [1] */
    uint32_t first_layers; /* of the first stage [as the others] */
    uint32_t last_layers;
    uint32_t segments; /* of a mini-batch */
} rig_spec;

/* The request that a spec stands for, in full. */
typedef struct rig_request {
    xray_model model;
    xray_workload load;
    char *text; /* config.json read from a folder */
    void *config;
} rig_request;
rig_request rig_request_of(const rig_spec *spec);
void rig_request_free(rig_request *request);

extern const char rig_tiny[];      /* untied Llama */
extern const char rig_tiny_tied[]; /* tied Qwen3 with qk-norm */

typedef struct rig {
    const xray_train_ops *ops;
    void *self;
} rig;
const xray_component *rig_component(void); /* zero3 */
const xray_component *rig_component_of(const rig_spec *spec);
xray_status rig_open(const rig_device *device, const rig_spec *spec, rig *out);
xray_status rig_plan(const rig_spec *spec, uint32_t world, xray_plan *out);
xray_status rig_plan_rank(const rig_spec *spec, uint32_t rank, uint32_t world,
                          xray_plan *out); /* of rank 0 above */
void rig_close(rig *r);

/* Returns the tensor of that name; the test fails if there is none. */
/* The extension of the instance that shows gradients and imports weights. */
const xray_train_debug *rig_debug(const rig *r);
const xray_tensor *rig_tensor(const xray_weights *weights, const char *name);
/* Compares all values of two sets of weights bit for bit. */
void rig_same_weights(const rig *a, const rig *b);
/* 1 if any value differs. */
int rig_weights_differ(const xray_weights *a, const xray_weights *b);

/* An empty folder under the temporary directory; rig_rmdir removes it. */
const char *rig_mkdir(char *buffer, size_t cap);
void rig_rmdir(const char *path);

#endif
