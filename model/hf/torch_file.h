/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the weights of files that torch.save wrote (pytorch_model.bin, .pt,
 * .pth) through memory maps, for the conversion to safetensors. The pickle in
 * such a file is a program. Here it is only read: it may name the few functions
 * that build a state dict, which this reader carries out itself, and a file
 * that names any other is refused.
 */
#ifndef XM_TORCH_FILE_H
#define XM_TORCH_FILE_H

#include "model/hf/safetensors.h"

/* The names of transformers for weights in this format. */
#define XM_TORCH_SINGLE "pytorch_model.bin"
#define XM_TORCH_INDEX "pytorch_model.bin.index.json"

typedef struct xm_torch_tensor {
    const char *name; /* owned by the reader */
    uint32_t dtype;   /* XM_ST_* */
    uint32_t dims;    /* at most XM_ST_DIMS */
    uint32_t width;   /* bytes of an element */
    int contiguous;   /* 1: the elements lie in order from `data` on */
    uint64_t shape[XM_ST_DIMS];
    uint64_t stride[XM_ST_DIMS]; /* in elements */
    uint64_t count;              /* elements */
    uint64_t span; /* bytes from the first element to the end of the last */
    const unsigned char *data; /* the first element in the mapped file; may be
                                * unaligned */
} xm_torch_tensor;

typedef struct xm_torch xm_torch;

/* Opens a file, or a folder with pytorch_model.bin (which takes precedence) or
 * with shards that pytorch_model.bin.index.json names. Whatever does not lie in
 * its storage, or is not the state dict of a model, is refused with one
 * sentence. A dict that holds the weights under "state_dict", "model" or
 * "module" is taken as that member. No data is read. */
xray_status xm_torch_open(const char *path, xr_err *err, xm_torch **out);
void xm_torch_close(xm_torch *torch); /* accepts NULL */
size_t xm_torch_count(const xm_torch *torch);
/* Tensors are in the order of the files. Tensors that share a storage are
 * separate entries. */
const xm_torch_tensor *xm_torch_at(const xm_torch *torch, size_t i);
/* The member that held the weights, "state_dict"; NULL: the dict itself did. */
const char *xm_torch_member(const xm_torch *torch);
/* Writes elements [first, first + count), in row-major order, to `out`, which
 * holds count * width bytes. */
void xm_torch_copy(const xm_torch_tensor *tensor, uint64_t first,
                   uint64_t count, void *out);

#endif
