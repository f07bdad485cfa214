#include "cli/run/merged_view.h"

#include <algorithm>

namespace pushpull {

namespace {

constexpr size_t kRemembered = 64;     // latest lines, which a new line is compared with
constexpr size_t kMaxHeld = 1000;      // lines held while the cause is unknown
constexpr char kClear[] = "\r\x1b[K";  // start of line, erase to its end (ECMA-48 EL)

}  // namespace

std::vector<std::string> LineSplitter::feed(std::string_view bytes) {
  pending_ += bytes;
  std::vector<std::string> lines;
  size_t begin = 0;
  while (true) {
    const size_t end = pending_.find('\n', begin);
    if (end != std::string::npos && end - begin <= kMaxLine) {
      lines.push_back(pending_.substr(begin, end - begin));
      begin = end + 1;
    } else if (pending_.size() - begin > kMaxLine) {
      lines.push_back(pending_.substr(begin, kMaxLine));
      begin += kMaxLine;
    } else {
      break;
    }
  }
  pending_.erase(0, begin);
  return lines;
}

std::string LineSplitter::rest() { return std::exchange(pending_, {}); }

void MergedView::progress(std::string_view bytes, std::vector<Output>& out) {
  unfinished_ += bytes;
  const size_t last_end = unfinished_.rfind('\n');
  const size_t whole = last_end == std::string::npos ? 0 : last_end + 1;
  // An incomplete ordinary line waits for its end, so that no other line splits it.
  const bool is_progress = unfinished_.find('\r', whole) != std::string::npos;
  const size_t shown = is_progress || unfinished_.size() - whole > LineSplitter::kMaxLine
                           ? unfinished_.size()
                           : whole;
  if (shown == 0) {
    return;
  }
  out.push_back({false, unfinished_.substr(0, shown)});
  unfinished_.erase(0, shown);
  progress_shown_ = is_progress;
}

void MergedView::end_progress(std::vector<Output>& out) {
  if (!unfinished_.empty() || progress_shown_) {
    out.push_back({false, std::exchange(unfinished_, {}) + "\n"});
    progress_shown_ = false;
  }
}

void MergedView::line(size_t source, const std::string& prefix, const std::string& text,
                      std::vector<Output>& out) {
  const Line line{source, prefix, text};
  if (!repeats_ && is_told(text)) return;
  if (holding_) {
    if (held_.size() < kMaxHeld) {
      held_.push_back(line);
    } else {
      ++left_out_;
    }
  } else if (ending_ && !(repeats_ && source == cause_)) {
    show_of_others(line, out);
  } else if (!is_repeat(line) || repeats_) {
    show(line, out);
  }
}

void MergedView::say(const std::string& text, std::vector<Output>& out) {
  if (progress_shown_) {
    out.push_back({false, kClear});
    progress_shown_ = false;
  }
  out.push_back({true, text + "\n"});
}

void MergedView::release(size_t cause, std::vector<Output>& out) {
  holding_ = false;
  ending_ = true;
  cause_ = cause;
  allowance_ = kLinesAfterTheEnd;
  const std::vector<Line> held = std::exchange(held_, {});
  for (const Line& line : held) {
    if (line.source == cause && (!is_repeat(line) || repeats_)) {
      show(line, out);
    }
  }
  for (const Line& line : held) {
    if (line.source != cause) {
      show_of_others(line, out);
    }
  }
}

namespace {

// Returns the part of a line that all processes of a job say alike: of its end, "[job] stopped by ...".
std::string_view common_words(const std::string& text) {
  const size_t tag = text.find("[job] ");
  return std::string_view(text).substr(tag == std::string::npos ? 0 : tag);
}

}  // namespace

void MergedView::line_of_server(const std::string& text, std::vector<Output>& out) {
  if (!is_told(text) && !is_repeat({0, "", text})) say(text, out);
}

bool MergedView::is_told(const std::string& text) const {
  return std::any_of(told_.begin(), told_.end(),
                     [&](const std::string& told) { return text.find(told) != std::string::npos; });
}

bool MergedView::is_repeat(const Line& line) {
  const bool repeated = std::any_of(recent_.begin(), recent_.end(), [&](const Line& other) {
    return other.source != line.source && common_words(other.text) == common_words(line.text);
  });
  if (!repeated) {
    recent_.push_back(line);
    if (recent_.size() > kRemembered) {
      recent_.pop_front();
    }
  }
  return repeated;
}

void MergedView::show(const Line& line, std::vector<Output>& out) {
  say(line.prefix + line.text, out);
}

void MergedView::show_of_others(const Line& line, std::vector<Output>& out) {
  if (is_repeat(line)) {
    return;
  }
  if (allowance_ > 0) {
    --allowance_;
    show(line, out);
  } else {
    ++left_out_;
  }
}

StepLines::Reading StepLines::take(const std::string& text) {
  Reading reading;
  reading.of_task = is_line_of_task(text);
  if (reading.of_task) {
    const int signal = told_to_end(text);
    if (launcher_.signals_are_for_the_job()) reading.signal = signal;
    reading.show = reading.signal == 0;
    return reading;
  }
  if (refused_ || text.find_first_not_of("- ") == std::string::npos) return reading;
  reading.refusal = launcher_.refusal(text);
  refused_ = !reading.refusal.empty();
  reading.show = !refused_;
  return reading;
}

}  // namespace pushpull
