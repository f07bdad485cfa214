// pushpull-worker: main, apart so that tests can call the program.
#include "common/base/console.h"
#include "worker/worker_program.h"

int main(int argc, char** argv) {
  const pushpull::ProcessConsole console;
  return pushpull::worker_program(argc, argv);
}
