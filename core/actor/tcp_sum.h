/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum over the payload of a frame, which notices damage and does not
 * protect against forgery. A network of two processes on one machine is as fast
 * as memory is copied, so the sum is, too.
 *
 * The payload is cut into XR_TCP_STREAMS streams of equal length, which are a
 * multiple of XR_TCP_STEP bytes and are read side by side, and a tail of less
 * than XR_TCP_STREAMS steps. Each 64-bit word of a stream, by its place in the
 * step, adds itself to one number, and to another the product of its halves
 * after a key that depends on the step was exclusive-ored to it. So a changed
 * word always changes the first, and words that were changed alike, or that
 * changed places, change the second. XXH64 joins the numbers, the seed and the
 * tail.
 */
#ifndef XR_ACTOR_TCP_SUM_H
#define XR_ACTOR_TCP_SUM_H

#include <stdint.h>

#define XR_TCP_STREAMS 4u
#define XR_TCP_STEP 32u

uint64_t xr_tcp_sum(const void *data, uint64_t size, uint64_t seed);
/* The same without instructions that not every processor has. */
uint64_t xr_tcp_sum_plain(const void *data, uint64_t size, uint64_t seed);

#endif
