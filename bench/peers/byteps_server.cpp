// BytePS's own server as a program. The release contains it as a library that its Python launcher
// loads.
extern "C" void byteps_server();

int main() {
  byteps_server();
  return 0;
}
