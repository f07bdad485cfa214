// What is behind a Device and a Stream that `open` has made, for code that calls CUDA's libraries.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "common/device/device.h"

namespace pushpull::device {

// Lives as long as the stream.
cudaStream_t native_stream(const Stream& stream);
// For use_device.
int native_index(const Device& device);

// That this program was built for: "80-real, 90-real, 90-virtual".
const char* architectures();

// The device without the checks of `open`.
std::shared_ptr<Device> make_cuda_device(int index);

}  // namespace pushpull::device
