// A small tokenizer.json in GPT-2's style, written by hand, for tests. It lacks most bytes.
#pragma once

namespace pushpull {

inline constexpr const char* kSmallTokenizer = R"({
 "version": "1.0", "truncation": null, "padding": null,
 "added_tokens": [{"id": 33, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": true}],
 "normalizer": null,
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
 "post_processor": null,
 "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
 "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
  "end_of_word_suffix": null, "fuse_unk": false,
  "vocab": {"!": 0, "'": 1, "a": 2, "c": 3, "d": 4, "e": 5, "h": 6, "l": 7, "m": 8, "n": 9,
   "o": 10, "r": 11, "s": 12, "t": 13, "v": 14, "w": 15, "1": 16, "2": 17, "Ġ": 18, "Ċ": 19,
   "Ã": 20, "©": 21, "th": 22, "the": 23, "Ġthe": 24, "at": 25, "cat": 26, "Ġcat": 27, "'s": 28,
   "12": 29, "ĠĠ": 30, "Ã©": 31, "ee": 32},
  "merges": ["t h", "th e", "Ġ the", "a t", "c at", "Ġ cat", "' s", "1 2", "Ġ Ġ", "Ã ©", "e e"]}
})";

}  // namespace pushpull
