/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws a fault: where in a program it happens, to which rank, and what that
 * rank does in place of its call.
 */
#include "tests/comm/fault_internal.h"

#include "tests/testing.h"

#include <xray/numerics.h>

static int is_exchange(const program_step *s)
{
    return s->call == XRAY_COMM_EXCHANGE;
}

static int changes_messages(const program *p, const program_step *a,
                            const program_step *b, uint32_t index)
{
    return program_in_bytes(p, a, index) != program_in_bytes(p, b, index) ||
           program_out_bytes(p, a, index) != program_out_bytes(p, b, index);
}

/* Of all who turn their data around, each must need the rank at fault, so that
 * none has its messages complete. */
static int suits_fault(const fault *f, const program *p, uint32_t index)
{
    const program_step *s = &f->step;
    int turns = is_exchange(s) && !s->pair && p->sizes[s->group] > 2;
    /* Without a comparison a call ends when its bytes have come and gone. */
    if (f->compares_not &&
        (program_is_message(s) || s->call == XRAY_COMM_BROADCAST || !s->count))
        return 0;
    switch (f->kind) {
    case FAULT_OTHER_SIZE:
        return !turns && changes_messages(p, s, &f->other, index) &&
               program_is_message(s) == (int)(f->variant >> 4 & 1u);
    case FAULT_OTHER_TYPE:
        return s->call == XRAY_COMM_ALL_REDUCE ||
               s->call == XRAY_COMM_ALL_REDUCE_MAX ||
               s->call == XRAY_COMM_REDUCE_SCATTER;
    case FAULT_OTHER_ROOT:
        return s->call == XRAY_COMM_BROADCAST;
    case FAULT_CANCELED:
    case FAULT_KILLED_IN_CALL:
        return !turns;
    case FAULT_MEMORY:
        return !is_exchange(s) &&
               program_in_bytes(p, s, index) + program_out_bytes(p, s, index) >
                   0;
    default:
        return !turns || p->sizes[s->group] == 3;
    }
}

/* Draws the call that the rank at fault makes in place of the step. */
static program_step draw_other(const fault *f, const program *p)
{
    static const uint32_t next[] = {
        [XRAY_COMM_ALL_REDUCE] = XRAY_COMM_ALL_REDUCE_MAX,
        [XRAY_COMM_ALL_REDUCE_MAX] = XRAY_COMM_REDUCE_SCATTER,
        [XRAY_COMM_REDUCE_SCATTER] = XRAY_COMM_ALL_GATHER,
        [XRAY_COMM_ALL_GATHER] = XRAY_COMM_ALL_TO_ALL,
        [XRAY_COMM_ALL_TO_ALL] = XRAY_COMM_ALL_REDUCE,
        [XRAY_COMM_BROADCAST] = XRAY_COMM_ALL_GATHER,
        [XRAY_COMM_SEND] = XRAY_COMM_ALL_REDUCE,
        [XRAY_COMM_EXCHANGE] = XRAY_COMM_ALL_GATHER
    };
    program_step o = f->step;
    switch (f->kind) {
    case FAULT_OTHER_CALL:
        if (o.call == XRAY_COMM_SEND && f->variant % 2) {
            o.root = f->step.peer; /* both send, or both receive */
            o.peer = f->step.root;
            break;
        }
        o.call = next[o.call];
        o.pair = 0;
        o.dtype = o.dtype == XRAY_F16 ? XRAY_BF16 : o.dtype;
        break;
    case FAULT_OTHER_SIZE:
        o.count += 1 + f->variant % 3 * 20000;
        break;
    case FAULT_OTHER_TYPE:
        o.dtype = o.dtype == XRAY_F32 ? XRAY_BF16 : XRAY_F32;
        o.count = o.dtype == XRAY_F32 ? o.count / 2 : o.count * 2;
        break;
    case FAULT_OTHER_ROOT:
        o.root = (o.root + 1) % p->sizes[o.group];
        break;
    case FAULT_OTHER_GROUP:
        o.group = f->twin;
        break;
    default:
        break;
    }
    return o;
}

void fault_draw(fault *f, program *p, uint64_t seed, uint32_t size,
                fault_kind kind, uint32_t compares_not)
{
    uint32_t group = 0;
    uint32_t index = NOBODY;
    program_draw(p, seed, size, 1);
    memset(f, 0, sizeof(*f));
    f->kind = kind;
    f->compares_not = compares_not;
    f->missing = NOBODY;
    f->before = (uint32_t)(xray_mix64(seed, 1) % FAULT_BEFORE);
    f->variant = (uint32_t)(xray_mix64(seed, 3) >> 40);
    for (uint64_t i = 0; p->sizes[group] < 2 || !i; i++)
        group = (uint32_t)(xray_mix64(seed, 10 + i) % p->group_count);
    f->twin = program_twin(p, group);
    for (uint64_t i = 0; index == NOBODY; i++) {
        f->step = program_draw_step(p, xray_mix64(seed, 100 + i), group, 1);
        f->step.alone = NOBODY;
        if (f->variant % 4 == 0) /* more than lines hold */
            f->step.count = 600012 + f->variant % 7 * 2;
        if (kind == FAULT_OTHER_TYPE && f->step.dtype == XRAY_BF16)
            f->step.count &= ~(uint64_t)1; /* the bytes are the same */
        uint64_t drawn = xray_mix64(seed, 5000 + i);
        f->rank = p->ranks[group][drawn % p->sizes[group]];
        f->other = draw_other(f, p);
        index = program_index(p, &f->step, f->rank);
        if (index != NOBODY && !suits_fault(f, p, index))
            index = NOBODY;
    }
    for (uint32_t r = 0; kind == FAULT_CANCELED && r < size; r++)
        if (r != f->rank && program_index(p, &f->step, r) != NOBODY)
            f->missing = r;
}

uint32_t fault_rank(uint64_t seed, uint32_t size, fault_kind kind)
{
    static program p;
    ranks_env e = { .size = size };
    fault f;
    ranks_parts(&e);
    fault_draw(&f, &p, seed, size, kind, e.compares_not);
    return f.rank;
}

char fault_fate(fault_kind kind)
{
    return kind == FAULT_STOPPED  ? 's'
           : kind == FAULT_EXITED ? ranks_exited
                                  : 'k';
}

int fault_is_harmless(const fault *f, const ranks_env *e)
{
    return f->kind == FAULT_ILLEGAL || f->kind == FAULT_IN_TIME ||
           (f->kind == FAULT_MEMORY && e->sends_copies);
}
