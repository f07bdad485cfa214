#include "common/job/command_line.h"

#include <algorithm>
#include <boost/program_options/cmdline.hpp>
#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/positional_options.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <cstddef>
#include <optional>
#include <string_view>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job_keys.h"

namespace pushpull {
namespace {

namespace po = boost::program_options;

constexpr const char* kPositional = "(word)";  // Boost's key for positional words
constexpr const char* kHelpAs = "help-as";     // hidden: not suggested for a wrong flag

[[noreturn]] void refuse_flags(const std::string& text) {
  throw Error(ErrorCode::kUsage, "[flags] " + text);
}

// All flags of one program, and whether each takes a value.
class FlagTable {
 public:
  FlagTable(const std::vector<KeyHelp>& local_options, JobFlags job_flags) {
    if (job_flags == JobFlags::kAccept) {
      for (const std::string& key : job_key_names()) add(key, true);
    }
    for (const KeyHelp& option : local_options) add(option.key, option.takes_value);
    add("help", false);
    add("version", false);
    description_.add_options()("help,h", "")("version", "")(kHelpAs, po::value<std::string>())(
        kPositional, po::value<std::vector<std::string>>());
  }

  const po::options_description& description() const { return description_; }

  bool takes_value(const std::string& flag) const {
    const auto found = takes_value_.find(flag);
    return found != takes_value_.end() && found->second;
  }

  // token: as typed, "--optimi" or "--optimi=sgd".
  [[noreturn]] void fail_unknown(std::string_view token) const {
    const std::string typed(token.substr(0, token.find('=')));
    const size_t first = std::min(typed.find_first_not_of('-'), typed.size());
    refuse_flags("unknown flag " + printable(typed) +
                 did_you_mean(typed.substr(first), names_, "--") +
                 (nearest_name(typed.substr(first), names_).empty() ? "; --help lists all" : ""));
  }

 private:
  void add(const std::string& flag, bool with_value) {
    const bool is_new = takes_value_.try_emplace(flag, with_value).second;
    PP_ASSERT(is_new);  // must not hide a key of the job
    names_.push_back(flag);
    if (flag == "help" || flag == "version") return;  // added with their short names elsewhere
    if (with_value) {
      description_.add_options()(flag.c_str(), po::value<std::string>());
    } else {
      description_.add_options()(flag.c_str(), "");
    }
  }

  po::options_description description_;
  std::map<std::string, bool> takes_value_;
  std::vector<std::string> names_;
};

// Adapts the words for Boost, which rejects `--flag=` and takes `--=x` for a positional word.
std::vector<std::string> words_of(int argc, const char* const* argv, const FlagTable& flags) {
  std::vector<std::string> words;
  bool only_words = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    only_words = only_words || word == "--";
    if (!only_words && word.starts_with("--=")) flags.fail_unknown(word);
    if (!only_words && word.size() > 3 && word.starts_with("--") && word.ends_with('=') &&
        flags.takes_value(word.substr(2, word.size() - 3))) {
      words.push_back(word.substr(0, word.size() - 1));
      words.emplace_back();
    } else {
      words.push_back(word);
    }
  }
  return words;
}

std::vector<po::option> split_words(const std::vector<std::string>& words, const FlagTable& flags) {
  namespace style = po::command_line_style;
  po::positional_options_description positional;
  positional.add(kPositional, -1);
  try {
    return po::command_line_parser(words)
        .options(flags.description())
        .positional(positional)
        .style(style::unix_style & ~style::allow_guessing)
        .run()
        .options;
  } catch (const po::unknown_option& e) {
    flags.fail_unknown(e.get_option_name());
  } catch (const po::invalid_command_line_syntax& e) {
    refuse_flags(printable(e.what(), 200));  // a missing or an unexpected value; names the flag
  }
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv,
                               const std::vector<KeyHelp>& local_options, JobFlags job_flags) {
  const FlagTable flags(local_options, job_flags);
  CommandLine line;
  for (const po::option& option : split_words(words_of(argc, argv, flags), flags)) {
    const std::string& flag = option.string_key;
    const std::string value = option.value.empty() ? "true" : option.value.front();
    if (flag == kPositional) {
      if (option.position_key < 0) flags.fail_unknown("--" + flag);  // looks like a flag
      line.positional.push_back(value);
    } else if (flag == "help") {
      line.help = true;
    } else if (flag == kHelpAs) {
      line.help = true;
      line.help_as = value;
    } else if (flag == "version") {
      line.version = true;
    } else {
      // Boost would take the next flag for a value; after "=" a value may start with --
      if (value.starts_with("--") && option.original_tokens.size() > 1)
        refuse_flags("flag --" + flag + " needs a value before " + printable(value) +
                     "; a value that begins with dashes is given as --" + flag + "=VALUE");
      const bool is_job_key = job_flags == JobFlags::kAccept && find_job_key(flag) != nullptr;
      auto& target = is_job_key ? line.keys : line.local;
      target[flag] = value;  // the last one counts: a command from a shell's history is extended
    }
  }
  return line;
}

double seconds_of(const CommandLine& line, const std::string& flag, double other) {
  constexpr double kMaxSeconds = 1e6;
  const auto given = line.local.find(flag);
  if (given == line.local.end()) return other;
  const std::optional<double> value = parse_real(given->second);
  if (value && *value > 0 && *value <= kMaxSeconds) return *value;
  refuse_flags("--" + flag + " " + given->second +
               ": must be a number of seconds > 0 and at most 1000000");
}

std::string CommandLine::own(const std::string& flag, const std::string& fallback) const {
  const auto found = local.find(flag);
  return found == local.end() ? fallback : found->second;
}

}  // namespace pushpull
