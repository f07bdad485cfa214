// The codecs for one instruction set, as optimizer_width.cpp.
#include "common/codec/block_codec.cpp"  // NOLINT(bugprone-suspicious-include)
