// echotrain: the command line, a thin layer over the C API.
#include <cstdio>
#include <exception>

#include "cli.h"

namespace {

constexpr const char* kHelp = R"(echotrain: keeps accelerators busy while they train

  echotrain train JOB.json [--set key=value ...] [--resume] [--device D] [--kernels K] [--tuning FILE]
  echotrain eval JOB.json [--set key=value ...]        evaluate the newest checkpoint
  echotrain explain JOB.json [--set key=value ...] [--seconds S] [--step MS] [--svg FILE] [--trace FILE]
                                                       runs the job's pipeline alone and says what limits it
  echotrain profile JOB.json [--set key=value ...] [--steps N] [--trace FILE.json] [--json]
                                                       where a training step's time goes on the device
  echotrain tune JOB.json [--set key=value ...] [--seconds S] [--step MS] [--out tuned.json]
                                                       finds threads, connections and prefetching by trying
  echotrain tune-kernels JOB.json [--set key=value ...] [--out FILE.json]
                                                       finds the fastest kernels for the job's model on the device by
                                                       trying; kept for all later runs, or in FILE for --tuning FILE
  echotrain export JOB.json FILE.onnx [--set key=value ...]
                                                       the run's newest checkpoint as a model for other runtimes
  echotrain pack FOLDER PREFIX [--format fast] [--per-shard N] [--level L] [--seed S]
                                [--orientation stored]
                                                       FOLDER/CLASS/*.png into PREFIX-000000.tar.zst, or
                                                       into fast shards, PREFIX-000000.ets
  echotrain report NAME=metrics.jsonl ... [--out FILE] [--title T] [--target ACCURACY]
  echotrain devices                                    the Vulkan devices
  echotrain stages | layers | models | optimizers | job  what there is, with all options [--json]
  echotrain version

--device takes a number or part of a name from 'echotrain devices'; --kernels automatic, cpu, tiled or matrix.
--set changes any key of the job: --set train.epochs=3, --set pipeline.stages.4.factor=2; a bare key
sets a variable of the job: --set data=/path/to/shards.
)";

int run(const std::string& command, const std::vector<std::string>& words) {
  if (command == "train") return cli::command_train(words);
  if (command == "eval") return cli::command_eval(words);
  if (command == "export") return cli::command_export(words);
  if (command == "pack") return cli::command_pack(words);
  if (command == "explain") return cli::command_explain(words);
  if (command == "profile") return cli::command_profile(words);
  if (command == "tune") return cli::command_tune(words);
  if (command == "tune-kernels") return cli::command_tune_kernels(words);
  if (command == "report") return cli::command_report(words);
  if (command == "devices") return cli::command_devices(words);
  if (command == "stages" || command == "layers" || command == "models" ||
      command == "optimizers" || command == "job")
    return cli::command_schema(command, words);
  if (command == "version" || command == "--version") {
    std::printf("echotrain %s\n", etr_version());
    return 0;
  }
  if (command == "help" || command == "--help" || command == "-h") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  throw cli::Failure("unknown command '" + command + "'; see 'echotrain help'");
}

void print_log(void*, int32_t level, const char* message) {
  if (level >= ETR_LOG_WARNING) std::fprintf(stderr, "echotrain: %s\n", message);
}

}  // namespace

int main(int argc, char** argv) {
  etr_set_log_hook(print_log, nullptr, nullptr);
  if (argc < 2) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  try {
    return run(argv[1], std::vector<std::string>(argv + 2, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "echotrain: %s\n", error.what());
    return 1;
  }
}
