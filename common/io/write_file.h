// Small files that a user reads: written whole, or left as they were. Any thread.
#pragma once

#include <string>

namespace pushpull {

// Writes PATH.tmp, forces it to the disk (fsync), gives it the name PATH (rename). Throws Error(kIo) naming
// the file and the reason; the temporary file is gone then.
void write_file(const std::string& path, const std::string& text);

}  // namespace pushpull
