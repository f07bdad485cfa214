#include "tests/device/fake_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/device/fake_kernels.h"
#include "tests/device/fake_memory.h"

namespace pushpull::device {

namespace {

// A record of an event.
struct Mark {
  bool done = false;
  int64_t run = 0;  // work that had run by then: the device's clock
};

struct Work {
  std::function<void()> run;
  std::shared_ptr<Mark> until;  // the work runs after this record is done
  std::shared_ptr<Mark> marks;  // done when the work has run
};

using Queue = std::deque<Work>;

}  // namespace

struct FakeDevice::State {
  explicit State(FakeOptions o)
      : options(o),
        name("fake:" + std::to_string(o.index)),
        random(o.seed),
        memory(std::make_shared<FakeMemory>(name, o.memory_bytes)),
        mood(static_cast<int>(o.seed % 4)),
        pages(o.pages ? o.pages : std::make_shared<RegisteredPages>()) {}

  const FakeOptions options;
  const std::string name;
  // Guards all below, and work: a thread that waits also runs work of others. Recursive, for capture.
  std::recursive_mutex mutex;
  std::mt19937_64 random;
  std::shared_ptr<FakeMemory> memory;
  std::vector<std::shared_ptr<Queue>> queues;
  int streams = 0;  // created so far
  int events = 0;   // created so far
  int mood;         // 0: runs as late as possible; 1: at once; else: now and then, a part
  int64_t runs = 0;
  int64_t launches = 0;

  std::shared_ptr<RegisteredPages> pages;
  std::vector<std::weak_ptr<FakePages>> others;  // opened here

  // Makes all memory accessible that work may use, once: opening and closing pages costs more than
  // most work.
  void open_memory(std::deque<FakePages::Open>& opened) {
    if (!opened.empty()) return;
    opened.emplace_back(memory->pages());
    for (const auto& other : others) {
      if (auto held = other.lock()) opened.emplace_back(std::move(held));
    }
  }

  bool can_read(const void* first, size_t bytes) const {
    const auto holds = [&](const auto& other) {
      const auto held = other.lock();
      return held && held->holds(first, bytes);
    };
    return memory->holds(first, bytes) || std::any_of(others.begin(), others.end(), holds);
  }

  FakeReach reach() const {
    return {[this](const void* first, size_t bytes) { return can_read(first, bytes); },
            [this](const void* first, size_t bytes) { return memory->holds(first, bytes); }};
  }

  bool lost() const { return options.lost_after >= 0 && runs >= options.lost_after; }
  void check() const {
    if (lost()) throw Error(ErrorCode::kDevice, "[device] " + name + " is lost");
  }

  // Runs the head of some queue, with `opened` memory. Returns false if none can run. Throws if the
  // device is lost.
  bool step(std::deque<FakePages::Open>& opened) {
    check();
    std::vector<Queue*> able;
    for (const auto& queue : queues) {
      if (!queue->empty() && (!queue->front().until || queue->front().until->done)) {
        able.push_back(queue.get());
      }
    }
    if (able.empty()) return false;
    Queue& queue = *able[random() % able.size()];
    const Work work = std::move(queue.front());
    queue.pop_front();
    if (work.run) {
      open_memory(opened);
      work.run();
    }
    ++runs;
    if (work.marks) *work.marks = {true, runs};
    check();
    return true;
  }

  // Runs some work while the host continues.
  void progress() {
    if (mood == 0) return;
    const uint64_t most = mood == 1 ? UINT64_MAX : random() % 4;
    std::deque<FakePages::Open> opened;
    for (uint64_t i = 0; i < most && step(opened); ++i) {
    }
  }

  // Some work can always run: a stream waits for earlier records only.
  void run_until(const std::function<bool()>& done) {
    if (done()) return;
    std::deque<FakePages::Open> opened;
    while (!done()) {
      const bool ran = step(opened);
      PP_ASSERT(ran);
    }
  }
};

namespace {

using State = FakeDevice::State;

class FakeEvent : public Event {
 public:
  FakeEvent(std::shared_ptr<State> state, bool is_timed)
      : state_(std::move(state)), is_timed_(is_timed) {
    const std::lock_guard lock(state_->mutex);
    is_unheard_ = state_->events++ == state_->options.unheard;
  }

  bool done() override {
    const std::lock_guard lock(state_->mutex);
    state_->check();
    if (latest && !latest->done) state_->progress();
    return !latest || latest->done;
  }

  void wait(int64_t /*deadline_ms*/) override {
    const std::lock_guard lock(state_->mutex);
    state_->check();
    if (!latest || state_->options.fault == Fault::kHostDoesNotWait || is_unheard_) return;
    state_->run_until([mark = latest] { return mark->done; });
  }

  double seconds_since(const Event& earlier) const override {
    const auto& other = static_cast<const FakeEvent&>(earlier);
    const std::lock_guard lock(state_->mutex);
    PP_ASSERT(is_timed_ && other.is_timed_);
    PP_ASSERT(latest && latest->done && other.latest && other.latest->done);
    return static_cast<double>(latest->run - other.latest->run) * 1e-6;
  }

  std::shared_ptr<Mark> mark() {
    auto mark = std::make_shared<Mark>();
    if (!latest || state_->options.fault != Fault::kRecordsAreIgnored) latest = mark;
    return mark;
  }

  std::shared_ptr<Mark> latest;

 private:
  std::shared_ptr<State> state_;
  bool is_timed_;
  bool is_unheard_ = false;
};

// A piece of a graph. Each launch makes its own marks.
struct Item {
  std::function<void()> run;
  FakeEvent* records = nullptr;
  const FakeEvent* awaits = nullptr;
};

struct FakeGraph : Graph {
  std::vector<Item> items;
};

class FakeStream : public Stream {
 public:
  explicit FakeStream(std::shared_ptr<State> state) : state_(std::move(state)) {
    const std::lock_guard lock(state_->mutex);
    is_deaf_ = state_->options.fault == Fault::kStreamsDoNotWait ||
               state_->streams++ == state_->options.deaf;
    state_->queues.push_back(queue_);
  }

  // Runs the stream's pending work, unless the host does not wait for it: its memory may be gone.
  ~FakeStream() override {
    const std::lock_guard lock(state_->mutex);
    const FakeOptions& options = state_->options;
    if (options.fault == Fault::kHostDoesNotWait || options.unheard >= 0) queue_->clear();
    try {
      state_->run_until([this] { return queue_->empty(); });
    } catch (const Error&) {
      queue_->clear();
    }
    std::erase(state_->queues, queue_);
  }

  void copy_in(const void* host, size_t bytes, void* to) override {
    const std::lock_guard lock(state_->mutex);
    PP_ASSERT(state_->memory->holds(to, bytes));
    const bool is_ready =
        state_->can_read(host, bytes) || state_->pages->hold(host, bytes, Access::kReadOnly);
    copy_host(host, to, bytes, is_ready);
  }

  void copy_out(const void* from, size_t bytes, void* host) override {
    const std::lock_guard lock(state_->mutex);
    PP_ASSERT(state_->memory->holds(from, bytes));
    copy_host(from, host, bytes, state_->pages->hold(host, bytes, Access::kReadWrite));
  }

  void add(const float* left, float* right, size_t n) override {
    const std::lock_guard lock(state_->mutex);
    PP_ASSERT(state_->can_read(left, n * sizeof(float)));
    PP_ASSERT(state_->memory->holds(right, n * sizeof(float)));
    put({[=] {
      for (size_t i = 0; i < n; ++i) right[i] = left[i] + right[i];
    }});
  }

  void find_non_finite(const float* x, size_t n, size_t slice, int64_t mark,
                       int64_t* marks) override {
    const std::lock_guard lock(state_->mutex);
    PP_ASSERT(state_->memory->holds(x, n * sizeof(float)));
    PP_ASSERT(state_->memory->holds(marks, (n + slice - 1) / slice * sizeof(*marks)));
    put({[=] {
      for (size_t i = 0; i < n; ++i) {
        if (!std::isfinite(x[i])) marks[i / slice] = mark;
      }
    }});
  }

  void update(const SliceBatch& batch) override {
    put({[state = state_.get(), batch] {
      fake_update(batch, state->reach(), state->options.fault);
    }});
  }

  void square(const SliceBatch& batch, float divisor, double* squares) override {
    put({[state = state_.get(), batch, divisor, squares] {
      fake_square(batch, divisor, squares, state->reach(), state->options.fault);
    }});
  }

  void measure(const SliceBatch& batch, double* squares) override {
    put({[state = state_.get(), batch, squares] {
      fake_measure(batch, squares, state->reach(), state->options.fault);
    }});
  }

  void record(Event& event) override { put({{}, &static_cast<FakeEvent&>(event)}); }

  void wait(const Event& event) override {
    if (is_deaf_) return;
    put({{}, nullptr, &static_cast<const FakeEvent&>(event)});
  }

  std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) override {
    const std::lock_guard lock(state_->mutex);
    state_->check();
    PP_ASSERT(capturing_ == nullptr);
    if (!state_->options.captures) return nullptr;
    auto graph = std::make_unique<FakeGraph>();
    capturing_ = graph.get();
    const std::shared_ptr<void> end(nullptr, [this](void*) { capturing_ = nullptr; });
    enqueue();
    return graph;
  }

  void launch(Graph& graph) override {
    const std::lock_guard lock(state_->mutex);
    PP_ASSERT(capturing_ == nullptr);
    ++state_->launches;
    for (const Item& item : static_cast<FakeGraph&>(graph).items) put(item);
  }

  void synchronize(int64_t /*deadline_ms*/) override {
    const std::lock_guard lock(state_->mutex);
    state_->check();
    PP_ASSERT(capturing_ == nullptr);
    if (state_->options.fault == Fault::kHostDoesNotWait) return;
    state_->run_until([this] { return queue_->empty(); });
  }

  void put(Item item) {
    const std::lock_guard lock(state_->mutex);
    state_->check();
    if (capturing_ != nullptr) {
      capturing_->items.push_back(std::move(item));
      return;
    }
    Work work{std::move(item.run), nullptr, nullptr};
    if (item.awaits != nullptr) work.until = item.awaits->latest;
    if (item.records != nullptr) work.marks = item.records->mark();
    queue_->push_back(std::move(work));
    state_->progress();
  }

 private:
  void copy_host(const void* from, void* to, size_t bytes, bool is_registered) {
    PP_ASSERT(is_registered || capturing_ == nullptr);
    if (!is_registered && bytes > state_->options.max_pageable) {
      throw Error(ErrorCode::kDevice, "[device] " + state_->name + " copies " +
                                          std::to_string(bytes) +
                                          " bytes of host memory that is not registered");
    }
    auto done = std::make_shared<bool>(false);
    put({[=] {
      if (bytes > 0) std::memcpy(to, from, bytes);
      *done = true;
    }});
    if (!is_registered) state_->run_until([done] { return *done; });
  }

  std::shared_ptr<State> state_;
  bool is_deaf_ = false;
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  FakeGraph* capturing_ = nullptr;
};

}  // namespace

FakeDevice::FakeDevice(FakeOptions options) : state_(std::make_shared<State>(options)) {}
FakeDevice::~FakeDevice() = default;

std::string FakeDevice::name() const { return state_->name; }

Memory FakeDevice::allocate(size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->check();
  return state_->memory->allocate(bytes);
}

Memory FakeDevice::allocate_shared(size_t bytes, std::string& handle) {
  const std::lock_guard lock(state_->mutex);
  state_->check();
  return state_->memory->allocate_shared(bytes, handle);
}

std::shared_ptr<const void> FakeDevice::open_shared(const std::string& handle, size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->check();
  auto pages = open_fake(state_->name, handle, bytes);
  std::erase_if(state_->others, [](const auto& other) { return other.expired(); });
  state_->others.push_back(pages);
  return {pages, pages->first()};
}

std::unique_ptr<Stream> FakeDevice::stream() { return std::make_unique<FakeStream>(state_); }

std::unique_ptr<Event> FakeDevice::event(bool timed) {
  return std::make_unique<FakeEvent>(state_, timed);
}

std::shared_ptr<void> FakeDevice::register_pages(std::byte* first, size_t bytes, Access access,
                                                 std::string& why) {
  constexpr size_t kPage = 4096;
  PP_ASSERT(reinterpret_cast<uintptr_t>(first) % kPage == 0 && bytes % kPage == 0 && bytes > 0);
  if (!state_->options.registers) {
    why = name() + " registers nothing";
    return nullptr;
  }
  state_->pages->add(first, bytes, access);
  return {first, [state = state_](std::byte* begin) { state->pages->remove(begin); }};
}

int64_t FakeDevice::runs() const {
  const std::lock_guard lock(state_->mutex);
  return state_->runs;
}
int64_t FakeDevice::launches() const {
  const std::lock_guard lock(state_->mutex);
  return state_->launches;
}
int FakeDevice::events() const {
  const std::lock_guard lock(state_->mutex);
  return state_->events;
}
size_t FakeDevice::registrations() const { return state_->pages->size(); }

void enqueue(Stream& stream, std::function<void()> work) {
  static_cast<FakeStream&>(stream).put({std::move(work)});
}

}  // namespace pushpull::device
