import io.echotrain.Batch;
import io.echotrain.DType;
import io.echotrain.Device;
import io.echotrain.EchoTrainException;
import io.echotrain.EchoTrainException.Code;
import io.echotrain.Job;
import io.echotrain.Layers;
import io.echotrain.Model;
import io.echotrain.Models;
import io.echotrain.Optimizers;
import io.echotrain.Pipeline;
import io.echotrain.Stages;
import io.echotrain.Trainer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Everyday use and misuse of the Java binding. Argument: a folder of class folders with PNGs. */
public final class Behaviour {
  interface Check {
    void run() throws Exception;
  }

  private static int passed;
  private static int failed;
  static String root;

  static void test(String name, Check check) {
    try {
      check.run();
      ++passed;
    } catch (Throwable error) {
      ++failed;
      System.out.println("FAILED " + name);
      error.printStackTrace(System.out);
    }
  }

  static void expect(boolean condition, Object detail) {
    if (!condition) throw new AssertionError(String.valueOf(detail));
  }

  static <T extends Throwable> T fails(Class<T> type, Check check) throws Exception {
    try {
      check.run();
    } catch (Throwable error) {
      if (type.isInstance(error)) return type.cast(error);
      throw new AssertionError("expected " + type + ", got " + error, error);
    }
    throw new AssertionError("expected " + type);
  }

  static void failsWith(Code code, String text, Check check) throws Exception {
    EchoTrainException error = fails(EchoTrainException.class, check);
    expect(error.code() == code, error.code() + ": " + error.getMessage());
    expect(error.getMessage().contains(text), error.getMessage());
  }

  static Pipeline.Builder images() {
    return Pipeline.builder().option("threads", 2).option("epochs", 2)
        .add(Stages.folder(root), Stages.label(), Stages.decode());
  }

  static Pipeline.Builder batches() { return images().add(Stages.batch(16), Stages.normalize()); }

  static Device device() {
    String selector = System.getenv("ECHOTRAIN_TEST_DEVICE");
    return new Device(selector == null ? "" : selector);
  }

  static String jobJson() {
    return "{\"pipeline\": {\"stages\": [{\"stage\": \"folder\", \"root\": \"" + root + "\"},"
        + "{\"stage\": \"label\"}, {\"stage\": \"decode\"}, {\"stage\": \"batch\", \"size\": 16},"
        + "{\"stage\": \"normalize\"}]}, \"model\": {\"layers\": [{\"layer\": \"flatten\"},"
        + "{\"layer\": \"dense\", \"units\": 10}]}, \"optimizer\": {\"optimizer\": \"sgd\"},"
        + "\"schedule\": {\"learning_rate\": 0.01}, \"train\": {\"steps\": 50}}";
  }

  static Trainer trainer() {
    return new Trainer(device(),
        new Model(Layers.flatten(), Layers.dense(10)), Optimizers.sgd(), 0.01, 1);
  }

  private static long resident() throws IOException {
    return Long.parseLong(Files.readString(Paths.get("/proc/self/statm")).split(" ")[1]) * 4096;
  }

  /** Runs a class of the tests in a JVM of its own; its output is that of an error. */
  static void inANewProcess(List<String> options, String... command) throws Exception {
    StringBuilder output = new StringBuilder();
    expect(runInANewProcess(options, output, command) == 0, output);
  }

  private static int runInANewProcess(List<String> options, StringBuilder output, String... command) throws Exception {
    List<String> words = new ArrayList<>(List.of(Paths.get(System.getProperty("java.home"), "bin", "java").toString(),
        "-cp", System.getProperty("java.class.path")));
    for (String name : new String[] {"echotrain.cache.dir", "echotrain.library.path", "java.library.path"})
      if (System.getProperty(name) != null) words.add("-D" + name + "=" + System.getProperty(name));
    words.addAll(options);
    words.addAll(List.of(command));
    ProcessBuilder builder = new ProcessBuilder(words).redirectErrorStream(true);
    builder.environment().put("MALLOC_PERTURB_", "165");  // what is used after it was freed shows
    Process process = builder.start();
    output.append(new String(process.getInputStream().readAllBytes()));
    return process.waitFor();
  }

  public static void main(String[] arguments) throws Exception {
    root = arguments[0];
    test("an epoch at a time", () -> {
      try (Pipeline pipeline = batches().build()) {
        for (int epoch = 0; epoch < 2; ++epoch) {
          int samples = 0;
          for (Batch batch : pipeline) samples += batch.samples();
          expect(samples == 64, samples);
        }
        expect(pipeline.next() == null, "the epochs are over");
        expect(pipeline.stats().contains("\"fresh\":128"), pipeline.stats());
      }
    });
    test("a batch may come first", () -> inANewProcess(List.of(), "FirstUse"));
    test("a folder named for the library is the only one", () -> {
      StringBuilder output = new StringBuilder();
      expect(runInANewProcess(List.of("-Dechotrain.library.path=/nowhere"), output, "FirstUse") != 0, output);
      expect(output.toString().contains("system property echotrain.library.path: /nowhere/libechotrain_java.so: "), output);
    });
    test("libraries that were cut off are unpacked anew", () -> {
      Path cache = Files.createTempDirectory("echotrain-natives");
      List<String> options = List.of("-Dechotrain.cache.dir=" + cache);
      inANewProcess(options, "FirstUse");
      try (Stream<Path> all = Files.walk(cache)) {
        for (Path file : all.filter(Files::isRegularFile).collect(Collectors.toList()))
          Files.write(file, Arrays.copyOf(Files.readAllBytes(file), 1000));
      }
      inANewProcess(options, "FirstUse");
      try (Stream<Path> all = Files.walk(cache)) {
        all.sorted(Collections.reverseOrder()).forEach(path -> path.toFile().delete());
      }
    });
    test("buffers are views, and outlive their batch", () -> {
      FloatBuffer kept;
      float first;
      try (Pipeline pipeline = batches().build()) {
        Batch batch = pipeline.next();
        expect(batch.dtype("image") == DType.F32, batch.dtype("image"));
        expect(batch.shape("image").length == 4, Arrays.toString(batch.shape("image")));
        kept = batch.floats("image");
        expect(kept.isDirect() && kept.isReadOnly(), kept);
        first = kept.get(0);
        fails(IllegalArgumentException.class, () -> batch.ints("image"));
        failsWith(Code.NOT_FOUND, "imag", () -> batch.buffer("imag"));
        batch.close();
        batch.close();
        failsWith(Code.STATE, "closed", () -> batch.floats("image"));
      }
      System.gc();
      expect(kept.get(0) == first, kept.get(0));
    });
    test("memory that no buffer holds", () -> {
      long address = 1 << 12;  // it is not read
      ByteBuffer largest = io.echotrain.internal.Bindings.memory_at(address, Integer.MAX_VALUE);
      expect(largest.capacity() == Integer.MAX_VALUE, largest);
      for (long bytes : new long[] {1L << 31, (1L << 32) + 400})
        failsWith(Code.UNSUPPORTED, "an array of " + bytes + " bytes",
            () -> io.echotrain.internal.Bindings.memory_at(address, bytes));
    });
    test("a loop pass by pass", () -> {
      float[] x = {1, 2, -1, 0.5f, 3, -2};
      Model model = new Model(new String[] {"x"}, Layers.dense(1), Layers.dense(1)).loss("mse").freeze("dense_1.*");
      try (Trainer trainer = new Trainer(device(), model, Optimizers.sgd(), 0.1, 1)) {
        Batch input = new Batch().set("x", x, 3, 2);
        failsWith(Code.STATE, "call forward()", () -> trainer.backward(new Batch().set("output", new float[3], 3, 1), false));
        expect(trainer.forward(input).floats("output").capacity() == 3, "outputs");
        Batch ones = new Batch().set("output", new float[] {1, 1, 1}, 3, 1);
        trainer.backward(ones, false);
        expect(trainer.gradients("dense_2.bias").floats("dense_2.bias").get(0) == 3, "a sum");
        trainer.forward(input, true);
        Batch inputs = trainer.backwardToInputs(ones, true);
        expect(inputs.floats("x").capacity() == 6 && inputs.floats("x").get(0) == inputs.floats("x").get(2), "inputs");
        expect(trainer.gradients().floats("dense_2.bias").get(0) == 6, "added");
        trainer.setGradients(new Batch().set("dense_2.bias", new float[] {10}, 1));
        float frozen = trainer.weights().floats("dense_1.weight").get(0);
        float bias = trainer.weights().floats("dense_2.bias").get(0);
        Trainer.Step step = trainer.update();
        expect(step.step == 1 && step.samples == 6 && Double.isNaN(step.loss), step.samples);
        expect(Math.abs(trainer.weights().floats("dense_2.bias").get(0) - (bias - 1)) < 1e-6, "updated");
        expect(trainer.weights().floats("dense_1.weight").get(0) == frozen, "frozen");
        failsWith(Code.STATE, "call backward()", trainer::update);
      }
    });
    test("fields of sixteen bits", () -> {
      Batch batch = new Batch().set("x", new short[] {1, (short) 40000, -1}, 3);
      expect(batch.dtype("x") == DType.U16, batch.dtype("x"));
      expect(Short.toUnsignedInt(batch.shorts("x").get(1)) == 40000, batch.shorts("x").get(1));
      expect(batch.buffer("x").capacity() == 6, batch.buffer("x"));
      fails(IllegalArgumentException.class, () -> batch.ints("x"));
      fails(IllegalArgumentException.class, () -> batch.set("y", new short[5], 2, 3));
      try (Pipeline pipeline = images().add(Stages.cast("u16").scale(true)).build()) {
        expect(pipeline.next().dtype("image") == DType.U16, "decoded");
      }
    });
    test("wrong options name the nearest", () -> {
      failsWith(Code.INVALID_ARGUMENT, "threads", () -> batches().option("thread", 2).build());
      failsWith(Code.INVALID_ARGUMENT, "factor",
          () -> images().add((io.echotrain.Spec) Stages.echo(2).set("factr", 3)).build());
      fails(IllegalArgumentException.class, () -> images().add(Layers.flatten()));
      fails(IllegalArgumentException.class, () -> batches().option("threads", new Object()).build());
    });
    test("texts with a NUL character inside are refused, and others come whole", () -> {
      String cut = root + "/cut\0off";
      try (Trainer trainer = trainer()) {
        failsWith(Code.INVALID_ARGUMENT, "NUL character", () -> trainer.save(cut));
        failsWith(Code.INVALID_ARGUMENT, "NUL character", () -> trainer.exportOnnx(cut));
        failsWith(Code.INVALID_ARGUMENT, "NUL character", () -> trainer.load(cut));
        failsWith(Code.NOT_FOUND, "there is no checkpoint", () -> trainer.load(root + "/\u00e9\u20ac\ud83d\ude00"));
      }
      failsWith(Code.INVALID_ARGUMENT, "NUL character", () -> Job.load(cut));
      failsWith(Code.INVALID_ARGUMENT, "NUL character", () -> Job.load("x", cut));
      failsWith(Code.INVALID_ARGUMENT, "argument 'overrides' has null at index 1", () -> Job.load("x", "seed=1", null));
      failsWith(Code.INVALID_ARGUMENT, "option 'root'",
          () -> Pipeline.builder().add(Stages.folder(cut), Stages.label()).build().next());
      expect(Files.notExists(Paths.get(root + "/cut")), "nothing is written");
      try (Trainer trainer = trainer()) {
        for (String half : new String[] {"\ud83d", "\ude00", "\ude00\ud83d", "\ud83d\ud83d\ude00"})
          failsWith(Code.INVALID_ARGUMENT, "argument 'directory' has a surrogate without its other half",
              () -> trainer.load(root + "/" + half));
      }
    });
    test("texts come back as they were given", () -> {
      String smile = "\u00e9\u20ac\ud83d\ude00!";
      Batch batch = new Batch().set(smile, new int[] {1}, 1);
      expect(batch.fields().equals(List.of(smile)) && batch.ints(smile).get(0) == 1, batch.fields());
      failsWith(Code.NOT_FOUND, smile + "2", () -> batch.ints(smile + "2"));
      Job job = Job.parse(jobJson(), "output.dir=" + root + "/" + smile);
      expect(job.outputDir().equals(root + "/" + smile), job.outputDir());
      expect(job.json().contains(smile) && job.json().equals(Job.parse(job.json()).json()), job.json());
      for (String reason : new String[] {smile, "half of one: \ud83d", "a NUL: \0."}) {
        IllegalStateException thrown = new IllegalStateException(reason);
        try (Pipeline pipeline = images().map(smile, item -> { throw thrown; }).build()) {
          EchoTrainException error = fails(EchoTrainException.class, pipeline::next);
          expect(error.getCause() == thrown, error);
          expect(error.getMessage().contains(smile), error);
        }
      }
    });
    test("options of a device", () -> {
      for (boolean trusts : new boolean[] {false, true}) {
        Path folder = Files.createTempDirectory("echotrain-cache");
        Device.Options options = new Device.Options().tuning("").kernels(Device.Kernels.TILED)
            .cacheDir(folder.toString()).trustDriver(trusts);
        String selector = System.getenv("ECHOTRAIN_TEST_DEVICE");
        Model model = new Model(Layers.flatten(), Layers.dense(10));
        Device device = new Device(selector == null ? "" : selector, options);
        try (Pipeline pipeline = batches().build(); Trainer trainer = new Trainer(device, model, Optimizers.sgd(), 0.01, 1)) {
          device.close();
          model.close();
          failsWith(Code.STATE, "the device is closed", device::name);
          failsWith(Code.STATE, "the model is closed", model::json);
          trainer.step(pipeline.next());
          trainer.result(true);
        }  // the device goes, and writes its cache
        try (Stream<Path> files = Files.list(folder)) {
          boolean compared = files.anyMatch(file -> file.getFileName().toString().startsWith("kernels-"));
          expect(compared != trusts, "what was compared is kept there");
        }
      }
    });
    test("functions are stages", () -> {
      try (Pipeline pipeline = images().map("double", item -> {
        item.set("twice", new int[] {2 * item.ints("label").get(0)});
        item.remove("image");
      }).build()) {
        int count = 0;
        for (Batch sample : pipeline) {
          expect(sample.ints("twice").get(0) == 2 * sample.ints("label").get(0), sample.fields());
          expect(!sample.fields().contains("image"), sample.fields());
          ++count;
        }
        expect(count == 64, count);
      }
    });
    test("what a function throws is the cause", () -> {
      try (Pipeline pipeline = images().map("picky", item -> {
        if (item.ordinal() == 20) throw new IOException("twenty");
      }).build()) {
        int before = 0;
        EchoTrainException error = null;
        try {
          for (Batch sample : pipeline) ++before;
        } catch (EchoTrainException caught) {
          error = caught;
        }
        expect(before == 20, before);
        expect(error != null && error.code() == Code.CALLBACK, error);
        expect(error.getCause() instanceof IOException, error.getCause());
        expect(error.getMessage().contains("picky") && error.getMessage().contains(".png"), error.getMessage());
      }
    });
    test("an item is valid during its call only", () -> {
      AtomicReference<Batch> leaked = new AtomicReference<>();
      try (Pipeline pipeline = images().map("leak", leaked::set).build()) {
        for (Batch sample : pipeline) sample.close();  // until the last call has ended
        failsWith(Code.STATE, "during its call", () -> leaked.get().buffer("image"));
        leaked.get().close();
      }
    });
    test("use after close", () -> {
      Pipeline pipeline = batches().build();
      pipeline.close();
      pipeline.close();
      failsWith(Code.STATE, "closed", pipeline::next);
      Trainer trainer = trainer();
      trainer.close();
      failsWith(Code.STATE, "closed", () -> trainer.step(new Batch()));
    });
    test("a trainer in use by another thread", () -> {
      CountDownLatch entered = new CountDownLatch(1), letGo = new CountDownLatch(1);
      AtomicReference<Object> result = new AtomicReference<>();
      try (Trainer trainer = trainer();
          Pipeline evaluation = Pipeline.builder().option("epochs", 1)
              .add(Stages.folder(root), Stages.label(), Stages.decode())
              .map("wait", sample -> {
                entered.countDown();
                letGo.await();
              }).add(Stages.batch(16), Stages.normalize()).build();
          Pipeline pipeline = batches().build()) {
        Batch batch = pipeline.next();
        Thread thread = new Thread(() -> {
          try {
            result.set(trainer.evaluate(evaluation));
          } catch (Throwable error) {
            result.set(error);
          }
        });
        thread.start();
        entered.await();
        failsWith(Code.STATE, "in use by another thread", () -> trainer.step(batch));
        failsWith(Code.STATE, "in use by another thread", () -> trainer.predict(batch));
        failsWith(Code.STATE, "in use by another thread", () -> trainer.result(true));
        letGo.countDown();
        thread.join();
        expect(result.get() instanceof Trainer.Scores, result.get());
        trainer.step(batch);
      }
    });
    test("cancel from another thread", () -> {
      for (int i = 0; i < 20; ++i) {  // before the consumer waits, and meanwhile
        try (Pipeline pipeline = images().add(Stages.delay(600000)).build()) {
          Thread thread = new Thread(pipeline::cancel);
          thread.start();
          failsWith(Code.CANCELLED, "cancelled", pipeline::next);
          thread.join();
        }
      }
    });
    test("a thousand pipelines leave no memory behind", () -> {
      Check once = () -> {
        try (Pipeline pipeline = images().map("same", item -> {}).build()) {
          pipeline.next().close();
        }
      };
      for (int i = 0; i < 300; ++i) once.run();
      System.gc();
      Thread.sleep(200);
      long more = Long.MAX_VALUE;
      for (int attempt = 0; attempt < 3 && more >= 64L << 20; ++attempt) {  // the virtual machine's own memory may grow once
        long before = resident();
        for (int i = 0; i < 1000; ++i) once.run();
        System.gc();
        Thread.sleep(200);
        more = resident() - before;
      }
      expect(more < 64L << 20, more + " bytes more");
    });
    test("small calls leave no native memory behind", () -> inANewProcess(
        List.of("-Xms128m", "-Xmx128m", "-XX:+AlwaysPreTouch"), "NativeMemory"));
    test("collected in any order", () -> {
      Random random = new Random(1);
      for (int i = 0; i < 20; ++i) {
        Pipeline pipeline = batches().build();
        Batch batch = pipeline.next();
        List<Object> things = new ArrayList<>(List.of(pipeline, batch, batch.buffer("image")));
        pipeline = null;
        batch = null;
        Collections.shuffle(things, random);
        while (!things.isEmpty()) {
          things.remove(things.size() - 1);
          if (i % 5 == 0) System.gc();
        }
      }
    });
    test("not collected during a call", () -> inANewProcess(
        List.of("-Xcomp", "-XX:CompileCommand=quiet", "-XX:CompileCommand=compileonly,io.echotrain.*::*",
            "-XX:CompileCommand=compileonly,Collected::*"), "Collected", root));
    test("a source of one's own", () -> {
      try (Pipeline p = Pipeline.builder().source("count", item -> {
        int number = (int) (item.ordinal() & 0xFFFFFFFFFFL);
        if (number < 10) item.set("label", new int[] {number});
      }).add(Stages.batch(4).dropRemainder(false)).option("epochs", 1).build()) {
        int samples = 0;
        for (Batch batch : p) {
          expect(batch.ints("label").get(0) == samples, samples);
          samples += batch.samples();
        }
        expect(samples == 10, samples);
      }
    });
    test("a source that sets no field", () -> {
      try (Pipeline p = Pipeline.builder().source("nothing", item -> {}).option("epochs", 1).build()) {
        failsWith(Code.CALLBACK, "the first sample of a pass has no field", p::next);
      }
      try (Pipeline p = images().map("all gone", item -> {
        for (String field : item.fields()) item.remove(field);
      }).build()) {
        failsWith(Code.CALLBACK, "has removed every field", p::next);
      }
    });
    test("progress of evaluations", () -> {
      try (Trainer trainer = trainer()) {
        List<String> told = new ArrayList<>();
        trainer.setEvaluationListener((done, batches) -> told.add(done + " of " + batches));
        try (Pipeline data = batches().option("epochs", 0).build()) {
          trainer.evaluate(data);
          expect(told.equals(List.of("1 of 4", "2 of 4", "3 of 4", "4 of 4")), told);
          trainer.fit(data, 1, data, null);
          expect(told.size() == 8, told);
        }
        trainer.setEvaluationListener((done, batches) -> done < 2);
        failsWith(Code.CANCELLED, "after 2 batches", () -> trainer.evaluate(batches().build()));
        trainer.setEvaluationListener((done, batches) -> { throw new IllegalStateException("mine"); });
        IllegalStateException mine = fails(IllegalStateException.class, () -> trainer.evaluate(batches().build()));
        expect(mine.getMessage().equals("mine"), mine);
        trainer.setEvaluationListener((done, batches) -> { trainer.summary(); return true; });
        failsWith(Code.STATE, "in use", () -> trainer.evaluate(batches().build()));
        trainer.setEvaluationListener(null);
        trainer.evaluate(batches().build());
      }
    });
    test("a batch is closed while others use it", () -> {
      for (int round = 0; round < 200; ++round) {
        Batch batch = new Batch().set("x", new float[1000], 1000);
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        CountDownLatch ready = new CountDownLatch(2);
        List<Thread> readers = new ArrayList<>();
        for (int i = 0; i < 2; ++i) {
          readers.add(new Thread(() -> {
            ready.countDown();
            try {
              while (true) expect(batch.floats("x").get(999) == 0 && batch.shape("x")[0] == 1000, "other values");
            } catch (EchoTrainException error) {
              if (error.code() != Code.STATE) wrong.set(error);
            } catch (Throwable error) {
              wrong.set(error);
            }
          }));
          readers.get(i).start();
        }
        ready.await();
        batch.close();
        for (Thread reader : readers) reader.join();
        expect(wrong.get() == null, wrong.get());
      }
    });
    test("an item that leaks is used while its call ends", () -> {
      AtomicReference<Batch> leaked = new AtomicReference<>();
      AtomicReference<Throwable> wrong = new AtomicReference<>();
      Thread reader = new Thread(() -> {
        while (!Thread.currentThread().isInterrupted()) {
          Batch item = leaked.get();
          try {
            if (item != null) item.ints("label").get(0);
          } catch (EchoTrainException error) {
            if (error.code() != Code.STATE) wrong.set(error);
          }
        }
      });
      reader.start();
      for (int round = 0; round < 20; ++round) {
        try (Pipeline pipeline = images().map("leak", leaked::set).build()) {
          for (Batch sample : pipeline) expect(sample.fields().size() == 2, sample);
        }
      }
      reader.interrupt();
      reader.join();
      expect(wrong.get() == null, wrong.get());
    });
    test("what things say of themselves", () -> {
      try (Pipeline pipeline = images().map("same", item -> {}).add(Stages.batch(16)).build(); Trainer trainer = trainer()) {
        expect(pipeline.toString().matches("Pipeline\\(folder .*, decode .*, map same, batch .*; .*\"threads\": 2.*\\)"), pipeline);
        Batch batch = pipeline.next();
        expect(batch.toString().contains("label: I32 [16]") && batch.toString().contains("image: U8 [16, "), batch);
        batch.close();
        expect(batch.toString().equals("Batch(closed)"), batch);
        expect(trainer.toString().contains("\"units\":10") && trainer.toString().contains("sgd")
            && trainer.toString().contains(trainer.device().name()), trainer);
      }
    });
    test("training", () -> {
      try (Trainer trainer = trainer(); Pipeline pipeline = batches().option("epochs", 0).build();
          Pipeline validation = batches().option("epochs", 0).build()) {
        expect(pipeline.length().getAsLong() == 4, pipeline.length());
        int[] steps = new int[1];
        trainer.setStepListener((epoch, step) -> ++steps[0]);
        List<Trainer.Scores> history =
            trainer.fit(pipeline, 10, validation, (epoch, training, scores) -> epoch < 7);
        expect(history.size() == 8, history.size());
        expect(steps[0] == 32, steps[0]);
        expect(history.get(7).loss < history.get(0).loss, history.get(7).loss);
        expect(history.get(7).samples == 64 && trainer.evaluate(validation).samples == 64, history.get(7).samples);
        Batch wrong = new Batch().set("image", new float[6], 2, 3).set("label", new int[2], 2);
        failsWith(Code.INVALID_ARGUMENT, "[N, 3]", () -> trainer.step(wrong));
        fails(IllegalArgumentException.class, () -> new Batch().set("image", new float[5], 2, 3));
      }
    });
    test("a fit that fails leaves no steps to the next one", () -> {
      try (Trainer trainer = trainer(); Pipeline pipeline = batches().option("epochs", 0).build()) {
        trainer.setStepListener((epoch, step) -> { throw new IllegalStateException("mine"); });
        fails(IllegalStateException.class, () -> trainer.fit(pipeline, 1, null, null));
        trainer.setStepListener(null);
        long samples = trainer.fit(batches().build(), 1, null, null).get(0).samples;
        expect(samples == 64, samples);
      }
    });
    test("batches of any size, weights and summaries", () -> {
      try (Trainer trainer = trainer()) {
        failsWith(Code.STATE, "before the first batch", () -> trainer.weights());
        for (int rows : new int[] {1, 30, 16, 99}) {
          Batch images = new Batch().set("image", new float[rows * 64], rows, 8, 8, 1);
          expect(trainer.predict(images).shape("output")[0] == rows, rows);
        }
        Batch weights = trainer.weights();
        expect(weights.fields().size() == 2 && weights.floats("dense_2.weight").remaining() == 640, weights.fields());
        trainer.setWeights(new Batch().set("dense_2.bias", new float[] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 10));
        expect(trainer.weights("dense_2.bias").floats("dense_2.bias").get(2) == 2, "set");
        failsWith(Code.NOT_FOUND, "dense_2.bias", () -> trainer.weights("dense_2.bia"));
        failsWith(Code.INVALID_ARGUMENT, "f32 [10], not f32 [1]",
            () -> trainer.setWeights(new Batch().set("dense_2.bias", new float[1], 1)));
        trainer.setHyperparameter("weight_decay", 0.1);
        failsWith(Code.NOT_FOUND, "weight_decay", () -> trainer.setHyperparameter("weight_decai", 0.1));
        expect(trainer.summary().contains("650 parameters"), trainer.summary());
      }
      Model model = new Model(Layers.flatten(), Layers.dense(2));
      expect(model.summary("{\"image\": [8, 8, 1]}").contains("[N, 64]"), model.summary("{\"image\": [8, 8, 1]}"));
    });
    test("what a detector found", () -> {
      // One anchor in the middle, far more likely class 0 than background or class 1.
      float[] row = {0, 9, 0, 0, 0, 0, 0, 0.5f, 0.5f, 0.25f, 0.5f};
      try (Batch found = Trainer.detections(new Batch().set("output", row, 1, 1, 11), 0.5, 0.45, 2)) {
        java.nio.FloatBuffer boxes = found.floats("boxes");
        expect(boxes.remaining() == 12, boxes.remaining());
        expect(boxes.get(0) == 0 && boxes.get(1) == 0.375f && boxes.get(4) == 0.75f, boxes.get(1));
        expect(boxes.get(5) > 0.99f && boxes.get(6) == -1, boxes.get(5));
      }
      failsWith(Code.INVALID_ARGUMENT, "anchors", () -> Trainer.detections(new Batch().set("output", new float[4], 2, 2)));
    });
    test("models are graphs", () -> {
      Model graph = new Model(new String[] {"x"},
          Layers.dense(4).name("a"), Layers.relu(), Layers.add().input("relu_2", "a"),
          Layers.residual(Layers.dense(4)).shortcut(Layers.dense(4).bias(false)).activation("gelu"), Layers.dense(2));
      graph.loss("mse");
      Model ready = new Model(Models.mlp().hidden(8).classes(3));
      Device device = new Device(System.getenv().getOrDefault("ECHOTRAIN_TEST_DEVICE", ""));
      try (Trainer trainer = new Trainer(device, graph, Optimizers.adamw().clipNorm(1), 0.01, 1);
          Trainer other = new Trainer(device, ready, Optimizers.sgd(), 0.01, 1)) {
        trainer.step(new Batch().set("x", new float[6], 2, 3).set("label", new float[4], 2, 2));
        other.step(new Batch().set("image", new float[6], 2, 3).set("label", new int[2], 2));
        java.nio.file.Path path = java.nio.file.Files.createTempFile("echotrain", ".onnx");
        trainer.exportOnnx(path.toString());
        expect(java.nio.file.Files.size(path) > 500, java.nio.file.Files.size(path));
        Model tuned = Model.fromOnnx(path.toString(), "a", Layers.dense(3).name("head")).freeze("a.*");
        expect(tuned.toString().contains("head") && !tuned.toString().contains("residual"), tuned);
        failsWith(Code.NOT_FOUND, "'until' is 'b'", () -> Model.fromOnnx(path.toString(), "b"));
        java.nio.file.Files.delete(path);
        List<String> tuning = new ArrayList<>();
        device.tune(path.toString(), (done, total, text) -> tuning.add(text));
        expect(tuning.stream().anyMatch(text -> text.startsWith("nn 2x2x4 fp32: ")), tuning);
        expect(java.nio.file.Files.readString(path).contains("nn 2x2x4 fp32"), path);
        new Device("", 0, path.toString());
        java.nio.file.Files.delete(path);
      }
      failsWith(Code.INVALID_ARGUMENT, "6 n + 2", () -> new Model(Models.cifarResnet().depth(21)));
    });
    test("jobs", () -> {
      String json = jobJson();
      java.nio.file.Path out = java.nio.file.Files.createTempDirectory("echotrain-run");
      Job job = Job.parse(json, "train.steps=12");
      Job.Event last = null;
      for (Job.Event event : job.run(new Device(), false)) last = event;
      expect(last.kind == Job.Event.Kind.END && last.step == 12, last.step);
      failsWith(Code.INVALID_ARGUMENT, "steps", () -> Job.parse(json, "train.stepz=1"));
      List<String> doings = new ArrayList<>();
      String advice = job.advise(new Device(), 0.1, false, (done, total, text) -> doings.add(text));
      expect(doings.contains("the pipeline alone"), doings);
      failsWith(Code.CANCELLED, "stopped", () -> job.advise(new Device(), 60, false, (done, total, text) -> false));
      fails(IllegalStateException.class, () -> job.advise(new Device(), 60, false, (done, total, text) -> {
        throw new IllegalStateException("mine");
      }));
      expect(advice.contains("\"helps\":") && advice.contains("\"edges\":"), advice);
      failsWith(Code.INVALID_ARGUMENT, "seconds", () -> job.advise(new Device(), 0, false));
      String pipeline = json.substring("{\"pipeline\": ".length(), json.indexOf(", \"model\""));
      Job.Run told = Job.parse(json.substring(0, json.length() - 1) + ", \"evaluation\": {\"pipeline\": " + pipeline
          + ", \"every_steps\": 2}}", "train.steps=4", "train.progress_every=3600").run(new Device(), false);
      told.setEvaluationListener((done, batches) -> { throw new IllegalStateException("mine"); });
      List<Job.Event.Kind> kinds = new ArrayList<>();
      fails(IllegalStateException.class, () -> { for (Job.Event event : told) kinds.add(event.kind); });
      expect(kinds.equals(List.of(Job.Event.Kind.END)), kinds);
      Job kept = Job.parse(json, "train.steps=12", "output.dir=" + out);
      for (Job.Start start : new Job.Start[] {Job.Start.NEW, Job.Start.OVERWRITE, Job.Start.RESUME}) {
        for (Job.Event event : kept.run(new Device(), start)) last = event;
        expect(java.nio.file.Files.readAllLines(out.resolve("metrics.jsonl")).size() == 12, start);
      }
      failsWith(Code.STATE, "overwrite", () -> kept.run(new Device(), Job.Start.NEW));
    });
    test("events of a run", () -> {
      Path data = Files.createTempDirectory("echotrain-data");
      try (Stream<Path> drawn = Files.walk(Paths.get(root))) {
        for (Path from : (Iterable<Path>) drawn.skip(1)::iterator) Files.copy(from, data.resolve(Paths.get(root).relativize(from)));
      }
      Files.write(data.resolve("0").resolve("damaged.png"), new byte[] {1, 2, 3});
      String json = jobJson().replace(root, data.toString())
          .replace("{\"stage\": \"batch\"", "{\"stage\": \"echo\", \"factor\": 2}, {\"stage\": \"batch\"");
      Job.Event last = null;
      // Eight batches of 16: each of the 64 good images twice.
      for (Job.Event event : Job.parse(json, "train.steps=8", "pipeline.on_error=skip").run(device(), Job.Start.NEW)) last = event;
      try (Stream<Path> copied = Files.walk(data)) {
        copied.sorted(Collections.reverseOrder()).forEach(path -> path.toFile().delete());
      }
      expect(last.step == 8 && last.totalSteps == 8, last.totalSteps);
      expect(last.examples == 128 && last.fresh == 64 && last.echoed == 64, last.examples + " " + last.fresh + " " + last.echoed);
      expect(last.badRecords == 1, last.badRecords);
      expect((float) last.learningRate == 0.01f, last.learningRate);
      expect(last.seconds > 0 && last.examplesPerSecond > 0, last.seconds);
      expect(last.deviceWaitShare >= 0 && last.deviceWaitShare <= 1, last.deviceWaitShare);
      expect(!last.targetReached, "no target");
      String pipeline = jobJson().substring("{\"pipeline\": ".length(), jobJson().indexOf(", \"model\""));
      Job aimed = Job.parse(jobJson().replace(", \"train\"", ", \"evaluation\": {\"pipeline\": " + pipeline + "}, \"train\""),
          "train.steps=6", "train.progress_every=3600", "evaluation.every_steps=2", "evaluation.target_loss=1000000");
      List<Job.Event.Kind> kinds = new ArrayList<>();
      for (Job.Event event : aimed.run(device(), Job.Start.NEW)) kinds.add((last = event).kind);
      expect(kinds.equals(List.of(Job.Event.Kind.EVALUATION, Job.Event.Kind.END)), kinds);
      expect(last.targetReached && last.step == 2 && last.totalSteps == 6, last.step + " of " + last.totalSteps);
      expect(last.evalLoss > 0 && last.evalAccuracy >= 0 && last.evalAccuracy <= 1, last.evalLoss);
      expect(last.badRecords == 0 && last.fresh == 32 && last.echoed == 0, last.fresh);
    });
    test("what a device says of itself", () -> {
      Device device = device();
      expect(Device.list().get(device.index()).equals(device.name()), device.index());
      expect(device.memoryBytes() > 1 << 20, device.memoryBytes());
      boolean software = device.name().contains("llvmpipe") || device.name().contains("SwiftShader");
      expect(!software || device.kind() == Device.Kind.CPU, device.kind());
    });
    test("the wrong device is an error", () -> {
      expect(!Device.list().isEmpty(), "no device");
      fails(EchoTrainException.class, () -> new Device("no such device"));
      failsWith(Code.INVALID_ARGUMENT, "hang_seconds is -1", () -> new Device("", 0, "", -1));
    });
    Misuse.tests();
    Transports.tests();
    Servers.tests();
    Studies.tests();
    System.out.println(passed + " passed, " + failed + " failed");
    if (failed > 0) System.exit(1);
  }
}
