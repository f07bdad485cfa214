#include "tests/simulation/trainer_thread.h"

namespace pushpull::sim {

void TrainerThread::go_on() {
  if (!stopped_ && !fiber_.done()) fiber_.resume();
}

void TrainerThread::sleep(int64_t us) {
  sleeps_ = true;
  process_.later(us, [this] {
    sleeps_ = false;
    go_on();
  });
  fiber_.suspend();
}

void TrainerThread::wait() { fiber_.suspend(); }

void TrainerThread::wake() {
  if (!sleeps_) go_on();
}

}  // namespace pushpull::sim
