"""Compares images that fit a job with PIL's: image_pil_test.py IMAGE_PIXELS

Each has the bytes of PIL's decoders, convert, resize (rows, then columns) and crop, and is at most one away from
torchvision's Resize and CenterCrop where it is there. Exit code 77 (skipped) without PIL; PUSHPULL_TORCH_PYTHON names a Python that has it.
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    from PIL import Image
except ImportError:
    other = os.environ.get("PUSHPULL_TORCH_PYTHON")
    if other and os.path.realpath(other) != os.path.realpath(sys.executable):
        os.environ.pop("PUSHPULL_TORCH_PYTHON")
        os.execv(other, [other, *sys.argv])
    print("PIL is absent: skipped")
    sys.exit(77)
try:
    from torchvision import transforms
except ImportError:
    transforms = None

PROGRAM = sys.argv[1]
SIZES = ((1, 1), (7, 5), (8, 8), (31, 64), (100, 37), (3, 200), (256, 256))  # width, height
SHAPES = ((3, 8, 8), (1, 8, 8), (3, 32, 32), (3, 20, 33), (1, 65, 3))
KINDS = {"png": ("L", "RGB", "RGBA", "LA", "1", "P"), "jpg": ("L", "RGB")}


def picture(mode, width, height, chance):
    """Returns smooth colours with noise, so that JPEG has something to do."""
    parts = [chance.randrange(256) for _ in range(12)]
    pixels = bytes((parts[c] + parts[3 + c] * x // width + parts[6 + c] * y // height + chance.randrange(40)) % 256
                   for y in range(height) for x in range(width) for c in range(3))
    image = Image.frombytes("RGB", (width, height), pixels)
    if mode == "P":
        return image.quantize(16)
    if mode in ("RGBA", "LA"):
        image = image.convert("RGBA")
        image.putalpha(Image.frombytes("L", (width, height), chance.randbytes(width * height)))
    return image.convert(mode)


def files_in(folder, chance):
    for ending, modes in KINDS.items():
        for mode in modes:
            for width, height in SIZES:
                image, path = picture(mode, width, height, chance), folder / f"{mode}-{width}-{height}.{ending}"
                if ending == "png":
                    image.save(path)
                else:
                    image.save(path, quality=chance.choice((30, 75, 95)), progressive=chance.random() < 0.5,
                               subsampling=chance.choice((0, 1, 2)))
                yield path


def wanted(path, shape):
    channels, height, width = shape
    image = Image.open(path).convert("RGB" if channels == 3 else "L")
    w, h = image.size
    size = (width, width * h // w) if width * h >= height * w else (height * w // h, height)
    # PIL 13 would take columns first where that is cheaper
    fitting = image.resize((size[0], h), Image.BILINEAR).resize(size, Image.BILINEAR)
    left, top = round((size[0] - width) / 2), round((size[1] - height) / 2)
    fitting = fitting.crop((left, top, left + width, top + height))
    assert fitting.size == (width, height)
    if transforms and height == width:
        theirs = transforms.CenterCrop(height)(transforms.Resize(height)(image))
        away = max(abs(a - b) for a, b in zip(theirs.tobytes(), fitting.tobytes()))
        assert away <= 1, f"{path.name} as {shape}: {away} away from torchvision"
    return b"".join(plane.tobytes() for plane in fitting.split())


def main():
    chance, differ, compared = random.Random(3), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        paths = list(files_in(pathlib.Path(folder), chance))
        for shape in SHAPES:
            words = [PROGRAM, "x".join(map(str, shape)), *map(str, paths)]
            run = subprocess.run(words, stdout=subprocess.PIPE)
            if run.returncode == 77:
                return 77
            size = shape[0] * shape[1] * shape[2]
            assert run.returncode == 0 and len(run.stdout) == size * len(paths), f"{run.returncode}, {len(run.stdout)} bytes"
            for i, path in enumerate(paths):
                compared += 1
                if run.stdout[i * size:(i + 1) * size] != wanted(path, shape):
                    differ += 1
                    print(f"{path.name} as {shape}: other bytes than PIL's")
    print(f"{compared} images, {differ} differ; PIL {Image.__version__}" + ("" if transforms else ", without torchvision"))
    return 1 if differ else 0


sys.exit(main())
