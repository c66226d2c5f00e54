package io.echotrain;

import io.echotrain.internal.BatchHandle;
import io.echotrain.internal.Bindings;
import io.echotrain.internal.PipelineHandle;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Supplier;

/**
 * Stages from a source to batches.
 *
 * <pre>{@code
 * try (Pipeline pipeline = Pipeline.builder()
 *     .add(Stages.webdataset("train-*.tar.zst"), Stages.label().classes(10), Stages.decode())
 *     .add(Stages.echo(2), Stages.batch(128), Stages.normalize())
 *     .option("seed", 1).build()) {
 *   for (Batch batch : pipeline) { ... }   // one epoch
 * }
 * }</pre>
 *
 * One thread reads; any thread may call {@link #cancel}, {@link #stats} and {@link #badRecords}.
 */
public final class Pipeline implements AutoCloseable, Iterable<Batch> {
  final PipelineHandle handle;
  private final Failures failures;
  private final String shown;

  private Pipeline(PipelineHandle handle, Failures failures, String shown) {
    this.handle = handle;
    this.failures = failures;
    this.shown = shown;
    Natives.free(handle, handle.release());
  }

  /** The exceptions that a pipeline's functions threw. */
  private static final class Failures {
    private static final int KEPT = 64;  // under on_error "skip" there may be many, and nobody asks for them
    private final ConcurrentLinkedQueue<Map.Entry<String, Throwable>> kept = new ConcurrentLinkedQueue<>();

    /** Keeps the exception and returns the reason to report to the library. */
    String add(String name, Throwable failure) {
      String reason = Natives.passable(failure.toString());
      kept.add(Map.entry("the function '" + name + "' failed: " + reason, failure));
      if (kept.size() > KEPT) kept.poll();
      return reason;
    }

    /** Returns the exception that ended the run; null if it is no longer known. */
    Throwable original(EchoTrainException error) {
      // One reason may be a prefix of another: that of an exception without a message.
      return kept.stream().filter(entry -> error.getMessage().contains(entry.getKey()))
          .max(Comparator.comparingInt(entry -> entry.getKey().length())).map(Map.Entry::getValue).orElse(null);
    }
  }

  public static Builder builder() { return new Builder(); }

  /** Creates a pipeline from the JSON of a job's section "pipeline": "stages" and options. */
  public static Pipeline fromJson(String json) {
    Natives.load();
    return new Pipeline(PipelineHandle.from_json(json), new Failures(), "Pipeline(" + json + ")");
  }

  /** Collects stages and options; nothing is opened before {@link #build}. */
  public static final class Builder {
    private final Map<String, Object> options = new LinkedHashMap<>();
    private final List<Object> stages = new ArrayList<>();

    private static final class Function extends io.echotrain.internal.MapFunction {
      private final String name;
      private final MapFunction function;
      private final Failures failures;

      Function(String name, MapFunction function, Failures failures) {
        this.name = name;
        this.function = function;
        this.failures = failures;
      }

      @Override
      public String apply(BatchHandle item) {
        Batch view = new Batch(item, /*owned=*/false);
        try {
          function.apply(view);
          return "";
        } catch (Throwable error) {  // no exception may leave the callback
          return failures.add(name, error);
        } finally {
          view.expire();
        }
      }
    }

    private final List<String> names = new ArrayList<>();
    private boolean source;  // the first stage is a function

    private Builder() {}

    /** Sets an option of the job section "pipeline": threads, seed, epochs, on_error and so on. */
    public Builder option(String name, Object value) {
      options.put(Objects.requireNonNull(name, "name"), value);
      return this;
    }

    public Builder add(Spec... specs) {
      for (Spec spec : Objects.requireNonNull(specs, "specs")) {
        if (!Objects.requireNonNull(spec, "stage").kind().equals("stages")) {
          throw new IllegalArgumentException(
              spec.name() + " is not a stage, but one of the " + spec.kind());
        }
        stages.add(spec);
      }
      return this;
    }

    /** Appends a function as a stage; {@code name} stands for it in errors and saved positions. */
    public Builder map(String name, MapFunction function) {
      Objects.requireNonNull(name, "name");
      stages.add(Objects.requireNonNull(function, "function"));
      names.add(name);
      return this;
    }

    /**
     * Adds a function as the source, before any other stage. It sets the fields of one sample, or
     * none if the pass has no more. {@link Batch#ordinal} identifies the sample: bits 40 and up are
     * the pass, the lower bits the number in it. A pass without any sample is an error.
     */
    public Builder source(String name, MapFunction function) {
      if (!stages.isEmpty()) throw new IllegalStateException("a source is the first stage");
      map(name, function);
      source = true;
      return this;
    }

    /** Lists the stages with their options, and the options of the pipeline. */
    @Override
    public String toString() {
      List<String> shown = new ArrayList<>();
      Iterator<String> name = names.iterator();
      for (Object stage : stages) {
        boolean first = shown.isEmpty();
        shown.add(stage instanceof Spec ? stage.toString() : (source && first ? "source " : "map ") + name.next());
      }
      return "Pipeline(" + String.join(", ", shown) + (options.isEmpty() ? "" : "; " + Json.write(options)) + ")";
    }

    public Pipeline build() {
      Natives.load();
      Failures failures = new Failures();
      PipelineHandle handle = new PipelineHandle(Json.write(options));
      Pipeline pipeline = new Pipeline(handle, failures, toString());
      Iterator<String> next = names.iterator();
      for (int i = 0; i < stages.size(); ++i) {
        Object stage = stages.get(i);
        if (stage instanceof Spec) {
          handle.add(((Spec) stage).name(), ((Spec) stage).json());
        } else {
          String name = next.next();
          Bindings.check_name(name);  // nobody would free the function of a call that is not made
          Function function = new Function(name, (MapFunction) stage, failures);
          function.swigReleaseOwnership();  // the pipeline now owns it
          if (source && i == 0) handle.add_source(name, function);
          else handle.add_map(name, function);
        }
      }
      return pipeline;
    }
  }

  /** Waits for the next batch and returns it; null at the end of an epoch. The caller closes it. */
  public Batch next() {
    BatchHandle batch = explained(handle::next);
    return batch == null ? null : new Batch(batch, true);
  }

  /**
   * Returns the result of {@code call}, which reads the pipeline. If a function of the pipeline ended
   * it, its exception becomes the cause of the error.
   */
  <T> T explained(Supplier<T> call) {
    try {
      return call.get();
    } catch (EchoTrainException error) {
      if (error.code() != EchoTrainException.Code.CALLBACK) throw error;
      Throwable failure = failures.original(error);
      if (failure == null) throw error;
      throw new EchoTrainException(error.code(), error.getMessage(), failure);
    }
  }

  /** Returns the batches of one epoch. Each is closed when the next one is requested. */
  @Override
  public Iterator<Batch> iterator() {
    return new Iterator<Batch>() {
      private Batch current;
      private Batch ahead;
      private boolean ended;

      @Override
      public boolean hasNext() {
        if (ahead != null) return true;
        if (ended) return false;
        if (current != null) current.close();
        current = null;
        ahead = Pipeline.this.next();
        ended = ahead == null;
        return !ended;
      }

      @Override
      public Batch next() {
        if (!hasNext()) throw new NoSuchElementException("the epoch is over");
        current = ahead;
        ahead = null;
        return current;
      }
    };
  }

  /**
   * Returns the number of batches in an epoch, provided that no record is dropped. Empty if it is
   * not known: for shards before their first pass is over, for endless epochs, and for echo on
   * demand.
   */
  public OptionalLong length() {
    long length = handle.length();
    return length < 0 ? OptionalLong.empty() : OptionalLong.of(length);
  }

  /** Stops all work; a thread that is waiting for a batch gets an exception of code CANCELLED. */
  public void cancel() { handle.cancel(); }

  /** Returns statistics of the stages and the consumer as JSON. */
  public String stats() { return handle.stats(); }

  /**
   * Explains the speed of a pipeline that has run for a while: rates, loads, the bottleneck, and
   * what more threads, a cache or an echo stage would gain.
   *
   * @param format "text", "svg" (a drawing) or "json"
   */
  public String explain(String format) { return handle.explain(format); }

  /** Returns what each thread did when, as a Chrome trace. Needs the option "trace_events". */
  public String trace() { return handle.trace(); }

  /** Returns the records that on_error "skip" or "quarantine" dropped, as JSON. */
  public String badRecords() { return handle.bad_records(); }

  /** Returns the position after the last batch that was read, as JSON. */
  public String save() { return handle.save(); }

  /**
   * Continues where a pipeline of the same stages was saved. Call it once, before the first batch.
   */
  public void restore(String state) { handle.restore(state); }

  @Override
  public String toString() { return shown; }

  @Override
  public void close() { handle.close(); }
}
