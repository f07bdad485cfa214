// Keeps the static objects of libpushpull.so until the process has ended: exit() would destroy them
// while the library's threads still use them, if a program ends with an open session. The compiler
// registers each destructor of a static object with this function; the library's own takes the place
// of libc's and forgets it. Other libraries and the program are not affected.

// NOLINTNEXTLINE(bugprone-reserved-identifier): a name of the C++ ABI
extern "C" int __cxa_atexit(void (*)(void*), void*, void*);

extern "C" int __cxa_atexit(void (* /*destroy*/)(void*), void* /*object*/, void* /*library*/) {
  return 0;
}
