"""A terminal for tests of full-screen programs: a pseudo-terminal, and an emulator of the few sequences that they use. An
unknown sequence fails the test."""
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from lab import Skipped, expect

SEQUENCE = re.compile(rb"\x1b\[(\??)(\d*)([A-Za-z])")


class Terminal:
    """Runs a program as the foreground process of a pseudo-terminal."""

    def __init__(self, lab, *words, rows=24, columns=80):
        self.lab, self.rows, self.columns = lab, rows, columns
        self.code = None
        self.raw = b""       # everything that the program wrote
        self.done = 0        # bytes of it that the emulator has processed
        self.full_screen = self.cursor = None
        self.lines, self.row, self.column = {}, 0, 0
        self.wraps = True
        try:
            self.pid, self.fd = pty.fork()
        except OSError as error:
            raise Skipped(f"there is no pseudo-terminal: {error}") from None
        if self.pid == 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                os.execve(words[0], [str(word) for word in words], {**lab.environment, "TERM": "xterm"})
            os._exit(127)
        self.mode = termios.tcgetattr(self.fd)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def keys(self, text):
        os.write(self.fd, text.encode())

    def read(self, seconds=0.1):
        """Reads what the program has written, and notes its end."""
        end = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                bytes_ = os.read(self.fd, 65536)
            except OSError:  # the program has ended
                bytes_ = b""
            if not bytes_:
                break
            self.raw += bytes_
        self.emulate()
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)

    def emulate(self):
        while self.done < len(self.raw):
            byte = self.raw[self.done:self.done + 1]
            if byte == b"\x1b":
                found = SEQUENCE.match(self.raw, self.done)
                if not found and len(self.raw) - self.done < 12:
                    return  # the rest has not arrived
                expect(found, f"unknown sequence {self.raw[self.done:self.done + 12]}")
                self.apply(*found.groups())
                self.done = found.end()
                continue
            self.done += 1
            if byte == b"\r":
                self.column = 0
            elif byte == b"\n":
                expect(self.row < self.rows - 1 or not self.full_screen, "the screen scrolls")
                self.row += 1
            else:
                expect(byte >= b" ", f"control character {byte}")
                self.lines.setdefault(self.row, {})[min(self.column, self.columns - 1)] = byte
                self.column += 1

    def apply(self, private, number, name):
        if private:
            expect(number in (b"1049", b"25", b"7") and name in b"hl", f"unknown mode {number}{name}")
            on = name == b"h"
            if number == b"1049":
                self.full_screen, self.lines, self.row, self.column = on, {}, 0, 0
            if number == b"25":
                self.cursor = on
            if number == b"7":
                self.wraps = on
        elif name == b"H":
            self.row = self.column = 0
        elif name == b"K":
            line = self.lines.setdefault(self.row, {})
            self.lines[self.row] = {at: byte for at, byte in line.items() if at < min(self.column, self.columns - 1)}
        elif name == b"J":
            keep = {} if number == b"2" else {row: line for row, line in self.lines.items() if row < self.row}
            self.lines = keep
        else:
            expect(name == b"m", f"unknown sequence {number}{name}")

    def screen(self):
        """Returns the lines that the user sees."""
        return [b"".join(self.lines.get(row, {}).get(at, b" ") for at in range(self.columns)).decode(errors="replace")
                .rstrip() for row in range(self.rows)]

    def shows(self, word, seconds=30):
        """Waits until the screen contains the pattern. Returns the screen as text."""
        deadline = self.lab.deadline(seconds)
        while True:
            self.read()
            text = "\n".join(self.screen())
            if re.search(word, text):
                return text
            expect(self.code is None, f"it has ended with {self.code}: {self.raw[-600:]}")
            expect(not deadline.passed(), f"the screen does not show {word!r}:\n{text}")

    def ends(self, seconds=10):
        deadline = self.lab.deadline(seconds)
        while self.code is None:
            self.read()
            expect(not deadline.passed(), "it does not end")
        return self.code

    def is_restored(self):
        """Returns whether the terminal is as the program found it."""
        return (self.full_screen, self.cursor, self.wraps) == (False, True, True) and termios.tcgetattr(self.fd) == self.mode
