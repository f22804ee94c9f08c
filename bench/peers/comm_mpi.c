/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes bench/comm.c's measurements with MPI. bench/peers/comm.py builds it
 * with mpicc and runs it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS 60
#define WARM 3

static const char *const names[] = { "all_reduce", "reduce_scatter",
                                     "all_gather" };

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void call_collective(int what, float *full, float *part, int count,
                            int size)
{
    if (what == 0)
        MPI_Allreduce(MPI_IN_PLACE, full, count, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    else if (what == 1)
        MPI_Reduce_scatter_block(full, part, count / size, MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
    else
        MPI_Allgather(part, count / size, MPI_FLOAT, full, count / size,
                      MPI_FLOAT, MPI_COMM_WORLD);
}

static void time_call(int what, float *full, float *part, int count)
{
    double times[TURNS];
    int turns = count > 8 << 20 ? TURNS / 4 : TURNS;
    int rank;
    int size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = -WARM; i < turns; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        call_collective(what, full, part, count, size);
        if (i >= 0)
            times[i] = MPI_Wtime() - start;
    }
    qsort(times, (size_t)turns, sizeof(*times), compare_doubles);
    if (rank == 0)
        printf("%-14s %2d ranks %4d MB  median %8.3f ms %7.2f GB/s  best %8.3f "
               "ms %7.2f GB/s\n",
               names[what], size, count >> 18, 1e3 * times[turns / 2],
               4e-9 * count / times[turns / 2], 1e3 * times[0],
               4e-9 * count / times[0]);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        int count = (int)strtol(argv[i], NULL, 10) << 18;
        /* Aligned for large pages, where the system provides them. */
        float *full = aligned_alloc(1 << 21, (size_t)count * sizeof(float));
        float *part = aligned_alloc(1 << 21, (size_t)count * sizeof(float));
        if (!full || !part)
            return 1;
        memset(full, 0, (size_t)count * sizeof(float));
        memset(part, 0, (size_t)count * sizeof(float));
        for (int what = 0; what < 3; what++)
            time_call(what, full, part, count);
        free(full);
        free(part);
    }
    MPI_Finalize();
    return 0;
}
