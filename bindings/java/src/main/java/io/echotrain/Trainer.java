package io.echotrain;

import io.echotrain.internal.EvalResult;
import io.echotrain.internal.StepResult;
import io.echotrain.internal.TrainerHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Trains a model on a Vulkan device, in a training loop of the program's own; {@link
 * Job.Run#trainer} is the one that a job's run trains. A trainer serves one thread at a time: a call
 * during a call of another thread fails with the code STATE.
 */
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

  /** Mean loss and accuracy over an epoch. */
  public static final class Scores {
    /** Number of samples over which the means are taken. */
    public final long samples;
    public final double loss;
    public final double accuracy;

    Scores(long samples, double loss, double accuracy) {
      this.samples = samples;
      this.loss = loss;
      this.accuracy = accuracy;
    }
  }

  /** Is called after each epoch of {@link #fit}. */
  @FunctionalInterface
  public interface EpochListener {
    /**
     * {@code validation} is null if none was given or its evaluation was stopped. Returning false
     * ends the run.
     */
    boolean onEpochEnd(int epoch, Scores training, Scores validation);
  }

  /** Is called for each finished step of {@link #fit}, on its thread. */
  @FunctionalInterface
  public interface StepListener {
    /** {@code epoch} counts from 0. */
    void onStep(int epoch, Step step);
  }

  /**
   * Is called after each batch of an evaluation, on the thread that evaluates. It must not use the
   * trainer.
   */
  @FunctionalInterface
  public interface EvaluationListener extends ProgressListener {
    /**
     * {@code batches} is the number of batches, or -1 if it is not known. While the rest of an
     * epoch that has begun is skipped, {@code done} is 0. Returning false stops the evaluation:
     * {@link #evaluate} then fails with the code CANCELLED, and {@link #fit} continues without that
     * evaluation. An exception of the listener is thrown again.
     */
    boolean onEvaluation(long done, long batches);

    /** Calls {@link #onEvaluation}. */
    @Override
    default boolean onProgress(long done, long batches, String text) { return onEvaluation(done, batches); }
  }

  private final TrainerHandle handle;
  private final Device device;
  private final String shown;
  private StepListener stepListener;
  private EvaluationListener evaluationListener;

  /** {@code totalSteps} is the step at which decaying schedules end; 0: unknown. */
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
    Natives.free(handle, handle.release());
  }

  /** The trainer of a run. */
  Trainer(Device device, TrainerHandle handle, String shown) {
    this.device = device;
    this.handle = handle;
    this.shown = shown;
    Natives.free(handle, handle.release());
  }

  /** Creates a trainer with a constant learning rate. */
  public Trainer(Device device, Model model, Spec optimizer, double learningRate, long seed) {
    this(device, model, optimizer, Schedules.schedule(learningRate), seed, 0);
  }

  public Device device() { return device; }

  /**
   * Starts a step on a batch (by default with the fields "image" and "label") and returns while the
   * device works.
   *
   * <p>Take the results inside of the loop, with {@link #result}: a loss or gradient that is not
   * finite is reported only there, and until then later steps change nothing.
   */
  public void step(Batch batch) {
    Objects.requireNonNull(batch, "batch").with(fields -> {
      handle.step(fields);
      return null;
    });
  }

  /** Returns the oldest finished step that has not been returned yet; null if there is none. */
  public Step result(boolean wait) {
    StepResult r = handle.result(wait);
    try {
      return r.getValid() ? new Step(r) : null;
    } finally {
      r.delete();
    }
  }

  /**
   * Runs the model in training mode and returns the outputs of the last layer as the field
   * "output". With {@link #backward} and {@link #update} this makes a step pass by pass, instead of
   * {@link #step}: for a loss that the program computes, or for models whose gradients flow into
   * each other.
   */
  public Batch forward(Batch batch) { return forward(batch, false); }

  /**
   * Does the same; with {@code inputGradients}, {@link #backwardToInputs} can return the gradients
   * of the inputs.
   */
  public Batch forward(Batch batch, boolean inputGradients) {
    Objects.requireNonNull(batch, "batch");
    return new Batch(batch.with(fields -> handle.forward(fields, inputGradients)), true);
  }

  /**
   * Computes the gradients of the parameters from the gradient of the loss with respect to the
   * latest output: the field "output", in the same shape. Call it once per {@link #forward}, before
   * the weights change. The gradients replace those since the last update; with {@code
   * accumulate}, they are added to them.
   */
  public void backward(Batch outputGradient, boolean accumulate) {
    Objects.requireNonNull(outputGradient, "outputGradient").with(fields -> {
      handle.backward(fields, accumulate);
      return null;
    });
  }

  /** Calls {@link #backward(Batch, boolean)} without {@code accumulate}. */
  public void backward(Batch outputGradient) { backward(outputGradient, false); }

  /**
   * Does the same as {@link #backward} after {@link #forward} with {@code inputGradients}, and
   * returns the gradients of the inputs by their names.
   */
  public Batch backwardToInputs(Batch outputGradient, boolean accumulate) {
    Objects.requireNonNull(outputGradient, "outputGradient");
    return new Batch(outputGradient.with(fields -> handle.backward_to_inputs(fields, accumulate)), true);
  }

  /**
   * Updates the weights with the gradients since the last update. The result has no loss and no
   * accuracy: they are NaN.
   */
  public Step update() {
    StepResult r = handle.update();
    try {
      return new Step(r);
    } finally {
      r.delete();
    }
  }

  /** Returns a copy of the gradients since the last update by the names of the parameters. */
  public Batch gradients() { return gradients(""); }

  /** Returns the gradient of the parameter of that name, such as "conv2d_1.weight". */
  public Batch gradients(String name) { return new Batch(handle.gradients(name), true); }

  /** Replaces the gradients that are fields of {@code gradients}. */
  public void setGradients(Batch gradients) {
    Objects.requireNonNull(gradients, "gradients").with(fields -> {
      handle.set_gradients(fields);
      return null;
    });
  }

  /**
   * Evaluates one whole epoch of a pipeline. If an epoch has begun, its rest is skipped and the
   * next one is evaluated.
   */
  public Scores evaluate(Pipeline pipeline) {
    return runEvaluation(Objects.requireNonNull(pipeline, "pipeline"), evaluationListener);
  }

  private Scores runEvaluation(Pipeline pipeline, EvaluationListener listener) {
    try (Reporting told = new Reporting(listener)) {
      EvalResult r = told.run(
          progress -> pipeline.explained(() -> handle.evaluate(pipeline.handle, progress)));
      try {
        Reporting.throwAgain(told.failure());
        return new Scores(r.getSamples(), r.getLoss(), r.getAccuracy());
      } finally {
        r.delete();
      }
    }
  }

  /**
   * Sets the listener for the batches of {@link #evaluate}, also within {@link #fit}; null removes
   * it.
   */
  public void setEvaluationListener(EvaluationListener listener) { evaluationListener = listener; }

  /** Returns the outputs of the last layer for a batch as the field "output": [N, outputs]. */
  public Batch predict(Batch batch) {
    return new Batch(Objects.requireNonNull(batch, "batch").with(handle::predict), true);
  }

  /**
   * Decodes the outputs of a detector, as returned by {@link #predict}, into the field "boxes": [N,
   * maxDetections, 6] with label, left, top, right, bottom (shares of the image) and score, the best first.
   * Unused rows have the label -1.
   */
  public static Batch detections(Batch outputs, double scoreThreshold, double iouThreshold, int maxDetections) {
    Objects.requireNonNull(outputs, "outputs");
    return new Batch(
        outputs.with(fields -> TrainerHandle.detections(fields, scoreThreshold, iouThreshold, maxDetections)), true);
  }

  /**
   * Calls {@link #detections(Batch, double, double, int)} with scores from 0.5, overlaps up to
   * 0.45, at most 100 boxes.
   */
  public static Batch detections(Batch outputs) { return detections(outputs, 0.5, 0.45, 100); }

  /** Sets the listener for the steps of {@link #fit}, for progress; null removes it. */
  public void setStepListener(StepListener listener) { stepListener = listener; }

  /** Trains for {@code epochs} epochs, at least one, and returns the scores of each. */
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

  // Returns null if the listener stopped it.
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
      if (error.code() != EchoTrainException.Code.CANCELLED || !stopped.get()) throw error;  // by Pipeline.cancel
    }
    return null;
  }

  private Scores fitEpoch(Pipeline pipeline, int epoch) {
    double[] sums = new double[3];  // samples, loss, accuracy
    try {
      for (Batch batch : pipeline) {
        step(batch);
        collect(sums, epoch, false);
      }
      collect(sums, epoch, true);
    } catch (Throwable failure) {
      // The next call's first result is then its own.
      try {
        while (result(true) != null) {}
      } catch (EchoTrainException another) {
        failure.addSuppressed(another);
      }
      throw failure;
    }
    if (sums[0] == 0) {
      throw new EchoTrainException(EchoTrainException.Code.STATE, "epoch " + (epoch + 1)
          + " gave no batch: there are fewer samples than a batch holds, or the pipeline's epochs are over",
          null);
    }
    return new Scores((long) sums[0], sums[1] / sums[0], sums[2] / sums[0]);
  }

  private void collect(double[] sums, int epoch, boolean wait) {
    for (Step r = result(wait); r != null; r = result(wait)) {
      sums[0] += r.samples;
      sums[1] += r.samples * r.loss;
      sums[2] += r.samples * r.accuracy;
      if (stepListener != null) stepListener.onStep(epoch, r);
    }
  }

  /**
   * Returns a copy of all parameters and running statistics as fields of a batch. Needs a step or a
   * prediction first.
   */
  public Batch weights() { return weights(""); }

  /** Returns the weight of that name, such as "conv2d_1.weight". */
  public Batch weights(String name) { return new Batch(handle.weights(name), true); }

  /** Replaces the weights that are fields of {@code weights}. The optimizer's state is kept. */
  public void setWeights(Batch weights) {
    Objects.requireNonNull(weights, "weights").with(fields -> {
      handle.set_weights(fields);
      return null;
    });
  }

  /**
   * Changes a hyperparameter of the optimizer ("momentum", "beta1", "beta2", "decay",
   * "weight_decay") or the loss ("label_smoothing") from the next step on, at no cost. Checkpoints
   * keep the value.
   */
  public void setHyperparameter(String name, double value) { handle.set_hyperparameter(name, value); }

  /** Returns layers, shapes and parameters as a table. Needs a step or a prediction first. */
  public String summary() { return handle.summary("text"); }

  /**
   * Measures where the time of a training step on {@code batch} goes, over {@code steps} steps,
   * which train.
   *
   * @param format "text" (for people), "json" or "trace" (one step, for chrome://tracing)
   */
  public String profile(Batch batch, int steps, String format) {
    return Objects.requireNonNull(batch, "batch").with(fields -> handle.profile(fields, steps, format));
  }

  /**
   * Saves a checkpoint in a new folder below {@code directory}: weights, optimizer state and step
   * count.
   */
  public void save(String directory) { handle.save(directory); }

  /**
   * Exports the model with its weights as an ONNX file, for other runtimes; images are [N, H, W, C]
   * as here.
   */
  public void exportOnnx(String path) { handle.export_onnx(path); }

  /** Loads the newest intact checkpoint below {@code directory}. */
  public void load(String directory) { handle.load(directory); }

  /**
   * Loads initial weights that PyTorch trained: a safetensors file of a state_dict. Call it before
   * the first batch. {@code names} is a JSON object that maps prefixes of the model's names to
   * those in the file; "{}" for none.
   */
  public void loadPytorch(String path, String names) { handle.load_pytorch(path, names); }

  @Override
  public String toString() { return shown; }

  @Override
  public void close() { handle.close(); }
}
