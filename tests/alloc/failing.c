/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets chosen allocations fail. The linker sends our objects' calls here
 * (--wrap); allocations of shared libraries fail through their hooks, or by
 * failing our calls to them.
 */
#include "tests/alloc/failing.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "tests/testing.h"

static atomic_ulong count;
static atomic_ulong fail_at;
static atomic_int fail_rest;
static atomic_ulong failed;

/* The call stack of the first failure. */
enum { FRAMES = 14 };
static void *frames[FRAMES];
static int frame_count;

void failing_arm(unsigned long n, int all)
{
    atomic_store(&count, 0);
    atomic_store(&failed, 0);
    atomic_store(&fail_rest, all);
    atomic_store(&fail_at, n);
}

int failing_disarm(unsigned long *out_count)
{
    atomic_store(&fail_at, 0);
    *out_count = atomic_load(&count);
    return atomic_load(&failed) != 0;
}

/* 1: the current allocation fails. */
static int allocation_fails(void)
{
    unsigned long n = atomic_fetch_add(&count, 1) + 1;
    unsigned long at = atomic_load(&fail_at);
    if (!at || n < at || (n > at && !atomic_load(&fail_rest)))
        return 0;
    if (!atomic_fetch_add(&failed, 1))
        frame_count = backtrace(frames, FRAMES);
    errno = ENOMEM;
    return 1;
}

/* The names are the linker's: --wrap makes them. */
#define WRAP(result, name, declare, use, nothing)                  \
    result __real_##name declare;                                  \
    result __wrap_##name declare;                                  \
    result __wrap_##name declare                                   \
    {                                                              \
        return allocation_fails() ? (nothing) : __real_##name use; \
    }

struct pcre2_compile_context;
struct pcre2_match_context;
struct pcre2_match_data;
struct pcre2_code;

WRAP(void *, malloc, (size_t size), (size), NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL)
WRAP(void *, realloc, (void *p, size_t size), (p, size), NULL)
WRAP(void *, aligned_alloc, (size_t to, size_t size), (to, size), NULL)
WRAP(int, posix_memalign, (void **p, size_t to, size_t size), (p, to, size),
     ENOMEM)
WRAP(char *, strdup, (const char *text), (text), NULL)
WRAP(char *, strndup, (const char *text, size_t size), (text, size), NULL)
WRAP(void *, mmap, (void *at, size_t n, int p, int f, int fd, off_t o),
     (at, n, p, f, fd, o), MAP_FAILED)
WRAP(void *, fopen, (const char *path, const char *mode), (path, mode), NULL)
WRAP(void *, opendir, (const char *path), (path), NULL)
WRAP(void *, fdopendir, (int fd), (fd), NULL)
WRAP(char *, realpath, (const char *path, char *out), (path, out), NULL)
WRAP(int, ini_parse_stream,
     (void *reader, void *stream, void *handler, void *user),
     (reader, stream, handler, user), -2)
WRAP(struct pcre2_compile_context *, pcre2_compile_context_create_8, (void *g),
     (g), NULL)
WRAP(struct pcre2_match_context *, pcre2_match_context_create_8, (void *g), (g),
     NULL)
WRAP(struct pcre2_match_data *, pcre2_match_data_create_8,
     (uint32_t pairs, void *g), (pairs, g), NULL)
WRAP(struct pcre2_match_data *, pcre2_match_data_create_from_pattern_8,
     (const void *code, void *g), (code, g), NULL)

/* Fails with an error, which is NULL as the end of a folder is. */
static atomic_int folders;

void failing_folders(int on)
{
    atomic_store(&folders, on);
}

void *__real_readdir(void *dir);
void *__wrap_readdir(void *dir);
void *__wrap_readdir(void *dir)
{
    return atomic_load(&folders) && allocation_fails() ? NULL
                                                       : __real_readdir(dir);
}

struct pcre2_code *__real_pcre2_compile_8(const unsigned char *pattern,
                                          size_t size, uint32_t options,
                                          int *error, size_t *at,
                                          void *context);
struct pcre2_code *__wrap_pcre2_compile_8(const unsigned char *pattern,
                                          size_t size, uint32_t options,
                                          int *error, size_t *at,
                                          void *context);
struct pcre2_code *__wrap_pcre2_compile_8(const unsigned char *pattern,
                                          size_t size, uint32_t options,
                                          int *error, size_t *at, void *context)
{
    if (!allocation_fails())
        return __real_pcre2_compile_8(pattern, size, options, error, at,
                                      context);
    *error = 121; /* PCRE2_ERROR_HEAP_FAILED */
    *at = 0;
    return NULL;
}

#define UTF8PROC_ERROR_NOMEM (-1)
WRAP(ssize_t, utf8proc_map,
     (const uint8_t *text, ssize_t size, uint8_t **out, int options),
     (text, size, out, options), UTF8PROC_ERROR_NOMEM)

static void *hooked_malloc(size_t size)
{
    return allocation_fails() ? NULL : __real_malloc(size);
}

void failing_init(void)
{
    cJSON_Hooks hooks = { .malloc_fn = hooked_malloc, .free_fn = free };
    cJSON_InitHooks(&hooks);
}

/* ---- the sweep ----------------------------------------------------------- */

/* Defined only if a sanitizer that finds leaks is linked in. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

void __sanitizer_symbolize_pc(void *pc, const char *format, char *out,
                              size_t size) __attribute__((weak));

typedef struct sweep {
    const char *name;
    int leaked; /* a leak that was found once is found each time */
    unsigned faults;
} sweep;

static void report_fault(sweep *s, unsigned long n, const char *what,
                         const char *text)
{
    if (s->faults++ >= 12)
        return;
    print_error("%s: allocation %lu failed: %s%s\n", s->name, n, what, text);
    for (int i = 2, shown = 0; i < frame_count && shown < 5; i++) {
        char line[256] = "";
        if (__sanitizer_symbolize_pc)
            __sanitizer_symbolize_pc((char *)frames[i] - 1, "%f %s:%l", line,
                                     sizeof(line));
        if (line[0] == '<')
            continue;
        print_error("    %s\n", line);
        shown++;
    }
}

/* 1 if the failure was in a function that does without the memory: a guess with
 * a fallback, a number of parameters that the bytes of a plan replace, the time
 * of a save that no line reports. */
static int is_harmless_failure(void)
{
    static const char *const names[] = { "cpu_memory_limit", "count_parameters",
                                         "add_name", "read_limit" };
    char line[128] = "";
    for (int i = 0; i < frame_count && __sanitizer_symbolize_pc; i++) {
        __sanitizer_symbolize_pc((char *)frames[i] - 1, "%f", line,
                                 sizeof(line));
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
            if (strcmp(line, names[n]) == 0)
                return 1;
    }
    return !__sanitizer_symbolize_pc; /* without it the function is unknown */
}

static void check_failed_try(sweep *s, unsigned long n, xray_status status,
                             const xr_err *err)
{
    /* An error with its reason is accepted, too: plans are refused with all
     * their errors. */
    if (status == XRAY_OK && is_harmless_failure())
        return;
    if (status == XRAY_OK ||
        (status != XRAY_E_NOMEM && !strstr(err->text, "emory"))) {
        char number[32];
        (void)snprintf(number, sizeof(number), "status %d: ", status);
        report_fault(s, n, number, err->text);
    } else if (!err->text[0] || strchr(err->text, '\n')) {
        report_fault(s, n, "said: ", err->text);
    }
}

/* Looking for leaks takes longer than the try itself, so it is done now and
 * then, or each time if XRAY_ALLOC_ALL is set. */
static void check_leaks(sweep *s, unsigned long n)
{
    if (s->leaked || !__lsan_do_recoverable_leak_check ||
        !__lsan_do_recoverable_leak_check())
        return;
    report_fault(s, n, "this one or one not long before it leaks", "");
    s->leaked = 1;
}

/* 0 if the run ended before its n-th allocation: the lengths of times and
 * process ids vary by a digit, and so may the growth of a buffer. Only the last
 * few of `total` can be missing. */
static int try_with_failure(sweep *s, unsigned long n, int on, failing_try f,
                            void *ctx, unsigned long total)
{
    unsigned long seen = 0;
    xr_err err = { "" };
    failing_arm(n, on);
    xray_status status = f(ctx, &err);
    if (failing_disarm(&seen)) {
        check_failed_try(s, n, status, &err);
        return 1;
    }
    if (seen + 4 < total)
        fail_msg("%s: only %lu allocations, %lu before", s->name, seen, total);
    return 0;
}

void failing_sweep(const char *name, failing_try f, void *ctx,
                   unsigned long most)
{
    unsigned long total = 0;
    unsigned long ran = 0;
    xr_err err = { "" };
    sweep s = { .name = name };
    const char *every = getenv("XRAY_ALLOC_ALL");
    failing_arm(0, 0);
    xray_status status = f(ctx, &err);
    (void)failing_disarm(&total);
    if (status != XRAY_OK)
        fail_msg("%s: %s", name, err.text);
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
        fail_msg("%s: leaks without a failure", name);
    unsigned long often = every ? 1 : 16;
    unsigned long step = most && !every && total > most ? total / most : 1;
    for (unsigned long n = 1; n <= total; n += step, ran++) {
        /* First it alone fails, then all from it on. */
        if (!try_with_failure(&s, n, 0, f, ctx, total) ||
            !try_with_failure(&s, n, 1, f, ctx, total))
            break;
        if (ran % often == 0)
            check_leaks(&s, n);
    }
    check_leaks(&s, total);
    if (s.faults)
        fail_msg("%s: %u faults", name, s.faults);
    print_message("%s: %lu of %lu allocations failed, each said so\n", name,
                  ran, total);
}
