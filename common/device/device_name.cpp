#include "common/device/device_name.h"

#include <algorithm>
#include <string_view>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull::device {

namespace {

// Highest device index: far more than a host has, few enough to list in one line.
constexpr int kMaxIndex = 63;

struct Words {
  const std::string& flag;
  const std::string& text;
};

[[noreturn]] void refuse(const Words& words, const std::string& why) {
  throw Error(ErrorCode::kUsage,
              "[device] --" + words.flag + " " + printable(words.text) + ": " + why +
                  "; it is cpu, auto, cuda, cuda:N, or several like cuda:0,cuda:1");
}

// Returns -1 if `digits` is not a plain decimal index.
int parse_index(std::string_view digits) {
  if (digits.empty() || digits.size() > 2 || (digits.size() == 2 && digits[0] == '0')) return -1;
  int index = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return -1;
    index = 10 * index + (c - '0');
  }
  return index <= kMaxIndex ? index : -1;
}

DeviceName parse_one(const Words& words, std::string_view word) {
  constexpr std::string_view kCudaPrefix = "cuda:";
  if (word == "cuda") return {DeviceName::kCuda, 0};
  if (word == "cpu" || word == "auto") {
    refuse(words, std::string(word) + " stands alone");
  }
  if (!word.starts_with(kCudaPrefix)) {
    refuse(words, word.empty() ? "a name is empty" : printable(std::string(word)) + " is unknown");
  }
  const std::string_view digits = word.substr(kCudaPrefix.size());
  if (digits.empty()) refuse(words, "cuda: has no index");
  const int index = parse_index(digits);
  if (index < 0) {
    refuse(words, printable(std::string(digits)) + " is not an index from 0 to " +
                      std::to_string(kMaxIndex));
  }
  return {DeviceName::kCuda, index};
}

}  // namespace

std::string DeviceName::to_string() const {
  return kind == kCpu ? "cpu" : "cuda:" + std::to_string(index);
}

std::vector<DeviceName> parse_devices(const std::string& text, int cuda_devices,
                                      const std::string& flag) {
  const Words words{flag, text};
  if (text == "cpu") return {DeviceName{}};
  if (text == "auto") {
    return {cuda_devices > 0 ? DeviceName{DeviceName::kCuda, 0} : DeviceName{}};
  }
  std::vector<DeviceName> devices;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const DeviceName device = parse_one(words, std::string_view(text).substr(begin, end - begin));
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      refuse(words, device.to_string() + " is named twice");
    }
    devices.push_back(device);
    begin = end + 1;
  }
  return devices;
}

void check_same_kind(const std::string& numerics, const std::string& others) {
  if (numerics == others) return;
  throw Error(ErrorCode::kUsage, "[device] the devices of a worker must be of one kind: one is \"" +
                                     numerics + "\", another \"" + others +
                                     "\"; start a worker for each");
}

}  // namespace pushpull::device
