// main() of pushpull-worker, in a file of its own so that tests can call worker_program.
#include "common/base/console.h"
#include "worker/worker_program.h"

int main(int argc, char** argv) {
  const pushpull::ProcessConsole console;
  return pushpull::worker_program(argc, argv);
}
