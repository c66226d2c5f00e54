// Shards of parameter servers.
#include "functions.h"
#include "handles.h"
#include "train/membership.h"

using namespace etr;
using namespace etr::capi;

struct etr_server {
  std::unique_ptr<server::Server> server;
  mutable Occupancy occupancy;
};

int32_t etr_server_start(const etr_job* job, int32_t shard, etr_server** server) {
  return guarded([&] {
    required(server, "server");
    auto made = std::make_unique<etr_server>();
    made->server = train::open_server(required(job, "job").job, shard);
    hand_out(server, std::move(made), "server");
  });
}

int32_t etr_server_wait(etr_server* server, double seconds, etr_server_status* status) {
  return guarded([&] {
    if (!(seconds >= 0) || seconds > 1e6)
      fail(Code::invalid_argument, "argument 'seconds' is ", seconds, "; it is from 0 to 1e6");
    if (status) checked_size(status);
    server::Server& waits = *required(server, "server").server;
    const auto tell = [&] {
      if (!status) return;
      const server::Roster::Status is = waits.status().roster;
      etr_server_status out{};
      out.workers = static_cast<int64_t>(is.workers);
      out.joined = static_cast<int64_t>(is.joined);
      out.finished = static_cast<int64_t>(is.finished);
      out.updates = is.pushes;
      fill_struct(status, out);
    };
    bool over = false;
    try {
      over = waits.wait(seconds);
    } catch (const Error&) {
      tell();
      throw;
    }
    tell();
    return over ? ETR_END : ETR_OK;
  });
}

int32_t etr_server_stop(etr_server* server) {
  return guarded([&] { any_thread(server, "server").server->stop(); });
}

void etr_server_destroy(etr_server* server) {
  if (!server) return;
  guarded([&] {
    // The last call to leave frees the server: this one, or an etr_server_wait of another thread,
    // which stopping ends.
    etr_server& s = any_thread(server, "server");
    s.occupancy.destroy();
    s.server->stop();
  });
}
