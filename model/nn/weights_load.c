/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads weights from a model directory.
 */
#include <math.h>
#include <string.h>

#include "model/hf/safetensors.h"
#include "model/nn/weights_internal.h"

/* The size of the tile of a matrix that is transposed at once, so that neither
 * side is accessed in long strides. */
#define TILE_ROWS 64
#define TILE_COLS 16

/* Elements per read, few enough that checking finds them in the CPU's cache. */
#define PIECE ((uint64_t)4096)

typedef struct tensor_read {
    const xm_param *param;
    const xm_st_tensor *tensor;
    const char *dir;
} tensor_read;

static int are_all_finite(const float *values, uint64_t count)
{
    const uint32_t exponent = 0x7f800000u;
    uint32_t bad = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

/* Reads elements that must be finite. One that is not would silently spread
 * into every later value. */
static xray_status read_finite_values(const tensor_read *r, uint64_t first,
                                      uint64_t count, float *out, xr_err *err)
{
    xray_status status = xm_st_read_f32(r->tensor, first, count, out, err);
    if (status != XRAY_OK || are_all_finite(out, count))
        return status;
    uint64_t at = 0;
    while (isfinite(out[at]))
        at++;
    return xr_fail(err, XRAY_E_CONFIG,
                   "%s: tensor %s: element %llu is %s, expected a finite fp32 "
                   "number",
                   r->dir, r->tensor->name, (unsigned long long)(first + at),
                   isnan(out[at]) ? "NaN"
                   : out[at] > 0  ? "Inf"
                                  : "-Inf");
}

static xray_status read_file_values(void *ctx, uint64_t first, uint64_t count,
                                    float *out, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint64_t at = 0; at < count && status == XRAY_OK; at += PIECE)
        status = read_finite_values(ctx, first + at,
                                    count - at < PIECE ? count - at : PIECE,
                                    out + at, err);
    return status;
}

/* The elements that one call of read_transposed_values produces. */
typedef struct output_range {
    uint64_t first;
    uint64_t end;
    float *out;
} output_range;

/* Reads the tile of the matrix at (row, col) from a file that stores [cols,
 * rows]. */
static xray_status transpose_tile(const tensor_read *r, uint64_t row,
                                  uint64_t col, const output_range *s,
                                  xr_err *err)
{
    float tile[TILE_COLS][TILE_ROWS];
    uint64_t rows = r->param->all_rows;
    uint64_t cols = r->param->all_cols;
    uint64_t end = (s->end + cols - 1) / cols;
    uint64_t high = end - row < TILE_ROWS ? end - row : TILE_ROWS;
    uint64_t wide = cols - col < TILE_COLS ? cols - col : TILE_COLS;
    for (uint64_t i = 0; i < wide; i++) {
        xray_status status =
            read_finite_values(r, (col + i) * rows + row, high, tile[i], err);
        if (status != XRAY_OK)
            return status;
    }
    for (uint64_t k = 0; k < high; k++) {
        uint64_t at = (row + k) * cols + col;
        for (uint64_t i = 0; i < wide; i++)
            if (at + i >= s->first && at + i < s->end)
                s->out[at + i - s->first] = tile[i][k];
    }
    return XRAY_OK;
}

static xray_status read_transposed_values(void *ctx, uint64_t first,
                                          uint64_t count, float *out,
                                          xr_err *err)
{
    const tensor_read *r = ctx;
    const output_range s = { first, first + count, out };
    uint64_t cols = r->param->all_cols;
    /* A part of a row has only some of the columns. */
    int in_row = first % cols + count <= cols;
    uint64_t from = in_row ? first % cols : 0;
    uint64_t to = in_row ? from + count : cols;
    for (uint64_t row = first / cols; row * cols < s.end; row += TILE_ROWS)
        for (uint64_t col = from; col < to; col += TILE_COLS) {
            xray_status status = transpose_tile(r, row, col, &s, err);
            if (status != XRAY_OK)
                return status;
        }
    return XRAY_OK;
}

static xray_status fill_zeros(void *ctx, uint64_t first, uint64_t count,
                              float *out, xr_err *err)
{
    (void)ctx;
    (void)first;
    (void)err;
    memset(out, 0, count * sizeof *out);
    return XRAY_OK;
}

/* ---- names -------------------------------------------------------------- */

/* Returns a name without the prefix of a model's body, or NULL if it has none.
 * Files written from the body alone lack the prefix. */
static const char *strip_body_prefix(const char *name)
{
    static const char *const prefixes[] = { "model.", "transformer." };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        size_t size = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], size) == 0)
            return name + size;
    }
    return NULL;
}

static const xm_st_tensor *find_file_tensor(const xm_st *st, const char *name)
{
    const xm_st_tensor *tensor = xm_st_find(st, name);
    const char *bare = strip_body_prefix(name);
    if (!tensor && strcmp(name, XM_VALUE_HEAD) == 0)
        return xm_st_find(st, "score.weight"); /* the name in transformers */
    return tensor || !bare ? tensor : xm_st_find(st, bare);
}

static int ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text);
    size_t m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

/* Tells whether a tensor of a file may be ignored: buffers that follow from the
 * config, as rotary frequencies of old Llama files and GPT-2's causal masks,
 * and value or score heads, which a policy does not have. */
static int is_ignored_tensor(const char *name)
{
    static const char *const heads[] = { XM_VALUE_HEAD, "score.", "v_head." };
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (strncmp(name, heads[i], strlen(heads[i])) == 0)
            return 1;

    static const char *const tails[] = { "rotary_emb.inv_freq", ".attn.bias",
                                         ".attn.masked_bias" };
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
        if (ends_with(name, tails[i]))
            return 1;
    return 0;
}

/* Tells whether `name` is a parameter without its prefix that the file does not
 * also hold under its full name. */
static int matches_bare_name(const xm_layout *layout, const xm_st *st,
                             const char *name)
{
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const char *full = layout->params[i].name;
        const char *bare = strip_body_prefix(full);
        if (bare && strcmp(bare, name) == 0)
            return xm_st_find(st, full) == NULL;
    }
    return 0;
}

/* Refuses tensors that the model does not have. */
static xray_status check_extra_tensors(const xm_weights *w, const xm_st *st,
                                       const char *dir, xr_err *err)
{
    int tied = xm_layout_find(w->layout, "lm_head.weight") == NULL;
    for (size_t i = 0; i < xm_st_count(st); i++) {
        const char *name = xm_st_at(st, i)->name;
        if (xm_layout_find(w->layout, name) ||
            (tied && strcmp(name, "lm_head.weight") == 0) ||
            is_ignored_tensor(name) || matches_bare_name(w->layout, st, name))
            continue;
        return xr_fail(
            err, XRAY_E_CONFIG,
            "%s: tensor %s is not part of the model that config.json describes",
            dir, name);
    }
    return XRAY_OK;
}

/* ---- one parameter ------------------------------------------------------ */

static xray_status check_param_tensor(const xm_weights *w,
                                      const xm_param *param, const xm_st *st,
                                      const char *dir, xr_err *err)
{
    const xm_st_tensor *tensor = find_file_tensor(st, param->name);
    if (!tensor && (param->slot == XM_VALUE ||
                    ((w->flags & XM_WEIGHTS_NO_LOGP) &&
                     strcmp(param->name, "lm_head.weight") == 0)))
        return XRAY_OK;
    if (!tensor)
        return xr_fail(
            err, XRAY_E_CONFIG,
            "%s: tensor %s is missing; the model's config requires it", dir,
            param->name);
    xray_status status =
        xm_param_check_shape(param, 1, tensor->shape, tensor->dims, dir, err);
    float first = 0; /* fails if the type cannot be converted */
    if (status == XRAY_OK)
        status = xm_st_read_f32(tensor, 0, 1, &first, err);
    return status;
}

static xray_status load_parameter(xm_weights *w, xm_stage *s, tensor_read *r,
                                  xr_err *err)
{
    if (!r->tensor)
        return xm_stage_fill(w, r->param, s, fill_zeros, NULL, err);
    return xm_stage_fill(w, r->param, s,
                         r->param->transposed ? read_transposed_values
                                              : read_file_values,
                         r, err);
}

xray_status xm_weights_load(xm_weights *w, const char *dir, xr_err *err)
{
    xm_st *st = NULL;
    xm_stage s = { 0 };
    xray_status status = xm_weights_check_unleased(w, err);
    if (status == XRAY_OK)
        status = xm_st_open(dir, err, &st);
    if (status != XRAY_OK)
        return status;
    /* Everything except the values is checked before the first value is loaded:
     * a checkpoint refused for its names, shapes or types leaves the weights as
     * they were. */
    if (!w->layout->stage)
        status = check_extra_tensors(w, st, dir, err);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++)
        status = check_param_tensor(w, &w->layout->params[i], st, dir, err);
    if (status == XRAY_OK)
        status = xm_stage_open(w, err, &s);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++) {
        const xm_param *param = &w->layout->params[i];
        tensor_read r = { param, find_file_tensor(st, param->name), dir };
        status = load_parameter(w, &s, &r, err);
    }
    xm_stage_close(&s);
    xm_st_close(st);
    return status == XRAY_OK ? xm_weights_changed(w, w->version, err) : status;
}
