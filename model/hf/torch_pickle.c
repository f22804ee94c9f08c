/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the pickle of a state dict, of protocols 1 to 5 (the opcodes are those
 * of Python's pickletools). Only opcodes that torch.save writes for dicts of
 * tensors are there. Nothing recurses: a value refers to pools by index.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/hf/torch_internal.h"

/* A pickle has about 200 bytes for a tensor, so this is many times that of any
 * model. */
#define MOST_BYTES ((uint64_t)64 << 20)
/* Python's pickler leaves at most a thousand pairs on the stack. */
#define MOST_STACK 65536u

/* ---- the stack ------------------------------------------------ */

static xray_status fail_for_memory(xm_pickle *p)
{
    return xr_fail(p->err, XRAY_E_NOMEM, "%s: out of memory", p->where);
}

static xm_pickle_value *stack_at(const xm_pickle *p, size_t i)
{
    return (xm_pickle_value *)p->stack.data + i;
}

static xray_status push_value(xm_pickle *p, xm_pickle_value value)
{
    if (p->stack.count == MOST_STACK)
        return xm_pickle_fail(p, "more than %u values are on the stack",
                              MOST_STACK);
    xm_pickle_value *top = xm_pool_add(&p->stack, sizeof value);
    if (!top)
        return fail_for_memory(p);
    *top = value;
    return XRAY_OK;
}

static xray_status push_kind(xm_pickle *p, uint32_t kind, int64_t number)
{
    return push_value(p,
                      (xm_pickle_value){ .kind = kind, .is.number = number });
}

/* The value on top, which must not be a mark. */
static xray_status peek_value(xm_pickle *p, xm_pickle_value **out)
{
    if (!p->stack.count)
        return xm_pickle_fail(p, "there is no value on the stack");
    *out = stack_at(p, p->stack.count - 1);
    return (*out)->kind == XM_PICKLE_MARK
               ? xm_pickle_fail(p, "a mark is where a value should be")
               : XRAY_OK;
}

static xray_status pop_value(xm_pickle *p, xm_pickle_value *out)
{
    xm_pickle_value *top = NULL;
    xray_status status = peek_value(p, &top);
    if (status)
        return status;
    *out = *top;
    p->stack.count--;
    return XRAY_OK;
}

/* The position after the last mark; the values from there on are its. */
static xray_status find_marked(xm_pickle *p, size_t *out)
{
    for (size_t i = p->stack.count; i > 0; i--)
        if (stack_at(p, i - 1)->kind == XM_PICKLE_MARK) {
            *out = i;
            return XRAY_OK;
        }
    return xm_pickle_fail(p, "there is no mark on the stack");
}

/* ---- reading ------------------------------------------------------------ */

static xray_status take_bytes(xm_pickle *p, uint64_t size,
                              const unsigned char **out)
{
    if (size > (uint64_t)(p->end - p->at))
        return xm_pickle_fail(p, "the pickle ends inside an opcode");
    *out = p->at;
    p->at += size;
    return XRAY_OK;
}

static xray_status take_number(xm_pickle *p, uint32_t bytes, uint64_t *out)
{
    const unsigned char *at = NULL;
    xray_status status = take_bytes(p, bytes, &at);
    *out = 0;
    for (uint32_t i = status ? 0 : bytes; i > 0; i--)
        *out = *out << 8 | at[i - 1];
    return status;
}

/* Reads up to the end of the line. */
static xray_status take_line(xm_pickle *p, xm_pickle_value *out)
{
    const unsigned char *end = memchr(p->at, '\n', (size_t)(p->end - p->at));
    if (!end)
        return xm_pickle_fail(p, "the pickle ends inside an opcode");
    *out = (xm_pickle_value){ .kind = XM_PICKLE_TEXT,
                              .size = (uint32_t)(end - p->at),
                              .is.text = (const char *)p->at };
    p->at = end + 1;
    return XRAY_OK;
}

/* ---- opcodes ------------------------------------------------------------ */

/* Each takes what its row of the table says. */
typedef xray_status (*run_opcode)(xm_pickle *p, uint32_t arg);

static xray_status skip_protocol(xm_pickle *p, uint32_t bytes)
{
    uint64_t protocol;
    xray_status status = take_number(p, bytes, &protocol);
    if (!status && protocol > 5)
        return xm_pickle_fail(p, "the protocol is %u, expected at most 5",
                              (unsigned)protocol);
    return status;
}

/* A frame only tells how far a reader may read ahead. */
static xray_status skip_frame(xm_pickle *p, uint32_t bytes)
{
    uint64_t size;
    return take_number(p, bytes, &size);
}

static xray_status push_constant(xm_pickle *p, uint32_t kind)
{
    return push_kind(p, kind, 0);
}

static xray_status push_bool(xm_pickle *p, uint32_t value)
{
    return push_kind(p, XM_PICKLE_BOOL, value);
}

static xray_status push_integer(xm_pickle *p, uint32_t bytes)
{
    uint64_t bits;
    xray_status status = take_number(p, bytes, &bits);
    /* Four bytes have a sign, fewer have none. */
    return status ? status
                  : push_kind(p, XM_PICKLE_INT,
                              bytes == 4 ? (int64_t)(int32_t)(uint32_t)bits
                                         : (int64_t)bits);
}

static xray_status push_long(xm_pickle *p, uint32_t bytes)
{
    uint64_t size;
    uint64_t bits;
    xray_status status = take_number(p, bytes, &size);
    if (!status && size > 8)
        return xm_pickle_fail(p, "an integer has more than 64 bits");
    if (!status)
        status = take_number(p, (uint32_t)size, &bits);
    if (status)
        return status;
    if (size && size < 8 && bits >> (8 * size - 1))
        bits |= ~UINT64_C(0) << (8 * size);
    return push_kind(p, XM_PICKLE_INT, (int64_t)bits);
}

/* Protocol 1 writes False and True as the numbers 00 and 01. */
static xray_status push_decimal(xm_pickle *p, uint32_t is_long)
{
    xm_pickle_value line = { .size = 0 };
    char text[32] = "";
    int64_t number = 0;
    xray_status status = take_line(p, &line);
    if (status)
        return status;
    uint32_t size = line.size;
    if (is_long && size && line.is.text[size - 1] == 'L')
        size--;
    if (size < sizeof text)
        memcpy(text, line.is.text, size);
    if (strlen(text) != size || xr_parse_int(text, &number))
        return xm_pickle_fail(p, "an integer is not a number of 64 bits");
    int is_bool = !is_long && size == 2 && text[0] == '0';
    return push_kind(p, is_bool ? XM_PICKLE_BOOL : XM_PICKLE_INT, number);
}

static xray_status push_real(xm_pickle *p, uint32_t bytes)
{
    const unsigned char *at;
    xray_status status = take_bytes(p, bytes, &at);
    return status ? status : push_kind(p, XM_PICKLE_REAL, 0);
}

static xray_status push_text(xm_pickle *p, uint32_t bytes)
{
    uint64_t size;
    const unsigned char *at = NULL;
    xray_status status = take_number(p, bytes, &size);
    if (!status)
        status = take_bytes(p, size, &at);
    return status ? status
                  : push_value(
                        p, (xm_pickle_value){ .kind = XM_PICKLE_TEXT,
                                              .size = (uint32_t)size,
                                              .is.text = (const char *)at });
}

/* Makes a tuple of the values from `first` on. */
static xray_status make_tuple(xm_pickle *p, size_t first, size_t drop)
{
    xm_pickle_value tuple = { .kind = XM_PICKLE_TUPLE,
                              .size = (uint32_t)(p->stack.count - first),
                              .is.index = p->items.count };
    for (size_t i = first; i < p->stack.count; i++) {
        xm_pickle_value *item = xm_pool_add(&p->items, sizeof *item);
        if (!item)
            return fail_for_memory(p);
        *item = *stack_at(p, i);
    }
    p->stack.count = first - drop;
    return push_value(p, tuple);
}

static xray_status make_marked_tuple(xm_pickle *p, uint32_t arg)
{
    size_t first = 0;
    (void)arg;
    xray_status status = find_marked(p, &first);
    return status ? status : make_tuple(p, first, 1);
}

static xray_status make_small_tuple(xm_pickle *p, uint32_t size)
{
    if (p->stack.count < size)
        return xm_pickle_fail(p, "there is no value on the stack");
    for (uint32_t i = 1; i <= size; i++)
        if (stack_at(p, p->stack.count - i)->kind == XM_PICKLE_MARK)
            return xm_pickle_fail(p, "a mark is where a value should be");
    return make_tuple(p, p->stack.count - size, 0);
}

static xray_status make_dict(xm_pickle *p, uint32_t arg)
{
    xm_pickle_value dict = { .kind = XM_PICKLE_DICT,
                             .is.index = p->dicts.count };
    (void)arg;
    return xm_pool_add(&p->dicts, sizeof(xm_pickle_dict)) ? push_value(p, dict)
                                                          : fail_for_memory(p);
}

static xray_status add_pair(xm_pickle *p, size_t index,
                            const xm_pickle_value pair[2])
{
    xm_pickle_dict *dict = (xm_pickle_dict *)p->dicts.data + index;
    xm_pickle_pair *added = xm_pool_add(&p->pairs, sizeof *added);
    if (!added)
        return fail_for_memory(p);
    added->key = pair[0];
    added->value = pair[1];
    if (dict->last)
        ((xm_pickle_pair *)p->pairs.data)[dict->last - 1].next = p->pairs.count;
    else
        dict->first = p->pairs.count;
    dict->last = p->pairs.count;
    return XRAY_OK;
}

/* Adds the pairs from `first` on to the dict below them, of which `marks` marks
 * separate them. */
static xray_status add_pairs(xm_pickle *p, size_t first, size_t marks)
{
    if (first < marks + 1 || (p->stack.count - first) % 2 ||
        stack_at(p, first - marks - 1)->kind != XM_PICKLE_DICT)
        return xm_pickle_fail(p, "the pairs are not those of a dict");
    size_t dict = stack_at(p, first - marks - 1)->is.index;
    xray_status status = XRAY_OK;
    for (size_t i = first; !status && i < p->stack.count; i += 2)
        status = add_pair(p, dict, stack_at(p, i));
    p->stack.count = first - marks;
    return status;
}

static xray_status set_items(xm_pickle *p, uint32_t arg)
{
    size_t first = 0;
    (void)arg;
    xray_status status = find_marked(p, &first);
    return status ? status : add_pairs(p, first, 1);
}

static xray_status set_item(xm_pickle *p, uint32_t arg)
{
    (void)arg;
    return p->stack.count < 3
               ? xm_pickle_fail(p, "there is no value on the stack")
               : add_pairs(p, p->stack.count - 2, 0);
}

/* Lists are in no state dict, only beside one; their items are dropped. */
static xray_status append_items(xm_pickle *p, uint32_t marked)
{
    size_t first = p->stack.count ? p->stack.count - 1 : 0;
    xray_status status = marked ? find_marked(p, &first) : XRAY_OK;
    if (status)
        return status;
    size_t marks = marked ? 1 : 0;
    if (first < marks + 1 ||
        stack_at(p, first - marks - 1)->kind != XM_PICKLE_LIST)
        return xm_pickle_fail(p, "the items are not those of a list");
    p->stack.count = first - marks;
    return XRAY_OK;
}

static xray_status put_memo(xm_pickle *p, uint32_t bytes)
{
    uint64_t index = p->memo.count;
    xm_pickle_value *top = NULL;
    xray_status status = bytes ? take_number(p, bytes, &index) : XRAY_OK;
    if (!status)
        status = peek_value(p, &top);
    if (status)
        return status;
    if (index > (uint64_t)(p->end - p->start))
        return xm_pickle_fail(p,
                              "memo %llu is beyond what a pickle of this "
                              "size can use",
                              (unsigned long long)index);
    /* A slot that nothing was put into stays a mark, which no value is. */
    while (p->memo.count <= index) {
        xm_pickle_value *slot = xm_pool_add(&p->memo, sizeof *slot);
        if (!slot)
            return fail_for_memory(p);
        slot->kind = XM_PICKLE_MARK;
    }
    ((xm_pickle_value *)p->memo.data)[index] = *top;
    return XRAY_OK;
}

static xray_status get_memo(xm_pickle *p, uint32_t bytes)
{
    uint64_t index;
    xray_status status = take_number(p, bytes, &index);
    if (status)
        return status;
    const xm_pickle_value *memo = p->memo.data;
    if (index >= p->memo.count || memo[index].kind == XM_PICKLE_MARK)
        return xm_pickle_fail(p, "nothing was put into memo %llu",
                              (unsigned long long)index);
    return push_value(p, memo[index]);
}

static xray_status push_named(xm_pickle *p, const xm_pickle_value *module,
                              const xm_pickle_value *name)
{
    size_t index = xm_pickle_find_global(module, name);
    if (index != SIZE_MAX)
        return push_value(p, (xm_pickle_value){ .kind = XM_PICKLE_GLOBAL,
                                                .is.index = index });
    return xm_pickle_fail(
        p,
        "the file asks for %.*s.%.*s, which is not part of a state dict of "
        "tensors; nothing of the file was run",
        (int)(module->size < 120 ? module->size : 120), module->is.text,
        (int)(name->size < 120 ? name->size : 120), name->is.text);
}

static xray_status push_global(xm_pickle *p, uint32_t arg)
{
    xm_pickle_value module;
    xm_pickle_value name;
    (void)arg;
    xray_status status = take_line(p, &module);
    if (!status)
        status = take_line(p, &name);
    return status ? status : push_named(p, &module, &name);
}

static xray_status push_stacked_global(xm_pickle *p, uint32_t arg)
{
    xm_pickle_value module;
    xm_pickle_value name;
    (void)arg;
    xray_status status = pop_value(p, &name);
    if (!status)
        status = pop_value(p, &module);
    if (!status &&
        (module.kind != XM_PICKLE_TEXT || name.kind != XM_PICKLE_TEXT))
        status = xm_pickle_fail(p, "the name of a global is not a text");
    return status ? status : push_named(p, &module, &name);
}

static xray_status push_storage(xm_pickle *p, uint32_t arg)
{
    xm_pickle_value args;
    xm_pickle_value storage;
    (void)arg;
    xray_status status = pop_value(p, &args);
    if (!status)
        status = xm_pickle_storage_of(p, &args, &storage);
    return status ? status : push_value(p, storage);
}

static xray_status call_global(xm_pickle *p, const xm_pickle_global *global,
                               const xm_pickle_value *args)
{
    xm_pickle_value result;
    xray_status status = XRAY_OK;
    if (global->is == XM_GLOBAL_DICT && !args->size)
        return make_dict(p, 0);
    const xm_pickle_value *first =
        args->size ? (xm_pickle_value *)p->items.data + args->is.index : NULL;
    if (global->is == XM_GLOBAL_TENSOR)
        status = xm_pickle_tensor_of(p, args, &result);
    else if (global->is == XM_GLOBAL_PARAMETER && first &&
             first->kind == XM_PICKLE_TENSOR)
        result = *first;
    else
        status = xm_pickle_fail(p,
                                "%s.%s is called in a way that torch.save "
                                "does not write",
                                global->module, global->name);
    return status ? status : push_value(p, result);
}

static xray_status call_function(xm_pickle *p, uint32_t arg)
{
    xm_pickle_value args;
    xm_pickle_value callee;
    (void)arg;
    xray_status status = pop_value(p, &args);
    if (!status)
        status = pop_value(p, &callee);
    if (status)
        return status;
    if (args.kind != XM_PICKLE_TUPLE || callee.kind != XM_PICKLE_GLOBAL)
        return xm_pickle_fail(p, "%s is called with %s",
                              xm_pickle_kind(callee.kind),
                              xm_pickle_kind(args.kind));
    return call_global(p, xm_pickle_global_at(callee.is.index), &args);
}

/* An OrderedDict of a module has the attribute _metadata: versions of layers,
 * which weights do not need. */
static xray_status drop_state(xm_pickle *p, uint32_t arg)
{
    xm_pickle_value state;
    xm_pickle_value *top = NULL;
    (void)arg;
    xray_status status = pop_value(p, &state);
    if (!status)
        status = peek_value(p, &top);
    if (!status && top->kind != XM_PICKLE_DICT)
        status = xm_pickle_fail(p, "attributes are set on %s",
                                xm_pickle_kind(top->kind));
    return status;
}

typedef struct opcode {
    unsigned char code;
    run_opcode run;
    uint32_t arg;
} opcode;

static const opcode opcodes[] = {
    { 0x80, skip_protocol, 1 },
    { 0x95, skip_frame, 8 },
    { '(', push_constant, XM_PICKLE_MARK },
    { 'N', push_constant, XM_PICKLE_NONE },
    { 0x88, push_bool, 1 },
    { 0x89, push_bool, 0 },
    { 'J', push_integer, 4 },
    { 'K', push_integer, 1 },
    { 'M', push_integer, 2 },
    { 0x8a, push_long, 1 },
    { 'I', push_decimal, 0 },
    { 'L', push_decimal, 1 },
    { 'G', push_real, 8 },
    { 'X', push_text, 4 },
    { 0x8c, push_text, 1 },
    { 0x8d, push_text, 8 },
    { ')', make_small_tuple, 0 },
    { 0x85, make_small_tuple, 1 },
    { 0x86, make_small_tuple, 2 },
    { 0x87, make_small_tuple, 3 },
    { 't', make_marked_tuple, 0 },
    { ']', push_constant, XM_PICKLE_LIST },
    { 'a', append_items, 0 },
    { 'e', append_items, 1 },
    { '}', make_dict, 0 },
    { 's', set_item, 0 },
    { 'u', set_items, 0 },
    { 'q', put_memo, 1 },
    { 'r', put_memo, 4 },
    { 0x94, put_memo, 0 },
    { 'h', get_memo, 1 },
    { 'j', get_memo, 4 },
    { 'c', push_global, 0 },
    { 0x93, push_stacked_global, 0 },
    { 'Q', push_storage, 0 },
    { 'R', call_function, 0 },
    { 'b', drop_state, 0 },
};

static xray_status run_next_opcode(xm_pickle *p)
{
    unsigned char code = *p->at++;
    for (size_t i = 0; i < sizeof opcodes / sizeof opcodes[0]; i++)
        if (opcodes[i].code == code)
            return opcodes[i].run(p, opcodes[i].arg);
    return xm_pickle_fail(p,
                          "opcode 0x%02x is not one of a state dict of "
                          "tensors; nothing of the file was run",
                          code);
}

xray_status xm_pickle_read(const unsigned char *data, uint64_t size,
                           const char *where, xr_err *err, xm_pickle *out)
{
    *out = (xm_pickle){ .where = where,
                        .err = err,
                        .start = data,
                        .at = data,
                        .end = data + size };
    if (size > MOST_BYTES)
        return xr_fail(
            err, XRAY_E_RANGE, "%s: has %llu bytes, expected at most %llu",
            where, (unsigned long long)size, (unsigned long long)MOST_BYTES);
    xray_status status = XRAY_OK;
    while (!status && out->at < out->end && *out->at != '.')
        status = run_next_opcode(out);
    if (status)
        return status;
    if (out->at == out->end)
        return xm_pickle_fail(out, "the pickle has no end");
    status = pop_value(out, &out->root);
    if (!status && out->stack.count)
        status = xm_pickle_fail(out, "values are left on the stack");
    return status;
}

void xm_pickle_free(xm_pickle *pickle)
{
    free(pickle->stack.data);
    free(pickle->memo.data);
    free(pickle->items.data);
    free(pickle->pairs.data);
    free(pickle->dicts.data);
    free(pickle->storages.data);
    free(pickle->tensors.data);
    *pickle = (xm_pickle){ .where = NULL };
}
