// Parses --device: the devices on which a worker computes, or the one on which a server keeps
// weights. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace pushpull::device {

struct DeviceName {
  enum Kind { kCpu, kCuda };
  Kind kind = kCpu;
  int index = 0;

  // Returns "cpu" or "cuda:1".
  std::string to_string() const;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// Reads "cpu", "cuda" (= cuda:0), "cuda:1", "cuda:0,cuda:1", or "auto": cuda:0 if there is a
// device, else cpu. Does not check that a named device exists; `open` does.
//   cuda_devices: number of devices.
//   flag: name of the flag, for error texts.
// Throws Error(kUsage) for an unknown word, a device named twice, or cpu or auto beside another.
std::vector<DeviceName> parse_devices(const std::string& text, int cuda_devices,
                                      const std::string& flag = "device");

// Throws Error(kUsage) if two devices of a worker have different numerics (Model::numerics).
void check_same_kind(const std::string& numerics, const std::string& others);

}  // namespace pushpull::device
