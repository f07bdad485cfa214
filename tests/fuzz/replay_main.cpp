// Runs a fuzzer's entry over the files of a folder, so that every compiler tests the inputs that
// fuzzers found.
//   NAME_replay FOLDER [LEAST]   fails if the folder has fewer files than LEAST
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [LEAST]\n", argv[0]);
    return 2;
  }
  long files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(in), {});
    std::printf("%s\n", entry.path().c_str());
    std::fflush(stdout);  // the last name printed is the one that failed
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++files;
  }
  const long least = argc > 2 ? std::atol(argv[2]) : 1;
  std::printf("%ld files, at least %ld are expected\n", files, least);
  return files >= least ? 0 : 1;
}
