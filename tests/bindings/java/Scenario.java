import io.echotrain.Batch;
import io.echotrain.Device;
import io.echotrain.Layers;
import io.echotrain.Model;
import io.echotrain.Optimizers;
import io.echotrain.Pipeline;
import io.echotrain.Stages;
import io.echotrain.Trainer;

/** The scenario of scenario.c in Java. */
public final class Scenario {
  private static Pipeline pipeline(String pattern, boolean training) {
    Pipeline.Builder builder = Pipeline.builder().option("seed", 5).option("threads", 2)
        .add(Stages.webdataset(pattern), Stages.take(training ? 1024 : 300))
        .add(Stages.label().classes(10), Stages.decode());
    if (training) builder.add(Stages.echo(2.5).buffer(200), Stages.randomCrop().pad(2));
    return builder.add(Stages.batch(64).dropRemainder(training), Stages.normalize()).build();
  }

  private static Trainer trainer(Device device) {
    Model model = new Model(Layers.conv2d(8).activation("relu"), Layers.maxPool(), Layers.flatten(),
        Layers.dense(10));
    return new Trainer(device, model, Optimizers.sgd().momentum(0.9), 0.05, 3);
  }

  private static void printBits(String what, double value) {
    System.out.printf("%s %016x\n", what, Double.doubleToLongBits(value));
  }

  private static void takeResults(Trainer trainer, boolean wait) {
    for (Trainer.Step r = trainer.result(wait); r != null; r = trainer.result(wait)) printBits("loss", r.loss);
  }

  private static void trainEpoch(Trainer trainer, Pipeline pipeline) {
    for (Batch batch : pipeline) {
      trainer.step(batch);
      takeResults(trainer, false);
    }
    takeResults(trainer, true);
  }

  public static void main(String[] arguments) {
    String selector = System.getenv("ECHOTRAIN_TEST_DEVICE");
    Device device = new Device(selector == null ? "" : selector);
    String position;
    try (Pipeline pipeline = pipeline(arguments[0], true); Trainer trainer = trainer(device)) {
      trainEpoch(trainer, pipeline);
      trainer.save(arguments[2]);
      position = pipeline.save();
    }
    try (Pipeline pipeline = pipeline(arguments[0], true); Pipeline test = pipeline(arguments[1], false);
        Trainer trainer = trainer(device)) {
      pipeline.restore(position);
      trainer.load(arguments[2]);
      trainEpoch(trainer, pipeline);
      Trainer.Scores scores = trainer.evaluate(test);
      printBits("eval_loss", scores.loss);
      printBits("eval_accuracy", scores.accuracy);
      try (Batch batch = test.next(); Batch outputs = trainer.predict(batch)) {
        for (int i = 0; i < 10; ++i) printBits("logit", outputs.floats("output").get(i));
      }
    }
  }
}
