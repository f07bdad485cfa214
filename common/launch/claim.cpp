#include "common/launch/claim.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/launch/launchers.h"

namespace pushpull {

std::vector<Claim> read_claims(const Environment& environment, const std::string& host_name) {
  std::vector<Claim> claims;
  const auto add = [&claims](std::optional<Claim> claim) {
    if (claim) claims.push_back(std::move(*claim));
  };
  add(claim_of_users(environment));
  add(claim_of_torchrun(environment));
  add(claim_of_kubeflow(environment));
  add(claim_of_open_mpi(environment));
  add(claim_of_pmi(environment));
  add(claim_of_slurm(environment));
  add(claim_of_kubernetes(environment, host_name));
  add(claim_of_tf_config(environment));
  add(claim_of_ps_lite(environment));
  return claims;
}

void refuse_launch(const std::string& text) { throw Error(ErrorCode::kUsage, "[join] " + text); }

std::optional<Found<std::string>> text_of(const Environment& environment,
                                          std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    const auto found = environment.find(variable);
    if (found != environment.end() && !found->second.empty()) return {{found->second, variable}};
  }
  return std::nullopt;
}

std::optional<Found<int64_t>> number_of(const Environment& environment,
                                        std::initializer_list<const char*> variables) {
  const auto text = text_of(environment, variables);
  if (!text) return std::nullopt;
  const std::optional<int64_t> number = parse_int64(text->value);
  if (number && *number >= 0) return {{*number, text->from}};
  refuse_launch(text->from + "=" + printable(text->value) + ": must be a whole number from 0");
}

std::optional<Found<int64_t>> port_of(const Environment& environment,
                                      std::initializer_list<const char*> variables) {
  auto number = number_of(environment, variables);
  if (!number || (number->value >= 1 && number->value <= 65535)) return number;
  refuse_launch(number->from + "=" + std::to_string(number->value) +
                ": a port is a number from 1 to 65535");
}

std::optional<Found<std::string>> host_of(const Environment& environment,
                                          std::initializer_list<const char*> variables) {
  auto text = text_of(environment, variables);
  if (text) text->value = checked_host(text->value, text->from);
  return text;
}

std::string checked_host(const std::string& host, const std::string& variable) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  try {
    check_host(bare, variable);
  } catch (const Error&) {
    refuse_launch(variable + "=" + printable(host) +
                  ": expected a host name or address alone, such as node17 or 10.0.0.17");
  }
  return bare;
}

Address address_or_refuse(const std::string& text, const std::string& why) {
  try {
    return parse_address(text, "join");
  } catch (const Error&) {
    refuse_launch(why);
  }
}

}  // namespace pushpull
