#include "commands.h"

#include <algorithm>

#include "cli.h"

namespace cli {
namespace {

constexpr Option kSet{
    "set", "KEY=VALUE",
    "changes a key of the job (train.epochs=3, pipeline.stages.4.factor=2) or sets one of its "
    "variables (data=/path/to/shards); can be given several times"};
constexpr Option kDevice{"device", "DEVICE",
                         "index or part of the name of a device, see 'echotrain devices'"};
constexpr Option kKernels{"kernels", "automatic|cpu|tiled|matrix", "family of kernels"};
constexpr Option kTuning{"tuning", "FILE",
                         "kernel choices that 'tune-kernels --out FILE' has measured"};
constexpr Option kResume{"resume", "", "continue from the newest checkpoint, bit for bit"};
constexpr Option kReplaceRun{"overwrite", "", "start a new run and replace the one in output.dir"};
constexpr Option kValidation{"validation-layer", "", "run with the Vulkan validation layers", 0,
                             "validation"};
constexpr Option kStep{"step-ms", "MS",
                       "time of a training step in milliseconds; the consumer waits this long for "
                       "each batch. Default: 0",
                       0, "step"};
constexpr Option kJson{"json", "", "print JSON"};

std::vector<Option> job_options(std::vector<Option> more = {}) {
  std::vector<Option> out = {kSet, kDevice, kKernels, kTuning};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

const std::vector<Command> kCommands = {
    {"demo",
     "[FOLDER]",
     "shows on generated data what an echo node does, in about two minutes on two idle cores",
     "The demo generates a data set of digits, limits reading to a quarter of the training speed, "
     "as a slow network would, and trains a small network to 93 % test accuracy, without and with "
     "an echo node. FOLDER (default: echotrain-demo) keeps the data, the runs and report.html; "
     "running the demo again replaces the runs.\n\n"
     "How soon a run reaches the target varies from seed to seed. With --seeds 3, each run is "
     "repeated with three seeds, and the table shows medians.",
     {{"seeds", "N", "number of seeds for each of the two runs. Default: 1"},
      {"seconds", "S",
       "time limit of each run. Default: 90, or the time of 200 steps on a slow device"},
      kDevice,
      kKernels,
      kTuning},
     command_demo},
    {"init",
     "FOLDER [JOB.json]",
     "writes a job that trains on a folder of images or of shards",
     "FOLDER holds a folder for each class (FOLDER/cat/1.jpg), or such folders below train/ and "
     "validation/, or the shards and classes.txt that 'pack' wrote. The command counts the classes "
     "and decodes up to 1000 images of each set. The job gets a model that suits their size, "
     "augmentation and an evaluation. Files that are damaged or not images are named, and the job "
     "leaves them out. Without a validation set, every tenth image of each class is held out for "
     "validation; shards need a validation set of their own ('pack --validation 0.1', or shards "
     "named validation-*, valid-*, val-* or test-* beside train-*; NAME-test-* goes with "
     "NAME-train-*).\n\n"
     "The job is a JSON file (default: job.json) that you are meant to edit.",
     {{"epochs", "N", "epochs to train. Default: 20"},
      {"overwrite", "", "replace an existing job file"}},
     command_init},
    {"train", "JOB.json",
     "trains a model and writes metrics and checkpoints into the job's output.dir",
     "The job says how long a run is, and everything else; --set changes it for this run (--set "
     "train.epochs=3).\n\n"
     "Relative paths in a job are relative to the folder in which the command runs, not to the job "
     "file's.\n\n"
     "Ctrl-C ends the run in an orderly way, with a checkpoint and exit status 130; a second "
     "Ctrl-C ends it at once.",
     job_options({kResume, kReplaceRun, kValidation}), command_train},
    {"launch", "JOB.json", "trains a job on several ranks of this machine, one process each",
     "Each rank processes its part of every batch, and all ranks update their weights with the "
     "mean of the gradients: N ranks with a batch of B train like one with a batch of N B. The job "
     "need not be changed. To train on several machines, start the ranks with mpirun, torchrun or "
     "srun; the job's section 'parallel' says how they find each other.\n\n"
     "The first rank shows the progress and writes output.dir; lines that other ranks write to "
     "standard error are prefixed with 'rank N:'. When one rank fails, all end; with --set "
     "parallel.elastic=true the others continue from the newest checkpoint.\n\n"
     "With a parameter server (--servers, or parallel.algorithm) the ranks are its workers: when "
     "one fails, the others continue.\n\n"
     "  echotrain launch -n 2 job.json --device 0 --device 1\n"
     "  echotrain launch -n 4 job.json --set parallel.mesh.pipeline=2\n"
     "  echotrain launch -n 2 job.json --set parallel.zero_stage=1\n"
     "  echotrain launch -n 4 job.json --restarts 3 --set parallel.elastic=true\n"
     "  echotrain launch -n 3 job.json --servers 2\n\n"
     "'echotrain job parallel' prints all options of the section. If --device is given several "
     "times, rank r uses the r-th device; if there are more ranks than devices, it starts again "
     "with the first.",
     job_options({{"ranks", "N", "number of ranks that train together", 'n'},
                  {"restarts", "N",
                   "for an elastic run (parallel.elastic): restart ranks that fail, up to N times "
                   "in all; a restarted rank joins the others at the end of an epoch. Default: 0"},
                  {"servers", "N", "number of shards of a parameter server to start as well"},
                  kResume,
                  kReplaceRun,
                  kValidation}),
     command_launch},
    {"parameter-server",
     "JOB.json",
     "serves one shard of the job's parameter server",
     "A parameter server consists of parallel.servers shards, one process each, each of which "
     "holds a part of the parameters. In the job, parallel.algorithm is downpour or easgd, and "
     "parallel.rendezvous says where shards and workers meet: file:FOLDER, or tcp://HOST:PORT of "
     "the machine of shard 0. Workers are started by 'echotrain train' with the same job, in any "
     "order and at any time; 'echotrain launch --servers' starts everything on one machine.\n\n"
     "The shard reports which workers join and leave, and ends when the last worker has finished. "
     "If no worker comes for parallel.timeout seconds, it ends with an error.",
     {kSet, {"shard", "N", "index of this shard, 0 to parallel.servers - 1. Default: 0"}},
     command_parameter_server,
     "serve"},
    {"eval", "JOB.json", "evaluates the newest checkpoint", "", job_options({kValidation}),
     command_eval},
    {"predict", "JOB.json FILE...",
     "classifies images with the trained model and prints probabilities",
     "A FILE may be a folder, of which all PNG and JPEG images are used, sub-folders included. "
     "Images pass through the stages of the job's evaluation. If the job has none, they pass "
     "through those stages of its training that are not random, with a center crop in place of a "
     "random crop.",
     job_options({{"top", "N", "number of classes to print for each image. Default: 3"}, kJson}),
     command_predict},
    {"pack",
     "FOLDER PREFIX",
     "packs the images FOLDER/CLASS/NAME, PNG or JPEG, into shards named PREFIX-*",
     "The shards are named PREFIX-000000.tar.zst and so on. Samples are shuffled over all shards "
     "and keep their names: the key is CLASS/NAME. The names of the classes are written to "
     "classes.txt in the shards' folder; if that file exists, its order is used, so that the class "
     "numbers of a training and a test set agree. Files that are not PNG or JPEG images are left "
     "out and reported. PREFIX must not lie in FOLDER, whose sub-folders are the classes.",
     {{"format", "webdataset|fast",
       "tar archives, or fast shards (.ets), whose images decode 1.7 to 3.8 times as fast as PNGs"},
      {"validation", "SHARE",
       "fraction of each class to hold out for validation, in shards named validation-* in the "
       "same folder"},
      {"per-shard", "N", "samples in each shard. Default: 1000"},
      {"level", "L", "compression level of zstd, 0 to 19; 0: plain .tar. Default: 3"},
      {"seed", "N", "seed of the samples' order"},
      {"orientation", "exif|stored",
       "for PNGs in fast shards: rotate them as their EXIF data says (the default), or not"},
      {"overwrite", "", "replace existing shards with this prefix"}},
     command_pack},
    {"explain",
     "JOB.json",
     "runs only the job's pipeline and reports what limits it",
     "",
     {kSet,
      {"seconds", "S", "how long the pipeline runs. Default: 5"},
      kStep,
      {"svg", "FILE", "draw the pipeline, coloured by load"},
      {"trace", "FILE", "write a Chrome trace of the work of each thread"},
      kJson},
     command_explain},
    {"advise", "JOB.json",
     "says whether and where echoing helps the job, how much, and what helps first",
     "The command runs only the pipeline, then training steps on batches that are already in "
     "memory. For an echo node after each stage, it predicts how fast the job would be and what "
     "its repeats would be worth. Apart from the file of --apply, it writes nothing; caches of "
     "the pipeline on disk are filled as in a run.\n\n"
     "  echotrain advise job.json --check\n"
     "  echotrain advise job.json --apply changed.json && echotrain train changed.json",
     job_options(
         {{"seconds", "S", "duration of each measurement. Default: 3"},
          {"apply", "FILE", "write the job with the recommended echo node and number of threads"},
          {"overwrite", "", "replace the file of --apply if it exists"},
          {"check", "",
           "run the job and the changed job in turns and compare the outcome with the prediction"},
          kJson}),
     command_advise},
    {"tune-pipeline",
     "JOB.json",
     "finds the best numbers of threads, connections and prefetched batches by trying",
     "",
     {kSet,
      {"seconds", "S", "duration of each trial. Default: 2"},
      kStep,
      {"out", "FILE", "file for the settings. Default: tuned.json"}},
     command_tune_pipeline,
     "tune"},
    {"profile", "JOB.json", "reports where a training step spends its time on the device", "",
     job_options({{"steps", "N", "number of steps to measure. Default: 10"},
                  {"trace", "FILE", "write a step as a Chrome trace"},
                  kJson}),
     command_profile},
    {"tune-kernels", "JOB.json",
     "finds the fastest kernels for the job's model on the device by trying",
     "Later runs use the result automatically. With --out, it is only written to FILE, for use "
     "with --tuning FILE.",
     job_options({{"out", "FILE", "file for the result"}}), command_tune_kernels},
    {"export", "JOB.json FILE.onnx", "writes the newest checkpoint as an ONNX model", "",
     job_options(), command_export},
    {"report",
     "RUN...",
     "compares runs in one HTML file",
     "A RUN is the folder of a run or its metrics.jsonl, and is named after the folder; NAME=RUN "
     "gives it another name. Runs with the same name are repetitions and share a row.",
     {{"out", "FILE", "file for the report. Default: report.html"},
      {"title", "TEXT", "title of the report"},
      {"target", "ACCURACY", "target accuracy of the runs, 0 to 1"}},
     command_report},
    {"study", "STUDY.json",
     "runs many trials of a job, searches hyperparameters for each condition, and compares the "
     "conditions",
     "A study names a job, the conditions to compare (values of the job's keys), and a space of "
     "hyperparameters that is searched separately for each condition. Each trial is a run of the "
     "job that ends when an evaluation reaches the target or the budget is spent. docs/studies.md "
     "describes the file.\n\n"
     "Every finished trial is kept in the study's folder. The same command continues a study that "
     "was interrupted or killed. It also runs the trials, searches and conditions that you have "
     "added to the file since. Ctrl-C ends the study within a moment, with exit status 130; trials "
     "that were running then start again from the beginning.\n\n"
     "  echotrain study study.json --set data=shards --plan\n"
     "  echotrain study study.json --set data=shards\n"
     "  echotrain study study.json --report",
     job_options(
         {{"out", "FOLDER",
           "folder for the results. Default: runs/studies/STEM, where STEM is the file's name"},
          {"overwrite", "",
           "run all trials again; the contents of the folder are moved to its sub-folder "
           "'replaced'"},
          {"parallel", "N",
           "number of trials that run at once; 0: as many as the device has room for. Default: the "
           "study's own setting"},
          {"plan", "", "train nothing: print the conditions, their trials, and what each changes"},
          {"report", "",
           "train nothing: print the results of the trials so far, and write the report"},
          kValidation}),
     command_study},
    {"devices", "", "lists the Vulkan devices", "", {}, command_devices},
    {"stages",
     "[NAME...]",
     "prints the stages of pipelines, or only the named ones, with all options",
     "",
     {kJson},
     command_schema},
    {"layers",
     "[NAME...]",
     "prints the layers of models with all options",
     "",
     {kJson},
     command_schema},
    {"models",
     "[NAME...]",
     "prints the ready-made models with all options",
     "",
     {kJson},
     command_schema},
    {"optimizers",
     "[NAME...]",
     "prints the optimizers with all options",
     "",
     {kJson},
     command_schema},
    {"job",
     "[KEY...]",
     "prints the keys of a job's sections; a KEY is, for example, 'train' or 'train.steps'",
     "",
     {kJson},
     command_schema},
    {"completion",
     "bash|zsh|fish",
     "prints the completion script for a shell",
     "An installation of EchoTrain includes these scripts. Otherwise: source <(echotrain "
     "completion bash)",
     {},
     command_completion},
    {"manual", "", "prints the manual page, for 'man'", "", {}, command_manual},
    {"version", "", "prints the version", "", {}, command_version},
    {"help", "[COMMAND]", "prints this help, or that of a command", "", {}, command_help},
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

const std::vector<Command>& commands() { return kCommands; }

const Command& find_command(const std::string& name) {
  std::vector<std::string> known;
  for (const Command& command : commands()) {
    if (name == command.name) return command;
    if (*command.former && name == command.former) {
      tell_new_name(name, command.name);
      return command;
    }
    known.push_back(command.name);
  }
  throw UsageError("unknown command '" + name + "'" + suggestion(name, known) +
                   "; see 'echotrain help'");
}

size_t least_operands(const Command& command) {
  const auto words = split(command.operands, ' ');
  return static_cast<size_t>(std::count_if(words.begin(), words.end(),
                                           [](const std::string& word) { return word[0] != '['; }));
}

size_t most_operands(const Command& command) {
  const std::string operands = command.operands;
  return operands.find("...") != std::string::npos ? SIZE_MAX : split(operands, ' ').size();
}

std::vector<std::string> choices_of(const std::string& value) {
  if (value.find('|') == std::string::npos) return {};
  return split(value, '|');
}

}  // namespace cli
