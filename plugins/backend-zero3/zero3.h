/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of backend-zero3 share.
 */
#ifndef Z3_ZERO3_H
#define Z3_ZERO3_H

#include <xray/train.h>

#include "model/train/adamw.h"
#include "model/train/pack.h"

/* Where offload_optimizer and offload_param put what they move. */
#define Z3_OFFLOAD_NONE 0
#define Z3_OFFLOAD_HOST 1

/* Values of [train.zero3]. */
typedef struct z3_config {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    int64_t stage;                /* 0 to 3; on one rank all are the same */
    int64_t offload_optimizer;    /* Z3_OFFLOAD_* */
    int64_t offload_param;        /* Z3_OFFLOAD_*; needs stage 3 */
    const char *offload_dir;      /* NULL or "": the temporary folder */
    const char *deepspeed_config; /* NULL or "": none */
    uint32_t gradient_checkpointing;
    uint32_t reserved;
} z3_config;

/* Host arrays of one float a token that the loss is shown and fills. */
typedef struct z3_tokens {
    float *logp;
    float *entropy;
    float *value;
    float *dlogp;
    float *dentropy;
    float *dvalue;
} z3_tokens;
#define Z3_TOKEN_ARRAYS 6u

typedef struct z3 {
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    char owner[32]; /* "train.zero3/actor" */
    xm_config model;
    xray_workload load;
    uint32_t trainable;
    uint32_t value_head;
    xm_layout *layout;
    xm_weights *weights;
    xm_decoder *decoder;
    xm_space *space;
    xm_packer *packer;
    /* NULL from here on unless trainable */
    xm_grads *grads;
    xm_adamw *adamw;
    xray_tensor *grad_tensors;
    xray_weights grad_table;
    float *token_memory;
    z3_tokens tokens;
    uint64_t skipped; /* steps left out for a norm that is not finite */
} z3;

/* Hands a sentence to the host and returns the status. */
xray_status z3_done(const xray_host *host, xray_status status,
                    const char *where, const xr_err *err);

/* The model of a configuration; refuses what this backend cannot do. */
xray_status z3_check(const z3_config *config, const xray_model *model,
                     const xray_world *world, const xray_workload *load,
                     xr_err *err, xm_config *out);
uint32_t z3_space_flags(const z3_config *config, uint32_t trainable);
xm_pack_limits z3_limits(const xm_config *model, const xray_workload *load);

xray_status z3_plan(const xray_host *host, const void *config,
                    const xray_model *model, const xray_world *world,
                    const xray_workload *load, xray_plan *out);
xray_status z3_create(const xray_setup *setup, const void *config,
                      const xray_workload *load, void **out_self);
void z3_destroy(void *self);
const xray_weights *z3_weights(void *self);
const xray_weights *z3_gradients(void *self);
xray_status z3_save(void *self, const char *dir);
xray_status z3_load(void *self, const char *dir);
xray_status z3_import(void *self, const xray_weights *from);
xray_status z3_forward(void *self, const xray_batch *batch, uint32_t outputs,
                       xray_outputs *out);
xray_status z3_forward_backward(void *self, const xray_batch *const *batches,
                                uint32_t count, const xray_loss *loss);
xray_status z3_optimizer_step(void *self, double lr, double max_norm,
                              xray_step_result *out);

#endif
