// The text of a run: a file, or the .txt files of a folder one after the other. Plain data; any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pushpull {

struct TextSource {
  struct File {
    std::string path;
    size_t begin = 0;  // offset of its first byte in `text`
  };

  std::string text;  // UTF-8, not empty
  std::vector<File> files;

  // Returns "PATH: byte 17 (line 2)" for an offset in `text`, for messages.
  std::string place(size_t offset) const;
};

// Reads the file `path`, or the files in the folder `path` whose names end in .txt, in the order of
// their names. Bytes are taken as they are: a line may end in \r\n. At most 4 GiB. Throws Error(kData),
// which names the file, the byte and the problem.
TextSource read_text_source(const std::string& path);

}  // namespace pushpull
