// libFuzzer's entry to the parser of state.json of checkpoints. The file has a valid checksum in
// DONE, and an empty model beside it. No input is a whole checkpoint, since its tensors are
// missing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "common/io/checkpoint.h"
#include "tests/fuzz/fuzzed.h"

namespace {

// A temporary folder. The destructor removes it.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "pushpull-fuzz-XXXXXX";
    pushpull::require(mkdtemp(name.data()) != nullptr, "no temporary folder");
    path_ = name;
    put("model.safetensors", "");
    put("optimizer.safetensors", "");
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  static const Folder folder;
  const std::string text = text_of(data, size);
  folder.put("state.json", text);
  folder.put("DONE", sha256_hex(std::as_bytes(std::span(text))) + "\n");
  may_refuse(ErrorCode::kData, [&] {
    read_checkpoint(folder.path());
    require(false, "a checkpoint without tensors was taken");
  });
  return 0;
}
