// What --device says: where a worker computes. Pure.
#pragma once

#include <string>
#include <vector>

namespace pushpull::device {

struct DeviceName {
  enum Kind { kCpu, kCuda };
  Kind kind = kCpu;
  int index = 0;

  // "cpu", "cuda:1"
  std::string to_string() const;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// "cpu", "cuda" (= cuda:0), "cuda:1", "cuda:0,cuda:1", or "auto": cuda:0 where there is a device,
// else cpu. Whether a device that is named is there, `open` finds out.
//   cuda_devices: how many there are.
//   flag: whose value it is, for the text of an error.
// Throws Error(kUsage): an unknown word, a device twice, cpu or auto beside another.
std::vector<DeviceName> parse_devices(const std::string& text, int cuda_devices,
                                      const std::string& flag = "device");

}  // namespace pushpull::device
