#include "datasets/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull::dataset_test {
namespace {

using testing::HasSubstr;

// Returns the message of the refusal, or "opened".
std::string opened(const std::string& name, const std::string& data_dir) {
  Job job;
  job.dataset = name;
  job.data_dir = data_dir;
  try {
    open_dataset(job);
  } catch (const Error& error) {
    return error.what();
  }
  return "opened";
}

std::vector<std::string> all_names() {
  std::istringstream words(dataset_names());
  std::vector<std::string> names;
  for (std::string word; words >> word;) {
    if (word.ends_with(',')) word.pop_back();
    if (word != "or") names.push_back(word);
  }
  return names;
}

TEST(OpenDataset, OpensEachNameOfTheTable) {
  EXPECT_THAT(all_names(), testing::Contains("dummy-qa"));
  for (const std::string& name : all_names()) {
    const DatasetName* const row = find_dataset_name(name);
    ASSERT_NE(row, nullptr) << name;
    if (!row->needs_files) {
      EXPECT_EQ(opened(name, ""), "opened") << name;
      continue;
    }
    EXPECT_THAT(opened(name, ""), HasSubstr("data-dir: expected the path")) << name;
    EXPECT_THAT(opened(name, "/absent/folder"), HasSubstr("/absent/folder")) << name;
  }
}

TEST(OpenDataset, NamesAllDatasetsIfItDoesNotKnowOne) {
  EXPECT_THAT(opened("imagenot", ""),
              HasSubstr("expected " + dataset_names() + ", got \"imagenot\""));
  EXPECT_EQ(find_dataset_name("imagenot"), nullptr);
  EXPECT_THAT(dataset_names(), HasSubstr(" or "));
}

}  // namespace
}  // namespace pushpull::dataset_test
