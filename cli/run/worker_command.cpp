#include "cli/run/worker_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::kUsage, "[run] --worker: " + text);
}

// Splits one text. Each method takes the characters that follow its own.
class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  std::vector<std::string> run() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\n') {
        end_word();
      } else if (c == '\\') {
        backslash();
      } else if (c == '\'') {
        single_quotes();
      } else if (c == '"') {
        double_quotes();
      } else {
        add(c);
      }
    }
    end_word();
    return std::move(words_);
  }

 private:
  void add(char c) {
    if (!word_) word_.emplace();
    *word_ += c;
  }
  void end_word() {
    if (word_) words_.push_back(*std::exchange(word_, std::nullopt));
  }
  // A backslash and a newline vanish.
  void backslash() {
    if (++at_ == text_.size()) refuse_text("ends with a backslash, which quotes nothing");
    if (text_[at_] != '\n') add(text_[at_]);
  }
  void single_quotes() {
    const size_t begin = at_ + 1;
    const size_t end = text_.find('\'', begin);
    if (end == std::string_view::npos) refuse_text("has a ' without its end");
    if (!word_) word_.emplace();
    word_->append(text_.substr(begin, end - begin));
    at_ = end;
  }
  void double_quotes() {
    if (!word_) word_.emplace();
    while (++at_ < text_.size() && text_[at_] != '"') {
      const bool quotes = text_[at_] == '\\' && at_ + 1 < text_.size() &&
                          std::string_view("$`\"\\\n").find(text_[at_ + 1]) != std::string::npos;
      quotes ? backslash() : add(text_[at_]);
    }
    if (at_ == text_.size()) refuse_text("has a \" without its end");
  }
  [[noreturn]] void refuse_text(const std::string& why) const {
    refuse("'" + printable(text_, kMaxPathBytes) + "' " + why);
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::optional<std::string> word_;  // that is being read; "" after a pair of quotes
  std::vector<std::string> words_;
};

// Returns why the file cannot be executed, or "".
std::string reason_against(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0)
    return std::strerror(errno);  // NOLINT(concurrency-mt-unsafe)
  if (S_ISDIR(status.st_mode)) return "it is a folder";
  if (access(file.c_str(), X_OK) == 0) return "";
  return "it is not executable; for a script, begin with its interpreter, such as 'python3 " +
         file + "'";
}

std::string search_path() {
  if (const char* path = std::getenv("PATH")) return path;  // NOLINT(concurrency-mt-unsafe)
  std::string path(confstr(_CS_PATH, nullptr, 0), '\0');
  confstr(_CS_PATH, path.data(), path.size());
  path.pop_back();  // the terminating zero
  return path;
}

void refuse_flag(const CommandLine& line, const char* flag, const std::string& command) {
  if (!line.local.contains(flag)) return;
  throw Error(ErrorCode::kUsage,
              "[" + command + "] --" + flag + " " + printable(line.local.at(flag), kMaxPathBytes) +
                  " and --worker: the command decides about it; remove --" + flag);
}

}  // namespace

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words = Splitter(text).run();
  if (words.empty()) refuse("expected the command of a worker, such as 'python3 train.py', got ''");
  return words;
}

std::string find_program(const std::string& name) {
  const std::string shown = printable(name, kMaxPathBytes);
  if (name.find('/') != std::string::npos) {
    const std::string why = reason_against(name);
    if (!why.empty()) refuse(shown + " cannot be executed: " + why);
    return name;
  }
  std::string refused;  // a file of that name which cannot be executed
  const std::string path = search_path() + ":";
  for (size_t begin = 0; !name.empty() && begin < path.size();) {
    const size_t end = path.find(':', begin);
    const std::string folder = path.substr(begin, end - begin);
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    const std::string why = reason_against(file);
    if (why.empty()) return file;
    if (refused.empty() && access(file.c_str(), F_OK) == 0) refused = file + ": " + why;
    begin = end + 1;
  }
  if (!refused.empty()) refuse(shown + " cannot be executed: " + refused);
  refuse("there is no program '" + shown + "' in PATH; for a file of this folder write './" +
         shown + "'");
}

std::vector<std::string> worker_command(const CommandLine& line, const Job& job,
                                        const std::string& command) {
  const bool is_external = job.model == "external";
  const std::string tag = "[" + command + "] ";
  if (!line.local.contains("worker")) {
    if (!is_external) return {};
    throw Error(ErrorCode::kUsage, tag +
                                       "model = external: the workers are a program of your own; "
                                       "give its command as --worker 'COMMAND'");
  }
  if (!is_external) {
    throw Error(ErrorCode::kUsage, tag + "--worker: the job has model = " + job.model +
                                       ", which pushpull-worker trains; set model = external, or "
                                       "remove --worker");
  }
  refuse_flag(line, "device", command);
  refuse_flag(line, "trace", command);
  std::vector<std::string> words = split_words(line.local.at("worker"));
  find_program(words.front());
  return words;
}

std::string shell_command(const std::string& program, const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,=+@%";
  std::string text = program;
  for (const std::string& word : words) {
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text.append(" ").append(word);
      continue;
    }
    text += " '";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += "'";
  }
  return text;
}

}  // namespace pushpull
