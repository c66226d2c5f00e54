package io.echotrain;

import io.echotrain.internal.EvalResult;
import io.echotrain.internal.StepResult;
import io.echotrain.internal.TrainerHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;

/** Trains a model on a Vulkan device. Used by one thread at a time: a call while another is in one fails with the code STATE. */
public final class Trainer implements AutoCloseable {
  /** A finished step. */
  public static final class Step {
    public final long step;
    public final int samples;
    public final double loss;
    public final double accuracy;
    public final double learningRate;

    Step(StepResult r) {
      step = r.getStep();
      samples = r.getSamples();
      loss = r.getLoss();
      accuracy = r.getAccuracy();
      learningRate = r.getLearning_rate();
    }
  }

  /** Means over an epoch. */
  public static final class Scores {
    public final double loss;
    public final double accuracy;

    Scores(double loss, double accuracy) {
      this.loss = loss;
      this.accuracy = accuracy;
    }
  }

  /** Told of each epoch that {@link #fit} finished. */
  @FunctionalInterface
  public interface EpochListener {
    /** {@code validation} is null where none was given or its evaluation was stopped. Returning false ends the run. */
    boolean onEpochEnd(int epoch, Scores training, Scores validation);
  }

  /** Told of each step that {@link #fit} finished, on its thread. */
  @FunctionalInterface
  public interface StepListener {
    /** {@code epoch} counts from 0. */
    void onStep(int epoch, Step step);
  }

  /** Told of each batch of an evaluation, on the thread that evaluates. It must not use the trainer. */
  @FunctionalInterface
  public interface EvaluationListener {
    /**
     * {@code batches} is how many there are, -1 where that is not known. The rest of an epoch that has begun is read past first,
     * and told with {@code done} 0. Returning false stops the evaluation: {@link
     * #evaluate} fails with the code CANCELLED then, and {@link #fit} goes on without that evaluation. What it throws is
     * thrown again.
     */
    boolean onEvaluation(long done, long batches);
  }

  private final TrainerHandle handle;
  private final Device device;
  private final String shown;
  private StepListener stepListener;
  private EvaluationListener evaluationListener;

  /** {@code totalSteps} is where decaying schedules end; 0: unknown. */
  public Trainer(Device device, Model model, Spec optimizer, Spec schedule, long seed, long totalSteps) {
    this.device = Objects.requireNonNull(device, "device");
    Objects.requireNonNull(model, "model");
    Objects.requireNonNull(optimizer, "optimizer");
    Objects.requireNonNull(schedule, "schedule");
    io.echotrain.internal.OptimizerHandle spec = new io.echotrain.internal.OptimizerHandle(
        optimizer.name(), optimizer.json(), schedule.json());
    try {
      handle = new TrainerHandle(device.handle, model.handle, spec, seed, totalSteps);
    } finally {
      spec.delete();
    }
    shown = "Trainer(" + model + ", " + optimizer + ", " + schedule + ", device=" + device.name() + ")";
    Natives.free(this, handle::delete);
  }

  /** With a constant learning rate. */
  public Trainer(Device device, Model model, Spec optimizer, double learningRate, long seed) {
    this(device, model, optimizer, Schedules.schedule(learningRate), seed, 0);
  }

  public Device device() { return device; }

  /** Starts a step on the fields "image" and "label"; returns while the device works. */
  public void step(Batch batch) {
    batch.with(fields -> {
      handle.step(fields);
      return null;
    });
  }

  /** The oldest finished step that was not asked for; null where there is none. */
  public Step result(boolean wait) {
    StepResult r = handle.result(wait);
    try {
      return r.getValid() ? new Step(r) : null;
    } finally {
      r.delete();
    }
  }

  /** Loss and accuracy over one whole epoch of a pipeline: where one has begun, the rest is read past, and the next is taken. */
  public Scores evaluate(Pipeline pipeline) {
    return runEvaluation(Objects.requireNonNull(pipeline, "pipeline"), evaluationListener);
  }

  private Scores runEvaluation(Pipeline pipeline, EvaluationListener listener) {
    try (Evaluation told = new Evaluation(listener)) {
      EvalResult r = told.run(progress -> handle.evaluate(pipeline.handle, progress));
      try {
        Evaluation.throwAgain(told.failure());
        return new Scores(r.getLoss(), r.getAccuracy());
      } finally {
        r.delete();
      }
    }
  }

  /** Who is told of the batches of {@link #evaluate}, also within {@link #fit}; null for nobody. */
  public void setEvaluationListener(EvaluationListener listener) { evaluationListener = listener; }

  /** The last layer's outputs for the field "image", as field "output": [N, outputs]. */
  public Batch predict(Batch batch) { return new Batch(batch.with(handle::predict), true); }

  /**
   * What a detector found, of the outputs of {@link #predict}: field "boxes", [N, most, 6] with label, left, top, right,
   * bottom (shares of the image) and score, the best first; the label is -1 in rows beyond those found.
   */
  public static Batch detections(Batch outputs, double leastScore, double mostOverlap, int most) {
    return new Batch(
        outputs.with(fields -> TrainerHandle.detections(fields, leastScore, mostOverlap, most)), true);
  }

  /** {@link #detections(Batch, double, double, int)} with scores from 0.5, overlaps to 0.45, 100 boxes at most. */
  public static Batch detections(Batch outputs) { return detections(outputs, 0.5, 0.45, 100); }

  /** Who is told of the steps of {@link #fit}, for progress; null for nobody. */
  public void setStepListener(StepListener listener) { stepListener = listener; }

  /** Trains on {@code epochs} epochs, at least one; returns the scores of each. */
  public List<Scores> fit(Pipeline pipeline, int epochs, Pipeline validation, EpochListener listener) {
    Objects.requireNonNull(pipeline, "pipeline");
    if (epochs < 1) throw new IllegalArgumentException("epochs is " + epochs + "; it must be at least 1");
    List<Scores> history = new ArrayList<>();
    for (int epoch = 0; epoch < epochs; ++epoch) {
      Scores training = fitEpoch(pipeline, epoch);
      history.add(training);
      Scores scores = validation == null ? null : validate(validation);
      if (listener != null && !listener.onEpochEnd(epoch, training, scores)) break;
    }
    return history;
  }

  // null where the listener stopped it.
  private Scores validate(Pipeline validation) {
    EvaluationListener listener = evaluationListener;
    if (listener == null) return runEvaluation(validation, null);
    AtomicBoolean stopped = new AtomicBoolean();
    try {
      return runEvaluation(validation, (done, batches) -> {
        stopped.set(!listener.onEvaluation(done, batches));
        return !stopped.get();
      });
    } catch (EchoTrainException error) {
      if (error.code() != EchoTrainException.Code.CANCELLED || !stopped.get()) throw error;  // as by Pipeline.cancel
    }
    return null;
  }

  private Scores fitEpoch(Pipeline pipeline, int epoch) {
    double[] sums = new double[3];  // samples, loss, accuracy
    for (Batch batch : pipeline) {
      step(batch);
      collect(sums, epoch, false);
    }
    collect(sums, epoch, true);
    if (sums[0] == 0) {
      throw new EchoTrainException(EchoTrainException.Code.STATE, "epoch " + (epoch + 1)
          + " gave no batch: there are fewer samples than a batch holds, or the pipeline's epochs are over",
          null);
    }
    return new Scores(sums[1] / sums[0], sums[2] / sums[0]);
  }

  private void collect(double[] sums, int epoch, boolean wait) {
    for (Step r = result(wait); r != null; r = result(wait)) {
      sums[0] += r.samples;
      sums[1] += r.samples * r.loss;
      sums[2] += r.samples * r.accuracy;
      if (stepListener != null) stepListener.onStep(epoch, r);
    }
  }

  /** All parameters and running statistics, as the fields of a batch: a copy. Needs a step or a prediction before. */
  public Batch weights() { return weights(""); }

  /** The one of that name, as "conv2d_1.weight". */
  public Batch weights(String name) { return new Batch(handle.weights(name), true); }

  /** Replaces those that {@code weights} has as fields; the optimizer's state stays. */
  public void setWeights(Batch weights) {
    weights.with(fields -> {
      handle.set_weights(fields);
      return null;
    });
  }

  /**
   * Changes one of the optimizer's ("momentum", "beta1", "beta2", "decay", "weight_decay") or the loss's ("label_smoothing")
   * from the next step on, at no cost. Checkpoints keep it.
   */
  public void setHyperparameter(String name, double value) { handle.set_hyperparameter(name, value); }

  /** Layers, shapes and parameters as a table. Needs a step or a prediction before. */
  public String summary() { return handle.summary("text"); }

  /** Weights, optimizer state and step count, in a new folder below {@code directory}. */
  public void save(String directory) { handle.save(directory); }

  /** Writes the model with its weights as an ONNX file, for other runtimes; images are [N, H, W, C] as here. */
  public void exportOnnx(String path) { handle.export_onnx(path); }

  /** The newest whole checkpoint below {@code directory}. */
  public void load(String directory) { handle.load(directory); }

  /**
   * Weights that PyTorch trained, to begin with: a safetensors file of a state_dict, before the first
   * batch. {@code names} is a JSON object that replaces beginnings of the model's names, "{}" for none.
   */
  public void loadPytorch(String path, String names) { handle.load_pytorch(path, names); }

  @Override
  public String toString() { return shown; }

  @Override
  public void close() { handle.close(); }
}
