// Rules that hold for the whole tree: who may include whom (DESIGN section 5, the table of
// ARCHITECTURE.md), how long a file may grow, and that no file knows the machine it was written on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pushpull {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>>& layers() {
  static const std::map<std::string, std::set<std::string>> table = {
      {"common", {"common"}},
      {"models", {"models", "common"}},
      {"datasets", {"datasets", "common"}},
      {"ps", {"ps", "common"}},
      {"worker", {"worker", "common", "models", "datasets"}},
      {"cli", {"cli", "common", "models", "datasets", "ps", "worker"}},
      {"bench", {"bench", "common", "models", "datasets", "ps", "worker", "cli", "tests"}},
      {"tests", {"tests", "common", "models", "datasets", "ps", "worker", "cli", "bench"}},
  };
  return table;
}

constexpr size_t kMaxLines = 600;

bool is_source(const std::string& path) {
  static const std::set<std::string> extensions = {".h", ".cpp", ".cu", ".cuh", ".proto"};
  return extensions.contains(fs::path(path).extension().string());
}

std::string top_folder(const std::string& path) { return path.substr(0, path.find('/')); }

std::string place(const std::string& path, size_t line) {
  return std::string(path).append(":").append(std::to_string(line)).append(": ");
}

// What a line of C++ (#include) or of a .proto file (import) includes; "" where it is another line.
std::string included(std::string_view line) {
  const auto skip = [&](std::string_view word) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const bool found = line.starts_with(word);
    line.remove_prefix(found ? word.size() : 0);
    return found;
  };
  if (!(skip("#") ? skip("include") : skip("import"))) {
    return "";
  }
  const size_t begin = line.find_first_of("\"<");
  const size_t end = begin == line.npos ? begin : line.find_first_of("\">", begin + 1);
  return end == line.npos ? "" : std::string(line.substr(begin + 1, end - begin - 1));
}

// "file:line: why" for each line that includes a folder that `path` may not include.
std::vector<std::string> wrong_includes(const std::string& path, const std::string& text) {
  std::vector<std::string> wrong;
  const auto allowed = layers().find(top_folder(path));
  if (allowed == layers().end()) {
    return wrong;
  }
  std::istringstream lines(text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string target = included(line);
    if (target.empty()) {
      continue;
    }
    const std::string folder = top_folder(target);
    const bool quoted = line.find('"') != std::string::npos;
    std::string why;
    if (target.find("..") != std::string::npos || (quoted && target == folder)) {
      why = target + " is not written from the root";
    } else if (target != folder && layers().contains(folder) && !allowed->second.contains(folder)) {
      why = allowed->first + " may not include " + folder;
    }
    if (!why.empty()) {
      wrong.push_back(place(path, number) + why);
    }
  }
  return wrong;
}

// "file:line" of each path that only exists on the machine of whoever wrote it.
std::vector<std::string> machine_paths(const std::string& path, const std::string& text) {
  // in pieces, since this file is searched too
  static const std::array<std::string, 2> paths = {std::string("/wo") + "rk/",
                                                   std::string("/ro") + "ot/"};
  std::vector<std::string> found;
  std::istringstream lines(text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    for (const std::string& machine : paths) {
      const size_t at = line.find(machine);
      // "framework/" and "../" only look alike
      if (at != std::string::npos &&
          (at == 0 || (std::isalnum(static_cast<unsigned char>(line[at - 1])) == 0 &&
                       std::string_view("._-}*").find(line[at - 1]) == std::string_view::npos))) {
        found.push_back(place(path, number) + machine);
      }
    }
  }
  return found;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Paths from the root of what git keeps; of all files outside the build where there is no git.
std::vector<std::string> files() {
  const fs::path root(PUSHPULL_SOURCE_DIR);
  std::vector<std::string> found;
  const std::string command = "git -C '" + root.string() + "' ls-files -z 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> git(popen(command.c_str(), "r"), pclose);
  std::string name;
  for (int c = std::fgetc(git.get()); c != EOF; c = std::fgetc(git.get())) {
    if (c != '\0') {
      name += static_cast<char>(c);
    } else {
      found.push_back(std::exchange(name, {}));
    }
  }
  if (!found.empty()) {
    std::erase_if(found,
                  [&](const std::string& path) { return !fs::is_regular_file(root / path); });
    return found;
  }
  const std::set<std::string> skipped = {"build", "out", ".git", ".cache"};
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::end(entry); ++entry) {
    const std::string path = fs::relative(entry->path(), root).string();
    if (skipped.contains(path)) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file()) {
      found.push_back(path);
    }
  }
  return found;
}

TEST(Layering, EveryIncludeFollowsTheTable) {
  size_t sources = 0;
  for (const std::string& path : files()) {
    if (!is_source(path)) {
      continue;
    }
    ++sources;
    for (const std::string& wrong :
         wrong_includes(path, read_file(fs::path(PUSHPULL_SOURCE_DIR) / path))) {
      ADD_FAILURE() << wrong;
    }
  }
  EXPECT_GT(sources, 20U) << "the sources were not found";
}

TEST(Layering, NoSourceFileIsTooLong) {
  for (const std::string& path : files()) {
    if (is_source(path)) {
      const std::string text = read_file(fs::path(PUSHPULL_SOURCE_DIR) / path);
      const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
      EXPECT_LE(lines, kMaxLines) << path << ": one idea per file";
    }
  }
}

TEST(Layering, NoFileNamesTheMachineItWasWrittenOn) {
  for (const std::string& path : files()) {
    for (const std::string& found :
         machine_paths(path, read_file(fs::path(PUSHPULL_SOURCE_DIR) / path))) {
      ADD_FAILURE() << found;
    }
  }
}

TEST(Layering, TheCheckSeesWhatIsWrong) {
  EXPECT_EQ(wrong_includes("ps/server/server.cpp", "\n#include \"models/model.h\"\n"),
            std::vector<std::string>{"ps/server/server.cpp:2: ps may not include models"});
  EXPECT_EQ(wrong_includes("common/a.h", "#include <worker/b.h>").size(), 1U);
  EXPECT_EQ(wrong_includes("common/net/a.proto", "import \"ps/b.proto\";").size(), 1U);
  EXPECT_EQ(wrong_includes("ps/a.cpp", "#include \"server.h\"").size(), 1U);
  EXPECT_EQ(wrong_includes("ps/a.cpp", "#include \"../common/job/job.h\"").size(), 1U);
  EXPECT_EQ(wrong_includes("ps/a.cpp", "  #  include <models/a.h>").size(), 1U);
  EXPECT_TRUE(wrong_includes("ps/a.cpp", "// as in models/a.h\n#define A \"models/a.h\"").empty());
  EXPECT_TRUE(wrong_includes("cli/a.cpp", "#include \"ps/b.h\"\n#include <vector>").empty());
  EXPECT_EQ(wrong_includes("cli/a.cpp", "#include \"bench/b.h\"").size(), 1U);
  EXPECT_EQ(machine_paths("a.md", std::string("x\nsee /ro") + "ot/project").size(), 1U);
  EXPECT_EQ(machine_paths("a.md", std::string("/wo") + "rk/x").size(), 1U);
  EXPECT_TRUE(machine_paths("a.md", std::string("frame/wo") + "rk/x").empty());
}

}  // namespace
}  // namespace pushpull
