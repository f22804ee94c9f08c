/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal interface between the files of the emulator.
 */
#ifndef CUDA_EMULATE_INTERNAL_H
#define CUDA_EMULATE_INTERNAL_H

#include "emulate.h"

/* Returns true if `stream` is being captured; `call` is then kept for the
 * graph. */
bool emu_recorded(cudaStream_t stream, std::function<void()> call);

/* Ends the process if the stream is of another GPU than the thread's, where a
 * launch would fail. */
void emu_check_stream(const char *what, cudaStream_t stream);

/* The dynamic shared memory that cudaFuncSetAttribute granted. */
size_t emu_shared_allowed(const void *function);

/* Counts device memory; returns false if the device has no more. */
bool emu_take(size_t bytes);
void emu_give(size_t bytes);

/* Returns true if emulate_refuse names this call. */
bool emu_refused(const char *call);

#endif
