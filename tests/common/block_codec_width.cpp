// The codecs for one instruction set; see optimizer_width.cpp.
#include "common/update/block_codec.cpp"  // NOLINT(bugprone-suspicious-include)
