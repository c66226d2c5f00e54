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
import io.echotrain.Optimizers;
import io.echotrain.Pipeline;
import io.echotrain.Spec;
import io.echotrain.Stages;
import io.echotrain.Trainer;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** What is left in the middle, stopped or wrongly given; called by Behaviour. */
final class Misuse {
  private Misuse() {}

  static void tests() {
    Behaviour.test("a run that is closed gives its folder back", Misuse::closedRuns);
    Behaviour.test("a run has a trainer that outlives it", Misuse::trainersOfRuns);
    Behaviour.test("fields take as many values as their shapes need", Misuse::valuesAndShapes);
    Behaviour.test("the cause is what ended the run", Misuse::causes);
    Behaviour.test("an evaluation that is stopped within fit", Misuse::stoppedEvaluations);
    Behaviour.test("arguments that are missing or out of range", Misuse::arguments);
    Behaviour.test("functions that a pipeline refuses are freed", Misuse::refusedFunctions);
    Behaviour.test("a function is the source and a map, too", Misuse::functionsTwice);
    Behaviour.test("bad records reach a logger of their own", Misuse::logLines);
    Behaviour.test("information is not shown unless it is asked for", Misuse::informationIsNotShownByDefault);
    Behaviour.test("packing, tuning and explaining", Misuse::library);
  }

  private static void closedRuns() throws Exception {
    Path out = Files.createTempDirectory("echotrain-run");
    Job job = Job.parse(Behaviour.jobJson(), "output.dir=" + out);
    try (Job closed = Job.parse(Behaviour.jobJson())) {
      closed.close();
      Behaviour.failsWith(Code.STATE, "the job is closed", closed::json);
      Behaviour.expect(closed.toString().equals("Job(closed)"), closed);
    }
    Device device = Behaviour.device();
    try (Job.Run run = job.run(device, Job.Start.NEW)) {
      for (Job.Event event : run) break;
      Behaviour.failsWith(Code.STATE, "another run writes into", () -> job.run(device, Job.Start.OVERWRITE));
    }
    Job.Run again = job.run(device, Job.Start.OVERWRITE);
    Iterator<Job.Event> events = again.iterator();
    events.next();
    again.close();
    again.close();
    again.stop();
    Behaviour.failsWith(Code.STATE, "closed", events::next);
    String stalled = Behaviour.jobJson().replace("{\"stage\": \"label\"}",
        "{\"stage\": \"delay\", \"milliseconds\": 600000}, {\"stage\": \"label\"}");
    try (Job.Run run = Job.parse(stalled, "train.progress_every=3600").run(device, Job.Start.NEW)) {
      Job.Event event = run.events(0.01).iterator().next();
      Behaviour.expect(event.kind == Job.Event.Kind.PROGRESS && event.step == 0, event.step);
    }
    try (Job.Run last = job.run(device, Job.Start.OVERWRITE)) {
      last.stop();
      for (Job.Event event : last) Behaviour.expect(event.step < 50, event.step);
    }
  }

  @SuppressWarnings("deprecation")
  private static void trainersOfRuns() throws Exception {
    Path out = Files.createTempDirectory("echotrain-run");
    Job job = Job.parse(Behaviour.jobJson(), "output.dir=" + out, "train.steps=4");
    Device device = Behaviour.device();
    Trainer trainer;
    try (Job.Run run = job.run(device, Job.Start.NEW)) {
      trainer = run.trainer();
      Behaviour.expect(trainer == run.trainer() && trainer.device() == device, trainer);
      trainer.setHyperparameter("weight_decay", 0.1);
      run.setHyperparameter("weight_decay", 0.2);
      Behaviour.expect(run.stats().contains("\"stages\""), run.stats());
      Behaviour.failsWith(Code.STATE, "the trainer of a run", () -> trainer.result(true));
      Behaviour.failsWith(Code.STATE, "no evaluation", run::evaluate);
      for (Job.Event event : run) Behaviour.expect(event.step <= 4, event.step);
    }
    Behaviour.expect(!trainer.weights().fields().isEmpty(), "weights");
    try (Job.Run last = job.run(device, Job.Start.EVALUATE)) {
      Behaviour.failsWith(Code.STATE, "evaluate", () -> last.iterator().next());
      String name = trainer.weights().fields().iterator().next();
      FloatBuffer mine = trainer.weights(name).floats(name);
      Behaviour.expect(mine.equals(last.trainer().weights(name).floats(name)), name);
    }
    trainer.close();
  }

  private static void valuesAndShapes() throws Exception {
    Batch batch = new Batch();
    String[][] messages = {
        {message(() -> batch.set("label", new int[] {7, 8, 9})), "1 values; there are 3"},
        {message(() -> batch.set("label", new float[] {7, 8, 9}, 2)), "2 values; there are 3"},
        {message(() -> batch.set("label", new byte[5], 2, 3)), "6 values; there are 5"},
        {message(() -> batch.set("label", new short[0])), "1 values; there are 0"},
        {message(() -> batch.set("label", DType.I32, ByteBuffer.allocateDirect(12), 2)),
            "8 bytes; there are 12"},
        {message(() -> batch.set("label", new int[0], 1L << 32, 1L << 32)), "[4294967296, 4294967296] is larger than any"},
        {message(() -> batch.set("label", DType.I32, ByteBuffer.allocateDirect(0), 1L << 62)), "is larger"},
    };
    for (String[] said : messages) Behaviour.expect(said[0].contains(said[1]) && said[0].contains("'label'"), said[0]);
    Behaviour.expect(batch.fields().isEmpty(), batch.fields());
    batch.set("label", new int[] {7, 8, 9}, 3).set("one", new int[] {4}).set("none", new float[0], 0);
    Behaviour.expect(batch.ints("label").get(2) == 9 && batch.shape("one").length == 0, batch);
    Behaviour.expect(batch.floats("none").remaining() == 0, batch);
  }

  private static String message(Behaviour.Check check) throws Exception {
    return Behaviour.fails(IllegalArgumentException.class, check).getMessage();
  }

  // Records whose failures are skipped leave exceptions behind, whose words may stand in those of the one that matters.
  private static void causes() throws Exception {
    for (boolean silentFirst : new boolean[] {true, false}) {
      try (Pipeline pipeline = Pipeline.builder().source("count", item -> item.set("label", new int[] {0}))
          .map("picky", item -> {
            if ((item.ordinal() == 0) == silentFirst) throw new IllegalStateException();
            throw new IllegalStateException("number one");
          }).option("on_error", "skip").option("max_bad_records", 1).option("threads", 1).build()) {
        EchoTrainException error = Behaviour.fails(EchoTrainException.class, pipeline::next);
        Throwable cause = error.getCause();
        Behaviour.expect(cause != null && error.getMessage().contains("failed: " + cause), error);
        Behaviour.expect((cause.getMessage() == null) == !error.getMessage().contains("number one"), error);
      }
    }
    IllegalStateException mine = new IllegalStateException("mine");
    try (Trainer trainer = Behaviour.trainer();
        Pipeline validation = Behaviour.images().map("mine", item -> { throw mine; })
            .add(Stages.batch(16), Stages.normalize()).build()) {
      EchoTrainException error = Behaviour.fails(EchoTrainException.class, () -> trainer.evaluate(validation));
      Behaviour.expect(error.code() == Code.CALLBACK && error.getCause() == mine, error);
    }
  }

  private static void stoppedEvaluations() throws Exception {
    try (Trainer trainer = Behaviour.trainer(); Pipeline data = Behaviour.batches().option("epochs", 0).build();
        Pipeline validation = Behaviour.batches().option("epochs", 0).build()) {
      List<String> told = new ArrayList<>();
      trainer.setEvaluationListener((done, batches) -> {
        told.add(done + " of " + batches);
        return told.size() != 2;  // within the first evaluation
      });
      List<Trainer.Scores> scores = new ArrayList<>();
      trainer.fit(data, 2, validation, (epoch, training, validated) -> scores.add(validated));
      Behaviour.expect(scores.size() == 2 && scores.get(0) == null && scores.get(1) != null, scores);
      Behaviour.expect(told.equals(List.of("1 of 4", "2 of 4", "0 of -1", "0 of -1", "1 of 4", "2 of 4", "3 of 4", "4 of 4")), told);
      trainer.setEvaluationListener((done, batches) -> {
        validation.cancel();
        return true;
      });
      Behaviour.failsWith(Code.CANCELLED, "", () -> trainer.fit(data, 1, validation, null));
    }
  }

  private static void arguments() throws Exception {
    Model model = new Model(Layers.flatten(), Layers.dense(2));
    Device device = Behaviour.device();
    named("device", () -> new Trainer(null, model, Optimizers.sgd(), 0.1, 1));
    named("model", () -> new Trainer(device, null, Optimizers.sgd(), 0.1, 1));
    named("optimizer", () -> new Trainer(device, model, null, 0.1, 1));
    named("schedule", () -> new Trainer(device, model, Optimizers.sgd(), null, 1, 0));
    named("device", () -> Job.parse(Behaviour.jobJson()).run(null, Job.Start.NEW));
    named("options", () -> new Device("", (Device.Options) null));
    Behaviour.failsWith(Code.INVALID_ARGUMENT, "memory_limit_bytes is -1", () -> new Device("", -1));
    Behaviour.failsWith(Code.UNSUPPORTED, "9 axes; at most 8",
        () -> new Batch().set("x", new float[1], 1, 1, 1, 1, 1, 1, 1, 1, 1));
    named("kernels", () -> new Device.Options().kernels(null));
    named("options", () -> Library.pack("a", "b", null));
    named("layer", () -> new Model(Layers.flatten(), null));
    named("path", () -> Model.fromOnnx(null, ""));
    named("stage", () -> Pipeline.builder().add(Stages.decode(), null));
    named("function", () -> Pipeline.builder().source("s", null));
    named("function", () -> Pipeline.builder().map("m", null));
    named("specs", () -> Pipeline.builder().add((Spec[]) null));
    named("name", () -> Pipeline.builder().option(null, 1));
    named("option", () -> Stages.batch(2).set(null, 1));
    named("stage", () -> Stages.folder("a").then(null));
    named("layers", () -> new Model((Spec[]) null));
    named("inputs", () -> new Model((String[]) null, Layers.dense(2)));
    named("layer", () -> Model.fromOnnx("a", "", (Spec) null));
    named("options", () -> model.lora(null));
    named("options", () -> model.loss("mse", null));
    named("values", () -> new Batch().set("x", (float[]) null, 1));
    named("shape", () -> new Batch().set("x", new int[1], (long[]) null));
    named("dtype", () -> new Batch().set("x", null, ByteBuffer.allocateDirect(4), 1));
    named("direct", () -> new Batch().set("x", DType.F32, null, 1));
    named("start", () -> Job.parse(Behaviour.jobJson()).run(device, (Job.Start) null));
    named("runs", () -> Library.writeReport("title", null, "r.html", 0));
    named("run", () -> Library.writeReport("title", Collections.singletonList(null), "r.html", 0));
    new Device("", 0, null).close();
    String said = message(() -> new Model(new String[] {null}, Layers.dense(2)));
    Behaviour.expect(said.contains("'inputs' has a null"), said);
    said = message(() -> model.lora(Collections.singletonMap(null, 1)));
    Behaviour.expect(said.contains("name of an option is null"), said);
    // A call that is refused leaves the builder as it was.
    Pipeline.Builder builder = Pipeline.builder();
    named("function", () -> builder.source("s", null));
    named("name", () -> builder.map(null, item -> {}));
    Behaviour.expect(builder.toString().equals("Pipeline()"), builder);
    builder.map("m", item -> {});
    Behaviour.expect(builder.toString().equals("Pipeline(map m)"), builder);
    try (Trainer trainer = Behaviour.trainer(); Pipeline data = Behaviour.batches().build()) {
      named("pipeline", () -> trainer.fit(null, 1, null, null));
      named("pipeline", () -> trainer.evaluate(null));
      named("batch", () -> trainer.step(null));
      named("batch", () -> trainer.predict(null));
      named("batch", () -> trainer.forward(null, false));
      named("outputGradient", () -> trainer.backward(null, false));
      named("weights", () -> trainer.setWeights(null));
      named("outputs", () -> Trainer.detections(null));
      for (int epochs : new int[] {-1, 0}) {
        String refused = message(() -> trainer.fit(data, epochs, null, null));
        Behaviour.expect(refused.contains("epochs is " + epochs), refused);
      }
    }
  }

  private static WeakReference<MapFunction> refused(String name) throws Exception {
    int[] calls = {0};
    MapFunction function = item -> ++calls[0];  // an object of its own
    Behaviour.failsWith(Code.INVALID_ARGUMENT, "name", Pipeline.builder().source(name, function)::build);
    Behaviour.failsWith(Code.INVALID_ARGUMENT, "name", Pipeline.builder().map(name, function)::build);
    return new WeakReference<>(function);
  }

  private static void refusedFunctions() throws Exception {
    List<WeakReference<MapFunction>> functions = List.of(refused("half \ud800"), refused("cut\0here"));
    for (int i = 0; i < 500 && functions.stream().anyMatch(function -> function.get() != null); ++i) {
      System.gc();
      Thread.sleep(10);
    }
    for (WeakReference<MapFunction> function : functions) Behaviour.expect(function.get() == null, functions.indexOf(function));
  }

  private static void functionsTwice() throws Exception {
    MapFunction counts = item -> {
      float before = item.fields().contains("x") ? item.floats("x").get(0) : 0;
      if (item.ordinal() < 3) item.set("x", new float[] {before + 1}, 1);
    };
    try (Pipeline pipeline = Pipeline.builder().source("first", counts).map("second", counts).add(Stages.batch(3))
        .option("epochs", 1).build(); Batch batch = pipeline.next()) {
      Behaviour.expect(batch.samples() == 3 && batch.floats("x").get(2) == 2, batch);
    }
  }

  private static void named(String argument, Behaviour.Check check) throws Exception {
    String said = Behaviour.fails(NullPointerException.class, check).getMessage();
    Behaviour.expect(argument.equals(said), said);
  }

  private static void logLines() throws Exception {
    Path folder = Files.createTempDirectory("echotrain-bad");
    Files.createDirectory(folder.resolve("a"));
    for (int i = 0; i < 3; ++i) Files.writeString(folder.resolve("a").resolve(i + ".png"), "no image");
    List<LogRecord> records = Collections.synchronizedList(new ArrayList<>());
    Handler handler = handlerOf(records);
    Logger logger = Logger.getLogger("io.echotrain.badRecords");  // that of System.Logger
    logger.setUseParentHandlers(false);
    logger.addHandler(handler);
    try (Pipeline pipeline = Pipeline.builder().add(Stages.folder(folder.toString()), Stages.decode())
        .option("on_error", "skip").option("max_bad_share", 1.0).option("epochs", 1).build()) {
      Behaviour.expect(pipeline.next() == null, "no record is good");
    }
    for (int i = 0; i < 3000 && records.size() < 3; ++i) Thread.sleep(10);
    logger.removeHandler(handler);
    Behaviour.expect(records.size() >= 3, records.size());
    Behaviour.expect(records.get(0).getLevel() == Level.WARNING, records.get(0).getLevel());
    Behaviour.expect(records.get(0).getMessage().contains("bad record dropped"), records.get(0).getMessage());
  }

  /** Java's console shows INFO, so what the library calls information is below that. */
  private static void informationIsNotShownByDefault() throws Exception {
    List<LogRecord> records = Collections.synchronizedList(new ArrayList<>());
    Handler handler = handlerOf(records);
    Logger logger = Logger.getLogger("io.echotrain");
    logger.setUseParentHandlers(false);
    logger.addHandler(handler);
    logger.setLevel(Level.FINE);
    try (Pipeline pipeline = Pipeline.builder().add(Stages.webdataset("http://127.0.0.1:1/none.tar"))
        .option("remote_retries", 1).build()) {
      Behaviour.fails(EchoTrainException.class, pipeline::next);  // after it has tried again, and said so
    }
    for (int i = 0; i < 3000 && records.isEmpty(); ++i) Thread.sleep(10);
    logger.removeHandler(handler);
    logger.setUseParentHandlers(true);
    logger.setLevel(null);
    Behaviour.expect(records.get(0).getLevel() == Level.FINE, records.get(0).getLevel());
    Behaviour.expect(records.get(0).getMessage().contains("trying again"), records.get(0).getMessage());
  }

  private static Handler handlerOf(List<LogRecord> records) {
    return new Handler() {
      @Override
      public void publish(LogRecord record) {
        records.add(record);
        if (records.size() == 1) throw new IllegalStateException("loses its own line only");
      }

      @Override
      public void flush() {}

      @Override
      public void close() {}
    };
  }

  private static void library() throws Exception {
    Path folder = Files.createTempDirectory("echotrain-library");
    List<Long> told = new ArrayList<>();
    String packed = Library.pack(Behaviour.root, folder.resolve("x").toString(), Map.of("per_shard", 40), (done, total) -> {
      told.add(done);
      return true;
    });
    Behaviour.expect(packed.contains("\"samples\"") && !told.isEmpty(), packed);
    Behaviour.failsWith(Code.CANCELLED, "",
        () -> Library.pack(Behaviour.root, folder.resolve("y").toString(), Map.of(), (done, total) -> false));
    try {
      Library.pack(Behaviour.root, folder.resolve("z").toString(), Map.of(), (done, total) -> {
        throw new IllegalStateException("mine");
      });
      Behaviour.expect(false, "the listener's exception is lost");
    } catch (IllegalStateException mine) {
      Behaviour.expect(mine.getMessage().equals("mine"), mine);
    }
    String spec = "{\"stages\": [{\"stage\": \"folder\", \"root\": \"" + Behaviour.root
        + "\"}, {\"stage\": \"decode\"}, {\"stage\": \"batch\", \"size\": 4}]}";
    List<Long> trials = new ArrayList<>();
    List<String> texts = new ArrayList<>();
    String tuned = Library.tunePipeline(spec, 0.02, 0, (done, total, text) -> trials.add(done) && texts.add(text));
    Behaviour.expect(tuned.contains("samples_per_s") && trials.get(trials.size() - 1) == trials.size(), trials);
    for (String text : texts) Behaviour.expect(text.startsWith("{") && text.contains("samples_per_s"), text);
    Behaviour.failsWith(Code.CANCELLED, "", () -> Library.tunePipeline(spec, 0.02, 0, (done, total, text) -> false));
    Behaviour.fails(IllegalStateException.class, () -> Library.tunePipeline(spec, 0.02, 0, (done, total, text) -> {
      throw new IllegalStateException("mine");
    }));
    try (Pipeline pipeline = Pipeline.fromJson(spec)) {
      pipeline.next().close();
      Behaviour.expect(Library.explainStats(pipeline.stats(), "json").contains("bottleneck"), pipeline);
    }
    Behaviour.failsWith(Code.INVALID_ARGUMENT, "", () -> Library.explainStats("{}", "text"));
    Behaviour.failsWith(Code.NOT_FOUND, "none", () -> Library.writeReport("title",
        List.of(new Library.ReportedRun("a", folder.resolve("none").toString())), folder.resolve("r.html").toString(), 0));
    Behaviour.expect(Library.schema("pack").contains("per_shard") && Library.version().startsWith("0."), Library.version());
    Model model = Model.fromJson("{\"model\": \"mlp\", \"hidden\": [3]}").loss("softmax_cross_entropy", Map.of("label_smoothing", 0.1));
    Behaviour.expect(model.json().contains("label_smoothing"), model);
  }
}
