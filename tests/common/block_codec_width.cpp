// The codecs for one instruction set, as optimizer_width.cpp.
#include "common/block_codec.cpp"  // NOLINT(bugprone-suspicious-include)
