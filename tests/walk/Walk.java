import io.echotrain.Batch;
import io.echotrain.DType;
import io.echotrain.Device;
import io.echotrain.EchoTrainException;
import io.echotrain.EchoTrainException.Code;
import io.echotrain.Job;
import io.echotrain.Layers;
import io.echotrain.Library;
import io.echotrain.MapFunction;
import io.echotrain.Model;
import io.echotrain.Models;
import io.echotrain.Optimizers;
import io.echotrain.Pipeline;
import io.echotrain.ProgressListener;
import io.echotrain.Schedules;
import io.echotrain.Server;
import io.echotrain.Spec;
import io.echotrain.Stages;
import io.echotrain.Study;
import io.echotrain.Trainer;
import io.echotrain.Transport;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.ref.WeakReference;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Stream;

/**
 * Walks at random over the Java binding, as tests/walk/main.cpp does over the C API.
 *
 * <p>{@code Walk [--calls 10000] [--seed 1] [--within 10] [--patience 120] [--trace FILE]}
 *
 * <p>An object may be closed at any time and used after that, and another thread may be using it. Each call succeeds or
 * throws what the binding promises; a call on a closed object fails; nothing hangs; and no thread, open file or function
 * of the program is left whenever everything has been closed. {@code --within} is how long in seconds what is promised
 * soon may take, {@code --patience} how long any call; {@code --trace} writes each call to a file as it begins, for the
 * case that the JVM crashes.
 */
public final class Walk {
  private interface Body<T> {
    T run() throws Exception;
  }

  private interface Action {
    void run() throws Exception;
  }

  /** What functions of the program throw. */
  private static final class Mine extends RuntimeException {
    private static final long serialVersionUID = 1;

    Mine() { super("a function of the program's"); }
  }

  /** What is found. */
  private static final class Finding extends Error {
    private static final long serialVersionUID = 1;

    /** The first. If a function of the program throws it, the binding takes it for any other exception. */
    static volatile Finding first;

    Finding(String what, Throwable cause) {
      super(what, cause);
      if (first == null) first = this;
    }
  }

  /** An object, and whether a call has closed it. */
  private static final class Thing<T> {
    final String kind;
    final T it;
    volatile boolean closed;
    boolean stalls;
    boolean ranks;  // several devices, which wait for each other

    Thing(String kind, T it) {
      this.kind = kind;
      this.it = it;
    }
  }

  private static final class Open {
    final String name;
    final long began = System.nanoTime();

    Open(String name) { this.name = name; }
  }

  private static final Set<Code> NEVER =
      EnumSet.of(Code.INTERNAL, Code.OUT_OF_MEMORY, Code.DEVICE, Code.DEVICE_LOST);
  private static final String[] INTERNALS = {"std::", "basic_string", "json.exception", "unknown exception", "Swig",
      "bad_alloc", "vector::", "map::at", "Assertion"};
  private static final int MOST = 4;     // objects of a kind
  private static final int WORKERS = 4;  // oneTBB keeps the threads that it has made

  private final Random random;
  private final double within;
  private final double patience;
  private final Path folder;
  private final PrintStream trace;
  private final Device device;
  private final Map<String, List<Thing<?>>> world = new LinkedHashMap<>();
  private final List<FloatBuffer> buffers = new ArrayList<>();
  private final List<WeakReference<Object>> functions = Collections.synchronizedList(new ArrayList<>());
  private final AtomicInteger lent = new AtomicInteger();  // transports that have not been closed
  private final List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());  // of other threads
  // What follows is guarded by `this`.
  private final ArrayDeque<String> latest = new ArrayDeque<>();
  private final Map<String, int[]> counts = new TreeMap<>();  // calls, and those that succeeded
  private final Map<String, Integer> thrown = new TreeMap<>();
  private final Map<Thread, ArrayDeque<Open>> open = new HashMap<>();
  private long calls;
  private int folders;
  private String finishedRun = "/proc/nowhere";  // folders
  private String finishedStudy = "/proc/nowhere";

  private Walk(long seed, double within, double patience, Path folder, PrintStream trace) throws IOException {
    random = new Random(seed);
    this.within = within;
    this.patience = patience;
    this.folder = folder;
    this.trace = trace;
    StringBuilder rows = new StringBuilder();
    for (int i = 0; i < 24; ++i)
      rows.append("{\"image\": [" + i % 7 + ".5, 1.5, 2, 1, 0, " + i % 3 + "], \"label\": " + i % 2 + "}\n");
    Files.writeString(folder.resolve("rows.jsonl"), rows);
    byte[] pixel = Base64.getDecoder().decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
        + "WjR9awAAAABJRU5ErkJggg==");
    for (int i = 0; i < 4; ++i) {
      Path of = Files.createDirectories(folder.resolve("images").resolve("class" + i % 2));
      Files.write(of.resolve(i + ".png"), pixel);
    }
    Files.writeString(folder.resolve("images").resolve("class0").resolve("bad.png"), "no image");
    String header = "{\"dense_1.weight\":{\"dtype\":\"F32\",\"shape\":[2,6],\"data_offsets\":[0,48]},"
        + "\"dense_1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[48,56]}}";
    ByteBuffer weights = ByteBuffer.allocate(8 + header.length() + 56).order(ByteOrder.LITTLE_ENDIAN);
    Files.write(folder.resolve("weights.safetensors"), weights.putLong(header.length()).put(header.getBytes()).array());
    for (String kind : new String[] {"Device", "Batch", "Pipeline", "Model", "Trainer", "Job", "Job.Run", "Study", "Server"})
      world.put(kind, new ArrayList<>());
    String selector = System.getenv("ECHOTRAIN_TEST_DEVICE");
    device = new Device(selector == null ? "" : selector);
  }

  // ---- calls ----

  private <T> T call(String name, Body<T> body) { return call(name, "", null, body); }

  private void act(String name, Action action) { act(name, "", null, action); }

  private void act(String name, String detail, Thing<?> of, Action action) {
    call(name, detail, of, () -> {
      action.run();
      return null;
    });
  }

  /**
   * Makes a call and returns its result; null after an exception that is promised. {@code of}: the object that is
   * used, if the call fails where that is closed.
   */
  private <T> T call(String name, String detail, Thing<?> of, Body<T> body) {
    boolean closed = of != null && of.closed;
    begin(name, detail + (closed ? " (closed)" : ""));
    try {
      T result = body.run();
      if (closed) throw new Finding(name + " succeeds on an object that is closed", null);
      synchronized (this) {
        ++counts.get(name)[1];
      }
      return result;
    } catch (Throwable error) {
      check(name, error);
      synchronized (this) {
        String type = error instanceof EchoTrainException ? ((EchoTrainException) error).code().toString()
            : error.getClass().getSimpleName();
        thrown.merge(type, 1, Integer::sum);
        note("    " + error);
      }
      return null;
    } finally {
      synchronized (this) {
        ArrayDeque<Open> mine = open.get(Thread.currentThread());
        mine.removeLast();
        if (mine.isEmpty()) open.remove(Thread.currentThread());
      }
    }
  }

  private synchronized void begin(String name, String detail) {
    ++calls;
    ++counts.computeIfAbsent(name, unused -> new int[2])[0];
    note(name + " " + detail);
    open.computeIfAbsent(Thread.currentThread(), unused -> new ArrayDeque<>()).add(new Open(name));
  }

  private synchronized void note(String line) {
    latest.add(line.length() > 300 ? line.substring(0, 300) : line);
    if (latest.size() > 60) latest.remove();
    if (trace != null) trace.println(line);
  }

  private static void check(String name, Throwable error) {
    if (error instanceof Mine) return;
    String text = error.getMessage();
    boolean known = error instanceof EchoTrainException || error instanceof IllegalArgumentException
        || error instanceof IllegalStateException || error instanceof NullPointerException
        || error instanceof NoSuchElementException;
    if (!known) throw error instanceof Finding ? (Finding) error : new Finding(name + " throws " + error, error);
    if (text == null || text.isEmpty()) throw new Finding(name + ": " + error + " says nothing", error);
    if (error instanceof NullPointerException && !text.matches("\\w+|argument '\\w+' is null"))
      throw new Finding(name + ": a NullPointerException names no argument: " + text, error);
    if (error instanceof EchoTrainException && NEVER.contains(((EchoTrainException) error).code()))
      throw new Finding(name + ": " + ((EchoTrainException) error).code() + ": " + text, error);
    for (String word : INTERNALS)
      if (text.contains(word)) throw new Finding(name + ": the message is of the implementation: " + text, error);
  }

  /** Ends the process if a call lasts too long, whatever other threads do meanwhile. */
  private void watch() {
    try {
      while (true) {
        Thread.sleep(500);
        synchronized (this) {
          for (ArrayDeque<Open> mine : open.values())
            for (Open each : mine)
              if (System.nanoTime() - each.began > patience * 1e9)
                end(new Finding(each.name + " has not returned for " + patience + " s", null));
        }
      }
    } catch (InterruptedException interrupted) {
      // the end of the walk
    }
  }

  private void soon(String what, BooleanSupplier holds) throws InterruptedException {
    long began = System.nanoTime();
    while (!holds.getAsBoolean()) {
      if (System.nanoTime() - began > within * 1e9) throw new Finding(what + " has not happened within " + within + " s", null);
      Thread.sleep(1);
    }
  }

  /** Prints what is known, and ends the process, whose threads may hang. */
  private void end(Throwable found) {
    found.printStackTrace(System.out);
    if (found.getMessage() != null && found.getMessage().contains("has not"))
      Thread.getAllStackTraces().forEach((thread, stack) -> {
        System.out.println(thread);
        for (StackTraceElement at : stack) System.out.println("    at " + at);
      });
    synchronized (this) {
      System.out.println("\nthe latest calls:");
      for (String line : latest) System.out.println("  " + line);
    }
    System.out.println("to repeat: " + repeat);
    System.out.flush();
    java.lang.Runtime.getRuntime().halt(1);
  }

  private static String repeat;

  // ---- objects ----

  private boolean oneIn(int n) { return random.nextInt(n) == 0; }

  @SafeVarargs
  private final <T> T of(T... values) { return values[random.nextInt(values.length)]; }

  @SuppressWarnings("unchecked")
  private <T> Thing<T> any(String kind) {
    List<Thing<?>> there = world.get(kind);
    return there.isEmpty() ? null : (Thing<T>) there.get(random.nextInt(there.size()));
  }

  private <T> Thing<T> keep(String kind, T it) {
    if (it == null) return null;
    Thing<T> thing = new Thing<>(kind, it);
    List<Thing<?>> there = world.get(kind);
    there.add(thing);
    if (there.size() > MOST) drop(kind);
    return thing;
  }

  /** Closes an object, or leaves it to the collector. */
  private void drop(String kind) {
    List<Thing<?>> there = world.get(kind);
    if (there.isEmpty()) return;
    Thing<?> thing = there.remove(random.nextInt(there.size()));
    if (random.nextInt(10) < 7) close(thing);
  }

  private void close(Thing<?> thing) {
    act(thing.kind + ".close", ((AutoCloseable) thing.it)::close);
    thing.closed = true;
  }

  private Thing<Device> device() {
    Thing<Device> other = oneIn(12) ? any("Device") : null;
    return other != null ? other : new Thing<>("Device", oneIn(60) ? null : device);
  }

  private String newFolder() { return folder.resolve("folder" + ++folders).toString(); }

  private <T> T function(T made) {
    functions.add(new WeakReference<>(made));
    return made;
  }

  // ---- devices and the library ----

  private void useDevice() {
    Thing<Device> thing = oneIn(3) && any("Device") != null ? any("Device") : new Thing<>("Device", device);
    Device it = thing.it;
    switch (random.nextInt(9)) {
      case 0: call("Device.index", "", thing, it::index); break;
      case 1: call("Device.kind", "", thing, it::kind); break;
      case 2: call("Device.memoryBytes", "", thing, it::memoryBytes); break;
      case 3: call("Device.name", "", thing, it::name); break;
      case 4: call("Device.driver", "", thing, it::driver); break;
      case 5: call("Device.list", Device::list); break;
      case 6: act("Device.preferWideCpuVectors", Device::preferWideCpuVectors); break;
      default: {
        String path = of(folder.resolve("tuning.json").toString(), "/proc/nowhere/x.json", null);
        ProgressListener stops = (done, total, text) -> {
          if (done % 2 == 0) throw new Mine();
          return false;
        };
        act("Device.tune", "" + path, thing, () -> it.tune(path, stops));
      }
    }
  }

  private void makeDevice() {
    String selector = of("no such device", "1000", "-1", null, "\ud800", System.getenv("ECHOTRAIN_TEST_DEVICE"), "", "");
    Device.Options options = new Device.Options().memoryLimitBytes(of(0L, 1L << 30, -1L)).hangSeconds(of(0.0, -1.0, Double.NaN))
        .tuning(of(null, "", "/proc/nowhere.json", folder.resolve("rows.jsonl").toString()))
        .kernels(of(Device.Kernels.values())).cacheDir(of(null, "")).trustDriver(oneIn(2));
    act("Device.Options.kernels", () -> options.kernels(of(null, Device.Kernels.AUTOMATIC)));
    switch (random.nextInt(4)) {
      case 0: keep("Device", call("Device.new", "" + selector, null, () -> new Device(selector, options))); break;
      case 1: call("Device.new", () -> new Device(selector, (Device.Options) null)); break;
      case 2: call("Device.new", () -> new Device(selector, 0, null)); break;
      default: keep("Device", call("Device.new", () -> new Device(selector)));
    }
  }

  private void useLibrary() {
    String root = of(folder.resolve("images").toString(), folder.resolve("images").toString(), "/proc/nowhere", "", null);
    int what = random.nextInt(4);
    ProgressListener told = what == 0 ? null : (done, total, text) -> {
      if (what == 1) throw new Mine();
      if (what == 2) act("Device.name", device::name);
      return what != 3;
    };
    switch (random.nextInt(7)) {
      case 0: call("Library.version", Library::version); break;
      case 1: call("Library.schema", "", null, () -> Library.schema(of("stages", "layers", "job", "nonsense", "", null))); break;
      case 2: {
        Map<String, Object> options = of(Map.of(), Map.of("per_shard", 2), Map.of("format", "fast"), Map.of("nonsense", 1),
            Collections.singletonMap("per_shard", null), null);
        call("Library.pack", root + " " + options, null, () -> Library.pack(root, newFolder(), options, told));
        break;
      }
      case 3: {
        double seconds = of(0.002, 0.0, Double.NaN);
        String spec = of(rowsJson(""), "{", null, "\0");
        boolean all = oneIn(30);  // which takes seconds
        call("Library.tunePipeline", spec + " " + seconds, null,
            () -> Library.tunePipeline(spec, seconds, 0, all ? null : (done, total, text) -> false));
        break;
      }
      case 4: {
        Thing<Pipeline> pipeline = any("Pipeline");
        String stats = pipeline == null ? of("{}", null, "[1") : call("Pipeline.stats", "", pipeline, pipeline.it::stats);
        call("Library.explainStats", "", null, () -> Library.explainStats(stats, of("text", "svg", "json", "nonsense", null)));
        break;
      }
      case 5: {
        List<Library.ReportedRun> runs = of(List.of(), List.of(new Library.ReportedRun("a", of("/proc/nowhere", null,
            finishedRun, finishedRun))), Arrays.asList((Library.ReportedRun) null), null);
        call("Library.writeReport", "", null,
            () -> Library.writeReport(of("title", "title", null), runs, folder.resolve("report.html").toString(), of(0.0, 0.5, 2.0)));
        break;
      }
      default: {
        Spec spec = of(Stages.batch(2), Layers.dense(3), Optimizers.sgd(), Models.mlp());
        call("Spec.set", () -> spec.set(of("name", null), of("a", 1, 2.5, null, new Object(), Double.NaN, new long[] {1})));
        call("Spec.then", () -> spec.then(of(Stages.decode(), null)));
        call("Spec.kind", spec::kind);
        call("Spec.name", spec::name);
        call("Spec.toString", spec::toString);
      }
    }
  }

  // ---- pipelines ----

  private String rowsJson(String more) {
    return "{\"stages\": [{\"stage\": \"jsonl\", \"pattern\": \"" + folder.resolve("rows.jsonl")
        + "\", \"columns\": \"image:f32,label:i32\"}, " + more + "{\"stage\": \"label\"}, {\"stage\": \"batch\", \"size\": 4}]}";
  }

  private static MapFunction samples(int count) {
    return item -> {
      if ((item.ordinal() & 0xFFFFFFFFFFL) >= count) return;
      item.set("image", new float[] {item.ordinal() % 7, 1, 2, 3, 4, 5}, 6).set("label", new int[] {(int) (item.ordinal() % 2)});
    };
  }

  /**
   * A map that throws, returns nonsense or uses other objects for some samples. It keeps none of them: a pipeline that is
   * not closed and that its own function refers to is never freed.
   */
  private MapFunction strange(int seed, AtomicReference<WeakReference<Thing<Pipeline>>> own) {
    WeakReference<Thing<Batch>> aBatch = new WeakReference<>(any("Batch"));
    WeakReference<Thing<Model>> aModel = new WeakReference<>(any("Model"));
    WeakReference<Thing<Trainer>> aTrainer = new WeakReference<>(any("Trainer"));
    WeakReference<Thing<Pipeline>> aPipeline = new WeakReference<>(any("Pipeline"));
    boolean ends = oneIn(4);
    return item -> {
      Thing<Batch> batch = aBatch.get();
      Thing<Model> model = aModel.get();
      Thing<Trainer> trainer = aTrainer.get();
      Thing<Pipeline> other = aPipeline.get();
      Thing<Pipeline> mine = own.get() == null ? null : own.get().get();
      switch ((int) ((item.ordinal() * 7919 + seed) % 60)) {
        case 0: throw new Mine();
        case 1: throw new LinkageError("no Exception");
        case 2: for (String field : item.fields()) item.remove(field); break;
        case 3: item.set("x", new float[3], 3); break;
        case 4: item.close(); break;
        case 5: {
          Batch kept = item;
          new Thread(() -> {  // sooner or later than the end of this call
            call("Batch.fields", "of a function", null, kept::fields);
            call("Batch.floats", "of a function", null, () -> sum(kept.floats("image")));
            call("Batch.set", "of a function", null, () -> kept.set("y", new float[2], 2));
          }).start();
          break;
        }
        case 6: if (batch != null) call("Batch.toString", "in a function", null, batch.it::toString); break;
        case 7: if (model != null) call("Model.json", "in a function", model, model.it::json); break;
        case 8: if (trainer != null) call("Trainer.result", "in a function", trainer, () -> trainer.it.result(false)); break;
        case 9:
          if (other != null && other != mine)
            call("Pipeline.stats", "in a function", other, other.it::stats);
          break;
        case 10:
          if (ends && mine != null) {
            act("Pipeline.close", "in a function of its own", null, mine.it::close);
            mine.closed = true;
          }
          break;
        case 11: System.gc(); break;
        case 12: {
          try (Pipeline nested = Pipeline.builder().source("n", samples(3)).option("epochs", 1).option("threads", 1).build()) {
            while (nested.next() != null) {}
          }
          break;
        }
        case 13: throw new java.io.IOException("no unchecked exception, with \0 and \ud800");
        default: break;
      }
    };
  }

  private void makePipeline() {
    if (oneIn(8)) {
      String json = of(rowsJson(""), "{", "{\"stages\": []}", null, "\0", "[]");
      keep("Pipeline", call("Pipeline.fromJson", json, null, () -> Pipeline.fromJson(json)));
      return;
    }
    Pipeline.Builder builder = call("Pipeline.builder", Pipeline::builder);
    AtomicReference<WeakReference<Thing<Pipeline>>> own = new AtomicReference<>();
    String rows = folder.resolve("rows.jsonl").toString();
    int seed = random.nextInt(60);
    int count = of(0, 5, 17, 40);
    int what = random.nextInt(9);
    if (what <= 1) builder.add(Stages.jsonl(rows, "image:f32,label:i32"), Stages.label(), Stages.batch(4));
    if (what == 2) builder.source("s", function(samples(count))).add(Stages.batch(4));
    if (what >= 3 && what <= 5)
      builder.source("s", function(samples(count))).map("map", function(strange(seed, own))).add(Stages.batch(2));
    if (what == 6)
      builder.source("s", function(samples(count))).add(Stages.batch(2)).map("map", function(strange(seed, own)));
    if (what >= 7) {
      for (int i = random.nextInt(3); i >= 0; --i)
        switch (random.nextInt(6)) {
          case 0: call("Pipeline.Builder.add", () -> builder.add(of(Stages.batch(4), Layers.dense(2), null, Stages.batch(-1)))); break;
          case 1: call("Pipeline.Builder.add", () -> builder.add((Spec[]) null)); break;
          case 2: call("Pipeline.Builder.source", () -> builder.source(of("s", "", null, "\0"), of(samples(3), null))); break;
          case 3: call("Pipeline.Builder.map", () -> builder.map(of("m", "", null, "s"), of(samples(3), null))); break;
          case 4: call("Pipeline.Builder.add", () -> builder.add(Stages.jsonl(of(rows, "/proc/nowhere"), of("image:f32", "x")))); break;
          default: call("Pipeline.Builder.toString", builder::toString);
        }
    }
    switch (random.nextInt(9)) {
      case 0: builder.option("epochs", 1); break;
      case 1: builder.option("epochs", 2).option("threads", 2); break;
      case 2: builder.option("on_error", "skip").option("max_bad_share", 1.0).option("epochs", 1); break;
      case 3: builder.option("nonsense", 1); break;
      case 4: call("Pipeline.Builder.option", () -> builder.option(of("seed", null), of(null, new Object(), "x", 3))); break;
      case 5: builder.option("trace_events", 100).option("threads", 3); break;
      default: break;
    }
    own.set(new WeakReference<>(keep("Pipeline", call("Pipeline.Builder.build", "" + what, null, builder::build))));
  }

  private void read() {
    Thing<Pipeline> thing = any("Pipeline");
    if (thing == null) return;
    if (oneIn(3)) {
      keep("Batch", call("Pipeline.next", "", thing, thing.it::next));
      return;
    }
    Iterator<Batch> batches = call("Pipeline.iterator", thing.it::iterator);
    for (int i = of(1, 3, 9); i > 0; --i) {
      Boolean more = call("Pipeline.Iterator.hasNext", batches::hasNext);
      if (more == null) return;
      Batch batch = call("Pipeline.Iterator.next", batches::next);
      if (!more && batch != null) throw new Finding("an iterator has a batch after its end", null);
      if (!more) return;
      if (oneIn(2)) keep("Batch", batch);
    }
  }

  private void usePipeline() {
    Thing<Pipeline> thing = any("Pipeline");
    if (thing == null) return;
    Pipeline it = thing.it;
    switch (random.nextInt(11)) {
      case 0: call("Pipeline.stats", "", thing, it::stats); break;
      case 1: call("Pipeline.explain", "", thing, () -> it.explain(of("text", "svg", "json", "nonsense", null))); break;
      case 2: call("Pipeline.trace", "", thing, it::trace); break;
      case 3: call("Pipeline.badRecords", "", thing, it::badRecords); break;
      case 4:
      case 5: {
        String state = call("Pipeline.save", "", thing, it::save);
        Thing<Pipeline> other = any("Pipeline");
        String given = oneIn(4) ? of("{", "{}", null, "\0", "[]") : state;
        act("Pipeline.restore", given == null ? "null" : "", other, () -> other.it.restore(given));
        break;
      }
      case 6: act("Pipeline.cancel", "", thing, it::cancel); break;
      case 7: call("Pipeline.length", "", thing, it::length); break;
      case 8: call("Pipeline.toString", it::toString); break;
      case 9: if (oneIn(2)) close(thing); break;
      default: call("Pipeline.next", "", thing, it::next);
    }
  }

  // ---- batches ----

  private static double sum(FloatBuffer buffer) {
    double sum = 0;
    for (int i = 0; i < buffer.limit(); ++i) sum += buffer.get(i);
    return sum;
  }

  private static Batch rows(int count) {
    float[] images = new float[count * 6];
    Arrays.fill(images, 1);
    return new Batch().set("image", images, count, 6).set("label", new int[count], count);
  }

  private void makeBatch() {
    Batch batch = call("Batch.new", Batch::new);
    Thing<Batch> thing = keep("Batch", batch);
    for (int i = random.nextInt(3); i >= 0; --i) set(thing);
  }

  private void set(Thing<Batch> thing) {
    Batch it = thing.it;
    String field = of("image", "label", "", "a\u0001", null, "x", "\0");
    long[] shape = of(new long[] {3}, new long[] {3, 6}, new long[0], new long[] {-1}, new long[] {1L << 40, 1L << 40}, null,
        new long[] {0, 5}, new long[] {1, 1, 1, 1, 1, 1, 1, 1, 3}, new long[] {-3, -1});
    long product = shape == null ? 0 : Arrays.stream(shape).reduce(1, (a, b) -> a * b);
    int size = oneIn(2) ? (int) Math.min(18, Math.max(0, product)) : of(0, 1, 3, 18);
    boolean none = oneIn(12);
    String detail = field + " " + Arrays.toString(shape) + " " + (none ? "null" : size);
    switch (random.nextInt(5)) {
      case 0: call("Batch.set", "float " + detail, thing, () -> it.set(field, none ? null : new float[size], shape)); break;
      case 1: call("Batch.set", "int " + detail, thing, () -> it.set(field, none ? null : new int[size], shape)); break;
      case 2: call("Batch.set", "byte " + detail, thing, () -> it.set(field, none ? null : new byte[size], shape)); break;
      case 3: call("Batch.set", "short " + detail, thing, () -> it.set(field, none ? null : new short[size], shape)); break;
      default: {
        ByteBuffer buffer = none ? null : oneIn(4) ? ByteBuffer.allocate(size * 4) : ByteBuffer.allocateDirect(size * 4);
        DType type = of(DType.F32, DType.I32, DType.U8, DType.U16, null);
        call("Batch.set", type + " " + detail, thing, () -> it.set(field, type, buffer, shape));
      }
    }
  }

  private String fieldOf(Batch batch) {
    try {
      List<String> fields = batch.fields();
      return fields.isEmpty() ? "none" : fields.get(random.nextInt(fields.size()));
    } catch (EchoTrainException closed) {
      return "image";
    }
  }

  private void useBatch() {
    Thing<Batch> thing = any("Batch");
    if (thing == null) return;
    Batch it = thing.it;
    String field = oneIn(4) ? of("nowhere", "", null, "\ud800") : fieldOf(it);
    switch (random.nextInt(19)) {
      case 0: call("Batch.fields", "", thing, it::fields); break;
      case 1: call("Batch.shape", field, thing, () -> it.shape(field)); break;
      case 2: call("Batch.dtype", field, thing, () -> it.dtype(field)); break;
      case 3: call("Batch.buffer", field, thing, () -> it.buffer(field).remaining()); break;
      case 4:
      case 5: {
        FloatBuffer buffer = call("Batch.floats", field, thing, () -> it.floats(field));
        if (buffer != null) buffers.add(buffer);
        if (buffers.size() > MOST) buffers.remove(0);
        break;
      }
      case 6: call("Batch.ints", field, thing, () -> it.ints(field).remaining()); break;
      case 7: call("Batch.shorts", field, thing, () -> it.shorts(field)); break;
      case 8: act("Batch.remove", field, thing, () -> it.remove(field)); break;
      case 9: call("Batch.samples", "", thing, it::samples); break;
      case 10: call("Batch.fresh", "", thing, it::fresh); break;
      case 11: call("Batch.echoed", "", thing, it::echoed); break;
      case 12: call("Batch.unique", "", thing, it::unique); break;
      case 13: call("Batch.meanAge", "", thing, it::meanAge); break;
      case 14: call("Batch.replica", "", thing, it::replica); break;
      case 15: call("Batch.ordinal", "", thing, it::ordinal); break;
      case 16: call("Batch.epoch", "", thing, it::epoch); break;
      case 17: call("Batch.toString", it::toString); break;
      default: set(thing);
    }
    if (oneIn(20)) close(thing);
    for (FloatBuffer buffer : buffers) sum(buffer);  // also of batches that are closed
  }

  // ---- models and trainers ----

  private Model goodModel() {
    return oneIn(2) ? new Model(Layers.dense(2)) : new Model(Layers.dense(3).activation("relu"), Layers.dense(2));
  }

  private void makeModel() {
    String json = of("{\"model\": \"mlp\", \"hidden\": [3]}", "{\"layers\": [{\"layer\": \"dense\", \"units\": 2}]}", "{", null, "\0");
    switch (random.nextInt(8)) {
      case 0: keep("Model", call("Model.fromJson", json, null, () -> Model.fromJson(json))); break;
      case 1: keep("Model", call("Model.new", () -> new Model(of(Layers.dense(2), Stages.batch(2), null, Layers.dense(-1))))); break;
      case 2: keep("Model", call("Model.new", () -> new Model(of(new String[] {"image"}, new String[] {null}, null), Layers.dense(2)))); break;
      case 3: keep("Model", call("Model.new", () -> new Model((Spec[]) null))); break;
      case 4: keep("Model", call("Model.new", () -> new Model(Models.mlp()))); break;
      case 5: {
        String path = of(folder.resolve("model.onnx").toString(), "/proc/nowhere", null, folder.resolve("rows.jsonl").toString());
        keep("Model", call("Model.fromOnnx", path, null, () -> Model.fromOnnx(path, of("", "", "x", null), Layers.dense(2))));
        break;
      }
      default: keep("Model", call("Model.new", this::goodModel));
    }
  }

  private void useModel() {
    Thing<Model> thing = any("Model");
    if (thing == null) return;
    Model it = thing.it;
    switch (random.nextInt(9)) {
      case 0: call("Model.freeze", "", thing, () -> it.freeze(of("*", "dense_1.*", "", null, "x"))); break;
      case 1: {
        Map<String, Object> options = of(Map.of("layers", new String[] {"dense_1"}, "rank", 2), Map.of("rank", -1), Map.of(), null,
            Collections.singletonMap("layers", null));
        call("Model.lora", "" + options, thing, () -> it.lora(options));
        break;
      }
      case 2: call("Model.quantize", "", thing, () -> it.quantize(of(8, 4, 0, 3, -1))); break;
      case 3: {
        String fields = of("{\"image\": [6]}", "{\"image\": [-1]}", "{", null, "{\"x\": [6]}");
        call("Model.summary", fields, thing, () -> it.summary(fields));
        break;
      }
      case 4: call("Model.json", "", thing, it::json); break;
      case 5: call("Model.toString", it::toString); break;
      case 6: call("Model.loss", "", thing, () -> it.loss(of("mse", "softmax_cross_entropy", "nonsense", "", null))); break;
      case 7: {
        Map<String, Object> options = of(Map.of("label_smoothing", 0.1), Map.of("nonsense", 1), null, Map.of("label_smoothing", Double.NaN));
        call("Model.loss", "" + options, thing, () -> it.loss("softmax_cross_entropy", options));
        break;
      }
      default: if (oneIn(2)) close(thing);
    }
  }

  private void makeTrainer() {
    Thing<Model> other = oneIn(3) ? any("Model") : null;
    Model model = oneIn(30) ? null : other != null ? other.it : goodModel();
    Spec optimizer = of(Optimizers.sgd(), Optimizers.sgd().momentum(0.9), Optimizers.adam(), oneIn(10) ? null : Optimizers.sgd(),
        oneIn(10) ? Layers.dense(2) : Optimizers.sgd());
    Spec schedule = oneIn(12) ? of(null, Stages.batch(2)) : Schedules.schedule(0.01);
    Thing<Device> on = device();
    keep("Trainer", call("Trainer.new", "", null, () -> new Trainer(on.it, model, optimizer, schedule, of(0L, -1L), of(0L, 10L, -1L))));
  }

  private Batch given() {
    if (oneIn(5)) {
      Thing<Batch> any = any("Batch");
      return any == null ? null : any.it;
    }
    if (oneIn(12)) return new Batch().set("image", new float[24], 4, 6);
    if (oneIn(20)) return new Batch();
    return rows(of(1, 4, 4));
  }

  private void useTrainer() {
    Thing<Trainer> thing = any("Trainer");
    if (thing == null) {
      makeTrainer();
      return;
    }
    Trainer it = thing.it;
    Batch given = given();
    int rows = of(1, 4);
    Batch gradient = oneIn(15) ? null : new Batch().set("output", new float[rows * 2], rows, 2);
    String saved = folder.resolve("saved").toString();
    String nowhere = of("/proc/nowhere/x", null, "", "\0");
    String file = oneIn(4) ? nowhere : folder.resolve("model.onnx").toString();
    String detail = given == null ? "null" : "";
    switch (random.nextInt(27)) {
      case 0:
      case 1:
      case 2: act("Trainer.step", detail, thing, () -> it.step(given)); break;
      case 3:
      case 4: call("Trainer.result", "", thing, () -> it.result(oneIn(2))); break;
      case 5:
      case 6: keep("Batch", call("Trainer.forward", detail, thing, () -> it.forward(given, oneIn(2)))); break;
      case 7: act("Trainer.backward", "", thing, () -> it.backward(gradient, oneIn(3))); break;
      case 8: keep("Batch", call("Trainer.backwardToInputs", "", thing, () -> it.backwardToInputs(gradient, oneIn(3)))); break;
      case 9:
      case 10: call("Trainer.update", "", thing, it::update); break;
      case 11: keep("Batch", call("Trainer.gradients", "", thing, () -> it.gradients(of("", "dense_1.weight", "x", null)))); break;
      case 12: act("Trainer.setGradients", "", thing, () -> it.setGradients(of(null, given, new Batch().set("dense_1.bias", new float[2], 2)))); break;
      case 13: keep("Batch", call("Trainer.predict", detail, thing, () -> it.predict(given))); break;
      case 14: keep("Batch", call("Trainer.detections", "", null, () -> Trainer.detections(
          oneIn(2) ? given : new Batch().set("output", new float[11], 1, 1, 11), of(0.5, 0.5, Double.NaN, -1.0), 0.5, of(10, 10, 0, -1)))); break;
      case 15:
      case 16: keep("Batch", call("Trainer.weights", "", thing, () -> it.weights(of("", "", "dense_1.bias", "x", null)))); break;
      case 17: act("Trainer.setWeights", "", thing, () -> it.setWeights(of(null, given, new Batch().set("dense_1.bias", new float[2], 2)))); break;
      case 18:
        act("Trainer.setHyperparameter", "", thing,
            () -> it.setHyperparameter(of("momentum", "nonsense", "", null), of(0.0, 0.5, -1.0, Double.NaN)));
        break;
      case 19: call("Trainer.summary", "", thing, it::summary); break;
      case 20: call("Trainer.profile", detail, thing, () -> it.profile(given, of(1, 0, -1), of("text", "json", "trace", "x", null))); break;
      case 21: act("Trainer.save", "", thing, () -> it.save(oneIn(4) ? nowhere : saved)); break;
      case 22: act("Trainer.load", "", thing, () -> it.load(oneIn(4) ? nowhere : saved)); break;
      case 23: act("Trainer.exportOnnx", "", thing, () -> it.exportOnnx(file)); break;
      case 24: {
        String weights = oneIn(3) ? file : folder.resolve("weights.safetensors").toString();
        act("Trainer.loadPytorch", "", thing, () -> it.loadPytorch(weights, of("{}", "{}", "{", null, "[]")));
        break;
      }
      case 25: call("Trainer.toString", it::toString); call("Trainer.device", it::device); break;
      default: if (oneIn(3)) close(thing);
    }
  }

  /** A step pass by pass, now and then with a call too many. */
  private void pass() {
    Thing<Trainer> thing = any("Trainer");
    if (thing == null) return;
    Trainer it = thing.it;
    boolean inputs = oneIn(2);
    if (keep("Batch", call("Trainer.forward", "of a pass", thing, () -> it.forward(rows(4), inputs))) == null) return;
    Batch gradient = new Batch().set("output", new float[8], 4, 2);
    for (int i = of(1, 1, 1, 2); i > 0; --i) {
      if (inputs) keep("Batch", call("Trainer.backwardToInputs", "of a pass", thing, () -> it.backwardToInputs(gradient, oneIn(3))));
      else act("Trainer.backward", "of a pass", thing, () -> it.backward(gradient));
    }
    Batch gradients = call("Trainer.gradients", "of a pass", thing, () -> it.gradients());
    if (oneIn(2)) act("Trainer.setGradients", "of a pass", thing, () -> it.setGradients(gradients));
    keep("Batch", gradients);
    for (int i = of(1, 1, 1, 2); i > 0; --i) call("Trainer.update", "of a pass", thing, it::update);
  }

  /** A listener that uses the trainer in its own call, closes it, cancels the pipeline, throws or stops. */
  private Trainer.EvaluationListener listener(Thing<Trainer> trainer, Thing<Pipeline> pipeline) {
    int what = random.nextInt(8);
    return function((done, batches) -> {
      switch (what) {
        case 0: throw new Mine();
        case 1:
          if (call("Trainer.predict", "in its own call", null, () -> trainer.it.predict(rows(2))) != null)
            throw new Finding("a trainer predicts within its evaluation", null);
          return true;
        case 2: return false;
        case 3: act("Pipeline.cancel", "under an evaluation", null, pipeline.it::cancel); return true;
        case 4: close(trainer); return true;
        case 5: close(pipeline); return true;
        case 6: System.gc(); return true;
        default: return true;
      }
    });
  }

  private Thing<Pipeline> input() {
    if (oneIn(2)) return any("Pipeline");
    return keep("Pipeline", Pipeline.builder().source("s", function(samples(of(3, 9, 17)))).add(Stages.batch(4))
        .option("epochs", 2).option("threads", 2).build());
  }

  private void evaluate() {
    Thing<Trainer> trainer = any("Trainer");
    Thing<Pipeline> pipeline = input();
    if (trainer == null || pipeline == null) return;
    Trainer.EvaluationListener told = oneIn(4) ? null : listener(trainer, pipeline);
    act("Trainer.setEvaluationListener", () -> trainer.it.setEvaluationListener(told));
    call("Trainer.evaluate", "", trainer, () -> trainer.it.evaluate(oneIn(20) ? null : pipeline.it));
    act("Trainer.setEvaluationListener", () -> trainer.it.setEvaluationListener(null));
  }

  private void fit() {
    Thing<Trainer> trainer = any("Trainer");
    Thing<Pipeline> pipeline = input();
    Thing<Pipeline> other = input();
    if (trainer == null || pipeline == null || other == null) return;
    Pipeline validation = oneIn(2) ? null : other.it;
    int what = random.nextInt(6);
    act("Trainer.setStepListener", () -> trainer.it.setStepListener(what > 1 ? null : (epoch, step) -> {
      if (what == 0) throw new Mine();
      call("Trainer.predict", "in a step of fit", null, () -> trainer.it.predict(rows(2)));
    }));
    act("Trainer.setEvaluationListener", () -> trainer.it.setEvaluationListener(oneIn(2) ? null : listener(trainer, pipeline)));
    call("Trainer.fit", "", trainer, () -> trainer.it.fit(oneIn(20) ? null : pipeline.it, of(1, 2, 0), validation,
        what == 5 ? null : (epoch, training, scores) -> {
          if (what == 2) throw new Mine();
          if (what == 3) close(pipeline);
          return what != 4;
        }));
    act("Trainer.setStepListener", () -> trainer.it.setStepListener(null));
    act("Trainer.setEvaluationListener", () -> trainer.it.setEvaluationListener(null));
  }

  // ---- jobs and runs ----

  private String jobJson(String between, String more) {
    return "{\"pipeline\": " + rowsJson(between) + ", \"model\": {\"layers\": [{\"layer\": \"dense\", \"units\": 2}]}, \"optimizer\": "
        + "{\"optimizer\": \"sgd\"}, \"schedule\": {\"learning_rate\": 0.01}, " + more + "}";
  }

  private static final String STALLS = "{\"stage\": \"delay\", \"milliseconds\": 1000000}, ";

  private String[] overrides(String valid, int oneIn) {
    if (!oneIn(oneIn)) return new String[0];
    return of(new String[] {valid}, new String[] {"nonsense"}, new String[] {null}, null);
  }

  private void makeJob() throws IOException {
    boolean stalls = oneIn(4);
    boolean ranks = oneIn(8);
    String json = jobJson(stalls ? STALLS : "", "\"train\": {\"steps\": " + of(3, 40, 1000000) + ", \"progress_every\": 0.02}, "
        + (oneIn(2) ? "\"evaluation\": {\"pipeline\": " + rowsJson("") + "}, " : "")
        + (ranks ? "\"parallel\": {\"devices\": [\"" + device.name() + "\", \"" + device.name() + "\"]}, " : "")
        + "\"output\": {\"dir\": \"" + (oneIn(2) ? "" : newFolder()) + "\"}");
    String text = oneIn(6) ? of("{", "", null, "\0", "[]") : json;
    String[] overrides = overrides("train.steps=2", 6);
    Thing<Job> job;
    if (oneIn(4)) {
      Path path = folder.resolve("job.json");
      Files.writeString(path, json);
      job = keep("Job", call("Job.load", "", null, () -> Job.load(of(path.toString(), path.toString(), "/proc/nowhere", null), overrides)));
    } else {
      job = keep("Job", call("Job.parse", "", null, () -> Job.parse(text, overrides)));
    }
    if (job == null) return;
    job.stalls = stalls;
    job.ranks = ranks;
  }

  private void useJob() throws IOException {
    Thing<Job> thing = any("Job");
    if (thing == null) {
      makeJob();
      return;
    }
    Job it = thing.it;
    switch (random.nextInt(7)) {
      case 0: call("Job.json", "", thing, it::json); break;
      case 1: call("Job.outputDir", "", thing, it::outputDir); break;
      case 2: call("Job.toString", it::toString); break;
      case 3: {
        int what = random.nextInt(4);
        Thing<Device> on = device();
        call("Job.advise", "", null, () -> it.advise(on.it, of(0.005, 0.02, 0.0, Double.NaN), oneIn(8), (done, total, text) -> {
          if (what == 0) throw new Mine();
          if (what == 1) it.stopAdvising();
          return what != 2;
        }));
        act("Job.stopAdvising", it::stopAdvising);
        break;
      }
      case 4: if (oneIn(3)) close(thing); break;
      default: {
        Thing<Device> on = device();
        Job.Start start = oneIn(20) ? null : of(Job.Start.values());
        Thing<Job.Run> run = keep("Job.Run", call("Job.run", "" + start, thing, () -> it.run(on.it, start)));
        if (run == null) break;
        run.stalls = thing.stalls;
        run.ranks = thing.ranks;
      }
    }
  }

  private void useRun() {
    Thing<Job.Run> thing = any("Job.Run");
    if (thing == null) return;
    Job.Run it = thing.it;
    int what = random.nextInt(5);
    switch (random.nextInt(10)) {
      case 0:
      case 1:
      case 2: {
        Iterator<Job.Event> events =
            call("Job.Run.events", () -> it.events(thing.stalls ? of(0.01, 0.001) : of(0.0, 0.01, -1.0, Double.NaN)).iterator());
        for (int i = of(1, 3, 6); i > 0; --i) {
          if (!call("Job.Run.Iterator.hasNext", events::hasNext)) {
            call("Job.Run.Iterator.next", events::next);
            break;
          }
          if (call("Job.Run.Iterator.next", "", thing, events::next) == null) break;
        }
        break;
      }
      case 3:
        act("Job.Run.setEvaluationListener", () -> it.setEvaluationListener(what == 4 ? null : function((done, batches) -> {
          if (what == 0) throw new Mine();
          if (what == 1) call("Job.Run.stats", "in its own call", null, it::stats);
          if (what == 2) act("Job.Run.stop", it::stop);
          return what != 3;
        })));
        break;
      case 4: {
        Trainer trainer = call("Job.Run.trainer", it::trainer);
        if (trainer != null && !thing.stalls) keep("Trainer", trainer);  // others would wait for a batch
        break;
      }
      case 5:  // several ranks wait for a batch first
        if (!thing.stalls || !thing.ranks) call("Job.Run.evaluate", "", thing, it::evaluate);
        break;
      case 6: if (!thing.stalls) call("Job.Run.profile", "", thing, () -> it.profile(of(1, 0), of("text", "x", null))); break;
      case 7: call("Job.Run.stats", "", thing, it::stats); break;
      case 8: act("Job.Run.stop", it::stop); break;
      default: if (oneIn(2)) close(thing);
    }
  }

  /** A run to its end, whose folder others find. */
  private void finishARun() {
    Thing<Device> on = new Thing<>("Device", device);
    String out = newFolder();
    Job job = Job.parse(jobJson("", "\"train\": {\"steps\": 3}, \"evaluation\": {\"pipeline\": " + rowsJson("") + "}, \"output\": {\"dir\": \""
        + out + "\"}"));
    Job.Run run = call("Job.run", "to its end", null, () -> job.run(on.it, oneIn(2)));
    if (run == null) return;
    Iterator<Job.Event> events = call("Job.Run.iterator", run::iterator);
    while (events.hasNext() && call("Job.Run.Iterator.next", "to its end", null, events::next) != null) {}
    call("Job.Run.evaluate", "at its end", null, run::evaluate);
    setHyperparameter(run);
    finishedRun = out;
    if (oneIn(2)) act("Job.Run.close", run::close);
    Job.Run again = call("Job.run", "of a folder that is finished", null,
        () -> job.run(on.it, of(Job.Start.EVALUATE, Job.Start.RESUME, Job.Start.NEW, Job.Start.OVERWRITE, Job.Start.TRIAL)));
    if (again == null) return;
    call("Job.Run.profile", "of a folder that is finished", null, () -> again.profile(1, of("text", "json", "trace")));
    keep("Job.Run", again);
  }

  @SuppressWarnings("deprecation")
  private void setHyperparameter(Job.Run run) {
    act("Job.Run.setHyperparameter", () -> run.setHyperparameter("weight_decay", of(0.1, -1.0)));
  }

  /** The first of two ranks of which the other brings the same. Its functions use the run that they serve. */
  private final class Doubling extends Transport {
    final int fails;
    final int uses;
    volatile Job.Run run;
    private int reductions;

    Doubling(int fails, int uses) {
      super(0, 2);
      this.fails = fails;
      this.uses = uses;
      lent.incrementAndGet();
    }

    @Override
    public void allReduce(ByteBuffer data, Number number, Reduction reduction) throws Exception {
      Job.Run mine = run;
      if (mine != null && uses > 0) {
        if (call("Job.Run.stats", "in a transport", null, mine::stats) != null) throw new Finding("a run is used in its transport", null);
        if (uses == 1) act("Job.Run.stop", "in a transport", null, mine::stop);
        if (uses == 2) act("Job.Run.close", "in a transport", null, mine::close);
        if (uses == 3) System.gc();
      }
      if (++reductions == fails) {
        if (uses % 2 == 0) throw new RankLost("the wire is cut", 1);
        throw uses == 1 ? new IOException("the wire is cut") : new Mine();
      }
      if (reduction != Reduction.SUM) return;
      for (int at = 0; at < data.capacity(); at += number.bytes())
        switch (number) {
          case F32: data.putFloat(at, 2 * data.getFloat(at)); break;
          case F64: data.putDouble(at, 2 * data.getDouble(at)); break;
          case I32: data.putInt(at, 2 * data.getInt(at)); break;
          case I64: data.putLong(at, 2 * data.getLong(at)); break;
          default: throw new IOException("no numbers of 16 bits");
        }
    }

    @Override
    public void allGather(ByteBuffer part, long[] sizes, ByteBuffer data) {
      byte[] mine = new byte[part.remaining()];
      part.get(mine);
      data.put(mine).put(mine);
    }

    @Override
    public void broadcast(ByteBuffer data, int root) {}

    @Override
    public Transport split(int colour, int key) {
      Doubling part = new Doubling(fails, uses);
      part.run = run;
      return colour < 0 ? null : part;
    }

    @Override
    public void abort(String reason) throws Exception {
      if (uses == 4) throw new Mine();
    }

    @Override
    public void close() {
      if (lent.decrementAndGet() < 0) throw new Finding("a transport is closed twice", null);
      if (uses == 4) throw new Mine();
    }
  }

  private void runWithTransport() {
    Job job = Job.parse(jobJson("", "\"train\": {\"steps\": " + of(3, 1000000) + ", \"progress_every\": 0.02}, \"output\": {\"dir\": \"\"}"));
    Doubling transport = function(new Doubling(of(0, 1, 3, 9, 20), random.nextInt(6)));
    if (oneIn(10)) {
      call("Job.run", "null transport", null, () -> job.run(device, Job.Start.NEW, null));
      call("Job.run", "null device", null, () -> job.run(null, Job.Start.NEW, transport));
      call("Transport.new", () -> new Transport(of(-1, 1, 2), 2) {});
      lent.decrementAndGet();  // it was not taken
      return;
    }
    Job.Run run = call("Job.run", "transport", null, () -> job.run(device, Job.Start.NEW, transport));
    if (run != null) {
      transport.run = run;
      Iterator<Job.Event> events = run.events(0.01).iterator();
      for (int i = 0; i < 4 && call("Job.Run.Iterator.next", "with a transport", null, events::next) != null; ++i) {}
      if (oneIn(3)) call("Job.Run.trainer", "with a transport", null, () -> run.trainer().weights());
      transport.run = null;
      act("Job.Run.close", run::close);
    }
    act("Job.close", job::close);
  }

  // ---- studies and servers ----

  private void makeStudy() throws IOException {
    Path path = folder.resolve("a_study.json");
    Files.writeString(path, "{\"job\": " + jobJson("", "\"evaluation\": {\"pipeline\": " + rowsJson("") + "}") + ", \"budget\": {\"steps\": "
        + of(2, 1000000) + "}, \"evaluate\": {\"every_steps\": 2}, \"search\": {\"trials\": 2, \"searches\": 1, \"space\": "
        + "{\"schedule.learning_rate\": {\"from\": 1e-3, \"to\": 1e-1}}}}");
    String file = oneIn(4) ? of("/proc/nowhere", folder.resolve("rows.jsonl").toString(), "", null) : path.toString();
    String[] overrides = overrides("optimizer.momentum=0.5", 8);
    keep("Study", call("Study.load", file, null, () -> Study.load(file, overrides)));
  }

  private void useStudy() throws IOException {
    Thing<Study> thing = any("Study");
    if (thing == null) {
      makeStudy();
      return;
    }
    Study it = thing.it;
    String where = of("", folder.toString(), "/proc/nowhere", null, finishedStudy, finishedStudy);
    switch (random.nextInt(12)) {
      case 0: call("Study.json", "", thing, it::json); break;
      case 1: call("Study.outputDir", "", thing, it::outputDir); break;
      case 2:
      case 3: {
        String out = oneIn(20) ? null : newFolder();
        Thing<Device> on = device();
        act("Study.start", "" + out, thing, () -> it.start(on.it, out, of(1, 2, 0, -1, -2), oneIn(3)));
        break;
      }
      case 4: call("Study.results", where, thing, () -> it.results(where)); break;
      case 5: act("Study.writeReport", where, thing, () -> it.writeReport(where)); break;
      case 6: act("Study.stop", "", thing, it::stop); break;
      case 7: if (oneIn(2)) close(thing); break;
      case 8: {
        Thing<Device> on = device();
        act("Study.start", "its own folder", thing, () -> it.start(on.it));
        break;
      }
      default: for (int i = of(1, 4); i > 0; --i) call("Study.nextEvent", "", thing, () -> it.nextEvent(of(0.02, 0.0, -1.0, Double.NaN)));
    }
  }

  /** A study to its end, whose folder others find. */
  private void finishAStudy() throws IOException {
    makeStudy();
    Thing<Study> thing = any("Study");
    if (thing == null) return;
    Study it = thing.it;
    String out = newFolder();
    act("Study.start", "to its end", thing, () -> it.start(device, out, 2, false));
    for (int i = 0; i < 100; ++i) {
      String event = call("Study.nextEvent", "to its end", thing, () -> it.nextEvent(0.1));
      if (event == null) break;
      if (event.contains("\"kind\":\"end\"")) finishedStudy = out;
      if (i == 20) act("Study.stop", "", thing, it::stop);
    }
  }

  private Job serverJob(String meeting) {
    return Job.parse(jobJson("", "\"train\": {\"steps\": 4}, \"output\": {\"dir\": \"\"}, \"parallel\": {\"algorithm\": \"downpour\", "
        + "\"servers\": 1, \"size\": 1, \"timeout\": 60, \"rendezvous\": \"file:" + meeting + "\"}"));
  }

  private void useServer() throws IOException {
    Thing<Server> thing = any("Server");
    if (thing == null || oneIn(8)) {
      String meeting = Files.createDirectories(Path.of(newFolder())).toString();
      Job job = oneIn(20) ? null : serverJob(meeting);
      int shard = oneIn(4) ? of(1, -1) : 0;
      Thing<Server> made = keep("Server", call("Server.new", "" + shard, null, () -> new Server(job, shard)));
      if (made != null && oneIn(3)) {  // a worker, which trains to the end or loses its server
        boolean loses = oneIn(2);
        Job.Run run = call("Job.run", "worker", null, () -> job.run(device, Job.Start.NEW));
        if (run == null) return;
        if (loses) act("Server.stop", made.it::stop);
        Iterator<Job.Event> events = run.iterator();
        while (events.hasNext() && call("Job.Run.Iterator.next", "of a worker", null, events::next) != null) {}
        act("Job.Run.close", run::close);
      }
      return;
    }
    Server it = thing.it;
    switch (random.nextInt(5)) {
      case 0: call("Server.status", "", thing, it::status); break;
      case 1: act("Server.stop", "", thing, it::stop); break;
      case 2: if (oneIn(2)) close(thing); break;
      default: call("Server.await", "", thing, () -> it.await(of(0.0, 0.001, -1.0, 2e6, Double.NaN)));
    }
  }

  // ---- threads ----

  private Thread start(Action action) {
    Thread thread = new Thread(() -> {
      try {
        action.run();
      } catch (Throwable error) {
        failures.add(error);
      }
    });
    thread.start();
    return thread;
  }

  private void ends(String what, Thread thread) throws InterruptedException {
    soon(what, () -> !thread.isAlive());
    thread.join();
  }

  /** Cancels or closes a pipeline whose source waits, under a reader or an evaluation on another thread. */
  private void endARead() throws Exception {
    CountDownLatch gate = new CountDownLatch(1);
    CountDownLatch waits = new CountDownLatch(1);
    Pipeline pipeline = Pipeline.builder().source("waits", function(item -> {
      waits.countDown();
      gate.await(120, TimeUnit.SECONDS);
      item.set("image", new float[6], 6).set("label", new int[1]);
    })).add(Stages.batch(1)).option("threads", 2).build();
    Thing<Trainer> trainer = oneIn(3) ? any("Trainer") : null;
    Thread reader = start(() -> {
      if (trainer == null) call("Pipeline.next", "waits", null, pipeline::next);
      else call("Trainer.evaluate", "waits", null, () -> trainer.it.evaluate(pipeline));
    });
    // The trainer of an evaluation may refuse it at once.
    soon("a call of the source", () -> waits.getCount() == 0 || (trainer != null && !reader.isAlive()));
    if (oneIn(2)) {
      call("Pipeline.stats", pipeline::stats);
      act("Pipeline.cancel", "under a reader", null, pipeline::cancel);
      ends("the end of a call that was cancelled", reader);
      gate.countDown();
    } else {
      gate.countDown();
      act("Pipeline.close", "under a reader", null, pipeline::close);
      ends("the end of a call whose pipeline was closed", reader);
    }
    act("Pipeline.close", pipeline::close);
  }

  /** Stops or closes a run that waits for data, under a call of another thread. */
  private void endARun() throws Exception {
    Job job = Job.parse(jobJson(STALLS, "\"train\": {\"steps\": 3, \"progress_every\": 3600}, \"evaluation\": {\"pipeline\": "
        + rowsJson(STALLS) + "}, \"output\": {\"dir\": \"\"}"));
    Job.Run run = job.run(device, Job.Start.NEW);
    int what = random.nextInt(3);
    AtomicBoolean began = new AtomicBoolean();
    Thread waiting = start(() -> {
      began.set(true);
      if (what == 0) call("Job.Run.Iterator.next", "waits", null, run.iterator()::next);
      if (what == 1) call("Job.Run.evaluate", "waits", null, run::evaluate);
      if (what == 2) call("Job.Run.trainer", "waits", null, () -> run.trainer().weights());
    });
    soon("a thread", began::get);
    Thread.sleep(random.nextInt(30));
    if (what != 2 && oneIn(2)) act("Job.Run.close", "under a call", null, run::close);
    else act("Job.Run.stop", "under a call", null, run::stop);
    ends("the end of a call whose run was stopped", waiting);
    act("Job.Run.close", run::close);
    act("Job.close", job::close);
  }

  /** Stops or closes a study or a server, under a thread that waits for it. */
  private void endAService() throws Exception {
    boolean study = oneIn(2);
    boolean closes = oneIn(2);
    if (study) {
      Path path = folder.resolve("b_study.json");
      Files.writeString(path, "{\"job\": " + jobJson(STALLS, "\"evaluation\": {\"pipeline\": " + rowsJson("") + "}")
          + ", \"budget\": {\"steps\": 5}, \"evaluate\": {\"every_steps\": 2}, \"search\": {\"trials\": 1, \"searches\": 1, \"space\": "
          + "{\"schedule.learning_rate\": {\"from\": 1e-3, \"to\": 1e-1}}}}");
      Study it = Study.load(path.toString());
      it.start(device, newFolder(), 1, false);
      it.nextEvent(0);
      Thread waiting = start(() -> call("Study.nextEvent", "waits", null, () -> it.nextEvent(1e5)));
      Thread.sleep(random.nextInt(30));
      act(closes ? "Study.close" : "Study.stop", "under a call", null, closes ? it::close : it::stop);
      ends("the end of a call whose study was " + (closes ? "closed" : "stopped"), waiting);
      act("Study.close", it::close);
      return;
    }
    Server it = new Server(serverJob(Files.createDirectories(Path.of(newFolder())).toString()), 0);
    Thread waiting = start(() -> call("Server.await", "waits", null, () -> it.await(1e5)));
    Thread.sleep(random.nextInt(30));
    act(closes ? "Server.close" : "Server.stop", "under a call", null, closes ? it::close : it::stop);
    ends("the end of a call whose server was " + (closes ? "closed" : "stopped"), waiting);
    act("Server.close", it::close);
  }

  /** Threads that use one object while it is closed: each call is served or refused. */
  private void crowd() throws InterruptedException {
    Thing<Trainer> trainer = any("Trainer");
    Thing<Pipeline> pipeline = any("Pipeline");
    Thing<Batch> batch = any("Batch");
    Thing<Job.Run> run = any("Job.Run");
    if (trainer == null || pipeline == null || batch == null) return;
    boolean closes = oneIn(2);
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < 3; ++i) {
      Random mine = new Random(random.nextLong());
      threads.add(start(() -> {
        for (int k = 0; k < 6; ++k) {
          switch (mine.nextInt(closes ? 11 : 8)) {
            case 0: act("Trainer.step", "crowd", null, () -> trainer.it.step(rows(4))); break;
            case 1: call("Trainer.result", "crowd", null, () -> trainer.it.result(false)); break;
            case 2: call("Trainer.weights", "crowd", null, trainer.it::weights); break;
            case 3: call("Pipeline.next", "crowd", null, pipeline.it::next); break;
            case 4: call("Pipeline.stats", "crowd", null, pipeline.it::stats); break;
            case 5: call("Batch.toString", "crowd", null, batch.it::toString); break;
            case 6: call("Batch.floats", "crowd", null, () -> sum(batch.it.floats("image"))); break;
            case 7: if (run != null) call("Job.Run.stats", "crowd", null, run.it::stats); break;
            case 8: close(trainer); break;
            case 9: close(pipeline); break;
            default: close(batch);
          }
        }
      }));
    }
    for (Thread thread : threads) thread.join();
  }

  // ---- the walk ----

  private static final class Step {
    final int weight;
    final Action action;

    Step(int weight, Action action) {
      this.weight = weight;
      this.action = action;
    }
  }

  private final List<Step> steps = List.of(new Step(10, this::makePipeline), new Step(20, this::read), new Step(20, this::usePipeline),
      new Step(6, this::makeBatch), new Step(20, this::useBatch), new Step(4, this::makeModel), new Step(8, this::useModel),
      new Step(3, this::makeTrainer), new Step(40, this::useTrainer), new Step(4, this::pass), new Step(5, this::evaluate),
      new Step(3, this::fit), new Step(3, this::makeJob), new Step(6, this::useJob), new Step(15, this::useRun),
      new Step(1, this::finishARun), new Step(1, this::runWithTransport), new Step(1, this::makeStudy),
      new Step(8, this::useStudy), new Step(1, this::finishAStudy), new Step(4, this::useServer), new Step(4, this::useDevice),
      new Step(1, this::makeDevice), new Step(5, this::useLibrary), new Step(2, this::endARead), new Step(1, this::endARun),
      new Step(1, this::endAService), new Step(1, this::crowd), new Step(1, System::gc),
      new Step(12, () -> drop(of(world.keySet().toArray(new String[0])))));

  private void step() throws Exception {
    int drawn = random.nextInt(steps.stream().mapToInt(step -> step.weight).sum());
    for (Step step : steps)
      if ((drawn -= step.weight) < 0) {
        step.action.run();
        break;
      }
    if (Finding.first != null) throw new Finding(Finding.first.getMessage(), Finding.first);
    if (!failures.isEmpty()) throw new Finding("on another thread: " + failures.get(0).getMessage(), failures.get(0));
  }

  /** Threads but those of the JVM's compilers, which come and go, and open files. */
  private static int[] left() throws IOException {
    int threads = 0;
    try (Stream<Path> tasks = Files.list(Path.of("/proc/self/task"))) {
      for (Path task : (Iterable<Path>) tasks::iterator) {
        try {
          if (!Files.readString(task.resolve("comm")).matches("(C[12] Comp|G1 |GC Thread)[^\0]*")) ++threads;
        } catch (IOException ended) {
          // it has just ended
        }
      }
    }
    try (Stream<Path> files = Files.list(Path.of("/proc/self/fd"))) {
      return new int[] {threads, (int) files.count()};
    }
  }

  private boolean functionsLeft() {
    functions.removeIf(each -> each.get() == null);
    return !functions.isEmpty();
  }

  /** Closes everything, and waits until no more is left than `most`; null: until nothing changes any more. */
  private int[] rest(int[] most) throws Exception {
    buffers.clear();
    for (String kind : world.keySet())
      while (!world.get(kind).isEmpty()) drop(kind);
    int[] before = {0, 0};
    int same = 0;
    long began = System.nanoTime();
    while (true) {
      System.gc();
      Thread.sleep(20);
      int[] now = left();
      same = Arrays.equals(now, before) ? same + 1 : 0;
      before = now;
      boolean few = most == null ? same >= 5 : now[0] <= most[0] && now[1] <= most[1];
      if (few && !functionsLeft() && lent.get() == 0) return now;
      if (System.nanoTime() - began > within * 1e9)
        throw new Finding("left when everything is closed: " + now[0] + " threads and " + now[1] + " files"
            + (most == null ? "" : ", at most " + most[0] + " and " + most[1]) + "; " + functions.size() + " functions, " + lent.get()
            + " transports; threads: " + names(), null);
    }
  }

  private static Map<String, Integer> names() throws IOException {
    Map<String, Integer> names = new TreeMap<>();
    try (Stream<Path> tasks = Files.list(Path.of("/proc/self/task"))) {
      for (Path task : (Iterable<Path>) tasks::iterator) names.merge(Files.readString(task.resolve("comm")).trim(), 1, Integer::sum);
    }
    return names;
  }

  /** What the walk has not called: public methods of the binding. */
  private Set<String> uncalled() {
    Set<String> out = new TreeSet<>();
    for (Class<?> type : new Class<?>[] {Batch.class, Device.class, Job.class, Job.Run.class, Library.class, Model.class, Pipeline.class,
        Pipeline.Builder.class, Server.class, Spec.class, Study.class, Trainer.class}) {
      String name = type.getName().replaceAll(".*\\.", "").replace('$', '.');
      for (Method method : type.getDeclaredMethods())
        if (Modifier.isPublic(method.getModifiers()) && !method.isSynthetic() && !counts.containsKey(name + "." + method.getName()))
          out.add(name + "." + method.getName());
    }
    return out;
  }

  private synchronized void printCounts() {
    List<String> never = new ArrayList<>();
    System.out.println("   calls  succeeded");
    counts.forEach((name, count) -> {
      System.out.printf("%8d %10d  %s%n", count[0], count[1], name);
      if (count[1] == 0) never.add(name);
    });
    thrown.forEach((name, count) -> System.out.printf("%8d  %s%n", count, name));
    System.out.println("never succeeded: " + String.join(", ", never));
    System.out.println("not called: " + String.join(", ", uncalled()));
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> given = new HashMap<>(Map.of("--calls", "10000", "--seed", "1", "--within", "10", "--patience", "120"));
    for (int i = 0; i < arguments.length; i += 2) {
      if (i + 1 == arguments.length || !(given.containsKey(arguments[i]) || arguments[i].equals("--trace"))) {
        System.err.println("usage: Walk [--calls N] [--seed S] [--within SECONDS] [--patience SECONDS] [--trace FILE]");
        System.exit(2);
      }
      given.put(arguments[i], arguments[i + 1]);
    }
    long most = Long.parseLong(given.get("--calls"));
    repeat = "Walk --calls " + most + " --seed " + given.get("--seed");
    System.out.println(repeat);
    Path folder = Files.createTempDirectory("echotrain-walk");
    PrintStream trace = given.containsKey("--trace") ? new PrintStream(given.get("--trace")) : null;
    // The library's lines go to a handler that fails now and then.
    Logger logger = Logger.getLogger("io.echotrain");
    logger.setUseParentHandlers(false);
    logger.addHandler(new Handler() {
      private int lines;

      @Override
      public void publish(LogRecord record) {
        if (++lines % 7 == 0) throw new Mine();
      }

      @Override
      public void flush() {}

      @Override
      public void close() {}
    });
    Walk walk = new Walk(Long.parseLong(given.get("--seed")), Double.parseDouble(given.get("--within")),
        Double.parseDouble(given.get("--patience")), folder, trace);
    Thread watching = new Thread(walk::watch);
    watching.setDaemon(true);
    watching.start();
    try {
      long between = Math.min(Math.max(most / 16, 200), 1000);
      long next = between;
      int[] first = {0, 0};
      int rests = 0;
      while (walk.calls < most || rests < 3) {
        walk.step();
        if (walk.calls < next && walk.calls < most) continue;
        next = walk.calls + between;
        int[] left = walk.rest(++rests <= 2 ? null : first);
        if (rests > 2) continue;
        for (int i = 0; i < 2; ++i) first[i] = Math.max(first[i], left[i] + (i == 0 ? WORKERS : 0));
      }
      walk.printCounts();
      int[] left = left();
      System.out.println(walk.calls + " calls, nothing found; everything was closed " + rests + " times; at the end there are "
          + left[0] + " threads and " + left[1] + " files, at most " + first[0] + " and " + first[1]);
    } catch (Throwable found) {
      walk.end(found);
    }
    try (Stream<Path> files = Files.walk(folder)) {
      files.sorted(Collections.reverseOrder()).forEach(path -> path.toFile().delete());
    }
  }
}
