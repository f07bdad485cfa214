// Keeps the last descriptors of the process free for files. accept4(2) gives a connection the lowest
// free descriptor. This file replaces it for all libraries of the program: libzmq accepts
// connections by itself, as many as there are descriptors, and tells nothing before. Thread-safe.
#pragma once

#include <cstdint>

namespace pushpull {

// From now on accept4 resets each connection that would get descriptor `first` or a higher one, and
// fails with ECONNABORTED.
void keep_descriptors_from(int64_t first);

}  // namespace pushpull
