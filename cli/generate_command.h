// `pushpull generate`: lets a language model of a checkpoint go on with a text. Main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace pushpull {

struct ProgramHelp;

class Model;

// How the next token is drawn from the scores.
struct Sampling {
  double temperature = 1.0;  // 0: the largest score
  int64_t top_k = 0;         // only the tokens with the K largest scores; 0: all
  uint64_t seed = 1;
};

// Draws the token at place `place` of the generated ones. A pure function of its arguments; among
// equal scores the lower token comes first.
int32_t draw_token(std::span<const float> scores, const Sampling& sampling, int64_t place);

// Appends `count` tokens to `ids`, each drawn from the scores after at most `sequence` tokens
// before it.
//   model: with the fields ids and target [sequence], for micro-batches of one sample, on the CPU.
//   vocabulary: ids are below it.
//   each: called with each new token.
void generate_tokens(Model& model, std::span<const float> weights, int64_t sequence,
                     int64_t vocabulary, const Sampling& sampling, int64_t count,
                     std::vector<int32_t>& ids, const std::function<void(int32_t)>& each);

const ProgramHelp& generate_help();

// argv[0] is "generate". Returns the exit code; throws Error.
int generate_command(int argc, const char* const* argv);

}  // namespace pushpull
