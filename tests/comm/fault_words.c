/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads reports of faults, word by word.
 */
#include "tests/comm/fault_internal.h"

#include "tests/testing.h"

/* Returns what follows the words, or NULL if they do not come next. */
static const char *skip_words(const char *at, const char *words)
{
    size_t length = strlen(words);
    return at && strncmp(at, words, length) == 0 ? at + length : NULL;
}

/* "all_reduce of 64 bytes of f32 in group 3", or half of an exchange. */
static const char *skip_call(const player *pl, const program_step *s,
                             uint32_t rank, const char *at)
{
    char call[160];
    char words[256];
    const char *half = skip_words(at, "the exchange's ");
    uint32_t index = program_index(&pl->p, s, rank);
    /* Of a rank that is gone others may know only what it told them. */
    int parts = half || pl->e->sends_copies;
    for (uint32_t part = 0; part < 3; part++) {
        if (part == 2 && pl->e->compares_not)
            program_record(&pl->p, s, index, 0, call, sizeof(call));
        else
            program_describe(&pl->p, s, index, parts ? part : 0, call,
                             sizeof(call));
        (void)snprintf(words, sizeof(words), "%s in group %llu", call,
                       (unsigned long long)pl->numbers[s->group]);
        const char *end = skip_words(half ? half : at, words);
        if (end)
            return end;
    }
    return NULL;
}

/* 1 if the report says of a rank that it has come to its call. */
static int is_in_call(const player *pl, const program_step *s, uint32_t rank,
                      const char *at)
{
    static const char *const states[] = { "gave up in ", "waits in ",
                                          "works in " };
    for (uint32_t i = 0; i < 3; i++) {
        const char *end = skip_words(at, states[i]);
        end = end ? skip_call(pl, s, rank, end) : NULL;
        if (end && i == 0)
            return *end == '\0';
        double seconds = -1;
        int used = 0;
        if (end && sscanf(end, " for %lf s%n", &seconds, &used) == 1)
            return seconds >= 0 && seconds < 300 && end[used] == '\0';
    }
    return 0;
}

/* "is outside any collective, after LAST", of which the one before the fault is
 * published; the fault's may have been made several times. */
static int is_outside(const player *pl, const fault *f, uint32_t rank,
                      const char *at)
{
    const char *end = skip_words(at, "is outside any collective, after ");
    if (end && strcmp(end, pl->e->all->offers[rank]) == 0)
        return 1;
    /* A record is written bit by bit, and its state last. */
    int may_be_step = f->kind >= FAULT_ALIVE || f->compares_not;
    end = end && may_be_step && fault_has(&pl->p, f, rank)
              ? skip_call(pl, &f->step, rank, end)
              : NULL;
    return end && !*end;
}

static int is_ended(const player *pl, const fault *f, const char *at)
{
    char words[64];
    uint64_t pid = atomic_load(&pl->e->all->notes[f->rank][FAULT_NOTE_PID]);
    const char *last = pl->e->all->offers[f->rank];
    if (f->kind == FAULT_LEFT)
        return strcmp(at, "has ended its part") == 0;
    (void)snprintf(words, sizeof(words), "(pid %llu) is %s",
                   (unsigned long long)pid,
                   f->kind == FAULT_STOPPED ? "stopped" : "dead");
    const char *end = skip_words(at, words);
    if (!end)
        return 0;
    if (f->kind == FAULT_KILLED_IN_CALL) {
        const char *call = skip_words(end, ", in ");
        call = call ? call : skip_words(end, ", after ");
        call = call ? skip_call(pl, &f->step, f->rank, call) : NULL;
        if (call && !*call)
            return 1;
    }
    end = skip_words(end, ", after ");
    /* A rank may know only of the last call that it was in itself. */
    return end && (pl->e->sends_copies || strcmp(end, last) == 0);
}

static int is_true_of(const player *pl, const fault *f, uint32_t rank,
                      const char *at)
{
    int absent = rank == f->rank || rank == f->missing;
    /* One that was told to stop is so before it comes. */
    int may_come =
        f->kind == FAULT_ABORTED ||
        (!absent && f->kind != FAULT_LATE && f->kind != FAULT_STOPPED);
    if ((may_come || !fault_has(&pl->p, f, rank)) &&
        is_outside(pl, f, rank, at))
        return 1;
    if (!fault_has(&pl->p, f, rank))
        return 0;
    if (f->compares_not && f->kind == FAULT_ABORTED && absent &&
        skip_words(at, "gave up in "))
        return 1;
    switch (f->kind) {
    case FAULT_LATE:
    case FAULT_CANCELED:
        return (absent && is_outside(pl, f, rank, at)) ||
               ((f->kind == FAULT_CANCELED || !absent) &&
                (rank != f->missing || f->compares_not) &&
                is_in_call(pl, &f->step, rank, at));
    case FAULT_LEFT:
    case FAULT_KILLED:
    case FAULT_EXITED:
    case FAULT_KILLED_IN_CALL:
    case FAULT_STOPPED:
        return absent ? is_ended(pl, f, at)
                      : is_in_call(pl, &f->step, rank, at);
    default:
        return is_in_call(pl, absent ? &f->other : &f->step, rank, at);
    }
}

void fault_print_cause(const fault *f, char *out, size_t cap)
{
    switch (f->kind) {
    case FAULT_LATE:
    case FAULT_STOPPED:
        (void)snprintf(out, cap, "not all ranks arrived within %u.0 s",
                       FAULT_TIMEOUT_MS / 1000);
        break;
    case FAULT_ABORTED:
        (void)snprintf(out, cap, "rank %u was told to stop", f->rank);
        break;
    case FAULT_CANCELED:
        (void)snprintf(out, cap, "the run is stopped");
        break;
    case FAULT_MEMORY:
        (void)snprintf(out, cap, "rank %u failed in the call", f->rank);
        break;
    case FAULT_LEFT:
        (void)snprintf(out, cap, "a rank has ended its part");
        break;
    case FAULT_KILLED:
    case FAULT_EXITED:
    case FAULT_KILLED_IN_CALL:
        (void)snprintf(out, cap, "a rank is dead");
        break;
    default:
        (void)snprintf(out, cap, "the ranks are in different calls");
        break;
    }
}

#define TRUE_OR_DIE(pl, text, condition)                          \
    do {                                                          \
        if (!(condition)) {                                       \
            (void)fprintf(stderr, "not as promised: %s\n", text); \
            CHECK((pl)->e, condition);                            \
        }                                                         \
    } while (0)

/* "CALL: CAUSE: what each rank does" */
void fault_check_report(player *pl, const fault *f, const program_step *mine)
{
    ranks_env *e = pl->e;
    char cause[80];
    char text[sizeof(e->text)];
    char *rest = NULL;
    uint32_t named = 0;
    int turns = f->step.call == XRAY_COMM_EXCHANGE && !f->step.pair;
    fault_print_cause(f, cause, sizeof(cause));
    (void)snprintf(text, sizeof(text), "%s", e->text);
    char group[40];
    (void)snprintf(group, sizeof(group), "group %llu",
                   (unsigned long long)pl->numbers[mine->group]);
    const char *at = skip_call(pl, mine, e->rank, text);
    if (f->compares_not && f->kind == FAULT_ABORTED && !at)
        at = skip_words(text, group); /* between calls */
    at = skip_words(at, ": ");
    at = skip_words(at, cause);
    at = skip_words(at, ": ");
    TRUE_OR_DIE(pl, "call and cause", at != NULL);
    for (char *c = strtok_r(text + (at - text), ";", &rest); c;
         c = strtok_r(NULL, ";", &rest)) {
        char words[24];
        uint32_t rank = 0;
        c += *c == ' ';
        TRUE_OR_DIE(pl, c, sscanf(c, "rank %u ", &rank) == 1);
        TRUE_OR_DIE(pl, c, rank < e->size && !(named >> rank & 1));
        (void)snprintf(words, sizeof(words), "rank %u ", rank);
        TRUE_OR_DIE(pl, c, is_true_of(pl, f, rank, skip_words(c, words)));
        named |= 1u << rank;
    }
    /* A call of a group names all its ranks. */
    for (uint32_t r = 0; !program_is_message(mine) && r < e->size; r++) {
        const program_step s = { .group = mine->group };
        if (program_index(&pl->p, &s, r) != NOBODY)
            TRUE_OR_DIE(pl, "all ranks", named >> r & 1);
    }
    TRUE_OR_DIE(pl, "the rank at fault", turns || named >> f->rank & 1);
    TRUE_OR_DIE(pl, "the own rank", named >> e->rank & 1);
}
