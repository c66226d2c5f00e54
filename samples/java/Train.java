import io.echotrain.Device;
import io.echotrain.EchoTrainException;
import io.echotrain.Layers;
import io.echotrain.Model;
import io.echotrain.Optimizers;
import io.echotrain.Pipeline;
import io.echotrain.Stages;
import io.echotrain.Trainer;

/**
 * Trains a small classifier on a folder of class folders with PNGs.
 *
 * <pre>java -cp echotrain.jar:echotrain-natives.jar Train.java FOLDER</pre>
 */
public final class Train {
  public static void main(String[] arguments) {
    if (arguments.length != 1) {
      System.err.println("usage: Train FOLDER   (FOLDER/CLASS/*.png)");
      System.exit(2);
    }
    try (Pipeline pipeline = Pipeline.builder()
            .add(Stages.folder(arguments[0]), Stages.label().classes(10), Stages.decode().channels("gray"))
            .add(Stages.echo(2).buffer(500), Stages.randomCrop().pad(2))
            .add(Stages.batch(32), Stages.normalize())
            .option("seed", 1).build();
        Trainer trainer = new Trainer(new Device(),
            new Model(Layers.conv2d(8).activation("relu"), Layers.maxPool(), Layers.flatten(), Layers.dense(10)),
            Optimizers.sgd().momentum(0.9), 0.02, /*seed=*/1)) {
      System.out.println("device: " + trainer.device().name());
      long batches = pipeline.length().orElse(0);  // a folder's is known; that of shards after an epoch
      trainer.setStepListener((epoch, step) -> {
        if (step.step % 10 == 0) System.err.printf("\repoch %d: step %d of %d, loss %.3f ", epoch + 1,
            step.step - epoch * batches, batches, step.loss);
      });
      trainer.fit(pipeline, 3, null, (epoch, training, validation) -> {
        System.err.print("\r");
        System.out.printf("epoch %d: loss %.3f, accuracy %.1f %%%n", epoch + 1, training.loss,
            100 * training.accuracy);
        return true;  // go on
      });
    } catch (EchoTrainException error) {
      System.err.println(error.code() + ": " + error.getMessage());
      System.exit(1);
    }
  }
}
