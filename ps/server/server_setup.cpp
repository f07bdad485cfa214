#include "ps/server/server_setup.h"

#include "common/net/model_wire.h"

namespace pushpull {

ServerSetup setup_of(const wire::State& state, uint64_t run, uint64_t incarnation, int servers,
                     const Job& job) {
  ServerSetup setup;
  setup.run = run;
  setup.incarnation = incarnation;
  setup.coordinator = state.coordinator();
  setup.grant_key = state.grant_key();
  setup.rank = state.rank();
  setup.servers = servers;
  setup.job = job;
  setup.table = from_wire(state.tensors());
  setup.barriers = barriers_of(job, state.start_step(), state.end_step());
  setup.total_steps = state.total_steps();
  setup.updates = state.updates();
  setup.shares = state.shares();
  setup.load = state.load();
  setup.replays = state.places().replays();
  return setup;
}

}  // namespace pushpull
