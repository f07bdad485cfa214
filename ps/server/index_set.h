// A set of small numbers that keeps its memory: a steady step that fills and empties it allocates
// nothing. Not thread-safe.
#pragma once

#include <cstddef>
#include <vector>

namespace pushpull {

class IndexSet {
 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool contains(size_t index) const { return index < here_.size() && here_[index] != 0; }
  // Makes room for [0, count); inserting these allocates nothing.
  void reserve(size_t count) {
    if (here_.size() < count) here_.resize(count);
  }
  // Returns false if the set contains it already.
  bool insert(size_t index) {
    if (contains(index)) return false;
    if (index >= here_.size()) here_.resize(index + 1);
    here_[index] = 1;
    ++size_;
    return true;
  }
  void erase(size_t index) {
    if (!contains(index)) return;
    here_[index] = 0;
    --size_;
  }
  // Sets the contents to [0, count).
  void fill(size_t count) {
    here_.assign(count, char{1});
    size_ = count;
  }

 private:
  std::vector<char> here_;
  size_t size_ = 0;
};

}  // namespace pushpull
