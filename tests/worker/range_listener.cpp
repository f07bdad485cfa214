// A profiler for the test of ranges: NVTX loads this library by the variable NVTX_INJECTION64_PATH.
#include <nvtx3/nvToolsExt.h>

#include <string>

namespace {

std::string& heard() {
  static std::string text;
  return text;
}

int NVTX_API push(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* range) {
  heard() += std::string("+") + range->message.ascii + " ";
  return 0;
}

int NVTX_API pop(nvtxDomainHandle_t /*domain*/) {
  heard() += "- ";
  return 0;
}

nvtxDomainHandle_t NVTX_API create(const char* name) {
  heard() += std::string(name) + ": ";
  return reinterpret_cast<nvtxDomainHandle_t>(&heard());
}

template <class Function>
void put(NvtxFunctionTable table, unsigned place, Function* function) {
  *table[place] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* const tables =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (tables == nullptr ||
      tables->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) {
    return 0;
  }
  put(table, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  put(table, NVTX_CBID_CORE2_DomainRangePop, &pop);
  put(table, NVTX_CBID_CORE2_DomainCreateA, &create);
  return 1;
}

extern "C" __attribute__((visibility("default"))) const char* heard_ranges() {
  return heard().c_str();
}
