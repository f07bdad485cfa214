// All-reduce of floats by MPI, without an update of weights. run_speed.sh builds and runs it if
// mpicxx is installed.
//   mpirun -np 2 mpi_all_reduce BYTES [BYTES ...]
// Prints "BYTES microseconds" for each size, the median of rank 0.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 1; i < argc; ++i) {
    const size_t bytes = std::strtoull(argv[i], nullptr, 10);
    const size_t count = bytes / sizeof(float);
    const std::vector<float> in(count, 1e-3F);
    std::vector<float> out(count);
    const size_t rounds =
        std::clamp<size_t>((size_t{200} << 20) / std::max<size_t>(bytes, 1), 5, 200);
    std::vector<double> seconds;
    for (size_t round = 0; round < rounds + 3; ++round) {  // three rounds of warm-up
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      MPI_Allreduce(in.data(), out.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
      if (round >= 3) seconds.push_back(MPI_Wtime() - begin);
    }
    std::sort(seconds.begin(), seconds.end());
    if (rank == 0) std::printf("%zu %.6g\n", bytes, 1e6 * seconds[seconds.size() / 2]);
  }
  MPI_Finalize();
  return 0;
}
