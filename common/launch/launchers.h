// Launchers that count their tasks: one function for each, which returns its claim (claim.h), or nothing
// if its variables are absent. docs/clusters.md lists the variables. No I/O. Any thread.
#pragma once

#include <optional>

#include "common/launch/claim.h"

namespace pushpull {

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

}  // namespace pushpull
