/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds a library of MPI and tells what kind it is by what it exports.
 */
#define _GNU_SOURCE
#include "plugins/mpi/mpi_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

typedef struct symbol {
    const char *name;
    size_t offset; /* offset of the function pointer in mpi_api */
} symbol;

#define AT(member, name)                \
    {                                   \
        name, offsetof(mpi_api, member) \
    }

static const symbol symbols[] = {
    AT(initialized, "MPI_Initialized"),
    AT(init_thread, "MPI_Init_thread"),
    AT(query_thread, "MPI_Query_thread"),
    AT(finalized, "MPI_Finalized"),
    AT(finalize, "MPI_Finalize"),
    AT(error_string, "MPI_Error_string"),
    AT(library_version, "MPI_Get_library_version"),
    AT(comm_rank, "MPI_Comm_rank"),
    AT(comm_size, "MPI_Comm_size"),
    AT(comm_set_errhandler, "MPI_Comm_set_errhandler"),
    AT(isend, "MPI_Isend"),
    AT(irecv, "MPI_Irecv"),
    AT(test, "MPI_Test"),
    AT(cancel, "MPI_Cancel"),
    { NULL, 0 },
};

/* Open MPI's handles are the addresses of these objects. */
static const symbol open_objects[] = {
    AT(world, "ompi_mpi_comm_world"),
    AT(request_null, "ompi_request_null"),
    AT(byte, "ompi_mpi_byte"),
    AT(errors_return, "ompi_mpi_errors_return"),
    { NULL, 0 },
};

/* Names to look for: of Open MPI 2 to 5, of MPICH 3 and later, which Intel MPI
 * shares, of MPICH in Debian, and of the standard ABI. What "libmpi.so" is
 * differs from host to host, so it comes last. */
static const char *const names_open_first[] = { "libmpi.so.40",
                                                "libmpi.so.12",
                                                "libmpich.so.12",
                                                "libmpi_abi.so.1",
                                                "libmpi_abi.so.0",
                                                "libmpi.so",
                                                NULL };
static const char *const names_mpich_first[] = { "libmpi.so.12",
                                                 "libmpich.so.12",
                                                 "libmpi_abi.so.1",
                                                 "libmpi_abi.so.0",
                                                 "libmpi.so.40",
                                                 "libmpi.so",
                                                 NULL };

/* Both kinds of mpirun tell their processes who they are by the environment;
 * Open MPI's sets the first variable, MPICH's the second alone. */
static const char *const *choose_names(void)
{
    if (!getenv("OMPI_COMM_WORLD_SIZE") && getenv("PMI_RANK"))
        return names_mpich_first;
    return names_open_first;
}

/* Stores the address of each symbol in its member, and returns the name of the
 * first that is missing. A function pointer has the size of an object pointer
 * wherever dlsym exists. */
static const char *find_symbols(void *library, const symbol *all, mpi_api *out)
{
    for (size_t i = 0; all[i].name; i++) {
        void *address = dlsym(library, all[i].name);
        if (!address)
            return all[i].name;
        memcpy((char *)out + all[i].offset, &address, sizeof(address));
    }
    return NULL;
}

/* The numbers of MPICH's mpi.h, which its ABI fixes. */
static void set_mpich(mpi_api *out)
{
    out->world = 0x44000000u;
    out->request_null = 0x2c000000u;
    out->byte = 0x4c00010du;
    out->errors_return = 0x54000001u;
    out->status_ignore = 1;
}

/* The numbers of chapter 20 of MPI 5.0. */
static void set_standard(mpi_api *out)
{
    out->world = 0x101u;
    out->request_null = 0x180u;
    out->byte = 0x247u;
    out->errors_return = 0x143u;
    out->status_ignore = 0;
    out->serialized = 2048;
    out->multiple = 4096;
}

/* Finds out what handles are. MPICH 5 has one library for each kind, and both
 * have the function that says which it is. */
static const char *find_constants(void *library, mpi_api *out)
{
    out->serialized = 2;
    out->multiple = 3;
    if (dlsym(library, open_objects[0].name)) {
        out->status_ignore = 0;
        return find_symbols(library, open_objects, out);
    }
    int (*version)(int *out_major, int *out_minor) = NULL;
    void *address = dlsym(library, "MPI_Abi_get_version");
    memcpy(&version, &address, sizeof(version));
    int major = -1;
    int minor = -1;
    if (version && version(&major, &minor) == MPI_API_OK && major > 0)
        set_standard(out);
    else
        set_mpich(out);
    return NULL;
}

static void *open_library(const char *name)
{
    /* Open MPI's own modules look for its symbols in the global scope. */
    return dlopen(name, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
}

static xray_status load_given(const xray_host *host, const char *where,
                              const char *name, void **out_library)
{
    *out_library = open_library(name);
    if (*out_library)
        return XRAY_OK;
    const char *why = dlerror();
    return xr_host_fail(host, XRAY_E_CONFIG, where,
                        "the library of MPI cannot be loaded: %s",
                        why ? why : name);
}

static xray_status load_usual(const xray_host *host, const char *where,
                              const char **out_name, void **out_library)
{
    const char *const *names = choose_names();
    for (size_t i = 0; names[i]; i++) {
        *out_name = names[i];
        *out_library = open_library(names[i]);
        if (*out_library)
            return XRAY_OK;
    }
    return xr_host_fail(
        host, XRAY_E_CONFIG, where,
        "no library of MPI was found (libmpi.so.40, libmpi.so.12, "
        "libmpich.so.12, libmpi_abi.so.1); install Open MPI or MPICH, or name "
        "its file by the environment variable XRAY_MPI_LIBRARY");
}

xray_status mpi_api_load(const xray_host *host, const char *where,
                         const char *library, mpi_api *out)
{
    const char *name =
        library && *library ? library : getenv("XRAY_MPI_LIBRARY");
    void *found = NULL;
    xray_status status = XRAY_OK;
    memset(out, 0, sizeof(*out));
    if (dlsym(RTLD_DEFAULT, "MPI_Init_thread")) {
        name = "the library of MPI that this process has loaded";
        found = RTLD_DEFAULT;
    } else if (name && *name) {
        status = load_given(host, where, name, &found);
    } else {
        status = load_usual(host, where, &name, &found);
    }
    if (status != XRAY_OK)
        return status;
    const char *missing = find_symbols(found, symbols, out);
    if (!missing)
        missing = find_constants(found, out);
    if (missing)
        status = xr_host_fail(
            host, XRAY_E_CONFIG, where,
            "%s has no %s: it is no library of MPI 3 or later", name, missing);
    if (found != RTLD_DEFAULT)
        (void)dlclose(found); /* because of RTLD_NODELETE it stays loaded */
    return status;
}

/* Ends a text at its first line. What follows is of no use in a sentence, and
 * MPICH announces it. */
static void cut_line(char *text)
{
    text[strcspn(text, "\r\n")] = '\0';
    char *stack = strstr(text, ", error stack:");
    if (stack)
        *stack = '\0';
    xr_one_line(text);
}

xray_status mpi_api_fail(const xray_host *host, const char *where,
                         const mpi_api *api, const char *what, int code)
{
    char text[MPI_API_TEXT] = "";
    int size = 0;
    if (api->error_string(code, text, &size) != MPI_API_OK || !*text)
        (void)snprintf(text, sizeof(text), "error %d", code);
    cut_line(text);
    return xr_host_fail(host, XRAY_E_IO, where, "MPI refused %s: %s", what,
                        text);
}

void mpi_api_describe(const mpi_api *api, char *out, size_t size)
{
    char text[MPI_API_TEXT] = "";
    int bytes = 0;
    if (api->library_version(text, &bytes) != MPI_API_OK || !*text)
        (void)snprintf(text, sizeof(text), "unknown MPI");
    cut_line(text);
    (void)snprintf(out, size, "%s", text);
}
