/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the threads of a block as fibers of one OS thread. A fiber runs until it
 * has to wait; then the next fiber that can run continues, preferably one of
 * the same warp.
 */
#include "emulate.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

#include "emulate_internal.h"

/* Frames are larger where kernels have a sanitizer. Reserved pages cost
 * nothing until they are used. */
#define STACK_BYTES (512u << 10)
#define STACK_MARK 0x6b636174736d7565u

#define THREADS_MOST 1024u
#define WARPS_MOST 32u
#define SHARED_PLAIN (48u << 10) /* without cudaFuncSetAttribute */
#define SHARED_MOST (227u << 10)
#define MEETINGS 16u

emu_state emu_now;

namespace
{

struct copy16 {
    void *to;
    uint8_t bytes[16];
};

struct alignas(64) fiber {
    void *sp;
    char *stack;
    uint3 thread;
    unsigned lane;
    const char *at; /* where it waits; NULL: it runs */
    bool done;
    std::vector<copy16> copies;  /* in flight, oldest first */
    std::vector<size_t> commits; /* ends of groups within `copies` */
};

struct gathering { /* of lanes at one warp-wide call */
    uint32_t mask;
    uint32_t here;
    const char *name;
    emu_together finish;
    void *args[32];
};

struct meeting { /* of threads at a barrier that has a number */
    unsigned here;
    unsigned threads;
    uint32_t lanes[WARPS_MOST];
};

struct warp {
    uint32_t run;    /* lanes that can run */
    uint32_t exists; /* lanes that the block has */
    uint32_t done;
    unsigned used;
    gathering at[32];
};

struct engine {
    fiber fibers[THREADS_MOST];
    warp warps[WARPS_MOST];
    fiber main;
    fiber *running;
    const char *kernel;
    std::function<void()> *call;
    unsigned threads;
    unsigned left;
    bool backwards;
    bool eager;       /* asynchronous copies are done at once */
    unsigned waiting; /* threads at the barrier */
    const char *barrier_file;
    int barrier_line;
    int barrier_kind;
    int barrier_sum;
    int barrier_result;
    meeting meetings[MEETINGS];
    uint64_t launches;
};

engine *E;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

} // namespace

void emu_die(const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    fflush(stdout);
    if (E && E->kernel)
        fprintf(stderr,
                "emulated kernel %s, block (%u,%u,%u), thread %u: ", E->kernel,
                emu_now.block.x, emu_now.block.y, emu_now.block.z,
                E->running == &E->main ? 0u
                                       : (unsigned)(E->running - E->fibers));
    vfprintf(stderr, fmt, list);
    fputc('\n', stderr);
    fflush(stderr);
    va_end(list);
    abort();
}

/* ---- switching ----------------------------------------------------------- */

static unsigned fiber_index(const fiber *f)
{
    return (unsigned)(f - E->fibers);
}

#if defined(__x86_64__)
extern "C" void emu_switch(void **save, void *to);
asm(".text\n"
    ".globl emu_switch\n"
    ".hidden emu_switch\n"
    ".type emu_switch,@function\n"
    "emu_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n"
    "  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n"
    "  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size emu_switch,.-emu_switch\n");

static void prepare_fiber(fiber *f, void (*entry)(void))
{
    /* Where all stacks start at the same place of a page, they displace each
     * other from the processor's caches. */
    unsigned shift = fiber_index(f) % 16u * (4096u + 4 * 64u);
    void **top = reinterpret_cast<void **>(f->stack + STACK_BYTES - shift);
    *--top = nullptr; /* the return address of `entry` */
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f->sp = top;
}

static void switch_stacks(fiber *from, fiber *to)
{
    emu_switch(&from->sp, to->sp);
}
#else
#include <ucontext.h>

static ucontext_t contexts[THREADS_MOST + 1];

static ucontext_t *get_context(fiber *f)
{
    return f == &E->main ? &contexts[THREADS_MOST] : &contexts[f - E->fibers];
}

static void prepare_fiber(fiber *f, void (*entry)(void))
{
    ucontext_t *c = get_context(f);
    getcontext(c);
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = STACK_BYTES;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}

static void switch_stacks(fiber *from, fiber *to)
{
    swapcontext(get_context(from), get_context(to));
}
#endif

/* AddressSanitizer is not told: kernels are compiled so that their variables
 * are on the fiber's own stack, and no exception leaves it. */
static void switch_to(fiber *to)
{
    fiber *from = E->running;
    if (to == from)
        return;
    E->running = to;
    emu_now.thread = to->thread;
    emu_now.lane = to->lane;
    switch_stacks(from, to);
}

/* ---- scheduling --------------------------------------------------------- */

static fiber *next_in_warp(unsigned w)
{
    uint32_t run = E->warps[w].run;
    unsigned lane = E->backwards ? 31u - (unsigned)__builtin_clz(run)
                                 : (unsigned)__builtin_ctz(run);
    return &E->fibers[w * 32u + lane];
}

/* The next fiber that can run; NULL if none can. */
static fiber *next_fiber(unsigned from)
{
    unsigned warps = (E->threads + 31u) / 32u;
    unsigned w = from / 32u;
    for (unsigned i = 0; i < warps; i++) {
        if (E->warps[w].run)
            return next_in_warp(w);
        if (E->backwards)
            w = w ? w - 1 : warps - 1;
        else
            w = w + 1 < warps ? w + 1 : 0;
    }
    return nullptr;
}

[[noreturn]] static void stuck(void)
{
    unsigned returned = 0, first = THREADS_MOST, last = THREADS_MOST;
    for (unsigned i = 0; i < E->threads; i++) {
        const fiber *f = &E->fibers[i];
        if (f->done) {
            returned++;
            last = i;
        } else if (first == THREADS_MOST) {
            first = i;
        }
    }
    const char *what = E->fibers[first].at;
    for (unsigned i = first; i < E->threads; i++) {
        const fiber *f = &E->fibers[i];
        if (!f->done && f->at != what)
            emu_die("thread %u waits at %s, thread %u at %s: no thread can "
                    "continue",
                    first, what, i, f->at);
    }
    emu_die("thread %u waits at %s, but %u threads returned before it (one is "
            "%u)",
            first, what, returned, last);
}

static void wait_at(const char *what)
{
    fiber *f = E->running;
    f->at = what;
    unsigned me = fiber_index(f);
    E->warps[me / 32u].run &= ~(1u << me % 32u);
    fiber *to = next_fiber(me);
    if (!to)
        stuck();
    switch_to(to);
    f->at = nullptr;
}

static void run_fiber(void)
{
    (*E->call)();
    fiber *f = E->running;
    f->copies.clear();
    f->commits.clear();
    f->done = true;
    unsigned me = fiber_index(f);
    E->warps[me / 32u].run &= ~(1u << me % 32u);
    E->warps[me / 32u].done |= 1u << me % 32u;
    fiber *to = --E->left ? next_fiber(me) : &E->main;
    if (!to)
        stuck();
    switch_to(to);
    emu_die("a thread continued after its end");
}

/* ---- barriers ------------------------------------------------------------ */

int emu_barrier(const char *file, int line, int kind, int value)
{
    static const char *const names[] = { "__syncthreads", "__syncthreads_or",
                                         "__syncthreads_and",
                                         "__syncthreads_count" };
    if (!E || E->running == &E->main)
        emu_die("a barrier outside of a kernel");
    if (!E->waiting) {
        E->barrier_file = file;
        E->barrier_line = line;
        E->barrier_kind = kind;
        E->barrier_sum = 0;
    } else if (E->barrier_line != line || E->barrier_kind != kind ||
               (E->barrier_file != file &&
                strcmp(E->barrier_file, file) != 0)) {
        emu_die("it is at %s of %s:%d while others wait at %s:%d", names[kind],
                file, line, E->barrier_file, E->barrier_line);
    }
    E->barrier_sum += value != 0;
    if (++E->waiting < E->threads) {
        wait_at(names[kind]);
        return E->barrier_result;
    }
    E->waiting = 0;
    int n = E->barrier_sum;
    E->barrier_result = kind == EMU_COUNT ? n
                        : kind == EMU_AND ? n == (int)E->threads
                                          : n != 0;
    for (unsigned w = 0; w * 32u < E->threads; w++)
        E->warps[w].run = E->warps[w].exists;
    return E->barrier_result;
}

void emu_meet(unsigned number, unsigned threads)
{
    if (!E || E->running == &E->main)
        emu_die("a barrier outside of a kernel");
    if (!number || number >= MEETINGS || threads > E->threads)
        emu_die("barrier %u of %u threads", number, threads);
    meeting *m = &E->meetings[number];
    if (m->here && m->threads != threads)
        emu_die("it is at barrier %u of %u threads while others wait for %u",
                number, threads, m->threads);
    unsigned me = fiber_index(E->running);
    m->threads = threads;
    m->lanes[me / 32u] |= 1u << me % 32u;
    if (++m->here < threads) {
        wait_at("cu_meet");
        return;
    }
    for (unsigned w = 0; w < WARPS_MOST; w++)
        E->warps[w].run |= m->lanes[w];
    memset(m, 0, sizeof(*m));
}

/* ---- warp-wide calls ----------------------------------------------------- */

static gathering *find_gathering(warp *w, uint32_t mask, const char *name)
{
    for (unsigned i = 0; i < w->used; i++) {
        gathering *g = &w->at[i];
        if (g->mask == mask) {
            if (g->name != name && strcmp(g->name, name) != 0)
                emu_die("it is at %s while lanes of its warp wait at %s", name,
                        g->name);
            return g;
        }
    }
    gathering *g = &w->at[w->used++];
    memset(g, 0, sizeof(*g));
    g->mask = mask;
    g->name = name;
    return g;
}

void emu_collective(uint32_t mask, const char *name, emu_together finish,
                    void *arg)
{
    if (!E || E->running == &E->main)
        emu_die("%s outside of a kernel", name);
    unsigned me = fiber_index(E->running);
    warp *w = &E->warps[me / 32u];
    uint32_t bit = 1u << me % 32u;
    if (!(mask & bit))
        emu_die("%s: the mask %08x lacks the calling lane %u", name, mask,
                me % 32u);
    if (mask & ~w->exists)
        emu_die("%s: the mask %08x names lanes that the block of %u threads "
                "lacks",
                name, mask, E->threads);
    if (mask & w->done)
        emu_die("%s: lanes %08x of the mask have returned", name,
                mask & w->done);
    gathering *g = find_gathering(w, mask, name);
    g->finish = finish;
    g->args[me % 32u] = arg;
    g->here |= bit;
    if (g->here != mask) {
        wait_at(name);
        return;
    }
    if (finish)
        finish(g->args);
    w->run |= mask;
    if (g != &w->at[--w->used])
        *g = w->at[w->used];
}

/* ---- a launch ------------------------------------------------------------ */

static void prepare_engine(unsigned threads)
{
    if (!E) {
        E = new engine();
        E->running = &E->main;
    }
    for (unsigned i = 0; i < threads; i++) {
        fiber *f = &E->fibers[i];
        if (f->stack)
            continue;
        void *at = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            emu_die("no memory for %u fibers", threads);
        f->stack = static_cast<char *>(at);
        uint64_t mark = STACK_MARK;
        memcpy(f->stack, &mark, sizeof(mark));
    }
}

static void check_stacks(void)
{
    const uint64_t mark = STACK_MARK;
    for (unsigned i = 0; i < E->threads; i++)
        if (memcmp(E->fibers[i].stack, &mark, sizeof(mark)) != 0)
            emu_die("a thread used more than %u bytes of stack", STACK_BYTES);
}

static void run_block(dim3 block)
{
    E->left = E->threads;
    E->waiting = 0;
    memset(E->meetings, 0, sizeof(E->meetings));
    for (unsigned i = 0; i < E->threads; i++) {
        fiber *f = &E->fibers[i];
        f->thread = { i % block.x, i / block.x % block.y,
                      i / (block.x * block.y) };
        f->lane = i % 32u;
        f->at = nullptr;
        f->done = false;
        prepare_fiber(f, run_fiber);
    }
    for (unsigned w = 0; w * 32u < E->threads; w++) {
        unsigned n = E->threads - w * 32u;
        E->warps[w].exists = n < 32u ? (1u << n) - 1u : 0xffffffffu;
        E->warps[w].run = E->warps[w].exists;
        E->warps[w].done = 0;
        E->warps[w].used = 0;
    }
    switch_to(next_fiber(E->backwards ? E->threads - 1 : 0));
}

static void check_limits(dim3 grid, dim3 block, size_t shared,
                         const void *function)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!threads || threads > THREADS_MOST || block.z > 64)
        emu_die("a block of %u x %u x %u threads", block.x, block.y, block.z);
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu ||
        grid.y > 65535u || grid.z > 65535u)
        emu_die("a grid of %u x %u x %u blocks", grid.x, grid.y, grid.z);
    if (shared > SHARED_MOST)
        emu_die("%zu bytes of dynamic shared memory, a block has %u", shared,
                SHARED_MOST);
    if (shared > SHARED_PLAIN && shared > emu_shared_allowed(function))
        emu_die("%zu bytes of dynamic shared memory without "
                "cudaFuncSetAttribute",
                shared);
}

static void run_grid(dim3 grid, dim3 block, size_t shared,
                     std::function<void()> *call)
{
    void *dynamic = nullptr;
    if (shared && posix_memalign(&dynamic, 128, shared) != 0)
        emu_die("no memory");
    E->call = call;
    E->threads = block.x * block.y * block.z;
    emu_now = emu_state();
    emu_now.block_dim = block;
    emu_now.grid_dim = grid;
    emu_now.dynamic = dynamic;
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    uint64_t turn = E->launches++;
    for (uint64_t i = 0; i < blocks; i++) {
        emu_now.block = { (unsigned)(i % grid.x),
                          (unsigned)(i / grid.x % grid.y),
                          (unsigned)(i / ((uint64_t)grid.x * grid.y)) };
        E->backwards = (turn + i) % 2 != 0;
        E->eager = (turn + i) / 2 % 2 != 0;
        if (dynamic)
            memset(dynamic, 0xff, shared);
        run_block(block);
    }
    check_stacks();
    free(dynamic);
}

void emu_launch(const char *name, const void *function, dim3 grid, dim3 block,
                size_t shared, cudaStream_t stream, std::function<void()> call)
{
    emu_check_stream(name, stream);
    if (emu_recorded(stream, [=]() {
            emu_launch(name, function, grid, block, shared, nullptr, call);
        }))
        return;
    pthread_mutex_lock(&lock);
    prepare_engine(0);
    E->kernel = name;
    check_limits(grid, block, shared, function);
    prepare_engine(block.x * block.y * block.z);
    run_grid(grid, block, shared, &call);
    E->kernel = nullptr;
    E->call = nullptr;
    pthread_mutex_unlock(&lock);
}

/* ---- asynchronous copies ------------------------------------------------- */

void emu_async16(void *to, const uint8_t bytes[16])
{
    if (E->eager) {
        memcpy(to, bytes, 16);
        return;
    }
    copy16 c = { to, { 0 } };
    memcpy(c.bytes, bytes, 16);
    E->running->copies.push_back(c);
}

void cu_async_commit(void)
{
    E->running->commits.push_back(E->running->copies.size());
}

void emu_async_wait(int left)
{
    fiber *f = E->running;
    size_t groups = f->commits.size();
    if (groups <= (size_t)left)
        return;
    size_t done = groups - (size_t)left;
    size_t end = f->commits[done - 1];
    for (size_t i = 0; i < end; i++)
        memcpy(f->copies[i].to, f->copies[i].bytes, 16);
    f->copies.erase(f->copies.begin(), f->copies.begin() + (long)end);
    f->commits.erase(f->commits.begin(), f->commits.begin() + (long)done);
    for (size_t i = 0; i < f->commits.size(); i++)
        f->commits[i] -= end;
}
