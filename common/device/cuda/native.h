// The CUDA handles behind a Device or Stream made by `open`, for code that calls CUDA libraries.
// Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "common/device/device.h"

namespace pushpull::device {

// Returns a handle that is valid as long as the stream.
cudaStream_t native_stream(const Stream& stream);
// Returns the index that use_device takes.
int native_index(const Device& device);

// Returns the architectures that this program was built for: "80-real, 90-real, 90-virtual".
const char* architectures();

// Like `open`, without its checks.
std::shared_ptr<Device> make_cuda_device(int index);

}  // namespace pushpull::device
