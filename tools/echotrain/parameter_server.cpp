// echotrain parameter-server: one shard of a parameter server.
#include <cstdio>

#include "console.h"
#include "job.h"
#include "rank.h"

namespace cli {
namespace {

// Prints a line about a shard, and flushes it for readers of a pipe.
template <typename... Arguments>
void say(int64_t shard, const char* format, Arguments... arguments) {
  std::printf("shard %lld: ", static_cast<long long>(shard));
  std::printf(format, arguments...);
  std::printf("\n");
  std::fflush(stdout);
}

void say_beginning(const Json& job, int64_t shard) {
  const Json section = job.value("parallel", Json::object());
  const int64_t shards = section.value("servers", int64_t{1}),
                parts = section.value("size", int64_t{0});
  const std::string parts_text =
      parts > 0 ? "; the data has " + counted(parts, "part") + ", one for each worker" : "";
  std::string place = section.value("rendezvous", "");
  if (place.empty()) place = "the launcher's rendezvous";
  say(shard, "one of %lld (%s); waits for workers at %s, for the first one %g s%s",
      static_cast<long long>(shards), section.value("algorithm", "").c_str(), place.c_str(),
      section.value("timeout", 60.0), parts_text.c_str());
}

// Prints which workers have come and gone since `before`.
void say_changes(const etr_server_status& before, const etr_server_status& now, int64_t shard) {
  const int64_t joined = now.joined - before.joined, finished = now.finished - before.finished;
  const int64_t lost = (now.joined - now.workers - now.finished) -
                       (before.joined - before.workers - before.finished);
  const auto tell = [&](int64_t count, const char* what) {
    if (count > 0)
      say(shard, "%s %s; %s here, %s", counted(count, "worker").c_str(), what,
          now.workers == 1 ? "1 is" : (std::to_string(now.workers) + " are").c_str(),
          (counted(static_cast<int64_t>(now.updates), "update") + " so far").c_str());
  };
  tell(joined, "joined");
  tell(finished, "finished");
  tell(lost, "lost");
}

}  // namespace

int command_parameter_server(const Arguments& arguments) {
  Job job;
  load_job(arguments, job);
  const int32_t shard = arguments.integer("shard", 0, 0);
  const InterruptGuard guard;
  Server server;
  check(etr_server_start(job.get(), shard, server.out()));
  say_beginning(json_of(job), shard);
  etr_server_status status{}, before{};
  status.struct_size = sizeof status;
  for (bool over = false; !over; before = status) {
    over = check(etr_server_wait(server.get(), 0.2, &status)) == ETR_END;
    say_changes(before, status, shard);
    if (!over && interrupted() && ended_by_launcher()) return 128 + interrupted();
    if (!over && interrupted())
      throw Interrupted{"the shard was stopped: its workers have lost it"};
  }
  say(shard, "%s, %s", counted(status.joined, "worker").c_str(),
      counted(static_cast<int64_t>(status.updates), "update").c_str());
  return 0;
}

}  // namespace cli
