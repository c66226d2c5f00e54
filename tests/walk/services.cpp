// Steps on parameter servers, studies and transports of the program.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "world.h"

namespace walk {
namespace {

std::unique_ptr<Job> server_job(Walk& walk, const std::string& meeting) {
  const std::string json = job_text(
      walk, R"("train": {"steps": 4}, "output": {"dir": ""}, "parallel": {"algorithm": "downpour",
        "servers": 1, "size": 1, "timeout": 60, "rendezvous": "file:)" +
                meeting + "\"}");
  etr_job* made = nullptr;
  walk.call("etr_job_parse", "of a parameter server", kOk,
            [&] { return etr_job_parse(json.c_str(), nullptr, 0, &made); });
  return std::unique_ptr<Job>(new Job{{walk, made, "etr_job_destroy", etr_job_destroy}});
}

void start_server(Walk& walk) {
  const std::string meeting = walk.folder + "/meeting" + std::to_string(++walk.world->folders);
  std::filesystem::create_directories(meeting);
  const auto job = server_job(walk, meeting);
  const auto shard = walk.random.of<int32_t>({0, 0, 0, 1, -1});
  etr_server* const made = walk.made<etr_server>(
      "etr_server_start", std::to_string(shard), shard == 0 ? kOk : kInvalid,
      [&](etr_server** out) { return etr_server_start(job->handle.get(), shard, out); });
  if (!made) return;
  auto server =
      std::unique_ptr<Server>(new Server{{walk, made, "etr_server_destroy", etr_server_destroy}});
  server->meeting = meeting;
  walk.made<etr_server>("etr_server_start", "a shard that there is", kState, [&](etr_server** out) {
    return etr_server_start(job->handle.get(), 0, out);
  });
  walk.world->servers.add(walk.random, std::move(server));
}

void use_server(Walk& walk) {
  Server* const record = walk.world->servers.any(walk.random);
  etr_server* const server = walk.handle(record);
  if (walk.random.one_in(4)) {
    if (walk.call("etr_server_stop", "", Walk::needs(server, kOk),
                  [&] { return etr_server_stop(server); }) == ETR_OK)
      record->stopped = true;
    return;
  }
  const double seconds = walk.random.of({0.0, 0.001, -1.0, 2e6, std::nan("")});
  const bool valid = seconds >= 0 && seconds < 1e6;
  etr_server_status status{};
  status.struct_size = sizeof status;
  // A server without a worker says so when its time is over.
  const Codes allowed = record && record->stopped ? kEnd : kOk | kEnd | kRankLost;
  walk.call(
      "etr_server_wait", std::to_string(seconds), valid ? Walk::needs(server, allowed) : kInvalid,
      [&] { return etr_server_wait(server, seconds, walk.random.one_in(2) ? &status : nullptr); });
}

// A worker, which trains to the end or loses its server.
void work(Walk& walk) {
  Server* const record = walk.world->servers.any(walk.random);
  if (!record || record->stopped) return;
  const auto job = server_job(walk, record->meeting);
  // Without Gloo there is no engine for workers.
  auto run = start_run(walk, *job, ETR_START_NEW, kOk | kRankLost | kNotFound);
  if (!run) return;
  const bool loses = walk.random.one_in(2);
  if (loses) {
    walk.call("etr_server_stop", "", kOk, [&] { return etr_server_stop(record->handle.get()); });
  }
  record->stopped = true;  // by us, or because the last worker has finished
  etr_event event{};
  event.struct_size = sizeof event;
  int32_t status = ETR_OK;
  while (status == ETR_OK)
    status = walk.call("etr_run_next_event", "of a worker", kOk | kEnd | (loses ? kRankLost : 0),
                       [&] { return etr_run_next_event(run->handle.get(), &event); });
  run.reset();
  walk.world->servers.take(record);
}

void load_study(Walk& walk) {
  // Not study.json, which would make the walk's folder one of a study.
  const std::string path = walk.folder + "/a_study.json";
  std::ofstream(path) << R"({"job": )" +
                             job_text(walk, R"("evaluation": {"pipeline": )" +
                                                row_stages(walk, "") + "}") +
                             R"(, "budget": {"steps": )" +
                             std::to_string(walk.random.of({2, 1000000})) +
                             R"(}, "evaluate": {"every_steps": 2}, "search": {"trials": 2,
        "searches": 1, "space": {"schedule.learning_rate": {"from": 1e-3, "to": 1e-1}}}})";
  const std::string rows = walk.folder + "/rows.jsonl";
  const char* const file = walk.random.of<const char*>(
      {path.c_str(), path.c_str(), "/proc/nowhere", rows.c_str(), "", nullptr});
  const char* const searched = "schedule.learning_rate=0.5";
  const int32_t count = walk.random.one_in(5);
  etr_study* const made = walk.made<etr_study>(
      "etr_study_load", file ? file : "NULL",
      file == path.c_str() && count == 0 ? kOk : kInvalid | kNotFound,
      [&](etr_study** out) { return etr_study_load(file, &searched, count, out); });
  if (made)
    walk.world->studies.add(
        walk.random,
        std::unique_ptr<Study>(new Study{{walk, made, "etr_study_destroy", etr_study_destroy}}));
}

void start_study(Walk& walk) {
  Study* const record = walk.world->studies.any(walk.random);
  if (!record) return load_study(walk);
  etr_study* const study = walk.handle(record);
  etr_runtime* const runtime = walk.random.one_in(20) ? nullptr : runtime_of(walk)->handle.get();
  const std::string folder = walk.folder + "/study" + std::to_string(++walk.world->folders);
  const auto parallel = walk.random.of<int32_t>({1, 2, 0, -1, -2});
  const auto overwrite = walk.random.of<int32_t>({0, 0, 1, 2});
  const bool valid = parallel != -2 && overwrite != 2;
  Codes allowed = record->started ? kState : kOk;
  if (!valid) allowed = (allowed & kState) | kInvalid;
  const int32_t status = walk.call(
      "etr_study_start", std::to_string(parallel) + ", " + std::to_string(overwrite),
      Walk::needs(study, Walk::needs(runtime, allowed)),
      [&] { return etr_study_start(study, runtime, folder.c_str(), parallel, overwrite); });
  if (status == ETR_OK) record->started = true;
}

void ask_study(Walk& walk) {
  Study* const record = walk.world->studies.any(walk.random);
  etr_study* const study = walk.handle(record);
  const std::string nowhere = walk.folder + "/nowhere";
  // The walk's folder is none of a study.
  const char* const folder =
      walk.random.of<const char*>({nowhere.c_str(), walk.folder.c_str(), ""});
  switch (walk.random.below(5)) {
    case 0:
      walk.text("etr_study_json", "", Walk::needs(study, kOk),
                [&](char** out) { return etr_study_json(study, out); });
      break;
    case 1:
      walk.text("etr_study_output_dir", "", Walk::needs(study, kOk),
                [&](char** out) { return etr_study_output_dir(study, out); });
      break;
    case 2:
      walk.text("etr_study_results", folder,
                Walk::needs(study, *folder ? kOk | kNotFound | kState : kInvalid),
                [&](char** out) { return etr_study_results(study, folder, out); });
      break;
    case 3:
      walk.call("etr_study_write_report", folder,
                Walk::needs(study, *folder ? kNotFound | kState : kInvalid),
                [&] { return etr_study_write_report(study, folder); });
      break;
    default:
      walk.call(
          "etr_study_stop", "", study && record->started ? kOk : kInvalid,
          [&] { return etr_study_stop(study); }, true);
  }
}

void next_of_study(Walk& walk) {
  Study* const record = walk.world->studies.any(walk.random);
  etr_study* const study = walk.handle(record);
  const double seconds = walk.random.of({0.0, 0.02, -1.0, 2e6, std::nan("")});
  const bool valid = seconds >= 0 && seconds < 1e6;
  Codes allowed = record && record->started ? kOk : kState;
  if (record && record->ended) allowed = kEnd;
  const std::string event =
      walk.text("etr_study_next_event", std::to_string(seconds),
                valid ? Walk::needs(study, allowed) : kInvalid,
                [&](char** out) { return etr_study_next_event(study, seconds, out); });
  if (event.find("\"kind\":\"end\"") != std::string::npos) record->ended = true;
}

template <typename T>
void twice(void* data, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) static_cast<T*>(data)[i] *= 2;
}

// The first of two ranks of which the other brings the same. Its functions use the run that they
// serve.
struct Transport : UserData {
  explicit Transport(Walk& its_walk) : walk(its_walk) {}
  Walk& walk;
  std::mutex mutex;          // while a function uses the run, nobody else destroys it
  etr_run* run = nullptr;    // null before it is known, and when it was destroyed
  int32_t fails_after = -1;  // calls; -1: never
  bool destroys_run = false, stops_run = false;
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int32_t> reductions{0};
  std::atomic<int> tables{0};  // that have not been destroyed

  void use_run() {
    const std::scoped_lock lock(mutex);
    if (!run) return;
    etr_event event{};
    event.struct_size = sizeof event;
    walk.call("etr_run_next_event", "in a transport", kState,
              [&] { return etr_run_next_event(run, &event); });
    if (stops_run)
      walk.call(
          "etr_run_stop", "in a transport", kOk, [&] { return etr_run_stop(run); }, true);
    if (destroys_run && std::this_thread::get_id() == caller)  // which is in a call on the run
      walk.call_void("etr_run_destroy", [&] { etr_run_destroy(std::exchange(run, nullptr)); });
  }
  static int32_t reduce(void* context, void* data, uint64_t count, int32_t number,
                        int32_t reduction, double, etr_engine_error* error) {
    auto& mine = *static_cast<Transport*>(context);
    mine.use_run();
    const int32_t done = mine.reductions++;
    if (mine.fails_after >= 0 && done >= mine.fails_after) {
      std::snprintf(error->message, sizeof error->message, "the wire is cut");
      return ETR_RANK_LOST;
    }
    if (reduction != ETR_REDUCE_SUM) return ETR_OK;
    if (number == ETR_NUMBER_F32) twice<float>(data, count);
    if (number == ETR_NUMBER_F64) twice<double>(data, count);
    if (number == ETR_NUMBER_I64) twice<int64_t>(data, count);
    return ETR_OK;
  }
  static void destroy_table(void* context) { --static_cast<Transport*>(context)->tables; }
  static int32_t split(void* context, int32_t, int32_t, double, etr_engine* part,
                       etr_engine_error*) {
    *part = static_cast<Transport*>(context)->table();
    return ETR_OK;
  }
  static int32_t gather(void*, const void* part, const uint64_t* sizes, void* data, double,
                        etr_engine_error*) {
    auto* const to = static_cast<char*>(data);
    std::memmove(to, part, sizes[0]);
    std::memmove(to + sizes[0], to, sizes[1]);
    return ETR_OK;
  }
  static int32_t broadcast(void*, void*, uint64_t, int32_t, double, etr_engine_error*) {
    return ETR_OK;
  }
  etr_engine table() {
    ++tables;
    etr_engine out{};
    out.struct_size = sizeof out;
    out.size = 2;
    out.context = this;
    out.all_reduce = reduce;
    out.all_gather = gather;
    out.broadcast = broadcast;
    out.split = split;
    out.abort = [](void*, const char*) {};
    out.destroy = destroy_table;
    return out;
  }
};

void start_with_engine(Walk& walk) {
  const auto job = parse_job(walk, false, false, 1, "");
  auto* const transport = walk.keep(std::make_unique<Transport>(walk));
  UserData::destroy(transport);  // the tables are counted instead
  transport->fails_after = static_cast<int32_t>(walk.random.between(-1, 20));
  transport->destroys_run = walk.random.one_in(4);
  transport->stops_run = walk.random.one_in(4);
  const etr_engine engine = transport->table();
  etr_run* const made = walk.made<etr_run>(
      "etr_run_start_with_engine", std::to_string(transport->fails_after), kOk | kRankLost,
      [&](etr_run** out) {
        return etr_run_start_with_engine(runtime_of(walk)->handle.get(), job->handle.get(),
                                         ETR_START_NEW, &engine, out);
      });
  if (made) {
    const auto shared_run = [&] {
      const std::scoped_lock lock(transport->mutex);
      return transport->run;
    };
    {
      const std::scoped_lock lock(transport->mutex);
      transport->run = made;
    }
    etr_event event{};
    event.struct_size = sizeof event;
    int32_t status = ETR_OK;
    for (int i = 0; i < 4 && status == ETR_OK; ++i) {
      etr_run* const run = shared_run();
      if (!run) break;
      status = walk.call("etr_run_next_event_within", "with a transport",
                         kOk | kEnd | kRankLost | kState | kCancelled,
                         [&] { return etr_run_next_event_within(run, 0.01, &event); });
    }
    etr_run* left = nullptr;
    {
      const std::scoped_lock lock(transport->mutex);
      left = std::exchange(transport->run, nullptr);
    }
    if (left) walk.call_void("etr_run_destroy", [&] { etr_run_destroy(left); });
  }
  walk.soon("the end of a transport", [&] { return transport->tables == 0; });
}

void advise(Walk& walk) {
  const auto job = parse_job(walk, false, false, 1, "");
  const double seconds = walk.random.of({0.005, 0.0, -1.0});
  const auto stops = [](void*, const char*) -> int32_t { return 0; };
  walk.text("etr_job_advise", std::to_string(seconds), seconds > 0 ? kCancelled : kInvalid,
            [&](char** out) {
              return etr_job_advise(runtime_of(walk)->handle.get(), job->handle.get(), seconds, 0,
                                    stops, nullptr, out);
            });
}

}  // namespace

std::string job_text(const Walk& walk, const std::string& more) {
  return R"({"pipeline": )" + row_stages(walk, "") +
         R"(, "model": {"layers": [{"layer": "dense", "units": 2}]},
      "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02}, )" +
         more + "}";
}

const std::vector<Step> kServiceSteps = {
    {2, start_server},   {10, use_server},       {1, work},
    {3, load_study},     {2, start_study},       {12, ask_study},
    {15, next_of_study}, {1, start_with_engine}, {1, advise}};

}  // namespace walk
