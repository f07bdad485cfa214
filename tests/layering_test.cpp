// Tests the rules of the whole tree: allowed includes (by the two tables of ARCHITECTURE.md,
// between top folders and between the rooms of one), that no file contains a path of the machine
// that it was written on, and that packages can move programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pushpull {
namespace {

namespace fs = std::filesystem;

// The two tables: allowed includes. "*" stands for all folders.
struct Rules {
  std::map<std::string, std::set<std::string>> tops;   // "ps" -> {"common"}
  std::map<std::string, std::set<std::string>> rooms;  // "ps/server" -> {"engine"}, of the same top
};

bool is_source(const std::string& path) {
  static const std::set<std::string> extensions = {".h", ".cpp", ".cu", ".cuh", ".proto"};
  return extensions.contains(fs::path(path).extension().string());
}

std::string top_folder(const std::string& path) { return path.substr(0, path.find('/')); }

std::string place(const std::string& path, size_t line) {
  return std::string(path).append(":").append(std::to_string(line)).append(": ");
}

// Returns the path that a line of C++ (#include) or of a .proto file (import) includes, or "".
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

std::string folder_of(const std::string& path) {
  return path.substr(0, std::min(path.size(), path.rfind('/')));
}

std::string trimmed(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '`' || c == '\r'; });
  return text;
}

std::set<std::string> names_of(const std::string& cell) {
  std::set<std::string> names;
  std::istringstream words(trimmed(cell));
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "all") word = "*";
    if (word != "\u2013") names.insert(word);
  }
  return names;
}

// Reads the tables of ARCHITECTURE.md under "Layering" (folder, may include) and "Where is what"
// (folders, contents, may include).
Rules read_rules(const std::string& page) {
  Rules rules;
  std::string heading;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) heading = line.substr(3);
    const bool rooms = heading == "Where is what";
    if (!line.starts_with("| ") || (!rooms && heading != "Layering")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
    if (cells.size() < 3 || trimmed(cells[0]) == "folder") continue;
    for (const std::string& folder : names_of(cells[0])) {
      (rooms ? rules.rooms : rules.tops)[folder] = names_of(cells[rooms ? 2 : 1]);
    }
  }
  return rules;
}

bool allows(const std::set<std::string>& names, const std::string& name) {
  return names.contains("*") || names.contains(name);
}

// Returns why a file of folder `from` may not include one of folder `to`, or "" if it may.
std::string forbidden(const Rules& rules, const std::string& from, const std::string& to) {
  const std::string top = top_folder(from);
  const std::string other = top_folder(to);
  if (top != other) {
    return allows(rules.tops.at(top), other) ? "" : top + " may not include " + other;
  }
  if (from == to) return "";
  const auto room = rules.rooms.find(from);
  if (room == rules.rooms.end()) return from + " is not in the table of ARCHITECTURE.md";
  const std::string name = to == top ? to : to.substr(top.size() + 1);
  return allows(room->second, name) ? "" : from + " may not include " + to;
}

struct Upward {
  size_t line;
  std::string target;
  std::string why;
};

// Returns each line of the file at `path` with a forbidden include.
std::vector<Upward> wrong_includes(const Rules& rules, const std::string& path,
                                   const std::string& text) {
  std::vector<Upward> wrong;
  if (!rules.tops.contains(top_folder(path))) return wrong;
  std::istringstream lines(text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string target = included(line);
    if (target.empty()) continue;
    const std::string folder = folder_of(target);
    const bool quoted = line.find('"') != std::string::npos;
    std::string why;
    if (target.find("..") != std::string::npos || (quoted && target == folder)) {
      why = target + " is not written from the root";
    } else if (target != folder && rules.tops.contains(top_folder(folder))) {
      why = forbidden(rules, folder_of(path), folder);
    }
    if (!why.empty()) wrong.push_back({number, target, why});
  }
  return wrong;
}

// Returns "file:line" of each path that exists only on its author's machine.
std::vector<std::string> machine_paths(const std::string& path, const std::string& text) {
  // split, because this test searches its own source too
  static const std::array<std::string, 2> paths = {std::string("/wo") + "rk/",
                                                   std::string("/ro") + "ot/"};
  std::vector<std::string> found;
  std::istringstream lines(text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    for (const std::string& machine : paths) {
      const size_t at = line.find(machine);
      // "framework/" and "../" are no such paths
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

// Returns the paths, from the root, of all files that git tracks; without git, of all files outside
// the build folder.
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

std::string read_kept(const std::string& path) {
  return read_file(fs::path(PUSHPULL_SOURCE_DIR) / path);
}

TEST(Layering, EveryIncludeFollowsTheTables) {
  const Rules rules = read_rules(read_kept("ARCHITECTURE.md"));
  ASSERT_GE(rules.tops.size(), 8U) << "the table under \"Layering\" was not found";
  ASSERT_GE(rules.rooms.size(), 30U) << "the table under \"Where is what\" was not found";
  size_t sources = 0;
  for (const std::string& path : files()) {
    if (!is_source(path)) continue;
    ++sources;
    for (const auto& [line, target, why] : wrong_includes(rules, path, read_kept(path))) {
      ADD_FAILURE() << place(path, line) << target << ": " << why;
    }
  }
  EXPECT_GT(sources, 20U) << "the sources were not found";
}

TEST(Layering, NoFileContainsAPathOfThisMachine) {
  for (const std::string& path : files()) {
    for (const std::string& found :
         machine_paths(path, read_file(fs::path(PUSHPULL_SOURCE_DIR) / path))) {
      ADD_FAILURE() << found;
    }
  }
}

// In a package the executed file is the package's loader; program_folder() knows that.
TEST(Layering, ProgramsAskForTheirFolderRatherThanForTheExecutedFile) {
  const std::set<std::string> allowed = {"common/base/process.cpp", "datasets/dataset.cpp"};
  for (const std::string& path : files()) {
    if (!is_source(path) || path.starts_with("tests/") || allowed.contains(path)) continue;
    EXPECT_EQ(read_kept(path).find("\"/proc/self/exe\""), std::string::npos)
        << path << ": use program_folder() of common/base/process.h";
  }
}

// Returns the calls of std::filesystem that throw an exception of their own, whose text has neither a tag nor
// a remedy: those without an error_code as their last argument.
std::vector<std::string> throwing_calls(const std::string& path, const std::string& text) {
  if (text.find("filesystem::") == text.npos && text.find("fs::") == text.npos) return {};
  static const std::regex kCall(
      R"((?:std::filesystem|\bfs)::(exists|is_\w+|status|create_\w+|rename|remove|remove_all|absolute|)"
      R"(canonical|weakly_canonical|relative|proximate|equivalent|file_size|last_write_time|permissions|)"
      R"(read_symlink|temp_directory_path|current_path|copy|copy_\w+|space|resize_file|)"
      R"((?:recursive_)?directory_iterator(?: \w+)?)\()");
  static const std::regex kCode(R"(std::error_code (\w+))");
  std::set<std::string> safe = {"status"};  // a value that status(path, error) returned
  for (std::sregex_iterator at(text.begin(), text.end(), kCode), end; at != end; ++at) {
    safe.insert((*at)[1]);
  }
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), kCall), end; at != end; ++at) {
    const auto begin = static_cast<size_t>(at->position() + at->length());
    size_t last = begin;  // of the last argument
    size_t close = begin;
    for (int depth = 1; close < text.size(); ++close) {
      if (text[close] == '(') ++depth;
      if (text[close] == ')' && --depth == 0) break;
      if (text[close] == ',' && depth == 1) last = close + 1;
    }
    std::string argument = text.substr(last, close - last);
    std::erase_if(argument,
                  [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
    const bool ends = argument.empty() && begin == close;  // an iterator of the end
    if (safe.contains(argument) || (ends && at->str().find("iterator") != std::string::npos))
      continue;
    const auto line = 1 + std::count(text.begin(), text.begin() + at->position(), '\n');
    found.push_back(place(path, static_cast<size_t>(line)) + at->str() + "...) may throw");
  }
  return found;
}

TEST(Layering, ProductCodeTakesAnErrorCodeFromTheFileSystem) {
  for (const std::string& path : files()) {
    if (!is_source(path) || path.starts_with("tests/") || path.starts_with("bench/")) continue;
    for (const std::string& found : throwing_calls(path, read_kept(path))) ADD_FAILURE() << found;
  }
}

TEST(Layering, AThrowingCallOfTheFileSystemIsDetected) {
  const auto found = throwing_calls("a.cpp", R"(std::error_code error;
if (fs::exists(f(path, 1))) fs::create_directories(path, error);
std::filesystem::remove(path);
for (fs::directory_iterator it(path, error), end; it != fs::directory_iterator();) {}
fs::directory_iterator other(path);
)");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].substr(0, 9), "a.cpp:2: ");
  EXPECT_EQ(found[1].substr(0, 9), "a.cpp:3: ");
  EXPECT_EQ(found[2].substr(0, 9), "a.cpp:5: ");
}

// Returns each forbidden include as "file:line: reason".
std::vector<std::string> reasons(const std::string& path, const std::string& text) {
  const Rules rules = read_rules(
      "## Layering\n| folder | may include | builds |\n|---|---|---|\n| common | \u2013 | |\n"
      "| ps | common | |\n| models | common | |\n| tests | all | |\n"
      "## Where is what\n| folder | what is in it | may include |\n|---|---|---|\n"
      "| `ps` | All of it. | all |\n| `ps/a` | A. | \u2013 |\n| `ps/b`, `ps/b/c` | B. | `a` |\n");
  std::vector<std::string> found;
  for (const Upward& wrong : wrong_includes(rules, path, text)) {
    found.push_back(place(path, wrong.line) + wrong.why);
  }
  return found;
}

TEST(Layering, AForbiddenIncludeOfAFolderIsDetected) {
  EXPECT_EQ(reasons("ps/server.cpp", "\n#include \"models/model.h\"\n"),
            std::vector<std::string>{"ps/server.cpp:2: ps may not include models"});
  EXPECT_EQ(reasons("common/a.h", "#include <ps/b.h>").size(), 1U);
  EXPECT_EQ(reasons("common/net/a.proto", "import \"ps/b.proto\";").size(), 1U);
  EXPECT_EQ(reasons("ps/a.cpp", "#include \"server.h\"").size(), 1U);
  EXPECT_EQ(reasons("ps/a.cpp", "#include \"../common/job/job.h\"").size(), 1U);
  EXPECT_EQ(reasons("ps/a.cpp", "  #  include <models/a.h>").size(), 1U);
  EXPECT_TRUE(reasons("ps/a.cpp", "// as in models/a.h\n#define A \"models/a.h\"").empty());
  EXPECT_TRUE(reasons("tests/a.cpp", "#include \"ps/b/b.h\"\n#include <vector>").empty());
  EXPECT_TRUE(reasons("ps/a/a.cpp", "#include <sys/types.h>\n#include \"common/x/y.h\"").empty());
}

TEST(Layering, AForbiddenIncludeOfARoomIsDetected) {
  EXPECT_EQ(reasons("ps/a/a.h", "#include \"ps/b/b.h\""),
            std::vector<std::string>{"ps/a/a.h:1: ps/a may not include ps/b"});
  EXPECT_EQ(reasons("ps/a/a.h", "#include \"ps/main.h\"").size(), 1U);
  EXPECT_EQ(reasons("ps/b/b.h", "#include \"ps/b/c/c.h\"").size(), 1U);
  EXPECT_EQ(
      reasons("ps/new/b.h", "#include \"ps/a/a.h\""),
      std::vector<std::string>{"ps/new/b.h:1: ps/new is not in the table of ARCHITECTURE.md"});
  EXPECT_TRUE(reasons("ps/b/b.h", "#include \"ps/b/d.h\"\n#include \"ps/a/a.h\"").empty());
  EXPECT_TRUE(reasons("ps/b/c/b.h", "#include \"ps/a/a.h\"").empty());
  EXPECT_TRUE(reasons("ps/main.cpp", "#include \"ps/a/a.h\"\n#include \"ps/b/c/c.h\"").empty());
}

TEST(Layering, APathOfThisMachineIsDetected) {
  EXPECT_EQ(machine_paths("a.md", std::string("x\nsee /ro") + "ot/project").size(), 1U);
  EXPECT_EQ(machine_paths("a.md", std::string("/wo") + "rk/x").size(), 1U);
  EXPECT_TRUE(machine_paths("a.md", std::string("frame/wo") + "rk/x").empty());
}

}  // namespace
}  // namespace pushpull
