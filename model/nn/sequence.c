/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides the tokens of a pass among the ranks of a slice where they only go
 * along the residual stream: norms, biases and sums of branches compute a
 * rank's own tokens, products and attention compute all of them. What a norm's
 * weights gather from tokens is one chain, which goes from rank to rank in the
 * order of the tokens, so its bits are those of one rank.
 */
#include "model/nn/internal.h"

uint64_t xm_pass_first(const xm_pass *pass)
{
    uint64_t first = pass->decoder->config.slice.rank * pass->each;
    return first < pass->all ? first : pass->all;
}

void xm_pass_compute_own(xm_pass *pass)
{
    uint64_t left = pass->all - xm_pass_first(pass);
    if (pass->each)
        pass->tokens.bound = left < pass->each ? left : pass->each;
}

void xm_pass_compute_all(xm_pass *pass)
{
    if (pass->each)
        pass->tokens.bound = pass->all;
}

xm_rows xm_pass_own_rows(const xm_pass *pass, xm_rows all)
{
    uint64_t size = all.dtype == XRAY_BF16 ? 2 : sizeof(float);
    uint64_t rows = pass->decoder->config.slice.rank * pass->each;
    all.data = (char *)all.data + rows * all.dim * size;
    return all;
}

static void exchange_parts(xm_pass *pass, const xm_parts *call)
{
    const xm_watch *watch = &pass->decoder->watch;
    if (pass->status == XRAY_OK && pass->each)
        pass->status = watch->parts(watch->ctx, call, pass->err);
}

xm_rows xm_pass_gather_rows(xm_pass *pass, xm_rows own, xm_rows all)
{
    const xm_parts call = { .what = XM_PARTS_GATHER,
                            .dtype = own.dtype,
                            .in = own.data,
                            .out = all.data,
                            .tokens = pass->each,
                            .dim = own.dim };
    exchange_parts(pass, &call);
    return pass->each ? all : own;
}

xm_rows xm_pass_join_sums(xm_pass *pass, uint32_t what, xm_rows all)
{
    xm_rows own = xm_pass_own_rows(pass, all);
    const xm_parts call = { .what = XM_PARTS_SUM,
                            .in = all.data,
                            .out = own.data,
                            .tokens = pass->each,
                            .dim = all.dim };
    if (pass->each == 0)
        xm_pass_join(pass, what, all.data, all.dim);
    exchange_parts(pass, &call);
    return own;
}

void xm_pass_continue_chain(xm_pass *pass, float *data, uint64_t count)
{
    const xm_parts call = {
        .what = XM_PARTS_CONTINUE, .out = data, .tokens = 1, .dim = count
    };
    exchange_parts(pass, &call);
}

void xm_pass_hand_on_chain(xm_pass *pass, float *data, uint64_t count)
{
    const xm_parts call = {
        .what = XM_PARTS_HAND_ON, .out = data, .tokens = 1, .dim = count
    };
    exchange_parts(pass, &call);
}
