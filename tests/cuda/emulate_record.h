/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of the emulator.
 */
#ifndef CUDA_EMULATE_RECORD_H
#define CUDA_EMULATE_RECORD_H

#include "emulate.h"

/* True if `stream` is being captured: then `call` is kept for the graph. */
bool emu_recorded(cudaStream_t stream, std::function<void()> call);

/* Dynamic shared memory that cudaFuncSetAttribute granted. */
size_t emu_shared_allowed(const void *function);

/* Counts device memory; false: the device has no more. */
bool emu_take(size_t bytes);
void emu_give(size_t bytes);

#endif
