// Launchers that count their tasks, and descriptions of clusters that give each task a role, as
// claims.
#pragma once

#include <optional>
#include <string>

#include "common/launch/claim.h"

namespace pushpull {

// Launchers that count their tasks: one function for each, which returns its claim (claim.h), or nothing
// if its variables are absent. docs/clusters.md lists the variables. No I/O. Any thread.

// Users: PUSHPULL_RANK, PUSHPULL_WORLD_SIZE, PUSHPULL_LOCAL_RANK, PUSHPULL_JOIN, PUSHPULL_PORT.
std::optional<Claim> claim_of_users(const Environment& environment);
// torchrun and scripts that imitate it: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT.
std::optional<Claim> claim_of_torchrun(const Environment& environment);
// Kubeflow Trainer without torchrun in the pod: PET_NODE_RANK, PET_NNODES, PET_MASTER_ADDR.
std::optional<Claim> claim_of_kubeflow(const Environment& environment);
// Open MPI 4 and 5: OMPI_COMM_WORLD_*. It names no host: on one host that is 127.0.0.1, in Slurm the
// first node of the allocation.
std::optional<Claim> claim_of_open_mpi(const Environment& environment);
// MPICH, Intel MPI: PMI_RANK, PMI_SIZE. PMIx alone (srun --mpi=pmix) gives no size.
std::optional<Claim> claim_of_pmi(const Environment& environment);
// A Slurm step. A batch script and a shell of salloc have ranks that mean nothing.
std::optional<Claim> claim_of_slurm(const Environment& environment);

// Descriptions of clusters that give each task a role, as claims (claim.h). No I/O. Any thread.

// Returns the claim of a pod of an indexed Job or of a JobSet, or nothing outside one. The first server
// is in the pod with index 0. For a pod of a JobSet's replicated job "worker" that is a pod of the
// replicated job "server".
//   host_name: full name of the pod's host; without the subdomain the claim has no host.
std::optional<Claim> claim_of_kubernetes(const Environment& environment,
                                         const std::string& host_name);

// TF_CONFIG of TensorFlow: ps 0 coordinates, the chief is worker 0. Returns nothing without TF_CONFIG.
// Throws Error(kUsage) naming the part that is missing or has no meaning.
std::optional<Claim> claim_of_tf_config(const Environment& environment);

// ps-lite: DMLC_ROLE and others. The scheduler coordinates. Returns nothing without DMLC_ROLE.
std::optional<Claim> claim_of_ps_lite(const Environment& environment);

}  // namespace pushpull
