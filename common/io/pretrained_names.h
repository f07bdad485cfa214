// The names of a tensor in files of pretrained networks, which differ from those of state_dict():
// Hugging Face's files of a base model, such as gpt2's, leave out the prefix `transformer.` or
// `bert.`, and older ones call the tensors of a LayerNorm gamma and beta. Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull {

// Returns the names under which a file may have the model's tensor `name`, its own name first.
std::vector<std::string> pretrained_names(const std::string& name);

}  // namespace pushpull
