/* SPDX-License-Identifier: Apache-2.0
 *
 * The MPI of this process, which all instances share. A message whose request
 * is not complete when its instance ends is kept here until it is, since MPI
 * still reads or writes it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/comm-mpi/lines.h"

#define FIRST_TAG 4096 /* other users of the world take small ones */

typedef struct kept {
    struct kept *next;
    mpi_handle request;
    void *memory;
} kept;

static struct {
    pthread_mutex_t lock;
    mpi_api api;
    int is_open;
    int tag;
    kept *kept;
} library = { .lock = PTHREAD_MUTEX_INITIALIZER, .tag = FIRST_TAG };

void mpi_library_lock(void)
{
    (void)pthread_mutex_lock(&library.lock);
}

void mpi_library_unlock(void)
{
    (void)pthread_mutex_unlock(&library.lock);
}

const mpi_api *mpi_library_api(void)
{
    return &library.api;
}

/* ---- opening --------------------------------------------------------------
 */

/* MPI's processes end together: one that ends without this is taken for one
 * that failed. */
static void finalize_library(void)
{
    int is_over = 0;
    mpi_library_lock();
    if (library.api.finalized(&is_over) == MPI_API_OK && !is_over)
        (void)library.api.finalize();
    mpi_library_unlock();
}

static xray_status initialize(const xray_host *host, const mpi_api *api)
{
    int is_up = 0;
    int is_over = 0;
    int level = 0;
    int code = api->initialized(&is_up);
    if (code == MPI_API_OK)
        code = api->finalized(&is_over);
    if (code == MPI_API_OK && is_over)
        return xr_host_fail(host, XRAY_E_STATE, "comm mpi",
                            "MPI is finalized in this process");
    if (code == MPI_API_OK && !is_up) {
        code = api->init_thread(NULL, NULL, api->serialized, &level);
        if (code == MPI_API_OK)
            (void)atexit(finalize_library);
    } else if (code == MPI_API_OK) {
        code = api->query_thread(&level);
    }
    if (code != MPI_API_OK)
        return mpi_api_fail(host, "comm mpi", api, "to be initialized", code);
    if (level < api->serialized)
        return xr_host_fail(host, XRAY_E_UNSUPPORTED, "comm mpi",
                            "MPI was initialized for one thread, but this "
                            "plugin calls it from two, one at a time "
                            "(MPI_THREAD_SERIALIZED)");
    (void)api->comm_set_errhandler(api->world, api->errors_return);
    return XRAY_OK;
}

xray_status mpi_library_open(const xray_host *host)
{
    mpi_library_lock();
    xray_status status = XRAY_OK;
    if (!library.is_open) {
        status = mpi_api_load(host, "comm mpi", "", &library.api);
        if (status == XRAY_OK)
            status = initialize(host, &library.api);
        library.is_open = status == XRAY_OK;
    }
    mpi_library_unlock();
    return status;
}

/* ---- who this process is --------------------------------------------------
 */

/* 1 if the process has loaded MPI and initialized it. */
static int is_initialized(void)
{
    int (*ask)(int *out) = NULL;
    int is_up = 0;
    void *address = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    memcpy(&ask, &address, sizeof(ask));
    return ask && ask(&is_up) == MPI_API_OK && is_up;
}

static int read_number(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                         "PMI_RANK" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *text = getenv(names[i]);
        if (text && *text >= '0' && *text <= '9')
            return (int)strtol(text, NULL, 10);
    }
    return -1;
}

xray_status mpi_library_number(const xray_host *host, int *out)
{
    *out = -1;
    if (!is_initialized()) {
        *out = read_number();
        return XRAY_OK;
    }
    xray_status status = mpi_library_open(host);
    if (status != XRAY_OK)
        return status;
    mpi_library_lock();
    (void)library.api.comm_rank(library.api.world, out);
    mpi_library_unlock();
    return XRAY_OK;
}

/* ---- tags -----------------------------------------------------------------
 */

int mpi_library_tag(void)
{
    mpi_library_lock();
    int tag = library.tag;
    mpi_library_unlock();
    return tag;
}

void mpi_library_use_tag(int tag)
{
    mpi_library_lock();
    if (library.tag < tag + (int)MPI_TAGS)
        library.tag = tag + (int)MPI_TAGS;
    mpi_library_unlock();
}

/* ---- what outlives its instance -------------------------------------------
 */

void mpi_library_keep(mpi_handle request, void *memory)
{
    kept **at = &library.kept;
    while (*at) {
        kept *k = *at;
        int done = 0;
        if (library.api.test(&k->request, &done, library.api.status_ignore) ==
                MPI_API_OK &&
            !done) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        free(k->memory);
        free(k);
    }
    kept *k = malloc(sizeof(*k));
    if (!k)
        return; /* the memory stays, since MPI may yet use it */
    *k = (kept){ library.kept, request, memory };
    library.kept = k;
}
