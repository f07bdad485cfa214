// pushpull-worker: main, apart so that tests can call the program.
#include "worker/worker_program.h"

int main(int argc, char** argv) { return pushpull::worker_program(argc, argv); }
