/* SPDX-License-Identifier: Apache-2.0
 *
 * The globals that the pickle of a state dict may name, and how they make
 * storages and tensors of their arguments (torch/_utils.py and
 * torch/serialization.py of PyTorch 2).
 */
#include <string.h>

#include "model/hf/torch_internal.h"

static const xm_pickle_global globals[] = {
    { "collections", "OrderedDict", XM_GLOBAL_DICT, 0, 0 },
    { "torch._utils", "_rebuild_tensor_v2", XM_GLOBAL_TENSOR, 0, 0 },
    { "torch._utils", "_rebuild_parameter", XM_GLOBAL_PARAMETER, 0, 0 },
    { "torch", "FloatStorage", XM_GLOBAL_TYPE, XM_ST_F32, 4 },
    { "torch", "BFloat16Storage", XM_GLOBAL_TYPE, XM_ST_BF16, 2 },
    { "torch", "HalfStorage", XM_GLOBAL_TYPE, XM_ST_F16, 2 },
    { "torch", "DoubleStorage", XM_GLOBAL_TYPE, XM_ST_F64, 8 },
    { "torch", "LongStorage", XM_GLOBAL_TYPE, XM_ST_I64, 8 },
    { "torch", "IntStorage", XM_GLOBAL_TYPE, XM_ST_I32, 4 },
    { "torch", "ShortStorage", XM_GLOBAL_TYPE, XM_ST_I16, 2 },
    { "torch", "CharStorage", XM_GLOBAL_TYPE, XM_ST_I8, 1 },
    { "torch", "ByteStorage", XM_GLOBAL_TYPE, XM_ST_U8, 1 },
    { "torch", "BoolStorage", XM_GLOBAL_TYPE, XM_ST_BOOL, 1 },
};
#define GLOBALS (sizeof globals / sizeof globals[0])

const xm_pickle_global *xm_pickle_global_at(size_t index)
{
    return &globals[index];
}

size_t xm_pickle_find_global(const xm_pickle_value *module,
                             const xm_pickle_value *name)
{
    for (size_t i = 0; i < GLOBALS; i++)
        if (xm_pickle_is(module, globals[i].module) &&
            xm_pickle_is(name, globals[i].name))
            return i;
    return SIZE_MAX;
}

static const xm_pickle_value *items_of(const xm_pickle *p,
                                       const xm_pickle_value *tuple)
{
    return (const xm_pickle_value *)p->items.data + tuple->is.index;
}

static int is_count(const xm_pickle_value *value)
{
    return value->kind == XM_PICKLE_INT && value->is.number >= 0;
}

/* ("storage", type, key, device, elements); where the tensor was does not
 * matter. */
xray_status xm_pickle_storage_of(xm_pickle *p, const xm_pickle_value *args,
                                 xm_pickle_value *out)
{
    if (args->kind != XM_PICKLE_TUPLE || args->size != 5)
        return xm_pickle_fail(p, "the reference to a storage is malformed");
    const xm_pickle_value *is = items_of(p, args);
    if (!xm_pickle_is(&is[0], "storage") || is[1].kind != XM_PICKLE_GLOBAL ||
        globals[is[1].is.index].is != XM_GLOBAL_TYPE ||
        is[2].kind != XM_PICKLE_TEXT || !is_count(&is[4]))
        return xm_pickle_fail(p, "the reference to a storage is malformed");
    *out = (xm_pickle_value){ .kind = XM_PICKLE_STORAGE,
                              .is.index = p->storages.count };
    xm_pickle_storage *storage = xm_pool_add(&p->storages, sizeof *storage);
    if (!storage)
        return xr_fail(p->err, XRAY_E_NOMEM, "%s: out of memory", p->where);
    *storage = (xm_pickle_storage){ .key = is[2],
                                    .dtype = globals[is[1].is.index].dtype,
                                    .width = globals[is[1].is.index].width,
                                    .count = (uint64_t)is[4].is.number };
    return XRAY_OK;
}

static xray_status read_extents(xm_pickle *p, const xm_pickle_value *tuple,
                                uint64_t out[XM_ST_DIMS])
{
    const xm_pickle_value *items = items_of(p, tuple);
    for (uint32_t d = 0; d < tuple->size; d++) {
        if (!is_count(&items[d]))
            return xm_pickle_fail(p, "a shape or stride is not an integer "
                                     "from 0");
        out[d] = (uint64_t)items[d].is.number;
    }
    return XRAY_OK;
}

/* The metadata of a tensor tells that it is a conjugate or negative view, whose
 * values are not those of its storage. */
static int has_metadata(const xm_pickle *p, const xm_pickle_value *args,
                        const xm_pickle_value *is)
{
    if (args->size == 6 || is[6].kind == XM_PICKLE_NONE)
        return 0;
    return is[6].kind != XM_PICKLE_DICT ||
           ((const xm_pickle_dict *)p->dicts.data)[is[6].is.index].first;
}

/* (storage, offset, shape, stride, requires_grad, hooks[, metadata]) */
xray_status xm_pickle_tensor_of(xm_pickle *p, const xm_pickle_value *args,
                                xm_pickle_value *out)
{
    if (args->size < 6 || args->size > 7)
        return xm_pickle_fail(p, "a tensor has %u arguments, expected 6 or 7",
                              args->size);
    const xm_pickle_value *is = items_of(p, args);
    if (is[0].kind != XM_PICKLE_STORAGE || !is_count(&is[1]) ||
        is[2].kind != XM_PICKLE_TUPLE || is[3].kind != XM_PICKLE_TUPLE ||
        is[2].size != is[3].size)
        return xm_pickle_fail(p, "the arguments of a tensor are malformed");
    if (is[2].size > XM_ST_DIMS)
        return xm_pickle_fail(p,
                              "a tensor has %u dimensions, expected at "
                              "most %d",
                              is[2].size, XM_ST_DIMS);
    if (has_metadata(p, args, is))
        return xm_pickle_fail(p, "a tensor is a conjugate or negative view");
    *out = (xm_pickle_value){ .kind = XM_PICKLE_TENSOR,
                              .is.index = p->tensors.count };
    xm_pickle_tensor *tensor = xm_pool_add(&p->tensors, sizeof *tensor);
    if (!tensor)
        return xr_fail(p->err, XRAY_E_NOMEM, "%s: out of memory", p->where);
    tensor->storage = is[0].is.index;
    tensor->offset = (uint64_t)is[1].is.number;
    tensor->dims = is[2].size;
    xray_status status = read_extents(p, &is[2], tensor->shape);
    return status ? status : read_extents(p, &is[3], tensor->stride);
}
