// Floors of this machine: memory, sockets, shared memory, bare ZeroMQ (cli/bench).
//   floors_bench --benchmark_filter='memory|link_tcp' --benchmark_out=FILE.json
#include <benchmark/benchmark.h>

#include "common/base/process.h"

int main(int argc, char** argv) {
  pushpull::keep_heap();  // as pushpull's programs do
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
