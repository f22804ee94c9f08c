/* SPDX-License-Identifier: Apache-2.0
 *
 * A class whose methods do what the tests of actors need, and helpers of those
 * tests.
 */
#include "tests/actor/rig.h"
#include "core/base/tls.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#if defined(__SANITIZE_THREAD__)
/* The sanitizer notes what sendmsg has read once the call returns, when the
 * other process may have answered with the same region: the order that the
 * network gives is none that it sees. */
__attribute__((visibility("default"))) const char *
__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:receive_bytes\n";
}
#endif

typedef struct rig {
    const xr_actor_context *context;
    xray_region *kept;
    uint32_t calls;
    uint32_t reserved;
} rig;

/* A descriptor is set here if this program was started with it. */
enum { FILES = 64 };
static int was_open[FILES];

/* True if programs that the actor starts would have a file of it. */
static int shares_files(void)
{
    for (int fd = STDERR_FILENO + 1; fd < FILES; fd++) {
        const int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && !was_open[fd] && !(flags & FD_CLOEXEC))
            return 1;
    }
    return 0;
}

static void note_open_files(const char *address)
{
    int own = -1; /* its connection */
    (void)sscanf(address, "local:%d", &own);
    for (int fd = 0; fd < FILES; fd++)
        was_open[fd] = fd != own && fcntl(fd, F_GETFD) >= 0;
}

/* `text` "fail" fails, "sleep" takes long, "exit" ends the process. */
static xray_status rig_create(const xr_actor_context *context, const char *text,
                              xr_err *err, void **out_self)
{
    if (!strcmp(text, "fail"))
        return xr_fail(err, XRAY_E_CONFIG, "the text says so");
    if (!strcmp(text, "sleep"))
        (void)sleep(60);
    if (!strcmp(text, "exit"))
        _exit(7);
    if (shares_files())
        return xr_fail(err, XRAY_E_BUG, "a program would have its files");
    rig *self = calloc(1, sizeof(*self));
    if (!self)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    self->context = context;
    *out_self = self;
    return XRAY_OK;
}

static void rig_destroy(void *self)
{
    free(self);
}

static xray_status
echo_arguments(void *data, uint32_t u, int32_t i, uint64_t U, int64_t I,
               double d, const char *s, const void *b, uint64_t b_size,
               uint32_t *out_u, int32_t *out_i, uint64_t *out_U, int64_t *out_I,
               double *out_d, xr_str *out_s, xr_str *out_b, xr_err *err)
{
    (void)data;
    (void)err;
    *out_u = u;
    *out_i = i;
    *out_U = U;
    *out_I = I;
    *out_d = d;
    xr_str_puts(out_s, s);
    xr_str_append(out_b, b, (size_t)b_size);
    return XRAY_OK;
}

static xray_status count_calls(void *data, uint32_t expected, uint32_t *out_now,
                               xr_err *err)
{
    rig *self = data;
    if (expected != self->calls)
        return xr_fail(err, XRAY_E_STATE, "call %u came as number %u", expected,
                       self->calls);
    *out_now = self->calls++;
    return XRAY_OK;
}

/* Adds one to every byte and returns the sum of the old values. */
static xray_status add_one_to_bytes(void *data, xray_region *region,
                                    uint64_t size, uint64_t *out_sum,
                                    xr_err *err)
{
    (void)data;
    if (!region || size > region->size)
        return xr_fail(err, XRAY_E_ARG, "no region of that size");
    unsigned char *bytes = region->data;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < size; i++)
        sum += bytes[i]++;
    *out_sum = sum;
    return XRAY_OK;
}

static xray_status make_region(void *data, uint64_t size, uint32_t value,
                               xray_region **out, xr_err *err)
{
    rig *self = data;
    if (!size) { /* none */
        return XRAY_OK;
    }
    xray_status status = xr_actor_region(self->context, size, err, out);
    if (!status)
        memset((*out)->data, (int)value, (size_t)size);
    if (!status && value == 255) /* the result is given back */
        return xr_fail(err, XRAY_E_ARG, "255 is refused");
    return status;
}

/* Returns the region of the caller. */
static xray_status return_region(void *data, xray_region *region,
                                 xray_region **out, xr_err *err)
{
    (void)data;
    (void)err;
    *out = region;
    return XRAY_OK;
}

static xray_status fail_with_status(void *data, int32_t status,
                                    const char *text, uint32_t *out,
                                    xr_err *err)
{
    (void)data;
    *out = 5;
    if (!text[0])
        return status;
    return xr_fail(err, status, "%s", text);
}

static xray_status pass_time(void *data, uint32_t ms, xr_err *err)
{
    rig *self = data;
    const struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };
    (void)err;
    xr_actor_phase(self->context, "forward of block 3");
    (void)nanosleep(&t, NULL);
    return XRAY_OK;
}

static xray_status end_process(void *data, int32_t signal_or_code, xr_err *err)
{
    (void)data;
    (void)err;
    if (signal_or_code < 0)
        (void)kill(getpid(), -signal_or_code);
    _exit(signal_or_code);
}

static void sleep_at_exit(void)
{
    const struct timespec t = { 4, 0 };
    (void)nanosleep(&t, NULL);
}

/* Lets the process take longer to end than the limit of silence. */
static xray_status leave_late(void *data, xr_err *err)
{
    (void)data;
    return atexit(sleep_at_exit) ? xr_fail(err, XRAY_E_NOMEM, "atexit")
                                 : XRAY_OK;
}

static void exit_badly(void)
{
    _exit(3);
}

/* Lets the process end with a status other than 0. */
static xray_status leave_badly(void *data, xr_err *err)
{
    (void)data;
    return atexit(exit_badly) ? xr_fail(err, XRAY_E_NOMEM, "atexit") : XRAY_OK;
}

static xray_status report_process(void *data, uint32_t *out_fds,
                                  uint32_t *out_index, uint32_t *out_count,
                                  xr_str *out_name, xr_err *err)
{
    const rig *self = data;
    (void)err;
    *out_fds = rig_fds();
    *out_index = xr_actor_index(self->context);
    *out_count = xr_actor_count(self->context);
    xr_str_puts(out_name, xr_actor_own_name(self->context));
    return XRAY_OK;
}

/* Writes bytes to the socket of the runtime. */
static xray_status write_garbage(void *data, const void *bytes, uint64_t size,
                                 xr_err *err)
{
    (void)data;
    ssize_t n = write(3, bytes, (size_t)size);
    return n > 0 ? XRAY_OK : xr_fail(err, XRAY_E_IO, "write");
}

static xray_status gather_text(void *data, const void *mine, uint64_t size,
                               uint64_t timeout_ms, xr_str *out_all,
                               xr_err *err)
{
    const rig *self = data;
    const uint64_t count = xr_actor_count(self->context);
    char *all = malloc(count * size + 1);
    if (!all)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    xray_status status =
        xr_actor_gather(self->context, mine, size, timeout_ms, all, err);
    if (!status)
        xr_str_append(out_all, all, (size_t)(count * size));
    free(all);
    return status;
}

/* Writes to the bytes that the caller reads, and returns what the actor before
 * this one has written to its own. */
static xray_status mark_record(void *data, const char *text, xr_str *out_before,
                               xr_err *err)
{
    const rig *self = data;
    const uint32_t index = xr_actor_index(self->context);
    uint64_t stride = 0;
    const char *all = xr_actor_extras(self->context, &stride);
    (void)err;
    (void)snprintf(xr_actor_extra(self->context), RIG_EXTRA, "%s", text);
    if (index)
        xr_str_puts(out_before, all + (index - 1) * stride);
    return XRAY_OK;
}

static xray_status weigh_many_arguments(void *data, uint32_t a, double b,
                                        int64_t c, uint32_t d, double e,
                                        int32_t f, double g, uint64_t h,
                                        double i, double j, double k, double l,
                                        double m, double *out, xr_err *err)
{
    (void)data;
    (void)err;
    *out = a + 2 * b + 3 * (double)c + 4 * d + 5 * e + 6 * f + 7 * g +
           8 * (double)h + 9 * i + 10 * j + 11 * k + 12 * l + 13 * m;
    return XRAY_OK;
}

static const xr_actor_method methods[] = {
    { "echo", "u i U I d s b -> u i U I d s b", XR_METHOD(echo_arguments) },
    { "count", "u->u", XR_METHOD(count_calls) },
    { "add_one", "mU->U", XR_METHOD(add_one_to_bytes) },
    { "make", "Uu->m", XR_METHOD(make_region) },
    { "same", "m->m", XR_METHOD(return_region) },
    { "fails", "i s -> u", XR_METHOD(fail_with_status) },
    { "pass_time", "u ->", XR_METHOD(pass_time) },
    { "die", "i ->", XR_METHOD(end_process) },
    { "leave_late", "->", XR_METHOD(leave_late) },
    { "leave_badly", "->", XR_METHOD(leave_badly) },
    { "look", "-> uuus", XR_METHOD(report_process) },
    { "garbage", "b ->", XR_METHOD(write_garbage) },
    { "gather", "b U -> b", XR_METHOD(gather_text) },
    { "mark", "s -> s", XR_METHOD(mark_record) },
    { "wide", "u d I u d i d U d d d d d -> d",
      XR_METHOD(weigh_many_arguments) },
};

const xr_actor_class rig_class = {
    "rig",      methods,     sizeof(methods) / sizeof(methods[0]),
    rig_create, rig_destroy,
};

/* ---- The program ---- */

const char *const rig_argv[] = { "/proc/self/exe", "--actor", NULL };

static int runs_on(const char *kind)
{
    const char *hosts = getenv("XRAY_TEST_HOSTS");
    return hosts && strcmp(hosts, kind) == 0;
}

int rig_child(int argc, char **argv, int *out_code)
{
    static const xr_actor_class *const classes[] = { &rig_class };
    xr_err err = { "" };
    if (runs_on("tls") && !xr_tls_is_there()) {
        print_message("skipped: " XR_TLS_MISSING "\n");
        *out_code = 77;
        return 1;
    }
    if (argc != 3 || strcmp(argv[1], "--actor"))
        return 0;
    note_open_files(argv[2]);
    const int hosts =
        strncmp(argv[2], "tcp:", 4) == 0 || strncmp(argv[2], "tls:", 4) == 0;
    xray_status status = xr_actor_serve(
        classes, 1, hosts ? &xr_hosts_runtime : NULL, NULL, argv[2], &err);
    *out_code = status < 0 ? 9 : 0;
    return 1;
}

int rig_on_hosts(void)
{
    return getenv("XRAY_TEST_HOSTS") != NULL;
}

xr_actors *rig_actors(const xr_actors_setup *setup)
{
    static const xr_actors_setup plain = { .actors = 4, .extra = RIG_EXTRA };
    const int over_tls = runs_on("tls");
    const xr_hosts_config config = { .tls = (uint32_t)over_tls,
                                     .copies = over_tls || runs_on("copies") };
    xr_actors_setup given = setup ? *setup : plain;
    xr_err err = { "" };
    xr_actors *actors = NULL;
    if (rig_on_hosts() && !given.ops) {
        given.ops = &xr_hosts_runtime;
        given.config = &config;
    }
    RIG_OK(xr_actors_new(&given, &err, &actors));
    return actors;
}

xr_actor *rig_spawn(xr_actors *actors, uint32_t index)
{
    char name[32];
    xr_err err = { "" };
    xr_actor *actor = NULL;
    (void)snprintf(name, sizeof(name), "workhorse %u", index);
    const xr_actor_spawn_spec spec = { &rig_class, rig_argv, name, NULL,
                                       index,      4,        NULL, 0 };
    RIG_OK(xr_actor_spawn(actors, &spec, &err, &actor));
    RIG_OK(xr_actor_ready(actor, 30000, &err));
    return actor;
}

void rig_ok(xray_status status, const xr_err *err)
{
    if (status)
        fail_msg("status %d: %s", status, err->text);
}

void rig_says(const char *text, ...)
{
    va_list args;
    const char *part;
    va_start(args, text);
    while ((part = va_arg(args, const char *)))
        if (!strstr(text, part)) {
            va_end(args);
            fail_msg("\"%s\" does not say \"%s\"", text, part);
        }
    va_end(args);
}

const char *rig_after(const char *text, const char *part)
{
    rig_says(text, part, NULL);
    return strstr(text, part) + strlen(part);
}

uint64_t rig_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint32_t rig_fds(void)
{
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return 0;
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n - 3; /* ".", ".." and the folder itself */
}

uint32_t rig_maps(void)
{
    return rig_maps_of((uint64_t)getpid());
}

uint32_t rig_maps_of(uint64_t pid)
{
    char line[512];
    uint32_t n = 0;
    (void)snprintf(line, sizeof(line), "/proc/%llu/maps",
                   (unsigned long long)pid);
    FILE *file = fopen(line, "r");
    while (file && fgets(line, sizeof(line), file))
        n += strstr(line, "memfd:xray-") != NULL;
    if (file)
        (void)fclose(file);
    return n;
}

int rig_alive(uint64_t pid)
{
    char path[64];
    char line[256] = "";
    (void)snprintf(path, sizeof(path), "/proc/%llu/stat",
                   (unsigned long long)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    char *got = fgets(line, sizeof(line), file);
    (void)fclose(file);
    const char *state = got ? strrchr(line, ')') : NULL;
    return state && strlen(state) > 2 && state[2] != 'Z' && state[2] != 'X';
}

int rig_gone(uint64_t pid, uint64_t ms)
{
    const uint64_t end = rig_ms() + ms;
    while (rig_alive(pid)) {
        if (rig_ms() > end)
            return 0;
        const struct timespec t = { 0, 5000000 };
        (void)nanosleep(&t, NULL);
    }
    return 1;
}
