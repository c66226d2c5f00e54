package io.echotrain;

import io.echotrain.internal.EvalResult;
import io.echotrain.internal.JobHandle;
import io.echotrain.internal.RunHandle;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Objects;

/**
 * A job. {@code try (Job.Run run = job.run(device, Job.Start.NEW)) { for (Job.Event event : run)
 * ... }} runs it.
 */
public final class Job implements AutoCloseable {
  /** How a run begins. */
  public enum Start {
    /** From the beginning. A folder that holds an earlier run is an error (Code.STATE). */
    NEW,
    /** From the newest checkpoint. */
    RESUME,
    /**
     * From the beginning, in place of an earlier run, whose files are removed when the first step
     * is done.
     */
    OVERWRITE,
    /**
     * With the weights of the newest checkpoint, for {@link Run#evaluate} and {@link Run#trainer}.
     * The run has no events, and nothing is written.
     */
    EVALUATE,
    /** From the beginning, with nothing written, for {@link Run#profile}. */
    TRIAL
  }

  /**
   * The state of a run at one moment. Loss and accuracy are means over the steps since the previous
   * event.
   */
  public static final class Event {
    /** The kinds of events. */
    public enum Kind { PROGRESS, EVALUATION, CHECKPOINT, END }

    public final Kind kind;
    public final long step;
    public final long epoch;
    /**
     * The step at which {@code steps}, {@code epochs} or {@code fresh} of the job's section {@code
     * train} end the run (an estimate if samples are echoed), or the planned number of steps; 0:
     * unknown.
     */
    public final long totalSteps;
    /** Seconds of training, without evaluation, checkpoints and compiling in the first step. */
    public final double seconds;
    public final double loss;
    public final double accuracy;
    public final double learningRate;
    public final double examplesPerSecond;
    /** Share of the training time so far in which the device was idle. */
    public final double deviceWaitShare;
    /** Number of examples since the start of the run. */
    public final long examples;
    /** Number of fresh examples since the start of the run. */
    public final long fresh;
    /** Number of echoed examples since the start of the run. */
    public final long echoed;
    /** Number of distinct bad records, however often each was met. */
    public final long badRecords;
    /** The loss of the latest evaluation. */
    public final double evalLoss;
    /** The accuracy of the latest evaluation. */
    public final double evalAccuracy;
    /**
     * Whether an evaluation has reached {@code target_accuracy} or {@code target_loss} of the job's
     * section {@code evaluation}.
     */
    public final boolean targetReached;

    Event(io.echotrain.internal.Event e) {
      kind = Kind.values()[e.getKind()];
      step = e.getStep();
      epoch = e.getEpoch();
      totalSteps = e.getTotal_steps();
      seconds = e.getSeconds();
      loss = e.getLoss();
      accuracy = e.getAccuracy();
      learningRate = e.getLearning_rate();
      examplesPerSecond = e.getExamples_per_second();
      deviceWaitShare = e.getDevice_wait_share();
      examples = e.getExamples();
      fresh = e.getFresh();
      echoed = e.getEchoed();
      badRecords = e.getBad_records();
      evalLoss = e.getEval_loss();
      evalAccuracy = e.getEval_accuracy();
      targetReached = e.getTarget_reached();
    }
  }

  /**
   * A running job. It holds the folder {@code output.dir} until its last event or {@link #close}. A
   * loop that is left early does not close it: open it in a {@code try}. Any thread may call {@link
   * #stop} and {@code close}.
   *
   * <p>A run and its trainer serve one thread at a time, together: a call on one of them during a
   * call of another thread on either fails with the code STATE.
   */
  public static final class Run implements Iterable<Event>, AutoCloseable {
    private final RunHandle handle;
    private final Device device;
    private final LentTransport.Failures failures;
    private boolean closed;
    private Trainer trainer;
    private Trainer.EvaluationListener evaluationListener;

    Run(RunHandle handle, Device device, LentTransport.Failures failures) {
      this.handle = handle;
      this.device = device;
      this.failures = failures;
      Natives.free(handle, handle.release());
    }

    @Override
    public Iterator<Event> iterator() { return iterator(0); }

    /**
     * Returns the same events, at least every {@code seconds}; 0: as the job says. An evaluation, a
     * checkpoint or the first step may take longer.
     */
    public Iterable<Event> events(double seconds) { return () -> iterator(seconds); }

    private Iterator<Event> iterator(double seconds) {
      return new Iterator<Event>() {
        private boolean ended;
        private Throwable failure; // of the listener; thrown after the event that came with it

        @Override
        public boolean hasNext() { return !ended || failure != null; }

        @Override
        public Event next() {
          Throwable thrown = failure;
          failure = null;
          Reporting.throwAgain(thrown);
          if (ended) throw new NoSuchElementException("the run is over");
          Event event;
          try (Reporting told = new Reporting(evaluationListener)) {
            io.echotrain.internal.Event raw = failures.explained(
                () -> told.run(progress -> handle.next_event(seconds, progress)));
            try {
              event = new Event(raw);
            } finally {
              raw.delete();
            }
            failure = told.failure();
          }
          ended = event.kind == Event.Kind.END;
          return event;
        }
      };
    }

    /**
     * Sets the listener that is called for each batch of the run's evaluations; null removes it. If
     * it returns false, that evaluation stops and the run continues without it. An exception stops
     * it, too, and is thrown after the event that follows.
     */
    public void setEvaluationListener(Trainer.EvaluationListener listener) { evaluationListener = listener; }

    /**
     * Returns the run's trainer, to read and set weights and hyperparameters between two events, to
     * predict, evaluate, save and export. What is set takes effect in the run's next step. The run
     * makes its own steps: {@link Trainer#step}, {@link Trainer#fit} and the like fail with the code
     * STATE.
     *
     * <p>The trainer remains usable when the run is closed, if it was asked for before. Only if
     * several ranks trained together and had not reached the end, its calls fail then.
     */
    public synchronized Trainer trainer() {
      if (trainer == null) trainer = new Trainer(device, handle.trainer(), "the trainer of a job's run");
      return trainer;
    }

    /**
     * Evaluates the job's evaluation pipeline. If the listener or {@link #stop} ends it, this fails
     * with the code CANCELLED. An exception of the listener is thrown again.
     */
    public Trainer.Scores evaluate() {
      try (Reporting told = new Reporting(evaluationListener)) {
        EvalResult r = failures.explained(() -> told.run(handle::evaluate));
        try {
          Reporting.throwAgain(told.failure());
          return new Trainer.Scores(r.getSamples(), r.getLoss(), r.getAccuracy());
        } finally {
          r.delete();
        }
      }
    }

    /**
     * Measures where the time of a training step goes, over {@code steps} steps on a batch of the
     * job's pipeline. These steps train: begin the run with {@link Start#TRIAL}.
     *
     * @param format "text" (for people), "json" or "trace" (one step, for chrome://tracing)
     */
    public String profile(int steps, String format) {
      return failures.explained(() -> handle.profile(steps, format));
    }

    /**
     * Returns the statistics of the run's input pipeline as JSON, as {@link Pipeline#stats} does;
     * with several ranks also what this one has exchanged.
     */
    public String stats() { return handle.pipeline_stats(); }

    /**
     * Does the same as {@link Trainer#setHyperparameter}.
     *
     * @deprecated Use {@link #trainer}.
     */
    @Deprecated
    public void setHyperparameter(String name, double value) { trainer().setHyperparameter(name, value); }

    /** Asks the run to end soon and in order. Does nothing if it is closed. */
    public synchronized void stop() { if (!closed) handle.stop(); }

    /**
     * Ends the run and releases its folder. Progress since the newest checkpoint is
     * lost; to keep it, call {@link #stop} and read to the last event. A thread that is waiting for
     * an event gets it first.
     */
    @Override
    public void close() {
      synchronized (this) {
        stop();
        closed = true;
      }
      handle.close();  // without the monitor: it waits for the transport, whose methods may call stop()
    }
  }

  final JobHandle handle;
  private volatile boolean stopsAdvising;

  private Job(String text, boolean isJson, String... overrides) {
    Natives.load();
    handle = new JobHandle(text, isJson, overrides);
    Natives.free(handle, handle.release());
  }

  /** Reads a job file. {@code overrides} are strings "key=value". */
  public static Job load(String path, String... overrides) { return new Job(path, false, overrides); }

  public static Job parse(String json, String... overrides) { return new Job(json, true, overrides); }

  public String json() { return handle.json(); }

  /** Returns the folder that a run writes into; null if it writes nothing. */
  public String outputDir() {
    String folder = handle.output_dir();
    return folder.isEmpty() ? null : folder;
  }

  /**
   * Measures the job for a few seconds and advises, as JSON, whether echoing helps, where an echo
   * node should stand and with which factor, and what else would help first. The member "text" is
   * for people; "job" is the changed job. Writes nothing.
   *
   * @param seconds the length of each measurement
   * @param check whether to run both jobs in turns, too; "checked" then has the outcomes
   */
  public String advise(Device device, double seconds, boolean check) {
    return advise(device, seconds, check, null);
  }

  /**
   * Does the same.
   *
   * @param listener is called often, and told how often it was before, -1, and what is being done,
   *     or an empty text while that continues. Returning false ends the call with the code
   *     CANCELLED. null: nobody
   */
  public String advise(Device device, double seconds, boolean check, ProgressListener listener) {
    Objects.requireNonNull(device, "device");
    stopsAdvising = false;
    try (Reporting call = new Reporting((done, total, text) ->
             !stopsAdvising && (listener == null || listener.onProgress(done, total, text)))) {
      return call.run(progress -> handle.advise(device.handle, seconds, check, progress));
    }
  }

  /** Makes {@code advise} on another thread throw an exception of code CANCELLED. */
  public void stopAdvising() { stopsAdvising = true; }

  /** Releases the job's memory. Its runs remain usable. */
  @Override
  public void close() { handle.close(); }

  @Override
  public String toString() { return handle.is_closed() ? "Job(closed)" : "Job(" + json() + ")"; }

  /**
   * Runs the job. The folder {@code output.dir} holds one run. If a job file names none, it is
   * {@code runs/} and the stem of the file's name.
   */
  public Run run(Device device, Start start) {
    Objects.requireNonNull(device, "device");
    Objects.requireNonNull(start, "start");
    return new Run(new RunHandle(device.handle, handle, start.ordinal()), device, new LentTransport.Failures());
  }

  /**
   * Runs the job as one of several ranks, which all start at the same time, over a transport of the
   * program. The run then owns the transport.
   */
  public Run run(Device device, Start start, Transport transport) {
    Objects.requireNonNull(device, "device");
    Objects.requireNonNull(start, "start");
    Objects.requireNonNull(transport, "transport");
    LentTransport.Failures failures = new LentTransport.Failures();
    LentTransport lent = new LentTransport(transport, failures);
    lent.swigReleaseOwnership();  // the run now owns it
    return failures.explained(() -> new Run(
        new RunHandle(device.handle, handle, start.ordinal(), transport.rank(), transport.size(), lent), device, failures));
  }

  /** Runs the job with {@link Start#RESUME} or {@link Start#NEW}. */
  public Run run(Device device, boolean resume) { return run(device, resume ? Start.RESUME : Start.NEW); }
}
