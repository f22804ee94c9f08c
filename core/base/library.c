/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the functions of a library.
 */
#include "core/base/library.h"

#include <dlfcn.h>

int xr_library_find(const char *library, const char *const *names, size_t count,
                    void **out_symbols)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    int found = handle != NULL;
    for (size_t i = 0; i < count && found; i++) {
        out_symbols[i] = dlsym(handle, names[i]);
        found = out_symbols[i] != NULL;
    }
    if (handle)
        (void)dlclose(handle);
    return found;
}
