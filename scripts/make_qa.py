#!/usr/bin/env python3
"""Writes the folder that `dataset = qa` reads, from questions in SQuAD's JSON format.

    scripts/make_qa.py --train train-v2.0.json --test dev-v2.0.json --out squad --sequence 384 --tokenizer bert/tokenizer.json

A row is [CLS] question [SEP] context [SEP] and padding. A context that does not fit is cut into windows, each --stride
tokens after the one before; a window that does not contain the whole answer has none (start and end are -1).

--tokenizer names a tokenizer.json of Hugging Face and needs their package `tokenizers`. Without it, tokens are lower-case
words and single signs, the most frequent ones of the training questions and contexts, which needs the standard library
only; the list is written to OUT/vocab.txt. Exit code 2: a file is not as expected.
"""

import argparse
import array
import collections
import json
import pathlib
import re
import struct
import sys

PAD, CLS, SEP, UNKNOWN = range(4)
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
NO_ANSWER = -1
Question = collections.namedtuple("Question", "name text context answer")  # answer: begin and end in the context, or None


def refuse(text):
    print(f"make_qa: {text}", file=sys.stderr)
    sys.exit(2)


def answer_of(path, qa, context):
    """Returns the first answer's place in the context, or None."""
    if qa.get("is_impossible") or not qa.get("answers"):
        return None
    text, begin = qa["answers"][0]["text"], qa["answers"][0]["answer_start"]
    found = context[begin:begin + len(text)]
    if found != text or not text:
        refuse(f"{path}: question {qa['id']}: expected the answer {text!r} at character {begin}, got {found!r}")
    return begin, begin + len(text)


def read_squad(path):
    try:
        articles = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["data"]
        pairs = [(part["context"], qa) for article in articles for part in article["paragraphs"] for qa in part["qas"]]
        questions = [Question(str(qa["id"]), qa["question"], context, answer_of(path, qa, context)) for context, qa in pairs]
    except OSError as error:
        refuse(f"{path}: {error.strerror}")
    except (KeyError, TypeError, ValueError) as error:
        refuse(f"{path}: expected SQuAD's JSON format (data, paragraphs, context, qas, question, answers), got {error!r}")
    if not questions:
        refuse(f"{path}: expected at least one question, got none")
    return questions


class WordTokenizer:
    """Lower-case words and single signs; a word that is not among the most frequent ones is [UNK]."""

    SIGN = re.compile(r"\w+|[^\w\s]")
    pad, cls, sep = PAD, CLS, SEP

    def __init__(self, questions, most):
        counts = collections.Counter()
        for context in {question.context for question in questions}:
            counts.update(self.words(context))
        for question in questions:
            counts.update(self.words(question.text))
        frequent = sorted(counts, key=lambda word: (-counts[word], word))[:most - len(SPECIAL)]
        self.names = SPECIAL + frequent
        self.ids = {name: i for i, name in enumerate(self.names)}
        self.size = len(self.names)

    def words(self, text):
        return [match.group().lower() for match in self.SIGN.finditer(text)]

    def encode(self, text):
        """Returns ids and their places in the text."""
        found = list(self.SIGN.finditer(text))
        return [self.ids.get(match.group().lower(), UNKNOWN) for match in found], [match.span() for match in found]


class HuggingFaceTokenizer:
    def __init__(self, path):
        try:
            import tokenizers
        except ImportError:
            refuse("--tokenizer needs the package tokenizers: python3 -m pip install tokenizers")
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # the package raises Exception itself
            refuse(f"{path}: {error}")
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.size = self.tokenizer.get_vocab_size()
        self.pad, self.cls, self.sep = (self.special(path, *names) for names in (("[PAD]", "<pad>"), ("[CLS]", "<s>"), ("[SEP]", "</s>")))

    def special(self, path, *names):
        for name in names:
            if self.tokenizer.token_to_id(name) is not None:
                return self.tokenizer.token_to_id(name)
        refuse(f"{path}: expected a token {' or '.join(names)}, got none")

    def encode(self, text):
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets


def answer_tokens(places, answer):
    """Returns the first and the last token of the answer, or nothing."""
    if answer is None:
        return None
    inside = [i for i, (begin, end) in enumerate(places) if begin < answer[1] and end > answer[0]]
    return (inside[0], inside[-1]) if inside else None


class Rows:
    """The rows of one file."""

    def __init__(self, sequence):
        self.sequence = sequence
        self.tensors = {name: array.array("i") for name in ("ids", "mask", "types", "start", "end")}

    def add(self, tokenizer, question, context, answer):
        """answer: its first and last token in the context, or None."""
        row = [tokenizer.cls, *question, tokenizer.sep, *context, tokenizer.sep]
        first = len(question) + 2
        padding = self.sequence - len(row)
        start, end = (first + answer[0], first + answer[1]) if answer else (NO_ANSWER, NO_ANSWER)
        values = {"ids": row + [tokenizer.pad] * padding, "mask": [1] * len(row) + [0] * padding,
                  "types": [0] * first + [1] * (len(row) - first) + [0] * padding, "start": [start], "end": [end]}
        for name, numbers in values.items():
            self.tensors[name].extend(numbers)

    def write(self, path, metadata):
        """Writes a safetensors file: the length of a JSON header, the header, the tensors."""
        count = len(self.tensors["start"])
        header, begin = {"__metadata__": metadata}, 0
        for name, values in self.tensors.items():
            shape = [count, self.sequence] if name in ("ids", "mask", "types") else [count]
            header[name] = {"dtype": "I32", "shape": shape, "data_offsets": [begin, begin + 4 * len(values)]}
            begin += 4 * len(values)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for values in self.tensors.values():
                assert values.itemsize == 4
                if sys.byteorder == "big":
                    values.byteswap()
                file.write(values.tobytes())


def make_rows(questions, tokenizer, args):
    rows, answered = Rows(args.sequence), 0
    for question in questions:
        ids = tokenizer.encode(question.text)[0][:args.question]
        context, places = tokenizer.encode(question.context)
        answer = answer_tokens(places, question.answer)
        room = args.sequence - len(ids) - 3
        begin = 0
        while True:
            end = min(begin + room, len(context))
            inside = answer is not None and begin <= answer[0] and answer[1] < end
            rows.add(tokenizer, ids, context[begin:end], (answer[0] - begin, answer[1] - begin) if inside else None)
            answered += inside
            if end == len(context):
                break
            begin += args.stride
    return rows, answered


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True, help="questions to train on, in SQuAD's JSON format")
    parser.add_argument("--test", required=True, help="questions to test on")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write")
    parser.add_argument("--sequence", type=int, default=384, help="tokens of a row (default: 384); the job's key sequence")
    parser.add_argument("--question", type=int, default=64, help="most tokens of a question (default: 64)")
    parser.add_argument("--stride", type=int, default=128, help="tokens between two windows (default: 128)")
    parser.add_argument("--tokenizer", help="tokenizer.json of Hugging Face")
    parser.add_argument("--vocab", type=int, default=30000, help="most tokens without --tokenizer (default: 30000)")
    args = parser.parse_args()
    if args.question < 1 or args.sequence < args.question + 4:
        parser.error(f"--sequence {args.sequence} must be at least 4 more than --question {args.question}, which must be at least 1")
    if not 1 <= args.stride <= args.sequence - args.question - 3:
        parser.error(f"--stride {args.stride} must be between 1 and {args.sequence - args.question - 3}, so that windows leave no gap")
    if args.vocab <= len(SPECIAL):
        parser.error(f"--vocab {args.vocab} must be more than {len(SPECIAL)}")
    splits = {"train": read_squad(args.train), "test": read_squad(args.test)}
    tokenizer = HuggingFaceTokenizer(args.tokenizer) if args.tokenizer else WordTokenizer(splits["train"], args.vocab)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, questions in splits.items():
        rows, answered = make_rows(questions, tokenizer, args)
        rows.write(args.out / f"{name}.safetensors", {"vocab": str(tokenizer.size)})
        print(f"{name}: {len(questions)} questions, {len(rows.tensors['start'])} rows, {answered} with an answer")
    if not args.tokenizer:
        (args.out / "vocab.txt").write_text("\n".join(tokenizer.names) + "\n", encoding="utf-8")
    print(f"job: dataset = qa, data-dir = {args.out}, sequence = {args.sequence} (vocabulary: {tokenizer.size})")


if __name__ == "__main__":
    main()
