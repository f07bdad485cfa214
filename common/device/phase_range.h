// Names what a thread does, for profilers of CUDA programs such as Nsight Systems, which show it above
// the device's work (NVTX 3). Does nothing in a build without CUDA, or if no profiler is attached.
#pragma once

namespace pushpull::device {

// Ends the calling thread's range and begins another one, in the domain "pushpull".
//   name: null begins none.
void enter_range(const char* name);

}  // namespace pushpull::device
