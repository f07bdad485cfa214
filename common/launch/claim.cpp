#include "common/launch/claim.h"

#include <utility>

#include "common/launch/cluster_configs.h"
#include "common/launch/launchers.h"
#include "common/launch/pods.h"

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

}  // namespace pushpull
