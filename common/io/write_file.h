// Writes small files for users completely or not at all. Any thread.
#pragma once

#include <string>

namespace pushpull {

// Writes PATH.tmp, forces it to disk (fsync) and renames it to PATH. Throws Error(kIo) naming the
// file and the reason, after deleting the temporary file.
void write_file(const std::string& path, const std::string& text);

}  // namespace pushpull
