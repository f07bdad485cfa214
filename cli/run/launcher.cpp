#include "cli/run/launcher.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "cli/run/child.h"
#include "cli/run/merged_view.h"
#include "cli/run/signals.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

class Launcher {
 public:
  explicit Launcher(const LauncherOptions& options)
      : options_(options),
        signals_(options.checkpoint_signal),
        supervisor_(options.supervisor),
        view_(/*repeats=*/!options.worker_command.empty()),
        slots_(supervisor_.slots()),
        console_(options.out_fd, options.err_fd) {
    if (!options.worker_command.empty() && !options.step)
      guard_.emplace(options.supervisor.stop_ms);
    if (options.step) step_lines_.emplace(*options.step->launcher);
  }

  int run();

 private:
  struct Slot {
    std::unique_ptr<Child> child;
    LineSplitter out_lines;
    LineSplitter err_lines;
  };
  // The servers of a further job.
  struct Other {
    std::string name;
    std::unique_ptr<Child> child;
    LineSplitter announcement;
    LineSplitter out_lines;
    LineSplitter err_lines;
    std::string address;  // empty until they listen
    std::optional<Ending> ending;
  };
  // A descriptor to watch, and the consumer of its bytes.
  struct Watch {
    UniqueFd* fd;
    std::function<void(const std::string&)> take;
  };

  // Returns true for a worker that is a user's program.
  bool is_users(size_t slot) const { return guard_ && supervisor_.is_worker(slot); }
  bool is_step(size_t slot) const { return options_.step && supervisor_.is_worker(slot); }
  void start(size_t slot);
  void start_others();
  bool others_run() const;
  void end_others();
  void reap_others();
  void signal_others(int signal);
  std::vector<Watch> watches_of(Other& other);
  void lines_of_other(const Other& other, const std::vector<std::string>& lines);
  void all_listen();
  void start_the_others();
  void announced(const std::string& bytes);
  void take_job(std::istringstream& words);
  int64_t leader_of(int64_t pid) const;
  void listens(const std::string& address);
  void listens_again(const std::string& address);
  void act(const SupervisorActions& actions);
  void signal_all(int signal);
  void wake_all();
  void handle_signals();
  void pass_on(int signal);
  void stop_with_the_terminal();
  void reap();
  void hear_coordinator();
  void finish_output(size_t slot);
  void wait_for_events();
  std::vector<Watch> watches(size_t slot);
  void lines_of(size_t slot, const std::vector<std::string>& lines);
  void line_of_step(size_t slot, const std::string& text, std::vector<Output>& outputs);
  std::string prefix(size_t slot) const;
  void write_out(const std::vector<Output>& outputs);

  LauncherOptions options_;
  SignalQueue signals_;
  Supervisor supervisor_;
  MergedView view_;
  std::optional<GroupGuard> guard_;  // of workers that are users' programs
  std::vector<Slot> slots_;
  std::vector<Other> others_;
  // After this job, the others have until then to end by themselves.
  int64_t others_deadline_ms_ = 0;
  int others_signal_ = 0;  // that they got last for it
  LineSplitter announcement_;
  std::string address_;               // of the coordinator; empty until it listens
  bool coordinator_listens_ = false;  // the present process of server 0
  bool training_began_ = false;
  std::optional<StepLines> step_lines_;
  int told_ = 0;                           // signal to the tasks of the step, not yet acted on
  std::optional<Ending> coordinator_end_;  // as the coordinator has reported it
  int64_t announce_deadline_ms_ = 0;
  Console console_;  // a reader that stalls cannot block the job: the job's files hold all output
};

int Launcher::run() {
  announce_deadline_ms_ = now_ms() + options_.announce_timeout_ms;
  start(0);
  start_others();
  while (!supervisor_.all_ended() || others_run()) {
    if (supervisor_.all_ended()) end_others();
    if (others_run()) supervisor_.another_runs(now_ms());
    wait_for_events();
    handle_signals();
    // The coordinator is no task, and has a second to hear of it before it lets the members go.
    if (const int told = std::exchange(told_, 0)) act(supervisor_.signalled(told, now_ms()));
    reap();
    reap_others();
    if (address_.empty() && !supervisor_.stopping() && now_ms() >= announce_deadline_ms_) {
      act(supervisor_.give_up("the coordinator did not listen within " +
                                  std::to_string(options_.announce_timeout_ms / 1000) + " s",
                              static_cast<int>(ErrorCode::kUnreachable), now_ms()));
    }
    act(supervisor_.tick(now_ms()));
  }
  std::vector<Output> last;
  view_.end_progress(last);
  if (view_.left_out() > 0) {
    view_.say("[run] " + plural(view_.left_out(), "more line") + " of the others left out", last);
  }
  write_out(last);
  console_.flush();
  int code = supervisor_.exit_code();
  for (const Other& other : others_) {
    const bool worse = code == static_cast<int>(ErrorCode::kStopped) && !other.ending->success() &&
                       !other.ending->stopped();
    if (code == 0 || worse) code = other.ending->exit_code();
  }
  return code;
}

void Launcher::start_others() {
  others_.reserve(options_.others.size());  // its elements are borrowed
  for (const OtherJob& job : options_.others) {
    StartPlan plan{.words = job.words};
    plan.words.insert(plan.words.end(), {"--announce-fd", std::to_string(Child::kAnnounceFd)});
    if (!options_.job_token.empty()) {
      plan.environment.emplace_back("PUSHPULL_JOB_TOKEN", options_.job_token);
    }
    Other& other = others_.emplace_back();
    other.name = job.name;
    other.child = std::make_unique<Child>(plan, /*announce=*/true);
  }
}

bool Launcher::others_run() const {
  return std::ranges::any_of(others_, [](const Other& other) { return !other.ending; });
}

// The workers have ended: a job that they have not finished stops, or fails, by itself.
void Launcher::end_others() {
  const SupervisorOptions& limits = options_.supervisor;
  if (others_deadline_ms_ == 0) others_deadline_ms_ = now_ms() + limits.stop_ms;
  if (now_ms() < others_deadline_ms_) return;
  others_signal_ = others_signal_ == 0 ? SIGTERM : SIGKILL;
  signal_others(others_signal_);
  others_deadline_ms_ = now_ms() + limits.grace_ms;
}

void Launcher::signal_others(int signal) {
  for (const Other& other : others_) {
    if (!other.ending) other.child->send(signal);
  }
}

void Launcher::reap_others() {
  for (Other& other : others_) {
    if (other.ending) continue;
    const std::optional<Ending> ending = other.child->poll_end();
    if (!ending) continue;
    std::string bytes;
    for (const Watch& watch : watches_of(other)) {
      while (read_available(watch.fd->get(), bytes) && !bytes.empty()) watch.take(bytes);
      watch.fd->reset();
    }
    other.ending = ending;
    if (ending->success() || ending->stopped()) continue;
    act(supervisor_.give_up(
        "job " + other.name + " " + ending->describe() + "; stopping the others",
        ending->exit_code(), now_ms()));
  }
}

std::vector<Launcher::Watch> Launcher::watches_of(Other& other) {
  std::vector<Watch> all;
  const auto add = [&all](UniqueFd& fd, std::function<void(const std::string&)> take) {
    if (fd.get() >= 0) all.push_back({&fd, std::move(take)});
  };
  if (other.ending) return all;
  add(other.child->announcement, [this, &other](const std::string& bytes) {
    for (const std::string& line : other.announcement.feed(bytes)) {
      other.address = line;
      all_listen();
    }
  });
  add(other.child->out, [this, &other](const std::string& bytes) {
    lines_of_other(other, other.out_lines.feed(bytes));
  });
  add(other.child->err, [this, &other](const std::string& bytes) {
    lines_of_other(other, other.err_lines.feed(bytes));
  });
  return all;
}

void Launcher::lines_of_other(const Other& other, const std::vector<std::string>& lines) {
  std::vector<Output> outputs;
  for (const std::string& line : lines) view_.say(other.name + " | " + line, outputs);
  write_out(outputs);
}

// Starts the other processes once all jobs have an address.
void Launcher::all_listen() {
  const auto listens = [](const Other& other) { return !other.address.empty(); };
  if (address_.empty() || !std::ranges::all_of(others_, listens)) return;
  if (!others_.empty()) options_.addresses = {{options_.name, address_}};
  for (const Other& other : others_) options_.addresses.emplace_back(other.name, other.address);
  start_the_others();
}

void Launcher::start(size_t slot) {
  slots_[slot].child =
      std::make_unique<Child>(plan_start(options_, slot, address_), /*announce=*/slot == 0);
  supervisor_.started(slot, slots_[slot].child->pid());
  if (slot == 0) coordinator_listens_ = false;
  if (is_users(slot)) guard_->watch(slots_[slot].child->pid());
}

void Launcher::start_the_others() {
  for (size_t slot = 1; slot < slots_.size() && !supervisor_.stopping(); ++slot) {
    try {
      start(slot);
    } catch (const Error& error) {
      std::vector<Output> output;
      view_.say(error.what(), output);
      write_out(output);
      act(supervisor_.give_up("not all processes could be started; stopping the job",
                              static_cast<int>(error.code()), now_ms()));
    }
  }
}

// The lines are those of ps/run/coordinator_sockets.h. The first one is the address, unless the run has
// ended already.
void Launcher::announced(const std::string& bytes) {
  for (const std::string& line : announcement_.feed(bytes)) {
    if (line.starts_with("tcp://")) {
      coordinator_listens_ = true;
      address_.empty() ? listens(line) : listens_again(line);
      continue;
    }
    if (line == "started") {
      training_began_ = true;
      supervisor_.training_began();
      continue;
    }
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "job") take_job(words);
    int64_t pid = 0;  // or a code
    if (!(words >> pid)) continue;
    if (guard_ && word != "ended") pid = leader_of(pid);
    if (word == "lost") act(supervisor_.given_up(pid, now_ms()));
    if (word == "ended") coordinator_end_ = Ending{.code = static_cast<int>(pid), .signal = 0};
    int code = 0;
    std::string reason;
    if (word == "failed" && words >> code && std::getline(words >> std::ws, reason)) {
      if (supervisor_.blamed(pid, code, reason)) view_.will_say(reason);
    }
  }
}

// A worker's program has said the job. A coordinator that is started again finds it in the run's folder.
void Launcher::take_job(std::istringstream& words) {
  std::string on_worker_loss;
  std::string on_server_loss;
  std::string on_bad_gradient;
  words >> on_worker_loss >> on_server_loss >> on_bad_gradient;
  SupervisorOptions& policies = options_.supervisor;
  policies.on_worker_loss = on_worker_loss == "wait"       ? OnWorkerLoss::kWait
                            : on_worker_loss == "continue" ? OnWorkerLoss::kContinue
                                                           : OnWorkerLoss::kAbort;
  policies.on_server_loss =
      on_server_loss == "restart" ? OnServerLoss::kRestart : OnServerLoss::kAbort;
  policies.quarantine = on_bad_gradient == "quarantine";
  supervisor_.take_policies(policies);
  const auto flag = std::ranges::find(options_.coordinator_arguments, kJobFromWorker);
  if (flag != options_.coordinator_arguments.end())
    *flag = "--job=" + options_.out_dir + "/job.ini";
}

// A user's command may start the worker as a process of its own: the group's leader is ours.
int64_t Launcher::leader_of(int64_t pid) const {
  const pid_t group = getpgid(static_cast<pid_t>(pid));
  const bool is_ours = std::ranges::any_of(
      slots_, [group](const Slot& of) { return of.child != nullptr && of.child->pid() == group; });
  return is_ours ? group : pid;
}

void Launcher::listens(const std::string& address) {
  address_ = address;
  supervisor_.listens();
  if (options_.announce_fd >= 0) {
    const std::string line = address + "\n";
    [[maybe_unused]] const ssize_t n = write(options_.announce_fd, line.data(), line.size());
  }
  all_listen();
}

// A restarted coordinator listens.
void Launcher::listens_again(const std::string& address) {
  act(supervisor_.listens_again());
  if (address == address_) return;
  act(supervisor_.give_up("the restarted coordinator listens on " + address + ", not on " +
                              address_ + ", where its members expect it",
                          static_cast<int>(ErrorCode::kUnreachable), now_ms()));
}

void Launcher::act(const SupervisorActions& actions) {
  std::vector<Output> outputs;
  if (actions.hold) {
    view_.hold();
  }
  if (actions.release) {
    view_.release(*actions.release, outputs);
  }
  for (const std::string& text : actions.say) {
    view_.say(text, outputs);
  }
  write_out(outputs);
  if (actions.signal_all != 0) {
    // A job that has not begun has nothing else to say about its end.
    if (!training_began_) view_.will_say("[job] ended by " + signal_name(actions.signal_all));
    signal_all(actions.signal_all);
    wake_all();  // a stopped process could not end
  }
  if (actions.signal_coordinator != 0 && slots_[0].child != nullptr) {
    slots_[0].child->send(actions.signal_coordinator);
    signal_others(actions.signal_coordinator);
    wake_all();  // a stopped process could not act
  }
  if (actions.kill && slots_[*actions.kill].child != nullptr) {
    slots_[*actions.kill].child->send(SIGKILL);
  }
  for (const size_t slot : actions.end) {
    // SIGTERM would kill a user's program in its last work, if it has not come too late.
    if (slots_[slot].child != nullptr && !is_users(slot)) slots_[slot].child->send(SIGTERM);
  }
  if (actions.restart) {
    slots_[*actions.restart] = Slot{};
    try {
      start(*actions.restart);
    } catch (const Error& error) {
      act(supervisor_.give_up(error.what(), static_cast<int>(error.code()), now_ms()));
    }
  }
}

void Launcher::signal_all(int signal) {
  signal_others(signal);
  for (const Slot& slot : slots_) {
    if (slot.child != nullptr) {
      slot.child->send(signal);
    }
  }
}

// srun reports SIGCONT, and only Ctrl-Z stops it.
void Launcher::wake_all() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].child != nullptr && !is_step(slot)) slots_[slot].child->send(SIGCONT);
  }
}

void Launcher::handle_signals() {
  for (int signal = signals_.take(); signal != 0; signal = signals_.take()) {
    switch (signal) {
      case SIGTSTP:
        stop_with_the_terminal();
        break;
      case SIGCHLD:
        break;  // reap() follows in any case
      case SIGINT:
      case SIGTERM:
      case SIGHUP:
        if (options_.stopped_by != nullptr) {
          *options_.stopped_by = signal;
        }
        act(supervisor_.signalled(signal, now_ms()));
        break;
      default:
        pass_on(signal);
    }
  }
}

// Passes the signal for a checkpoint to the coordinator, once it can take it: a process that has just
// been started would be killed.
void Launcher::pass_on(int signal) {
  const bool known = signal == options_.checkpoint_signal;
  if (known && coordinator_listens_ && slots_[0].child != nullptr) {
    return slots_[0].child->send(signal);
  }
  std::vector<Output> outputs;
  view_.say("[run] ignored " + signal_name(signal) +
                (known ? ": server 0 does not run yet" : ": it is not checkpoint-signal"),
            outputs);
  write_out(outputs);
}

// Ctrl-Z stops the whole job, as if its processes were in the terminal's group; `fg` resumes it.
void Launcher::stop_with_the_terminal() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  signal_all(SIGSTOP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // this process stops here until SIGCONT
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  signal_all(SIGCONT);
}

void Launcher::reap() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].child == nullptr) {
      continue;
    }
    if (std::optional<Ending> ending = slots_[slot].child->poll_end()) {
      if (is_users(slot)) guard_->forget(slots_[slot].child->pid());
      hear_coordinator();
      finish_output(slot);
      ending->too_early = (is_users(slot) || is_step(slot)) && ending->success() &&
                          !training_began_ && !supervisor_.stopping();
      // A coordinator that is killed after its report of the end has done its work.
      const bool done = slot == 0 && coordinator_end_ && ending->signal != 0;
      act(supervisor_.ended(slot, done ? *coordinator_end_ : *ending, now_ms()));
    }
  }
}

// Reads the coordinator's last lines, so that the cause of a failure is known before it is judged.
void Launcher::hear_coordinator() {
  if (address_.empty() || slots_[0].child == nullptr) return;
  const int fd = slots_[0].child->announcement.get();
  std::string bytes;
  while (fd >= 0 && read_available(fd, bytes) && !bytes.empty()) {
    announced(bytes);
  }
}

// Shows the rest of an ended process's output and closes its pipes: its children may hold them open
// forever.
void Launcher::finish_output(size_t slot) {
  if (address_.empty()) {
    slots_[slot].child->announcement.reset();  // no longer read
  }
  std::string bytes;
  for (const Watch& watch : watches(slot)) {
    while (read_available(watch.fd->get(), bytes) && !bytes.empty()) {
      watch.take(bytes);
    }
    watch.fd->reset();
  }
  if (slot == 0) {
    std::vector<Output> outputs;
    view_.end_progress(outputs);
    write_out(outputs);
  }
  for (LineSplitter* lines : {&slots_[slot].out_lines, &slots_[slot].err_lines}) {
    if (const std::string rest = lines->rest(); !rest.empty()) {
      lines_of(slot, {rest});
    }
  }
}

std::vector<Launcher::Watch> Launcher::watches(size_t slot) {
  Slot& of = slots_[slot];
  std::vector<Watch> all;
  const auto add = [&](UniqueFd& fd, std::function<void(const std::string&)> take) {
    if (fd.get() >= 0) {
      all.push_back({&fd, std::move(take)});
    }
  };
  if (of.child == nullptr) {
    return all;
  }
  add(of.child->announcement, [this](const std::string& bytes) { announced(bytes); });
  if (slot == 0) {
    add(of.child->out, [this](const std::string& bytes) {
      std::vector<Output> outputs;
      view_.progress(bytes, outputs);
      write_out(outputs);
    });
  } else {
    add(of.child->out,
        [this, slot](const std::string& b) { lines_of(slot, slots_[slot].out_lines.feed(b)); });
  }
  add(of.child->err,
      [this, slot](const std::string& b) { lines_of(slot, slots_[slot].err_lines.feed(b)); });
  return all;
}

void Launcher::wait_for_events() {
  std::vector<Watch> all;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    for (Watch& watch : watches(slot)) {
      all.push_back(std::move(watch));
    }
  }
  for (Other& other : others_) {
    for (Watch& watch : watches_of(other)) all.push_back(std::move(watch));
  }
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
  for (const Watch& watch : all) {
    fds.push_back({watch.fd->get(), POLLIN, 0});
  }
  std::optional<int64_t> deadline = supervisor_.deadline_ms();
  if (!deadline && address_.empty()) {
    deadline = announce_deadline_ms_;
  }
  if (supervisor_.all_ended()) deadline = others_deadline_ms_;
  const int64_t wait_ms = deadline ? std::max<int64_t>(0, *deadline - now_ms()) : -1;
  if (poll(fds.data(), fds.size(), static_cast<int>(wait_ms)) <= 0) {
    return;
  }
  std::string bytes;
  for (size_t i = 0; i < all.size(); ++i) {
    if (fds[i + 1].revents == 0) {
      continue;
    }
    if (!read_available(all[i].fd->get(), bytes)) {
      all[i].fd->reset();
    } else if (!bytes.empty()) {
      all[i].take(bytes);
    }
  }
}

void Launcher::lines_of(size_t slot, const std::vector<std::string>& lines) {
  std::vector<Output> outputs;
  for (const std::string& text : lines) {
    if (slot == 0) {
      view_.line_of_server(text, outputs);
    } else if (is_step(slot)) {
      line_of_step(slot, text, outputs);
    } else {
      view_.line(slot, prefix(slot), text, outputs);
    }
  }
  write_out(outputs);
}

void Launcher::line_of_step(size_t slot, const std::string& text, std::vector<Output>& outputs) {
  const StepLines::Reading reading = step_lines_->take(text);
  if (reading.show) view_.line(slot, reading.of_task ? "" : prefix(slot), text, outputs);
  if (told_ == 0) told_ = reading.signal;
  if (reading.refusal.empty()) return;
  const int code = static_cast<int>(ErrorCode::kUsage);
  supervisor_.blamed(slots_[slot].child->pid(), code, reading.refusal);
}

std::string Launcher::prefix(size_t slot) const { return supervisor_.name(slot) + " | "; }

void Launcher::write_out(const std::vector<Output>& outputs) {
  for (const Output& output : outputs) {
    if (output.to_stderr) {
      console_.err(output.bytes);
    } else {
      console_.out(output.bytes);
    }
  }
}

}  // namespace

int launch(const LauncherOptions& options) { return Launcher(options).run(); }

}  // namespace pushpull
