// echotrain serve: one shard of a parameter server.
#include <cstdio>

#include "console.h"
#include "job.h"

namespace cli {

int command_serve(const Arguments& arguments) {
  Job job;
  load_job(arguments, job);
  const int64_t shard = arguments.integer("shard").value_or(0);
  const InterruptGuard guard;
  Server server;
  check(etr_server_start(job.get(), static_cast<int32_t>(shard), server.out()));
  etr_server_status status{};
  status.struct_size = sizeof status;
  while (check(etr_server_wait(server.get(), 0.2, &status)) != ETR_END)
    if (interrupted()) throw Interrupted{"the shard was stopped: its workers have lost it"};
  std::printf("shard %lld: %s, %s\n", static_cast<long long>(shard),
              counted(status.joined, "worker").c_str(),
              counted(static_cast<int64_t>(status.updates), "update").c_str());
  return 0;
}

}  // namespace cli
