#!/usr/bin/env python3
"""Writes C++ for the host out of a .cu, .cuh or .h of ours: translate.py SOURCE NAME TARGET.

    kernel<A><<<grid, block, shared, stream>>>(args);   becomes a call of cuda_on_host::launch
    extern __shared__ T name[];                         a pointer to what the launch asked for
    __shared__ T name[N];                               a reference to memory of the block
    asm("cvt.f32.f16 %0, %1;" : "=f"(to) : "h"(from));  a call of cuda_on_host::ptx_cvt_f32_f16

NAME is what the compiler calls the source. Lines keep their numbers. What this does not understand
is an error, never skipped.
"""
import pathlib
import re
import sys

OPEN, CLOSE = "([{", ")]}"
SHARED = re.compile(r"__shared__\s+(?:alignas\(\s*([\w:]+)\s*\)\s+)?([A-Za-z_][\w:]*(?:\s+[A-Za-z_][\w:]*)*)\s+"
                    r"(\w+)\s*((?:\[[^\[\]]*\]\s*)*);")
DYNAMIC = re.compile(r"extern\s+__shared__\s+([\w:]+)\s+(\w+)\s*\[\s*\]\s*;")
ASM = re.compile(r'asm\(\s*"([\w.]+) %0, %1;"\s*:\s*"=\w"\(([^()]*)\)\s*:\s*"\w"\(([^()]*)\)\s*\)\s*;')
# would compile on the host with another meaning
FOREIGN = ["<<<", ">>>", "__shared__", "asm", "__constant__", "__managed__", "__grid_constant__",
           "__cluster_dims__", "__syncwarp", "__threadfence", "cooperative_groups", "__nanosleep"]


class Refused(Exception):
    pass


def blanked(text):
    """Replaces the text in comments and strings by spaces; the length stays."""
    pattern = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'(?!\w)", re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def end_of_group(plain, at):
    """Returns the position after the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(plain)):
        depth += (plain[i] in OPEN) - (plain[i] in CLOSE)
        if depth == 0:
            return i + 1
    raise Refused("a bracket that nothing closes")


def arguments(text, plain):
    """Splits at the commas outside brackets. Does not recognise the commas of templates."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(plain):
        depth += (c in OPEN) - (c in CLOSE)
        if c == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    parts.append(text[begin:])
    return [part.strip() for part in parts]


def kernel_before(plain, at):
    """Returns the position of the name of the kernel that is launched at `at`."""
    i = len(plain[:at].rstrip())
    if plain[i - 1] == ">":
        depth = 0
        while True:
            i -= 1
            if i < 0 or plain[i] in ";{}":
                raise Refused("template arguments that nothing opens")
            depth += (plain[i] == ">") - (plain[i] == "<")
            if depth == 0:
                break
    name = re.search(r"[A-Za-z_]\w*\s*$", plain[:i])
    before = plain[:name.start()].rstrip() if name else ""
    if not name or before[-1:] not in ("", ";", "{", "}", ")", ":") or before.endswith("::"):
        raise Refused(f"line {line_of(plain, at)}: a launch of something that is no name")
    return name.start()


def translate_launch(text, plain, name):
    at = plain.find("<<<")
    if at < 0:
        return None
    line = line_of(text, at)
    begin = kernel_before(plain, at)
    kernel = " ".join(text[begin:at].split())
    close = plain.find(">>>", at)
    if close < 0:
        raise Refused("<<< without >>>")
    configuration = arguments(text[at + 3:close], plain[at + 3:close])
    if len(configuration) != 4:
        raise Refused(f"line {line}: a launch with {len(configuration)} of grid, block, shared bytes and stream")
    call = re.match(r"\s*\(", plain[close + 3:])
    if not call:
        raise Refused(f"line {line}: a launch without arguments")
    open_at = close + 3 + call.end() - 1
    end = end_of_group(plain, open_at)
    given = text[open_at + 1:end - 1].strip()
    made = (f'::cuda_on_host::launch({{"{name}", {line}, "{kernel}"}}, {", ".join(configuration)}, '
            f"[=](auto... of_launch) {{ {kernel}(of_launch...); }}" + (f", {given}" if given else "") + ")")
    old = text[begin:end]
    made += "\n" * (old.count("\n") - made.count("\n"))
    return text[:begin] + made + text[end:]


def shared(match, text):
    align, kind, name, bounds = match.groups()
    if ">" in bounds:
        raise Refused(f"line {line_of(text, match.start())}: a bound with >")
    whole = f"{kind}{bounds.strip()}"
    return (f"auto& {name} = ::cuda_on_host::block_memory<{whole}, alignof({align or kind})>("
            f"__PRETTY_FUNCTION__, __LINE__);" + "\n" * match.group().count("\n"))


def translate(text, name):
    def replaced(pattern, make, source):
        plain = source if pattern is ASM else blanked(source)
        out, last = [], 0
        for match in pattern.finditer(plain):
            out += [source[last:match.start()], make(match)]
            last = match.end()
        return "".join(out) + source[last:]

    text = replaced(ASM, lambda m: f"::cuda_on_host::ptx_{m[1].replace('.', '_')}({m[2]}, {m[3]});"
                    + "\n" * m.group().count("\n"), text)
    text = replaced(DYNAMIC, lambda m: f"{m[1]}* const {m[2]} = "
                    f"::cuda_on_host::launch_memory<{m[1]}>();" + "\n" * m.group().count("\n"), text)
    source = text
    text = replaced(SHARED, lambda m: shared(m, source), text)
    while (launched := translate_launch(text, blanked(text), name)) is not None:
        text = launched
    plain = blanked(text)
    for word in FOREIGN:
        found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)" if word[0].isalpha() or word[0] == "_" else re.escape(word),
                          plain)
        if found:
            raise Refused(f"line {line_of(plain, found.start())}: {word} as it stands there")
    return f'#line 1 "{name}"\n{text}'


def main():
    source, name, target = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    try:
        made = translate(source.read_text(encoding="utf-8"), name)
    except Refused as why:
        sys.exit(f"translate.py: {name}: cannot translate {why}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
