// The datasets that a job can name: a row for each. Constant; any thread.
#pragma once

#include <string>

namespace pushpull {

struct DatasetName {
  const char* name;
  const char* about;  // for the help
  bool needs_files;   // which data-dir names
  bool has_classes;   // a sample has one class, the field `class` or `label`
};

// Returns null if there is no such dataset.
const DatasetName* find_dataset_name(const std::string& name);

// Returns all names: "dummy, digits or text".
std::string dataset_names();

// Returns all names with a few words about each.
std::string dataset_help();

}  // namespace pushpull
