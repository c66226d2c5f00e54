#include "train/rows.h"

#include "core/json.h"

namespace etr::train {

void write_step(RunFolder& folder, const StepMetrics& step, const Progress& progress) {
  const auto loss = static_cast<double>(step.loss), accuracy = static_cast<double>(step.accuracy),
             rate = static_cast<double>(step.learning_rate);
  Json row{{"kind", "step"},
           {"step", step.step},
           {"loss", loss},
           {"accuracy", accuracy},
           {"learning_rate", rate},
           {"seconds", progress.seconds()},
           {"examples", progress.examples()},
           {"fresh", progress.fresh()},
           {"busy_seconds", progress.busy_seconds()}};
  if (step.skipped) row["skipped"] = true;
  if (step.noise) {
    NoiseScale of_step;
    of_step.add(*step.noise);
    row["gradient_square"] = of_step.gradient_square();
    row["gradient_variance"] = of_step.variance();
    const auto scale = progress.noise().value();
    row["noise_scale"] = scale ? Json(*scale) : Json();
    if (scale) folder.write_scalars(step.step, {{"train/noise_scale", *scale}});
  }
  folder.write_row(row);
  folder.write_scalars(
      step.step,
      {{"train/loss", loss}, {"train/accuracy", accuracy}, {"train/learning_rate", rate}});
}

void write_evaluation(RunFolder& folder, const Event& event) {
  folder.write_row({{"kind", "evaluation"},
                    {"step", event.step},
                    {"epoch", event.epoch},
                    {"eval_loss", event.eval_loss},
                    {"eval_accuracy", event.eval_accuracy},
                    {"seconds", event.seconds},
                    {"examples", event.examples},
                    {"fresh", event.fresh},
                    {"echoed", event.echoed},
                    {"device_wait_share", event.device_wait_share}});
  folder.write_scalars(event.step, {{"eval/loss", event.eval_loss},
                                    {"eval/accuracy", event.eval_accuracy},
                                    {"device/wait_share", event.device_wait_share}});
}

}  // namespace etr::train
