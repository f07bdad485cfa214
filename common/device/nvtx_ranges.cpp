// Ranges of NVTX 3, a header that loads a profiler by itself.
#include <nvtx3/nvToolsExt.h>

#include "common/device/phase_range.h"

namespace pushpull::device {

namespace {

nvtxDomainHandle_t range_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("pushpull");
  return domain;
}

}  // namespace

void enter_range(const char* name) {
  thread_local bool open = false;
  if (open) nvtxDomainRangePop(range_domain());
  open = name != nullptr;
  if (!open) return;
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(range_domain(), &range);
}

}  // namespace pushpull::device
