#include "common/job/network_keys.h"

#include <array>
#include <utility>

#include "common/job/job_key_makers.h"

namespace pushpull {

using namespace job_key_makers;

std::vector<JobKey> network_keys() {
  constexpr auto kIsFraction = [](double v) { return v >= 0.0 && v < 1.0; };
  constexpr const char* kFraction = "a number >= 0 and < 1";
  return {
      integer({"layers", "blocks of attention and feed-forward (gpt, bert)"}, field(&Job::layers),
              1, 1000),
      integer({"heads", "heads of each attention; divides embed (gpt, bert)"}, field(&Job::heads),
              1, 1024),
      integer({"embed", "width of a token in the network (gpt, bert)"}, field(&Job::embed), 1,
              65'536),
      integer({"ffn", "width of the feed-forward layers; 0: 4 times embed (gpt, bert)"},
              field(&Job::ffn), 0, 262'144),
      real({"dropout", "share of elements set to 0 in training (gpt, bert)"}, field(&Job::dropout),
           kFraction, kIsFraction),
      real({"attention-dropout", "share of attention weights set to 0 in training (gpt, bert)"},
           field(&Job::attention_dropout), kFraction, kIsFraction),
      word({"tie-embeddings", "the output layer uses the weights of the token embedding (gpt)"},
           field(&Job::tie_embeddings), "true or false",
           std::array<std::pair<const char*, bool>, 2>{{{"true", true}, {"false", false}}}),
      word({"norm", "normalisation: layer (LayerNorm) or rms (RMSNorm) (gpt)"}, field(&Job::norm),
           "layer or rms",
           std::array<std::pair<const char*, Norm>, 2>{
               {{"layer", Norm::kLayer}, {"rms", Norm::kRms}}}),
      integer({"positions", "rows of the table of positions; 0: sequence (gpt, bert)"},
              field(&Job::positions), 0, 1'000'000),
      parsed({"head-weights", "NAME:WEIGHT,...: factors of the losses of the model's heads",
              AtResume::kFixed, "1 for each head"},
             field(&Job::head_weights), "NAME:WEIGHT,..., as start:1,class:0.5", HeadWeights::parse,
             [](const HeadWeights& weights) { return weights.to_string(); }),
      real({"label-smoothing", "share of each label that is spread over all classes, in training"},
           field(&Job::label_smoothing), kFraction, kIsFraction),
  };
}

}  // namespace pushpull
