import io.echotrain.Batch;
import io.echotrain.Device;
import io.echotrain.EchoTrainException;
import io.echotrain.EchoTrainException.Code;
import io.echotrain.Job;
import io.echotrain.Layers;
import io.echotrain.Model;
import io.echotrain.Optimizers;
import io.echotrain.Pipeline;
import io.echotrain.Stages;
import io.echotrain.Trainer;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

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
  }

  private static void closedRuns() throws Exception {
    Path out = Files.createTempDirectory("echotrain-run");
    Job job = Job.parse(Behaviour.jobJson(), "output.dir=" + out);
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
        {message(() -> batch.set("label", io.echotrain.DType.I32, ByteBuffer.allocateDirect(12), 2)),
            "8 bytes; there are 12"},
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
    try (Trainer trainer = Behaviour.trainer(); Pipeline data = Behaviour.batches().build()) {
      named("pipeline", () -> trainer.fit(null, 1, null, null));
      named("pipeline", () -> trainer.evaluate(null));
      for (int epochs : new int[] {-1, 0}) {
        String said = message(() -> trainer.fit(data, epochs, null, null));
        Behaviour.expect(said.contains("epochs is " + epochs), said);
      }
    }
  }

  private static void named(String argument, Behaviour.Check check) throws Exception {
    String said = Behaviour.fails(NullPointerException.class, check).getMessage();
    Behaviour.expect(argument.equals(said), said);
  }
}
