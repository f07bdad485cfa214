// Keeps a file as new as the text that was handed in last, on a thread of its own: whoever hands it in
// does not wait for a file system that stalls, and no reader sees half of it. Any thread.
//
// Each text goes to PATH.tmp, which then takes the name PATH (rename). It is not forced to the disk: a
// power cut may cost the newest text, a killed process does not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace pushpull {

class LatestFile {
 public:
  explicit LatestFile(std::string path);
  // Does not wait: `flush` does. A thread that a stalled file system holds goes on alone, and ends
  // with the process.
  ~LatestFile();
  LatestFile(const LatestFile&) = delete;
  LatestFile& operator=(const LatestFile&) = delete;

  // In the place of a text that still waits.
  void put(std::string text);
  // Waits until the newest text is in the file or could not be written, at most this long. False: it
  // is not in the file.
  bool flush(int64_t milliseconds);
  // errno of the newest attempt; 0: it went well. The next text is tried in any case.
  int error() const;
  const std::string& path() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace pushpull
